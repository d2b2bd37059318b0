//! HTTP/2 (RFC 9113), the client's side: bytes in, events and bytes out.
//!
//! A [`Session`] is one connection. It has no socket and no clock: the caller carries bytes, keeps time and identifies
//! requests by its own tokens. After the first requests nothing allocates. Whatever a server sends results in events or
//! in one named fault, with work and memory bounded; the bounds are in [`session`].
//!
//! [`head`] writes requests, [`fields`] reads responses, [`hpack`] and [`huffman`] encode both, and [`frame`] frames
//! them.

mod error;
pub mod fields;
pub mod floods;
pub mod frame;
pub mod head;
pub mod hpack;
pub mod huffman;
mod receive;
pub mod session;
mod streams;

#[cfg(test)]
mod tests;

pub use error::{HEAD_TOO_LARGE, Http2Error};
pub use frame::Code;
pub use head::{Head, HeadError, HeadPart, HeadParts, Heads, Name, Outline};
pub use session::{Event, NotSent, Session, Settings};
