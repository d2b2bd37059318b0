//! The minimum of a closed loop over epoll: one receive and one send for each exchange, edge-triggered, one clock
//! reading and one count. It takes answers together and holds sends back as loadlab's engine does
//! (docs/measuring.md), and is the limit that loadlab's epoll backend is compared with. It knows the length of an
//! answer and looks at nothing in it.

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use loadlab_benches::{Asked, Tally, Together, fine_timers, learn, now_ns, raise_file_limit};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net;
use rustix::time::Timespec;

/// As in the engine: bytes of the receive buffer, most sends held back.
const BUFFER: usize = 128 * 1024;
const HELD: usize = 16;
/// Not at all.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn main() -> ExitCode {
    loadlab_benches::tell(run(&Asked::parse()))
}

struct Conn {
    socket: Option<OwnedFd>,
    connecting: bool,
    /// Bytes of the current answer.
    got: usize,
    started_ns: u64,
}

struct Loop {
    poll: OwnedFd,
    server: SocketAddrV4,
    request: Vec<u8>,
    length: usize,
    close: bool,
    conns: Vec<Conn>,
    tally: Tally,
    in_flight: usize,
    together: Together,
    /// Connections whose request goes out at the end of the turn.
    held: Vec<usize>,
    /// Connections to open then.
    opening: Vec<usize>,
}

fn run(asked: &Asked) -> Result<serde_json::Value> {
    fine_timers();
    raise_file_limit();
    let request = asked.request();
    let length = learn(asked.server, &request)?;
    let mut bare = Loop {
        poll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        server: asked.server,
        request,
        length,
        close: asked.close,
        conns: (0..asked.connections)
            .map(|_| Conn { socket: None, connecting: false, got: 0, started_ns: 0 })
            .collect(),
        tally: Tally::begin(asked),
        in_flight: 0,
        together: Together::default(),
        held: Vec::with_capacity(HELD),
        opening: Vec::with_capacity(asked.connections as usize),
    };
    for conn in 0..bare.conns.len() {
        let now = now_ns();
        if bare.tally.more(now) {
            bare.in_flight += 1;
            bare.connect(conn, now)?;
        }
    }
    let mut events = Vec::with_capacity(512);
    let mut buffer = vec![0u8; BUFFER];
    while bare.in_flight > 0 {
        events.clear();
        bare.flush()?;
        bare.open()?;
        bare.wait(&mut events)?;
        for event in &events {
            bare.event(event.data.u64() as usize, event.flags, &mut buffer)?;
        }
    }
    Ok(bare.tally.report("epoll"))
}

impl Loop {
    fn connect(&mut self, id: usize, now: u64) -> Result<()> {
        self.conns[id] = Conn { socket: None, connecting: true, got: 0, started_ns: now };
        self.opening.push(id);
        Ok(())
    }

    /// Opens connections, step by step for all of them.
    fn open(&mut self) -> Result<()> {
        let flags = net::SocketFlags::NONBLOCK | net::SocketFlags::CLOEXEC;
        for id in &self.opening {
            let socket = net::socket_with(net::AddressFamily::INET, net::SocketType::STREAM, flags, None)?;
            self.conns[*id].socket = Some(socket);
        }
        for id in &self.opening {
            let Some(socket) = &self.conns[*id].socket else { continue };
            match net::connect(socket, &SocketAddr::V4(self.server)) {
                Ok(()) | Err(Errno::INPROGRESS) => {}
                Err(error) => return Err(error).context("connect"),
            }
        }
        let interest =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        for id in &self.opening {
            let Some(socket) = &self.conns[*id].socket else { continue };
            epoll::add(&self.poll, socket, epoll::EventData::new_u64(*id as u64), interest)?;
        }
        self.opening.clear();
        Ok(())
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) -> Result<()> {
        if let Some((most, within)) = self.together.of(self.in_flight) {
            wait(&self.poll, events, Some(&NOW))?;
            if events.len() < most {
                let _ = rustix::thread::nanosleep(&within);
                wait(&self.poll, events, Some(&NOW))?;
            }
        }
        if events.is_empty() { wait(&self.poll, events, None) } else { Ok(()) }
    }

    #[inline]
    fn hold(&mut self, id: usize) -> Result<()> {
        if self.held.len() == HELD {
            self.flush()?;
        }
        self.held.push(id);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        for at in 0..self.held.len() {
            self.send(self.held[at])?;
        }
        self.held.clear();
        Ok(())
    }

    #[inline]
    fn send(&mut self, id: usize) -> Result<()> {
        let Some(socket) = &self.conns[id].socket else { return Ok(()) };
        let sent = net::send(socket, &self.request, net::SendFlags::NOSIGNAL).context("send")?;
        if sent < self.request.len() {
            bail!("a request did not go out in one piece");
        }
        Ok(())
    }

    #[inline]
    fn event(&mut self, id: usize, flags: epoll::EventFlags, buffer: &mut [u8]) -> Result<()> {
        let conn = &mut self.conns[id];
        if conn.socket.is_none() {
            // For the one that was closed in this turn.
            return Ok(());
        }
        if conn.connecting {
            if !flags.contains(epoll::EventFlags::OUT) {
                return Ok(());
            }
            conn.connecting = false;
            return self.hold(id);
        }
        if !flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
            return Ok(());
        }
        loop {
            let conn = &mut self.conns[id];
            let Some(socket) = &conn.socket else { return Ok(()) };
            let n = match net::recv(socket, &mut *buffer, net::RecvFlags::empty()) {
                Ok((n @ 1.., _)) => n,
                Ok(_) => bail!("the server closed a connection"),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error).context("receive"),
            };
            conn.got += n;
            if conn.got >= self.length {
                self.complete(id)?;
            }
            if n < buffer.len() {
                return Ok(());
            }
        }
    }

    #[inline]
    fn complete(&mut self, id: usize) -> Result<()> {
        let now = now_ns();
        let conn = &mut self.conns[id];
        self.tally.answered(conn.started_ns, now);
        self.together.took(now - conn.started_ns);
        (conn.got, conn.started_ns) = (0, now);
        if self.close {
            conn.socket = None;
        }
        if !self.tally.more(now) {
            conn.socket = None;
            self.in_flight -= 1;
            return Ok(());
        }
        if self.close { self.connect(id, now) } else { self.hold(id) }
    }
}

fn wait(poll: &OwnedFd, events: &mut Vec<epoll::Event>, timeout: Option<&Timespec>) -> Result<()> {
    match epoll::wait(poll, rustix::buffer::spare_capacity(events), timeout) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
