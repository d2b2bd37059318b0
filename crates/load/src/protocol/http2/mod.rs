//! HTTP/2 (RFC 9113), the client's side: bytes in, events and bytes out.
//!
//! A [`Session`] is one connection. It has no socket and no clock: the caller carries bytes, keeps time and knows
//! requests by tokens of its own. After the first requests nothing allocates. Whatever a server sends, it ends in
//! events or in one named fault, with work and memory bounded; [`session`] has the bounds.
//!
//! [`head`] writes requests, [`fields`] reads responses, [`hpack`] and [`huffman`] know how both are packed,
//! [`frame`] how they travel.

mod fault;
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

pub use fault::Fault;
pub use frame::Code;
pub use head::{Head, HeadError, HeadParts, Heads, Name, Outline, Part};
pub use session::{Event, NotSent, Session, Settings};
