//! How the cases of a run are compared after every round: which pairs, by which figures, and what a control hides.

use loadlab_analysis::comparison::compare::{Comparison, Options, Side};
use loadlab_analysis::comparison::design::{Design, Standing};
use loadlab_analysis::comparison::interval::Call;
use loadlab_analysis::comparison::pairs::{control_of, pairs};
use loadlab_analysis::{TrialInput, summarise};
use loadlab_record::documents::manifest::{FigureFacts, Manifest, UntilCertain};
use loadlab_record::documents::summary::{Distribution, Summary, Verdict};
use serde_json::json;

use crate::chance::Chance;

/// A run of these cases, each with its revision if it has one.
fn manifest(cases: &[(&str, &str)], revisions: &[&str]) -> Manifest {
    let value = |revision: &str| match revision {
        "" => json!([]),
        revision => json!([["users", "10"], ["revision", revision]]),
    };
    let case = |(name, revision): &(&str, &str)| {
        let control_of = name.strip_suffix(" (control)");
        json!({ "name": name, "dir": name, "values": value(revision), "users": null, "rate_per_s": null,
                "control_of": control_of })
    };
    let revision = |name: &&str| json!({ "name": name, "commit": "c0ffee", "subject": "" });
    serde_json::from_value(json!({
        "record": 2, "loadlab": "0", "name": "test", "plan_path": "", "plan_text": "", "plan_sha256": "",
        "options": [], "started": "", "ended": null, "how": "complete", "writer": { "pid": 1, "start_ticks": 1 },
        "host": { "kernel": "", "cpu": "", "cores": 2, "memory_bytes": 1, "clock_source": "", "cgroup": "" },
        "words": [], "components": [], "axes": [], "trials": 30, "expect": [], "quick": false,
        "cases": cases.iter().map(case).collect::<Vec<_>>(),
        "revisions": revisions.iter().map(revision).collect::<Vec<_>>(),
        "until_certain": { "within": 0.02, "seed": 7 },
    }))
    .expect("a manifest")
}

#[test]
fn cases_are_compared_with_the_base_or_with_themselves_at_the_first_revision() {
    let named = |names: &[&str]| pairs(&manifest(&names.iter().map(|n| (*n, "")).collect::<Vec<_>>(), &[]));
    assert_eq!(named(&["old", "new", "newer"]), [(0, 1), (0, 2)]);
    assert_eq!(named(&["new", "Baseline", "newer"]), [(1, 0), (1, 2)]);
    assert_eq!(named(&["old", "new", "old (control)"]), [(0, 1)]);
    assert!(named(&["alone"]).is_empty());

    let cases = [
        ("small, revision=v1", "v1"),
        ("small, revision=v2", "v2"),
        ("large, revision=v1", "v1"),
        ("large, revision=v2", "v2"),
        ("small, revision=v1 (control)", "v1"),
        ("large, revision=v1 (control)", "v1"),
    ];
    let both = manifest(&cases, &["v1", "v2"]);
    assert_eq!(pairs(&both), [(0, 1), (2, 3)]);
    assert_eq!([0, 2, 1].map(|base| control_of(&both, base)), [Some(4), Some(5), None]);
}

fn trial(goodput: f64, errors: u64) -> Summary {
    let mut summary = summarise(TrialInput::default());
    summary.doubts.clear();
    summary.verdict = Verdict::None;
    summary.rate_per_s.ok = goodput;
    summary.requests.started = 1000;
    (summary.requests.ok, summary.requests.failed) = (1000 - errors, errors);
    summary.response_ms =
        Distribution { count: 1000, p50: Some(1000.0 / goodput), ..Distribution::default() };
    summary
}

/// Rounds of base, other and control: the other's goodput is a multiple of the base's, and each case has its own noise.
struct Rounds([Vec<Summary>; 3]);

impl Rounds {
    fn new(rounds: usize, ratio: f64, noise: [f64; 3]) -> Rounds {
        let mut chance = Chance::new(1);
        let mut of = |ratio: f64, noise: f64| -> Vec<Summary> {
            (0..rounds).map(|_| trial(1000.0 * ratio * (noise * chance.normal()).exp(), 0)).collect()
        };
        Rounds([of(1.0, noise[0]), of(ratio, noise[1]), of(1.0, noise[2])])
    }

    fn sides(&self) -> [Side<'_>; 3] {
        let side = |name: &str, place: usize| {
            Side::of(name, self.0[place].iter().zip(1..).map(|(summary, round)| (round, Some(summary))))
        };
        [side("old", 0), side("new", 1), side("old (control)", 2)]
    }
}

fn design(figures: &[FigureFacts]) -> Design {
    let until = UntilCertain { within: 0.02, budget_s: None, seed: 7, ended: None };
    Design::new(&until, 30, 1, figures)
}

/// A shift that moves between rounds is rejected first on one side, then on the other: it has no interval.
#[test]
fn a_shift_that_moves_has_no_interval() {
    let mut chance = Chance::new(5);
    let mut side = |shifts: &dyn Fn(usize) -> f64| -> Vec<Summary> {
        // Nothing is ever certain about the errors, so rounds are made to the end.
        let errors = |chance: &mut Chance| (20.0 + 8.0 * chance.normal()).clamp(0.0, 100.0) as u64;
        let goodput = |round, chance: &mut Chance| 1000.0 * f64::exp(shifts(round) + 0.005 * chance.normal());
        (0..30).map(|round| trial(goodput(round, &mut chance), errors(&mut chance))).collect()
    };
    let rounds = [side(&|_| 0.0), side(&|round| if round < 12 { 0.10 } else { 0.02 })];
    let named = |name: &str, place: usize| {
        let all: &[Summary] = &rounds[place];
        Side::of(name, all.iter().zip(1..).map(|(summary, round)| (round, Some(summary))))
    };
    let (base, other) = (named("old", 0), named("new", 1));
    let found = design(&[]).compare(&base, &other, None, Options::default());
    let row = found.rows.iter().find(|row| row.metric.id == "goodput").expect("it is compared");
    let effect = row.effect.expect("it has one");
    assert!(effect.interval.is_none(), "{effect:?}");
    assert!((1.0..1.12).contains(&effect.value), "{effect:?}");
    assert!(effect.interval.is_none_or(|interval| interval.low <= interval.high), "{effect:?}");
}

fn calls(standings: &[Standing]) -> Vec<(String, Call)> {
    standings.iter().map(|s| (s.metric.id.to_string(), s.call())).collect()
}

fn row(comparison: &Comparison, id: &str) -> (Call, Option<f64>, bool) {
    let row = comparison.rows.iter().find(|row| row.metric.id == id);
    row.map(|row| (row.call, row.visible, row.decides)).expect("the figure is compared")
}

#[test]
fn a_difference_that_the_control_has_as_well_is_not_called() {
    // 5 % between cases without their own noise, and a control that is off by 10 % now and then.
    let rounds = Rounds::new(20, 0.95, [0.001, 0.001, 0.1]);
    let [base, other, control] = rounds.sides();
    let design = design(&[]);
    let without = design.deciding(&base, &other, None);
    let names = |id: &str, call| (id.to_owned(), call);
    assert_eq!(calls(&without)[0], names("goodput", Call::Worse));
    assert_eq!(without[0].visible(), None);
    let with = design.deciding(&base, &other, Some(&control));
    assert_eq!(calls(&with)[0], names("goodput", Call::CannotTell));
    assert!(with[0].is_open() && with[0].more().is_none());

    let found = design.compare(&base, &other, Some(&control), Options::default());
    let (call, visible, decides) = row(&found, "goodput");
    assert!(
        call == Call::CannotTell && decides && visible.is_some_and(|v| (0.05..0.2).contains(&v)),
        "{visible:?}"
    );
    let note = found.rows.iter().find_map(|row| row.note.as_deref().filter(|_| row.metric.id == "goodput"));
    assert_eq!(note, Some("the difference is no larger than what the control has by chance"));

    // A quiet control shows that it is visible.
    let rounds = Rounds::new(20, 0.95, [0.001; 3]);
    let [base, other, control] = rounds.sides();
    let found = design.compare(&base, &other, Some(&control), Options::default());
    let (call, visible, _) = row(&found, "goodput");
    assert!(call == Call::Worse && visible.is_some_and(|v| v < 0.01), "{visible:?}");
}

#[test]
fn figures_that_no_round_can_settle_are_not_open() {
    let rounds = Rounds::new(20, 0.95, [0.001; 3]);
    let [base, other, _] = rounds.sides();
    let standings = design(&[]).deciding(&base, &other, None);
    let open: Vec<&str> = standings.iter().filter(|s| s.is_open()).map(|s| &*s.metric.id).collect();
    // No trial has a 99th percentile.
    assert!(open.is_empty(), "{open:?}");
    let errors = FigureFacts {
        name: "failed".into(),
        value: "errors".into(),
        kind: loadlab_record::documents::figure::NumberKind::Fraction,
        unit: None,
        better: loadlab_record::documents::figure::Better::Less,
        about: None,
    };
    let named = design(&[errors]).deciding(&base, &other, None);
    assert_eq!(named.iter().map(|s| (&*s.metric.id, s.is_open())).collect::<Vec<_>>(), [("failed", false)]);
}

#[test]
fn rounds_that_cannot_be_trusted_do_not_end_the_waiting() {
    // Of twelve rounds nine are INVALID: the other three settle nothing, and more of them would.
    let mut rounds = Rounds::new(12, 0.5, [0.001; 3]);
    rounds.0[1][..9].iter_mut().for_each(|trial| trial.verdict = Verdict::Invalid);
    let [base, other, _] = rounds.sides();
    let goodput = &design(&[]).deciding(&base, &other, None)[0];
    assert_eq!((&*goodput.metric.id, goodput.call(), goodput.is_open()), ("goodput", Call::CannotTell, true));
    // In whatever order they were made, rounds are judged by their numbers.
    let rounds = Rounds::new(20, 0.95, [0.02; 3]);
    let [base, mut other, _] = rounds.sides();
    let before = design(&[]).compare(&base, &other, None, Options::default());
    other.trials.rotate_left(7);
    let design = design(&[]);
    let standings = [design.deciding(&base, &other, None), design.deciding(&base, &rounds.sides()[1], None)];
    assert_eq!(standings[0][0].effect(), standings[1][0].effect());
    assert_eq!(row(&before, "goodput").0, standings[0][0].call());
}

#[test]
fn before_the_fewest_rounds_nothing_is_settled_whatever_they_hold() {
    let design = design(&[]);
    let fewest = design.fewest_rounds();
    assert!((7..=12).contains(&fewest), "{fewest}");
    let settled = (1..=30).find(|rounds| {
        let rounds = Rounds::new(*rounds, 0.5, [0.0; 3]);
        let [base, other, _] = rounds.sides();
        design.deciding(&base, &other, None)[0].call() == Call::Worse
    });
    assert!(
        settled.is_some_and(|settled| settled >= fewest && settled <= fewest + 2),
        "{settled:?} {fewest}"
    );
    let rounds = Rounds::new(3, 0.5, [0.0; 3]);
    let [base, other, _] = rounds.sides();
    let why_not = design.compare(&base, &other, None, Options::default()).why_not;
    assert_eq!(
        why_not,
        Some(format!("3 rounds in common: too few for a verdict (at least {fewest} are needed)"))
    );
    // More figures and more comparisons divide the level.
    let until = UntilCertain { within: 0.02, budget_s: None, seed: 7, ended: None };
    assert!(Design::new(&until, 30, 10, &[]).fewest_rounds() > fewest);
    assert!(Design::new(&until, 4, 1, &[]).fewest_rounds() > 4);
}
