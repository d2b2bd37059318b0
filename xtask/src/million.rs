//! `cargo xtask bench-million`: so many connections held at once by one loadlab process whose limit on open files
//! is far below, one request answered on each, counted by the servers as well.
//!
//! It runs in a network namespace of its own: with a firewall's connection tracking, the host's table would be full
//! at a quarter of it. The servers are many processes behind one port, because each of them does need a descriptor
//! for every connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};
use rustix::event::epoll;
use rustix::net;

use crate::{command, root};

/// Where the servers listen, in the namespace.
const PORT: u16 = 8080;
/// Connections one server should have to hold, well below the usual limit of 20,000.
const PER_SERVER: u64 = 16_700;
/// Kernel memory of both ends of a connection, bytes, and some more.
const KERNEL_BYTES_EACH: u64 = 9_000;

/// Hold a million connections from one process
#[derive(clap::Args)]
pub struct Args {
    /// How many
    #[arg(long, default_value_t = 1_000_000)]
    connections: u64,
    /// Users that go round them
    #[arg(long, default_value_t = 1000)]
    users: u64,
    /// Load threads of the process
    #[arg(long, default_value_t = 2)]
    threads: u64,
}

/// Builds loadlab and starts this program again in a network namespace of its own.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    lacking(args.connections)?;
    command::shown(&mut command::cargo(&["build", "--release", "-p", "loadlab"]))?
        .ok("the build of loadlab")?;
    let this = std::env::current_exe().context("this program's file")?;
    let status = Command::new("unshare")
        .args(["--net", "--"])
        .arg(this)
        .args(["million-inside"])
        .args([args.connections, args.users, args.threads].map(|n| n.to_string()))
        .status()
        .context("unshare (of Debian's util-linux)")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what this machine lacks for it.
fn lacking(connections: u64) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a network namespace of its own needs root");
    let meminfo = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let available = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let available =
        available.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024;
    let needed = connections * KERNEL_BYTES_EACH;
    ensure!(
        available >= needed,
        "{connections} connections need about {} MiB of kernel memory, and {} MiB are available",
        needed >> 20,
        available >> 20
    );
    Ok(())
}

/// The part inside the namespace.
pub fn inside(connections: u64, users: u64, threads: u64) -> anyhow::Result<ExitCode> {
    ensure!(Command::new("ip").args(["link", "set", "lo", "up"]).status()?.success(), "lo does not come up");
    for (name, value) in [("ipv4/ip_local_port_range", "1024 65535"), ("core/somaxconn", "65535")] {
        let path = Path::new("/proc/sys/net").join(name);
        std::fs::write(&path, value).with_context(|| path.display().to_string())?;
    }
    let servers = start_servers(connections.div_ceil(PER_SERVER).max(1))?;
    let report = load(connections, users, threads)?;
    let mut counted = 0;
    for mut server in servers {
        drop(server.stdin.take());
        let mut text = String::new();
        server.stdout.take().context("a server's output")?.read_to_string(&mut text)?;
        server.wait()?;
        counted += text.trim().parse::<u64>().context("a server's count")?;
    }
    tell(&report, connections, counted)
}

fn start_servers(count: u64) -> anyhow::Result<Vec<Child>> {
    let this = std::env::current_exe().context("this program's file")?;
    let mut servers = Vec::new();
    for _ in 0..count {
        let mut server =
            Command::new(&this).arg("million-server").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut ready = String::new();
        let output = server.stdout.as_mut().context("a server's output")?;
        // Byte by byte: what it prints later is its count.
        let mut byte = [0u8];
        while output.read(&mut byte)? == 1 && byte[0] != b'\n' {
            ready.push(byte[0] as char);
        }
        ensure!(ready == "ready", "a server did not start");
        servers.push(server);
    }
    Ok(servers)
}

fn load(connections: u64, users: u64, threads: u64) -> anyhow::Result<serde_json::Value> {
    let output = Command::new(root::target().join("release/loadlab"))
        .args(["bench", &format!("http://127.0.0.1:{PORT}/"), "--io", "uring", "--json", "--quiet"])
        .args(["--connections", &connections.to_string(), "-c", &users.to_string()])
        .args(["-n", &connections.to_string(), "--timeout", "60s"])
        .args(["--threads", &threads.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .context("target/release/loadlab")?;
    serde_json::from_slice(&output.stdout).context("loadlab's result")
}

fn tell(report: &serde_json::Value, connections: u64, counted: u64) -> anyhow::Result<ExitCode> {
    let number = |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    println!("connections held at once   {}", number("/connections/peak"));
    println!("limit on open files        {limit}");
    println!("load threads               {}", number("/generator/threads"));
    println!("time to connect            {:.1} s", number("/connections/connect_phase_s"));
    println!("answered, one on each      {}", number("/requests/ok"));
    println!("counted by the servers     {counted}");
    println!("time for all requests      {:.1} s", number("/elapsed_s"));
    println!("loadlab's peak memory      {:.1} MB", number("/generator/peak_rss_bytes") / 1e6);
    println!("loadlab's memory for each  {:.0} bytes", number("/connections/bytes_per_connection"));
    let all = connections as f64;
    let done = number("/requests/ok") == all && number("/connections/peak") >= all && counted == connections;
    println!("{}", if done { "done" } else { "NOT DONE" });
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A server: answers whatever comes, counts answers, and tells their number when its input ends.
#[expect(clippy::disallowed_methods, reason = "whoever started it waits for the line")]
pub fn server() -> anyhow::Result<ExitCode> {
    use net::sockopt::{set_socket_reuseaddr, set_socket_reuseport};
    let flags = net::SocketFlags::NONBLOCK | net::SocketFlags::CLOEXEC;
    let listener = net::socket_with(net::AddressFamily::INET, net::SocketType::STREAM, flags, None)?;
    set_socket_reuseaddr(&listener, true)?;
    set_socket_reuseport(&listener, true)?;
    net::bind(&listener, &std::net::SocketAddr::from(([127, 0, 0, 1], PORT)))?;
    net::listen(&listener, 65_535)?;
    println!("ready");
    std::io::stdout().flush()?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = |fd: i32| epoll::EventData::new_u64(fd as u64);
    let stdin = std::io::stdin();
    epoll::add(&poll, &stdin, data(0), epoll::EventFlags::IN)?;
    epoll::add(&poll, &listener, data(listener.as_raw_fd()), epoll::EventFlags::IN)?;
    let mut open: Vec<Option<OwnedFd>> = Vec::new();
    let mut answered = 0u64;
    let mut buffer = vec![0u8; 8192];
    let mut events = Vec::with_capacity(512);
    loop {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => bail!(error),
        }
        for event in &events {
            match event.data.u64() as i32 {
                0 => {
                    let mut line = String::new();
                    if BufReader::new(stdin.lock()).read_line(&mut line)? == 0 {
                        println!("{answered}");
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                fd if fd == listener.as_raw_fd() => accept(&listener, &poll, &mut open)?,
                fd => answered += u64::from(answer(fd, &mut open, &mut buffer)),
            }
        }
    }
}

fn accept(listener: &OwnedFd, poll: &OwnedFd, open: &mut Vec<Option<OwnedFd>>) -> anyhow::Result<()> {
    let flags = net::SocketFlags::NONBLOCK | net::SocketFlags::CLOEXEC;
    while let Ok(socket) = net::accept_with(listener, flags) {
        let fd = socket.as_raw_fd();
        epoll::add(poll, &socket, epoll::EventData::new_u64(fd as u64), epoll::EventFlags::IN)?;
        if open.len() <= fd as usize {
            open.resize_with(fd as usize + 1, || None);
        }
        open[fd as usize] = Some(socket);
    }
    Ok(())
}

/// Reads a request, which comes in one piece, and answers it; true if it did.
fn answer(fd: i32, open: &mut [Option<OwnedFd>], buffer: &mut [u8]) -> bool {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let Some(slot) = open.get_mut(fd as usize) else { return false };
    let Some(socket) = slot else { return false };
    match net::recv(&*socket, &mut *buffer, net::RecvFlags::empty()) {
        Ok((n, _)) if n > 0 => net::send(&*socket, ANSWER, net::SendFlags::NOSIGNAL) == Ok(ANSWER.len()),
        Err(rustix::io::Errno::AGAIN) => false,
        _ => {
            *slot = None;
            false
        }
    }
}
