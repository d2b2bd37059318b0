//! The document of one trial: `bench --json` and each trial's `summary.json`.
//!
//! Names and shapes are a contract others build on: additions are free, a change breaks. Durations are in
//! milliseconds, rates per second of the measured window, sizes in bytes. A number that cannot be known is `null`,
//! never zero.

mod agents;
mod distribution;
mod generator;
mod load_facts;
mod requests;
mod system;
mod verdict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::counts::quantile::FewSamples;
pub use crate::counts::quantile::PERCENTILES;
pub use agents::{AgentSummary, LostAgent};
pub use distribution::Distribution;
pub use generator::{Generator, Stalls, sum_of_known};
pub use load_facts::{LoadFacts, LoadModel, StageFacts, ThinkFacts};
pub use requests::{LoadSummary, Loss, Rates, Requests, TagSummary};
pub use system::{ActionSummary, ComponentSummary, InOut, MeanMax, MemorySummary, ProbeSummary, ReadWritten};
pub use verdict::{Doubt, Ended, Expectation, Verdict};

use crate::counts::load::{Bytes, Connections, Stragglers, Window};
use crate::counts::numbers::NumberSummary;
use crate::counts::outcome::Failures;
use crate::documents::bottleneck::Bottleneck;
use crate::documents::figure::FigureValue;
use crate::documents::search::SearchFacts;
use crate::watch::evidence::Pair;

/// A trial's document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of loadlab that wrote it.
    pub loadlab: String,
    /// The overall judgement.
    pub verdict: Verdict,
    /// How the load ended.
    pub ended: Ended,
    /// Reasons not to trust it.
    pub doubts: Vec<Doubt>,
    /// What was expected, and whether it held.
    pub expectations: Vec<Expectation>,
    /// The load as planned.
    pub load: LoadFacts,
    /// Start to last outcome, batches and pauses included.
    pub elapsed_s: f64,
    /// What percentiles and rates cover.
    pub window: Window,
    /// Requests in flight when the load was over that still ended: their times count, but no rate includes them.
    #[serde(default)]
    pub stragglers: Stragglers,
    /// Requests by outcome.
    pub requests: Requests,
    /// Failures by kind; their sum is `requests.failed`.
    pub failures: Failures,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// ok / (ok + failed) of the requests that loadlab sent; `null` when none of them ended.
    pub availability: Option<f64>,
    /// Mean number of requests in flight in the window.
    pub concurrency_mean: f64,
    /// Rates over the window.
    pub rate_per_s: Rates,
    /// Bytes of the whole load.
    pub bytes: Bytes,
    /// end − due of ok outcomes, and of censored ones at their age.
    pub response_ms: Distribution,
    /// end − due of ok outcomes alone.
    pub ok_response_ms: Distribution,
    /// end − due of failures other than timeouts, which are among the censored of `response_ms`.
    pub failed_response_ms: Distribution,
    /// end − started.
    pub service_ms: Distribution,
    /// noticed − due.
    pub late_ms: Distribution,
    /// started − noticed.
    pub blocked_ms: Distribution,
    /// Time to connect.
    pub connect_ms: Distribution,
    /// Time of TLS handshakes.
    pub tls_ms: Distribution,
    /// By tag.
    pub by_tag: BTreeMap<String, TagSummary>,
    /// Numbers that the plan captures from answers, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub numbers: BTreeMap<String, NumberSummary>,
    /// By load, where a trial has several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub by_load: BTreeMap<String, LoadSummary>,
    /// By batch of the load, from 1, where there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub by_batch: BTreeMap<u32, LoadSummary>,
    /// Connections of the load.
    pub connections: Connections,
    /// What the generator used.
    pub generator: Generator,
    /// The agents that sent the loads, by part; empty if loadlab itself did.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub agents: Vec<AgentSummary>,
    /// Component usage during the load.
    pub components: BTreeMap<String, ComponentSummary>,
    /// Probes over the load and the drain.
    pub probes: BTreeMap<String, ProbeSummary>,
    /// Time from the load's end until the work was done; `null` if the plan has no drain.
    pub drain_s: Option<f64>,
    /// What was accepted and never stored; `null` if the plan has no way to check.
    pub loss: Option<Loss>,
    /// Events of the plan, as they were carried out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub actions: Vec<ActionSummary>,
    /// Connections between components during the load, as means over it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub pairs: Vec<Pair>,
    /// The figures that the plan names, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub figures: BTreeMap<String, FigureValue>,
    /// What was searched for, if the trial is a search: all other figures are from the level that was found or, if none
    /// was, from the lowest level that was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub search: Option<SearchFacts>,
    /// What held the system back; absent in older records.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bottleneck: Option<Bottleneck>,
}

impl Summary {
    /// How long the planned load lasted, seconds, without the wait for stragglers.
    pub fn asked_s(&self) -> f64 {
        self.elapsed_s.min(self.window.to_s)
    }

    /// Requests that loadlab itself started: those that a program makes are only counted, and nobody sees one fail.
    pub fn started_by_loadlab(&self) -> u64 {
        self.of_loadlab(|requests| requests.started)
    }

    /// Requests that loadlab itself started and that ended.
    pub fn ended_by_loadlab(&self) -> u64 {
        self.of_loadlab(Requests::ended)
    }

    /// A count of requests without those that programs made.
    fn of_loadlab(&self, count: fn(&Requests) -> u64) -> u64 {
        let of_programs = self.by_load.iter().filter(|(name, _)| self.load.is_program(name));
        let made: u64 = of_programs.map(|(_, load)| count(&load.requests)).sum();
        count(&self.requests).saturating_sub(made)
    }

    /// Whether the load continued for stragglers for a noticeable time: 2 % of its window.
    pub fn has_tail(&self) -> bool {
        self.stragglers.tail_s > 0.02 * self.window.length_s()
    }
}
