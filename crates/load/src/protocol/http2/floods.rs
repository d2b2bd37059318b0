//! What a server may send that brings no response further, and how much of it: the account of one connection.
//!
//! A byte of a body now and then must not make up for any flood, so what brings a response further is counted against
//! idle frames by its worth. Frames that follow from what we did – more room for a body we send, what was under way
//! when we gave up a stream – are no idle ones, as far as that explains them.

use super::fault::{Fault, flood};

/// Frames that bring no response further, beyond those that responses make up for.
pub const MAX_IDLE_FRAMES: u32 = 100_000;
/// Answers to PING and SETTINGS that may wait until the server reads, of at most 17 bytes each.
pub const MAX_ANSWERS: u32 = 20_000;
/// So many idle frames a response makes up for.
const RESPONSE_WORTH: u32 = 100;
/// A DATA frame makes up for one of them, and for one more with so many bytes.
const BYTES_WORTH: u32 = 1024;
/// Frames that may be under way for a stream when we give it up: some MiB of small ones.
const STRAYS: u32 = 10_000;
/// A server may give room twice for each DATA frame of ours, and once more for so many bytes in it.
const BYTES_PER_UPDATE: u32 = 256;

/// The account.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floods {
    idle: u32,
    /// Frames for streams that are over which may still come.
    strays: u32,
    /// Frames that may still give room for bodies.
    updates: u64,
    /// Answers since the server last took all we wrote.
    answers: u32,
}

impl Floods {
    /// A frame that brings no response further.
    #[inline]
    pub fn idle(&mut self) -> Result<(), Fault> {
        self.idle += 1;
        if self.idle > MAX_IDLE_FRAMES {
            return Err(flood("a flood of frames that advance no response"));
        }
        Ok(())
    }

    /// A frame for a stream that is over.
    #[inline]
    pub fn stray(&mut self) -> Result<(), Fault> {
        match self.strays.checked_sub(1) {
            Some(left) => self.strays = left,
            None => return self.idle(),
        }
        Ok(())
    }

    /// We gave up a stream: its frames may be under way.
    pub fn gave_up(&mut self) {
        self.strays = self.strays.saturating_add(STRAYS);
    }

    /// A frame that gives room for bodies.
    #[inline]
    pub fn update(&mut self) -> Result<(), Fault> {
        match self.updates.checked_sub(1) {
            Some(left) => self.updates = left,
            None => return self.idle(),
        }
        Ok(())
    }

    /// We sent a frame of a body.
    #[inline]
    pub fn sent_body(&mut self, bytes: usize) {
        self.updates = self.updates.saturating_add(2 + bytes as u64 / u64::from(BYTES_PER_UPDATE));
    }

    /// A frame that wants an answer, which is written.
    pub fn answer(&mut self) -> Result<(), Fault> {
        self.answers += 1;
        if self.answers > MAX_ANSWERS {
            return Err(flood("a flood of frames that need replies, which the server does not read"));
        }
        Ok(())
    }

    /// All that was written has gone out.
    #[inline]
    pub fn all_gone(&mut self) {
        self.answers = 0;
    }

    /// The head of a response, or its end.
    #[inline]
    pub fn response(&mut self) {
        self.idle = self.idle.saturating_sub(RESPONSE_WORTH);
    }

    /// So many bytes of a body in one frame.
    #[inline]
    pub fn body(&mut self, bytes: u32) {
        if bytes > 0 {
            self.idle = self.idle.saturating_sub(1 + bytes / BYTES_WORTH);
        }
    }
}
