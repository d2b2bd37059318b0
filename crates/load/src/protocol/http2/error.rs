//! Why a connection ends: the code for the server, and the message for the user.

use super::frame::Code;

/// Why a connection, or a response, is not valid HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Error {
    /// Error code sent to the server.
    pub code: Code,
    /// Message for the user.
    pub message: &'static str,
}

/// A response's head is longer than 64 KiB. Reported after the end of the request that it answers.
pub const HEAD_TOO_LARGE: Http2Error = flood("a response head is too long");

pub(super) const fn protocol(message: &'static str) -> Http2Error {
    Http2Error { code: Code::PROTOCOL_ERROR, message }
}

pub(super) const fn size(message: &'static str) -> Http2Error {
    Http2Error { code: Code::FRAME_SIZE_ERROR, message }
}

pub(super) const fn flow(message: &'static str) -> Http2Error {
    Http2Error { code: Code::FLOW_CONTROL_ERROR, message }
}

pub(super) const fn flood(message: &'static str) -> Http2Error {
    Http2Error { code: Code::ENHANCE_YOUR_CALM, message }
}
