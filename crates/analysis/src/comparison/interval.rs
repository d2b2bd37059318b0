//! The statistics of a comparison: intervals of differences between samples, judged together, and what they say.

use crate::cases::case::TRIALS_FOR_DIFFERENCES;
use crate::cases::metric::{Better, Metric};
use crate::comparison::figures::Scale;
use crate::statistics::hierarchy::Hierarchy;
use crate::statistics::spread::mean_and_variance;
use crate::statistics::student;

/// More trials than this are impractical.
const MOST_TRIALS: u64 = 10_000;

/// The verdict on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// The other case is better.
    Better,
    /// The other case is worse.
    Worse,
    /// The same, within the requested margin.
    Same,
    /// It differs, and neither direction is known to be better.
    Changed,
    /// The trials are inconclusive.
    CannotTell,
}

impl Call {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Better => "better",
            Call::Worse => "worse",
            Call::Same => "same",
            Call::Changed => "changed",
            Call::CannotTell => "cannot_tell",
        }
    }
}

/// How trials relate to one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By round, within one run whose cases took turns.
    Paired,
    /// Welch's, for independent trials.
    Welch,
    /// By round, of cases in random order, judged after every round ([`crate::comparison::sequential`]).
    Sequential,
}

impl Method {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Paired => "paired_t",
            Method::Welch => "welch_t",
            Method::Sequential => "sequential_signs",
        }
    }
}

/// What is judged: one number per trial on a scale on which differences are meaningful. Paired by position if
/// requested.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// One number per trial of the base.
    pub base: Vec<f64>,
    /// One number per trial of the other.
    pub other: Vec<f64>,
}

/// The result of the trials for one figure, on the scale of the comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Mean difference, other − base.
    pub mean: f64,
    /// Half the width of its interval; infinite if the trials do not show the spread.
    pub half: f64,
    /// The interval's confidence.
    pub confidence: f64,
    /// The probability of such a difference between equal cases.
    pub chance: f64,
    spread: Spreads,
}

/// How trials vary, for predicting how many more it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spreads {
    /// Variance of the differences.
    Paired(f64),
    /// Variance of the base's and of the other's trials.
    Apart(f64, f64),
}

/// Judges several figures of one comparison together; `None` in, `None` out. `confidence` is for all of them.
pub fn judge(samples: &[Option<Samples>], method: Method, confidence: f64) -> Vec<Option<Judged>> {
    judge_with(samples, &vec![Vec::new(); samples.len()], &[], method, confidence)
}

/// As [`judge`], for figures followed by their details: those of each figure, and those that every figure leads to, by
/// index. A detail that nothing leads to is not judged.
pub fn judge_with(
    samples: &[Option<Samples>],
    details_of: &[Vec<usize>],
    common: &[usize],
    method: Method,
    confidence: f64,
) -> Vec<Option<Judged>> {
    let estimates: Vec<Option<Estimate>> =
        samples.iter().map(|s| s.as_ref().and_then(|s| Estimate::of(s, method))).collect();
    let count = details_of.len().min(estimates.len());
    let (of_figures, of_details) = estimates.split_at(count);
    // What cannot be judged takes no share of the level.
    let places = |all: &[Option<Estimate>]| -> Vec<usize> {
        (0..all.len()).filter(|place| all[*place].is_some()).collect()
    };
    let (figures, details) = (places(of_figures), places(of_details));
    let judged = |wanted: &[usize]| -> Vec<usize> {
        wanted.iter().filter_map(|detail| details.iter().position(|d| d == detail)).collect()
    };
    let own: Vec<Vec<usize>> = figures.iter().map(|figure| judged(&details_of[*figure])).collect();
    let order: Vec<usize> = figures.into_iter().chain(details.iter().map(|detail| count + detail)).collect();
    let chances: Vec<f64> = order.iter().map(|place| estimates[*place].map_or(1.0, |e| e.chance)).collect();
    let levels = Hierarchy::new(&own, &judged(common)).levels(&chances, 1.0 - confidence);
    let mut out: Vec<Option<Judged>> = vec![None; samples.len()];
    for (place, level) in order.into_iter().zip(levels) {
        out[place] = estimates[place].filter(|_| level > 0.0).map(|estimate| estimate.at(1.0 - level));
    }
    out
}

/// A mean difference with its standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    mean: f64,
    error: f64,
    df: f64,
    chance: f64,
    spread: Spreads,
}

impl Estimate {
    pub(crate) fn of(samples: &Samples, method: Method) -> Option<Estimate> {
        let (mean, error, df, spread) = match method {
            Method::Paired | Method::Sequential => {
                let differences: Vec<f64> =
                    samples.base.iter().zip(&samples.other).map(|(b, o)| o - b).collect();
                let (mean, variance) = mean_and_variance(&differences)?;
                let n = differences.len() as f64;
                (mean, (variance / n).sqrt(), n - 1.0, Spreads::Paired(variance))
            }
            Method::Welch => {
                let (base, base_variance) = mean_and_variance(&samples.base)?;
                let (other, other_variance) = mean_and_variance(&samples.other)?;
                let (n_base, n_other) = (samples.base.len() as f64, samples.other.len() as f64);
                let (error, df) = welch(base_variance, other_variance, n_base, n_other);
                (other - base, error, df, Spreads::Apart(base_variance, other_variance))
            }
        };
        let chance = match (mean == 0.0, error == 0.0) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => student::two_sided((mean / error).abs(), df),
        };
        Some(Estimate { mean, error, df, chance, spread })
    }

    pub(crate) fn at(self, confidence: f64) -> Judged {
        let half = if self.error == 0.0 { 0.0 } else { student::critical(confidence, self.df) * self.error };
        Judged { mean: self.mean, half, confidence, chance: self.chance, spread: self.spread }
    }
}

/// Welch's standard error and Satterthwaite's degrees of freedom.
fn welch(base: f64, other: f64, n_base: f64, n_other: f64) -> (f64, f64) {
    let (a, b) = (base / n_base, other / n_other);
    let below = a * a / (n_base - 1.0) + b * b / (n_other - 1.0);
    // If neither varies, any number of degrees will do.
    let df = if below > 0.0 { (a + b).powi(2) / below } else { n_base + n_other - 2.0 };
    ((a + b).sqrt(), df)
}

impl Judged {
    /// The verdict on it, given whether less or more is better, and what counts as the same (on the scale's own
    /// terms).
    pub fn call(&self, same: EquivalenceBounds, less_is_better: bool) -> Call {
        let (low, high) = (self.mean - self.half, self.mean + self.half);
        let is_less = high < 0.0;
        match () {
            () if low >= same.low && high <= same.high => Call::Same,
            () if low <= 0.0 && high >= 0.0 => Call::CannotTell,
            () if is_less == less_is_better => Call::Better,
            () => Call::Worse,
        }
    }

    /// How many trials of each case settle it, if they continue like these: enough for an interval that excludes "no
    /// difference", or lies within what counts as the same. `None`: impractically many.
    pub fn trials_needed(&self, same: EquivalenceBounds) -> Option<u64> {
        let inside = (self.mean - same.low).min(same.high - self.mean);
        let wanted = self.mean.abs().max(inside);
        let half_at = |n: u64| {
            let n = n as f64;
            let (error, df) = match self.spread {
                Spreads::Paired(variance) => ((variance / n).sqrt(), n - 1.0),
                Spreads::Apart(base, other) => welch(base, other, n, n),
            };
            student::critical(self.confidence, df) * error
        };
        let least = TRIALS_FOR_DIFFERENCES as u64;
        if half_at(MOST_TRIALS) > wanted {
            return None;
        }
        // The interval shrinks with every trial: bisection finds the first number that suffices.
        let (mut low, mut high) = (least, MOST_TRIALS);
        while low < high {
            let middle = (low + high) / 2;
            if half_at(middle) <= wanted { high = middle } else { low = middle + 1 }
        }
        Some(low)
    }
}

/// What counts as the same, on the scale of the comparison: from at most 0 to at least 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EquivalenceBounds {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl EquivalenceBounds {
    /// Any difference of shares counts: one lost request in fifty is not "the same within 2 %".
    pub(crate) fn of(scale: Scale, equivalence_margin: f64) -> EquivalenceBounds {
        match scale {
            Scale::Ratio => {
                EquivalenceBounds { low: (-equivalence_margin).ln_1p(), high: equivalence_margin.ln_1p() }
            }
            Scale::Difference => EquivalenceBounds { low: 0.0, high: 0.0 },
        }
    }
}

/// What is neither better nor worse has changed.
pub(crate) fn directed(call: Call, measure: &Metric) -> Call {
    match call {
        Call::Better | Call::Worse if measure.better() == Better::Neither => Call::Changed,
        call => call,
    }
}
