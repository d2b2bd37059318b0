//! What a component has used since its first reading in a trial. Its own counters are totals since it started, perhaps
//! days ago, and begin at zero when it is started again.

use loadlab_analysis::trial::components::cpu_s;
use loadlab_analysis::trial::counter::is_restarted;
use loadlab_record::watch::sample::Sample;

/// A component's counters over a trial.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub cpu_s: Counter,
    pub throttled_s: Counter,
    pub net_in_bytes: Counter,
    pub net_out_bytes: Counter,
    pub block_read_bytes: Counter,
    pub block_written_bytes: Counter,
}

impl Used {
    /// Adds a reading.
    pub fn read(&mut self, sample: &Sample) {
        let bytes = |count: Option<u64>| count.map(|bytes| bytes as f64);
        self.cpu_s.read(cpu_s(sample));
        self.throttled_s.read(sample.throttled_s);
        self.net_in_bytes.read(bytes(sample.net_in_bytes));
        self.net_out_bytes.read(bytes(sample.net_out_bytes));
        self.block_read_bytes.read(bytes(sample.block_read_bytes));
        self.block_written_bytes.read(bytes(sample.block_written_bytes));
    }
}

/// A counter that starts at zero with its first reading and never falls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    first: Option<f64>,
    last: f64,
    /// Totals of components that were started again since.
    before: f64,
    grown: f64,
}

impl Counter {
    fn read(&mut self, value: Option<f64>) {
        let Some(value) = value else { return };
        let first = *self.first.get_or_insert(value);
        if is_restarted(self.last, value) {
            self.before += self.last;
        }
        self.last = value;
        self.grown = self.grown.max(self.before + value - first);
    }

    /// How much it has grown; `None` if it was never read.
    pub fn grown(&self) -> Option<f64> {
        self.first.map(|_| self.grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_grows_from_its_first_reading_on() {
        let check = |readings: &[Option<f64>], expect: Option<f64>| {
            let mut counter = Counter::default();
            readings.iter().for_each(|value| counter.read(*value));
            assert_eq!(counter.grown(), expect, "{readings:?}");
        };
        check(&[], None);
        check(&[None], None);
        check(&[Some(900.0)], Some(0.0));
        check(&[Some(900.0), Some(902.0), Some(905.0)], Some(5.0));
        check(&[None, Some(900.0), None, Some(905.0)], Some(5.0));
        // Rounded down, then started again.
        check(&[Some(900.0), Some(905.0), Some(904.0)], Some(5.0));
        check(&[Some(900.0), Some(905.0), Some(1.0), Some(3.0)], Some(8.0));
    }
}
