//! The search for capacity on simulated servers whose capacity is known.

use loadlab_analysis::scaling::search::{Answer, MAX_LEVELS, NextLevel, Outcome, Search};
use loadlab_analysis::trial::steady::growing_backlog;
use loadlab_analysis::{TrialInput, conclude_search, is_left_open, summarise, verdict_of_search};
use loadlab_record::counts::load::{Counts, Tick};
use loadlab_record::documents::search::{SearchFacts, SearchStep, SearchVariable, StepOutcome};
use loadlab_record::documents::summary::{Ended, Expectation, Summary, Verdict};

use crate::chance::Chance;

/// The answer, and how many trials it took.
fn search(range: (u64, u64), mut trial: impl FnMut(u64) -> Outcome) -> (Answer, usize) {
    let mut search = Search::new(range.0, range.1, MAX_LEVELS);
    loop {
        match search.next() {
            NextLevel::Done(answer) => return (answer, search.path().len()),
            NextLevel::Measure { level, .. } => {
                let outcome = trial(level);
                search.add(level, outcome);
            }
        }
    }
}

fn most(answer: Answer) -> u64 {
    match answer {
        Answer::Most { level, .. } | Answer::AtLeast { level, .. } | Answer::LessThan { level, .. } => level,
        Answer::Generator { level, .. } => level.unwrap_or(0),
    }
}

fn met(is: bool) -> Outcome {
    if is { Outcome::Met } else { Outcome::Missed }
}

/// p99 of a server that handles `capacity` users, with the noise of a measurement.
fn p99(users: u64, capacity: f64, noise: f64, chance: &mut Chance) -> f64 {
    (users as f64 / capacity).powi(4) * (noise * chance.normal()).exp()
}

#[test]
fn a_known_capacity_is_found_through_noise() {
    for noise in [0.0, 0.02, 0.05] {
        let (mut off, mut trials_most) = (0, 0);
        for seed in 0..300 {
            let mut chance = Chance::new(seed);
            let capacity = 3.0 + 990.0 * chance.share();
            let (answer, trials) =
                search((1, 1000), |users| met(p99(users, capacity, noise, &mut chance) < 1.0));
            let error = (most(answer) as f64 - capacity.floor()).abs();
            off += usize::from(error > 1.0 && error > 0.03 * capacity);
            trials_most = trials_most.max(trials);
        }
        assert!(off <= 6 && trials_most <= 15, "noise {noise}: {off} of 300 off, {trials_most} trials");
    }
}

#[test]
fn hiccups_do_not_lead_astray() {
    // one trial in fifty fails for reasons outside the system
    let mut off = 0;
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let capacity = 3.0 + 990.0 * chance.share();
        let (answer, trials) = search((1, 1000), |users| {
            let hiccup = chance.share() < 0.02;
            met(!hiccup && p99(users, capacity, 0.02, &mut chance) < 1.0)
        });
        assert!(trials <= 15);
        let error = (most(answer) as f64 - capacity.floor()).abs();
        off += usize::from(error > 1.0 && error > 0.03 * capacity);
    }
    assert!(off <= 15, "{off} of 300 off");
}

/// A queue with one server at a rate, for some seconds: p99 of response times in seconds, and its ticks. Arrivals and
/// service times are exponential (M/M/1).
fn queue(rate: f64, service_s: f64, seconds: usize, chance: &mut Chance) -> (f64, Vec<Tick>) {
    let mut ticks: Vec<Tick> =
        (0..seconds).map(|i| Tick { from_s: i as f64, to_s: i as f64 + 1.0, ..Tick::default() }).collect();
    let (mut now, mut free, mut times) = (0.0, 0.0f64, Vec::new());
    loop {
        now += chance.exponential(1.0 / rate);
        if now >= seconds as f64 {
            break;
        }
        let end = free.max(now) + chance.exponential(service_s);
        free = end;
        times.push(end - now);
        let add = |counts: &mut Counts, ended: bool| if ended { counts.ok += 1 } else { counts.due += 1 };
        add(&mut ticks[now as usize].counts, false);
        if let Some(tick) = ticks.get_mut(end as usize) {
            add(&mut tick.counts, true);
        }
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() * 99 / 100], ticks)
}

#[test]
fn the_rate_a_queue_takes_is_found() {
    // p99 of M/M/1 is ln(100) / (μ − λ): with μ = 1000/s and 50 ms it is sustainable up to 908/s
    let truth = 1000.0 - 100f64.ln() / 0.05;
    let mut off = Vec::new();
    for seed in 0..12 {
        let mut chance = Chance::new(seed);
        let (answer, trials) = search((1, 1000), |rate| {
            let (p99_s, ticks) = queue(rate as f64, 0.001, 120, &mut chance);
            met(p99_s < 0.05 && growing_backlog(&ticks, f64::INFINITY).is_none())
        });
        assert!(trials <= 15, "{answer:?}");
        let error = (most(answer) as f64 / truth - 1.0).abs();
        if error > 0.03 {
            off.push(answer);
        }
    }
    assert!(off.len() <= 1, "{} of 12 off: {off:?}", off.len());
}

#[test]
fn a_backlog_that_grows_is_seen_and_one_that_does_not_is_not() {
    for seed in 0..15 {
        let mut chance = Chance::new(seed);
        let steady = queue(900.0, 0.001, 20, &mut chance).1;
        assert_eq!(growing_backlog(&steady, f64::INFINITY), None, "seed {seed}");
        let behind = queue(1100.0, 0.001, 20, &mut chance).1;
        assert!(growing_backlog(&behind, f64::INFINITY).is_some(), "seed {seed}");
    }
    // too few seconds for a trend, but a tenth of everything still waits
    let tick = |i: u64| Tick {
        from_s: i as f64,
        to_s: i as f64 + 1.0,
        counts: Counts { due: 1000, ok: 900, ..Counts::default() },
        ..Tick::default()
    };
    assert_eq!(
        growing_backlog(&[tick(0), tick(1)], 2.0).as_deref(),
        Some("the backlog grew to 200 of 2000 requests")
    );
    // two a second, each of which takes about a second: it is chance whether one or two are in flight
    let slow = |i: u64| {
        let ok = if i == 0 || i == 9 { 1 } else { 2 };
        Tick { counts: Counts { due: 2, ok, ..Counts::default() }, ..tick(i) }
    };
    assert_eq!(growing_backlog(&(0..10).map(slow).collect::<Vec<_>>(), f64::INFINITY), None);
}

#[test]
fn the_verdict_is_that_of_the_lowest_level_that_was_not_met() {
    use StepOutcome::{Invalid, Met, Missed, Undecided};
    let of = |level: Option<u64>, above: Option<u64>, outcomes: &[StepOutcome]| {
        let step = |outcome: &StepOutcome| SearchStep {
            level: above.unwrap_or(1),
            outcome: *outcome,
            ..SearchStep::default()
        };
        verdict_of_search(&SearchFacts {
            vary: SearchVariable::Users,
            low: 10,
            high: 100,
            found: Some("so".to_owned()),
            level,
            above,
            confirmed: false,
            capacity: None,
            bottleneck: None,
            path: outcomes.iter().map(step).collect(),
        })
    };
    assert_eq!(of(Some(20), Some(21), &[Missed, Missed]), Verdict::Pass);
    assert_eq!(of(Some(100), None, &[]), Verdict::Pass);
    assert_eq!(of(None, Some(10), &[Missed]), Verdict::Fail);
    // loadlab itself was saturated; one trial that could be judged outweighs those that could not.
    assert_eq!(of(Some(20), Some(21), &[Invalid, Invalid, Met]), Verdict::Invalid);
    assert_eq!(of(None, Some(10), &[Invalid]), Verdict::Invalid);
    assert_eq!(of(None, Some(10), &[Invalid, Missed]), Verdict::Fail);
    assert_eq!(of(Some(20), Some(21), &[Invalid, Undecided]), Verdict::Pass);
    // Too few samples; a lower level was not tried; one that contradicts itself.
    assert_eq!(of(None, Some(10), &[Undecided, Undecided]), Verdict::Undecided);
    assert_eq!(of(None, Some(32), &[Missed]), Verdict::Undecided);
    assert_eq!(of(None, Some(10), &[Missed, Met]), Verdict::Undecided);
    // A third trial settles it.
    assert_eq!(of(None, Some(10), &[Missed, Met, Missed]), Verdict::Fail);
    // No trial missed an expectation for certain.
    assert_eq!(of(None, Some(10), &[Undecided, Met, Undecided]), Verdict::Undecided);
    assert_eq!(of(None, Some(10), &[Invalid, Undecided]), Verdict::Undecided);
    assert_eq!(of(None, Some(10), &[Undecided, Missed]), Verdict::Fail);
}

/// A backlog grows, but nothing that is expected of a level shows it.
#[test]
fn a_trial_fails_if_its_search_found_no_level_that_is_sustained() {
    let expectation = |expr: &str, holds: Option<bool>, note: Option<&str>| {
        let (expr, note) = (expr.to_owned(), note.map(str::to_owned));
        Expectation { expr, holds, value: None, unit: String::new(), note, undecided: None }
    };
    let of = |vary: SearchVariable, level: Option<u64>, above: u64| -> Summary {
        let mut summary = summarise(TrialInput { ended: Ended::Complete, ..TrialInput::default() });
        summary.expectations.push(expectation("errors == 0", Some(true), None));
        let step = |outcome: StepOutcome, why: &str| SearchStep {
            level: above,
            outcome,
            why: why.to_owned(),
            ..SearchStep::default()
        };
        // The one that could not be judged is not the reason.
        let path = vec![
            step(StepOutcome::Missed, "not steady: it grows"),
            step(StepOutcome::Undecided, "undecided: p99 < 1s"),
        ];
        let (found, above) = (Some("so".to_owned()), Some(above));
        let (low, high) = (50, 5000);
        let facts = SearchFacts { vary, low, high, found, level, above, path, ..SearchFacts::default() };
        summary.search = Some(facts);
        conclude_search(&mut summary, &[], &[]);
        summary
    };
    let note = Some("not steady: it grows");
    for (vary, above, holds, expr) in [
        (SearchVariable::Rate, 50, Some(false), "capacity >= 50/s"),
        (SearchVariable::Users, 50, Some(false), "capacity >= 50"),
        // The levels ran out before the lowest was tried.
        (SearchVariable::Rate, 70, None, "capacity >= 50/s"),
    ] {
        let summary = of(vary, None, above);
        assert_eq!(summary.expectations.last(), Some(&expectation(expr, holds, note)));
        assert_eq!(summary.verdict, Verdict::Fail);
    }
    let found = of(SearchVariable::Rate, Some(60), 61);
    assert_eq!((found.expectations.len(), found.verdict), (1, Verdict::Pass));
}

#[test]
fn a_level_that_no_trial_missed_for_certain_is_open() {
    use StepOutcome::{Invalid, Met, Missed, Undecided};
    let is_open = |outcomes: &[StepOutcome]| {
        let at = |level: u64, outcome: StepOutcome| SearchStep { level, outcome, ..SearchStep::default() };
        let others = [at(20, Undecided), at(30, Missed)];
        let path = outcomes.iter().map(|outcome| at(21, *outcome)).chain(others).collect();
        is_left_open(&SearchFacts { path, ..SearchFacts::default() }, 21)
    };
    for open in
        [&[Undecided][..], &[Undecided, Undecided], &[Undecided, Met, Undecided], &[Invalid, Undecided]]
    {
        assert!(is_open(open), "{open:?}");
    }
    for known in [&[Missed][..], &[Undecided, Missed], &[Met], &[Invalid]] {
        assert!(!is_open(known), "{known:?}");
    }
}
