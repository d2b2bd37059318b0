//! Describes a load that the engine sends: what was requested, as the summary shows it, and the limits by which it is
//! judged.

use std::collections::BTreeMap;

use loadlab_analysis::Planned;
use loadlab_load::{LoadSpec, Model};
use loadlab_record::documents::summary::{LoadFacts, LoadModel, StageFacts, ThinkFacts};
use loadlab_record::spec::schedule::{Stage, Think, Until, WhenBehind};

/// What was requested, for the summary. The trial sets when the load starts.
pub fn facts_of(spec: &LoadSpec, url: &str) -> LoadFacts {
    let (model, users, rate) = match &spec.model {
        Model::Closed { users } => (LoadModel::Closed, Some(*users), None),
        Model::Open { rate_per_s, .. } => (LoadModel::Open, None, Some(*rate_per_s)),
    };
    let (duration_s, requests) = match spec.until {
        Until::Elapsed(ns) => (Some(ns as f64 / 1e9), None),
        Until::Requests(n) => (None, Some(n)),
        // How many requests a journey makes depends on the responses.
        Until::Repeats(_) if spec.journey.is_some() => (None, None),
        Until::Repeats(n) => {
            (None, users.map(|u| u.saturating_mul(n).saturating_mul(spec.requests.len() as u64)))
        }
    };
    let of_steps_s = pauses_of_steps_s(spec);
    LoadFacts {
        model,
        users,
        rate_per_s: rate,
        sessions: spec.journey.as_ref().is_some_and(|j| j.sessions),
        start_s: 0.0,
        stages: spec.stages.iter().map(stage_facts).collect(),
        duration_s,
        requests,
        ramp_s: spec.ramp_ns as f64 / 1e9,
        think_s: of_steps_s.or(spec.think.mean_ns().map(|ns| ns as f64 / 1e9)),
        think: match spec.think {
            _ if of_steps_s.is_some() => of_steps_s.map(ThinkFacts::OfStepsS),
            Think::None => None,
            Think::Constant(ns) => Some(ThinkFacts::ConstantS(ns as f64 / 1e9)),
            Think::Uniform(low, high) => Some(ThinkFacts::UniformS(low as f64 / 1e9, high as f64 / 1e9)),
            Think::Exponential(mean) => Some(ThinkFacts::ExponentialS(mean as f64 / 1e9)),
        },
        pace_s: spec.pace_ns.map(|ns| ns as f64 / 1e9),
        keep_alive: spec.keep_alive,
        protocol: if spec.http2.is_some() { "http/2" } else { "http/1.1" }.to_owned(),
        url: url.to_owned(),
        targets: spec.hosts.iter().flatten().map(ToString::to_string).collect(),
        seed: spec.seed,
        loads: BTreeMap::new(),
    }
}

/// Mean time between a user's requests, if steps have their own pauses.
fn pauses_of_steps_s(spec: &LoadSpec) -> Option<f64> {
    let scripts = spec.journey.as_ref().map_or(&[][..], |j| &j.scripts);
    if scripts.iter().all(|script| script.think.is_none()) {
        return None;
    }
    let all = scripts.iter().map(|script| script.think.unwrap_or(spec.think).mean_ns().unwrap_or(0));
    Some(all.sum::<u64>() as f64 / 1e9 / scripts.len() as f64).filter(|mean_s| *mean_s > 0.0)
}

fn stage_facts(stage: &Stage) -> StageFacts {
    StageFacts { from: stage.from, to: stage.to, over_s: stage.over_ns as f64 / 1e9 }
}

/// The limits by which a summary judges a load.
pub fn planned_of(spec: &LoadSpec) -> Planned {
    match &spec.model {
        Model::Closed { .. } => Planned {
            drops_when_behind: spec.pace_ns.is_some() && spec.pace_when_behind == WhenBehind::Drop,
            ..Planned::default()
        },
        Model::Open { max_in_flight, when_behind, .. } => Planned {
            // Each request in flight needs one of the held connections.
            max_in_flight: Some(
                spec.held.as_ref().map_or(*max_in_flight, |h| h.connections.min(*max_in_flight)),
            ),
            drops_when_behind: *when_behind == WhenBehind::Drop,
            ..Planned::default()
        },
    }
}
