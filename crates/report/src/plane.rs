//! Points in a plane with their uncertainty: throughput over users, latency over throughput, a figure from run to
//! run.
//!
//! It holds numbers, names and their positions; renderers draw it. Nothing in it is markup.

use loadlab_analysis::cases::case::Spread;
use loadlab_analysis::cases::metric::{Unit, Value};
use loadlab_record::documents::summary::Verdict;

use crate::colour::Colour;
use crate::figures;
use crate::terminal::width_of;

/// An axis whose values span more than this factor is logarithmic.
pub const LOG_FROM: f64 = 30.0;
/// Approximate number of labels on an axis.
const LABELS: f64 = 5.0;
/// More on a logarithmic axis would overlap on a phone.
const MOST_LABELS: usize = 8;
/// How many letters all labels of an axis with named positions may have together.
const MOST_LETTERS: usize = 40;
/// A letter of a label takes this share of the axis of a small drawing.
const LETTER: f64 = 1.0 / 42.0;

/// A drawing of points in a plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Plane {
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub across: Axis,
    /// The vertical axis.
    pub up: Axis,
    /// Points, as measured.
    pub groups: Vec<Group>,
    /// Curves, as concluded from them.
    pub curves: Vec<Curve>,
    /// Marked positions on the horizontal axis.
    pub marks: Vec<PlaneMark>,
    /// Marked heights.
    pub heights: Vec<PlaneMark>,
    /// Where the values are in a table, in words: `the table below`.
    pub behind: String,
    /// What a reader must know about it.
    pub note: Option<String>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it shows: `users`.
    pub name: String,
    /// Unit of its values.
    pub unit: Unit,
    /// Whether it is drawn on a logarithmic scale; then all values are above zero.
    pub logarithmic: bool,
    /// Positions with their own names, instead of round numbers.
    pub names: Vec<(f64, String)>,
    /// Whether its positions are numbers, and the names the plan's spelling of them: names are then placed at their
    /// numbers.
    pub is_numeric: bool,
}

impl Axis {
    /// An axis with round numbers.
    pub fn of(name: &str, unit: Unit, logarithmic: bool) -> Axis {
        Axis { name: name.to_owned(), unit, logarithmic, names: Vec::new(), is_numeric: false }
    }
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// Whether a line joins them, in their order.
    pub joined: bool,
    /// The points.
    pub spots: Vec<Spot>,
}

/// A point with its ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct Spot {
    /// What it represents: `64 users`.
    pub name: String,
    /// The text beside it, if there is room.
    pub label: Option<String>,
    /// Its horizontal position.
    pub across: RangedValue,
    /// Its height.
    pub up: RangedValue,
    /// Whether its height is only a lower bound: drawn hollow.
    pub is_open: bool,
    /// The case's verdict, where the drawing shows it.
    pub verdict: Verdict,
    /// The section of this page that it is about, if there is one.
    pub section: Option<String>,
}

/// A curve with the band it lies in.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// Its points, from left to right.
    pub line: Vec<(f64, RangedValue)>,
}

/// A position or a height with a name, and the interval it lies in if known.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaneMark {
    /// The value.
    pub at: f64,
    /// Its interval.
    pub between: Option<(f64, f64)>,
    /// What it is, in few words.
    pub text: String,
}

/// A value between the ends of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangedValue {
    /// The value.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl RangedValue {
    /// A value that is known exactly.
    pub fn exact(value: f64) -> RangedValue {
        RangedValue { value, low: value, high: value }
    }

    /// A figure over trials: the median, and all of them; `None` if unknown.
    pub fn over(spread: &Spread) -> Option<RangedValue> {
        let value = spread.median.known()?;
        Some(RangedValue {
            value,
            low: spread.min.unwrap_or(value).min(value),
            high: spread.max.known().unwrap_or(value).max(value),
        })
    }
}

/// Maps values to shares of an axis, and positions its labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AxisScale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl AxisScale {
    /// A scale over these values: from zero, or from below the lowest if that is negative; or logarithmic from a
    /// little below the lowest.
    pub fn over(values: impl Iterator<Item = f64>, axis: &Axis) -> AxisScale {
        let known = values.filter(|v| v.is_finite() && (!axis.logarithmic || *v > 0.0));
        let (least, most) = known.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), v| (l.min(v), m.max(v)));
        if !axis.names.is_empty() {
            let ends = axis.names.iter().map(|(at, _)| *at);
            let (least, most) = ends.fold((least, most), |(l, m), v| (l.min(v), m.max(v)));
            if axis.is_numeric {
                return AxisScale::around(least, most, axis.logarithmic && least > 0.0);
            }
            return AxisScale { low: least - 0.5, high: most + 0.5, logarithmic: false };
        }
        match axis.logarithmic && least.is_finite() {
            true => AxisScale { low: least / 1.2, high: most * 1.2, logarithmic: true },
            false if least < 0.0 => {
                AxisScale { low: least * 1.06, high: most.max(0.0) * 1.06, logarithmic: false }
            }
            false => {
                AxisScale { low: 0.0, high: if most > 0.0 { most * 1.06 } else { 1.0 }, logarithmic: false }
            }
        }
    }

    /// A scale over numbers whose ends are points: with a little room beyond, and not from zero.
    fn around(least: f64, most: f64, logarithmic: bool) -> AxisScale {
        const ROOM: f64 = 0.05;
        if logarithmic {
            let room = (most / least).powf(ROOM).max(1.01);
            return AxisScale { low: least / room, high: most * room, logarithmic };
        }
        let room = ((most - least) * ROOM).max(most.abs() * 1e-9).max(f64::MIN_POSITIVE);
        AxisScale { low: least - room, high: most + room, logarithmic }
    }

    /// The names of numbers that have room: the ends first, then from left to right.
    fn apart(&self, names: &[(f64, String)]) -> Vec<(f64, String)> {
        let mut all: Vec<&(f64, String)> = names.iter().collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.dedup_by(|a, b| a.0 == b.0);
        let last = all.len().saturating_sub(1);
        let order = [0, last].into_iter().chain(1..last.max(1));
        let mut kept: Vec<&(f64, String)> = Vec::new();
        for name in order.filter_map(|i| all.get(i)) {
            let wide = |n: &(f64, String)| (width_of(&n.1) + 2) as f64 * LETTER;
            let far = |other: &&(f64, String)| {
                (self.place(other.0) - self.place(name.0)).abs() >= f64::midpoint(wide(name), wide(other))
            };
            if kept.iter().all(far) {
                kept.push(name);
            }
        }
        kept.into_iter().cloned().collect()
    }

    /// 0 at the beginning, 1 at the end; anything beyond is placed at the end.
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low).max(f64::MIN_POSITIVE),
        };
        share.clamp(0.0, 1.0)
    }

    /// Whether a value lies within.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Round numbers within it: 1, 2 and 5 times powers of ten, and if that is too many, only the powers.
    fn round_numbers(&self) -> Vec<f64> {
        if self.logarithmic {
            let (from, to) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
            let all = |steps: &[f64]| -> Vec<f64> {
                let each = (from..=to).flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
                each.filter(|v| self.holds(*v)).collect()
            };
            let (some, few) = (all(&[1.0, 2.0, 5.0]), all(&[1.0]));
            return if some.len() > MOST_LABELS { few } else { some };
        }
        let rough = (self.high - self.low) / LABELS;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * decade).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(10.0 * decade);
        let (from, to) = ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
        (from..=to).map(|i| i as f64 * step).collect()
    }

    /// Labels of an axis on this scale: position and text.
    pub fn labels(&self, axis: &Axis) -> Vec<(f64, String)> {
        if axis.names.is_empty() {
            // Zero is zero in every unit.
            let shown =
                |v: f64| if v == 0.0 { "0".to_owned() } else { figures::value(Value::Known(v), axis.unit) };
            let described = |v: f64| (v, shown(v));
            let factor = match axis.unit {
                Unit::Bytes | Unit::BytesPerS if !self.logarithmic => power_of_1024(self.high),
                _ => 1.0,
            };
            let scaled = AxisScale { low: self.low / factor, high: self.high / factor, ..*self };
            return scaled.round_numbers().into_iter().map(|v| described(v * factor)).collect();
        }
        if axis.is_numeric {
            return self.apart(&axis.names);
        }
        let longest = axis.names.iter().map(|(_, name)| width_of(name)).max().unwrap_or(1).max(1);
        let step = axis.names.len().div_ceil((MOST_LETTERS / longest).clamp(2, 8)).max(1);
        // The last one is always shown: readers look for the newest run.
        let kept = |i: usize| (axis.names.len() - 1 - i).is_multiple_of(step);
        axis.names.iter().enumerate().filter(|(i, _)| kept(*i)).map(|(_, name)| name.clone()).collect()
    }
}

impl Plane {
    /// Scales of both axes: across, up. They include every point and its range, every curve and mark, but bands only
    /// as far as that reaches anyway: an unbounded interval would squeeze the points into a corner.
    pub fn scales(&self) -> (AxisScale, AxisScale) {
        let ends = |a: RangedValue| [a.value, a.low, a.high];
        let spots = || self.groups.iter().flat_map(|g| &g.spots);
        let curve = || self.curves.iter().flat_map(|c| &c.line);
        let across = spots()
            .flat_map(|s| ends(s.across))
            .chain(curve().map(|(at, _)| *at))
            .chain(self.marks.iter().map(|m| m.at));
        let up = spots()
            .flat_map(|s| ends(s.up))
            .chain(curve().map(|(_, v)| v.value))
            .chain(self.heights.iter().map(|m| m.at));
        (AxisScale::over(across, &self.across), AxisScale::over(up, &self.up))
    }

    /// A point in words: `64 users: p99 48.2 ms (47.9 ms … 48.4 ms) at 1,200/s`; over a numeric axis, where a point is
    /// named after its case, `size=10KiB, users=5: p99 48.2 ms`.
    pub fn described(&self, group: &Group, spot: &Spot) -> String {
        let least = if spot.is_open { "≥ " } else { "" };
        let up = described_around(spot.up, self.up.unit);
        if self.across.is_numeric {
            return format!("{}: {} {least}{up}", spot.name, self.up.name);
        }
        let beside = match self.across.names.is_empty() && self.across.unit != Unit::Count {
            true => format!(" at {}", described_around(spot.across, self.across.unit)),
            false => String::new(),
        };
        format!("{}: {} {least}{up}{beside}", spot.name, group.name)
    }
}

/// The largest power of 1024 up to a value: in its multiples sizes have round labels.
fn power_of_1024(value: f64) -> f64 {
    1024f64.powf((value.max(1.0).ln() / 1024f64.ln()).floor())
}

fn described_around(around: RangedValue, unit: Unit) -> String {
    let value = figures::value(Value::Known(around.value), unit);
    match figures::range(Some(around.low), Value::Known(around.high), unit) {
        Some(range) if around.low < around.high => format!("{value} ({range})"),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(logarithmic: bool) -> Axis {
        Axis::of("x", Unit::Count, logarithmic)
    }

    #[test]
    fn labels_are_round_and_few() {
        let check = |values: &[f64], logarithmic: bool, expect: &[f64]| {
            let scale = AxisScale::over(values.iter().copied(), &axis(logarithmic));
            let got: Vec<f64> = scale.labels(&axis(logarithmic)).into_iter().map(|(v, _)| v).collect();
            assert_eq!(got.len(), expect.len(), "{got:?}");
            assert!(got.iter().zip(expect).all(|(a, b)| (a - b).abs() < 1e-9), "{got:?}");
        };
        check(&[3.0, 97.0], false, &[0.0, 50.0, 100.0]);
        check(&[0.0, 1.0], false, &[0.0, 0.5, 1.0]);
        check(&[], false, &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        check(&[-30.0, 97.0], false, &[0.0, 50.0, 100.0]);
        check(&[-97.0, 30.0], false, &[-100.0, -50.0, 0.0]);
        check(&[-3.0, -97.0], false, &[-100.0, -50.0, 0.0]);
        check(&[1.0, 64.0], true, &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        check(&[1.0, 9000.0], true, &[1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn values_beyond_the_axis_are_placed_at_its_end() {
        for logarithmic in [false, true] {
            let scale = AxisScale::over([1.0, 100.0].into_iter(), &axis(logarithmic));
            assert_eq!((scale.place(-5.0), scale.place(f64::INFINITY)), (0.0, 1.0));
            assert!(scale.place(1.0) > 0.0 && scale.place(100.0) < 1.0 && scale.holds(100.0));
        }
    }

    #[test]
    fn what_is_negative_is_below_zero() {
        let scale = AxisScale::over([-3.0, -1.0, 2.0].into_iter(), &axis(false));
        let places = [-3.0, -1.0, 0.0, 2.0].map(|v| scale.place(v));
        assert!(places[0] > 0.0 && places.is_sorted_by(|a, b| a < b) && places[3] < 1.0, "{places:?}");
    }

    #[test]
    fn the_newest_of_many_names_is_reported() {
        let named =
            Axis { names: (0..20).map(|i| (f64::from(i), format!("run {i}"))).collect(), ..axis(false) };
        let labels = AxisScale::over(std::iter::empty(), &named).labels(&named);
        assert_eq!(labels.len(), 5, "{labels:?}");
        assert_eq!(labels.last().map(|(_, name)| name.as_str()), Some("run 19"));
    }
}
