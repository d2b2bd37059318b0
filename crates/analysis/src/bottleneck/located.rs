//! What holds requests back in the place where they wait, from connections and threads.

use loadlab_record::evidence::{Pair, Threads};
use loadlab_record::units::{format_bytes, format_count, format_duration_ns, significant};

use super::flow::{
    FEWEST_READINGS, Flow, GENERATOR, Place, SHORTEST_LINK_MS, Site, describe, is_per_request, most, short,
    waiting,
};
use super::{Kind, Suspect, TrialData, during, percent, rank};

/// The place where most requests are has at least this share of them.
const MOST_SHARE: f64 = 0.5;
/// A component with less than this share of the requests holds nobody back, however busy it is.
const HARDLY_SHARE: f64 = 0.2;
/// A pool is full when this share of its connections is busy: between two requests each is idle for a moment.
const FULL_POOL: f64 = 0.8;
/// Who asks has more requests than its pool has connections: at most this share of them can go on.
const LEAVES_SOME: f64 = 0.9;
/// So many of a component's threads were in disk calls, in the mean: one, most of the time.
const DISK_THREADS: f64 = 0.5;
/// One thread uses this share of a core: the rest goes to others that the kernel lets run in between.
const FULL_THREAD: f64 = 0.85;
/// So few of those that wait are worked on.
const FEW_SHARE: f64 = 0.5;
/// Below a millisecond the scheduler's own turns are of the size of what is measured.
const SHORTEST_MS: f64 = 0.5;
/// Where this share of the requests in flight, or more, may be there or not, their number is a range.
const RANGE_SHARE: f64 = 0.2;

/// Where most requests were.
pub fn site(trial: &TrialData<'_>, flow: &Flow) -> Option<Site> {
    let (in_flight, rate_per_s) = (trial.summary.concurrency_mean, trial.summary.rate_per_s.ok);
    flow.site(in_flight, rate_per_s, MOST_SHARE).filter(|_| flow.socket_readings > 0)
}

/// How many requests are there is not known well.
pub fn is_range(place: &Place, in_flight: f64) -> bool {
    place.most - place.requests >= RANGE_SHARE * in_flight
}

/// Puts what holds requests back where they wait before what is busy elsewhere. `found` is sorted.
pub fn locate(trial: &TrialData<'_>, flow: &Flow, found: &mut Vec<Suspect>) {
    let (in_flight, rate_per_s) = (trial.summary.concurrency_mean, trial.summary.rate_per_s.ok);
    let rules_out = |s: &Suspect| rank(s) <= 1 || s.kind == Kind::HostCpu;
    if found.iter().any(rules_out) {
        return;
    }
    let places = flow.places(in_flight, rate_per_s);
    let top = match site(trial, flow) {
        Some(Site::At(top)) => link_of_relay(trial, flow, &top).unwrap_or(top),
        Some(Site::Among(among)) => return locate_among(trial, flow, &among, found),
        None => return,
    };
    let top = &top;
    let behind = flow.behind(&top.name);
    // A full accept queue is what holds back those who wait to be accepted.
    let is_resource = |s: &Suspect| (2..=3).contains(&rank(s)) || s.kind == Kind::AcceptQueue;
    let at_top = |s: &Suspect| is_resource(s) && s.who.as_deref() == Some(top.name.as_str());
    let beyond = |s: &Suspect| is_resource(s) && s.who.as_deref().is_some_and(|who| behind.contains(who));
    let sentence = waits_there(flow, top, in_flight);
    let has_pool = full_pool(flow, top).is_some();
    // A full pool is the symptom of what is behind it, if that is at its end.
    let chosen =
        found.iter().position(at_top).or_else(|| has_pool.then(|| found.iter().position(beyond)).flatten());
    if let Some(at) = chosen {
        let mut first = found.remove(at);
        first.evidence.push(sentence);
        return found.insert(0, first);
    }
    if let Some(at) = found.iter().position(|s| s.kind == Kind::Neighbours).filter(|_| is_starved(flow, top))
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

/// Several threads of the component were ready at nearly every reading, and waited for a core more than they ran.
fn is_starved(flow: &Flow, top: &Place) -> bool {
    let Some(t) = flow.threads.get(&top.name).map(|t| &t.means) else { return false };
    let starved = t.run_delay_cores.zip(t.cpu_cores).is_some_and(|(waited, ran)| waited > ran);
    t.running >= 2.0 && starved
}

/// Inserts a suspect behind those that are worse. Who has hardly any request, however busy, holds nobody back; who
/// `has_some` may.
fn insert(suspect: Suspect, found: &mut Vec<Suspect>, has_some: impl Fn(&str) -> bool) {
    let may_be = |s: &Suspect| {
        let is_worse = match suspect.kind {
            Kind::Latency => rank(s) <= 6,
            _ => rank(s) <= 3,
        };
        is_worse && s.who.as_deref().is_none_or(&has_some) && s.kind != Kind::Neighbours
    };
    let before = found.iter().filter(|s| may_be(s)).count();
    found.sort_by_key(|s| !may_be(s));
    found.insert(before, suspect);
}

/// The same where it is not known in which of several places most requests wait: nobody is named but one whose resource
/// is at its end.
fn locate_among(trial: &TrialData<'_>, flow: &Flow, among: &[Place], found: &mut Vec<Suspect>) {
    let in_flight = trial.summary.concurrency_mean;
    let is_one = |who: &str| among.iter().any(|place| place.name == who);
    let sentence = waits_among(flow, among, in_flight);
    let is_resource = |s: &Suspect| (2..=3).contains(&rank(s)) && s.who.as_deref().is_some_and(is_one);
    if let Some(at) = found.iter().position(is_resource) {
        let mut first = found.remove(at);
        first.evidence.push(sentence);
        return found.insert(0, first);
    }
    let names = names(among);
    let all = Place { name: names.clone(), requests: in_flight, most: in_flight, ..among[0].clone() };
    let (kind, text) = match few_at_a_time(trial, &all) {
        Some(text) => (Kind::LimitedConcurrency, format!("{text}; which of them it is, is not known")),
        None if keeps_up(trial) => return,
        None => (
            Kind::Latency,
            format!(
                "no saturated resource found: the latency is inside {names}; which of them it is, is not known"
            ),
        ),
    };
    let threads = among.iter().filter_map(|p| describe_threads(&flow.threads.get(&p.name)?.means));
    let evidence = std::iter::once(sentence).chain(threads).collect();
    let suspect = Suspect { kind, who: None, at_s: None, text, share: MOST_SHARE, evidence };
    insert(suspect, found, is_one);
}

/// `web or store`.
fn names(among: &[Place]) -> String {
    among.iter().map(|place| place.name.as_str()).collect::<Vec<_>>().join(" or ")
}

fn waits_among(flow: &Flow, among: &[Place], in_flight: f64) -> String {
    let range = |p: &Place| format!("{} to {} in {}", short(p.requests), short(p.most), p.name);
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

/// What holds requests back in a place none of whose resources is at its end.
fn holds_back(trial: &TrialData<'_>, flow: &Flow, top: &Place) -> Option<Suspect> {
    let share = (top.requests / trial.summary.concurrency_mean.max(f64::MIN_POSITIVE)).min(1.0);
    let suspect = |kind, text| Suspect {
        kind,
        who: Some(top.name.clone()),
        at_s: None,
        text,
        share,
        evidence: Vec::new(),
    };
    if top.is_link {
        return Some(suspect(Kind::Link, link_text(trial, flow, top)));
    }
    if let Some(pair) = full_pool(flow, top) {
        let to = &pair.to;
        let text = format!(
            "{}→{to}: {} of {} connections busy, and nothing behind them is saturated: the connection pool of {} is full",
            pair.from,
            short(waiting(pair)),
            short(pair.open),
            pair.from
        );
        return Some(suspect(Kind::Pool, text));
    }
    if let Some(text) = pool_by_number(trial, flow, top) {
        return Some(suspect(Kind::Pool, text));
    }
    let threads = flow.threads.get(&top.name).map(|t| &t.means);
    if let Some(threads) = threads.filter(|t| t.disk >= DISK_THREADS) {
        let text = format!(
            "{}: requests wait for its disk (fsync, reads or writes): {} of its {} threads were in such a call",
            top.name,
            short(threads.disk),
            short(threads.count)
        );
        return Some(suspect(Kind::Disk, text));
    }
    if let Some(text) = held_back(flow, top) {
        return Some(suspect(Kind::Latency, text));
    }
    if let Some(text) = few_at_a_time(trial, top) {
        return Some(suspect(Kind::LimitedConcurrency, text));
    }
    if keeps_up(trial) {
        return None;
    }
    // Who takes what came at once is slow; who leaves it lying takes few at a time.
    let unread: f64 = flow.pairs.iter().filter(|p| p.to == top.name).map(|p| p.unread).sum();
    if unread >= 2.0 && unread >= MOST_SHARE * top.requests {
        let text = format!(
            "{}: {} of {} requests in flight wait there, {} of them unread in its sockets: it takes a few at a time",
            top.name,
            short(top.requests),
            format_count(trial.summary.concurrency_mean.round()),
            short(unread)
        );
        return Some(suspect(Kind::LimitedConcurrency, text));
    }
    // Beside other ways through the system the fastest response says nothing of this one: its threads do.
    if let Some(threads) = threads.filter(|t| t.lock >= 2.0 && t.lock >= MOST_SHARE * top.requests) {
        let text = format!(
            "{}: {} of {} requests in flight wait there, and {} of its {} threads wait for a lock",
            top.name,
            short(top.requests),
            format_count(trial.summary.concurrency_mean.round()),
            short(threads.lock),
            short(threads.count)
        );
        return Some(suspect(Kind::LimitedConcurrency, text));
    }
    let text = format!(
        "no saturated resource found: the latency is inside {}, where {} of {} requests in flight were",
        top.name,
        short(top.requests),
        short(trial.summary.concurrency_mean)
    );
    Some(suspect(Kind::Latency, text))
}

/// Most of what waits there is written and not sent: the kernel waits for an acknowledgement.
fn held_back(flow: &Flow, top: &Place) -> Option<String> {
    // Over a slow link written bytes wait for other reasons.
    let is_near = |p: &&Pair| p.rtt_ms.is_none_or(|rtt| rtt < SHORTEST_LINK_MS);
    let to_top = flow.pairs.iter().filter(|p| p.to == top.name);
    let answers: f64 = to_top.filter(is_near).map(|p| p.held_by_to).sum();
    let requests: f64 = flow.asked_by(&top.name).filter(is_near).map(|p| p.held_by_from).sum();
    let (what, held) = if answers >= requests { ("answers", answers) } else { ("requests", requests) };
    (answers + requests >= MOST_SHARE * top.requests).then(|| {
        format!(
            "{}: {} of {} requests there wait for the rest of its {what}, which the kernel holds back until the first part is acknowledged (Nagle and delayed acknowledgements, about 40 ms): set TCP_NODELAY, or write {what} in one piece",
            top.name,
            short(held),
            short(top.requests)
        )
    })
}

/// The open load was answered as it came, and hardly slower than at its fastest.
pub fn keeps_up(trial: &TrialData<'_>) -> bool {
    let s = trial.summary;
    let is_answered =
        s.load.model == "open" && s.rate_per_s.ok >= 0.99 * s.rate_per_s.due && s.rate_per_s.due > 0.0;
    let is_slow =
        s.response_ms.p50.zip(s.response_ms.min).is_none_or(|(p50, min)| p50 > 5.0 * min && p50 > 5.0);
    is_answered && !is_slow
}

/// The connections of a component that are all busy while requests wait for one of them.
fn full_pool<'a>(flow: &'a Flow, top: &'a Place) -> Option<&'a Pair> {
    let full = |pair: &&Pair| {
        // Who makes a connection for each request has no pool.
        if is_per_request(pair, flow.rate_per_s) {
            return false;
        }
        // The mean of open connections has the seconds of their making in it.
        let is_full = pair.open >= 0.9 && waiting(pair) >= FULL_POOL * pair.open;
        is_full && pair.open <= LEAVES_SOME * top.entered && pair.from != GENERATOR
    };
    flow.asked_by(&top.name).filter(full).max_by(|a, b| a.open.total_cmp(&b.open))
}

/// Over a Unix socket it may not be known which connections are busy. If as many requests are let through at a time as
/// there are connections, all of them are.
fn pool_by_number(trial: &TrialData<'_>, flow: &Flow, top: &Place) -> Option<String> {
    let at_a_time = trial.summary.rate_per_s.ok * trial.summary.response_ms.min? / 1e3;
    let fits = |pair: &&Pair| {
        let may_be_full = pair.is_unix && most(pair) >= FULL_POOL * pair.open;
        let is_hidden = may_be_full && !is_per_request(pair, flow.rate_per_s);
        // The fastest request has other parts, too: so more than there are may seem to be in use.
        let is_all = (0.75 * pair.open..=1.6 * pair.open).contains(&at_a_time);
        is_hidden && is_all && pair.open >= 0.9 && pair.open <= LEAVES_SOME * top.entered
    };
    let pair = flow.asked_by(&top.name).find(fits)?;
    Some(format!(
        "{}→{}: {} let {} requests through at a time, which is as many as it has connections there ({}), and nothing behind them is saturated: its connection pool is full",
        pair.from,
        pair.to,
        pair.from,
        significant(at_a_time, 2),
        short(pair.open)
    ))
}

/// `mid: 39 of 40 requests wait there, about 1 at a time is let through (4.1 ms each)`.
fn few_at_a_time(trial: &TrialData<'_>, top: &Place) -> Option<String> {
    let s = trial.summary;
    let (fastest, middle) = (s.response_ms.min?, s.response_ms.p50.or(s.response_ms.mean)?);
    let at_a_time = s.rate_per_s.ok * fastest / 1e3;
    let waits = top.requests >= 2.0 && at_a_time <= FEW_SHARE * top.requests && fastest <= FEW_SHARE * middle;
    if !waits || middle < SHORTEST_MS {
        return None;
    }
    let served = at_a_time.max(1.0);
    let each_ns = served / s.rate_per_s.ok.max(f64::MIN_POSITIVE) * 1e9;
    Some(format!(
        "{}: {} of {} requests in flight wait there; it lets about {} through at a time ({} each), and none of its resources is saturated",
        top.name,
        short(top.requests),
        format_count(s.concurrency_mean.round()),
        significant(served, 2),
        format_duration_ns(each_ns)
    ))
}

/// A relay that loadlab put in front of a component is no component, but the link that it makes slow.
fn link_of_relay(trial: &TrialData<'_>, flow: &Flow, top: &Place) -> Option<Place> {
    let component = relayed(trial, &top.name)?;
    let to_relay = flow.pairs.iter().filter(|p| p.to == top.name);
    let from = &to_relay.max_by(|a, b| waiting(a).total_cmp(&waiting(b)))?.from;
    Some(Place { name: format!("{from}→{component}"), is_link: true, ..top.clone() })
}

/// The component that a relay stands in front of.
fn relayed<'a>(trial: &'a TrialData<'_>, name: &str) -> Option<&'a str> {
    let component = name.strip_suffix("-relay")?;
    let (name, _) = trial.summary.components.get_key_value(component)?;
    made_of(trial, name).map(|_| name.as_str())
}

/// What loadlab made of a component's link: its delay, bandwidth and losses; `None` if it left it as it was.
fn made_of(trial: &TrialData<'_>, component: &str) -> Option<String> {
    let limits = &trial.summary.components.get(component)?.limits;
    let delay = limits.delay_ns.map(|ns| format!("a delay of {}", format_duration_ns(ns as f64)));
    let bandwidth = limits.bandwidth_bytes_per_s.map(|b| format!("{}/s", format_bytes(b as f64)));
    let loss = limits.packet_loss.map(|loss| format!("{} % loss", significant(loss * 100.0, 2)));
    let made: Vec<String> = [delay, bandwidth, loss].into_iter().flatten().collect();
    (!made.is_empty()).then(|| made.join(", "))
}

fn link_text(trial: &TrialData<'_>, flow: &Flow, top: &Place) -> String {
    let end = |p: &Pair| relayed(trial, &p.to).unwrap_or(&p.to).to_owned();
    let of = |p: &&Pair| format!("{}→{}", p.from, end(p)) == top.name;
    let Some(pair) = flow.pairs.iter().find(of) else { return top.name.clone() };
    let wait_ms = trial.summary.rate_per_s.ok.recip() * waiting(pair) * 1e3;
    let mut parts = Vec::new();
    if let Some(rtt) = pair.rtt_ms.filter(|rtt| *rtt >= 0.25 * wait_ms.min(1e9)) {
        parts.push(format!("round trip {}", format_duration_ns(rtt * 1e6)));
    }
    if pair.retransmits > 0 {
        parts.push(format!("{} segments sent again", format_count(pair.retransmits as f64)));
    }
    if pair.in_transit >= 0.25 * waiting(pair) {
        parts.push(format!("{} connections with bytes under way", short(pair.in_transit)));
    }
    let ends = [end(pair), pair.from.clone()];
    parts.extend(ends.iter().filter_map(|name| Some(format!("{name} was given {}", made_of(trial, name)?))));
    let seen = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    format!(
        "link {}: {} of {} requests in flight are on the wire there{seen}",
        top.name,
        short(top.requests),
        format_count(trial.summary.concurrency_mean.round())
    )
}

fn waits_there(flow: &Flow, top: &Place, in_flight: f64) -> String {
    let beside = flow.pairs.iter().filter(|p| {
        let touches = p.to == top.name || p.from == top.name || format!("{}→{}", p.from, p.to) == top.name;
        touches && p.from != p.to && !p.from.is_empty()
    });
    let pairs: Vec<String> = beside.take(6).map(describe).collect();
    let few = if flow.socket_readings < FEWEST_READINGS { ", from few readings" } else { "" };
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

/// What a component's threads did, those that do nothing left out.
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

/// One thread was running or ready at nearly every reading, and nearly all CPU of the component is its: on a machine that
/// others use, too, it cannot have a whole core.
fn is_always_ready(t: &Threads, busiest: f64) -> bool {
    let delay = t.run_delay_cores.unwrap_or(0.0);
    let is_alone = t.cpu_cores.is_some_and(|all| busiest >= 0.8 * all);
    (FULL_THREAD..=1.3).contains(&t.running) && is_alone && busiest >= 0.3 && busiest + delay >= FULL_THREAD
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
        // A limit below a core is what holds it back, and is named as such.
        let is_limited = c.cpu_limit.is_some_and(|limit| limit <= 1.0);
        if cores == 1 || is_limited || during(trial).to_s - during(trial).from_s < super::SHORTEST_S {
            return None;
        }
        let all = c.cpu_percent.mean.map(|p| p / 100.0).filter(|all| *all > busy + 0.1);
        let beside =
            all.map_or(String::new(), |all| format!("; the component used {} cores", significant(all, 2)));
        Some(Suspect {
            kind: Kind::OneCore,
            who: Some(name.clone()),
            at_s: None,
            text: match is_full {
                true => format!(
                    "{name}: one of its {} threads (`{}`) kept a core busy for {} of the time{beside}",
                    format_count(t.count.round().max(1.0)),
                    t.busiest_name,
                    percent(busy.min(1.0))
                ),
                false => format!(
                    "{name}: one of its {} threads (`{}`) was always busy: it ran for {} of the time, and waited for a core for most of the rest",
                    format_count(t.count.round().max(1.0)),
                    t.busiest_name,
                    percent(busy)
                ),
            },
            share: if is_full { busy.min(1.0) } else { FULL_THREAD },
            evidence: Vec::new(),
        })
    });
    full.collect()
}
