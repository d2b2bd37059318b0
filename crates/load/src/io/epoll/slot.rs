//! A connection of the epoll backend, and the bytes going out on it.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net;

use crate::io::ONE_SEGMENT;

/// A connection, or a free place for one.
#[derive(Default)]
pub(super) struct SocketSlot<'r> {
    /// Whether the worker uses it; events may be reported.
    pub(super) open: bool,
    /// `None` if the kernel gave none; that failure is reported like any other.
    pub(super) socket: Option<OwnedFd>,
    /// Incremented at each close, to recognize events of an earlier socket in the same place.
    pub(super) generation: u32,
    pub(super) connecting: bool,
    pub(super) no_delay: bool,
    /// Whether it is a Unix socket.
    pub(super) is_unix: bool,
    /// Whether `rest` is held back.
    pub(super) held: bool,
    /// Of the last send: bytes not yet taken by the kernel, and number of bytes taken.
    pub(super) rest: &'r [u8],
    pub(super) taken: usize,
    /// Number of bytes of `rest` that were reported as sent when they were held back.
    pub(super) reported: usize,
    /// Copied bytes that wait after `rest`, from `copied_at` on.
    pub(super) copied: Vec<u8>,
    pub(super) copied_at: usize,
    /// Whether received bytes are not reported yet.
    pub(super) unreported: bool,
    /// Whether the peer's close was reported.
    pub(super) ended: bool,
}

impl SocketSlot<'_> {
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        !self.rest.is_empty() || !self.copied.is_empty()
    }

    /// Whether nothing is in flight on it, except possibly receives.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        !self.connecting && !self.ended && !self.has_more()
    }

    /// Writes as much of the pending bytes as the kernel takes.
    #[inline]
    pub(super) fn push(&mut self) -> Result<usize, Errno> {
        let mut pushed = self.write(self.rest)?;
        self.rest = &self.rest[pushed..];
        if self.rest.is_empty() && !self.copied.is_empty() {
            let copied = std::mem::take(&mut self.copied);
            let written = self.write(&copied[self.copied_at..])?;
            pushed += written;
            self.copied_at += written;
            if self.copied_at < copied.len() {
                self.copied = copied;
            } else {
                self.copied_at = 0;
            }
        }
        Ok(pushed)
    }

    /// Writes as many of `bytes` as the kernel takes.
    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(socket) = &self.socket else { return Ok(0) };
        if bytes.len() > ONE_SEGMENT && !self.no_delay {
            net::sockopt::set_tcp_nodelay(socket, true)?;
            self.no_delay = true;
        }
        let mut written = 0;
        while written < bytes.len() {
            match net::send(socket, &bytes[written..], net::SendFlags::NOSIGNAL) {
                Ok(n) => written += n,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.taken += written;
        Ok(written)
    }
}
