//! A simulated server that speaks HTTP/2, wrapped around one that speaks HTTP/1.1: each stream becomes the text of a
//! request, and the text of its answer becomes frames, so journeys are tested the same way over both.

use std::collections::BTreeMap;

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server};
use loadlab_load::journey::script::Written;
use loadlab_load::journey::template::Template;
use loadlab_load::protocol::http2::frame::{self, FrameHead, HEAD_LEN, PREFACE, flag, kind, setting};
use loadlab_load::protocol::http2::hpack::{Decoder, write_integer, write_string};
use loadlab_load::protocol::http2::{Code, HeadParts, Heads};
use loadlab_load::spec::{Http2, LoadSpec};

/// Entries of the static table (RFC 7541, appendix A): `:status: 200`, and a field that counts as 60 bytes.
const STATUS_200: u8 = 0x88;
const ACCEPT_ENCODING: u8 = 0x90;

/// What a server does besides answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whim {
    /// Sends GOAWAY before it processes this request (from 1).
    Goodbye(u64),
    /// Refuses the stream of this request, which may be sent again.
    Refuse(u64),
    /// Ends the stream of this request.
    Reset(u64),
    /// Ends the stream of this request after the head of its answer.
    CutOff(u64),
    /// Answers this request with a head of more than 64 KiB.
    LongHead(u64),
    /// Streams start with a window of this many bytes for the body. It is extended after this delay, if at all.
    Window(u32, Option<u64>),
}

/// `inner` over HTTP/2.
pub struct Over<S> {
    pub inner: S,
    pub whim: Option<Whim>,
    /// Complete requests received.
    pub requests: u64,
    /// Connections on which GOAWAY was sent.
    pub goodbyes: u64,
    conns: BTreeMap<ConnId, Link>,
}

struct Link {
    bytes: Vec<u8>,
    greeted: bool,
    decoder: Decoder,
    streams: BTreeMap<u32, Ask>,
    /// Whether GOAWAY was sent.
    left: bool,
    /// The last stream processed.
    last: u32,
}

#[derive(Default)]
struct Ask {
    head: String,
    body: Vec<u8>,
}

impl<S> Over<S> {
    pub fn new(inner: S, whim: Option<Whim>) -> Self {
        Over { inner, whim, requests: 0, goodbyes: 0, conns: BTreeMap::new() }
    }
}

impl<S: Server> Server for Over<S> {
    fn connect(&mut self, at_ns: u64, conn: ConnId) -> Result<u64, (u64, i32)> {
        let decoder = Decoder::new(4096, 100_000);
        let link =
            Link { bytes: vec![], greeted: false, decoder, streams: BTreeMap::new(), left: false, last: 0 };
        self.conns.insert(conn, link);
        self.inner.connect(at_ns, conn)
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        let Over { inner, whim, requests, goodbyes, conns } = self;
        let link = conns.get_mut(&conn).expect("a connection");
        let mut replies = Vec::new();
        link.bytes.extend_from_slice(bytes);
        if !link.greeted {
            assert!(link.bytes.starts_with(PREFACE), "no preface");
            link.bytes.drain(..PREFACE.len());
            link.greeted = true;
            let mut hello = Vec::new();
            let window = match whim {
                Some(Whim::Window(bytes, _)) => *bytes,
                _ => 65_535,
            };
            frame::write_settings(&mut hello, &[(setting::INITIAL_WINDOW_SIZE, window)]);
            replies.push((at_ns, Reply::Bytes(hello)));
        }
        while let Some(head) = FrameHead::read(&link.bytes) {
            let whole = HEAD_LEN + head.len as usize;
            if link.bytes.len() < whole {
                break;
            }
            let frame: Vec<u8> = link.bytes.drain(..whole).collect();
            let payload = &frame[HEAD_LEN..];
            match head.kind {
                kind::HEADERS => {
                    assert!(head.has(flag::END_HEADERS));
                    let text = text_of(&mut link.decoder, payload);
                    if link.left {
                        // The request crossed the GOAWAY in flight and is not processed.
                        continue;
                    }
                    link.streams.insert(head.stream, Ask { head: text, body: vec![] });
                    if let (Some(Whim::Window(_, Some(later))), false) = (*whim, head.has(flag::END_STREAM)) {
                        let mut more = Vec::new();
                        frame::write_window_update(&mut more, head.stream, 1 << 20);
                        replies.push((at_ns + later, Reply::Bytes(more)));
                    }
                }
                kind::DATA => {
                    let Some(ask) = link.streams.get_mut(&head.stream) else { continue };
                    ask.body.extend_from_slice(payload);
                }
                kind::RST_STREAM => drop(link.streams.remove(&head.stream)),
                _ => continue,
            }
            if !head.has(flag::END_STREAM) || head.kind == kind::RST_STREAM {
                continue;
            }
            let ask = link.streams.remove(&head.stream).expect("a stream");
            *requests += 1;
            let mut out = Vec::new();
            match *whim {
                Some(Whim::Goodbye(number))
                    if number <= *requests && *goodbyes == 0 && head.stream > link.last =>
                {
                    *goodbyes += 1;
                    let goodbye = [link.last.to_be_bytes(), Code::NO_ERROR.0.to_be_bytes()].concat();
                    frame::write(&mut out, kind::GOAWAY, 0, 0, &goodbye);
                    link.left = true;
                    replies.push((at_ns, Reply::Bytes(out)));
                    continue;
                }
                Some(Whim::Refuse(number)) if number == *requests => {
                    frame::write_reset(&mut out, head.stream, Code::REFUSED_STREAM);
                    replies.push((at_ns, Reply::Bytes(out)));
                    continue;
                }
                Some(Whim::Reset(number)) if number == *requests => {
                    frame::write_reset(&mut out, head.stream, Code(2));
                    replies.push((at_ns, Reply::Bytes(out)));
                    continue;
                }
                Some(Whim::CutOff(number)) if number == *requests => {
                    frame::write(&mut out, kind::HEADERS, flag::END_HEADERS, head.stream, &[STATUS_200]);
                    frame::write_reset(&mut out, head.stream, Code(2));
                    replies.push((at_ns, Reply::Bytes(out)));
                    continue;
                }
                Some(Whim::LongHead(number)) if number == *requests => {
                    let block = [&[STATUS_200][..], &[ACCEPT_ENCODING; 1500]].concat();
                    frame::write(&mut out, kind::HEADERS, flag::END_HEADERS, head.stream, &block);
                    replies.push((at_ns, Reply::Bytes(out)));
                    continue;
                }
                _ => {}
            }
            link.last = link.last.max(head.stream);
            let text = [ask.head.as_bytes(), &ask.body].concat();
            let (mut at, mut answer) = (at_ns, Vec::new());
            for (when, reply) in inner.request(at_ns, conn, &text) {
                let Reply::Bytes(bytes) = reply else { panic!("only answers") };
                (at, answer) = (when, [answer, bytes].concat());
            }
            if !answer.is_empty() {
                replies.push((at, Reply::Bytes(frames_of(head.stream, &answer))));
            }
        }
        replies
    }

    fn closed(&mut self, at_ns: u64, conn: ConnId) {
        self.inner.closed(at_ns, conn);
    }
}

/// The fields of a request as an HTTP/1.1 head.
pub fn text_of(decoder: &mut Decoder, block: &[u8]) -> String {
    let mut fields = Vec::new();
    let decoded = decoder.decode(block, |name, value| {
        let text = |b: &[u8]| std::str::from_utf8(b).expect("text").to_owned();
        fields.push((text(name), text(value)));
    });
    assert!(decoded.is_ok(), "{decoded:?}");
    let pseudo = fields.iter().take_while(|(name, _)| name.starts_with(':')).count();
    assert_eq!(pseudo, 4, "{fields:?}");
    let of = |name: &str| fields[..pseudo].iter().find(|(n, _)| n == name).expect(name).1.clone();
    assert_eq!(of(":scheme"), "http");
    let mut text = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", of(":method"), of(":path"), of(":authority"));
    for (name, value) in &fields[pseudo..] {
        assert!(!name.starts_with(':') && name.to_ascii_lowercase() == *name, "{name}");
        let words: Vec<String> = name.split('-').map(|w| w[..1].to_uppercase() + &w[1..]).collect();
        text.push_str(&format!("{}: {value}\r\n", words.join("-")));
    }
    text + "\r\n"
}

/// An HTTP/1.1 answer as frames: its head, and its body in two pieces.
pub fn frames_of(stream: u32, answer: &[u8]) -> Vec<u8> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    let (head, body) = (std::str::from_utf8(&answer[..end]).expect("text"), &answer[end..]);
    let mut lines = head.lines();
    let status = lines.next().and_then(|l| l.split(' ').nth(1)).expect("a status");
    let (mut block, mut out) = (Vec::new(), Vec::new());
    write_integer(&mut block, 0, 4, 8);
    write_string(&mut block, status.as_bytes());
    for (name, value) in lines.filter_map(|l| l.split_once(": ")) {
        write_integer(&mut block, 0, 4, 0);
        write_string(&mut block, name.to_ascii_lowercase().as_bytes());
        write_string(&mut block, value.as_bytes());
    }
    let end = if body.is_empty() { flag::END_STREAM } else { 0 };
    frame::write(&mut out, kind::HEADERS, flag::END_HEADERS | end, stream, &block);
    if !body.is_empty() {
        let (a, b) = body.split_at(body.len() / 2);
        frame::write(&mut out, kind::DATA, 0, stream, a);
        frame::write(&mut out, kind::DATA, flag::END_STREAM, stream, b);
    }
    out
}

/// `spec` over HTTP/2. `fields` are the names and values of each request's fields other than its path.
pub fn over_http2(spec: LoadSpec, streams: u32, fields: &[Vec<(&str, Template)>]) -> LoadSpec {
    over_http2_with(spec, streams, &[], fields)
}

/// As [`over_http2`], with constant fields that all requests share.
pub fn over_http2_with(
    spec: LoadSpec,
    streams: u32,
    fixed: &[(&str, &str)],
    fields: &[Vec<(&str, Template)>],
) -> LoadSpec {
    let fixed: Vec<_> = fixed.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let journey = spec.journey.as_ref().expect("a journey");
    let (mut all, mut heads, mut written) = (Heads::default(), Vec::new(), Vec::new());
    for (script, fields) in journey.scripts.iter().zip(fields) {
        let message = script.message.as_ref().expect("a request that is written");
        let authority = &journey.sites[usize::from(script.host)].authority;
        let parts =
            HeadParts { method: &message.method, scheme: "http", authority, path: "/", headers: &fixed };
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let outline = all.outline(&parts, &names).expect("a head");
        heads.push(outline.front.clone());
        let values = fields.iter().map(|(_, value)| value.clone()).collect();
        written.push(Some(Written { outline, values }));
    }
    LoadSpec { http2: Some(Http2 { heads, written, streams }), ..spec }
}
