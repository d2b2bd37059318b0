//! The answer as shown in the summary: the first suspect, the evidence for it, and how sure it is.

use loadlab_record::documents::bottleneck::{Bottleneck, BottleneckKind, Confidence};
use loadlab_record::documents::summary::Summary;
use loadlab_record::watch::evidence::Pair;

use super::flow::{FEWEST_READINGS, Flow, NOT_READ, Site, not_seen};
use super::located::{is_range, site};
use super::taken_down::taken_down;
use super::{Suspect, TrialData, parts, suspects_in};
use crate::trial::components::cpu_s;
use crate::trial::counter::Counter;

/// What a trial's record shows about its bottleneck.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// All suspects, the most credible first.
    pub suspects: Vec<Suspect>,
    /// The answer; `None` if no load was sent to the system.
    pub bottleneck: Option<Bottleneck>,
    /// Connections between components, as means over the load.
    pub pairs: Vec<Pair>,
}

/// Finds what held a trial back.
pub fn diagnose(trial: &TrialData<'_>) -> Diagnosis {
    let without_pauses = without_pauses(trial);
    let trial = &TrialData { summary: without_pauses.as_ref().unwrap_or(trial.summary), ..*trial };
    let flow = Flow::of(trial);
    let mut suspects = suspects_in(trial, flow.as_ref());
    let asked = trial.summary.requests.started > 0 || trial.summary.load.is_command();
    let confidence = suspects.first().map(|first| confidence(trial, first, flow.as_ref()));
    if let Some(first) = suspects.first_mut() {
        first.evidence.extend(taken_down(trial).into_iter().map(|taken| taken.text));
    }
    let first = suspects.first().zip(confidence).filter(|_| asked);
    let mut unseen = not_seen(trial);
    let who = first.and_then(|(first, _)| first.component.as_deref());
    unseen.retain(|text| concerns(trial, text, who));
    unseen.extend(flow.iter().flat_map(|flow| flow.unseen.clone()));
    let bottleneck = first.map(|(first, confidence)| Bottleneck {
        component: first.component.clone(),
        kind: first.kind,
        evidence: std::iter::once(&first.text).chain(&first.evidence).cloned().collect(),
        confidence,
        not_seen: unseen,
    });
    Diagnosis { suspects, bottleneck, pairs: flow.map(|flow| flow.pairs).unwrap_or_default() }
}

/// The summary with each component's CPU use outside of pauses, such as those between batches; `None` if there were no
/// pauses.
fn without_pauses(trial: &TrialData<'_>) -> Option<Summary> {
    let parts = parts(trial);
    if parts.len() < 2 {
        return None;
    }
    let mut summary = trial.summary.clone();
    for (name, component) in &mut summary.components {
        let own = trial.samples.iter().filter(|s| s.component == *name);
        let mean = Counter::of(own, cpu_s).per_s_in(&parts).map(|cores| cores * 100.0);
        component.cpu_percent.mean = mean.or(component.cpu_percent.mean);
    }
    Some(summary)
}

/// The answer for a trial whose system was watched, or was meant to be: components were watched, or it is known why
/// one could not be. For a load alone the answer would only repeat the figures.
pub fn answer_of_watched(summary: &Summary) -> Option<&Bottleneck> {
    let answer = summary.bottleneck.as_ref()?;
    let is_watched = !summary.components.is_empty() || answer.not_seen.iter().any(|text| text != NOT_READ);
    is_watched.then_some(answer)
}

/// Whether a gap in the evidence concerns the answer. Hidden threads of other components do not; connections that
/// could not be seen do, whoever owns them.
fn concerns(trial: &TrialData<'_>, text: &str, who: Option<&str>) -> bool {
    let is_about =
        |name: &str| text.contains(&format!(" of {name} ")) || text.contains(&format!(" of {name}:"));
    let others = trial.summary.components.keys().filter(|name| Some(name.as_str()) != who);
    text.starts_with("connections")
        || who.is_some_and(is_about)
        || !others.into_iter().any(|name| is_about(name))
}

fn confidence(trial: &TrialData<'_>, first: &Suspect, flow: Option<&Flow>) -> Confidence {
    let is_located = flow.is_some_and(|f| f.socket_readings >= FEWEST_READINGS) && !first.evidence.is_empty();
    let is_measured = match first.kind {
        // The kernel's own counters show it.
        BottleneckKind::Generator
        | BottleneckKind::Died
        | BottleneckKind::CpuLimit
        | BottleneckKind::OpenFiles
        | BottleneckKind::Ports
        | BottleneckKind::AcceptQueue
        | BottleneckKind::Refused => true,
        BottleneckKind::Memory => first.share >= 1.0,
        BottleneckKind::HostCpu | BottleneckKind::Neighbours | BottleneckKind::Nothing => true,
        _ => false,
    };
    if !is_measured && is_located {
        match flow.and_then(|flow| site(trial, flow)) {
            // Certainly one of them, but which one is unknown.
            Some(Site::Among(_)) if first.component.is_none() => return Confidence::Low,
            // The requests are in several places.
            None if first.component.is_none() => return Confidence::Low,
            Some(Site::At(place)) if is_range(&place, trial.summary.concurrency_mean) => {
                return Confidence::Medium;
            }
            _ => {}
        }
    }
    match (is_measured, is_located) {
        (true, _) | (_, true) if first.share >= 0.7 || is_measured => Confidence::High,
        (_, true) => Confidence::Medium,
        _ if matches!(
            first.kind,
            BottleneckKind::OneCore | BottleneckKind::Disk | BottleneckKind::Queue | BottleneckKind::Memory
        ) =>
        {
            Confidence::Medium
        }
        _ => Confidence::Low,
    }
}
