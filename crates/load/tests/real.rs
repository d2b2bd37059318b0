//! The contract every I/O backend owes the worker, over real sockets and against a misbehaving server.
//!
//! To test another backend, add one line at the end of this file.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use loadlab_load::io::epoll::Epoll;
use loadlab_load::io::uring::{Size, Uring};
use loadlab_load::io::{ConnId, Event, Io, Ops, Sink, Wait};

use crate::server::{Request, Script, Server, Step, TIMEOUT, always, good, response, send, slow};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const MS: u64 = 1_000_000;

/// A recorded event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Connected,
    Received(Vec<u8>, bool),
    Sent(usize),
    Closed,
    Failed(i32),
}

/// Everything a backend reported, in order.
#[derive(Default)]
struct Log(Vec<(ConnId, Seen)>);

impl<O> Sink<O> for Log {
    fn event(&mut self, _: &mut O, event: Event<'_>) {
        self.0.push(match event {
            Event::Connected(conn) => (conn, Seen::Connected),
            Event::Received { conn, bytes, last } => (conn, Seen::Received(bytes.to_vec(), last)),
            Event::Sent(conn, bytes) => (conn, Seen::Sent(bytes)),
            Event::Closed(conn) => (conn, Seen::Closed),
            Event::Failed(conn, error) => (conn, Seen::Failed(error)),
        });
    }
}

impl Log {
    fn of(&self, conn: ConnId) -> Vec<&Seen> {
        self.0.iter().filter(|(c, _)| *c == conn).map(|(_, seen)| seen).collect()
    }

    fn bytes(&self, conn: ConnId) -> Vec<u8> {
        let parts = self.of(conn).into_iter().filter_map(|s| match s {
            Seen::Received(bytes, _) => Some(bytes.as_slice()),
            _ => None,
        });
        parts.collect::<Vec<_>>().concat()
    }

    fn sent(&self, conn: ConnId) -> usize {
        self.of(conn).iter().map(|s| if let Seen::Sent(n) = s { *n } else { 0 }).sum()
    }

    /// How the connection ended, if reported: `Some(None)` is an orderly close.
    fn end(&self, conn: ConnId) -> Option<Option<i32>> {
        self.of(conn).iter().find_map(|s| match s {
            Seen::Closed => Some(None),
            Seen::Failed(error) => Some(Some(*error)),
            _ => None,
        })
    }
}

/// A backend and the events it reported.
struct Driven<I> {
    io: I,
    log: Log,
}

impl<I: Io<'static>> Driven<I> {
    fn connect(&mut self, conn: ConnId, address: SocketAddr) {
        self.io.ops().connect(conn, &address.into(), None);
    }

    fn poll_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.turn();
        }
    }

    fn turn(&mut self) {
        let until_ns = self.io.ops().now() + 10 * MS;
        self.io.poll(Wait::until(until_ns), &mut self.log).expect("a turn");
    }

    fn until(&mut self, what: &str, done: impl Fn(&Log) -> bool) {
        let until = Instant::now() + TIMEOUT;
        while !done(&self.log) {
            assert!(Instant::now() < until, "waited in vain until {what}: {:?}", self.log.0);
            self.turn();
        }
    }

    fn connected(&mut self, conn: ConnId, address: SocketAddr) {
        let before = self.log.of(conn).len();
        self.connect(conn, address);
        self.until("connected", |log| log.of(conn).len() > before);
        assert_eq!(self.log.of(conn).last(), Some(&&Seen::Connected));
    }

    /// Sends the request and waits for this many bytes of the answer.
    fn exchange(&mut self, conn: ConnId, bytes: usize) {
        let before = self.log.bytes(conn).len();
        self.io.ops().send(conn, REQUEST);
        self.until("answered", |log| log.bytes(conn).len() >= before + bytes);
    }
}

fn an_exchange<I: Io<'static>>(mut b: Driven<I>) {
    let server = Server::start(good);
    b.connected(0, server.address);
    for _ in 0..3 {
        b.exchange(0, response(200, "hello").len());
    }
    assert_eq!(b.log.bytes(0), response(200, "hello").repeat(3));
    b.io.ops().close(0);
    drop(b);
    let counts = server.settled();
    assert_eq!((counts.requests, counts.connections, counts.ended, counts.resets), (3, 1, 1, 0));
    assert_eq!(counts.received, 3 * REQUEST.len() as u64);
}

fn a_close_is_reported_once_and_after_what_came_before_it<I: Io<'static>>(mut b: Driven<I>) {
    let server = Server::start(always(vec![send("bye"), Step::Close]));
    for conn in 0..20 {
        b.connected(conn, server.address);
        b.io.ops().send(conn, REQUEST);
    }
    b.until("all are closed", |log| (0..20).all(|c| log.end(c).is_some()));
    for conn in 0..20 {
        assert_eq!(b.log.bytes(conn), b"bye");
        let (last, before) = b.log.of(conn).split_last().map(|(l, r)| ((*l).clone(), r.len())).unwrap();
        assert_eq!(last, Seen::Closed);
        assert!(before >= 2);
        assert_eq!(b.log.of(conn).iter().filter(|s| ***s == Seen::Closed).count(), 1);
        b.io.ops().close(conn);
    }
    let reported = b.log.0.len();
    b.poll_for(Duration::from_millis(50));
    assert_eq!(b.log.0.len(), reported, "no event comes after a close");
}

fn a_refusal_is_reported_with_its_reason<I: Io<'static>>(mut b: Driven<I>) {
    // A port that the kernel never assigns: one that was free a moment ago may belong to another test by now.
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    for round in 1..=3 {
        b.connect(0, address);
        b.until("refused", |log| log.of(0).len() == round);
        assert_eq!(*b.log.of(0)[round - 1], Seen::Failed(libc::ECONNREFUSED));
        b.io.ops().close(0);
    }
    b.poll_for(Duration::from_millis(30));
    assert_eq!(b.log.0.len(), 3);
}

fn a_reset_is_reported_as_one<I: Io<'static>>(mut b: Driven<I>) {
    let server = Server::start(always(vec![Step::Reset]));
    b.connected(0, server.address);
    b.io.ops().send(0, REQUEST);
    b.until("reset", |log| log.end(0).is_some());
    assert_eq!(b.log.end(0), Some(Some(libc::ECONNRESET)));
}

fn a_reused_place_gets_no_events_of_its_past<I: Io<'static>>(mut b: Driven<I>) {
    let server = Server::start(|r: &Request| vec![send(format!("{:04}", r.connection).repeat(1000))]);
    for round in 0..50 {
        // The previous answer may be in flight, or already read, when its connection is closed.
        b.connect(7, server.address);
        let connected = |log: &Log| log.of(7).iter().filter(|s| ***s == Seen::Connected).count() > round;
        b.until("connected", connected);
        b.io.ops().send(7, REQUEST);
        if round % 3 == 0 {
            b.turn();
        }
        if round < 49 {
            b.io.ops().close(7);
        }
    }
    b.log.0.clear();
    let own = format!("{:04}", 49).repeat(1000);
    b.poll_for(Duration::from_millis(20));
    b.until("the last one is answered", |log| !log.bytes(7).is_empty());
    b.poll_for(Duration::from_millis(20));
    let got = b.log.bytes(7);
    assert!(
        own.as_bytes().ends_with(&got),
        "bytes of another connection: {:?}",
        String::from_utf8_lossy(&got)
    );
}

fn a_long_send_goes_out_whole<I: Io<'static>>(mut b: Driven<I>) {
    const BODY: usize = 12 << 20;
    let mut bytes = format!("POST / HTTP/1.1\r\nContent-Length: {BODY}\r\n\r\n").into_bytes();
    bytes.extend((0..BODY).map(|i| (i * 7 % 251) as u8));
    let bytes: &'static [u8] = bytes.leak();
    let body = &bytes[bytes.len() - BODY..];
    let server = Server::start(|r: &Request| {
        let right = r.body.iter().enumerate().all(|(i, b)| *b == (i * 7 % 251) as u8);
        vec![send(response(if right && r.body.len() == BODY { 200 } else { 400 }, ""))]
    });
    b.connected(0, server.address);
    for round in 1..=2 {
        let reported = b.log.sent(0);
        let at_once = b.io.ops().send(0, bytes);
        assert!(at_once <= bytes.len());
        b.until("answered", |log| log.bytes(0).len() >= round * response(200, "").len());
        b.until("all is reported as sent", |log| log.sent(0) - reported + at_once >= bytes.len());
        assert_eq!(b.log.sent(0) - reported + at_once, bytes.len());
    }
    assert_eq!(b.log.bytes(0), response(200, "").repeat(2));
    assert_eq!(server.counts().last.unwrap().body, body);
}

/// Bytes that are valid only during the call still arrive, in order, whether few or many.
fn copies_go_out_whole_and_in_order<I: Io<'static>>(mut b: Driven<I>) {
    let server = Server::start(|r: &Request| {
        let right = r.body.iter().enumerate().all(|(i, b)| *b == (i * 7 % 251) as u8);
        vec![send(response(if right { 200 } else { 400 }, &r.body.len().to_string()))]
    });
    b.connected(0, server.address);
    for length in [0usize, 10, 5000, 12 << 20] {
        let (before, reported) = (b.log.bytes(0).len(), b.log.sent(0));
        let mut bytes = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        bytes.extend((0..length).map(|i| (i * 7 % 251) as u8));
        let mut at_once = 0;
        // In three parts, with a turn before the last.
        let third = bytes.len().div_ceil(3);
        for (i, part) in bytes.chunks_mut(third).enumerate() {
            if i == 2 {
                b.turn();
            }
            at_once += b.io.ops().send_copy(0, part);
            part.fill(b'#');
        }
        let answer = response(200, &length.to_string());
        b.until("answered", |log| log.bytes(0).len() >= before + answer.len());
        assert_eq!(b.log.bytes(0)[before..], *answer);
        b.until("all is reported as sent", |log| log.sent(0) - reported + at_once >= bytes.len());
        assert_eq!(b.log.sent(0) - reported + at_once, bytes.len());
    }
}

/// Closing a connection with a copy in flight frees its slot, and the next connection in that slot sends none of it.
fn a_copy_ends_with_its_connection<I: Io<'static>>(mut b: Driven<I>) {
    let deaf = Server::start(always(vec![Step::Hang]));
    let server = Server::start(good);
    let mut long = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", 32 << 20).into_bytes();
    long.resize(long.len() + (16 << 20), b'x');
    for round in 0..3 {
        b.connected(0, deaf.address);
        b.io.ops().send_copy(0, &long);
        if round > 0 {
            b.turn();
            b.io.ops().send_copy(0, &long);
        }
        b.io.ops().close(0);
        b.connected(0, server.address);
        let before = b.log.bytes(0).len();
        b.io.ops().send_copy(0, REQUEST);
        b.until("answered", |log| log.bytes(0).len() > before);
        assert_eq!(b.log.bytes(0)[before..], *response(200, "hello"));
        b.io.ops().close(0);
    }
    drop(b);
    assert_eq!(deaf.settled_after(3).connections, 3);
}

fn a_long_answer_comes_whole<I: Io<'static>>(mut b: Driven<I>) {
    const LENGTH: usize = 8 << 20;
    let answer: Vec<u8> = (0..LENGTH).map(|i| (i * 11 % 253) as u8).collect();
    let server = Server::start(always(vec![Step::Send(answer.clone()), Step::Close]));
    for conn in 0..3 {
        b.connected(conn, server.address);
        b.io.ops().send(conn, REQUEST);
    }
    b.until("all have ended", |log| (0..3).all(|c| log.end(c).is_some()));
    for conn in 0..3 {
        assert_eq!(b.log.end(conn), Some(None));
        assert!(b.log.bytes(conn) == answer, "{} of {LENGTH} bytes", b.log.bytes(conn).len());
    }
}

/// A lot of data and then the end of the stream arrive before the backend polls: both are reported in full.
#[expect(
    clippy::disallowed_methods,
    reason = "a worker that is busy elsewhere for a while is what is tested"
)]
fn bytes_that_arrived_between_polls_are_reported_to_their_end<I: Io<'static>>(mut b: Driven<I>) {
    const MIB: usize = 1 << 20;
    let server = Server::start(|r: &Request| match r.on_connection {
        // The first answer is long, so that the kernel grows the window.
        0 => vec![Step::Send(vec![b'a'; 24 * MIB])],
        _ => vec![Step::Wait(Duration::from_millis(100)), Step::Send(vec![b'b'; MIB + 200_000]), Step::Close],
    });
    b.connected(0, server.address);
    b.io.ops().send(0, REQUEST);
    b.until("the first came", |log| log.bytes(0).len() == 24 * MIB);
    b.log.0.clear();
    b.io.ops().send(0, REQUEST);
    b.io.poll(Wait::until(0), &mut b.log).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    b.until("the end is reported", |log| log.end(0).is_some());
    assert_eq!((b.log.end(0), b.log.bytes(0).len()), (Some(None), MIB + 200_000));
}

fn trickled_bytes_come_in_order<I: Io<'static>>(mut b: Driven<I>) {
    let answer = response(200, &"0123456789".repeat(20));
    let server = Server::start(always(vec![Step::Trickle(answer.clone()), Step::Close]));
    for conn in 0..10 {
        b.connected(conn, server.address);
        b.io.ops().send(conn, REQUEST);
    }
    b.until("all have ended", |log| (0..10).all(|c| log.end(c).is_some()));
    assert!((0..10).all(|c| b.log.bytes(c) == answer));
}

/// Socket states, as in `/proc/net/tcp`.
const SYN_SENT: &str = "02";
pub const CLOSE_WAIT: &str = "08";

/// The number of sockets in this network namespace in a state whose remote port is that of the address.
pub fn sockets_to(address: SocketAddr, state: &str) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!(":{:04X} {state} ", address.port());
    table.lines().filter(|l| l.contains(&remote)).count()
}

/// A request sent on an already closed connection is reported as unseen; a request that the server read is not.
fn unseen_is_known<I: Io<'static>>(mut b: Driven<I>) {
    // Closed without the worker knowing when it sends: not before it has seen the answer, however late it is.
    let mut closing = Server::start(always(vec![send("bye")]));
    b.connected(0, closing.address);
    b.exchange(0, 3);
    closing.die();
    let until = Instant::now() + TIMEOUT;
    // The end of the stream has arrived, but the backend has not looked at it yet.
    while sockets_to(closing.address, CLOSE_WAIT) < 1 {
        assert!(Instant::now() < until);
    }
    assert_eq!(b.log.end(0), None);
    b.io.ops().send(0, REQUEST);
    b.until("reported of the close", |log| log.end(0).is_some());
    assert!(b.io.ops().unseen(0), "{:?}", b.log.0);
    b.io.ops().close(0);
    let server = Server::start(|r: &Request| match r.connection {
        0 => vec![Step::Close],
        _ => vec![Step::Wait(Duration::from_millis(200)), Step::Reset],
    });
    // Read, then closed without an answer.
    b.connected(1, server.address);
    b.io.ops().send(1, REQUEST);
    b.until("closed", |log| log.end(1).is_some());
    assert!(!b.io.ops().unseen(1), "{:?}", b.log.0);
    b.io.ops().close(1);
    // Read, acknowledged in time, then reset.
    b.connected(2, server.address);
    b.io.ops().send(2, REQUEST);
    b.until("reset", |log| log.end(2).is_some());
    assert!(!b.io.ops().unseen(2), "{:?}", b.log.0);
    assert_eq!((closing.counts().requests, server.counts().requests), (1, 2));
}

fn many_at_once<I: Io<'static>>(mut b: Driven<I>) {
    const CONNS: u32 = 300;
    let server = Server::start(good);
    (0..CONNS).for_each(|c| b.connect(c, server.address));
    b.until("all stand", |log| (0..CONNS).all(|c| !log.of(c).is_empty()));
    for round in 1..=5 {
        for conn in 0..CONNS {
            assert!(b.io.ops().send(conn, REQUEST) <= REQUEST.len());
        }
        let bytes = round * response(200, "hello").len();
        b.until("all are answered", |log| (0..CONNS).all(|c| log.bytes(c).len() == bytes));
    }
    (0..CONNS).for_each(|c| b.io.ops().close(c));
    drop(b);
    let counts = server.settled();
    assert_eq!((counts.requests, counts.connections), (5 * u64::from(CONNS), u64::from(CONNS)));
    assert_eq!((counts.ended, counts.resets), (u64::from(CONNS), 0));
}

/// A connect takes several steps. However many connects start in one turn, and however many of them are abandoned and
/// restarted, each consists of its own steps, in order.
fn connects_are_whole<I: Io<'static>>(mut b: Driven<I>) {
    const CONNS: u32 = 280;
    let source = Some("127.0.3.7".parse().unwrap());
    let server = Server::start(good);
    for round in 0..8 {
        // Extra connects first, one more each round, so that the limit per turn falls within a different connect each
        // round.
        (0..round).for_each(|c| b.connect(CONNS + c, server.address));
        let begin = |b: &mut Driven<I>, conn| b.io.ops().connect(conn, &server.address.into(), source);
        (0..CONNS).for_each(|c| begin(&mut b, c));
        for conn in (0..CONNS).step_by(3) {
            b.io.ops().close(conn);
            begin(&mut b, conn);
        }
        let all = CONNS + round;
        b.until("all are reported of", |log| (0..all).all(|c| !log.of(c).is_empty()));
        assert!((0..all).all(|c| b.log.of(c) == [&Seen::Connected]), "round {round}: {:?}", b.log.0);
        (0..all).for_each(|c| b.io.ops().close(c));
        b.log.0.clear();
    }
}

fn ipv6<I: Io<'static>>(mut b: Driven<I>) {
    let server = Server::at("[::1]:0", good);
    b.connected(0, server.address);
    b.exchange(0, response(200, "hello").len());
}

/// Abandoned while connecting: nothing is left in the kernel to complete later.
#[expect(
    unsafe_code,
    reason = "listen again with a backlog of one: the fault under test is made with a socket call"
)]
fn a_cancelled_connect_leaves_nothing<I: Io<'static>>(mut b: Driven<I>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: calling listen again on our own listening socket only changes its backlog.
    unsafe { libc::listen(listener.as_raw_fd(), 1) };
    let address = listener.local_addr().unwrap();
    let pending = || sockets_to(address, SYN_SENT);
    (0..12).for_each(|c| b.connect(c, address));
    let until = Instant::now() + TIMEOUT;
    while pending() == 0 {
        assert!(Instant::now() < until, "the backlog does not fill");
        b.turn();
    }
    (0..12).for_each(|c| b.io.ops().close(c));
    b.log.0.clear();
    // Nobody accepts, and a connect that goes on is tried for two minutes.
    let until = Instant::now() + TIMEOUT;
    while pending() > 0 {
        assert!(Instant::now() < until, "still connecting");
        b.turn();
    }
    b.poll_for(Duration::from_millis(50));
    assert!(b.log.0.is_empty(), "{:?}", b.log.0);
}

/// Answers after the head alone and closes with the rest unread, so a reset follows the answer.
struct Early;

impl Script for Early {
    fn head(&self, _: &Request) -> Vec<Step> {
        vec![send("too much"), Step::Wait(Duration::from_millis(20)), Step::Close]
    }
    fn answer(&self, _: &Request) -> Vec<Step> {
        Vec::new()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a worker that is busy elsewhere for a while is what is tested"
)]
fn an_answer_is_reported_before_the_send_it_cut_short<I: Io<'static>>(mut b: Driven<I>) {
    const BODY: usize = 8 << 20;
    let mut bytes = format!("POST / HTTP/1.1\r\nContent-Length: {BODY}\r\n\r\n").into_bytes();
    bytes.resize(bytes.len() + BODY, b'x');
    let bytes: &'static [u8] = bytes.leak();
    let server = Server::start(Early);
    for conn in 0..10 {
        b.connected(conn, server.address);
        b.io.ops().send(conn, bytes);
        // Busy elsewhere, as a worker can be: the answer and the reset are both pending at the next poll.
        std::thread::sleep(Duration::from_millis(60));
        b.until("ended", |log| log.end(conn).is_some());
        let reported = b.log.of(conn);
        let ended = reported.iter().position(|s| matches!(s, Seen::Failed(_) | Seen::Closed));
        let answered = reported.iter().position(|s| matches!(s, Seen::Received(..)));
        assert!(answered.is_some() && answered < ended, "{reported:?}");
    }
}

fn a_wait_lasts_no_longer_than_asked_for_unless_something_comes<I: Io<'static>>(mut b: Driven<I>) {
    let from_ns = b.io.ops().now();
    let mut turns = 0;
    // At least once, even if this thread got no core for so long.
    while turns == 0 || b.io.ops().now() < from_ns + 30 * MS {
        b.io.poll(Wait::until(from_ns + 30 * MS), &mut b.log).unwrap();
        turns += 1;
    }
    assert!(turns < 100, "it does not sleep: {turns} turns");
    // A deadline in the past does not wait.
    b.io.poll(Wait::until(from_ns), &mut b.log).unwrap();
    b.io.poll(Wait::until(0), &mut b.log).unwrap();
    assert!(b.log.0.is_empty());
    // An event ends a long wait.
    let server = Server::start(slow(Duration::from_millis(10)));
    b.connected(0, server.address);
    b.io.ops().send(0, REQUEST);
    while b.log.bytes(0).is_empty() {
        let until_ns = b.io.ops().now() + 600_000 * MS;
        b.io.poll(Wait::until(until_ns), &mut b.log).unwrap();
    }
}

fn waiting_for_several_ends_with_one<I: Io<'static>>(mut b: Driven<I>) {
    let server = Server::start(good);
    b.connected(0, server.address);
    for _ in 0..20 {
        let before = b.log.bytes(0).len();
        b.io.ops().send(0, REQUEST);
        while b.log.bytes(0).len() == before {
            // Nine events will never come: the one is still reported, long before the hour is over.
            let until_ns = b.io.ops().now() + 3_600_000 * MS;
            b.io.poll(Wait { until_ns, at_least: 9, within_ns: MS / 10 }, &mut b.log).unwrap();
        }
    }
    assert_eq!(b.log.bytes(0), response(200, "hello").repeat(20));
    // Without any event, the wait does not outlast its deadline.
    let until_ns = b.io.ops().now() + 5 * MS;
    while b.io.ops().now() < until_ns {
        b.io.poll(Wait { until_ns, at_least: 9, within_ns: MS }, &mut b.log).unwrap();
    }
}

/// Dropped with connections open and a send in flight: nothing hangs, and the server sees each connection end.
fn it_can_be_dropped_at_any_time<I: Io<'static>>(mut b: Driven<I>) {
    let server = Server::start(always(vec![Step::Hang]));
    let mut bytes = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", 32 << 20).into_bytes();
    bytes.resize(bytes.len() + (16 << 20), b'x');
    let bytes: &'static [u8] = bytes.leak();
    for conn in 0..8 {
        b.connected(conn, server.address);
        b.io.ops().send(conn, if conn % 2 == 0 { REQUEST } else { bytes });
    }
    b.turn();
    drop(b);
    let counts = server.settled_after(8);
    assert_eq!(counts.connections, 8);
}

/// A connection moves as a plain socket: to another slot, and to another backend.
fn a_connection_continues_in_another_backend<I: Io<'static>>(mut b: Driven<I>) {
    let server = Server::start(good);
    let length = response(200, "hello").len();
    b.connected(3, server.address);
    b.exchange(3, length);
    let socket = b.io.ops().give(3).expect("nothing is under way on it");
    let reported = b.log.0.len();
    assert!(b.io.ops().take(7, &server.address.into(), socket));
    b.exchange(7, length);
    assert_eq!(b.log.of(3).len() + b.log.of(7).len(), b.log.0.len());
    assert!(b.log.of(7).iter().all(|seen| matches!(seen, Seen::Received(..))), "{:?}", &b.log.0[reported..]);

    let socket = b.io.ops().give(7).expect("nothing is under way on it");
    let mut other = Driven { io: Epoll::new().expect("epoll"), log: Log::default() };
    assert!(other.io.ops().take(0, &server.address.into(), socket));
    other.exchange(0, length);
    let socket = other.io.ops().give(0).expect("nothing is under way on it");
    assert!(b.io.ops().take(3, &server.address.into(), socket));
    b.exchange(3, length);

    // The old slot is free, and the connection's end is reported at the new one.
    b.connected(7, server.address);
    b.exchange(7, length);
    assert!(b.io.ops().give(250).is_none(), "there is none");
    b.io.ops().close(3);
    b.io.ops().close(7);
    drop((b, other));
    let counts = server.settled_after(2);
    assert_eq!((counts.connections, counts.requests, counts.resets), (2, 5, 0));
}

/// If the server ends a connection between two loads, the end is reported to the new owner.
fn the_end_of_a_connection_taken_over_is_reported<I: Io<'static>>(mut b: Driven<I>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    b.connected(0, address);
    let (peer, _) = listener.accept().expect("a connection");
    let socket = b.io.ops().give(0).expect("nothing is under way on it");
    drop(peer);
    assert!(b.io.ops().take(1, &address.into(), socket));
    b.until("closed", |log| log.end(1).is_some());
    assert_eq!((b.log.end(1), b.log.end(0)), (Some(None), None));
}

fn final_bytes_arrive_and_no_event_follows(mut b: Driven<impl Io<'static>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    for round in 0..3 {
        b.connected(0, address);
        let (mut peer, _) = listener.accept().expect("a connection");
        peer.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        if round == 1 {
            // After data that was sent earlier.
            let at_once = b.io.ops().send_copy(0, b"first, ");
            b.until("sent", |log| at_once + log.sent(0) >= 7);
        }
        let reported = b.log.of(0).len();
        b.io.ops().close_with(0, b"farewell");
        b.turn();
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).expect("an end in good order");
        assert_eq!(heard, if round == 1 { &b"first, farewell"[..] } else { b"farewell" });
        b.turn();
        assert_eq!(b.log.of(0).len(), reported, "{:?}", b.log.0);
    }
}

/// A backend whose worker has many users: each turn waits briefly for several events.
struct Patient<I>(I);

impl<I: Io<'static>> Patient<I> {
    fn new(made: std::io::Result<I>) -> std::io::Result<Self> {
        let mut patient = Patient(made?);
        // The backend has waited this way since its first turn.
        patient.poll(Wait::until(0), &mut Log::default())?;
        Ok(patient)
    }
}

impl<I: Io<'static>> Io<'static> for Patient<I> {
    type Ops = I::Ops;
    const NAME: &'static str = I::NAME;

    fn ops(&mut self) -> &mut Self::Ops {
        self.0.ops()
    }

    fn poll(&mut self, wait: Wait, sink: &mut impl Sink<Self::Ops>) -> std::io::Result<()> {
        let wait = if wait.at_least > 1 { wait } else { Wait { at_least: 9, within_ns: MS / 10, ..wait } };
        self.0.poll(wait, sink)
    }
}

macro_rules! contract {
    ($name:ident, $new:expr, $($scene:ident)*) => {
        mod $name {
            $(#[test] fn $scene() {
                match $new {
                    Ok(io) => super::$scene(super::Driven { io, log: super::Log::default() }),
                    Err(error) => crate::skip::skip(&format!("this backend is not allowed here: {error}")),
                }
            })*
        }
    };
}

macro_rules! contract_of {
    ($name:ident, $new:expr) => {
        contract! {
            $name, $new,
            an_exchange
            a_close_is_reported_once_and_after_what_came_before_it
            a_refusal_is_reported_with_its_reason
            a_reset_is_reported_as_one
            a_reused_place_gets_no_events_of_its_past
            a_long_send_goes_out_whole
            copies_go_out_whole_and_in_order
            a_copy_ends_with_its_connection
            final_bytes_arrive_and_no_event_follows
            a_connection_continues_in_another_backend
            the_end_of_a_connection_taken_over_is_reported
            a_long_answer_comes_whole
            bytes_that_arrived_between_polls_are_reported_to_their_end
            trickled_bytes_come_in_order
            unseen_is_known
            many_at_once
            connects_are_whole
            ipv6
            a_cancelled_connect_leaves_nothing
            an_answer_is_reported_before_the_send_it_cut_short
            a_wait_lasts_no_longer_than_asked_for_unless_something_comes
            waiting_for_several_ends_with_one
            it_can_be_dropped_at_any_time
        }
    };
}

const SIZE: Size = Size { connections: 300, in_flight: 300, keep_alive: true, sources: true };

contract_of!(epoll, super::Epoll::<'static>::new());
contract_of!(uring, super::Uring::<'static>::new(super::SIZE));
contract_of!(
    uring_without_keep_alive,
    super::Uring::<'static>::new(super::Size { keep_alive: false, ..super::SIZE })
);
contract_of!(epoll_of_many, super::Patient::new(super::Epoll::<'static>::new()));
contract_of!(uring_of_many, super::Patient::new(super::Uring::<'static>::new(super::SIZE)));
