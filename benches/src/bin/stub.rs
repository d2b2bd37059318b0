//! A server that knows the truth: it answers every GET at once, freezes for a set time if requested, and logs for
//! each request when it could have been read and when it was answered. When its standard input ends it prints, as one
//! JSON object, what response times and lateness really were (see [`truth`]).
//!
//! Arrival is the kernel's own receive timestamp, so it includes neither the freeze nor the stub's own wake-ups.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a program")]
#![expect(unsafe_code, reason = "receive timestamps of the kernel, which no safe wrapper reads")]

use std::io::Write;
use std::mem::MaybeUninit;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use loadlab_benches::truth::{self, Seen};
use loadlab_benches::{fine_timers, nanoseconds, now_ns, raise_file_limit};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net;
use rustix::time::{ClockId, Timespec, clock_gettime};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Requested to learn the answer's length; not in the log.
const NOT_LOGGED: &[u8] = b"GET /learn ";
/// Room for the log, so that it does not move while it grows.
const LOG: usize = 1 << 20;
const STDIN: u64 = 0;
const LISTENER: u64 = 1;

/// Answers GET requests on a port of 127.0.0.1, which it prints as `ready ADDRESS:PORT`
#[derive(Parser)]
struct Args {
    /// This port, perhaps together with other stubs, instead of a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// At which rate a second the requests fall due; without, truth is not told
    #[arg(long)]
    rate: Option<f64>,
    /// So many seconds after the first request it stands still
    #[arg(long, requires = "freeze_s")]
    freeze_at_s: Option<f64>,
    /// For so many seconds
    #[arg(long)]
    freeze_s: Option<f64>,
}

fn main() -> ExitCode {
    loadlab_benches::tell(Stub::start(&Args::parse()).and_then(Stub::serve))
}

struct Stub {
    rate_per_s: Option<f64>,
    /// After the first request, nanoseconds.
    freeze: Option<(u64, u64)>,
    listener: OwnedFd,
    poll: OwnedFd,
    open: Vec<Option<OwnedFd>>,
    froze: bool,
    log: Vec<Seen>,
    /// Requests that did not come in one piece: not answered, so that the log is not taken as complete.
    pieces: u64,
}

impl Stub {
    fn start(args: &Args) -> Result<Stub> {
        fine_timers();
        raise_file_limit();
        let flags = net::SocketFlags::NONBLOCK | net::SocketFlags::CLOEXEC;
        let listener = net::socket_with(net::AddressFamily::INET, net::SocketType::STREAM, flags, None)?;
        // Connections inherit it.
        stamp_arrivals(&listener).context("receive timestamps")?;
        net::sockopt::set_socket_reuseport(&listener, args.port != 0)?;
        net::bind(&listener, &SocketAddrV4::new([127, 0, 0, 1].into(), args.port))?;
        net::listen(&listener, 65_535)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, std::io::stdin(), epoll::EventData::new_u64(STDIN), epoll::EventFlags::IN)?;
        epoll::add(&poll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let freeze = args.freeze_at_s.zip(args.freeze_s).map(|(at, length)| (ns(at), ns(length)));
        let address = SocketAddrV4::try_from(net::getsockname(&listener)?)?;
        println!("ready {address}");
        std::io::stdout().flush()?;
        Ok(Stub {
            rate_per_s: args.rate,
            freeze,
            listener,
            poll,
            open: Vec::new(),
            froze: false,
            log: Vec::with_capacity(LOG),
            pieces: 0,
        })
    }

    fn serve(mut self) -> Result<serde_json::Value> {
        let mut events = Vec::with_capacity(512);
        let mut buffer = vec![0u8; 16 * 1024];
        loop {
            events.clear();
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.freeze_if_due();
            for event in &events {
                match event.data.u64() {
                    STDIN if ended(&mut buffer)? => return Ok(self.report()),
                    STDIN => {}
                    LISTENER => self.accept()?,
                    fd => self.answer(fd as usize, &mut buffer),
                }
            }
        }
    }

    /// Freezes once, for a while. Requests come all the time, so one of them triggers it in time.
    fn freeze_if_due(&mut self) {
        let (Some((after_ns, length_ns)), Some(first)) = (self.freeze, self.log.first()) else { return };
        let at_ns = first.arrived_ns + after_ns;
        if now_ns() < at_ns {
            return;
        }
        (self.freeze, self.froze) = (None, true);
        let until_ns = at_ns + length_ns;
        let until = Timespec {
            tv_sec: (until_ns / 1_000_000_000) as i64,
            tv_nsec: (until_ns % 1_000_000_000) as i64,
        };
        while rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &until).is_err() {}
    }

    fn accept(&mut self) -> Result<()> {
        let flags = net::SocketFlags::NONBLOCK | net::SocketFlags::CLOEXEC;
        loop {
            let socket = match net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
                Err(error) => return Err(error).context("accept"),
            };
            // Descriptors 0 and 1 are taken, so their numbers can have other meanings.
            let fd = socket.as_raw_fd() as usize;
            epoll::add(&self.poll, &socket, epoll::EventData::new_u64(fd as u64), epoll::EventFlags::IN)?;
            if self.open.len() <= fd {
                self.open.resize_with(fd + 1, || None);
            }
            self.open[fd] = Some(socket);
        }
    }

    /// Reads a request, which comes in one piece, and answers it.
    fn answer(&mut self, fd: usize, buffer: &mut [u8]) {
        let Some(slot) = self.open.get_mut(fd) else { return };
        let Some(socket) = slot else { return };
        let (length, stamp_ns) = match receive(socket, buffer) {
            Ok((n @ 1.., stamp)) => (n, stamp),
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok(_) | Err(_) => {
                *slot = None;
                return;
            }
        };
        let request = &buffer[..length];
        if !request.ends_with(b"\r\n\r\n") {
            self.pieces += 1;
            return;
        }
        let now = now_ns();
        if !request.starts_with(NOT_LOGGED) {
            // The stamp is on the wall clock; reading both together converts from one to the other.
            let day_ns = nanoseconds(clock_gettime(ClockId::Realtime));
            let arrived_ns = stamp_ns.map_or(now, |at| now - day_ns.saturating_sub(at).min(now));
            self.log.push(Seen { arrived_ns, answered_ns: now });
        }
        if net::send(socket, ANSWER, net::SendFlags::NOSIGNAL) != Ok(ANSWER.len()) {
            *slot = None;
        }
    }

    fn report(self) -> serde_json::Value {
        let mut report =
            serde_json::json!({ "requests": self.log.len(), "pieces": self.pieces, "froze": self.froze });
        if let Some(rate_per_s) = self.rate_per_s {
            let truth = truth::of(&self.log, rate_per_s);
            report["late_ms"] = truth::percentiles_ms(&truth.late_ns);
            report["response_ms"] = truth::percentiles_ms(&truth.response_ns);
        }
        report
    }
}

/// Whether standard input has ended.
fn ended(buffer: &mut [u8]) -> Result<bool> {
    Ok(rustix::io::read(std::io::stdin().as_fd(), buffer).context("standard input")? == 0)
}

fn stamp_arrivals(socket: &OwnedFd) -> Result<()> {
    let one: libc::c_int = 1;
    // SAFETY: the option takes an int, whose address and size are given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            std::ptr::addr_of!(one).cast(),
            std::mem::size_of_val(&one) as libc::socklen_t,
        )
    };
    ensure!(result == 0, std::io::Error::last_os_error());
    Ok(())
}

/// Receives, and returns when the last part arrived, on the wall clock in nanoseconds, if the kernel reports it.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Result<(usize, Option<u64>), Errno> {
    // Room for one timestamp; u64 for the alignment of a cmsghdr.
    let mut control = [MaybeUninit::<u64>::uninit(); 8];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all bytes zero are a value of this plain C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = std::mem::size_of_val(&control) as _;
    // SAFETY: the message points to `part` and `control`, which live until the end of this function; the descriptor is
    // open.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    if n < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: the kernel has filled `message` in, and CMSG_FIRSTHDR is null where there is no control message.
    let stamp = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_stamp = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_TIMESTAMPNS;
        is_stamp.then(|| libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned())
    };
    let stamp = stamp.filter(|t| t.tv_sec > 0).map(|t| t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64);
    Ok((n as usize, stamp))
}
