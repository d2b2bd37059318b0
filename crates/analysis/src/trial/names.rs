//! Host names that changed their address while a load ran.

use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::summary::Doubt;

use crate::trial::doubts::doubt;

/// Names that resolved differently when the load was over.
pub fn moved(events: &[Event]) -> Vec<Doubt> {
    let moved = events.iter().filter_map(|event| match &event.what {
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
        _ => None,
    });
    moved.collect()
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
        let [doubt] = moved(&events).try_into().unwrap();
        assert_eq!((doubt.kind.as_str(), doubt.grave), ("name_moved", false));
        assert!(doubt.evidence.contains("`shop.test` resolved to 10.0.0.1, 10.0.0.2 "), "{doubt:?}");
        assert!(doubt.evidence.contains("resolves to 10.0.0.3 now"), "{doubt:?}");
        assert!(moved(&events[..1]).is_empty());
    }
}
