//! The search for the revision that changed a figure, from noisy trials: which one to measure next, and how certain
//! the answer is.
//!
//! Revisions are in a row from a good one to a bad one; one of them, the first bad one, shifts the figure. Each of
//! them is a candidate: the trials are fitted by two levels, one on either side of it, and a line for drift over the
//! session. The quality of the fit, by a Student's t with few degrees of freedom, which is robust against outliers, is
//! the candidate's likelihood. The next trial goes where it is most uncertain whether the figure has shifted yet
//! (probabilistic bisection: Horstein 1963), so revisions near the answer are measured again, and clear ones once. It
//! assumes one shift that stays.

use crate::statistics::spread::mean_and_variance;
use crate::statistics::student;

/// Rounds of both ends before testing whether they differ at all, and rounds after which they count as equal.
const LEAST_ROUNDS: usize = 4;
const MOST_ROUNDS: usize = 12;
/// Confidence required to say that the ends differ.
const ENDS_DIFFER: f64 = 0.99;
/// Number of trials after which an end is measured again, to show drift.
const ENDS_AGAIN: usize = 5;
/// Trials of the last good and the first bad revision before either is accepted as such.
const TRIALS_OF_SIDES: usize = 3;
/// Degrees of freedom of the errors; the weights converge in a few steps.
const FREEDOM: f64 = 4.0;
const STEPS: usize = 4;
/// Most revisions named while nothing is certain.
const MOST_NAMED: usize = 5;
/// The median distance of a normal distribution is this much smaller than its standard deviation.
const OF_MEDIAN: f64 = 1.4826;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Measure this revision.
    Measure(usize),
    /// The first bad revision: one of these, each with its probability, the likeliest first. Several if those between
    /// cannot be measured.
    Found(Vec<(usize, f64)>),
    /// Good and bad do not differ.
    NoDifference,
    /// No more trials are allowed, or nothing more can be measured: the likeliest revisions so far.
    NotCertain(Vec<(usize, f64)>),
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct Bisection {
    /// Revision 0 is good, this one is bad.
    last: usize,
    confidence: f64,
    most_trials: usize,
    /// Revision and figure (its logarithm, if it has a ratio scale), in the order they were measured.
    trials: Vec<(usize, f64)>,
    unmeasurable: Vec<bool>,
    /// Decides which end goes first in each round.
    coins: u64,
}

impl Bisection {
    /// Between revision 0, which is good, and `last`, which is bad and at least 1. The search ends as soon as some
    /// revision is the first bad one with this probability.
    pub fn new(last: usize, confidence: f64, most_trials: usize, seed: u64) -> Bisection {
        let unmeasurable = vec![false; last + 1];
        Bisection { last, confidence, most_trials, trials: Vec::new(), unmeasurable, coins: seed }
    }

    /// Records a trial of a revision.
    pub fn measured(&mut self, revision: usize, value: f64) {
        if value.is_finite() {
            self.trials.push((revision, value));
        }
    }

    /// Marks a revision as unmeasurable: it does not build, or does not come up.
    pub fn skip(&mut self, revision: usize) {
        self.unmeasurable[revision] = true;
    }

    /// Trials so far.
    pub fn trials(&self) -> usize {
        self.trials.len()
    }

    /// How often a revision was measured.
    pub fn trials_of(&self, revision: usize) -> usize {
        self.trials.iter().filter(|trial| trial.0 == revision).count()
    }

    /// By how much the figure shifts at this revision, if it does there; `None` without trials on both sides.
    pub fn shift(&self, first_bad: usize) -> Option<f64> {
        let is_on = |side: bool| self.trials.iter().any(|trial| (trial.0 >= first_bad) == side);
        (is_on(true) && is_on(false)).then(|| self.fit(first_bad).1)
    }

    /// The likeliest first bad revisions so far, if more than the ends were measured.
    pub fn likeliest(&self) -> Vec<(usize, f64)> {
        if self.is_at_ends() {
            return Vec::new();
        }
        let mut all: Vec<(usize, f64)> = (1..).zip(self.probabilities()).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(MOST_NAMED);
        all
    }

    /// What to do next.
    pub fn next(&self) -> Next {
        if self.unmeasurable[0] || self.unmeasurable[self.last] {
            return Next::NotCertain(Vec::new());
        }
        if self.is_at_ends() && self.trials.len() >= self.most_trials {
            return Next::NotCertain(Vec::new());
        }
        let ends = [self.trials_of(0), self.trials_of(self.last)];
        let rounds = ends[0].min(ends[1]);
        if ends[0] != ends[1] && rounds < MOST_ROUNDS && self.is_at_ends() {
            return Next::Measure(if ends[0] < ends[1] { 0 } else { self.last });
        }
        if self.is_at_ends() && !(rounds >= LEAST_ROUNDS && self.do_ends_differ()) {
            return match rounds >= MOST_ROUNDS {
                true => Next::NoDifference,
                false => Next::Measure(if self.coins >> (rounds % 64) & 1 == 0 { 0 } else { self.last }),
            };
        }
        let probabilities = self.probabilities();
        let blocks = self.blocks(&probabilities);
        let best = blocks.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|block| block.0.clone());
        let named = |revisions: std::ops::RangeInclusive<usize>| {
            let mut all: Vec<(usize, f64)> = revisions.map(|k| (k, probabilities[k - 1])).collect();
            all.sort_by(|a, b| b.1.total_cmp(&a.1));
            all
        };
        if let Some((block, _)) = blocks.iter().find(|block| block.1 >= self.confidence) {
            // One trial may be an outlier: those on either side are measured again.
            let sides = [self.last_measurable_before(*block.start()), *block.end()];
            let seldom = sides.into_iter().min_by_key(|side| self.trials_of(*side));
            return match seldom.filter(|side| self.trials_of(*side) < TRIALS_OF_SIDES) {
                Some(side) if self.trials.len() < self.most_trials => Next::Measure(side),
                _ => Next::Found(named(block.clone())),
            };
        }
        match self.most_uncertain(&probabilities) {
            Some(revision) if self.trials.len() < self.most_trials => {
                let is_due = self.trials.len().is_multiple_of(ENDS_AGAIN);
                let end = if ends[0] <= ends[1] { 0 } else { self.last };
                Next::Measure(if is_due { end } else { revision })
            }
            _ => Next::NotCertain(best.map(named).unwrap_or_default()),
        }
    }

    /// Whether only the ends were measured so far.
    fn is_at_ends(&self) -> bool {
        self.trials.iter().all(|trial| trial.0 == 0 || trial.0 == self.last)
    }

    /// By Student's t over the rounds: the n-th trials of both ends are a pair.
    fn do_ends_differ(&self) -> bool {
        let of = |revision: usize| self.trials.iter().filter(move |t| t.0 == revision).map(|t| t.1);
        let differences: Vec<f64> = of(0).zip(of(self.last)).map(|(good, bad)| bad - good).collect();
        let n = differences.len() as f64;
        let Some((mean, variance)) = mean_and_variance(&differences) else { return false };
        mean.abs() > student::critical(ENDS_DIFFER, n - 1.0) * (variance / n).sqrt()
    }

    /// How likely each revision from 1 on is the first bad one.
    fn probabilities(&self) -> Vec<f64> {
        let likelihoods: Vec<f64> = (1..=self.last).map(|first_bad| self.fit(first_bad).0).collect();
        let most = likelihoods.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let all: Vec<f64> = likelihoods.iter().map(|l| (l - most).exp()).collect();
        let sum: f64 = all.iter().sum();
        all.into_iter().map(|p| p / sum).collect()
    }

    /// The logarithm of the likelihood if this is the first bad revision, and the shift there.
    fn fit(&self, first_bad: usize) -> (f64, f64) {
        let n = self.trials.len();
        let middle = (n.max(1) - 1) as f64 / 2.0;
        let rows: Vec<[f64; 3]> = self
            .trials
            .iter()
            .enumerate()
            .map(|(at, (revision, _))| {
                let is_bad = f64::from(u8::from(*revision >= first_bad));
                [1.0, is_bad, at as f64 - middle]
            })
            .collect();
        let mut weights = vec![1.0; n];
        let (mut shift, mut scale, mut residuals) = (0.0, f64::MIN_POSITIVE, vec![0.0; n]);
        for _ in 0..STEPS {
            let fitted = solve(&rows, &self.trials, &weights);
            shift = fitted[1];
            for ((residual, row), (_, value)) in residuals.iter_mut().zip(&rows).zip(&self.trials) {
                *residual = value - row.iter().zip(fitted).map(|(a, b)| a * b).sum::<f64>();
            }
            scale = scale_of(&residuals, &self.trials);
            for (weight, residual) in weights.iter_mut().zip(&residuals) {
                *weight = (FREEDOM + 1.0) / (FREEDOM + (residual / scale).powi(2));
            }
        }
        let of = |residual: &f64| (FREEDOM + 1.0) / 2.0 * ((residual / scale).powi(2) / FREEDOM).ln_1p();
        let likelihood = -(n as f64) * scale.ln() - residuals.iter().map(of).sum::<f64>();
        (likelihood, shift)
    }

    fn last_measurable_before(&self, revision: usize) -> usize {
        (0..revision).rev().find(|before| !self.unmeasurable[*before]).unwrap_or(0)
    }

    /// The revision at which it is most uncertain whether the figure has shifted.
    fn most_uncertain(&self, probabilities: &[f64]) -> Option<usize> {
        let mut sum = 0.0;
        let mut best: Option<(usize, f64)> = None;
        for revision in 1..self.last {
            sum += probabilities[revision - 1];
            let away = (sum - 0.5).abs();
            if !self.unmeasurable[revision] && best.is_none_or(|(_, least)| away < least) {
                best = Some((revision, away));
            }
        }
        // If nothing in between can be measured, only the ends can be.
        best.map(|(revision, _)| revision).or(Some(self.last))
    }

    /// Revisions that cannot be distinguished, since none between them can be measured, with their probability.
    fn blocks(&self, probabilities: &[f64]) -> Vec<(std::ops::RangeInclusive<usize>, f64)> {
        let mut blocks = Vec::new();
        let (mut from, mut sum) = (1, 0.0);
        for revision in 1..=self.last {
            sum += probabilities[revision - 1];
            if !self.unmeasurable[revision] {
                blocks.push((from..=revision, sum));
                (from, sum) = (revision + 1, 0.0);
            }
        }
        blocks
    }
}

/// The scale of residuals by their median; never so small that equal trials make anything certain.
fn scale_of(residuals: &[f64], trials: &[(usize, f64)]) -> f64 {
    let mut sizes: Vec<f64> = residuals.iter().map(|r| r.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let middle = sizes.get(sizes.len() / 2).copied().unwrap_or(0.0);
    let (least, most) =
        trials.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), (_, value)| {
            (least.min(*value), most.max(*value))
        });
    // Three parameters fit a part of the noise.
    let n = residuals.len() as f64;
    let freedom = (n / (n - 3.0).max(1.0)).sqrt();
    (OF_MEDIAN * middle * freedom).max((most - least) / 100.0).max(f64::MIN_POSITIVE.sqrt())
}

/// Weighted least squares: level, shift, drift. An undetermined parameter is 0.
fn solve(rows: &[[f64; 3]], trials: &[(usize, f64)], weights: &[f64]) -> [f64; 3] {
    let mut matrix = [[0.0; 4]; 3];
    for ((row, (_, value)), weight) in rows.iter().zip(trials).zip(weights) {
        for i in 0..3 {
            for j in 0..3 {
                matrix[i][j] += weight * row[i] * row[j];
            }
            matrix[i][3] += weight * row[i] * value;
        }
    }
    // Gauss-Jordan elimination, with the largest pivot.
    let mut order = [None; 3];
    let mut used = [false; 3];
    for column in 0..3 {
        let free = (0..3).filter(|row| !used[*row]);
        let pivot = free.max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()));
        let Some(pivot) = pivot.filter(|row| matrix[*row][column].abs() > 1e-9) else { continue };
        used[pivot] = true;
        order[column] = Some(pivot);
        let own = matrix[pivot];
        for (row, line) in matrix.iter_mut().enumerate().filter(|(row, _)| *row != pivot) {
            let factor = line[column] / own[column];
            debug_assert_ne!(row, pivot);
            line.iter_mut().zip(own).for_each(|(cell, above)| *cell -= factor * above);
        }
    }
    std::array::from_fn(|column| order[column].map_or(0.0, |row| matrix[row][3] / matrix[row][column]))
}
