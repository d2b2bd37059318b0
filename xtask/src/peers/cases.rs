//! The rows of the comparison: what is asked, of whom, and what loadlab is held to.

use super::targets::{Bound, Figure, Target};

/// What a row asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// GET on connections that are used again as soon as they are answered.
    KeepAlive,
    /// GET on a new connection each time, with `Connection: close`, closed in order.
    Close,
    /// POST of [`POSTED`] bytes on connections that are used again.
    Post,
    /// The first over TLS 1.3.
    Secure,
    /// The second over TLS 1.3: a full handshake each time.
    Handshake,
    /// GET over HTTP/2, [`STREAMS`] at a time on a connection.
    Streams,
    /// Two requests, of which the second brings what the first one answered; each user takes a row of data for them
    /// and looks at both answers.
    Journey,
}

impl Ask {
    /// A connection serves one request.
    pub fn closes(self) -> bool {
        matches!(self, Ask::Close | Ask::Handshake)
    }

    /// It goes by https.
    pub fn is_secure(self) -> bool {
        matches!(self, Ask::Secure | Ask::Handshake)
    }
}

/// Requests at a time on a connection that has streams.
pub const STREAMS: u64 = 10;

/// Bytes of a posted body.
pub const POSTED: usize = 1024;

/// What all tools of a row are asked to do.
pub struct Case {
    /// For `--case`.
    pub name: &'static str,
    /// For the table.
    pub title: &'static str,
    /// Path on the server.
    pub path: &'static str,
    /// Requests at a time, each on a connection of its own unless there are streams.
    pub connections: u64,
    /// What they do.
    pub ask: Ask,
    /// Bytes of the body that comes back, where bytes are what counts.
    pub body_bytes: Option<u64>,
    /// Tools that are left out to keep the run short.
    pub spared: &'static [&'static str],
    /// What is to be reached.
    pub targets: &'static [Target],
}

const LOADLAB: &str = "loadlab";
const EPOLL: &str = "loadlab-epoll";
const WRK: &str = "wrk";

const fn at_least(of: &'static str, figure: Figure, least: f64, against: &'static str) -> Target {
    Target { of, figure, bound: Bound::AtLeast(least), against }
}

const KEEP_ALIVE: &[Target] = &[
    at_least(LOADLAB, Figure::PerCpu, 1.12, WRK),
    at_least(LOADLAB, Figure::Rate, 0.98, WRK),
    Target { of: LOADLAB, figure: Figure::P50, bound: Bound::AtMost(1.05), against: WRK },
    at_least(LOADLAB, Figure::PerCpu, 0.95, "bare-uring"),
    at_least(EPOLL, Figure::PerCpu, 0.95, "bare-epoll"),
];
const CLOSE: &[Target] = &[
    at_least(LOADLAB, Figure::PerCpu, 1.25, WRK),
    at_least(LOADLAB, Figure::PerCpu, 0.95, "bare-uring"),
    at_least(EPOLL, Figure::PerCpu, 0.95, "bare-epoll"),
];
const BODIES: &[Target] = &[at_least(LOADLAB, Figure::PerCpu, 1.05, WRK)];

const SECURE: &[Target] = &[at_least(LOADLAB, Figure::PerCpu, 1.0, WRK)];
const HANDSHAKES: &[Target] = &[at_least(LOADLAB, Figure::PerCpu, 1.2, WRK)];
const STREAMED: &[Target] = &[at_least(LOADLAB, Figure::PerCpu, 1.0, "h2load")];
const JOURNEY: &[Target] = &[at_least(LOADLAB, Figure::PerCpu, 4.0, "k6")];

/// Far behind: the first row tells by how much.
const HEAVY: &[&str] = &["hey", "siege", "oha", "k6"];
/// TLS and HTTP/2 are about loadlab and who is held to be fast at it; a journey is for those who have journeys.
const ONLY_TLS: &[&str] = &["bare-epoll", "bare-uring", "ab", "h2load", "hey", "siege", "k6"];
const ONLY_HTTP2: &[&str] = &["bare-epoll", "bare-uring", "wrk", "ab", "hey", "siege", "k6"];
const ONLY_JOURNEYS: &[&str] =
    &[EPOLL, "bare-epoll", "bare-uring", "wrk", "ab", "h2load", "hey", "siege", "oha"];
/// Bodies are about loadlab and the generators it is like.
const ONLY_FAST: &[&str] = &[EPOLL, "bare-epoll", "bare-uring", "siege", "k6"];

const GET_50: Case = Case {
    name: "get-50",
    title: "GET 128 B, 50 connections",
    path: "/128",
    connections: 50,
    ask: Ask::KeepAlive,
    body_bytes: None,
    spared: &[],
    targets: KEEP_ALIVE,
};

/// All of them.
pub const CASES: &[Case] = &[
    GET_50,
    Case { name: "get-200", title: "GET 128 B, 200 connections", connections: 200, spared: HEAVY, ..GET_50 },
    Case {
        name: "get-1000",
        title: "GET 128 B, 1,000 connections",
        connections: 1000,
        spared: HEAVY,
        ..GET_50
    },
    Case {
        name: "close",
        title: "GET 128 B, a connection each, 50 at a time",
        ask: Ask::Close,
        spared: &["siege", "k6"],
        targets: CLOSE,
        ..GET_50
    },
    Case {
        name: "post-1k",
        title: "POST 1 KiB, 50 connections",
        path: "/post",
        ask: Ask::Post,
        spared: ONLY_FAST,
        targets: BODIES,
        ..GET_50
    },
    Case {
        name: "get-10k",
        title: "GET 10 KiB, 50 connections",
        path: "/10240",
        body_bytes: Some(10_240),
        spared: ONLY_FAST,
        targets: BODIES,
        ..GET_50
    },
    Case {
        name: "get-1m",
        title: "GET 1 MiB, 50 connections",
        path: "/1048576",
        body_bytes: Some(1_048_576),
        spared: ONLY_FAST,
        targets: BODIES,
        ..GET_50
    },
    Case {
        name: "tls-50",
        title: "https (TLS 1.3), GET 128 B, 50 connections",
        ask: Ask::Secure,
        spared: ONLY_TLS,
        targets: SECURE,
        ..GET_50
    },
    Case {
        name: "tls-close",
        title: "https (TLS 1.3), a full handshake each, 50 at a time",
        ask: Ask::Handshake,
        spared: ONLY_TLS,
        targets: HANDSHAKES,
        ..GET_50
    },
    Case {
        name: "http2-20x10",
        title: "HTTP/2, GET 128 B, 10 streams on each of 20 connections",
        connections: 200,
        ask: Ask::Streams,
        spared: ONLY_HTTP2,
        targets: STREAMED,
        ..GET_50
    },
    Case {
        name: "journey-50",
        title: "journeys of two steps with a feed, a capture and checks, 50 users",
        path: "",
        ask: Ask::Journey,
        spared: ONLY_JOURNEYS,
        targets: JOURNEY,
        ..GET_50
    },
];

impl Case {
    /// Whether a tool is asked: it can do it, and is not left out.
    pub fn asks(&self, tool: &str) -> bool {
        self.cannot(tool).is_none() && !self.spares(tool)
    }

    /// Whether a tool is left out; another revision of loadlab is where this one is.
    pub fn spares(&self, tool: &str) -> bool {
        let tool = match tool {
            "before" => LOADLAB,
            "before-epoll" => EPOLL,
            other => other,
        };
        self.spared.contains(&tool)
    }

    /// Why a tool cannot be asked, if it cannot.
    pub fn cannot(&self, tool: &str) -> Option<&'static str> {
        match (tool, self.ask) {
            ("h2load", Ask::Close) => Some("h2load does not close its connections"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::tools::TOOLS;

    #[test]
    fn names_are_unique_and_targets_name_tools_that_are_asked() {
        let known = |name: &str| TOOLS.iter().any(|t| t.name == name);
        for (i, case) in CASES.iter().enumerate() {
            assert!(CASES[..i].iter().all(|c| c.name != case.name && c.title != case.title), "{}", case.name);
            assert!(case.spared.iter().all(|tool| known(tool)), "{}", case.name);
            for target in case.targets {
                for tool in [target.of, target.against] {
                    assert!(known(tool) && case.asks(tool), "{}: {tool}", case.name);
                }
            }
        }
    }
}
