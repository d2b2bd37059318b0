//! The search for the highest load that meets an expectation: which level to measure next, and the conclusion from all
//! levels. A pure state machine: it takes the outcome of each trial and returns what to do next; it has no clock, no
//! server and no load.
//!
//! Levels (users, or requests per second) are bisected on a logarithmic scale between the largest that passed and the
//! smallest that failed, until the two are within [`PRECISION`] of one another. A measurement may be wrong, so both
//! ends are measured again before an answer is given: the lower must pass again, the upper must fail again. The same
//! applies to an end that three trials in a row converge on. A level that contradicts itself is measured a third time,
//! and the majority counts. If an end is refuted, the search continues from there.
//!
//! Assumption: what fails at a level fails at all higher ones. That holds for response times and errors, but not for
//! `goodput > 100`, which a few users cannot reach.

use loadlab_record::documents::search::StepOutcome;
use serde::{Deserialize, Serialize};

pub use loadlab_record::documents::search::MAX_LEVELS;

/// Levels this close to one another count as the same: two per cent.
pub const PRECISION: f64 = 0.02;

/// Trials in a row with one outcome that make the end they converge on suspicious.
const STREAK: usize = 3;

/// The outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It met the expectations, and was steady.
    Met,
    /// It did not.
    Missed,
    /// The measurement cannot be trusted: loadlab, not the system, was saturated.
    Invalid,
}

impl From<StepOutcome> for Outcome {
    /// A level that is not known to meet the expectations counts as one that does not.
    fn from(outcome: StepOutcome) -> Outcome {
        match outcome {
            StepOutcome::Met => Outcome::Met,
            StepOutcome::Missed | StepOutcome::Undecided => Outcome::Missed,
            StepOutcome::Invalid => Outcome::Invalid,
        }
    }
}

/// A level, and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelOutcome {
    /// Users, or requests per second.
    pub level: u64,
    /// The outcome.
    pub outcome: Outcome,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum NextLevel {
    /// Measure this level.
    Measure {
        /// Users, or requests per second.
        level: u64,
        /// Whether it was measured before: this trial confirms or refutes it.
        again: bool,
    },
    /// The search is over.
    Done(Answer),
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "found")]
pub enum Answer {
    /// The highest level that met the expectation.
    Most {
        /// That level.
        level: u64,
        /// The lowest level that did not.
        above: u64,
        /// Both were measured twice with the same outcome; otherwise the maximum number of levels was reached first.
        confirmed: bool,
    },
    /// No level that was measured failed it.
    AtLeast {
        /// The highest that was measured.
        level: u64,
        /// It is the highest of the range; otherwise the maximum number of levels was reached first.
        is_top: bool,
    },
    /// No level that was measured met it.
    LessThan {
        /// The lowest that was measured.
        level: u64,
        /// It is the lowest of the range; otherwise the maximum number of levels was reached first.
        is_bottom: bool,
    },
    /// From `above` on loadlab is saturated, not the system.
    Generator {
        /// The highest level that met the expectation, if any did.
        level: Option<u64>,
        /// The lowest level that could not be measured.
        above: u64,
    },
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct Search {
    low: u64,
    high: u64,
    max_levels: u32,
    precision: f64,
    /// The first level; `None` for the middle of the range.
    start: Option<u64>,
    /// The first level is moved by this factor.
    shift: f64,
    path: Vec<LevelOutcome>,
}

/// What is known of a level from all its trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Never measured.
    Nothing,
    /// All trials agree, or the majority does.
    Is(Outcome),
    /// The outcomes are evenly split.
    Torn,
}

impl Search {
    /// A search between two levels, both inclusive; the lower is at least 1. A reversed range is swapped.
    pub fn new(low: u64, high: u64, max_levels: u32) -> Search {
        let (low, high) = (low.min(high).max(1), low.max(high).max(1));
        Search {
            low,
            high,
            max_levels: max_levels.max(1),
            precision: PRECISION,
            start: None,
            shift: 1.0,
            path: Vec::new(),
        }
    }

    /// Starts at a level near which the answer probably is, such as the last search's: the search moves away from it
    /// in steps that double, until the answer lies between two levels.
    pub fn starting_at(self, level: u64) -> Search {
        Search { start: Some(level.clamp(self.low, self.high)), ..self }
    }

    /// Shifts the levels: repeated searches would otherwise halve the same range at the same levels, and all err in
    /// the same direction. `place` is the index of the repeat.
    pub fn dithered(self, place: u64) -> Search {
        // Multiples of the golden ratio spread evenly, however many there are.
        let share = (place as f64 * 0.618_033_988_749_894_9).fract() - 0.5;
        Search { shift: (share * self.precision).exp(), ..self }
    }

    /// Everything that was measured, in order.
    pub fn path(&self) -> &[LevelOutcome] {
        &self.path
    }

    /// Records the outcome of a trial.
    pub fn add(&mut self, level: u64, outcome: Outcome) {
        self.path.push(LevelOutcome { level, outcome });
    }

    /// What to do next; unchanged until [`Search::add`] is called.
    pub fn next(&self) -> NextLevel {
        match self.step() {
            NextLevel::Measure { .. } if self.path.len() >= self.max_levels as usize => {
                NextLevel::Done(self.answer(false))
            }
            next => next,
        }
    }

    /// As `next`, without a limit on the number of levels.
    fn step(&self) -> NextLevel {
        // A level that contradicts itself is settled first: everything else depends on it.
        if let Some(level) = self.levels().into_iter().find(|l| self.known(*l) == Known::Torn) {
            return NextLevel::Measure { level, again: true };
        }
        let (passed, failed) = self.bracket();
        let between = self.between(passed, failed);
        if let (Some(_), Some(level)) = (between, self.suspicious(passed, failed)) {
            return NextLevel::Measure { level, again: true };
        }
        if let Some(level) = between {
            return NextLevel::Measure { level, again: false };
        }
        // Both ends again, the upper first, since a hiccup can fail a trial but nothing can make one pass.
        let once = |level: &u64| self.times(*level) == 1;
        match failed.filter(once).or(passed.filter(once)) {
            Some(level) => NextLevel::Measure { level, again: true },
            None => NextLevel::Done(self.answer(true)),
        }
    }

    /// An end that was measured once, and that all trials since converge on: if the truth is equally likely on either
    /// side, three in a row on one side are rare enough to justify checking the end.
    fn suspicious(&self, passed: Option<u64>, failed: Option<u64>) -> Option<u64> {
        let last = self.path.len().checked_sub(STREAK).map(|from| &self.path[from..])?;
        let met = last.iter().filter(|p| p.outcome == Outcome::Met).count();
        // A level that is measured again confirms itself, and is not further evidence.
        if last.iter().any(|p| self.times(p.level) > 1) {
            return None;
        }
        let end = match met {
            STREAK => failed,
            0 => passed,
            _ => None,
        };
        end.filter(|level| self.times(*level) == 1)
    }

    /// The largest level that passed, and the smallest above it that failed.
    fn bracket(&self) -> (Option<u64>, Option<u64>) {
        let is = |level: &u64, met: bool| match self.known(*level) {
            Known::Is(outcome) => (outcome == Outcome::Met) == met,
            _ => false,
        };
        let levels = self.levels();
        let passed = levels.iter().copied().filter(|l| is(l, true)).max();
        // If a failure lies below something that passed, the pass is believed: a hiccup fails a trial, and nothing
        // makes an overloaded system pass one.
        let failed = levels.iter().copied().filter(|l| is(l, false) && passed.is_none_or(|p| *l > p)).min();
        (passed, failed)
    }

    /// The level to measure between the ends; `None` when they are close enough.
    fn between(&self, passed: Option<u64>, failed: Option<u64>) -> Option<u64> {
        match (passed, failed) {
            // The whole range is open. The ends of a range are guesses, and its top may take the system down, so the
            // middle comes first.
            (None, None) => {
                let first = self.start.unwrap_or_else(|| middle(self.low, self.high));
                let shifted = (first as f64 * self.shift).round() as u64;
                Some(shifted.clamp(self.low, self.high))
            }
            (Some(passed), None) if passed >= self.high => None,
            (Some(passed), None) => Some(match self.near(passed, self.high) {
                true => self.high,
                false => match self.stride() {
                    Some(factor) => middle(passed, self.high).min(times(passed, factor).max(passed + 1)),
                    None => middle(passed, self.high),
                },
            }),
            (None, Some(failed)) if failed <= self.low => None,
            (None, Some(failed)) => Some(match self.near(self.low, failed) {
                true => self.low,
                false => match self.stride() {
                    Some(factor) => middle(self.low, failed).max(times(failed, 1.0 / factor).min(failed - 1)),
                    None => middle(self.low, failed),
                },
            }),
            (Some(passed), Some(failed)) if self.near(passed, failed) => None,
            (Some(passed), Some(failed)) => Some(middle(passed, failed)),
        }
    }

    /// Factor from the last level to the next while the answer lies on one side of all of them; `None` without a
    /// start.
    fn stride(&self) -> Option<f64> {
        self.start?;
        let doublings = i32::try_from(self.levels().len().saturating_sub(1)).unwrap_or(i32::MAX).min(8);
        Some((FIRST_STRIDE * 2f64.powi(doublings)).exp())
    }

    fn near(&self, low: u64, high: u64) -> bool {
        high - low <= 1 || (high as f64) <= low as f64 * (1.0 + self.precision)
    }

    /// The conclusion once nothing more is measured.
    fn answer(&self, confirmed: bool) -> Answer {
        let (passed, failed) = self.bracket();
        let torn = self.levels().into_iter().any(|l| self.known(l) == Known::Torn);
        let is_invalid = |level: u64| self.known(level) == Known::Is(Outcome::Invalid);
        match (passed, failed) {
            (passed, Some(above)) if is_invalid(above) => Answer::Generator { level: passed, above },
            (Some(level), Some(above)) => Answer::Most { level, above, confirmed: confirmed && !torn },
            (Some(level), None) => Answer::AtLeast { level, is_top: level >= self.high },
            (None, Some(level)) => Answer::LessThan { level, is_bottom: level <= self.low },
            // Nothing is known of any level: the trials ran out while one contradicted itself.
            (None, None) => {
                let level = self.levels().first().copied().unwrap_or(self.low);
                Answer::LessThan { level, is_bottom: false }
            }
        }
    }

    fn levels(&self) -> Vec<u64> {
        let mut levels: Vec<u64> = self.path.iter().map(|p| p.level).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    fn times(&self, level: u64) -> usize {
        self.path.iter().filter(|p| p.level == level).count()
    }

    fn known(&self, level: u64) -> Known {
        let of = |outcome| self.path.iter().filter(|p| p.level == level && p.outcome == outcome).count();
        let (met, missed, invalid) = (of(Outcome::Met), of(Outcome::Missed), of(Outcome::Invalid));
        match (met, missed + invalid) {
            (0, 0) => Known::Nothing,
            (a, b) if a == b => Known::Torn,
            (a, b) if a > b => Known::Is(Outcome::Met),
            // One definite outcome exists: it takes precedence over those that could not be determined.
            _ if missed > 0 => Known::Is(Outcome::Missed),
            _ => Known::Is(Outcome::Invalid),
        }
    }
}

/// The first step away from a level near which the answer is expected, on the logarithmic scale.
const FIRST_STRIDE: f64 = 0.04;

fn times(level: u64, factor: f64) -> u64 {
    (level as f64 * factor).round() as u64
}

/// Halfway on a logarithmic scale, strictly between the two if possible.
fn middle(low: u64, high: u64) -> u64 {
    if high <= low + 1 {
        return high;
    }
    let middle = ((low as f64) * (high as f64)).sqrt().round() as u64;
    middle.clamp(low + 1, high - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer, and the levels measured, for a system that handles exactly this much.
    fn run(range: (u64, u64), takes: u64) -> (Answer, Vec<u64>) {
        let mut search = Search::new(range.0, range.1, MAX_LEVELS);
        loop {
            match search.next() {
                NextLevel::Done(answer) => return (answer, search.path().iter().map(|p| p.level).collect()),
                NextLevel::Measure { level, .. } => {
                    search.add(level, if level <= takes { Outcome::Met } else { Outcome::Missed });
                }
            }
        }
    }

    #[test]
    fn every_capacity_of_a_range_is_found() {
        for takes in 1..1000 {
            let (answer, path) = run((1, 1000), takes);
            let Answer::Most { level, above, confirmed: true } = answer else {
                panic!("{takes}: {answer:?} by {path:?}")
            };
            assert!(level <= takes && takes < above, "{takes}: {answer:?}");
            assert!(above - level <= 1 || above as f64 <= level as f64 * 1.02, "{takes}: {answer:?}");
            assert!(path.len() <= 14, "{takes}: {path:?}");
        }
    }

    #[test]
    fn what_lies_beyond_a_range_is_said() {
        assert_eq!(run((10, 200), 5).0, Answer::LessThan { level: 10, is_bottom: true });
        assert_eq!(run((10, 200), 200).0, Answer::AtLeast { level: 200, is_top: true });
        assert_eq!(run((10, 200), 5000).0, Answer::AtLeast { level: 200, is_top: true });
        assert_eq!(run((7, 7), 7).0, Answer::AtLeast { level: 7, is_top: true });
        assert_eq!(run((7, 7), 6).0, Answer::LessThan { level: 7, is_bottom: true });
    }

    #[test]
    fn a_level_that_was_not_probed_has_not_failed() {
        let mut search = Search::new(1, 1000, 3);
        while let NextLevel::Measure { level, .. } = search.next() {
            search.add(level, Outcome::Met);
        }
        assert_eq!(search.next(), NextLevel::Done(Answer::AtLeast { level: 423, is_top: false }));
    }

    #[test]
    fn a_search_that_runs_out_says_so_and_one_that_is_done_with_its_last_level_does_not() {
        let limited = |most: u32, takes: u64| {
            let mut search = Search::new(1, 1000, most);
            loop {
                match search.next() {
                    NextLevel::Done(answer) => return answer,
                    NextLevel::Measure { level, .. } => {
                        search.add(level, if level <= takes { Outcome::Met } else { Outcome::Missed });
                    }
                }
            }
        };
        let (answer, path) = run((1, 1000), 500);
        let levels = path.len() as u32;
        assert_eq!(limited(levels, 500), answer);
        assert!(matches!(limited(levels - 1, 500), Answer::Most { confirmed: false, .. }));
        // The lowest level was not tried: it may pass.
        assert_eq!(limited(3, 0), Answer::LessThan { level: 2, is_bottom: false });
        // A level that contradicts itself has not missed.
        let mut torn = Search::new(1, 1, 2);
        torn.add(1, Outcome::Missed);
        torn.add(1, Outcome::Met);
        assert_eq!(torn.next(), NextLevel::Done(Answer::LessThan { level: 1, is_bottom: false }));
    }

    #[test]
    fn the_path_of_a_small_search() {
        assert_eq!(run((1, 100), 20).1, [10, 32, 18, 24, 21, 19, 20, 21, 20]);
    }

    /// Reports the wrong outcome in the first trial of these levels, and the truth from the second on.
    fn fooled(wrong: &[u64], takes: u64) -> (Answer, usize) {
        let mut search = Search::new(1, 1000, MAX_LEVELS);
        loop {
            match search.next() {
                NextLevel::Done(answer) => return (answer, search.path().len()),
                NextLevel::Measure { level, again } => {
                    let truth = level <= takes;
                    let says = if wrong.contains(&level) && !again { !truth } else { truth };
                    search.add(level, if says { Outcome::Met } else { Outcome::Missed });
                }
            }
        }
    }

    #[test]
    fn a_hiccup_on_the_way_is_found_out() {
        // 32 is measured first, and fails for no reason: the search ends just below it, and goes up again
        let (answer, trials) = fooled(&[32], 500);
        let Answer::Most { level, .. } = answer else { panic!("{answer:?}") };
        assert!((32..=500).contains(&level), "{answer:?} after {trials}");
        assert_eq!(trials, 15);
        // near the answer it costs a trial or two
        let (answer, trials) = fooled(&[506], 500);
        assert!(matches!(answer, Answer::Most { level: 490..=500, .. }), "{answer:?} after {trials}");
    }

    #[test]
    fn a_saturated_generator_is_not_taken_for_the_system() {
        let mut search = Search::new(1, 1000, MAX_LEVELS);
        let answer = loop {
            match search.next() {
                NextLevel::Done(answer) => break answer,
                NextLevel::Measure { level, .. } => {
                    search.add(level, if level <= 300 { Outcome::Met } else { Outcome::Invalid });
                }
            }
        };
        let Answer::Generator { level: Some(level), above } = answer else { panic!("{answer:?}") };
        assert!((294..=300).contains(&level) && (301..=306).contains(&above), "{answer:?}");
    }
}
