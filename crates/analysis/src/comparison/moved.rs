//! Whether two cases have different bottlenecks.

use std::collections::BTreeMap;

use loadlab_record::documents::bottleneck::{Bottleneck, BottleneckKind};

use crate::cases::groups::Groups;
use crate::comparison::compare::Side;

/// A bottleneck as it is compared: its kind, and the group of its component. `None` stands for no saturated resource.
type Place = Option<(BottleneckKind, Option<String>)>;

/// In words, if most of the other's trials have a different bottleneck than most of the base's. Replicas count as one.
pub(crate) fn moved(base: &Side<'_>, other: &Side<'_>, groups: &Groups) -> Option<String> {
    let (from, to) = (usual(base, groups)?, usual(other, groups)?);
    match (&from, &to) {
        _ if from == to => None,
        (None, Some(_)) => {
            Some(format!("the bottleneck is now {}; nothing was saturated before", in_words(&to)))
        }
        (Some(_), None) => {
            Some(format!("nothing is saturated now; the bottleneck was {} before", in_words(&from)))
        }
        _ => Some(format!("the bottleneck moved from {} to {}", in_words(&from), in_words(&to))),
    }
}

/// The bottleneck of more than half of the trials, if they agree that far.
fn usual(side: &Side<'_>, groups: &Groups) -> Option<Place> {
    let mut counts: BTreeMap<Place, usize> = BTreeMap::new();
    for bottleneck in side.trials.iter().filter_map(|(_, s)| s.bottleneck.as_ref()) {
        *counts.entry(place(bottleneck, groups)).or_default() += 1;
    }
    let (usual, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (2 * count > side.trials.len()).then_some(usual)
}

fn place(bottleneck: &Bottleneck, groups: &Groups) -> Place {
    let group = || bottleneck.component.as_deref().map(|component| groups.name_of_link(component));
    (bottleneck.kind != BottleneckKind::Nothing).then(|| (bottleneck.kind, group()))
}

/// `app · CPU limit`.
fn in_words(place: &Place) -> String {
    match place {
        Some((BottleneckKind::Latency, Some(component))) => format!("{component} · latency"),
        Some((kind, component)) => kind.in_short(component.as_deref()),
        None => BottleneckKind::Nothing.in_short(None),
    }
}

#[cfg(test)]
mod tests {
    use loadlab_record::documents::manifest::ComponentFacts;
    use loadlab_record::documents::summary::{Summary, Verdict};

    use super::*;
    use crate::{TrialInput, summarise};

    /// Trials with these bottlenecks: a component, empty for none, and a kind.
    fn trials(of: &[(&str, BottleneckKind)]) -> Vec<Summary> {
        let trial = |&(component, kind): &(&str, BottleneckKind)| {
            let mut summary = summarise(TrialInput::default());
            (summary.doubts, summary.verdict) = (Vec::new(), Verdict::None);
            summary.bottleneck = Some(Bottleneck {
                component: (!component.is_empty()).then(|| component.to_owned()),
                kind,
                evidence: Vec::new(),
                confidence: Default::default(),
                not_seen: Vec::new(),
            });
            summary
        };
        of.iter().map(trial).collect()
    }

    fn check(base: &[(&str, BottleneckKind)], other: &[(&str, BottleneckKind)], expect: Option<&str>) {
        let facts = |name: &str| ComponentFacts { name: name.to_owned(), run: String::new() };
        let groups = Groups::of(&["lb", "edge1", "edge2", "db"].map(facts));
        let (base, other) = (trials(base), trials(other));
        let side = |name, trials: &'static [Summary]| Side::of(name, (1..).zip(trials.iter().map(Some)));
        let (base, other) = (side("a", base.leak()), side("b", other.leak()));
        assert_eq!(moved(&base, &other, &groups).as_deref(), expect);
    }

    #[test]
    fn bottlenecks_move_between_components_and_kinds() {
        use BottleneckKind::{CpuLimit, Disk, HostCpu, Latency, Nothing};
        check(
            &[("db", Disk)],
            &[("lb", CpuLimit)],
            Some("the bottleneck moved from db · disk to lb · CPU limit"),
        );
        check(
            &[("db", Disk)],
            &[("db", CpuLimit)],
            Some("the bottleneck moved from db · disk to db · CPU limit"),
        );
        check(&[("db", Disk)], &[("db", Disk)], None);
        check(
            &[("db", Latency)],
            &[("host", HostCpu)],
            Some("the bottleneck moved from db · latency to host CPU"),
        );
        check(
            &[("", Nothing)],
            &[("db", Disk)],
            Some("the bottleneck is now db · disk; nothing was saturated before"),
        );
        check(
            &[("db", Disk)],
            &[("", Nothing)],
            Some("nothing is saturated now; the bottleneck was db · disk before"),
        );
    }

    #[test]
    fn replicas_are_one_place() {
        use BottleneckKind::{CpuLimit, Disk};
        check(&[("edge1", CpuLimit)], &[("edge2", CpuLimit)], None);
        // neither replica has more than half of the trials, both together have
        let edges = [("edge1", CpuLimit), ("edge2", CpuLimit), ("db", Disk)];
        check(&edges, &[("db", Disk)], Some("the bottleneck moved from edge · CPU limit to db · disk"));
    }

    #[test]
    fn trials_that_disagree_have_no_usual_bottleneck() {
        use BottleneckKind::{CpuLimit, Disk};
        check(&[("lb", CpuLimit), ("db", Disk)], &[("db", Disk)], None);
    }
}
