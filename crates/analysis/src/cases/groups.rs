//! Replicas are alike: components that follow each other in the plan, and whose names differ only in a number at their
//! end, form a group.

use std::collections::BTreeSet;

use loadlab_record::documents::manifest::ComponentFacts;

/// Components in groups.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// In the plan's order: the name of each group, and its members.
    pub all: Vec<(String, Vec<String>)>,
}

impl Groups {
    /// The groups of these components, which are in the plan's order.
    pub fn of(components: &[ComponentFacts]) -> Groups {
        let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        let mut all: Vec<(String, Vec<String>)> = Vec::new();
        for component in components {
            let stem = stem(&component.name);
            match all.last_mut() {
                Some((name, members)) if *name == stem && stem != component.name => {
                    members.push(component.name.clone());
                }
                _ => all.push((stem, vec![component.name.clone()])),
            }
        }
        for (name, members) in &mut all {
            match members.as_slice() {
                [only] => name.clone_from(only),
                _ => name.truncate(name.trim_end_matches(['-', '_']).len()),
            }
        }
        // A group must not have the name of another component.
        let taken: BTreeSet<&str> = components.iter().map(|c| c.name.as_str()).collect();
        for (name, members) in &mut all {
            if members.len() > 1 && taken.contains(name.as_str()) {
                name.push('*');
            }
        }
        Groups { all }
    }

    /// The name of a component's group; its own if the plan does not know it.
    pub fn name<'a>(&'a self, component: &'a str) -> &'a str {
        let found = self.all.iter().find(|(_, members)| members.iter().any(|m| m == component));
        found.map_or(component, |(name, _)| name.as_str())
    }

    /// The same for a component or a link: `worker1→db` is `worker→db`.
    pub fn name_of_link(&self, link: &str) -> String {
        link.split('→').map(|component| self.name(component)).collect::<Vec<_>>().join("→")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_one_group() {
        let facts = |name: &str| ComponentFacts { name: name.to_owned(), run: String::new() };
        let groups = Groups::of(&["lb", "edge1", "edge2", "edge3", "db1", "cache"].map(facts));
        let drawn: Vec<(&str, usize)> = groups.all.iter().map(|(name, m)| (name.as_str(), m.len())).collect();
        assert_eq!(drawn, [("lb", 1), ("edge", 3), ("db1", 1), ("cache", 1)]);
        assert_eq!(
            (groups.name("edge2"), groups.name("db1"), groups.name("elsewhere")),
            ("edge", "db1", "elsewhere")
        );
        let clash = Groups::of(&["edge", "edge1", "edge2"].map(facts));
        assert_eq!(clash.name("edge1"), "edge*");
        assert_eq!(
            (groups.name_of_link("lb→edge2"), groups.name_of_link("db1")),
            ("lb→edge".into(), "db1".into())
        );
    }
}
