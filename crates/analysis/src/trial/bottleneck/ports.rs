//! Local ports: a component that takes a new one for each request eventually runs out towards its destination.

use std::collections::BTreeMap;

use loadlab_record::text::units::{format_count, format_percent_whole};
use loadlab_record::watch::names::GENERATOR;

use super::flow::{Flow, PortLine};
use super::{BottleneckKind, MOST_SHARE, Suspect, TrialData, during};

/// Taken ports above this share of the range count as all: those held by others are not available either.
const FULL_SHARE: f64 = 0.97;

/// A component out of ports for this share of the time is the cause of what goes wrong.
pub const DECIDES_SHARE: f64 = 0.3;

/// Towards one destination Linux first hands out every second port. Once they are taken, each connect searches through
/// all of them before it takes one of the other half.
const SEARCHED_SHARE: f64 = 0.5;
/// Among this many ports the search takes about a millisecond.
const FEWEST_SEARCHED: u32 = 4_096;
/// Searching costs CPU: at least this many cores.
const SEARCHING_CORES: f64 = 0.3;

/// How scarce local ports are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// None left.
    Full,
    /// Some left, but finding one takes long.
    Searched,
}

/// Who takes local ports, and towards where.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Route<'f> {
    /// The component; empty if unknown.
    component: &'f str,
    source: &'f str,
    address: &'f str,
}

/// Components that had no local port left towards a destination, or had to search for one. loadlab's own ports are a
/// doubt about the measurement.
pub fn ports(trial: &TrialData<'_>, flow: &Flow) -> Vec<Suspect> {
    let mut by_route: BTreeMap<Route<'_>, Vec<&PortLine>> = BTreeMap::new();
    for line in flow.ports.iter().filter(|line| line.ports.component != GENERATOR) {
        let p = &line.ports;
        let route = Route { component: &p.component, source: &p.source, address: &p.address };
        by_route.entry(route).or_default().push(line);
    }
    let of = |(route, lines): (Route<'_>, Vec<&PortLine>)| {
        suspect(trial, flow, route, &lines, Stage::Full).or_else(|| {
            suspect(trial, flow, route, &lines, Stage::Searched).filter(|_| searches(trial, route.component))
        })
    };
    by_route.into_iter().filter_map(of).collect()
}

impl Stage {
    fn is_reached(self, line: &PortLine) -> bool {
        let p = &line.ports;
        match self {
            Stage::Full => p.range > 0 && f64::from(p.taken) >= FULL_SHARE * f64::from(p.range),
            Stage::Searched => {
                p.range >= FEWEST_SEARCHED && f64::from(p.taken) > SEARCHED_SHARE * f64::from(p.range)
            }
        }
    }
}

/// Whether it uses CPU, as a searching component does.
fn searches(trial: &TrialData<'_>, component: &str) -> bool {
    let cores = trial.summary.components.get(component).and_then(|c| c.cpu_percent.mean);
    cores.is_some_and(|percent| percent / 100.0 >= SEARCHING_CORES)
}

fn suspect(
    trial: &TrialData<'_>,
    flow: &Flow,
    route: Route<'_>,
    lines: &[&PortLine],
    stage: Stage,
) -> Option<Suspect> {
    let Route { component, source, address } = route;
    let reached: Vec<&&PortLine> = lines.iter().filter(|line| stage.is_reached(line)).collect();
    let most = &reached.iter().max_by_key(|line| line.ports.taken)?.ports;
    let answers = flow.pairs.iter().find(|p| p.address == address && !p.to.is_empty() && p.to != address);
    let to = answers.map_or(address.to_owned(), |pair| format!("{} ({address})", pair.to));
    let who = if component.is_empty() { source } else { component };
    let share = reached.len() as f64 / flow.lines.max(reached.len()) as f64;
    // Mostly in TIME_WAIT: each connection serves only a request or a few.
    let cause = match f64::from(most.time_wait) >= MOST_SHARE * f64::from(most.taken) {
        true => format!(
            ", {} of them in TIME_WAIT: it makes new connections all the time, and each keeps its port for a minute after its end",
            format_count(f64::from(most.time_wait))
        ),
        false => ", and its connections stay open".to_owned(),
    };
    let what = match stage {
        Stage::Full => "ran out of local ports",
        Stage::Searched => "has to search for a local port at each connect",
    };
    Some(Suspect {
        kind: BottleneckKind::Ports,
        component: (!component.is_empty()).then(|| component.to_owned()),
        at_s: reached.first().map(|line| line.at_s.max(during(trial).from_s)),
        text: format!(
            "{who} {what} towards {to}: {} of {} (`net.ipv4.ip_local_port_range`) were taken for {} of the time{cause}",
            format_count(f64::from(most.taken)),
            format_count(f64::from(most.range)),
            format_percent_whole(share)
        ),
        // If some are left, the place where requests wait decides whether that holds them back.
        share: if stage == Stage::Full { share } else { share.min(0.99 * DECIDES_SHARE) },
        evidence: Vec::new(),
    })
}
