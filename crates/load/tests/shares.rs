//! A load shared by several processes is the load that one would send: the same requests at the same times, to the
//! byte.

use std::collections::{BTreeMap, VecDeque};

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::journey::order::StepOrder;
use loadlab_load::journey::rows::{Dealing, Rows};
use loadlab_load::journey::script::{Deal, Journey};
use loadlab_load::measure::delta::{Delta, Sizes};
use loadlab_load::random::Random;
use loadlab_load::run::{
    Origin, PartContent, PartReport, Second, due_between, merge, simulate, simulate_part,
};
use loadlab_load::spec::{JoinPoint, OtherThreads};
use loadlab_load::{Arrivals, Control, LoadEvent, LoadResult, LoadSpec, Model, Until, WhenBehind};
use loadlab_record::counts::load::Counts;
use loadlab_record::spec::escape::Escape;
use loadlab_record::spec::schedule::{Stage, Think};
use loadlab_record::spec::variable::Variable;
use proptest::prelude::*;

use crate::support;
use crate::support::steps::{plain_journey, step};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Answers each request after a fixed time, and notes when each arrived.
#[derive(Default)]
struct Noting(Vec<(u64, Vec<u8>)>);

impl Server for Noting {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        self.0.push((at_ns, bytes.to_vec()));
        vec![(at_ns + 7 * MS, Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()))]
    }
}

/// What a load, or one process's part of it, sends: each request and its time, in order, and the total counts.
fn sent(spec: &LoadSpec) -> (Vec<(u64, Vec<u8>)>, Counts) {
    let mut sim = Sim::new(Noting::default());
    let outcome = simulate(spec, &Control::default(), &mut sim, &mut |_| {}).unwrap();
    let counts = outcome.measured.counts;
    counts.balance().unwrap();
    let mut sent = sim.into_server().0;
    sent.sort();
    (sent, counts)
}

/// What processes with these numbers of threads send in total.
fn sent_together(spec: &LoadSpec, threads: &[usize]) -> (Vec<(u64, Vec<u8>)>, Counts) {
    let (mut sent_by_all, mut sum) = (Vec::new(), Counts::default());
    let all: u64 = threads.iter().map(|t| *t as u64).sum();
    let mut before = 0;
    for threads in threads {
        let other_threads = OtherThreads { before, after: all - before - *threads as u64 };
        let (part, counts) = sent(&LoadSpec { threads: *threads, other_threads, ..spec.clone() });
        sent_by_all.extend(part);
        sum.merge(&counts);
        before += *threads as u64;
    }
    sent_by_all.sort();
    (sent_by_all, sum)
}

fn open(rate_per_s: f64, arrivals: Arrivals) -> Model {
    Model::Open { rate_per_s, arrivals, when_behind: WhenBehind::Queue, max_in_flight: 10_000 }
}

/// Requests name their user and contain a random part; with weights, each round is one of two steps.
fn journey(is_weighted: bool, sessions: bool) -> Journey {
    let mut scripts = vec![
        step("GET /a/{u}/{i} HTTP/1.1\r\nHost: a", None),
        step("POST /b HTTP/1.1\r\nHost: b", Some("{u} ")),
    ];
    for script in &mut scripts {
        let fields = &mut script.message.as_mut().unwrap().fields;
        fields.push_text(b"X-Random: ", Escape::Raw).unwrap();
        fields.push(Variable::Uuid, Escape::Raw);
        fields.push_text(b"\r\n", Escape::Raw).unwrap();
    }
    scripts[1].think = Some(Think::Uniform(MS, 30 * MS));
    let step_order = StepOrder {
        round: if is_weighted { 1 } else { 2 },
        rounds: if sessions { 3 } else { u64::MAX },
        weights: if is_weighted { vec![3, 10] } else { vec![] },
        ..StepOrder::default()
    };
    Journey { step_order, scripts, sessions, ..plain_journey() }
}

fn with_journey(spec: LoadSpec, journey: Journey) -> LoadSpec {
    LoadSpec { requests: vec![support::get(), support::get()], journey: Some(Box::new(journey)), ..spec }
}

fn plain(model: Model, until: Until) -> LoadSpec {
    LoadSpec::new(model, until, vec![support::get()], support::address())
}

/// Loads of all models, by name.
fn loads(users: u64, rate_per_s: f64, seed: u64) -> Vec<(&'static str, LoadSpec)> {
    let second = Until::Elapsed(S);
    let poisson = open(rate_per_s, Arrivals::Poisson);
    let closed = Model::Closed { users };
    let stages = |most: f64| {
        vec![
            Stage { from: 0.0, to: most, over_ns: S / 2 },
            Stage { from: most, to: most / 3.0, over_ns: S / 4 },
            Stage { from: 1.0, to: 1.0, over_ns: S / 4 },
        ]
    };
    let thinks = Think::Exponential(20 * MS);
    let staged = |model: Model, most| LoadSpec { stages: stages(most), ..plain(model, second) };
    let mut loads = vec![
        ("rate", plain(open(rate_per_s, Arrivals::Constant), second)),
        ("arrivals at random", plain(poisson.clone(), second)),
        ("a number of arrivals", plain(poisson.clone(), Until::Requests(users * 3 + 1))),
        ("ramp of a rate", LoadSpec { ramp_ns: S / 3, ..plain(poisson.clone(), second) }),
        ("stages of a rate", staged(open(rate_per_s, Arrivals::Poisson), rate_per_s)),
        ("users", plain(closed.clone(), second)),
        ("users who think", LoadSpec { think: thinks, ..plain(closed.clone(), second) }),
        ("paced users", LoadSpec { pace_ns: Some(40 * MS), ..plain(closed.clone(), second) }),
        (
            "paced users and a ramp",
            LoadSpec { pace_ns: Some(70 * MS), ramp_ns: S / 2, ..plain(closed.clone(), second) },
        ),
        ("stages of users", LoadSpec { think: thinks, ..staged(closed.clone(), users as f64) }),
        ("repeats of users", LoadSpec { think: thinks, ..plain(closed.clone(), Until::Repeats(5)) }),
        ("journeys of users", with_journey(plain(closed.clone(), second), journey(false, false))),
        ("weighted journeys of users", with_journey(plain(closed, second), journey(true, false))),
        ("sessions", with_journey(plain(poisson.clone(), second), journey(false, true))),
        ("weighted sessions", with_journey(plain(poisson, second), journey(true, true))),
    ];
    loads.iter_mut().for_each(|(_, spec)| spec.seed = seed);
    loads
}

/// The seconds a load reports, and its outcome.
fn whole(spec: &LoadSpec) -> (Vec<Second>, LoadResult) {
    let mut seconds = Vec::new();
    let mut sim = Sim::new(Noting::default());
    let outcome =
        simulate(spec, &Control::default(), &mut sim, &mut |event| keep(event, &mut seconds)).unwrap();
    (seconds, outcome)
}

/// The load split across processes with these numbers of threads, their reports merged in an order drawn from the seed.
fn merged(spec: &LoadSpec, threads: &[usize], seed: u64) -> (Vec<Second>, LoadResult) {
    let mut random = Random::new(seed);
    let mut reports: Vec<VecDeque<PartReport>> = Vec::new();
    let all: u64 = threads.iter().map(|t| *t as u64).sum();
    let mut before = 0;
    for (part, threads) in threads.iter().enumerate() {
        let other_threads = OtherThreads { before, after: all - before - *threads as u64 };
        before += *threads as u64;
        let spec = LoadSpec { threads: *threads, other_threads, ..spec.clone() };
        let mut own = VecDeque::new();
        let mut sim = Sim::new(Noting::default());
        let end = simulate_part(&spec, &Control::default(), &mut sim, &mut |delta| {
            let mut copy = Delta::new(Sizes { worker: 0, tags: 1, numbers: 0, warmup: spec.warmup_ns > 0 });
            std::mem::swap(&mut copy, delta);
            own.push_back(PartReport { part, content: PartContent::Counted(Box::new(copy)) });
        });
        own.push_back(PartReport { part, content: PartContent::Ended(Box::new(end.unwrap())) });
        reports.push(own);
    }
    let mut in_some_order = std::iter::from_fn(|| {
        let left: Vec<usize> = (0..reports.len()).filter(|part| !reports[*part].is_empty()).collect();
        let part = left.get(random.next_u64() as usize % left.len().max(1))?;
        reports[*part].pop_front()
    });
    let origin = Origin { start_ns: 0, zero_ns: 0, batch: 0, first_id: 0 };
    let mut seconds = Vec::new();
    let outcome = merge(spec, origin, threads.len(), &mut |_| in_some_order.next(), &mut |event| {
        keep(event, &mut seconds)
    });
    (seconds, outcome)
}

fn keep(event: LoadEvent<'_>, seconds: &mut Vec<Second>) {
    if let LoadEvent::Second(second) = event {
        seconds.push(second.clone());
    }
}

/// Seconds before it joined are not among its reports: others have reported them.
#[test]
fn one_that_joins_later_reports_from_then_on() {
    let at_ns = 3 * S + 400 * MS;
    let mut spec = plain(open(100.0, Arrivals::Constant), Until::Elapsed(5 * S));
    spec.joins = JoinPoint { at_ns, begun: 0 };
    let mut reported = Vec::new();
    simulate_part(&spec, &Control::default(), &mut Sim::new(Noting::default()), &mut |delta| {
        reported.push((delta.from_ns..delta.until_ns, delta.counts.due));
    })
    .unwrap();
    assert_eq!(Some(reported[0].1), due_between(&spec, at_ns..4 * S), "{reported:?}");
    assert_eq!(reported[0].0, 3 * S..4 * S);
    let all: u64 = reported.iter().map(|(_, due)| due).sum();
    assert_eq!(Some(all), due_between(&spec, at_ns..5 * S), "{reported:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn together_processes_send_what_one_would(
        users in 1u64..40, rate in 1.0f64..400.0, seed: u64, threads in prop::collection::vec(1usize..4, 1..6)
    ) {
        for (name, spec) in loads(users, rate, seed) {
            let (alone, counts) = sent(&spec);
            let (together, sum) = sent_together(&spec, &threads);
            // At a low rate it may be that nothing arrives: in the stages the chance is a tenth at 5/s, and less than
            // one in a thousand million at 50/s.
            prop_assert!(!alone.is_empty() || rate < 50.0, "{}", name);
            prop_assert_eq!(alone, together, "{} over {:?}", name, &threads);
            prop_assert_eq!(counts, sum, "{} over {:?}", name, &threads);
        }
    }

    /// Every count, histogram and second is identical, to the bit. Only peaks are upper bounds: each process reports
    /// its peak within a second, and two processes may have peaked at different times in it.
    #[test]
    fn merged_parts_are_the_whole(
        users in 1u64..40, rate in 1.0f64..400.0, seed: u64, threads in prop::collection::vec(1usize..4, 1..6),
        has_warmup: bool
    ) {
        for (name, mut spec) in loads(users, rate, seed) {
            spec.warmup_ns = if has_warmup { 300 * MS } else { 0 };
            spec.tags = vec!["all".into()];
            spec.requests.iter_mut().for_each(|request| request.tags = vec![0]);
            let all = LoadSpec { threads: threads.iter().sum(), ..spec.clone() };
            let ((seconds, mut whole), (merged_seconds, mut merged)) = (whole(&all), merged(&spec, &threads, seed));
            let (least, most) = (whole.measured.connections, merged.measured.connections);
            prop_assert!(most.peak >= least.peak && most.in_flight_peak >= least.in_flight_peak, "{}", name);
            for outcome in [&mut whole, &mut merged] {
                (outcome.measured.connections.peak, outcome.measured.connections.in_flight_peak) = (0, None);
            }
            prop_assert_eq!(&whole.measured, &merged.measured, "{} over {:?}", name, &threads);
            prop_assert_eq!(whole.cut_short, merged.cut_short);
            prop_assert_eq!(seconds.len(), merged_seconds.len(), "{} over {:?}", name, &threads);
            for (one, other) in seconds.iter().zip(&merged_seconds) {
                prop_assert_eq!(&one.tick, &other.tick, "{} over {:?}", name, &threads);
                prop_assert_eq!(&one.window, &other.window);
                prop_assert_eq!(&one.before, &other.before);
                prop_assert_eq!(&one.by_tag, &other.by_tag);
            }
        }
    }

    /// A report's memory is used again for the next one, which must not repeat anything.
    #[test]
    fn each_id_is_reported_once(users in 1u64..40, rate in 50.0f64..400.0, seed: u64) {
        for (name, mut spec) in loads(users, rate, seed).into_iter().filter(|(_, spec)| spec.journey.is_some()) {
            spec.until = Until::Elapsed(3 * S);
            let journey = spec.journey.as_mut().unwrap();
            journey.scripts.iter_mut().for_each(|script| script.has_id = true);
            let (mut ids, mut ok) = (Vec::new(), 0);
            simulate_part(&spec, &Control::default(), &mut Sim::new(Noting::default()), &mut |delta| {
                ids.extend_from_slice(&delta.ids.accepted);
                ok += delta.counts.ok;
            })
            .unwrap();
            let all = ids.len();
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!((all, ids.len()), (ok as usize, ok as usize), "{}", name);
        }
    }

    /// A process that replaces another sends exactly what the other would have sent from then on, and what neither of
    /// them sent is known.
    #[test]
    fn one_that_joins_later_sends_the_rest(
        users in 1u64..40, rate in 1.0f64..400.0, seed: u64, at_ns in 0u64..S,
        threads in prop::collection::vec(1usize..4, 1..6), late in 0usize..6
    ) {
        let late = late % threads.len();
        let fixed = |name: &str| name.contains("rate") || name.contains("random") || name.contains("paced users");
        for (name, spec) in loads(users, rate, seed).into_iter().filter(|(name, _)| fixed(name)) {
            let before: usize = threads[..late].iter().sum();
            let after = threads[late + 1..].iter().sum::<usize>();
            let other_threads = OtherThreads { before: before as u64, after: after as u64 };
            let part = LoadSpec { threads: threads[late], other_threads, ..spec.clone() };
            let (whole, _) = sent(&part);
            let (rest, counts) = sent(&LoadSpec { joins: JoinPoint { at_ns, begun: 0 }, ..part.clone() });
            let (earlier, later): (Vec<_>, Vec<_>) = whole.into_iter().partition(|(at, _)| *at < at_ns);
            prop_assert_eq!(&later, &rest, "{} from {}", name, at_ns);
            prop_assert_eq!(counts.due, rest.len() as u64);
            if let Some(missing) = due_between(&part, 0..at_ns) {
                prop_assert_eq!(missing, earlier.len() as u64, "{} from {}", name, at_ns);
            }
        }
    }

    /// Who gets which row depends on who comes first; together they use each row once.
    #[test]
    fn each_row_of_a_feed_is_used_once(rows in 1u64..60, threads in prop::collection::vec(1usize..4, 1..6)) {
        let text = (0..rows).map(|n| format!("row{n}\n")).collect::<String>();
        let mut journey = journey(false, false);
        journey.scripts.truncate(1);
        journey.scripts[0] = step("GET /{a} HTTP/1.1\r\nHost: a", None);
        journey.step_order.round = 1;
        journey.feeds = vec![Rows::from_csv(format!("name\n{text}").as_bytes(), &["name".to_owned()]).unwrap()];
        journey.dealings = vec![Deal { dealing: Dealing { is_once: true, ..Dealing::default() }, per_user: false }];
        let spec = with_journey(plain(Model::Closed { users: 30 }, Until::Elapsed(S)), journey);
        let (together, _) = sent_together(&spec, &threads);
        let mut used: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        together.into_iter().for_each(|(_, bytes)| *used.entry(bytes).or_default() += 1);
        prop_assert_eq!(used.len() as u64, rows);
        prop_assert!(used.values().all(|times| *times == 1));
    }
}
