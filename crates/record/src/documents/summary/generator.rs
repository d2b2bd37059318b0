//! What the load generator itself used, and when its threads did not run.

use serde::{Deserialize, Serialize};

/// What the generator used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// `uring`, `epoll` (or `sim` in tests).
    pub io: String,
    /// Load threads.
    pub threads: u64,
    /// Cores the load threads were bound to; empty when free.
    pub cpus: Vec<u64>,
    /// CPU time of the load threads up to the end of the load, seconds, without the wait for stragglers.
    pub cpu_s: f64,
    /// CPU time of the load thread that used most, seconds, likewise; absent in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_cpu_s: Option<f64>,
    /// Time load threads were runnable but waited for a core, seconds; `null` where the kernel does not report it.
    pub run_delay_s: Option<f64>,
    /// The same of the load thread that waited longest; absent in older records, and where `run_delay_s` is `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_run_delay_s: Option<f64>,
    /// How often load threads got a core; the average wait each time is `run_delay_s` divided by this.
    #[serde(default)]
    pub time_slices: Option<u64>,
    /// Time that a CPU limit throttled loadlab's own cgroup, or an enclosing one, seconds.
    pub throttled_s: Option<f64>,
    /// Stretches of time in which a load thread did not run at all, for whatever reason.
    #[serde(default)]
    pub stalls: Stalls,
    /// Lower bound of the time this machine was suspended during the load, seconds: no clock of the load shows it.
    #[serde(default)]
    pub suspended_s: Option<f64>,
    /// Cores of this machine that are online, to which counters of the whole machine refer: loadlab may be allowed
    /// fewer. Absent if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_cores: Option<u64>,
    /// Time of the load in ticks longer than a second, seconds: the merging thread had too little time. Counts over the
    /// whole load are complete nevertheless.
    #[serde(default)]
    pub coarse_s: f64,
    /// Peak resident memory of loadlab.
    pub peak_rss_bytes: u64,
    /// Most connections open at one time.
    pub connections_peak: u64,
}

impl Generator {
    /// Combines two generators that ran at the same time on separate threads.
    pub fn merge_concurrent(mut self, other: Generator) -> Generator {
        self.cpus.extend(other.cpus);
        self.cpus.sort_unstable();
        self.cpus.dedup();
        Generator {
            // A load made by a program has no I/O backend.
            io: if other.io.is_empty() { self.io } else { other.io },
            threads: self.threads + other.threads,
            cpus: self.cpus,
            cpu_s: self.cpu_s + other.cpu_s,
            busiest_cpu_s: larger_known(self.busiest_cpu_s, other.busiest_cpu_s),
            run_delay_s: sum_of_known(self.run_delay_s, other.run_delay_s),
            longest_run_delay_s: larger_known(self.longest_run_delay_s, other.longest_run_delay_s),
            time_slices: sum_of_known(self.time_slices, other.time_slices),
            stalls: self.stalls.merge_concurrent(other.stalls),
            coarse_s: self.coarse_s.max(other.coarse_s),
            connections_peak: self.connections_peak + other.connections_peak,
            // These describe a whole process, and perhaps several: agents on other machines.
            throttled_s: larger_known(self.throttled_s, other.throttled_s),
            suspended_s: larger_known(self.suspended_s, other.suspended_s),
            machine_cores: other.machine_cores.or(self.machine_cores),
            peak_rss_bytes: self.peak_rss_bytes.max(other.peak_rss_bytes),
        }
    }

    /// CPU time of the load thread that used most, seconds: threads with little or no share of the load do not hide
    /// another that has no reserve. In older records the mean of all threads; `None` without load threads.
    pub fn busiest_s(&self) -> Option<f64> {
        self.of_threads(self.busiest_cpu_s, Some(self.cpu_s))
    }

    /// Time for which the load thread that waited longest for a core did so, seconds, likewise; `None` also if it is
    /// unknown.
    pub fn longest_delay_s(&self) -> Option<f64> {
        self.of_threads(self.longest_run_delay_s, self.run_delay_s)
    }

    fn of_threads(&self, most: Option<f64>, sum: Option<f64>) -> Option<f64> {
        let known = most.or(sum.map(|sum| sum / self.threads as f64));
        known.filter(|_| self.threads > 0)
    }
}

/// The larger of those values that are known; `None` if neither is.
fn larger_known(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.zip(b).map(|(a, b)| a.max(b)).or(a).or(b)
}

/// The sum of those values that are known; `None` if neither is.
pub fn sum_of_known<T: std::ops::Add<Output = T> + Copy>(a: Option<T>, b: Option<T>) -> Option<T> {
    a.zip(b).map(|(a, b)| a + b).or(a).or(b)
}

/// Gaps of more than a tenth of a second between when a load thread asked to be woken, or was last seen, and when it
/// ran: it was stopped, starved, or its machine was paused. Of several threads, the gaps of the one that stalled
/// longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// Number of gaps.
    pub count: u64,
    /// Their sum, seconds.
    pub total_s: f64,
    /// The longest, seconds.
    pub max_s: f64,
    /// When the longest began, seconds on the trial's clock.
    pub max_at_s: f64,
}

impl Stalls {
    /// Combines it with the gaps of the same threads at another time.
    pub fn then(self, other: Stalls) -> Stalls {
        let longer = if other.max_s > self.max_s { other } else { self };
        Stalls { count: self.count + other.count, total_s: self.total_s + other.total_s, ..longer }
    }

    /// Of two threads at the same time, the one that stalled longer.
    pub fn merge_concurrent(self, other: Stalls) -> Stalls {
        if other.total_s > self.total_s { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agents on several machines: what happened to one of them happened to the load, whichever came last.
    #[test]
    fn the_longest_stop_of_several_processes_counts() {
        let of = |throttled_s: Option<f64>, suspended_s: Option<f64>| Generator {
            throttled_s,
            suspended_s,
            ..Generator::default()
        };
        let agents = [of(Some(2.0), None), of(Some(0.0), Some(10.0)), of(None, Some(0.0))];
        let all = agents.into_iter().reduce(Generator::merge_concurrent).expect("three");
        assert_eq!((all.throttled_s, all.suspended_s), (Some(2.0), Some(10.0)));
    }

    /// Threads of several loads or processes: one without reserve is not hidden by others that have little to do.
    #[test]
    fn the_busiest_thread_of_all_counts() {
        let of = |cpu_s: f64, busiest: f64, delay: Option<f64>| Generator {
            threads: 2,
            cpu_s,
            busiest_cpu_s: Some(busiest),
            run_delay_s: delay,
            longest_run_delay_s: delay,
            ..Generator::default()
        };
        let loads = [of(9.6, 9.5, Some(0.1)), of(1.0, 0.5, Some(0.3)), of(0.0, 0.0, None)];
        let all = loads.into_iter().reduce(Generator::merge_concurrent).expect("three");
        assert_eq!((all.threads, all.busiest_s(), all.longest_delay_s()), (6, Some(9.5), Some(0.3)));
        let older = Generator { threads: 2, cpu_s: 5.0, ..Generator::default() };
        assert_eq!((older.busiest_s(), older.longest_delay_s()), (Some(2.5), None));
        assert_eq!(Generator::default().busiest_s(), None);
    }
}
