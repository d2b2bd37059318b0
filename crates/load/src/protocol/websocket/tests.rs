//! The client's half against frames written by hand, against another implementation's server, and in pieces.

use std::io::{self, Read, Write};

use proptest::prelude::*;
use tungstenite::Message;
use tungstenite::protocol::{Role, WebSocket};

use super::opening::{Opening, OpeningError};
use super::*;
use crate::protocol::http1::MAX_INTERIM;

/// An event, kept; pieces of one message are one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Message(MessageType, Vec<u8>, bool),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Fault(WebSocketError),
}

fn keep(seen: &mut Vec<Seen>, event: Event<'_>) {
    if let (Some(Seen::Message(_, bytes, end @ false)), Event::Message { bytes: more, end: now, .. }) =
        (seen.last_mut(), event)
    {
        bytes.extend_from_slice(more);
        *end = now;
        return;
    }
    seen.push(match event {
        Event::Message { kind, bytes, end } => Seen::Message(kind, bytes.to_vec(), end),
        Event::Ping(bytes) => Seen::Ping(bytes.to_vec()),
        Event::Pong(bytes) => Seen::Pong(bytes.to_vec()),
        Event::Close { code, reason } => Seen::Close(code, reason.to_owned()),
    });
}

/// The events of a stream, and the replies without their masks.
fn run(input: &[u8], pieces: &mut dyn Iterator<Item = usize>) -> (Vec<Seen>, Vec<u8>) {
    let (mut socket, mut seen, mut out) = (Socket::new(1000, 7), Vec::new(), Vec::new());
    let mut rest = input;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(pieces.next().unwrap().clamp(1, rest.len()));
        rest = after;
        if let Err(fault) = socket.receive(piece, &mut out, &mut |event| keep(&mut seen, event)) {
            seen.push(Seen::Fault(fault));
            assert_eq!(socket.receive(rest, &mut out, &mut |_| {}), Err(fault));
            break;
        }
    }
    (seen, out)
}

fn check(input: &[u8], expect: &[Seen]) {
    let whole = run(input, &mut std::iter::repeat(usize::MAX));
    assert_eq!(whole.0, expect, "{input:x?}");
    for piece in 1..input.len().min(150) {
        assert_eq!(run(input, &mut std::iter::repeat(piece)), whole, "in pieces of {piece}: {input:x?}");
    }
}

fn text(text: &str) -> Seen {
    Seen::Message(MessageType::Text, text.as_bytes().to_vec(), true)
}

#[test]
fn examples_of_the_rfc() {
    check(b"\x81\x05Hello", &[text("Hello")]);
    check(b"\x01\x03Hel\x80\x02lo", &[text("Hello")]);
    check(b"\x89\x05Hello", &[Seen::Ping(b"Hello".to_vec())]);
    check(b"\x8a\x05Hello", &[Seen::Pong(b"Hello".to_vec())]);
    let long = [b"\x82\x7e\x01\x00".as_slice(), &[7; 256]].concat();
    check(&long, &[Seen::Message(MessageType::Binary, vec![7; 256], true)]);
    let mut masked = b"Hello".to_vec();
    apply_mask(&mut masked, [0x37, 0xfa, 0x21, 0x3d]);
    assert_eq!(masked, b"\x7f\x9f\x4d\x51\x58");
}

#[test]
fn messages_in_pieces_with_others_between() {
    check(b"\x81\0\x82\0", &[text(""), Seen::Message(MessageType::Binary, vec![], true)]);
    check(b"\x01\0\0\0\x80\0", &[text("")]);
    let open = Seen::Message(MessageType::Text, b"a\xc3".to_vec(), false);
    let rest = Seen::Message(MessageType::Text, b"\xa4b".to_vec(), true);
    check(b"\x01\x02a\xc3\x89\x01!\x80\x02\xa4b", &[open, Seen::Ping(b"!".to_vec()), rest]);
    check(b"\x88\0\x81\x01a", &[Seen::Close(None, String::new())]);
    check(b"\x88\x05\x03\xe8bye", &[Seen::Close(Some(1000), "bye".to_owned())]);
}

#[test]
fn replies_are_masked_and_say_the_same() {
    let (_, out) = run(b"\x89\x03abc", &mut std::iter::repeat(1));
    let mut payload = out[6..].to_vec();
    apply_mask(&mut payload, [out[2], out[3], out[4], out[5]]);
    assert_eq!((&out[..2], payload.as_slice()), (&b"\x8a\x83"[..], &b"abc"[..]));
    let (_, out) = run(b"\x88\x05\x03\xe9bye", &mut std::iter::repeat(1));
    let mut code = out[6..].to_vec();
    apply_mask(&mut code, [out[2], out[3], out[4], out[5]]);
    assert_eq!((&out[..2], code.as_slice()), (&b"\x88\x82"[..], &b"\x03\xe9"[..]));
}

#[test]
fn faults() {
    let utf8 = "a text that is not UTF-8";
    for (input, code, message) in [
        (&b"\xc1\0"[..], 1002, "an extension that was not negotiated"),
        (b"\x81\x80", 1002, "a masked frame, which only clients send"),
        (b"\x80\0", 1002, "a continuation without a message to continue"),
        (b"\x83\0", 1002, "a frame of unknown type"),
        (b"\x8b\0", 1002, "a frame of unknown type"),
        (b"\x09\0", 1002, "a fragmented control frame"),
        (b"\x89\x7e\0\x7e", 1002, "a control frame of more than 125 bytes"),
        (b"\x81\x7e\0\x7d", 1002, "an invalid length encoding"),
        (b"\x81\x7f\0\0\0\0\0\0\xff\xff", 1002, "an invalid length encoding"),
        (b"\x81\x7f\x80\0\0\0\0\0\0\0", 1002, "an invalid length encoding"),
        (b"\x82\x7e\x03\xe9", 1009, "a message longer than allowed"),
        (b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", 1009, "a message longer than allowed"),
        (b"\x88\x01\x03", 1002, "a close code of one byte"),
        (b"\x88\x02\x03\xed", 1002, "a close code that must not be sent"),
        (b"\x88\x02\0\0", 1002, "a close code that must not be sent"),
        (b"\x88\x03\x03\xe8\xff", 1007, utf8),
        (b"\x81\x01\xff", 1007, utf8),
        (b"\x81\x01\x80", 1007, utf8),
    ] {
        check(input, &[Seen::Fault(WebSocketError { code, message })]);
    }
    let begun = |text: &[u8]| Seen::Message(MessageType::Text, text.to_vec(), false);
    let inside = WebSocketError { code: 1002, message: "a message inside another" };
    check(b"\x01\x01a\x81\x01b", &[begun(b"a"), Seen::Fault(inside)]);
    for (input, reported) in [
        (&b"\x81\x03ab\xff"[..], &b"ab"[..]),
        (b"\x81\x04ab\xc3(", b"ab\xc3"),
        (b"\x81\x03ab\xc3", b"ab\xc3"),
        (b"\x81\x04a\xe0\x80b", b"a\xe0"),
        (b"\x81\x04a\xed\xa0b", b"a\xed"),
        (b"\x81\x05a\xf0\x90(b", b"a\xf0\x90"),
        (b"\x81\x02a\xc0", b"a"),
        (b"\x01\x02a\xc3\x80\x01(", b"a\xc3"),
    ] {
        check(input, &[begun(reported), Seen::Fault(NOT_UTF8)]);
    }
}

#[test]
fn floods_end() {
    for (begin, flood) in [(&b""[..], &b"\x89\x01a"[..]), (b"", b"\x8a\0"), (b"\x02\0", b"\0\0")] {
        let mut socket = Socket::new(1000, 7);
        let mut out = Vec::new();
        socket.receive(begin, &mut out, &mut |_| {}).unwrap();
        let mut frames = 0;
        while socket.receive(flood, &mut out, &mut |_| {}).is_ok() {
            frames += 1;
            assert!(frames <= MAX_IDLE_FRAMES);
        }
        assert!(out.len() <= 7 * MAX_IDLE_FRAMES as usize + 8);
        assert!(!socket.send(MessageType::Text, b"a", &mut out));
    }
}

#[test]
fn nothing_is_sent_after_a_close_frame() {
    let (mut socket, mut out) = (Socket::new(1000, 7), Vec::new());
    socket.close(1000, &mut out);
    assert_eq!((out.len(), socket.is_ending()), (8, true));
    assert!(!socket.send(MessageType::Binary, b"a", &mut out) && !socket.ping(b"", &mut out));
    let mut seen = Vec::new();
    socket.receive(b"\x81\x01a\x89\0\x88\x02\x03\xe8", &mut out, &mut |e| keep(&mut seen, e)).unwrap();
    assert_eq!(seen, [text("a"), Seen::Ping(vec![]), Seen::Close(Some(1000), String::new())]);
    assert_eq!(out.len(), 8);
}

fn answer(headers: &str) -> Vec<u8> {
    format!("HTTP/1.1 101 Switching Protocols\r\n{headers}\r\n").into_bytes()
}

#[test]
fn openings() {
    let opening = Opening::new(*b"the sample nonce", vec!["chat".into(), "v2".into()]);
    let header = |name: &str| opening.headers().into_iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!(header("Sec-WebSocket-Key"), "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(header("Sec-WebSocket-Protocol"), "chat, v2");
    let good = "Upgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    let check = |input: &[u8], expect: Result<Option<usize>, OpeningError>| {
        for piece in 1..=input.len() {
            let (mut partial, mut interim, mut at, mut found) = (Vec::new(), 0, 0, Ok(None));
            for part in input.chunks(piece) {
                found = opening.receive(&mut partial, &mut interim, part).map(|end| end.map(|end| at + end));
                at += part.len();
                if found != Ok(None) {
                    break;
                }
            }
            assert_eq!(found, expect, "in pieces of {piece}: {}", String::from_utf8_lossy(input));
        }
    };
    let whole = answer(good);
    check(&whole, Ok(Some(whole.len())));
    check(&[whole.as_slice(), b"\x81\x01a"].concat(), Ok(Some(whole.len())));
    check(&whole[..whole.len() - 1], Ok(None));
    let chosen = answer(&format!("{good}Sec-WebSocket-Protocol: v2\r\n"));
    check(&chosen, Ok(Some(chosen.len())));
    for (input, error) in [
        (answer(&good.replace("WebSocket\r", "h2c\r")), OpeningError::Header("Upgrade")),
        (answer(&good.replace(", Upgrade", "")), OpeningError::Header("Connection")),
        (answer(&good.replace("s3p", "S3p")), OpeningError::Header("Sec-WebSocket-Accept")),
        (
            answer(&format!("{good}Sec-WebSocket-Extensions: x\r\n")),
            OpeningError::NotOffered("WebSocket extension"),
        ),
        (
            answer(&format!("{good}Sec-WebSocket-Protocol: v3\r\n")),
            OpeningError::NotOffered("WebSocket subprotocol"),
        ),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n".to_vec(), OpeningError::Status(403)),
        (b"HTTP/1.1 OK\r\n\r\n".to_vec(), OpeningError::Malformed),
        (b"SSH-2.0-OpenSSH\r\n".to_vec(), OpeningError::Malformed),
        ([b"\r\n".as_slice(), &whole].concat(), OpeningError::Malformed),
    ] {
        check(&input, Err(error));
    }
    let mut partial = Vec::new();
    let endless = [b"HTTP/1.1 101 A\r\nX: ".as_slice(), &[b'y'; 70_000]].concat();
    assert_eq!(opening.receive(&mut partial, &mut 0, &endless), Err(OpeningError::HeadTooLarge));
    // As many interim responses as over HTTP/1.1, in however many pieces.
    let interim = |count: u8| b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(usize::from(count));
    check(
        &[interim(MAX_INTERIM), whole.clone()].concat(),
        Ok(Some(interim(MAX_INTERIM).len() + whole.len())),
    );
    check(&[interim(MAX_INTERIM + 1), whole].concat(), Err(OpeningError::TooManyInterim));
}

/// The other implementation's end: it reads the bytes that the client wrote, and its output is kept.
#[derive(Default)]
struct Wire {
    to_read: Vec<u8>,
    written: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.to_read.len().min(into.len());
        if n == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        into[..n].copy_from_slice(&self.to_read[..n]);
        self.to_read.drain(..n);
        Ok(n)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn any_message() -> impl Strategy<Value = (bool, Vec<u8>)> {
    let length = prop_oneof![0usize..20, 120usize..130, 65_530usize..65_540];
    prop_oneof![
        ".{0,200}".prop_map(|text| (true, text.into_bytes())),
        (any::<u8>(), length)
            .prop_map(|(byte, n)| (false, (0..n).map(|i| byte.wrapping_add(i as u8)).collect())),
    ]
}

proptest! {
    #[test]
    fn messages_pass_to_and_from_another_implementation(messages in prop::collection::vec(any_message(), 0..8), piece in 1usize..5000) {
        let mut server = WebSocket::from_raw_socket(Wire::default(), Role::Server, None);
        let (mut socket, mut seen, mut out) = (Socket::new(1 << 20, 99), Vec::new(), Vec::new());
        for (is_text, payload) in &messages {
            let kind = if *is_text { MessageType::Text } else { MessageType::Binary };
            prop_assert!(socket.send(kind, payload, &mut out));
        }
        socket.ping(b"ping", &mut out);
        server.get_mut().to_read = out;
        let mut read = Vec::new();
        while let Ok(message) = server.read() {
            read.push(message.clone());
            if !message.is_ping() {
                server.write(message).unwrap();
            }
        }
        server.close(None).unwrap();
        prop_assert_eq!(read.pop(), Some(Message::Ping("ping".into())));
        prop_assert_eq!(read.len(), messages.len());
        for (message, (is_text, payload)) in read.iter().zip(&messages) {
            prop_assert_eq!(message.is_text(), *is_text);
            let data = message.clone().into_data();
            prop_assert_eq!(data.as_ref(), payload.as_slice());
        }
        let mut out = Vec::new();
        for part in server.get_mut().written.chunks(piece) {
            prop_assert_eq!(socket.receive(part, &mut out, &mut |event| keep(&mut seen, event)), Ok(()));
        }
        let goodbye = seen.pop();
        prop_assert!(matches!(goodbye, Some(Seen::Close(..))), "{:?}", goodbye);
        seen.retain(|seen| *seen != Seen::Pong(b"ping".to_vec()));
        let expect: Vec<Seen> = messages.into_iter()
            .map(|(is_text, payload)| Seen::Message(if is_text { MessageType::Text } else { MessageType::Binary }, payload, true))
            .collect();
        prop_assert_eq!(seen, expect);
    }

    #[test]
    fn pieces_change_nothing(frames in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..20)), 0..8), cuts in prop::collection::vec(1usize..9, 1..20)) {
        let first = |n: u8| [0x81, 0x01, 0x00, 0x80, 0x82, 0x89, 0x8a, 0x88, n][usize::from(n) % 9];
        let input: Vec<u8> = frames.into_iter().flat_map(|(n, p)| [vec![first(n), p.len() as u8], p].concat()).collect();
        let whole = run(&input, &mut std::iter::repeat(usize::MAX));
        prop_assert_eq!(run(&input, &mut cuts.into_iter().cycle()), whole);
    }
}
