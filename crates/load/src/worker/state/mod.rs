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
use crate::worker::state::conversations::Conversations;
use crate::worker::state::streams::Streams;

/// How requests use connections.
pub enum Mode<'r> {
    /// One request at a time.
    Http1,
    /// Each request has its own stream.
    Http2(Streams<'r>),
    /// Several requests are parts of one conversation.
    WebSocket(Conversations),
}

impl<'r> Mode<'r> {
    /// The mode of a load.
    pub fn new(spec: &'r LoadSpec) -> Self {
        match &spec.http2 {
            Some(http2) => Mode::Http2(Streams::new(http2, spec.hosts.len())),
            None => Conversations::of(spec).map_or(Mode::Http1, Mode::WebSocket),
        }
    }

    #[inline]
    pub fn is_http2(&self) -> bool {
        matches!(self, Mode::Http2(_))
    }

    #[inline]
    pub fn is_websocket(&self) -> bool {
        matches!(self, Mode::WebSocket(_))
    }

    /// HTTP/2 streams, in that mode.
    #[inline]
    pub fn streams(&mut self) -> Option<&mut Streams<'r>> {
        match self {
            Mode::Http2(streams) => Some(streams),
            _ => None,
        }
    }

    /// WebSocket conversations, in that mode.
    #[inline]
    pub fn conversations(&mut self) -> Option<&mut Conversations> {
        match self {
            Mode::WebSocket(conversations) => Some(conversations),
            _ => None,
        }
    }
}
