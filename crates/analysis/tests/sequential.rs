//! The test that is repeated after every round, checked on simulated sessions.

use loadlab_analysis::comparison::interval::{Call, EquivalenceBounds};
use loadlab_analysis::comparison::sequential::{Question, Sequential, levels};
use loadlab_analysis::statistics::student;

use crate::chance::Chance;

const MARGIN: f64 = 0.02;
const FIGURES: usize = 6;
/// Standard deviation of one case's trial, on a logarithmic scale.
const NOISE: f64 = 0.02;
const ROUNDS: usize = 24;
/// Whether `cargo xtask long` built the tests.
const IS_LONG: bool = option_env!("LOADLAB_TEST_LONG").is_some();

fn question(level: f64, seed: u64) -> Question {
    let same = EquivalenceBounds { low: (-MARGIN).ln_1p(), high: MARGIN.ln_1p() };
    Question { level, same, at_most: ROUNDS, less_is_better: true, seed }
}

#[derive(Clone, Copy, Debug)]
enum Noise {
    Normal,
    Lognormal,
    /// Student's with 3 degrees of freedom.
    HeavyTailed,
    /// AR(1), φ = 0.8.
    Autocorrelated,
    /// 10 % over the session.
    Drifting,
}

const ALL: [Noise; 5] =
    [Noise::Normal, Noise::Lognormal, Noise::HeavyTailed, Noise::Autocorrelated, Noise::Drifting];

/// What disturbs the trials of a session, one after the other; half of it is common to all figures.
struct Session {
    noise: Noise,
    chance: Chance,
    state: [f64; FIGURES],
    trial: usize,
}

impl Session {
    fn trial(&mut self) -> [f64; FIGURES] {
        let half = 0.5f64.sqrt();
        let common = self.chance.normal();
        let drift = 0.1 * self.trial as f64 / (2 * ROUNDS) as f64;
        self.trial += 1;
        let (noise, chance) = (self.noise, &mut self.chance);
        self.state.each_mut().map(|state| {
            let z = half * (common + chance.normal());
            match noise {
                Noise::Normal => NOISE * z,
                Noise::Lognormal => NOISE * (1.5 * z).exp(),
                Noise::HeavyTailed => {
                    let squares: f64 = (0..3).map(|_| chance.normal().powi(2)).sum();
                    NOISE * z / (squares / 3.0).sqrt()
                }
                Noise::Autocorrelated => {
                    *state = 0.8 * *state + 0.6 * z;
                    NOISE * *state
                }
                Noise::Drifting => NOISE * z + drift,
            }
        })
    }

    /// The differences of two equal cases in one round, by figure: a coin decides which of them runs first.
    fn round(&mut self) -> [f64; FIGURES] {
        let (first, second) = (self.trial(), self.trial());
        let sign = if self.chance.share() < 0.5 { 1.0 } else { -1.0 };
        std::array::from_fn(|i| sign * (second[i] - first[i]))
    }
}

/// Whether a session of two equal cases ever called one of them better or worse.
fn alarms(noise: Noise, of_plan: &[bool], seed: u64) -> bool {
    let mut session = Session { noise, chance: Chance::new(seed), state: [0.0; FIGURES], trial: 0 };
    let tests = levels(of_plan, 0.05).into_iter().zip(0..);
    let mut tests: Vec<Sequential> =
        tests.map(|(level, figure)| Sequential::new(question(level, seed * 64 + figure))).collect();
    (0..ROUNDS).any(|_| {
        let round = session.round();
        tests.iter_mut().zip(round).for_each(|(test, d)| test.push(Some(d)));
        tests.iter().any(|t| matches!(t.call(), Call::Better | Call::Worse))
    })
}

/// `cargo xtask long` has 2,000 sessions of six figures.
#[test]
fn equal_cases_raise_an_alarm_at_any_stop_in_at_most_one_session_in_twenty() {
    let named = [true, true, false, false, false, false];
    let (sessions, of_plan) = if IS_LONG { (2_000, &named[..]) } else { (200, &named[..2]) };
    // 5 % and 2.3 standard deviations
    let most = 0.05 * sessions as f64 + 2.3 * (0.05 * 0.95 * sessions as f64).sqrt();
    for noise in ALL {
        let count = (0..sessions).filter(|seed| alarms(noise, of_plan, *seed)).count();
        eprintln!("{noise:?}: {count} of {sessions}");
        assert!(count as f64 <= most, "{noise:?}: {count} of {sessions}");
    }
}

/// A figure of two cases that differ by this ratio, until it is settled.
fn until_settled(shift: f64, seed: u64) -> Sequential {
    let mut chance = Chance::new(seed);
    let mut test = Sequential::new(question(0.05, seed));
    for _ in 0..ROUNDS {
        test.push(Some(shift.ln_1p() + NOISE * (chance.normal() - chance.normal())));
        if test.call() != Call::CannotTell {
            break;
        }
    }
    test
}

const SESSIONS: u64 = 1_000;

/// Rounds of a fixed plan with a power of 80 %: by the paired t for a shift of the margin, or by two one-sided t for no
/// shift.
fn fixed(finds: fn(mean: f64, half_95: f64, half_90: f64) -> bool, shift: f64) -> usize {
    let power = |n: usize| {
        let df = n as f64 - 1.0;
        let (t_95, t_90) = (student::critical(0.95, df), student::critical(0.9, df));
        let found = (0..SESSIONS).filter(|seed| {
            let mut chance = Chance::new(*seed);
            let all: Vec<f64> =
                (0..n).map(|_| shift.ln_1p() + NOISE * (chance.normal() - chance.normal())).collect();
            let mean = all.iter().sum::<f64>() / n as f64;
            let error = (all.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / df / n as f64).sqrt();
            finds(mean, t_95 * error, t_90 * error)
        });
        found.count() as f64 / SESSIONS as f64
    };
    (5..60).find(|n| power(*n) >= 0.8).unwrap_or(60)
}

/// Trials until a figure is settled, beside a fixed plan that is sized for the margin; the figures are in decision 32.
#[test]
fn it_takes_fewer_trials_than_a_fixed_plan_that_finds_as_much() {
    let sessions = if IS_LONG { 2_000 } else { 200 };
    let differs = fixed(|mean, half, _| mean.abs() > half, MARGIN);
    let same = fixed(|mean, _, half| mean.abs() + half < MARGIN.ln_1p(), 0.0);
    for (shift, fixed, found) in [
        (0.0, same, Call::Same),
        (0.02, differs, Call::Worse),
        (0.05, differs, Call::Worse),
        (0.1, differs, Call::Worse),
    ] {
        let tests: Vec<Sequential> = (0..sessions).map(|seed| until_settled(shift, seed)).collect();
        let mean = tests.iter().map(Sequential::rounds).sum::<usize>() as f64 / sessions as f64;
        let share = |call| 100.0 * tests.iter().filter(|t| t.call() == call).count() as f64 / sessions as f64;
        eprintln!(
            "| {:.0} % | {:.0} | {} | {:.0} % | {:.0} % | {:.0} % |",
            shift * 100.0,
            2.0 * mean,
            2 * fixed,
            share(Call::Worse) + share(Call::Better),
            share(Call::Same),
            share(Call::CannotTell)
        );
        assert!(mean < fixed as f64, "{shift}: {mean} rounds, fixed {fixed}");
        assert!(share(found) > if shift > 0.02 { 99.0 } else { 70.0 }, "{shift}: {}", share(found));
    }
}

#[test]
fn intervals_hold_the_truth_and_agree_with_the_call() {
    for shift in [0.0, 0.01, -0.02, 0.05] {
        let truth = f64::ln_1p(shift);
        let mut missed = 0;
        for seed in 0..60 {
            let mut chance = Chance::new(seed);
            let mut test = Sequential::new(question(0.05, seed));
            (0..16).for_each(|_| test.push(Some(truth + NOISE * (chance.normal() - chance.normal()))));
            let a = test.answer();
            let (low, high) = (a.low.unwrap_or(f64::NEG_INFINITY), a.high.unwrap_or(f64::INFINITY));
            assert!(low < high, "{shift} {seed}: {a:?}");
            match a.call {
                Call::Worse => assert!(low >= 0.0, "{shift} {seed}: {a:?}"),
                Call::Better => assert!(high <= 0.0, "{shift} {seed}: {a:?}"),
                Call::Same => {}
                Call::Changed | Call::CannotTell => {
                    assert!(low <= 0.0 && high >= 0.0, "{shift} {seed}: {a:?}")
                }
            }
            missed += usize::from(truth < low || truth > high);
        }
        // 3 and 2.3 standard deviations
        assert!(missed <= 6, "{shift}: {missed} of 60");
    }
}
