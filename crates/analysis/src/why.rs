//! Proof by intervention: what a change of one limit does to the goodput, from blocks of one load in random order.
//!
//! Each round has every change once, in random order, and a block without a change (a control) between any two. A
//! change is compared with the controls on either side of it, on a logarithmic scale, so that drift cancels: the speed
//! of a machine varies by several per cent within a minute. Over the rounds these differences have a mean and an
//! interval by Student's t. A few rounds estimate a variance poorly, so half of it is the change's own and half is
//! that of all changes (Smyth 2004, Linear models and empirical Bayes methods: moderated t; degrees of freedom by
//! Satterthwaite 1946). The level is divided among all changes (Bonferroni): the intervals hold jointly with 95 %.
//!
//! Making changes in random order under one load, and measuring the response, is the idea of causal profiling
//! (Curtsinger and Berger 2015, Coz), here between processes.

use loadlab_record::documents::why::{Effect, LeverCall};

use crate::statistics::spread::mean_and_variance;
use crate::statistics::student::{self, CONFIDENCE};

/// Ratios are clamped to this: a block in which nothing was answered has none, and a record cannot hold infinity.
const FURTHEST: f64 = 1e6;

/// Fewest rounds for a useful interval: with two it reaches twelve standard errors to either side.
pub const FEWEST_ROUNDS: u32 = 4;

/// A block: at most one thing was changed in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Index among all blocks of its load.
    pub place: u32,
    /// Index of the change, from 0; `None` if nothing was changed.
    pub change: Option<usize>,
    /// Successful responses per second.
    pub goodput_per_s: f64,
}

/// The goodput under each change as a share of the goodput without one, from loads in blocks; `None` if fewer than two
/// blocks with the change are next to a control.
pub fn effects(loads: &[&[Block]], changes: usize) -> Vec<Option<Effect>> {
    // All intervals hold jointly with this confidence.
    let confidence = 1.0 - (1.0 - CONFIDENCE) / changes.max(1) as f64;
    let of = |change: usize| {
        let counted = |load: &&[Block]| -> Vec<(u32, f64)> {
            let of_change = load.iter().filter(|block| block.change == Some(change));
            of_change.filter_map(|block| Some((block.place, difference(load, block)?))).collect()
        };
        let by_load: Vec<Vec<(u32, f64)>> = loads.iter().map(counted).collect();
        let beside = |all: &Vec<(u32, f64)>| all.windows(2).filter(|two| two[1].0 - two[0].0 == 2).count();
        let shared = by_load.iter().map(beside).sum();
        Differences::of(by_load.into_iter().flatten().map(|(_, difference)| difference), shared)
    };
    let all: Vec<Option<Differences>> = (0..changes).map(of).collect();
    let known: Vec<f64> = all.iter().flatten().map(|one| one.variance).collect();
    let pooled = known.iter().sum::<f64>() / known.len().max(1) as f64;
    let effect = |one: &Option<Differences>| {
        one.map(|one| {
            let width = one.width(pooled, known.len() as f64, confidence);
            let ratio = |ln: f64| ln.exp().clamp(1.0 / FURTHEST, FURTHEST);
            Effect { value: ratio(one.mean), low: ratio(one.mean - width), high: ratio(one.mean + width) }
        })
    };
    all.iter().map(effect).collect()
}

/// ln of a block's goodput, minus that of the controls beside it. Controls in which nothing was answered are ignored.
fn difference(load: &[Block], block: &Block) -> Option<f64> {
    let beside = |other: &&Block| other.change.is_none() && other.place.abs_diff(block.place) == 1;
    let answered = load.iter().filter(beside).filter(|control| control.goodput_per_s > 0.0);
    let controls: Vec<f64> = answered.map(|control| control.goodput_per_s.ln()).collect();
    let control = controls.iter().sum::<f64>() / controls.len() as f64;
    let ratio = (block.goodput_per_s / control.exp()).max(1.0 / FURTHEST);
    (!controls.is_empty()).then(|| ratio.ln())
}

/// The differences of one change over the rounds.
#[derive(Clone, Copy)]
struct Differences {
    rounds: f64,
    mean: f64,
    variance: f64,
    /// Number of pairs of differences that share a control.
    shared: f64,
}

impl Differences {
    fn of(values: impl Iterator<Item = f64>, shared: usize) -> Option<Differences> {
        let values: Vec<f64> = values.collect();
        let (mean, variance) = mean_and_variance(&values)?;
        Some(Differences { rounds: values.len() as f64, mean, variance, shared: shared as f64 })
    }

    /// Half the width of the interval of the mean: the variance is half its own, half that of all changes.
    fn width(self, pooled: f64, changes: f64, confidence: f64) -> f64 {
        let variance = (self.variance + pooled) / 2.0;
        // The change's own estimate has the total weight `own`, each other one `others`.
        let (own, others) = (0.5 + 0.5 / changes, 0.5 / changes);
        let freedom = (self.rounds - 1.0) / (own * own + (changes - 1.0) * others * others);
        student::critical(confidence, freedom) * (variance * self.alike() / self.rounds).sqrt()
    }

    /// The variance of the mean, relative to that of independent differences. Two differences that share a control
    /// have a sixth of their variance in common: if all blocks are equally noisy, a difference has 3/2 of a block's
    /// variance, and a shared control, half of whose noise is in each, adds 1/4.
    fn alike(self) -> f64 {
        let (rounds, shared) = (self.rounds, self.shared / 3.0);
        (1.0 + shared / rounds) / (1.0 - shared / (rounds * (rounds - 1.0)))
    }
}

/// Whether a lever that was tightened by one step holds the load back by more than the margin, a share of the goodput.
pub fn call(goodput: Effect, margin: f64) -> LeverCall {
    match goodput {
        Effect { high, .. } if high < 1.0 - margin => LeverCall::Binds,
        Effect { low, .. } if low >= 1.0 - margin => LeverCall::Free,
        _ => LeverCall::CannotTell,
    }
}

/// How much of a change the goodput follows: ln of its ratio over ln of the change's. `factor` is not 1.
pub fn elasticity(goodput: Effect, factor: f64) -> Effect {
    let of = |ratio: f64| ratio.ln() / factor.ln();
    let (a, b) = (of(goodput.low), of(goodput.high));
    Effect { value: of(goodput.value), low: a.min(b), high: a.max(b) }
}

/// The goodput predicted for a change by another factor, `to`, after one by `factor`: as elastic as before, up to
/// `most`, where something else becomes the limit. The interval is for the value measured then, so it is widened by the
/// uncertainty of that measurement: that of `of` once it is known, until then that of the first one.
pub fn predicted(goodput: Effect, factor: f64, to: f64, most: Option<f64>, of: Option<Effect>) -> Effect {
    let scale = to.ln() / factor.ln();
    // A record cannot hold infinity.
    let bounded = |ln: f64| ln.exp().clamp(1.0 / FURTHEST, FURTHEST);
    let centre = goodput.value.ln() * scale;
    let first = half_width(goodput) * scale;
    let second = half_width(of.unwrap_or(goodput));
    let half = first.hypot(second);
    let most = most.unwrap_or(f64::INFINITY);
    let low = bounded(centre - half).min(most * (-second).exp());
    let high = bounded(centre + half).min(most * second.exp());
    Effect { value: bounded(centre).min(most), low, high: high.max(low) }
}

/// Half the width of an interval of a ratio, on a logarithmic scale.
fn half_width(ratio: Effect) -> f64 {
    (ratio.high.ln() - ratio.low.ln()) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks in order: which change, and its goodput.
    fn blocks(all: &[(Option<usize>, f64)]) -> Vec<Block> {
        let of = |(place, (change, goodput_per_s)): (u32, &(Option<usize>, f64))| Block {
            place,
            change: *change,
            goodput_per_s: *goodput_per_s,
        };
        (0..).zip(all).map(of).collect()
    }

    #[test]
    fn a_drift_cancels() {
        // Each block is a tenth slower than the one before.
        let changes = [None, Some(0), None, Some(1), None, Some(1), None, Some(0), None];
        let at = |place: usize| 1000.0 * 0.9f64.powi(place as i32);
        let of = |(place, change): (usize, &Option<usize>)| {
            (*change, at(place) * if *change == Some(0) { 0.9 } else { 1.0 })
        };
        let drifting = blocks(&changes.iter().enumerate().map(of).collect::<Vec<_>>());
        let found = effects(&[&drifting], 2);
        let [Some(first), Some(second)] = found.as_slice() else { panic!("{found:?}") };
        assert!((first.value - 0.9).abs() < 1e-9 && first.high - first.low < 1e-6, "{first:?}");
        assert!((second.value - 1.0).abs() < 1e-9, "{second:?}");
        assert_eq!(call(*first, 0.05), LeverCall::Binds);
        assert_eq!(call(*second, 0.05), LeverCall::Free);
    }

    #[test]
    fn an_interval_is_students_divided_among_all_changes() {
        let (a, b) = (Some(0), Some(1));
        let all = [
            (None, 100.0),
            (a, 90.0),
            (None, 100.0),
            (b, 100.0),
            (None, 100.0),
            (a, 94.0),
            (None, 100.0),
            (b, 100.0),
        ];
        let measured = blocks(&all);
        let found = effects(&[&measured], 2)[0].unwrap();
        let logs = [0.9f64.ln(), 0.94f64.ln()];
        let mean = (logs[0] + logs[1]) / 2.0;
        // Half its own variance, half the mean of both, of which the other is 0: three quarters. Weights of 3/4 and 1/4
        // leave 1.6 degrees of freedom.
        let variance = 0.75 * (logs[0] - logs[1]).powi(2) / 2.0;
        let width = student::critical(0.975, 1.6) * (variance / 2.0).sqrt();
        assert!((found.value - mean.exp()).abs() < 1e-9);
        assert!((found.low - (mean - width).exp()).abs() < 1e-9, "{found:?}");
        assert!((found.high - (mean + width).exp()).abs() < 1e-9, "{found:?}");
        // Alone, it is Student's: t of 95 % two-sided with one degree of freedom is 12.706.
        let alone = effects(&[&measured], 1)[0].unwrap();
        let width = 12.706 * (logs[0] - logs[1]).abs() / 2.0;
        assert!((alone.high - (mean + width).exp()).abs() < 1e-4, "{alone:?}");
        assert_eq!(call(alone, 0.05), LeverCall::CannotTell);
        // Two loads give the same result as one.
        let (first, second) = (&measured[..3], &measured[4..7]);
        assert_eq!(effects(&[first, second], 1)[0], Some(alone));
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(effects(&[], 2), [None, None]);
        // One of the two blocks with the change has no control beside it.
        let mut one =
            blocks(&[(None, 100.0), (Some(0), 90.0), (None, 100.0), (None, 100.0), (Some(0), 90.0)]);
        one.remove(3);
        assert_eq!(effects(&[&one], 1), [None]);
        // If nothing was answered in a block, nothing is certain, and nothing panics.
        let never = blocks(&[(None, 0.0), (Some(0), 0.0), (None, 0.0), (Some(0), 0.0), (None, 0.0)]);
        assert_eq!(effects(&[&never], 1), [None], "nothing was ever answered");
        let dead = blocks(&[(None, 100.0), (Some(0), 0.0), (None, 100.0), (Some(0), 90.0), (None, 100.0)]);
        let found = effects(&[&dead], 1)[0].unwrap();
        assert_eq!(call(found, 0.05), LeverCall::CannotTell);
        // All of it can be written and read again.
        for effect in [found, elasticity(found, 0.9), predicted(found, 0.9, 1.1, None, None)] {
            assert!([effect.value, effect.low, effect.high].iter().all(|end| end.is_finite()), "{effect:?}");
        }
    }

    #[test]
    fn predictions_are_as_elastic_as_what_was_measured() {
        let exact = |value: f64| Effect { value, low: value, high: value };
        // A tenth less costs a tenth: a tenth more brings a tenth.
        let up = predicted(exact(0.9), 0.9, 1.1, None, None);
        assert!((up.value - 1.1).abs() < 1e-9, "{up:?}");
        assert!((elasticity(exact(0.9), 0.9).value - 1.0).abs() < 1e-9);
        // A delay that grows by a tenth and costs 4 %: a tenth less of it brings about as much.
        let shorter = predicted(exact(0.96), 1.1, 0.9, None, None);
        assert!((shorter.value - 1.046).abs() < 1e-3, "{shorter:?}");
        // Something else becomes the limit at 5 % more.
        let first = Effect { value: 0.9, low: 0.89, high: 0.91 };
        let capped = predicted(first, 0.9, 1.1, Some(1.05), None);
        assert!((capped.value - 1.05).abs() < 1e-9 && capped.low < 1.05 && capped.high > 1.05, "{capped:?}");
        // A prediction is compared with a measurement, which is less certain after fewer rounds.
        let of =
            |low: f64, high: f64| predicted(first, 0.9, 1.1, None, Some(Effect { value: 1.0, low, high }));
        let (exactly, roughly) = (of(1.0, 1.0), of(0.9, 1.1));
        assert!((exactly.value - roughly.value).abs() < 1e-9);
        assert!(
            roughly.low < exactly.low - 0.08 && roughly.high > exactly.high + 0.08,
            "{exactly:?} {roughly:?}"
        );
    }
}
