//! Helpers shared by the integration tests.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::too_many_lines, reason = "a table or a story is easier to read in one piece")]

pub mod conversations;
pub mod http2;
pub mod peer;
pub mod steps;
pub mod tls;

use std::net::SocketAddr;

use loadlab_load::spec::request::{Request, RequestParts};

/// A minimal request.
pub fn get() -> Request {
    let parts = RequestParts {
        method: "GET".into(),
        host: "sim".into(),
        path: "/".into(),
        keep_alive: true,
        ..RequestParts::default()
    };
    parts.build().expect("a request")
}

/// The address of the simulated server.
pub fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 80))
}
