//! Whether two cases differ, asked after every round: a test that stays valid however often one looks.
//!
//! A round runs each case once in random order. Take the difference D of two cases within a round. Had the two swapped
//! their turns, the noise of the round would have had the other sign; both orders are equally likely. So, given all
//! earlier rounds and |D − δ|, the sign of D − δ about the true shift δ is a fair coin, whatever the noise:
//! skewed, heavy-tailed, autocorrelated or drifting (symmetric nulls: Efron 1969, de la Peña 1999).
//!
//! A bettor who supposes δ = δ₀ multiplies its money by `1 + c · tanh(λ (D − δ₀))` in each round, with λ and c chosen
//! before the round. The factor's mean is 1 if δ = δ₀, so by Ville's inequality (1939) the money ever reaches 1/α with a
//! probability of at most α (Shafer and Vovk 2019; Ramdas, Grünwald, Vovk, Shafer 2023). If the noise is normal, λ = aim/σ²
//! with c = 1 is the likelihood ratio of a shift by `aim` in the one or the other direction.
//!
//! What it assumes: the order is random, and a case does not disturb the one after it more than the other way round.

use crate::compare::Call;

/// What bettors aim at, in multiples of the margin, and their shares of the money. Most is on the margin: that decides
/// what is the same, and takes longest.
const AIMS: [(f64, f64); 4] = [(1.0, 0.7), (2.0, 0.15), (4.0, 0.1), (8.0, 0.05)];
/// How the level is divided between the far and the near end of a shift's interval; at no shift by halves.
const FAR: f64 = 0.9;
/// The guess of the noise before there is any counts as this many rounds.
const ROUNDS_OF_GUESS: f64 = 2.0;
/// The mean distance from the mean of a normal distribution times this is its standard deviation.
const MEAN_DISTANCE_TO_SD: f64 = 1.253_314;
/// Rounds in which the noise is hardly known.
const EARLY: usize = 3;
/// The largest part of the money that is put at stake: early, and later. An outlier must not ruin a bettor.
const STAKES: (f64, f64) = (0.8, 0.95);
/// More rounds than this are impractical.
const MOST_ROUNDS: u64 = 10_000;

/// How to judge a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// The probability of a false alarm at any round, above 0 and below 1; see [`levels`].
    pub level: f64,
    /// What counts as the same, on the scale of the differences: from at most 0 to at least 0. If either is 0, nothing
    /// is ever called the same.
    pub same: (f64, f64),
    /// The smallest shift worth finding, above 0; usually the margin.
    pub aim: f64,
    /// Less of the figure is better.
    pub less_is_better: bool,
}

/// The answer after some rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// The verdict; [`Call::CannotTell`] if it is not settled.
    pub call: Call,
    /// Lower end of where the shift lies, at a confidence of 1 − level over all rounds at once: what was once
    /// rejected stays so. `None`: no such end is known.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// Rounds that were judged.
    pub rounds: usize,
    /// Rounds left out because a case did not report the figure.
    pub missing: usize,
    /// About how many more rounds it takes if they are like these; `None` if it is settled or cannot be predicted.
    pub more: Option<u64>,
}

/// A round, and what was decided before it.
#[derive(Clone, Copy, Debug)]
struct Bet {
    difference: f64,
    /// One over the variance, as guessed from earlier rounds.
    precision: f64,
    stake: f64,
}

impl Bet {
    /// What a bettor's money is multiplied by, as a logarithm. `side`: 1 bets on a shift above `null`, −1 below.
    fn growth(&self, null: f64, side: f64, aim: f64) -> f64 {
        (self.stake * (side * aim * self.precision * (self.difference - null)).tanh()).ln_1p()
    }
}

/// The money of all bettors on one side of one supposed shift.
#[derive(Clone, Debug)]
struct Money {
    null: f64,
    side: f64,
    /// Of each bettor, as a logarithm.
    logs: [f64; AIMS.len()],
    /// The most their sum ever was, as a logarithm.
    best: f64,
}

impl Money {
    fn new(null: f64, side: f64) -> Money {
        Money { null, side, logs: AIMS.map(|(_, share)| share.ln()), best: 0.0 }
    }

    fn bet(&mut self, bet: &Bet, aim: f64) {
        for (log, (multiple, _)) in self.logs.iter_mut().zip(AIMS) {
            *log += bet.growth(self.null, self.side, multiple * aim);
        }
        self.best = self.best.max(self.now());
    }

    /// The sum, as a logarithm: money doubles with rounds and would leave the range of numbers.
    fn now(&self) -> f64 {
        let most = self.logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        most + self.logs.iter().map(|log| (log - most).exp()).sum::<f64>().ln()
    }

    /// More rounds to reach `wanted`, if it grows as it did; `None` if it does not grow.
    fn more(&self, wanted: f64, rounds: usize) -> Option<f64> {
        if self.best >= wanted {
            return Some(0.0);
        }
        let growth = self.now() / rounds as f64;
        (growth > 0.0).then(|| (wanted - self.now()) / growth)
    }
}

/// One figure of two cases, round by round.
#[derive(Clone, Debug)]
pub struct Sequential {
    question: Question,
    bets: Vec<Bet>,
    missing: usize,
    /// Against no shift: upwards, downwards.
    zero: [Money; 2],
    /// Against a shift by the margin: upwards from the lower one, downwards from the upper one.
    margins: [Money; 2],
}

impl Sequential {
    /// Before the first round.
    pub fn new(question: Question) -> Sequential {
        let (low, high) = question.same;
        Sequential {
            question,
            bets: Vec::new(),
            missing: 0,
            zero: [Money::new(0.0, 1.0), Money::new(0.0, -1.0)],
            margins: [Money::new(low, 1.0), Money::new(high, -1.0)],
        }
    }

    /// Adds a round: the other case less the baseline, of logarithms for a figure on a ratio scale. `None`, or what is no
    /// finite number, is counted as missing and proves nothing.
    pub fn push(&mut self, difference: Option<f64>) {
        let Some(difference) = difference.filter(|d| d.is_finite()) else {
            self.missing += 1;
            return;
        };
        let stake = if self.bets.len() < EARLY { STAKES.0 } else { STAKES.1 };
        let bet = Bet { difference, precision: 1.0 / self.noise().powi(2), stake };
        let aim = self.question.aim;
        self.zero.iter_mut().chain(&mut self.margins).for_each(|money| money.bet(&bet, aim));
        self.bets.push(bet);
    }

    /// The standard deviation of the differences as guessed from the rounds so far: by the mean distance from the
    /// median, which an outlier moves little, and at first by the margin, as no bet may depend on its own round.
    fn noise(&self) -> f64 {
        let guess = std::f64::consts::SQRT_2 * self.question.aim;
        let n = self.bets.len() as f64;
        if n < 2.0 {
            return guess;
        }
        let mut sorted: Vec<f64> = self.bets.iter().map(|b| b.difference).collect();
        sorted.sort_by(f64::total_cmp);
        let middle = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let distance = sorted.iter().map(|d| (d - middle).abs()).sum::<f64>() / n;
        let seen = MEAN_DISTANCE_TO_SD * distance * (n / (n - 1.0)).sqrt();
        (seen * (n - 1.0) + guess * ROUNDS_OF_GUESS) / (n - 1.0 + ROUNDS_OF_GUESS)
    }

    /// What money must reach, as a logarithm, to reject with this part of the level.
    fn wanted(&self, part: f64) -> f64 {
        -(part * self.question.level).ln()
    }

    /// Rounds that were judged.
    pub fn rounds(&self) -> usize {
        self.bets.len()
    }

    /// The verdict so far. A difference that turns out to be inside the margin becomes "the same"; evidence for better
    /// and for worse, rare as it is, settles nothing.
    pub fn call(&self) -> Call {
        let (low, high) = self.question.same;
        let is_same = low < 0.0 && high > 0.0 && self.margins.iter().all(|m| m.best >= self.wanted(FAR));
        let is_shifted = |side: &Money| side.best >= self.wanted(0.5);
        match (is_shifted(&self.zero[0]), is_shifted(&self.zero[1])) {
            _ if is_same => Call::Same,
            (false, false) | (true, true) => Call::CannotTell,
            (_, less) if less == self.question.less_is_better => Call::Better,
            _ => Call::Worse,
        }
    }

    /// The verdict, the interval, and what is still needed.
    pub fn answer(&self) -> Answer {
        let call = self.call();
        // Every supposed shift is tested at the whole level: most of it from the far side, by which the interval
        // closes towards no shift; no shift itself is tested from both sides alike.
        let end = |side: usize| {
            let near = self.zero[side].best >= self.wanted(0.5);
            let sign = if side == 0 { 1.0 } else { -1.0 };
            let end = self.end(sign, self.wanted(if near { 1.0 - FAR } else { FAR }));
            match near {
                true => Some(end.map_or(0.0, |e| sign * (sign * e).max(0.0))),
                false => end.map(|e| sign * (sign * e).min(0.0)),
            }
        };
        Answer {
            call,
            low: end(0),
            high: end(1),
            rounds: self.rounds(),
            missing: self.missing,
            more: if call == Call::CannotTell { self.more() } else { None },
        }
    }

    /// The shift furthest to this side that was ever rejected, together with all beyond it. The money against a shift
    /// falls as the shift comes closer to the data, so bisection finds it.
    fn end(&self, sign: f64, wanted: f64) -> Option<f64> {
        let rejects = |null: f64| {
            let mut money = Money::new(null, sign);
            self.bets.iter().for_each(|bet| money.bet(bet, self.question.aim));
            money.best >= wanted
        };
        let widest = self.bets.iter().map(|b| 1.0 / b.precision).fold(0.0, f64::max);
        let largest = self.bets.iter().map(|b| b.difference.abs()).fold(0.0, f64::max);
        // Beyond ten bets' widths tanh is 1: what is not rejected there is not rejected anywhere.
        let reach = largest + 10.0 * widest / self.question.aim;
        let (mut out, mut inside) = (-sign * reach, sign * reach);
        if !rejects(out) {
            return None;
        }
        for _ in 0..60 {
            let middle = f64::midpoint(out, inside);
            if rejects(middle) { out = middle } else { inside = middle }
        }
        // A difference whose square is no number leaves no scale to look on.
        Some(out).filter(|end| end.is_finite())
    }

    fn more(&self) -> Option<u64> {
        let rounds = self.bets.len();
        if rounds < EARLY {
            return None;
        }
        let shifted = self.zero.iter().filter_map(|m| m.more(self.wanted(0.5), rounds));
        let both = self.margins.each_ref().map(|m| m.more(self.wanted(FAR), rounds));
        let same = both[0].zip(both[1]).map(|(a, b)| a.max(b));
        let same = same.filter(|_| self.question.same.0 < 0.0 && self.question.same.1 > 0.0);
        let more = shifted.chain(same).fold(f64::INFINITY, f64::min).ceil().max(1.0);
        (more <= MOST_ROUNDS as f64).then_some(more as u64)
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
        Question { level: 0.05, same: (-MARGIN, MARGIN), aim: MARGIN, less_is_better: true }
    }

    fn after(differences: &[f64]) -> Sequential {
        let mut test = Sequential::new(question());
        differences.iter().for_each(|d| test.push(Some(*d)));
        test
    }

    #[test]
    fn over_all_orders_of_the_rounds_the_mean_of_the_money_is_exactly_one() {
        let noise = [0.01, 0.3, 0.0, 0.002, 0.05, 0.02, 7.0, 0.011];
        let (mut up, mut down) = (0.0, 0.0);
        for signs in 0..1 << noise.len() {
            let signed = |(i, d): (usize, &f64)| if signs >> i & 1 == 1 { *d } else { -d };
            let test = after(&noise.iter().enumerate().map(signed).collect::<Vec<f64>>());
            up += test.zero[0].now().exp();
            down += test.zero[1].now().exp();
        }
        let all = f64::from(1 << noise.len());
        assert!((up / all - 1.0).abs() < 1e-12 && (down / all - 1.0).abs() < 1e-12, "{up} {down} of {all}");
    }

    #[test]
    fn a_worked_example_of_the_first_round() {
        // σ is guessed as √2 · 2 %, so λ · D = k · 0.02 · 0.04 / (2 · 0.02²) = k for the bettor that aims at k · 2 %.
        let expect: f64 = AIMS.iter().map(|(multiple, share)| share * (1.0 + 0.8 * multiple.tanh())).sum();
        let money = after(&[0.04]).zero[0].now().exp();
        assert!((money - expect).abs() < 1e-12, "{money}, not {expect}");
        assert!((money - 1.661_9).abs() < 1e-3, "{money}");
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
    fn a_missing_figure_and_what_is_no_number_prove_nothing() {
        let mut test = after(&[0.1; 8]);
        let before = test.answer();
        for nothing in [None, Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY)] {
            test.push(nothing);
        }
        assert_eq!(test.answer(), Answer { missing: 4, ..before });
    }

    #[test]
    fn shares_that_are_zero_are_not_called_the_same_where_there_is_no_margin() {
        let mut test = Sequential::new(Question { same: (0.0, 0.0), aim: 0.005, ..question() });
        (0..40).for_each(|_| test.push(Some(0.0)));
        let answer = test.answer();
        assert_eq!((answer.call, answer.more), (Call::CannotTell, None));
        (0..40).for_each(|_| test.push(Some(0.02)));
        assert_eq!(test.call(), Call::Worse);
    }

    #[test]
    fn one_huge_outlier_ruins_no_bettor() {
        let mut rounds = vec![0.1; 30];
        rounds[9] = -1e300;
        assert!(after(&rounds[..9]).zero[0].now() < after(&rounds[..8]).zero[0].now() + 2f64.ln());
        let lost = after(&rounds[..9]).zero[0].now() - after(&rounds[..10]).zero[0].now();
        assert!(lost <= -(1.0 - STAKES.1).ln() + 1e-9, "{lost}");
    }

    #[test]
    fn what_is_still_needed_is_what_it_takes_if_the_rounds_are_like_before() {
        // 5 % with a noise that alternates
        let rounds: Vec<f64> = (0..60).map(|i| if i % 2 == 0 { 0.08 } else { 0.02 }).collect();
        let settled = (1..60).find(|n| after(&rounds[..*n]).call() == Call::Worse);
        let told = after(&rounds[..4]).answer();
        let expected = told.more.map(|more| 4 + more as usize);
        assert!(settled.zip(expected).is_some_and(|(s, e)| e.abs_diff(s) <= 3), "{settled:?} {expected:?}");
        // too few to tell, and settled
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
