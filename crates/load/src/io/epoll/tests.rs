//! Held-back bytes go out once, in order, and count once.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

/// Events in the order they were reported.
#[derive(Default)]
struct Log(Vec<String>);

impl<'r> Sink<EpollOps<'r>> for Log {
    fn event(&mut self, _: &mut EpollOps<'r>, event: Event<'_>) {
        self.0.push(format!("{event:?}"));
    }
}

/// A connection in place 0, another handle to its socket, and its peer.
fn connected<'r>() -> (Epoll<'r>, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let ours = TcpStream::connect(address).expect("it listens");
    let (theirs, _) = listener.accept().expect("it connects");
    let same = ours.try_clone().expect("another handle");
    let mut io = Epoll::new().expect("epoll");
    assert!(io.ops.take(0, &address.into(), ours.into()));
    io.ops.holds = true;
    (io, same, theirs)
}

/// As [`connected`], with a request that was held back and did not fit: the peer, and the number of bytes before it.
fn overfull(request: &[u8]) -> (Epoll<'_>, TcpStream, usize) {
    for _ in 0..100 {
        let (mut io, mut same, theirs) = connected();
        let mut filled = 0;
        while let Ok(n) = same.write(&[b'x'; 65536]) {
            filled += n;
        }
        assert_eq!(io.ops.send(0, request), request.len(), "it counts as sent");
        io.ops.flush();
        if io.ops.slots[0].rest.len() == request.len() {
            return (io, theirs, filled);
        }
        // The peer's kernel acknowledged late, and so made room after all.
    }
    panic!("there was room for each request");
}

fn poll(io: &mut Epoll<'_>, reported: &mut Log) {
    let until_ns = now_ns() + 5_000_000_000;
    io.poll(Wait::until(until_ns), reported).expect("epoll waits");
}

#[test]
fn a_send_that_is_held_back_counts_once_though_the_kernel_takes_it_late() {
    let request = [b'y'; MAX_HELD_BYTES];
    let (mut io, mut theirs, filled) = overfull(&request);
    assert_eq!(io.ops.slots[0].reported, MAX_HELD_BYTES);
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; filled + MAX_HELD_BYTES];
        theirs.read_exact(&mut all).expect("all of it comes");
        (all, theirs)
    });
    let mut reported = Log::default();
    while io.ops.slots[0].has_more() {
        poll(&mut io, &mut reported);
    }
    let (all, _theirs) = reader.join().expect("the reader ends");
    assert!(all[filled..].iter().all(|byte| *byte == b'y'));
    assert_eq!((reported.0, io.ops.slots[0].reported), (vec![], 0), "and is not reported again");
}

#[test]
fn sends_held_back_keep_their_order_and_end_with_their_connection() {
    let (mut io, _same, mut theirs) = connected();
    assert_eq!(io.ops.send(0, b"first "), 6);
    assert_eq!(io.ops.send_copy(0, b"second"), 6);
    let mut came = [0; 12];
    theirs.read_exact(&mut came).expect("both come");
    assert_eq!(&came, b"first second");
    io.ops.send(0, b"never");
    io.ops.close(0);
    io.ops.flush();
    assert!(io.ops.failed.is_empty() && io.ops.held.is_empty());
}

#[test]
fn sends_go_out_at_once_where_answers_are_taken_at_once_or_many_wait() {
    let (mut io, _same, mut theirs) = connected();
    poll_at_once(&mut io);
    assert_eq!(io.ops.send(0, b"now"), 3);
    let mut came = [0; 3];
    theirs.read_exact(&mut came).expect("without another turn");
    io.ops.holds = true;
    io.ops.held = vec![u64::MAX; HELD];
    io.ops.send(0, b"one");
    assert_eq!(io.ops.held.len(), 1, "there is room for so many");
    poll_at_once(&mut io);
    theirs.read_exact(&mut came).expect("with the next turn");
    assert_eq!((&came, io.ops.holds), (b"one", false));
}

#[test]
fn nagles_algorithm_is_switched_off_on_request() {
    let (mut io, same, _theirs) = connected();
    assert!(!same.nodelay().expect("an option"));
    io.ops.no_delay(0);
    assert!(same.nodelay().expect("an option"));
}

#[test]
fn an_end_during_the_wait_belongs_to_the_response_before_it() {
    let (mut io, _same, _theirs) = connected();
    let event = |key, flags| epoll::Event { flags, data: epoll::EventData::new_u64(key) };
    let (came, ended) = (epoll::EventFlags::IN, epoll::EventFlags::RDHUP);
    io.events = vec![event(7, came), event(8, came), event(8, came | ended), event(9, came), event(7, ended)];
    io.unite(2);
    let reported: Vec<_> = io.events.iter().map(|e| (e.data.u64(), e.flags)).collect();
    assert_eq!(reported, [(7, came | ended), (8, came | ended), (9, came)]);
}

#[test]
fn an_old_kernel_waits_for_whole_milliseconds() {
    let (mut io, _same, mut theirs) = connected();
    io.fine_waits = false;
    let mut reported = Log::default();
    poll_at_once(&mut io);
    let from_ns = now_ns();
    let until_ns = from_ns + 2_500_000;
    while now_ns() < until_ns {
        io.poll(Wait::until(until_ns), &mut reported).expect("it waits");
    }
    assert_eq!(reported.0, Vec::<String>::new());
    theirs.write_all(b"hello").expect("it is there");
    while reported.0.is_empty() {
        poll(&mut io, &mut reported);
    }
    assert_eq!(reported.0, ["Received { conn: 0, bytes: [104, 101, 108, 108, 111], last: false }"]);
}

#[test]
fn a_second_request_does_not_replace_one_that_is_held_back() {
    let (mut io, _same, mut theirs) = connected();
    assert_eq!((io.ops.send(0, b"one "), io.ops.send(0, b"two")), (4, 3));
    io.ops.flush();
    let mut came = [0; 7];
    theirs.read_exact(&mut came).expect("both come");
    assert_eq!(&came, b"one two");
}

#[test]
fn a_request_goes_out_behind_the_rest_of_one_that_was_answered_early() {
    for second in [b"second".to_vec(), vec![b's'; MAX_HELD_BYTES + 1]] {
        let first = [b'f'; MAX_HELD_BYTES];
        let (mut io, theirs, filled) = overfull(&first);
        // As a worker does that has its response by then.
        let at_once = io.ops.send(0, &second);
        io.ops.flush();
        let expected = [vec![b'x'; filled], first.to_vec(), second.clone()].concat();
        let all = expected.len();
        let reader = std::thread::spawn(move || {
            let mut came = Vec::new();
            theirs.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
            // Fewer bytes arrive only if some were lost.
            let _ = (&theirs).take(all as u64).read_to_end(&mut came);
            (came, theirs)
        });
        let mut reported = Log::default();
        while io.ops.slots[0].has_more() {
            poll(&mut io, &mut reported);
        }
        let (came, _theirs) = reader.join().expect("the reader ends");
        assert_eq!(came.len(), all, "all of it comes");
        assert!(came == expected, "in its order");
        let later: usize = reported.0.iter().map(|event| sent_of(event)).sum();
        assert_eq!(at_once + later, second.len(), "the second counts once: {:?}", reported.0);
        assert_eq!(io.ops.slots[0].reported, 0);
    }
}

/// Number of bytes that an event reports as sent.
fn sent_of(event: &str) -> usize {
    let bytes = event.strip_prefix("Sent(0, ").and_then(|rest| rest.strip_suffix(')'));
    bytes.expect("nothing else happens").parse().expect("a number")
}

fn poll_at_once(io: &mut Epoll<'_>) {
    io.poll(Wait::until(0), &mut Log::default()).expect("epoll does not wait");
}
