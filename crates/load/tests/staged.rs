//! Stages, think times and paces in simulated time: who is active when, what falls due, and that the totals add up.

use std::collections::{BTreeMap, BTreeSet};

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::journey::order::{Advance, StepOrder};
use loadlab_load::journey::script::{Journey, Script};
use loadlab_load::run::{simulate, simulate_share};
use loadlab_load::{Arrivals, Control, LoadEvent, LoadResult, LoadSpec, Model, Until, WhenBehind};
use loadlab_record::counts::load::{Counts, Tick};
use loadlab_record::spec::schedule::Stage;
use loadlab_record::spec::schedule::Think;
use proptest::prelude::*;

use crate::support;
use crate::support::steps::plain_journey;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn stage(from: u64, to: u64, over_ns: u64) -> Stage {
    Stage { from: from as f64, to: to as f64, over_ns }
}

fn staged(stages: &[Stage], open: bool) -> LoadSpec {
    let most = stages.iter().filter(|s| s.over_ns > 0).map(|s| s.from.max(s.to)).fold(0.0, f64::max);
    let model = match open {
        false => Model::Closed { users: most as u64 },
        true => Model::Open {
            rate_per_s: most,
            arrivals: Arrivals::Constant,
            when_behind: WhenBehind::Queue,
            max_in_flight: 10_000,
        },
    };
    let until = Until::Elapsed(stages.iter().map(|s| s.over_ns).sum());
    LoadSpec {
        stages: stages.to_vec(),
        ..LoadSpec::new(model, until, vec![support::get()], support::address())
    }
}

/// Answers after a fixed time and notes which connections sent a request in which second.
#[derive(Default)]
struct Watching {
    service_ns: u64,
    /// Connections that sent a request in each second.
    asked: BTreeMap<u64, BTreeSet<ConnId>>,
    connects: u64,
    /// When connections were closed.
    closed: Vec<u64>,
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

impl Server for Watching {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        self.connects += 1;
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        self.asked.entry(at_ns / S).or_default().insert(conn);
        vec![(at_ns + self.service_ns, Reply::Bytes(OK.to_vec()))]
    }

    fn closed(&mut self, at_ns: u64, _: ConnId) {
        self.closed.push(at_ns);
    }
}

/// The outcome of a load against a server with this service time.
struct Ran {
    outcome: LoadResult,
    ticks: Vec<Tick>,
    sim: Sim<Watching>,
}

fn go(spec: &LoadSpec, service_ns: u64) -> Ran {
    let mut sim = Sim::new(Watching { service_ns, ..Watching::default() });
    let mut ticks = Vec::new();
    let outcome = simulate(spec, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Second(second) = event {
            ticks.push(second.tick.clone());
        }
    })
    .unwrap();
    let counts = &outcome.measured.counts;
    counts.balance().unwrap();
    let mut sum = Counts::default();
    ticks.iter().for_each(|t| sum.merge(&t.counts));
    sum.in_flight = ticks.last().map_or(0, |t| t.counts.in_flight);
    assert_eq!(&sum, counts, "ticks add up to the whole");
    Ran { outcome, ticks, sim }
}

impl Ran {
    fn active(&self) -> BTreeMap<u64, usize> {
        let mut active = BTreeMap::new();
        self.sim.server(|s| active = s.asked.iter().map(|(at, who)| (*at, who.len())).collect());
        active
    }

    fn due(&self) -> Vec<u64> {
        self.ticks.iter().map(|t| t.counts.due).collect()
    }
}

/// Up, level, down, nothing, a jump, and the end.
fn ups_and_downs() -> [Stage; 6] {
    [
        stage(0, 100, 10 * S),
        stage(100, 100, 10 * S),
        stage(100, 0, 5 * S),
        stage(0, 0, 5 * S),
        stage(0, 20, 0),
        stage(20, 20, 5 * S),
    ]
}

#[test]
fn users_follow_the_stages_over_one_set_of_connections() {
    let ran = go(&staged(&ups_and_downs(), false), 100 * MS);
    let active = ran.active();
    let at = |second: u64| active.get(&second).copied().unwrap_or(0);
    for second in 0..10 {
        assert_eq!(at(second), 10 * (second as usize + 1), "second {second}");
    }
    for second in 10..20 {
        assert_eq!(at(second), 100, "second {second}");
    }
    for second in 20..25 {
        // From 100 − 20·n at the start of the second to 20 fewer at its end.
        let most = 100 - 20 * (second as usize - 20);
        assert!((most - 20..=most).contains(&at(second)), "second {second}: {}", at(second));
    }
    for second in 25..30 {
        assert_eq!(at(second), 0, "second {second}");
    }
    for second in 30..35 {
        assert_eq!(at(second), 20, "second {second}");
    }
    // 100 ms per answer: ten a second per user
    assert!(ran.due()[10..20].iter().all(|n| *n == 1000), "{:?}", ran.due());
    assert!(ran.due()[31..35].iter().all(|n| *n == 200), "{:?}", ran.due());
    // Resting users keep their connections and reuse them when they wake: none was opened twice or closed before the
    // end.
    assert_eq!(ran.outcome.measured.connections.opened, 100);
    ran.sim.server(|s| {
        assert_eq!(s.connects, 100);
        assert!(s.closed.len() == 100 && s.closed.iter().all(|at| *at >= 35 * S), "{:?}", s.closed);
    });
    assert_eq!(ran.outcome.measured.window.to_s, 35.0);
    assert!(!ran.outcome.cut_short);
}

#[test]
fn the_end_of_a_load_is_the_end_of_its_last_stage() {
    // No user is active in the second half.
    let ran = go(&staged(&[stage(5, 5, 2 * S), stage(0, 0, 3 * S)], false), 10 * MS);
    let measured = &ran.outcome.measured;
    assert_eq!((measured.elapsed_s, measured.window.to_s), (5.0, 5.0));
    assert_eq!(measured.counts.ok, 5 * 200);
}

#[test]
fn a_rate_follows_the_stages() {
    let ran = go(&staged(&[stage(0, 1000, 10 * S)], true), MS);
    assert_eq!(ran.outcome.measured.counts.ok, 5000);
    let expect: Vec<u64> = (0..10).map(|second| 100 * second + 50).collect();
    assert_eq!(ran.due()[..10], expect);
    let ran = go(&staged(&[stage(100, 100, 2 * S), stage(700, 700, S), stage(100, 0, 2 * S)], true), MS);
    assert_eq!(ran.due()[..5], [100, 100, 700, 75, 25]);
    assert_eq!(ran.outcome.measured.window.to_s, 5.0);
    assert_eq!(ran.outcome.measured.series.late.max_ns(), Some(0));
}

#[test]
fn shares_of_several_threads_are_active_as_one_would_be() {
    let mut spec = staged(&ups_and_downs(), false);
    let whole = go(&spec, 100 * MS);
    spec.threads = 3;
    let (mut asked, mut ok) = (BTreeMap::<u64, usize>::new(), 0);
    for slot in 0..3 {
        let mut sim = Sim::new(Watching { service_ns: 100 * MS, ..Watching::default() });
        let outcome = simulate_share(&spec, slot, &Control::default(), &mut sim, &mut |_| {}).unwrap();
        ok += outcome.measured.counts.ok;
        sim.server(|s| s.asked.iter().for_each(|(at, who)| *asked.entry(*at).or_default() += who.len()));
    }
    assert_eq!((asked, ok), (whole.active(), whole.outcome.measured.counts.ok));
}

#[test]
fn paced_users_are_due_while_they_are_active() {
    // User k starts at k seconds; each has a step every half second until the end at 8 s.
    let mut spec = staged(&[stage(0, 4, 4 * S), stage(4, 4, 4 * S)], false);
    spec.pace_ns = Some(500 * MS);
    let ran = go(&spec, 10 * MS);
    assert_eq!(ran.due()[..8], [2, 4, 6, 8, 8, 8, 8, 8]);
    assert_eq!(ran.outcome.measured.window.to_s, 8.0);
    // They rest for two seconds, and start again when the stages call for them.
    let mut spec = staged(&[stage(3, 3, 2 * S), stage(0, 0, 2 * S + 250 * MS), stage(2, 2, S)], false);
    spec.pace_ns = Some(500 * MS);
    let ran = go(&spec, 10 * MS);
    assert_eq!(ran.due()[..5], [6, 6, 0, 0, 4]);
    assert_eq!(ran.outcome.measured.connections.opened, 3);
}

#[test]
fn requests_waiting_when_a_paced_user_rests_are_sent_first() {
    // Steps due at 0, 200 … 800 ms, each answered after half a second; then a rest until 4 s.
    let mut spec = staged(&[stage(1, 1, S), stage(0, 0, 3 * S), stage(1, 1, 100 * MS)], false);
    spec.pace_ns = Some(200 * MS);
    let ran = go(&spec, 500 * MS);
    assert_eq!(ran.due(), [5, 0, 0, 0, 1]);
    assert_eq!(ran.outcome.measured.counts.ok, 6);
    // The last of the five starts at 2 s, 1.2 s after it fell due.
    assert_eq!(ran.outcome.measured.series.blocked.max_ns(), Some(1200 * MS));
}

#[test]
fn paced_users_may_drop_what_they_are_late_for() {
    for (when_behind, started, dropped) in [(WhenBehind::Drop, 34, 66), (WhenBehind::Queue, 40, 60)] {
        let mut spec = staged(&[stage(2, 2, 5 * S)], false);
        spec.pace_ns = Some(100 * MS);
        spec.pace_when_behind = when_behind;
        let ran = go(&spec, 250 * MS);
        let counts = &ran.outcome.measured.counts;
        assert_eq!((counts.due, counts.started, counts.dropped), (100, started, dropped), "{when_behind:?}");
        // A due request is counted in its own second, whether or not it starts then.
        assert_eq!(ran.due()[..5], [20; 5], "{when_behind:?}");
        let longest = ran.outcome.measured.series.response_ok.max_ns().unwrap();
        match when_behind {
            WhenBehind::Drop => assert_eq!(longest, 250 * MS),
            WhenBehind::Queue => assert!(longest > 3 * S, "{longest}"),
        }
    }
}

#[test]
fn dropping_at_the_end_leaves_times_of_requests_in_flight_alone() {
    // A user's steps fall due at 0, 100, 200 … ms, and each answer takes 300 ms: the fourth, due at 300 ms, starts at
    // 900 ms and is answered at 1.2 s. The six after it are dropped when the load ends.
    let mut spec = staged(&[stage(1, 1, S)], false);
    spec.pace_ns = Some(100 * MS);
    let ran = go(&spec, 300 * MS);
    let counts = &ran.outcome.measured.counts;
    assert_eq!((counts.due, counts.ok, counts.dropped), (10, 4, 6));
    let series = &ran.outcome.measured.series;
    assert_eq!(series.response_ok.max_ns().map(|ns| ns / MS), Some(900));
    assert_eq!(series.response_ok.sum_ns() / u128::from(MS), 300 + 500 + 700 + 900);
}

/// Answers each request with the next delay and status of the list.
struct InTurn(std::vec::IntoIter<(u64, u16)>);

impl Server for InTurn {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        let (after_ms, status) = self.0.next().expect("no further request");
        let answer = format!("HTTP/1.1 {status} Status\r\nContent-Length: 2\r\n\r\nok");
        vec![(at_ns + after_ms * MS, Reply::Bytes(answer.into_bytes()))]
    }
}

/// One user goes through these steps at a pace of 100 ms: the counts, and the sums of the successful and of the failed
/// response times in ms.
fn paced_way(step_order: StepOrder, answers: Vec<(u64, u16)>, until_ns: u64) -> (Counts, u128, u128) {
    let count = (step_order.before + step_order.round + step_order.after) as usize;
    let script = || Script { on_failure: Advance::EndRound, ..Script::plain() };
    let scripts = (0..count).map(|_| script()).collect();
    let journey = Journey { step_order, scripts, ..plain_journey() };
    let requests = (0..count).map(|_| support::get()).collect();
    let model = Model::Closed { users: 1 };
    let spec = LoadSpec {
        journey: Some(Box::new(journey)),
        pace_ns: Some(100 * MS),
        ..LoadSpec::new(model, Until::Elapsed(until_ns), requests, support::address())
    };
    let mut sim = Sim::new(InTurn(answers.into_iter()));
    let outcome = simulate(&spec, &Control::default(), &mut sim, &mut |_| {}).unwrap();
    assert_eq!(sim.into_server().0.len(), 0, "all of it was asked for");
    let (counts, series) = (outcome.measured.counts, outcome.measured.series);
    counts.balance().unwrap();
    let ms = |sum_ns: u128| sum_ns / u128::from(MS);
    (counts, ms(series.response_ok.sum_ns()), ms(series.response_failed.sum_ns()))
}

#[test]
fn a_request_waiting_behind_a_skipped_due_time_keeps_its_own() {
    // Two steps to log in, and two rounds of one step: four requests, if none fails.
    let step_order = StepOrder { before: 2, round: 1, after: 0, weights: vec![], rounds: 2 };
    // The first starts at 0 ms; the second starts at 100 and fails at 550. At 200 and 300 two fall due and wait; they
    // are all the journey has left, so none falls due at 400 and 500. The user logs in again, which adds one request:
    // the one due at 200 lasts until 650, while one falls due at 600 and waits; the one due at 300 lasts until 660, and
    // the one due at 600 until 670.
    let answers = vec![(10, 200), (450, 500), (100, 200), (10, 200), (10, 200)];
    let (counts, ok_ms, failed_ms) = paced_way(step_order, answers, 680 * MS);
    assert_eq!((counts.due, counts.ok, counts.failed(), counts.dropped), (5, 4, 1, 0));
    assert_eq!((ok_ms, failed_ms), (10 + 450 + 360 + 70, 450));
}

#[test]
fn users_who_think_rest_as_well() {
    let mut spec = staged(&[stage(10, 10, 10 * S), stage(0, 0, 5 * S), stage(5, 5, 5 * S)], false);
    spec.think = Think::Constant(900 * MS);
    let ran = go(&spec, 100 * MS);
    assert_eq!(ran.due()[..10], [10; 10]);
    assert_eq!(ran.due()[10..15], [0; 5]);
    assert_eq!(ran.due()[15..20], [5; 5]);
    assert_eq!(ran.outcome.measured.series.late.max_ns(), Some(0));
    assert_eq!(ran.outcome.measured.connections.opened, 10);
}

/// Stages with levels up to `most`, each starting where the previous one ended.
fn some_stages(most: u64) -> impl Strategy<Value = Vec<Stage>> {
    prop::collection::vec((0..=most, 0u64..800, any::<bool>()), 1..6).prop_map(move |list| {
        let mut stages = vec![stage(1, most.max(1), 100 * MS)];
        for (to, over_ms, hold) in list {
            let from = stages.last().map_or(0, |s| s.to as u64);
            stages.push(stage(from, if hold { from } else { to }, over_ms * MS));
        }
        stages
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn accounts_balance_whatever_the_stages(
        stages in some_stages(20), open: bool, poisson: bool, drop: bool, paced: bool, think_ms in 0u64..50,
        service_us in 1u64..400_000, timeout_ms in 1u64..500, grace_ms in 0u64..500, cap in 1u64..5, seed: u64,
    ) {
        let mut spec = staged(&stages, open);
        let when_behind = if drop { WhenBehind::Drop } else { WhenBehind::Queue };
        if let Model::Open { arrivals, when_behind: behind, max_in_flight, .. } = &mut spec.model {
            *arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Constant };
            (*behind, *max_in_flight) = (when_behind, cap);
        } else if paced {
            (spec.pace_ns, spec.pace_when_behind) = (Some(20 * MS), when_behind);
        } else {
            spec.think = Think::Exponential(think_ms * MS);
        }
        (spec.timeout_ns, spec.grace_ns, spec.seed) = (timeout_ms * MS, grace_ms * MS, seed);
        let ran = go(&spec, service_us * 1000);
        let counts = &ran.outcome.measured.counts;
        if spec.pace_ns.is_some() || open {
            // What falls due depends on the schedule alone, whatever the system does.
            let other = go(&spec, 1000);
            prop_assert_eq!(counts.due, other.outcome.measured.counts.due);
        }
        let again = go(&spec, service_us * 1000);
        prop_assert_eq!(again.outcome.measured, ran.outcome.measured);
    }
}
