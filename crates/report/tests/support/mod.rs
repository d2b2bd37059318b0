//! Hand-made records: what a run would have left, without running anything. Deterministic.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loadlab_analysis::{DiagnosedRun, LoadRun, Planned, TrialInput, summarise};
use loadlab_record::Failure;
use loadlab_record::counts::example::{Example, ExampleReason};
use loadlab_record::counts::hlog::Interval;
use loadlab_record::counts::load::{
    Bytes, Connections, Counts, InWindow, Measured, Series, TagMeasured, Tick, TickMs, Window,
};
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::manifest::{CaseFacts, ComponentFacts, Host, Manifest, RunEnded, Writer};
use loadlab_record::documents::summary::{Ended, Generator, LoadFacts, LoadModel, Loss};
use loadlab_record::expr::Expr;
use loadlab_record::store::{CaseRecord, RunRecord, RunWriter, TrialRecord};
use loadlab_record::watch::sample::Sample;
use loadlab_report::document::Document;

/// A case to generate.
#[derive(Clone)]
pub struct Spec {
    pub name: String,
    pub users: u64,
    /// Seconds of load.
    pub seconds: u64,
    /// Ok responses per second.
    pub rate: u64,
    /// Median response.
    pub p50_ms: f64,
    /// One in this many requests fails; 0: none.
    pub fail_every: u64,
    pub components: Vec<Component>,
    pub tags: Vec<String>,
    /// Pause in the middle of the load.
    pub batches: u32,
    pub probes: bool,
}

#[derive(Clone)]
pub struct Component {
    pub name: String,
    /// Share of one core.
    pub cpu: f64,
    pub cpu_limit: Option<f64>,
    pub memory: u64,
    pub memory_limit: Option<u64>,
    pub dies_at_s: Option<f64>,
}

/// A small, fast random number generator, so that records look like records (Marsaglia, xorshift64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }

    /// 0..1.
    pub fn share(&mut self) -> f64 {
        self.below(1 << 20) as f64 / (1u64 << 20) as f64
    }
}

pub fn component(name: &str, cpu: f64, memory: u64) -> Component {
    Component { name: name.into(), cpu, cpu_limit: None, memory, memory_limit: None, dies_at_s: None }
}

pub fn spec(name: &str, users: u64, rate: u64, p50_ms: f64) -> Spec {
    Spec {
        name: name.into(),
        users,
        seconds: 20,
        rate,
        p50_ms,
        fail_every: 0,
        components: vec![component("app", 0.6, 120 << 20), component("database", 0.25, 300 << 20)],
        tags: Vec::new(),
        batches: 1,
        probes: false,
    }
}

/// The contents of one second of a trial: its tick and its histograms.
struct Second {
    tick: Tick,
    series: Series,
    by_tag: BTreeMap<String, TagMeasured>,
}

fn second(spec: &Spec, random: &mut Random, at_s: f64, batch: u32) -> Second {
    let mut out = Second { tick: Tick::default(), series: Series::default(), by_tag: BTreeMap::new() };
    let n = spec.rate * (90 + random.below(20)) / 100;
    let mut counts = Counts { due: n, started: n, ..Counts::default() };
    for i in 0..n {
        // long-tailed: most near the median, a few many times slower
        let tail = 0.6 + 0.5 * random.share() + 0.05 / (1.0 - random.share() * 0.999);
        let ns = (spec.p50_ms * 1e6 * tail) as u64;
        let tag = (!spec.tags.is_empty()).then(|| spec.tags[(i % spec.tags.len() as u64) as usize].clone());
        let failed = spec.fail_every > 0 && random.below(spec.fail_every) == 0;
        if failed {
            let kind = [Failure::Http5xx, Failure::Reset, Failure::Timeout][random.below(3) as usize];
            counts.failures.add(kind, 1);
            match kind {
                Failure::Timeout => out.series.response_censored.record(2_000_000_000),
                _ => out.series.response_failed.record(ns / 2),
            }
        } else {
            counts.ok += 1;
            out.series.response_ok.record(ns);
        }
        if let Some(tag) = tag {
            let t = out.by_tag.entry(tag).or_default();
            t.counts.merge(&Counts {
                due: 1,
                started: 1,
                ok: u64::from(!failed),
                in_flight: u64::from(failed),
                ..Counts::default()
            });
            if !failed {
                t.response_ok.record(ns);
            }
        }
    }
    out.tick = Tick {
        load: "main".into(),
        batch,
        from_s: at_s,
        to_s: at_s + 1.0,
        in_window: true,
        bytes: Bytes { sent: n * 90, received: n * 3100 },
        statuses: BTreeMap::from([(200, counts.ok), (503, counts.failures.get(Failure::Http5xx))]),
        connections: spec.users,
        response_ms: TickMs::from(&out.series.response_ok),
        censored_ms: TickMs::from(&out.series.response_censored),
        failed_ms: TickMs::from(&out.series.response_failed),
        counts,
        ..Tick::default()
    };
    out
}

/// Load in batches with a pause of three seconds between them.
fn seconds_of(spec: &Spec, random: &mut Random) -> Vec<Second> {
    let each = spec.seconds / u64::from(spec.batches.max(1));
    let mut out = Vec::new();
    for batch in 0..spec.batches.max(1) {
        let start = f64::from(batch) * (each as f64 + 3.0);
        out.extend((0..each).map(|s| second(spec, random, start + s as f64, batch)));
    }
    out
}

fn runs_of(seconds: &[Second], users: u64) -> Vec<LoadRun> {
    let mut by_batch: BTreeMap<u32, Vec<&Second>> = BTreeMap::new();
    for s in seconds {
        by_batch.entry(s.tick.batch).or_default().push(s);
    }
    let run = |(batch, list): (u32, Vec<&Second>)| {
        let mut m = Measured::default();
        for s in &list {
            m.counts.merge(&s.tick.counts);
            m.bytes.sent += s.tick.bytes.sent;
            m.bytes.received += s.tick.bytes.received;
            for (status, n) in &s.tick.statuses {
                *m.statuses.entry(*status).or_default() += n;
            }
            m.series.merge(&s.series);
            s.by_tag.iter().for_each(|(tag, t)| m.by_tag.entry(tag.clone()).or_default().merge(t));
        }
        m.elapsed_s = list.len() as f64;
        m.window = Window { from_s: 0.0, to_s: m.elapsed_s };
        m.in_window = InWindow { due: m.counts.due, started: m.counts.started, ok: m.counts.ok };
        let times = [&m.series.response_ok, &m.series.response_censored, &m.series.response_failed];
        m.busy_s = times.iter().map(|h| h.sum_ns() as f64 / 1e9).sum();
        m.busy_in_window_s = m.busy_s;
        m.connections = Connections {
            attempted: users,
            opened: users,
            requests_resent: 0,
            peak: users,
            ..Connections::default()
        };
        m.series.connect.record_n(80_000, users);
        LoadRun { load: "main".into(), batch, at_s: list[0].tick.from_s, measured: m }
    };
    by_batch.into_iter().map(run).collect()
}

fn samples_of(spec: &Spec, random: &mut Random, end_s: f64) -> Vec<Sample> {
    let mut out = Vec::new();
    for c in &spec.components {
        let (mut cpu_s, mut io) = (0.5, 1_000_000u64);
        let mut at_s = -2.0;
        while at_s <= end_s + 2.0 && c.dies_at_s.is_none_or(|d| at_s < d) {
            let loaded = (0.0..=end_s).contains(&at_s);
            let memory =
                c.memory + if loaded { (at_s * 200_000.0) as u64 + random.below(3_000_000) } else { 0 };
            out.push(Sample {
                at_s,
                component: c.name.clone(),
                cpu_s: Some(cpu_s),
                memory_bytes: Some(c.memory_limit.map_or(memory, |l| memory.min(l - random.below(100_000)))),
                resident_bytes: Some(memory),
                memory_limit_bytes: c.memory_limit,
                throttled_s: c.cpu_limit.map(|_| cpu_s * 2.0),
                throttled_periods: c.cpu_limit.map(|_| (cpu_s * 10.0) as u64),
                block_read_bytes: Some(io),
                block_written_bytes: Some(io / 3),
                net_in_bytes: Some(io * 2),
                net_out_bytes: Some(io * 3),
                pids: Some(4),
                open_files: Some(30 + spec.users),
                oom_kills: Some(0),
                ..Sample::default()
            });
            let busy = if loaded { c.cpu * (0.85 + 0.3 * random.share()) } else { 0.01 };
            cpu_s += c.cpu_limit.map_or(busy, |l| busy.min(l));
            io += random.below(400_000);
            at_s += 1.0;
        }
    }
    if spec.probes {
        let mut stored = 0.0;
        let mut at_s = -1.0;
        while at_s <= end_s + 3.0 {
            out.push(Sample {
                at_s,
                component: "probes".into(),
                probes: BTreeMap::from([
                    ("stored".into(), stored),
                    ("queue depth".into(), (at_s.max(0.0) * 40.0) % 700.0),
                ]),
                ..Sample::default()
            });
            stored += if at_s >= 0.0 { spec.rate as f64 * 0.93 } else { 0.0 };
            at_s += 1.0;
        }
    }
    out
}

fn events_of(spec: &Spec, end_s: f64) -> Vec<Event> {
    let mut out = Vec::new();
    let mut add = |at_s: f64, what: EventKind| out.push(Event { at_s, what });
    for (i, c) in spec.components.iter().enumerate() {
        add(-5.0 + i as f64 / 10.0, EventKind::Up { component: c.name.clone(), pid: Some(4000 + i as u32) });
        add(-4.0 + i as f64 / 10.0, EventKind::Ready { component: c.name.clone(), after_s: 0.4 });
    }
    add(0.0, EventKind::LoadStarted { load: "main".into(), batch: 0 });
    for c in &spec.components {
        if let Some(at_s) = c.dies_at_s {
            add(
                at_s,
                EventKind::Died {
                    component: c.name.clone(),
                    status: "signal 9 (SIGKILL), out of memory".into(),
                },
            );
        }
    }
    add(end_s, EventKind::LoadEnded { load: "main".into(), batch: 0, how: "complete".into() });
    if spec.probes {
        add(end_s, EventKind::DrainStarted { until: "stored == accepted".into() });
        add(end_s + 2.4, EventKind::Drained { took_s: 2.4, done: true });
    }
    for c in &spec.components {
        add(end_s + 4.0, EventKind::Down { component: c.name.clone(), how: "exited".into() });
    }
    out.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    out
}

fn examples_of(spec: &Spec) -> Vec<Example> {
    let example = |kept, outcome: &str, status: Option<u16>, body: &str, ms| Example {
        kept,
        outcome: outcome.into(),
        load: "main".into(),
        tag: spec.tags.first().cloned(),
        due_s: 3.25,
        response_ms: ms,
        service_ms: ms,
        user: Some(7),
        step: None,
        captured: BTreeMap::new(),
        address: "127.0.0.1:18080".into(),
        error: status.is_none().then(|| "connection reset by peer".to_owned()),
        request: "GET /index?q=%3Cb%3E".into(),
        request_head: "GET /index HTTP/1.1\r\nhost: 127.0.0.1\r\n".into(),
        status,
        response_head: None,
        response_body: Some(body.into()),
    };
    let slow = example(ExampleReason::Slow, "ok", Some(200), "", spec.p50_ms * 40.0);
    let mut out = vec![slow];
    if spec.fail_every > 0 {
        out.push(example(
            ExampleReason::Failed,
            "http_5xx",
            Some(503),
            "<script>alert(1)</script> pool exhausted\u{2028}",
            1.5,
        ));
        out.push(example(ExampleReason::Failed, "reset", None, "", 0.7));
    }
    out
}

/// What a load of the case requests.
fn facts_of(spec: &Spec) -> LoadFacts {
    LoadFacts {
        model: LoadModel::Closed,
        users: Some(spec.users),
        duration_s: Some(spec.seconds as f64),
        keep_alive: true,
        protocol: "http/1.1".into(),
        url: "http://127.0.0.1:18080/index".into(),
        // the made-up concurrency does not follow from the users
        think_s: Some(0.01),
        ..LoadFacts::default()
    }
}

/// A trial of a case, with its summary.
pub fn trial(spec: &Spec, number: u32, expect: &[&str]) -> TrialRecord {
    let mut random = Random::new(u64::from(number) * 1000 + spec.rate + spec.users);
    let jitter = Spec { rate: spec.rate * (97 + random.below(6)) / 100, ..spec.clone() };
    let seconds = seconds_of(&jitter, &mut random);
    let runs = runs_of(&seconds, spec.users);
    let end_s = seconds.last().map_or(0.0, |s| s.tick.to_s);
    let (samples, events) = (samples_of(spec, &mut random, end_s), events_of(spec, end_s));
    let ticks: Vec<Tick> = seconds.iter().map(|s| s.tick.clone()).collect();
    let mut series = Series::default();
    let mut intervals = Vec::new();
    for s in &seconds {
        series.merge(&s.series);
        for (name, h) in s.series.all().into_iter().filter(|(_, h)| !h.is_empty()) {
            intervals.push(Interval::of(Some("main"), name, s.tick.from_s, 1.0, h));
        }
    }
    let expect: Vec<Expr> = expect.iter().map(|e| Expr::parse(e).expect("an expression")).collect();
    let ok: u64 = ticks.iter().map(|t| t.counts.ok).sum();
    let summary = summarise(TrialInput {
        agents: Vec::new(),
        facts: facts_of(spec),
        loads: &runs,
        ticks: &ticks,
        samples: &samples,
        events: &events,
        evidence: &[],
        generator: Generator {
            io: "epoll".into(),
            threads: 1,
            cpus: vec![1],
            cpu_s: end_s * 0.31,
            run_delay_s: Some(end_s * 0.002),
            throttled_s: None,
            peak_rss_bytes: 13_000_000 + spec.users * 700,
            connections_peak: spec.users,
            ..Generator::default()
        },
        ended: Ended::Complete,
        expect: &expect,
        intervals: &intervals,
        drain_s: spec.probes.then_some(2.4),
        loss: spec.probes.then_some(Loss {
            accepted: ok,
            persisted_distinct: ok.saturating_sub(3),
            lost_min: 3,
            lost_max: 5,
            by_id: true,
            ..Loss::default()
        }),
        planned: Planned {
            cpu_limits: spec.components.iter().filter_map(|c| Some((c.name.clone(), c.cpu_limit?))).collect(),
            ..Planned::default()
        },
    });
    TrialRecord {
        is_search: false,
        number,
        dir: PathBuf::new(),
        summary: Some(summary),
        ticks,
        samples: samples.into(),
        events,
        evidence: Vec::new(),
        profile: None,
        examples: examples_of(spec),
        series,
        intervals,
    }
}

/// A run of these cases.
pub fn run(name: &str, specs: &[Spec], trials: u32, expect: &[&str]) -> RunRecord {
    let facts = |(i, spec): (usize, &Spec)| CaseFacts {
        control_of: None,
        name: spec.name.clone(),
        dir: format!("case-{}", i + 1),
        values: vec![("users".into(), spec.users.to_string())],
        users: Some(spec.users),
        rate_per_s: None,
        figures: BTreeMap::new(),
    };
    let components = specs.first().map_or(Vec::new(), |s| s.components.clone());
    let manifest = Manifest {
        record: 2,
        loadlab: "0.1.0".into(),
        name: name.into(),
        plan_path: "plan.yaml".into(),
        plan_text: "loadlab: 1\nname: edges under limits\nloads:\n  main: { users: 10, duration: 1m }\n"
            .into(),
        plan_sha256: "5f1d0c3a".repeat(8),
        options: vec!["--trials".into(), trials.to_string()],
        given: BTreeMap::new(),
        started: "2026-11-20T09:00:00Z".into(),
        ended: Some("2026-11-20T09:12:31Z".into()),
        how: RunEnded::Complete,
        writer: Writer { pid: 4242, start_ticks: 1 },
        host: Host {
            kernel: "Linux 6.18.0".into(),
            cpu: "Example CPU @ 2.60GHz".into(),
            cores: 2,
            memory_bytes: 8 << 30,
            clock_source: "tsc".into(),
            cgroup: "v1".into(),
        },
        words: vec![
            "10 users ask for the page, one after the other, for 20 s.".into(),
            "The edges may use 1 % of a core, then 15 MiB as well.".into(),
        ],
        components: components
            .iter()
            .map(|c| ComponentFacts { name: c.name.clone(), run: format!("./{}", c.name) })
            .collect(),
        axes: vec!["users".into()],
        cases: specs.iter().enumerate().map(facts).collect(),
        trials,
        until_certain: None,
        revisions: Vec::new(),
        commit: None,
        expect: expect.iter().map(|e| (*e).to_owned()).collect(),
        figures: Vec::new(),
        layout: None,
        derive: Vec::new(),
        quick: false,
        search: None,
        why: None,
    };
    let cases = specs.iter().enumerate().map(|(i, spec)| CaseRecord {
        facts: facts((i, spec)),
        trials: (1..=trials).map(|n| trial(spec, n, expect)).collect(),
    });
    RunRecord { dir: PathBuf::new(), cases: cases.collect(), manifest, notes: Vec::new() }
}

/// nginx in front of nginx in front of backends, under limits: the second reference system.
pub fn edges(trials: u32) -> RunRecord {
    let system = |limit: Option<f64>, memory: Option<u64>| -> Vec<Component> {
        let mut all = vec![component("load-balancer", 0.06, 10 << 20)];
        for i in 1..=4 {
            let used = memory.map_or(9 << 20, |m| m - (1 << 20));
            all.push(Component {
                cpu_limit: limit,
                memory_limit: memory,
                ..component(&format!("edge{i}"), 0.02 + f64::from(i) / 200.0, used)
            });
        }
        all.extend([component("backend1", 0.01, 29 << 20), component("backend2", 0.012, 21 << 20)]);
        all
    };
    let specs = [
        Spec {
            components: system(None, None),
            tags: vec!["page".into(), "image".into()],
            ..spec("control", 10, 105, 41.5)
        },
        Spec {
            components: system(Some(0.01), None),
            fail_every: 250,
            tags: vec!["page".into(), "image".into()],
            ..spec("1% CPU", 10, 52, 112.0)
        },
        Spec {
            components: system(Some(0.01), Some(15 << 20)),
            fail_every: 90,
            batches: 2,
            probes: true,
            tags: vec!["page".into(), "image".into()],
            ..spec("1% CPU + 15 MiB", 10, 49, 108.0)
        },
    ];
    run("edges under limits", &specs, trials, &["p99 < 2s", "errors < 0.1%"])
}

/// A system that follows the Universal Scalability Law (20/s for one user, maximum at 44), at ever more users.
pub fn scaling(trials: u32) -> RunRecord {
    let of = |users: u64| {
        let n = users as f64;
        let per_s = 20.0 * n / (1.0 + 0.05 * (n - 1.0) + 0.0005 * n * (n - 1.0));
        let p50_ms = 1e3 * n / per_s / 1.1;
        Spec { seconds: 5, ..spec(&format!("{users} users"), users, per_s.round() as u64, p50_ms) }
    };
    let specs: Vec<Spec> = [1, 2, 4, 8, 16, 32, 64, 128].map(of).into();
    run("users until it gives", &specs, trials, &["p99 < 5s"])
}

/// The cases of a matrix: every combination of the values of its axes, the last axis fastest.
pub fn matrix(
    axes: &[(&str, &[&str])],
    trials: u32,
    expect: &[&str],
    of: impl Fn(&[usize]) -> Spec,
) -> RunRecord {
    let mut points: Vec<Vec<usize>> = vec![Vec::new()];
    for (_, values) in axes {
        let longer = |point: Vec<usize>| (0..values.len()).map(move |i| [point.as_slice(), &[i]].concat());
        points = points.into_iter().flat_map(longer).collect();
    }
    let values = |point: &[usize]| -> Vec<(String, String)> {
        axes.iter().zip(point).map(|((axis, all), i)| ((*axis).to_owned(), all[*i].to_owned())).collect()
    };
    let name = |point: &[usize]| {
        values(point).iter().map(|(axis, value)| format!("{axis}={value}")).collect::<Vec<_>>().join(", ")
    };
    let specs: Vec<Spec> = points.iter().map(|p| Spec { name: name(p), ..of(p) }).collect();
    let mut record = run("matrix", &specs, trials, expect);
    record.manifest.axes = axes.iter().map(|(axis, _)| (*axis).to_owned()).collect();
    for ((case, facts), point) in record.cases.iter_mut().zip(&mut record.manifest.cases).zip(&points) {
        case.facts.values = values(point);
        facts.values = values(point);
    }
    record
}

/// Writes a record as a run would; trials selected by `is_killed` (index of the case and number) as if loadlab had
/// been killed in them.
pub fn write_record(dir: &Path, record: &RunRecord, is_killed: impl Fn(usize, u32) -> bool) {
    let writer = RunWriter::create(dir, &record.manifest).expect("a new folder");
    for (c, case) in record.cases.iter().enumerate() {
        for trial in &case.trials {
            let out = writer.trial(&case.facts.dir, trial.number).expect("a new trial");
            let killed = is_killed(c, trial.number);
            for tick in trial.ticks.iter().take(if killed { 3 } else { usize::MAX }) {
                out.tick(tick).expect("a tick");
                let mut series = Series::default();
                for (name, histogram) in series.all_mut() {
                    let of = trial.intervals.iter().filter(|i| i.is(name) && i.from_s == tick.from_s);
                    of.for_each(|i| i.merge_into(histogram));
                }
                out.interval("main", tick.from_s, 1.0, &series, &BTreeMap::new()).expect("an interval");
            }
            out.samples(&trial.samples.unpacked()).expect("samples");
            trial.events.iter().for_each(|e| out.event(e).expect("an event"));
            trial.examples.iter().for_each(|e| out.example(e).expect("an example"));
            if let (Some(summary), false) = (&trial.summary, killed) {
                out.summary(summary).expect("a summary");
            }
            let _ = std::fs::remove_dir_all(out.dir().join("logs"));
        }
    }
}

/// Cases of ever more users on a system of this many components under limits, for this many seconds each.
pub fn large(cases: u64, seconds: u64, components: usize) -> RunRecord {
    let of = |i: usize| Component {
        cpu_limit: Some(0.5),
        memory_limit: Some(512 << 20),
        ..component(&format!("node-{i}"), 0.05 * (i % 9) as f64 + 0.1, 300 << 20)
    };
    let components: Vec<Component> = (0..components).map(of).collect();
    let specs: Vec<Spec> = (1..=cases)
        .map(|i| Spec {
            seconds,
            components: components.clone(),
            fail_every: if i > 9 { 30 } else { 0 },
            probes: true,
            ..spec(&format!("{} users", 10 * i), 10 * i, 60 + i, 4.0 * i as f64)
        })
        .collect();
    run("users until it gives", &specs, 1, &["p99 < 200ms"])
}

/// The report of a record in memory.
pub fn compose(record: &RunRecord) -> Document {
    loadlab_report::compose(&DiagnosedRun::from(record.clone()))
}
