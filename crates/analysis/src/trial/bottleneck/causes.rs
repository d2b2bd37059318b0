//! What holds requests back in a place none of whose resources is saturated: a link, a pool, a disk, acknowledgements,
//! limited concurrency, or plain latency.

use loadlab_record::documents::summary::{LoadModel, Summary};
use loadlab_record::text::units::{format_bytes, format_count, format_duration_ns, significant};
use loadlab_record::watch::evidence::Pair;
use loadlab_record::watch::names::GENERATOR;

use super::flow::{Flow, SHORTEST_LINK_MS, WaitPlace, most, short, waiting};
use super::targets::is_per_request;
use super::{BottleneckKind, FEW_SHARE, MOST_SHARE, Suspect, TrialData, is_short};

/// A pool is full when this share of its connections is busy: between two requests each is idle for a moment.
const FULL_POOL: f64 = 0.8;
/// The caller has more requests than its pool has connections: at most this share of them can proceed.
const LEAVES_SOME: f64 = 0.9;
/// Fewest threads of a component in disk calls, on average: one, most of the time.
const DISK_THREADS: f64 = 0.5;
/// Below a millisecond scheduling delays are as large as what is measured.
const SHORTEST_MS: f64 = 0.5;

/// The mean number of running threads if one always runs, and now and then another.
const ALWAYS_ONE: std::ops::RangeInclusive<f64> = 0.75..=1.6;

type Cause = fn(&TrialData<'_>, &Flow, &WaitPlace) -> Option<String>;

/// What can hold requests back, the most certain first.
const CAUSES: [(BottleneckKind, Cause); 10] = [
    (BottleneckKind::Link, link),
    (BottleneckKind::Pool, pool),
    (BottleneckKind::Pool, pool_by_number),
    (BottleneckKind::Disk, disk),
    (BottleneckKind::Latency, acknowledgements),
    (BottleneckKind::OneCore, computing),
    (BottleneckKind::LimitedConcurrency, limited_concurrency),
    (BottleneckKind::LimitedConcurrency, unread),
    (BottleneckKind::LimitedConcurrency, lock),
    (BottleneckKind::Latency, inside),
];

/// What holds requests back in a place; `None` if they are answered as they arrive.
pub fn holds_back(trial: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> Option<Suspect> {
    if keeps_up(trial) {
        return None;
    }
    let of = |(kind, cause): &(BottleneckKind, Cause)| Some((*kind, cause(trial, flow, top)?));
    let (kind, text) = CAUSES.iter().find_map(of)?;
    Some(Suspect {
        kind,
        component: Some(top.name.clone()),
        at_s: None,
        text,
        share: (top.requests / trial.summary.concurrency_mean.max(f64::MIN_POSITIVE)).min(1.0),
        evidence: Vec::new(),
    })
}

/// How many of the requests in flight wait there.
fn wait_there(trial: &TrialData<'_>, top: &WaitPlace) -> String {
    let all = format_count(trial.summary.concurrency_mean.round());
    format!("{}: {} of {all} requests in flight wait there", top.name, short(top.requests))
}

fn link(trial: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> Option<String> {
    top.is_link.then(|| link_text(trial, flow, top))
}

fn pool(_: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> Option<String> {
    let pair = full_pool(flow, top)?;
    Some(format!(
        "{}→{}: {} of {} connections busy, and nothing behind them is saturated: the connection pool of {} is full",
        pair.from,
        pair.to,
        short(waiting(pair)),
        short(pair.open),
        pair.from
    ))
}

fn disk(_: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> Option<String> {
    let threads = flow.threads.get(&top.name).map(|t| &t.means).filter(|t| t.disk >= DISK_THREADS)?;
    Some(format!(
        "{}: requests wait for its disk (fsync, reads or writes): {} of its {} threads were in such a call",
        top.name,
        short(threads.disk),
        short(threads.count)
    ))
}

/// In a load too short for CPU times, a thread that was running at nearly every reading shows computation.
fn computing(trial: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> Option<String> {
    let threads = flow.threads.get(&top.name).map(|t| &t.means)?;
    let is_one = is_short(trial) && ALWAYS_ONE.contains(&threads.running);
    is_one.then(|| {
        let (ran, all) = (short(threads.running), short(threads.count));
        format!(
            "{}, and on average {ran} of its {all} threads was running: it is busy computing",
            wait_there(trial, top)
        )
    })
}

/// A component that reads its input at once is slow; one that leaves it unread takes few requests at a time.
fn unread(trial: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> Option<String> {
    let unread: f64 = flow.pairs.iter().filter(|p| p.to == top.name).map(|p| p.unread).sum();
    let is_most = unread >= 2.0 && unread >= MOST_SHARE * top.requests;
    is_most.then(|| {
        let wait = wait_there(trial, top);
        format!("{wait}, {} of them unread in its sockets: it takes a few at a time", short(unread))
    })
}

/// If there are other paths through the system, the fastest response says nothing about this one; its threads do.
fn lock(trial: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> Option<String> {
    let threads = flow.threads.get(&top.name).map(|t| &t.means)?;
    let is_most = threads.lock >= 2.0 && threads.lock >= MOST_SHARE * top.requests;
    is_most.then(|| {
        let (locked, all) = (short(threads.lock), short(threads.count));
        format!("{}, and {locked} of its {all} threads wait for a lock", wait_there(trial, top))
    })
}

fn inside(trial: &TrialData<'_>, _: &Flow, top: &WaitPlace) -> Option<String> {
    Some(format!(
        "no saturated resource found: the latency is inside {}, where {} of {} requests in flight were",
        top.name,
        short(top.requests),
        short(trial.summary.concurrency_mean)
    ))
}

/// Most of what waits there is written but not sent: the kernel waits for an acknowledgement.
fn acknowledgements(_: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> Option<String> {
    // Over a slow link written bytes wait for other reasons.
    let is_near = |p: &&Pair| p.rtt_ms.is_none_or(|rtt| rtt < SHORTEST_LINK_MS);
    let to_top = flow.pairs.iter().filter(|p| p.to == top.name);
    let answers: f64 = to_top.filter(is_near).map(|p| p.held_by_to).sum();
    let requests: f64 = flow.calls_from(&top.name).filter(is_near).map(|p| p.held_by_from).sum();
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

/// If pauses, and not the system, limit how much users send, at most this share of them waits for an answer at a time.
const FEW_WAIT: f64 = 0.1;

/// Whether the load was answered as it arrived, and hardly more slowly than at its fastest: a rate, or users who pause
/// nearly all the time.
pub fn keeps_up(trial: &TrialData<'_>) -> bool {
    let s = trial.summary;
    // With too few requests for a median the mean represents it.
    let middle_ms = s.response_ms.p50.or(s.response_ms.mean);
    let answered_per_s = s.rate_per_s.ok + under_way_per_s(s, middle_ms.unwrap_or(0.0));
    let is_answered = s.load.model == LoadModel::Open
        && answered_per_s >= 0.99 * s.rate_per_s.due
        && s.rate_per_s.due > 0.0;
    let is_slow = middle_ms
        .zip(s.response_ms.min)
        .is_none_or(|(middle_ms, min_ms)| middle_ms > 5.0 * min_ms && middle_ms > 5.0);
    (is_answered || is_pausing(trial)) && !is_slow
}

/// Requests in flight at the end of the window that were answered later, per second of the window. At most as many as
/// are in flight at any time count, since a backlog is worked off after the end, too.
fn under_way_per_s(s: &Summary, middle_ms: f64) -> f64 {
    let length_s = s.window.to_s - s.window.from_s;
    let usual = (s.rate_per_s.due * middle_ms / 1e3).ceil();
    if length_s > 0.0 { usual.min(s.stragglers.ok as f64) / length_s } else { 0.0 }
}

/// Whether users pause nearly all the time.
pub fn is_pausing(trial: &TrialData<'_>) -> bool {
    let load = &trial.summary.load;
    let pauses = load.think_s.is_some_and(|s| s > 0.0) || load.pace_s.is_some();
    let users = load.users.filter(|_| load.model == LoadModel::Closed && pauses && load.stages.is_empty());
    users.is_some_and(|users| trial.summary.concurrency_mean <= FEW_WAIT * users as f64)
}

/// The pair whose connections are all busy while requests wait for one of them.
pub fn full_pool<'a>(flow: &'a Flow, top: &'a WaitPlace) -> Option<&'a Pair> {
    let full = |pair: &&Pair| {
        // A component that opens a connection for each request has no pool.
        if is_per_request(pair, flow.rate_per_s) {
            return false;
        }
        // The mean of open connections includes the seconds in which they were opened.
        let is_full = pair.open >= 0.9 && waiting(pair) >= FULL_POOL * pair.open;
        is_full && pair.open <= LEAVES_SOME * top.entered && pair.from != GENERATOR
    };
    flow.calls_from(&top.name).filter(full).max_by(|a, b| a.open.total_cmp(&b.open))
}

/// Over a Unix socket it may be unknown which connections are busy. If as many requests are let through at a time as
/// there are connections, all of them are.
fn pool_by_number(trial: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> Option<String> {
    let at_a_time = trial.summary.rate_per_s.ok * trial.summary.response_ms.min? / 1e3;
    let fits = |pair: &&Pair| {
        let may_be_full = pair.is_unix && most(pair) >= FULL_POOL * pair.open;
        let is_hidden = may_be_full && !is_per_request(pair, flow.rate_per_s);
        // The fastest request spends time elsewhere, too, so more connections than exist may seem to be in use.
        let is_all = (0.75 * pair.open..=1.6 * pair.open).contains(&at_a_time);
        is_hidden && is_all && pair.open >= 0.9 && pair.open <= LEAVES_SOME * top.entered
    };
    let pair = flow.calls_from(&top.name).find(fits)?;
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
pub fn limited_concurrency(trial: &TrialData<'_>, _: &Flow, top: &WaitPlace) -> Option<String> {
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

/// A relay that loadlab put in front of a component is not a component, but represents the link it slows down.
pub fn link_of_relay(trial: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> Option<WaitPlace> {
    let component = relayed(trial, &top.name)?;
    let to_relay = flow.pairs.iter().filter(|p| p.to == top.name);
    let from = &to_relay.max_by(|a, b| waiting(a).total_cmp(&waiting(b)))?.from;
    Some(WaitPlace { name: format!("{from}→{component}"), is_link: true, ..top.clone() })
}

/// The component behind a relay.
pub fn relayed<'a>(trial: &'a TrialData<'_>, name: &str) -> Option<&'a str> {
    let component = name.strip_suffix("-relay")?;
    let (name, _) = trial.summary.components.get_key_value(component)?;
    link_shaping(trial, name).map(|_| name.as_str())
}

/// How loadlab changed a component's link: its delay, bandwidth and losses; `None` if it left it as it was.
pub fn link_shaping(trial: &TrialData<'_>, component: &str) -> Option<String> {
    let limits = &trial.summary.components.get(component)?.limits;
    let delay = limits.delay_ns.map(|ns| format!("a delay of {}", format_duration_ns(ns as f64)));
    let bandwidth = limits.bandwidth_bytes_per_s.map(|b| format!("{}/s", format_bytes(b as f64)));
    let loss = limits.packet_loss.map(|loss| format!("{} % loss", significant(loss * 100.0, 2)));
    let made: Vec<String> = [delay, bandwidth, loss].into_iter().flatten().collect();
    (!made.is_empty()).then(|| made.join(", "))
}

fn link_text(trial: &TrialData<'_>, flow: &Flow, top: &WaitPlace) -> String {
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
    parts.extend(
        ends.iter().filter_map(|name| Some(format!("{name} was given {}", link_shaping(trial, name)?))),
    );
    let seen = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    format!(
        "link {}: {} of {} requests in flight are on the wire there{seen}",
        top.name,
        short(top.requests),
        format_count(trial.summary.concurrency_mean.round())
    )
}
