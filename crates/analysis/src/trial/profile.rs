//! The merged profiles of a case's trials, and what taking them cost.

use std::collections::BTreeMap;

use loadlab_record::counts::histogram::Histogram;
use loadlab_record::documents::why::Effect;
use loadlab_record::store::TrialRecord;
use loadlab_record::watch::profile::{ComponentProfile, Profile, TimeSpan};

use crate::statistics::spread::mean_and_variance;
use crate::statistics::student::{self, CONFIDENCE};

/// The profiles of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseProfile {
    /// Components whose CPU time was sampled, over all trials.
    pub components: Vec<ComponentProfile>,
    /// Components whose waits were sampled, likewise; samples are microseconds.
    pub waits: Vec<ComponentProfile>,
    /// Samples per second and core.
    pub rate_per_s: u32,
    /// For how long waits were sampled, seconds.
    pub waits_s: f64,
    /// Samples that did not fit into the kernel's buffers.
    pub lost: u64,
    /// Whether stacks include functions of the kernel.
    pub has_kernel: bool,
    /// What could not be sampled, and why.
    pub not_seen: Vec<String>,
    /// What taking samples cost.
    pub cost: ProfileCost,
}

/// Seconds with sampling, compared with seconds without.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProfileCost {
    /// Number of pairs of seconds compared.
    pub pairs: u32,
    /// Ratio of goodput with sampling to goodput without, with its 95 % interval; `None` with fewer than two pairs.
    pub goodput: Option<Effect>,
    /// 99th percentile of response times in seconds with sampling, and in seconds without, milliseconds.
    pub p99_ms: Option<(f64, f64)>,
}

/// Merges the profiles of these trials; `None` if none has one.
pub fn of_case<'a>(trials: impl Iterator<Item = &'a TrialRecord>) -> Option<CaseProfile> {
    let mut all = CaseProfile::default();
    let (mut ratios, mut responses) = (Vec::new(), [Histogram::new(), Histogram::new()]);
    let mut is_any = false;
    for (trial, profile) in trials.filter_map(|trial| Some((trial, trial.profile.as_ref()?))) {
        is_any = true;
        all.rate_per_s = profile.rate_per_s;
        all.lost += profile.lost;
        all.has_kernel |= profile.has_kernel;
        for what in &profile.not_seen {
            if !all.not_seen.contains(what) {
                all.not_seen.push(what.clone());
            }
        }
        add(&mut all.components, &profile.components);
        add(&mut all.waits, &profile.waits);
        all.waits_s += profile.waits_s;
        ratios.extend(pairs(trial, profile));
        for interval in trial.intervals.iter().filter(|interval| interval.is("response")) {
            let time = TimeSpan { from_s: interval.from_s, to_s: interval.from_s + interval.length_s };
            if let Some(is_sampled) = is_sampled(profile, time) {
                interval.merge_into(&mut responses[usize::from(is_sampled)]);
            }
        }
    }
    let p99_ms = |responses: &Histogram| responses.quantile_ns(0.99).map(|ns| ns as f64 / 1e6);
    all.cost = ProfileCost {
        pairs: ratios.len() as u32,
        goodput: effect(&ratios),
        p99_ms: p99_ms(&responses[1]).zip(p99_ms(&responses[0])),
    };
    is_any.then_some(all)
}

/// Adds the samples of another trial, component by component.
fn add(all: &mut Vec<ComponentProfile>, more: &[ComponentProfile]) {
    for component in more.iter().filter(|component| component.samples > 0 || !component.idle.is_empty()) {
        match all.iter_mut().find(|known| known.component == component.component) {
            Some(known) => known.add(component),
            None => all.push(component.clone()),
        }
    }
}

/// Whether samples were taken in this time; `None` if only in part of it, by a thread that woke late.
fn is_sampled(profile: &Profile, time: TimeSpan) -> Option<bool> {
    match profile.sampled_share(time) {
        share if share >= 0.9 => Some(true),
        share if share <= 0.1 => Some(false),
        _ => None,
    }
}

/// ln of the goodput of each sampled second over that of the unsampled second of its pair. Only whole seconds of the
/// schedule: the first and the last of a load may be short.
fn pairs(trial: &TrialRecord, profile: &Profile) -> Vec<f64> {
    let mut seconds: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
    for tick in &trial.ticks {
        let is_whole = (tick.to_s - tick.from_s - 1.0).abs() < 0.01 && tick.from_s.fract().abs() < 0.01;
        let second = seconds.entry(tick.from_s.max(0.0) as u64).or_insert((0, true));
        second.0 += tick.counts.ok;
        second.1 &= is_whole && tick.in_window;
    }
    let ratio = |(second, (ok, is_whole)): (&u64, &(u64, bool))| {
        let (other, is_other_whole) = seconds.get(&(second ^ 1))?;
        let is_usable = *is_whole && *is_other_whole && *ok > 0 && *other > 0;
        let of =
            |second: u64| is_sampled(profile, TimeSpan { from_s: second as f64, to_s: second as f64 + 1.0 });
        let is_pair = of(*second) == Some(true) && of(second ^ 1) == Some(false);
        (is_usable && is_pair).then(|| (*ok as f64 / *other as f64).ln())
    };
    seconds.iter().filter_map(ratio).collect()
}

/// Student's t over pairs.
fn effect(ratios: &[f64]) -> Option<Effect> {
    let pairs = ratios.len() as f64;
    let (mean, variance) = mean_and_variance(ratios)?;
    let width = student::critical(CONFIDENCE, pairs - 1.0) * (variance / pairs).sqrt();
    Some(Effect { value: mean.exp(), low: (mean - width).exp(), high: (mean + width).exp() })
}

#[cfg(test)]
mod tests {
    use loadlab_record::counts::load::{Counts, Tick};

    use super::*;

    fn trial(ok: &[u64], sampled: &[u64]) -> TrialRecord {
        let tick = |(second, ok): (usize, &u64)| Tick {
            from_s: second as f64,
            to_s: second as f64 + 1.0,
            in_window: true,
            counts: Counts { ok: *ok, ..Counts::default() },
            ..Tick::default()
        };
        let window = |second: &u64| TimeSpan { from_s: *second as f64 + 0.005, to_s: *second as f64 + 1.0 };
        let profile = Profile { windows: sampled.iter().map(window).collect(), ..Profile::default() };
        TrialRecord {
            ticks: ok.iter().enumerate().map(tick).collect(),
            profile: Some(profile),
            ..TrialRecord::empty(1, "1".into())
        }
    }

    #[test]
    fn sampled_seconds_are_compared_with_the_other_one_of_their_two() {
        let one = trial(&[90, 100, 200, 180, 50, 0, 7], &[0, 3, 4, 6]);
        let cost = of_case([&one, &trial(&[100, 100], &[1])].into_iter()).unwrap().cost;
        let goodput = cost.goodput.unwrap();
        assert_eq!(cost.pairs, 3, "not beside a second without answers, nor without its other one");
        assert!((goodput.value - 0.81f64.powf(1.0 / 3.0)).abs() < 1e-9, "{goodput:?}");
        assert!(goodput.low < goodput.value && goodput.value < goodput.high, "{goodput:?}");
    }

    #[test]
    fn a_pair_says_nothing_and_no_profile_is_none() {
        assert_eq!(of_case([&trial(&[90, 100], &[0])].into_iter()).unwrap().cost.goodput, None);
        assert_eq!(of_case(std::iter::once(&TrialRecord::empty(1, "1".into()))), None);
    }
}
