//! Throughput over users: what was measured at each level, the law fitted to it, the peak and the knee.

use loadlab_analysis::cases::metric::{Unit, Value};
use loadlab_analysis::scaling::scalability::{Level, Scalability};
use loadlab_analysis::scaling::usl::{Fit, FittedValue, Knee};
use loadlab_record::documents::summary::Verdict;

use loadlab_analysis::cases::case::Spread;

use super::numeric::{HOLLOW, height};
use super::ranged;
use crate::colour::Colour;
use crate::document::{Block, Cell, Fact, Section, Table};
use crate::figures::{self, NOTHING};
use crate::plane::RangedValue;
use crate::plane::{Axis, Curve, Group, LOG_FROM, Plane, PlaneMark, Spot};

/// Points of a drawn curve: enough that it looks like one.
const STEPS: usize = 96;

/// The section; `None` if no axis varies users.
pub fn section(curves: &[Scalability]) -> Option<Section> {
    let blocks: Vec<Block> = curves.iter().flat_map(|c| blocks(c, curves.len() > 1)).collect();
    let (id, title) = ("scalability".to_owned(), "Throughput over users".to_owned());
    (!blocks.is_empty()).then_some(Section { id, title, case: None, is_folded: false, blocks })
}

fn blocks(curve: &Scalability, named: bool) -> Vec<Block> {
    let mut blocks = Vec::new();
    if named && !curve.of.is_empty() {
        blocks.push(Block::Heading(curve.of.clone()));
    }
    blocks.push(Block::Facts(facts(curve)));
    blocks.push(Block::Plane(throughput(curve)));
    blocks.extend(latency(curve).map(Block::Plane));
    blocks.push(Block::Table(table(curve)));
    blocks
}

/// Whether levels double: then the scale is logarithmic, or the small ones would coincide.
fn doubles(curve: &Scalability) -> bool {
    let users = || curve.levels.iter().map(|l| l.users as f64);
    let gaps = || users().zip(users().skip(1)).map(|(a, b)| b - a);
    let (least, most) = gaps().fold((f64::INFINITY, 0.0), |(l, m): (f64, f64), g| (l.min(g), m.max(g)));
    users().all(|n| n > 0.0) && most > 6.0 * least
}

fn level_name(level: &Level) -> String {
    figures::plural(level.users, "user", "users")
}

/// Goodput at each level, and the law with its band.
fn throughput(curve: &Scalability) -> Plane {
    let spot = |level: &Level| {
        Some(Spot {
            name: level_name(level),
            label: None,
            across: RangedValue::exact(level.users as f64),
            up: RangedValue::over(&level.goodput)?,
            is_open: false,
            verdict: Verdict::None,
            section: None,
        })
    };
    let spots: Vec<Spot> = curve.levels.iter().filter_map(spot).collect();
    let fit = curve.fit.as_ref().ok();
    let logarithmic = doubles(curve);
    let law = fit.map(|fit| Curve {
        name: "Universal Scalability Law, 95 %".into(),
        colour: Colour::Nth(1),
        line: steps(curve, logarithmic)
            .map(|users| {
                let at = fit.per_s_within(users);
                (users, RangedValue { value: at.value, low: at.low, high: at.high })
            })
            .collect(),
    });
    Plane {
        title: "Throughput over users".into(),
        across: Axis::of("users", Unit::Count, logarithmic),
        up: Axis::of("goodput", Unit::PerS, false),
        groups: vec![Group { name: "goodput".into(), colour: Colour::Nth(0), joined: law.is_none(), spots }],
        curves: law.into_iter().collect(),
        marks: marks(curve, fit),
        heights: Vec::new(),
        behind: "the table below".into(),
        note: Some(
            "Points are each level\u{2019}s trial with the median goodput, their lines all trials. The band holds the \
             law\u{2019}s curve, not every trial."
                .into(),
        ),
    }
}

/// The peak, if it is within the measured range, and the knee: of the law, or else as measured.
fn marks(curve: &Scalability, fit: Option<&Fit>) -> Vec<PlaneMark> {
    let largest = curve.levels.last().map_or(0.0, |l| l.users as f64);
    let described = |what: &str, users: f64| format!("{what} {}", figures::number(users.round()));
    let measured = match curve.knee {
        Some(Knee::At(level)) => Some(level),
        // Only one side of it is known.
        Some(Knee::AtMost(_) | Knee::AtLeast(_)) | None => None,
    };
    let knee = fit.and_then(|f| f.knee_users).or(measured);
    let mut marks: Vec<PlaneMark> =
        knee.map(|at| PlaneMark { at, between: None, text: described("knee", at) }).into_iter().collect();
    if let Some(peak) = fit.and_then(|f| f.peak.as_ref().ok()).filter(|p| p.users.value <= largest) {
        let FittedValue { value: at, low, high } = peak.users;
        marks.push(PlaneMark { at, between: Some((low, high)), text: described("peak", at) });
    }
    marks
}

/// Where the law is drawn: over the measured levels, and no further.
fn steps(curve: &Scalability, logarithmic: bool) -> impl Iterator<Item = f64> {
    let at = |level: Option<&Level>| level.map_or(1.0, |l| l.users as f64);
    let (from, to) = (at(curve.levels.first()), at(curve.levels.last()));
    (0..=STEPS).map(move |i| {
        let share = i as f64 / STEPS as f64;
        if logarithmic { from * (to / from).powf(share) } else { from + (to - from) * share }
    })
}

/// Latency over throughput at each level: it turns back where more users get less.
fn latency(curve: &Scalability) -> Option<Plane> {
    let group = |(rank, name, read): (usize, &str, fn(&Level) -> &Spread)| {
        // Where the system collapses, only a lower bound of the latency is often known: that level must not be missing.
        let spot = |level: &Level| {
            let (up, is_open) = height(read(level)).filter(|(around, _)| around.value > 0.0)?;
            Some(Spot {
                name: level_name(level),
                label: (rank == 0).then(|| figures::count(level.users)),
                across: RangedValue::over(&level.goodput)?,
                up,
                is_open,
                verdict: Verdict::None,
                section: None,
            })
        };
        let spots: Vec<Spot> = curve.levels.iter().filter_map(spot).collect();
        let colour = Colour::Percentile { rank, load: 0 };
        Group { name: name.to_owned(), colour, joined: true, spots }
    };
    let all = [(0, "p50", (|l| &l.p50_ms) as fn(&Level) -> &Spread), (2, "p99", |l| &l.p99_ms)];
    let groups: Vec<Group> = all.into_iter().map(group).filter(|g| g.spots.len() > 1).collect();
    let values = || groups.iter().flat_map(|g| &g.spots).map(|s| s.up.value);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let is_any_open = groups.iter().flat_map(|g| &g.spots).any(|s| s.is_open);
    let hollow = if is_any_open { format!(" {HOLLOW}") } else { String::new() };
    (!groups.is_empty()).then(|| Plane {
        title: "Latency over throughput".into(),
        across: Axis::of("goodput", Unit::PerS, false),
        up: Axis::of("response time", Unit::Ms, most > LOG_FROM * least),
        groups,
        curves: Vec::new(),
        marks: Vec::new(),
        heights: Vec::new(),
        behind: "the table below".into(),
        note: Some(format!(
            "Each point is a level of users, as the numbers beside them say, with the medians over its trials and the ranges. \
             Where it rises without going on to the right, more users only wait.{hollow}"
        )),
    })
}

fn facts(curve: &Scalability) -> Vec<Fact> {
    let mut facts = Vec::new();
    match &curve.fit {
        Ok(fit) => {
            facts.push(Fact::new(
                "peak",
                match &fit.peak {
                    Ok(peak) => format!(
                        "{} at {} users",
                        figures::rate(peak.per_s),
                        within(peak.users, |v| figures::number(v.round()))
                    ),
                    Err(refused) => format!("unknown: {refused}"),
                },
            ));
            facts.push(Fact::new("knee", knee(curve, Some(fit))));
            let share = |v: f64| figures::number(figures::round(v, 3));
            facts.push(Fact::new("contention α", within(fit.alpha, share)));
            facts.push(Fact::new("coherency β", within(fit.beta, share)));
            facts.push(Fact::new("one user", within(fit.lambda, figures::rate)));
            facts.push(Fact::new(
                "fit",
                format!(
                    "Universal Scalability Law over {}, off by {} on average",
                    figures::plural(curve.points.len() as u64, "trial", "trials"),
                    figures::percent(fit.residual)
                ),
            ));
        }
        Err(refused) => {
            facts.push(Fact::new("knee", knee(curve, None)));
            facts.push(Fact::new("fit", format!("no fit: {refused}")));
        }
    }
    facts
}

fn knee(curve: &Scalability, fit: Option<&Fit>) -> String {
    let users = |n: f64| figures::plural(n as u64, "user", "users");
    let fitted = fit.and_then(|f| f.knee_users).map(|n| users(n.round()));
    match (fitted, curve.knee) {
        (Some(n), Some(Knee::At(level))) => {
            let level = users(level);
            format!(
                "at about {n}; of the measured levels, {level} have the highest throughput relative to their response time"
            )
        }
        (Some(n), _) => format!("at about {n}"),
        (None, Some(Knee::At(level))) => {
            format!(
                "at {} of the measured levels: the highest throughput relative to its response time",
                users(level)
            )
        }
        (None, Some(Knee::AtMost(level))) => {
            let level = users(level);
            format!(
                "at {level} or fewer: the lowest level has the highest throughput relative to its response time"
            )
        }
        (None, Some(Knee::AtLeast(_)) | None) => "not reached within the measured levels".to_owned(),
    }
}

fn within(interval: FittedValue, format: impl Fn(f64) -> String) -> String {
    format!(
        "{} (95 % between {} and {})",
        format(interval.value),
        format(interval.low),
        format(interval.high)
    )
}

fn table(curve: &Scalability) -> Table {
    let fit = curve.fit.as_ref().ok();
    let row = |level: &Level| {
        let users = level.users as f64;
        let fitted = fit.map(|f| f.per_s_within(users));
        let fitted = Cell {
            detail: fitted.and_then(|at| figures::range(Some(at.low), Value::Known(at.high), Unit::PerS)),
            ..Cell::new(fitted.map_or(NOTHING.to_owned(), |at| figures::rate(at.value)))
        };
        // Each user's share of what one alone would get.
        let share = fit.zip(level.goodput.median.known()).map(|(f, x)| x / users / f.lambda.value);
        vec![
            Cell::new(figures::count(level.users)),
            ranged(&level.goodput, Unit::PerS),
            fitted,
            Cell::new(figures::value(Value::from(share), Unit::Share)),
            ranged(&level.p50_ms, Unit::Ms),
            ranged(&level.p99_ms, Unit::Ms),
        ]
    };
    Table {
        caption: "Throughput and latency over users".into(),
        head: ["users", "goodput", "fitted (USL)", "of one user", "p50", "p99"].map(str::to_owned).to_vec(),
        text_columns: Vec::new(),
        rows: curve.levels.iter().map(row).collect(),
        note: Some(
            "“fitted (USL)”: with the 95 % interval of the curve. “of one user”: throughput per user, as a share of what a single \
             user gets. The knee is where throughput over response time is largest; beyond it users mostly wait."
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::cases::metric::{Better, Few};
    use loadlab_analysis::scaling::usl;
    use loadlab_record::counts::quantile::Estimate;

    use super::*;

    fn curve(p99_ms: [Value; 3]) -> Scalability {
        let level = |(i, p99_ms): (u64, Value)| Level {
            users: 1 << i,
            case: String::new(),
            goodput: Spread::of(vec![Value::Known(100.0)], Better::More),
            p50_ms: Spread::of(vec![Value::Known(1.0)], Better::Less),
            p99_ms: Spread::of(vec![p99_ms], Better::Less),
        };
        let levels = (0..).zip(p99_ms).map(level).collect();
        Scalability { of: String::new(), levels, points: Vec::new(), fit: usl::fit(&[]), knee: None }
    }

    #[test]
    fn a_latency_known_from_below_or_between_is_drawn() {
        let estimate = Estimate { value: Some(20.0), low: Some(10.0), high: Some(40.0) };
        let between = Value::Between(Few { estimate, largest: Some(50.0), needed: 1000 });
        let drawn = |curve: &Scalability| {
            let plane = latency(curve).unwrap();
            let p99 = plane.groups.iter().find(|g| g.name == "p99").unwrap();
            let spots: Vec<_> =
                p99.spots.iter().map(|s| (s.up.value, s.up.low, s.up.high, s.is_open)).collect();
            (spots, plane.note.is_some_and(|note| note.ends_with(HOLLOW)))
        };
        assert_eq!(
            drawn(&curve([Value::Known(5.0), between, Value::Over(30.0)])),
            (vec![(5.0, 5.0, 5.0, false), (20.0, 10.0, 40.0, false), (30.0, 30.0, 30.0, true)], true)
        );
        // A value that is not known at all is not drawn.
        let known = [Value::Known(5.0), Value::Nothing, Value::Known(6.0)];
        assert_eq!(drawn(&curve(known)), (vec![(5.0, 5.0, 5.0, false), (6.0, 6.0, 6.0, false)], false));
    }

    #[test]
    fn a_knee_at_a_single_user_is_at_one() {
        let knee_at = |at| knee(&Scalability { knee: Some(at), ..curve([Value::Nothing; 3]) }, None);
        assert!(knee_at(Knee::AtMost(1.0)).starts_with("at 1 user or fewer: "));
        assert!(knee_at(Knee::At(2.0)).starts_with("at 2 users of the measured levels: "));
    }
}
