//! How much a server may send that does not advance any response: the account of one connection.
//!
//! An occasional byte of a body must not offset an arbitrary flood, so progress counts against idle frames by its size.
//! Frames caused by this side's own actions (more room for a body being sent, frames in flight when a stream was
//! abandoned) do not count as idle, as far as those actions explain them.

use super::error::{Http2Error, flood};

/// Most frames that do not advance a response, beyond those that responses offset.
pub const MAX_IDLE_FRAMES: u32 = 100_000;
/// Most replies to PING and SETTINGS that may wait until the server reads, of at most 17 bytes each.
pub const MAX_REPLIES: u32 = 20_000;
/// Number of idle frames that a response offsets.
const RESPONSE_WORTH: u32 = 100;
/// A DATA frame offsets one idle frame, and one more per this many bytes.
const BYTES_WORTH: u32 = 1024;
/// Frames that may be in flight for a stream when it is abandoned: some MiB of small ones.
const STRAYS: u32 = 10_000;
/// A server may send WINDOW_UPDATE twice for each DATA frame it receives, and once more per this many bytes in the
/// frame.
const BYTES_PER_UPDATE: u32 = 256;

/// A connection's account.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floods {
    idle: u32,
    /// Frames for ended streams that may still arrive.
    strays: u32,
    /// Frames that open windows for bodies and may still arrive.
    updates: u64,
    /// Replies since the server last took everything written.
    unread_replies: u32,
}

impl Floods {
    /// Counts a frame that does not advance a response.
    #[inline]
    pub fn idle(&mut self) -> Result<(), Http2Error> {
        self.idle += 1;
        if self.idle > MAX_IDLE_FRAMES {
            return Err(flood("a flood of frames that advance no response"));
        }
        Ok(())
    }

    /// Counts a frame for an ended stream.
    #[inline]
    pub fn stray(&mut self) -> Result<(), Http2Error> {
        match self.strays.checked_sub(1) {
            Some(left) => self.strays = left,
            None => return self.idle(),
        }
        Ok(())
    }

    /// This side abandoned a stream, whose frames may be in flight.
    pub fn gave_up(&mut self) {
        self.strays = self.strays.saturating_add(STRAYS);
    }

    /// Counts a frame that opens a window for bodies.
    #[inline]
    pub fn update(&mut self) -> Result<(), Http2Error> {
        match self.updates.checked_sub(1) {
            Some(left) => self.updates = left,
            None => return self.idle(),
        }
        Ok(())
    }

    /// Counts a frame of a body sent by this side.
    #[inline]
    pub fn sent_body(&mut self, bytes: usize) {
        self.updates = self.updates.saturating_add(2 + bytes as u64 / u64::from(BYTES_PER_UPDATE));
    }

    /// Counts a frame that requires a reply, which is written.
    pub fn reply(&mut self) -> Result<(), Http2Error> {
        self.unread_replies += 1;
        if self.unread_replies > MAX_REPLIES {
            return Err(flood("a flood of frames that need replies, which the server does not read"));
        }
        Ok(())
    }

    /// Everything written has gone out.
    #[inline]
    pub fn all_gone(&mut self) {
        self.unread_replies = 0;
    }

    /// Counts the head of a response, or its end.
    #[inline]
    pub fn response(&mut self) {
        self.idle = self.idle.saturating_sub(RESPONSE_WORTH);
    }

    /// Counts a frame with this many bytes of a body.
    #[inline]
    pub fn body(&mut self, bytes: u32) {
        if bytes > 0 {
            self.idle = self.idle.saturating_sub(1 + bytes / BYTES_WORTH);
        }
    }
}
