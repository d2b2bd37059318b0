//! A session against frames written by hand: good ones, every kind of bad one, floods, and pieces of every size.

use proptest::prelude::*;

use super::floods::{MAX_IDLE_FRAMES, MAX_REPLIES};
use super::frame::{self, FrameHead, flag, kind, setting};
use super::hpack::tests::hex;
use super::session::{MAX_CONTINUATIONS, MAX_LIST, MAX_OUT};
use super::*;
use crate::protocol::http1::{MAX_INTERIM, TOO_MANY_INTERIM};

/// An event, kept. Consecutive pieces of one body are one event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Field(u32, String),
    Head(u32, u16, bool),
    Data(u32, Vec<u8>, bool),
    Reset(u32, &'static str),
    Malformed(u32, &'static str),
    HeadTooLarge(u32),
    GoAway(u32, &'static str),
    Unprocessed(u32),
    MaxStreams(u32),
    Fault(Http2Error),
}

/// A session, the events it reported and the bytes it wrote.
struct Driven {
    session: Session,
    seen: Vec<Seen>,
    out: Vec<u8>,
}

impl Driven {
    /// After both prefaces, with `requests` sent: tokens 100, 101 … on streams 1, 3 …
    fn new(settings: Settings, requests: u32) -> Self {
        let mut driven = Driven { session: Session::new(settings), seen: Vec::new(), out: Vec::new() };
        driven.session.start(&mut driven.out);
        for i in 0..requests {
            driven.send(100 + i, b"");
        }
        driven.receive(&settings_frame(&[]));
        driven.seen.clear();
        driven.out.clear();
        driven
    }

    fn send(&mut self, token: u32, body: &[u8]) {
        self.session.send(token, &get(), body, &mut self.out).unwrap();
    }

    fn receive(&mut self, bytes: &[u8]) {
        let seen = &mut self.seen;
        let result = self.session.receive(bytes, &mut self.out, &mut |event| {
            if let (Some(Seen::Data(last, bytes, end)), Event::Data { token, bytes: more, end: now }) =
                (seen.last_mut(), event)
                && *last == token
                && !*end
            {
                bytes.extend_from_slice(more);
                *end = now;
                return;
            }
            seen.push(match event {
                Event::Field { token, name, value } => {
                    let text = String::from_utf8_lossy;
                    Seen::Field(token, format!("{}: {}", text(name), text(value)))
                }
                Event::Head { token, status, end } => Seen::Head(token, status, end),
                Event::Data { token, bytes, end } => Seen::Data(token, bytes.to_vec(), end),
                Event::Reset { token, code } => Seen::Reset(token, code.name()),
                Event::Malformed { token, message } => Seen::Malformed(token, message),
                Event::HeadTooLarge { token } => Seen::HeadTooLarge(token),
                Event::GoAway { last_stream, code } => Seen::GoAway(last_stream, code.name()),
                Event::Unprocessed { token } => Seen::Unprocessed(token),
                Event::SettingsChanged { max_streams } => Seen::MaxStreams(max_streams),
            });
        });
        if let Err(fault) = result
            && self.seen.last() != Some(&Seen::Fault(fault))
        {
            self.seen.push(Seen::Fault(fault));
        }
    }
}

fn get() -> Head {
    Head::plain(&HeadParts { method: "GET", scheme: "http", authority: "a", path: "/", headers: &[] })
        .unwrap()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, kind, flags, stream, payload);
    out
}

fn settings_frame(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_settings(&mut out, settings);
    out
}

/// HEADERS with a whole block; `end` sets END_STREAM.
fn headers(stream: u32, end: bool, block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS | u8::from(end), stream, block)
}

fn data(stream: u32, end: bool, bytes: &[u8]) -> Vec<u8> {
    frame(kind::DATA, u8::from(end), stream, bytes)
}

/// A block of literals.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        hpack::write_string(&mut out, name.as_bytes());
        hpack::write_string(&mut out, value.as_bytes());
    }
    out
}

const OK: &[u8] = &[0x88];

/// Events of one request (token 100, stream 1) and a second (101, 3), and the replies; in pieces of many sizes.
fn check(input: &[u8], expect: &[Seen], answer: &[u8]) {
    for piece in (1..=input.len().min(40)).chain([input.len().max(1)]) {
        let mut driven = Driven::new(Settings::default(), 2);
        input.chunks(piece).for_each(|part| driven.receive(part));
        assert_eq!(driven.seen, expect, "in pieces of {piece}: {input:x?}");
        assert_eq!(driven.out, answer, "in pieces of {piece}: {input:x?}");
    }
}

/// The connection ends, and the server receives the reason.
fn check_fault(input: &[u8], code: Code, message: &'static str) {
    check(
        input,
        &[Seen::Fault(Http2Error { code, message })],
        &frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, code.0 as u8]),
    );
}

/// The first request's stream ends; the connection continues.
fn check_malformed(input: &[u8], message: &'static str) {
    let input = [input, &headers(3, true, OK)].concat();
    let reset = frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 1]);
    check(&input, &[Seen::Malformed(100, message), Seen::Head(101, 200, true)], &reset);
}

#[test]
fn hello() {
    let mut out = Vec::new();
    Session::new(Settings::default()).start(&mut out);
    let settings = hex("00 00 12 04 00 00 00 00 00  0002 0000 0000  0004 4000 0000  0006 0001 0000");
    let update = hex("00 00 04 08 00 00 00 00 00 3fff 0001");
    assert_eq!(out, [frame::PREFACE, &settings, &update].concat());

    let mut driven = Driven::new(Settings::default(), 0);
    assert_eq!(driven.session.free_streams(), 1 << 30, "as many as a connection has");
    assert_eq!(Session::new(Settings::default()).free_streams(), 100);
    driven.receive(&settings_frame(&[(frame::setting::MAX_CONCURRENT_STREAMS, 2)]));
    assert_eq!(driven.seen, [Seen::MaxStreams(2)]);
    assert_eq!(driven.out, frame(kind::SETTINGS, flag::ACK, 0, b""));
    driven.send(1, b"");
    driven.send(2, b"");
    assert_eq!(driven.session.free_streams(), 0);
    assert_eq!(driven.session.send(3, &get(), b"", &mut Vec::new()), Err(NotSent::Full));
}

#[test]
fn responses() {
    check(&headers(1, true, OK), &[Seen::Head(100, 200, true)], b"");
    let length = block(&[(":status", "404"), ("content-length", "5")]);
    let head = Seen::Head(100, 404, false);
    let body = Seen::Data(100, b"hello".to_vec(), true);
    let whole = [head.clone(), body];
    check(&[headers(1, false, &length), data(1, true, b"hello")].concat(), &whole, b"");
    let pieces =
        [headers(1, false, &length), data(1, false, b"he"), data(1, false, b""), data(1, false, b"llo")];
    check(&[pieces.concat(), data(1, true, b"")].concat(), &whole, b"");
    // Trailers end the response too.
    let trailers = headers(1, true, &block(&[("grpc-status", "0")]));
    check(&[pieces.concat(), trailers.clone()].concat(), &whole, b"");
    check(
        &[headers(1, false, OK), trailers].concat(),
        &[Seen::Head(100, 200, false), Seen::Data(100, vec![], true)],
        b"",
    );
    // Interim heads are skipped, and two responses are interleaved.
    let interim = headers(1, false, &block(&[(":status", "103"), ("link", "</a>")]));
    let crossed =
        [interim.clone(), interim, headers(1, false, &length), headers(3, true, OK), data(1, true, b"hello")];
    check(&crossed.concat(), &[head, Seen::Head(101, 200, true), whole[1].clone()], b"");
}

#[test]
fn heads_in_pieces_padding_and_priority() {
    let ok = [Seen::Head(100, 200, true)];
    let padded = frame(kind::HEADERS, flag::END_HEADERS | flag::PADDED | 1, 1, &[3, 0x88, 0, 0, 0]);
    check(&padded, &ok, b"");
    let both = flag::END_HEADERS | flag::PADDED | flag::PRIORITY | 1;
    check(&frame(kind::HEADERS, both, 1, &[1, 0, 0, 0, 0, 9, 0x88, 0]), &ok, b"");
    let long = block(&[(":status", "200"), ("a", "bcdefghijklmnop")]);
    let mut cut = frame(kind::HEADERS, flag::END_STREAM, 1, &long[..3]);
    long[3..].chunks(5).for_each(|piece| cut.extend(frame(kind::CONTINUATION, 0, 1, piece)));
    cut.extend(frame(kind::CONTINUATION, flag::END_HEADERS, 1, b""));
    check(&cut, &ok, b"");
    let body = [headers(1, false, OK), frame(kind::DATA, flag::PADDED | 1, 1, b"\x04hello\0\0\0\0")].concat();
    check(&body, &[Seen::Head(100, 200, false), Seen::Data(100, b"hello".to_vec(), true)], b"");
    let body = [headers(1, false, OK), frame(kind::DATA, flag::PADDED | 1, 1, b"\x04\0\0\0\0")].concat();
    check(&body, &[Seen::Head(100, 200, false), Seen::Data(100, vec![], true)], b"");
}

#[test]
fn control_frames_are_answered_or_ignored() {
    let ping = frame(kind::PING, flag::ACK, 0, b"12345678");
    check(&frame(kind::PING, 0, 0, b"12345678"), &[], &ping);
    check(&ping, &[], b"");
    check(&frame(0xee, 0xff, 9, &[7; 300]), &[], b"");
    check(&frame(kind::PRIORITY, 0, 1, &[0; 5]), &[], b"");
    check(&settings_frame(&[(0x9999, 1)]), &[], &frame(kind::SETTINGS, flag::ACK, 0, b""));
    check(&frame(kind::SETTINGS, flag::ACK, 0, b""), &[], b"");
    check(&frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 7]), &[Seen::Reset(100, "REFUSED_STREAM")], b"");
    // RST_STREAM after the end, as from servers that responded before they had read the whole request.
    let twice = [headers(1, true, OK), frame(kind::RST_STREAM, 0, 1, &[0; 4])].concat();
    check(&twice, &[Seen::Head(100, 200, true)], b"");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table is easier to read in one piece")]
fn faults_of_the_connection() {
    use Code as C;
    let h = |flags: u8, payload: &[u8]| frame(kind::HEADERS, flags, 1, payload);
    for (input, code, message) in [
        (frame(kind::DATA, 0, 0, b"a"), C::PROTOCOL_ERROR, "DATA for a stream that was not opened"),
        (data(5, false, b"a"), C::PROTOCOL_ERROR, "DATA for a stream that was not opened"),
        (data(2, false, b"a"), C::PROTOCOL_ERROR, "DATA for a stream that was not opened"),
        (
            frame(kind::DATA, flag::PADDED, 1, b""),
            C::FRAME_SIZE_ERROR,
            "a padded frame without the length of its padding",
        ),
        (
            frame(kind::DATA, flag::PADDED, 1, b"\x01"),
            C::PROTOCOL_ERROR,
            "more padding than the frame has bytes",
        ),
        (headers(0, true, OK), C::PROTOCOL_ERROR, "a head for a stream that was not opened"),
        (headers(5, true, OK), C::PROTOCOL_ERROR, "a head for a stream that was not opened"),
        (headers(4, true, OK), C::PROTOCOL_ERROR, "a head for a stream that was not opened"),
        (h(flag::PADDED, b""), C::FRAME_SIZE_ERROR, "a padded frame without the length of its padding"),
        (h(flag::PADDED, b"\x02\x88"), C::PROTOCOL_ERROR, "more padding than the frame has bytes"),
        (h(flag::PRIORITY, b"\0\0\0\0"), C::FRAME_SIZE_ERROR, "a frame too short for its priority"),
        (headers(1, true, &[0x80]), C::COMPRESSION_ERROR, "an index outside the header table"),
        (headers(1, true, &[0x40]), C::COMPRESSION_ERROR, "a header block ends inside a field"),
        (frame(kind::CONTINUATION, 4, 1, OK), C::PROTOCOL_ERROR, "a CONTINUATION without a head to continue"),
        (
            [h(0, OK), frame(kind::CONTINUATION, 4, 3, b"")].concat(),
            C::PROTOCOL_ERROR,
            "a CONTINUATION without a head to continue",
        ),
        (
            [h(0, OK), frame(kind::PING, 0, 0, &[0; 8])].concat(),
            C::PROTOCOL_ERROR,
            "another frame inside a head",
        ),
        ([h(0, OK), frame(0xee, 0, 0, b"")].concat(), C::PROTOCOL_ERROR, "another frame inside a head"),
        (frame(kind::PRIORITY, 0, 0, &[0; 5]), C::PROTOCOL_ERROR, "PRIORITY for the connection"),
        (
            frame(kind::RST_STREAM, 0, 0, &[0; 4]),
            C::PROTOCOL_ERROR,
            "RST_STREAM for a stream that was not opened",
        ),
        (
            frame(kind::RST_STREAM, 0, 5, &[0; 4]),
            C::PROTOCOL_ERROR,
            "RST_STREAM for a stream that was not opened",
        ),
        (frame(kind::RST_STREAM, 0, 1, &[0; 5]), C::FRAME_SIZE_ERROR, "RST_STREAM of a wrong size"),
        (frame(kind::SETTINGS, 0, 1, b""), C::PROTOCOL_ERROR, "SETTINGS for a stream"),
        (frame(kind::SETTINGS, 0, 0, b"12345"), C::FRAME_SIZE_ERROR, "SETTINGS of a wrong size"),
        (frame(kind::SETTINGS, 1, 0, b"123456"), C::FRAME_SIZE_ERROR, "an acknowledgement with settings"),
        (settings_frame(&[(2, 1)]), C::PROTOCOL_ERROR, "a server that enables push"),
        (settings_frame(&[(4, 1 << 31)]), C::FLOW_CONTROL_ERROR, "a window beyond 2^31 - 1"),
        (settings_frame(&[(5, 16_383)]), C::PROTOCOL_ERROR, "a frame size out of range"),
        (settings_frame(&[(5, 1 << 24)]), C::PROTOCOL_ERROR, "a frame size out of range"),
        (
            frame(kind::PUSH_PROMISE, 4, 1, &[0, 0, 0, 2, 0x82]),
            C::PROTOCOL_ERROR,
            "a pushed response, although push is disabled",
        ),
        (frame(kind::PING, 0, 1, &[0; 8]), C::PROTOCOL_ERROR, "PING for a stream"),
        (frame(kind::PING, 0, 0, &[0; 7]), C::FRAME_SIZE_ERROR, "PING of a wrong size"),
        (frame(kind::GOAWAY, 0, 1, &[0; 8]), C::PROTOCOL_ERROR, "GOAWAY for a stream"),
        (frame(kind::GOAWAY, 0, 0, &[0; 7]), C::FRAME_SIZE_ERROR, "GOAWAY of a wrong size"),
        (frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), C::PROTOCOL_ERROR, "a window that grows by nothing"),
        (
            frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            C::FLOW_CONTROL_ERROR,
            "a window beyond 2^31 - 1",
        ),
        (
            frame(kind::WINDOW_UPDATE, 0, 9, &[0, 0, 0, 1]),
            C::PROTOCOL_ERROR,
            "WINDOW_UPDATE for a stream that was not opened",
        ),
        (frame(kind::WINDOW_UPDATE, 0, 1, &[0; 3]), C::FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size"),
        (
            FrameHead { len: 16_385, kind: 0xee, flags: 0, stream: 0 }.bytes().to_vec(),
            C::FRAME_SIZE_ERROR,
            "a frame longer than allowed",
        ),
    ] {
        check_fault(&input, code, message);
        // Nothing is reported after a fault.
        let mut driven = Driven::new(Settings::default(), 2);
        driven.receive(&input);
        driven.out.clear();
        driven.receive(&headers(1, true, OK));
        assert_eq!((driven.seen.len(), driven.out.len()), (1, 0));
        assert_eq!(driven.session.send(7, &get(), b"", &mut driven.out), Err(NotSent::Broken));
        let mut open: Vec<u32> = driven.session.open_tokens().collect();
        open.sort_unstable();
        assert_eq!(open, [100, 101], "they fail with the connection");
    }
}

#[test]
fn servers_that_speak_something_else() {
    for (input, message) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], "the server speaks HTTP/1, not HTTP/2"),
        (b"\x15\x03\x01\0\x02\x02\x50....", "the server expects TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the server does not start with the HTTP/2 preface"),
        (b"\0\0\0\x04\x01\0\0\0\0", "the server does not start with the HTTP/2 preface"),
        (b"\0\0\0\x00\x01\0\0\0\x01", "the server does not start with the HTTP/2 preface"),
    ] {
        for piece in 1..=input.len() {
            let mut session = Session::new(Settings::default());
            let mut ends =
                input.chunks(piece).map(|part| session.receive(part, &mut Vec::new(), &mut |_| {}));
            let end = ends.find_map(Result::err);
            assert_eq!(end, Some(Http2Error { code: Code::PROTOCOL_ERROR, message }));
        }
    }
}

#[test]
fn malformed_responses_end_their_stream_alone() {
    let of = |fields: &[(&str, &str)], end| headers(1, end, &block(fields));
    let ok = |length| [(":status", "200"), ("content-length", length)];
    for (input, message) in [
        (of(&[("a", "b")], true), "a head without :status"),
        (of(&[(":status", "20x")], true), ":status is not a status code"),
        (of(&[(":status", "200"), ("A", "b")], true), "invalid field name"),
        (of(&[(":status", "200"), ("a", "b\n")], true), "invalid field value"),
        (of(&[(":status", "200"), ("upgrade", "h3")], true), "a connection-specific field of HTTP/1"),
        (of(&[(":status", "101")], false), "status 101, which HTTP/2 does not have"),
        (of(&[(":status", "100")], true), "an interim head that ends the stream"),
        (of(&ok("5"), true), "less body than content-length says"),
        (data(1, true, b"a"), "DATA before the response head"),
        (frame(kind::PRIORITY, 0, 1, &[0; 4]), "PRIORITY of a wrong size"),
        (frame(kind::WINDOW_UPDATE, 0, 1, &[0; 4]), "a window that grows by nothing"),
        (frame(kind::WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]), "a window beyond 2^31 - 1"),
    ] {
        check_malformed(&input, message);
    }
}

#[test]
fn malformed_after_a_good_head() {
    let reset = frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 1]);
    let five = headers(1, false, &block(&[(":status", "200"), ("content-length", "5")]));
    let hello = Seen::Data(100, b"hello".to_vec(), false);
    let longer = "more body than content-length says, or than this response is allowed";
    let shorter = "less body than content-length says";
    for (input, body, message) in [
        (data(1, true, b"hello!"), Some(hello.clone()), longer),
        ([data(1, false, b"hello"), data(1, false, b"!")].concat(), Some(hello.clone()), longer),
        (data(1, true, b""), None, shorter),
        (data(1, true, b"hell"), Some(Seen::Data(100, b"hell".to_vec(), false)), shorter),
        (headers(1, true, &block(&[("t", "1")])), None, shorter),
        (headers(1, false, &block(&[("t", "1")])), None, "a second head"),
        (headers(1, true, &block(&[(":status", "200")])), None, "a pseudo-header field in trailers"),
    ] {
        let seen = [Some(Seen::Head(100, 200, false)), body, Some(Seen::Malformed(100, message))];
        let seen: Vec<Seen> = seen.into_iter().flatten().collect();
        check(&[five.clone(), input].concat(), &seen, &reset);
    }
}

#[test]
fn responses_that_have_no_body() {
    let parts = HeadParts { method: "HEAD", scheme: "http", authority: "a", path: "/", headers: &[] };
    let head = Head::plain(&parts).unwrap();
    let mut driven = Driven::new(Settings::default(), 0);
    for token in [1, 2] {
        driven.session.send(token, &head, b"", &mut driven.out).unwrap();
    }
    driven.send(3, b"");
    let of = |status| block(&[(":status", status), ("content-length", "5")]);
    driven.receive(
        &[headers(1, true, &of("200")), headers(3, false, &of("200")), data(3, true, b"hello")].concat(),
    );
    driven.receive(&headers(5, true, &of("304")));
    let longer = "more body than content-length says, or than this response is allowed";
    let expect = [
        Seen::Head(1, 200, true),
        Seen::Head(2, 200, false),
        Seen::Malformed(2, longer),
        Seen::Head(3, 304, true),
    ];
    assert_eq!(driven.seen, expect);
}

/// Stream identifiers are used once: a connection that has used them up is finished.
#[test]
fn a_connection_has_so_many_streams() {
    let mut driven = Driven::new(Settings::default(), 0);
    driven.session.next_stream = 0x7fff_ffff - 2;
    assert_eq!((driven.session.free_streams(), driven.session.is_ending()), (2, false));
    for token in [7, 8] {
        assert_eq!(driven.session.send(token, &get(), b"", &mut driven.out), Ok(true));
    }
    assert_eq!((driven.session.free_streams(), driven.session.is_ending()), (0, true));
    assert_eq!(driven.session.send(9, &get(), b"", &mut driven.out), Err(NotSent::Exhausted));
    driven.receive(&[headers(0x7fff_fffd, true, OK), headers(0x7fff_ffff, true, OK)].concat());
    assert_eq!(driven.seen, [Seen::Head(7, 200, true), Seen::Head(8, 200, true)]);
}

#[test]
fn goaway_says_which_requests_may_be_sent_again() {
    let mut driven = Driven::new(Settings::default(), 4);
    driven.receive(&frame(kind::GOAWAY, 0, 0, b"\0\0\0\x03\0\0\0\0bye"));
    assert_eq!(driven.seen, [Seen::GoAway(3, "NO_ERROR"), Seen::Unprocessed(102), Seen::Unprocessed(103)]);
    assert_eq!(driven.session.send(9, &get(), b"", &mut driven.out), Err(NotSent::GoingAway));
    assert!(driven.session.is_ending());
    // Requests it has processed are answered; a later GOAWAY may exclude more of them, never fewer.
    driven.receive(&[headers(1, true, OK), frame(kind::GOAWAY, 0, 0, b"\0\0\0\x01\0\0\0\x02")].concat());
    let rest = [Seen::Head(100, 200, true), Seen::GoAway(1, "INTERNAL_ERROR"), Seen::Unprocessed(101)];
    assert_eq!(driven.seen[3..], rest);
    driven.receive(&frame(kind::GOAWAY, 0, 0, b"\0\0\0\x07\0\0\0\0"));
    assert_eq!(driven.seen.last(), Some(&Seen::GoAway(1, "NO_ERROR")));
    assert_eq!((driven.session.open(), driven.session.free_streams()), (0, 0));
}

#[test]
fn a_cancelled_request_is_forgotten() {
    let mut driven = Driven::new(Settings::default(), 2);
    assert!(driven.session.cancel(100, &mut driven.out));
    assert!(!driven.session.cancel(100, &mut driven.out));
    assert_eq!(driven.out, frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    driven.out.clear();
    // Its token is free at once. Frames that still arrive for it are ignored, but the header table keeps up.
    driven.send(100, b"");
    driven.out.clear();
    let indexed = b"\x48\x03201".to_vec();
    driven
        .receive(&[headers(1, false, &indexed), data(1, true, b"late"), headers(5, true, &[0xbe])].concat());
    driven.receive(&[headers(1, true, OK), frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])].concat());
    assert_eq!(driven.seen, [Seen::Head(100, 201, true)]);
    assert_eq!(driven.out, b"");
}

/// Length and flags of each frame of one type that was written for a stream.
fn written(out: &[u8], kind: u8, stream: u32) -> Vec<(u32, u8)> {
    let (mut rest, mut found) = (out, Vec::new());
    while let Some(head) = FrameHead::read(rest) {
        if head.kind == kind && head.stream == stream {
            found.push((head.len, head.flags));
        }
        rest = &rest[frame::HEAD_LEN + head.len as usize..];
    }
    assert_eq!(rest, b"");
    found
}

#[test]
fn bodies_keep_within_windows() {
    let body = vec![7; 100_000];
    let bodies = |_| body.as_slice();
    let mut driven = Driven::new(Settings::default(), 0);
    driven.receive(&settings_frame(&[(4, 40_000)]));
    driven.out.clear();
    driven.send(1, &body);
    // The stream's window is exhausted first, then the connection's.
    assert_eq!(written(&driven.out, kind::HEADERS, 1), [(6, flag::END_HEADERS)]);
    assert_eq!(written(&driven.out, kind::DATA, 1), [(16_384, 0), (16_384, 0), (7232, 0)]);
    driven.out.clear();
    driven.send(2, &body);
    assert_eq!(written(&driven.out, kind::DATA, 3), [(16_384, 0), (9151, 0)]);
    driven.out.clear();
    assert!(!driven.session.wants_flush());
    driven.session.flush(bodies, &mut driven.out);
    assert_eq!(driven.out, b"");
    let update = |stream, by: u32| frame(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
    driven.receive(&update(0, 200_000));
    assert!(driven.session.wants_flush());
    driven.session.flush(bodies, &mut driven.out);
    assert_eq!(written(&driven.out, kind::DATA, 1), []);
    assert_eq!(written(&driven.out, kind::DATA, 3), [(14_465, 0)]);
    assert!(!driven.session.wants_flush());
    // Both may continue: they take turns.
    driven.out.clear();
    driven.receive(&[update(1, 60_000), update(3, 60_000), settings_frame(&[(5, 50_000)])].concat());
    driven.out.clear();
    driven.session.flush(bodies, &mut driven.out);
    assert_eq!(written(&driven.out, kind::DATA, 1), [(50_000, 0), (10_000, 1)]);
    assert_eq!(written(&driven.out, kind::DATA, 3), [(50_000, 0), (10_000, 1)]);
    driven.out.clear();
    driven.receive(&[headers(1, true, OK), headers(3, true, OK)].concat());
    assert_eq!(driven.seen, [Seen::Head(1, 200, true), Seen::Head(2, 200, true)]);
    assert_eq!(driven.out, b"", "both were sent whole");
}

#[test]
fn windows_that_a_server_shrinks() {
    let body = vec![7; 1000];
    let mut driven = Driven::new(Settings::default(), 0);
    driven.receive(&settings_frame(&[(4, 600)]));
    driven.send(1, &body);
    // 400 below zero, then exactly enough.
    driven.receive(&settings_frame(&[(4, 200)]));
    driven.out.clear();
    driven.receive(&frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 1, 0x90]));
    driven.session.flush(|_| &body, &mut driven.out);
    assert_eq!(driven.out, b"");
    driven.receive(&frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 1, 0x90]));
    driven.session.flush(|_| &body, &mut driven.out);
    assert_eq!(written(&driven.out, kind::DATA, 1), [(400, 1)]);
}

#[test]
fn a_response_before_the_request_is_whole_cuts_it_off() {
    let body = vec![7; 100_000];
    let mut driven = Driven::new(Settings::default(), 0);
    driven.send(1, &body);
    driven.out.clear();
    driven.receive(&headers(1, true, &block(&[(":status", "413")])));
    assert_eq!(driven.seen, [Seen::Head(1, 413, true)]);
    assert_eq!(driven.out, frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    driven.receive(&frame(kind::WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]));
    assert!(!driven.session.wants_flush());
}

#[test]
fn nothing_more_of_a_body_is_sent_after_a_fault() {
    let body = vec![7; 100_000];
    let mut driven = Driven::new(Settings::default(), 0);
    driven.send(1, &body);
    let more = frame(kind::WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]);
    driven.receive(&[more, frame(kind::PING, 0, 1, &[0; 8])].concat());
    driven.out.clear();
    assert!(!driven.session.wants_flush());
    driven.session.flush(|_| &body, &mut driven.out);
    assert_eq!(driven.out, b"");
}

#[test]
fn a_large_body_goes_out_in_parts() {
    let body = vec![7; 3 * MAX_OUT];
    let mut driven = Driven::new(Settings::default(), 0);
    driven.receive(&settings_frame(&[(4, i32::MAX as u32)]));
    driven.receive(&frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]));
    driven.out.clear();
    driven.send(1, &body);
    let mut sent = 0;
    while driven.session.wants_flush() {
        assert!(driven.out.len() <= MAX_OUT + 17_000);
        sent += written(&driven.out, kind::DATA, 1).iter().map(|(len, _)| *len as usize).sum::<usize>();
        driven.out.clear();
        driven.session.flush(|_| &body, &mut driven.out);
    }
    sent += written(&driven.out, kind::DATA, 1).iter().map(|(len, _)| *len as usize).sum::<usize>();
    assert_eq!(sent, body.len());
    assert_eq!(written(&driven.out, kind::DATA, 1).last().map(|(_, flags)| *flags), Some(1));
}

#[test]
fn our_windows_open_again_in_large_steps() {
    let settings = Settings { stream_window: 40_000, connection_window: 65_535, ..Settings::default() };
    let mut driven = Driven::new(settings, 2);
    driven.receive(&headers(1, false, OK));
    driven.receive(&data(1, false, &[0; 16_384]));
    assert_eq!(driven.out, b"");
    driven.receive(&data(1, false, &[0; 10_000]));
    assert_eq!(driven.out, frame(kind::WINDOW_UPDATE, 0, 1, &26_384u32.to_be_bytes()));
    driven.out.clear();
    driven.receive(&data(1, false, &[0; 10_000]));
    assert_eq!(driven.out, frame(kind::WINDOW_UPDATE, 0, 0, &36_384u32.to_be_bytes()));
    // Beyond the stream's window.
    driven.receive(&data(1, false, &[0; 16_384]));
    driven.receive(&data(1, false, &[0; 13_617]));
    assert!(matches!(driven.seen.last(), Some(Seen::Data(..))), "each step opened it again");
    let mut driven = Driven::new(Settings { stream_window: 100, ..settings }, 1);
    driven.receive(&[headers(1, false, OK), data(1, false, &[0; 101])].concat());
    let fault =
        Http2Error { code: Code::FLOW_CONTROL_ERROR, message: "more DATA than the stream's window allows" };
    assert_eq!(driven.seen.last(), Some(&Seen::Fault(fault)));
}

#[test]
fn floods_end() {
    for flood in [
        frame(kind::PING, 0, 0, &[0; 8]),
        settings_frame(&[]),
        data(1, false, b""),
        frame(kind::DATA, flag::PADDED, 1, b"\0"),
        frame(kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]),
        frame(kind::PRIORITY, 0, 1, &[0; 5]),
        frame(0xee, 0, 0, b""),
        frame(kind::RST_STREAM, 0, 5, &[0; 4]),
        headers(5, true, OK),
        data(5, true, b""),
        data(5, false, b"x"),
        frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0]),
    ] {
        let mut driven = Driven::new(Settings::default(), 3);
        driven.receive(&headers(1, false, OK));
        driven.session.cancel(102, &mut driven.out);
        driven.out.clear();
        let mut frames = 0;
        let fault = loop {
            let result = driven.session.receive(&flood, &mut driven.out, &mut |_| {});
            match result {
                Ok(()) => frames += 1,
                Err(fault) => break fault,
            }
            driven.session.all_gone();
            // Some may have been in flight when the third stream was abandoned.
            assert!(frames <= MAX_IDLE_FRAMES + 10_000, "{flood:x?}");
        };
        assert_eq!(fault.message, "a flood of frames that advance no response");
        assert!(driven.out.len() <= 17 * (MAX_IDLE_FRAMES as usize + 2), "{}", driven.out.len());
    }
}

#[test]
fn interim_heads_without_end_end_their_stream() {
    let mut driven = Driven::new(Settings::default(), 2);
    let hint = headers(1, false, &block(&[(":status", "103")]));
    driven.receive(&hint.repeat(usize::from(MAX_INTERIM)));
    assert_eq!(driven.seen, []);
    driven.receive(&hint);
    assert_eq!(driven.seen, [Seen::Malformed(100, TOO_MANY_INTERIM)]);
    // The other stream is unaffected.
    driven.receive(&headers(3, true, OK));
    assert_eq!(driven.seen.last(), Some(&Seen::Head(101, 200, true)));
}

#[test]
fn an_occasional_byte_does_not_excuse_a_flood() {
    let pings = frame(kind::PING, 0, 0, &[0; 8]).repeat(1000);
    let bytes = data(1, false, b"x");
    let mut driven = Driven::new(Settings::default(), 1);
    driven.receive(&headers(1, false, OK));
    let mut frames = 0;
    while !matches!(driven.seen.last(), Some(Seen::Fault(_))) {
        driven.receive(&pings);
        driven.session.all_gone();
        driven.receive(&bytes);
        frames += 1001;
        assert!(frames < 2 * MAX_IDLE_FRAMES);
    }
    // Equal numbers of each may continue forever, and so may frames that come with responses.
    let mut driven = Driven::new(Settings::default(), 1);
    driven.receive(&headers(1, false, OK));
    let both = [frame(kind::PING, 0, 0, &[0; 8]), bytes].concat().repeat(1000);
    for _ in 0..=MAX_IDLE_FRAMES / 1000 {
        driven.receive(&both);
        driven.session.all_gone();
    }
    assert!(!matches!(driven.seen.last(), Some(Seen::Fault(_))), "{:?}", driven.seen.last());
}

#[test]
fn unread_replies_are_bounded() {
    for wants in [frame(kind::PING, 0, 0, &[0; 8]), settings_frame(&[])] {
        let mut driven = Driven::new(Settings::default(), 0);
        let mut replies = 0;
        for (number, stream) in (0..MAX_REPLIES).zip((1..).step_by(2)) {
            driven.send(number, b"");
            let whole = [wants.as_slice(), &wants, &headers(stream, true, OK)].concat();
            driven.receive(&whole);
            replies += 2;
            if matches!(driven.seen.last(), Some(Seen::Fault(_))) {
                break;
            }
        }
        let message = "a flood of frames that need replies, which the server does not read";
        let fault = Http2Error { code: Code::ENHANCE_YOUR_CALM, message };
        assert_eq!(driven.seen.last(), Some(&Seen::Fault(fault)));
        assert!(replies <= MAX_REPLIES + 2, "{replies}");
    }
}

#[test]
fn window_updates_that_a_body_needs_are_no_flood() {
    // A server that takes small pieces, and opens its window twice for each of them.
    let mut driven = Driven::new(Settings::default(), 0);
    driven.receive(&settings_frame(&[(setting::INITIAL_WINDOW_SIZE, 64)]));
    let body = vec![b'x'; 64 * MAX_IDLE_FRAMES as usize];
    driven.send(1, &body);
    let room = |stream| frame(kind::WINDOW_UPDATE, 0, stream, &64u32.to_be_bytes());
    let room = [room(0), room(1)].concat();
    for _ in 0..MAX_IDLE_FRAMES {
        driven.out.clear();
        driven.receive(&room);
        driven.session.flush(|_| &body, &mut driven.out);
    }
    assert!(!driven.seen.iter().any(|seen| matches!(seen, Seen::Fault(_))), "{:?}", driven.seen);
    assert_eq!(driven.session.open(), 1);
    assert!(!driven.session.is_held_up(1), "it is all sent");
}

#[test]
fn frames_in_flight_for_cancelled_streams_are_no_flood() {
    let mut driven = Driven::new(Settings::default(), 0);
    let mut late = 0;
    for (number, stream) in (0..101).zip((1..).step_by(2)) {
        driven.send(number, b"");
        driven.receive(&headers(stream, false, OK));
        driven.session.cancel(number, &mut driven.out);
        driven.receive(&data(stream, false, b"late").repeat(1000));
        late += 1000;
    }
    assert!(late > MAX_IDLE_FRAMES && !matches!(driven.seen.last(), Some(Seen::Fault(_))));
}

#[test]
fn heads_without_end_are_bounded() {
    let first = frame(kind::HEADERS, 0, 1, OK);
    let endless = |piece: &[u8]| {
        let mut driven = Driven::new(Settings::default(), 2);
        driven.receive(&first);
        for _ in 0..=MAX_CONTINUATIONS {
            driven.receive(&frame(kind::CONTINUATION, 0, 1, piece));
        }
        driven
    };
    let message = "a head in too many frames";
    let fault = Seen::Fault(Http2Error { code: Code::ENHANCE_YOUR_CALM, message });
    assert_eq!(endless(b"").seen, [fault]);
    // Its request alone is reported; the other one only loses the connection.
    let driven = endless(&[0x88; 1000]);
    assert_eq!(driven.seen, [Seen::HeadTooLarge(100), Seen::Fault(HEAD_TOO_LARGE)]);
    assert_eq!(driven.session.open_tokens().collect::<Vec<_>>(), [101]);
    // Short when encoded, long when decoded.
    let long = headers(1, true, &[0x88].repeat(MAX_LIST / 40));
    let mut driven = Driven::new(Settings::default(), 2);
    driven.receive(&long);
    assert_eq!(driven.seen, [Seen::HeadTooLarge(100), Seen::Fault(HEAD_TOO_LARGE)]);
    // Of a request that was given up, nobody is told.
    let mut driven = Driven::new(Settings::default(), 2);
    driven.session.cancel(100, &mut driven.out);
    driven.receive(&long);
    assert_eq!(driven.seen, [Seen::Fault(HEAD_TOO_LARGE)]);
    assert_eq!(driven.session.open_tokens().collect::<Vec<_>>(), [101]);
}

#[test]
fn a_very_long_head_goes_out_in_pieces() {
    let long = vec![("x-long".to_owned(), "\u{7e}".repeat(40_000))];
    let parts = HeadParts { method: "GET", scheme: "http", authority: "a", path: "/", headers: &long };
    let head = Heads::default().add(&parts).unwrap();
    let mut driven = Driven::new(Settings::default(), 0);
    driven.out.extend_from_slice(&frame(kind::PING, 0, 0, &[0; 8]));
    driven.session.send(1, &head, b"", &mut driven.out).unwrap();
    assert_eq!(written(&driven.out, kind::HEADERS, 1), [(16_384, flag::END_STREAM)]);
    let rest = written(&driven.out, kind::CONTINUATION, 1);
    assert_eq!(rest.iter().map(|(_, flags)| *flags).collect::<Vec<_>>(), [0, flag::END_HEADERS]);
    assert_eq!(written(&driven.out, kind::PING, 0).len(), 1);
}

#[test]
fn fields_are_reported_when_asked_for_and_remembered_heads_are_the_same() {
    let mut driven = Driven::new(Settings { report_fields: true, ..Settings::default() }, 2);
    driven.receive(&[headers(1, true, b"\x88\x5f\x02ab"), headers(3, true, b"\x88\xbe")].concat());
    let field = |token, text: &str| Seen::Field(token, text.to_owned());
    assert_eq!(
        driven.seen,
        [
            field(100, ":status: 200"),
            field(100, "content-type: ab"),
            Seen::Head(100, 200, true),
            field(101, ":status: 200"),
            field(101, "content-type: ab"),
            Seen::Head(101, 200, true),
        ]
    );
    // The same bytes mean something else once the table has changed.
    let mut driven = Driven::new(Settings::default(), 0);
    let status = |code: &str| [b"\x48\x03", code.as_bytes()].concat();
    for (i, code) in [201, 202, 203].into_iter().enumerate() {
        for again in 0..3 {
            driven.send(again, b"");
            let block = if again == 0 { status(&code.to_string()) } else { vec![0xbe] };
            driven.receive(&headers((i as u32 * 3 + again) * 2 + 1, true, &block));
            assert_eq!(driven.seen.pop(), Some(Seen::Head(again, code, true)));
        }
    }
}

#[test]
fn identifiers_end() {
    let mut driven = Driven::new(Settings::default(), 0);
    driven.session.next_stream = frame::MAX_31;
    driven.send(1, b"");
    assert_eq!(driven.session.send(2, &get(), b"", &mut driven.out), Err(NotSent::Exhausted));
    driven.receive(&headers(frame::MAX_31, true, OK));
    assert_eq!(driven.seen, [Seen::Head(1, 200, true)]);
}

/// Frames that may make sense, and some that do not.
fn some_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![Just(1u32), Just(3), Just(5), Just(7), 0u32..12];
    let payload = prop_oneof![
        Just(OK.to_vec()),
        Just(block(&[(":status", "200"), ("content-length", "5")])),
        Just(b"hello".to_vec()),
        Just(b"\x48\x03201".to_vec()),
        Just(vec![0xbe]),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    let kind = prop_oneof![Just(0u8), Just(1), Just(1), Just(1), 0u8..12];
    let flags = prop_oneof![Just(4u8), Just(5), Just(1), Just(0), any::<u8>()];
    (kind, flags, stream, payload).prop_map(|(k, f, s, p)| frame(k, f, s, &p))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn pieces_change_nothing(frames in prop::collection::vec(some_frame(), 0..12), cuts in prop::collection::vec(1usize..30, 1..20)) {
        let input = frames.concat();
        let mut whole = Driven::new(Settings::default(), 4);
        whole.receive(&input);
        let mut cut = Driven::new(Settings::default(), 4);
        let (mut at, mut sizes) = (0, cuts.iter().cycle());
        while at < input.len() {
            let end = (at + sizes.next().unwrap()).min(input.len());
            cut.receive(&input[at..end]);
            at = end;
        }
        prop_assert_eq!(&cut.seen, &whole.seen);
        prop_assert_eq!(&cut.out, &whole.out);
        // Every request ends once, or is open.
        for token in 100..104 {
            let ends = whole.seen.iter().filter(|seen| match seen {
                Seen::Head(t, _, end) | Seen::Data(t, _, end) => *t == token && *end,
                Seen::Reset(t, _) | Seen::Malformed(t, _) | Seen::Unprocessed(t) => *t == token,
                _ => false,
            });
            let open = whole.session.open_tokens().filter(|t| *t == token).count();
            prop_assert_eq!(ends.count() + open, 1);
        }
    }

    #[test]
    fn random_bytes_never_panic(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6)) {
        let mut driven = Driven::new(Settings::default(), 2);
        parts.iter().for_each(|part| driven.receive(part));
        prop_assert!(driven.out.len() < 4000);
    }
}
