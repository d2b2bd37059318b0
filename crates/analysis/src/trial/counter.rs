//! A counter of a component (CPU time, bytes), read at intervals.
//!
//! Counters in samples are totals since a component started. Between two readings the counter is assumed to grow
//! evenly: a component is sampled about once a second, and a short load must not be charged for a second of idling
//! before it. From the clock's zero on, if nothing was loaded before, all growth is the load's. A counter that falls
//! was restarted: it counts from zero.

use loadlab_record::watch::sample::Sample;

/// Shorter intervals than this yield no rate: CPU time is reported in steps of up to 10 ms.
const SHORTEST_INTERVAL_S: f64 = 0.5;

/// A reading this shortly before the clock's zero shows the state when the load began. Everything is read once then,
/// and from there on at moments other than whole seconds, when requests are due.
pub(crate) const AT_REST_S: f64 = 0.25;

/// The load, on the trial's clock in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct During {
    /// Start of the first load.
    pub from_s: f64,
    /// End of the last.
    pub to_s: f64,
}

impl During {
    /// Whether this moment is within it.
    pub fn has(self, at_s: f64) -> bool {
        (self.from_s..=self.to_s).contains(&at_s)
    }
}

/// Whether a counter that read `last` began again before it read `value`. Sums of rounded parts may fall back slightly;
/// a restart falls back to nearly zero.
pub fn is_restarted(last: f64, value: f64) -> bool {
    value < last * 0.9
}

/// A counter over time, made monotone across restarts.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter(Vec<(f64, f64)>);

impl Counter {
    /// From readings in order of time; those without the counter are left out.
    pub fn of<'a>(
        readings: impl IntoIterator<Item = &'a Sample>,
        get: impl Fn(&Sample) -> Option<f64>,
    ) -> Counter {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let (mut before, mut last) = (0.0, 0.0);
        for (at_s, value) in readings.into_iter().filter_map(|s| Some((s.at_s, get(s)?))) {
            if is_restarted(last, value) {
                before += last;
            }
            last = value;
            let total = points.last().map_or(before + value, |p| p.1.max(before + value));
            points.push((at_s, total));
        }
        // What was used between the last reading at rest and the first one under load was used under load.
        let after = points.partition_point(|p| p.0 <= 0.0);
        if let Some((at_s, total)) = after.checked_sub(1).map(|rest| points[rest])
            && (-AT_REST_S..0.0).contains(&at_s)
            && after < points.len()
        {
            points.insert(after, (0.0, total));
        }
        Counter(points)
    }

    /// The total at a moment; constant before the first reading and after the last.
    pub fn at(&self, at_s: f64) -> Option<f64> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        if at_s <= first.0 {
            return Some(first.1);
        }
        if at_s >= last.0 {
            return Some(last.1);
        }
        let after = self.0.partition_point(|p| p.0 <= at_s);
        let ((t0, v0), (t1, v1)) = (self.0[after - 1], self.0[after]);
        Some(v0 + (v1 - v0) * (at_s - t0) / (t1 - t0).max(f64::MIN_POSITIVE))
    }

    /// The part of the load that readings cover; `None` with fewer than two readings.
    pub fn covered(&self, during: During) -> Option<(f64, f64)> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        let (from_s, to_s) = (during.from_s.max(first.0), during.to_s.min(last.0));
        (to_s > from_s).then_some((from_s, to_s))
    }

    /// How much was used during the load.
    pub fn used(&self, during: During) -> Option<f64> {
        let (from_s, to_s) = self.covered(during)?;
        Some(self.at(to_s)? - self.at(from_s)?)
    }

    /// Use per second, over the part of the load that readings cover.
    pub fn per_s(&self, during: During) -> Option<f64> {
        let (from_s, to_s) = self.covered(during)?;
        Some(self.used(during)? / (to_s - from_s))
    }

    /// As [`Counter::used`], in several parts of a trial.
    pub fn used_in(&self, parts: &[During]) -> Option<f64> {
        parts.iter().filter_map(|part| self.used(*part)).reduce(|sum, used| sum + used)
    }

    /// As [`Counter::per_s`], over several parts of a trial.
    pub fn per_s_in(&self, parts: &[During]) -> Option<f64> {
        let covered_s =
            parts.iter().filter_map(|part| self.covered(*part)).map(|(from_s, to_s)| to_s - from_s);
        Some(self.used_in(parts)? / covered_s.sum::<f64>())
    }

    /// The largest use per second between two sufficiently distant readings.
    pub fn largest_per_s(&self, during: During) -> Option<f64> {
        let (from_s, to_s) = self.covered(during)?;
        let mut largest = None::<f64>;
        let mut start = (from_s, self.at(from_s)?);
        let inner = self.0.iter().copied().filter(|p| p.0 > from_s && p.0 < to_s);
        for (at_s, total) in inner.chain([(to_s, self.at(to_s)?)]) {
            if at_s - start.0 >= SHORTEST_INTERVAL_S {
                let per_s = (total - start.1) / (at_s - start.0);
                largest = Some(largest.map_or(per_s, |l| l.max(per_s)));
                start = (at_s, total);
            }
        }
        largest.or(self.per_s(during))
    }
}
