//! Summaries of small trials made by hand, against figures computed by hand.

use std::collections::BTreeMap;

use loadlab_analysis::cases::metric::{self, Value};
use loadlab_analysis::trial::judge::{Exit, was_never_connected};
use loadlab_analysis::{LoadRun, Planned, TrialInput, summarise};
use loadlab_record::Failure;
use loadlab_record::Histogram;
use loadlab_record::counts::load::{
    Counts, InWindow, Measured, OwnLimits, PerUser, Stragglers, Tick, Window,
};
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::figure::NumberKind;
use loadlab_record::documents::summary::{
    Generator, LoadFacts, LoadModel, Loss, StageFacts, Stalls, Summary, Verdict,
};
use loadlab_record::expr::{Expr, Figure, SummaryNumbers};
use loadlab_record::watch::sample::Sample;

const MS: u64 = 1_000_000;

/// A load of `n` ok requests of `ms` each over `length_s`, that balances.
fn load(name: &str, at_s: f64, n: u64, ms: u64, length_s: f64) -> LoadRun {
    let mut m = Measured {
        counts: Counts { due: n, started: n, ok: n, ..Counts::default() },
        window: Window { from_s: 0.0, to_s: length_s },
        in_window: InWindow { due: n, started: n, ok: n },
        elapsed_s: length_s,
        busy_s: (n * ms) as f64 / 1e3,
        busy_in_window_s: (n * ms) as f64 / 1e3,
        ..Measured::default()
    };
    m.series.response_ok.record_n(ms * MS, n);
    m.statuses.insert(200, n);
    LoadRun { load: name.to_owned(), batch: 0, at_s, measured: m }
}

fn closed(users: u64) -> LoadFacts {
    LoadFacts { model: LoadModel::Closed, users: Some(users), duration_s: Some(10.0), ..LoadFacts::default() }
}

fn open(rate_per_s: f64) -> LoadFacts {
    LoadFacts { model: LoadModel::Open, rate_per_s: Some(rate_per_s), ..LoadFacts::default() }
}

fn input(facts: LoadFacts, loads: &[LoadRun]) -> TrialInput<'_> {
    TrialInput {
        agents: Vec::new(),
        facts,
        loads,
        generator: Generator { io: "sim".into(), threads: 1, cpu_s: 1.0, ..Generator::default() },
        ..TrialInput::default()
    }
}

fn kinds(summary: &Summary) -> Vec<(&str, bool)> {
    summary.doubts.iter().map(|d| (d.kind.as_str(), d.grave)).collect()
}

#[test]
fn a_quiet_closed_load() {
    let loads = [load("main", 0.0, 1000, 10, 10.0)];
    let s = summarise(input(closed(1), &loads));
    assert_eq!(s.rate_per_s.ok, 100.0);
    assert_eq!((s.elapsed_s, s.window.from_s, s.window.to_s), (10.0, 0.0, 10.0));
    assert_eq!((s.availability, s.concurrency_mean), (Some(1.0), 1.0));
    // without due times response and service are the same
    assert_eq!(s.service_ms, s.response_ms);
    assert_eq!((s.response_ms.p99, s.response_ms.p99_9), (Some(10.0), None));
    assert_eq!((s.verdict, kinds(&s)), (Verdict::None, vec![]));
    assert_eq!(Exit::of_summary(&s), Exit::Ok);
}

#[test]
fn batches_share_the_time_and_concurrent_loads_add_their_rates() {
    // two batches of 100/s with a pause of 10 s between them
    let batches = [load("main", 0.0, 1000, 10, 10.0), load("main", 20.0, 1000, 10, 10.0)];
    let s = summarise(input(closed(1), &batches));
    assert_eq!(s.rate_per_s.ok, 100.0);
    assert_eq!((s.elapsed_s, s.concurrency_mean), (30.0, 1.0));
    assert_eq!(s.requests.ok, 2000);

    let at_once = [load("a", 0.0, 1000, 10, 10.0), load("b", 0.0, 500, 10, 10.0)];
    let s = summarise(input(closed(1), &at_once));
    assert_eq!((s.rate_per_s.ok, s.elapsed_s, s.concurrency_mean), (150.0, 10.0, 1.5));

    // one starts as the other has run for half of its time: 100/s, 200/s, 100/s for 5 s each
    let staggered = [load("a", 0.0, 1000, 10, 10.0), load("b", 5.0, 1000, 10, 10.0)];
    let s = summarise(input(closed(1), &staggered));
    assert_eq!(s.rate_per_s.ok, 2000.0 / 15.0);
    assert_eq!((s.window.from_s, s.window.to_s), (0.0, 15.0));
    // and each has its own figures
    let b = &s.by_load["b"];
    assert_eq!((b.rate_per_s.ok, b.requests.ok, b.window.from_s), (100.0, 1000, 5.0));
    assert_eq!(s.by_load.len(), 2);

    // a warm-up of one of two loads does not reduce its rate
    let mut warm = load("a", 0.0, 500, 10, 10.0);
    warm.measured.window.from_s = 5.0;
    let both = [warm, load("b", 0.0, 1000, 10, 10.0)];
    assert_eq!(summarise(input(closed(1), &both)).rate_per_s.ok, 200.0);

    // one after the other is not concurrent: 100/s all the time
    let in_turn = [load("a", 0.0, 1000, 10, 10.0), load("b", 10.0, 1000, 10, 10.0)];
    assert_eq!(summarise(input(closed(1), &in_turn)).rate_per_s.ok, 100.0);
}

/// Ten users for 3 s at 10 ms per answer; each has one more request in flight when that is over, and waits 5 s for it.
fn with_stragglers() -> LoadRun {
    let (n, users) = (3000, 10);
    let mut run = load("main", 0.0, n, 10, 3.0);
    let m = &mut run.measured;
    m.counts = Counts { due: n + users, started: n + users, ok: n + users, ..Counts::default() };
    m.in_window = InWindow { due: n + users, started: n + users, ok: n };
    m.series.response_ok.record_n(5000 * MS, users);
    (m.elapsed_s, m.busy_s) = (8.0, 30.0 + 50.0);
    m.stragglers = Stragglers { ok: users, failed: 0, tail_s: 5.0 };
    run
}

#[test]
fn stragglers_are_in_no_rate_and_break_no_law() {
    let facts = LoadFacts { duration_s: Some(3.0), ..closed(10) };
    let runs = [with_stragglers()];
    let s = summarise(input(facts.clone(), &runs));
    assert_eq!((s.rate_per_s.ok, s.concurrency_mean, s.elapsed_s), (1000.0, 10.0, 8.0));
    assert_eq!((s.requests.ok, s.stragglers.ok, s.response_ms.count), (3010, 10, 3010));
    assert_eq!(s.response_ms.max, Some(5000.0));
    assert_eq!(kinds(&s), []);
    // A duration lost on its way into the record is still detected.
    let mut runs = [with_stragglers()];
    let m = &mut runs[0].measured;
    (m.busy_s, m.busy_in_window_s) = (83.0, 33.0);
    assert_eq!(kinds(&summarise(input(facts, &runs))), [("littles_law", true)]);
}

#[test]
fn a_component_is_as_busy_as_it_was_while_it_was_loaded() {
    // A core for 3 s, then nothing for the 5 s that stragglers take.
    let sample = |at_s: f64| Sample {
        component: "app".into(),
        at_s,
        cpu_s: Some(at_s.clamp(0.0, 3.0)),
        ..Sample::default()
    };
    let samples: Vec<Sample> = (0..=8).map(|second| sample(f64::from(second))).collect();
    let runs = [with_stragglers()];
    let s = summarise(TrialInput { samples: &samples, ..input(closed(10), &runs) });
    let app = &s.components["app"];
    assert_eq!((app.cpu_percent.mean, app.cpu_s), (Some(100.0), Some(3.0)));
}

#[test]
fn the_tail_of_a_load_by_number_is_reported() {
    let check = |tail_s: f64, reported: bool| {
        let mut runs = [load("main", 0.0, 1000, 10, 10.0)];
        runs[0].measured.stragglers.tail_s = tail_s;
        let facts = LoadFacts { duration_s: None, requests: Some(1000), ..closed(1) };
        let s = summarise(input(facts, &runs));
        assert_eq!(kinds(&s), if reported { &[("tail", false)][..] } else { &[] }, "{tail_s}");
        s
    };
    check(1.0, false);
    let s = check(5.0, true);
    assert_eq!(
        s.doubts[0].evidence,
        "the last answer came 5.00 s after the last request had begun, 50 % of the load: few requests were in flight then, but rates include that time"
    );
}

#[test]
fn where_every_request_failed_that_is_said_and_no_longer_load_is_advised() {
    let check = |kind: Failure, status: Option<u16>, hint: &str| {
        let mut runs = [load("main", 0.0, 0, 10, 10.0)];
        let m = &mut runs[0].measured;
        (m.counts.due, m.counts.started) = (50, 50);
        m.counts.failures.add(kind, 50);
        m.statuses = status.map(|status| (status, 50)).into_iter().collect();
        let s = summarise(input(closed(1), &runs));
        assert_eq!(kinds(&s), [("all_failed", false)], "{kind:?}");
        assert!(s.doubts[0].hint.contains(hint), "{}", s.doubts[0].hint);
        assert_eq!(Exit::of_summary(&s), if status.is_some() { Exit::Ok } else { Exit::CouldNotRun });
        s.doubts[0].evidence.clone()
    };
    assert_eq!(
        check(Failure::Http4xx, Some(404), "is the path right"),
        "all 50 requests that ended failed: http_4xx 50, status 404"
    );
    check(Failure::Http4xx, Some(401), "credentials");
    check(Failure::Http5xx, Some(503), "the server's own log");
    check(Failure::Check, Some(200), "a check rejects");
    check(Failure::Tls, None, "--insecure");
    // A server that hangs: the load ends before anything times out.
    let mut runs = [load("main", 0.0, 0, 10, 10.0)];
    let m = &mut runs[0].measured;
    (m.counts.due, m.counts.started, m.counts.in_flight) = (50, 50, 50);
    let s = summarise(input(closed(50), &runs));
    assert_eq!(kinds(&s), [("all_failed", false)]);
    assert_eq!(s.doubts[0].evidence, "none of 50 requests was answered before the load ended");
    let errors = Expr::parse("errors == 0").unwrap().evaluate(&SummaryNumbers::new(&s, &[]));
    assert_eq!(errors.holds, None);
    assert_eq!(metric::named("errors").expect("a figure").of(&s), Value::Nothing);
    // One success changes that.
    let mut runs = [load("main", 0.0, 1, 10, 10.0)];
    let m = &mut runs[0].measured;
    (m.counts.due, m.counts.started) = (50, 50);
    m.counts.failures.add(Failure::Http4xx, 49);
    assert_eq!(kinds(&summarise(input(closed(1), &runs))), [("few_samples", false)]);
}

#[test]
fn requests_that_were_sent_again_after_a_reset_may_have_failed() {
    let check = |resent: u64, expect: &str, doubts: &[(&str, bool)]| {
        let mut runs = [load("main", 0.0, 9_900, 1, 10.0)];
        let m = &mut runs[0].measured;
        (m.counts.due, m.counts.started) = (10_000, 10_000);
        m.counts.failures.add(Failure::Reset, 100);
        m.series.response_failed.record_n(MS, 100);
        (m.connections.requests_resent, m.connections.resent_after_reset) = (resent + 1, resent);
        let expect = [Expr::parse(expect).unwrap()];
        let s = summarise(TrialInput { expect: &expect, ..input(closed(1), &runs) });
        assert_eq!(kinds(&s), doubts, "{resent}, {expect:?}");
        s
    };
    let (doubted, grave) = ([("resent_after_reset", false)], [("resent_after_reset", true)]);
    check(0, "errors < 2%", &[]);
    check(9, "errors < 2%", &[]);
    let s = check(90, "errors < 2%", &doubted);
    assert_eq!(
        s.doubts[0].evidence,
        "90 of 10,000 requests (0.9 %) were sent again because a connection that had been used before was reset without an \
         answer; if the server had read them, up to 1.9 % of the requests failed instead of 1.0 %"
    );
    // What is expected depends on it.
    let s = check(900, "errors < 2%", &grave);
    assert!(
        s.doubts[0].evidence.ends_with("instead of 1.0 %, and `errors < 2%` does not hold"),
        "{:?}",
        s.doubts
    );
    assert_eq!(s.verdict, Verdict::Invalid);
    check(5, "failed <= 104", &grave);
    check(900, "availability > 95%", &grave);
    // No more can fail than did not: the rest was sent again and then failed.
    let s = check(9_950, "errors < 2%", &grave);
    assert!(s.doubts[0].evidence.contains("up to 100 % of the requests failed"), "{:?}", s.doubts);
    // It fails anyway.
    assert_eq!(check(900, "errors < 1%", &doubted).verdict, Verdict::Fail);
}

#[test]
fn spread_of_goodput_takes_whole_ticks_of_the_window() {
    let tick = |from_s: f64, to_s: f64, ok, in_window| Tick {
        load: "main".into(),
        from_s,
        to_s,
        in_window,
        counts: Counts { ok, ..Counts::default() },
        ..Tick::default()
    };
    let ticks = [
        tick(0.0, 1.0, 5000, false),
        tick(1.0, 2.0, 90, true),
        tick(2.0, 3.0, 100, true),
        tick(3.0, 4.0, 110, true),
        tick(4.0, 4.2, 100, true),
    ];
    let loads = [load("main", 0.0, 1000, 10, 10.0)];
    let s = summarise(TrialInput { ticks: &ticks, ..input(closed(1), &loads) });
    assert_eq!((s.rate_per_s.ok_stdev, s.rate_per_s.ok_max), (Some(10.0), Some(110.0)));
    // A second in which the window ends also counts what came after it: it is not whole.
    let loads = [load("main", 0.0, 1000, 10, 3.5)];
    let s = summarise(TrialInput { ticks: &ticks[1..4], ..input(closed(1), &loads) });
    assert_eq!(s.rate_per_s.ok_max, Some(100.0));
}

#[test]
fn numbers_that_do_not_add_up_are_invalid() {
    let mut runs = [load("main", 0.0, 1000, 10, 10.0)];
    runs[0].measured.counts.due += 1;
    let s = summarise(input(closed(1), &runs));
    assert_eq!((s.verdict, kinds(&s)), (Verdict::Invalid, vec![("accounting", true)]));
    assert_eq!(s.doubts[0].evidence, "load `main`, batch 0: due 1001 ≠ started 1000 + dropped 0");
    assert_eq!(Exit::of_summary(&s), Exit::Invalid);
}

#[test]
fn lateness_is_grave_where_it_shows() {
    // response, late for 2 % of requests, expected doubt
    let check = |response_ms: u64, late_us: u64, share: u64, expect: &[(&str, bool)]| {
        let mut runs = [load("main", 0.0, 10_000, response_ms, 10.0)];
        let series = &mut runs[0].measured.series;
        series.service_ok.record_n(response_ms * MS, 10_000);
        series.late.record_n(20_000, 10_000 - share);
        series.late.record_n(late_us * 1000, share);
        let s = summarise(input(open(1000.0), &runs));
        assert_eq!(kinds(&s), expect, "{response_ms} ms, late {late_us} µs × {share}: {:?}", s.doubts);
    };
    check(1, 900, 200, &[]); // below the floor
    check(5, 3_200, 200, &[("late", true)]); // 64 % of the median
    check(5, 1_200, 200, &[("late", false)]); // it shows, but a shared core does as much
    check(50, 4_000, 200, &[]); // 8 % of the median
    check(500, 12_000, 200, &[("late", true)]); // the schedule was not the plan's
    check(5, 40_000, 50, &[("late", false)]); // half a percent: shows at p99.9
    check(5, 40_000, 5, &[]); // one in 2,000: below p99.9
}

#[test]
fn users_who_think_or_keep_a_pace_can_be_sent_late() {
    let mut runs = [load("main", 0.0, 10_000, 10, 10.0)];
    let series = &mut runs[0].measured.series;
    series.service_ok.record_n(10 * MS, 10_000);
    series.late.record_n(20 * MS, 10_000);
    let thinking = LoadFacts { think_s: Some(1.0), ..closed(10) };
    assert_eq!(kinds(&summarise(input(thinking, &runs))), [("late", true)]);
    let paced = LoadFacts { pace_s: Some(1.0), ..closed(10) };
    assert_eq!(kinds(&summarise(input(paced, &runs))), [("late", true)]);
    // Without think time or pace, requests have no due times.
    assert_eq!(kinds(&summarise(input(closed(10), &runs))), []);
}

#[test]
fn what_was_dropped_says_what_it_waited_for() {
    let mut runs = [load("main", 0.0, 1000, 10, 10.0)];
    (runs[0].measured.counts.due, runs[0].measured.counts.dropped) = (1100, 100);
    let reported = |facts: LoadFacts, drops_when_behind| {
        let planned = Planned { drops_when_behind, ..Planned::default() };
        let s = summarise(TrialInput { planned, ..input(facts, &runs) });
        assert_eq!(kinds(&s), [("dropped", false)]);
        let how = s.doubts[0].evidence.split(" were never sent, ").nth(1).unwrap_or_default().to_owned();
        (how, s.doubts[0].hint.split(';').next().unwrap_or_default().to_owned())
    };
    let paced = || LoadFacts { pace_s: Some(1.0), ..closed(1) };
    for (reported, how, what) in [
        (reported(open(110.0), false), "still waiting for a slot when the load ended", "rate"),
        (reported(paced(), false), "still waiting for their user when the load ended", "pace"),
        (reported(paced(), true), "as the plan asks when the system is behind", "pace"),
    ] {
        assert_eq!(reported, (how.to_owned(), format!("the system does not keep up with this {what}")));
    }
}

#[test]
fn what_opening_held_connections_took_is_reported() {
    let mut runs = [load("main", 0.0, 100, 5, 10.0)];
    runs[0].measured.connections.connect_phase_s = Some(4.5);
    runs[0].measured.connections.bytes_per_connection = Some(44.0);
    let s = summarise(input(open(10.0), &runs));
    assert_eq!((s.connections.connect_phase_s, s.connections.bytes_per_connection), (Some(4.5), Some(44.0)));
}

#[test]
fn one_hiccup_among_few_requests_does_not_condemn_them() {
    let check = |late: u64, expect: &[(&str, bool)]| {
        let mut runs = [load("main", 0.0, 110, 5, 10.0)];
        let series = &mut runs[0].measured.series;
        series.service_ok.record_n(5 * MS, 110);
        series.late.record_n(20_000, 110 - late);
        series.late.record_n(40 * MS, late);
        let s = summarise(input(open(11.0), &runs));
        assert_eq!(kinds(&s), expect, "{late} late: {:?}", s.doubts);
    };
    check(2, &[("late", false)]);
    check(12, &[("late", true)]);
}

#[test]
fn waiting_for_the_system_is_no_fault_of_the_generator() {
    let mut runs = [load("main", 0.0, 10_000, 700, 10.0)];
    let m = &mut runs[0].measured;
    m.series.late.record_n(30_000, 10_000);
    m.series.blocked.record_n(600 * MS, 10_000);
    m.series.service_ok.record_n(100 * MS, 10_000);
    (m.busy_s, m.busy_in_window_s) = (1000.0, 1000.0);
    m.counts.due += 500;
    m.counts.dropped = 500;
    m.connections.in_flight_peak = Some(100);
    let planned = Planned { max_in_flight: Some(100), ..Planned::default() };
    let s = summarise(TrialInput { planned, ..input(open(1000.0), &runs) });
    assert_eq!(kinds(&s), [("in_flight_cap", false), ("dropped", false)]);
    assert_eq!(
        s.doubts[1].evidence,
        "500 of 10,500 requests due (4.8 %) were never sent, still waiting for a slot when the load ended"
    );
    assert_eq!(s.service_ms.p99, Some(100.0));
}

#[test]
fn little_finds_times_that_are_missing_and_users_that_idle() {
    let mut runs = [load("main", 0.0, 1000, 10, 10.0)];
    (runs[0].measured.busy_s, runs[0].measured.busy_in_window_s) = (20.0, 20.0); // the engine saw two in flight, the times say one
    assert_eq!(kinds(&summarise(input(closed(1), &runs))), [("littles_law", true)]);

    // 4 users and one request in flight: three of them idle
    let runs = [load("main", 0.0, 1000, 10, 10.0)];
    assert_eq!(kinds(&summarise(input(closed(4), &runs))), [("users_idle", true)]);
    let thinking = LoadFacts { think_s: Some(1.0), ..closed(4) };
    assert_eq!(kinds(&summarise(input(thinking, &runs))), []);
    let staged = LoadFacts { stages: vec![StageFacts { from: 0.0, to: 4.0, over_s: 10.0 }], ..closed(4) };
    assert_eq!(kinds(&summarise(input(staged, &runs))), []);
    // 19 requests per user are too few to judge
    assert_eq!(kinds(&summarise(input(closed(53), &runs))), []);
}

/// If an event changed a limit during the load, not all use can be compared with that limit.
#[test]
fn a_cpu_limit_that_was_changed_is_no_limit_of_the_whole_load() {
    let runs = [load("main", 0.0, 1000, 10, 10.0)];
    let samples = [-1.0, 11.0].map(|at_s| Sample { component: "web".into(), at_s, ..Sample::default() });
    let limit = |at_s: f64, what: &str, component: &str, error: Option<&str>| {
        let (what, components) = (what.to_owned(), vec![component.to_owned()]);
        let action = EventKind::Action { what, components, error: error.map(str::to_owned) };
        let events = [Event { at_s, what: action }];
        let planned = Planned { cpu_limits: [("web".to_owned(), 0.05)].into(), ..Planned::default() };
        let all = TrialInput { planned, samples: &samples, events: &events, ..input(closed(1), &runs) };
        summarise(all).components["web"].cpu_limit
    };
    assert_eq!(limit(5.0, "limit web cpu 200%", "web", None), None);
    assert_eq!(limit(5.0, "limit web cpu none", "web", None), None);
    for (at_s, what, component, error) in [
        (5.0, "limit web memory 1GiB", "web", None),
        (5.0, "pause web", "web", None),
        (5.0, "limit db cpu 200%", "db", None),
        (5.0, "limit web cpu 200%", "web", Some("refused")),
        (10.5, "limit web cpu 200%", "web", None),
    ] {
        assert_eq!(limit(at_s, what, component, error), Some(0.05), "{what} {error:?}");
    }
}

/// A few drops do not hide that the system falls behind: what was dropped was never done.
#[test]
fn a_backlog_shows_beside_a_few_drops() {
    let behind = |dropped: u64| {
        let mut runs = [load("main", 0.0, 13_000, 50, 10.0)];
        let m = &mut runs[0].measured;
        (m.counts.due, m.counts.dropped, m.in_window.due) = (13_000 + dropped, dropped, 15_000);
        m.series.service_ok.record_n(50 * MS, 13_000);
        let tick = |second: u64| Tick {
            load: "main".into(),
            from_s: second as f64,
            to_s: second as f64 + 1.0,
            counts: Counts {
                due: 1500,
                started: 1500,
                ok: 1000,
                dropped: if second == 9 { dropped } else { 0 },
                ..Counts::default()
            },
            ..Tick::default()
        };
        let ticks: Vec<Tick> = (0..10).map(tick).collect();
        let facts = LoadFacts { duration_s: Some(10.0), ..open(1500.0) };
        let s = summarise(TrialInput { ticks: &ticks, ..input(facts, &runs) });
        let has = |kind: &str| s.doubts.iter().any(|doubt| doubt.kind == kind);
        (has("backlog"), has("dropped"))
    };
    assert_eq!([behind(0), behind(40), behind(4000)], [(true, false), (true, true), (false, true)]);
}

/// A failure's wait to be started is in its response time, and was not in flight.
#[test]
fn failures_that_waited_break_no_law() {
    let mut runs = [load("main", 0.0, 1000, 3000, 10.0)];
    let m = &mut runs[0].measured;
    (m.counts.due, m.counts.started) = (1009, 1009);
    m.counts.failures.add(Failure::Http5xx, 9);
    m.statuses.insert(503, 9);
    m.series.service_ok.record_n(100 * MS, 1000);
    m.series.response_failed.record_n(3000 * MS, 9);
    (m.busy_s, m.busy_in_window_s) = (100.9, 100.9);
    let doubts = |runs: &[LoadRun]| {
        kinds(&summarise(input(open(100.0), runs))).iter().any(|(kind, _)| *kind == "littles_law")
    };
    assert!(!doubts(&runs));
    // What was served counts all the same, and no failure explains that much.
    (runs[0].measured.busy_s, runs[0].measured.busy_in_window_s) = (140.0, 140.0);
    assert!(doubts(&runs));
    (runs[0].measured.busy_s, runs[0].measured.busy_in_window_s) = (90.0, 90.0);
    assert!(doubts(&runs));
}

#[test]
fn a_generator_without_reserve() {
    let runs = [load("main", 0.0, 1000, 10, 10.0)];
    let check = |facts: LoadFacts, expect: &[&str], grave: bool| {
        let busy = Generator {
            threads: 1,
            cpu_s: 9.5,
            throttled_s: Some(0.2),
            io: "sim".into(),
            ..Generator::default()
        };
        let figures = [
            ("page time", "p99", NumberKind::Duration),
            ("answers", "goodput", NumberKind::Rate),
            ("refusals", "failed", NumberKind::Plain),
        ];
        let figures = figures.map(|(name, text, kind)| Figure::after(&[], name, text, kind).unwrap());
        let parsed = |e: &&str| Expr::parse(e).unwrap().with_figures(&figures);
        let expect: Vec<Expr> = expect.iter().map(parsed).collect();
        let planned = Planned { figures: figures.to_vec(), ..Planned::default() };
        let s = summarise(TrialInput { generator: busy, expect: &expect, planned, ..input(facts, &runs) });
        assert_eq!(kinds(&s), [("throttled", grave), ("generator_cpu", grave)], "{expect:?}");
        s
    };
    let s = check(closed(1), &[], false);
    assert_eq!(
        s.doubts[0].evidence,
        "loadlab itself was throttled by a CPU limit for 200 ms of a load of 10.0 s (summed over cores); the throughput is a lower bound of what the system can do"
    );
    assert_eq!(
        s.doubts[1].evidence,
        "1 load thread was busy for 95 % of the time; the throughput is a lower bound of what the system can do"
    );
    check(closed(1), &["errors < 1%", "failed == 0"], false);
    // its own queue is in every time
    check(closed(1), &["errors < 1%", "p99 < 1s"], true);
    check(closed(1), &["max[1s..2s] < 1s"], true);
    check(closed(1), &["tag.page.p99 < 1s"], true);
    check(closed(1), &["service.p99 < 1s"], true);
    // by the plan's own figures
    check(closed(1), &["'page time' < 1s"], true);
    check(closed(1), &["answers > 1000/s"], true);
    check(closed(1), &["refusals == 0"], false);
    // names that end in such a word but are no time of a request
    check(closed(1), &["web.cpu.max < 90%", "queue.max < 1000", "queue.mean < 5"], false);
    check(closed(1), &["number.price.p99 < 10", "queue.rate > 1000"], false);
    // a lower bound that is high enough is fine, and one that is not would blame the system
    check(closed(1), &["goodput > 10/s"], false);
    check(closed(1), &["goodput > 1000/s"], true);
    // lateness decides if there are due times, and nothing was late
    check(open(100.0), &["p99 < 1s"], false);
    check(LoadFacts { think_s: Some(0.1), ..closed(1) }, &["p99 < 1s"], false);
}

/// Several loads have a cap each: which one was reached is not known, but that requests waited for a slot is.
#[test]
fn one_of_several_loads_reaches_its_cap() {
    let mut runs = [load("a", 0.0, 500, 10, 10.0), load("b", 0.0, 500, 10, 10.0)];
    let loads = BTreeMap::from([("a".to_owned(), open(50.0)), ("b".to_owned(), open(50.0))]);
    let facts = LoadFacts { loads, ..open(100.0) };
    assert_eq!(kinds(&summarise(input(facts.clone(), &runs))), []);
    runs[1].measured.connections.held_back = 7;
    let s = summarise(input(facts, &runs));
    assert_eq!(kinds(&s), [("in_flight_cap", false)]);
    assert_eq!(s.doubts[0].evidence, "a load thread reached its share of the cap on requests in flight");
}

/// Four load threads of which one has all the work: two users, or a second load that sends little.
#[test]
fn threads_with_little_to_do_hide_no_busy_one() {
    let runs = [load("main", 0.0, 1000, 10, 10.0)];
    let check = |busiest_cpu_s: f64, longest_run_delay_s: f64, expect: &[(&str, bool)]| {
        let generator = Generator {
            threads: 4,
            cpu_s: busiest_cpu_s,
            busiest_cpu_s: Some(busiest_cpu_s),
            run_delay_s: Some(longest_run_delay_s),
            longest_run_delay_s: Some(longest_run_delay_s),
            time_slices: Some(10),
            ..Generator::default()
        };
        let s = summarise(TrialInput { generator, ..input(closed(1), &runs) });
        assert_eq!(kinds(&s), expect, "{:?}", s.doubts);
        s.doubts.first().map(|d| d.evidence.clone()).unwrap_or_default()
    };
    let busy = check(9.5, 0.0, &[("generator_cpu", false)]);
    assert!(busy.starts_with("the busiest of 4 load threads was busy for 95 % of the time"), "{busy}");
    check(8.9, 0.0, &[]);
    let waits = check(1.0, 0.3, &[("cpu_wait", false)]);
    let whose =
        "load threads waited 30.0 ms for a core each time they were ready (3.0 % of the time, on the thread";
    assert!(waits.starts_with(whose), "{waits}");
    check(1.0, 0.09, &[]);
}

#[test]
fn a_wait_for_a_core_is_held_against_the_response_time() {
    // mean wait, share of the total time, response time
    let check = |each_us: f64, share: f64, response_ms: u64, reported: bool| {
        let runs = [load("main", 0.0, 1000, response_ms, 10.0)];
        let delay_s = share * 10.0;
        let generator = Generator {
            threads: 1,
            run_delay_s: Some(delay_s),
            time_slices: Some((delay_s * 1e6 / each_us) as u64),
            ..Generator::default()
        };
        let s = summarise(TrialInput { generator, ..input(open(100.0), &runs) });
        assert_eq!(
            kinds(&s),
            if reported { &[("cpu_wait", false)][..] } else { &[] },
            "{each_us} µs, {share}"
        );
        s
    };
    // a fifth of the time, in slices that do not show in response times
    check(20.0, 0.2, 10, false);
    let s = check(1_500.0, 0.2, 10, true);
    assert_eq!(
        s.doubts[0].evidence,
        "load threads waited 1.50 ms for a core each time they were ready (20 % of the time in total), compared with a median response of 10.0 ms"
    );
    check(1_500.0, 0.2, 50, false);
    // a hiccup now and then
    check(1_500.0, 0.005, 10, false);
}

#[test]
fn limits_of_the_own_machine_are_no_failures_of_the_system() {
    let mut runs = [load("main", 0.0, 1000, 10, 10.0)];
    let m = &mut runs[0].measured;
    m.counts.due += 12;
    m.counts.started += 12;
    m.counts.failures.add(Failure::Connect, 12);
    m.connections.attempted = 62;
    m.connections.own_limits = OwnLimits { open_files: 9, ports: 3, memory: 0 };
    let s = summarise(input(closed(1), &runs));
    assert_eq!((s.verdict, kinds(&s)), (Verdict::Invalid, vec![("client_limit", true)]));
    assert_eq!(
        s.doubts[0].evidence,
        "of 62 connection attempts, 12 failed on limits of loadlab's own machine: 9 because no file descriptor was left, 3 because no local port was left"
    );
    assert!(s.doubts[0].hint.contains("ulimit -n") && s.doubts[0].hint.contains("--source"));
    // the same number of failures that are not ours
    runs[0].measured.connections.own_limits = OwnLimits::default();
    assert_eq!(kinds(&summarise(input(closed(1), &runs))), []);
}

#[test]
fn users_that_are_starved_are_reported() {
    let check = |per_user: &[u64], failed: u64, reported: bool| {
        let mut runs = [load("main", 0.0, 1000, 10, 10.0)];
        let m = &mut runs[0].measured;
        m.counts.due += failed;
        m.counts.started += failed;
        m.counts.failures.add(Failure::Reset, failed);
        m.connections.per_user = PerUser::of(per_user.to_vec());
        let s = summarise(input(closed(1), &runs));
        assert_eq!(kinds(&s), if reported { &[("unfair", false)][..] } else { &[] }, "{per_user:?}");
        s
    };
    let mostly = |slow: usize, of: usize, fast: u64| {
        (0..of).map(|user| if user < slow { fast / 10 } else { fast }).collect::<Vec<_>>()
    };
    let s = check(&mostly(5, 50, 1000), 0, true);
    assert_eq!(
        s.doubts[0].evidence,
        "5 of 50 users made less than half or more than twice as many requests as the median user: min 100, median 1,000, max 1,000 (Jain's index 0.92)"
    );
    // one of 50 may be chance
    check(&mostly(1, 50, 1000), 0, false);
    // as may users with few requests
    check(&mostly(5, 50, 90), 0, false);
    // or those that are refused and back at once
    check(&mostly(5, 50, 1000), 20, false);
    check(&[], 0, false);
}

#[test]
fn users_of_whom_some_had_left_before_others_came_are_reported() {
    let runs = [load("main", 0.0, 1000, 10, 10.0)];
    // Each second has equally many requests; or all are in the first, except one in each of the others.
    let check = |facts: LoadFacts,
                 in_flight: &[u64],
                 (batches, first): (usize, Option<u64>),
                 wanted: &[&str]| {
        let even = 1000 / in_flight.len() as u64;
        let tick = |(second, in_flight): (usize, &u64)| Tick {
            load: "main".into(),
            batch: (second % batches) as u32,
            from_s: second as f64,
            to_s: second as f64 + 1.0,
            counts: Counts {
                in_flight: *in_flight,
                started: first.map_or(even, |first| if second == 0 { first } else { 1 }),
                ..Counts::default()
            },
            ..Tick::default()
        };
        let ticks: Vec<Tick> = in_flight.iter().enumerate().map(tick).collect();
        let s = summarise(TrialInput { ticks: &ticks, ..input(facts, &runs) });
        let found: Vec<_> = s.doubts.iter().filter(|d| d.kind == "users_not_concurrent").collect();
        assert_eq!(found.iter().map(|d| d.evidence.as_str()).collect::<Vec<_>>(), wanted, "{in_flight:?}");
        assert!(found.iter().all(|d| !d.grave));
    };
    let numbered = |users| LoadFacts { duration_s: None, requests: Some(1000), ..closed(users) };
    let evidence = "at most 37 of 100 users were active at a time: the others had not started before the requests ran out, or \
                    started only after these had finished";
    let few: &[u64] = &[20, 37, 36, 37, 37, 12];
    check(numbered(100), few, (1, None), &[evidence]);
    check(numbered(40), few, (1, None), &[]);
    // Too short to tell.
    check(numbered(100), &few[..5], (1, None), &[]);
    // A user who is much slower than the others is alone for long.
    check(numbered(100), &[1; 20], (1, Some(981)), &[]);
    // Batches of less than a second are over at the end of each.
    check(numbered(100), &[0; 8], (2, None), &[]);
    // By time, nobody leaves; who thinks has nothing in flight; of fewer requests than users some never begin.
    check(closed(100), few, (1, None), &[]);
    check(LoadFacts { think_s: Some(1.0), ..numbered(100) }, few, (1, None), &[]);
    check(LoadFacts { requests: Some(50), ..numbered(100) }, few, (1, None), &[]);
}

#[test]
fn users_that_a_feed_had_nothing_for_are_reported() {
    for (left, evidence) in [
        (0, None),
        (1, Some("a user stopped because a data feed ran out of rows: the load was smaller from then on")),
        (7, Some("7 users stopped because a data feed ran out of rows: the load kept shrinking")),
    ] {
        let mut runs = [load("main", 0.0, 1000, 10, 10.0)];
        runs[0].measured.connections.users_without_row = left;
        let s = summarise(input(closed(1), &runs));
        let reported: Vec<_> =
            s.doubts.iter().map(|d| (d.kind.as_str(), d.grave, d.evidence.as_str())).collect();
        assert_eq!(reported, evidence.map(|e| ("feed_exhausted", false, e)).into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn stalls_are_reported_with_their_length() {
    let still = Stalls { count: 2, total_s: 0.7, max_s: 0.4, max_at_s: 2.5 };
    let check = |facts: LoadFacts, expect: &[&str], suspended_s: f64, grave: bool| {
        let runs = [load("main", 0.0, 1000, 10, 10.0)];
        let generator =
            Generator { threads: 1, stalls: still, suspended_s: Some(suspended_s), ..Generator::default() };
        let expect: Vec<Expr> = expect.iter().map(|e| Expr::parse(e).unwrap()).collect();
        let s = summarise(TrialInput { generator, expect: &expect, ..input(facts, &runs) });
        assert_eq!(kinds(&s), [("generator_stalled", grave)], "{expect:?}");
        s
    };
    let s = check(closed(1), &[], 1e-7, false);
    assert_eq!(
        s.doubts[0].evidence,
        "loadlab stalled for 400 ms, 2.50 s into the load, 2 times for 700 ms in all"
    );
    // two requests of 1,000 were in flight: they can move p99.9 and the maximum
    check(closed(1), &["p99 < 1s"], 0.0, false);
    check(closed(1), &["max < 1s"], 0.0, true);
    let s = check(closed(1), &[], 30.0, true);
    assert!(
        s.doubts[0].evidence.ends_with("; this machine was suspended for 30.0 s"),
        "{}",
        s.doubts[0].evidence
    );
    // lateness decides, and nothing was late
    check(open(100.0), &["max < 1s"], 0.0, false);
}

#[test]
fn the_usual_request_must_leave_on_time() {
    // response times, lateness of this many in a hundred requests
    let check = |response_us: u64, late_us: u64, of_100: u64, grave: Option<bool>| {
        let mut runs = [load("main", 0.0, 10_000, 1, 10.0)];
        let series = &mut runs[0].measured.series;
        (series.response_ok, series.service_ok) = (Histogram::new(), Histogram::new());
        let late = of_100 * 100;
        series.response_ok.record_n(response_us * 1000, 10_000 - late);
        series.response_ok.record_n((response_us + late_us) * 1000, late);
        series.service_ok.record_n(response_us * 1000, 10_000);
        runs[0].measured.busy_s = response_us as f64 / 100.0;
        runs[0].measured.busy_in_window_s = runs[0].measured.busy_s;
        let series = &mut runs[0].measured.series;
        series.late.record_n(20_000, 10_000 - late);
        series.late.record_n(late_us * 1000, late);
        let s = summarise(input(open(1000.0), &runs));
        let expect: Vec<_> = grave.map(|g| ("late", g)).into_iter().collect();
        assert_eq!(kinds(&s), expect, "{response_us} µs, late {late_us} µs, {of_100} %: {:?}", s.doubts);
    };
    // 1 ms on a median of 1 ms: the rule, one in seven, or one in fifty
    check(1_000, 1_000, 60, Some(true));
    check(1_000, 1_100, 15, Some(true));
    check(1_000, 1_100, 2, Some(false));
    // where it does not matter
    check(100, 60, 100, None);
    check(20_000, 1_100, 60, None);
    // one in fifty behind another task's time slice, visible at p99; and in a slow system, where it is not
    check(1_000, 3_500, 2, Some(true));
    check(60_000, 3_500, 2, None);
}

#[test]
fn the_cap_is_reached_by_requests_not_by_connections() {
    let check = |in_flight, connections, reported: bool| {
        let mut runs = [load("main", 0.0, 1000, 10, 10.0)];
        runs[0].measured.connections.in_flight_peak = Some(in_flight);
        runs[0].measured.connections.peak = connections;
        let planned = Planned { max_in_flight: Some(100), ..Planned::default() };
        let s = summarise(TrialInput { planned, ..input(open(100.0), &runs) });
        assert_eq!(kinds(&s), if reported { &[("in_flight_cap", false)][..] } else { &[] });
    };
    check(99, 5000, false);
    check(100, 100, true);
    // If arrivals are users it is the users that count, most of whom think.
    let mut runs = [load("main", 0.0, 1000, 10, 10.0)];
    (runs[0].measured.connections.in_flight_peak, runs[0].measured.connections.users_peak) =
        (Some(3), Some(100));
    let planned = Planned { max_in_flight: Some(100), ..Planned::default() };
    let s = summarise(TrialInput { planned, ..input(open(100.0), &runs) });
    assert_eq!(kinds(&s), [("in_flight_cap", false)]);
    assert!(s.doubts[0].evidence.starts_with("the cap of 100 concurrent users"), "{}", s.doubts[0].evidence);
}

#[test]
fn a_target_that_is_not_there() {
    let mut run = load("main", 0.0, 0, 1, 10.0);
    run.measured.counts = Counts { due: 200, started: 200, ..Counts::default() };
    run.measured.counts.failures.add(Failure::Connect, 200);
    run.measured.series.response_failed.record_n(MS, 200);
    let s = summarise(input(closed(1), &[run]));
    assert!(was_never_connected(&s));
    assert_eq!((s.availability, s.rate_per_s.ok), (Some(0.0), 0.0));
    assert_eq!(Exit::of_summary(&s), Exit::CouldNotRun);
    assert_eq!((s.response_ms.count, s.failed_response_ms.count), (0, 200));
}

#[test]
fn exits_by_precedence() {
    use Exit::*;
    let all = [Ok, Failed, Invalid, CouldNotRun, NotUp, BadPlan, Interrupted];
    assert_eq!(all.map(Exit::code), [0, 1, 4, 5, 3, 2, 130]);
    for pair in all.windows(2) {
        assert_eq!(Exit::of([pair[0], pair[1]]), pair[1]);
        assert_eq!(Exit::of([pair[1], pair[0]]), pair[1]);
    }
    assert_eq!(Exit::of([]), Ok);
}

#[test]
fn components_are_measured_over_the_load() {
    let at = |at_s: f64, cpu: f64, memory: u64| Sample {
        at_s,
        component: "edge1".into(),
        cpu_s: Some(cpu),
        memory_bytes: Some(memory),
        memory_limit_bytes: Some(15 << 20),
        throttled_s: Some(cpu / 2.0),
        net_in_bytes: Some((cpu * 1000.0) as u64),
        pids: Some(4),
        oom_kills: Some(0),
        ..Sample::default()
    };
    // idle second, ten seconds of load at 50 % with one second at 100 %, drain
    let mut samples = vec![at(-1.0, 1.0, 5), at(0.0, 1.0, 5)];
    let mut cpu = 1.0;
    for second in 1..=10 {
        cpu += if second == 4 { 1.0 } else { 0.5 };
        samples.push(at(second as f64, cpu, 100 * second));
    }
    samples.push(at(12.0, cpu + 5.0, 7));
    samples.push(Sample { component: "loadlab".into(), at_s: 1.0, ..Sample::default() });
    samples.push(Sample {
        component: "probes".into(),
        at_s: 5.0,
        probes: BTreeMap::from([("stored".into(), 40.0)]),
        ..Sample::default()
    });
    samples.push(Sample {
        component: "probes".into(),
        at_s: 11.5,
        probes: BTreeMap::from([("stored".into(), 30.0)]),
        ..Sample::default()
    });
    let events = [
        Event {
            at_s: 3.0,
            what: EventKind::Died { component: "edge2".into(), status: "out of memory".into() },
        },
        Event { at_s: 4.0, what: EventKind::Up { component: "edge2".into(), pid: None } },
    ];
    let loads = [load("main", 0.0, 1000, 10, 10.0)];
    let planned = Planned { cpu_limits: BTreeMap::from([("edge1".into(), 0.5)]), ..Planned::default() };
    let s = summarise(TrialInput { samples: &samples, events: &events, planned, ..input(closed(1), &loads) });

    assert_eq!(s.components.keys().collect::<Vec<_>>(), ["edge1", "edge2"]);
    let edge = &s.components["edge1"];
    let percent = edge.cpu_percent.mean.map(f64::round);
    assert_eq!((edge.cpu_s, percent, edge.cpu_percent.max), (Some(5.5), Some(55.0), Some(100.0)));
    assert_eq!((edge.memory_bytes.max, edge.memory_bytes.last), (Some(1000.0), Some(7.0)));
    assert_eq!((edge.memory_bytes.limit, edge.cpu_limit), (Some(15 << 20), Some(0.5)));
    assert_eq!((edge.net_bytes.received, edge.net_bytes.sent), (Some(5500), None));
    assert_eq!((edge.pids_max, edge.oom_kills, edge.throttled_s), (Some(4), Some(0), Some(2.75)));
    let dead = &s.components["edge2"];
    assert_eq!((dead.restarts, dead.died.as_deref()), (1, Some("out of memory")));
    assert_eq!((dead.cpu_s, dead.cpu_percent.mean), (None, None));
    let stored = &s.probes["stored"];
    assert_eq!((stored.first, stored.last, stored.max), (Some(40.0), Some(30.0), Some(40.0)));
    // edge2 was not asked to end
    assert_eq!(s.verdict, Verdict::Fail);
}

#[test]
fn a_counter_that_starts_again_counts_from_zero() {
    let at = |at_s: f64, cpu: f64| Sample {
        at_s,
        component: "worker".into(),
        cpu_user_s: Some(cpu / 2.0),
        cpu_system_s: Some(cpu / 2.0),
        ..Sample::default()
    };
    let samples = [at(0.0, 10.0), at(4.0, 12.0), at(6.0, 1.0), at(10.0, 3.0)];
    let loads = [load("main", 0.0, 1000, 10, 10.0)];
    let s = summarise(TrialInput { samples: &samples, ..input(closed(1), &loads) });
    assert_eq!(s.components["worker"].cpu_s, Some(5.0));
}

#[test]
fn expectations_are_judged_on_the_trial() {
    let parse = |text: &str| Expr::parse(text).unwrap();
    let expect = [
        parse("p99 < 200ms"),
        parse("p99 < 5ms"),
        parse("p99_9 < 1s"),
        parse("errors < 0.1%"),
        parse("steady(stored, 5s)"),
        parse("steady(stored, 9s)"),
    ];
    let reading = |at_s: f64, value: f64| Sample {
        at_s,
        component: "probes".into(),
        probes: BTreeMap::from([("stored".into(), value)]),
        ..Sample::default()
    };
    let samples = [reading(0.0, 1.0), reading(4.0, 9.0), reading(8.0, 9.0), reading(12.0, 9.0)];
    let runs = [load("main", 0.0, 1000, 10, 10.0)];
    let s = summarise(TrialInput { expect: &expect, samples: &samples, ..input(closed(1), &runs) });
    let holds: Vec<_> = s.expectations.iter().map(|e| e.holds).collect();
    assert_eq!(holds, [Some(true), Some(false), None, Some(true), Some(true), Some(false)]);
    assert_eq!((s.expectations[0].value, s.expectations[0].unit.as_str()), (Some(10.0), "ms"));
    assert_eq!(
        s.expectations[2].note.as_deref(),
        Some("`p99_9` is ≥ 10.0 ms from 1,000 samples; 10,000 would decide it, 1m40s at this rate")
    );
    assert_eq!(s.verdict, Verdict::Fail);
    let s = summarise(TrialInput { expect: &expect[..1], ..input(closed(1), &runs) });
    assert_eq!(s.verdict, Verdict::Pass);
}

/// A kill counts in the part of the trial in which it happened.
#[test]
fn kills_are_counted_in_parts_of_a_trial() {
    let expect = ["db.oom_kills[0s..5s] == 0", "db.oom_kills[5s..9s] == 2", "db.oom_kills == 2"];
    let expect = expect.map(|text| Expr::parse(text).unwrap());
    let sample = |second: u32| Sample {
        at_s: f64::from(second),
        component: "db".into(),
        oom_kills: Some(if second > 6 { 2 } else { 0 }),
        ..Sample::default()
    };
    let samples: Vec<Sample> = (0..10).map(sample).collect();
    let runs = [load("main", 0.0, 1000, 10, 10.0)];
    let s = summarise(TrialInput { expect: &expect, samples: &samples, ..input(closed(1), &runs) });
    assert_eq!(
        s.expectations.iter().map(|e| e.holds).collect::<Vec<_>>(),
        [Some(true); 3],
        "{:?}",
        s.expectations
    );
}

/// A batch has its own rates and times: without the wait for stragglers, and without other loads' later batches.
#[test]
fn a_batch_has_its_own_rates() {
    let expect = [
        "goodput[batch 1] == 100/s",
        "goodput[batch 2] == 50/s",
        "ok[batch 2] == 500",
        "p50[batch 2] < 21ms",
    ];
    let expect = expect.map(|text| Expr::parse(text).unwrap());
    let second = LoadRun { batch: 1, ..load("main", 20.0, 500, 20, 10.0) };
    let runs = [load("main", 0.0, 1000, 10, 10.0), second];
    let tick = |(number, batch, ok): (u32, u32, u64)| Tick {
        load: "main".into(),
        batch,
        from_s: f64::from(number),
        to_s: f64::from(number + 1),
        in_window: number != 13,
        counts: Counts { due: ok, started: ok, ok, ..Counts::default() },
        ..Tick::default()
    };
    // The last second of the first batch is the wait for a straggler.
    let first = (0..14).map(|n| (n, 0, if n < 10 { 100 } else { 0 }));
    let ticks: Vec<Tick> = first.chain((20..30).map(|n| (n, 1, 50))).map(tick).collect();
    let s = summarise(TrialInput { expect: &expect, ticks: &ticks, ..input(closed(1), &runs) });
    assert_eq!(
        s.expectations.iter().map(|e| e.holds).collect::<Vec<_>>(),
        [Some(true); 4],
        "{:?}",
        s.expectations
    );
}

/// A probe that cannot be read has no value, and one that could not be read for a while has to become steady again.
#[test]
fn a_failed_reading_ends_a_steady_value() {
    let expect = ["steady(stored, 4s)", "stored[1s..9s] == 9", "stored.max[1s..9s] == 9"];
    let expect = expect.map(|text| Expr::parse(text).unwrap_or_else(|e| panic!("{text}: {e:?}")));
    let holds = |values: &[Option<f64>]| {
        let reading = |(at_s, value): (usize, &Option<f64>)| {
            let mut sample = Sample { at_s: at_s as f64, component: "probes".into(), ..Sample::default() };
            match value {
                Some(value) => drop(sample.probes.insert("stored".into(), *value)),
                None => drop(sample.probes_failed.insert("stored".into(), "refused".into())),
            }
            sample
        };
        let samples: Vec<Sample> = values.iter().enumerate().map(reading).collect();
        let runs = [load("main", 0.0, 1000, 10, 10.0)];
        let s = summarise(TrialInput { expect: &expect, samples: &samples, ..input(closed(1), &runs) });
        s.expectations.iter().map(|e| e.holds).collect::<Vec<_>>()
    };
    let nine = Some(9.0);
    assert_eq!(holds(&[nine; 9]), [Some(true); 3]);
    assert_eq!(
        holds(&[nine, nine, nine, nine, nine, nine, None, nine, nine]),
        [Some(false), Some(true), Some(true)]
    );
    assert_eq!(holds(&[nine, nine, nine, None, nine, nine, nine, nine, nine]), [Some(true); 3]);
    assert_eq!(holds(&[nine, nine, nine, nine, nine, nine, nine, nine, None]), [None, None, Some(true)]);
}

/// A probe may have a built-in name, which takes precedence for a part of a trial as it does for the whole.
#[test]
fn built_in_names_go_before_probes_in_parts_of_a_trial() {
    let expect = ["ok", "ok[1s..3s]", "stored", "stored[1s..3s]"]
        .map(|name| Expr::parse(&format!("{name} == 7")).unwrap());
    let reading = |at_s: f64| Sample {
        at_s,
        component: "probes".into(),
        probes: BTreeMap::from([("stored".into(), 7.0), ("ok".into(), 7.0)]),
        ..Sample::default()
    };
    let samples = [reading(0.0), reading(2.0), reading(4.0)];
    let tick = |from_s: f64| Tick {
        from_s,
        to_s: from_s + 1.0,
        counts: Counts { ok: 100, ..Counts::default() },
        ..Tick::default()
    };
    let ticks: Vec<Tick> = (0..10).map(|second| tick(f64::from(second))).collect();
    let runs = [load("main", 0.0, 1000, 10, 10.0)];
    let s = summarise(TrialInput {
        expect: &expect,
        samples: &samples,
        ticks: &ticks,
        ..input(closed(1), &runs)
    });
    let values: Vec<_> = s.expectations.iter().map(|e| e.value).collect();
    assert_eq!(values, [Some(1000.0), Some(200.0), Some(7.0), Some(7.0)]);
}

/// A program's load is counted by its own report and by what was stored: the loss has both, and nothing else.
#[test]
fn the_loss_of_a_load_that_a_program_makes_is_known() {
    let facts = LoadFacts { model: LoadModel::Command, ..LoadFacts::default() };
    let loss = Loss { accepted: 100, persisted_distinct: 95, lost_max: 5, ..Loss::default() };
    let s = summarise(TrialInput { facts, loss: Some(loss), ..TrialInput::default() });
    let of = |id: &str| metric::named(id).expect("a figure").of(&s);
    assert_eq!((of("loss"), of("lost_max")), (Value::Known(0.05), Value::Known(5.0)));
    assert_eq!((of("availability"), of("concurrency")), (Value::Nothing, Value::Nothing));
}

/// How a program's requests end, nobody sees: shares of failures are of what loadlab sent.
#[test]
fn shares_of_failures_leave_out_what_a_program_makes() {
    let made = LoadFacts { model: LoadModel::Command, ..LoadFacts::default() };
    let loads = BTreeMap::from([("made".to_owned(), made), ("sent".to_owned(), closed(1))]);
    let facts = LoadFacts { loads, ..LoadFacts::default() };
    let mut runs = [load("made", 0.0, 900, 10, 10.0), load("sent", 0.0, 90, 10, 10.0)];
    let counts = &mut runs[1].measured.counts;
    (counts.due, counts.started) = (100, 100);
    counts.failures.add(Failure::Reset, 10);
    let tick = |run: &LoadRun| Tick {
        load: run.load.clone(),
        to_s: 10.0,
        counts: run.measured.counts.clone(),
        ..Tick::default()
    };
    let ticks = [tick(&runs[0]), tick(&runs[1])];
    let expect = [
        "errors > 9.9% and errors < 10.1%",
        "errors[0s..10s] > 9.9% and errors[batch 1] > 9.9%",
        "availability > 89.9% and availability < 90.1%",
        "started == 1000 and ok == 990 and failed == 10",
    ];
    let expect = expect.map(|text| Expr::parse(text).unwrap());
    let s = summarise(TrialInput { expect: &expect, ticks: &ticks, ..input(facts, &runs) });
    let held: Vec<_> = s.expectations.iter().map(|e| e.holds).collect();
    assert_eq!(held, [Some(true); 4], "{:#?}", s.expectations);
    let of = |id: &str| metric::named(id).expect("a figure").of(&s);
    assert_eq!((of("errors"), of("availability")), (Value::Known(0.1), Value::Known(0.9)));
}

#[test]
fn few_samples_leave_a_trial_undecided_unless_something_else_decides() {
    let parse = |text: &str| Expr::parse(text).unwrap();
    let judged = |expect: &[Expr], spoiled: bool| {
        let mut runs = [load("main", 0.0, 100, 100, 10.0)];
        runs[0].measured.counts.due += u64::from(spoiled);
        let s = summarise(TrialInput { expect, ..input(closed(1), &runs) });
        (s.verdict, Exit::of_summary(&s))
    };
    let open = parse("p99 < 1h");
    assert_eq!(judged(std::slice::from_ref(&open), false), (Verdict::Undecided, Exit::Undecided));
    assert_eq!(judged(&[open.clone(), parse("p50 < 1s")], false), (Verdict::Undecided, Exit::Undecided));
    assert_eq!(judged(&[open.clone(), parse("p50 < 1ms")], false), (Verdict::Fail, Exit::Failed));
    assert_eq!(judged(&[parse("p99 < 1ms")], false), (Verdict::Fail, Exit::Failed));
    // What is unknown for another reason fails, whatever else is open.
    assert_eq!(judged(&[open.clone(), parse("drain < 1s")], false), (Verdict::Fail, Exit::Failed));
    assert_eq!(judged(&[open], true), (Verdict::Invalid, Exit::Invalid));
    let all = [Exit::Ok, Exit::Undecided, Exit::Failed, Exit::Invalid, Exit::CouldNotRun];
    for (i, exit) in all.into_iter().enumerate() {
        assert_eq!(Exit::of(all[..=i].iter().copied()), exit);
    }
    assert_eq!(Exit::Undecided.code(), 6);
}

#[test]
fn requests_that_come_slow_together_widen_the_intervals() {
    let of = |slow: fn(u64) -> bool| {
        let mut runs = [load("main", 0.0, 200, 10, 10.0)];
        for i in 0..200 {
            runs[0].measured.in_order.record(i, if slow(i) { 50_000_000 } else { 10_000_000 });
        }
        summarise(input(closed(1), &runs))
    };
    let (apart, together) = (of(|i| i % 10 == 0), of(|i| i < 20));
    assert_eq!(apart.response_ms.few.widened.map(|n| n < 2.0), Some(true));
    assert!(together.response_ms.few.widened.unwrap() > 10.0, "{:?}", together.response_ms);
    // The seconds of a log show it if the individual requests are not available.
    let second = |at: u64, ns: u64| {
        let mut histogram = loadlab_record::Histogram::new();
        histogram.record_n(ns, 20);
        loadlab_record::counts::hlog::Interval::of(Some("main"), "response", at as f64, 1.0, &histogram)
    };
    let intervals: Vec<_> =
        (0..10).map(|at| second(at, if at == 3 { 50_000_000 } else { 10_000_000 })).collect();
    let runs = [load("main", 0.0, 200, 10, 10.0)];
    let s = summarise(TrialInput { intervals: &intervals, ..input(closed(1), &runs) });
    assert!(s.response_ms.few.widened.unwrap() > 10.0, "{:?}", s.response_ms);
}
