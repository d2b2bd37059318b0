//! Specification of a load: everything the engine needs to know, checked beforehand.

pub mod request;

use std::sync::{Arc, OnceLock};

use loadlab_record::Secrets;
use loadlab_record::spec::schedule::{Arrivals, Stage, Think, Until, WhenBehind};

use self::request::Request;
use crate::journey::script::Written;
use crate::pool::ConnectionPool;
use crate::schedule::Schedule;
use crate::schedule::level::Level;

/// One load. Times are nanoseconds from its start.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// Its name in the plan.
    pub name: String,
    /// Who decides when a request falls due.
    pub model: Model,
    /// When no further requests fall due.
    pub until: Until,
    /// Users or rate ramp up linearly from zero over this time, which is part of the duration.
    pub ramp_ns: u64,
    /// Stages that users or rate follow; the model's number is then their maximum. Empty: they follow the ramp.
    pub stages: Vec<Stage>,
    /// Warm-up: requests due before this are not in the window.
    pub warmup_ns: u64,
    /// Requests in flight at the end may still finish within this time.
    pub grace_ns: u64,
    /// Each user's requests fall due at this interval, from the user's start (closed model).
    pub pace_ns: Option<u64>,
    /// What happens to a paced user's request that falls due while the user is still busy with an earlier one.
    pub pace_when_behind: WhenBehind,
    /// How long a user waits after a response before its next request falls due (closed model).
    pub think: Think,
    /// A request that has not ended this long after its start is abandoned.
    pub timeout_ns: u64,
    /// Whether connections are reused.
    pub keep_alive: bool,
    /// Requests to send.
    pub requests: Vec<Request>,
    /// What journey steps add to their requests; `None` if every request is always the same and judged by its status
    /// alone. A journey has its own order, and [`LoadSpec::order`] is then ignored.
    pub journey: Option<Box<crate::journey::script::Journey>>,
    /// Who takes which request next; paced users always go through all requests themselves.
    pub order: RequestOrder,
    /// TLS settings, if any host is reached by https.
    pub tls: Option<Box<TlsSpec>>,
    /// HTTP/2 settings, if HTTP/2 is used; otherwise HTTP/1.1.
    pub http2: Option<Http2>,
    /// Addresses of each host of the load (the proxy's, if there is one); connections use them in turn.
    pub hosts: Vec<Vec<crate::target::Address>>,
    /// The proxy that requests go through, if any.
    pub proxy: Option<Box<Proxy>>,
    /// Names of the tags that requests refer to by index.
    pub tags: Vec<String>,
    /// Connections held open and used in turn; otherwise each user or request in flight has its own connection.
    pub held: Option<HeldConnections>,
    /// Pool that this load takes an earlier load's connections from and leaves its own in. Without one, the load opens
    /// its own connections and closes them.
    pub pool: Option<Arc<ConnectionPool>>,
    /// Source addresses of connections, used in turn; empty: the kernel chooses.
    pub sources: Vec<std::net::IpAddr>,
    /// Load threads of this process.
    pub threads: usize,
    /// Load threads in other processes that send the rest of this load.
    pub other_threads: OtherThreads,
    /// When this process joins the load: requests due earlier are neither sent nor counted here.
    pub joins: JoinPoint,
    /// Cores to bind load threads to, in turn; empty: threads are not bound.
    pub cpus: Vec<usize>,
    /// I/O backend.
    pub io: IoChoice,
    /// Seed of everything random.
    pub seed: u64,
    /// Values to redact in every example, error and message, in addition to what users capture.
    pub secrets: Secrets,
    /// When its random arrivals end, once computed.
    pub known_end: KnownEnd,
}

/// Load threads of other processes that send the same load. All of a load's threads are numbered, process after
/// process, and each takes its share of the whole: what this process sends depends only on these numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherThreads {
    /// Load threads of the processes before this one.
    pub before: u64,
    /// Load threads of the processes after this one.
    pub after: u64,
}

/// When a process takes over its part of a load that others began, replacing a process that was lost or too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinPoint {
    /// When it joins, nanoseconds on the load's clock.
    pub at_ns: u64,
    /// Requests of its part already begun or dropped; matters if a number of requests ends the load.
    pub begun: u64,
}

/// Who decides when a request falls due.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// Each user sends its next request when its last one has ended.
    Closed {
        /// Number of users.
        users: u64,
    },
    /// Requests fall due on a schedule, whatever the system does.
    Open {
        /// Requests per second.
        rate_per_s: f64,
        /// Whether arrivals are even or random.
        arrivals: Arrivals,
        /// What happens to a request that falls due while no slot is free.
        when_behind: WhenBehind,
        /// Most requests that may be in flight at once.
        max_in_flight: u64,
    },
}

/// How hosts are reached over TLS.
#[derive(Clone, Debug)]
pub struct TlsSpec {
    /// TLS client configuration: whom to trust, what to offer.
    pub config: crate::protocol::tls::TlsConfig,
    /// The name that each host's certificate must be valid for; `None` for a host without TLS.
    pub names: Vec<Option<crate::protocol::tls::ServerName<'static>>>,
}

/// How hosts are reached through a proxy.
#[derive(Clone, Debug, Default)]
pub struct Proxy {
    /// For each host of the load, the request that asks the proxy for a tunnel to it; `None` if each request goes to
    /// the proxy itself, with an absolute URL.
    pub connects: Vec<Option<Box<[u8]>>>,
}

impl Proxy {
    /// Whether requests to both hosts may go over one connection.
    pub fn shares(&self, one: u16, other: u16) -> bool {
        let whole = |host: u16| matches!(self.connects.get(usize::from(host)), Some(None));
        whole(one) && whole(other)
    }
}

/// Requests in HTTP/2 form.
#[derive(Clone, Debug)]
pub struct Http2 {
    /// Heads of the load's requests, in the requests' order; bodies are taken from the requests.
    pub heads: Vec<crate::protocol::http2::Head>,
    /// What is known in advance of the heads of requests that a journey rewrites each time; empty if there are none.
    pub written: Vec<Option<Written>>,
    /// Most streams per connection: up to this many users, or requests in flight, share one.
    pub streams: u32,
}

impl Http2 {
    /// What is known in advance of a request's head, if the request is rewritten each time.
    #[inline]
    pub fn written(&self, request: u32) -> Option<&Written> {
        self.written.get(request as usize)?.as_ref()
    }
}

/// Connections held open during the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldConnections {
    /// Number of connections; at least the number of users.
    pub connections: u64,
    /// Connections opened per second, before the load begins.
    pub rate_per_s: f64,
}

/// Who takes which request next, in the closed model; the open model always takes the next one in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RequestOrder {
    /// Each user goes through all requests in order, repeatedly.
    #[default]
    Journey,
    /// The next free user takes the next request.
    Shared,
}

/// Which backend does the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoChoice {
    /// io_uring if the kernel allows it, otherwise epoll.
    #[default]
    Auto,
    /// io_uring; an error if it is unavailable.
    Uring,
    /// epoll.
    Epoll,
}

/// Up to this many random arrivals, the schedule's end is the time of the last one. Beyond that, it hardly differs from
/// the end of even arrivals, and finding it would take long.
const MAX_EXACT_ARRIVALS: u64 = 10_000_000;

/// When the random arrivals of a load end, once computed: every thread of the load needs to know, and for millions of
/// arrivals computing it takes long. A copy of a load is often changed, so it computes its own.
#[derive(Debug, Default)]
pub struct KnownEnd(OnceLock<(RandomArrivals, Option<u64>)>);

/// A number of random arrivals.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RandomArrivals {
    rate: Level,
    seed: u64,
    count: u64,
}

impl KnownEnd {
    fn of(&self, arrivals: RandomArrivals) -> Option<u64> {
        let (known, end_ns) = self.0.get_or_init(|| (arrivals.clone(), arrivals.end_ns()));
        // The load may have been changed since.
        if *known == arrivals { *end_ns } else { arrivals.end_ns() }
    }
}

impl Clone for KnownEnd {
    fn clone(&self) -> KnownEnd {
        KnownEnd::default()
    }
}

impl RandomArrivals {
    fn end_ns(&self) -> Option<u64> {
        let all = Schedule::new(self.rate.clone(), Arrivals::Poisson, self.seed);
        all.share(self.count, 1).peek()
    }
}

impl LoadSpec {
    /// A minimal load: one load thread, connections reused, no ramp, no pace, no pauses, a timeout of 30 s, a grace of
    /// 5 s, everything to one address. Callers set what differs.
    pub fn new(
        model: Model,
        until: Until,
        requests: Vec<Request>,
        address: std::net::SocketAddr,
    ) -> LoadSpec {
        LoadSpec {
            name: "load".into(),
            model,
            until,
            ramp_ns: 0,
            stages: Vec::new(),
            warmup_ns: 0,
            grace_ns: 5_000_000_000,
            pace_ns: None,
            pace_when_behind: WhenBehind::Queue,
            think: Think::None,
            timeout_ns: 30_000_000_000,
            keep_alive: true,
            requests,
            journey: None,
            order: RequestOrder::Journey,
            tls: None,
            http2: None,
            hosts: vec![vec![address.into()]],
            proxy: None,
            tags: Vec::new(),
            held: None,
            pool: None,
            sources: Vec::new(),
            threads: 1,
            other_threads: OtherThreads::default(),
            joins: JoinPoint::default(),
            cpus: Vec::new(),
            io: IoChoice::Auto,
            seed: 1,
            secrets: Secrets::default(),
            known_end: KnownEnd::default(),
        }
    }

    /// Whether users send as soon as they are free, so that requests are due, noticed and started at the same moment.
    pub fn sends_when_free(&self) -> bool {
        matches!(self.model, Model::Closed { .. }) && self.pace_ns.is_none() && self.never_thinks()
    }

    fn never_thinks(&self) -> bool {
        let scripts = self.journey.iter().flat_map(|j| &j.scripts);
        self.think == Think::None && scripts.filter_map(|s| s.think).all(|t| t == Think::None)
    }

    /// Users or rate over time, where `most` is the model's number.
    pub fn level(&self, most: f64) -> Level {
        if self.stages.is_empty() { Level::ramp(most, self.ramp_ns) } else { Level::of(&self.stages) }
    }

    /// How long a request may take, by its index.
    pub fn timeout_of(&self, request: u32) -> u64 {
        let script = self.journey.as_ref().and_then(|j| j.scripts.get(request as usize));
        let conversation = script.and_then(|script| script.conversation.as_ref());
        conversation.and_then(|step| step.timeout_ns()).unwrap_or(self.timeout_ns)
    }

    /// Number of threads, of all processes, that have something to do: no more than users, requests in flight or held
    /// connections. Work is divided among these alone; any other thread's share would be left undone.
    pub fn busy_threads(&self) -> u64 {
        let most = match self.model {
            Model::Closed { users } => users,
            Model::Open { max_in_flight, .. } => max_in_flight,
        };
        let most = self.held.as_ref().map_or(most, |held| most.min(held.connections));
        (self.other_threads.before + self.threads as u64 + self.other_threads.after).min(most).max(1)
    }

    /// Most connections one thread may have at one time.
    pub fn connections_per_thread(&self) -> usize {
        let all = match (&self.held, &self.model) {
            (Some(held), _) => held.connections,
            (None, Model::Closed { users }) => *users,
            (None, Model::Open { max_in_flight, .. }) => *max_in_flight,
        };
        let (streams, hosts) = match &self.http2 {
            None => (1, 1),
            Some(http2) => (u64::from(http2.streams.max(1)), self.hosts.len() as u64),
        };
        let groups = all.div_ceil(self.busy_threads()).div_ceil(streams);
        usize::try_from(groups.saturating_mul(hosts)).unwrap_or(usize::MAX)
    }

    /// Requests that one thread is likely to have in flight at one time.
    pub fn in_flight_per_thread(&self) -> usize {
        let all = match self.model {
            Model::Closed { users } => users,
            // The cap is for when things go wrong; normally few requests are in flight.
            Model::Open { max_in_flight, .. } => max_in_flight.min(256),
        };
        usize::try_from(all.div_ceil(self.busy_threads())).unwrap_or(usize::MAX)
    }

    /// Planned length of the schedule, if bounded by time, or by a number of requests at a rate. For random arrivals,
    /// the length of the actual sequence; computing it takes tens of nanoseconds per arrival, once. Call it before the
    /// load is due to begin.
    pub fn schedule_ns(&self) -> Option<u64> {
        match (self.until, &self.model) {
            (Until::Elapsed(ns), _) => Some(ns),
            (Until::Requests(count), Model::Open { rate_per_s, arrivals: Arrivals::Poisson, .. })
                if count <= MAX_EXACT_ARRIVALS =>
            {
                self.known_end.of(RandomArrivals { rate: self.level(*rate_per_s), seed: self.seed, count })
            }
            (Until::Requests(n), Model::Open { rate_per_s, .. }) => self.level(*rate_per_s).due_ns(n, &mut 0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::request::Request;

    fn open(until: Until, arrivals: Arrivals) -> LoadSpec {
        let model =
            Model::Open { rate_per_s: 10.0, arrivals, when_behind: WhenBehind::Queue, max_in_flight: 100 };
        let address = "127.0.0.1:80".parse().expect("an address");
        LoadSpec::new(model, until, Vec::<Request>::new(), address)
    }

    #[test]
    fn a_schedule_of_random_arrivals_ends_when_they_do() {
        let even = open(Until::Requests(40), Arrivals::Constant);
        assert_eq!(even.schedule_ns(), Some(4_000_000_000));
        let mut random = open(Until::Requests(40), Arrivals::Poisson);
        let mut lengths = Vec::new();
        for seed in 0..400 {
            random.seed = seed;
            let ns = random.schedule_ns().expect("it has an end");
            let mut all = Schedule::new(random.level(10.0), Arrivals::Poisson, seed);
            let due = std::iter::from_fn(|| all.take()).take(40).map(|(_, due)| due);
            assert!(due.max().is_some_and(|last| last <= ns), "seed {seed}");
            lengths.push(ns as f64 / 1e9);
        }
        let mean = lengths.iter().sum::<f64>() / 400.0;
        assert!((3.9..4.3).contains(&mean) && lengths.iter().any(|s| *s > 4.8), "{mean} {lengths:?}");
        assert_eq!(open(Until::Elapsed(7), Arrivals::Poisson).schedule_ns(), Some(7));
        let long = open(Until::Requests(MAX_EXACT_ARRIVALS * 2), Arrivals::Poisson);
        assert_eq!(long.schedule_ns(), Some(2_000_000 * 1_000_000_000));
    }

    #[test]
    fn the_end_of_random_arrivals_is_computed_once() {
        let mut load = open(Until::Requests(40), Arrivals::Poisson);
        let rate = load.level(10.0);
        let known = (RandomArrivals { rate, seed: load.seed, count: 40 }, Some(7));
        assert_eq!(load.known_end.0.set(known), Ok(()));
        assert_eq!(load.schedule_ns(), Some(7));
        // Of other arrivals it is not known.
        assert!(load.clone().schedule_ns().is_some_and(|ns| ns > 1_000_000_000));
        load.until = Until::Requests(41);
        assert!(load.schedule_ns().is_some_and(|ns| ns > 1_000_000_000));
        assert!(load.clone().known_end.0.get().is_none());
    }

    #[test]
    fn threads_without_a_connection_have_nothing_to_do() {
        let mut load = open(Until::Elapsed(1), Arrivals::Constant);
        load.threads = 4;
        assert_eq!(load.busy_threads(), 4);
        load.held = Some(HeldConnections { connections: 3, rate_per_s: 1.0 });
        assert_eq!((load.busy_threads(), load.connections_per_thread()), (3, 1));
    }
}
