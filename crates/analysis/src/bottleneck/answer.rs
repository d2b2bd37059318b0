//! The answer as it stands in the summary: the first suspect, what speaks for it, and how sure that is.

use loadlab_record::bottleneck::{Bottleneck, Confidence, Kind};

use super::flow::{FEWEST_READINGS, Flow};
use super::{Suspect, TrialData, suspects_in};

/// What held a trial back, and the pairs of connections that say so; `None` where nothing was asked of the system.
pub fn bottleneck(trial: &TrialData<'_>) -> Option<(Bottleneck, Option<Flow>)> {
    if trial.summary.requests.started == 0 {
        return None;
    }
    let flow = Flow::of(trial);
    let first = suspects_in(trial, flow.as_ref()).into_iter().next()?;
    let confidence = confidence(&first, flow.as_ref());
    let answer = Bottleneck {
        component: first.who,
        kind: first.kind,
        evidence: std::iter::once(first.text).chain(first.evidence).collect(),
        confidence,
        not_seen: flow.as_ref().map_or_else(
            || vec!["connections and threads: nobody looked".to_owned()],
            |flow| flow.not_seen.clone(),
        ),
    };
    Some((answer, flow))
}

fn confidence(first: &Suspect, flow: Option<&Flow>) -> Confidence {
    let is_located = flow.is_some_and(|f| f.socket_readings >= FEWEST_READINGS) && !first.evidence.is_empty();
    let is_measured = match first.kind {
        // The kernel's own counters say so.
        Kind::Generator
        | Kind::Died
        | Kind::CpuLimit
        | Kind::OpenFiles
        | Kind::AcceptQueue
        | Kind::Refused => true,
        Kind::Memory => first.share >= 1.0,
        Kind::HostCpu | Kind::Neighbours | Kind::Nothing => true,
        _ => false,
    };
    match (is_measured, is_located) {
        (true, _) | (_, true) if first.share >= 0.7 || is_measured => Confidence::High,
        (_, true) => Confidence::Medium,
        _ if matches!(first.kind, Kind::OneCore | Kind::Disk | Kind::Queue | Kind::Memory) => {
            Confidence::Medium
        }
        _ => Confidence::Low,
    }
}
