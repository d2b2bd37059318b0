//! Limits on a component's link: which components get a relay, and whether there is a link or a port to put it in.
//!
//! A relay itself takes CPU and time. So if one case needs it, it is present in all: then cases differ in the delay and
//! not in the relay.

use std::collections::BTreeSet;

use crate::model::component_kind::{ComponentKind, Isolation};
use crate::model::plan::Plan;
use crate::model::spec::{Action, ComponentSpec};
use crate::read::reader::Fields;
use crate::text::error::{Problem, Problems};

/// The suffix of a relay's name in the record, after the component's name.
pub const RELAY: &str = "-relay";

/// Marks components whose link is relayed, and checks limits on links. Call it once all cases have been read.
pub(crate) fn resolve(plan: &mut Plan, fields: &Fields<'_>, problems: &mut Problems) {
    let relayed = relayed(plan);
    for component in plan.cases.iter_mut().flat_map(|case| &mut case.system.components) {
        component.is_relayed = relayed.contains(&component.name);
    }
    let components = || plan.cases.iter().flat_map(|case| &case.system.components);
    let found = components().find_map(|c| Some((c, unfit(c, plan.isolate)?)));
    if let Some((component, (why, hint))) = found {
        let message = format!("the link of `{}` cannot be limited: {why}", component.group);
        problems.push(Problem::new(fields.key_span("system"), message).hint(hint));
    }
    let taken = components().find(|c| {
        c.name.strip_suffix(RELAY).is_some_and(|of| components().any(|c| c.is_relayed && c.name == of))
    });
    if let Some(component) = taken {
        let message = format!("`{}` is the name of another component's relay", component.name);
        problems.push(Problem::new(fields.key_span("system"), message).hint("choose another name"));
    }
}

/// Components that have a delay or packet loss in any case, or may get one through an event.
fn relayed(plan: &Plan) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for case in &plan.cases {
        let limited = case.system.components.iter().filter(|c| {
            let limits = &c.limits;
            limits.delay_ns.or(limits.jitter_ns).is_some() || limits.packet_loss.is_some()
        });
        names.extend(limited.map(|c| c.name.clone()));
        let events = case.events.iter().filter(|e| match e.action {
            Action::Limit { limit, .. } => limit.is_of_relay(),
            _ => false,
        });
        names.extend(events.flat_map(|e| e.components.iter().cloned()));
    }
    names
}

/// Why such a component cannot have a limit on its link, and what would work.
fn unfit(component: &ComponentSpec, isolate: Isolation) -> Option<(&'static str, &'static str)> {
    let is_narrowed = component.limits.bandwidth_bytes_per_s.is_some();
    if !component.is_relayed && !is_narrowed {
        return None;
    }
    if !matches!(component.kind, ComponentKind::Process(_)) {
        return Some(("only processes that loadlab starts have one", "remove these limits and events"));
    }
    if isolate == Isolation::Each {
        return None;
    }
    if is_narrowed {
        return Some((
            "it has no separate network namespace, so there is no link to limit",
            "`isolate: true` gives each component its own link",
        ));
    }
    if component.ports.is_empty() {
        return Some((
            "it has no port, and the relay that slows its link sits in front of one",
            "`port: auto`, and `${components.NAME.port}` wherever it is reached; or `isolate: true`",
        ));
    }
    let has_auto = component.ports.iter().all(|p| p.number.is_none());
    (!has_auto).then_some((
        "a relay sits in front of its port, and clients with a fixed port number bypass it",
        "`port: auto`, and `${components.NAME.port}` wherever it is reached; or `isolate: true`",
    ))
}
