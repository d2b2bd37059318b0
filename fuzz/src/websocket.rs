//! `websocket`: however the bytes of a connection are cut, the same events occur in the same order, and the same bytes
//! are sent in reply; texts are UTF-8, control frames short, messages within the limit. The same holds for the opening
//! handshake.
//!
//! Input: byte 0 is flags (bit 0: the stream begins with the answer to the opening handshake), byte 1 seeds the cuts,
//! the rest is the stream.

use loadlab_load::protocol::websocket::opening::{Opening, OpeningError};
use loadlab_load::protocol::websocket::{Event, MessageType, Socket, WebSocketError};

use crate::http1::Cuts;

const MAX_MESSAGE: u64 = 100_000;

/// A recorded event; consecutive pieces of one message are merged.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Message(MessageType, Vec<u8>, bool),
    Other(String),
}

/// The outcome of feeding a stream to the socket.
#[derive(Debug, Default, PartialEq, Eq)]
struct Led {
    opened: Option<Result<(), OpeningError>>,
    seen: Vec<Seen>,
    out: Vec<u8>,
    fault: Option<WebSocketError>,
}

fn keep(led: &mut Led, event: Event<'_>) {
    match event {
        Event::Message { kind, bytes, end } => {
            if let Some(Seen::Message(_, known, whole @ false)) = led.seen.last_mut() {
                known.extend_from_slice(bytes);
                *whole = end;
            } else {
                led.seen.push(Seen::Message(kind, bytes.to_vec(), end));
            }
        }
        Event::Ping(bytes) | Event::Pong(bytes) => {
            assert!(bytes.len() <= 125);
            led.seen.push(Seen::Other(format!("{event:?}")));
        }
        Event::Close { .. } => led.seen.push(Seen::Other(format!("{event:?}"))),
    }
}

fn lead(flags: u8, stream: &[u8], mut cuts: Cuts) -> Led {
    let opening = Opening::new([7; 16], vec!["chat".into()]);
    let (mut led, mut socket, mut partial, mut interim, mut out) =
        (Led::default(), Socket::new(MAX_MESSAGE, 7), Vec::new(), 0, Vec::new());
    let mut open = flags & 1 == 0;
    let mut at = 0;
    while at < stream.len() {
        let mut piece = &stream[at..at + cuts.next(stream.len() - at)];
        at += piece.len();
        if !open {
            match opening.receive(&mut partial, &mut interim, piece) {
                Ok(None) => continue,
                Ok(Some(used)) => {
                    assert!(used <= piece.len());
                    led.opened = Some(Ok(()));
                    (open, piece) = (true, &piece[used..]);
                }
                Err(error) => {
                    led.opened = Some(Err(error));
                    return led;
                }
            }
        }
        let result = socket.receive(piece, &mut out, &mut |event| keep(&mut led, event));
        led.out.append(&mut out);
        led.fault = result.err();
        if led.fault.is_some() {
            break;
        }
    }
    assert!(led.out.len() <= 5 * stream.len() + 20, "{} bytes answered", led.out.len());
    led
}

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let [flags, seed, stream @ ..] = data else { return };
    let whole = lead(*flags, stream, Cuts::whole());
    for seed in [*seed, seed.wrapping_add(1)] {
        assert_eq!(lead(*flags, stream, Cuts::seeded(seed)), whole, "in pieces, then whole");
    }
    let mut texts = String::new();
    let mut length = 0;
    for seen in &whole.seen {
        if let Seen::Message(kind, bytes, end) = seen {
            length += bytes.len() as u64;
            assert!(length <= MAX_MESSAGE, "{length} bytes");
            length = if *end { 0 } else { length };
            // A piece cut off by a ping may end inside a character.
            if let (MessageType::Text, true, Ok(text)) = (kind, *end, std::str::from_utf8(bytes)) {
                texts.push_str(text);
            }
        }
    }
    let single = matches!(whole.seen.as_slice(), [Seen::Message(MessageType::Text, _, true)]);
    assert!(
        !single || matches!(&whole.seen[0], Seen::Message(_, bytes, _) if bytes == texts.as_bytes()),
        "no UTF-8"
    );
}
