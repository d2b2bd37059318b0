//! The engine in simulated time: schedules, accounting and coordinated omission, to the nanosecond.

use std::collections::BTreeMap;

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::run::simulate;
use loadlab_load::spec::Proxy;
use loadlab_load::spec::request::{Request, RequestParts};
use loadlab_load::{Arrivals, Control, LoadEvent, LoadResult, LoadSpec, Model, Until, WhenBehind};
use loadlab_record::Failure;
use loadlab_record::counts::load::{Counts, Stragglers};
use loadlab_record::documents::summary::Distribution;
use loadlab_record::spec::schedule::Think;
use proptest::prelude::*;

use crate::support;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn spec(model: Model, until: Until) -> LoadSpec {
    LoadSpec::new(model, until, vec![support::get()], support::address())
}

fn open(rate_per_s: f64, max_in_flight: u64) -> Model {
    Model::Open { rate_per_s, arrivals: Arrivals::Constant, when_behind: WhenBehind::Queue, max_in_flight }
}

/// Answers after a fixed time, but stalls between the two times of `frozen`.
#[derive(Clone)]
struct Stub {
    service_ns: u64,
    frozen: (u64, u64),
    requests: u64,
    answered: u64,
}

impl Stub {
    fn new(service_ns: u64) -> Self {
        Stub { service_ns, frozen: (0, 0), requests: 0, answered: 0 }
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

impl Server for Stub {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        self.requests += 1;
        let (from, to) = self.frozen;
        let end = at_ns + self.service_ns;
        let end = if end >= from && at_ns < to { to.max(at_ns) + self.service_ns } else { end };
        self.answered += 1;
        vec![(end, Reply::Bytes(OK.to_vec()))]
    }
}

fn go<R: Server>(spec: &LoadSpec, sim: &mut Sim<R>) -> (LoadResult, Counts) {
    let mut ticks = Counts::default();
    let outcome = simulate(spec, &Control::default(), sim, &mut |event| {
        if let LoadEvent::Second(second) = event {
            let before = ticks.in_flight;
            ticks.merge(&second.tick.counts);
            ticks.in_flight -= before;
        }
    })
    .unwrap();
    outcome.measured.counts.balance().unwrap();
    (outcome, ticks)
}

fn response(outcome: &LoadResult) -> Distribution {
    let series = &outcome.measured.series;
    Distribution::with_censored(&series.response_ok, &series.response_censored)
}

#[test]
fn a_stall_shows_its_full_weight_in_the_open_model() {
    // 1,000 a second for 10 s; the server stalls for 1.5 s. The 15 % of requests that fall due in the stall wait
    // between 1.5 s and 0 s: p90 is 0.5 s, p99 1.4 s, p99.9 1.49 s.
    let spec = spec(open(1000.0, 10_000), Until::Elapsed(10 * S));
    let mut stub = Stub::new(MS / 10);
    stub.frozen = (4 * S, 5 * S + 500 * MS);
    let (outcome, _) = go(&spec, &mut Sim::new(stub));
    let d = response(&outcome);
    assert_eq!((d.count, outcome.measured.counts.ok), (10_000, 10_000));
    let near = |got: Option<f64>, ms: f64| assert!((got.unwrap() - ms).abs() < ms * 0.01, "{got:?} for {ms}");
    near(d.p50, 0.1);
    near(d.p90, 500.0);
    near(d.p99, 1400.0);
    near(d.p99_9, 1490.0);
    near(d.max, 1500.1);
    // and the generator was not at fault
    assert_eq!(outcome.measured.series.late.max_ns(), Some(0));
    assert_eq!(outcome.measured.series.blocked.max_ns(), Some(0));
}

#[test]
fn with_few_slots_the_stall_is_blocking_not_lateness() {
    let spec = spec(open(1000.0, 100), Until::Elapsed(10 * S));
    let mut stub = Stub::new(MS / 10);
    stub.frozen = (4 * S, 5 * S + 500 * MS);
    let (outcome, _) = go(&spec, &mut Sim::new(stub));
    let d = response(&outcome);
    assert!((d.p90.unwrap() - 500.0).abs() < 6.0, "{d:?}");
    assert_eq!(outcome.measured.series.late.max_ns(), Some(0));
    assert!(outcome.measured.series.blocked.max_ns().unwrap() > 1300 * MS);
    assert_eq!(outcome.measured.connections.peak, 100);
}

#[test]
fn a_stalled_generator_is_late() {
    let spec = spec(open(1000.0, 10_000), Until::Elapsed(10 * S));
    let (outcome, _) = go(&spec, &mut Sim::new(Stub::new(MS / 10)).stalls(vec![(2 * S, 300 * MS)]));
    assert_eq!(outcome.measured.counts.ok, 10_000);
    let late = outcome.measured.series.late.max_ns().unwrap();
    assert!((299 * MS..=301 * MS).contains(&late), "{late}");
    // the wait is also part of the response time: nothing is hidden
    assert!(response(&outcome).max.unwrap() >= 299.0);
}

#[test]
fn connections_that_cost_more_time_than_there_is_are_opened_one_by_one() {
    // Fewer connections can be opened per second than requests fall due: opening one for each waiting request would
    // delay the next, which would open even more. Ten connections deliver a hundred answers per millisecond.
    let spec = spec(open(100_000.0, 10_000), Until::Elapsed(S));
    let sim = || Sim::new(Stub::new(MS / 10)).connect_costs(40_000);
    let (outcome, _) = go(&spec, &mut sim());
    assert_eq!(outcome.measured.counts.ok, 100_000);
    assert!(outcome.measured.connections.peak <= 50, "{}", outcome.measured.connections.peak);
    let late = |outcome: &LoadResult| outcome.measured.series.late.max_ns().unwrap();
    assert!(late(&outcome) < 2 * MS, "{} ns", late(&outcome));
    // Requests that fell due during the stall do not open one each either.
    let (outcome, _) = go(&spec, &mut sim().stalls(vec![(500 * MS, 50 * MS)]));
    assert_eq!(outcome.measured.counts.ok, 100_000);
    assert!(outcome.measured.connections.peak <= 1000, "{}", outcome.measured.connections.peak);
}

#[test]
fn the_closed_model_hides_the_stall_and_says_so_by_its_counts() {
    let spec = spec(Model::Closed { users: 1 }, Until::Elapsed(10 * S));
    let mut stub = Stub::new(MS);
    stub.frozen = (4 * S, 5 * S + 500 * MS);
    let (outcome, _) = go(&spec, &mut Sim::new(stub));
    let d = response(&outcome);
    assert!((8_490..=8_510).contains(&d.count), "{d:?}");
    assert_eq!(d.p99, Some(d.p50.unwrap()));
    assert!(d.max.unwrap() > 1500.0);
}

#[test]
fn waiting_requests_are_dropped_at_the_end_and_those_in_flight_get_the_grace() {
    // 2 slots of 1 s each carry 2/s of the 10/s that fall due
    let spec = spec(open(10.0, 2), Until::Elapsed(5 * S));
    let (outcome, ticks) = go(&spec, &mut Sim::new(Stub::new(S)));
    let counts = &outcome.measured.counts;
    assert_eq!((counts.due, counts.started, counts.ok, counts.in_flight), (50, 10, 10, 0));
    assert_eq!(counts.dropped, 40);
    assert_eq!(*counts, ticks);
    assert_eq!(outcome.measured.in_window.ok, 8);
    assert_eq!(outcome.measured.window.length_s(), 5.0);
    // a percentile that falls among the dropped requests is unknown; only its lower bound is known
    let d = response(&outcome);
    assert_eq!((d.count, d.censored, d.p50), (50, 40, None));
    assert!(d.over_ms["p50"] > 1000.0);
}

#[test]
fn dropping_when_behind() {
    let model = Model::Open {
        rate_per_s: 10.0,
        arrivals: Arrivals::Constant,
        when_behind: WhenBehind::Drop,
        max_in_flight: 2,
    };
    let (outcome, _) = go(&spec(model, Until::Elapsed(5 * S)), &mut Sim::new(Stub::new(S + MS)));
    let counts = &outcome.measured.counts;
    assert_eq!((counts.due, counts.started, counts.dropped), (50, 10, 40));
}

#[test]
fn requests_and_repeats_end_a_closed_load_exactly() {
    let (outcome, _) =
        go(&spec(Model::Closed { users: 7 }, Until::Requests(1000)), &mut Sim::new(Stub::new(MS)));
    assert_eq!(outcome.measured.counts.ok, 1000);
    let mut journey = spec(Model::Closed { users: 7 }, Until::Repeats(10));
    journey.requests.push(journey.requests[0].clone());
    let (outcome, _) = go(&journey, &mut Sim::new(Stub::new(MS)));
    assert_eq!(outcome.measured.counts.ok, 7 * 10 * 2);
    assert!((outcome.measured.window.to_s - 0.02).abs() < 1e-6);
    assert!((outcome.measured.busy_s / outcome.measured.elapsed_s - 7.0).abs() < 0.01);
}

/// Answers after a fixed time, but from `holds_from_ns` on not before `held_until_ns`; counts its answers before
/// `until_ns`.
struct Counting {
    service_ns: u64,
    holds_from_ns: u64,
    held_until_ns: u64,
    until_ns: u64,
    answered_until: u64,
}

impl Counting {
    fn new((holds_from_ns, held_until_ns): (u64, u64), until_ns: u64) -> Self {
        Counting { service_ns: 10 * MS, holds_from_ns, held_until_ns, until_ns, answered_until: 0 }
    }
}

impl Server for Counting {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        let end = at_ns + self.service_ns;
        let end = if end >= self.holds_from_ns { end.max(self.held_until_ns) } else { end };
        self.answered_until += u64::from(end < self.until_ns);
        vec![(end, Reply::Bytes(OK.to_vec()))]
    }
}

#[test]
fn stragglers_keep_their_times_and_leave_the_rate_of_a_closed_load_alone() {
    // Thirty users, 10 ms per answer; nothing due from 2.995 s on is answered before the eighth second.
    let mut spec = spec(Model::Closed { users: 30 }, Until::Elapsed(3 * S));
    spec.grace_ns = 10 * S;
    let mut sim = Sim::new(Counting::new((2_995 * MS, 8 * S), 3 * S));
    let (outcome, ticks) = go(&spec, &mut sim);
    let measured = &outcome.measured;
    assert_eq!(measured.counts, ticks);
    // The rate is the server's own count over the planned duration, divided by that duration.
    assert_eq!(sim.into_server().answered_until, 30 * 299);
    assert_eq!(measured.in_window.ok, 30 * 299);
    assert_eq!((measured.window.from_s, measured.window.to_s, measured.elapsed_s), (0.0, 3.0, 8.0));
    // All users were busy throughout the window; their wait afterwards is not included.
    assert_eq!((measured.busy_in_window_s, measured.busy_s), (30.0 * 3.0, 30.0 * 8.0));
    // Stragglers are counted separately, and their response times are complete.
    let stragglers = Stragglers { ok: 30, failed: 0, tail_s: 5.0 };
    assert_eq!(measured.stragglers, stragglers);
    assert_eq!(measured.counts.ok, 30 * 300);
    assert_eq!(measured.series.response_ok.max_ns(), Some(5_010 * MS));
    assert_eq!(measured.series.response_ok.count(), 30 * 300);
}

#[test]
fn seconds_after_the_window_are_reported_and_marked_as_outside() {
    let mut spec = spec(Model::Closed { users: 30 }, Until::Elapsed(3 * S));
    spec.grace_ns = 10 * S;
    let mut seconds = Vec::new();
    let mut sim = Sim::new(Counting::new((2_995 * MS, 8 * S - MS), 3 * S));
    simulate(&spec, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Second(second) = event {
            seconds.push((second.tick.in_window, second.tick.counts.ok));
        }
    })
    .unwrap();
    let inside = |ok| (true, ok);
    let after = |ok| (false, ok);
    assert_eq!(
        seconds,
        [
            inside(30 * 99),
            inside(30 * 100),
            inside(30 * 100),
            after(0),
            after(0),
            after(0),
            after(0),
            after(30)
        ]
    );
}

#[test]
fn a_load_that_is_stopped_has_a_window_up_to_there() {
    // Stopped once the first two seconds are reported; whatever is then in flight ends in the fourth.
    for (model, until) in [
        (Model::Closed { users: 30 }, Until::Elapsed(60 * S)),
        (Model::Closed { users: 30 }, Until::Requests(1_000_000)),
        (open(3000.0, 10_000), Until::Elapsed(60 * S)),
    ] {
        let spec = spec(model, until);
        let control = Control::default();
        let mut sim = Sim::new(Counting::new((1_995 * MS, 4 * S), 2 * S));
        let mut seconds = Vec::new();
        let outcome = simulate(&spec, &control, &mut sim, &mut |event| {
            if let LoadEvent::Second(second) = event {
                seconds.push(second.tick.in_window);
                if second.tick.to_s >= 2.0 {
                    control.stop();
                }
            }
        })
        .unwrap();
        let measured = &outcome.measured;
        let to_s = measured.window.to_s;
        assert!((2.0..=2.2).contains(&to_s), "{spec:?}: {to_s}");
        assert_eq!(measured.in_window.ok, sim.into_server().answered_until, "{spec:?}");
        assert!(measured.stragglers.ok >= 30, "{spec:?}: {:?}", measured.stragglers);
        assert!((measured.stragglers.tail_s - (measured.elapsed_s - to_s)).abs() < 1e-9, "{spec:?}");
        assert!(outcome.cut_short);
        assert_eq!(seconds[..4], [true, true, true, false], "{spec:?}");
    }
}

#[test]
fn a_load_by_number_ends_with_its_last_answer_and_says_how_long_its_tail_was() {
    // 300 requests by 30 users, ten each of 10 ms; the ones sent at 90 ms are answered at 2.09 s.
    for until in [Until::Requests(300), Until::Repeats(10)] {
        let spec = spec(Model::Closed { users: 30 }, until);
        let mut sim = Sim::new(Counting::new((95 * MS, 2_090 * MS), S));
        let (outcome, _) = go(&spec, &mut sim);
        let measured = &outcome.measured;
        assert_eq!((measured.in_window.ok, measured.window.to_s), (300, 2.09));
        assert_eq!(measured.stragglers, Stragglers { ok: 0, failed: 0, tail_s: 2.0 });
        assert_eq!(measured.busy_in_window_s, measured.busy_s);
    }
}

/// Its fifth request is never answered.
struct Mute(u64);

impl Server for Mute {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        self.0 += 1;
        if self.0 == 5 { Vec::new() } else { vec![(at_ns + 10 * MS, Reply::Bytes(OK.to_vec()))] }
    }
}

/// The window of a load by number ends with the last answer, and what is in flight after that is not in it.
#[test]
fn waiting_for_an_answer_that_never_comes_is_not_in_the_window() {
    for threads in [1, 3] {
        let mut spec = spec(Model::Closed { users: 10 }, Until::Requests(3000));
        (spec.timeout_ns, spec.threads) = (30 * S, threads);
        let (outcome, _) = go(&spec, &mut Sim::new(Mute(0)));
        let measured = &outcome.measured;
        assert_eq!((measured.counts.ok, measured.counts.failures.get(Failure::Timeout)), (2999, 1));
        let to_s = measured.window.to_s;
        // Each answered request took 10 ms, and one was in flight all the time.
        let expect_s = 29.99 + to_s;
        assert!(
            to_s < if threads == 1 { 4.0 } else { 8.0 }
                && (measured.busy_in_window_s - expect_s).abs() < 0.15,
            "{threads} threads: {} s in flight in {to_s} s, not {expect_s}",
            measured.busy_in_window_s
        );
        assert!(measured.busy_s > 30.0 + measured.busy_in_window_s - to_s - 0.1);
    }
}

#[test]
fn what_ends_after_a_warm_up_has_only_its_part_of_the_window() {
    let mut spec = spec(Model::Closed { users: 4 }, Until::Elapsed(2 * S));
    spec.warmup_ns = 505 * MS;
    let mut sim = Sim::new(Counting::new((1_995 * MS, 3 * S), 2 * S));
    let (outcome, _) = go(&spec, &mut sim);
    let measured = &outcome.measured;
    assert_eq!(measured.window.length_s(), 1.495);
    assert_eq!(measured.busy_in_window_s, 4.0 * 1.495);
    // Answers at 510, 520 … 1,990 ms.
    assert_eq!(measured.in_window.ok, 4 * 149);
}

#[test]
fn users_ramp_up() {
    let mut ramped = spec(Model::Closed { users: 10 }, Until::Elapsed(2 * S));
    ramped.ramp_ns = S;
    let mut peaks = Vec::new();
    simulate(&ramped, &Control::default(), &mut Sim::new(Stub::new(10 * MS)), &mut |event| {
        if let LoadEvent::Progress(totals) = event {
            peaks.push(totals.counts.in_flight);
        }
    })
    .unwrap();
    assert_eq!(peaks[0], 1);
    assert_eq!(peaks[4], 5);
    assert_eq!(peaks[9], 10);
}

#[test]
fn paced_users_show_the_stall_they_waited_through() {
    // 10 users, a step every 100 ms for 10 s: 1,000 requests; the server stalls for 1.5 s
    let mut paced = spec(Model::Closed { users: 10 }, Until::Elapsed(10 * S));
    paced.pace_ns = Some(100 * MS);
    let mut stub = Stub::new(MS);
    stub.frozen = (4 * S, 5 * S + 500 * MS);
    let (outcome, ticks) = go(&paced, &mut Sim::new(stub));
    let measured = &outcome.measured;
    assert_eq!((measured.counts.due, measured.counts.ok), (1000, 1000));
    assert_eq!(measured.counts, ticks);
    let d = response(&outcome);
    // 15 % fell due in the stall, as in the open model
    assert!((d.p90.unwrap() - 500.0).abs() < 60.0, "{d:?}");
    assert!(measured.series.service_ok.quantile_ns(0.9).unwrap() < 2 * MS);
    assert_eq!(measured.series.late.max_ns(), Some(0));
    assert!(measured.series.blocked.max_ns().unwrap() > S);
}

#[test]
fn paced_requests_that_never_start_are_dropped() {
    // a step every 100 ms, but an answer takes 1 s
    let mut paced = spec(Model::Closed { users: 2 }, Until::Elapsed(5 * S));
    paced.pace_ns = Some(100 * MS);
    let (outcome, _) = go(&paced, &mut Sim::new(Stub::new(S)));
    let counts = &outcome.measured.counts;
    assert_eq!((counts.due, counts.started, counts.ok), (100, 10, 10));
}

#[test]
fn users_think_between_an_answer_and_their_next_request() {
    for (think, low, high) in [
        (Think::Constant(99 * MS), 990, 1000),
        (Think::Uniform(0, 198 * MS), 950, 1060),
        (Think::Exponential(99 * MS), 900, 1100),
    ] {
        let mut thinking = spec(Model::Closed { users: 10 }, Until::Elapsed(10 * S));
        thinking.think = think;
        let (outcome, _) = go(&thinking, &mut Sim::new(Stub::new(MS)));
        let n = outcome.measured.counts.ok;
        assert!((low..=high).contains(&n), "{think:?}: {n}");
        assert_eq!(response(&outcome).p50, Some(1.0));
    }
}

#[test]
fn goodput_of_users_counts_what_was_answered_in_the_duration() {
    let (outcome, _) =
        go(&spec(Model::Closed { users: 5 }, Until::Elapsed(S)), &mut Sim::new(Stub::new(400 * MS)));
    let measured = &outcome.measured;
    assert_eq!((measured.counts.ok, measured.in_window.ok), (15, 10));
    assert_eq!((measured.window.to_s, measured.elapsed_s), (1.0, 1.2));
}

#[test]
fn held_connections_are_taken_in_turn() {
    #[derive(Default)]
    struct Count(BTreeMap<ConnId, u64>);
    impl Server for Count {
        fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
            Ok(at_ns + MS)
        }
        fn request(&mut self, at_ns: u64, conn: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
            *self.0.entry(conn).or_default() += 1;
            // every seventh connection is slow: the turns must not wait for it
            let slow = if conn.is_multiple_of(7) { 50 * MS } else { MS };
            vec![(at_ns + slow, Reply::Bytes(OK.to_vec()))]
        }
    }
    for model in [Model::Closed { users: 20 }, open(5000.0, 1000)] {
        let mut held = spec(model, Until::Requests(1000));
        held.held = Some(loadlab_load::spec::HeldConnections { connections: 1000, rate_per_s: 20_000.0 });
        let mut sim = Sim::new(Count::default());
        let (outcome, _) = go(&held, &mut sim);
        let measured = &outcome.measured;
        assert_eq!((measured.counts.ok, measured.connections.opened), (1000, 1000));
        assert_eq!(measured.series.connect.count(), 1000);
        // the load began once all were open: the 50 ms of connecting are not part of it
        assert!(measured.series.response_ok.max_ns().unwrap() < 60 * MS);
        sim.server(|s| {
            assert_eq!(s.0.len(), 1000);
            assert!(s.0.values().all(|n| *n == 1));
        });
    }
}

#[test]
fn warm_up_moves_the_window_and_leaves_the_counts() {
    let mut warm = spec(open(100.0, 100), Until::Elapsed(10 * S));
    warm.warmup_ns = 4 * S;
    let (outcome, _) = go(&warm, &mut Sim::new(Stub::new(MS)));
    assert_eq!(outcome.measured.counts.ok, 1000);
    assert_eq!(outcome.measured.in_window.due, 600);
    assert_eq!(response(&outcome).count, 600);
    assert_eq!(outcome.measured.window.length_s(), 6.0);
}

#[test]
fn what_never_ends_times_out_or_is_cut() {
    let mut short = spec(Model::Closed { users: 3 }, Until::Elapsed(2 * S));
    short.timeout_ns = 500 * MS;
    let (outcome, ticks) = go(&short, &mut Sim::new(Stub::new(3600 * S)));
    let counts = &outcome.measured.counts;
    assert_eq!(counts.failures.get(Failure::Timeout), 12);
    assert_eq!(*counts, ticks);
    assert_eq!(response(&outcome).over_ms["max"], 500.0);
    let (outcome, _) =
        go(&spec(Model::Closed { users: 3 }, Until::Elapsed(2 * S)), &mut Sim::new(Stub::new(3600 * S)));
    assert_eq!((outcome.measured.counts.in_flight, outcome.measured.elapsed_s), (3, 7.0));
}

/// A server that misbehaves in every way, in turn.
#[derive(Default)]
struct Faulty {
    turn: u64,
    seen: BTreeMap<ConnId, bool>,
    requests: u64,
}

impl Server for Faulty {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        self.turn += 1;
        if self.turn.is_multiple_of(13) { Err((at_ns + MS, 111)) } else { Ok(at_ns + MS) }
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        self.turn += 1;
        self.seen.insert(conn, true);
        let at = at_ns + MS;
        let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        let replies = match self.turn % 9 {
            0 => vec![bytes("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal"), Reply::Fin],
            1 => vec![Reply::Error(104)],
            2 => vec![bytes("garbage that is no response at all\r\n\r\n")],
            3 => vec![bytes("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")],
            4 => vec![bytes("HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), Reply::Fin],
            5 => vec![bytes("HTTP/1.1 200 OK\r\n\r\nuntil the end"), Reply::Fin],
            6 => {
                // answers, then closes the idle connection: the next request must use another one, uncounted
                self.seen.insert(conn, false);
                vec![bytes("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), Reply::Fin]
            }
            7 => vec![],
            _ => vec![bytes("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")],
        };
        self.requests += 1;
        replies.into_iter().map(|r| (at, r)).collect()
    }

    fn saw(&self, conn: ConnId) -> bool {
        self.seen.get(&conn).copied().unwrap_or(true)
    }
}

#[test]
fn each_fault_lands_in_its_own_outcome() {
    let mut faulty = spec(Model::Closed { users: 5 }, Until::Requests(2000));
    faulty.timeout_ns = 50 * MS;
    let (outcome, ticks) = go(&faulty, &mut Sim::new(Faulty::default()));
    let counts = &outcome.measured.counts;
    assert_eq!(counts.due, 2000);
    assert_eq!(*counts, ticks);
    for failure in [
        Failure::Truncated,
        Failure::Reset,
        Failure::Protocol,
        Failure::Http5xx,
        Failure::Http4xx,
        Failure::Timeout,
        Failure::Connect,
    ] {
        assert!(counts.failures.get(failure) > 20, "{failure:?}: {counts:?}");
    }
    assert!(counts.ok > 100);
    let of_status = |status| outcome.measured.statuses.get(&status).copied();
    assert_eq!(of_status(503), Some(counts.failures.get(Failure::Http5xx)));
    assert_eq!(of_status(200), Some(counts.ok));
}

/// A proxy that grants a tunnel to every seventh request and fails the others in different ways. Every request through
/// a tunnel is answered.
#[derive(Default)]
struct FaultyProxy {
    asked: u64,
    given: u64,
    tunnels: BTreeMap<ConnId, bool>,
    requests: u64,
    received: u64,
}

const CONNECT: &[u8] = b"CONNECT sim:80 HTTP/1.1\r\nHost: sim:80\r\n\r\n";

impl Server for FaultyProxy {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns + MS)
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        self.received += bytes.len() as u64;
        if self.tunnels.contains_key(&conn) {
            self.requests += 1;
            return vec![(at_ns + MS, Reply::Bytes(OK.to_vec()))];
        }
        assert_eq!(bytes, CONNECT);
        self.asked += 1;
        let at = at_ns + 10 * MS;
        let says = |text: &str| (at, Reply::Bytes(text.as_bytes().to_vec()));
        match self.asked % 7 {
            0 => {
                self.given += 1;
                self.tunnels.insert(conn, true);
                // In pieces, after an interim answer.
                let rest = Reply::Bytes(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n".to_vec());
                vec![says("HTTP/1.1 1"), says("02 Wait\r\n\r\n"), (at + MS, rest)]
            }
            1 => vec![says("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")],
            2 => vec![says("HTTP/1.1 502 Bad Gateway\r\n\r\n<html>")],
            3 => vec![(at, Reply::Fin)],
            4 => vec![says("HTTP/1.1 200"), (at, Reply::Error(104))],
            5 => vec![says("SSH-2.0-proxy\r\n\r\n")],
            _ => vec![],
        }
    }

    fn closed(&mut self, _: u64, conn: ConnId) {
        self.tunnels.remove(&conn);
    }
}

#[test]
fn a_proxy_that_gives_no_tunnel_is_a_failed_connect_in_its_own_words() {
    let mut tunnelled = spec(Model::Closed { users: 5 }, Until::Requests(700));
    tunnelled.timeout_ns = 50 * MS;
    // Each request needs its own tunnel.
    tunnelled.keep_alive = false;
    tunnelled.proxy = Some(Box::new(Proxy { connects: vec![Some(CONNECT.into())] }));
    let mut errors = BTreeMap::new();
    let mut sim = Sim::new(FaultyProxy::default());
    let outcome = simulate(&tunnelled, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Example(example) = event {
            let reported = (example.outcome.clone(), example.error.clone().unwrap_or_default());
            *errors.entry(reported).or_insert(0) += 1;
        }
    })
    .unwrap();
    outcome.measured.counts.balance().unwrap();
    for example in &outcome.slowest {
        *errors.entry((example.outcome.clone(), example.error.clone().unwrap_or_default())).or_insert(0) += 1;
    }
    let counts = &outcome.measured.counts;
    let proxy = sim.into_server();
    assert_eq!((counts.due, counts.started, proxy.asked), (700, 700, 700));
    assert_eq!((counts.ok, proxy.requests, proxy.given), (100, 100, 100));
    assert_eq!(counts.failures.get(Failure::Connect), 500);
    assert_eq!(counts.failures.get(Failure::Timeout), 100);
    assert_eq!(counts.failures.total(), 600);
    assert_eq!((outcome.measured.connections.attempted, outcome.measured.connections.opened), (700, 100));
    assert_eq!(outcome.measured.bytes.sent, proxy.received);
    // 1 ms to the proxy, 11 ms until its answer is complete: both count towards the connect time.
    let connect = &outcome.measured.series.connect;
    assert_eq!((connect.count(), connect.min_ns().unwrap() / MS), (100, 12));
    let reported = |outcome: &str, error: &str| errors.contains_key(&(outcome.to_owned(), error.to_owned()));
    for error in [
        "the proxy answered 407 Proxy Authentication Required",
        "the proxy answered 502 Bad Gateway",
        "the proxy closed the connection instead of answering CONNECT",
        "connection to the proxy lost: connection reset by peer",
        "the proxy did not respond with HTTP",
    ] {
        assert!(reported("connect", error), "{error}: {errors:#?}");
    }
    assert!(reported("timeout", "the proxy did not answer CONNECT within the timeout"), "{errors:#?}");
}

#[test]
fn tunnels_are_kept_and_held_like_any_connection() {
    let mut tunnelled = spec(Model::Closed { users: 3 }, Until::Requests(60));
    tunnelled.proxy = Some(Box::new(Proxy { connects: vec![Some(CONNECT.into())] }));
    let mut sim = Sim::new(FaultyProxy { asked: 6, ..FaultyProxy::default() });
    let (outcome, _) = go(&tunnelled, &mut sim);
    let proxy = sim.into_server();
    // Users whose connect failed try again; users with a tunnel keep it.
    assert_eq!(outcome.measured.counts.ok, proxy.requests);
    assert_eq!(outcome.measured.connections.opened, proxy.given);
    assert!(proxy.given <= 3 && proxy.requests > 20, "{} {}", proxy.given, proxy.requests);
}

#[test]
fn one_connection_to_a_proxy_serves_all_hosts_that_it_is_asked_for_in_full() {
    let whole = |host: u16, path: &str| {
        let parts = RequestParts {
            method: "GET".into(),
            host: format!("h{host}"),
            path: format!("http://h{host}{path}"),
            keep_alive: true,
            ..RequestParts::default()
        };
        Request { host, ..parts.build().unwrap() }
    };
    let mut shared = spec(Model::Closed { users: 2 }, Until::Repeats(10));
    shared.requests = vec![whole(0, "/a"), whole(1, "/b")];
    shared.hosts = vec![vec!["127.0.0.1:80".parse().unwrap()]; 2];
    let opened = |spec: &LoadSpec| go(spec, &mut Sim::new(Stub::new(MS))).0.measured.connections.opened;
    assert_eq!(opened(&shared), 40, "without a proxy each host has a connection of its own");
    shared.proxy = Some(Box::new(Proxy { connects: vec![None, None] }));
    assert_eq!(opened(&shared), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn accounts_balance_and_ticks_add_up_however_a_load_ends(
        users in 1u64..20, rate in 1.0f64..2000.0, closed: bool, drop: bool, poisson: bool, cap in 1u64..50,
        duration_ms in 1u64..3000, service_us in 1u64..400_000, timeout_ms in 1u64..500, grace_ms in 0u64..500,
        warmup in 0u64..1000, ramp in 0u64..1000, by_number in proptest::option::of(1u64..3000), seed: u64,
    ) {
        let model = if closed { Model::Closed { users } } else {
            Model::Open {
                rate_per_s: rate,
                arrivals: if poisson { Arrivals::Poisson } else { Arrivals::Constant },
                when_behind: if drop { WhenBehind::Drop } else { WhenBehind::Queue },
                max_in_flight: cap,
            }
        };
        let until = by_number.map_or(Until::Elapsed(duration_ms * MS), Until::Requests);
        let mut spec = spec(model, until);
        (spec.timeout_ns, spec.grace_ns, spec.seed) = (timeout_ms * MS, grace_ms * MS, seed);
        (spec.warmup_ns, spec.ramp_ns) = (warmup * MS, ramp * MS);
        let mut sim = Sim::new(Stub::new(service_us * 1000));
        let (outcome, ticks) = go(&spec, &mut sim);
        let counts = &outcome.measured.counts;
        prop_assert_eq!(counts, &ticks);
        if let Some(n) = by_number {
            prop_assert_eq!(counts.due, n);
        }
        // the server saw every request that was started, once
        let mut server_saw = 0;
        sim.server(|s| server_saw = s.requests);
        prop_assert_eq!(server_saw, counts.started);
        // a replay is identical to the last bucket
        let (again, _) = go(&spec, &mut Sim::new(Stub::new(service_us * 1000)));
        prop_assert_eq!(again.measured, outcome.measured);
    }
}
