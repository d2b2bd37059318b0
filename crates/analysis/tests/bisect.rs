//! The search for the revision that changed a figure, tested on simulated repositories.

use loadlab_analysis::bisect::{Bisection, Next};

use crate::chance::Chance;

const REVISIONS: usize = 64;
const SHIFT: f64 = 0.08;
const NOISE: f64 = 0.02;
/// Number of simulated searches; `cargo xtask long` makes more of them.
const RUNS: u64 = if option_env!("LOADLAB_TEST_LONG").is_some() { 200 } else { 60 };

#[derive(Clone, Copy, Debug)]
enum Noise {
    Normal,
    Lognormal,
    /// Student's with 3 degrees of freedom.
    HeavyTailed,
    /// 10 % over forty trials.
    Drifting,
}

impl Noise {
    fn of(self, chance: &mut Chance, trial: usize) -> f64 {
        let z = chance.normal();
        match self {
            Noise::Normal => NOISE * z,
            Noise::Lognormal => NOISE * (z.exp() - 1.65) / 1.5,
            Noise::HeavyTailed => {
                let squares: f64 = (0..3).map(|_| chance.normal().powi(2)).sum();
                NOISE * z / (squares / 3.0).sqrt() / 1.2
            }
            Noise::Drifting => NOISE * z + 0.1 * trial as f64 / 40.0,
        }
    }
}

/// A repository with one slow revision; a tenth of the others do not build. Returns whether it was named, and the
/// trials it took.
fn searched(noise: Noise, seed: u64) -> (bool, usize) {
    let mut chance = Chance::new(seed);
    let slow = 1 + (chance.share() * REVISIONS as f64) as usize;
    let builds: Vec<bool> = (0..=REVISIONS)
        .map(|r| r == 0 || r == REVISIONS || r == slow || r + 1 == slow || chance.share() > 0.1)
        .collect();
    let mut search = Bisection::new(REVISIONS, 0.95, 200, seed);
    let mut trial = 0;
    loop {
        match search.next() {
            Next::Measure(revision) if !builds[revision] => search.skip(revision),
            Next::Measure(revision) => {
                let shift = if revision >= slow { f64::ln_1p(SHIFT) } else { 0.0 };
                search.measured(revision, shift + noise.of(&mut chance, trial));
                trial += 1;
            }
            Next::Found(named) => return (named.len() == 1 && named[0].0 == slow, trial),
            Next::NoDifference | Next::NotCertain(_) => return (false, trial),
        }
    }
}

/// Plain bisection, with the median of five trials at each revision, both ends first.
fn plainly(noise: Noise, seed: u64) -> (bool, usize) {
    let mut chance = Chance::new(seed);
    let slow = 1 + (chance.share() * REVISIONS as f64) as usize;
    let mut trial = 0;
    let mut five = |revision: usize| {
        let shift = if revision >= slow { f64::ln_1p(SHIFT) } else { 0.0 };
        let mut all: Vec<f64> = (0..5)
            .map(|_| {
                trial += 1;
                shift + noise.of(&mut chance, trial)
            })
            .collect();
        all.sort_by(f64::total_cmp);
        all[2]
    };
    let limit = f64::midpoint(five(0), five(REVISIONS));
    let (mut good, mut bad) = (0, REVISIONS);
    while bad - good > 1 {
        let middle = usize::midpoint(good, bad);
        if five(middle) > limit { bad = middle } else { good = middle }
    }
    (bad == slow, trial)
}

#[test]
fn the_right_revision_is_named_with_fewer_trials_than_plain_bisection_takes() {
    for noise in [Noise::Normal, Noise::Lognormal, Noise::HeavyTailed, Noise::Drifting] {
        let sum = |search: fn(Noise, u64) -> (bool, usize)| {
            let all: Vec<(bool, usize)> = (0..RUNS).map(|seed| search(noise, seed)).collect();
            let right = all.iter().filter(|(right, _)| *right).count();
            (right, all.iter().map(|(_, trials)| trials).sum::<usize>() as f64 / RUNS as f64)
        };
        let ((right, trials), (plain_right, plain)) = (sum(searched), sum(plainly));
        eprintln!(
            "| {noise:?} | {right} of {RUNS}, {trials:.1} trials | {plain_right} of {RUNS}, {plain:.1} trials |"
        );
        assert!(right as f64 >= 0.95 * RUNS as f64, "{noise:?}: {right} of {RUNS}");
        assert!(trials < plain, "{noise:?}: {trials} trials, plainly {plain}");
    }
}

#[test]
fn ends_that_do_not_differ_are_not_searched() {
    let found = (0..RUNS).filter(|seed| {
        let mut chance = Chance::new(*seed);
        let mut search = Bisection::new(REVISIONS, 0.95, 200, *seed);
        loop {
            match search.next() {
                Next::Measure(revision) => search.measured(revision, NOISE * chance.normal()),
                Next::NoDifference => return false,
                Next::Found(_) | Next::NotCertain(_) => return true,
            }
        }
    });
    // 1 % at each of nine looks, which are strongly correlated.
    let found = found.count();
    assert!(found as u64 * 100 <= 8 * RUNS, "{found} of {RUNS}");
}

#[test]
fn the_ends_are_measured_no_more_often_than_all_trials_may_be() {
    let mut search = Bisection::new(REVISIONS, 0.95, 8, 1);
    let mut chance = Chance::new(1);
    let ended = loop {
        match search.next() {
            Next::Measure(revision) => search.measured(revision, NOISE * chance.normal()),
            ended => break ended,
        }
    };
    assert_eq!((search.trials(), ended), (8, Next::NotCertain(Vec::new())));
}

#[test]
fn revisions_that_cannot_be_measured_are_named_together() {
    // Of 8 revisions 4 and 5 do not build; 5 is slow.
    let mut search = Bisection::new(8, 0.95, 100, 1);
    let mut chance = Chance::new(3);
    let found = loop {
        match search.next() {
            Next::Measure(revision @ (4 | 5)) => search.skip(revision),
            Next::Measure(revision) => {
                let shift = if revision >= 5 { 0.3 } else { 0.0 };
                search.measured(revision, shift + NOISE * chance.normal());
            }
            Next::Found(named) => break named,
            other => panic!("{other:?}"),
        }
    };
    let mut revisions: Vec<usize> = found.iter().map(|(revision, _)| *revision).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, [4, 5, 6]);
    assert!(found.iter().map(|(_, p)| p).sum::<f64>() >= 0.95);
    assert!(search.shift(5).is_some_and(|shift| (0.25..0.35).contains(&shift)));
}

#[test]
fn an_end_that_cannot_be_measured_and_too_few_trials_are_not_certain() {
    let mut search = Bisection::new(8, 0.95, 100, 1);
    search.skip(8);
    assert_eq!(search.next(), Next::NotCertain(Vec::new()));
    let mut search = Bisection::new(64, 0.95, 12, 1);
    let mut chance = Chance::new(3);
    let likeliest = loop {
        match search.next() {
            Next::Measure(revision) => {
                let shift = if revision >= 20 { 0.08 } else { 0.0 };
                search.measured(revision, shift + NOISE * chance.normal());
            }
            Next::NotCertain(likeliest) => break likeliest,
            other => panic!("{other:?}"),
        }
    };
    assert!(search.trials() <= 13 && !likeliest.is_empty(), "{likeliest:?}");
}
