//! A simulated server with arbitrary behaviour: it speaks HTTP/1.1, HTTP/2 or WebSocket, plain or under TLS, takes its
//! bytes in any pieces, misbehaves in one way now and then, and keeps its own books.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::sync::Arc;

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server};
use loadlab_load::protocol::http2::Code;
use loadlab_load::protocol::http2::frame::{self, FrameHead, HEAD_LEN, PREFACE, flag, kind, setting};
use loadlab_load::protocol::http2::hpack::Decoder;
use loadlab_load::random::Random;
use rustls::{ServerConfig, ServerConnection};

use super::conversations::accept_of;
use super::http2::{frames_of, text_of};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Some backends count requests up to this length as sent before they have gone out.
const SILENT: usize = 4096;

/// The protocol spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Http1,
    Http2,
    WebSocket,
}

/// What goes wrong. The first three are network faults; occasionally something else goes wrong as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    ShortWrites,
    PartialReads,
    Resets,
    /// The server closes connections, gracefully or abruptly: GOAWAY, `Connection: close`, a WebSocket close.
    Goodbyes,
    /// Nothing arrives, or half an answer, or an answer too late, or there is no room to send.
    Stalls,
    /// Endless interim answers, header fields and frames.
    Floods,
    /// Meaningless bytes, and answers that contradict themselves.
    Garbage,
}

/// The server's own books.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub connects: u64,
    pub closes: u64,
    /// Bytes received.
    pub received: u64,
    /// Complete requests: HTTP requests, openings, messages, closes.
    pub requests: u64,
    /// Complete good answers sent, by what they answer: openings, messages, closes, and HTTP requests.
    pub good: BTreeMap<Asked, u64>,
    /// HTTP/1.1 requests answered before they were complete, and the number of them that never completed because the
    /// server stopped reading.
    pub early: u64,
    pub unread: u64,
    /// Ids of requests that were complete or answered, and how often each was seen.
    pub seen: BTreeMap<u64, u64>,
    /// Ids of requests with a complete good answer, and with a complete bad one.
    pub accepted: BTreeSet<u64>,
    pub refused: BTreeSet<u64>,
}

/// What kind of request the server received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    Request,
    Opening,
    Message,
    Goodbye,
}

/// The server.
pub struct Peer {
    protocol: Protocol,
    fault: Fault,
    /// Probability that a request triggers a fault.
    chance: f64,
    /// From this time on nothing goes wrong and every request takes the same time. `None`: faults never end.
    heals_ns: Option<u64>,
    is_well: bool,
    tls: Option<Arc<ServerConfig>>,
    /// The server is a proxy that opens tunnels to itself.
    is_proxy: bool,
    random: Random,
    links: BTreeMap<ConnId, Link>,
    pub ledger: Ledger,
}

/// State of one connection.
struct Link {
    tls: Option<ServerConnection>,
    input: Vec<u8>,
    /// The server has sent its last byte on this connection.
    is_over: bool,
    is_tunnelled: bool,
    is_open: bool,
    /// Early answers: whether one was considered for the current request, whether it was sent, and whether the rest is
    /// still read.
    is_decided: bool,
    is_answered: bool,
    reads: bool,
    /// When the last reply arrives: no later reply arrives before it.
    last_ns: u64,
    http2: Http2,
}

struct Http2 {
    decoder: Decoder,
    greeted: bool,
    streams: BTreeMap<u32, (String, Vec<u8>)>,
    /// The last stream processed; after a GOAWAY no later one is.
    last: u32,
    has_left: bool,
}

/// An action of the server.
enum Does {
    Says(Vec<u8>),
    /// Bytes outside TLS, if TLS is used.
    Spills(Vec<u8>),
    Fin,
    Reset,
}

type Doings = Vec<(u64, Does)>;

/// The fate of a request.
enum Fate {
    /// Answered correctly.
    Well,
    /// Answered completely, with a bad status.
    Refused(u16),
    /// Anything else: the timed actions that replace the answer.
    Ill(Doings),
}

impl Peer {
    pub fn new(protocol: Protocol, fault: Fault, seed: u64) -> Peer {
        let mut random = Random::new(seed ^ 0x5eed_9ee7);
        let chance = [0.02, 0.1, 0.3, 0.9][(random.next_u64() % 4) as usize];
        Peer {
            protocol,
            fault,
            chance,
            heals_ns: None,
            is_well: false,
            tls: None,
            is_proxy: false,
            random,
            links: BTreeMap::new(),
            ledger: Ledger::default(),
        }
    }

    pub fn under_tls(mut self, config: Option<Arc<ServerConfig>>) -> Peer {
        self.tls = config;
        self
    }

    pub fn behind_proxy(mut self, is_proxy: bool) -> Peer {
        self.is_proxy = is_proxy;
        self
    }

    /// Limits faults to before `heals_ns`; earlier faults have no later effects. How many bytes it takes at a time does
    /// not change.
    pub fn until(mut self, heals_ns: u64) -> Peer {
        self.heals_ns = Some(heals_ns);
        self
    }

    fn is_at(&mut self, at_ns: u64) {
        self.is_well = self.heals_ns.is_some_and(|heals_ns| at_ns >= heals_ns);
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random.next_u64() % most.max(1)
    }

    fn happens(&mut self, chance: f64) -> bool {
        !self.is_well && self.random.unit() <= chance
    }

    /// Service time of one answer.
    fn service_ns(&mut self) -> u64 {
        if self.is_well { 5 * MS } else { self.below(12) * MS }
    }

    /// Whether to refuse this request: one in `one_in`, until the faults end.
    fn refuses(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0 && !self.is_well
    }

    fn noise(&mut self) -> Vec<u8> {
        let length = 1 + self.below(60) as usize;
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// The number of frames in a flood; occasionally more than any client should tolerate.
    fn flood(&mut self) -> usize {
        [3, 40, 1000, 20_000][(self.below(40) / 13) as usize]
    }

    /// Records a complete request; its id, if it has one.
    fn notes(&mut self, text: &str) -> Option<u64> {
        self.ledger.requests += 1;
        let id = id_of(text)?;
        *self.ledger.seen.entry(id).or_default() += 1;
        Some(id)
    }

    fn answers_well(&mut self, asked: Asked, id: Option<u64>) {
        *self.ledger.good.entry(asked).or_default() += 1;
        self.ledger.accepted.extend(id);
    }

    // HTTP/1.1

    /// Takes complete requests from the input.
    fn takes_http1(&mut self, link: &mut Link, at_ns: u64) -> Doings {
        let mut all = Vec::new();
        while let Some(request) = next_request(&mut link.input) {
            link.is_decided = false;
            if std::mem::take(&mut link.is_answered) {
                continue;
            }
            if self.is_proxy && !link.is_tunnelled {
                all.extend(self.gives_tunnel(link, at_ns));
                continue;
            }
            let id = self.notes(&request);
            if self.protocol == Protocol::WebSocket && !link.is_open {
                all.extend(self.opens(link, &request, at_ns));
                if link.is_open {
                    break;
                }
                continue;
            }
            let at = at_ns + self.service_ns();
            let does = match self.fate_over_http1(&request, at) {
                Fate::Well => {
                    self.answers_well(Asked::Request, id);
                    self.good_answer(&request, at)
                }
                Fate::Refused(status) => {
                    self.ledger.refused.extend(id);
                    vec![(
                        at,
                        Does::Says(format!("HTTP/1.1 {status} No\r\nContent-Length: 3\r\n\r\nno!").into()),
                    )]
                }
                Fate::Ill(does) => {
                    // Garbage may still be an answer.
                    self.ledger.refused.extend(id);
                    does
                }
            };
            all.extend(does);
        }
        if self.protocol == Protocol::Http1 && (!self.is_proxy || link.is_tunnelled) && !link.is_decided {
            all.extend(self.answers_early(link, at_ns));
        }
        all
    }

    /// Answers some requests as soon as their head has arrived. The rest is then read or not; if not, the connection
    /// cannot carry another request.
    fn answers_early(&mut self, link: &mut Link, at_ns: u64) -> Doings {
        let Some((head, length)) = head_of(&link.input) else { return Vec::new() };
        link.is_decided = true;
        // TLS delivers whole records, so a head rarely arrives alone.
        if self.is_well || self.below(3) > u64::from(link.tls.is_some()) {
            return Vec::new();
        }
        let head = head.to_owned();
        let id = self.notes(&head);
        link.is_answered = true;
        // A short request may count as sent once submitted: the sender cannot know that it never goes out.
        link.reads = head.len() + length <= SILENT || self.below(2) == 0;
        self.ledger.early += 1;
        self.ledger.unread += u64::from(!link.reads);
        let at = at_ns + self.below(3) * MS;
        if self.below(4) == 0 {
            self.ledger.refused.extend(id);
            return vec![(at, Does::Says(b"HTTP/1.1 413 No\r\nContent-Length: 3\r\n\r\nno!".to_vec()))];
        }
        self.answers_well(Asked::Request, id);
        self.good_answer(&head, at)
    }

    fn gives_tunnel(&mut self, link: &mut Link, at_ns: u64) -> Doings {
        let at = at_ns + self.service_ns();
        // The bytes that open the tunnel are not part of the traffic through it.
        let tunnel = b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec();
        match (self.happens(self.chance / 4.0), self.fault) {
            (true, Fault::Stalls) => Vec::new(),
            (true, Fault::Goodbyes) => vec![(at, Does::Fin)],
            (true, Fault::Garbage) => vec![(at, Does::Spills(self.noise()))],
            (true, Fault::Floods) => {
                vec![(at, Does::Spills(b"HTTP/1.1 102 Wait\r\n\r\n".repeat(self.flood())))]
            }
            _ => {
                link.is_tunnelled = true;
                vec![(at, Does::Spills(tunnel))]
            }
        }
    }

    fn good_answer(&mut self, request: &str, at: u64) -> Doings {
        let echo = echo_of(request);
        let large = if self.refuses(10) { "x".repeat(self.below(40_000) as usize) } else { String::new() };
        let body = format!("{echo}{large}");
        let closes = request.contains("Connection: close");
        let with = if closes { "Connection: close\r\n" } else { "" };
        let mut does = match self.below(4) {
            0 => {
                let half = body.len() / 2;
                let (a, b) = body.split_at(half);
                let mut text = format!("HTTP/1.1 200 OK\r\n{with}Transfer-Encoding: chunked\r\n\r\n");
                for piece in [a, b].iter().filter(|piece| !piece.is_empty()) {
                    text.push_str(&format!("{:x}\r\n{piece}\r\n", piece.len()));
                }
                text.push_str("0\r\n\r\n");
                vec![(at, Does::Says(text.into_bytes()))]
            }
            1 => {
                let head = format!("HTTP/1.1 200 OK\r\n{with}Content-Length: {}\r\n\r\n", body.len());
                let later = if self.is_well { at } else { at + self.below(3) * MS };
                vec![(at, Does::Says(head.into_bytes())), (later, Does::Says(body.into_bytes()))]
            }
            _ => {
                let text = format!("HTTP/1.1 200 OK\r\n{with}Content-Length: {}\r\n\r\n{body}", body.len());
                vec![(at, Does::Says(text.into_bytes()))]
            }
        };
        if closes {
            let last = does.last().map_or(at, |(at, _)| *at);
            does.push((last, Does::Fin));
        }
        does
    }

    fn fate_over_http1(&mut self, request: &str, at: u64) -> Fate {
        if self.refuses(20) {
            return Fate::Refused(if self.below(2) == 0 { 404 } else { 503 });
        }
        if !self.happens(self.chance) {
            return Fate::Well;
        }
        let says = |text: &str| Does::Says(text.as_bytes().to_vec());
        let half = "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\nonly so";
        Fate::Ill(match self.fault {
            Fault::ShortWrites | Fault::PartialReads => return Fate::Well,
            Fault::Resets => match self.below(3) {
                0 => vec![(at, Does::Reset)],
                1 => vec![(at, says(half)), (at, Does::Reset)],
                _ => vec![(at, Does::Fin), (at, Does::Reset)],
            },
            Fault::Goodbyes => match self.below(5) {
                0 => vec![(at, Does::Fin)],
                1 => vec![(at, says(half)), (at, Does::Fin)],
                2 => {
                    // A good answer; the connection ends separately.
                    let id = id_of(request);
                    self.answers_well(Asked::Request, id);
                    let text = format!("HTTP/1.1 200 OK\r\n\r\n{}", echo_of(request));
                    vec![(at, Does::Says(text.into_bytes())), (at + self.below(3) * MS, Does::Fin)]
                }
                other => {
                    let id = id_of(request);
                    self.answers_well(Asked::Request, id);
                    let body = echo_of(request);
                    let says_so = if other == 3 { "Connection: close\r\n" } else { "" };
                    let text =
                        format!("HTTP/1.1 200 OK\r\n{says_so}Content-Length: {}\r\n\r\n{body}", body.len());
                    vec![(at, Does::Says(text.into_bytes())), (at + self.below(30) * MS, Does::Fin)]
                }
            },
            Fault::Stalls => match self.below(4) {
                0 => Vec::new(),
                1 => vec![(at, says(half))],
                2 => vec![(at, says("HTTP/1.1 20"))],
                _ => {
                    let id = id_of(request);
                    self.answers_well(Asked::Request, id);
                    let later = at + self.below(1000) * MS;
                    self.good_answer(request, later)
                }
            },
            Fault::Floods => {
                let count = self.flood();
                match self.below(4) {
                    0 => vec![(at, Does::Says(b"HTTP/1.1 103 Early\r\n\r\n".repeat(count)))],
                    1 => {
                        let head =
                            format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-Long: 0123456789\r\n".repeat(count));
                        vec![(at, Does::Says(head.into_bytes()))]
                    }
                    2 => vec![(
                        at,
                        Does::Says([b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &vec![b'x'; 20 * count]].concat()),
                    )],
                    _ => {
                        let chunks = "1\r\nx\r\n".repeat(count);
                        vec![(
                            at,
                            Does::Says(
                                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")
                                    .into(),
                            ),
                        )]
                    }
                }
            }
            Fault::Garbage => {
                let noise = self.noise();
                match self.below(6) {
                    0 => vec![(at, Does::Says(noise))],
                    1 => vec![(at, Does::Spills(noise))],
                    2 => vec![(at, Does::Says([half.as_bytes(), &noise].concat()))],
                    3 => vec![(
                        at,
                        says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!"),
                    )],
                    4 => {
                        // A second, unsolicited answer. If another request is pending when it arrives, it counts for
                        // that request: nothing in HTTP/1.1 shows otherwise.
                        let id = id_of(request);
                        self.answers_well(Asked::Request, id);
                        self.answers_well(Asked::Request, id);
                        let body = echo_of(request);
                        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                        vec![
                            (at, Does::Says(text.clone().into())),
                            (at + self.below(4) * MS, Does::Says(text.into())),
                        ]
                    }
                    _ => vec![(at, says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx"))],
                }
            }
        })
    }

    // HTTP/2

    fn takes_http2(&mut self, link: &mut Link, at_ns: u64) -> Doings {
        let mut all = Vec::new();
        if !link.http2.greeted {
            if link.input.len() < PREFACE.len() {
                return all;
            }
            assert!(link.input.starts_with(PREFACE), "no preface");
            link.input.drain(..PREFACE.len());
            link.http2.greeted = true;
            let stays = self.heals_ns.is_some();
            let narrow = self.fault == Fault::Stalls && self.below(3) == 0 && !stays;
            let window = if narrow { self.below(50) as u32 } else { 65_535 };
            let mut hello = Vec::new();
            let most = if stays { 100 } else { [1, 2, 100][self.below(3) as usize] };
            let settings = [(setting::INITIAL_WINDOW_SIZE, window), (setting::MAX_CONCURRENT_STREAMS, most)];
            frame::write_settings(&mut hello, &settings);
            all.push((at_ns, Does::Says(hello)));
        }
        while let Some(head) = FrameHead::read(&link.input) {
            let whole = HEAD_LEN + head.len as usize;
            if link.input.len() < whole {
                break;
            }
            let frame: Vec<u8> = link.input.drain(..whole).collect();
            all.extend(self.frame(link, head, &frame[HEAD_LEN..], at_ns));
        }
        all
    }

    fn frame(&mut self, link: &mut Link, head: FrameHead, payload: &[u8], at_ns: u64) -> Doings {
        let http2 = &mut link.http2;
        let mut does = Vec::new();
        match head.kind {
            kind::HEADERS => {
                assert!(head.has(flag::END_HEADERS));
                let text = text_of(&mut http2.decoder, payload);
                if http2.has_left {
                    // The request crossed the GOAWAY in flight and is not processed.
                    return Vec::new();
                }
                http2.streams.insert(head.stream, (text, Vec::new()));
            }
            kind::DATA => match http2.streams.get_mut(&head.stream) {
                Some((_, body)) => {
                    body.extend_from_slice(payload);
                    // Restore the window: on the connection, and on the stream unless stalling streams is the fault
                    // under test.
                    let mut room = Vec::new();
                    if !payload.is_empty() {
                        frame::write_window_update(&mut room, 0, payload.len() as u32);
                    }
                    if !payload.is_empty() && self.fault != Fault::Stalls && !head.has(flag::END_STREAM) {
                        frame::write_window_update(&mut room, head.stream, payload.len() as u32);
                    }
                    does.push((at_ns, Does::Says(room)));
                }
                None => return Vec::new(),
            },
            kind::RST_STREAM => {
                http2.streams.remove(&head.stream);
                return Vec::new();
            }
            kind::SETTINGS if !head.has(flag::ACK) => {
                let mut out = Vec::new();
                frame::write(&mut out, kind::SETTINGS, flag::ACK, 0, &[]);
                return vec![(at_ns, Does::Says(out))];
            }
            _ => return Vec::new(),
        }
        if !head.has(flag::END_STREAM) {
            return does;
        }
        let Some((text, body)) = http2.streams.remove(&head.stream) else { return does };
        let text = text + &String::from_utf8_lossy(&body);
        let at = at_ns + self.service_ns();
        does.extend(self.answers_stream(link, (head.stream, &text), at));
        does
    }

    fn answers_stream(&mut self, link: &mut Link, (stream, text): (u32, &str), at: u64) -> Doings {
        let mut out = Vec::new();
        let strikes = self.happens(self.chance);
        if strikes && self.fault == Fault::Goodbyes && self.below(3) > 0 {
            if self.below(2) == 0 {
                frame::write_reset(&mut out, stream, Code::REFUSED_STREAM);
                return vec![(at, Does::Says(out))];
            }
            // Streams that are not processed yet never will be.
            let goodbye = [link.http2.last.to_be_bytes(), Code::NO_ERROR.0.to_be_bytes()].concat();
            frame::write(&mut out, kind::GOAWAY, 0, 0, &goodbye);
            link.http2.has_left = true;
            link.http2.streams.clear();
            let mut does = vec![(at, Does::Says(out))];
            if self.below(2) == 0 {
                does.push((at + self.below(5) * MS, Does::Fin));
            }
            return does;
        }
        link.http2.last = link.http2.last.max(stream);
        let id = self.notes(text);
        if self.refuses(20) {
            self.ledger.refused.extend(id);
            let status = if self.below(2) == 0 { 404 } else { 503 };
            let answer = format!("HTTP/1.1 {status} No\r\ncontent-length: 3\r\n\r\nno!");
            return vec![(at, Does::Says(frames_of(stream, answer.as_bytes())))];
        }
        let body = echo_of(text);
        let good = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let good = frames_of(stream, good.as_bytes());
        if !strikes {
            self.answers_well(Asked::Request, id);
            return vec![(at, Does::Says(good))];
        }
        self.ledger.refused.extend(id);
        match self.fault {
            Fault::ShortWrites | Fault::PartialReads => {
                self.answers_well(Asked::Request, id);
                vec![(at, Does::Says(good))]
            }
            Fault::Resets => match self.below(4) {
                0 => vec![(at, Does::Reset)],
                1 => vec![(at, Does::Says(good[..good.len() / 2].to_vec())), (at, Does::Reset)],
                2 => {
                    out.extend_from_slice(&good[..good.len() - HEAD_LEN - body.len().div_ceil(2)]);
                    frame::write_reset(&mut out, stream, Code(2));
                    vec![(at, Does::Says(out))]
                }
                _ => vec![(at, Does::Fin), (at, Does::Reset)],
            },
            Fault::Goodbyes => {
                // The last answer, a GOAWAY, and the end of the connection.
                self.answers_well(Asked::Request, id);
                out.extend_from_slice(&good);
                let goodbye = [stream.to_be_bytes(), Code::NO_ERROR.0.to_be_bytes()].concat();
                frame::write(&mut out, kind::GOAWAY, 0, 0, &goodbye);
                link.http2.has_left = true;
                link.http2.streams.clear();
                vec![(at, Does::Says(out)), (at + self.below(3) * MS, Does::Fin)]
            }
            Fault::Stalls => match self.below(3) {
                0 => Vec::new(),
                1 => vec![(at, Does::Says(good[..good.len() / 2].to_vec()))],
                _ => {
                    self.answers_well(Asked::Request, id);
                    vec![(at + self.below(1000) * MS, Does::Says(good))]
                }
            },
            Fault::Floods => {
                for _ in 0..self.flood() {
                    match self.below(5) {
                        0 => frame::write(&mut out, kind::PING, 0, 0, &[0; 8]),
                        1 => frame::write_settings(&mut out, &[(setting::MAX_HEADER_LIST_SIZE, 100_000)]),
                        2 => frame::write(&mut out, kind::DATA, 0, stream, &[]),
                        3 => frame::write_window_update(&mut out, 0, 1),
                        _ => frame::write(&mut out, 99, 0, 0, b"?"),
                    }
                }
                // DATA before HEADERS would invalidate the answer: it is sent before the flood, or not at all.
                let (before, behind) = (self.below(2) == 0, out.clone());
                if before {
                    self.answers_well(Asked::Request, id);
                    vec![(at, Does::Says([good, behind].concat()))]
                } else {
                    vec![(at, Does::Says(behind))]
                }
            }
            Fault::Garbage => match self.below(4) {
                0 => vec![(at, Does::Says(self.noise()))],
                1 => vec![(at, Does::Spills(self.noise()))],
                // A corrupted length may leave the connection waiting forever.
                2 if self.heals_ns.is_none() => {
                    let mut bent = good;
                    let place = self.below(bent.len() as u64) as usize;
                    bent[place] ^= 1 << self.below(8);
                    // The corrupted answer may still pass as good, for whichever user it names.
                    self.answers_well(Asked::Request, id);
                    vec![(at, Does::Says(bent))]
                }
                _ => {
                    // The answer twice, the second time on an ended stream.
                    self.answers_well(Asked::Request, id);
                    vec![(at, Does::Says([good.clone(), good].concat()))]
                }
            },
        }
    }

    // WebSocket

    fn opens(&mut self, link: &mut Link, request: &str, at_ns: u64) -> Doings {
        let at = at_ns + self.service_ns();
        let accept = accept_of(request);
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
        let good = format!("{head}Sec-WebSocket-Accept: {accept}\r\n\r\n").into_bytes();
        let strikes = self.happens(self.chance / 3.0);
        if self.refuses(25) {
            return vec![(at, Does::Says(b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno".to_vec()))];
        }
        let (half, noise) = (good[..good.len() / 2].to_vec(), self.noise());
        match self.fault {
            Fault::Resets if strikes => vec![(at, Does::Says(half)), (at, Does::Reset)],
            Fault::Goodbyes if strikes => vec![(at, Does::Says(half)), (at, Does::Fin)],
            Fault::Stalls if strikes => vec![(at, Does::Says(half))],
            Fault::Garbage if strikes => vec![(at, Does::Says(noise))],
            Fault::Floods if strikes => {
                let head = format!("{head}{}", "X-Long: 0123456789\r\n".repeat(self.flood()));
                vec![(at, Does::Says(head.into_bytes()))]
            }
            _ => {
                link.is_open = true;
                self.answers_well(Asked::Opening, None);
                vec![(at, Does::Says(good))]
            }
        }
    }

    fn takes_messages(&mut self, link: &mut Link, at_ns: u64) -> Doings {
        let mut all = Vec::new();
        while let Some((opcode, payload)) = next_frame(&mut link.input) {
            let at = at_ns + self.service_ns();
            match opcode {
                8 => {
                    self.ledger.requests += 1;
                    if self.fault == Fault::Stalls && self.happens(self.chance) {
                        continue;
                    }
                    self.answers_well(Asked::Goodbye, None);
                    all.push((at, Does::Says(frame_of(0x88, &payload))));
                    all.push((at, Does::Fin));
                }
                9 | 10 => {}
                _ => all.extend(self.answers_message(&String::from_utf8_lossy(&payload), at)),
            }
        }
        all
    }

    fn answers_message(&mut self, text: &str, at: u64) -> Doings {
        let id = self.notes(text);
        let good = frame_of(0x81, echo_of(text).as_bytes());
        if !self.happens(self.chance) {
            self.answers_well(Asked::Message, id);
            return vec![(at, Does::Says(good))];
        }
        self.ledger.refused.extend(id);
        match self.fault {
            Fault::ShortWrites | Fault::PartialReads => {
                self.answers_well(Asked::Message, id);
                vec![(at, Does::Says(good))]
            }
            Fault::Resets => match self.below(3) {
                0 => vec![(at, Does::Reset)],
                1 => vec![(at, Does::Says(good[..good.len() / 2].to_vec())), (at, Does::Reset)],
                _ => vec![(at, Does::Fin), (at, Does::Reset)],
            },
            Fault::Goodbyes => {
                let code = [1000u16, 1001, 1011][self.below(3) as usize].to_be_bytes();
                self.answers_well(Asked::Goodbye, None);
                let mut does = vec![(at, Does::Says(frame_of(0x88, &code)))];
                if self.below(2) == 0 {
                    self.answers_well(Asked::Message, id);
                    does.insert(0, (at, Does::Says(good)));
                }
                if self.below(2) == 0 {
                    does.push((at + self.below(3) * MS, Does::Fin));
                }
                does
            }
            Fault::Stalls => match self.below(3) {
                0 => Vec::new(),
                1 => vec![(at, Does::Says(good[..good.len() / 2].to_vec()))],
                _ => {
                    self.answers_well(Asked::Message, id);
                    vec![(at + self.below(1000) * MS, Does::Says(good))]
                }
            },
            Fault::Floods => {
                let count = self.flood();
                let frames = match self.below(4) {
                    0 => frame_of(0x89, b"ping").repeat(count),
                    1 => frame_of(0x81, b"other").repeat(count),
                    2 => [frame_of(0x01, b"begins"), frame_of(0x00, b"goes on").repeat(count)].concat(),
                    _ => frame_of(0x8a, b"").repeat(count),
                };
                vec![(at, Does::Says(frames))]
            }
            Fault::Garbage => match self.below(4) {
                0 => vec![(at, Does::Says(self.noise()))],
                1 => vec![(at, Does::Spills(self.noise()))],
                2 => vec![(at, Does::Says(frame_of(0x81, &[0xff, 0xfe])))],
                _ => vec![(at, Does::Says(vec![0xff, 0x7f]))],
            },
        }
    }

    /// Turns the actions into network replies, in order.
    fn goes_out(
        &mut self,
        link: &mut Link,
        first: Vec<u8>,
        mut does: Doings,
        at_ns: u64,
    ) -> Vec<(u64, Reply)> {
        let mut replies = Vec::new();
        link.last_ns = link.last_ns.max(at_ns);
        if !first.is_empty() {
            replies.push((link.last_ns, Reply::Bytes(first)));
        }
        does.sort_by_key(|(at, _)| *at);
        does.retain(|(_, one)| !matches!(one, Does::Says(bytes) if bytes.is_empty()));
        for (at, one) in does {
            link.last_ns = link.last_ns.max(at);
            let reply = match one {
                _ if link.is_over => continue,
                Does::Says(bytes) => match &mut link.tls {
                    None => Reply::Bytes(bytes),
                    Some(tls) => {
                        tls.writer().write_all(&bytes).expect("room");
                        Reply::Bytes(all_of(tls))
                    }
                },
                Does::Spills(bytes) => Reply::Bytes(bytes),
                Does::Fin => {
                    if let Some(tls) = link.tls.as_mut().filter(|_| !self.random.next_u64().is_multiple_of(4))
                    {
                        tls.send_close_notify();
                        replies.push((link.last_ns, Reply::Bytes(all_of(tls))));
                    }
                    Reply::Fin
                }
                Does::Reset => Reply::Error(libc::ECONNRESET),
            };
            link.is_over = matches!(reply, Reply::Fin | Reply::Error(_));
            replies.push((link.last_ns, reply));
        }
        replies
    }
}

impl Server for Peer {
    fn connect(&mut self, at_ns: u64, conn: ConnId) -> Result<u64, (u64, i32)> {
        self.is_at(at_ns);
        self.ledger.connects += 1;
        let http2 = Http2 {
            decoder: Decoder::new(4096, 100_000),
            greeted: false,
            streams: BTreeMap::new(),
            last: 0,
            has_left: false,
        };
        let tls = self.tls.clone().map(|config| {
            let mut tls = ServerConnection::new(config).expect("a configuration");
            tls.set_buffer_limit(None);
            tls
        });
        let (input, last_ns) = (Vec::new(), 0);
        let link = Link {
            tls,
            input,
            is_over: false,
            is_tunnelled: false,
            is_open: false,
            is_decided: false,
            is_answered: false,
            reads: true,
            last_ns,
            http2,
        };
        assert!(self.links.insert(conn, link).is_none(), "a place that is taken is connected");
        let at = if self.is_well { at_ns + MS } else { at_ns + self.below(4) * MS };
        match (self.happens(self.chance / 8.0), self.fault) {
            (true, Fault::Resets | Fault::Goodbyes) => Err((at, libc::ECONNREFUSED)),
            (true, Fault::Stalls) => Ok(at + self.below(3) * 100 * S),
            _ => Ok(at),
        }
    }

    fn opened(&mut self, at_ns: u64, _: ConnId) -> Vec<(u64, Reply)> {
        self.is_at(at_ns);
        let strikes = self.happens(self.chance / 8.0);
        let at = at_ns + self.below(3) * MS;
        match self.fault {
            Fault::Garbage if strikes => vec![(at, Reply::Bytes(self.noise()))],
            Fault::Goodbyes if strikes => vec![(at, Reply::Fin)],
            Fault::Resets if strikes => vec![(at, Reply::Error(libc::ECONNRESET))],
            _ => Vec::new(),
        }
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        self.is_at(at_ns);
        self.ledger.received += bytes.len() as u64;
        let mut link = self.links.remove(&conn).expect("a connection");
        let replies = self.receives(&mut link, at_ns, bytes);
        self.links.insert(conn, link);
        replies
    }

    fn reads(&self, conn: ConnId) -> bool {
        self.links.get(&conn).is_none_or(|link| link.reads)
    }

    fn closed(&mut self, _: u64, conn: ConnId) {
        self.ledger.closes += 1;
        assert!(self.links.remove(&conn).is_some(), "what is closed was open");
    }
}

impl Peer {
    fn receives(&mut self, link: &mut Link, at_ns: u64, mut bytes: &[u8]) -> Vec<(u64, Reply)> {
        let mut first = Vec::new();
        if link.is_over {
            // The server has already closed its end.
            return vec![(link.last_ns.max(at_ns), Reply::Error(libc::ECONNRESET))];
        }
        let in_tunnel = !self.is_proxy || link.is_tunnelled;
        match link.tls.as_mut().filter(|_| in_tunnel) {
            None => link.input.extend_from_slice(bytes),
            Some(tls) => {
                while !bytes.is_empty() {
                    if tls.read_tls(&mut bytes).is_err() || tls.process_new_packets().is_err() {
                        first = all_of(tls);
                        let mut replies = self.goes_out(link, first, Vec::new(), at_ns);
                        link.is_over = true;
                        replies.push((link.last_ns, Reply::Fin));
                        return replies;
                    }
                    // The received bytes run out, temporarily or for good.
                    let _ = tls.reader().read_to_end(&mut link.input);
                }
                first = all_of(tls);
            }
        }
        let mut does = Vec::new();
        if !in_tunnel {
            does.extend(self.takes_http1(link, at_ns));
        }
        does.extend(match self.protocol {
            _ if !in_tunnel => Vec::new(),
            Protocol::Http1 => self.takes_http1(link, at_ns),
            Protocol::Http2 => self.takes_http2(link, at_ns),
            Protocol::WebSocket => {
                let mut does = if link.is_open { Vec::new() } else { self.takes_http1(link, at_ns) };
                if link.is_open {
                    does.extend(self.takes_messages(link, at_ns));
                }
                does
            }
        });
        self.goes_out(link, first, does, at_ns)
    }
}

fn all_of(link: &mut ServerConnection) -> Vec<u8> {
    let mut out = Vec::new();
    while link.wants_write() {
        link.write_tls(&mut out).expect("memory");
    }
    out
}

/// Takes the next complete request from the input.
fn next_request(input: &mut Vec<u8>) -> Option<String> {
    let (head, body) = head_of(input)?;
    let whole = head.len() + body;
    if input.len() < whole {
        return None;
    }
    let request = input.drain(..whole).collect();
    Some(String::from_utf8(request).expect("a request is text"))
}

/// A complete request head, and the length of the body that follows.
fn head_of(input: &[u8]) -> Option<(&str, usize)> {
    let head = input.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&input[..head]).expect("a head is text");
    let length = text.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next());
    Some((text, length.map_or(0, |length| length.parse().expect("a length"))))
}

/// Takes the client's next complete frame: its opcode and its payload.
fn next_frame(input: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let second = usize::from(*input.get(1)?);
    assert!(second & 0x80 != 0, "masked");
    let (length, head) = match second & 0x7f {
        126 => (usize::from(u16::from_be_bytes([*input.get(2)?, *input.get(3)?])), 4),
        127 => panic!("no message is as long"),
        short => (short, 2),
    };
    if input.len() < head + 4 + length {
        return None;
    }
    let frame: Vec<u8> = input.drain(..head + 4 + length).collect();
    let (mask, payload) = frame[head..].split_at(4);
    let payload = payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m).collect();
    Some((frame[0] & 15, payload))
}

/// A frame as the server sends it.
fn frame_of(first: u8, payload: &[u8]) -> Vec<u8> {
    let head = match payload.len() {
        short @ 0..126 => vec![first, short as u8],
        long => [&[first, 126], (long as u16).to_be_bytes().as_slice()].concat(),
    };
    [&head, payload].concat()
}

fn id_of(text: &str) -> Option<u64> {
    text.split("id=").nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The part of an answer that identifies its request, so that one user's answer cannot pass for another's.
fn echo_of(text: &str) -> String {
    match text.split("for=").nth(1) {
        Some(rest) => {
            let user: String = rest.chars().take_while(char::is_ascii_digit).collect();
            format!("for={user} id={};", id_of(text).unwrap_or(0))
        }
        None => "for=0 id=0;".to_owned(),
    }
}
