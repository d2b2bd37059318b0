//! Queues as bottlenecks: probes that rise while the load runs, and fall once it is over.

use loadlab_record::text::units::format_count;

use super::{BottleneckKind, Suspect, TrialData, during};
use crate::statistics::trend::{stretches, trend};

/// A probe whose value falls by this share of its maximum once the load is over is a queue; one that stays is a
/// count.
const FALLS_SHARE: f64 = 0.2;
/// Words in the names of probes that are queues, whatever they do once the load is over.
const QUEUE_WORDS: [&str; 7] = ["queue", "backlog", "depth", "lag", "pending", "waiting", "ready"];

/// Probes that rise while the load runs and fall once it is over.
pub fn queues(trial: &TrialData<'_>) -> Vec<Suspect> {
    let load = during(trial);
    let found = trial.summary.probes.keys().filter_map(|name| {
        let mut points: Vec<(f64, f64)> = trial
            .samples
            .iter()
            .flat_map(|s| {
                s.probes.iter().map(move |(p, v)| (s.at_s, crate::trial::components::probe_name(s, p), *v))
            })
            .filter(|(_, p, _)| p == name)
            .map(|(at_s, _, v)| (at_s, v))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let loaded: Vec<(f64, f64)> = points.iter().copied().filter(|p| load.has(p.0)).collect();
        let grew = trend(&stretches(&loaded, 10))?;
        let (first, last) = (loaded.first()?.1, loaded.last()?.1);
        let most = points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
        let falls = points.last()?.1 <= most - FALLS_SHARE * (most - first.min(most));
        // By the beginnings of words: `already_sent` is no queue, though it contains `ready`.
        let named = words_of(name).iter().any(|word| QUEUE_WORDS.iter().any(|queue| word.starts_with(queue)));
        let grows = grew.tau > 0.6 && last > first.max(1.0) * 1.5;
        if !grows || !falls && !named {
            return None;
        }
        let at = loaded.iter().find(|p| p.1 > first.max(1.0) * 1.5).map(|p| p.0);
        Some(Suspect {
            kind: BottleneckKind::Queue,
            component: Some(name.clone()),
            at_s: at,
            text: format!(
                "{name} grew from {} to {} during the load: its consumer cannot keep up",
                format_count(first.round()),
                format_count(last.round())
            ),
            share: grew.tau,
            evidence: Vec::new(),
        })
    });
    found.collect()
}

/// The words of a name such as `queueDepth` or `messages_ready`, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || c.is_ascii_uppercase() && was_small {
            words.push(String::new());
        }
        was_small = c.is_ascii_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}
