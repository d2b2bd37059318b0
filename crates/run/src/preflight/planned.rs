//! What a load will ask of the machine, computed before it runs.

use loadlab_load::target::{Address, sources_on_loopback};
use loadlab_load::{IoChoice, LoadSpec, Model, Until};
use loadlab_plan as plan;

/// What a load, or several at once, will ask of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Connections that will be open at one time.
    pub connections: u64,
    /// Connections that may be open when the system falls behind; at least `connections`.
    pub connections_most: u64,
    /// Connections opened within the first moment or, with a ramp, within a second.
    pub burst: u64,
    /// Connections are reused.
    pub keep_alive: bool,
    /// The highest rate of requests per second, if the schedule bounds it.
    pub rate_per_s: Option<f64>,
    /// Requests in all, if they are counted.
    pub requests: Option<u64>,
    /// Length in seconds, if it is bounded by time.
    pub duration_s: Option<f64>,
    /// Destinations, each address and port once.
    pub destinations: Vec<String>,
    /// Every destination is this machine.
    pub loopback: bool,
    /// Addresses it connects from.
    pub sources: u64,
    /// Load threads.
    pub threads: u64,
    /// The backend asked for.
    pub io: IoChoice,
    /// The highest number of open files that a process component is to get, and which component.
    pub component_files: Option<(u64, String)>,
}

/// When users or requests are due, common to both kinds of plan.
enum Load {
    Users { users: u64, at_most_per_s: Option<f64> },
    Rate { rate_per_s: f64, max_in_flight: u64 },
}

impl Planned {
    /// For a load that is ready for the engine.
    pub fn of(spec: &LoadSpec) -> Planned {
        let every_ns = spec.pace_ns.or(spec.think.mean_ns());
        let steps = spec.stages.iter().map(|s| (s.from, s.to, s.over_ns));
        let load = match spec.model {
            Model::Closed { users } => Load::Users { users, at_most_per_s: per_s(users, every_ns) },
            Model::Open { rate_per_s, max_in_flight, .. } => Load::Rate { rate_per_s, max_in_flight },
        };
        let hosts = || spec.hosts.iter().flatten().filter(|a| matches!(a, Address::Inet(_)));
        let mut planned = Planned::shaped(&load, spec.ramp_ns);
        planned.rise_in(steps);
        if let Some(held) = &spec.held {
            planned.connections = held.connections;
            planned.connections_most = held.connections;
            // Opened at their own rate, before the load begins.
            planned.burst = 0;
        }
        planned.keep_alive = spec.keep_alive;
        planned.requests = match spec.until {
            Until::Requests(n) => Some(n),
            Until::Repeats(n) => Some(all(n, planned.connections, spec.requests.len())),
            Until::Elapsed(_) => None,
        };
        planned.duration_s = spec.schedule_ns().map(|ns| ns as f64 / 1e9);
        planned.destinations = unique(hosts().map(ToString::to_string));
        planned.loopback = hosts().all(Address::is_local);
        planned.sources = (spec.sources.len() as u64).max(1);
        planned.threads = spec.threads as u64;
        planned.io = spec.io;
        planned
    }

    /// For a plan's load. Names that only a run fills in are taken as this machine's own components.
    pub fn of_load(load: &plan::LoadSpec, threads: usize) -> Planned {
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
            // Its connections are its own business.
            plan::Model::Command(_) => Load::Users { users: 0, at_most_per_s: None },
        };
        let mut planned = Planned::shaped(&shape, load.ramp_ns);
        planned.rise_in(load.stages.iter().map(|s| (s.from, s.to, s.over_ns)));
        planned.keep_alive = load.keep_alive;
        match load.until {
            Until::Elapsed(ns) => planned.duration_s = Some((load.start_ns + ns) as f64 / 1e9),
            Until::Requests(n) => planned.requests = Some(n),
            Until::Repeats(n) => {
                let requests = load.journey.iter().map(plan::Step::requests).sum::<u64>();
                planned.requests = Some(all(n, planned.connections, requests as usize));
            }
        }
        let urls: Vec<String> = match &load.http.proxy {
            Some(proxy) => vec![proxy.to_string()],
            // The contents of a URL list are unknown here.
            None => load.journey.iter().filter(|s| s.urls.is_none()).map(|s| s.url.to_string()).collect(),
        };
        // Unix sockets have no ports to run out of.
        let over_tcp = urls.iter().filter(|url| !url.to_ascii_lowercase().starts_with("unix:"));
        planned.destinations = unique(over_tcp.map(|url| authority(url)));
        planned.loopback = planned.destinations.iter().all(|d| is_here(d));
        let v4 = |d: &String| d.starts_with("127.") || d.starts_with("${");
        if planned.destinations.iter().all(v4) && matches!(load.model, plan::Model::Closed { .. }) {
            planned.sources = sources_on_loopback(planned.connections).max(1);
        }
        planned.threads = load.threads.map_or(threads as u64, u64::from).max(1);
        planned
    }

    /// For a case: all its loads together.
    pub fn of_case(case: &plan::Case, threads: usize) -> Option<Planned> {
        let loads = case.loads.iter().filter(|l| l.command().is_none());
        let mut planned = loads.map(|l| Planned::of_load(l, threads)).reduce(Planned::beside)?;
        let processes =
            case.system.components.iter().filter(|c| matches!(c.part, plan::ComponentKind::Process(_)));
        let files = processes.filter_map(|c| Some((c.limits.open_files?, c.name.clone())));
        planned.component_files = files.max_by_key(|(files, _)| *files);
        Some(planned)
    }

    fn shaped(load: &Load, ramp_ns: u64) -> Planned {
        let (connections, connections_most, burst, rate_per_s) = match *load {
            Load::Users { users, at_most_per_s } => {
                let in_a_second = users as f64 * (1e9 / ramp_ns.max(1) as f64).min(1.0);
                (users, users, in_a_second.ceil() as u64, at_most_per_s)
            }
            // A rate's connections are opened when needed; the cap is for when things go wrong.
            Load::Rate { rate_per_s, max_in_flight } => {
                (1.min(max_in_flight), max_in_flight, 0, Some(rate_per_s))
            }
        };
        Planned {
            connections,
            connections_most,
            burst,
            keep_alive: true,
            rate_per_s,
            requests: None,
            duration_s: None,
            destinations: Vec::new(),
            loopback: true,
            sources: 1,
            threads: 1,
            io: IoChoice::Auto,
            component_files: None,
        }
    }

    /// In stages (from, to, duration) users arrive as fast as at the steepest one, including jumps.
    fn rise_in(&mut self, stages: impl Iterator<Item = (f64, f64, u64)>) {
        let (mut level, mut most) = (0.0, None::<f64>);
        for (from, to, over_ns) in stages {
            let slope = (to - from).max(0.0) * (1e9 / over_ns.max(1) as f64).min(1.0);
            most = Some(most.unwrap_or(0.0).max((from - level).max(0.0) + slope));
            level = to;
        }
        if let (Some(most), true) = (most, self.burst > 0) {
            self.burst = most.ceil() as u64;
        }
    }

    /// Both at once.
    pub fn beside(self, other: Planned) -> Planned {
        let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
        Planned {
            connections: self.connections.saturating_add(other.connections),
            connections_most: self.connections_most.saturating_add(other.connections_most),
            burst: self.burst.saturating_add(other.burst),
            keep_alive: self.keep_alive && other.keep_alive,
            rate_per_s: sum(self.rate_per_s, other.rate_per_s),
            requests: self.requests.zip(other.requests).map(|(a, b)| a.saturating_add(b)),
            duration_s: self.duration_s.zip(other.duration_s).map(|(a, b)| a.max(b)),
            destinations: unique(self.destinations.into_iter().chain(other.destinations)),
            loopback: self.loopback && other.loopback,
            sources: self.sources.min(other.sources),
            threads: self.threads.saturating_add(other.threads),
            io: if self.io == other.io { self.io } else { IoChoice::Auto },
            component_files: self.component_files.max(other.component_files),
        }
    }

    /// The most connections opened within this many seconds, including closed ones; `None` if unbounded.
    pub(super) fn opened_within(&self, seconds: f64) -> Option<f64> {
        if self.keep_alive {
            return Some(self.connections_most as f64);
        }
        let by_rate = self.rate_per_s.map(|r| r * self.duration_s.map_or(seconds, |d| d.min(seconds)));
        let by_count = self.requests.map(|n| n as f64);
        match (by_rate, by_count) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// Requests per second when each of `users` sends one per `every_ns`.
fn per_s(users: u64, every_ns: Option<u64>) -> Option<f64> {
    every_ns.filter(|ns| *ns > 0).map(|ns| users as f64 * 1e9 / ns as f64)
}

/// Requests of `repeats` rounds of a journey by `users` users.
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

/// Host and port of a URL that may still hold `${names}`.
fn authority(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A proxy's URL may have a user in front.
    rest[..end].rsplit('@').next().unwrap_or_default().to_ascii_lowercase()
}

/// A loopback address, or the name of a component.
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
        let planned = Planned::of_case(&plan.cases()[0], 1).unwrap();
        assert_eq!((planned.connections, planned.connections_most, planned.burst), (3001, 3070, 300));
        assert_eq!((planned.threads, planned.loopback, planned.keep_alive), (4, false, false));
        assert_eq!(planned.destinations, ["127.0.0.1:1", "10.0.0.9:2"]);
        let staged = text.replace(
            "users: 3000, ramp: 10s, duration: 1m",
            "start: 1m, stages: [{ from: 50, to: 3000, over: 10s }, { hold: 1m }]",
        );
        let plan = plan::Plan::parse("p.yaml", &staged, &plan::Options::default()).unwrap();
        let stages = Planned::of_case(&plan.cases()[0], 1).unwrap();
        assert_eq!((stages.connections, stages.burst, stages.duration_s), (3001, 345, Some(130.0)));
        let limited = format!(
            "{text}system: {{ components: {{ a: {{ run: x }}, b: {{ run: x, limits: {{ open_files: 50000 }} }} }} }}\n"
        );
        let plan = plan::Plan::parse("p.yaml", &limited, &plan::Options::default()).unwrap();
        let of_b = Planned::of_case(&plan.cases()[0], 1).unwrap().component_files;
        assert_eq!(of_b, Some((50_000, "b".to_owned())));
        // On loopback many users come from addresses that loadlab chooses.
        let many = "loadlab: 1\nname: n\nload: { users: 20000, duration: 1m, journey: [ { get: \"http://127.0.0.1:${components.a.port}/\" } ] }\n\
            system: { components: { a: { run: x, port: auto } } }\n";
        let sources = |text: &str| {
            let plan = plan::Plan::parse("p.yaml", text, &plan::Options::default()).unwrap();
            Planned::of_case(&plan.cases()[0], 1).unwrap().sources
        };
        assert_eq!((sources(many), sources(text), planned.component_files), (3, 1, None));
        // Users without a pace are limited only by the answers.
        assert_eq!((planned.rate_per_s, planned.requests, planned.duration_s), (None, None, Some(60.0)));
    }

    #[test]
    fn unix_sockets_have_no_ports_and_a_proxy_is_the_one_destination() {
        let destinations = |load: &str, step: &str| {
            let text = format!(
                "loadlab: 1\nname: n\nload:\n  users: 9\n  requests: 9\n{load}  journey:\n    - {{ {step} }}\n    - {{ get: \"unix:/run/x:/\" }}\n"
            );
            let plan = plan::Plan::parse("p.yaml", &text, &plan::Options::default()).unwrap();
            let planned = Planned::of_case(&plan.cases()[0], 1).unwrap();
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
            let planned = Planned::of_case(&plan.cases()[0], 1).unwrap();
            assert_eq!(planned.opened_within(60.0), expect, "{more}");
        }
    }
}
