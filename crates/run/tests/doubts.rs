//! Doubts, from the engine in simulated time to the verdict: each one is provoked, and conditions that merely resemble
//! it raise none.

use std::collections::BTreeMap;

use loadlab_analysis::{LoadRun, Planned, TrialInput, summarise};
use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::run::simulate;
use loadlab_load::spec::HeldConnections;
use loadlab_load::spec::request::RequestParts;
use loadlab_load::{Arrivals, Control, LoadEvent, LoadResult, LoadSpec, Model, Until, WhenBehind};
use loadlab_record::counts::load::{OwnLimits, Tick};
use loadlab_record::documents::summary::{LoadFacts, LoadModel, Summary, Verdict};
use loadlab_record::spec::schedule::Think;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn spec(model: Model) -> LoadSpec {
    let request = RequestParts {
        method: "GET".into(),
        host: "sim".into(),
        path: "/".into(),
        keep_alive: true,
        ..RequestParts::default()
    };
    let address = "127.0.0.1:80".parse().unwrap();
    LoadSpec::new(model, Until::Elapsed(10 * S), vec![request.build().unwrap()], address)
}

fn users(users: u64) -> Model {
    Model::Closed { users }
}

fn rate(rate_per_s: f64, max_in_flight: u64, when_behind: WhenBehind) -> Model {
    Model::Open { rate_per_s, arrivals: Arrivals::Constant, when_behind, max_in_flight }
}

/// Answers each connection after its own service time, and accepts a limited number of connections.
struct Stub<F> {
    service_ns: F,
    refuse_from: ConnId,
    error: i32,
    requests: BTreeMap<ConnId, u64>,
}

impl<F: FnMut(ConnId, u64) -> u64> Stub<F> {
    fn new(service_ns: F) -> Self {
        Stub { service_ns, refuse_from: ConnId::MAX, error: 0, requests: BTreeMap::new() }
    }
}

impl<F: FnMut(ConnId, u64) -> u64> Server for Stub<F> {
    fn connect(&mut self, at_ns: u64, conn: ConnId) -> Result<u64, (u64, i32)> {
        if conn >= self.refuse_from { Err((at_ns + MS, self.error)) } else { Ok(at_ns) }
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        *self.requests.entry(conn).or_default() += 1;
        vec![(at_ns + (self.service_ns)(conn, at_ns), Reply::Bytes(OK.to_vec()))]
    }
}

/// The outcome of the simulation, and its ticks.
fn simulated<R: Server>(spec: &LoadSpec, mut sim: Sim<R>) -> (LoadResult, Vec<Tick>) {
    let mut ticks = Vec::new();
    let outcome = simulate(spec, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Second(second) = event {
            ticks.push(second.tick.clone());
        }
    });
    (outcome.unwrap(), ticks)
}

fn summary_of(spec: &LoadSpec, (outcome, ticks): (LoadResult, Vec<Tick>)) -> Summary {
    let planned = match spec.model {
        Model::Open { max_in_flight, when_behind, .. } => Planned {
            max_in_flight: Some(max_in_flight),
            drops_when_behind: when_behind == WhenBehind::Drop,
            ..Planned::default()
        },
        Model::Closed { .. } => Planned::default(),
    };
    let facts = LoadFacts {
        model: if planned.max_in_flight.is_some() { LoadModel::Open } else { LoadModel::Closed },
        users: match spec.model {
            Model::Closed { users } => Some(users),
            Model::Open { .. } => None,
        },
        duration_s: Some(10.0),
        ramp_s: spec.ramp_ns as f64 / 1e9,
        think_s: spec.think.mean_ns().map(|ns| ns as f64 / 1e9),
        ..LoadFacts::default()
    };
    let run = LoadRun { load: "load".into(), batch: 0, at_s: 0.0, measured: outcome.measured };
    summarise(TrialInput {
        agents: Vec::new(),
        facts,
        loads: &[run],
        ticks: &ticks,
        generator: outcome.generator,
        planned,
        ..TrialInput::default()
    })
}

fn go<R: Server>(spec: &LoadSpec, sim: Sim<R>) -> Summary {
    summary_of(spec, simulated(spec, sim))
}

fn kinds(summary: &Summary) -> Vec<(&str, bool)> {
    summary.doubts.iter().map(|d| (d.kind.as_str(), d.grave)).collect()
}

#[test]
fn nothing_is_said_of_a_generator_and_a_system_that_keep_up() {
    for model in [users(20), rate(1000.0, 100, WhenBehind::Queue)] {
        let s = go(&spec(model), Sim::new(Stub::new(|_, _| MS)));
        assert_eq!((kinds(&s), s.verdict), (vec![], Verdict::None));
        assert_eq!((s.generator.stalls.count, s.connections.own_limits.total()), (0, 0));
    }
}

#[test]
fn connections_that_are_served_ten_times_slower() {
    let tenth = |conn: ConnId, _| if conn.is_multiple_of(10) { 10 * MS } else { MS };
    let s = go(&spec(users(50)), Sim::new(Stub::new(tenth)));
    assert_eq!(kinds(&s), [("unfair", false)]);
    let per_user = s.connections.per_user.unwrap();
    assert_eq!((per_user.users, per_user.outliers), (50, 5));
    assert!((per_user.jain - 0.919).abs() < 0.001, "{per_user:?}");
    // one request in ninety-two belongs to a starved user: p95 does not reveal a tenth of the users
    assert!(s.response_ms.p95.unwrap() < 1.1);

    // a few users are served far better than the rest
    let lucky = |conn: ConnId, _| if conn.is_multiple_of(10) { MS } else { 10 * MS };
    assert_eq!(kinds(&go(&spec(users(50)), Sim::new(Stub::new(lucky)))), [("unfair", false)]);
}

#[test]
fn chance_and_ramps_are_not_unfair() {
    // service times with a deviation of three times their mean: one in twenty takes 63 times as long as the others
    let mut state = 1u64;
    let mut wild = move |_: ConnId, _: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        if (state >> 33).is_multiple_of(20) { 63 * MS } else { MS }
    };
    let s = go(&spec(users(50)), Sim::new(Stub::new(&mut wild)));
    assert_eq!(kinds(&s), []);
    assert!(s.connections.per_user.unwrap().min < s.connections.per_user.unwrap().max);
    // users that started later had less time
    let mut ramped = spec(users(50));
    ramped.ramp_ns = 8 * S;
    let s = go(&ramped, Sim::new(Stub::new(|_, _| 10 * MS)));
    assert_eq!(kinds(&s), []);
    let per_user = s.connections.per_user.unwrap();
    // the users of the first half, extrapolated as if they had been there throughout
    assert_eq!(per_user.users, 32);
    assert!((999..=1002).contains(&per_user.min) && per_user.max <= 1002, "{per_user:?}");
    // if each user has a fixed number of requests, counts show nothing
    let mut each = spec(users(5));
    each.until = Until::Repeats(100);
    assert_eq!(go(&each, Sim::new(Stub::new(|_, _| MS))).connections.per_user, None);
}

#[test]
fn limits_of_this_machine_while_connecting() {
    let check = |error: i32, expect: OwnLimits| {
        let mut stub = Stub::new(|_, _| MS);
        (stub.refuse_from, stub.error) = (5, error);
        let s = go(&spec(users(7)), Sim::new(stub));
        assert_eq!(s.connections.own_limits, expect, "{error}");
        // failing users are counted separately, and no figure counts them as idle
        assert_eq!(
            kinds(&s).contains(&("client_limit", true)),
            expect.total() > 0,
            "{error}: {:?}",
            s.doubts
        );
        assert_eq!(s.failures.get(loadlab_record::Failure::Connect), s.requests.failed);
        if expect.total() > 0 {
            assert_eq!((expect.total(), s.verdict), (s.requests.failed, Verdict::Invalid));
        }
    };
    let n = 2 * 10_000; // two users, each refused once a millisecond
    check(24, OwnLimits { open_files: n, ..OwnLimits::default() }); // EMFILE
    check(23, OwnLimits { open_files: n, ..OwnLimits::default() }); // ENFILE
    check(99, OwnLimits { ports: n, ..OwnLimits::default() }); // EADDRNOTAVAIL
    check(105, OwnLimits { memory: n, ..OwnLimits::default() }); // ENOBUFS
    check(12, OwnLimits { memory: n, ..OwnLimits::default() }); // ENOMEM
    check(111, OwnLimits::default()); // ECONNREFUSED
}

#[test]
fn a_generator_that_stalled() {
    let check = |model: Model, stalls: Vec<(u64, u64)>, expect: &[(&str, bool)]| {
        let s = go(&spec(model), Sim::new(Stub::new(|_, _| 20 * MS)).stalls(stalls));
        assert_eq!(kinds(&s), expect, "{:?}", s.doubts);
        s.generator.stalls
    };
    let open = || rate(1000.0, 1000, WhenBehind::Queue);
    let still = check(open(), vec![(4 * S, 400 * MS)], &[("late", true), ("generator_stalled", true)]);
    assert_eq!(still.count, 1);
    assert!((still.max_s - 0.4).abs() < 0.005 && (still.max_at_s - 4.0).abs() < 0.005, "{still:?}");
    let stalls = vec![(2 * S, 200 * MS), (6 * S, 500 * MS)];
    let still = check(users(4), stalls, &[("generator_stalled", false)]);
    assert_eq!(still.count, 2);
    assert!((still.total_s - 0.7).abs() < 0.05 && (still.max_at_s - 6.0).abs() < 0.05, "{still:?}");
    // another task's time slice is not a gap, and 60 requests up to 60 ms late do not show in the p99 of 10,000
    let still = check(open(), vec![(4 * S, 60 * MS)], &[("late", false)]);
    assert_eq!(still.count, 0);
}

#[test]
fn a_collector_that_fell_behind() {
    let check = |until_ns: u64, expect: Option<&str>| {
        let sim = Sim::new(Stub::new(|_, _| MS)).uncollected(2_500 * MS, until_ns);
        let s = go(&spec(users(4)), sim);
        let reported: Vec<_> =
            s.doubts.iter().map(|d| (d.kind.as_str(), d.grave, d.evidence.as_str())).collect();
        assert_eq!(
            reported,
            expect.map(|evidence| ("coarse_ticks", false, evidence)).into_iter().collect::<Vec<_>>()
        );
        s.requests
    };
    let counts = check(4 * S, None);
    let behind =
        "the thread that merges counts fell behind: 4.00 s of the load is in ticks longer than a second";
    assert_eq!(check(7_500 * MS, Some(behind)), counts);
}

#[test]
fn users_that_think_have_due_times_to_miss() {
    let mut thinking = spec(users(100));
    thinking.think = Think::Constant(100 * MS);
    let stalls = (0..20).map(|i| (i * 500 * MS, 90 * MS)).collect();
    let s = go(&thinking, Sim::new(Stub::new(|_, _| MS)).stalls(stalls));
    assert_eq!(kinds(&s), [("late", true)]);
}

#[test]
fn a_frozen_server_and_a_blameless_generator() {
    let freeze =
        |_: ConnId, at_ns: u64| if at_ns < 4 * S { MS } else { MS + (5500 * MS).saturating_sub(at_ns) };
    let s = go(&spec(rate(1000.0, 10_000, WhenBehind::Queue)), Sim::new(Stub::new(freeze)));
    assert_eq!((kinds(&s), s.verdict), (vec![], Verdict::None));
    assert!(s.response_ms.p99.unwrap() > 1300.0);
}

#[test]
fn a_cap_that_is_reached_and_requests_that_are_dropped() {
    // 10 slots of 100 ms each carry 100 of the 200 requests due per second
    let late = |when_behind| {
        let s = go(&spec(rate(200.0, 10, when_behind)), Sim::new(Stub::new(|_, _| 100 * MS)));
        assert_eq!(s.connections.in_flight_peak, Some(10));
        assert_eq!(kinds(&s), [("in_flight_cap", false), ("dropped", false)]);
        s.doubts.into_iter().map(|d| d.evidence).collect::<Vec<_>>()
    };
    let queued = late(WhenBehind::Queue);
    assert!(queued[0].starts_with("the cap of 10 requests in flight was reached; requests waited up to"));
    assert!(
        queued[1].ends_with("were never sent, still waiting for a slot when the load ended"),
        "{queued:?}"
    );
    let dropped = late(WhenBehind::Drop);
    assert!(
        dropped[1].ends_with("were never sent, as the plan asks when the system is behind"),
        "{dropped:?}"
    );
    // a peak one below the cap raises no doubt
    let s = go(&spec(rate(200.0, 21, WhenBehind::Queue)), Sim::new(Stub::new(|_, _| 100 * MS)));
    assert_eq!((kinds(&s), s.connections.in_flight_peak), (vec![], Some(20)));
    // held connections are not in flight
    let mut held = spec(rate(200.0, 30, WhenBehind::Queue));
    held.held = Some(HeldConnections { connections: 100, rate_per_s: 20_000.0 });
    let s = go(&held, Sim::new(Stub::new(|_, _| 100 * MS)));
    assert_eq!((kinds(&s), s.connections.peak), (vec![], 100));
}

/// Each load thread has a share of the slots: one has no slot left while the other has, and the cap is not reached.
#[test]
fn a_thread_that_has_reached_its_share_of_the_cap() {
    // The two threads take turns, 10 ms apart: what one of them sends takes 200 ms, and its five slots carry 25 of 50
    // requests per second.
    let is_slow = |at_ns: u64| ((at_ns + 5 * MS) / (10 * MS)).is_multiple_of(2);
    let service = |_: ConnId, at_ns: u64| if is_slow(at_ns) { 200 * MS } else { MS };
    let run = |when_behind| {
        let mut two = spec(rate(100.0, 10, when_behind));
        two.threads = 2;
        let s = go(&two, Sim::new(Stub::new(service)));
        assert!(s.connections.in_flight_peak < Some(10), "{:?}", s.connections);
        let doubt = s.doubts.iter().find(|d| d.kind == "in_flight_cap").expect("requests were held back");
        let reached = "a load thread reached its share of the cap of 10 requests in flight";
        assert!(!doubt.grave && doubt.evidence.starts_with(reached), "{}", doubt.evidence);
        (s.connections.held_back, s.requests.dropped)
    };
    let (held_back, dropped) = run(WhenBehind::Queue);
    assert!(held_back > dropped, "some of {held_back} were sent later, {dropped} were not");
    let (held_back, dropped) = run(WhenBehind::Drop);
    assert_eq!(held_back, dropped);
}

#[test]
fn littles_law_finds_times_that_were_lost() {
    let spec = spec(users(20));
    let run = || simulated(&spec, Sim::new(Stub::new(|conn: ConnId, _| (1 + u64::from(conn)) * MS)));
    assert_eq!(kinds(&summary_of(&spec, run())), [("unfair", false)]);
    // as if the engine had recorded half of each response time
    let (mut outcome, ticks) = run();
    let whole = outcome.measured.series.response_ok.clone();
    outcome.measured.series.response_ok.clear();
    for q in 0..1000 {
        let ns = whole.quantile_ns((f64::from(q) + 0.5) / 1000.0).unwrap() / 2;
        outcome.measured.series.response_ok.record_n(ns, whole.count() / 1000);
    }
    let rest = whole.count() % 1000;
    outcome.measured.series.response_ok.record_n(MS, rest);
    let s = summary_of(&spec, (outcome, ticks));
    assert_eq!(kinds(&s)[0], ("littles_law", true), "{:?}", s.doubts);
    assert!(s.doubts[0].evidence.starts_with("20.0 requests in flight on average, but"), "{:?}", s.doubts);
}
