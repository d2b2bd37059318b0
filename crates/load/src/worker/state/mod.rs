//! State of a load thread's connections, its slots, and the protocols on them. Nothing here sends, counts or refers to
//! the worker.

pub mod buffers;
pub mod connections;
pub mod conversations;
pub mod slots;
pub mod streams;
pub mod timeouts;
pub mod tls;
pub mod tunnels;

use crate::spec::LoadSpec;

/// A slot's place in the worker's tables: what has one request in flight at a time. In the closed model each user has
/// one; in the open model an arrival takes a free one.
pub type SlotId = u32;

/// No slot or connection.
pub const NONE: u32 = u32::MAX;

/// How requests use connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One request at a time.
    Http1,
    /// Each request has its own stream.
    Http2,
    /// Several requests are parts of one conversation.
    WebSocket,
}

impl Mode {
    /// The mode of a load.
    pub fn of(spec: &LoadSpec) -> Self {
        let mut scripts = spec.journey.iter().flat_map(|journey| &journey.scripts);
        match &spec.http2 {
            Some(_) => Mode::Http2,
            None if scripts.any(|script| script.conversation.is_some()) => Mode::WebSocket,
            None => Mode::Http1,
        }
    }
}
