//! What the backend keeps of a connection. A load may have a million of them, so each has 24 bytes.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// Requests up to this length are sent without a completion, which would cost as much as the send.
pub const SILENT: usize = 4096;

/// Marks that no copy is being sent.
pub const NO_COPY: u32 = u32::MAX;

/// A socket's state, as far as the ring knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketState {
    /// None, or being closed.
    Closed,
    /// A connect is pending.
    Connecting,
    /// Open, with no receive pending.
    Open,
    /// Open, with a receive pending in the kernel.
    Receiving,
}

/// A connection, or a place for one.
#[derive(Clone, Copy)]
pub struct SocketSlot<'r> {
    /// The last send, if it was reported as sent before it went out. A slice would take twice the space.
    silent: NonNull<u8>,
    silent_length: u16,
    pub state: SocketState,
    flags: u8,
    generation: u32,
    /// Length of the last send.
    pub last_send: u32,
    /// Index of the copy being sent, or [`NO_COPY`].
    pub copy: u32,
    requests: PhantomData<&'r [u8]>,
}

/// Nagle's algorithm is off, or the socket has none.
const NO_DELAY: u8 = 1;
/// The last send was submitted.
const SUBMITTED: u8 = 2;
/// A send that will be reported is pending.
const SENDING: u8 = 4;

impl<'r> SocketSlot<'r> {
    /// Before the first connection.
    pub const CLOSED: SocketSlot<'static> = SocketSlot {
        silent: NonNull::dangling(),
        silent_length: 0,
        state: SocketState::Closed,
        flags: 0,
        generation: 0,
        last_send: 0,
        copy: NO_COPY,
        requests: PhantomData,
    };

    /// The same place with a new connection.
    pub fn reopened(self, state: SocketState, has_no_delay: bool) -> SocketSlot<'r> {
        let flags = if has_no_delay { NO_DELAY } else { 0 };
        SocketSlot { state, flags, generation: self.generation, ..SocketSlot::CLOSED }
    }

    /// A number of 24 bits that differs after each close, to recognize completions for an earlier socket in the same
    /// place.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation & 0xff_ffff
    }

    /// Records a close.
    pub fn end_generation(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Whether it is open with nothing in flight on it, except possibly a receive.
    pub fn is_quiet(&self) -> bool {
        let is_open = !matches!(self.state, SocketState::Closed | SocketState::Connecting);
        is_open && !self.is_sending() && self.copy == NO_COPY
    }

    pub fn has_no_delay(&self) -> bool {
        self.flags & NO_DELAY != 0
    }

    pub fn set_no_delay(&mut self) {
        self.flags |= NO_DELAY;
    }

    pub fn is_submitted(&self) -> bool {
        self.flags & SUBMITTED != 0
    }

    pub fn set_submitted(&mut self, is_submitted: bool) {
        self.set(SUBMITTED, is_submitted);
    }

    pub fn is_sending(&self) -> bool {
        self.flags & SENDING != 0
    }

    pub fn set_sending(&mut self, is_sending: bool) {
        self.set(SENDING, is_sending);
    }

    #[inline]
    fn set(&mut self, flag: u8, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// The last send, if it was reported as sent before it went out; otherwise nothing.
    #[inline]
    pub fn silent(&self) -> &'r [u8] {
        // SAFETY: both come from one slice that lives for `'r`, or are those of an empty one.
        unsafe { std::slice::from_raw_parts(self.silent.as_ptr(), usize::from(self.silent_length)) }
    }

    /// Keeps a send, unless it is longer than [`SILENT`]; returns how many bytes it keeps.
    #[inline]
    pub fn keep_silent(&mut self, bytes: &'r [u8]) -> usize {
        const { assert!(SILENT <= u16::MAX as usize) };
        let kept = if bytes.len() <= SILENT { bytes } else { &[] };
        (self.silent, self.silent_length) = (NonNull::from(kept).cast(), kept.len() as u16);
        kept.len()
    }
}
