//! Where two cases differ: in which steps, loads, batches, components and probes, and how seldom that is wrong.

use loadlab_analysis::comparison::compare::{Comparison, Options, Row, Side, compare};
use loadlab_analysis::comparison::design::Design;
use loadlab_analysis::comparison::interval::{Call, EquivalenceBounds, Method, Samples, judge_with};
use loadlab_analysis::{TrialInput, summarise};
use loadlab_record::documents::manifest::UntilCertain;
use loadlab_record::documents::summary::{
    ComponentSummary, Distribution, LoadSummary, ProbeSummary, Requests, Summary, TagSummary, Verdict,
};

use crate::chance::Chance;

/// Whether `cargo xtask long` built the tests.
const IS_LONG: bool = option_env!("LOADLAB_TEST_LONG").is_some();

/// By how much the other's figures exceed those of the base, as a share.
#[derive(Clone, Copy, Default)]
struct Shift {
    order: f64,
    db: f64,
    depth: f64,
    second_batch: f64,
}

fn times(p99: f64) -> Distribution {
    Distribution { count: 10_000, p50: Some(p99 / 4.0), p99: Some(p99), ..Distribution::default() }
}

fn trial(chance: &mut Chance, shift: Shift) -> Summary {
    let mut noisy = |value: f64, shift: f64| value * (1.0 + shift) * (0.01 * chance.normal()).exp();
    let mut summary = summarise(TrialInput::default());
    summary.doubts.clear();
    summary.verdict = Verdict::None;
    let requests = Requests { started: 10_000, ok: 10_000, ..Requests::default() };
    summary.requests = requests.clone();
    summary.rate_per_s.ok = noisy(1000.0, 0.0);
    let order = noisy(40.0, shift.order);
    summary.response_ms = times(order.max(noisy(30.0, shift.second_batch)));
    for (name, p99) in [("POST /order", order), ("GET /items", noisy(20.0, 0.0)), ("GET /", noisy(10.0, 0.0))]
    {
        let tag = TagSummary { requests: requests.clone(), response_ms: times(p99), ..TagSummary::default() };
        summary.by_tag.insert(name.into(), tag);
    }
    for (batch, p99) in [(1, noisy(25.0, 0.0)), (2, noisy(25.0, shift.second_batch))] {
        let of =
            LoadSummary { requests: requests.clone(), response_ms: times(p99), ..LoadSummary::default() };
        summary.by_batch.insert(batch, of);
    }
    for (name, cpu_s) in [("db", noisy(2.0, shift.db)), ("app", noisy(1.0, 0.0))] {
        let component = ComponentSummary { cpu_s: Some(cpu_s), ..ComponentSummary::default() };
        summary.components.insert(name.into(), component);
    }
    let depth = ProbeSummary { mean: Some(noisy(100.0, shift.depth)), ..ProbeSummary::default() };
    summary.probes.insert("depth".into(), depth);
    summary.drain_s = Some(noisy(4.0, shift.depth));
    summary
}

fn trials(seed: u64, rounds: u32, shift: Shift) -> Vec<Summary> {
    let mut chance = Chance::new(seed);
    (0..rounds).map(|_| trial(&mut chance, shift)).collect()
}

fn side<'a>(name: &str, trials: &'a [Summary]) -> Side<'a> {
    Side::of(name, (1..).zip(trials).map(|(round, summary)| (round, Some(summary))))
}

fn compared(shift: Shift, how: impl Fn(&Side<'_>, &Side<'_>) -> Comparison) -> Comparison {
    let (base, other) = (trials(1, 24, Shift::default()), trials(2, 24, shift));
    how(&side("old", &base), &side("new", &other))
}

fn usual(method: Method) -> impl Fn(&Side<'_>, &Side<'_>) -> Comparison {
    move |base, other| compare(base, other, method, &[], Options::default())
}

fn until_certain(base: &Side<'_>, other: &Side<'_>) -> Comparison {
    let until = UntilCertain { within: 0.02, budget_s: None, seed: 7, ended: None };
    Design::new(&until, 24, 1, &[]).compare(base, other, None, Options::default())
}

fn called(rows: &[Row]) -> Vec<(&str, Call)> {
    rows.iter().map(|row| (&*row.metric.id, row.call)).collect()
}

fn differing(comparison: &Comparison) -> Vec<(String, Call)> {
    comparison.differing_details().map(|row| (row.metric.title(), row.call)).collect()
}

/// What a control hides is not looked for in parts either.
#[test]
fn parts_of_a_figure_that_the_control_hides_are_no_findings() {
    let order = Shift { order: 0.12, db: 0.3, ..Shift::default() };
    let (base, other) = (trials(1, 24, Shift::default()), trials(2, 24, order));
    let alone = compare(&side("old", &base), &side("new", &other), Method::Paired, &[], Options::default());
    let parts =
        |comparison: &Comparison| differing(comparison).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let all = ["p50 of POST /order", "p99 of POST /order", "CPU per request of db"];
    assert_eq!(parts(&alone), all);
    let beside = |control: &[Summary]| {
        alone.clone().with_control(&side("old", &base), &side("old (control)", control))
    };
    assert_eq!(parts(&beside(&trials(3, 24, Shift::default()))), all, "a quiet one");
    // The second name alone makes orders slower, and leaves the CPU alone.
    let slower = beside(&trials(3, 24, Shift { order: 0.2, ..Shift::default() }));
    let call = |id: &str| slower.rows.iter().find(|row| row.metric.id == id).map(|row| row.call);
    assert_eq!((call("p99"), call("cpu_per_request")), (Some(Call::CannotTell), Some(Call::Worse)));
    assert_eq!(parts(&slower), ["CPU per request of db"]);
}

#[test]
fn a_difference_is_found_in_the_part_that_has_it() {
    let order = Shift { order: 0.12, ..Shift::default() };
    for found in [
        compared(order, usual(Method::Paired)),
        compared(order, usual(Method::Welch)),
        compared(order, until_certain),
    ] {
        let name = |name: &str| (name.to_owned(), Call::Worse);
        assert_eq!(
            differing(&found),
            [name("p50 of POST /order"), name("p99 of POST /order")],
            "{:?}: {:?}",
            found.method,
            called(&found.details)
        );
        let p99 = found.details.iter().find(|row| row.metric.id == "tag.POST /order.p99").expect("tested");
        let effect = p99.effect.expect("a ratio");
        let interval = effect.interval.expect("an interval");
        assert!(interval.low < 1.12 && interval.high > 1.12 && interval.low > 1.05, "{effect:?}");
        // Parts of figures that do not differ are not tested: no CPU of a component, while p99 of each batch is.
        let ids: Vec<&str> = called(&found.details).iter().map(|(id, _)| *id).collect();
        assert!(ids.contains(&"batch.2.p99") && !ids.contains(&"db.cpu_per_request"), "{ids:?}");
    }
}

#[test]
fn components_probes_batches_and_the_drain_are_looked_at() {
    let all = Shift { order: 0.0, db: 0.3, depth: 0.8, second_batch: 0.9 };
    for found in [compared(all, usual(Method::Paired)), compared(all, until_certain)] {
        let rows = called(&found.rows);
        assert!(rows.contains(&("drain", Call::Worse)), "{rows:?}");
        assert!(rows.contains(&("cpu_per_request", Call::Worse)), "{rows:?}");
        let name = |name: &str, call| (name.to_owned(), call);
        let parts = differing(&found);
        for part in [
            name("p99 of batch 2", Call::Worse),
            name("CPU per request of db", Call::Worse),
            // It is not known whether more of a probe is better.
            name("mean of depth", Call::Changed),
        ] {
            assert!(parts.contains(&part), "{part:?} is not in {parts:?}");
        }
        assert!(
            !parts.iter().any(|(title, _)| title.contains("app") || title.contains("batch 1")),
            "{parts:?}"
        );
    }
}

#[test]
fn where_nothing_differs_nothing_is_looked_for() {
    for found in
        [compared(Shift::default(), usual(Method::Paired)), compared(Shift::default(), until_certain)]
    {
        assert!(found.details.is_empty(), "{:?}", called(&found.details));
    }
}

#[test]
fn one_step_or_one_component_is_the_whole() {
    let alone = |mut trials: Vec<Summary>| {
        for trial in &mut trials {
            trial.by_tag.retain(|name, _| name == "POST /order");
            trial.by_batch.clear();
            trial.probes.clear();
        }
        trials
    };
    let (base, other) = (
        alone(trials(1, 8, Shift::default())),
        alone(trials(2, 8, Shift { order: 0.5, ..Shift::default() })),
    );
    let found = usual(Method::Paired)(&side("old", &base), &side("new", &other));
    assert!(called(&found.rows).contains(&("p99", Call::Worse)));
    assert!(found.details.is_empty(), "{:?}", called(&found.details));
}

/// Two figures of which one differs, and forty details of it that do not.
#[test]
fn details_raise_few_alarms_however_many_there_are() {
    let details_of = [(0..40).collect::<Vec<usize>>(), Vec::new()];
    let same = EquivalenceBounds { low: -0.02, high: 0.02 };
    let mut alarms = 0;
    for seed in 0..2000 {
        let mut chance = Chance::new(seed);
        let mut samples = |shift: f64| {
            let mut of = |shift: f64| (0..6).map(|_| shift + 0.02 * chance.normal()).collect::<Vec<f64>>();
            Some(Samples { base: of(0.0), other: of(shift) })
        };
        let mut all = vec![samples(0.5), samples(0.0)];
        all.extend((0..42).map(|_| samples(0.0)));
        let judged = judge_with(&all, &details_of, &[40, 41], Method::Paired, 0.95);
        let call = |place: usize| judged[place].map_or(Call::CannotTell, |j| j.call(same, true));
        assert_eq!(call(0), Call::Worse, "seed {seed}");
        alarms += usize::from((1..44).any(|place| matches!(call(place), Call::Better | Call::Worse)));
    }
    assert!(alarms <= 123, "{alarms} of 2000");
    // The tests are as strict as they have to be, and not much stricter.
    assert!(alarms >= 40, "{alarms} of 2000");
}

/// As above, for trials until it is certain, looked at again and again: one step differs, and any other part that is
/// ever called is an alarm.
#[test]
fn details_raise_few_alarms_at_any_stop() {
    let (sessions, most) = if IS_LONG { (60, 8) } else { (1, 1) };
    let (mut alarms, mut found) = (0, 0);
    for seed in 0..sessions {
        let shift = Shift { order: 0.12, ..Shift::default() };
        let (base, other) = (trials(2 * seed, 24, Shift::default()), trials(2 * seed + 1, 24, shift));
        let until = UntilCertain { within: 0.02, budget_s: None, seed, ended: None };
        let design = Design::new(&until, 24, 1, &[]);
        let (mut is_wrong, mut is_found) = (false, false);
        for rounds in if IS_LONG { [12, 24].as_slice() } else { [24].as_slice() } {
            let (base, other) = (side("old", &base[..*rounds]), side("new", &other[..*rounds]));
            let compared = design.compare(&base, &other, None, Options::default());
            let (right, wrong): (Vec<_>, Vec<_>) =
                differing(&compared).into_iter().partition(|(title, _)| title.ends_with("POST /order"));
            is_wrong |= !wrong.is_empty();
            is_found |= !right.is_empty();
        }
        alarms += usize::from(is_wrong);
        found += usize::from(is_found);
    }
    assert!(alarms <= most, "{alarms} of {sessions}");
    assert!(found * 10 >= sessions as usize * 9, "the step was found in {found} of {sessions}");
    eprintln!("details: {alarms} of {sessions}");
}
