//! Former names in the plan language: a renamed key is refused with its new name.

use crate::keys::shape::Section;

/// Section (its `id`), the old key, the new key.
const KEYS: &[(&str, &str, &str)] = &[
    ("plan", "loss", "durability"),
    ("system", "samples", "sample_rate"),
    ("component", "fresh", "lifetime"),
    ("compose", "fresh", "lifetime"),
    ("compose", "within", "timeout"),
    ("ready", "within", "timeout"),
    ("stop", "within", "timeout"),
    ("health", "every", "interval"),
    ("limits", "cpus", "cpuset"),
    ("limits", "network", "bandwidth"),
    ("limits", "loss", "packet_loss"),
    ("load", "before", "user_setup"),
    ("load", "after", "user_teardown"),
    ("load", "compressed", "compression"),
    ("load", "streams", "streams_per_connection"),
    ("sessions", "at_most", "max_users"),
    ("command_load", "counts", "counted_by"),
    ("command_load", "begins", "started_when_output"),
    ("command_load", "within", "timeout"),
    ("message", "within", "timeout"),
    ("message", "others", "on_unexpected"),
];

/// Values of keys: section, key, the old value, the new value.
const VALUES: &[(&str, &str, &str, &str)] = &[("message", "on_unexpected", "pass", "ignore")];

/// Verbs of events, likewise.
const VERBS: &[(&str, &str)] =
    &[("cut", "disconnect"), ("heal", "reconnect"), ("narrow", "bandwidth"), ("lose", "packet_loss")];

/// The new name of a key that was renamed.
pub(crate) fn key(section: &Section, name: &str) -> Option<&'static str> {
    KEYS.iter().find(|(id, from, _)| *id == section.id && *from == name).map(|(.., to)| *to)
}

/// The new name of a key's value that was renamed.
pub(crate) fn value(section: &Section, key: &str, value: &str) -> Option<&'static str> {
    let is_it = |of: &&(&str, &str, &str, &str)| (of.0, of.1, of.2) == (section.id, key, value);
    VALUES.iter().find(is_it).map(|(.., to)| *to)
}

/// The new name of an event's verb that was renamed.
pub(crate) fn verb(name: &str) -> Option<&'static str> {
    VERBS.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{SECTIONS, Shape};

    #[test]
    fn old_names_are_gone_and_new_ones_exist() {
        for (id, from, to) in KEYS {
            let section = SECTIONS.iter().find(|s| s.id == *id).unwrap();
            assert!(section.key(from).is_none() && section.key(to).is_some(), "{id}: {from}, {to}");
        }
        for (id, key, from, to) in VALUES {
            let section = SECTIONS.iter().find(|s| s.id == *id).unwrap();
            let Some(Shape::OneOf(words)) = section.key(key).map(|key| &key.shape) else {
                panic!("{id}: {key}")
            };
            assert!(!words.contains(from) && words.contains(to), "{id}: {key}");
        }
    }
}
