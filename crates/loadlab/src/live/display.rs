//! How the live views present the state: screen and page use the same words and figures.

use std::collections::VecDeque;

use loadlab_record::counts::load::Counts;
use loadlab_record::text::units::{format_bytes, format_count, format_duration_ns};
use loadlab_record::watch::names::{GENERATOR, HOST};
use loadlab_report::figures;
use loadlab_run::senders::AgentNow;

use super::state::{Agent, Component, Figure, Load, State, Throttled, Weight};

/// Shares of a limit from which a bar is doubtful, and bad.
const NEARLY_FULL: f64 = 0.8;
const FULL: f64 = 0.95;

/// How much of something a component uses.
pub struct Use {
    pub text: Option<String>,
    /// Share of its limit.
    pub share: Option<f64>,
    pub limit: Option<String>,
}

/// An outcome of requests, or `in flight` for those that have not ended.
pub struct Outcome {
    pub name: &'static str,
    pub count: u64,
    pub weight: Weight,
}

/// `0:07`, `12:34`, `1:02:03`.
pub fn clock(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        hours => format!("{hours}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

/// A time in milliseconds, in the unit that fits.
pub fn ms(value: Option<f64>) -> String {
    value.map_or(figures::NOTHING.to_owned(), |ms| format_duration_ns(ms * 1e6))
}

/// The newest of a load's seconds, or the value so far until the first second is over. A second without an answer has
/// no response time: showing an earlier one would hide a stall.
pub fn newest(load: &Load, seconds: &VecDeque<Option<f64>>, so_far: Option<f64>) -> Option<f64> {
    if load.seconds == 0 { so_far } else { seconds.back().copied().flatten() }
}

/// How far a load has come: the share that is done, if known, and what is left.
pub fn far(load: &Load) -> (Option<f64>, String) {
    let p = &load.progress;
    let done = p.counts.ok + p.counts.failed();
    match (load.planned_s, load.planned_requests) {
        _ if !load.running => (Some(1.0), "ended".to_owned()),
        (Some(s), _) if s > 0.0 => (Some(p.at_s / s), format!("{} left", clock((s - p.at_s).max(0.0)))),
        (_, Some(n)) if n > 0 => (
            Some(done as f64 / n as f64),
            format!("{} of {}", format_count(done as f64), format_count(n as f64)),
        ),
        _ => (None, clock(p.at_s)),
    }
}

/// A load's counts in this trial, summed over its batches; requests in flight are the current ones.
pub fn counts(load: &Load) -> Counts {
    let now = &load.progress.counts;
    let mut counts = load.before.clone();
    counts.merge(now);
    counts.in_flight = now.in_flight;
    counts
}

/// The outcomes that occurred: ok first, in flight last.
pub fn outcomes(c: &Counts) -> Vec<Outcome> {
    let mut all = vec![Outcome { name: "ok", count: c.ok, weight: Weight::Good }];
    all.extend(c.failures.nonzero().map(|(kind, count)| Outcome {
        name: kind.name(),
        count,
        weight: Weight::Bad,
    }));
    if c.dropped > 0 {
        all.push(Outcome { name: "dropped", count: c.dropped, weight: Weight::Bad });
    }
    all.push(Outcome { name: "in flight", count: c.in_flight, weight: Weight::Plain });
    all
}

/// Components in display order: loadlab itself last, the host not at all.
pub fn shown(components: &[Component]) -> Vec<&Component> {
    let own = |c: &&Component| c.name == GENERATOR;
    let others = components.iter().filter(|c| !matches!(c.name.as_str(), GENERATOR | HOST));
    others.chain(components.iter().filter(own)).collect()
}

/// Its CPU against its limit.
pub fn cpu(c: &Component) -> Use {
    Use {
        text: c.cores.map(|cores| figures::cpu_percent(cores * 100.0)),
        share: c.cores.zip(c.cpu_limit).map(|(cores, limit)| cores / limit.max(1e-9)),
        limit: c.cpu_limit.map(|l| figures::cpu_percent(l * 100.0)),
    }
}

/// Its memory against its limit.
pub fn memory(c: &Component) -> Use {
    Use {
        text: c.memory_bytes.map(|b| format_bytes(b as f64)),
        share: c.memory_bytes.zip(c.memory_limit_bytes).map(|(used, l)| used as f64 / l.max(1) as f64),
        limit: c.memory_limit_bytes.map(|l| format_bytes(l as f64)),
    }
}

/// How much a CPU limit throttled it in the last second, if that is worth showing.
pub fn stopped(c: &Component) -> Option<String> {
    let worth = |share: f64| (share > 0.005).then(|| figures::percent(share));
    match c.throttled? {
        Throttled::OfPeriods(share) => worth(share),
        Throttled::OfOneCore(share) => worth(share).map(|share| format!("{share} of a core")),
    }
}

/// Its network traffic.
pub fn net(c: &Component) -> Option<String> {
    c.net_per_s.map(|net| format!("{}/s", format_bytes(net)))
}

/// The name of a figure, with its load if there are several.
pub fn figure_name(state: &State, figure: &Figure) -> String {
    match state.loads.len() {
        0 | 1 => figure.facts.name.clone(),
        _ => format!("{} of {}", figure.facts.name, figure.load),
    }
}

/// A key that stays the same when a figure's displayed name changes.
pub fn figure_key(figure: &Figure) -> String {
    format!("{} of {}", figure.facts.name, figure.load)
}

/// As [`figure_key`], for the agent in a slot: another agent may take the slot over.
pub fn agent_key(agent: &Agent) -> String {
    format!("slot {} of {}", agent.now.slot, agent.load)
}

/// An agent's name, with its load if there are several.
pub fn agent_name(state: &State, agent: &Agent) -> String {
    let AgentNow { agent: name, slot, .. } = &agent.now;
    match state.loads.len() {
        0 | 1 => format!("{name} (slot {slot})"),
        _ => format!("{name} (slot {slot}) of {}", agent.load),
    }
}

/// Agents in display order: missing ones first.
pub fn agents(state: &State) -> Vec<&Agent> {
    let (missing, others): (Vec<&Agent>, Vec<&Agent>) =
        state.agents.iter().partition(|agent| agent.now.is_missing);
    missing.into_iter().chain(others).collect()
}

/// An agent's rate, or that it is missing.
pub fn agent_rate(agent: &Agent) -> String {
    if agent.now.is_missing {
        "missing".to_owned()
    } else {
        format!("{}/s", format_count(agent.now.ok_per_s.round()))
    }
}

/// The significance of a share of a limit.
pub fn weight_of(share: Option<f64>) -> Weight {
    match share {
        Some(s) if s >= FULL => Weight::Bad,
        Some(s) if s >= NEARLY_FULL => Weight::Doubtful,
        _ => Weight::Plain,
    }
}
