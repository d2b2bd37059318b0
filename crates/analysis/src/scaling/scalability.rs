//! Throughput over users, if an axis of the matrix varies them: levels, the law fitted to them, the knee.

use loadlab_record::documents::summary::Verdict;

use crate::cases::case::{CaseFindings, Spread, without_controls};
use crate::cases::metric::{self, Better, Metric};
use crate::scaling::usl::{self, Fit, Knee, Point, Refused};

/// With fewer levels a chart is just two points and a line.
const FEWEST_LEVELS: usize = 3;

/// One curve: cases that differ only in users.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalability {
    /// What else these cases have in common, as `axis value, …`; empty if users are the only axis.
    pub of: String,
    /// Levels, ascending.
    pub levels: Vec<Level>,
    /// Every trial's throughput.
    pub points: Vec<Point>,
    /// The law, or why there is none.
    pub fit: Result<Fit, Refused>,
    /// The measured level with the most throughput for its response time.
    pub knee: Option<Knee>,
}

/// A level of users.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Users.
    pub users: u64,
    /// Its case.
    pub case: String,
    /// Goodput over its trials, per second.
    pub goodput: Spread,
    /// Median response over its trials, milliseconds.
    pub p50_ms: Spread,
    /// 99th percentile, likewise.
    pub p99_ms: Spread,
}

/// Every curve of a run, in the order of its cases. INVALID trials are left out.
pub fn scalability(cases: &[CaseFindings<'_>]) -> Vec<Scalability> {
    // A control repeats a level, which would count twice.
    let closed: Vec<(&CaseFindings<'_>, u64)> =
        without_controls(cases).filter_map(|c| Some((c, c.case.facts.users?))).collect();
    let Some((first, _)) = closed.first() else { return Vec::new() };
    // The axis of users: its value is their number, in every case.
    let says = |i: usize| {
        closed
            .iter()
            .all(|(c, users)| c.case.facts.values.get(i).is_some_and(|(_, v)| v.trim().parse() == Ok(*users)))
    };
    let axes: Vec<bool> = (0..first.case.facts.values.len()).map(says).collect();
    let rest = |c: &CaseFindings<'_>| -> String {
        let others =
            c.case.facts.values.iter().enumerate().filter(|(i, _)| !axes.get(*i).copied().unwrap_or(false));
        others.map(|(_, (axis, value))| format!("{axis} {value}")).collect::<Vec<_>>().join(", ")
    };
    // Named cases differ in more than users, in unknown ways: a curve needs an axis.
    if !axes.contains(&true) {
        return Vec::new();
    }
    let mut groups: Vec<(String, Vec<(&CaseFindings<'_>, u64)>)> = Vec::new();
    for (case, users) in closed {
        let name = rest(case);
        match groups.iter_mut().find(|(n, _)| *n == name) {
            Some((_, list)) => list.push((case, users)),
            None => groups.push((name, vec![(case, users)])),
        }
    }
    groups.into_iter().filter_map(|(of, list)| curve(of, list)).collect()
}

fn curve(of: String, mut cases: Vec<(&CaseFindings<'_>, u64)>) -> Option<Scalability> {
    cases.sort_by_key(|(_, users)| *users);
    let mut points = Vec::new();
    let mut levels = Vec::new();
    for (case, users) in cases {
        let valid = || case.whole().filter(|s| s.verdict != Verdict::Invalid);
        let spread = |id: &str| {
            let metric = metric::named(id);
            let better = metric.as_ref().map_or(Better::Neither, Metric::better);
            Spread::of(valid().filter_map(|s| metric.as_ref().map(|m| m.of(s))).collect(), better)
        };
        points.extend(valid().map(|s| Point { users: users as f64, per_s: s.rate_per_s.ok }));
        if valid().next().is_some() {
            let (goodput, p50_ms, p99_ms) = (spread("goodput"), spread("p50"), spread("p99"));
            levels.push(Level { users, case: case.case.facts.name.clone(), goodput, p50_ms, p99_ms });
        }
    }
    // Levels are in order, so equal numbers of users are adjacent.
    if levels.chunk_by(|a, b| a.users == b.users).count() < FEWEST_LEVELS {
        return None;
    }
    Some(Scalability { of, levels, fit: usl::fit(&points), knee: usl::measured_knee(&points), points })
}
