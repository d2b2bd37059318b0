//! Where requests are: connections and threads, averaged over the load, and how many requests wait in each place.
//!
//! By Little's law the mean number of busy connections to a component is the mean number of requests that are in it or
//! behind it. Requests that it passed on count where they went; the rest are inside it. A wait on a connection whose
//! bytes are in transit most of the time belongs to the link. Only requests that originate from the load are followed:
//! a consumer that waits for its broker is idle, and what loadlab's probes ask is left out.

use std::collections::{BTreeMap, BTreeSet};

use loadlab_record::text::units::significant;
use loadlab_record::watch::evidence::{Evidence, Listener, Pair, Ports, Threads, Timed};
use loadlab_record::watch::names::GENERATOR;

use super::targets::{LoadConnections, is_per_request, is_same_path, port_of, socket_of};
use super::{TrialData, during, read_in};
use crate::trial::counter::During;

/// With fewer readings of sockets than this a mean is unreliable.
pub const FEWEST_READINGS: u32 = 15;
/// Above this share of ties the kernel's clock is too coarse, and packet times decide.
const TIES_SHARE: f64 = 0.1;
/// Fewest exchanges for a mean.
const FEWEST_TIMED: u64 = 20;
/// A lost segment is retransmitted after at least this long: the kernel's shortest timeout.
const RETRANSMIT_S: f64 = 0.2;
/// Connections in an unknown state matter from this share of the requests in flight.
const UNSURE_SHARE: f64 = 0.1;
/// For up to this many pairs with many unknowns, all combinations are tried.
const MOST_UNSURE: usize = 4;
/// A shorter round trip stays within the machine and is no link.
pub const SHORTEST_LINK_MS: f64 = 0.5;

/// What was seen of a trial's connections and threads, as means over its load.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Connections by pair of components.
    pub pairs: Vec<Pair>,
    /// Threads by component.
    pub threads: BTreeMap<String, ThreadMeans>,
    /// Listeners, with what they dropped during the load.
    pub listeners: Vec<Listener>,
    /// Local ports of components that use many, by line of evidence.
    pub ports: Vec<PortLine>,
    /// Number of lines of evidence within the load.
    pub lines: usize,
    /// Pairs with too many connections in an unknown state, a sentence each.
    pub unseen: Vec<String>,
    /// Number of socket readings.
    pub socket_readings: u32,
    /// Successful responses per second.
    pub rate_per_s: f64,
}

/// Threads of a component over the load.
#[derive(Clone, Debug, Default)]
pub struct ThreadMeans {
    /// Means over all lines of evidence.
    pub means: Threads,
    /// Share of the lines in which the same thread was the busiest.
    pub same_busiest: f64,
}

/// Local ports in use towards one destination, at one time.
#[derive(Clone, Debug)]
pub struct PortLine {
    /// Seconds on the trial's clock.
    pub at_s: f64,
    /// Ports in use, and the range they come from.
    pub ports: Ports,
}

/// A place where requests wait.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitPlace {
    /// Its owner: a component, or a link `from→to`.
    pub name: String,
    /// Whether it is a link.
    pub is_link: bool,
    /// Mean number of requests there over the load: the lower bound.
    pub requests: f64,
    /// The upper bound, since it may be unknown who waits on some connections.
    pub most: f64,
    /// Requests that are there or behind it; for a link, those on it.
    pub entered: f64,
}

/// Where most requests wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Site {
    /// In this place.
    At(WaitPlace),
    /// In one of these, callers first; which one is unknown.
    Among(Vec<WaitPlace>),
}

impl Flow {
    /// Averages the lines of the load; `None` if there is no evidence.
    pub fn of(trial: &TrialData<'_>) -> Option<Flow> {
        let lines = lines_of(trial);
        if lines.is_empty() {
            return None;
        }
        let mut flow = Flow {
            pairs: named(pairs(&lines), trial),
            threads: threads(&lines),
            listeners: listeners(trial.evidence, during(trial)),
            ports: port_lines(&lines),
            lines: lines.len(),
            socket_readings: lines.iter().map(|e| e.socket_readings).sum(),
            rate_per_s: trial.summary.rate_per_s.ok,
            unseen: Vec::new(),
        };
        flow.settle_by_turnover();
        let unsure = flow.unsure(trial.summary.concurrency_mean);
        let unseen: Vec<String> = unsure.into_iter().map(|at| unseen(&flow.pairs[at])).collect();
        flow.unseen = unseen;
        Some(flow)
    }

    /// Connections over a Unix socket that are opened as often as requests arrive are busy as long as they exist.
    fn settle_by_turnover(&mut self) {
        let rate_per_s = self.rate_per_s;
        for pair in self.pairs.iter_mut().filter(|p| p.is_unix && is_per_request(p, rate_per_s)) {
            pair.busy += std::mem::take(&mut pair.unknown);
        }
    }

    /// Pairs with enough connections in an unknown state to affect who holds the requests; the worst first.
    fn unsure(&self, in_flight: f64) -> Vec<usize> {
        let entered = self.entered(in_flight, &most);
        // What the load itself waits for is known.
        let enters = |p: &Pair| p.from != GENERATOR && entered.get(p.from.as_str()).is_some_and(|n| *n > 0.0);
        let slack = |p: &Pair| most(p) - waiting(p);
        let matters = |p: &Pair| p.from != p.to && slack(p) >= UNSURE_SHARE * in_flight;
        let all = self.pairs.iter().enumerate();
        let mut found: Vec<usize> =
            all.filter(|(_, p)| in_flight > 0.0 && matters(p) && enters(p)).map(|(at, _)| at).collect();
        found.sort_by(|a, b| slack(&self.pairs[*b]).total_cmp(&slack(&self.pairs[*a])));
        found.truncate(MOST_UNSURE);
        found
    }

    /// The place that holds at least this share of the requests, whatever the unknowns. `None` if there is none.
    pub fn site(&self, in_flight: f64, rate_per_s: f64, share: f64) -> Option<Site> {
        let has_most = |requests: f64| requests > 0.0 && requests >= share * in_flight;
        let unsure = self.unsure(in_flight);
        let places = self.places(in_flight, rate_per_s);
        if unsure.is_empty() {
            return places.into_iter().next().filter(|top| has_most(top.requests)).map(Site::At);
        }
        // All combinations: on each of these pairs none of the unknown connections waits, or all do.
        let mut ranges: BTreeMap<(String, bool), WaitPlace> = BTreeMap::new();
        for combination in 0..1u32 << unsure.len() {
            let level = |pair: &Pair| {
                let bit = unsure.iter().position(|at| std::ptr::eq(&self.pairs[*at], pair));
                if bit.is_some_and(|bit| combination >> bit & 1 == 1) { most(pair) } else { waiting(pair) }
            };
            for place in self.places_by(in_flight, rate_per_s, &level) {
                let range = ranges.entry((place.name.clone(), place.is_link)).or_insert(place.clone());
                range.requests = range.requests.min(place.requests);
                range.most = range.most.max(place.requests);
                range.entered = range.entered.max(place.entered);
            }
        }
        let mut found: Vec<WaitPlace> = ranges.into_values().filter(|place| has_most(place.most)).collect();
        found.sort_by(|a, b| b.entered.total_cmp(&a.entered).then_with(|| self.callers_first(a, b)));
        if let Some(at) = found.iter().position(|place| has_most(place.requests)) {
            return Some(Site::At(found.swap_remove(at)));
        }
        match found.len() {
            0 => None,
            1 => found.pop().map(Site::At),
            _ => Some(Site::Among(found)),
        }
    }

    /// The caller comes before the component it calls.
    fn callers_first(&self, a: &WaitPlace, b: &WaitPlace) -> std::cmp::Ordering {
        self.behind(&b.name).contains(a.name.as_str()).cmp(&self.behind(&a.name).contains(b.name.as_str()))
    }

    /// Requests in each place, the fullest first. `in_flight` is the load's own count, `rate_per_s` its successful
    /// responses.
    pub fn places(&self, in_flight: f64, rate_per_s: f64) -> Vec<WaitPlace> {
        self.places_by(in_flight, rate_per_s, &waiting)
    }

    /// As `places`, given how many requests wait on each pair.
    fn places_by(&self, in_flight: f64, rate_per_s: f64, level: &dyn Fn(&Pair) -> f64) -> Vec<WaitPlace> {
        let entered = self.entered(in_flight, level);
        let mut places: Vec<WaitPlace> = Vec::new();
        let mut inside: BTreeMap<&str, f64> =
            entered.iter().filter(|(name, _)| **name != GENERATOR).map(|(n, v)| (*n, *v)).collect();
        for (pair, waiting) in self.shares(&entered, level) {
            if let Some(from) = inside.get_mut(pair.from.as_str()) {
                *from -= waiting;
            }
            let link = link_requests(pair, waiting, wait_ms(waiting, rate_per_s));
            if link > 0.0 {
                *inside.entry(&pair.to).or_default() -= link;
                let name = format!("{}→{}", pair.from, pair.to);
                places.push(WaitPlace { name, is_link: true, requests: link, most: link, entered: link });
            }
        }
        places.extend(inside.iter().map(|(name, requests)| WaitPlace {
            name: (*name).to_owned(),
            is_link: false,
            requests: requests.max(0.0),
            most: requests.max(0.0),
            entered: entered.get(name).copied().unwrap_or(0.0),
        }));
        places.sort_by(|a, b| b.requests.total_cmp(&a.requests));
        places
    }

    /// Lower bound of the requests on each link: none waits for longer than a whole response takes.
    pub fn on_links(&self, in_flight: f64, rate_per_s: f64) -> Vec<(&Pair, f64)> {
        let entered = self.entered(in_flight, &waiting);
        let longest_ms = wait_ms(in_flight, rate_per_s);
        let shares = self.shares(&entered, &waiting).into_iter();
        shares.map(|(pair, waiting)| (pair, link_requests(pair, waiting, longest_ms))).collect()
    }

    /// How many requests entered each component, including those it passed on.
    fn entered(&self, in_flight: f64, level: &dyn Fn(&Pair) -> f64) -> BTreeMap<&str, f64> {
        let mut entered: BTreeMap<&str, f64> = [(GENERATOR, in_flight)].into();
        // Each round follows the requests one component further; the number of rounds bounds cycles.
        for _ in 0..self.pairs.len() {
            let mut next: BTreeMap<&str, f64> = [(GENERATOR, in_flight)].into();
            for (pair, waiting) in self.shares(&entered, level) {
                *next.entry(&pair.to).or_default() += waiting;
            }
            if next == entered {
                break;
            }
            entered = next;
        }
        entered
    }

    /// How many requests wait on each pair: in total no more than entered the caller. For the load itself the total is
    /// known, and connections only show how it is divided.
    fn shares<'a>(
        &'a self,
        entered: &BTreeMap<&str, f64>,
        level: &dyn Fn(&Pair) -> f64,
    ) -> Vec<(&'a Pair, f64)> {
        let share = |pair: &'a Pair| {
            let have = *entered.get(pair.from.as_str())?;
            // The load's connections are in use, including those of unknown state.
            let level = if pair.from == GENERATOR { &most } else { level };
            let sum: f64 = self.calls_from(&pair.from).map(level).sum();
            let own = level(pair);
            if pair.from == GENERATOR {
                let alone = self.calls_from(&pair.from).count() == 1;
                return Some((pair, if alone { have } else { have * own / sum.max(f64::MIN_POSITIVE) }));
            }
            Some((pair, own * (have / sum.max(f64::MIN_POSITIVE)).min(1.0)))
        };
        self.pairs.iter().filter(|p| p.from != p.to).filter_map(share).collect()
    }

    /// Pairs on which a component calls others.
    pub fn calls_from<'a>(&'a self, component: &'a str) -> impl Iterator<Item = &'a Pair> {
        self.pairs.iter().filter(move |p| p.from == component && p.to != component)
    }

    /// The component that listens at the address of a URL, if there is exactly one.
    pub fn listens_at(&self, url: &str) -> Option<&str> {
        let (path, port) = (socket_of(url), port_of(url).map(|port| port.to_string()));
        let is_there = |address: &str| match (path, &port) {
            (Some(path), _) => is_same_path(path, address),
            (None, Some(port)) => address.rsplit(':').next() == Some(port.as_str()),
            (None, None) => false,
        };
        let own = self.listeners.iter().filter(|l| is_there(&l.address)).map(|l| l.component.as_str());
        // Connections to an unknown listener are named by its address.
        let asked = self.calls_from(GENERATOR).filter(|p| is_there(&p.address)).map(|p| p.to.as_str());
        let names: BTreeSet<&str> = own.chain(asked).filter(|name| !name.is_empty()).collect();
        names.first().filter(|_| names.len() == 1).copied()
    }

    /// All components behind a component.
    pub fn behind<'a>(&'a self, component: &'a str) -> BTreeSet<&'a str> {
        let mut found: BTreeSet<&str> = BTreeSet::new();
        let mut next = vec![component];
        while let Some(name) = next.pop() {
            for pair in self.calls_from(name) {
                if found.insert(&pair.to) {
                    next.push(&pair.to);
                }
            }
        }
        found.remove(component);
        found
    }
}

/// Connections and threads were not read, or could not be.
pub const NOT_READ: &str = "connections and threads: not read";

/// What most lines of the load could not see; what only some of them missed, the others saw. A line without readings
/// states what holds for the whole trial.
pub fn not_seen(trial: &TrialData<'_>) -> Vec<String> {
    let of_all = trial.evidence.iter().filter(|line| line.socket_readings == 0);
    let lines = lines_of(trial);
    let mut times: BTreeMap<&String, usize> = BTreeMap::new();
    lines.iter().flat_map(|line| &line.not_seen).for_each(|text| *times.entry(text).or_default() += 1);
    times.retain(|_, n| 2 * *n > lines.len());
    of_all.flat_map(|line| &line.not_seen).for_each(|text| *times.entry(text).or_default() += 1);
    let not_read = lines.is_empty().then(|| NOT_READ.to_owned());
    not_read.into_iter().chain(times.into_keys().cloned()).collect()
}

/// The lines of the load.
fn lines_of<'a>(trial: &TrialData<'a>) -> Vec<&'a Evidence> {
    let read = trial.evidence.iter().filter(|line| line.socket_readings > 0);
    read_in(trial, read, |line, part| part.has(f64::midpoint(line.from_s, line.to_s)))
}

/// Connections of a pair that wait for an answer. For Unix and UDP sockets this is the lower bound: their unknown
/// connections are hidden for a reason, so the known ones are not a representative sample.
pub fn waiting(pair: &Pair) -> f64 {
    if pair.is_unix || pair.is_udp {
        return pair.busy.min(pair.open);
    }
    if pair.unknown > TIES_SHARE * pair.open
        && let Some(timed) = pair.timed.filter(|t| t.exchanges >= FEWEST_TIMED)
    {
        return timed.busy_share.clamp(0.0, 1.0) * pair.open;
    }
    // If most are ties, the known ones do not represent the others.
    if is_undecided(pair) {
        return pair.busy.max(pair.unread).min(pair.open);
    }
    let known = pair.open - pair.unknown;
    (pair.busy + pair.unknown * pair.busy / known.max(f64::MIN_POSITIVE)).clamp(0.0, pair.open)
}

/// Most connections sent and received within one tick of the kernel's clock, and too few packets were seen to decide.
fn is_undecided(pair: &Pair) -> bool {
    let is_timed = pair.timed.is_some_and(|t| t.exchanges >= FEWEST_TIMED);
    !pair.is_unix && !pair.is_udp && !is_timed && pair.unknown > 0.5 * pair.open
}

/// As [`waiting`], but the upper bound. A long-lived UDP socket does not wait.
pub fn most(pair: &Pair) -> f64 {
    match pair.is_unix || is_undecided(pair) {
        true => (pair.busy + pair.unknown).min(pair.open),
        false => waiting(pair),
    }
}

/// What is unknown about a pair, and why.
fn unseen(pair: &Pair) -> String {
    let to = if pair.to.is_empty() { "?" } else { &pair.to };
    let (why, over) = match pair.is_unix {
        true => ("such sockets have no times, and threads do not show it", "over the Unix socket "),
        false => (
            "they send and receive within one tick of the kernel's clock, and too few packets were seen",
            "at ",
        ),
    };
    format!("who waits on {}→{to} {over}{}: {why}", pair.from, pair.address)
}

/// How long each of `waiting` requests waits, by Little's law.
fn wait_ms(waiting: f64, rate_per_s: f64) -> Option<f64> {
    (rate_per_s > 0.0).then(|| waiting / rate_per_s * 1e3)
}

/// Of the requests that wait on a pair, those whose bytes are in transit. `wait_ms` is how long each waits, if its
/// packets do not show it.
fn link_requests(pair: &Pair, waiting: f64, wait_ms: Option<f64>) -> f64 {
    if pair.is_unix || pair.is_udp || waiting <= 0.0 {
        return 0.0;
    }
    let timed = pair.timed.filter(|t| t.exchanges >= FEWEST_TIMED).map(|t| t.wait_ms);
    let wait_ms = timed.or(wait_ms);
    let rtt_ms = pair.rtt_ms.filter(|rtt| *rtt >= SHORTEST_LINK_MS);
    let delayed = rtt_ms.zip(wait_ms).map_or(0.0, |(rtt, wait)| waiting * (rtt / wait.max(rtt)));
    // What has arrived but is not read yet is no longer in transit.
    let under_way = (pair.in_transit - pair.unread).max(0.0);
    delayed.max(under_way).max(pair.retransmits_per_s * RETRANSMIT_S).min(waiting)
}

/// `front→mid: 39.8 of 40 connections busy`.
pub fn describe(pair: &Pair) -> String {
    let (by, what) = if pair.is_udp { (" (UDP)", "sockets") } else { ("", "connections") };
    let unknown = match (pair.is_unix || is_undecided(pair)) && pair.unknown >= 0.05 {
        true => format!(", {} not known", short(pair.unknown)),
        false => String::new(),
    };
    let (waiting, open) = (short(waiting(pair)), short(pair.open));
    format!("{}→{}{by}: {waiting} of {open} {what} busy{unknown}", pair.from, pair.to)
}

/// A mean number of requests or connections, with as few digits as possible.
pub fn short(value: f64) -> String {
    match value {
        v if v >= 9.95 || (v - v.round()).abs() < 0.05 => format!("{:.0}", v),
        v => significant(v, 2),
    }
}

/// The mean of a figure over lines, weighted by their readings.
#[derive(Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

fn pairs(lines: &[&Evidence]) -> Vec<Pair> {
    // A resolver listens at one address for both TCP and UDP.
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    struct Key<'a> {
        from: &'a str,
        to: &'a str,
        address: &'a str,
        is_udp: bool,
    }
    fn key(p: &Pair) -> Key<'_> {
        Key { from: &p.from, to: &p.to, address: &p.address, is_udp: p.is_udp }
    }
    let keys: BTreeSet<Key<'_>> = lines.iter().flat_map(|e| e.pairs.iter().map(key)).collect();
    let readings: f64 = lines.iter().map(|e| f64::from(e.socket_readings)).sum();
    let length_s: f64 = lines.iter().map(|e| (e.to_s - e.from_s).max(0.0)).sum();
    let of = |wanted: &Key<'_>| -> Vec<(&Pair, f64)> {
        let is = |p: &&Pair| key(p) == *wanted;
        lines
            .iter()
            .flat_map(|e| e.pairs.iter().filter(is).map(|p| (p, f64::from(e.socket_readings))))
            .collect()
    };
    let mean = |key: &Key<'_>| {
        let found = of(key);
        // A line without the pair counts as no connections.
        let level =
            |get: fn(&Pair) -> f64| found.iter().map(|(p, n)| get(p) * n).sum::<f64>() / readings.max(1.0);
        let mut rtt = Mean::default();
        found.iter().for_each(|(p, n)| {
            if let Some(ms) = p.rtt_ms {
                rtt.add(ms, *n * p.open)
            }
        });
        let sum = |get: fn(&Pair) -> u64| found.iter().map(|(p, _)| get(p)).sum::<u64>();
        let per_s = |count: u64| if length_s > 0.0 { count as f64 / length_s } else { 0.0 };
        let (retransmits, made) = (sum(|p| p.retransmits), sum(|p| p.made));
        Pair {
            from: key.from.to_owned(),
            to: key.to.to_owned(),
            address: key.address.to_owned(),
            is_unix: found.iter().any(|(p, _)| p.is_unix),
            is_udp: key.is_udp,
            open: level(|p| p.open),
            busy: level(|p| p.busy),
            unknown: level(|p| p.unknown),
            unread: level(|p| p.unread),
            in_transit: level(|p| p.in_transit),
            held_by_from: level(|p| p.held_by_from),
            held_by_to: level(|p| p.held_by_to),
            connecting: level(|p| p.connecting),
            first_request: level(|p| p.first_request),
            rtt_ms: rtt.value(),
            retransmits,
            retransmits_per_s: per_s(retransmits),
            made,
            made_per_s: per_s(made),
            timed: timed(found.iter().filter_map(|(p, _)| p.timed)),
        }
    };
    keys.iter().map(mean).collect()
}

fn port_lines(lines: &[&Evidence]) -> Vec<PortLine> {
    let of = |line: &&Evidence| {
        let at_s = line.from_s;
        line.ports.clone().into_iter().map(move |ports| PortLine { at_s, ports })
    };
    lines.iter().flat_map(of).collect()
}

fn timed(all: impl Iterator<Item = Timed>) -> Option<Timed> {
    let (mut exchanges, mut busy, mut wait) = (0, Mean::default(), Mean::default());
    for t in all {
        exchanges += t.exchanges;
        busy.add(t.busy_share, 1.0);
        wait.add(t.wait_ms, t.exchanges as f64);
    }
    Some(Timed { exchanges, busy_share: busy.value()?, wait_ms: wait.value().unwrap_or(0.0) })
}

fn threads(lines: &[&Evidence]) -> BTreeMap<String, ThreadMeans> {
    let mut by_name: BTreeMap<&str, Vec<(&Threads, f64)>> = BTreeMap::new();
    for line in lines {
        for threads in &line.threads {
            by_name.entry(&threads.component).or_default().push((threads, f64::from(line.thread_readings)));
        }
    }
    let mean = |(name, all): (&str, Vec<(&Threads, f64)>)| {
        let of = |get: fn(&Threads) -> Option<f64>| {
            let mut mean = Mean::default();
            all.iter().for_each(|(t, n)| {
                if let Some(v) = get(t) {
                    mean.add(v, *n)
                }
            });
            mean.value()
        };
        let level = |get: fn(&Threads) -> Option<f64>| of(get).unwrap_or(0.0);
        let mut ids: BTreeMap<u32, usize> = BTreeMap::new();
        all.iter().filter_map(|(t, _)| t.busiest_id).for_each(|id| *ids.entry(id).or_default() += 1);
        let most = ids.iter().max_by_key(|(_, n)| **n).map(|(id, n)| (*id, *n));
        let named = all.iter().find(|(t, _)| t.busiest_id == most.map(|(id, _)| id));
        let means = Threads {
            component: name.to_owned(),
            count: level(|t| Some(t.count)),
            read: level(|t| Some(t.read)),
            running: level(|t| Some(t.running)),
            lock: level(|t| Some(t.lock)),
            disk: level(|t| Some(t.disk)),
            network: level(|t| Some(t.network)),
            poll: level(|t| Some(t.poll)),
            sleep: level(|t| Some(t.sleep)),
            other: level(|t| Some(t.other)),
            busiest_cores: of(|t| t.busiest_cores),
            busiest_name: named.map(|(t, _)| t.busiest_name.clone()).unwrap_or_default(),
            busiest_id: most.map(|(id, _)| id),
            run_delay_cores: of(|t| t.run_delay_cores),
            cpu_cores: of(|t| t.cpu_cores),
        };
        let same_busiest = most.map_or(0.0, |(_, n)| n as f64 / all.len() as f64);
        (name.to_owned(), ThreadMeans { means, same_busiest })
    };
    by_name.into_iter().map(mean).collect()
}

/// Names both ends of pairs where possible, and leaves out connections of loadlab that are not the load's.
///
/// Unowned connections to the load's target are the load's: those that live for one request are gone before their
/// owner is looked up. Unowned ones to an unknown listener elsewhere belong to another program. The listener at an
/// address may become known later than its first connections; a program that is not watched is named by its address.
fn named(pairs: Vec<Pair>, trial: &TrialData<'_>) -> Vec<Pair> {
    let of_load = LoadConnections::new(&pairs, &trial.summary.load, trial.summary.rate_per_s.ok);
    let mut answers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pair in pairs.iter().filter(|pair| !pair.to.is_empty()) {
        answers.entry(pair.address.clone()).or_default().insert(pair.to.clone());
    }
    let mut known: Vec<Pair> = Vec::new();
    for mut pair in pairs {
        if pair.from == GENERATOR && !of_load.is_own(&pair) {
            continue;
        }
        if pair.from.is_empty() && of_load.takes_unowned(&pair) {
            GENERATOR.clone_into(&mut pair.from);
        }
        if pair.to.is_empty() {
            let of_others = pair.from == GENERATOR && !of_load.is_target(&pair);
            match answers.get(&pair.address).filter(|names| names.len() == 1).and_then(BTreeSet::first) {
                Some(name) => pair.to.clone_from(name),
                None if of_others => continue,
                None => pair.to.clone_from(&pair.address),
            }
        }
        let key = |p: &Pair| (p.from.clone(), p.to.clone(), p.address.clone(), p.is_udp);
        let own = key(&pair);
        let is_same = |p: &&mut Pair| key(p) == own;
        match known.iter_mut().find(is_same) {
            Some(same) => add(same, &pair),
            None => known.push(pair),
        }
    }
    known
}

/// Merges two parts of one pair.
fn add(pair: &mut Pair, part: &Pair) {
    pair.open += part.open;
    pair.busy += part.busy;
    pair.unknown += part.unknown;
    pair.unread += part.unread;
    pair.in_transit += part.in_transit;
    pair.held_by_from += part.held_by_from;
    pair.held_by_to += part.held_by_to;
    pair.connecting += part.connecting;
    pair.first_request += part.first_request;
    pair.retransmits += part.retransmits;
    pair.retransmits_per_s += part.retransmits_per_s;
    pair.made += part.made;
    pair.made_per_s += part.made_per_s;
    pair.rtt_ms = pair.rtt_ms.or(part.rtt_ms);
    pair.timed = pair.timed.or(part.timed);
}

/// What each listener dropped from the load's start to its end.
fn listeners(lines: &[Evidence], load: During) -> Vec<Listener> {
    let mut found: BTreeMap<(&str, &str), Listener> = BTreeMap::new();
    let mut before: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for line in lines.iter().filter(|e| e.from_s <= load.to_s) {
        for listener in &line.listeners {
            let key = (listener.component.as_str(), listener.address.as_str());
            if line.to_s < load.from_s {
                before.insert(key, listener.drops);
                continue;
            }
            let entry =
                found.entry(key).or_insert_with(|| Listener { drops: 0, queue_max: 0, ..listener.clone() });
            entry.queue_max = entry.queue_max.max(listener.queue_max);
            // Without a line before the load, its first reading is the baseline, though slightly late.
            let last = before.entry(key).or_insert(listener.drops_before);
            // After a restart a server's socket counts from 0.
            entry.drops += listener.drops.saturating_sub(*last);
            *last = listener.drops;
        }
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(from: &str, to: &str, open: f64, busy: f64) -> Pair {
        Pair { from: from.into(), to: to.into(), open, busy, ..Pair::default() }
    }

    #[track_caller]
    fn check(pairs: Vec<Pair>, in_flight: f64, expect: &[(&str, f64)]) {
        let flow = Flow { pairs, ..Flow::default() };
        let places = flow.places(in_flight, 100.0);
        let got: Vec<(&str, f64)> =
            places.iter().map(|p| (p.name.as_str(), (p.requests * 10.0).round() / 10.0)).collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn requests_are_where_they_do_not_go_on() {
        let chain = |mid: f64, store: f64| {
            vec![
                pair("loadlab", "front", 40.0, 39.0),
                pair("front", "mid", 40.0, mid),
                pair("mid", "store", 3.0, store),
            ]
        };
        check(chain(39.8, 0.0), 40.0, &[("mid", 39.8), ("front", 0.2), ("store", 0.0)]);
        check(chain(39.8, 3.0), 40.0, &[("mid", 36.8), ("store", 3.0), ("front", 0.2)]);
        check(chain(1.0, 1.0), 40.0, &[("front", 39.0), ("store", 1.0), ("mid", 0.0)]);
    }

    #[test]
    fn a_consumer_that_waits_for_its_broker_is_idle() {
        let pairs = vec![pair("loadlab", "web", 10.0, 10.0), pair("worker", "broker", 50.0, 50.0)];
        check(pairs, 10.0, &[("web", 10.0)]);
    }

    #[test]
    fn a_link_takes_what_its_round_trip_takes() {
        let mut link = pair("front", "store", 40.0, 39.9);
        // 40 requests at 960/s wait 41.6 ms each, of which the link accounts for 40.
        link.rtt_ms = Some(40.0);
        let flow = Flow { pairs: vec![pair("loadlab", "front", 40.0, 40.0), link], ..Flow::default() };
        let places = flow.places(40.0, 960.0);
        assert_eq!((places[0].name.as_str(), places[0].is_link), ("front→store", true));
        assert!((38.0..39.0).contains(&places[0].requests), "{places:?}");
    }

    #[test]
    fn ties_are_settled_by_packets_or_not_at_all() {
        let mut pool = pair("front", "store", 20.0, 0.0);
        pool.unknown = 20.0;
        // An idle pool to a quick store looks like this: unknowns are blamed on no component.
        assert_eq!(waiting(&pool), 0.0);
        pool.timed = Some(Timed { exchanges: 500, busy_share: 0.95, wait_ms: 1.0 });
        assert_eq!(waiting(&pool), 19.0);
        pool.timed = Some(Timed { exchanges: 3, busy_share: 0.95, wait_ms: 1.0 });
        assert_eq!(waiting(&pool), 0.0);
    }

    #[test]
    fn circles_end() {
        let pairs =
            vec![pair("loadlab", "a", 10.0, 10.0), pair("a", "b", 10.0, 6.0), pair("b", "a", 10.0, 2.0)];
        let flow = Flow { pairs, ..Flow::default() };
        assert_eq!(flow.places(10.0, 1.0).len(), 2);
    }
}
