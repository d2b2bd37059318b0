//! What the plan's own events took away while the load ran. Requests that waited for it need no other explanation, and
//! without it the answer blames the component where they wait.

use loadlab_record::event::{Event, EventKind};
use loadlab_record::units::{format_duration_ns, format_percent_whole};

use super::{TrialData, during};

/// The least share of the load for which a component must have been away.
const LEAST_SHARE: f64 = 0.05;

/// A sentence for each component that events took away for a good part of the load, in the order of the events.
pub fn taken_down(trial: &TrialData<'_>) -> Vec<String> {
    let during = during(trial);
    let length_s = during.to_s - during.from_s;
    let mut found = Vec::new();
    for event in trial.events {
        let EventKind::Action { what, components, error: None } = &event.what else { continue };
        let (state, back) = match what.split_whitespace().next() {
            Some("kill") => ("down", "restart"),
            Some("pause") => ("suspended", "resume"),
            Some("disconnect") => ("disconnected", "reconnect"),
            _ => continue,
        };
        let until_s = |name: &String| {
            let later = trial.events.iter().filter(|later| later.at_s > event.at_s);
            let mut ends = later.filter(|later| brings_back(later, name, back)).map(|later| later.at_s);
            ends.next().unwrap_or(f64::INFINITY)
        };
        // Replicas are back together once the last of them is.
        let until_s = components.iter().map(until_s).fold(0.0, f64::max).min(during.to_s);
        let away_s = until_s - event.at_s.max(during.from_s);
        if components.is_empty() || length_s <= 0.0 || away_s < LEAST_SHARE * length_s {
            continue;
        }
        found.push(format!(
            "the plan's event `{what}`: {} was {state} for {} of the load ({})",
            components.join(", "),
            format_percent_whole(away_s / length_s),
            format_duration_ns(away_s * 1e9)
        ));
    }
    found
}

/// Whether a component is there again after this event, which is written once it has been carried out.
fn brings_back(event: &Event, name: &String, back: &str) -> bool {
    let EventKind::Action { what, components, error: None } = &event.what else { return false };
    what.split_whitespace().next() == Some(back) && components.contains(name)
}
