//! Verdicts on differences, over simulated trials: how often they are wrong, and what they find.

use loadlab_analysis::cases::metric::{Metric, Value};
use loadlab_analysis::comparison::compare::{Comparison, Options, Side, compare};
use loadlab_analysis::comparison::figures::Scale;
use loadlab_analysis::comparison::interval::{Call, EquivalenceBounds, Method, Samples, judge};
use loadlab_record::counts::load::Window;
use loadlab_record::documents::figure::{self, FigureValue, NumberKind};
use loadlab_record::documents::manifest::FigureFacts;
use loadlab_record::documents::summary::{ComponentSummary, Distribution, Doubt, Ended, Summary, Verdict};

use Call::{Better, CannotTell, Same, Worse};

use crate::chance::Chance;

const SAME: EquivalenceBounds = EquivalenceBounds { low: -0.0202, high: 0.0198 };

/// Trials of two equal cases: seven correlated figures, with noise of the round in both.
fn equal_cases(
    chance: &mut Chance,
    method: Method,
    trials: (usize, usize),
    skewed: bool,
) -> Vec<Option<Samples>> {
    let mut figures = vec![Samples::default(); 7];
    let rounds: Vec<f64> = (0..trials.0.max(trials.1)).map(|_| 0.05 * chance.normal()).collect();
    for (is_base, count) in [(true, trials.0), (false, trials.1)] {
        for round in rounds.iter().take(count) {
            // figures share a part of their noise
            let common = 0.03 * chance.normal();
            for (i, figure) in figures.iter_mut().enumerate() {
                let noise = if skewed { chance.exponential(0.04) } else { 0.03 * chance.normal() };
                let round = if method == Method::Paired { *round } else { 0.0 };
                let value = 3.0 + i as f64 + round + common + noise;
                if is_base { figure.base.push(value) } else { figure.other.push(value) }
            }
        }
    }
    figures.into_iter().map(Some).collect()
}

#[test]
fn equal_cases_raise_few_alarms() {
    for (method, trials, skewed) in [
        (Method::Paired, (5, 5), false),
        (Method::Paired, (5, 5), true),
        (Method::Paired, (12, 12), false),
        (Method::Welch, (5, 5), false),
        (Method::Welch, (5, 11), false),
        (Method::Welch, (6, 6), true),
    ] {
        let alarms = (0..1000).filter(|seed| {
            let figures = equal_cases(&mut Chance::new(*seed), method, trials, skewed);
            let judged = judge(&figures, method, 0.95);
            let calls = judged.iter().flatten().map(|j| j.call(SAME, true));
            calls.into_iter().any(|c| c == Better || c == Worse)
        });
        let alarms = alarms.count();
        assert!(alarms <= 70, "{method:?} {trials:?} skewed {skewed}: {alarms} false alarms in 1,000");
    }
}

#[test]
fn known_shifts_are_found() {
    // a shift of 10 % at 2 % noise, in one figure out of seven
    let mut found = 0;
    for seed in 0..200 {
        let mut chance = Chance::new(seed);
        let mut figures: Vec<Option<Samples>> = (0..7)
            .map(|_| {
                let mut of = || (0..5).map(|_| 0.02 * chance.normal()).collect::<Vec<f64>>();
                Some(Samples { base: of(), other: of() })
            })
            .collect();
        for value in &mut figures[3].as_mut().expect("it was put there").other {
            *value += 1.1f64.ln();
        }
        let judged = judge(&figures, Method::Welch, 0.95);
        found += usize::from(judged[3].is_some_and(|j| j.call(SAME, true) == Worse));
    }
    assert!(found >= 170, "{found} of 200");
}

#[test]
fn what_is_promised_of_more_trials_is_kept() {
    // 3 % apart at 3 % noise: five trials are seldom conclusive, the suggested number mostly is
    let (mut promised, mut kept) = (0, 0);
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let mut trials =
            |n: u64, mean: f64| (0..n).map(|_| mean + 0.03 * chance.normal()).collect::<Vec<_>>();
        let few = Samples { base: trials(5, 0.0), other: trials(5, 0.03) };
        let judged = judge(&[Some(few)], Method::Welch, 0.95)[0].expect("it can be judged");
        if judged.call(SAME, true) != CannotTell {
            continue;
        }
        let Some(needed) = judged.trials_needed(SAME) else { continue };
        assert!(needed > 5, "{judged:?}");
        promised += 1;
        let more = Samples { base: trials(needed, 0.0), other: trials(needed, 0.03) };
        let judged = judge(&[Some(more)], Method::Welch, 0.95)[0].expect("it can be judged");
        kept += usize::from(judged.call(SAME, true) != CannotTell);
    }
    assert!(promised > 100 && kept * 2 > promised, "{kept} of {promised}");
}

#[test]
fn intervals_and_verdicts_agree_under_holm() {
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let mut samples = || (0..6).map(|_| 0.05 * chance.normal()).collect::<Vec<_>>();
        let mut figures: Vec<Samples> =
            (0..5).map(|_| Samples { base: samples(), other: samples() }).collect();
        for (i, figure) in figures.iter_mut().enumerate() {
            figure.other.iter_mut().for_each(|v| *v += 0.03 * i as f64);
        }
        let figures: Vec<Option<Samples>> = figures.into_iter().map(Some).collect();
        let judged: Vec<_> = judge(&figures, Method::Paired, 0.95).into_iter().flatten().collect();
        // by the procedure as published
        let mut chances: Vec<f64> = judged.iter().map(|j| j.chance).collect();
        chances.sort_by(f64::total_cmp);
        let passed = chances.iter().zip(0..).take_while(|(p, i)| **p <= 0.05 / f64::from(5 - i)).count();
        let excluding = judged.iter().filter(|j| j.mean.abs() > j.half).count();
        assert_eq!(passed, excluding, "seed {seed}: {judged:?}");
    }
}

/// A trial with this goodput and these times.
fn trial(goodput: f64, p50: f64, p99: Option<f64>) -> Summary {
    let mut summary = empty();
    summary.rate_per_s.ok = goodput;
    summary.requests.started = 1000;
    summary.requests.ok = 1000;
    summary.response_ms =
        Distribution { count: 1000, p50: Some(p50), p90: Some(p50 * 1.5), p99, ..Distribution::default() };
    let mut app = ComponentSummary { cpu_s: Some(2.0), ..ComponentSummary::default() };
    app.memory_bytes.max = Some(1e8);
    summary.components.insert("app".into(), app);
    summary
}

fn empty() -> Summary {
    use loadlab_analysis::{TrialInput, summarise};
    let mut summary = summarise(TrialInput::default());
    summary.doubts = Vec::<Doubt>::new();
    summary.verdict = Verdict::None;
    summary.window = Window { from_s: 0.0, to_s: 10.0 };
    summary
}

fn compared(base: &[Summary], other: &[Summary], method: Method) -> Comparison {
    compared_by(&[], base, other, method)
}

fn compared_by(figures: &[Metric], base: &[Summary], other: &[Summary], method: Method) -> Comparison {
    let side = |name: &str, trials| Side::of(name, (1..).zip(trials).map(|(n, s)| (n, Some(s))));
    compare(&side("a", base.iter()), &side("b", other.iter()), method, figures, Options::default())
}

/// Five trials around a figure, each a little off.
fn five(goodput: f64, p50: f64, p99: Option<f64>) -> Vec<Summary> {
    [0.99, 1.01, 1.0, 0.995, 1.005].iter().map(|f| trial(goodput * f, p50 * f, p99.map(|v| v * f))).collect()
}

fn calls(comparison: &Comparison) -> Vec<(&str, Call)> {
    comparison.rows.iter().map(|r| (&*r.metric.id, r.call)).collect()
}

/// Of 300 sessions of two cases this far apart, with rounds that differ by 5 % and trials by 3 %: how many have a
/// figure that is called, and how many beside a control.
fn called(ratio: f64) -> [usize; 2] {
    const ROUNDS: usize = 10;
    let template = trial(1000.0, 10.0, None);
    let mut called = [0; 2];
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let rounds: Vec<f64> = (0..ROUNDS).map(|_| 0.05 * chance.normal()).collect();
        let mut trials = |ratio: f64| -> Vec<Summary> {
            let mut one = |round: &f64| {
                let mut summary = template.clone();
                summary.rate_per_s.ok = 1000.0 * ratio * (round + 0.03 * chance.normal()).exp();
                summary.response_ms.p50 = Some(10.0 / ratio * (round + 0.03 * chance.normal()).exp());
                summary.response_ms.p90 = None;
                summary
            };
            rounds.iter().map(&mut one).collect()
        };
        let [base, other, control] = [1.0, ratio, 1.0].map(&mut trials);
        let alone = compared(&base, &other, Method::Paired);
        let of = |name: &'static str, trials| Side::of(name, (1..).zip(trials).map(|(n, s)| (n, Some(s))));
        let beside = alone.clone().with_control(&of("a", base.iter()), &of("a (control)", control.iter()));
        for (count, comparison) in called.iter_mut().zip([alone, beside]) {
            *count += usize::from(comparison.rows.iter().any(|row| matches!(row.call, Better | Worse)));
        }
    }
    called
}

#[test]
fn a_control_takes_alarms_away_and_some_power() {
    let found = [1.0, 0.98, 0.95, 0.9].map(called);
    println!("called of 300, alone and beside a control, at 0, 2, 5 and 10 %: {found:?}");
    assert!(found.iter().all(|[alone, beside]| beside <= alone), "{found:?}");
    let [equal, _, five_percent, ten_percent] = found;
    assert!(equal[0] <= 25 && equal[1] <= 10, "{found:?}");
    assert!(five_percent[1] * 3 > five_percent[0] * 2 && ten_percent[1] >= 290, "{found:?}");
}

#[test]
fn each_figure_gets_its_verdict() {
    let (base, other) = (five(1000.0, 10.0, Some(40.0)), five(900.0, 8.0, Some(40.0)));
    for method in [Method::Paired, Method::Welch] {
        let found = compared(&base, &other, method);
        assert_eq!(found.why_not, None);
        let expect = [
            ("goodput", Worse),
            ("p50", Better),
            ("p90", Better),
            ("p99", Same),
            // CPU time and memory are the same to the last digit
            ("cpu_per_request", Same),
            ("memory_peak", Same),
        ];
        assert_eq!(calls(&found), expect, "{method:?}");
        let goodput = found.rows[0].effect.expect("five trials have one");
        let interval = goodput.interval.expect("and an interval");
        assert!((goodput.value - 0.9).abs() < 1e-6, "{goodput:?}");
        assert!(interval.low < 0.9 && interval.high < 1.0, "{goodput:?}");
    }
}

/// Holm's procedure is stricter the more figures there are: none is judged twice.
#[test]
fn a_figure_under_another_name_is_judged_once() {
    let (mut base, mut other) = (five(1000.0, 10.0, Some(40.0)), five(900.0, 8.0, Some(40.0)));
    for summary in base.iter_mut().chain(&mut other) {
        let value = FigureValue { value: Some(summary.rate_per_s.ok), ..FigureValue::default() };
        summary.figures.insert("pages per second".into(), value);
    }
    let figure = Metric::of_plan(&FigureFacts {
        name: "pages per second".into(),
        value: " goodput".into(),
        kind: NumberKind::Rate,
        unit: None,
        better: figure::Better::More,
        about: None,
    });
    let found = compared_by(&[figure], &base, &other, Method::Paired);
    let judged: Vec<&str> = found.rows.iter().map(|r| &*r.metric.id).collect();
    assert_eq!(judged, ["pages per second", "p50", "p90", "p99", "cpu_per_request", "memory_peak"]);
    assert_eq!(found.rows[0].call, Worse);
}

#[test]
fn below_five_trials_nothing_is_reported() {
    let (base, other) = (five(1000.0, 10.0, Some(40.0)), five(500.0, 30.0, Some(40.0)));
    for method in [Method::Paired, Method::Welch] {
        for trials in 1..5 {
            let found = compared(&base[..trials], &other, method);
            assert!(found.rows.iter().all(|r| r.call == CannotTell), "{trials}: {found:?}");
            assert!(found.why_not.as_deref().is_some_and(|w| w.contains("too few")), "{found:?}");
            // Known values are reported, and nothing is made up: an interval from two trials reaches from zero to
            // billions.
            assert!(found.rows.iter().all(|r| r.effect.is_none_or(|e| e.interval.is_none())), "{found:?}");
            assert!(found.rows.iter().all(|r| r.trials_needed.is_none()), "{found:?}");
            let goodput = &found.rows[0];
            assert_eq!((goodput.base.min, goodput.base.reported()), (Some(990.0), trials));
        }
    }
}

/// The ratio of a paired comparison is over pairs: one column divided by the other is another figure, and not shown
/// as such.
#[test]
fn a_paired_ratio_is_not_one_median_over_the_other() {
    let of = |p50: f64| trial(1000.0, p50, None);
    let (base, other) = ([of(1.0), of(4.0)], [of(4.0), of(4.1)]);
    let found = compared(&base, &other, Method::Paired);
    let row = found.rows.iter().find(|r| r.metric.id == "p50").expect("p50");
    // the worse of two trials …
    assert_eq!((row.base.median, row.other.median), (Value::Known(4.0), Value::Known(4.1)));
    // … and within rounds 4 × and 1.025 ×
    let ratio = row.effect.expect("a ratio").value;
    assert!((ratio - (4.0f64 * 1.025).sqrt()).abs() < 1e-9, "{ratio}");
}

#[test]
fn only_rounds_that_both_have_are_paired() {
    let (base, mut other) = (five(1000.0, 10.0, None), five(1000.0, 10.0, None));
    other[1].verdict = Verdict::Invalid;
    other[3].ended = Ended::Partial;
    let found = compared(&base, &other, Method::Paired);
    assert_eq!(found.trials, (3, 3));
    assert_eq!(found.left_out, ["trial 2 of “b” is INVALID", "trial 4 of “b” did not finish"]);
    assert_eq!(
        found.why_not.as_deref(),
        Some("3 rounds in common: too few for an interval or a verdict (at least 5 are needed)")
    );
    assert_eq!(compared(&base, &other, Method::Welch).trials, (5, 3));
}

#[test]
fn a_bound_supports_one_direction_only() {
    let over = |ms: f64| {
        let mut trials = five(1000.0, 10.0, None);
        for trial in &mut trials {
            trial.response_ms.over_ms.insert("p99".into(), ms);
        }
        trials
    };
    let of = |base: &[Summary], other: &[Summary]| {
        let found = compared(base, other, Method::Welch);
        let row = found.rows.iter().find(|r| r.metric.id == "p99").expect("a bound is reported").clone();
        (row.call, row.trials_needed)
    };
    let known = five(1000.0, 10.0, Some(40.0));
    // at least 30 s is worse than 40 ms, however much it is
    assert_eq!(of(&known, &over(30_000.0)), (Worse, None));
    // at least 20 ms may mean anything
    assert_eq!(of(&known, &over(20.0)), (CannotTell, None));
    assert_eq!(of(&over(30_000.0), &known), (Better, None));
    assert_eq!(of(&over(30_000.0), &over(30_000.0)), (CannotTell, None));
    // a bound just above the other, and within what counts as the same: the truth may be anywhere above it
    assert_eq!(of(&known, &over(40.2)), (CannotTell, None));
    assert_eq!(of(&over(40.2), &known), (CannotTell, None));
}

#[test]
fn errors_are_compared_by_difference_if_there_are_any() {
    let (base, mut other) = (five(1000.0, 10.0, None), five(1000.0, 10.0, None));
    assert!(!calls(&compared(&base, &other, Method::Paired)).iter().any(|(id, _)| *id == "errors"));
    for (trial, failed) in other.iter_mut().zip([9, 10, 11, 10, 10]) {
        trial.requests.failed = failed;
    }
    let found = compared(&base, &other, Method::Paired);
    let errors = found.rows.iter().find(|r| r.metric.id == "errors").expect("some failed");
    assert_eq!(
        (errors.scale, errors.call, errors.base.median),
        (Scale::Difference, Worse, Value::Known(0.0))
    );
    assert!(errors.effect.is_some_and(|e| (e.value - 0.01).abs() < 1e-9), "{errors:?}");
}

#[test]
fn figures_missing_in_a_trial_are_noted() {
    let base = five(1000.0, 10.0, Some(40.0));
    let mut other = five(1000.0, 10.0, Some(40.0));
    other[2].response_ms.p99 = None;
    other[2].response_ms.count = 900;
    let found = compared(&base, &other, Method::Paired);
    let p99 = found.rows.iter().find(|r| r.metric.id == "p99").expect("one side reports it");
    assert_eq!((p99.call, p99.note.as_deref()), (CannotTell, Some("p99 needs 1000 requests in each trial")));
    let zero = five(0.0, 10.0, None);
    let found = compared(&base, &zero, Method::Paired);
    assert!(
        found.rows[0].note.as_deref().is_some_and(|n| n.starts_with("goodput is 0 in a trial")),
        "{found:?}"
    );
}

/// Trials that search measure each case at its own capacity: only that is compared, not what else differs there.
#[test]
fn capacities_are_compared_and_nothing_else_of_a_search() {
    let capacity = Metric::of_plan(&FigureFacts {
        name: "capacity".into(),
        value: "capacity".into(),
        kind: NumberKind::Rate,
        unit: None,
        better: figure::Better::More,
        about: None,
    });
    let searched = |at: f64| -> Vec<Summary> {
        let of = |mut s: Summary| {
            let value = Some(s.rate_per_s.ok);
            let unit = "/s".to_owned();
            s.figures.insert("capacity".into(), FigureValue { value, unit, ..FigureValue::default() });
            s
        };
        five(at, 4.0 * at, Some(9.0 * at)).into_iter().map(of).collect()
    };
    let figures = [capacity];
    let found = compared_by(&figures, &searched(400.0), &searched(440.0), Method::Paired);
    assert_eq!(calls(&found), [("capacity", Better)]);
    assert!(found.rows[0].decides);
    let found = compared_by(&figures, &searched(440.0), &searched(400.0), Method::Paired);
    assert_eq!(calls(&found), [("capacity", Worse)]);
}
