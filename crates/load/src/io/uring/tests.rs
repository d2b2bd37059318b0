//! Bytes go out once, and in order.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::slot::SILENT;
use super::*;

/// Events in the order they were reported.
#[derive(Default)]
struct Log(Vec<String>);

impl<'r> Sink<UringOps<'r>> for Log {
    fn event(&mut self, _: &mut UringOps<'r>, event: Event<'_>) {
        self.0.push(format!("{event:?}"));
    }
}

/// A ring. The kernel may not allow one, which `tests/real.rs` reports; any other reason is a failure.
fn allowed<'r>(size: Size) -> Option<Uring<'r>> {
    match Uring::new(size) {
        Ok(io) => Some(io),
        Err(error) => {
            assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)), "{error}");
            None
        }
    }
}

/// A connection in place 0 with a full send buffer, how many bytes are in the buffer, and its peer.
fn full(io: &mut Uring<'_>) -> (usize, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let ours = TcpStream::connect(address).expect("it listens");
    let (theirs, _) = listener.accept().expect("it connects");
    ours.set_nonblocking(true).expect("it may be set");
    let mut filled = 0;
    while let Ok(n) = (&ours).write(&[b'x'; 65536]) {
        filled += n;
    }
    assert!(io.ops.take(0, &address.into(), ours.into()));
    (filled, theirs)
}

#[test]
fn a_request_goes_out_behind_the_rest_of_one_that_was_answered_early() {
    let size = Size { connections: 4, in_flight: 4, keep_alive: true, sources: false };
    let first = [b'f'; SILENT];
    for second in [b"second".to_vec(), vec![b's'; SILENT + 1]] {
        let Some(mut io) = allowed(size) else { return };
        let (filled, theirs) = full(&mut io);
        let mut reported = Log::default();
        assert_eq!(io.ops.send(0, &first), SILENT, "it counts as sent");
        io.poll(Wait::until(0), &mut reported).expect("it does not wait");
        // As a worker does that has its response by then.
        let at_once = io.ops.send(0, &second);
        let expected = [vec![b'x'; filled], first.to_vec(), second.clone()].concat();
        let all = expected.len();
        let reader = std::thread::spawn(move || {
            let mut came = Vec::new();
            theirs.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
            // Fewer bytes arrive only if some were lost.
            let _ = (&theirs).take(all as u64).read_to_end(&mut came);
            (came, theirs)
        });
        while !reader.is_finished() {
            io.poll(Wait::until(now_ns() + 1_000_000), &mut reported).expect("it waits");
        }
        let (came, _theirs) = reader.join().expect("the reader ends");
        assert_eq!(came.len(), all, "all of it comes");
        assert!(came == expected, "in its order");
        if at_once + sent_of(&reported) < second.len() {
            io.poll(Wait::until(now_ns() + 20_000_000_000), &mut reported).expect("it waits");
        }
        assert_eq!(at_once + sent_of(&reported), second.len(), "the second counts once: {:?}", reported.0);
    }
}

#[test]
fn the_rest_of_a_send_reported_as_done_goes_out_and_is_not_reported_again() {
    let size = Size { connections: 4, in_flight: 4, keep_alive: true, sources: false };
    let Some(mut io) = allowed(size) else { return };
    let (filled, mut theirs) = full(&mut io);
    let mut reported = Log::default();
    let request: Vec<u8> = (0..SILENT).map(|i| i as u8).collect();
    let mut came = vec![0; filled];
    theirs.read_exact(&mut came).expect("there is room again");
    // As if the kernel had taken that many.
    io.ops.slots[0].keep_silent(Box::leak(request.clone().into_boxed_slice()));
    io.ops.slots[0].set_submitted(true);
    io.ops.send_rest(0, 4000).expect("nothing else is under way");
    assert_eq!(io.ops.send(0, b"next"), 0);
    io.poll(Wait::until(now_ns() + 20_000_000_000), &mut reported).expect("it waits");
    let mut came = vec![0; SILENT - 4000 + 4];
    theirs.read_exact(&mut came).expect("both come");
    assert_eq!(came, [&request[4000..], b"next"].concat());
    assert_eq!(reported.0, ["Sent(0, 4)"]);
}

#[test]
fn nagles_algorithm_is_switched_off_on_request() {
    let size = Size { connections: 4, in_flight: 4, keep_alive: true, sources: false };
    let Some(mut io) = allowed(size) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let ours = TcpStream::connect(address).expect("it listens");
    let (_theirs, _) = listener.accept().expect("it connects");
    let same = ours.try_clone().expect("another handle");
    assert!(io.ops.take(0, &address.into(), ours.into()));
    let mut reported = Log::default();
    io.poll(Wait::until(0), &mut reported).expect("it does not wait");
    assert!(!same.nodelay().expect("an option"));
    io.ops.no_delay(0);
    io.poll(Wait::until(0), &mut reported).expect("it does not wait");
    assert!(same.nodelay().expect("an option"));
    assert_eq!(reported.0, Vec::<String>::new());
}

/// A load may have a million of them.
#[test]
fn a_connection_is_small() {
    assert_eq!(std::mem::size_of::<SocketSlot<'_>>(), 24);
}

/// Answers whatever it receives.
#[derive(Default)]
struct Echo {
    /// What was received, in order.
    seen: Vec<(ConnId, Vec<u8>)>,
}

impl<'r> Sink<UringOps<'r>> for Echo {
    fn event(&mut self, ops: &mut UringOps<'r>, event: Event<'_>) {
        if let Event::Received { conn, bytes, .. } = event {
            self.seen.push((conn, bytes.to_vec()));
            ops.send_copy(conn, bytes);
        }
    }
}

/// Gives the ring this many connections, on each of which a byte has arrived: the connection's number. Returns the
/// other ends.
fn with_a_byte(io: &mut Uring<'_>, connections: u32) -> Vec<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let connected = (0..connections).map(|conn| {
        let ours = TcpStream::connect(address).expect("it listens");
        let (mut theirs, _) = listener.accept().expect("it connects");
        theirs.write_all(&[conn as u8]).expect("there is room");
        assert_eq!(ours.peek(&mut [0]).expect("it arrives"), 1);
        assert!(io.ops.take(conn, &address.into(), ours.into()));
        theirs
    });
    connected.collect()
}

#[test]
fn events_beyond_a_number_of_sends_are_left_for_the_next_turn() {
    const CONNECTIONS: u32 = 7;
    let size = Size { connections: 8, in_flight: 8, keep_alive: true, sources: false };
    let Some(mut io) = allowed(size) else { return };
    io.most_sends = 3;
    let peers = with_a_byte(&mut io, CONNECTIONS);
    let mut echo = Echo::default();
    let mut turn = |io: &mut Uring<'_>| {
        let before = echo.seen.len();
        io.poll(Wait::until(now_ns() + 20_000_000_000), &mut echo).expect("it waits");
        assert!((1..=3).contains(&(echo.seen.len() - before)), "{:?}", echo.seen);
        echo.seen.clone()
    };
    let seen = turn(&mut io);
    assert!(io.ops.is_behind(), "all arrived before the first turn: {seen:?}");
    // What has arrived on a connection must be reported before another thread may have it.
    let (unreported, _) = io.ops.came[0];
    assert!(seen.iter().all(|(conn, _)| *conn != unreported));
    assert!(io.ops.has_unreported(unreported));
    assert!(io.ops.give(unreported).is_none());
    io.ops.close(unreported);
    while turn(&mut io).len() + 1 < CONNECTIONS as usize {}
    io.poll(Wait::until(0), &mut echo).expect("it does not wait");
    for (conn, mut theirs) in (0..CONNECTIONS).zip(peers).filter(|(conn, _)| *conn != unreported) {
        let (mut byte, sent) = ([0], conn as u8);
        theirs.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
        theirs.read_exact(&mut byte).expect("it is answered");
        assert_eq!(byte, [sent]);
        assert_eq!(
            echo.seen.iter().filter(|seen| **seen == (conn, vec![sent])).count(),
            1,
            "{:?}",
            echo.seen
        );
    }
}

#[test]
fn more_responses_than_buffers_are_received_in_several_turns() {
    const CONNECTIONS: u32 = 200;
    let size = Size { connections: CONNECTIONS as usize, in_flight: 1, keep_alive: false, sources: false };
    let Some(mut io) = allowed(size) else { return };
    let buffers = usize::from(io.ops.rings[0].buffers.count);
    assert!(buffers < CONNECTIONS as usize / 2, "{buffers}");
    let _peers = with_a_byte(&mut io, CONNECTIONS);
    let mut echo = Echo::default();
    io.poll(Wait::until(now_ns() + 20_000_000_000), &mut echo).expect("it waits");
    assert!(!echo.seen.is_empty() && echo.seen.len() <= buffers, "{}", echo.seen.len());
    let armed =
        |io: &Uring<'_>| io.ops.slots.iter().filter(|slot| slot.state == SocketState::Receiving).count();
    let (before, waiting) = (armed(&io), CONNECTIONS as usize - echo.seen.len());
    assert_eq!(io.ops.rings[0].starved.len(), waiting);
    io.ops.receive_starved();
    assert_eq!(armed(&io) - before, buffers, "as many as there are buffers, and not all that wait");
    let last = CONNECTIONS - 1;
    // One that is closed meanwhile is not received from again.
    io.ops.close(last);
    while echo.seen.len() + 1 < CONNECTIONS as usize {
        io.poll(Wait::until(now_ns() + 20_000_000_000), &mut echo).expect("it waits");
    }
    assert!(io.ops.rings[0].starved.is_empty());
    echo.seen.sort_unstable();
    let expected: Vec<(ConnId, Vec<u8>)> = (0..last).map(|conn| (conn, vec![conn as u8])).collect();
    assert_eq!(echo.seen, expected, "once from each");
}

/// Number of bytes that were reported as sent.
fn sent_of(reported: &Log) -> usize {
    let bytes = |event: &String| {
        let bytes = event.strip_prefix("Sent(0, ").and_then(|rest| rest.strip_suffix(')'));
        bytes.expect("nothing else happens").parse::<usize>().expect("a number")
    };
    reported.0.iter().map(bytes).sum()
}
