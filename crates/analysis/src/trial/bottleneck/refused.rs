//! Connections that the system turned away: full accept queues, and what a load saw of them.

use std::collections::BTreeSet;

use loadlab_record::Failure;
use loadlab_record::documents::summary::{LoadFacts, LoadSummary, Summary};
use loadlab_record::text::units::{format_count, format_duration_ns, significant};
use loadlab_record::watch::evidence::Listener;
use loadlab_record::watch::names::{GENERATOR, HOST};

use super::flow::Flow;
use super::{BottleneckKind, Suspect, TrialData, during, targets};
use crate::trial::counter::Counter;

/// Refused, reset or timed-out connections count above this share of the requests started.
const REFUSED_SHARE: f64 = 0.001;
/// A lost SYN is retransmitted after this long: no server is that slow to accept.
const SYN_AGAIN_MS: f64 = 990.0;
/// Fewest connections dropped by full accept queues: fewer may have other causes.
const FEWEST_OVERFLOWS: f64 = 10.0;

pub fn refused(trial: &TrialData<'_>, flow: Option<&Flow>, has_queue: bool) -> Vec<Suspect> {
    let s = trial.summary;
    let started = s.started_by_loadlab().max(1) as f64;
    let own = s.connections.own_limits.total();
    let connect = s.failures.get(Failure::Connect).saturating_sub(own);
    let reset = s.failures.get(Failure::Reset);
    let at = trial.ticks.iter().find(|t| {
        let f = &t.counts.failures;
        f.get(Failure::Connect) + f.get(Failure::Reset) > 0
    });
    let mut found = Vec::new();
    let mut say = |share: f64, component: Option<&str>, text: String| {
        found.push(Suspect {
            kind: BottleneckKind::Refused,
            component: component.map(str::to_owned),
            at_s: at.map(|t| t.from_s),
            text,
            share: share.min(1.0),
            evidence: Vec::new(),
        });
    };
    let share = (connect + reset) as f64 / started;
    if share > REFUSED_SHARE {
        let n = |v: u64| format_count(v as f64);
        let host = target(&loads(s, has_failures), flow);
        say(
            share,
            host,
            format!(
                "{} rejected connections: {} refused, {} reset ({} of all requests)",
                host.unwrap_or(ONE_OF_SEVERAL),
                n(connect),
                n(reset),
                significant(share * 100.0, 2) + " %"
            ),
        );
    }
    let slow = s.connect_ms.max.or(s.connect_ms.over_ms.get("max").copied()).unwrap_or(0.0);
    if slow >= SYN_AGAIN_MS && s.connect_ms.p50.is_none_or(|p50| p50 < SYN_AGAIN_MS / 2.0) {
        let host = target(&loads(s, |_| true), flow);
        say(
            0.0,
            host,
            format!(
                "connects to {} took up to {}: the first packet was lost and sent again, because the accept queue was full or the network dropped it",
                host.unwrap_or(ONE_OF_SEVERAL),
                format_duration_ns(slow * 1e6)
            ),
        );
    }
    if let Some((turned_away, whose)) = turned_away(trial, slow >= SYN_AGAIN_MS)
        && !has_queue
        && turned_away >= (REFUSED_SHARE * started).max(FEWEST_OVERFLOWS)
    {
        let host = whose.as_deref().or_else(|| target(&loads(s, |_| true), flow));
        let whose = whose.as_deref().unwrap_or("the target, or of another server on this machine,");
        say(
            REFUSED_SHARE,
            host,
            format!(
                "the accept queue of {whose} was full: {} connections were dropped, because the server accepts too slowly or its backlog (`listen`) is too short",
                format_count(turned_away)
            ),
        );
    }
    found
}

/// What is named if a load has several targets.
const ONE_OF_SEVERAL: &str = "one of the targets";

fn has_failures(load: &LoadSummary) -> bool {
    load.failures.get(Failure::Connect) + load.failures.get(Failure::Reset) > 0
}

/// The loads that loadlab sent and that are meant; all of them if that is not known of any.
fn loads(s: &Summary, is_meant: impl Fn(&LoadSummary) -> bool) -> Vec<&LoadFacts> {
    let own = || s.load.loads.iter().filter(|(_, load)| !load.is_command());
    let meant = own().filter(|(name, _)| s.by_load.get(*name).is_some_and(&is_meant));
    let meant: Vec<&LoadFacts> = meant.map(|(_, load)| load).collect();
    match (meant.is_empty(), s.load.loads.is_empty()) {
        (false, _) => meant,
        (true, false) => own().map(|(_, load)| load).collect(),
        (true, true) => vec![&s.load],
    }
}

/// Who answers these loads: the component that listens at their target, or else its address. `None` if they have
/// several targets: nothing shows to which of them a failed request went.
fn target<'a>(loads: &[&'a LoadFacts], flow: Option<&'a Flow>) -> Option<&'a str> {
    let who = |load: &&'a LoadFacts| -> &'a str {
        let host = targets::socket_of(&load.url).or_else(|| load.url.split('/').nth(2));
        let host = host.filter(|host| !host.is_empty()).unwrap_or("the target");
        flow.and_then(|flow| flow.listens_at(&load.url)).unwrap_or(host)
    };
    let names: BTreeSet<&str> = loads.iter().map(who).collect();
    let is_one = names.len() == 1 && !loads.iter().any(|load| targets::has_several(load));
    names.first().filter(|_| is_one).copied()
}

/// Listeners that dropped connections: the cause of resets and of connects that take whole seconds.
pub fn accept_queues(trial: &TrialData<'_>, flow: &Flow) -> Vec<Suspect> {
    let started = trial.summary.started_by_loadlab().max(1) as f64;
    let enough = (REFUSED_SHARE * started).max(FEWEST_OVERFLOWS);
    let full = flow.listeners.iter().filter(|l| l.drops as f64 >= enough && l.component != GENERATOR);
    let suspect = |l: &Listener| {
        let who = if l.component.is_empty() { l.address.clone() } else { l.component.clone() };
        Suspect {
            kind: BottleneckKind::AcceptQueue,
            at_s: None,
            text: format!(
                "the accept queue of {who} ({}) was full: {} connections were dropped, because the server accepts too slowly or its backlog of {} is too short",
                l.address,
                format_count(l.drops as f64),
                format_count(f64::from(l.backlog))
            ),
            component: Some(who),
            share: (l.drops as f64 / started).min(1.0),
            evidence: Vec::new(),
        }
    };
    full.map(suspect).collect()
}

/// Connections dropped by full accept queues during the load, and by which component, if that is known. A component in
/// its own network has its own counter; the machine's counter covers everything, and is used only if connects of this
/// load took whole seconds.
fn turned_away(trial: &TrialData<'_>, has_slow_connects: bool) -> Option<(f64, Option<String>)> {
    let load = during(trial);
    let of = |name: &str| {
        let own = trial.samples.iter().filter(|s| s.component == name);
        let count = Counter::of(own, |s| Some(s.tcp.as_ref()?.accept_overflows? as f64));
        Some(count.at(load.to_s)? - count.at(load.from_s)?).filter(|n| *n > 0.0)
    };
    let own = trial.summary.components.keys().filter_map(|name| Some((of(name)?, Some(name.clone()))));
    own.max_by(|a, b| a.0.total_cmp(&b.0)).or_else(|| {
        let host = of(HOST).filter(|_| has_slow_connects)?;
        Some((host, None))
    })
}
