//! Local ports: who takes a new one for each request has none left towards its destination after a while.

use std::collections::BTreeMap;

use loadlab_record::units::format_count;

use super::flow::{Flow, GENERATOR, PortLine};
use super::{Kind, MOST_SHARE, Suspect, TrialData, during, percent};

/// Ports above this share of the range: those that others hold in it cannot be had either.
const FULL_SHARE: f64 = 0.97;

/// Out of ports for this share of the time a component is the reason for what goes wrong.
pub const DECIDES_SHARE: f64 = 0.3;

/// Components that had no local port left towards a destination. loadlab's own are a doubt about the measurement.
pub fn ports(trial: &TrialData<'_>, flow: &Flow) -> Vec<Suspect> {
    let mut by_who: BTreeMap<(&str, &str, &str), Vec<&PortLine>> = BTreeMap::new();
    for line in flow.ports.iter().filter(|line| is_full(line) && line.ports.component != GENERATOR) {
        let p = &line.ports;
        by_who.entry((&p.component, &p.source, &p.address)).or_default().push(line);
    }
    by_who.into_iter().filter_map(|(who, full)| suspect(trial, flow, who, &full)).collect()
}

fn is_full(line: &PortLine) -> bool {
    line.ports.range > 0 && f64::from(line.ports.taken) >= FULL_SHARE * f64::from(line.ports.range)
}

fn suspect(
    trial: &TrialData<'_>,
    flow: &Flow,
    (component, source, address): (&str, &str, &str),
    full: &[&PortLine],
) -> Option<Suspect> {
    let most = &full.iter().max_by_key(|line| line.ports.taken)?.ports;
    let answers = flow.pairs.iter().find(|p| p.address == address && !p.to.is_empty() && p.to != address);
    let to = answers.map_or(address.to_owned(), |pair| format!("{} ({address})", pair.to));
    let who = if component.is_empty() { source } else { component };
    let share = full.len() as f64 / flow.lines.max(full.len()) as f64;
    // Then connections are made for a request or a few.
    let cause = match f64::from(most.time_wait) >= MOST_SHARE * f64::from(most.taken) {
        true => format!(
            ", {} of them in TIME_WAIT: it makes new connections all the time, and each keeps its port for a minute after its end",
            format_count(f64::from(most.time_wait))
        ),
        false => ", and its connections stand".to_owned(),
    };
    Some(Suspect {
        kind: Kind::Ports,
        who: (!component.is_empty()).then(|| component.to_owned()),
        at_s: full.first().map(|line| line.at_s.max(during(trial).from_s)),
        text: format!(
            "{who} ran out of local ports towards {to}: {} of {} (`net.ipv4.ip_local_port_range`) were taken for {} of the time{cause}",
            format_count(f64::from(most.taken)),
            format_count(f64::from(most.range)),
            percent(share)
        ),
        share,
        evidence: Vec::new(),
    })
}
