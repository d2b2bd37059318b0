//! Figures over a numeric axis: if an axis of a matrix holds numbers, they are the x-axis of a chart for each figure
//! that matters, with a line for each value of another axis.

use loadlab_analysis::cases::case::{CaseFindings, Spread};
use loadlab_analysis::cases::metric::{Metric, Unit, Value};
use loadlab_analysis::findings::Findings;
use loadlab_record::documents::labels::Labels;
use loadlab_record::documents::summary::Verdict;
use loadlab_record::text::units::{parse_bytes, parse_duration_ns, parse_rate_per_s};

use super::case_id;
use super::cases::LOGARITHMIC_FROM;
use crate::colour::Colour;
use crate::document::Trends;
use crate::figures;
use crate::plane::{Axis, Group, Plane, RangedValue, Spot};
use crate::render::verdict_word;

/// Figures that differ by no more than this share count as the same in all cases, as far as a drawing can show.
const NOISE: f64 = 0.02;
/// Two points make no curve.
const FEWEST_NUMBERS: usize = 3;
/// More lines than this in one drawing cannot be told apart.
const MOST_LINES: usize = 12;
/// More drawings than this are too many to read; the grids have the rest.
const MOST_PLANES: usize = 24;
/// Numbers that span less than this look alike on either scale, and a linear one is easier to read.
const LOGARITHMIC_SPAN: f64 = 4.0;

/// The drawings; none if no axis is numeric. `behind` names where the values are in a table.
pub(super) fn trends(findings: &Findings<'_>, axes: &[String], behind: &str) -> Option<Trends> {
    let facts = cases(findings).map(|(_, c)| &c.case.facts);
    let is_named = Labels::of(facts.clone(), axes).axes.is_empty();
    let varying = Labels::varying(facts, axes);
    let numeric = varying.iter().filter_map(|i| Some((*i, Numbers::of(&values_of(findings, *i))?)));
    // The axis with most values; the first if several have the same number.
    let (x, numbers) = numeric.reduce(|a, b| if b.1.distinct() > a.1.distinct() { b } else { a })?;
    let mut others: Vec<usize> = varying.iter().copied().filter(|i| *i != x).collect();
    others.sort_by_key(|i| std::cmp::Reverse(values_of(findings, *i).len()));
    let by = others.iter().copied().find(|i| values_of(findings, *i).len() <= MOST_LINES);
    if by.is_none() && !others.is_empty() {
        return None;
    }
    let facets: Vec<usize> = varying.iter().copied().filter(|i| *i != x && Some(*i) != by).collect();
    let matrix = Matrix { findings, axes, x, numbers, by, facets, is_named, behind };
    matrix.trends()
}

/// The cases that a line goes through, with their indices; a control would repeat a point.
fn cases<'a>(findings: &'a Findings<'_>) -> impl Iterator<Item = (usize, &'a CaseFindings<'a>)> + Clone {
    findings.cases.iter().enumerate().filter(|(_, case)| !case.is_control())
}

fn values_of(findings: &Findings<'_>, axis: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for (_, value) in findings.cases.iter().filter_map(|c| c.case.facts.values.get(axis)) {
        if !all.contains(value) {
            all.push(value.clone());
        }
    }
    all
}

/// Parses a kind of number.
type ReadNumber<'a> = &'a dyn Fn(&str) -> Option<f64>;

/// Values of an axis as numbers.
struct Numbers {
    /// In the order of the plan: the number, and how the plan writes it.
    all: Vec<(f64, String)>,
}

impl Numbers {
    /// `Some` if all are numbers of one kind, and enough of them differ.
    fn of(texts: &[String]) -> Option<Numbers> {
        let plain = |t: &str| t.trim().parse().ok().filter(|v: &f64| v.is_finite());
        let duration = |t: &str| Some(parse_duration_ns(t).ok()? as f64);
        let size = |t: &str| Some(parse_bytes(t).ok()? as f64);
        let rate = |t: &str| parse_rate_per_s(t).ok();
        let percent = |t: &str| plain(t.trim().strip_suffix('%')?);
        let kinds: [ReadNumber<'_>; 5] = [&plain, &duration, &size, &rate, &percent];
        let read = |kind: &ReadNumber<'_>| -> Option<Vec<(f64, String)>> {
            texts.iter().map(|text| Some((kind(text)?, text.clone()))).collect()
        };
        let numbers = Numbers { all: kinds.iter().find_map(read)? };
        (numbers.distinct() >= FEWEST_NUMBERS).then_some(numbers)
    }

    fn sorted(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.all.iter().map(|(v, _)| *v).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    }

    fn distinct(&self) -> usize {
        self.sorted().len()
    }

    fn value(&self, text: &str) -> Option<f64> {
        self.all.iter().find(|(_, t)| t == text).map(|(v, _)| *v)
    }

    /// Whether the numbers are roughly geometric: their ratios vary less than their differences.
    fn is_geometric(&self) -> bool {
        let all = self.sorted();
        let (Some(least), Some(most)) = (all.first(), all.last()) else { return false };
        if *least <= 0.0 || most / least < LOGARITHMIC_SPAN {
            return false;
        }
        let differences: Vec<f64> = all.windows(2).map(|w| w[1] - w[0]).collect();
        let ratios: Vec<f64> = all.windows(2).map(|w| (w[1] / w[0]).ln()).collect();
        variation(&ratios) < variation(&differences)
    }
}

/// Standard deviation over mean.
fn variation(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    variance.sqrt() / mean.abs().max(f64::MIN_POSITIVE)
}

struct Matrix<'a> {
    findings: &'a Findings<'a>,
    axes: &'a [String],
    /// The axis from left to right, and its numbers.
    x: usize,
    numbers: Numbers,
    /// The axis that has a line for each value.
    by: Option<usize>,
    facets: Vec<usize>,
    /// Whether the plan names the cases itself.
    is_named: bool,
    behind: &'a str,
}

impl Matrix<'_> {
    fn trends(&self) -> Option<Trends> {
        let mut facets: Vec<String> = Vec::new();
        for case in &self.findings.cases {
            let facet = self.axes_text(case, self.facets.iter());
            if !facets.contains(&facet) {
                facets.push(facet);
            }
        }
        if facets.len() > MOST_PLANES {
            return None;
        }
        let shown = MOST_PLANES / facets.len().max(1);
        let (mut planes, mut notes) = (Vec::new(), Vec::new());
        for metric in self.findings.figures.iter().take(shown) {
            let of_metric: Vec<Plane> = facets.iter().filter_map(|f| self.plane(metric, f)).collect();
            match same(&of_metric) {
                Some((least, most)) => {
                    let most_text = figures::value(Value::Known(most), metric.unit);
                    let range = figures::range(Some(least), Value::Known(most), metric.unit);
                    notes.push(format!("{}: {} in all cases.", metric.title(), range.unwrap_or(most_text)));
                }
                _ => planes.extend(of_metric),
            }
        }
        if planes.is_empty() {
            return None;
        }
        notes.extend(described_signs(&planes));
        if self.findings.figures.len() > shown {
            notes.push(format!("The other figures are in {}.", self.behind));
        }
        let scale = if self.numbers.is_geometric() { " (logarithmic)" } else { "" };
        let title = format!("Figures over {}{scale}", self.axes[self.x]);
        Some(Trends { title, planes, note: (!notes.is_empty()).then(|| notes.join(" ")) })
    }

    /// `users=5, region=eu`, for these axes.
    fn axes_text<'i>(&self, case: &CaseFindings<'_>, axes: impl Iterator<Item = &'i usize>) -> String {
        let one = |i: &usize| Some(format!("{}={}", self.axes.get(*i)?, case.case.facts.values.get(*i)?.1));
        axes.filter_map(one).collect::<Vec<_>>().join(", ")
    }

    fn plane(&self, metric: &Metric, facet: &str) -> Option<Plane> {
        let title = metric.title();
        let mut groups: Vec<Group> = Vec::new();
        let of_facet = cases(self.findings).filter(|(_, c)| self.axes_text(c, self.facets.iter()) == facet);
        for (index, case) in of_facet {
            let Some(spot) = self.spot(index, case, metric) else { continue };
            let name = if self.by.is_some() { self.axes_text(case, self.by.iter()) } else { title.clone() };
            match groups.iter_mut().find(|g| g.name == name) {
                Some(group) => group.spots.push(spot),
                None => {
                    // By the value, not by what was measured: the same line has the same colour in all drawings.
                    let at = self.by.and_then(|by| {
                        let value = &case.case.facts.values.get(by)?.1;
                        values_of(self.findings, by).iter().position(|v| v == value)
                    });
                    let colour = Colour::Nth(at.unwrap_or(0));
                    groups.push(Group { name, colour, joined: true, spots: vec![spot] });
                }
            }
        }
        // In the plan's order, whatever was measured first.
        groups.sort_by_key(|g| if let Colour::Nth(at) = g.colour { at } else { 0 });
        for group in &mut groups {
            group.spots.sort_by(|a, b| a.across.value.total_cmp(&b.across.value));
        }
        let heights = || groups.iter().flat_map(|g| &g.spots).map(|s| s.up.value);
        if heights().count() < 2 {
            return None;
        }
        let (least, most) = (heights().fold(f64::INFINITY, f64::min), heights().fold(0.0, f64::max));
        let full = if facet.is_empty() { title.clone() } else { format!("{title}, {facet}") };
        Some(Plane {
            title: full,
            across: Axis {
                names: self.numbers.all.clone(),
                is_numeric: true,
                ..Axis::of(&self.axes[self.x], Unit::Number, self.numbers.is_geometric())
            },
            up: Axis::of(&title, metric.unit, least > 0.0 && most / least >= LOGARITHMIC_FROM),
            groups,
            curves: Vec::new(),
            marks: Vec::new(),
            heights: Vec::new(),
            behind: self.behind.to_owned(),
            note: None,
        })
    }

    fn spot(&self, index: usize, case: &CaseFindings<'_>, metric: &Metric) -> Option<Spot> {
        let text = &case.case.facts.values.get(self.x)?.1;
        let (up, is_open) = height(&case.spread(metric))?;
        let verdict = match case.verdict {
            Verdict::Pass | Verdict::None => String::new(),
            other => format!(", {}", verdict_word(other)),
        };
        let axes = std::iter::once(&self.x).chain(&self.by).chain(&self.facets);
        let name = match self.is_named {
            true => format!("{} ({})", case.case.facts.name, self.axes_text(case, axes)),
            false => self.axes_text(case, axes),
        };
        Some(Spot {
            name: format!("{name}{verdict}"),
            label: None,
            across: RangedValue::exact(self.numbers.value(text)?),
            up,
            is_open,
            verdict: case.verdict,
            section: Some(case_id(index)),
        })
    }
}

/// The position of a figure, with its range over trials, or the interval of its estimate; and whether it is only a
/// lower bound.
pub(crate) fn height(spread: &Spread) -> Option<(RangedValue, bool)> {
    let finite = |v: f64| v.is_finite().then_some(v);
    let (value, low, high, is_open) = match spread.median {
        Value::Known(v) | Value::Over(v) => {
            let most = match spread.max {
                Value::Known(most) | Value::Over(most) => most,
                Value::Between(_) | Value::Nothing => v,
            };
            (v, spread.min.unwrap_or(v), most, matches!(spread.median, Value::Over(_)))
        }
        Value::Between(few) if !few.is_unknown() => {
            let v = few.likely();
            let e = few.estimate;
            (
                v,
                e.low.unwrap_or(v),
                e.high.unwrap_or(v),
                e.value.is_none() || e.high.is_none() && e.low == e.value,
            )
        }
        Value::Between(_) | Value::Nothing => return None,
    };
    let value = finite(value)?;
    let around = RangedValue { value, low: finite(low)?.min(value), high: finite(high)?.max(value) };
    Some((around, is_open))
}

/// Smallest and largest of all points, if they differ by no more than noise.
fn same(planes: &[Plane]) -> Option<(f64, f64)> {
    let spots = || planes.iter().flat_map(|p| &p.groups).flat_map(|g| &g.spots);
    let least = spots().map(|s| s.up.value).reduce(f64::min)?;
    let most = spots().map(|s| s.up.value).reduce(f64::max)?;
    (most - least <= NOISE * most.abs() && !spots().any(|s| s.is_open)).then_some((least, most))
}

/// The meaning of a point whose value is a lower bound.
pub(crate) const HOLLOW: &str = "Hollow: at least this; the true value may be higher.";

/// The meaning of the signs at points, for those that occur.
fn described_signs(planes: &[Plane]) -> Vec<String> {
    let any =
        |is: &dyn Fn(&Spot) -> bool| planes.iter().flat_map(|p| &p.groups).flat_map(|g| &g.spots).any(is);
    let signs: [(bool, &str); 3] = [
        (
            any(&|s| s.up.low < s.up.high),
            "Lines at points: the range over trials, or the interval of an estimate.",
        ),
        (any(&|s| s.is_open), HOLLOW),
        (
            any(&|s| matches!(s.verdict, Verdict::Fail | Verdict::Invalid)),
            "Red ring: the case failed or is invalid.",
        ),
    ];
    signs.into_iter().filter(|(occurs, _)| *occurs).map(|(_, text)| text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(texts: &[&str], expect: Option<(&[f64], bool)>) {
        let texts: Vec<String> = texts.iter().map(|t| (*t).to_owned()).collect();
        let got = Numbers::of(&texts).map(|n| (n.sorted(), n.is_geometric()));
        assert_eq!(got, expect.map(|(values, log)| (values.to_vec(), log)), "{texts:?}");
    }

    #[test]
    fn numbers_with_units_are_numbers() {
        check(&["1", "10", "100"], Some((&[1.0, 10.0, 100.0], true)));
        check(&["1", "2", "5", "10", "20", "50"], Some((&[1.0, 2.0, 5.0, 10.0, 20.0, 50.0], true)));
        check(&["30", "10", "20", "40"], Some((&[10.0, 20.0, 30.0, 40.0], false)));
        check(&["0", "1", "10"], Some((&[0.0, 1.0, 10.0], false)));
        check(&["-1", "0.5", "2.5"], Some((&[-1.0, 0.5, 2.5], false)));
        check(&["5ms", "50ms", "1s"], Some((&[5e6, 5e7, 1e9], true)));
        check(&["0", "5ms", "10ms"], Some((&[0.0, 5e6, 1e7], false)));
        check(&["512", "1KiB", "2KiB"], Some((&[512.0, 1024.0, 2048.0], true)));
        check(&["100/s", "200/s", "300/s"], Some((&[100.0, 200.0, 300.0], false)));
        check(&["10%", "20%", "30%"], Some((&[10.0, 20.0, 30.0], false)));
        // two make no curve, and words are no numbers
        check(&["1", "2"], None);
        check(&["1s", "1000ms", "2s"], None);
        check(&["1", "2", "unlimited"], None);
        check(&["nan", "inf", "1", "2"], None);
        check(&["5ms", "10KiB", "3"], None);
        check(&[], None);
    }
}
