//! The first bottleneck, over trials made by hand: what is named, and in which order.

use loadlab_analysis::trial::bottleneck::{
    BottleneckKind, Diagnosis, Suspect, TrialData, answer_of_watched, diagnose, suspects,
};
use loadlab_analysis::{LoadRun, Planned, TrialInput, summarise};
use loadlab_record::Failure;
use loadlab_record::counts::load::{Counts, InWindow, Measured, Tick, Window};
use loadlab_record::documents::bottleneck::{Bottleneck, Confidence};
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::summary::{Doubt, LoadFacts, LoadModel, LoadSummary, Summary};
use loadlab_record::watch::evidence::{Evidence, Listener, Pair, Ports as LocalPorts, Threads, Timed};
use loadlab_record::watch::sample::{Pressure, Sample, Tcp};

use BottleneckKind::{
    AcceptQueue, CpuLimit, Died, Disk, Generator as Own, HostCpu, Latency, LimitedConcurrency, Link, Memory,
    Neighbours, Nothing, OneCore, OpenFiles, Pool, Ports, Queue, Refused,
};

const LENGTH_S: u64 = 10;

/// A trial of ten seconds with two components; each test adds its subject.
struct Made {
    summary: Summary,
    samples: Vec<Sample>,
    ticks: Vec<Tick>,
    events: Vec<Event>,
    evidence: Vec<Evidence>,
}

/// What a component does, second by second.
#[derive(Clone, Copy, Default)]
struct Does {
    cores: f64,
    limit: Option<f64>,
    throttled: f64,
    memory: u64,
    memory_limit: Option<u64>,
    files: u64,
    oom_kills: u64,
}

fn samples(name: &str, does: Does) -> Vec<Sample> {
    let reading = |i: i64| {
        let (at, loaded) = (i as f64, i > 0 && i <= LENGTH_S as i64);
        let worked = at.clamp(0.0, LENGTH_S as f64);
        Sample {
            at_s: at,
            component: name.into(),
            cpu_s: Some(does.cores * worked),
            throttled_s: Some(does.throttled * worked),
            memory_bytes: Some(does.memory),
            memory_limit_bytes: does.memory_limit,
            open_files: Some(5 + if loaded { does.files } else { 0 }),
            oom_kills: Some(if i > 4 { does.oom_kills } else { 0 }),
            ..Sample::default()
        }
    };
    (-1..=LENGTH_S as i64 + 2).map(reading).collect()
}

/// `users` users; each response takes `ms`, the fastest `fastest_ms`.
fn made(users: u64, ms: u64, fastest_ms: u64, components: &[(&str, Does)]) -> Made {
    let n = users * LENGTH_S * 1000 / ms;
    let mut m = Measured {
        counts: Counts { due: n, started: n, ok: n, ..Counts::default() },
        window: Window { from_s: 0.0, to_s: LENGTH_S as f64 },
        in_window: InWindow { due: n, started: n, ok: n },
        elapsed_s: LENGTH_S as f64,
        busy_s: (users * LENGTH_S) as f64,
        busy_in_window_s: (users * LENGTH_S) as f64,
        ..Measured::default()
    };
    m.series.response_ok.record_n(fastest_ms * 1_000_000, 1);
    m.series.response_ok.record_n(ms * 1_000_000, n - 1);
    let ticks: Vec<Tick> = (0..LENGTH_S)
        .map(|i| Tick {
            load: "main".into(),
            from_s: i as f64,
            to_s: i as f64 + 1.0,
            counts: Counts {
                due: n / LENGTH_S,
                started: n / LENGTH_S,
                ok: n / LENGTH_S,
                ..Counts::default()
            },
            ..Tick::default()
        })
        .collect();
    let all: Vec<Sample> = components.iter().flat_map(|(name, does)| samples(name, *does)).collect();
    let limits = components.iter().filter_map(|(name, does)| Some(((*name).to_owned(), does.limit?)));
    let facts = LoadFacts {
        model: LoadModel::Closed,
        users: Some(users),
        url: "http://127.0.0.1:8080/".into(),
        ..LoadFacts::default()
    };
    let summary = summarise(TrialInput {
        facts,
        loads: &[LoadRun { load: "main".into(), batch: 0, at_s: 0.0, measured: m }],
        ticks: &ticks,
        samples: &all,
        planned: Planned { cpu_limits: limits.collect(), ..Planned::default() },
        ..TrialInput::default()
    });
    Made { summary, samples: all, ticks, events: Vec::new(), evidence: Vec::new() }
}

impl Made {
    fn suspects(&self) -> Vec<Suspect> {
        let order = ["edge".to_owned(), "db".to_owned()];
        suspects(TrialData {
            summary: &self.summary,
            samples: &self.samples,
            ticks: &self.ticks,
            events: &self.events,
            evidence: &self.evidence,
            order: &order,
            cores: 4,
        })
    }

    #[track_caller]
    fn check(&self, expect: &[(BottleneckKind, Option<&str>)]) {
        let suspects = self.suspects();
        let got: Vec<_> = suspects.iter().map(|s| (s.kind, s.component.as_deref())).collect();
        assert_eq!(got, expect, "{suspects:#?}");
    }
}

const QUIET: Does = Does {
    cores: 0.1,
    limit: None,
    throttled: 0.0,
    memory: 1 << 20,
    memory_limit: None,
    files: 0,
    oom_kills: 0,
};

#[test]
fn limits_are_reported_with_their_figures() {
    let edge = Does { cores: 0.0098, limit: Some(0.01), throttled: 0.7, ..QUIET };
    let made = made(10, 1000, 900, &[("edge", edge), ("db", QUIET)]);
    made.check(&[(CpuLimit, Some("edge"))]);
    let first = &made.suspects()[0];
    assert_eq!(
        first.text,
        "edge used 98 % of its CPU limit of 1.0 % of a core and was throttled, for 7.00 s over all cores in 10.0 s"
    );
    assert_eq!(first.at_s, Some(0.0));
    // The kernel's count of periods is more precise, if there is one.
    let mut counted = made;
    for sample in &mut counted.samples {
        let worked = sample.at_s.clamp(0.0, LENGTH_S as f64);
        sample.periods = Some((worked * 10.0) as u64);
        sample.throttled_periods = Some((worked * 9.0) as u64);
    }
    let text = &counted.suspects()[0].text;
    assert!(text.ends_with("and was throttled in 90 % of its periods"), "{text}");
}

#[test]
fn a_limit_is_not_said_to_have_stopped_a_component_for_longer_than_the_load() {
    let edge = Does { cores: 0.0098, limit: Some(0.01), throttled: 0.7, ..QUIET };
    let mut made = made(10, 1000, 900, &[("edge", edge), ("db", QUIET)]);
    // The second half is the wait for stragglers, all of which the summary's counter covers.
    for (i, tick) in made.ticks.iter_mut().enumerate() {
        tick.in_window = i < 5;
    }
    let first = &made.suspects()[0];
    assert!(first.text.contains("throttled, for 3.50 s over all cores in 5.00 s"), "{}", first.text);
}

#[test]
fn what_leaves_no_choice_comes_first() {
    let full = Does { memory: 99 << 20, memory_limit: Some(100 << 20), ..QUIET };
    let limited = Does { cores: 0.5, limit: Some(0.5), throttled: 0.5, ..QUIET };
    // full does not mean slow
    made(10, 20, 18, &[("edge", full), ("db", limited)])
        .check(&[(CpuLimit, Some("db")), (Memory, Some("edge"))]);
    let killed = Does { oom_kills: 2, ..full };
    let mut made = made(10, 20, 18, &[("edge", limited), ("db", killed)]);
    assert_eq!(made.suspects()[0].text, "db ran out of memory: the kernel killed its processes 2 times");
    let status = "signal 9 (SIGKILL)".to_owned();
    made.events.push(Event { at_s: 7.5, what: EventKind::Died { component: "edge".into(), status } });
    made.check(&[(Memory, Some("db")), (Died, Some("edge")), (CpuLimit, Some("edge"))]);
    // and whether anything is measured at all comes before everything
    let grave =
        Doubt { kind: "late".into(), grave: true, evidence: "late by 1 s".into(), hint: String::new() };
    made.summary.doubts.push(grave);
    assert_eq!(made.suspects()[0].kind, Own);
}

/// Events change limits: what was used before an event is compared with the limit in force then.
#[test]
fn a_limit_that_came_later_was_not_reached_before() {
    let roomy = Does { memory: 100 << 20, ..QUIET };
    let mut made = made(1, 500, 480, &[("edge", roomy)]);
    for sample in made.samples.iter_mut().filter(|s| s.at_s >= 5.0) {
        (sample.memory_bytes, sample.memory_limit_bytes) = (Some(30 << 20), Some(50 << 20));
    }
    made.check(&[(Latency, Some("edge"))]);
    for sample in made.samples.iter_mut().filter(|s| s.at_s >= 9.0) {
        sample.memory_bytes = Some(50 << 20);
    }
    let first = &made.suspects()[0];
    assert_eq!((first.kind, first.at_s), (Memory, Some(9.0)));
    assert!(first.text.contains("up to 50.0 MiB of 50.0 MiB"), "{}", first.text);
}

#[test]
fn bursts_below_a_limit_hold_back_less_than_a_limit_that_is_reached() {
    let bursts = Does { cores: 0.1, limit: Some(0.5), throttled: 0.2, ..QUIET };
    let reached = Does { cores: 0.19, limit: Some(0.2), throttled: 0.3, ..QUIET };
    made(10, 20, 18, &[("edge", bursts), ("db", reached)])
        .check(&[(CpuLimit, Some("db")), (CpuLimit, Some("edge"))]);
    // Nor do they come before a thread that is always busy; a memory limit that is hit once comes after it, too.
    let one = Does { cores: 0.98, ..QUIET };
    made(10, 20, 18, &[("edge", bursts), ("db", one)])
        .check(&[(OneCore, Some("db")), (CpuLimit, Some("edge"))]);
    let roomy = Does { memory: 30 << 20, memory_limit: Some(50 << 20), ..QUIET };
    let mut once = made(10, 20, 18, &[("edge", roomy), ("db", one)]);
    let last = once.samples.iter_mut().find(|s| s.component == "edge" && s.at_s == 9.0);
    last.expect("a reading").memory_bytes = Some(49 << 20);
    once.check(&[(OneCore, Some("db")), (Memory, Some("edge"))]);
}

/// If loadlab was throttled for a moment, that is a doubt, and no bottleneck.
#[test]
fn a_generator_that_was_throttled_for_a_moment_is_not_blamed() {
    let throttled = |seconds: f64| {
        let mut made = made(40, 20, 18, &[("edge", QUIET), ("db", QUIET)]);
        made.summary.load.model = LoadModel::Open;
        made.summary.generator.throttled_s = Some(seconds);
        let evidence = "loadlab itself was throttled by a CPU limit".to_owned();
        made.summary.doubts.push(Doubt {
            kind: "throttled".into(),
            grave: false,
            evidence,
            hint: String::new(),
        });
        made
    };
    throttled(0.003).check(&[(Nothing, None)]);
    throttled(1.0).check(&[(Own, Some("loadlab"))]);
}

#[test]
fn a_core_and_a_machine_without_reserve() {
    let one = Does { cores: 0.98, ..QUIET };
    made(10, 20, 18, &[("edge", one), ("db", QUIET)]).check(&[(OneCore, Some("edge"))]);
    // one thread, and a garbage collector beside it; then one that is held back by something else
    let node = made(10, 20, 18, &[("edge", Does { cores: 1.1, ..QUIET }), ("db", QUIET)]);
    node.check(&[(OneCore, Some("edge"))]);
    assert!(
        node.suspects()[0].text.starts_with("edge used 1.1 cores: apparently one thread"),
        "{:?}",
        node.suspects()
    );
    made(10, 20, 18, &[("edge", Does { cores: 1.3, ..QUIET }), ("db", QUIET)]).check(&[(Latency, None)]);
    let host = |made: &mut Made| made.samples.extend(samples("host", Does { cores: 3.9, ..QUIET }));
    let most = Does { cores: 3.0, ..QUIET };
    let mut ours = made(10, 20, 18, &[("edge", most), ("db", QUIET)]);
    host(&mut ours);
    ours.check(&[(HostCpu, Some("host"))]);
    assert!(ours.suspects()[0].text.starts_with("the machine: its 4 cores were busy for 98 %"));
    // loadlab may use 4 of its 16
    ours.summary.generator.machine_cores = Some(16);
    ours.check(&[(Latency, None)]);
    ours.summary.generator.machine_cores = Some(4);
    ours.check(&[(HostCpu, Some("host"))]);
    // kept busy by others, it decides nothing
    let mut others = made(10, 20, 18, &[("edge", QUIET), ("db", QUIET)]);
    host(&mut others);
    others.check(&[(Latency, None), (Neighbours, Some("host"))]);
}

#[test]
fn a_queue_grows_and_falls_and_a_count_stays() {
    let with_probe = |name: &str, value: fn(f64) -> f64| {
        let mut made = made(10, 20, 18, &[("edge", QUIET), ("db", QUIET)]);
        for i in 0..=14 {
            let at_s = f64::from(i);
            made.samples.push(Sample {
                at_s,
                component: "probes".into(),
                probes: [(name.to_owned(), value(at_s))].into(),
                ..Sample::default()
            });
        }
        made.summary.probes = loadlab_analysis::trial::components::probes(
            &made.samples,
            loadlab_analysis::trial::counter::During { from_s: 0.0, to_s: 10.0 },
        );
        made.suspects()[0].clone()
    };
    let falls = with_probe("jobs", |t| if t <= 10.0 { t * 50.0 } else { 500.0 - (t - 10.0) * 120.0 });
    assert_eq!((falls.kind, falls.component.as_deref()), (Queue, Some("jobs")));
    // rows stored go up as well, which is fine
    assert_eq!(with_probe("stored", |t| t.min(10.0) * 50.0).kind, Latency);
    for name in ["queue.depth", "jobQueue", "rabbitmq_queues", "messages_ready"] {
        assert_eq!(with_probe(name, |t| t.min(10.0) * 50.0).kind, Queue, "{name}");
    }
    // Words within words.
    for name in ["already_sent", "flags_set", "flagged"] {
        assert_eq!(with_probe(name, |t| t.min(10.0) * 50.0).kind, Latency, "{name}");
    }
    assert_eq!(with_probe("queue.depth", |t| 5.0 + (t * 7.0) % 3.0).kind, Latency);
}

#[test]
fn connections_turned_away() {
    let mut made = made(10, 20, 18, &[("edge", QUIET), ("db", QUIET)]);
    made.summary.failures.add(Failure::Connect, 40);
    made.summary.failures.add(Failure::Reset, 10);
    made.check(&[(Refused, Some("127.0.0.1:8080"))]);
    assert!(made.suspects()[0].text.starts_with("127.0.0.1:8080 rejected connections: 40 refused, 10 reset"));
    // a limit of loadlab's own is not the system's fault
    made.summary.connections.own_limits.ports = 40;
    made.summary.failures = Default::default();
    made.summary.failures.add(Failure::Connect, 40);
    made.check(&[(Latency, None)]);
    // a lost SYN is sent again after a second
    made.summary.connect_ms.max = Some(1004.0);
    made.summary.connect_ms.p50 = Some(0.1);
    made.check(&[(Refused, Some("127.0.0.1:8080"))]);
}

/// A failed request does not show where it went: of several targets none is blamed, unless only one load has failures.
#[test]
fn connections_turned_away_by_one_of_several_targets() {
    let mut made = made(10, 20, 18, &[("edge", QUIET), ("db", QUIET)]);
    made.summary.failures.add(Failure::Connect, 40);
    made.summary.load.targets = ["127.0.0.1:8080", "127.0.0.1:9090"].map(str::to_owned).into();
    made.check(&[(Refused, None)]);
    let text = &made.suspects()[0].text;
    assert!(text.starts_with("one of the targets rejected connections: 40 refused"), "{text}");
    for (name, port, failed) in [("orders", 8080, 0), ("stock", 9090, 40)] {
        let facts = LoadFacts { url: format!("http://127.0.0.1:{port}/"), ..LoadFacts::default() };
        let mut load = LoadSummary::default();
        load.failures.add(Failure::Connect, failed);
        made.summary.load.loads.insert(name.to_owned(), facts);
        made.summary.by_load.insert(name.to_owned(), load);
    }
    made.check(&[(Refused, Some("127.0.0.1:9090"))]);
    made.summary.by_load.values_mut().for_each(|load| load.failures.add(Failure::Reset, 1));
    made.check(&[(Refused, None)]);
}

#[test]
fn where_requests_wait_for_one_another() {
    // 50 users, 500 ms each, of which 20 ms are work: 2 at a time; all wait in the edge, two connections proceed
    let (edge, db) = (Does { files: 50, ..QUIET }, Does { files: 2, ..QUIET });
    let pool = made(50, 500, 20, &[("edge", edge), ("db", db)]);
    pool.check(&[(LimitedConcurrency, Some("edge"))]);
    let text = &pool.suspects()[0].text;
    assert!(
        text.starts_with("requests wait inside edge: about 2.0 of 50 in flight are served at a time"),
        "{text}"
    );
    // all proceed to the database: they wait there
    made(50, 500, 20, &[("edge", edge), ("db", Does { files: 50, ..QUIET })])
        .check(&[(LimitedConcurrency, Some("db"))]);
    // no request waits for another: all take as long as the fastest
    made(50, 500, 480, &[("edge", edge), ("db", Does { files: 50, ..QUIET })])
        .check(&[(Latency, Some("db"))]);
    made(50, 500, 480, &[("edge", edge), ("db", db)]).check(&[(Latency, Some("edge"))]);
    // a single user waits for no other
    made(1, 500, 20, &[("edge", QUIET)]).check(&[(Latency, Some("edge"))]);
    // what programs wait for is not visible from here
    let mut programs = made(1, 500, 20, &[("edge", QUIET)]);
    programs.summary.load.model = LoadModel::Command;
    programs.check(&[(Latency, None)]);
}

/// Parts that the plan kills are not saturated themselves, but the load was affected.
#[test]
fn what_the_plan_did_is_reported_where_nothing_else_is() {
    let act = |at_s: f64, what: &str, error: Option<&str>| Event {
        at_s,
        what: EventKind::Action {
            what: what.into(),
            components: vec!["db".into()],
            error: error.map(str::to_owned),
        },
    };
    let mut chaos = made(1, 500, 20, &[("edge", QUIET)]);
    chaos.events = vec![
        act(1.0, "limit db cpu 5%", None),
        act(2.5, "limit db cpu none", None),
        act(3.0, "pause db", Some("it is not there")),
        act(60.0, "kill db", None),
    ];
    chaos.check(&[(Latency, Some("edge"))]);
    let text = &chaos.suspects()[0].text;
    let expect = "; during the load the plan did `limit db cpu 5%` at 1.00 s, `limit db cpu none` at 2.50 s";
    assert!(text.ends_with(expect), "{text}");
}

/// Wherever requests wait while the plan has a component down: the plan is why.
#[test]
fn what_the_plan_took_away_is_part_of_every_answer() {
    let act = |at_s: f64, what: &str| {
        let component = what.split_whitespace().nth(1).unwrap_or_default().to_owned();
        let what = EventKind::Action { what: what.into(), components: vec![component], error: None };
        Event { at_s, what }
    };
    let limited = Does { cores: 0.5, limit: Some(0.5), throttled: 0.5, ..QUIET };
    let mut chaos = made(10, 20, 18, &[("edge", limited)]);
    chaos.events = vec![
        act(1.0, "kill db"),
        act(2.0, "kill cache"),
        act(2.3, "restart cache"),
        act(4.5, "restart db"),
        act(6.0, "pause db"),
        act(60.0, "resume db"),
        act(70.0, "kill db"),
        // The container is restarted by its engine.
        act(3.0, "kill edge"),
        Event { at_s: 4.0, what: EventKind::Up { component: "edge".into(), pid: None } },
    ];
    assert_eq!(
        answer(&chaos).evidence[1..],
        [
            "the plan's event `kill db`: db was down for 35 % of the load (3.50 s)",
            "the plan's event `pause db`: db was suspended for 40 % of the load (4.00 s)",
            "the plan's event `kill edge`: edge was down for 10 % of the load (1.00 s)",
        ]
    );
    let mut idle = made(1, 500, 20, &[("edge", QUIET)]);
    idle.events = vec![act(1.0, "disconnect edge"), act(2.0, "limit edge cpu 5%")];
    let answer = answer(&idle);
    let expect = "the plan's event `disconnect edge`: edge was disconnected for 90 % of the load (9.00 s)";
    assert_eq!(answer.evidence[1..], [expect]);
    assert!(answer.evidence[0].ends_with("the plan did `limit edge cpu 5%` at 2.00 s"), "{answer:?}");
}

/// In a search the edge still has the connections of the previous level when a trial begins: what it has on its own
/// is reported.
#[test]
fn connections_that_are_kept_are_no_files_of_the_component() {
    let edge = Does { files: 50, ..QUIET };
    let mut kept = made(50, 500, 20, &[("edge", edge), ("db", QUIET)]);
    kept.samples.iter_mut().filter(|s| s.component == "edge").for_each(|s| s.open_files = Some(55));
    kept.check(&[(LimitedConcurrency, None)]);
    for (name, component) in &mut kept.summary.components {
        component.open_files_at_rest = Some(if name == "edge" { 5 } else { 9 });
    }
    kept.check(&[(LimitedConcurrency, Some("edge"))]);
}

#[test]
fn replicas_at_the_same_end_are_reported_once() {
    let at = |cores: f64| Does { cores, limit: Some(0.1), throttled: 0.5, ..QUIET };
    let made = made(
        10,
        20,
        18,
        &[("edge1", at(0.097)), ("edge2", at(0.099)), ("edge3", at(0.01)), ("db", at(0.096))],
    );
    made.check(&[(CpuLimit, Some("edge2")), (CpuLimit, Some("db"))]);
    assert!(made.suspects()[0].text.ends_with("over all cores in 10.0 s; likewise edge1, edge3"));
}

/// Two findings about one component are two, whatever its name ends with.
#[test]
fn what_is_known_of_one_component_stays() {
    for name in ["web", "web1"] {
        let mut made = made(10, 20, 18, &[(name, QUIET), ("db", QUIET)]);
        made.summary.load.url = "http://127.0.0.1:8080/".into();
        made.summary.failures.add(Failure::Reset, 100);
        made.summary.connect_ms.max = Some(1005.0);
        made.summary.connect_ms.p50 = Some(1.0);
        watched(&mut made, &[], |line| {
            line.listeners = vec![Listener {
                component: name.into(),
                address: "127.0.0.1:8080".into(),
                ..Listener::default()
            }];
        });
        let of = made.suspects().into_iter().filter(|s| s.kind == Refused);
        let texts: Vec<String> =
            of.filter(|s| s.component.as_deref() == Some(name)).map(|s| s.text).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts[0].contains("rejected connections") && texts[1].contains("connects to"), "{texts:?}");
    }
    // Addresses end with a number as well.
    let mut made = made(10, 20, 18, &[("web", QUIET), ("db", QUIET)]);
    made.summary.failures.add(Failure::Reset, 100);
    made.summary.connect_ms.max = Some(1005.0);
    let refused = made.suspects().into_iter().filter(|s| s.kind == Refused).count();
    assert_eq!(refused, 2, "{:#?}", made.suspects());
}

#[test]
fn a_unix_socket_is_called_by_its_path_or_by_who_listens_there() {
    for (url, address, component, expect) in [
        ("unix:/run/app/web.sock:/x", "", "", "/run/app/web.sock"),
        ("unix:/run/app/web.sock:/x", "/run/app/web.sock", "web", "web"),
        ("unix:/run/app/web.sock:/x", "./web.sock", "web", "web"),
        ("unix:/run/app/web.sock:/x", "/run/other.sock", "web", "/run/app/web.sock"),
        ("http://127.0.0.1:8080/app/x", "127.0.0.1:8080", "web", "web"),
        ("http://10.0.0.1/app/x", "127.0.0.1:8080", "web", "10.0.0.1"),
    ] {
        let mut made = made(10, 20, 18, &[("edge", QUIET), ("db", QUIET)]);
        made.summary.load.url = url.into();
        made.summary.failures.add(Failure::Reset, 100);
        watched(&mut made, &[], |line| {
            let (component, address) = (component.to_owned(), address.to_owned());
            line.listeners = vec![Listener { component, address, ..Listener::default() }];
        });
        let found = made.suspects();
        let refused = found.iter().find(|s| s.kind == Refused).and_then(|s| s.component.as_deref());
        assert_eq!(refused, Some(expect), "{url} {address}");
    }
}

#[test]
fn a_relay_of_loadlab_is_not_a_component() {
    let files = Does { files: 20, ..QUIET };
    let of = |components: &[(&str, Does)]| {
        let made = made(20, 100, 90, components);
        let all = made.suspects();
        (all[0].kind, all[0].component.clone())
    };
    assert_eq!(of(&[("edge", QUIET), ("edge-relay", QUIET)]), (Latency, Some("edge".to_owned())));
    // It holds each connection twice.
    let relay = Does { files: 40, ..QUIET };
    assert_eq!(of(&[("edge", files), ("edge-relay", relay)]), (Latency, Some("edge".to_owned())));
    assert_eq!(
        of(&[("edge", files), ("db", QUIET), ("db-relay", relay)]),
        (Latency, Some("edge".to_owned()))
    );
    // Someone else's relay has no component of that name.
    assert_eq!(of(&[("edge", QUIET), ("mail-relay", relay)]), (Latency, Some("mail-relay".to_owned())));
}

#[test]
fn a_process_without_an_open_file_left_is_reported_before_what_it_does_about_it() {
    // it tries to accept again and again, which keeps a core busy
    let spinning = Does { cores: 1.0, ..QUIET };
    let mut made = made(60, 1000, 900, &[("edge", spinning), ("db", QUIET)]);
    let edge = made.samples.iter_mut().filter(|s| s.component == "edge" && s.at_s > 0.0);
    edge.for_each(|s| s.open_files_share = Some(if s.at_s > 2.0 { 1.0 } else { 0.4 }));
    made.check(&[(OpenFiles, Some("edge")), (OneCore, Some("edge"))]);
    assert_eq!(made.suspects()[0].at_s, Some(3.0));
    assert!(made.suspects()[0].text.contains("for 80 % of the time"), "{:?}", made.suspects()[0]);
    // far from its limit it is not a suspect
    made.samples.iter_mut().for_each(|s| s.open_files_share = s.open_files_share.map(|_| 0.9));
    made.check(&[(OneCore, Some("edge"))]);
}

#[test]
fn a_limit_on_open_files_that_is_reached_every_second_holds_for_seconds() {
    // read ten times a second; where it cannot accept, it waits for a second, in which it closes connections
    let readings = |most: fn(usize) -> f64| {
        let mut made = made(60, 1000, 900, &[("edge", QUIET), ("db", QUIET)]);
        let (edge, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut made.samples).into_iter().partition(|s| s.component == "edge");
        let tenths = |s: &Sample| {
            let s = s.clone();
            (0..10).map(move |tenth| {
                let share = if tenth == 1 { most(s.at_s.max(0.0) as usize) } else { 0.4 };
                Sample { at_s: s.at_s + f64::from(tenth) / 10.0, open_files_share: Some(share), ..s.clone() }
            })
        };
        made.samples = others.into_iter().chain(edge.iter().flat_map(tenths)).collect();
        made
    };
    let every_second = readings(|_| 1.0);
    every_second.check(&[(OpenFiles, Some("edge"))]);
    let text = &every_second.suspects()[0].text;
    assert!(text.contains("in 10 of 10 seconds, for 10 % of the time"), "{text}");
    // now and then, or hardly ever quite: a few tenths of a second
    let now_and_then = readings(|second| if second % 4 == 0 { 1.0 } else { 0.4 });
    let hardly_ever = readings(|second| if second < 2 { 1.0 } else { 0.98 });
    for rare in [now_and_then, hardly_ever] {
        let found = rare.suspects();
        let files = found.iter().find(|s| s.kind == OpenFiles).unwrap();
        assert!(files.share < 0.2 && !files.text.contains("seconds,"), "{files:?}");
    }
    // Never quite: a file was always left.
    let mut never = readings(|_| 0.98);
    assert!(never.suspects().iter().all(|s| s.kind != OpenFiles));
    never.samples.iter_mut().for_each(|s| s.open_files_share = s.open_files_share.map(|_| 0.98));
    assert!(never.suspects().iter().all(|s| s.kind != OpenFiles));
}

#[test]
fn bursts_on_two_cores_are_no_single_core() {
    let edge = |rate: fn(i64) -> f64| {
        let mut made = made(60, 1000, 900, &[("edge", Does { cores: 1.0, ..QUIET }), ("db", QUIET)]);
        for s in made.samples.iter_mut().filter(|s| s.component == "edge") {
            s.cpu_s = Some((0..s.at_s.max(0.0) as i64).map(rate).sum());
        }
        made.suspects().iter().any(|s| s.kind == OneCore)
    };
    assert!(edge(|_| 1.0) && edge(|second| if second == 3 { 1.8 } else { 0.95 }));
    // both cores in every other second, as if it waited for something else in between
    assert!(!edge(|second| if second % 2 == 0 { 1.9 } else { 0.2 }));
}

#[test]
fn a_writer_that_waits_for_its_disk_is_no_pool() {
    let waits = |share: f64| {
        let mut made = made(20, 1000, 10, &[("edge", QUIET), ("db", QUIET)]);
        let db = made.samples.iter_mut().filter(|s| s.component == "db");
        db.for_each(|s| {
            s.pressure = Some(Pressure { io_s: Some(share * s.at_s.max(0.0)), ..Pressure::default() })
        });
        made
    };
    waits(0.95).check(&[(Disk, Some("db"))]);
    assert!(waits(0.95).suspects()[0].text.starts_with("db waited for its disk for 95 % of the time"));
    // occasional write-back does not hold it back
    waits(0.3).check(&[(LimitedConcurrency, None)]);
}

/// `db` reads this many pages a second from disk, and its limit leaves `cache` for them.
fn faulting(per_s: f64, cache: u64, limit: Option<u64>) -> Made {
    let mut made = made(20, 1000, 10, &[("edge", QUIET), ("db", Does { memory_limit: limit, ..QUIET })]);
    for s in made.samples.iter_mut().filter(|s| s.component == "db") {
        s.major_faults = Some((per_s * s.at_s.clamp(0.0, LENGTH_S as f64)) as u64);
        s.cache_bytes = Some(cache);
        // The disk is busy with it.
        s.pressure = Some(Pressure { io_s: Some(0.9 * s.at_s.max(0.0)), ..Pressure::default() });
    }
    made
}

#[test]
fn pages_that_are_read_again_for_want_of_memory_come_before_the_disk_they_come_from() {
    let thrashing = faulting(400.0, 62 << 20, Some(64 << 20));
    thrashing.check(&[(Memory, Some("db")), (Disk, Some("db"))]);
    let first = &thrashing.suspects()[0];
    assert_eq!(
        first.text,
        "db reads pages from a disk all the time, 400 a second (major faults): its memory limit leaves no room for what it reads (63.0 MiB of 64.0 MiB, page cache included)"
    );
    assert_eq!(first.at_s, Some(0.0));
    // Few pages; room for more; no limit at all: the disk is slow, and there is no lack of memory.
    faulting(40.0, 62 << 20, Some(64 << 20)).check(&[(Disk, Some("db"))]);
    faulting(400.0, 40 << 20, Some(64 << 20)).check(&[(Disk, Some("db"))]);
    faulting(400.0, 62 << 20, None).check(&[(Disk, Some("db"))]);
    // All of them in the first seconds: parts of the program that were not used before.
    let mut first_use = faulting(400.0, 62 << 20, Some(64 << 20));
    let faults = first_use.samples.iter_mut().filter_map(|s| s.major_faults.as_mut());
    faults.for_each(|n| *n = (*n).min(1600));
    first_use.check(&[(Disk, Some("db"))]);
}

#[test]
fn pressure_on_memory_is_a_components_own_or_explains_its_faults() {
    let waits = |of: &str, share: f64, faults_per_s: f64| {
        let mut made = faulting(faults_per_s, 0, None);
        made.samples.extend(samples("host", QUIET));
        for s in made.samples.iter_mut().filter(|s| s.component == of) {
            s.pressure.get_or_insert_default().memory_s = Some(share * s.at_s.max(0.0));
        }
        made
    };
    let own = waits("db", 0.5, 0.0);
    own.check(&[(Memory, Some("db")), (Disk, Some("db"))]);
    assert_eq!(own.suspects()[0].text, "db is short of memory: it waited for memory for 50 % of the time");
    waits("db", 0.1, 0.0).check(&[(Disk, Some("db"))]);
    let of_machine = waits("host", 0.5, 300.0);
    of_machine.check(&[(Memory, Some("db")), (Disk, Some("db"))]);
    let text = &of_machine.suspects()[0].text;
    assert!(
        text.ends_with("the machine is short of memory: tasks waited for it for 50 % of the time"),
        "{text}"
    );
    // Memory pressure elsewhere on the machine does not matter.
    waits("host", 0.5, 0.0).check(&[(Disk, Some("db"))]);
}

#[test]
fn who_has_no_local_port_left_is_named_before_what_waits() {
    let out = |component: &str, taken: u32, from: u64| {
        let mut made = chain();
        let pairs = [
            pair("loadlab", "edge", 40.0, 40.0),
            Pair { address: "10.0.0.3:80".into(), ..pair("edge", "db", 40.0, 39.0) },
        ];
        watched(&mut made, &pairs, |line| {
            if line.from_s >= from as f64 {
                line.ports = vec![LocalPorts {
                    component: component.into(),
                    source: "10.0.0.2".into(),
                    address: "10.0.0.3:80".into(),
                    taken,
                    time_wait: taken - 2,
                    range: 1000,
                }];
            }
        });
        made
    };
    let most = out("edge", 995, 4);
    most.check(&[(Ports, Some("edge"))]);
    let suspects = most.suspects();
    assert_eq!(
        suspects[0].text,
        "edge ran out of local ports towards db (10.0.0.3:80): 995 of 1,000 (`net.ipv4.ip_local_port_range`) were taken for 60 % of the time, 993 of them in TIME_WAIT: it makes new connections all the time, and each keeps its port for a minute after its end"
    );
    assert_eq!(suspects[0].at_s, Some(4.0));
    assert_eq!(answer(&most).confidence, Confidence::High);
    // For a short while only, the place where requests wait comes first.
    out("edge", 995, 9).check(&[(LimitedConcurrency, Some("db")), (Ports, Some("edge"))]);
    // Many are not all, and loadlab's own are a doubt about the measurement.
    out("edge", 900, 0).check(&[(LimitedConcurrency, Some("db"))]);
    out("loadlab", 1000, 0).check(&[(LimitedConcurrency, Some("db"))]);
    // Finding one of the last half takes long if there are thousands of them and requests wait for that.
    let half = |requests: f64, range: u32, cores: f64| {
        let mut made = made(40, 160, 4, &[("edge", Does { cores, ..QUIET }), ("db", QUIET)]);
        let far = Pair { address: "10.0.0.3:80".into(), ..pair("edge", "db", 40.0, 40.0 - requests) };
        watched(&mut made, &[pair("loadlab", "edge", 40.0, 40.0), far], |line| {
            line.ports = vec![LocalPorts {
                component: "edge".into(),
                address: "10.0.0.3:80".into(),
                taken: range / 2 + 100,
                time_wait: range / 2,
                range,
                ..LocalPorts::default()
            }];
        });
        made
    };
    half(38.0, 28_232, 0.8).check(&[(Ports, Some("edge"))]);
    let text = &half(38.0, 28_232, 0.8).suspects()[0].text;
    let begin =
        "edge has to search for a local port at each connect towards db (10.0.0.3:80): 14,216 of 28,232 (";
    assert!(text.starts_with(begin), "{text}");
    half(1.0, 28_232, 0.8).check(&[(LimitedConcurrency, Some("db")), (Ports, Some("edge"))]);
    half(38.0, 28_232, 0.1).check(&[(LimitedConcurrency, Some("edge"))]);
    half(38.0, 1_000, 0.8).check(&[(LimitedConcurrency, Some("edge"))]);
    // Their owner may be unknown.
    let nobody = out("", 1000, 0);
    nobody.check(&[(Ports, None)]);
    assert!(
        nobody.suspects()[0].text.starts_with("10.0.0.2 ran out of local ports"),
        "{:?}",
        nobody.suspects()
    );
}

#[test]
fn a_full_accept_queue_is_theirs_if_their_connects_say_so() {
    let overflowing = |of: &str, connect_ms: f64| {
        let mut made = made(20, 1000, 900, &[("edge", QUIET), ("db", QUIET)]);
        made.summary.connect_ms.max = Some(connect_ms);
        made.summary.connect_ms.p50 = Some(connect_ms);
        let tcp = |at_s: f64| Tcp { accept_overflows: Some((50.0 * at_s.max(0.0)) as u64), ..Tcp::default() };
        match of {
            "host" => made.samples.extend((0..=LENGTH_S).map(|i| Sample {
                at_s: i as f64,
                component: "host".into(),
                tcp: Some(tcp(i as f64)),
                ..Sample::default()
            })),
            name => made
                .samples
                .iter_mut()
                .filter(|s| s.component == name)
                .for_each(|s| s.tcp = Some(tcp(s.at_s))),
        }
        made
    };
    let host = overflowing("host", 1040.0);
    assert_eq!(host.suspects()[0].kind, Refused);
    assert!(host.suspects()[0].text.contains("500 connections were dropped"), "{:?}", host.suspects());
    // overflows elsewhere on the machine do not matter
    assert!(overflowing("host", 5.0).suspects().iter().all(|s| s.kind != Refused));
    // in its own network the count is its own
    let own = overflowing("db", 5.0);
    assert!(own.suspects()[0].text.starts_with("the accept queue of db was full"), "{:?}", own.suspects());
    assert_eq!(own.suspects()[0].component.as_deref(), Some("db"));
}

/// Connections of a pair, this many of them busy.
fn pair(from: &str, to: &str, open: f64, busy: f64) -> Pair {
    Pair {
        from: from.into(),
        to: to.into(),
        address: format!("127.0.0.1:{}", to.len()),
        open,
        busy,
        ..Pair::default()
    }
}

/// A line of evidence for each second of the load.
fn watched(made: &mut Made, pairs: &[Pair], change: impl Fn(&mut Evidence)) {
    made.evidence = (0..LENGTH_S)
        .map(|i| {
            let (from_s, to_s) = (i as f64, i as f64 + 0.95);
            let mut line = Evidence {
                from_s,
                to_s,
                socket_readings: 20,
                thread_readings: 20,
                pairs: pairs.to_vec(),
                ..Evidence::default()
            };
            change(&mut line);
            line
        })
        .collect();
}

fn threads(component: &str, count: f64) -> Threads {
    Threads { component: component.into(), count, read: count, ..Threads::default() }
}

/// 40 users, 160 ms each, of which 4 are work: one at a time, somewhere behind `edge`.
fn chain() -> Made {
    made(40, 160, 4, &[("edge", QUIET), ("mid", QUIET), ("db", QUIET)])
}

#[test]
fn a_lock_behind_the_first_tier_is_found_where_requests_wait() {
    let mut lock = chain();
    let pairs =
        [pair("loadlab", "edge", 40.0, 40.0), pair("edge", "mid", 40.0, 39.8), pair("mid", "db", 40.0, 0.1)];
    watched(&mut lock, &pairs, |line| line.threads = vec![Threads { lock: 39.0, ..threads("mid", 42.0) }]);
    lock.check(&[(LimitedConcurrency, Some("mid"))]);
    let first = &lock.suspects()[0];
    assert_eq!(
        first.text,
        "mid: 40 of 40 requests in flight wait there; it lets about 1.0 through at a time (4.00 ms each), and none of its resources is saturated"
    );
    assert_eq!(
        first.evidence,
        [
            "40 of 40 requests in flight were in mid (edge→mid: 40 of 40 connections busy, mid→db: 0.10 of 40 connections busy; 200 readings)",
            "threads of mid: 42 of 42 read: 39 in a lock"
        ]
    );
    // As before, with a front that keeps nearly a core busy with few requests in it: it holds nothing back.
    let busy = Does { cores: 0.95, ..QUIET };
    let mut beside = made(40, 160, 4, &[("edge", busy), ("mid", QUIET), ("db", QUIET)]);
    watched(&mut beside, &pairs, |_| ());
    beside.check(&[(LimitedConcurrency, Some("mid")), (OneCore, Some("edge"))]);
}

#[test]
fn a_full_pool_is_its_owners_unless_what_is_behind_is_saturated() {
    let pairs =
        [pair("loadlab", "edge", 40.0, 40.0), pair("edge", "mid", 40.0, 39.8), pair("mid", "db", 3.0, 3.0)];
    let mut pool = chain();
    watched(&mut pool, &pairs, |_| ());
    pool.check(&[(Pool, Some("mid"))]);
    let text = &pool.suspects()[0].text;
    assert!(
        text.starts_with("mid→db: 3 of 3 connections busy, and nothing behind them is saturated"),
        "{text}"
    );
    let full = Does { cores: 0.0098, limit: Some(0.01), throttled: 0.7, ..QUIET };
    let mut behind = made(40, 160, 4, &[("edge", QUIET), ("mid", QUIET), ("db", full)]);
    watched(&mut behind, &pairs, |_| ());
    assert_eq!(
        (behind.suspects()[0].kind, behind.suspects()[0].component.as_deref()),
        (CpuLimit, Some("db"))
    );
    // A pool with mostly idle connections does not count.
    let mut idle = chain();
    let mut with_ties = pair("edge", "db", 20.0, 0.2);
    with_ties.unknown = 15.0;
    watched(&mut idle, &[pair("loadlab", "edge", 40.0, 40.0), with_ties], |_| ());
    idle.check(&[(LimitedConcurrency, Some("edge"))]);
}

#[test]
fn links_disks_and_busy_threads_are_named_by_their_evidence() {
    let mut link = made(40, 42, 41, &[("edge", QUIET), ("db", QUIET)]);
    let far = Pair { rtt_ms: Some(40.0), ..pair("edge", "db", 40.0, 39.5) };
    watched(&mut link, &[pair("loadlab", "edge", 40.0, 40.0), far], |_| ());
    link.check(&[(Link, Some("edge→db"))]);
    let text = &link.suspects()[0].text;
    assert!(
        text.starts_with("link edge→db: 38 of 40 requests in flight are on the wire there (round trip 40"),
        "{text}"
    );

    let pairs = [pair("loadlab", "edge", 40.0, 40.0), pair("edge", "db", 40.0, 39.1)];
    let mut disk = chain();
    watched(&mut disk, &pairs, |line| {
        line.threads = vec![Threads { disk: 0.9, lock: 38.0, ..threads("db", 42.0) }];
    });
    disk.check(&[(Disk, Some("db"))]);

    let mut one = made(40, 160, 4, &[("edge", QUIET), ("db", Does { cores: 1.6, ..QUIET })]);
    watched(&mut one, &pairs, |line| {
        line.threads = vec![Threads {
            busiest_cores: Some(0.97),
            busiest_name: "compactor".into(),
            busiest_id: Some(7),
            ..threads("db", 9.0)
        }];
    });
    one.check(&[(OneCore, Some("db"))]);
    assert!(one.suspects()[0].text.contains("one of its 9 threads (`compactor`)"), "{:?}", one.suspects());
    // On a shared machine it has no whole core, and is always ready for one.
    let mut ready = made(40, 160, 4, &[("edge", QUIET), ("db", Does { cores: 0.6, ..QUIET })]);
    watched(&mut ready, &pairs, |line| {
        line.threads = vec![Threads {
            running: 1.0,
            busiest_cores: Some(0.55),
            cpu_cores: Some(0.58),
            run_delay_cores: Some(0.42),
            busiest_name: "node".into(),
            busiest_id: Some(7),
            ..threads("db", 7.0)
        }];
    });
    ready.check(&[(OneCore, Some("db"))]);
    assert!(ready.suspects()[0].text.contains("(`node`) was always busy"), "{:?}", ready.suspects());
    // Busy threads that take turns are not a single one.
    one.evidence.iter_mut().enumerate().for_each(|(i, line)| line.threads[0].busiest_id = Some(i as u32));
    one.check(&[(LimitedConcurrency, Some("db"))]);
    // Unless they use one core together: an interpreter's lock.
    let mut turns = made(40, 160, 4, &[("edge", QUIET), ("db", Does { cores: 1.02, ..QUIET })]);
    watched(&mut turns, &pairs, |line| {
        line.threads = vec![Threads { busiest_cores: Some(0.3), busiest_id: Some(7), ..threads("db", 9.0) }];
    });
    turns.check(&[(OneCore, Some("db"))]);
    assert!(
        turns.suspects()[0].text.contains("the busiest of its 9 threads had 30 % of it: they take turns")
    );
}

/// A load balancer far from everything: of ten requests four are in flight on the link to it, and five on the links
/// from it.
#[test]
fn a_component_whose_links_are_slow_is_named_by_all_of_them() {
    let mut made =
        made(10, 90, 80, &[("balancer", QUIET), ("edge1", QUIET), ("edge2", QUIET), ("store", QUIET)]);
    let far = |pair: Pair, in_transit: f64| Pair { rtt_ms: Some(40.0), in_transit, ..pair };
    let pairs = [
        far(pair("loadlab", "balancer", 10.0, 10.0), 4.0),
        far(pair("balancer", "edge1", 3.0, 3.0), 2.5),
        far(pair("balancer", "edge2", 3.0, 3.0), 2.5),
        // Who waits here is not known, which changes nothing.
        Pair { unknown: 1.9, ..pair("edge1", "store", 2.0, 0.0) },
        pair("edge2", "store", 8.0, 0.1),
    ];
    watched(&mut made, &pairs, |_| ());
    made.check(&[(Link, Some("balancer"))]);
    let suspect = &made.suspects()[0];
    assert!(suspect.text.starts_with("links of balancer: 9.4 of 10 requests in flight"), "{suspect:?}");
    assert!(suspect.evidence[0].contains(" 4.4 on loadlab→balancer, 2.5 on "), "{suspect:?}");

    // The link to a distant store is a link of the balancer, too, but also one of the store's.
    let behind = [
        Pair { in_transit: 0.2, ..pair("loadlab", "balancer", 10.0, 10.0) },
        far(pair("balancer", "store", 5.0, 4.9), 4.9),
        pair("balancer", "edge1", 3.0, 3.0),
    ];
    watched(&mut made, &behind, |_| ());
    assert!(!made.suspects()[0].text.starts_with("links of"), "{:?}", made.suspects());

    // None of them is slow, and the last component has hardly a request, however many connections: no component is
    // named.
    let near = |share: f64| {
        [
            pair("loadlab", "balancer", 10.0, 10.0),
            pair("balancer", "edge1", 3.0, share),
            pair("balancer", "edge2", 3.0, share),
            pair("edge1", "store", 8.0, 0.1),
            pair("edge2", "store", 8.0, 0.1),
        ]
    };
    made.samples = ["balancer", "edge1", "edge2", "store"]
        .iter()
        .flat_map(|name| samples(name, Does { files: 16, ..QUIET }))
        .collect();
    watched(&mut made, &near(3.0), |_| ());
    made.check(&[(Latency, None)]);
    let text = &made.suspects()[0].text;
    assert!(
        text.ends_with("requests wait in several places, the largest shares in balancer, edge1, edge2"),
        "{text}"
    );
    let evidence = &made.suspects()[0].evidence[0];
    assert!(evidence.contains("of 10 requests in flight 4 in balancer, 2.9 in edge1"), "{evidence}");
    assert_eq!(answer(&made).confidence, Confidence::Low);
    // Edges that divide the load each wait for longer than their share of the requests suggests: the store is slow,
    // not its links.
    let divided: Vec<Pair> = (1..=10)
        .flat_map(|edge| {
            let edge = format!("edge{edge}");
            let link = Pair { rtt_ms: Some(6.0), ..pair(&edge, "store", 4.0, 1.0) };
            [pair("balancer", &edge, 3.0, 1.0), link]
        })
        .chain([pair("loadlab", "balancer", 10.0, 10.0)])
        .collect();
    watched(&mut made, &divided, |_| ());
    assert!(!made.suspects()[0].text.starts_with("links of"), "{:?}", made.suspects());
    // Without readings of connections it is the last component that holds some.
    made.evidence.clear();
    made.check(&[(Latency, Some("store"))]);
}

#[test]
fn a_component_that_is_called_a_relay_is_none() {
    let mut link = made(40, 42, 41, &[("edge", QUIET), ("db", QUIET), ("db-relay", QUIET)]);
    let far = Pair { rtt_ms: Some(40.0), ..pair("edge", "db", 40.0, 39.5) };
    let pairs = [pair("loadlab", "edge", 40.0, 40.0), far, pair("edge", "db-relay", 2.0, 0.0)];
    watched(&mut link, &pairs, |_| ());
    link.check(&[(Link, Some("edge→db"))]);
    let evidence = &link.suspects()[0].evidence[0];
    assert!(evidence.contains("(edge→db: 40 of 40 connections busy; 200 readings)"), "{evidence}");
}

#[test]
fn an_answer_is_reported_only_if_the_system_was_watched() {
    let mut load = made(40, 160, 4, &[]);
    load.summary.bottleneck = diagnosis(&load).bottleneck;
    assert!(load.summary.bottleneck.is_some() && answer_of_watched(&load.summary).is_none());
    // It is known why nothing could be seen.
    let not_seen = vec!["the process that answers at 127.0.0.1:8080: another user's".to_owned()];
    load.evidence = vec![Evidence { not_seen, ..Evidence::default() }];
    load.summary.bottleneck = diagnosis(&load).bottleneck;
    assert!(answer_of_watched(&load.summary).is_some());
    let mut components = chain();
    components.summary.bottleneck = diagnosis(&components).bottleneck;
    assert!(answer_of_watched(&components.summary).is_some());
}

#[test]
fn an_accept_queue_comes_before_the_resets_it_causes_and_has_a_name() {
    let mut full = made(10, 20, 18, &[("edge", QUIET), ("db", QUIET)]);
    full.summary.failures.add(Failure::Reset, 400);
    full.summary.connect_ms.max = Some(7004.0);
    full.summary.connect_ms.p50 = Some(0.1);
    watched(&mut full, &[], |line| {
        line.listeners = vec![Listener {
            component: "db".into(),
            address: "127.0.0.1:8080".into(),
            queue_max: 6,
            backlog: 5,
            drops: 1000 + (line.to_s * 37412.9) as u64,
            drops_before: 1000,
        }];
    });
    // Drops before the load do not count: as its first line shows, or a line before it.
    assert!(full.suspects()[0].text.contains("was full: 372,258 connections were dropped"));
    full.evidence.insert(0, Evidence { from_s: -1.0, to_s: -0.1, ..full.evidence[0].clone() });
    full.evidence[0].listeners[0].drops = 1000;
    let suspects = full.suspects();
    assert_eq!(
        (suspects[0].kind, suspects[0].component.as_deref()),
        (AcceptQueue, Some("db")),
        "{suspects:#?}"
    );
    assert!(
        suspects[0].text.contains("(127.0.0.1:8080) was full: 372,258 connections were dropped"),
        "{}",
        suspects[0].text
    );
    let named = |s: &Suspect| s.kind == Refused && s.component.as_deref() == Some("db");
    assert!(suspects[1..].iter().any(named), "{suspects:#?}");
    // Restarted in the middle, its socket counts from 0: what it had dropped before is not forgotten.
    let restarted = full.evidence.iter_mut().filter(|line| line.from_s >= 5.0);
    restarted.for_each(|line| line.listeners[0].drops = 0);
    let text = &full.suspects()[0].text;
    assert!(text.contains("was full: 185,193 connections"), "{text}");
}

#[test]
fn a_rate_that_is_answered_as_it_comes_saturates_nothing() {
    let mut open = made(40, 20, 18, &[("edge", QUIET), ("db", QUIET)]);
    open.summary.load.model = LoadModel::Open;
    open.check(&[(Nothing, None)]);
    // What it needs for this rate happens to be a core.
    let one = Does { cores: 0.98, ..QUIET };
    let mut a_core = made(40, 20, 18, &[("edge", one), ("db", QUIET)]);
    a_core.check(&[(OneCore, Some("edge"))]);
    a_core.summary.load.model = LoadModel::Open;
    a_core.check(&[(Nothing, None)]);
    // Answered, but slower than possible: it waits for something.
    let mut slow = made(40, 160, 4, &[("edge", QUIET), ("db", QUIET)]);
    slow.summary.load.model = LoadModel::Open;
    slow.check(&[(LimitedConcurrency, None)]);
    // In a short load, requests in flight at its end are missing, however fast they are answered; they are not a
    // backlog.
    let short = |ok_per_s: f64, after: u64| {
        let mut short = made(8, 150, 140, &[("edge", QUIET), ("db", QUIET)]);
        short.summary.load.model = LoadModel::Open;
        (short.summary.rate_per_s.ok, short.summary.stragglers.ok) = (ok_per_s, after);
        short.suspects()[0].kind
    };
    assert_eq!(short(52.5, 8), Nothing);
    assert_ne!(short(52.5, 0), Nothing);
    assert_ne!(short(50.0, 33), Nothing);
}

/// Idle connections of a pool are no requests.
#[test]
fn users_who_pause_for_nearly_all_of_their_time_saturate_nothing() {
    let pausing = |waiting: f64, fastest_ms: u64| {
        let mut made = made(40, 20, fastest_ms, &[("edge", QUIET), ("db", Does { files: 30, ..QUIET })]);
        (made.summary.load.think_s, made.summary.concurrency_mean) = (Some(1.0), waiting);
        made
    };
    let made = pausing(0.8, 18);
    made.check(&[(Nothing, None)]);
    assert_eq!(made.suspects()[0].text, "nothing was saturated: users paused nearly always");
    // More wait; or answers are slower than they could be.
    pausing(12.0, 18).check(&[(Latency, Some("db"))]);
    let slow = pausing(0.8, 3).suspects();
    assert_ne!(slow[0].kind, Nothing, "{slow:?}");
    // Nobody pauses.
    let mut busy = pausing(0.8, 18);
    busy.summary.load.think_s = None;
    busy.check(&[(Latency, Some("db"))]);
}

/// What is idle in a pause between batches may be saturated in the batches.
#[test]
fn a_pause_between_batches_is_no_part_of_the_load() {
    let is_sent = |second: u64| !(2..8).contains(&second);
    let in_batches = |made: &mut Made| {
        made.ticks.retain(|tick| is_sent(tick.from_s as u64));
        for tick in &mut made.ticks {
            (tick.in_window, tick.batch) = (true, u32::from(tick.from_s >= 8.0));
        }
    };
    let mut waiting = chain();
    in_batches(&mut waiting);
    let pairs =
        [pair("loadlab", "edge", 40.0, 40.0), pair("edge", "mid", 40.0, 40.0), pair("mid", "db", 40.0, 39.8)];
    watched(&mut waiting, &pairs, |line| {
        if !is_sent(line.from_s as u64) {
            line.pairs.iter_mut().for_each(|pair| pair.busy = 0.0);
        }
    });
    waiting.check(&[(LimitedConcurrency, Some("db"))]);
    let busy_s = |at_s: f64| (0..at_s.max(0.0) as u64).filter(|second| is_sent(*second)).count() as f64;
    let mut computing = made(10, 20, 18, &[("edge", QUIET), ("db", QUIET)]);
    in_batches(&mut computing);
    for s in computing.samples.iter_mut().filter(|s| s.component == "edge") {
        s.cpu_s = Some(0.98 * busy_s(s.at_s));
    }
    computing.check(&[(OneCore, Some("edge"))]);
    let text = &computing.suspects()[0].text;
    assert!(text.starts_with("edge kept one core busy for 98 % of the time"), "{text}");
}

/// No reading, of which there is one a second, lies in a batch of a fifth of a second: those of the whole load count.
#[test]
fn short_batches_between_readings_are_not_unseen() {
    let in_batches = |mut made: Made| {
        for (batch, tick) in (0..).zip(&mut made.ticks) {
            (tick.in_window, tick.batch) = (true, batch);
            (tick.from_s, tick.to_s) = (tick.from_s + 0.1, tick.from_s + 0.3);
        }
        made
    };
    let mut lock = in_batches(chain());
    let pairs =
        [pair("loadlab", "edge", 40.0, 40.0), pair("edge", "mid", 40.0, 39.8), pair("mid", "db", 40.0, 0.1)];
    watched(&mut lock, &pairs, |line| line.threads = vec![Threads { lock: 39.0, ..threads("mid", 42.0) }]);
    lock.check(&[(LimitedConcurrency, Some("mid"))]);
    assert_eq!(answer(&lock).not_seen, Vec::<String>::new());
    let full = Does { memory: 99 << 20, memory_limit: Some(100 << 20), ..QUIET };
    in_batches(made(10, 20, 18, &[("edge", full), ("db", QUIET)])).check(&[(Memory, Some("edge"))]);
    let mut files = in_batches(made(60, 1000, 900, &[("edge", QUIET), ("db", QUIET)]));
    let edge = files.samples.iter_mut().filter(|s| s.component == "edge");
    edge.for_each(|s| s.open_files_share = Some(1.0));
    files.check(&[(OpenFiles, Some("edge"))]);
    let mut two = in_batches(made(60, 1000, 900, &[("edge", QUIET), ("db", QUIET)]));
    for s in two.samples.iter_mut().filter(|s| s.component == "edge") {
        s.cpu_s = Some((0..s.at_s.max(0.0) as u64).map(|i| if i % 2 == 0 { 1.9 } else { 0.2 }).sum());
    }
    assert!(two.suspects().iter().all(|s| s.kind != OneCore), "{:#?}", two.suspects());
}

/// However long the pause between them is: in two batches of half a second anything can be busy.
#[test]
fn a_pause_makes_no_load_longer() {
    let busy = |length_s: f64| {
        let mut made = made(10, 20, 18, &[("edge", Does { cores: 3.0, ..QUIET }), ("db", QUIET)]);
        made.samples.extend(samples("host", Does { cores: 3.9, ..QUIET }));
        made.ticks = vec![made.ticks[0].clone(), made.ticks[5].clone()];
        for (batch, tick) in (0..).zip(&mut made.ticks) {
            (tick.in_window, tick.batch, tick.to_s) = (true, batch, tick.from_s + length_s);
        }
        made.suspects().iter().any(|s| s.kind == HostCpu)
    };
    assert_eq!((busy(0.5), busy(2.0)), (false, true));
}

/// Those of the load stay open in a pause between batches: they are no files of the component.
#[test]
fn connections_of_a_pause_are_the_loads() {
    let mut kept = made(50, 500, 20, &[("edge", Does { files: 50, ..QUIET }), ("db", QUIET)]);
    // Nothing was read before or after the load.
    kept.samples.retain(|s| (1.0..=10.0).contains(&s.at_s));
    kept.ticks.retain(|tick| tick.from_s < 2.0 || tick.from_s >= 8.0);
    for tick in &mut kept.ticks {
        (tick.in_window, tick.batch) = (true, u32::from(tick.from_s >= 8.0));
    }
    kept.check(&[(LimitedConcurrency, Some("edge"))]);
}

fn diagnosis(made: &Made) -> Diagnosis {
    let order = ["edge".to_owned()];
    diagnose(&TrialData {
        summary: &made.summary,
        samples: &made.samples,
        ticks: &made.ticks,
        events: &made.events,
        evidence: &made.evidence,
        order: &order,
        cores: 4,
    })
}

fn answer(made: &Made) -> Bottleneck {
    diagnosis(made).bottleneck.expect("an answer")
}

/// Connections over a Unix socket.
fn unix(from: &str, to: &str, open: f64, busy: f64, unknown: f64) -> Pair {
    Pair { is_unix: true, unknown, address: format!("/run/{to}.sock"), ..pair(from, to, open, busy) }
}

/// Sockets that send queries by UDP.
fn udp(from: &str, to: &str, open: f64, busy: f64) -> Pair {
    Pair { is_udp: true, unknown: open - busy, ..pair(from, to, open, busy) }
}

/// [`chain`] with these connections behind a load that waits for `edge`.
fn behind_edge(pairs: &[Pair]) -> Made {
    let mut made = chain();
    watched(&mut made, &[&[pair("loadlab", "edge", 40.0, 40.0)], pairs].concat(), |_| ());
    made
}

#[test]
fn a_full_pool_over_a_unix_socket_is_found_by_its_threads() {
    let mut pool = behind_edge(&[unix("edge", "db", 3.0, 2.9, 0.1)]);
    pool.check(&[(Pool, Some("edge"))]);
    let text = &pool.suspects()[0].text;
    assert!(text.starts_with("edge→db: 2.9 of 3 connections busy"), "{text}");
    // Everything that arrived has been passed on to the store.
    pool = behind_edge(&[unix("edge", "db", 40.0, 39.0, 0.0)]);
    pool.check(&[(LimitedConcurrency, Some("db"))]);
    assert_eq!(answer(&pool).confidence, Confidence::High);
}

#[test]
fn an_idle_pool_over_a_unix_socket_is_not_blamed() {
    // Its threads show that it is idle.
    let idle = behind_edge(&[unix("edge", "db", 40.0, 0.2, 0.0)]);
    idle.check(&[(LimitedConcurrency, Some("edge"))]);
    let seen = answer(&idle);
    assert_eq!((seen.confidence, seen.not_seen.len()), (Confidence::High, 0));
    // So few connections hold few of the requests, whatever waits on them.
    let small = behind_edge(&[unix("edge", "db", 3.0, 0.0, 3.0)]);
    small.check(&[(LimitedConcurrency, Some("edge"))]);
    assert_eq!((answer(&small).confidence, answer(&small).not_seen.len()), (Confidence::High, 0));
    // More of them leave a range.
    let larger = behind_edge(&[unix("edge", "db", 15.0, 0.0, 15.0)]);
    larger.check(&[(LimitedConcurrency, Some("edge"))]);
    let range = answer(&larger);
    assert_eq!(range.confidence, Confidence::Medium);
    assert_eq!(
        range.not_seen,
        [
            "who waits on edge→db over the Unix socket /run/db.sock: such sockets have no times, and threads do not show it"
        ]
    );
    assert!(
        range.evidence[1].starts_with(
            "25 to 40 of 40 requests in flight were in edge (edge→db: 0 of 15 connections busy, 15 not known, loadlab→edge:"
        ),
        "{range:?}"
    );
}

#[test]
fn of_two_that_may_hold_the_requests_neither_is_named() {
    let mut either = behind_edge(&[pair("edge", "mid", 40.0, 39.8), unix("mid", "db", 40.0, 0.0, 40.0)]);
    either.check(&[(LimitedConcurrency, None)]);
    let seen = answer(&either);
    assert_eq!((seen.component.as_deref(), seen.confidence), (None, Confidence::Low));
    assert!(seen.evidence[0].starts_with("mid or db: 40 of 40 requests in flight wait there;"), "{seen:?}");
    assert!(seen.evidence[0].ends_with("; which of them is unknown"), "{seen:?}");
    let ranges = "of 40 requests in flight 0 to 40 in mid, 0 to 40 in db (edge→mid: 40 of 40 connections busy, mid→db: 0 of 40 connections busy, 40 not known; 200 readings)";
    assert_eq!(seen.evidence[1], ranges);
    assert_eq!(seen.not_seen.len(), 1);
    // It is known which connections most requests wait on.
    either = behind_edge(&[pair("edge", "mid", 40.0, 39.8), unix("mid", "db", 40.0, 30.0, 10.0)]);
    either.check(&[(LimitedConcurrency, Some("db"))]);
    assert_eq!(answer(&either).confidence, Confidence::Medium);
    // No request waits on more than one.
    either = behind_edge(&[pair("edge", "mid", 40.0, 0.5), unix("mid", "db", 40.0, 0.0, 40.0)]);
    either.check(&[(LimitedConcurrency, Some("edge"))]);
    assert_eq!(answer(&either).confidence, Confidence::High);
    // One of the two is at its limit.
    let full = Does { cores: 0.0098, limit: Some(0.01), throttled: 0.7, ..QUIET };
    let mut limited = made(40, 160, 4, &[("edge", QUIET), ("db", full)]);
    let pairs = [pair("loadlab", "edge", 40.0, 40.0), unix("edge", "db", 40.0, 0.0, 40.0)];
    watched(&mut limited, &pairs, |_| ());
    limited.check(&[(CpuLimit, Some("db"))]);
}

#[test]
fn connections_whose_times_are_mostly_ties_name_neither_end() {
    let tied = |busy, unknown| Pair { unknown, ..pair("edge", "db", 40.0, busy) };
    let pairs = |pool| [pair("loadlab", "edge", 40.0, 40.0), pool];
    let mut either = chain();
    watched(&mut either, &pairs(tied(15.0, 24.0)), |_| ());
    either.check(&[(LimitedConcurrency, None)]);
    let seen = answer(&either);
    assert_eq!((seen.component.as_deref(), seen.confidence), (None, Confidence::Low));
    assert!(seen.evidence[0].starts_with("edge or db: 40 of 40 requests in flight wait there;"), "{seen:?}");
    assert!(seen.evidence[1].contains("edge→db: 15 of 40 connections busy, 24 not known"), "{seen:?}");
    assert!(seen.not_seen[0].starts_with("who waits on edge→db at "), "{seen:?}");
    assert!(seen.not_seen[0].contains("within one tick of the kernel's clock"), "{seen:?}");
    // Packets decide, if enough were seen; so do most connections.
    let timed = Timed { exchanges: 20, busy_share: 0.98, wait_ms: 800.0 };
    let mut packets = chain();
    watched(&mut packets, &pairs(Pair { timed: Some(timed), ..tied(15.0, 24.0) }), |_| ());
    packets.check(&[(LimitedConcurrency, Some("db"))]);
    let mut few = chain();
    watched(&mut few, &pairs(tied(30.0, 9.0)), |_| ());
    few.check(&[(LimitedConcurrency, Some("db"))]);
}

#[test]
fn connections_made_for_one_request_each_are_busy() {
    // 250 requests a second, and as many connections.
    let made_for_each = Pair { made: 230, ..unix("edge", "db", 30.0, 0.0, 30.0) };
    let fastcgi = behind_edge(&[made_for_each]);
    fastcgi.check(&[(LimitedConcurrency, Some("db"))]);
    assert!(diagnosis(&fastcgi).pairs.iter().any(|p| p.is_unix && p.busy == 30.0 && p.made == 2300));
    // A pool that opens a new connection now and then.
    let pool = behind_edge(&[Pair { made: 3, ..unix("edge", "db", 30.0, 0.0, 30.0) }]);
    pool.check(&[(LimitedConcurrency, None)]);
}

#[test]
fn a_slow_resolver_is_found_by_the_queries_that_wait_for_it() {
    let db = pair("edge", "db", 40.0, 0.1);
    let slow = behind_edge(&[db.clone(), udp("edge", "dns", 39.0, 39.0)]);
    slow.check(&[(LimitedConcurrency, Some("dns"))]);
    let seen = answer(&slow);
    assert_eq!(seen.confidence, Confidence::High);
    assert!(seen.evidence[1].contains("edge→dns (UDP): 39 of 39 sockets busy"), "{seen:?}");
    // Too few at a time for a pool: each query has its own socket.
    let few = behind_edge(&[db.clone(), udp("edge", "dns", 22.0, 22.0)]);
    few.check(&[(LimitedConcurrency, Some("dns"))]);
    // Long-lived sockets send no queries.
    let statsd = behind_edge(&[db, udp("edge", "stats", 40.0, 0.0)]);
    statsd.check(&[(LimitedConcurrency, Some("edge"))]);
    assert_eq!((answer(&statsd).confidence, answer(&statsd).not_seen.len()), (Confidence::High, 0));
    // The same server over TCP is another pair.
    let both = behind_edge(&[pair("edge", "dns", 1.0, 0.0), udp("edge", "dns", 39.0, 39.0)]);
    assert_eq!(diagnosis(&both).pairs.iter().filter(|p| p.to == "dns").count(), 2);
    both.check(&[(LimitedConcurrency, Some("dns"))]);
}

#[test]
fn a_load_that_goes_to_a_unix_socket_counts() {
    let mut load = chain();
    load.summary.load.url = "unix:/run/edge.sock:/x?y=1".into();
    let mut own = unix("", "edge", 40.0, 0.0, 40.0);
    watched(&mut load, &[own.clone(), pair("edge", "db", 40.0, 0.2)], |_| ());
    load.check(&[(LimitedConcurrency, Some("edge"))]);
    assert_eq!(answer(&load).not_seen.len(), 0);
    // Bound by a path relative to where it was started, and by another program.
    own.address = "./edge.sock".into();
    watched(&mut load, &[own.clone()], |_| ());
    assert_eq!(diagnosis(&load).pairs[0].from, "loadlab");
    own.address = "/run/other-edge.sock".into();
    watched(&mut load, &[own], |_| ());
    assert_eq!(diagnosis(&load).pairs[0].from, "");
}

#[test]
fn connections_of_probes_are_left_out() {
    let mut made = chain();
    made.summary.load.targets = ["127.0.0.1:4".to_owned()].into();
    let pairs = [
        pair("loadlab", "edge", 40.0, 40.0),
        pair("loadlab", "db", 0.1, 0.1),
        pair("edge", "db", 40.0, 39.0),
    ];
    watched(&mut made, &pairs, |_| ());
    let asked: Vec<String> =
        diagnosis(&made).pairs.iter().map(|pair| format!("{}→{}", pair.from, pair.to)).collect();
    assert_eq!(asked, ["edge→db", "loadlab→edge"]);
}

/// A probe's connection is gone before its owner is looked up, and may go to the load's port at another address.
#[test]
fn unowned_connections_to_the_same_port_elsewhere_are_not_the_loads() {
    let at = |address: &str, pair: Pair| Pair { address: address.into(), ..pair };
    let asked = |from: &str, targets: &[&str]| -> Vec<String> {
        let mut made = chain();
        made.summary.load.url = "http://10.0.0.2/".into();
        made.summary.load.targets = targets.iter().map(|target| (*target).to_owned()).collect();
        let of_load = at("10.0.0.2:80", pair(from, "edge", 40.0, 40.0));
        watched(&mut made, &[of_load, at("10.0.0.3:80", pair("", "db", 0.1, 0.1))], |_| ());
        diagnosis(&made).pairs.iter().map(|pair| format!("{}→{}", pair.from, pair.to)).collect()
    };
    // Those of the load may be unowned as well.
    for from in ["loadlab", ""] {
        assert_eq!(asked(from, &["10.0.0.2:80"]), ["→db", "loadlab→edge"], "{from:?}");
    }
    assert_eq!(asked("", &["10.0.0.2:80", "10.0.0.3:80"]), ["loadlab→db", "loadlab→edge"]);
    // An older record knows no addresses: the port is all there is.
    assert_eq!(asked("", &[]), ["loadlab→db", "loadlab→edge"]);
}

#[test]
fn the_answer_has_evidence_confidence_and_what_was_not_seen() {
    let mut lock = chain();
    let outside = answer(&lock);
    assert_eq!((outside.kind, outside.confidence), (LimitedConcurrency, Confidence::Low));
    assert_eq!(outside.not_seen, ["connections and threads: not read"]);
    let pairs = [pair("loadlab", "edge", 40.0, 40.0), pair("edge", "mid", 40.0, 39.8)];
    watched(&mut lock, &pairs, |line| {
        line.not_seen = vec!["connections of db: another user's process".into()]
    });
    let seen = answer(&lock);
    assert_eq!((seen.component.as_deref(), seen.confidence), (Some("mid"), Confidence::High));
    assert_eq!((seen.evidence.len(), seen.not_seen.len()), (2, 1), "{seen:?}");
    // Hidden threads are only reported for the answer's component.
    for line in &mut lock.evidence {
        let hidden = ["edge", "mid", "db"].map(|name| format!("what goroutines of {name} wait for: Go"));
        line.not_seen.extend(hidden);
    }
    let named = ["connections of db: another user's process", "what goroutines of mid wait for: Go"];
    assert_eq!(answer(&lock).not_seen, named);
    // Few readings are reported, and weigh less.
    lock.evidence.truncate(1);
    lock.evidence[0].socket_readings = 3;
    let few = answer(&lock);
    assert_eq!(few.confidence, Confidence::Low);
    assert!(few.evidence[1].contains("3 readings, from few readings"), "{few:?}");
}

#[test]
fn a_component_that_is_known_late_is_one_and_others_connections_are_left_out() {
    let mut late = chain();
    let at = |address: &str, pair: Pair| Pair { address: address.into(), ..pair };
    let pairs = [
        at("127.0.0.1:8080", pair("loadlab", "edge", 40.0, 40.0)),
        // Another program's, with neither end known.
        at("127.0.0.1:9999", pair("loadlab", "", 35.0, 35.0)),
    ];
    watched(&mut late, &pairs, |line| {
        let to = if line.to_s < 2.5 { "" } else { "db" };
        line.pairs.push(at("127.0.0.1:5432", pair("edge", to, 40.0, 39.0)));
    });
    late.check(&[(LimitedConcurrency, Some("db"))]);
    // A component that is not watched is named by its address.
    for line in &mut late.evidence {
        line.pairs.last_mut().unwrap().to.clear();
    }
    late.check(&[(LimitedConcurrency, Some("127.0.0.1:5432"))]);
    let text = &late.suspects()[0].evidence[0];
    assert!(text.contains("edge→127.0.0.1:5432: 39 of 40 connections busy"), "{text}");
}

/// The answer's second part stays with the server until the first one is acknowledged.
#[test]
fn answers_that_the_kernel_holds_back_are_no_link_and_no_lock() {
    let mut held = made(40, 44, 4, &[("edge", QUIET), ("db", QUIET)]);
    let pairs = [
        Pair { held_by_to: 35.0, ..pair("loadlab", "edge", 40.0, 40.0) },
        Pair { rtt_ms: Some(0.01), ..pair("edge", "db", 40.0, 4.0) },
    ];
    watched(&mut held, &pairs, |_| ());
    held.check(&[(Latency, Some("edge"))]);
    assert!(held.suspects()[0].text.contains("set TCP_NODELAY"), "{:?}", held.suspects());
}

#[test]
fn who_connects_for_each_request_has_no_pool_and_waits_for_a_full_accept_queue() {
    let mut each = chain();
    let own = Pair { first_request: 3.0, ..pair("edge", "db", 3.0, 3.0) };
    watched(&mut each, &[pair("loadlab", "edge", 40.0, 40.0), own.clone()], |_| ());
    each.check(&[(LimitedConcurrency, Some("edge"))]);
    let connects = Pair { open: 35.0, busy: 35.0, first_request: 35.0, connecting: 32.0, ..own };
    watched(&mut each, &[pair("loadlab", "edge", 40.0, 40.0), connects], |line| {
        line.listeners = vec![Listener {
            component: "db".into(),
            address: "127.0.0.1:2".into(),
            queue_max: 3,
            backlog: 2,
            drops: (line.to_s * 100.0) as u64,
            ..Listener::default()
        }];
    });
    each.check(&[(AcceptQueue, Some("db"))]);
}

#[test]
fn a_machine_that_others_keep_busy_is_named_where_threads_wait_for_a_core() {
    let others = |running: f64| {
        let mut busy = made(40, 160, 4, &[("edge", QUIET), ("host", Does { cores: 3.9, ..QUIET })]);
        watched(&mut busy, &[pair("loadlab", "edge", 40.0, 40.0)], |line| {
            let (cpu_cores, run_delay_cores) = (Some(0.3), Some(running - 0.3));
            line.threads = vec![Threads { running, cpu_cores, run_delay_cores, ..threads("edge", 41.0) }];
        });
        busy.suspects()[0].kind
    };
    assert_eq!((others(30.0), others(0.4)), (Neighbours, LimitedConcurrency));
}

/// An event loop hides which connections are busy; the number of requests that get through shows it.
#[test]
fn a_pool_over_a_unix_socket_is_full_if_it_has_as_many_connections_as_requests_get_through() {
    let kind = |open: f64| {
        let mut made = chain();
        let hidden =
            Pair { is_unix: true, unknown: open, address: "/run/db".into(), ..pair("edge", "db", open, 0.0) };
        watched(&mut made, &[pair("loadlab", "edge", 40.0, 40.0), hidden], |_| ());
        (made.suspects()[0].kind, made.suspects()[0].component.clone())
    };
    assert_eq!(kind(1.0), (Pool, Some("edge".into())));
    assert_eq!(kind(5.0), (LimitedConcurrency, Some("edge".into())));
}

/// One of several paths through the system: the fastest responses took another one.
#[test]
fn threads_in_a_lock_are_named_if_the_fastest_response_took_another_path() {
    let kind = |lock: f64| {
        let mut made = made(40, 160, 150, &[("edge", QUIET), ("db", QUIET)]);
        let pairs = [pair("loadlab", "edge", 40.0, 40.0), pair("edge", "db", 40.0, 38.0)];
        watched(&mut made, &pairs, |line| line.threads = vec![Threads { lock, ..threads("db", 40.0) }]);
        made.suspects()[0].kind
    };
    assert_eq!((kind(36.0), kind(5.0)), (LimitedConcurrency, Latency));
}

/// Unread data in a component's sockets waits for one of few workers, however fast the fastest was.
#[test]
fn requests_that_are_not_read_wait_for_a_worker() {
    let kind = |unread: f64| {
        let mut made = made(40, 160, 150, &[("edge", QUIET), ("db", QUIET)]);
        let to_db = Pair { unread, ..pair("edge", "db", 40.0, 38.0) };
        watched(&mut made, &[pair("loadlab", "edge", 40.0, 40.0), to_db], |_| ());
        (made.suspects()[0].kind, made.suspects()[0].component.clone())
    };
    assert_eq!(kind(34.0), (LimitedConcurrency, Some("db".into())));
    assert_eq!(kind(1.0), (Latency, Some("db".into())));
}

#[test]
fn a_relay_in_front_of_a_component_is_its_link() {
    let mut made = made(40, 42, 41, &[("edge", QUIET), ("db", QUIET), ("db-relay", QUIET)]);
    made.summary.components.get_mut("db").unwrap().limits.delay_ns = Some(20_000_000);
    let pairs = [
        pair("loadlab", "edge", 40.0, 40.0),
        pair("edge", "db-relay", 40.0, 39.0),
        pair("db-relay", "db", 40.0, 1.0),
    ];
    watched(&mut made, &pairs, |_| ());
    made.check(&[(Link, Some("edge→db"))]);
    let text = &made.suspects()[0].text;
    assert!(
        text.contains("are on the wire there") && text.contains("db was given a delay of 20.0 ms"),
        "{text}"
    );
}

/// CPU times are unknown within a second; what a thread was seen doing is known.
#[test]
fn in_a_short_load_threads_show_which_component_computes() {
    let kind = |running: f64| {
        let mut made = chain();
        made.ticks.truncate(1);
        made.ticks[0].in_window = true;
        watched(&mut made, &[pair("loadlab", "edge", 40.0, 40.0)], |line| {
            line.threads = vec![Threads { running, lock: 5.0, ..threads("edge", 7.0) }];
        });
        made.suspects()[0].kind
    };
    assert_eq!((kind(1.0), kind(0.1)), (OneCore, LimitedConcurrency));
}
