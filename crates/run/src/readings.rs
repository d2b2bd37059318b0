//! Probe readings over time: used by conditions, and to decide whether a value has become steady.

use std::collections::BTreeMap;

/// Probe readings over time, on the clock of [`loadlab_system::clock::now_ns`].
///
/// A probe whose last reading failed has no value, however good the previous reading was: a value that is unchanged
/// only because it cannot be read is not steady.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    good: BTreeMap<String, Reading>,
    /// Probes whose last reading failed, and why.
    failed: BTreeMap<String, String>,
}

/// The last reading of a probe.
#[derive(Clone, Copy, Debug)]
struct Reading {
    value: f64,
    /// When the value last changed.
    since_ns: u64,
    last_ns: u64,
}

impl Readings {
    /// Adds a reading. Readings of one probe arrive in order.
    pub fn add(&mut self, probe: &str, at_ns: u64, value: f64) {
        let before = self.good.get(probe).filter(|before| before.value == value);
        let since_ns = before.map_or(at_ns, |before| before.since_ns);
        self.good.insert(probe.to_owned(), Reading { value, since_ns, last_ns: at_ns });
        self.failed.remove(probe);
    }

    /// Records a failed reading. A previously steady value has to become steady again.
    pub fn fail(&mut self, probe: &str, why: &str) {
        self.good.remove(probe);
        self.failed.insert(probe.to_owned(), why.to_owned());
    }

    /// The last reading, unless it failed.
    pub fn last(&self, probe: &str) -> Option<f64> {
        self.good.get(probe).map(|reading| reading.value)
    }

    /// Why the last reading of a probe failed; `None` if it did not.
    pub fn failure(&self, probe: &str) -> Option<&str> {
        self.failed.get(probe).map(String::as_str)
    }

    /// Whether the value stayed unchanged for `for_ns` up to the last reading; `None` without one.
    pub fn steady(&self, probe: &str, for_ns: u64) -> Option<bool> {
        let Reading { since_ns, last_ns, .. } = *self.good.get(probe)?;
        Some(last_ns.saturating_sub(since_ns) >= for_ns)
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
        // A probe that cannot be read is not steady, and its old value does not count.
        readings.add("stored", 90, 3.0);
        assert_eq!(readings.steady("stored", 50), Some(true));
        readings.fail("stored", "refused");
        assert_eq!((readings.steady("stored", 0), readings.last("stored")), (None, None));
        readings.add("stored", 100, 3.0);
        assert_eq!((readings.steady("stored", 50), readings.last("stored")), (Some(false), Some(3.0)));
    }
}
