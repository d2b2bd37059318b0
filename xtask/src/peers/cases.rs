//! The closed-model rows of the comparison: what is requested, from which tools, and which targets loadlab must meet.

use super::table::{Bound, Target};

/// The kind of request in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// GET on connections that are reused as soon as they are answered.
    KeepAlive,
    /// GET on a new connection each time, with `Connection: close`, closed cleanly.
    Close,
    /// POST of a kilobyte on reused connections.
    Post,
    /// [`Ask::KeepAlive`] over TLS 1.3.
    Secure,
    /// [`Ask::Close`] over TLS 1.3: a full handshake each time.
    Handshake,
    /// GET over HTTP/2, [`STREAMS`] at a time on a connection.
    Streams,
    /// Two requests, the second of which carries a value from the first one's answer; each user takes a row of data for
    /// them and checks both answers.
    Journey,
    /// GET at a rate, whatever the server does; these rows are in [`open`](super::open).
    Rate,
}

impl Ask {
    /// Whether a connection serves only one request.
    pub fn closes(self) -> bool {
        matches!(self, Ask::Close | Ask::Handshake)
    }
}

/// Requests in flight on a connection that has streams.
pub const STREAMS: u64 = 10;

/// Index, in a run's figures, of the requests answered per second of the generator's CPU time.
pub const PER_CPU: usize = 0;
/// Index of the requests that the server answered, per second.
pub const RATE: usize = 1;
/// Index of the generator's own median of the response time, in milliseconds.
pub const P50: usize = 2;
/// Index of the peak resident memory, in bytes.
pub const PEAK: usize = 3;

/// What all tools of a row have to do.
pub struct Case {
    /// Name for `--case`; rows with the same name run together.
    pub name: &'static str,
    /// Title in the table.
    pub title: &'static str,
    /// Path on the server.
    pub path: &'static str,
    /// Requests in flight, each on its own connection unless there are streams.
    pub users: u64,
    /// The kind of request.
    pub ask: Ask,
    /// Names of the tools that run it, separated by spaces.
    pub tools: &'static str,
    /// If given, each tool runs once, for this many seconds.
    pub once_s: Option<u64>,
    /// Targets for this row.
    pub targets: &'static [Target],
}

impl Case {
    /// Whether a tool runs this row; another revision of loadlab runs wherever loadlab does.
    pub fn asks(&self, tool: &str) -> bool {
        let tool = tool.replace("before", "loadlab");
        self.tools.split(' ').any(|asked| asked == tool)
    }
}

const fn ratio(of: &'static str, figure: usize, bound: Bound, against: &'static str) -> Target {
    Target { of, figure, bound, against }
}

const fn peak_mb(most: f64) -> Target {
    Target { of: "loadlab", figure: PEAK, bound: Bound::AtMost(most * 1e6), against: "" }
}

const BESIDE_BARE: Target = ratio("loadlab", PER_CPU, Bound::AtLeast(0.95), "bare-uring");
const BESIDE_BARE_EPOLL: Target = ratio("loadlab-epoll", PER_CPU, Bound::AtLeast(0.95), "bare-epoll");
const BODIES: &[Target] = &[ratio("loadlab", PER_CPU, Bound::AtLeast(1.05), "wrk")];

const ALL: &str = "loadlab loadlab-epoll bare-uring bare-epoll wrk ab h2load hey siege oha k6";
/// The fast tools. The others are far behind: the first row shows by how much.
const FAST: &str = "loadlab loadlab-epoll bare-uring bare-epoll wrk ab h2load";
/// loadlab and similar generators.
const ALIKE: &str = "loadlab wrk ab h2load hey oha";

const GET_50: Case = Case {
    name: "get-50",
    title: "GET 128 B, 50 connections",
    path: "/128",
    users: 50,
    ask: Ask::KeepAlive,
    tools: ALL,
    once_s: None,
    targets: &[
        ratio("loadlab", PER_CPU, Bound::AtLeast(1.12), "wrk"),
        ratio("loadlab", RATE, Bound::AtLeast(0.98), "wrk"),
        ratio("loadlab", P50, Bound::AtMost(1.05), "wrk"),
        BESIDE_BARE,
        BESIDE_BARE_EPOLL,
    ],
};
const BODY: Case = Case { tools: ALIKE, targets: BODIES, ..GET_50 };
const TLS: Case = Case { tools: "loadlab loadlab-epoll wrk oha", ..GET_50 };
const MEMORY: Case =
    Case { name: "memory-50", tools: "loadlab", targets: &[], once_s: Some(5), title: SHORT, ..GET_50 };

/// Title of the shorter memory row: memory must not grow from this one to [`LONG`].
pub const SHORT: &str = "50 connections, 5 s";
/// Title of the longer memory row.
pub const LONG: &str = "50 connections, 60 s";

/// All rows of the closed model.
pub const CASES: &[Case] = &[
    GET_50,
    Case { name: "get-200", title: "GET 128 B, 200 connections", users: 200, tools: FAST, ..GET_50 },
    Case { name: "get-1000", title: "GET 128 B, 1,000 connections", users: 1000, tools: FAST, ..GET_50 },
    Case {
        name: "close",
        title: "GET 128 B, a connection each, 50 at a time",
        ask: Ask::Close,
        tools: "loadlab loadlab-epoll bare-uring bare-epoll wrk ab hey oha",
        targets: &[ratio("loadlab", PER_CPU, Bound::AtLeast(1.25), "wrk"), BESIDE_BARE, BESIDE_BARE_EPOLL],
        ..GET_50
    },
    Case { name: "post-1k", title: "POST 1 KiB, 50 connections", path: "/post", ask: Ask::Post, ..BODY },
    Case { name: "get-10k", title: "GET 10 KiB, 50 connections", path: "/10240", ..BODY },
    Case { name: "get-1m", title: "GET 1 MiB, 50 connections", path: "/1048576", ..BODY },
    Case {
        name: "tls-50",
        title: "https (TLS 1.3), GET 128 B, 50 connections",
        ask: Ask::Secure,
        targets: &[ratio("loadlab", PER_CPU, Bound::AtLeast(1.0), "wrk")],
        ..TLS
    },
    Case {
        name: "tls-close",
        title: "https (TLS 1.3), a full handshake each, 50 at a time",
        ask: Ask::Handshake,
        targets: &[ratio("loadlab", PER_CPU, Bound::AtLeast(1.2), "wrk")],
        ..TLS
    },
    Case {
        name: "http2-20x10",
        title: "HTTP/2, GET 128 B, 10 streams on each of 20 connections",
        users: 200,
        ask: Ask::Streams,
        tools: "loadlab loadlab-epoll h2load oha",
        targets: &[ratio("loadlab", PER_CPU, Bound::AtLeast(1.0), "h2load")],
        ..GET_50
    },
    Case {
        name: "journey-50",
        title: "journeys of two steps with a feed, a capture and checks, 50 users",
        path: "",
        ask: Ask::Journey,
        tools: "loadlab k6",
        targets: &[ratio("loadlab", PER_CPU, Bound::AtLeast(4.0), "k6")],
        ..GET_50
    },
    MEMORY,
    Case { title: LONG, once_s: Some(60), targets: &[peak_mb(10.0)], ..MEMORY },
    Case {
        name: "memory-10000",
        title: "10,000 connections",
        users: 10_000,
        tools: ALIKE,
        targets: &[peak_mb(20.0)],
        ..MEMORY
    },
];

#[cfg(test)]
mod tests {
    use super::super::tools::TOOLS;
    use super::*;

    #[test]
    fn titles_are_unique_tools_can_do_it_and_targets_are_between_those() {
        for (i, case) in CASES.iter().enumerate() {
            assert!(CASES[..i].iter().all(|c| c.title != case.title), "{}", case.title);
            for name in case.tools.split(' ') {
                let tool = TOOLS.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no {name}"));
                assert!(tool.asks.iter().any(|(ask, _)| *ask == case.ask), "{}: {name}", case.name);
            }
            for target in case.targets {
                let names = [target.of, target.against];
                assert!(names.iter().all(|n| n.is_empty() || case.asks(n)), "{}: {names:?}", case.name);
            }
        }
        assert!(CASES[0].asks("before-epoll") && !BODY.asks("before-epoll"));
    }
}
