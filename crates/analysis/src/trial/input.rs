//! What a trial leaves in memory when it ends: everything its summary is made from.

use std::collections::BTreeMap;

use loadlab_record::counts::hlog::Interval;
use loadlab_record::counts::load::{Measured, Tick};
use loadlab_record::documents::event::Event;
use loadlab_record::documents::summary::{AgentSummary, Ended, Generator, LoadFacts, Loss};
use loadlab_record::expr::{Expr, Figure};
use loadlab_record::watch::evidence::Evidence;
use loadlab_record::watch::sample::Sample;

/// Everything a trial left in memory when it ended. The default is a trial that ended as planned and measured nothing.
#[derive(Clone, Debug, Default)]
pub struct TrialInput<'a> {
    /// The load as planned.
    pub facts: LoadFacts,
    /// Every load and batch that ran, in any order.
    pub loads: &'a [LoadRun],
    /// Ticks of all loads.
    pub ticks: &'a [Tick],
    /// Samples of all components and probes, from before the load to after the drain.
    pub samples: &'a [Sample],
    /// What connections and threads were observed to do; empty if they were not read.
    pub evidence: &'a [Evidence],
    /// Events of the trial.
    pub events: &'a [Event],
    /// The generator's own resource use.
    pub generator: Generator,
    /// The agents that sent the loads, by part; empty if loadlab itself sent them.
    pub agents: Vec<AgentSummary>,
    /// How the load ended.
    pub ended: Ended,
    /// Expectations of the plan.
    pub expect: &'a [Expr],
    /// Intervals of the latency log, for expectations about a part of the load (`p99[10s..30s]`); may be empty if
    /// there are no such expectations.
    pub intervals: &'a [Interval],
    /// Seconds from the load's end until the work was done; `None` when the plan names no drain.
    pub drain_s: Option<f64>,
    /// What was accepted and never stored, if the plan can measure that.
    pub loss: Option<Loss>,
    /// What is known besides the measurements.
    pub planned: Planned,
}

/// What a summary needs besides the measurements: limits, order and figures of the plan, the machine, and what
/// components held open before the load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planned {
    /// Cap on requests in flight, in the open model.
    pub max_in_flight: Option<u64>,
    /// Whether requests that fall behind are dropped rather than queued.
    pub drops_when_behind: bool,
    /// CPU limit of each component that has one, in cores.
    pub cpu_limits: BTreeMap<String, f64>,
    /// Files that each component had open before the load, if connections are kept from trial to trial.
    pub open_files_at_rest: BTreeMap<String, u64>,
    /// Components in the plan's order, which is usually the path of a request.
    pub order: Vec<String>,
    /// Cores of the machine; 0 if unknown.
    pub cores: u64,
    /// The figures that the plan names, each computed from numbers alone.
    pub figures: Vec<Figure>,
}

/// One load, or one batch of it, as it ran.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadRun {
    /// Its name in the plan.
    pub load: String,
    /// Index of the repeat, from 0.
    pub batch: u32,
    /// Its start, seconds on the trial's clock.
    pub at_s: f64,
    /// What it measured, on its own clock.
    pub measured: Measured,
}
