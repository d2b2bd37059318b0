//! What a load will demand of the machine, computed before it runs.

use loadlab_load::target::{Address, sources_on_loopback};
use loadlab_load::{IoChoice, LoadSpec, Model, Until};
use loadlab_plan as plan;
use loadlab_record::spec::schedule::Stage;
use loadlab_record::text::url;

/// What a load, or several concurrent loads, will demand of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Connections that will be open at the same time.
    pub connections: u64,
    /// Connections that may be open if the system falls behind; at least `connections`.
    pub connections_most: u64,
    /// Connections opened at once or, with a ramp, within one second.
    pub burst: u64,
    /// Connections are reused and stay open until the end.
    pub keep_alive: bool,
    /// Maximum rate of new connections if they are not reused, provided that the schedule bounds it.
    pub new_per_s: Option<f64>,
    /// Total number of new connections if they are not reused, provided that the load ends by count.
    pub new_in_all: Option<u64>,
    /// Duration in seconds, if bounded by time.
    pub duration_s: Option<f64>,
    /// Destinations: each distinct address and port once.
    pub destinations: Vec<String>,
    /// At least one connection uses TCP rather than a Unix socket.
    pub is_tcp: bool,
    /// All destinations are on this machine.
    pub loopback: bool,
    /// Number of source addresses; 1 means the kernel chooses.
    pub sources: u64,
    /// Number of load threads.
    pub threads: u64,
    /// The requested I/O backend.
    pub io: IoChoice,
    /// The highest open-file limit requested for a process component, and that component's name.
    pub component_files: Option<(u64, String)>,
    /// The networks the load runs in.
    pub isolation: plan::Isolation,
    /// The individual loads, if there are several: each has its own connections, and what one load needs is not covered
    /// by what another has.
    pub parts: Vec<Demand>,
}

/// When users or requests are due; common to engine and plan loads.
enum Load {
    Users { users: u64, at_most_per_s: Option<f64> },
    Rate { rate_per_s: f64, max_in_flight: u64 },
}

impl Demand {
    /// For a load in the engine's form.
    pub fn of(spec: &LoadSpec) -> Demand {
        let every_ns = spec.pace_ns.or(spec.think.mean_ns());
        let load = match spec.model {
            Model::Closed { users } => Load::Users { users, at_most_per_s: per_s(users, every_ns) },
            Model::Open { rate_per_s, max_in_flight, .. } => Load::Rate { rate_per_s, max_in_flight },
        };
        let hosts = || spec.hosts.iter().flatten().filter(|a| matches!(a, Address::Inet(_)));
        let mut planned = Demand::shaped(&load, spec.ramp_ns);
        planned.rise_in(&spec.stages);
        if let Some(held) = &spec.held {
            planned.connections = held.connections;
            planned.connections_most = held.connections;
            // Held connections are opened at their own rate, before the load starts.
            planned.burst = 0;
        }
        planned.keep_alive = spec.keep_alive;
        planned.new_in_all = match spec.until {
            Until::Requests(n) => Some(n),
            Until::Repeats(n) => Some(all(n, planned.connections, spec.requests.len())),
            Until::Elapsed(_) => None,
        };
        if let Some(http2) = &spec.http2 {
            let hosts = spec.hosts.len() as u64;
            let share = |users| sharing(users, spec.busy_threads(), u64::from(http2.streams), hosts);
            planned.share_connections(share);
        }
        planned.duration_s = spec.schedule_ns().map(|ns| ns as f64 / 1e9);
        planned.destinations = unique(hosts().map(ToString::to_string));
        planned.is_tcp = !planned.destinations.is_empty();
        planned.loopback = hosts().all(Address::is_local);
        planned.sources = (spec.sources.len() as u64).max(1);
        planned.threads = spec.threads as u64;
        planned.io = spec.io;
        planned
    }

    /// For a load of the plan. Names filled in only at run time are assumed to be components on this machine.
    pub fn of_load(load: &plan::LoadSpec, threads: usize) -> Demand {
        let shape = match load.model {
            plan::Model::Closed { users, pace_ns } => {
                let every_ns = pace_ns.or(load.think.mean_ns());
                Load::Users { users, at_most_per_s: per_s(users, every_ns) }
            }
            plan::Model::Open { rate_per_s, max_in_flight, .. } => Load::Rate { rate_per_s, max_in_flight },
            // Each user has its own connection.
            plan::Model::Sessions { rate_per_s, max_users, .. } => {
                Load::Rate { rate_per_s, max_in_flight: max_users }
            }
            // The command's connections are not known.
            plan::Model::Command(_) => Load::Users { users: 0, at_most_per_s: None },
        };
        let mut planned = Demand::shaped(&shape, load.ramp_ns);
        planned.rise_in(&load.stages);
        planned.keep_alive = load.keep_alive;
        let batches = u64::from(load.batches.max(1));
        match load.until {
            Until::Elapsed(ns) => {
                planned.duration_s = Some((load.start_ns + ns.saturating_mul(batches)) as f64 / 1e9);
            }
            Until::Requests(n) => planned.new_in_all = Some(n.saturating_mul(batches)),
            Until::Repeats(n) => {
                let of_steps = load.journey.iter().map(plan::Step::requests);
                // A round of a mix takes one of its steps.
                let requests = if load.script.is_mix { of_steps.max().unwrap_or(0) } else { of_steps.sum() };
                let each = all(n, planned.connections, requests as usize);
                planned.new_in_all = Some(each.saturating_mul(batches));
            }
        }
        if matches!(load.model, plan::Model::Sessions { .. }) {
            planned.close_with_users(load);
        }
        let urls: Vec<String> = match &load.http.proxy {
            Some(proxy) => vec![proxy.to_string()],
            // The contents of a URL list are unknown here.
            None => load.journey.iter().filter(|s| s.urls.is_none()).map(|s| s.url.to_string()).collect(),
        };
        // Unix sockets use no ports.
        let over_tcp = urls.iter().filter(|url| url::unix_socket(url).is_none());
        planned.destinations = unique(over_tcp.map(|url| authority(url)));
        let has_list = load.http.proxy.is_none() && load.journey.iter().any(|step| step.urls.is_some());
        planned.is_tcp = has_list || !planned.destinations.is_empty();
        planned.loopback = planned.destinations.iter().all(|d| is_here(d));
        let v4 = |d: &String| d.starts_with("127.") || d.starts_with("${");
        if planned.destinations.iter().all(v4) && matches!(load.model, plan::Model::Closed { .. }) {
            planned.sources = sources_on_loopback(planned.connections).max(1);
        }
        planned.threads = load.threads.map_or(threads as u64, u64::from).max(1);
        planned.share_streams(load, &urls);
        planned
    }

    /// For arriving users: each opens its own connection and closes it on leaving.
    fn close_with_users(&mut self, load: &plan::LoadSpec) {
        let each = match load.keep_alive {
            true => 1,
            false if load.script.is_mix => {
                load.script.user_setup.len() as u64 + 1 + load.script.user_teardown.len() as u64
            }
            false => load.steps().count() as u64,
        };
        self.new_per_s = self.new_per_s.map(|users_per_s| users_per_s * each as f64);
        self.new_in_all = self.new_in_all.map(|users| users.saturating_mul(each));
        self.keep_alive = false;
    }

    /// Over HTTP/2, several users or requests in flight share a connection, which stays open.
    fn share_streams(&mut self, load: &plan::LoadSpec, urls: &[String]) {
        let hosts = (self.destinations.len() as u64).max(1);
        let (threads, streams) = (self.threads, u64::from(load.http.streams_per_connection));
        let share = |all: u64| sharing(all, threads, streams, hosts);
        match load.http.protocol {
            plan::Protocol::Http1 => {}
            plan::Protocol::Http2 => {
                self.keep_alive = true;
                self.share_connections(share);
            }
            // Whether connections are shared is up to the servers; that is negotiated when the load starts.
            plan::Protocol::Auto => {
                if urls.iter().any(|url| url.to_ascii_lowercase().starts_with("https:")) {
                    self.connections = self.connections.min(share(self.connections));
                }
            }
        }
    }

    /// Reduces the connection counts to those needed when users share connections.
    fn share_connections(&mut self, share: impl Fn(u64) -> u64) {
        self.connections = share(self.connections);
        self.connections_most = share(self.connections_most);
        self.burst = share(self.burst);
    }

    /// For a case: all its loads together. `None` if it has no load that the engine sends.
    pub fn of_case(case: &plan::Case, threads: usize) -> Option<Demand> {
        let loads = case.loads.iter().filter(|l| l.command().is_none());
        let mut planned = Demand::together(loads.map(|l| Demand::of_load(l, threads)).collect())?;
        let processes =
            case.system.components.iter().filter(|c| matches!(c.kind, plan::ComponentKind::Process(_)));
        let files = processes.filter_map(|c| Some((c.limits.open_files?, c.name.clone())));
        planned.component_files = files.max_by_key(|(files, _)| *files);
        Some(planned)
    }

    fn shaped(load: &Load, ramp_ns: u64) -> Demand {
        let (connections, connections_most, burst, rate_per_s) = match *load {
            Load::Users { users, at_most_per_s } => {
                let in_a_second = users as f64 * (1e9 / ramp_ns.max(1) as f64).min(1.0);
                (users, users, in_a_second.ceil() as u64, at_most_per_s)
            }
            // A rate's connections are opened on demand; the cap matters only when the system falls behind.
            Load::Rate { rate_per_s, max_in_flight } => {
                (1.min(max_in_flight), max_in_flight, 0, Some(rate_per_s))
            }
        };
        Demand {
            connections,
            connections_most,
            burst,
            keep_alive: true,
            new_per_s: rate_per_s,
            new_in_all: None,
            duration_s: None,
            destinations: Vec::new(),
            is_tcp: true,
            loopback: true,
            sources: 1,
            threads: 1,
            io: IoChoice::Auto,
            component_files: None,
            isolation: plan::Isolation::None,
            parts: Vec::new(),
        }
    }

    /// This demand, within the networks that the plan creates for a run.
    #[must_use]
    pub fn isolated(mut self, isolation: plan::Isolation) -> Demand {
        self.parts = self.parts.into_iter().map(|part| part.isolated(isolation)).collect();
        self.isolation = isolation;
        // A component is then reached at the address of its link, from the load's single address.
        if isolation == plan::Isolation::Each && self.destinations.iter().any(|d| d.starts_with("${")) {
            self.sources = 1;
        }
        self
    }

    /// With stages, users arrive as fast as in the steepest one, including jumps.
    fn rise_in(&mut self, stages: &[Stage]) {
        let (mut level, mut most) = (0.0, None::<f64>);
        for stage in stages {
            let slope = (stage.to - stage.from).max(0.0) * (1e9 / stage.over_ns.max(1) as f64).min(1.0);
            most = Some(most.unwrap_or(0.0).max((stage.from - level).max(0.0) + slope));
            level = stage.to;
        }
        if let (Some(most), true) = (most, self.burst > 0) {
            self.burst = most.ceil() as u64;
        }
    }

    /// Combines concurrent loads; `None` if there are none.
    fn together(mut loads: Vec<Demand>) -> Option<Demand> {
        if loads.len() <= 1 {
            return loads.pop();
        }
        let sum = |of: fn(&Demand) -> u64| loads.iter().map(of).fold(0, u64::saturating_add);
        let closing = || loads.iter().filter(|load| !load.keep_alive);
        let first = loads.first()?;
        let io = if loads.iter().all(|load| load.io == first.io) { first.io } else { IoChoice::Auto };
        let durations =
            loads.iter().map(|load| load.duration_s).reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b)));
        Some(Demand {
            connections: sum(|load| load.connections),
            connections_most: sum(|load| load.connections_most),
            burst: sum(|load| load.burst),
            keep_alive: closing().next().is_none(),
            new_per_s: closing().map(|load| load.new_per_s).sum(),
            new_in_all: closing().map(|load| load.new_in_all).sum(),
            duration_s: durations.flatten(),
            destinations: unique(loads.iter().flat_map(|load| load.destinations.iter().cloned())),
            is_tcp: loads.iter().any(|load| load.is_tcp),
            loopback: loads.iter().all(|load| load.loopback),
            // Every load's source addresses begin with the same one.
            sources: loads.iter().map(|load| load.sources).max().unwrap_or(1),
            threads: sum(|load| load.threads),
            io,
            component_files: loads.iter().filter_map(|load| load.component_files.clone()).max(),
            isolation: first.isolation,
            parts: loads,
        })
    }

    /// The loads that connect over TCP, grouped by the pool of ports they share: they have a destination in common, and
    /// all connect either from the kernel's address or from addresses that loadlab chooses.
    pub(super) fn by_ports(&self) -> Vec<Demand> {
        let mut groups: Vec<Vec<Demand>> = Vec::new();
        let parts = if self.parts.is_empty() { std::slice::from_ref(self) } else { &self.parts };
        for part in parts.iter().filter(|part| part.is_tcp) {
            let is_chosen = part.sources > 1;
            let is_shared = |other: &Demand| {
                is_chosen == (other.sources > 1)
                    && other.destinations.iter().any(|d| part.destinations.contains(d))
            };
            let (same, others): (Vec<_>, Vec<_>) =
                groups.into_iter().partition(|group| group.iter().any(is_shared));
            groups = others;
            groups.push(same.into_iter().flatten().chain([part.clone()]).collect());
        }
        groups.into_iter().filter_map(Demand::together).collect()
    }

    /// Maximum number of connections opened within `seconds`, including closed ones; `None` if unbounded.
    pub(super) fn opened_within(&self, seconds: f64) -> Option<f64> {
        self.opened(seconds, |kept| kept.connections_most)
    }

    /// As `opened_within`, without connections that are opened only if the system falls behind.
    pub(super) fn surely_opened_within(&self, seconds: f64) -> Option<f64> {
        self.opened(seconds, |kept| kept.connections)
    }

    fn opened(&self, seconds: f64, kept: fn(&Demand) -> u64) -> Option<f64> {
        if !self.parts.is_empty() {
            return self.parts.iter().map(|part| part.opened(seconds, kept)).sum();
        }
        if self.keep_alive {
            return Some(kept(self) as f64);
        }
        let by_rate = self.new_per_s.map(|r| r * self.duration_s.map_or(seconds, |d| d.min(seconds)));
        let by_count = self.new_in_all.map(|n| n as f64);
        match (by_rate, by_count) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// Connections needed for `all` users or requests in flight over HTTP/2. Each thread that has any uses its own
/// connections, one per `streams` users, for each host.
fn sharing(all: u64, threads: u64, streams: u64, hosts: u64) -> u64 {
    let threads = threads.min(all).max(1);
    let each = all.div_ceil(threads).div_ceil(streams.max(1));
    each.saturating_mul(threads).saturating_mul(hosts)
}

/// Requests per second when each of `users` sends one per `every_ns`.
fn per_s(users: u64, every_ns: Option<u64>) -> Option<f64> {
    every_ns.filter(|ns| *ns > 0).map(|ns| users as f64 * 1e9 / ns as f64)
}

/// Requests in `repeats` rounds of a journey by `users` users.
fn all(repeats: u64, users: u64, steps: usize) -> u64 {
    repeats.saturating_mul(users).saturating_mul(steps as u64)
}

fn unique(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for item in items {
        if !out.contains(&item) {
            out.push(item);
        }
    }
    out
}

/// Host and port of a URL that may still contain `${names}`, and of a proxy's URL also credentials.
fn authority(url: &str) -> String {
    url::authority_of(url).to_ascii_lowercase()
}

/// Whether this is a loopback address or a placeholder for a component.
fn is_here(authority: &str) -> bool {
    authority.starts_with("127.")
        || authority.starts_with("[::1]")
        || authority.starts_with("${")
        || authority.split(':').next() == Some("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_and_where_they_are() {
        for (url, expect, here) in [
            ("http://127.0.0.1:8080/a", "127.0.0.1:8080", true),
            ("http://LocalHost?x", "localhost", true),
            ("http://[::1]:80/", "[::1]:80", true),
            ("http://127.0.0.1:${components.web.port}/x", "127.0.0.1:${components.web.port}", true),
            ("${case.url}/x", "${case.url}", true),
            ("http://localhost.example.org/", "localhost.example.org", false),
            ("http://10.0.0.1:80", "10.0.0.1:80", false),
        ] {
            assert_eq!((authority(url).as_str(), is_here(&authority(url))), (expect, here), "{url}");
        }
    }

    #[test]
    fn loads_of_a_plan_add_up() {
        let text = "loadlab: 1\nname: n\nloads:\n  a: { users: 3000, ramp: 10s, duration: 1m, journey: [ { get: \"http://127.0.0.1:1/\" } ] }\n  \
            b: { rate: 50/s, max_in_flight: 70, duration: 30s, keep_alive: false, threads: 3, journey: [ { get: \"http://127.0.0.1:1/x\" }, { get: \"http://10.0.0.9:2/\" } ] }\n";
        let plan = plan::Plan::parse("p.yaml", text, &plan::Options::default()).unwrap();
        let planned = Demand::of_case(&plan.cases()[0], 1).unwrap();
        assert_eq!((planned.connections, planned.connections_most, planned.burst), (3001, 3070, 300));
        assert_eq!((planned.threads, planned.loopback, planned.keep_alive), (4, false, false));
        assert_eq!(planned.destinations, ["127.0.0.1:1", "10.0.0.9:2"]);
        let staged = text.replace(
            "users: 3000, ramp: 10s, duration: 1m",
            "start: 1m, stages: [{ from: 50, to: 3000, over: 10s }, { hold: 1m }]",
        );
        let plan = plan::Plan::parse("p.yaml", &staged, &plan::Options::default()).unwrap();
        let stages = Demand::of_case(&plan.cases()[0], 1).unwrap();
        assert_eq!((stages.connections, stages.burst, stages.duration_s), (3001, 345, Some(130.0)));
        let limited = format!(
            "{text}system: {{ components: {{ a: {{ run: x }}, b: {{ run: x, limits: {{ open_files: 50000 }} }} }} }}\n"
        );
        let plan = plan::Plan::parse("p.yaml", &limited, &plan::Options::default()).unwrap();
        let of_b = Demand::of_case(&plan.cases()[0], 1).unwrap().component_files;
        assert_eq!(of_b, Some((50_000, "b".to_owned())));
        // On loopback, many users connect from addresses that loadlab chooses.
        let many = "loadlab: 1\nname: n\nload: { users: 20000, duration: 1m, journey: [ { get: \"http://127.0.0.1:${components.a.port}/\" } ] }\n\
            system: { components: { a: { run: x, port: auto } } }\n";
        let sources = |text: &str| {
            let plan = plan::Plan::parse("p.yaml", text, &plan::Options::default()).unwrap();
            Demand::of_case(&plan.cases()[0], 1).unwrap().sources
        };
        assert_eq!((sources(many), sources(text), planned.component_files.clone()), (3, 1, None));
        // Without a pace, the rate of users is limited only by the responses.
        let users = &planned.parts[0];
        assert_eq!((users.new_per_s, users.new_in_all, planned.duration_s), (None, None, Some(60.0)));
        // Only connections that are not reused count as newly opened.
        assert_eq!((planned.new_per_s, planned.opened_within(10.0)), (Some(50.0), Some(3500.0)));
        assert_eq!(planned.surely_opened_within(60.0), Some(3000.0 + 50.0 * 30.0));
    }

    #[test]
    fn unix_sockets_have_no_ports_and_a_proxy_is_the_one_destination() {
        let destinations = |load: &str, step: &str| {
            let text = format!(
                "loadlab: 1\nname: n\nload:\n  users: 9\n  requests: 9\n{load}  journey:\n    - {{ {step} }}\n    - {{ get: \"unix:/run/x:/\" }}\n"
            );
            let plan = plan::Plan::parse("p.yaml", &text, &plan::Options::default()).unwrap();
            let planned = Demand::of_case(&plan.cases()[0], 1).unwrap();
            (planned.destinations, planned.loopback)
        };
        assert_eq!(destinations("", "get: \"unix:/run/x:/y\""), (vec![], true));
        assert_eq!(destinations("", "urls: list"), (vec![], true));
        assert_eq!(destinations("", "get: \"http://10.0.0.1/\""), (vec!["10.0.0.1".to_owned()], false));
        let proxied = destinations("  proxy: http://a:b@127.0.0.1:3128\n", "get: \"http://10.0.0.1/\"");
        assert_eq!(proxied, (vec!["127.0.0.1:3128".to_owned()], true));
    }

    #[test]
    fn connections_opened_within_a_time() {
        let text = |more: &str| {
            format!(
                "loadlab: 1\nname: n\nload: {{ {more}, keep_alive: false, journey: [ {{ get: \"http://127.0.0.1:1/\" }} ] }}\n"
            )
        };
        for (more, expect) in [
            ("rate: 100/s, duration: 10s", Some(1000.0)),
            ("rate: 100/s, duration: 10m", Some(6000.0)),
            ("rate: 100/s, requests: 300", Some(300.0)),
            ("users: 10, pace: 100ms, duration: 10s", Some(1000.0)),
            ("users: 10, think: { uniform: [0s, 200ms] }, duration: 10s", Some(1000.0)),
            ("stages: [{ to: 100/s, over: 10s }]", Some(1000.0)),
            ("users: 10, requests: 70", Some(70.0)),
            ("users: 10, repeats: 7", Some(70.0)),
            ("users: 10, duration: 10s", None),
        ] {
            let plan = plan::Plan::parse("p.yaml", &text(more), &plan::Options::default()).unwrap();
            let planned = Demand::of_case(&plan.cases()[0], 1).unwrap();
            assert_eq!(planned.opened_within(60.0), expect, "{more}");
        }
    }

    fn planned(text: &str) -> Demand {
        let plan = plan::Plan::parse("p.yaml", text, &plan::Options::default()).unwrap();
        Demand::of_case(&plan.cases()[0], 1).unwrap().isolated(plan.isolate)
    }

    #[test]
    fn users_of_http2_share_connections() {
        let of = |load: &str, url: &str| {
            let load = load.replace("STREAMS", "streams_per_connection: 100");
            let planned = planned(&format!(
                "loadlab: 1\nname: n\nload: {{ {load}, duration: 1m, threads: 2, journey: [ {{ get: \"{url}\" }} ] }}\n"
            ));
            (planned.connections, planned.connections_most, planned.burst)
        };
        let (http, https) = ("http://127.0.0.1:1/", "https://127.0.0.1:1/");
        for (load, url, expect) in [
            ("users: 30000", http, (30_000, 30_000, 30_000)),
            ("users: 30000, protocol: http/2, STREAMS", http, (300, 300, 300)),
            ("users: 30000, ramp: 10s, protocol: http/2, STREAMS", http, (300, 300, 30)),
            // Each thread has its own connections.
            ("users: 101, protocol: http/2, STREAMS", http, (2, 2, 2)),
            ("users: 201, protocol: http/2, STREAMS", http, (4, 4, 4)),
            ("users: 1, protocol: http/2, STREAMS", http, (1, 1, 1)),
            ("users: 30, protocol: http/2", http, (30, 30, 30)),
            ("rate: 9/s, max_in_flight: 5000, protocol: http/2, STREAMS", http, (1, 50, 0)),
            // The servers decide.
            ("users: 30000, protocol: auto, STREAMS", https, (300, 30_000, 30_000)),
            ("users: 30000, protocol: auto, STREAMS", http, (30_000, 30_000, 30_000)),
        ] {
            assert_eq!(of(load, url), expect, "{load} {url}");
        }
        let two = "users: 200, protocol: http/2, streams_per_connection: 100, duration: 1m, threads: 2, journey: \
                   [ { get: \"http://127.0.0.1:1/\" }, { get: \"http://127.0.0.1:2/\" } ]";
        let two = planned(&format!("loadlab: 1\nname: n\nload: {{ {two} }}\n"));
        assert_eq!(two.connections, 4, "a connection to each host");
    }

    #[test]
    fn users_that_arrive_close_their_connections() {
        let step = "{ get: \"http://127.0.0.1:1/\" }";
        for (load, steps, expect) in [
            ("sessions: 50/s, duration: 10s", 3, Some(500.0)),
            ("sessions: 50/s, duration: 10m", 3, Some(3000.0)),
            ("sessions: 50/s, duration: 10s, keep_alive: false", 3, Some(1500.0)),
            ("sessions: 50/s, requests: 40", 3, Some(40.0)),
            ("sessions: 50/s, duration: 10s, batches: { repeat: 4 }", 1, Some(2000.0)),
            ("sessions: 50/s, duration: 10s, protocol: http/2", 1, Some(10_000.0)),
            ("rate: 50/s, duration: 10s, max_in_flight: 70", 1, Some(70.0)),
            ("rate: 50/s, duration: 10s, batches: { repeat: 4 }, keep_alive: false", 1, Some(2000.0)),
            ("rate: 50/s, requests: 100, batches: { repeat: 4 }, keep_alive: false", 1, Some(400.0)),
        ] {
            let steps = vec![step; steps].join(", ");
            let planned =
                planned(&format!("loadlab: 1\nname: n\nload: {{ {load}, journey: [ {steps} ] }}\n"));
            assert_eq!(planned.opened_within(60.0), expect, "{load}");
        }
    }

    #[test]
    fn the_address_of_a_component_is_its_links_where_each_has_its_own_network() {
        let sources = |isolate: &str| {
            planned(&format!(
                "loadlab: 1\nname: n\nisolate: {isolate}\nsystem: {{ components: {{ web: {{ run: x }} }} }}\n\
                 load: {{ users: 40000, duration: 1m, journey: [ {{ get: \"http://${{components.web.address}}:80/\" }} ] }}\n"
            ))
            .sources
        };
        assert_eq!((sources("true"), sources("shared"), sources("false")), (1, 5, 5));
    }

    #[test]
    fn loads_share_ports_where_they_connect_to_the_same_place() {
        let groups = |loads: &[(&str, u64)]| {
            let journey = |urls: &str| {
                let steps: Vec<String> = urls.split(' ').map(|url| format!("{{ get: \"{url}\" }}")).collect();
                steps.join(", ")
            };
            let loads: Vec<String> = loads
                .iter()
                .enumerate()
                .map(|(at, (urls, users))| {
                    format!("  l{at}: {{ users: {users}, duration: 1s, journey: [ {} ] }}\n", journey(urls))
                })
                .collect();
            let planned = planned(&format!("loadlab: 1\nname: n\nloads:\n{}", loads.concat()));
            let mut all: Vec<(u64, u64, usize)> = planned
                .by_ports()
                .iter()
                .map(|group| (group.connections, group.sources, group.destinations.len()))
                .collect();
            all.sort_unstable();
            all
        };
        let (a, b, ab) = ("http://10.0.0.1/", "http://10.0.0.2/", "http://10.0.0.1/ http://10.0.0.2/");
        let here = "http://127.0.0.1:1/";
        assert_eq!(groups(&[(a, 5), (a, 7)]), [(12, 1, 1)]);
        assert_eq!(groups(&[(a, 5), (b, 7)]), [(5, 1, 1), (7, 1, 1)]);
        assert_eq!(groups(&[(a, 5), (b, 7), (ab, 1)]), [(13, 1, 2)]);
        // Loads with their own source addresses use none of the kernel's ports.
        assert_eq!(groups(&[(here, 60_000), (here, 9)]), [(9, 1, 1), (60_000, 8, 1)]);
        assert_eq!(groups(&[("unix:/run/x:/", 5), (a, 7)]), [(7, 1, 1)]);
        assert_eq!(groups(&[("unix:/run/x:/", 5)]), []);
    }
}
