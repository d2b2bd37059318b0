//! The minimum of an open loop: it waits for each due time of a constant rate, to the nanosecond and on one thread,
//! and records how late it woke. With a server it sends one request each time, on the next free one of its previously
//! opened connections. It is the limit that the lateness of loadlab's schedule is compared with.

use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use loadlab_benches::{fine_timers, learn, now_ns, raise_file_limit, request, truth};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net;
use rustix::time::Timespec;

/// How long it waits for answers after its end.
const GRACE_NS: u64 = 5_000_000_000;

/// Waits for due times, and says how late it was
#[derive(Parser)]
struct Args {
    /// How many fall due a second
    #[arg(long)]
    rate: f64,
    /// For so many seconds
    #[arg(short, long, default_value_t = 3.0)]
    seconds: f64,
    /// Sends a request to this server each time, as ADDRESS:PORT
    #[arg(long)]
    server: Option<SocketAddrV4>,
    /// Connections for them; where none is free the request is not sent
    #[arg(short, long, default_value_t = 64)]
    connections: u32,
}

fn main() -> ExitCode {
    loadlab_benches::tell(run(&Args::parse()))
}

/// The schedule, and its results.
struct Timer {
    rate_per_s: f64,
    total: u64,
    next: u64,
    begun_ns: u64,
    late_ns: Vec<u64>,
}

fn run(args: &Args) -> Result<serde_json::Value> {
    fine_timers();
    raise_file_limit();
    let total = (args.rate * args.seconds).round() as u64;
    let late_ns = Vec::with_capacity(total as usize);
    let mut timer = Timer { rate_per_s: args.rate, total, next: 0, begun_ns: 0, late_ns };
    let mut requests = args.server.map(|server| Requests::open(server, args)).transpose()?;
    // Slightly in the future, so that nothing is late because of startup.
    timer.begun_ns = now_ns() + 20_000_000;
    match &mut requests {
        Some(requests) => with_requests(&mut timer, requests)?,
        None => alone(&mut timer),
    }
    timer.late_ns.sort_unstable();
    let mut report = serde_json::json!({
        "due": timer.late_ns.len(),
        "late_ms": truth::percentiles_ms(&timer.late_ns),
    });
    if let Some(mut requests) = requests {
        requests.service_ns.sort_unstable();
        report["answered"] = requests.service_ns.len().into();
        report["not_sent"] = requests.not_sent.into();
        report["service_ms"] = truth::percentiles_ms(&requests.service_ns);
    }
    Ok(report)
}

impl Timer {
    /// When the next one is due, if there is one.
    fn due(&self) -> Option<u64> {
        (self.next < self.total).then(|| self.begun_ns + (self.next as f64 * 1e9 / self.rate_per_s) as u64)
    }

    /// Records what is due by now; true if anything is.
    fn notice(&mut self, now: u64) -> bool {
        let Some(due) = self.due().filter(|due| *due <= now) else { return false };
        self.late_ns.push(now - due);
        self.next += 1;
        true
    }
}

fn alone(timer: &mut Timer) {
    while let Some(due) = timer.due() {
        let until = Timespec { tv_sec: (due / 1_000_000_000) as i64, tv_nsec: (due % 1_000_000_000) as i64 };
        let _ = rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &until);
        timer.notice(now_ns());
    }
}

struct Requests {
    poll: OwnedFd,
    request: Vec<u8>,
    length: usize,
    sockets: Vec<(TcpStream, usize, u64)>,
    free: Vec<usize>,
    service_ns: Vec<u64>,
    not_sent: u64,
}

impl Requests {
    fn open(server: SocketAddrV4, args: &Args) -> Result<Requests> {
        let length = learn(server, &request(server, "/learn", false))?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut sockets = Vec::new();
        for id in 0..args.connections {
            let socket = TcpStream::connect(server).context("connect")?;
            socket.set_nonblocking(true)?;
            let interest = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
            epoll::add(&poll, &socket, epoll::EventData::new_u64(u64::from(id)), interest)?;
            sockets.push((socket, 0, 0));
        }
        Ok(Requests {
            poll,
            request: request(server, "/", false),
            length,
            free: (0..sockets.len()).rev().collect(),
            sockets,
            service_ns: Vec::with_capacity((args.rate * args.seconds) as usize + 1),
            not_sent: 0,
        })
    }

    fn send(&mut self, now: u64) -> Result<()> {
        let Some(id) = self.free.pop() else {
            self.not_sent += 1;
            return Ok(());
        };
        let (socket, got, started_ns) = &mut self.sockets[id];
        (*got, *started_ns) = (0, now);
        net::send(socket, &self.request, net::SendFlags::NOSIGNAL).context("send")?;
        Ok(())
    }

    fn receive(&mut self, id: usize, buffer: &mut [u8]) -> Result<()> {
        let (socket, got, started_ns) = &mut self.sockets[id];
        match net::recv(&*socket, &mut *buffer, net::RecvFlags::empty()) {
            Ok((0, _)) => bail!("the server closed a connection"),
            Ok((n, _)) => *got += n,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error).context("receive"),
        }
        if *got >= self.length {
            *got = 0;
            self.service_ns.push(now_ns() - *started_ns);
            self.free.push(id);
        }
        Ok(())
    }

    fn under_way(&self) -> bool {
        self.free.len() < self.sockets.len()
    }
}

fn with_requests(timer: &mut Timer, requests: &mut Requests) -> Result<()> {
    let mut events = Vec::with_capacity(512);
    let mut buffer = vec![0u8; 16 * 1024];
    loop {
        let mut now = now_ns();
        while timer.notice(now) {
            requests.send(now)?;
            now = now_ns();
        }
        let until = match timer.due() {
            Some(due) => due,
            None if requests.under_way() => now + GRACE_NS,
            None => return Ok(()),
        };
        let left = until.saturating_sub(now);
        let timeout =
            Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        events.clear();
        match epoll::wait(&requests.poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(0) if timer.due().is_none() => bail!("answers did not come"),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            requests.receive(event.data.u64() as usize, &mut buffer)?;
        }
    }
}
