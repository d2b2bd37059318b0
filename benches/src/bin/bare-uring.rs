//! The minimum of a closed loop over io_uring: multishot receives into shared buffers, sends without their own
//! completions, sockets in the ring's table, one clock reading and one count. It takes answers together and submits
//! operations kind by kind, as loadlab's engine does (docs/measuring.md), and is the limit that loadlab's io_uring
//! backend is compared with. It knows the length of an answer and looks at nothing in it.

#![expect(unsafe_code, reason = "the ring's memory and its entries: a bare loop has no library in between")]

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use io_uring::types::{BufRingEntry, DestinationSlot, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use loadlab_benches::{Asked, Tally, Together, fine_timers, learn, now_ns, raise_file_limit};

/// As in the engine: entries of both queues, the group of receive buffers, and their size with many and with few.
const ENTRIES: u32 = 1024;
const COMPLETIONS: u32 = 8192;
const GROUP: u16 = 0;
const BUFFER: usize = 16 * 1024;
const LARGE_BUFFER: usize = 32 * 1024;
/// From the end of one to the start of the next.
const APART: usize = 5 * 64;

/// The kind of a completion: the upper half of its user data.
const NOTHING: u64 = 0;
const CONNECT: u64 = 1;
const RECEIVE: u64 = 2;
const SEND: u64 = 3;

/// The order in which they are submitted.
const CLOSES: usize = 0;
const SENDS: usize = 1;
const MAKES: usize = 2;
const CONNECTS: usize = 3;
const RECEIVES: usize = 4;

fn main() -> ExitCode {
    loadlab_benches::tell(run(&Asked::parse()))
}

#[derive(Clone, Copy, Default)]
struct Conn {
    /// Bytes of the current answer.
    got: usize,
    started_ns: u64,
}

/// Everything but the ring: its queues are borrowed during a turn.
struct Loop {
    address: Box<libc::sockaddr_in>,
    request: Vec<u8>,
    length: usize,
    close: bool,
    conns: Vec<Conn>,
    tally: Tally,
    in_flight: usize,
    together: Together,
    buffers: Buffers,
    /// The next submission, kind by kind as in the engine.
    next: [Vec<squeue::Entry>; 5],
}

fn run(asked: &Asked) -> Result<serde_json::Value> {
    fine_timers();
    raise_file_limit();
    let request = asked.request();
    let length = learn(asked.server, &request)?;
    let mut ring = IoUring::builder()
        .setup_cqsize(COMPLETIONS)
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(ENTRIES)
        .context("io_uring")?;
    ring.submitter().register_files_sparse(asked.connections).context("a table of files")?;
    let buffers = Buffers::new(asked.connections as usize)?;
    // SAFETY: the entries are page-aligned, `count` of them, and are never unmapped.
    unsafe {
        ring.submitter()
            .register_buf_ring_with_flags(buffers.entries as u64, buffers.count, GROUP, 0)
            .context("a ring of buffers")?;
    }
    let mut bare = Loop {
        address: Box::new(raw_address(asked.server)),
        request,
        length,
        close: asked.close,
        conns: vec![Conn::default(); asked.connections as usize],
        tally: Tally::begin(asked),
        in_flight: 0,
        together: Together::default(),
        buffers,
        next: std::array::from_fn(|_| Vec::with_capacity(asked.connections as usize)),
    };
    for id in 0..asked.connections {
        let now = now_ns();
        if bare.tally.more(now) {
            bare.in_flight += 1;
            bare.connect(id, now);
        }
    }
    while bare.in_flight > 0 {
        bare.turn(&mut ring)?;
    }
    // Only closes are still queued; what is in progress points into `bare`.
    bare.submit(&mut ring)?;
    ring.submitter().submit().context("submit")?;
    let all = io_uring::types::CancelBuilder::any();
    let _ = ring.submitter().register_sync_cancel(Some(Timespec::new().sec(1)), all);
    drop(ring);
    Ok(bare.tally.report("uring"))
}

impl Loop {
    fn turn(&mut self, ring: &mut IoUring) -> Result<()> {
        self.submit(ring)?;
        if let Some((most, within)) = self.together.of(self.in_flight) {
            wait(ring, most, within.tv_nsec as u32)?;
        }
        if ring.completion().is_empty() {
            wait(ring, 1, 999_999_999)?;
        }
        for done in ring.completion() {
            let (kind, id) = (done.user_data() >> 32, done.user_data() as u32);
            match kind {
                RECEIVE => self.received(id, &done)?,
                CONNECT => {
                    ensure!(done.result() >= 0, "connect: {}", error_of(done.result()));
                    self.receive(id);
                    self.send(id);
                }
                SEND => ensure!(done.result() >= 0, "send: {}", error_of(done.result())),
                _ => {}
            }
        }
        self.buffers.publish();
        Ok(())
    }

    /// Moves pending entries into the submission queue, and submits to the kernel when it is full.
    fn submit(&mut self, ring: &mut IoUring) -> Result<()> {
        for entry in self.next.iter_mut().flat_map(|entries| entries.drain(..)) {
            // SAFETY: what entries point to lives in `self` and in boxes that do not move, until the ring is gone.
            while unsafe { ring.submission().push(&entry) }.is_err() {
                ring.submitter().submit().context("submit")?;
            }
        }
        Ok(())
    }

    fn connect(&mut self, id: u32, now: u64) {
        self.conns[id as usize] = Conn { got: 0, started_ns: now };
        let quiet = squeue::Flags::SKIP_SUCCESS;
        let socket = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0)
            .file_index(DestinationSlot::try_from_slot_target(id).ok());
        self.next[MAKES].push(socket.build().user_data(data(CONNECT, id)).flags(quiet));
        let length = std::mem::size_of::<libc::sockaddr_in>() as u32;
        let address = std::ptr::addr_of!(*self.address).cast();
        let connect = opcode::Connect::new(Fixed(id), address, length);
        self.next[CONNECTS].push(connect.build().user_data(data(CONNECT, id)));
    }

    #[inline]
    fn receive(&mut self, id: u32) {
        let entry = if self.close {
            // For a connection that lives for one exchange, arming a multishot receive costs more.
            opcode::Recv::new(Fixed(id), std::ptr::null_mut(), 0)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
        } else {
            opcode::RecvMulti::new(Fixed(id), GROUP).build()
        };
        self.next[RECEIVES].push(entry.user_data(data(RECEIVE, id)));
    }

    #[inline]
    fn send(&mut self, id: u32) {
        let send = opcode::Send::new(Fixed(id), self.request.as_ptr(), self.request.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .user_data(data(SEND, id));
        self.next[SENDS].push(send.flags(squeue::Flags::SKIP_SUCCESS));
    }

    #[inline]
    fn received(&mut self, id: u32, done: &cqueue::Entry) -> Result<()> {
        if let Some(buffer) = cqueue::buffer_select(done.flags()) {
            self.buffers.give_back(buffer);
        }
        match done.result() {
            n @ 1.. => self.conns[id as usize].got += n as usize,
            0 => bail!("the server closed a connection"),
            error if error == -libc::ENOBUFS => {}
            error => bail!("receive: {}", error_of(error)),
        }
        let whole = self.conns[id as usize].got >= self.length;
        let ended = self.close && whole;
        if !cqueue::more(done.flags()) && !ended {
            self.receive(id);
        }
        if whole {
            self.complete(id);
        }
        Ok(())
    }

    #[inline]
    fn complete(&mut self, id: u32) {
        let now = now_ns();
        let conn = &mut self.conns[id as usize];
        self.tally.answered(conn.started_ns, now);
        self.together.took(now - conn.started_ns);
        (conn.got, conn.started_ns) = (0, now);
        let more = self.tally.more(now);
        if self.close {
            let close = opcode::Close::new(Fixed(id)).build().user_data(data(NOTHING, id));
            self.next[CLOSES].push(close.flags(squeue::Flags::SKIP_SUCCESS));
        }
        match (more, self.close) {
            (false, _) => self.in_flight -= 1,
            (true, false) => self.send(id),
            (true, true) => self.connect(id, now),
        }
    }
}

fn data(kind: u64, id: u32) -> u64 {
    kind << 32 | u64::from(id)
}

fn error_of(result: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(-result)
}

fn wait(ring: &mut IoUring, at_least: usize, within_ns: u32) -> Result<()> {
    let timeout = Timespec::new().nsec(within_ns);
    match ring.submitter().submit_with_args(at_least, &SubmitArgs::new().timespec(&timeout)) {
        Ok(_) => Ok(()),
        Err(e)
            if matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) =>
        {
            Ok(())
        }
        Err(e) => Err(e).context("io_uring_enter"),
    }
}

fn raw_address(server: std::net::SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: server.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*server.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// Receive buffers, handed to the kernel in a separate ring; as many as in the engine. Never unmapped: they live as
/// long as the program.
struct Buffers {
    entries: *mut BufRingEntry,
    memory: *mut u8,
    count: u16,
    size: usize,
    tail: u16,
}

impl Buffers {
    fn new(connections: usize) -> Result<Buffers> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let count = connections.next_power_of_two().clamp(64, 512);
        let size = if count == 64 { LARGE_BUFFER } else { BUFFER };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let map = |length: usize| {
            // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of ours.
            unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE) }
        };
        let entries = map(count * std::mem::size_of::<BufRingEntry>())?.cast();
        let memory = map(count * (size + APART))?.cast();
        let mut buffers = Buffers { entries, memory, count: count as u16, size, tail: 0 };
        (0..count as u16).for_each(|id| buffers.give_back(id));
        buffers.publish();
        Ok(buffers)
    }

    /// Gives a buffer back with the next [`publish`](Self::publish).
    #[inline]
    fn give_back(&mut self, id: u16) {
        // SAFETY: the index is below `count`, a power of two; the entry behind the published tail is ours.
        unsafe {
            let entry = &mut *self.entries.add((self.tail & (self.count - 1)) as usize);
            entry.set_addr(self.memory.add(id as usize * (self.size + APART)) as u64);
            entry.set_len(self.size as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes returned buffers visible to the kernel.
    #[inline]
    fn publish(&self) {
        use std::sync::atomic::{AtomicU16, Ordering};
        // SAFETY: the tail lies in the first entry's reserved field, which only this side writes; the release
        // makes the entries visible before it.
        unsafe {
            let tail = BufRingEntry::tail(self.entries).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }
}
