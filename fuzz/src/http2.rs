//! `http2`: however the bytes of a connection are cut, the same events occur in the same order, and the same bytes are
//! sent in reply; every request either ends once or is still open; memory and replies stay bounded.
//!
//! Input: byte 0 is flags (bit 0: the target sends the server's SETTINGS; bit 1: fields are reported; bits 2 to 4: how
//! many GETs are sent; bit 5: whether a POST with a body is sent as well), byte 1 seeds the cuts, the rest is the
//! stream.

use loadlab_load::protocol::http2::{Event, Head, HeadParts, Http2Error, Session, Settings};

use crate::http1::Cuts;

const BODY: &[u8] = &[b'b'; 70_000];
const POST: u32 = 50;

/// A recorded event; consecutive pieces of one body are merged.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Field(u32, Vec<u8>, Vec<u8>),
    Head(u32, u16, bool),
    Data(u32, Vec<u8>, bool),
    Other(String),
}

/// The outcome of feeding a stream to the session.
#[derive(Debug, PartialEq, Eq)]
struct Led {
    seen: Vec<Seen>,
    ended: Vec<u32>,
    out: Vec<u8>,
    open: Vec<u32>,
    fault: Option<Http2Error>,
}

fn head(method: &str) -> Head {
    Head::plain(&HeadParts { method, scheme: "http", authority: "a", path: "/", headers: &[] })
        .expect("a head")
}

fn keep(led: &mut Led, event: Event<'_>) {
    match event {
        Event::Head { token, end: true, .. }
        | Event::Data { token, end: true, .. }
        | Event::Reset { token, .. }
        | Event::Malformed { token, .. }
        | Event::HeadTooLarge { token }
        | Event::Unprocessed { token } => led.ended.push(token),
        _ => {}
    }
    if let (Some(Seen::Data(last, bytes, end @ false)), Event::Data { token, bytes: more, end: now }) =
        (led.seen.last_mut(), event)
        && *last == token
    {
        bytes.extend_from_slice(more);
        *end = now;
        return;
    }
    led.seen.push(match event {
        Event::Field { token, name, value } => Seen::Field(token, name.to_vec(), value.to_vec()),
        Event::Head { token, status, end } => {
            assert!((200..=999).contains(&status), "status {status}");
            Seen::Head(token, status, end)
        }
        Event::Data { token, bytes, end } => Seen::Data(token, bytes.to_vec(), end),
        other => Seen::Other(format!("{other:?}")),
    });
}

fn lead(flags: u8, stream: &[u8], mut cuts: Cuts) -> Led {
    let settings = Settings {
        report_fields: flags & 2 != 0,
        stream_window: 3000,
        connection_window: 70_000,
        ..Settings::default()
    };
    let mut session = Session::new(settings);
    let mut led = Led { seen: Vec::new(), ended: Vec::new(), out: Vec::new(), open: Vec::new(), fault: None };
    session.start(&mut led.out);
    for token in 0..u32::from(flags >> 2 & 7) {
        session.send(token, &head("GET"), b"", &mut led.out).expect("room");
    }
    if flags & 0x20 != 0 {
        session.send(POST, &head("POST"), BODY, &mut led.out).expect("room");
    }
    let hello: &[u8] = if flags & 1 == 1 { b"\0\0\0\x04\0\0\0\0\0" } else { b"" };
    let (mut at, mut out) = (0, Vec::new());
    let mut feed = |led: &mut Led, bytes: &[u8]| {
        let result = session.receive(bytes, &mut out, &mut |event| keep(led, event));
        led.out.append(&mut out);
        led.fault = result.err();
        led.open = session.open_tokens().collect();
        led.open.sort_unstable();
        // Only bodies write more than 17 bytes per nine-byte frame, and bodies are not flushed here.
        assert!(led.out.len() <= 80_000 + 2 * stream.len() + 200, "{} bytes written", led.out.len());
        result.is_ok()
    };
    let mut alive = feed(&mut led, hello);
    while alive && at < stream.len() {
        let end = at + cuts.next(stream.len() - at);
        alive = feed(&mut led, &stream[at..end]);
        at = end;
    }
    // Bodies continue on every flush.
    session.flush(|_| BODY, &mut led.out);
    led
}

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let [flags, seed, stream @ ..] = data else { return };
    let whole = lead(*flags, stream, Cuts::whole());
    for seed in [*seed, seed.wrapping_add(1)] {
        assert_eq!(lead(*flags, stream, Cuts::seeded(seed)), whole, "in pieces, then whole");
    }
    let sent = (0..u32::from(flags >> 2 & 7)).chain((flags & 0x20 != 0).then_some(POST));
    for token in sent {
        let ends = whole.ended.iter().filter(|t| **t == token).count();
        assert_eq!(ends + whole.open.iter().filter(|t| **t == token).count(), 1, "token {token}: {whole:?}");
    }
}
