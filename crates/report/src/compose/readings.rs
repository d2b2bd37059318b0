//! Ticks and samples of a trial on an even grid of moments, for charts.
//!
//! Long trials are drawn with at most [`MOMENTS`] moments. Re-binning adds what adds (counts over lengths)
//! and takes the largest of what does not (percentiles, memory): a chart must not hide a spike.

use std::collections::BTreeMap;

use loadlab_analysis::counter::{Counter, During};
use loadlab_record::load::{Tick, TickMs};
use loadlab_record::sample::Sample;
use loadlab_record::store::TrialRecord;

use super::Order;

/// No chart has more moments than this: more are neither seen nor quick to draw.
const MOMENTS: usize = 600;
/// Shorter moments tell no rate: the few milliseconds in which a load's last responses come would be drawn as a
/// peak, or as nothing at all.
const RATE_FROM_S: f64 = 0.1;

/// Successive ticks of all loads drawn as one moment.
pub(super) struct Bin<'a> {
    pub(super) at_s: f64,
    length_s: f64,
    pub(super) ticks: Vec<&'a Tick>,
}

impl Bin<'_> {
    pub(super) fn per_s(&self, read: impl Fn(&Tick) -> u64) -> Option<f64> {
        (self.length_s >= RATE_FROM_S)
            .then(|| self.ticks.iter().map(|t| read(t)).sum::<u64>() as f64 / self.length_s)
    }

    pub(super) fn largest(&self, load: &str, read: impl Fn(&TickMs) -> Option<f64>) -> Option<f64> {
        let own = self.ticks.iter().filter(|t| t.load == load);
        own.filter_map(|t| read(&t.response_ms)).reduce(f64::max)
    }
}

/// Ticks by second of the trial's clock, then neighbours together until there are few enough. A pause
/// between batches leaves a moment without a value, so that no line is drawn through it.
pub(super) fn rebin(ticks: &[Tick]) -> Vec<Bin<'_>> {
    let mut by_second: BTreeMap<i64, Vec<&Tick>> = BTreeMap::new();
    for tick in ticks {
        by_second.entry(((tick.from_s + tick.to_s) / 2.0).floor() as i64).or_default().push(tick);
    }
    let (Some(first), Some(last)) = (by_second.keys().next().copied(), by_second.keys().next_back().copied())
    else {
        return Vec::new();
    };
    let step = ((last - first + 1) as usize).div_ceil(MOMENTS).max(1);
    (first..=last)
        .step_by(step)
        .map(|second| {
            let inside: Vec<&Tick> =
                by_second.range(second..second + step as i64).flat_map(|(_, t)| t.iter().copied()).collect();
            Bin { at_s: second as f64 + step as f64 / 2.0, length_s: covered_s(&inside), ticks: inside }
        })
        .collect()
}

/// How much time ticks cover: ticks of loads that run at once cover it once.
fn covered_s(ticks: &[&Tick]) -> f64 {
    let mut by_load: BTreeMap<&str, f64> = BTreeMap::new();
    for tick in ticks {
        *by_load.entry(&tick.load).or_default() += tick.to_s - tick.from_s;
    }
    by_load.into_values().fold(0.0, f64::max)
}

/// Samples by component, on an even grid of moments.
pub(super) struct Readings {
    pub(super) by_component: Vec<(String, Vec<Sample>)>,
    grid: Vec<f64>,
    step_s: f64,
}

impl Readings {
    pub(super) fn of(record: &TrialRecord, order: &Order<'_>) -> Readings {
        let by_component = record.samples.by_component();
        let times = || by_component.values().flatten().map(|s| s.at_s);
        let first = times().fold(f64::INFINITY, f64::min).floor();
        let last = times().fold(f64::NEG_INFINITY, f64::max).ceil();
        let seconds = if last > first { (last - first) as usize } else { 0 };
        let step = seconds.div_ceil(MOMENTS).max(1);
        let grid = (0..seconds.div_ceil(step)).map(|i| first + (i * step) as f64).collect();
        let mut by_component: Vec<(String, Vec<Sample>)> = by_component.into_iter().collect();
        order.sort(&mut by_component, |(name, _)| name);
        Readings { by_component, grid, step_s: step as f64 }
    }

    /// Components of the system, then the generator; the machine and lone probes are no components.
    pub(super) fn components(&self) -> impl Iterator<Item = (&str, &[Sample])> {
        let under_test =
            self.by_component.iter().filter(|(n, _)| !matches!(n.as_str(), "loadlab" | "host" | "probes"));
        let own = self.by_component.iter().filter(|(n, _)| n == "loadlab");
        under_test.chain(own).map(|(n, list)| (n.as_str(), list.as_slice()))
    }

    pub(super) fn at_s(&self) -> Vec<f64> {
        self.grid.iter().map(|t| t + self.step_s / 2.0).collect()
    }

    /// A counter's growth per second in each step.
    pub(super) fn rates(&self, list: &[Sample], read: impl Fn(&Sample) -> Option<f64>) -> Vec<Option<f64>> {
        let counter = Counter::of(list, read);
        let rate = |from_s: &f64| counter.per_s(During { from_s: *from_s, to_s: from_s + self.step_s });
        self.grid.iter().map(rate).collect()
    }

    /// The largest reading in each step.
    pub(super) fn levels(&self, list: &[Sample], read: impl Fn(&Sample) -> Option<f64>) -> Vec<Option<f64>> {
        let mut levels = vec![None; self.grid.len()];
        let Some(first) = self.grid.first() else { return levels };
        for sample in list {
            let at = ((sample.at_s - first) / self.step_s).max(0.0) as usize;
            if let (Some(slot), Some(value)) = (levels.get_mut(at.min(self.grid.len() - 1)), read(sample)) {
                *slot = Some(slot.map_or(value, |v: f64| v.max(value)));
            }
        }
        levels
    }
}
