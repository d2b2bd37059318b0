//! io_uring: multishot receives into shared buffers, all sends of a turn in one system call, and sockets that live in
//! the ring's own table and use no file descriptor.
//!
//! A turn is one `io_uring_enter`: it submits the worker's requests since the last turn and waits with a nanosecond
//! timeout; then the completions are reported one after another. A send is held back until then, so one for a
//! connection that turned out to be closed in the same turn never leaves. Completions beyond a number of sends are left
//! for the next turn.
//!
//! The kernel limits a ring's table to the number of open files allowed. Beyond that there are several rings, and an
//! epoll instance reports which of them have completions.

#![expect(unsafe_code, reason = "the ring's memory, and calls without a safe wrapper that is fast enough")]

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::types::{DestinationSlot, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};

mod copies;
mod deferred;
mod kernel;
mod memory;
mod queries;
mod sends;
mod slot;

pub use self::kernel::RESERVED_FILES;

use self::copies::Copies;
use self::deferred::{Deferred, Operation};
use self::kernel::{cancel_sends, is_at_least, table_limit, watch};
use self::memory::{Buffers, RawAddress};
use self::sends::{SendKind, switched_on};
use self::slot::{NO_COPY, SocketSlot, SocketState};
use super::epoll::now_ns;
use super::{ConnId, Event, Io, NONE, Ops, Sink, Wait};
use crate::target::Address;

/// Entries of the submission queue; when it is full, its entries are submitted early.
const ENTRIES: u32 = 1024;
/// Entries of the completion queue.
const COMPLETIONS: u32 = 8192;
/// Group id of the receive buffers.
const GROUP: u16 = 0;
/// The first kernel that reports unacknowledged bytes through a ring. Without that, a request on an idle connection
/// that the server had already closed could not be distinguished from one that the server saw.
const NEEDED_KERNEL: (u32, u32) = (6, 7);
/// Most sends of a turn: the rest of its completions is reported in the next one. Requests that are copied need memory
/// until they have gone out, and as many connections may open in one turn as there are users.
const MOST_SENDS: usize = 4096;
/// Most rings of one thread.
pub const MAX_RINGS: usize = 64;

/// A completion's kind: the top byte of its user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum CompletionKind {
    /// Ignored.
    Nothing = 0,
    Socket = 1,
    Connect = 2,
    Receive = 3,
    Send = 4,
    /// The response to a synchronous query.
    Asked = 5,
    /// A copied request was sent; its index among the copies takes the place of the connection.
    Copied = 6,
}

/// The io_uring backend.
pub struct Uring<'r> {
    ops: UringOps<'r>,
    /// Completions of the current turn.
    turn: VecDeque<Completion>,
    /// Failures to be reported in the current turn.
    failed: Vec<(ConnId, u32, i32)>,
    /// Most sends of a turn.
    most_sends: usize,
}

/// A ring with its buffers.
struct Ring {
    // Declared first, so dropped before the buffers it uses.
    ring: IoUring,
    buffers: Buffers,
    /// Connections, with their generation, whose receive found no buffer, in order; some may be closed by now. Arming
    /// all of them again at once would make most fail again, each at the cost of a receive and a completion.
    starved: VecDeque<(ConnId, u32)>,
}

/// Operations that the backend accepts.
pub struct UringOps<'r> {
    rings: Vec<Ring>,
    /// Connections per ring: connection c is number c mod `per_ring` of ring c div `per_ring`.
    per_ring: usize,
    /// Reports which rings have completions, if there are several.
    ready: Option<(OwnedFd, Vec<OwnedFd>)>,
    /// Buffer for the events of `ready`.
    signalled: Vec<rustix::event::epoll::Event>,
    slots: Vec<SocketSlot<'r>>,
    /// Sends of this turn: connection, generation, and kind.
    sends: Vec<(ConnId, u32, SendKind<'r>)>,
    deferred: Deferred,
    copies: Copies,
    /// Failures to be reported in the next turn: connection, generation, error number.
    failed: Vec<(ConnId, u32, i32)>,
    /// Completions to be reported in the next turn: those that arrived while waiting for another one, and those left
    /// of the last turn.
    early: VecDeque<Completion>,
    /// Connections, with their generation, that received something among `early`.
    came: Vec<(ConnId, u32)>,
    addresses: Vec<(Address, Box<RawAddress>)>,
    /// Whether receives are armed once for the connection's life. Otherwise each part is received separately, which
    /// costs less for a connection that lives for one exchange.
    keep_alive: bool,
}

/// A completion, taken out of the ring.
#[derive(Clone, Copy)]
struct Completion {
    kind: CompletionKind,
    conn: ConnId,
    generation: u32,
    result: i32,
    flags: u32,
}

impl Completion {
    /// The connection, with its generation, if it received something.
    fn received(&self) -> Option<(ConnId, u32)> {
        let has_received = self.kind == CompletionKind::Receive && self.result >= 0;
        has_received.then_some((self.conn, self.generation))
    }
}

/// What the rings are sized for.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Most connections at one time.
    pub connections: usize,
    /// Most requests in flight at one time.
    pub in_flight: usize,
    /// Whether connections are reused.
    pub keep_alive: bool,
    /// Whether connections are bound to source addresses, which kernels before 6.11 cannot do through a ring.
    pub sources: bool,
}

impl Ring {
    fn new(files: usize, in_flight: usize, rings: usize, sources: bool) -> std::io::Result<Self> {
        let share = if rings > 1 { 4 } else { 1 };
        let ring = IoUring::builder()
            .setup_cqsize(COMPLETIONS / share)
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(ENTRIES / share)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Socket::CODE,
            opcode::Connect::CODE,
            opcode::RecvMulti::CODE,
            opcode::Send::CODE,
            opcode::AsyncCancel::CODE,
            opcode::UringCmd16::CODE,
        ];
        let binds = !sources || probe.is_supported(opcode::Bind::CODE);
        if !binds || needed.iter().any(|code| !probe.is_supported(*code)) {
            return Err(std::io::Error::from(std::io::ErrorKind::Unsupported));
        }
        ring.submitter().register_files_sparse(files as u32)?;
        let buffers = Buffers::new(in_flight, rings)?;
        // SAFETY: the entries are page-aligned, `count` of them, and stay mapped until the ring is gone.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(buffers.entries as u64, buffers.count, GROUP, 0)?;
        }
        Ok(Ring { ring, buffers, starved: VecDeque::new() })
    }
}

impl<'r> Uring<'r> {
    /// A backend for the calling thread.
    ///
    /// # Errors
    /// The kernel is too old or does not allow it (containers often block it).
    pub fn new(size: Size) -> std::io::Result<Self> {
        // Timers must fire when they are due: the kernel's default slack is 50 µs.
        // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, NONE, NONE, NONE) };
        if !is_at_least(NEEDED_KERNEL) {
            return Err(std::io::Error::from(std::io::ErrorKind::Unsupported));
        }
        let per_ring = size.connections.clamp(1, table_limit());
        let count = size.connections.div_ceil(per_ring).clamp(1, MAX_RINGS);
        // Several rings share the requests in flight, though not quite evenly.
        let in_flight = if count > 1 { 2 * size.in_flight.div_ceil(count) } else { size.in_flight };
        let rings: Vec<Ring> = (0..count)
            .map(|_| Ring::new(per_ring, in_flight, count, size.sources))
            .collect::<std::io::Result<_>>()?;
        let ready =
            if count > 1 { Some(watch(&rings.iter().map(|r| &r.ring).collect::<Vec<_>>())?) } else { None };
        let ops = UringOps {
            rings,
            per_ring,
            ready,
            signalled: Vec::with_capacity(MAX_RINGS),
            slots: Vec::new(),
            sends: Vec::new(),
            deferred: Deferred::default(),
            copies: Copies::default(),
            failed: Vec::new(),
            early: VecDeque::new(),
            came: Vec::new(),
            addresses: Vec::new(),
            keep_alive: size.keep_alive,
        };
        let turn = VecDeque::with_capacity(COMPLETIONS as usize);
        Ok(Uring { ops, turn, failed: Vec::new(), most_sends: MOST_SENDS })
    }

    fn report(&mut self, done: Completion, sink: &mut impl Sink<UringOps<'r>>) {
        let Completion { kind, conn, generation, result, flags } = done;
        if kind == CompletionKind::Copied {
            return self.copy_reported(conn, result, sink);
        }
        let buffer = cqueue::buffer_select(flags);
        let live = self.ops.live(conn, generation);
        match kind {
            CompletionKind::Receive if result > 0 => {
                if live && !cqueue::more(flags) {
                    // The receive has ended: a later close has nothing to cancel.
                    self.ops.slots[conn as usize].state = SocketState::Open;
                }
                if let Some(id) = buffer {
                    if live {
                        // SAFETY: the completion hands the buffer over; the sink keeps nothing of it, and it is given
                        // back below.
                        let bytes = unsafe { self.ops.buffers(conn).bytes(id, result as usize) };
                        sink.event(&mut self.ops, Event::Received { conn, bytes, last: false });
                    }
                    self.ops.buffers(conn).give_back(id);
                }
                if !cqueue::more(flags) && self.ops.live(conn, generation) {
                    self.ops.receive_again(conn);
                }
            }
            _ if !live => {
                if let Some(id) = buffer {
                    self.ops.buffers(conn).give_back(id);
                }
            }
            CompletionKind::Receive if result == -libc::ENOBUFS => {
                self.ops.slots[conn as usize].state = SocketState::Open;
                let (ring, _) = self.ops.place(conn);
                self.ops.rings[ring].starved.push_back((conn, generation));
            }
            CompletionKind::Receive => {
                self.ops.slots[conn as usize].state = SocketState::Open;
                let event = if result == 0 { Event::Closed(conn) } else { Event::Failed(conn, -result) };
                sink.event(&mut self.ops, event);
            }
            CompletionKind::Connect if result == 0 => {
                self.ops.receive_again(conn);
                sink.event(&mut self.ops, Event::Connected(conn));
            }
            // Only `close` cancels a connect, and then it is no longer live: ignored, should it come nevertheless.
            CompletionKind::Connect if result == -libc::ECANCELED => {}
            CompletionKind::Send if !self.ops.slots[conn as usize].silent().is_empty() => {
                if let Err(error) = self.ops.send_rest(conn, result) {
                    sink.event(&mut self.ops, Event::Failed(conn, error));
                }
            }
            CompletionKind::Send if result >= 0 => {
                self.ops.slots[conn as usize].set_sending(false);
                sink.event(&mut self.ops, Event::Sent(conn, result as usize));
            }
            CompletionKind::Socket | CompletionKind::Connect | CompletionKind::Send if result < 0 => {
                sink.event(&mut self.ops, Event::Failed(conn, -result));
            }
            _ => {}
        }
    }
}

impl<'r> Io<'r> for Uring<'r> {
    type Ops = UringOps<'r>;
    const NAME: &'static str = "uring";

    fn ops(&mut self) -> &mut Self::Ops {
        &mut self.ops
    }

    fn poll(&mut self, wait: Wait, sink: &mut impl Sink<Self::Ops>) -> std::io::Result<()> {
        self.ops.flush()?;
        // A receive that found no buffer may not be armed yet.
        let is_starved = self.ops.rings.iter().any(|ring| !ring.starved.is_empty());
        let idle = self.ops.early.is_empty() && self.ops.failed.is_empty() && !is_starved;
        let wait = if idle { wait } else { Wait::until(0) };
        std::mem::swap(&mut self.turn, &mut self.ops.early);
        self.ops.came.clear();
        match self.ops.rings.len() {
            1 => {
                self.ops.enter_for(0, wait)?;
                self.ops.reap(0, &mut self.turn);
            }
            _ => self.ops.enter_ready(wait.until_ns, &mut self.turn)?,
        }
        std::mem::swap(&mut self.ops.failed, &mut self.failed);
        for (conn, generation, error) in self.failed.drain(..) {
            if self.ops.live(conn, generation) {
                sink.event(&mut self.ops, Event::Failed(conn, error));
            }
        }
        while self.ops.sends.len() < self.most_sends
            && let Some(done) = self.turn.pop_front()
        {
            self.report(done, sink);
        }
        if !self.turn.is_empty() {
            // What is left comes before what arrived meanwhile.
            self.ops.came.extend(self.turn.iter().filter_map(Completion::received));
            self.turn.append(&mut self.ops.early);
            std::mem::swap(&mut self.turn, &mut self.ops.early);
        }
        // Start at the front again: a queue that moves through all its memory also moves through the caches.
        self.turn.clear();
        self.ops.rings.iter().for_each(|r| r.buffers.publish());
        Ok(())
    }
}

impl<'r> UringOps<'r> {
    /// The ring that a connection belongs to, and its place in that ring.
    #[inline]
    fn place(&self, conn: ConnId) -> (usize, Fixed) {
        match self.rings.len() {
            1 => (0, Fixed(conn)),
            _ => (conn as usize / self.per_ring, Fixed((conn as usize % self.per_ring) as u32)),
        }
    }

    fn buffers(&mut self, conn: ConnId) -> &mut Buffers {
        let (ring, _) = self.place(conn);
        &mut self.rings[ring].buffers
    }

    /// Submits to every ring, waits until one has completions, and takes them.
    fn enter_ready(&mut self, until_ns: u64, into: &mut VecDeque<Completion>) -> std::io::Result<()> {
        for ring in 0..self.rings.len() {
            if !self.rings[ring].ring.submission().is_empty() {
                self.enter(ring, 0)?;
                self.reap(ring, into);
            }
        }
        let left_ns = if into.is_empty() { until_ns.saturating_sub(now_ns()) } else { 0 };
        let timeout = rustix::time::Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as i64,
        };
        let Some((epoll, _)) = &self.ready else { return Ok(()) };
        self.signalled.clear();
        let room = rustix::buffer::spare_capacity(&mut self.signalled);
        match rustix::event::epoll::wait(epoll, room, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for at in 0..self.signalled.len() {
            let ring = self.signalled[at].data.u64() as usize;
            self.enter(ring, 0)?;
            self.reap(ring, into);
        }
        Ok(())
    }

    #[inline]
    fn live(&self, conn: ConnId, generation: u32) -> bool {
        let slot = self.slots.get(conn as usize).filter(|slot| slot.state != SocketState::Closed);
        slot.is_some_and(|slot| slot.generation() == generation)
    }

    fn data(&self, kind: CompletionKind, conn: ConnId) -> u64 {
        let generation = u64::from(self.slots[conn as usize].generation());
        (kind as u64) << 56 | generation << 32 | u64::from(conn)
    }

    /// Puts an entry into the submission queue, submitting first if it is full.
    fn push(&mut self, ring: usize, entry: &squeue::Entry) -> std::io::Result<()> {
        loop {
            // SAFETY: what entries point to stays valid: requests live as long as the backend ('r), addresses are
            // boxed in `addresses`, values of options are static, and buffers belong to the ring.
            if unsafe { self.rings[ring].ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            match self.rings[ring].ring.submit() {
                Ok(_) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {
                    // The completion queue is full: make room there first.
                    let (mut early, before) = (std::mem::take(&mut self.early), self.early.len());
                    self.reap(ring, &mut early);
                    self.came.extend(early.iter().skip(before).filter_map(Completion::received));
                    self.early = early;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Submits, and waits for several completions, but only for a short time; then for one.
    fn enter_for(&mut self, ring: usize, wait: Wait) -> std::io::Result<()> {
        if wait.at_least > 1 && now_ns() + wait.within_ns < wait.until_ns {
            self.submit_and_wait(ring, wait.at_least as usize, wait.within_ns)?;
            if !self.rings[ring].ring.completion().is_empty() {
                return Ok(());
            }
        }
        self.enter(ring, wait.until_ns)
    }

    /// Submits, and waits for a completion or until `until_ns`.
    fn enter(&mut self, ring: usize, until_ns: u64) -> std::io::Result<()> {
        self.submit_and_wait(ring, 1, until_ns.saturating_sub(now_ns()))
    }

    fn submit_and_wait(&mut self, ring: usize, at_least: usize, left_ns: u64) -> std::io::Result<()> {
        let timeout = Timespec::new().sec(left_ns / 1_000_000_000).nsec((left_ns % 1_000_000_000) as u32);
        let args = SubmitArgs::new().timespec(&timeout);
        let ring = &mut self.rings[ring].ring;
        ring.submission().sync();
        match ring.submitter().submit_with_args(at_least, &args) {
            Ok(_) => Ok(()),
            Err(e) => match e.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(e),
            },
        }
    }

    /// Takes completions out of the ring.
    #[inline]
    fn reap(&mut self, ring: usize, into: &mut VecDeque<Completion>) {
        for entry in self.rings[ring].ring.completion() {
            let data = entry.user_data();
            let kind = match (data >> 56) as u8 {
                1 => CompletionKind::Socket,
                2 => CompletionKind::Connect,
                3 => CompletionKind::Receive,
                4 => CompletionKind::Send,
                5 => CompletionKind::Asked,
                6 => CompletionKind::Copied,
                _ => continue,
            };
            into.push_back(Completion {
                kind,
                conn: data as u32,
                generation: (data >> 32) as u32 & 0xff_ffff,
                result: entry.result(),
                flags: entry.flags(),
            });
        }
    }

    /// Arms a receive; a failure is reported in the next turn.
    fn receive_again(&mut self, conn: ConnId) {
        let data = self.data(CompletionKind::Receive, conn);
        let (_, place) = self.place(conn);
        let entry = if self.keep_alive {
            opcode::RecvMulti::new(place, GROUP).build().user_data(data)
        } else {
            opcode::Recv::new(place, std::ptr::null_mut(), 0)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
                .user_data(data)
        };
        self.slots[conn as usize].state = SocketState::Receiving;
        self.defer(Operation::Receive, conn, entry);
    }

    /// Arms receives that found no buffer: for each ring as many as it has buffers. They are free by now, except those
    /// of completions that are left for the next turn.
    fn receive_starved(&mut self) {
        for ring in 0..self.rings.len() {
            let mut free = self.rings[ring].buffers.count;
            while free > 0
                && let Some((conn, generation)) = self.rings[ring].starved.pop_front()
            {
                if self.live(conn, generation) {
                    self.receive_again(conn);
                    free -= 1;
                }
            }
        }
    }

    fn submit_or_fail(&mut self, conn: ConnId, entry: &squeue::Entry) {
        let (ring, _) = self.place(conn);
        if let Err(error) = self.push(ring, entry) {
            let generation = self.slots[conn as usize].generation();
            self.failed.push((conn, generation, error.raw_os_error().unwrap_or(libc::EIO)));
        }
    }

    fn make_place(&mut self, conn: ConnId) {
        if self.slots.len() <= conn as usize {
            self.slots.resize(conn as usize + 1, SocketSlot::CLOSED);
        }
    }

    fn raw_address(&mut self, address: &Address) -> (*const libc::sockaddr, libc::socklen_t) {
        let known = self.addresses.iter().position(|(a, _)| a == address);
        let index = known.unwrap_or_else(|| {
            self.addresses.push((address.clone(), Box::new(RawAddress::of(address))));
            self.addresses.len() - 1
        });
        let raw = &self.addresses[index].1;
        (std::ptr::addr_of!(raw.storage).cast(), raw.length)
    }
}

impl<'r> Ops<'r> for UringOps<'r> {
    #[inline]
    fn now(&self) -> u64 {
        now_ns()
    }

    fn connect(&mut self, conn: ConnId, address: &Address, source: Option<IpAddr>) {
        self.make_place(conn);
        let slot = &mut self.slots[conn as usize];
        let is_unix = matches!(address, Address::Unix(_));
        // A Unix socket has no Nagle's algorithm to switch off.
        *slot = slot.reopened(SocketState::Connecting, is_unix);
        let generation = slot.generation();
        if conn as usize >= self.per_ring * self.rings.len() {
            return self.failed.push((conn, generation, libc::EMFILE));
        }
        let (_, place) = self.place(conn);
        // Not linked: the kernel executes these in order and at once as they are submitted. In a link it would defer
        // all but the first, and a queue that fills up in the middle would cut the link.
        let quiet = squeue::Flags::SKIP_SUCCESS;
        let data = self.data(CompletionKind::Socket, conn);
        let socket = opcode::Socket::new(RawAddress::family(address), libc::SOCK_STREAM, 0)
            .file_index(DestinationSlot::try_from_slot_target(place.0).ok());
        self.defer(Operation::Make, conn, socket.build().user_data(data).flags(quiet));
        if let Some(source) = source.filter(|_| !is_unix) {
            // `connect` picks the port, and only needs one that is free for this peer.
            let option = switched_on(place, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
            self.defer(Operation::Make, conn, option.user_data(data).flags(quiet));
            let (raw, length) = self.raw_address(&SocketAddr::new(source, 0).into());
            let bind = opcode::Bind::new(place, raw, length).build().user_data(data).flags(quiet);
            self.defer(Operation::Make, conn, bind);
        }
        let (raw, length) = self.raw_address(address);
        let data = self.data(CompletionKind::Connect, conn);
        self.defer(
            Operation::Connect,
            conn,
            opcode::Connect::new(place, raw, length).build().user_data(data),
        );
    }

    fn no_delay(&mut self, conn: ConnId) {
        self.switch_off_delay(conn);
    }

    #[inline]
    fn send(&mut self, conn: ConnId, bytes: &'r [u8]) -> usize {
        if self.slots[conn as usize].copy != NO_COPY {
            // The rest of the last send goes first.
            return self.send_copy(conn, bytes);
        }
        let generation = self.before_send(conn, bytes.len());
        self.sends.push((conn, generation, SendKind::Kept(bytes)));
        self.slots[conn as usize].keep_silent(bytes)
    }

    fn send_copy(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let generation = self.before_send(conn, bytes.len());
        let slot = &mut self.slots[conn as usize];
        if slot.copy == NO_COPY {
            let id = self.copies.take(conn, generation);
            slot.copy = id;
            self.copies.at(id).bytes.extend_from_slice(bytes);
            self.sends.push((conn, generation, SendKind::Copied(id)));
        } else {
            let copied = self.copies.at(slot.copy);
            let behind = if copied.flying { &mut copied.next } else { &mut copied.bytes };
            behind.extend_from_slice(bytes);
        }
        0
    }

    fn close(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn as usize];
        let under_way = match std::mem::replace(&mut slot.state, SocketState::Closed) {
            SocketState::Connecting => Some(CompletionKind::Connect),
            SocketState::Receiving => Some(CompletionKind::Receive),
            SocketState::Closed | SocketState::Open => None,
        };
        let (sending, copy) = (slot.is_sending(), std::mem::replace(&mut slot.copy, NO_COPY));
        slot.set_sending(false);
        let flying = copy != NO_COPY && self.copies.at(copy).flying;
        let sending = match (flying, sending && copy == NO_COPY) {
            (true, _) => Some((CompletionKind::Copied as u64) << 56 | u64::from(copy)),
            (_, true) => Some(self.data(CompletionKind::Send, conn)),
            _ => None,
        };
        let under_way = under_way.map(|kind| self.data(kind, conn));
        let (ring, place) = self.place(conn);
        self.slots[conn as usize].end_generation();
        if ring >= self.rings.len() {
            // Beyond the tables: this connection never had a socket.
            return;
        }
        // Pending operations hold the socket open.
        for data in under_way.into_iter().chain(sending) {
            let cancel = opcode::AsyncCancel::new(data).build().user_data(CompletionKind::Nothing as u64);
            let _ = self.push(ring, &cancel.flags(squeue::Flags::SKIP_SUCCESS));
        }
        let close = opcode::Close::new(place).build().user_data(CompletionKind::Nothing as u64);
        let _ = self.push(ring, &close.flags(squeue::Flags::SKIP_SUCCESS));
    }

    fn close_with(&mut self, conn: ConnId, last: &[u8]) -> usize {
        let sent = self.last_word(conn, last);
        self.close(conn);
        sent
    }

    fn give(&mut self, conn: ConnId) -> Option<OwnedFd> {
        // Final bytes go out before the next owner sends.
        self.flush().ok()?;
        let slot = *self.slots.get(conn as usize)?;
        let (ring, place) = self.place(conn);
        if !slot.is_quiet() || self.has_unreported(conn) || ring >= self.rings.len() {
            return None;
        }
        // From here on, nothing may be taken from the socket that would be lost.
        if slot.state == SocketState::Receiving {
            let cancel = opcode::AsyncCancel::new(self.data(CompletionKind::Receive, conn)).build();
            let cancel = cancel.user_data(CompletionKind::Nothing as u64).flags(squeue::Flags::SKIP_SUCCESS);
            self.push(ring, &cancel).ok()?;
            self.slots[conn as usize].state = SocketState::Open;
        }
        let descriptor = self.ask(conn, opcode::FixedFdInstall::new(place, 0).build())?;
        // SAFETY: the kernel has just made this descriptor for us, and nothing else knows of it.
        let socket = unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).ok()?) };
        if self.has_unreported(conn) {
            return None;
        }
        self.close(conn);
        Some(socket)
    }

    fn take(&mut self, conn: ConnId, address: &Address, socket: OwnedFd) -> bool {
        self.make_place(conn);
        let (ring, place) = self.place(conn);
        // A ring waits by itself, but not on a non-blocking socket.
        let is_ready = ring < self.rings.len() && rustix::io::ioctl_fionbio(&socket, false).is_ok();
        let taken = is_ready && {
            let submitter = self.rings[ring].ring.submitter();
            submitter.register_files_update(place.0, &[socket.as_raw_fd()]).is_ok_and(|n| n == 1)
        };
        if taken {
            let is_unix = matches!(address, Address::Unix(_));
            let slot = &mut self.slots[conn as usize];
            *slot = slot.reopened(SocketState::Open, is_unix);
            self.receive_again(conn);
        }
        taken
    }

    fn is_behind(&self) -> bool {
        !self.early.is_empty()
    }

    fn has_unreported(&self, conn: ConnId) -> bool {
        let slot = self.slots.get(conn as usize);
        slot.is_some_and(|slot| self.came.contains(&(conn, slot.generation())))
    }

    fn unseen(&mut self, conn: ConnId) -> bool {
        let slot = self.slots[conn as usize];
        if !slot.is_submitted() {
            return true;
        }
        self.unacknowledged(conn).is_some_and(|n| n > 0 && n >= slot.last_send as usize)
    }
}

impl Drop for UringOps<'_> {
    fn drop(&mut self) {
        // Pending sends read from memory that is about to be freed: cancel them first.
        for Ring { ring, .. } in &mut self.rings {
            let _ = ring.submit();
            let _ = cancel_sends(ring);
        }
    }
}

#[cfg(test)]
mod tests;
