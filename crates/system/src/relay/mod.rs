//! A relay: a process between a component and all others that delays the traffic on its link, and drops some of it.
//!
//! The kernels of many machines cannot do that themselves (they lack `netem`). A component with its own network
//! namespace gets a packet relay (`packets`): a delayed handshake, retransmissions and windows are then the kernel's
//! own. Otherwise a byte relay sits in front of each of its ports (`ports`), which knows only connections.
//!
//! It is this program, started again, and a component like others: watched, so that its cost is visible, and removed
//! with the run. It lives while its standard input is open, whose other end loadlab holds: it never outlives a killed
//! loadlab. It must not print; failures are returned.

mod pace;
mod packets;
mod ports;

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::{Deserialize, Serialize};

/// The argument that turns this program into a relay: a host that sets [`crate::SystemSpec::exe`] calls [`main`] for
/// it.
pub const ARG: &str = "__relay";

/// How a link behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LinkShape {
    /// Added to the round trip, nanoseconds: half of it each way.
    pub delay_ns: u64,
    /// Largest variation of the delay, nanoseconds.
    pub jitter_ns: u64,
    /// Share of packets that are lost, 0 to 1.
    pub loss: f64,
}

/// What happened to the traffic on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayCounts {
    /// Packets, or pieces of a stream, that were forwarded.
    pub carried: u64,
    /// Lost, as configured. In a relay of TCP ports: delayed instead.
    pub lost: u64,
    /// Dropped because there was no room for them, or no receiver.
    pub dropped: u64,
    /// Total delay beyond the configured one, summed over all packets or pieces, nanoseconds.
    pub late_ns: u64,
    /// The largest such delay, nanoseconds.
    pub latest_ns: u64,
}

impl RelayCounts {
    /// Counts a packet or piece that was due at `due_ns` and is forwarded now.
    fn went_on(&mut self, due_ns: u64, now_ns: u64) {
        let late_ns = now_ns.saturating_sub(due_ns);
        self.carried += 1;
        self.late_ns += late_ns;
        self.latest_ns = self.latest_ns.max(late_ns);
    }
}

/// A relay's answer to each new shape.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RelayReport {
    pub shape: LinkShape,
    pub counts: RelayCounts,
}

/// Runs the relay; `words` are the arguments after [`ARG`]. It ends when standard input is closed.
///
/// # Errors
/// The reason in words.
pub fn main(words: &[String]) -> Result<(), String> {
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(|e| e.to_string())?;
    let mut control = Control { stream: UnixStream::from(input), read: Vec::new() };
    let (shape, links) = control.begin().map_err(|e| format!("cannot read the settings of the link: {e}"))?;
    // Waking up late would add to the delay.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    match (<[OwnedFd; 2]>::try_from(links), words) {
        (Ok(links), []) => packets::run(links, shape, control).map_err(|e| e.to_string()),
        (Err(_), [pairs]) => ports::run(pairs, shape, control),
        _ => Err("expected a link, or ports".to_owned()),
    }
}

/// The relay's end of the control connection.
pub(crate) struct Control {
    stream: UnixStream,
    read: Vec<u8>,
}

/// A message received on the control connection.
enum ControlMessage {
    /// Nothing new.
    None,
    /// The link's shape from now on.
    Shape(LinkShape),
    /// loadlab is gone.
    Closed,
}

impl Control {
    /// Waits for the first message, and for both ends of a link, which may come with it.
    fn begin(&mut self) -> io::Result<(LinkShape, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0u8; 4096];
        let received = recvmsg(
            &self.stream,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        self.read.extend_from_slice(&bytes[..received.bytes]);
        let rights = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let links = rights.flatten().collect();
        self.stream.set_nonblocking(true)?;
        match self.next() {
            ControlMessage::Shape(shape) => Ok((shape, links)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Returns the next message, if one has arrived; does not wait.
    fn look(&mut self) -> ControlMessage {
        let mut bytes = [0u8; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => return ControlMessage::Closed,
            Ok(n) => self.read.extend_from_slice(&bytes[..n]),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return ControlMessage::Closed,
        }
        self.next()
    }

    fn next(&mut self) -> ControlMessage {
        let Some(end) = self.read.iter().position(|b| *b == b'\n') else { return ControlMessage::None };
        let line: Vec<u8> = self.read.drain(..=end).collect();
        serde_json::from_slice(&line).map_or(ControlMessage::Closed, ControlMessage::Shape)
    }

    /// If sending fails, loadlab is gone, which the next read notices.
    fn report(&mut self, report: &RelayReport) {
        let mut line = serde_json::to_vec(report).unwrap_or_default();
        line.push(b'\n');
        let _ = self.stream.write_all(&line);
    }
}
