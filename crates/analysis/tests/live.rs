//! Doubts while a load runs: when each is reported, and how often.

use loadlab_analysis::Planned;
use loadlab_analysis::trial::live::{LiveDoubts, SoFar};
use loadlab_record::counts::load::{Counts, OwnLimits, Series};
use loadlab_record::documents::summary::{LoadFacts, LoadModel, Stalls};

const MS: u64 = 1_000_000;

fn open() -> LoadFacts {
    LoadFacts { model: LoadModel::Open, rate_per_s: Some(100.0), ..LoadFacts::default() }
}

fn closed() -> LoadFacts {
    LoadFacts { model: LoadModel::Closed, users: Some(4), ..LoadFacts::default() }
}

/// The reports of a load, second by second; a function of the second modifies it.
fn reported(facts: &LoadFacts, seconds: u64, at: impl Fn(u64, &mut Second)) -> Vec<(u64, String, bool)> {
    let planned = Planned { max_in_flight: Some(50), ..Planned::default() };
    let (mut live, mut series, mut out) = (LiveDoubts::default(), Series::default(), Vec::new());
    for second in 1..=seconds {
        let mut now = Second::default();
        at(second, &mut now);
        series.response_ok.record_n(10 * MS, 100);
        series.late.record_n(now.late_ms * MS + 1000, 100);
        let so_far = SoFar {
            at_s: second as f64,
            counts: &Counts {
                due: 100 * second,
                dropped: now.dropped,
                in_flight: now.in_flight,
                ..Counts::default()
            },
            series: &series,
            attempted: 100,
            own_limits: OwnLimits { ports: now.ports, ..OwnLimits::default() },
            held_back: now.held_back,
            stalls: Stalls {
                count: u64::from(now.still_s > 0.0),
                total_s: now.still_s,
                max_s: now.still_s,
                max_at_s: 1.0,
            },
            throttled_s: Some(now.throttled_s),
        };
        out.extend(live.check(facts, &planned, &so_far).into_iter().map(|d| (second, d.kind, d.grave)));
    }
    out
}

/// One second; counts are cumulative.
#[derive(Default)]
struct Second {
    late_ms: u64,
    dropped: u64,
    in_flight: u64,
    held_back: u64,
    ports: u64,
    still_s: f64,
    throttled_s: f64,
}

fn check(facts: &LoadFacts, seconds: u64, at: impl Fn(u64, &mut Second), expect: &[(u64, &str, bool)]) {
    let got = reported(facts, seconds, at);
    let got: Vec<(u64, &str, bool)> =
        got.iter().map(|(s, kind, grave)| (*s, kind.as_str(), *grave)).collect();
    assert_eq!(got, expect);
}

#[test]
fn a_load_that_goes_well_is_not_doubted() {
    check(&open(), 60, |_, _| {}, &[]);
    check(&closed(), 60, |_, _| {}, &[]);
}

#[test]
fn lateness_is_reported_when_it_stays_and_where_there_is_a_schedule() {
    // half of all requests leave 5 ms late, which is half of their response time
    let always = |_: u64, s: &mut Second| s.late_ms = 5;
    check(&open(), 60, always, &[(3, "late", true)]);
    check(&closed(), 60, always, &[]);
    // one second in sixty: at first it is half of everything, and soon a sixtieth
    check(&open(), 60, |at, s| s.late_ms = if at == 2 { 2 } else { 0 }, &[(4, "late", true)]);
    // in the first seconds it may be the machine that reacts to a new load
    check(&open(), 2, always, &[]);
}

#[test]
fn what_was_counted_is_reported_at_once_and_again_when_much_worse() {
    check(
        &open(),
        30,
        |at, s| {
            s.dropped = if at < 5 { 0 } else { (at - 4) * 3 };
            s.held_back = s.dropped;
        },
        // 3 at first, 30 ten seconds later
        // What a schedule drops found no slot.
        &[(5, "dropped", false), (6, "in_flight_cap", false), (14, "dropped", false)],
    );
    check(&open(), 30, |at, s| s.ports = if at < 7 { 0 } else { 4 }, &[(7, "client_limit", true)]);
    check(
        &closed(),
        30,
        |at, s| {
            s.still_s = if at < 3 {
                0.0
            } else if at < 20 {
                0.2
            } else {
                2.5
            }
        },
        &[(3, "generator_stalled", false), (20, "generator_stalled", false)],
    );
    check(
        &closed(),
        30,
        |at, s| s.throttled_s = 0.05 * at as f64,
        &[(1, "throttled", false), (10, "throttled", false)],
    );
}

#[test]
fn a_cap_that_is_touched_once_is_no_cap() {
    check(&open(), 30, |at, s| s.in_flight = if at % 2 == 0 { 50 } else { 20 }, &[]);
    check(&open(), 30, |at, s| s.in_flight = if at > 9 { 50 } else { 20 }, &[(11, "in_flight_cap", false)]);
    check(&closed(), 30, |_, s| s.in_flight = 50, &[]);
    // Only one load thread has no slot left: requests wait there.
    check(&open(), 30, |at, s| s.held_back = at.saturating_sub(5), &[(7, "in_flight_cap", false)]);
    check(&open(), 30, |at, s| s.held_back = u64::from(at > 5), &[]);
}

/// A stop that becomes a spoiled schedule is reported again, though it is not ten times as long.
#[test]
fn what_becomes_grave_is_reported_again() {
    let at = |at: u64, s: &mut Second| {
        s.throttled_s = 0.05 * at as f64;
        s.late_ms = if at > 4 { 20 } else { 0 };
    };
    check(&open(), 8, at, &[(1, "throttled", false), (5, "throttled", true), (7, "late", true)]);
}
