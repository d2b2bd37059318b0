//! The test that is asked after every round, held against simulated sessions.

use loadlab_analysis::compare::Call;
use loadlab_analysis::sequential::{Question, Sequential, levels};
use loadlab_analysis::student;

use crate::chance::Chance;

/// Where the figures of these simulations are told.
const PAGE: &str = include_str!("../../../docs/decisions/0032-trials-until-certain.md");
const MARGIN: f64 = 0.02;
const FIGURES: usize = 6;
/// Of one case's trial.
const NOISE: f64 = 0.02;
const ROUNDS: usize = 30;

fn question(level: f64) -> Question {
    let same = ((-MARGIN).ln_1p(), MARGIN.ln_1p());
    Question { level, same, aim: MARGIN.ln_1p(), less_is_better: true }
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

impl Noise {
    fn name(self) -> &'static str {
        match self {
            Noise::Normal => "normal",
            Noise::Lognormal => "lognormal",
            Noise::HeavyTailed => "Student's t, 3 degrees of freedom",
            Noise::Autocorrelated => "AR(1), φ = 0.8",
            Noise::Drifting => "normal, with a drift of 10 % over the session",
        }
    }
}

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

    /// The differences of two equal cases in one round, by figure: a coin says which of them runs first.
    fn round(&mut self) -> [f64; FIGURES] {
        let (first, second) = (self.trial(), self.trial());
        let sign = if self.chance.share() < 0.5 { 1.0 } else { -1.0 };
        std::array::from_fn(|i| sign * (second[i] - first[i]))
    }
}

/// Whether a session of two equal cases ever called one of them better or worse.
fn alarms(noise: Noise, seed: u64) -> bool {
    let mut session = Session { noise, chance: Chance::new(seed), state: [0.0; FIGURES], trial: 0 };
    let levels = levels(&[true, true, false, false, false, false], 0.05);
    let mut tests: Vec<Sequential> = levels.into_iter().map(|l| Sequential::new(question(l))).collect();
    (0..ROUNDS).any(|_| {
        let round = session.round();
        tests.iter_mut().zip(round).for_each(|(test, d)| test.push(Some(d)));
        tests.iter().any(|t| matches!(t.call(), Call::Better | Call::Worse))
    })
}

#[test]
fn equal_cases_raise_an_alarm_at_any_stop_in_at_most_one_session_in_twenty() {
    let mut table = String::new();
    for noise in ALL {
        let count = (0..2_000).filter(|seed| alarms(noise, *seed)).count();
        // 100 and 2.3 standard deviations
        assert!(count <= 123, "{noise:?}: {count} of 2,000");
        table += &format!("| {} | {count} |\n", noise.name());
    }
    assert!(PAGE.contains(&table), "the decision lacks this table:\n{table}");
}

/// A figure of two cases that differ by this ratio, until it is settled.
fn until_settled(shift: f64, seed: u64) -> Sequential {
    let mut chance = Chance::new(seed);
    let mut test = Sequential::new(question(0.05));
    for _ in 0..ROUNDS {
        test.push(Some(shift.ln_1p() + NOISE * (chance.normal() - chance.normal())));
        if test.call() != Call::CannotTell {
            break;
        }
    }
    test
}

const SESSIONS: u64 = 2_000;

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

#[test]
fn large_shifts_take_fewer_trials_than_a_fixed_plan_and_the_documented_table_is_true() {
    let differs = fixed(|mean, half, _| mean.abs() > half, MARGIN);
    let same = fixed(|mean, _, half| mean.abs() + half < MARGIN.ln_1p(), 0.0);
    let mut table = String::new();
    for (shift, fixed) in [(0.0, same), (0.02, differs), (0.05, differs), (0.1, differs)] {
        let tests: Vec<Sequential> = (0..SESSIONS).map(|seed| until_settled(shift, seed)).collect();
        let mean = tests.iter().map(Sequential::rounds).sum::<usize>() as f64 / SESSIONS as f64;
        let share = |call| 100.0 * tests.iter().filter(|t| t.call() == call).count() as f64 / SESSIONS as f64;
        table += &format!(
            "| {:.0} % | {:.0} | {} | {:.0} % | {:.0} % | {:.0} % |\n",
            shift * 100.0,
            2.0 * mean,
            2 * fixed,
            share(Call::Worse) + share(Call::Better),
            share(Call::Same),
            share(Call::CannotTell)
        );
        if shift > 0.02 {
            assert!(
                mean < fixed as f64 && share(Call::Worse) > 95.0,
                "{shift}: {mean} rounds, fixed {fixed}"
            );
        }
    }
    assert!(PAGE.contains(&table), "the decision lacks this table:\n{table}");
}

#[test]
fn even_with_known_normal_noise_no_shift_takes_more_trials_than_the_fixed_plan() {
    let (margin, variance) = (MARGIN.ln_1p(), 2.0 * NOISE * NOISE);
    let rounds_of = |seed| {
        let mut chance = Chance::new(seed);
        // Wald's likelihood ratio of no shift to a shift by the margin, downwards and upwards
        let (mut logs, mut done) = ([0.0; 2], [false; 2]);
        for round in 1..=ROUNDS {
            let d = NOISE * (chance.normal() - chance.normal());
            for (side, sign) in [1.0, -1.0].into_iter().enumerate() {
                logs[side] += margin / variance * (sign * d + margin / 2.0);
                done[side] |= logs[side] >= 20f64.ln();
            }
            if done == [true; 2] {
                return round;
            }
        }
        ROUNDS
    };
    let trials = 2.0 * (0..SESSIONS).map(rounds_of).sum::<usize>() as f64 / SESSIONS as f64;
    let told = format!("it takes {trials:.0} trials");
    assert!(trials > 38.0 && PAGE.contains(&told), "the decision lacks: {told}");
}

#[test]
fn noise_that_is_nothing_like_the_margin_is_learnt() {
    let share = |noise: f64, shift: f64, call: Call| {
        let settled = |seed: &u64| {
            let mut chance = Chance::new(*seed);
            let mut test = Sequential::new(question(0.05));
            (0..ROUNDS).any(|_| {
                test.push(Some(shift + noise * (chance.normal() - chance.normal())));
                test.call() == call
            })
        };
        (0..200).filter(settled).count()
    };
    let found = [
        share(0.2, 0.5, Call::Worse),
        share(0.2, -0.5, Call::Better),
        share(0.002, 0.0, Call::Same),
        share(0.002, 0.03, Call::Worse),
    ];
    assert!(found.iter().all(|n| *n >= 190), "{found:?} of 200");
}

#[test]
fn intervals_hold_the_truth_at_every_round_and_never_contradict_the_call() {
    let shifts = [0.0, 0.01, -0.02, 0.05];
    for shift in shifts {
        let truth = f64::ln_1p(shift);
        let mut missed = 0;
        for seed in 0..100 {
            let mut chance = Chance::new(seed);
            let mut test = Sequential::new(question(0.05));
            let (mut low, mut high, mut holds) = (f64::NEG_INFINITY, f64::INFINITY, true);
            for _ in 0..20 {
                test.push(Some(truth + NOISE * (chance.normal() - chance.normal())));
                let a = test.answer();
                let (l, h) = (a.low.unwrap_or(f64::NEG_INFINITY), a.high.unwrap_or(f64::INFINITY));
                holds &= l <= truth && truth <= h;
                let (from, to) = question(0.05).same;
                match a.call {
                    Call::Same => assert!(l >= from - 1e-9 && h <= to + 1e-9, "{shift} {seed}: {a:?}"),
                    Call::Worse => assert!(l >= 0.0 && h > 0.0, "{shift} {seed}: {a:?}"),
                    Call::Better => assert!(h <= 0.0 && l < 0.0, "{shift} {seed}: {a:?}"),
                    Call::CannotTell => assert!(l <= 0.0 && h >= 0.0, "{shift} {seed}: {a:?}"),
                }
                // A difference is found by a stricter test, so the near end may step back to no shift, not beyond.
                (low, high) = (low.max(l.min(0.0)), high.min(h.max(0.0)));
                assert!(l >= low - 1e-9 && h <= high + 1e-9, "{shift} {seed}: {a:?}");
            }
            missed += usize::from(!holds);
        }
        // 5 and 2.3 standard deviations
        assert!(missed <= 10, "{shift}: {missed} of 100");
    }
}
