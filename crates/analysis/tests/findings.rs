//! Findings over cases and trials, and summaries of trials that were cut off.

use std::collections::BTreeMap;
use std::path::PathBuf;

use loadlab_analysis::cases::case::Spread;
use loadlab_analysis::cases::metric::{self, Better, Few, Value};
use loadlab_analysis::findings::{Findings, findings};
use loadlab_analysis::{LoadRun, TrialInput, partial, summarise};
use loadlab_record::counts::hlog::Interval;
use loadlab_record::counts::load::{Bytes, Counts, InWindow, Measured, Series, Tick, TickMs, Window};
use loadlab_record::counts::quantile::Estimate;
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::manifest::{
    CaseFacts, ComponentFacts, DerivedFacts, Host, Manifest, RunEnded, Writer,
};
use loadlab_record::documents::summary::{Ended, LoadFacts, LoadModel, Summary, Verdict};
use loadlab_record::expr::Expr;
use loadlab_record::store::{CaseRecord, RunRecord, TrialRecord};
use loadlab_record::watch::packed_samples::PackedSamples;
use loadlab_record::{Failure, Histogram};

use Value::{Between, Known, Nothing, Over};

fn summary(per_s: u64, expect: &[&str]) -> Summary {
    let n = per_s * 10;
    let mut m = Measured {
        counts: Counts { due: n, started: n, ok: n, ..Counts::default() },
        window: Window { from_s: 0.0, to_s: 10.0 },
        in_window: InWindow { due: n, started: n, ok: n },
        elapsed_s: 10.0,
        ..Measured::default()
    };
    m.series.response_ok.record_n(10_000_000, n);
    let expect: Vec<Expr> = expect.iter().map(|e| Expr::parse(e).unwrap()).collect();
    summarise(TrialInput {
        agents: Vec::new(),
        facts: LoadFacts { model: LoadModel::Closed, ..LoadFacts::default() },
        loads: &[LoadRun { load: "main".into(), batch: 0, at_s: 0.0, measured: m }],
        expect: &expect,
        ..TrialInput::default()
    })
}

fn trial(number: u32, summary: Option<Summary>) -> TrialRecord {
    TrialRecord {
        is_search: false,
        number,
        dir: PathBuf::new(),
        summary,
        ticks: Vec::new(),
        samples: PackedSamples::default(),
        events: Vec::new(),
        examples: Vec::new(),
        series: Series::default(),
        intervals: Vec::new(),
        evidence: Vec::new(),
        profile: None,
    }
}

fn run(planned: u32, cases: Vec<Vec<TrialRecord>>) -> RunRecord {
    let facts =
        |i: usize| CaseFacts { name: format!("case {i}"), dir: format!("case-{i}"), ..CaseFacts::default() };
    let manifest = Manifest {
        record: 2,
        loadlab: "0.1.0".into(),
        name: "test".into(),
        plan_path: "plan.yaml".into(),
        plan_text: String::new(),
        plan_sha256: String::new(),
        options: Vec::new(),
        given: BTreeMap::new(),
        started: String::new(),
        ended: None,
        how: RunEnded::Complete,
        writer: Writer { pid: 1, start_ticks: 1 },
        host: Host::default(),
        words: Vec::new(),
        components: Vec::new(),
        axes: vec!["users".into()],
        cases: (0..cases.len()).map(facts).collect(),
        trials: planned,
        until_certain: None,
        revisions: Vec::new(),
        commit: None,
        expect: vec!["p50 < 20ms".into()],
        figures: Vec::new(),
        layout: None,
        derive: Vec::new(),
        quick: false,
        search: None,
        why: None,
    };
    let cases =
        cases.into_iter().enumerate().map(|(i, trials)| CaseRecord { facts: facts(i), trials }).collect();
    RunRecord { dir: PathBuf::new(), manifest, cases, notes: Vec::new() }
}

fn verdicts(findings: &Findings<'_>) -> Vec<Verdict> {
    findings.cases.iter().map(|c| c.verdict).collect()
}

#[test]
fn the_median_is_a_trial_and_what_is_censored_is_above_all() {
    let check = |values: &[Value], median, min, max| {
        let s = Spread::of(values.to_vec(), Better::Less);
        assert_eq!((s.median, s.min, s.max), (median, min, max), "{values:?}");
    };
    check(&[], Nothing, None, Nothing);
    check(&[Known(3.0), Known(1.0), Known(2.0)], Known(2.0), Some(1.0), Known(3.0));
    check(&[Known(4.0), Known(1.0)], Known(4.0), Some(1.0), Known(4.0));
    check(&[Known(4.0), Over(1.0)], Over(1.0), Some(4.0), Over(1.0));
    check(&[Known(1.0), Over(0.5), Known(2.0)], Known(2.0), Some(1.0), Over(0.5));
    check(&[Over(3.0), Over(2.0), Known(9.0)], Over(2.0), Some(9.0), Over(3.0));
    // Estimates count at their likely value: the trials with fewer requests are often the slower ones.
    let few = |value: f64| {
        let estimate = Estimate { value: Some(value), low: Some(value / 2.0), high: None };
        Between(Few { estimate, largest: Some(9.0), needed: 1000 })
    };
    check(&[few(3.0), few(1.0), few(2.0)], few(2.0), None, few(2.0));
    check(&[few(3.0), Known(5.0)], Known(5.0), Some(5.0), Known(5.0));
    check(&[Known(1.0), few(3.0), few(2.0)], few(2.0), None, few(2.0));
    check(&[Known(1.0), Known(2.0), few(3.0)], Known(2.0), Some(1.0), Known(2.0));
    // Of older records, only the number of samples is known.
    let unknown = Between(Few { estimate: Estimate::default(), largest: None, needed: 1000 });
    check(&[unknown, Known(5.0), unknown], Known(5.0), Some(5.0), Known(5.0));
    check(&[unknown], unknown, None, unknown);
}

/// One rule for every figure, whichever trials the values come from: its own median, for an even number the worse
/// one.
#[test]
fn of_an_even_number_each_figure_is_the_worse_of_the_middle_two() {
    let of = |per_s: u64, p50: f64| {
        let mut s = summary(per_s, &[]);
        s.response_ms.p50 = Some(p50);
        s.requests.in_flight = per_s;
        s
    };
    // The slower trial has the better latency: neither figure is taken from the other trial.
    for trials in
        [vec![of(100, 2.0), of(110, 4.0)], vec![of(90, 1.0), of(110, 4.0), of(100, 2.0), of(120, 5.0)]]
    {
        let record = run(2, vec![(1..).zip(trials).map(|(n, s)| trial(n, Some(s))).collect()]);
        let record = record.into();
        let found = findings(&record);
        let median = |id: &str| found.cases[0].spread(&metric::named(id).unwrap()).median;
        assert_eq!((median("goodput"), median("p50")), (Known(100.0), Known(4.0)));
        // the more, the better …
        assert_eq!(median("transactions"), Known(1000.0));
        // … the less, the better
        assert_eq!(median("in_flight"), Known(110.0));
    }
}

#[test]
fn figures_are_of_valid_trials_as_long_as_there_is_one() {
    let goodput = |trials: Vec<Summary>| {
        let record = run(3, vec![(1..).zip(trials).map(|(n, s)| trial(n, Some(s))).collect()]);
        let record = record.into();
        let found = findings(&record);
        let case = &found.cases[0];
        (case.spread(&metric::named("goodput").unwrap()).values, case.left_out())
    };
    let marked = |per_s, verdict, ended| Summary { verdict, ended, ..summary(per_s, &[]) };
    let good = || summary(100, &[]);
    let invalid = || marked(50, Verdict::Invalid, Ended::Complete);
    let broke = || marked(10, Verdict::Fail, Ended::Broken);
    let (values, left_out) = goodput(vec![good(), invalid(), broke()]);
    assert_eq!(values, [Known(100.0)]);
    assert_eq!(left_out, ["trial 2 of “case 0” is INVALID", "trial 3 of “case 0” did not finish"]);
    assert_eq!(goodput(vec![invalid(), broke()]).0, [Known(50.0)]);
    assert_eq!(goodput(vec![broke()]), (vec![Known(10.0)], vec![]));
    // A missed expectation does not disqualify a figure.
    assert_eq!(
        goodput(vec![marked(70, Verdict::Fail, Ended::Complete), good()]).0,
        [Known(70.0), Known(100.0)]
    );
}

#[test]
fn trials_of_a_case_make_its_figures() {
    let trials =
        [120, 100, 110, 90, 130].iter().zip(1..).map(|(n, i)| trial(i, Some(summary(*n, &["p50 < 20ms"]))));
    let record = run(5, vec![trials.collect()]);
    let record = record.into();
    let found = findings(&record);
    let goodput = found.cases[0].spread(&metric::named("goodput").unwrap());
    assert_eq!((goodput.median, goodput.min, goodput.max), (Known(110.0), Some(90.0), Known(130.0)));
    assert_eq!(found.cases[0].typical().map(|t| t.number), Some(3));
    assert_eq!(verdicts(&found), [Verdict::Pass]);
    assert_eq!(found.statement.result, "The expectation `p50 < 20ms` held in every case.");
    assert_eq!(found.statement.confidence, "No doubts about any measurement.");
    assert_eq!(found.no_differences, None);
}

#[test]
fn a_missing_trial_fails_its_case_and_says_why() {
    let mut never_up = trial(2, None);
    let text = "edge1 did not become ready within 10 s".to_owned();
    never_up.events.push(Event { at_s: -1.0, what: EventKind::Failed { text } });
    let good = || summary(100, &["p50 < 20ms"]);
    let cases =
        vec![vec![trial(1, Some(good())), never_up], vec![trial(1, Some(summary(10, &["p50 < 5ms"])))]];
    let found_in = run(2, cases).into();
    let found = findings(&found_in);
    assert_eq!(verdicts(&found), [Verdict::Fail, Verdict::Fail]);
    let troubles: Vec<_> = found.cases.iter().flat_map(|c| &c.trials).map(|t| t.trouble.as_deref()).collect();
    assert_eq!(troubles, [None, Some("edge1 did not become ready within 10 s"), None, Some("never began")],);
    assert_eq!(found.statement.result, "Failed: “case 0”, “case 1” (missed: p50 < 5ms).");
    assert!(
        found.statement.confidence.starts_with("2 of 4 trials were measured."),
        "{}",
        found.statement.confidence
    );
    assert!(found.no_differences.is_some_and(|why| why.starts_with("1 trial per case: too few")));
}

/// A trial during which components died, each at its second.
fn with_deaths(number: u32, per_s: u64, deaths: &[(&str, f64)]) -> TrialRecord {
    let died = |&(component, at_s): &(&str, f64)| {
        let what =
            EventKind::Died { component: component.to_owned(), status: "killed by signal 9".to_owned() };
        Event { at_s, what }
    };
    TrialRecord { events: deaths.iter().map(died).collect(), ..trial(number, Some(summary(per_s, &[]))) }
}

#[test]
fn cases_with_the_same_bottleneck_share_a_sentence_although_their_figures_differ() {
    let first_bottleneck = |cases: &[&[&[(&str, f64)]]]| {
        let trials = |deaths: &&[&[(&str, f64)]]| -> Vec<TrialRecord> {
            (1..).zip(*deaths).map(|(n, deaths)| with_deaths(n, 100 + u64::from(n), deaths)).collect()
        };
        findings(&run(1, cases.iter().map(trials).collect()).into()).statement.first_bottleneck
    };
    let check = |cases: &[&[&[(&str, f64)]]], expect: &str| assert_eq!(first_bottleneck(cases), expect);
    let (db_1, db_2, web): (&[_], &[_], &[_]) = (&[("db", 1.0)], &[("db", 2.0)], &[("web", 3.0)]);
    check(&[&[db_1]], "db died at 1.00 s: killed by signal 9.");
    check(&[&[db_1], &[db_1]], "Every case: db died at 1.00 s: killed by signal 9.");
    check(&[&[db_1], &[db_2]], "Every case: db · died; in “case 0”, db died at 1.00 s: killed by signal 9.");
    check(
        &[&[db_1], &[web], &[db_2]],
        "“case 0”, “case 2”: db · died; in “case 0”, db died at 1.00 s: killed by signal 9. \
         “case 1”: web died at 3.00 s: killed by signal 9.",
    );
    // The fifth sentence would be about two cases.
    let one: Vec<[(&str, f64); 1]> = ["a", "b", "c", "d", "e", "e"].map(|name| [(name, 1.0)]).to_vec();
    let one: Vec<[&[(&str, f64)]; 1]> = one.iter().map(|deaths| [&deaths[..]]).collect();
    let said = first_bottleneck(&one.iter().map(|trials| &trials[..]).collect::<Vec<_>>());
    assert!(
        said.ends_with(
            "“case 3”: d died at 1.00 s: killed by signal 9. 2 more cases have different ones: see their sections."
        ),
        "{said}"
    );
    // What comes first most often, not in the trial in the middle; the report tells how often.
    check(&[&[db_1, web, db_2]], "db died at 1.00 s: killed by signal 9 (in 2 of 3 trials).");
    check(
        &[&[db_1, db_1, web], &[db_1, db_1, db_1]],
        "Every case (in 5 of 6 trials): db died at 1.00 s: killed by signal 9.",
    );
    // The typical trial decides between equals.
    check(&[&[db_1, web]], "db died at 1.00 s: killed by signal 9 (in 1 of 2 trials).");
    check(
        &[&[web, db_1, db_2, web, &[("app", 4.0)]]],
        "db died at 2.00 s: killed by signal 9 (in 2 of 5 trials).",
    );
}

#[test]
fn replicas_are_alike() {
    let mut record = run(
        2,
        vec![
            vec![with_deaths(1, 100, &[("edge1", 1.0)]), with_deaths(2, 101, &[("edge2", 2.0)])],
            vec![with_deaths(1, 100, &[("edge2", 3.0)]), with_deaths(2, 101, &[("edge2", 4.0)])],
        ],
    );
    record.manifest.components =
        ["edge1", "edge2"].map(|name| ComponentFacts { name: name.into(), run: String::new() }).to_vec();
    assert_eq!(
        findings(&record.into()).statement.first_bottleneck,
        "Every case: edge · died; in “case 0”, edge1 died at 1.00 s: killed by signal 9."
    );
}

#[test]
fn trials_that_cannot_be_trusted_do_not_say_what_the_bottleneck_is() {
    let invalid = |number: u32| {
        let mut record = with_deaths(number, 100, &[("web", 3.0)]);
        record.summary.as_mut().unwrap().verdict = Verdict::Invalid;
        record
    };
    let record = run(3, vec![vec![invalid(1), with_deaths(2, 100, &[("db", 1.0)]), invalid(3)]]).into();
    let found = findings(&record);
    assert_eq!(found.statement.first_bottleneck, "db died at 1.00 s: killed by signal 9.");
    let case = &found.cases[0];
    assert_eq!((case.diagnosed_trial, case.agreeing, case.diagnosed), (2, 1, 1));
}

#[test]
fn a_quick_run_gives_no_verdict_on_differences() {
    let five = || (1..=5).map(|i| trial(i, Some(summary(100, &[])))).collect::<Vec<_>>();
    let mut record = run(5, vec![five(), five()]);
    assert_eq!(findings(&record.clone().into()).no_differences, None);
    record.manifest.quick = true;
    assert!(findings(&record.into()).no_differences.is_some_and(|why| why.contains("quick")));
}

#[test]
fn a_curve_over_users_needs_levels_that_differ() {
    let levels_of = |users: &[u64]| {
        let mut record = run(1, users.iter().map(|_| vec![trial(1, Some(summary(100, &[])))]).collect());
        for (case, users) in record.cases.iter_mut().zip(users) {
            case.facts.users = Some(*users);
            case.facts.values = vec![("users".to_owned(), users.to_string())];
        }
        findings(&record.into()).scalability.iter().map(|s| s.levels.len()).collect::<Vec<_>>()
    };
    assert_eq!(levels_of(&[4, 1, 2]), [3]);
    // Such as the loads of a proof by intervention, which all have the users of one case.
    assert_eq!(levels_of(&[4, 4, 4]), [0; 0]);
    assert_eq!(levels_of(&[1, 2, 2, 1]), [0; 0]);
    assert_eq!(levels_of(&[1, 2, 2, 4]), [4]);
}

#[test]
fn a_control_does_not_count_as_a_case() {
    let five = |per_s: u64, expect: &str| -> Vec<TrialRecord> {
        (1..=5).map(|i| trial(i, Some(summary(per_s, &[expect])))).collect()
    };
    let of = |cases: Vec<Vec<TrialRecord>>| {
        let mut record = run(5, cases);
        for facts in [&mut record.manifest.cases[2], &mut record.cases[2].facts] {
            facts.name = "case 0 (control)".to_owned();
            facts.control_of = Some("case 0".to_owned());
        }
        record.into()
    };
    let (holds, fails) = ("p50 < 20ms", "p50 < 5ms");
    // The control lacks a trial: base and other can be compared all the same.
    let mut control = five(100, holds);
    control.pop();
    let record = of(vec![five(100, holds), five(100, holds), control]);
    let found = findings(&record);
    assert!(found.statement.tested.starts_with("2 cases (users), 5 trials each, beside a control."));
    assert_eq!((found.no_differences.as_deref(), found.comparisons.len()), (None, 1));
    // One that fails alone is news, one that fails with its base is not.
    let record = of(vec![five(100, holds), five(100, fails), five(100, fails)]);
    let result = findings(&record).statement.result;
    assert!(result.starts_with("All expectations held in 1 of 2 cases: “case 0”."), "{result}");
    assert!(result.contains("Failed: “case 1”, “case 0 (control)” (missed: p50 < 5ms)."), "{result}");
    let record = of(vec![five(100, fails), five(100, holds), five(100, fails)]);
    let result = findings(&record).statement.result;
    assert!(result.ends_with("Failed: “case 0” (missed: p50 < 5ms)."), "{result}");
}

/// Two seconds of a killed trial; three requests were in flight and one was waiting when it ended.
fn killed() -> TrialRecord {
    let mut h = Histogram::new();
    h.record_n(5_000_000, 50);
    let tick = |from_s: f64, due, started, ok, failed, in_flight| {
        let mut counts = Counts { due, started, ok, in_flight, ..Counts::default() };
        counts.failures.add(Failure::Reset, failed);
        Tick {
            load: "main".into(),
            from_s,
            to_s: from_s + 1.0,
            in_window: true,
            counts,
            bytes: Bytes { sent: 10, received: 100 },
            response_ms: TickMs::from(&h),
            connections: 9,
            ..Tick::default()
        }
    };
    let mut record = trial(1, None);
    record.ticks = vec![tick(0.0, 55, 54, 50, 0, 4), tick(1.0, 52, 52, 51, 2, 3)];
    record.series.response_ok.record_n(5_000_000, 101);
    record.intervals = vec![Interval::of(Some("main"), "tag.page.response", 0.0, 1.0, &h)];
    record
}

#[test]
fn a_killed_trial_still_adds_up() {
    let case = CaseFacts { users: Some(4), ..CaseFacts::default() };
    let s = partial(&killed(), &case, &[]);
    let r = &s.requests;
    assert_eq!((r.due, r.dropped, r.started, r.ok, r.failed, r.in_flight), (107, 1, 106, 101, 2, 3));
    assert_eq!((s.ended, s.verdict), (Ended::Partial, Verdict::Invalid));
    assert_eq!((s.rate_per_s.ok, s.elapsed_s), (50.5, 2.0));
    assert_eq!((s.bytes.received, s.connections.peak), (200, 9));
    assert_eq!((s.response_ms.p50, s.by_tag["page"].ok_response_ms.count), (Some(5.0), 50));
    let kinds: Vec<_> = s.doubts.iter().map(|d| (d.kind.as_str(), d.grave)).collect();
    assert_eq!(kinds, [("ended_early", true), ("dropped", false)]);
    assert_eq!((s.load.model, s.load.users), (LoadModel::Closed, Some(4)));
}

#[test]
fn a_killed_trial_knows_what_was_planned() {
    let mut killed = killed();
    let load = LoadFacts {
        model: LoadModel::Mixed,
        rate_per_s: Some(50.0),
        keep_alive: true,
        protocol: "http/2".into(),
        ..LoadFacts::default()
    };
    killed.events = vec![Event { at_s: 0.0, what: EventKind::Planned { load: Box::new(load.clone()) } }];
    assert_eq!(partial(&killed, &CaseFacts::default(), &[]).load, load);
}

#[test]
fn a_cut_off_trial_is_reported_and_not_counted() {
    let mut cut = killed();
    cut.number = 2;
    let record = run(2, vec![vec![trial(1, Some(summary(100, &[]))), cut]]);
    let record = record.into();
    let found = findings(&record);
    let case = &found.cases[0];
    assert_eq!(case.spread(&metric::named("goodput").unwrap()).median, Known(100.0));
    assert_eq!((case.verdict, case.typical().map(|t| t.number)), (Verdict::Invalid, Some(1)));
    assert!(case.trials[1].trouble.as_deref().is_some_and(|t| t.starts_with("cut off")));
}

/// A figure over cases ignores trials that cannot be trusted, and reports that.
#[test]
fn derived_figures_leave_invalid_trials_out() {
    let mut doubtful = summary(500, &[]);
    doubtful.verdict = Verdict::Invalid;
    let mut record = run(2, vec![vec![trial(1, Some(summary(100, &[]))), trial(2, Some(doubtful))]]);
    for facts in [&mut record.manifest.cases[0], &mut record.cases[0].facts] {
        facts.name = "one".into();
    }
    record.manifest.derive =
        vec![DerivedFacts { name: "twice".into(), value: "one.rate + one.rate".into(), against: None }];
    let record = record.into();
    let found = findings(&record);
    assert_eq!(found.derived[0].value.min, Some(200.0));
    assert_ne!(found.derived[0].value.max, Known(1000.0));
    let why_not = found.derived[0].why_not.as_deref().unwrap_or_default();
    assert!(why_not.contains("trial 2 is INVALID"), "{why_not}");
}
