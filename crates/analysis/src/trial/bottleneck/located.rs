//! Ranks what holds requests back where they wait ahead of what is busy elsewhere.

use std::collections::BTreeMap;

use loadlab_record::text::units::{format_count, format_percent_whole, significant};
use loadlab_record::watch::evidence::{Pair, Threads};

use super::causes::{
    full_pool, holds_back, keeps_up, limited_concurrency, link_of_relay, link_shaping, relayed,
};
use super::flow::{FEWEST_READINGS, Flow, Site, WaitPlace, describe, short, waiting};
use super::{BottleneckKind, MOST_SHARE, Suspect, TrialData, is_short, rank};

/// A component with less than this share of the requests holds nothing back, however busy it is.
const HARDLY_SHARE: f64 = 0.2;
/// A link with more than this share of the requests on all of a component's links is slow alone.
const ONE_LINK_SHARE: f64 = 0.8;
/// Shares of the requests in flight that differ by less count as equal.
const TIE_SHARE: f64 = 0.05;
/// A thread at this share of a core is full: the rest goes to others that the kernel runs in between.
const FULL_THREAD: f64 = 0.85;
/// If at least this share of the requests in flight may or may not be there, their number is reported as a range.
const RANGE_SHARE: f64 = 0.2;

/// Where most requests were.
pub fn site(trial: &TrialData<'_>, flow: &Flow) -> Option<Site> {
    let (in_flight, rate_per_s) = (trial.summary.concurrency_mean, trial.summary.rate_per_s.ok);
    flow.site(in_flight, rate_per_s, MOST_SHARE).filter(|_| flow.socket_readings > 0)
}

/// Whether the number of requests there is known only roughly.
pub fn is_range(place: &WaitPlace, in_flight: f64) -> bool {
    place.most - place.requests >= RANGE_SHARE * in_flight
}

/// Ranks what holds requests back where they wait ahead of what is busy elsewhere. `found` is sorted.
pub fn locate(trial: &TrialData<'_>, flow: &Flow, found: &mut Vec<Suspect>) {
    let (in_flight, rate_per_s) = (trial.summary.concurrency_mean, trial.summary.rate_per_s.ok);
    let rules_out = |s: &Suspect| rank(s) <= 1 || s.kind == BottleneckKind::HostCpu;
    if found.iter().any(rules_out) {
        return;
    }
    let places = flow.places(in_flight, rate_per_s);
    let top = match site(trial, flow) {
        Some(Site::At(top)) => link_of_relay(trial, flow, &top).unwrap_or(top),
        Some(Site::Among(among)) => return locate_among(trial, flow, &among, found),
        None => {
            if let Some(suspect) = links_of_one(trial, flow, &places) {
                let requests = |who: &str| places.iter().find(|p| p.name == who).map(|p| p.requests);
                insert(suspect, found, |who| requests(who).is_none_or(|n| n >= HARDLY_SHARE * in_flight));
            }
            return;
        }
    };
    let top = &top;
    let behind = flow.behind(&top.name);
    // A full accept queue is what holds back the connections waiting to be accepted.
    let is_resource = |s: &Suspect| (2..=3).contains(&rank(s)) || s.kind == BottleneckKind::AcceptQueue;
    let at_top = |s: &Suspect| is_resource(s) && s.component.as_deref() == Some(top.name.as_str());
    let beyond =
        |s: &Suspect| is_resource(s) && s.component.as_deref().is_some_and(|who| behind.contains(who));
    let sentence = waits_there(trial, flow, top);
    let has_pool = full_pool(flow, top).is_some();
    // A full pool is the symptom of what is behind it, if that is saturated.
    let chosen =
        found.iter().position(at_top).or_else(|| has_pool.then(|| found.iter().position(beyond)).flatten());
    if let Some(at) = chosen {
        let mut first = found.remove(at);
        first.evidence.push(sentence);
        return found.insert(0, first);
    }
    if let Some(at) =
        found.iter().position(|s| s.kind == BottleneckKind::Neighbours).filter(|_| is_starved(flow, top))
    {
        let mut others = found.remove(at);
        others.evidence.push(sentence);
        others.evidence.extend(flow.threads.get(&top.name).and_then(|t| describe_threads(&t.means)));
        return found.insert(0, others);
    }
    let Some(mut suspect) = holds_back(trial, flow, top) else { return };
    suspect.evidence.push(sentence);
    suspect.evidence.extend(flow.threads.get(&top.name).and_then(|t| describe_threads(&t.means)));
    insert(suspect, found, |who| {
        let requests = places.iter().find(|p| p.name == who).map(|p| p.requests);
        requests.is_none_or(|n| n >= HARDLY_SHARE * in_flight)
    });
}

/// Lower bound of the requests on each link between two components. Requests waiting in a relay of ours wait on the
/// link that it slows down.
fn on_links(trial: &TrialData<'_>, flow: &Flow, places: &[WaitPlace]) -> Vec<Link> {
    let (in_flight, rate_per_s) = (trial.summary.concurrency_mean, trial.summary.rate_per_s.ok);
    let component = |name: &str| relayed(trial, name).unwrap_or(name).to_owned();
    let mut links: BTreeMap<(String, String), f64> = BTreeMap::new();
    for (pair, requests) in flow.on_links(in_flight, rate_per_s) {
        *links.entry((component(&pair.from), component(&pair.to))).or_default() += requests;
    }
    let relays = places.iter().filter(|place| !place.is_link && relayed(trial, &place.name).is_some());
    for relay in relays {
        let clients: Vec<&Pair> =
            flow.pairs.iter().filter(|p| p.to == relay.name && p.from != p.to).collect();
        let all: f64 = clients.iter().map(|pair| waiting(pair)).sum();
        for pair in clients.into_iter().filter(|pair| waiting(pair) > 0.0) {
            let own = relay.requests * waiting(pair) / all;
            *links.entry((component(&pair.from), component(&relay.name))).or_default() += own;
        }
    }
    let links = links.into_iter().map(|((from, to), requests)| Link { from, to, requests });
    links.filter(|link| link.from != link.to && link.requests > 0.0).collect()
}

/// Suspects a component if most requests are on links that end at it, however they are divided among these: a slow
/// network of a component slows down the links to it and from it.
fn links_of_one(trial: &TrialData<'_>, flow: &Flow, places: &[WaitPlace]) -> Option<Suspect> {
    let in_flight = trial.summary.concurrency_mean;
    // Unknowns of other pairs take nothing away from these: all are lower bounds.
    if keeps_up(trial) || flow.socket_readings == 0 {
        return None;
    }
    let all = on_links(trial, flow, places);
    // Of two with about as many, the one whose link the plan slows down.
    let fuller = |a: &LinksOf<'_>, b: &LinksOf<'_>| {
        let is_tie = (a.requests - b.requests).abs() <= TIE_SHARE * in_flight;
        let is_made = |name: &str| is_tie && link_shaping(trial, name).is_some();
        is_made(a.component).cmp(&is_made(b.component)).then(a.requests.total_cmp(&b.requests))
    };
    let ends = trial.summary.components.keys().map(|name| {
        let is_end = |link: &&Link| link.from == *name || link.to == *name;
        let links: Vec<&Link> = all.iter().filter(is_end).collect();
        LinksOf { component: name, requests: links.iter().map(|link| link.requests).sum(), links }
    });
    let LinksOf { component: name, requests, mut links } = ends.max_by(fuller)?;
    links.sort_by(|a, b| b.requests.total_cmp(&a.requests));
    let largest = links.first()?.requests;
    if requests < MOST_SHARE * in_flight || largest > ONE_LINK_SHARE * requests {
        return None;
    }
    let given = link_shaping(trial, name).map_or(String::new(), |made| format!(" ({name} was given {made})"));
    let each = |link: &&Link| format!("{} on {}→{}", short(link.requests), link.from, link.to);
    Some(Suspect {
        kind: BottleneckKind::Link,
        component: Some(name.clone()),
        at_s: None,
        text: format!(
            "links of {name}: {} of {} requests in flight are on the wire there{given}",
            short(requests.min(in_flight)),
            format_count(in_flight.round())
        ),
        share: (requests / in_flight.max(f64::MIN_POSITIVE)).min(1.0),
        evidence: vec![format!(
            "of {} requests in flight {} ({} readings{})",
            short(in_flight),
            links.iter().take(6).map(each).collect::<Vec<_>>().join(", "),
            flow.socket_readings,
            few_readings_text(flow)
        )],
    })
}

/// A link between two components, and how many requests are on it.
struct Link {
    from: String,
    to: String,
    requests: f64,
}

/// The links that end at a component, and how many requests are on all of them.
struct LinksOf<'a> {
    component: &'a String,
    requests: f64,
    links: Vec<&'a Link>,
}

/// Suffix to the number of readings.
fn few_readings_text(flow: &Flow) -> &'static str {
    if flow.socket_readings < FEWEST_READINGS { ", from few readings" } else { "" }
}

/// Reports the places themselves if requests wait in several, none of which has most of them, and `guessed`, a
/// component named only for its open connections, has hardly any.
pub fn in_several_places(trial: &TrialData<'_>, flow: &Flow, guessed: &Suspect) -> Option<Suspect> {
    let (in_flight, rate_per_s) = (trial.summary.concurrency_mean, trial.summary.rate_per_s.ok);
    let who = guessed.component.as_deref().filter(|_| guessed.kind == BottleneckKind::Latency)?;
    let places = flow.places(in_flight, rate_per_s);
    let has = places.iter().find(|place| place.name == who)?.requests;
    // If it is unknown who waits, a guess is as good as what was seen.
    if flow.socket_readings == 0 || !flow.unseen.is_empty() || has >= HARDLY_SHARE * in_flight {
        return None;
    }
    let name = |place: &WaitPlace| link_of_relay(trial, flow, place).unwrap_or_else(|| place.clone()).name;
    let largest: Vec<&WaitPlace> = places.iter().take(3).filter(|place| place.requests > 0.0).collect();
    let names: Vec<String> = largest.iter().map(|place| name(place)).collect();
    let each = |place: &&WaitPlace| format!("{} in {}", short(place.requests), name(place));
    Some(Suspect {
        component: None,
        text: format!(
            "no saturated resource found: requests wait in several places, the largest shares in {}",
            names.join(", ")
        ),
        evidence: vec![format!(
            "of {} requests in flight {} ({} readings{})",
            short(in_flight),
            largest.iter().map(each).collect::<Vec<_>>().join(", "),
            flow.socket_readings,
            few_readings_text(flow)
        )],
        ..guessed.clone()
    })
}

/// Several threads of the component were ready at nearly every reading, and waited for a core more than they ran.
fn is_starved(flow: &Flow, top: &WaitPlace) -> bool {
    let Some(t) = flow.threads.get(&top.name).map(|t| &t.means) else { return false };
    let starved = t.run_delay_cores.zip(t.cpu_cores).is_some_and(|(waited, ran)| waited > ran);
    t.running >= 2.0 && starved
}

/// Inserts a suspect after the more credible ones. A component with hardly any requests, however busy, holds nothing
/// back; one that `has_some` may.
fn insert(suspect: Suspect, found: &mut Vec<Suspect>, has_some: impl Fn(&str) -> bool) {
    let may_be = |s: &Suspect| {
        let is_worse = match suspect.kind {
            BottleneckKind::Latency => rank(s) <= 6,
            _ => rank(s) <= 3,
        };
        is_worse && s.component.as_deref().is_none_or(&has_some) && s.kind != BottleneckKind::Neighbours
    };
    let before = found.iter().filter(|s| may_be(s)).count();
    found.sort_by_key(|s| !may_be(s));
    found.insert(before, suspect);
}

/// As [`locate`], if it is unknown in which of several places most requests wait: only a component with a saturated
/// resource is named.
fn locate_among(trial: &TrialData<'_>, flow: &Flow, among: &[WaitPlace], found: &mut Vec<Suspect>) {
    let in_flight = trial.summary.concurrency_mean;
    let is_one = |who: &str| among.iter().any(|place| place.name == who);
    let sentence = waits_among(flow, among, in_flight);
    let is_resource = |s: &Suspect| (2..=3).contains(&rank(s)) && s.component.as_deref().is_some_and(is_one);
    if let Some(at) = found.iter().position(is_resource) {
        let mut first = found.remove(at);
        first.evidence.push(sentence);
        return found.insert(0, first);
    }
    let names = names(among);
    let all = WaitPlace { name: names.clone(), requests: in_flight, most: in_flight, ..among[0].clone() };
    let (kind, text) = match limited_concurrency(trial, flow, &all) {
        Some(text) => (BottleneckKind::LimitedConcurrency, format!("{text}; which of them is unknown")),
        None if keeps_up(trial) => return,
        None => (
            BottleneckKind::Latency,
            format!("no saturated resource found: the latency is inside {names}; which of them is unknown"),
        ),
    };
    let threads = among.iter().filter_map(|p| describe_threads(&flow.threads.get(&p.name)?.means));
    let evidence = std::iter::once(sentence).chain(threads).collect();
    let suspect = Suspect { kind, component: None, at_s: None, text, share: MOST_SHARE, evidence };
    insert(suspect, found, is_one);
}

/// `web or store`.
fn names(among: &[WaitPlace]) -> String {
    among.iter().map(|place| place.name.as_str()).collect::<Vec<_>>().join(" or ")
}

fn waits_among(flow: &Flow, among: &[WaitPlace], in_flight: f64) -> String {
    let range = |p: &WaitPlace| format!("{} to {} in {}", short(p.requests), short(p.most), p.name);
    let is_between = |name: &str| among.iter().any(|place| place.name == name);
    let beside = flow.pairs.iter().filter(|p| is_between(&p.from) || is_between(&p.to));
    let pairs: Vec<String> =
        beside.filter(|p| p.from != p.to && !p.from.is_empty()).take(6).map(describe).collect();
    format!(
        "of {} requests in flight {} ({}; {} readings)",
        short(in_flight),
        among.iter().map(range).collect::<Vec<_>>().join(", "),
        pairs.join(", "),
        flow.socket_readings
    )
}

fn waits_there(trial: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> String {
    let in_flight = trial.summary.concurrency_mean;
    let beside = flow.pairs.iter().filter(|p| {
        let link = format!("{}→{}", p.from, relayed(trial, &p.to).unwrap_or(&p.to));
        let touches = p.to == top.name || p.from == top.name || link == top.name;
        touches && p.from != p.to && !p.from.is_empty()
    });
    let pairs: Vec<String> = beside.take(6).map(describe).collect();
    let few = few_readings_text(flow);
    let requests = match is_range(top, in_flight) {
        true => format!("{} to {}", short(top.requests), short(top.most)),
        false => short(top.requests),
    };
    format!(
        "{requests} of {} requests in flight were in {} ({}; {} readings{few})",
        short(in_flight),
        top.name,
        pairs.join(", "),
        flow.socket_readings
    )
}

/// What a component's threads did, omitting idle ones.
fn describe_threads(t: &Threads) -> Option<String> {
    let named = [
        ("running", t.running),
        ("in a lock", t.lock),
        ("in a disk call", t.disk),
        ("in a receive", t.network),
        ("in poll", t.poll),
        ("asleep", t.sleep),
    ];
    let parts: Vec<String> =
        named.iter().filter(|(_, n)| *n >= 0.3).map(|(what, n)| format!("{} {what}", short(*n))).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "threads of {}: {} of {} read: {}",
            t.component,
            short(t.read),
            short(t.count),
            parts.join(", ")
        )
    })
}

/// One thread was running or ready at nearly every reading and uses nearly all CPU of the component: on a shared
/// machine it cannot have a whole core.
fn is_always_ready(t: &Threads, busiest: f64) -> bool {
    let delay = t.run_delay_cores.unwrap_or(0.0);
    let is_alone = t.cpu_cores.is_some_and(|all| busiest >= 0.6 * all);
    (FULL_THREAD..=1.6).contains(&t.running) && is_alone && busiest >= 0.3 && busiest + delay >= FULL_THREAD
}

/// A component one thread of which kept a core busy, whatever the others did.
pub fn one_thread(trial: &TrialData<'_>, flow: &Flow) -> Vec<Suspect> {
    let cores = trial.cores;
    let full = flow.threads.iter().filter_map(|(name, threads)| {
        let t = &threads.means;
        let busy = t.busiest_cores.filter(|_| threads.same_busiest >= 0.6)?;
        let is_full = busy >= FULL_THREAD;
        if !is_full && !is_always_ready(t, busy) {
            return None;
        }
        let c = trial.summary.components.get(name)?;
        // A limit of one core or less is what holds it back, and is reported as such.
        let is_limited = c.cpu_limit.is_some_and(|limit| limit <= 1.0);
        if cores == 1 || is_limited || is_short(trial) {
            return None;
        }
        let all = c.cpu_percent.mean.map(|p| p / 100.0).filter(|all| *all > busy + 0.1);
        let beside =
            all.map_or(String::new(), |all| format!("; the component used {} cores", significant(all, 2)));
        Some(Suspect {
            kind: BottleneckKind::OneCore,
            component: Some(name.clone()),
            at_s: None,
            text: match is_full {
                true => format!(
                    "{name}: one of its {} threads (`{}`) kept a core busy for {} of the time{beside}",
                    format_count(t.count.round().max(1.0)),
                    t.busiest_name,
                    format_percent_whole(busy.min(1.0))
                ),
                false => format!(
                    "{name}: one of its {} threads (`{}`) was always busy: it ran for {} of the time, and waited for a core for most of the rest",
                    format_count(t.count.round().max(1.0)),
                    t.busiest_name,
                    format_percent_whole(busy)
                ),
            },
            share: if is_full { busy.min(1.0) } else { FULL_THREAD },
            evidence: Vec::new(),
        })
    });
    full.collect()
}
