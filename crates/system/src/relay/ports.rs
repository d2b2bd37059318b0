//! The byte relay, in front of the ports of a component that shares this machine's network.
//!
//! It knows connections, not packets. Connecting to it takes no time, so the handshake's delay is added before a
//! connection's first bytes. Nothing in a stream can be lost, so a loss shows up as the delay until retransmission. If
//! a component does not accept, the client's connection is reset, since the relay has already accepted it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, set_socket_reuseaddr, set_tcp_nodelay};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, send, shutdown, socket_with,
};

use super::pace::{Fifo, Pace};
use super::{Control, ControlMessage, LinkShape, RelayCounts, RelayReport};
use crate::clock;
use crate::process::open_files;

/// Length of the queue of connections waiting to be accepted.
const BACKLOG: i32 = 4096;
/// Bytes read at once.
const PIECE_BYTES: usize = 64 << 10;
/// How many bytes are queued per direction of a connection; fewer if all connections together hold many.
const MOST_BYTES: usize = 8 << 20;
const LEAST_BYTES: usize = 64 << 10;
const MOST_IN_ALL_BYTES: usize = 256 << 20;
/// If no more connections can be opened, retry after this time, or when a connection has ended.
const RETRY_INTERVAL_NS: u64 = 100_000_000;
/// Event keys that are not connections: a control message has arrived, or a client connects to the port at this index.
const CONTROL: u64 = u64::MAX;
const FIRST_PORT: u64 = u64::MAX - 1 - u16::MAX as u64;

/// Bytes in transit; an empty piece is the end of the stream.
struct Piece {
    due_ns: u64,
    bytes: Vec<u8>,
    sent: usize,
    /// A reset instead of bytes: the connection they came from broke here.
    is_reset: bool,
}

/// When the first piece of a direction is due: time, connection, direction.
type Due = BinaryHeap<Reverse<(u64, u64, usize)>>;

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    order: Fifo,
    queue: VecDeque<Piece>,
    bytes: usize,
    /// Reading is suspended: too much is queued, or the stream has ended.
    is_full: bool,
    has_ended: bool,
    /// The receiving end accepts no more at present.
    is_blocked: bool,
    /// The end of the stream has been forwarded as well.
    is_done: bool,
    /// The end it reads from broke.
    is_broken: bool,
    /// A wake-up is scheduled.
    is_armed: bool,
}

impl Direction {
    /// Schedules a wake-up for its first piece. Pieces stay in order, so one wake-up is enough: with more, each would
    /// schedule the next one again.
    fn arm(&mut self, due: &mut Due, key: u64, number: usize) {
        if let Some(first) = self.queue.front().filter(|_| !self.is_armed && !self.is_blocked) {
            due.push(Reverse((first.due_ns, key, number)));
            self.is_armed = true;
        }
    }
}

/// `ways[0]` leads from `ends[0]`, the client, to `ends[1]`, the component; `ways[1]` leads back.
struct RelayConnection {
    ends: [OwnedFd; 2],
    ways: [Direction; 2],
    /// The events each end is registered for.
    interest: [EventFlags; 2],
}

struct Relay {
    poll: OwnedFd,
    ports: Vec<(OwnedFd, u16)>,
    connections: HashMap<u64, RelayConnection>,
    next: u64,
    due: Due,
    pace: Pace,
    counts: RelayCounts,
    bytes: usize,
    piece: Vec<u8>,
    /// Ports that do not accept until `rests_until_ns` for lack of file descriptors: otherwise the kernel would report
    /// the waiting clients over and over.
    resting: Vec<usize>,
    rests_until_ns: u64,
    /// Kept to reuse its allocation.
    events: Vec<(u64, EventFlags)>,
}

/// Relays until the control connection is closed. `pairs`: `8080:18080,…`, each the port to listen on and the port
/// behind it.
pub(super) fn run(pairs: &str, shape: LinkShape, mut control: Control) -> Result<(), String> {
    // A connection takes two descriptors.
    if let Err(error) = open_files::raise() {
        return Err(format!("cannot raise the limit on open files: {error}"));
    }
    let mut relay = Relay::new(pairs, shape)?;
    let added = relay.add(control.stream.as_fd(), CONTROL, EventFlags::IN);
    added.map_err(|e| e.to_string())?;
    control.report(&RelayReport { shape, counts: relay.counts });
    while relay.turn(&mut control).map_err(|e| e.to_string())? {}
    Ok(())
}

fn listen_at(port: u16) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

impl Relay {
    fn new(pairs: &str, shape: LinkShape) -> Result<Relay, String> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| e.to_string())?;
        let mut relay = Relay {
            poll,
            ports: Vec::new(),
            connections: HashMap::new(),
            next: 0,
            due: BinaryHeap::new(),
            pace: Pace::new(shape),
            counts: RelayCounts::default(),
            bytes: 0,
            piece: vec![0; PIECE_BYTES],
            resting: Vec::new(),
            rests_until_ns: 0,
            events: Vec::with_capacity(256),
        };
        for pair in pairs.split(',') {
            let ports = pair.split_once(':').and_then(|(at, to)| Some((at.parse().ok()?, to.parse().ok()?)));
            let Some((at, to)) = ports else { return Err(format!("`{pair}` is not a pair of ports")) };
            let listening = listen_at(at).map_err(|e| format!("cannot listen on port {at}: {e}"))?;
            let added = relay.add(listening.as_fd(), FIRST_PORT + relay.ports.len() as u64, EventFlags::IN);
            added.map_err(|e| e.to_string())?;
            relay.ports.push((listening, to));
        }
        Ok(relay)
    }

    fn add(&self, file: impl AsFd, key: u64, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::add(&self.poll, file, EventData::new_u64(key), flags)
    }

    /// One turn: handles what has arrived, then what is due. False once the relay is no longer wanted.
    fn turn(&mut self, control: &mut Control) -> rustix::io::Result<bool> {
        let first_ns = self.due.peek().map(|Reverse((due_ns, ..))| *due_ns);
        let again_ns = (!self.resting.is_empty()).then_some(self.rests_until_ns);
        let timeout = first_ns.into_iter().chain(again_ns).min().map(|due_ns| {
            let ns = due_ns.saturating_sub(clock::now_ns());
            Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
        });
        let mut events = std::mem::take(&mut self.events);
        match wait(&self.poll, &mut events, timeout) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        for (key, flags) in events.drain(..) {
            match key {
                CONTROL => match control.look() {
                    ControlMessage::None => {}
                    ControlMessage::Closed => return Ok(false),
                    ControlMessage::Shape(shape) => {
                        self.pace.shape = shape;
                        control.report(&RelayReport { shape, counts: self.counts });
                    }
                },
                FIRST_PORT.. => self.accept((key - FIRST_PORT) as usize),
                _ => self.look_at(key / 2, (key % 2) as usize, flags),
            }
        }
        self.events = events;
        let now_ns = clock::now_ns();
        while let Some(Reverse((due_ns, key, way))) = self.due.peek().copied() {
            if due_ns > now_ns {
                break;
            }
            self.due.pop();
            if let Some(connection) = self.connections.get_mut(&key) {
                connection.ways[way].is_armed = false;
            }
            self.pass_on(key, way);
        }
        if !self.resting.is_empty() && clock::now_ns() >= self.rests_until_ns {
            self.listen_again();
        }
        Ok(true)
    }

    /// Accepts clients again at the resting ports. A port that fails again is retried later.
    fn listen_again(&mut self) {
        let mut resting = std::mem::take(&mut self.resting);
        resting.retain(|place| {
            let port = self.ports[*place].0.as_fd();
            self.add(port, FIRST_PORT + *place as u64, EventFlags::IN).is_err()
        });
        self.rests_until_ns = clock::now_ns() + RETRY_INTERVAL_NS;
        self.resting = resting;
    }

    /// Connects every waiting client to the component.
    fn accept(&mut self, place: usize) {
        let Some((_, to)) = self.ports.get(place) else { return };
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, *to);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            // This end first: without a descriptor for it, clients go on waiting in the kernel's queue.
            let Ok(end) = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None) else {
                return self.rest(place);
            };
            let client = match accept_with(&self.ports[place].0, flags) {
                Ok(client) => client,
                Err(Errno::AGAIN) => return,
                // This client is gone; others may be waiting.
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(_) => return self.rest(place),
            };
            let joined = set_tcp_nodelay(&end, true).and_then(|()| {
                set_tcp_nodelay(&client, true)?;
                match connect(&end, &to) {
                    Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
                    Err(error) => Err(error),
                }
            });
            if joined.is_err() {
                self.counts.dropped += 1;
                reset(client);
                continue;
            };
            let shape = self.pace.shape;
            // A handshake takes a round trip, and the first bytes then travel for half of one.
            let first_ns = clock::now_ns() + shape.delay_ns + shape.delay_ns.div_ceil(2);
            let there = Direction { order: Fifo::not_before(first_ns), ..Direction::default() };
            let interest = [EventFlags::IN; 2];
            let connection =
                RelayConnection { ends: [client, end], ways: [there, Direction::default()], interest };
            let key = self.next;
            self.next += 1;
            for (i, end) in connection.ends.iter().enumerate() {
                let _ = self.add(end, 2 * key + i as u64, EventFlags::IN);
            }
            self.connections.insert(key, connection);
        }
    }

    /// Stops accepting at a port for a while: clients wait in the kernel's queue.
    fn rest(&mut self, place: usize) {
        let _ = epoll::delete(&self.poll, &self.ports[place].0);
        self.resting.push(place);
        self.rests_until_ns = clock::now_ns() + RETRY_INTERVAL_NS;
    }

    /// Handles an end that has something to read, or can take more.
    fn look_at(&mut self, key: u64, end: usize, flags: EventFlags) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        // The direction that leads to this end.
        if flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            connection.ways[1 - end].is_blocked = false;
        }
        let (is_full, has_ended) = (connection.ways[end].is_full, connection.ways[end].has_ended);
        if flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) && !is_full && !has_ended {
            match recv(&connection.ends[end], &mut *self.piece, RecvFlags::DONTWAIT) {
                Ok((_, bytes)) => self.take(key, end, bytes),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return self.broke(key, end),
            }
        }
        self.pass_on(key, 1 - end);
        self.ask(key);
    }

    /// Queues what was read from an end: a piece, or the end of the stream.
    fn take(&mut self, key: u64, end: usize, bytes: usize) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let way = &mut connection.ways[end];
        let (due_ns, is_late) = self.pace.due_in_stream(&mut way.order, clock::now_ns(), bytes);
        self.counts.lost += u64::from(is_late);
        way.has_ended = bytes == 0;
        way.bytes += bytes;
        self.bytes += bytes;
        let most = if self.bytes > MOST_IN_ALL_BYTES { LEAST_BYTES } else { MOST_BYTES };
        way.is_full = way.bytes >= most;
        way.queue.push_back(Piece { due_ns, bytes: self.piece[..bytes].to_vec(), sent: 0, is_reset: false });
        way.arm(&mut self.due, key, end);
    }

    /// Sends what is due in a direction, as far as the receiving end accepts it.
    fn pass_on(&mut self, key: u64, number: usize) {
        let Some(RelayConnection { ends, ways, .. }) = self.connections.get_mut(&key) else { return };
        let (way, end) = (&mut ways[number], &ends[1 - number]);
        let mut is_broken = false;
        while let Some(piece) = way.queue.front_mut().filter(|_| !way.is_blocked) {
            let now_ns = clock::now_ns();
            if piece.due_ns > now_ns {
                way.arm(&mut self.due, key, number);
                break;
            }
            if piece.is_reset {
                return self.abandon(key);
            }
            if piece.bytes.is_empty() {
                let _ = shutdown(end, Shutdown::Write);
                way.queue.pop_front();
                // A peer that has sent everything may still reset the connection.
                way.is_done = way.queue.is_empty();
                continue;
            }
            match send(end, &piece.bytes[piece.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    if piece.sent == 0 {
                        self.counts.went_on(piece.due_ns, now_ns);
                    }
                    piece.sent += sent;
                    (way.bytes, self.bytes) = (way.bytes - sent, self.bytes - sent);
                    if piece.sent == piece.bytes.len() {
                        way.queue.pop_front();
                    }
                }
                // Also if the connection is not established yet.
                Err(Errno::AGAIN | Errno::INTR) => way.is_blocked = true,
                Err(_) => {
                    is_broken = true;
                    break;
                }
            }
        }
        way.is_full &= way.bytes >= LEAST_BYTES;
        if is_broken {
            self.broke(key, 1 - number);
        } else if ways.iter().all(|way| way.is_done) {
            self.connections.remove(&key);
            self.rests_until_ns = 0;
        } else {
            self.ask(key);
        }
    }

    /// Registers each end for the events that matter now.
    fn ask(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        for end in 0..2 {
            let (from, to) = (&connection.ways[end], &connection.ways[1 - end]);
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, !from.is_full && !from.has_ended);
            flags.set(EventFlags::OUT, to.is_blocked);
            let (was, file) = (connection.interest[end], &connection.ends[end]);
            if was == flags {
                continue;
            }
            let data = EventData::new_u64(2 * key + end as u64);
            // Deregister an end with no wanted events: the kernel would report its hang-up over and over.
            let _ = match (was.is_empty(), flags.is_empty()) {
                (_, true) => epoll::delete(&self.poll, file),
                (true, false) => epoll::add(&self.poll, file, data, flags),
                (false, false) => epoll::modify(&self.poll, file, data, flags),
            };
            connection.interest[end] = flags;
        }
    }

    /// Handles a broken end. The other end first gets what was sent before, and is then reset; data in flight to the
    /// broken end has no receiver any more.
    fn broke(&mut self, key: u64, end: usize) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        if connection.ways.iter().any(|way| way.is_broken) {
            return self.abandon(key);
        }
        let back = &mut connection.ways[1 - end];
        self.bytes -= back.bytes;
        *back = Direction { has_ended: true, is_done: true, is_armed: back.is_armed, ..Direction::default() };
        let way = &mut connection.ways[end];
        let due_ns = self.pace.due(&mut way.order, clock::now_ns());
        (way.has_ended, way.is_broken, way.is_done) = (true, true, false);
        way.queue.push_back(Piece { due_ns, bytes: Vec::new(), sent: 0, is_reset: true });
        way.arm(&mut self.due, key, end);
        self.ask(key);
    }

    /// Resets both ends.
    fn abandon(&mut self, key: u64) {
        let Some(connection) = self.connections.remove(&key) else { return };
        self.bytes -= connection.ways.iter().map(|way| way.bytes).sum::<usize>();
        connection.ends.into_iter().for_each(reset);
        self.rests_until_ns = 0;
    }
}

/// Closes the socket so that the peer notices at once.
fn reset(end: OwnedFd) {
    let _ = set_socket_linger(&end, Some(Duration::ZERO));
}

fn wait(
    poll: &OwnedFd,
    into: &mut Vec<(u64, EventFlags)>,
    timeout: Option<Timespec>,
) -> rustix::io::Result<()> {
    let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 256];
    let count = epoll::wait(poll, &mut events, timeout.as_ref())?;
    let events = events.get(..count).unwrap_or_default();
    into.extend(events.iter().map(|event| {
        let epoll::Event { flags, data } = *event;
        (data.u64(), flags)
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A relay, its client, and the component behind it.
    struct Bench {
        relay: Relay,
        control: Control,
        client: TcpStream,
        server: TcpStream,
        _owner: UnixStream,
    }

    impl Bench {
        fn new(delay_ns: u64) -> Bench {
            let component = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let pairs = format!("0:{}", component.local_addr().unwrap().port());
            let mut relay = Relay::new(&pairs, LinkShape { delay_ns, ..LinkShape::default() }).unwrap();
            let at = TcpListener::from(relay.ports[0].0.try_clone().unwrap()).local_addr().unwrap();
            let (stream, owner) = UnixStream::pair().unwrap();
            let mut control = Control { stream, read: Vec::new() };
            let client = TcpStream::connect(at).unwrap();
            while relay.connections.is_empty() {
                relay.turn(&mut control).unwrap();
            }
            let (server, _) = component.accept().unwrap();
            Bench { relay, control, client, server, _owner: owner }
        }

        fn turn(&mut self) {
            assert!(self.relay.turn(&mut self.control).unwrap());
        }
    }

    #[test]
    fn a_way_is_woken_once_however_much_goes_over_both() {
        // Nothing becomes due while this runs.
        let mut bench = Bench::new(3_600_000_000_000);
        for _ in 0..50 {
            bench.client.write_all(b"x").unwrap();
            bench.turn();
            bench.server.write_all(b"y").unwrap();
            bench.turn();
            assert!(bench.relay.due.len() <= 2, "{} wake-ups for two ways", bench.relay.due.len());
        }
    }

    /// Runs as a separate program, so that its limit on open files affects no other test.
    #[test]
    fn without_files_for_connections_it_waits_for_some() {
        if std::env::var_os("RELAY_WITHOUT_FILES").is_none() {
            let exe = std::env::current_exe().unwrap();
            let name = "relay::ports::tests::without_files_for_connections_it_waits_for_some";
            let mut alone = std::process::Command::new(exe);
            let output = alone.args(["--exact", name]).env("RELAY_WITHOUT_FILES", "1").output().unwrap();
            let report = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && report.contains("1 passed"), "{report}");
            return;
        }
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let mut bench = Bench::new(0);
        let at = TcpListener::from(bench.relay.ports[0].0.try_clone().unwrap()).local_addr().unwrap();
        let waiting = TcpStream::connect(at).unwrap();
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_reported = |relay: &Relay| {
            let mut events = Vec::new();
            wait(&relay.poll, &mut events, Some(now)).unwrap();
            events.iter().any(|(key, _)| *key == FIRST_PORT)
        };
        while bench.relay.resting.is_empty() {
            assert!(is_reported(&bench.relay), "somebody waits to be accepted");
            bench.turn();
        }
        assert!(!is_reported(&bench.relay), "the kernel does not report it until it is polled for again");
        setrlimit(Resource::Nofile, before).unwrap();
        while bench.relay.connections.len() < 2 {
            bench.turn();
        }
        assert!(bench.relay.resting.is_empty() && !is_reported(&bench.relay));
        drop(waiting);
    }

    #[test]
    fn a_reset_comes_behind_what_was_sent_before() {
        let mut bench = Bench::new(2_000_000_000);
        bench.server.write_all(b"answer").unwrap();
        while bench.relay.connections[&0].ways[1].queue.is_empty() {
            bench.turn();
        }
        let Bench { mut relay, mut control, mut client, server, _owner } = bench;
        reset(server.into());
        while !relay.connections.is_empty() {
            relay.turn(&mut control).unwrap();
        }
        let mut text = Vec::new();
        let ended = client.read_to_end(&mut text).unwrap_err();
        assert_eq!((text.as_slice(), ended.kind()), (&b"answer"[..], ErrorKind::ConnectionReset));
    }
}
