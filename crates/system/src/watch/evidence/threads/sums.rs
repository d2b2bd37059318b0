//! What was seen of a component's threads, added up over readings.

use crate::process::wait::Doing;

/// Sums over readings.
#[derive(Debug, Default)]
pub(super) struct ThreadSums {
    pub count: f64,
    pub read: f64,
    pub doing: [f64; Doing::COUNT],
    /// Inspections of threads whose call may not be inspected: those where the kernel function showed the state, and
    /// the others.
    pub by_function: u32,
    pub hidden: u32,
}

/// Threads of one kind (busy or other) in one reading.
#[derive(Debug)]
pub(super) struct Stratum {
    pub count: u32,
    pub read: u32,
    pub doing: [u32; Doing::COUNT],
}

impl Stratum {
    pub fn new(count: usize) -> Stratum {
        Stratum { count: count as u32, read: 0, doing: [0; Doing::COUNT] }
    }
}

impl ThreadSums {
    /// Adds a reading. Each kind of thread is weighted by its number of threads, not by how many of them were read.
    pub fn add(&mut self, strata: &[Stratum; 2]) {
        self.count += strata.iter().map(|s| f64::from(s.count)).sum::<f64>();
        let read: f64 = strata.iter().map(|s| f64::from(s.read)).sum();
        self.read += read;
        let known: f64 = strata.iter().filter(|s| s.read > 0).map(|s| f64::from(s.count)).sum();
        for stratum in strata.iter().filter(|s| s.read > 0) {
            // In this order the weight is exactly 1 if all were read.
            let weight = (f64::from(stratum.count) * read) / (known * f64::from(stratum.read));
            for (sum, number) in self.doing.iter_mut().zip(stratum.doing) {
                *sum += f64::from(number) * weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_thread_has_its_weight() {
        let stratum = |count, read, running, poll| {
            let mut stratum = Stratum { count, read, ..Stratum::new(0) };
            stratum.doing[Doing::Running as usize] = running;
            stratum.doing[Doing::Poll as usize] = poll;
            stratum
        };
        let check = |strata: [Stratum; 2], read: f64, running: f64, poll: f64| {
            let mut sums = ThreadSums::default();
            sums.add(&strata);
            let got = [sums.read, sums.doing[Doing::Running as usize], sums.doing[Doing::Poll as usize]];
            let near = got.iter().zip([read, running, poll]).all(|(got, want)| (got - want).abs() < 1e-9);
            assert!(near, "{got:?}, not {:?}", [read, running, poll]);
        };
        // All threads were read.
        check([stratum(4, 4, 3, 1), stratum(6, 6, 0, 6)], 10.0, 3.0, 7.0);
        // All 10 busy threads, and 10 of the 90 others: 10 of a hundred run, so 2 of twenty.
        check([stratum(10, 10, 10, 0), stratum(90, 10, 0, 10)], 20.0, 2.0, 18.0);
        // Nothing is known about a kind that was not read.
        check([stratum(10, 5, 5, 0), stratum(90, 0, 0, 0)], 5.0, 5.0, 0.0);
        check([stratum(0, 0, 0, 0), stratum(0, 0, 0, 0)], 0.0, 0.0, 0.0);
    }
}
