//! Whether two cases differ, asked after every round: a test that stays valid however often one looks, up to a number
//! of rounds that is set beforehand.
//!
//! A round runs each case once in random order. Take the difference D of two cases within a round. Had the two swapped
//! their turns, the noise of the round would have had the other sign; both orders are equally likely. So, given the
//! distances |D − δ| from the true shift δ, the signs of D − δ are fair coins, whatever the noise: skewed,
//! heavy-tailed, autocorrelated or drifting (a randomisation test: Fisher 1935; symmetry: Efron 1969).
//!
//! The rounds are therefore compared with the same rounds under other signs, about a thousand sequences of coins.
//! After each round the sequences with the largest sums of signed distances are rejected, as many as the level that
//! may be spent by then allows: level · (round / most rounds)^ρ (Lan and DeMets 1983). The true signs are just one
//! more sequence, so if δ is the true shift, the probability that they are ever rejected is at most the level.
//!
//! Assumptions: the order is random, and neither case disturbs the one after it more than the other does.

use loadlab_record::random::{GAMMA, mixed};

use crate::comparison::interval::{Call, EquivalenceBounds};
use crate::statistics::spread::mean_and_variance;
use crate::statistics::student;

/// How the level is spent over the rounds (ρ). A shift is worth finding early; equality shows late, if at all.
const SPENT_ON_SHIFTS: f64 = 0.5;
const SPENT_ON_SAME: f64 = 1.5;
/// Distances are capped at this many times their median, once there are enough rounds: an outlier must not hide the
/// rest.
const MOST_MEDIANS: f64 = 3.0;
const ROUNDS_FOR_MEDIAN: usize = 5;
/// Other sequences of signs: at least this many, and enough that `REJECTED_SEQUENCES` of them may be rejected in
/// total.
const FEWEST_SEQUENCES: usize = 999;
const REJECTED_SEQUENCES: f64 = 10.0;
const MOST_SEQUENCES: usize = 10_000;
/// Sums of the same distances in another order differ by less than this share of what is added.
const ROUNDING: f64 = 1e-12;
/// Bisection steps to find the end of an interval.
const HALVINGS: usize = 24;
/// Fewest rounds for a prediction of how many more are needed.
const EARLY: usize = 3;

/// How to judge a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// The probability of a false alarm at any round, above 0 and below 1; see [`levels`].
    pub level: f64,
    /// What counts as the same, on the scale of the differences. If either bound is 0, nothing is ever called the same.
    pub same: EquivalenceBounds,
    /// The number of rounds after which nothing more is decided, at least 1.
    pub at_most: usize,
    /// Whether less of the figure is better.
    pub less_is_better: bool,
    /// Draws the other sequences of signs; any number that does not depend on the rounds.
    pub seed: u64,
}

/// The answer after some rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SequentialAnswer {
    /// The verdict; [`Call::CannotTell`] if it is not settled.
    pub call: Call,
    /// Lower end of the interval for the shift, at a confidence of 1 − level over all rounds at once: a rejected shift
    /// stays rejected. `None` if no such end is known. For [`Call::Same`], which needs two tests of the whole level,
    /// the margins are ends of an interval at 1 − 2 · level.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// Rounds that were judged.
    pub rounds: usize,
    /// Rounds left out because a case did not report the figure.
    pub missing: usize,
    /// About how many more rounds are needed if they are like these; `None` if it is settled, cannot be predicted, or
    /// exceeds the maximum.
    pub more: Option<usize>,
}

/// One figure of two cases, round by round.
#[derive(Clone, Debug)]
pub struct Sequential {
    question: Question,
    differences: Vec<f64>,
    missing: usize,
    /// No shift: tested from below and from above.
    zero: Supposed,
    /// A shift by the margin: from above the lower one, from below the upper one.
    margins: [Supposed; 2],
}

impl Sequential {
    /// A test before its first round.
    pub fn new(question: Question) -> Sequential {
        let EquivalenceBounds { low, high } = question.same;
        let shifted = |side| Tail::new(side, question.level / 2.0, SPENT_ON_SHIFTS);
        let same = |side| Tail::new(side, question.level, SPENT_ON_SAME);
        Sequential {
            question,
            differences: Vec::new(),
            missing: 0,
            zero: Supposed::new(0.0, question.seed, vec![shifted(1.0), shifted(-1.0)]),
            margins: [
                Supposed::new(low, question.seed, vec![same(1.0)]),
                Supposed::new(high, question.seed, vec![same(-1.0)]),
            ],
        }
    }

    /// Adds a round: the other case minus the baseline, as logarithms for a figure on a ratio scale. `None`, or a
    /// number that is not finite, counts as missing and proves nothing.
    pub fn push(&mut self, difference: Option<f64>) {
        let Some(difference) = difference.filter(|d| d.is_finite()) else {
            self.missing += 1;
            return;
        };
        self.differences.push(difference);
        let share = self.share(self.rounds());
        self.zero.push(difference, share);
        self.margins.iter_mut().for_each(|margin| margin.push(difference, share));
    }

    /// This many rounds as a share of the maximum.
    fn share(&self, rounds: usize) -> f64 {
        (rounds as f64 / self.question.at_most.max(1) as f64).min(1.0)
    }

    /// Rounds that were judged.
    pub fn rounds(&self) -> usize {
        self.differences.len()
    }

    /// Rounds left out because a case did not report the figure.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// The shift as estimated from the rounds that were judged; `None` before the first. It is their mean, with
    /// outliers capped as in the test: at three times the median distance from the median.
    pub fn estimate(&self) -> Option<f64> {
        let middle = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        let median = middle(self.differences.clone())?;
        let reach = MOST_MEDIANS * middle(self.differences.iter().map(|d| (d - median).abs()).collect())?;
        let counted = self.differences.iter().map(|d| d.clamp(median - reach, median + reach));
        Some(counted.sum::<f64>() / self.rounds() as f64)
    }

    /// Whether the shift as estimated is inside the margin.
    pub fn is_inside_margin(&self) -> bool {
        let EquivalenceBounds { low, high } = self.question.same;
        self.estimate().is_some_and(|shift| low < shift && shift < high)
    }

    /// The verdict so far. A difference that turns out to be inside the margin becomes "the same"; evidence for both
    /// better and worse, rare as it is, settles nothing.
    pub fn call(&self) -> Call {
        let EquivalenceBounds { low, high } = self.question.same;
        let is_same = low < 0.0 && high > 0.0 && self.margins.iter().all(|m| m.is_rejected(0));
        match (self.zero.is_rejected(0), self.zero.is_rejected(1)) {
            _ if is_same => Call::Same,
            (false, false) | (true, true) => Call::CannotTell,
            (_, less) if less == self.question.less_is_better => Call::Better,
            _ => Call::Worse,
        }
    }

    /// The verdict, the interval, and what is still needed.
    pub fn answer(&self) -> SequentialAnswer {
        SequentialAnswer { low: self.end(1.0), high: self.end(-1.0), ..self.answer_without_interval() }
    }

    /// As [`Sequential::answer`], without the interval, which takes most of the time.
    pub fn answer_without_interval(&self) -> SequentialAnswer {
        SequentialAnswer {
            call: self.call(),
            low: None,
            high: None,
            rounds: self.rounds(),
            missing: self.missing,
            more: self.more(),
        }
    }

    /// The end of the interval on this side: the last shift that is rejected, found by bisection.
    fn end(&self, side: f64) -> Option<f64> {
        let rejects = |null: f64| {
            let tail = Tail::new(side, self.question.level / 2.0, SPENT_ON_SHIFTS);
            let mut supposed = Supposed::new(null, self.question.seed, vec![tail]);
            let rounds = self.differences.iter().zip(1..);
            rounds.for_each(|(difference, round)| supposed.push(*difference, self.share(round)));
            supposed.is_rejected(0)
        };
        let toward = |a: f64, b: f64| if side > 0.0 { a.min(b) } else { a.max(b) };
        let away = |a: f64, b: f64| if side > 0.0 { a.max(b) } else { a.min(b) };
        let furthest = self.differences.iter().copied().reduce(toward)?;
        let nearest = self.differences.iter().copied().reduce(away)?;
        // Beyond all differences every sign is the same.
        let reach = (nearest - furthest).abs().max(nearest.abs()).max(f64::MIN_POSITIVE);
        let is_shifted = self.zero.is_rejected(usize::from(side < 0.0));
        let (mut out, mut inside) = if is_shifted { (0.0, nearest) } else { (furthest - side * reach, 0.0) };
        if !is_shifted && !rejects(out) {
            return None;
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(out, inside);
            if rejects(middle) { out = middle } else { inside = middle }
        }
        Some(out).filter(|end| end.is_finite())
    }

    /// About how many more rounds are needed, as if the differences were normal: until the t of their mean is as
    /// unlikely as the level that may be spent by then. See [`SequentialAnswer::more`].
    pub fn more(&self) -> Option<usize> {
        let rounds = self.rounds();
        if rounds < EARLY || self.call() != Call::CannotTell {
            return None;
        }
        let (mean, variance) = mean_and_variance(&self.differences)?;
        let deviation = variance.sqrt();
        let EquivalenceBounds { low, high } = self.question.same;
        let distance = (mean - low).min(high - mean);
        let suffices = |distance: f64, level: f64, of: &usize| {
            let rejectable = level
                * self.share(*of).powf(if level < self.question.level {
                    SPENT_ON_SHIFTS
                } else {
                    SPENT_ON_SAME
                });
            let is_resolved = coins(*of) <= rejectable;
            let t = student::critical(1.0 - 2.0 * rejectable, *of as f64 - 1.0);
            distance > 0.0 && is_resolved && distance * (*of as f64).sqrt() >= t * deviation
        };
        let is_settled = |of: &usize| {
            suffices(mean.abs(), self.question.level / 2.0, of)
                || low < 0.0 && high > 0.0 && suffices(distance, self.question.level, of)
        };
        (rounds + 1..=self.question.at_most).find(is_settled).map(|of| of - rounds)
    }
}

/// The probability of one particular sequence of this many coins.
fn coins(rounds: usize) -> f64 {
    0.5f64.powi(i32::try_from(rounds).unwrap_or(i32::MAX))
}

/// The first of at most `at_most` rounds after which anything can be called better or worse at this level on each
/// side: before it no sequence of coins is as unlikely as the level that may be spent by then. More than `at_most`
/// means never.
pub fn fewest_rounds(level: f64, at_most: usize) -> usize {
    let spent = |rounds: usize| level * (rounds as f64 / at_most.max(1) as f64).powf(SPENT_ON_SHIFTS);
    (1..=at_most)
        .find(|rounds| coins(*rounds) <= spent(*rounds))
        .unwrap_or_else(|| (at_most..).find(|rounds| coins(*rounds) <= level).unwrap_or(usize::MAX))
}

/// A shift that is assumed to be the true one, until it is rejected.
#[derive(Clone, Debug)]
struct Supposed {
    shift: f64,
    /// Seed of each round's coins.
    coins: Coins,
    /// By round: the signed distance, and its size after capping.
    rounds: Vec<(f64, f64)>,
    /// The distances in order of size.
    sorted: Vec<f64>,
    /// The cap on distances.
    most: f64,
    /// The sum of the capped distances, under the true signs, and under the other sequences'.
    sum: f64,
    others: Vec<f64>,
    tails: Vec<Tail>,
}

impl Supposed {
    fn new(shift: f64, seed: u64, tails: Vec<Tail>) -> Supposed {
        let level = tails.iter().map(|tail| tail.level).fold(1.0, f64::min);
        let sequences =
            ((REJECTED_SEQUENCES / level).ceil() as usize).clamp(FEWEST_SEQUENCES + 1, MOST_SEQUENCES) - 1;
        Supposed {
            shift,
            coins: Coins(seed),
            rounds: Vec::new(),
            sorted: Vec::new(),
            most: f64::INFINITY,
            sum: 0.0,
            others: vec![0.0; sequences],
            tails: tails.into_iter().map(|tail| Tail { rejected: vec![false; sequences], ..tail }).collect(),
        }
    }

    fn is_rejected(&self, tail: usize) -> bool {
        self.tails.get(tail).is_some_and(|tail| tail.is_rejected)
    }

    /// Adds a round, after which this share of all rounds is over.
    fn push(&mut self, difference: f64, share: f64) {
        let signed = difference - self.shift;
        let index = self.sorted.partition_point(|distance| *distance < signed.abs());
        self.sorted.insert(index, signed.abs());
        self.rounds.push((signed, 0.0));
        let is_narrower = self.narrow();
        let first = if is_narrower { 0 } else { self.rounds.len() - 1 };
        if is_narrower {
            self.sum = 0.0;
            self.others.fill(0.0);
        }
        for round in first..self.rounds.len() {
            let (signed, counted) = &mut self.rounds[round];
            *counted = signed.abs().min(self.most);
            self.sum += counted.copysign(*signed);
            self.coins.add(round, *counted, &mut self.others);
        }
        let added: f64 = self.rounds.iter().map(|(_, counted)| counted).sum();
        for tail in &mut self.tails {
            tail.look(self.sum, &self.others, share, ROUNDING * added);
        }
    }

    /// Lowers the cap, and returns whether that shortens an earlier distance. Rounds with a distance of zero do not
    /// count.
    fn narrow(&mut self) -> bool {
        let distances = &self.sorted[self.sorted.partition_point(|distance| *distance == 0.0)..];
        if distances.len() < ROUNDS_FOR_MEDIAN {
            return false;
        }
        self.most = self.most.min(MOST_MEDIANS * distances[distances.len() / 2]);
        self.rounds.iter().any(|(_, counted)| *counted > self.most)
    }
}

/// Fair coins, the same for every supposed shift.
#[derive(Clone, Copy, Debug)]
struct Coins(u64);

impl Coins {
    /// Adds a round's distance to each sum, or subtracts it.
    fn add(self, round: usize, distance: f64, sums: &mut [f64]) {
        let mut state = mixed(self.0 ^ mixed(round as u64 + 1));
        for some in sums.chunks_mut(64) {
            state = state.wrapping_add(GAMMA);
            let mut coins = mixed(state);
            for sum in some {
                *sum += if coins & 1 == 1 { distance } else { -distance };
                coins >>= 1;
            }
        }
    }
}

/// One side on which a supposed shift may be rejected.
#[derive(Clone, Debug)]
struct Tail {
    /// 1 if the differences speak for a larger shift, −1 for a smaller one.
    side: f64,
    level: f64,
    /// ρ of how the level is spent.
    spending: f64,
    /// Which of the other sequences are rejected, and how many.
    rejected: Vec<bool>,
    spent: usize,
    is_rejected: bool,
}

impl Tail {
    fn new(side: f64, level: f64, spending: f64) -> Tail {
        Tail { side, level, spending, rejected: Vec::new(), spent: 0, is_rejected: false }
    }

    /// After a round: rejects as many sequences as allowed, from the furthest on, those with equal sums together.
    fn look(&mut self, sum: f64, others: &[f64], share: f64, rounding: f64) {
        let all = (others.len() + 1) as f64;
        let budget = (self.level * share.powf(self.spending) * all + 1e-9).floor() as usize;
        let allowed = budget.saturating_sub(self.spent);
        if self.is_rejected || allowed == 0 {
            return;
        }
        let sum = self.side * sum;
        let side = self.side;
        let live = others
            .iter()
            .map(|other| side * other)
            .zip(&mut self.rejected)
            .filter(|(_, rejected)| !**rejected);
        let mut further: Vec<(f64, &mut bool)> = live.filter(|(other, _)| *other >= sum - rounding).collect();
        if further.len() < allowed {
            self.is_rejected = true;
            return;
        }
        further.retain(|(other, _)| *other > sum + rounding);
        further.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let mut left = allowed;
        for same in further.chunk_by_mut(|(a, _), (b, _)| a - b <= rounding) {
            if same.len() > left {
                break;
            }
            left -= same.len();
            same.iter_mut().for_each(|(_, rejected)| **rejected = true);
        }
        self.spent += allowed - left;
    }
}

/// The level of each figure of each comparison in a session, so that the chance of any false alarm in it is at most
/// `level` (Bonferroni with weights): `of_plan` says which figures the plan names. Those get four fifths, the others
/// the rest; if there is only one kind, that gets all.
pub fn levels(of_plan: &[bool], level: f64) -> Vec<f64> {
    let named = of_plan.iter().filter(|p| **p).count();
    let others = of_plan.len() - named;
    let (for_named, for_others) = match (named, others) {
        (0, _) => (0.0, level),
        (_, 0) => (level, 0.0),
        _ => (0.8 * level, 0.2 * level),
    };
    let each = |is_named: &bool| {
        if *is_named { for_named / named as f64 } else { for_others / others as f64 }
    };
    of_plan.iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: f64 = 0.02;

    fn question() -> Question {
        let same = EquivalenceBounds { low: -MARGIN, high: MARGIN };
        Question { level: 0.05, same, at_most: 30, less_is_better: true, seed: 7 }
    }

    fn after(differences: &[f64]) -> Sequential {
        let mut test = Sequential::new(question());
        differences.iter().for_each(|d| test.push(Some(*d)));
        test
    }

    /// All orders of ten rounds, each with other sequences to compare with.
    #[test]
    fn over_all_orders_of_the_rounds_no_shift_is_rejected_at_any_look_as_rarely_as_promised() {
        let noise = [0.01, 0.3, 0.0, 0.002, 0.05, 0.02, 7.0, 0.011, 0.03, 0.029];
        let mut rejected = [0u32; 2];
        for signs in 0..1u64 << noise.len() {
            let mut test =
                Sequential::new(Question { at_most: noise.len(), level: 0.2, seed: signs, ..question() });
            for (i, d) in noise.iter().enumerate() {
                test.push(Some(if signs >> i & 1 == 1 { *d } else { -d }));
            }
            for (side, count) in rejected.iter_mut().enumerate() {
                *count += u32::from(test.zero.is_rejected(side));
            }
        }
        // 10 % of 1,024 on each side
        assert!(rejected.iter().all(|count| (80..=103).contains(count)), "{rejected:?}");
    }

    #[test]
    fn rounds_without_noise_settle_and_ties_at_the_margin_do_not() {
        assert_eq!(after(&[0.0; 12]).call(), Call::Same);
        assert_eq!(after(&[0.1; 12]).call(), Call::Worse);
        assert_eq!(after(&[-0.1; 12]).call(), Call::Better);
        // 2 % is neither inside the margin nor more than it: it is a difference, and not "the same".
        assert_eq!(after(&[MARGIN; 30]).call(), Call::Worse);
        assert_eq!(after(&[]).answer().call, Call::CannotTell);
    }

    #[test]
    fn five_rounds_prove_nothing_whatever_they_hold() {
        assert_eq!(after(&[1.0; 5]).call(), Call::CannotTell);
        assert_eq!(after(&[1.0; 8]).call(), Call::Worse);
    }

    #[test]
    fn a_missing_figure_and_what_is_no_number_prove_nothing() {
        let mut test = after(&[0.1; 8]);
        let before = test.answer();
        for nothing in [None, Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY)] {
            test.push(nothing);
        }
        assert_eq!(test.answer(), SequentialAnswer { missing: 4, ..before });
    }

    #[test]
    fn shares_that_are_zero_are_not_called_the_same_where_there_is_no_margin() {
        let same = EquivalenceBounds { low: 0.0, high: 0.0 };
        let mut test = Sequential::new(Question { same, ..question() });
        (0..10).for_each(|_| test.push(Some(0.0)));
        let answer = test.answer();
        assert_eq!((answer.call, answer.more), (Call::CannotTell, None));
        (0..20).for_each(|_| test.push(Some(0.02)));
        assert_eq!(test.call(), Call::Worse);
    }

    #[test]
    fn one_huge_outlier_hides_nothing() {
        for place in [0, 3, 9] {
            for outlier in [-1e300, 1e300] {
                let mut rounds = vec![0.1; 20];
                rounds[place] = outlier;
                let test = after(&rounds);
                assert_eq!(test.call(), Call::Worse, "{outlier} in round {place}");
                let answer = test.answer();
                assert!(answer.low.is_some_and(|low| (0.0..=0.1).contains(&low)), "{answer:?}");
            }
        }
    }

    #[test]
    fn what_is_still_needed_is_about_what_it_takes_if_the_rounds_are_like_before() {
        // 5 % with a noise that alternates
        let rounds: Vec<f64> = (0..30).map(|i| if i % 2 == 0 { 0.09 } else { 0.01 }).collect();
        let settled = (1..30).find(|n| after(&rounds[..*n]).call() == Call::Worse);
        let expected = after(&rounds[..4]).answer().more.map(|more| 4 + more);
        assert!(settled.zip(expected).is_some_and(|(s, e)| e.abs_diff(s) <= 3), "{settled:?} {expected:?}");
        // too few to say, and settled
        assert_eq!((after(&rounds[..2]).answer().more, after(&rounds).answer().more), (None, None));
    }

    #[test]
    fn the_figures_of_the_plan_get_most_of_the_level() {
        let close =
            |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-15) && a.len() == b.len();
        assert!(close(&levels(&[true, true, false, false], 0.05), &[0.02, 0.02, 0.005, 0.005]));
        assert!(close(&levels(&[false; 5], 0.05), &[0.01; 5]));
        assert!(close(&levels(&[true; 2], 0.05), &[0.025; 2]));
        assert!(levels(&[], 0.05).is_empty());
    }
}
