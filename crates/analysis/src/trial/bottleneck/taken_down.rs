//! What the plan's own events took away while the load ran. Requests that waited for it need no other explanation, and
//! without it the answer blames the component where they wait.

use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::text::units::{format_duration_ns, format_percent_whole};

use super::{TrialData, during};

/// The least share of the load for which a component must have been away.
const LEAST_SHARE: f64 = 0.05;

/// An event that took components away for a good part of the load.
pub struct TakenDown<'a> {
    /// The event as in the plan.
    pub event: &'a str,
    /// A sentence about it.
    pub text: String,
}

/// The events that took components away for a good part of the load, in their order.
pub fn taken_down<'a>(trial: &TrialData<'a>) -> Vec<TakenDown<'a>> {
    let during = during(trial);
    let length_s = during.to_s - during.from_s;
    let mut found = Vec::new();
    for event in trial.events {
        let EventKind::Action { what, components, error: None } = &event.what else { continue };
        let (state, backs): (_, &[&str]) = match what.split_whitespace().next() {
            Some("kill") => ("down", &["restart"]),
            Some("pause") => ("suspended", &["resume", "restart"]),
            Some("disconnect") => ("disconnected", &["reconnect"]),
            _ => continue,
        };
        let later = || trial.events.iter().filter(|later| later.at_s > event.at_s);
        let until_s = |name: &String| {
            let back = later().find(|later| brings_back(later, name, backs));
            // What comes up by itself, such as a container that is always restarted, needs no event.
            let up = || later().find(|later| state == "down" && comes_up(later, name));
            back.or_else(up).map_or(f64::INFINITY, |back| back.at_s)
        };
        // Replicas are back together once the last of them is.
        let until_s = components.iter().map(until_s).fold(0.0, f64::max).min(during.to_s);
        let away_s = until_s - event.at_s.max(during.from_s);
        if length_s <= 0.0 || away_s < LEAST_SHARE * length_s {
            continue;
        }
        let text = format!(
            "the plan's event `{what}`: {} was {state} for {} of the load ({})",
            components.join(", "),
            format_percent_whole(away_s / length_s),
            format_duration_ns(away_s * 1e9)
        );
        found.push(TakenDown { event: what, text });
    }
    found
}

/// Whether a component is there again after this event, which is written once it has been carried out.
fn brings_back(event: &Event, name: &String, backs: &[&str]) -> bool {
    let EventKind::Action { what, components, error: None } = &event.what else { return false };
    what.split_whitespace().next().is_some_and(|does| backs.contains(&does)) && components.contains(name)
}

fn comes_up(event: &Event, name: &str) -> bool {
    matches!(&event.what, EventKind::Up { component, .. } if component == name)
}
