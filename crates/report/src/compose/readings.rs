//! Ticks and samples of a trial on an even time grid, for charts.
//!
//! Long trials are drawn with at most [`MOMENTS`] moments. Re-binning adds additive values (counts over lengths) and
//! takes the maximum of the others (percentiles, memory): a chart must not hide a spike.

use std::collections::BTreeMap;

use loadlab_analysis::trial::counter::{Counter, During};
use loadlab_record::counts::load::{Tick, TickMs};
use loadlab_record::watch::names::{GENERATOR, HOST, PROBES};
use loadlab_record::watch::sample::Sample;

use super::PlanOrder;
use super::marks::ShownTime;
use crate::colour::Colour;

/// The most moments in a chart: more are neither visible nor quick to draw.
const MOMENTS: usize = 600;
/// Shorter moments yield no rate: the few milliseconds of a load's last responses would be drawn as a peak, or as
/// nothing at all.
pub(super) const RATE_FROM_S: f64 = 0.1;

/// Successive ticks of all loads drawn as one moment.
pub(super) struct TickBin<'a> {
    pub(super) at_s: f64,
    length_s: f64,
    pub(super) ticks: Vec<&'a Tick>,
}

impl TickBin<'_> {
    pub(super) fn per_s(&self, read: impl Fn(&Tick) -> u64) -> Option<f64> {
        (self.length_s >= RATE_FROM_S)
            .then(|| self.ticks.iter().map(|t| read(t)).sum::<u64>() as f64 / self.length_s)
    }

    pub(super) fn largest(&self, load: &str, read: impl Fn(&TickMs) -> Option<f64>) -> Option<f64> {
        let own = self.ticks.iter().filter(|t| t.load == load);
        own.filter_map(|t| read(&t.response_ms)).reduce(f64::max)
    }
}

/// Ticks by second of the trial's clock, then neighbours merged until there are few enough. A pause between batches
/// leaves a moment without a value, so that no line is drawn through it.
pub(super) fn rebin(ticks: &[Tick]) -> Vec<TickBin<'_>> {
    let mut by_second: BTreeMap<i64, Vec<&Tick>> = BTreeMap::new();
    for tick in ticks {
        let second = ((tick.from_s + tick.to_s) / 2.0).floor() as i64;
        // A tick too short for a rate belongs to the second before: on its own it would look like a breakdown.
        let is_rest = tick.to_s - tick.from_s < RATE_FROM_S && by_second.contains_key(&(second - 1));
        by_second.entry(if is_rest { second - 1 } else { second }).or_default().push(tick);
    }
    let (Some(first), Some(last)) = (by_second.keys().next().copied(), by_second.keys().next_back().copied())
    else {
        return Vec::new();
    };
    let step = ((last - first + 1) as usize).div_ceil(MOMENTS).max(1);
    let end_s = ticks.iter().map(|t| t.to_s).fold(0.0, f64::max);
    (first..=last)
        .step_by(step)
        .map(|second| {
            let inside: Vec<&Tick> =
                by_second.range(second..second + step as i64).flat_map(|(_, t)| t.iter().copied()).collect();
            // The middle of a last second that is not whole may lie beyond the end.
            let at_s = (second as f64 + step as f64 / 2.0).min(end_s);
            TickBin { at_s, length_s: covered_s(&inside), ticks: inside }
        })
        .collect()
}

/// How much time ticks cover: ticks of loads that run at once count once.
fn covered_s(ticks: &[&Tick]) -> f64 {
    let mut by_load: BTreeMap<&str, f64> = BTreeMap::new();
    for tick in ticks {
        *by_load.entry(&tick.load).or_default() += tick.to_s - tick.from_s;
    }
    by_load.into_values().fold(0.0, f64::max)
}

/// A last step shorter than this share of the others yields no rate.
const LAST_FROM: f64 = 0.3;

/// Samples by component, in even steps of the time shown.
pub(super) struct Readings {
    pub(super) by_component: Vec<(String, Vec<Sample>)>,
    steps: Vec<(f64, f64)>,
    /// Index of each component in the plan, and how many the plan has.
    places: BTreeMap<String, usize>,
}

impl Readings {
    /// For the time that charts show. Samples outside it are kept, since a counter is read between two of them.
    pub(super) fn of(
        by_component: BTreeMap<String, Vec<Sample>>,
        order: &PlanOrder<'_>,
        shown: ShownTime,
    ) -> Readings {
        let ShownTime { from_s, to_s } = shown;
        let seconds = if to_s > from_s { (to_s - from_s).min(1e8).ceil() as usize } else { 0 };
        let step = seconds.div_ceil(MOMENTS).max(1);
        let at = |i: usize| from_s + (i * step) as f64;
        let mut steps: Vec<(f64, f64)> =
            (0..seconds.div_ceil(step)).map(|i| (at(i), at(i + 1).min(to_s))).collect();
        if steps.len() > 1 {
            steps.pop_if(|(from, to)| *to - *from < LAST_FROM * step as f64);
        }
        let mut by_component: Vec<(String, Vec<Sample>)> = by_component.into_iter().collect();
        order.sort(&mut by_component, |(name, _)| name);
        let planned = order.0.iter().map(|name| (*name).to_owned());
        let found =
            by_component.iter().map(|(name, _)| name.clone()).filter(|n| !order.0.contains(&n.as_str()));
        let places = planned.chain(found).enumerate().map(|(i, name)| (name, i)).collect();
        Readings { by_component, steps, places }
    }

    /// Components of the system, without the generator, the machine and probes of no component.
    pub(super) fn components(&self) -> impl Iterator<Item = (&str, &[Sample])> {
        let is_one = |name: &str| !matches!(name, GENERATOR | HOST | PROBES);
        self.by_component
            .iter()
            .map(|(n, list)| (n.as_str(), list.as_slice()))
            .filter(move |(n, _)| is_one(n))
    }

    /// The load generator.
    pub(super) fn generator(&self) -> impl Iterator<Item = (&str, &[Sample])> {
        self.by_component
            .iter()
            .map(|(n, list)| (n.as_str(), list.as_slice()))
            .filter(|(n, _)| *n == GENERATOR)
    }

    /// A component has the same colour in all charts of a run, by its index in the plan.
    pub(super) fn colour(&self, name: &str) -> Colour {
        match name {
            GENERATOR => Colour::Generator,
            _ => Colour::Component(self.places.get(name).copied().unwrap_or_default()),
        }
    }

    pub(super) fn at_s(&self) -> Vec<f64> {
        self.steps.iter().map(|(from, to)| f64::midpoint(*from, *to)).collect()
    }

    /// A counter's growth per second in each step.
    pub(super) fn rates(&self, list: &[Sample], read: impl Fn(&Sample) -> Option<f64>) -> Vec<Option<f64>> {
        let counter = Counter::of(list, read);
        self.steps
            .iter()
            .map(|(from_s, to_s)| counter.per_s(During { from_s: *from_s, to_s: *to_s }))
            .collect()
    }

    /// The largest reading in each step.
    pub(super) fn levels(&self, list: &[Sample], read: impl Fn(&Sample) -> Option<f64>) -> Vec<Option<f64>> {
        let mut levels = vec![None; self.steps.len()];
        for sample in list {
            let at = self.steps.partition_point(|(_, to)| *to <= sample.at_s);
            let within = self.steps.get(at).is_some_and(|(from, _)| *from <= sample.at_s);
            if let (Some(slot), true, Some(value)) = (levels.get_mut(at), within, read(sample)) {
                *slot = Some(slot.map_or(value, |v: f64| v.max(value)));
            }
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_moment_is_no_breakdown() {
        let tick = |from_s: f64, to_s: f64| Tick { load: "main".into(), from_s, to_s, ..Tick::default() };
        let ticks = [tick(0.0, 1.0), tick(1.0, 2.0), tick(2.0, 2.004)];
        let bins = rebin(&ticks);
        assert_eq!(bins.iter().map(|b| (b.at_s, b.ticks.len())).collect::<Vec<_>>(), [(0.5, 1), (1.5, 2)]);
        // on its own it is all there is
        assert_eq!(rebin(&ticks[2..]).len(), 1);
        // half a second yields a rate, and is placed before the end
        let ticks = [tick(0.0, 1.0), tick(1.0, 1.4)];
        assert_eq!(rebin(&ticks).iter().map(|b| b.at_s).collect::<Vec<_>>(), [0.5, 1.4]);
    }
}
