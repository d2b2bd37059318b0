//! epoll, edge-triggered: each socket is registered once; one receive and one send per exchange. If the worker accepts
//! responses in batches, the sends of a turn are batched as well.

#![expect(unsafe_code, reason = "calls without a safe wrapper that is fast enough")]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::time::{ClockId, Timespec, clock_gettime};

use self::slot::SocketSlot;
use self::socket::{connect_inet, make_inet, watch};
use super::{ConnId, Event, Io, NONE, Ops, Sink, Wait};
use crate::target::Address;

mod slot;
mod socket;

/// Most bytes that one receive can take. Large enough that a 128 KiB body costs two.
const BUFFER: usize = 128 * 1024;
/// Events taken in one turn.
const EVENTS: usize = 512;
/// Receives on one connection before other connections get a turn.
const RECEIVES: usize = 8;
/// Most sends held back at one time: the first one then waits for this many receives.
const HELD: usize = 16;
/// Once the received responses fill this many bytes, they are reported before any more are taken: they should stay in
/// the nearest processor cache.
const NEAR: usize = 16 * 1024;
/// Most connects held back at one time.
const OPENING: usize = 64;
/// Longer requests are not held back, since the number of bytes the kernel accepts is reported exactly.
const MAX_HELD_BYTES: usize = 4096;
/// Retry interval for a Unix socket with a full queue: no event reports when there is room.
const RETRY_INTERVAL_NS: u64 = 1_000_000;

/// The epoll backend.
pub struct Epoll<'r> {
    ops: EpollOps<'r>,
    buffer: Box<[u8]>,
    events: Vec<epoll::Event>,
    /// Connections with more to read than one turn allowed, and whether their peer had closed by then: the edge that
    /// reported it does not come again.
    unfinished: Vec<(u64, bool)>,
    /// Receives that are not reported yet.
    came: Vec<Received>,
    fine_waits: bool,
}

/// The result of one receive.
struct Received {
    key: u64,
    /// Number of bytes, and where in the buffer they begin.
    got: Result<(usize, usize), Errno>,
    /// Whether there may be more.
    full: bool,
}

/// A connection to open.
#[derive(Clone, Copy)]
struct Opening {
    key: u64,
    address: SocketAddr,
    /// The address it comes from, if that matters.
    source: Option<IpAddr>,
}

/// Operations that the backend accepts.
pub struct EpollOps<'r> {
    epoll: OwnedFd,
    slots: Vec<SocketSlot<'r>>,
    /// Whether sends and connects of this turn are held back: many in a row cost less than one between every two
    /// receives.
    holds: bool,
    /// Connections whose send is held back.
    held: Vec<u64>,
    /// Connections to open.
    opening: Vec<Opening>,
    /// Failures found while submitting, reported in the next turn.
    failed: Vec<(u64, i32)>,
    /// Connects to Unix sockets with a full queue, to be retried.
    crowded: Vec<(u64, net::SocketAddrUnix)>,
}

impl<'r> Epoll<'r> {
    /// A backend for the calling thread.
    pub fn new() -> std::io::Result<Self> {
        // Timers must fire when they are due: the kernel's default slack is 50 µs.
        // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, NONE, NONE, NONE) };
        Ok(Epoll {
            ops: EpollOps {
                epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
                slots: Vec::new(),
                holds: false,
                held: Vec::with_capacity(HELD),
                opening: Vec::with_capacity(OPENING),
                failed: Vec::new(),
                crowded: Vec::new(),
            },
            buffer: vec![0; BUFFER].into_boxed_slice(),
            events: Vec::with_capacity(EVENTS),
            unfinished: Vec::new(),
            came: Vec::with_capacity(HELD),
            fine_waits: true,
        })
    }

    /// Waits for several events, but only for a short time; then for one.
    fn wait(&mut self, wait: Wait) -> std::io::Result<()> {
        self.events.clear();
        let idle = self.unfinished.is_empty() && self.ops.failed.is_empty();
        let left_ns = if idle { wait.until_ns.saturating_sub(self.ops.now()) } else { 0 };
        let left_ns = if self.ops.crowded.is_empty() { left_ns } else { left_ns.min(RETRY_INTERVAL_NS) };
        if wait.at_least <= 1 || wait.within_ns >= left_ns {
            return self.wait_for(left_ns);
        }
        self.wait_for(0)?;
        let before = self.events.len();
        if before < wait.at_least as usize {
            // epoll cannot wait for several events.
            let _ = rustix::thread::nanosleep(&timespec(wait.within_ns));
            self.wait_for(0)?;
            self.unite(before);
        }
        if self.events.is_empty() { self.wait_for(left_ns - wait.within_ns) } else { Ok(()) }
    }

    /// Merges events of the same socket into one, where the first `before` came earlier: a close that came during the
    /// wait belongs with the response that came before it.
    fn unite(&mut self, before: usize) {
        let mut at = before;
        while at < self.events.len() {
            let (flags, key) = (self.events[at].flags, self.events[at].data.u64());
            match self.events[..before].iter().position(|e| e.data.u64() == key) {
                Some(first) => {
                    let both = self.events[first].flags | flags;
                    self.events[first].flags = both;
                    self.events.swap_remove(at);
                }
                None => at += 1,
            }
        }
    }

    /// Adds new events, waiting at most `left_ns` if there are none.
    fn wait_for(&mut self, left_ns: u64) -> std::io::Result<()> {
        if !self.fine_waits {
            return self.wait_coarsely(left_ns);
        }
        let timeout = timespec(left_ns);
        match epoll::wait(&self.ops.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(Errno::NOSYS) => {
                self.fine_waits = false;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// As `wait_for`, where waits have millisecond resolution, as before Linux 5.11: sleeps the whole milliseconds, and
    /// the next call polls at once.
    fn wait_coarsely(&mut self, left_ns: u64) -> std::io::Result<()> {
        let milliseconds = libc::c_int::try_from(left_ns / 1_000_000).unwrap_or(libc::c_int::MAX);
        let (taken, room) = (self.events.len(), self.events.capacity() - self.events.len());
        let spare = self.events.spare_capacity_mut().as_mut_ptr();
        let epoll = self.ops.epoll.as_raw_fd();
        // SAFETY: there is room for this many events, which are laid out as the kernel writes them (rustix passes its
        // own to the same system call); the length grows by as many as were written.
        let came = unsafe { libc::epoll_wait(epoll, spare.cast(), room as libc::c_int, milliseconds) };
        match usize::try_from(came) {
            Ok(came) => {
                // SAFETY: as above.
                unsafe { self.events.set_len(taken + came) };
                Ok(())
            }
            Err(_) => match std::io::Error::last_os_error() {
                error if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Reads what has arrived on several connections, then reports it: receives in a row cost less than each one after
    /// the previous response was processed. Takes events from `from` on while they report only bytes; returns how many.
    #[inline]
    fn receive_many(&mut self, from: usize, sink: &mut impl Sink<EpollOps<'r>>) -> usize {
        let (mut at, mut taken) = (0, 0);
        for event in &self.events[from..] {
            let (flags, key) = (event.flags, event.data.u64());
            let other = !(epoll::EventFlags::IN | epoll::EventFlags::OUT);
            if flags.intersects(other) || self.came.len() == HELD || at > NEAR {
                break;
            }
            let Some(slot) = self.ops.live(key).filter(|s| s.is_quiet()) else { break };
            let Some(socket) = &slot.socket else { break };
            taken += 1;
            let room = &mut self.buffer[at..];
            let got = net::recv(socket, &mut *room, net::RecvFlags::empty()).map(|(n, _)| n);
            if got == Err(Errno::AGAIN) {
                continue;
            }
            slot.unreported = true;
            // Must be the last receive, since reading continues into the same buffer.
            let full = got.map_or_else(|error| error == Errno::INTR, |n| n == room.len());
            self.came.push(Received { key, got: got.map(|n| (n, at)), full });
            if full {
                break;
            }
            at += got.unwrap_or(0).next_multiple_of(64);
        }
        for i in 0..self.came.len() {
            self.report(i, sink);
        }
        self.came.clear();
        taken
    }

    /// Reports the result of one receive of `receive_many`, and reads on if there may be more.
    #[inline]
    fn report(&mut self, i: usize, sink: &mut impl Sink<EpollOps<'r>>) {
        let Received { key, got, full } = self.came[i];
        let conn = key as u32;
        // Handling another connection's bytes may have closed it.
        let Some(slot) = self.ops.live(key) else { return };
        slot.unreported = false;
        match got {
            Ok((0, _)) => {
                slot.ended = true;
                sink.event(&mut self.ops, Event::Closed(conn));
            }
            Ok((n, at)) => {
                let bytes = &self.buffer[at..at + n];
                sink.event(&mut self.ops, Event::Received { conn, bytes, last: false });
            }
            Err(Errno::INTR) => {}
            Err(error) => sink.event(&mut self.ops, Event::Failed(conn, error.raw_os_error())),
        }
        if full && self.receive(key, false, sink) {
            self.unfinished.push((key, false));
        }
    }

    /// Handles one event.
    fn happened(&mut self, i: usize, sink: &mut impl Sink<EpollOps<'r>>) {
        let (flags, key) = (self.events[i].flags, self.events[i].data.u64());
        // A failed connect shows as writable; its error is read there.
        let connecting = self.ops.live(key).is_some_and(|s| s.connecting);
        let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        let writable = failed || flags.contains(epoll::EventFlags::OUT);
        if connecting && writable {
            self.writable(key, failed, sink);
        }
        let readable = epoll::EventFlags::IN
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ERR
            | epoll::EventFlags::HUP;
        if flags.intersects(readable) && !(connecting && flags.contains(epoll::EventFlags::ERR)) {
            let ended = flags.contains(epoll::EventFlags::RDHUP);
            if self.receive(key, ended, sink) {
                self.unfinished.push((key, ended));
            }
        }
        // After the received bytes: the response to a request that was cut short comes before the reset.
        if !connecting && writable && self.ops.live(key).is_some_and(|s| s.has_more() && !s.held) {
            self.writable(key, failed, sink);
        }
    }

    /// Reads what has arrived; returns true if there may be more.
    fn receive(&mut self, key: u64, ended: bool, sink: &mut impl Sink<EpollOps<'r>>) -> bool {
        let conn = key as u32;
        for _ in 0..RECEIVES {
            let Some(slot) = self.ops.live(key).filter(|s| !s.ended) else { return false };
            let Some(socket) = &slot.socket else { return false };
            match net::recv(socket, &mut self.buffer[..], net::RecvFlags::empty()) {
                Ok((0, _)) => {
                    slot.ended = true;
                    sink.event(&mut self.ops, Event::Closed(conn));
                    return false;
                }
                Ok((n, _)) => {
                    // Fewer bytes than there was room for: drained, and a FIN that came along follows immediately.
                    let drained = n < self.buffer.len();
                    let last = ended && drained;
                    sink.event(&mut self.ops, Event::Received { conn, bytes: &self.buffer[..n], last });
                    if drained {
                        // That FIN raises no further edge.
                        if last && let Some(slot) = self.ops.live(key) {
                            slot.ended = true;
                            sink.event(&mut self.ops, Event::Closed(conn));
                        }
                        return false;
                    }
                }
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR) => {}
                Err(error) => {
                    sink.event(&mut self.ops, Event::Failed(conn, error.raw_os_error()));
                    return false;
                }
            }
        }
        true
    }

    /// Handles a writable socket: a connect has ended, or a send can continue. If it `failed`, its error is read.
    fn writable(&mut self, key: u64, failed: bool, sink: &mut impl Sink<EpollOps<'r>>) {
        let conn = key as u32;
        let Some(slot) = self.ops.live(key) else { return };
        let Some(socket) = &slot.socket else { return };
        if slot.connecting {
            let asked = if failed { net::sockopt::socket_error(socket) } else { Ok(Ok(())) };
            match asked {
                Ok(Ok(())) => {
                    slot.connecting = false;
                    sink.event(&mut self.ops, Event::Connected(conn));
                }
                Ok(Err(error)) | Err(error) => {
                    sink.event(&mut self.ops, Event::Failed(conn, error.raw_os_error()));
                }
            }
        } else if slot.has_more() {
            match slot.push() {
                Ok(n) => {
                    let reported = n.min(slot.reported);
                    slot.reported -= reported;
                    if n > reported {
                        sink.event(&mut self.ops, Event::Sent(conn, n - reported));
                    }
                }
                Err(error) => sink.event(&mut self.ops, Event::Failed(conn, error.raw_os_error())),
            }
        }
    }
}

impl<'r> Io<'r> for Epoll<'r> {
    type Ops = EpollOps<'r>;
    const NAME: &'static str = "epoll";

    fn ops(&mut self) -> &mut Self::Ops {
        &mut self.ops
    }

    fn poll(&mut self, wait: Wait, sink: &mut impl Sink<Self::Ops>) -> std::io::Result<()> {
        self.ops.flush();
        if !self.ops.opening.is_empty() {
            self.ops.open_held();
        }
        self.ops.holds = wait.at_least > 1;
        self.wait(wait)?;
        let mut crowded = std::mem::take(&mut self.ops.crowded);
        crowded.retain(|(key, address)| self.ops.connect_unix(*key, address));
        self.ops.crowded = crowded;
        let mut failed = std::mem::take(&mut self.ops.failed);
        let mut unfinished = std::mem::take(&mut self.unfinished);
        unfinished.retain(|(key, ended)| self.receive(*key, *ended, sink));
        self.unfinished = unfinished;
        let mut i = 0;
        while i < self.events.len() {
            let taken = if self.ops.holds { self.receive_many(i, sink) } else { 0 };
            if taken == 0 {
                self.happened(i, sink);
            }
            i += taken.max(1);
        }
        // Sends that failed at once come last: everything that arrived before the failure has been reported by now.
        for (key, error) in failed.drain(..) {
            if self.ops.live(key).is_some() {
                sink.event(&mut self.ops, Event::Failed(key as u32, error));
            }
        }
        if self.ops.failed.is_empty() {
            self.ops.failed = failed;
        }
        Ok(())
    }
}

impl<'r> EpollOps<'r> {
    /// The slot an event is for; `None` if the event is for an earlier socket in the same place.
    #[inline]
    fn live(&mut self, key: u64) -> Option<&mut SocketSlot<'r>> {
        let slot = self.slots.get_mut(key as u32 as usize)?;
        (slot.open && slot.generation == (key >> 32) as u32).then_some(slot)
    }

    /// Sends everything that was held back.
    fn flush(&mut self) {
        for i in 0..self.held.len() {
            self.release(self.held[i]);
        }
        self.held.clear();
    }

    /// Opens the connections that were held back, each step for all of them.
    fn open_held(&mut self) {
        let mut opening = std::mem::take(&mut self.opening);
        self.each_opening(&opening, |ops, Opening { key, address, source }| {
            let socket = make_inet(&address, source)?;
            ops.slots[key as u32 as usize].socket = Some(socket);
            Ok(())
        });
        self.each_opening(&opening, |ops, one| match &ops.slots[one.key as u32 as usize].socket {
            Some(socket) => connect_inet(socket, &one.address),
            None => Ok(()),
        });
        self.each_opening(&opening, |ops, one| match &ops.slots[one.key as u32 as usize].socket {
            Some(socket) => watch(&ops.epoll, socket, one.key),
            None => Ok(()),
        });
        opening.clear();
        self.opening = opening;
    }

    /// Runs one step for the connections still open. One that fails loses its socket, so that it fails only once.
    fn each_opening(&mut self, opening: &[Opening], step: impl Fn(&mut Self, Opening) -> Result<(), Errno>) {
        for one in opening {
            if self.live(one.key).is_some()
                && let Err(error) = step(self, *one)
            {
                self.slots[one.key as u32 as usize].socket = None;
                self.failed.push((one.key, error.raw_os_error()));
            }
        }
    }

    /// Sends what was held back on one connection.
    fn release(&mut self, key: u64) {
        let Some(slot) = self.live(key).filter(|s| s.held) else { return };
        slot.held = false;
        let pushed = slot.push();
        slot.reported = slot.rest.len();
        if let Err(error) = pushed {
            self.failed.push((key, error.raw_os_error()));
        }
    }

    fn make_place(&mut self, conn: ConnId) {
        if self.slots.len() <= conn as usize {
            self.slots.resize_with(conn as usize + 1, SocketSlot::default);
        }
    }

    fn key(&self, conn: ConnId) -> u64 {
        u64::from(self.slots[conn as usize].generation) << 32 | u64::from(conn)
    }

    fn open(&mut self, conn: ConnId, address: &Address, source: Option<IpAddr>) -> Result<(), Errno> {
        match address {
            Address::Inet(address) => self.open_inet(conn, address, source),
            Address::Unix(path) => self.open_unix(conn, path),
        }
    }

    fn open_unix(&mut self, conn: ConnId, path: &str) -> Result<(), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let slot = &mut self.slots[conn as usize];
        // A Unix socket has no Nagle's algorithm to switch off.
        (slot.is_unix, slot.no_delay, slot.socket) = (true, true, Some(socket));
        let (key, address) = (self.key(conn), net::SocketAddrUnix::new(path)?);
        if self.connect_unix(key, &address) {
            self.crowded.push((key, address));
        }
        Ok(())
    }

    /// Connects to a Unix socket. Returns true if its queue is full and the connect has to be retried. Until then the
    /// socket must not be registered, since the kernel would report it writable.
    fn connect_unix(&mut self, key: u64, address: &net::SocketAddrUnix) -> bool {
        if self.live(key).is_none() {
            return false;
        }
        let Some(socket) = &self.slots[key as u32 as usize].socket else { return false };
        let watched = net::connect(socket, address).and_then(|()| watch(&self.epoll, socket, key));
        match watched {
            Err(Errno::AGAIN) => return true,
            Err(error) => self.failed.push((key, error.raw_os_error())),
            Ok(()) => {}
        }
        false
    }

    fn open_inet(&mut self, conn: ConnId, address: &SocketAddr, source: Option<IpAddr>) -> Result<(), Errno> {
        let key = self.key(conn);
        if self.holds {
            if self.opening.len() == OPENING {
                self.open_held();
            }
            self.opening.push(Opening { key, address: *address, source });
            return Ok(());
        }
        let socket = make_inet(address, source)?;
        connect_inet(&socket, address)?;
        watch(&self.epoll, &socket, key)?;
        self.slots[conn as usize].socket = Some(socket);
        Ok(())
    }
}

impl<'r> Ops<'r> for EpollOps<'r> {
    #[inline]
    fn now(&self) -> u64 {
        now_ns()
    }

    fn connect(&mut self, conn: ConnId, address: &Address, source: Option<IpAddr>) {
        self.make_place(conn);
        let slot = &mut self.slots[conn as usize];
        (slot.open, slot.connecting) = (true, true);
        if let Err(error) = self.open(conn, address, source) {
            let key = self.key(conn);
            self.failed.push((key, error.raw_os_error()));
        }
    }

    fn no_delay(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn as usize];
        if let Some(socket) = &slot.socket
            && !slot.no_delay
        {
            // A failure only makes requests slower.
            slot.no_delay = net::sockopt::set_tcp_nodelay(socket, true).is_ok();
        }
    }

    #[inline]
    fn send(&mut self, conn: ConnId, bytes: &'r [u8]) -> usize {
        let key = self.key(conn);
        if self.slots[conn as usize].held {
            // If a server answers before the request has gone out, it still gets the request.
            self.release(key);
        }
        let slot = &mut self.slots[conn as usize];
        slot.taken = 0;
        if slot.has_more() {
            // A response came before its request had gone out: the rest of that request, which counts as sent, goes
            // first.
            slot.copied.extend_from_slice(bytes);
            return 0;
        }
        (slot.rest, slot.reported) = (bytes, 0);
        if self.holds && bytes.len() <= MAX_HELD_BYTES {
            slot.held = true;
            if self.held.len() == HELD {
                self.flush();
            }
            self.held.push(key);
            return bytes.len();
        }
        match slot.push() {
            Ok(n) => n,
            Err(error) => {
                self.failed.push((key, error.raw_os_error()));
                0
            }
        }
    }

    fn send_copy(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let key = self.key(conn);
        self.release(key);
        let slot = &mut self.slots[conn as usize];
        if slot.has_more() {
            slot.copied.extend_from_slice(bytes);
            return 0;
        }
        slot.taken = 0;
        match slot.write(bytes) {
            Ok(n) => {
                slot.copied.extend_from_slice(&bytes[n..]);
                n
            }
            Err(error) => {
                self.failed.push((key, error.raw_os_error()));
                0
            }
        }
    }

    fn close(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn as usize];
        let generation = slot.generation.wrapping_add(1);
        *slot = SocketSlot { generation, ..SocketSlot::default() };
    }

    fn give(&mut self, conn: ConnId) -> Option<OwnedFd> {
        let slot = self.slots.get_mut(conn as usize)?;
        if !slot.open || slot.connecting || slot.ended || slot.unreported || slot.has_more() {
            return None;
        }
        let socket = slot.socket.take()?;
        // A registration that cannot be removed here ends when this backend is dropped.
        let _ = epoll::delete(&self.epoll, &socket);
        self.close(conn);
        Some(socket)
    }

    fn take(&mut self, conn: ConnId, address: &Address, socket: OwnedFd) -> bool {
        self.make_place(conn);
        let key = self.key(conn);
        // The previous owner may have made it blocking.
        let is_ready =
            rustix::io::ioctl_fionbio(&socket, true).and_then(|()| watch(&self.epoll, &socket, key));
        if is_ready.is_err() {
            return false;
        }
        let is_unix = matches!(address, Address::Unix(_));
        let slot = &mut self.slots[conn as usize];
        (slot.open, slot.is_unix, slot.no_delay, slot.socket) = (true, is_unix, is_unix, Some(socket));
        true
    }

    fn unseen(&mut self, conn: ConnId) -> bool {
        let slot = &self.slots[conn as usize];
        let Some(socket) = &slot.socket else { return false };
        if slot.is_unix {
            // For Unix sockets the queue is counted in memory, not in bytes of the request.
            return slot.taken == 0;
        }
        let mut queued: libc::c_int = 0;
        // SAFETY: TIOCOUTQ (SIOCOUTQ for sockets) writes one int to the given address.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut queued) };
        slot.taken == 0 || (result == 0 && queued as usize >= slot.taken)
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// CLOCK_MONOTONIC in nanoseconds.
#[inline]
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests;
