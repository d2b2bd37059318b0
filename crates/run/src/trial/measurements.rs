//! The combined measurements of all loads and batches of a trial.

use loadlab_analysis::LoadRun;
use loadlab_record::counts::example::{Example, ExampleReason};
use loadlab_record::counts::hlog::Interval;
use loadlab_record::counts::load::{Counts, Tick};
use loadlab_record::documents::summary::{AgentSummary, Ended, Generator, sum_of_known};

use crate::trial::measure::MeasuredLoad;

/// The combined measurements of all loads of a trial.
#[derive(Default)]
pub struct TrialMeasurements {
    pub loads: Vec<LoadRun>,
    pub ticks: Vec<Tick>,
    pub intervals: Vec<Interval>,
    /// The exchanges kept because they failed.
    pub examples: Vec<Example>,
    pub generator: Generator,
    /// What each agent contributed, if other processes sent the loads; by slot.
    pub agents: Vec<AgentSummary>,
    pub ended: Option<Ended>,
    /// When the last load ended.
    pub ended_ns: u64,
}

impl TrialMeasurements {
    /// Counts summed over all loads.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.loads.iter().for_each(|load| counts.merge(&load.measured.counts));
        counts
    }

    /// Combines the batches of one load, which follow one another on the same threads: times add up, other values are
    /// the maximum over the batches.
    pub fn of_batches(batches: Vec<MeasuredLoad>) -> TrialMeasurements {
        let mut sum = TrialMeasurements::default();
        for load in batches {
            let before = std::mem::take(&mut sum.generator);
            sum.generator = Generator {
                threads: before.threads.max(load.generator.threads),
                cpu_s: before.cpu_s + load.generator.cpu_s,
                busiest_cpu_s: sum_of_known(before.busiest_cpu_s, load.generator.busiest_cpu_s),
                run_delay_s: sum_of_known(before.run_delay_s, load.generator.run_delay_s),
                longest_run_delay_s: sum_of_known(
                    before.longest_run_delay_s,
                    load.generator.longest_run_delay_s,
                ),
                time_slices: sum_of_known(before.time_slices, load.generator.time_slices),
                throttled_s: sum_of_known(before.throttled_s, load.generator.throttled_s),
                stalls: before.stalls.then(load.generator.stalls),
                suspended_s: sum_of_known(before.suspended_s, load.generator.suspended_s),
                coarse_s: before.coarse_s + load.generator.coarse_s,
                peak_rss_bytes: before.peak_rss_bytes.max(load.generator.peak_rss_bytes),
                connections_peak: before.connections_peak.max(load.generator.connections_peak),
                ..load.generator
            };
            sum.sent_by(load.agents);
            sum.loads.push(load.run);
            sum.ticks.extend(load.ticks);
            sum.intervals.extend(load.intervals);
            sum.examples.extend(load.examples.into_iter().filter(|e| e.kept == ExampleReason::Failed));
            sum.ended = first_bad(sum.ended, Some(load.ended));
        }
        sum
    }

    /// Merges what agents sent of another load or batch.
    fn sent_by(&mut self, agents: Vec<AgentSummary>) {
        for agent in agents {
            match self.agents.iter_mut().find(|own| own.slot == agent.slot) {
                Some(own) => own.merge(agent),
                None => self.agents.push(agent),
            }
        }
    }

    /// Adds a load that ran concurrently on its own threads.
    pub fn merge_concurrent(&mut self, mut other: TrialMeasurements) {
        self.generator = std::mem::take(&mut self.generator).merge_concurrent(other.generator);
        self.sent_by(std::mem::take(&mut other.agents));
        self.loads.append(&mut other.loads);
        self.ticks.append(&mut other.ticks);
        self.intervals.append(&mut other.intervals);
        self.examples.append(&mut other.examples);
        self.ended = first_bad(self.ended, other.ended);
    }
}

/// The first of two ends that was not as planned, or else either one.
fn first_bad(a: Option<Ended>, b: Option<Ended>) -> Option<Ended> {
    a.filter(|e| *e != Ended::Complete).or(b).or(a)
}
