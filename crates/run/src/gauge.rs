//! Numbers while a run goes: for stop conditions, and for waiting until the work is done.

use std::collections::BTreeMap;

use loadlab_record::expr::{Kind, Known, Numbers, SummaryNumbers};
use loadlab_record::load::Window;
use loadlab_record::summary::Summary;

/// Readings of probes over time, on the clock of [`loadlab_system::clock::now_ns`].
#[derive(Clone, Debug, Default)]
pub struct Readings(BTreeMap<String, Vec<(u64, f64)>>);

impl Readings {
    /// Adds one. Readings of one probe come in order.
    pub fn add(&mut self, probe: &str, at_ns: u64, value: f64) {
        self.0.entry(probe.to_owned()).or_default().push((at_ns, value));
    }

    fn last(&self, probe: &str) -> Option<f64> {
        self.0.get(probe)?.last().map(|(_, value)| *value)
    }

    /// It has kept its value for so long, up to its last reading.
    fn steady(&self, probe: &str, for_ns: u64) -> Option<bool> {
        let readings = self.0.get(probe)?;
        let (last_ns, last) = *readings.last()?;
        let same_since = readings.iter().rev().take_while(|(_, v)| *v == last).last().map(|(at, _)| *at)?;
        Some(last_ns - same_since >= for_ns)
    }
}

/// A trial's numbers as far as they are known, and the probes' latest readings.
pub struct Gauge<'a> {
    /// What was counted.
    pub summary: &'a Summary,
    /// What was read.
    pub readings: &'a Readings,
}

impl Numbers for Gauge<'_> {
    fn number(&self, name: &str, window: Option<Window>) -> Known {
        match (window, self.readings.last(name)) {
            (None, Some(value)) => Known::Is(value, Kind::Plain),
            _ => SummaryNumbers::new(self.summary, &[]).number(name, window),
        }
    }

    fn steady(&self, name: &str, for_ns: u64) -> Option<bool> {
        self.readings.steady(name, for_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_needs_the_whole_time() {
        let mut readings = Readings::default();
        for (at, value) in [(0, 1.0), (10, 2.0), (20, 2.0), (30, 2.0)] {
            readings.add("stored", at, value);
        }
        assert_eq!(readings.steady("stored", 20), Some(true));
        assert_eq!(readings.steady("stored", 21), Some(false));
        assert_eq!(readings.steady("other", 1), None);
        readings.add("stored", 40, 3.0);
        assert_eq!(readings.steady("stored", 1), Some(false));
    }
}
