//! Doubts that follow from single events of a trial.

use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::summary::Doubt;

use crate::trial::doubts::doubt;

/// Host names that resolved differently when the load was over, and events of the plan that never happened.
pub fn doubts_of(events: &[Event]) -> Vec<Doubt> {
    let doubts = events.iter().filter_map(|event| match &event.what {
        EventKind::NameMoved { host, before, after } => doubt(
            "name_moved",
            false,
            format!(
                "`{host}` resolved to {} when the load was prepared and resolves to {} now; all connections went to the former",
                before.join(", "),
                after.join(", ")
            ),
            "run the load again, or fix the address with `--resolve`",
        ),
        EventKind::Skipped { events } => doubt(
            "event_skipped",
            false,
            format!("{} never happened, because the load had ended", listed(events)),
            "give the load more time, or let the event come sooner",
        ),
        _ => None,
    });
    doubts.collect()
}

/// Each in backticks.
fn listed(events: &[String]) -> String {
    events.iter().map(|event| format!("`{event}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_moved_is_a_doubt_and_no_grave_one() {
        let owned = |list: &[&str]| list.iter().map(|a| (*a).to_owned()).collect();
        let what = EventKind::NameMoved {
            host: "shop.test".into(),
            before: owned(&["10.0.0.1", "10.0.0.2"]),
            after: owned(&["10.0.0.3"]),
        };
        let events =
            [Event { at_s: 9.0, what: EventKind::Note { text: "x".into() } }, Event { at_s: 10.0, what }];
        let [doubt] = doubts_of(&events).try_into().unwrap();
        assert_eq!((doubt.kind.as_str(), doubt.grave), ("name_moved", false));
        assert!(doubt.evidence.contains("`shop.test` resolved to 10.0.0.1, 10.0.0.2 "), "{doubt:?}");
        assert!(doubt.evidence.contains("resolves to 10.0.0.3 now"), "{doubt:?}");
        assert!(doubts_of(&events[..1]).is_empty());
    }

    #[test]
    fn events_that_never_happened_are_a_doubt() {
        let what = EventKind::Skipped { events: vec!["kill web".into(), "resume db".into()] };
        let [doubt] = doubts_of(&[Event { at_s: 4.0, what }]).try_into().unwrap();
        assert_eq!((doubt.kind.as_str(), doubt.grave), ("event_skipped", false));
        assert_eq!(doubt.evidence, "`kill web`, `resume db` never happened, because the load had ended");
    }
}
