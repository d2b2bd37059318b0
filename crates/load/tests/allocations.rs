//! What a load allocates, measured rather than inferred from its code.

#![expect(unsafe_code, reason = "an allocator is an unsafe trait; this one counts around another")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use loadlab_load::io::ConnId;
use loadlab_load::io::epoll::now_ns;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::io::uring::{Size, Uring};
use loadlab_load::journey::capture::CaptureSlots;
use loadlab_load::journey::check::{Checks, Text};
use loadlab_load::journey::order::StepOrder;
use loadlab_load::journey::redirect::Site;
use loadlab_load::journey::script::{Journey, Message, Script};
use loadlab_load::journey::template::Template;
use loadlab_load::protocol::http2::frame::{self, FrameHead, HEAD_LEN, flag, kind};
use loadlab_load::protocol::http2::{HeadParts, Heads};
use loadlab_load::run::{Origin, simulate};
use loadlab_load::spec::Http2;
use loadlab_load::{Control, IoChoice, LoadEvent, LoadSpec, Model, Until};
use loadlab_record::spec::bound::{Bound, Operator};
use loadlab_record::spec::escape::Escape;
use loadlab_record::spec::schedule::Think;
use loadlab_record::spec::variable::Variable;
use loadlab_record::sync::lock;
use rustls::{ServerConfig, ServerConnection};

use support::conversations::{accept_of, ask, conversation, listen, open, pause, say};
use support::http2::over_http2;

/// Counts what each thread allocates and frees.
struct Counting;

thread_local! {
    /// Bytes this thread holds.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// Whether this test treats the thread as a load thread; `None` if that depends on its name.
    static LOADS: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Number of allocations by load threads. One test at a time reads it.
static TAKEN: AtomicU64 = AtomicU64::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn held(more: isize) {
    // A thread that is ending no longer has this variable.
    let _ = HELD.try_with(|held| held.set(held.get() + more));
    if more > 0 && LOADS.try_with(is_load_thread).unwrap_or(false) {
        TAKEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// The threads that run tests allocate as well, whenever another test begins or ends: a load thread is known by its
/// name, once it has it.
fn is_load_thread(loads: &Cell<Option<bool>>) -> bool {
    if loads.get().is_none() {
        let mut name = [0u8; 16];
        // SAFETY: PR_GET_NAME writes at most 16 bytes to the given address.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        loads.set(name.starts_with(b"load-").then_some(true));
    }
    loads.get().unwrap_or(false)
}

// SAFETY: every call is passed on to the system allocator unchanged; counting touches none of the caller's memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        held(layout.size() as isize);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        held(-(layout.size() as isize));
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        held(size as isize - layout.size() as isize);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;
const PIECE: usize = 16 * 1024;
const PIECES: usize = 64;
const USERS: u64 = 64;

/// Answers with a 1 MiB body in pieces, one every 100 ms.
struct Large;

impl Server for Large {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        if bytes.starts_with(b"GET") {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", PIECES * PIECE);
            return replies(at_ns, head.into_bytes(), |_| vec![b'x'; PIECE]);
        }
        if !bytes.starts_with(frame::PREFACE) {
            return Vec::new();
        }
        let mut head = Vec::new();
        frame::write_settings(&mut head, &[]);
        // `:status: 200` is the eighth field of the static table.
        frame::write(&mut head, kind::HEADERS, flag::END_HEADERS, 1, &[0x88]);
        replies(at_ns, head, |number| {
            let end = if number == PIECES { flag::END_STREAM } else { 0 };
            let mut data = Vec::new();
            frame::write(&mut data, kind::DATA, end, 1, &[b'x'; PIECE]);
            data
        })
    }
}

fn replies(at_ns: u64, head: Vec<u8>, piece: impl Fn(usize) -> Vec<u8>) -> Vec<(u64, Reply)> {
    let all = std::iter::once(head).chain((1..=PIECES).map(piece)).zip(0..);
    all.map(|(bytes, number)| (at_ns + number * 100 * MS, Reply::Bytes(bytes))).collect()
}

/// A load of one request that is rendered anew each time.
fn journey() -> LoadSpec {
    let mut target = Template::default();
    target.push_text(b"/", Escape::Raw).unwrap();
    target.push(Variable::User, Escape::Raw);
    let message = Message { method: "GET".into(), target, fields: Template::default(), body: None };
    let journey = Journey {
        step_order: StepOrder { before: 0, round: 1, after: 0, weights: vec![], rounds: 1 },
        scripts: vec![Script { message: Some(message), ..Script::plain() }],
        feeds: vec![],
        dealings: vec![],
        shared: CaptureSlots::new(0),
        sites: vec![Site { authority: "sim".into(), host: "sim".into(), is_secure: false, by_proxy: None }],
        cookies: false,
        own: 0,
        remembered: vec![],
        numbers: vec![],
        sessions: false,
        unix_ns: Some(0),
    };
    LoadSpec { journey: Some(Box::new(journey)), ..plain() }
}

fn plain() -> LoadSpec {
    LoadSpec::new(Model::Closed { users: USERS }, Until::Repeats(1), vec![support::get()], support::address())
}

/// Bytes this thread holds once all but the last pieces of each body have arrived.
fn held_late(spec: &LoadSpec) -> isize {
    let (before, mut held) = (HELD.get(), Vec::new());
    let outcome = simulate(spec, &Control::default(), &mut Sim::new(Large), &mut |event| {
        if let LoadEvent::Progress(_) = event {
            held.push(HELD.get() - before);
        }
    });
    assert_eq!(outcome.unwrap().measured.counts.ok, USERS);
    // The last tenths of a second are reported only once everything is over.
    held[PIECES - 4]
}

#[test]
fn bodies_that_are_not_checked_are_not_kept() {
    let _alone = lock(&ONE_AT_A_TIME);
    LOADS.set(Some(false));
    let checked = |check: fn(&mut Checks)| {
        let mut spec = journey();
        check(&mut spec.journey.as_mut().unwrap().scripts[0].checks);
        spec
    };
    let bodies = (USERS as usize * PIECES * PIECE) as isize;
    let over = |spec| over_http2(spec, 1, &[vec![]]);
    for over in [(|spec| spec) as fn(LoadSpec) -> LoadSpec, over] {
        let unseen = held_late(&over(journey()));
        assert!(unseen < bodies / 2, "{unseen} bytes");
        // The size of an unencoded body is counted without looking at the body.
        let sized =
            held_late(&over(checked(|c| c.size = vec![Bound { operator: Operator::Greater, value: 9.0 }])));
        assert!(sized < bodies / 2, "{sized} bytes");
        let seen = held_late(&over(checked(|c| c.contains = vec![Text::new(b"xx")])));
        assert!(seen > bodies, "{seen} bytes: it looks where nothing is kept");
    }
}

/// Answers after 1 ms, and records the most this thread held at any request.
struct Watching {
    most: isize,
}

impl Server for Watching {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        self.most = self.most.max(HELD.get());
        vec![(at_ns + MS, Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()))]
    }
}

#[test]
fn uncollected_counts_take_bounded_memory() {
    let _alone = lock(&ONE_AT_A_TIME);
    LOADS.set(Some(false));
    let held_after = |seconds: u64| {
        let mut spec = plain();
        (spec.model, spec.until) = (Model::Closed { users: 2 }, Until::Elapsed((seconds + 2) * S));
        spec.think = Think::Constant(100 * MS);
        spec.tags = (0..5).map(|tag| format!("tag{tag}")).collect();
        spec.requests[0].tags = (0..5).collect();
        let before = HELD.get();
        let mut sim = Sim::new(Watching { most: 0 }).uncollected(S, (seconds + 1) * S);
        simulate(&spec, &Control::default(), &mut sim, &mut |_| {}).expect("it runs");
        sim.into_server().most - before
    };
    let (short, long) = (held_after(5), held_after(50));
    assert!(long < short + short / 4, "{short} bytes after 5 s, {long} after 50 s");
}

#[test]
fn ten_times_the_requests_take_no_more_memory() {
    let _alone = lock(&ONE_AT_A_TIME);
    LOADS.set(Some(false));
    let held_with = |think_ns: u64| {
        let mut spec = plain();
        (spec.model, spec.until) = (Model::Closed { users: 20 }, Until::Elapsed(20 * S));
        spec.think = Think::Constant(think_ns);
        spec.tags = (0..5).map(|tag| format!("tag{tag}")).collect();
        spec.requests[0].tags = (0..5).collect();
        let before = HELD.get();
        let mut sim = Sim::new(Watching { most: 0 });
        let outcome = simulate(&spec, &Control::default(), &mut sim, &mut |_| {}).expect("it runs");
        (outcome.measured.counts.ok, sim.into_server().most - before)
    };
    let ((few, less), (many, more)) = (held_with(100 * MS), held_with(9 * MS));
    assert!(many > 9 * few, "{few} and {many} requests");
    assert!(more < less + less / 10, "{less} bytes with {few} requests, {more} with {many}");
}

/// Answers after a second, and records the most this thread held at any request.
struct Slow(Watching);

impl Server for Slow {
    fn connect(&mut self, at_ns: u64, conn: ConnId) -> Result<u64, (u64, i32)> {
        self.0.connect(at_ns, conn)
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        self.0.request(at_ns + S, conn, bytes)
    }
}

#[test]
fn very_many_requests_in_flight_are_not_kept() {
    let _alone = lock(&ONE_AT_A_TIME);
    LOADS.set(Some(false));
    const BODY: usize = 2_000;
    let held_by = |users: u64| {
        let mut spec = LoadSpec { model: Model::Closed { users }, ..journey() };
        let message = spec.journey.as_mut().unwrap().scripts[0].message.as_mut().unwrap();
        let body = message.body.insert(Template::default());
        body.push_text(&[b'x'; BODY], Escape::Raw).unwrap();
        let before = HELD.get();
        let mut sim = Sim::new(Slow(Watching { most: 0 }));
        let outcome = simulate(&spec, &Control::default(), &mut sim, &mut |_| {}).expect("it runs");
        assert_eq!(outcome.measured.counts.ok, users);
        sim.into_server().0.most - before
    };
    let each = (held_by(30_000) - held_by(10_000)) as usize / 20_000;
    assert!(each < BODY / 2, "{each} bytes for each user, and a request has {BODY}");
}

/// The body every peer sends.
const BODY: &[u8] = &[b'o'; 4_000];

/// The server side of one connection: it answers each request with [`BODY`] over HTTP/1.1 and HTTP/2, and echoes each
/// WebSocket message, plain or under TLS.
struct Peer {
    tls: Option<ServerConnection>,
    came: Vec<u8>,
    speaks: Speaks,
}

#[derive(PartialEq)]
enum Speaks {
    Http1,
    Http2,
    WebSocket,
}

impl Peer {
    fn new(tls: Option<&Arc<ServerConfig>>) -> Peer {
        let tls = tls.map(|config| ServerConnection::new(config.clone()).expect("a connection under TLS"));
        Peer { tls, came: Vec::new(), speaks: Speaks::Http1 }
    }

    /// The peer's reply to these bytes from the wire.
    fn answer(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let Some(mut tls) = self.tls.take() else { return self.answer_plain(bytes) };
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).expect("bytes in memory");
            tls.process_new_packets().expect("TLS");
            // An error is expected: nothing more has arrived.
            let _ = tls.reader().read_to_end(&mut plain);
        }
        tls.writer().write_all(&self.answer_plain(&plain)).expect("room");
        while tls.wants_write() {
            tls.write_tls(&mut out).expect("bytes in memory");
        }
        self.tls = Some(tls);
        out
    }

    fn answer_plain(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (came, mut out) = (&mut self.came, Vec::new());
        came.extend_from_slice(bytes);
        if self.speaks == Speaks::Http1 && came.starts_with(frame::PREFACE) {
            self.speaks = Speaks::Http2;
            came.drain(..frame::PREFACE.len());
            frame::write_settings(&mut out, &[]);
        }
        match self.speaks {
            Speaks::Http1 if came.starts_with(b"PRI") => {}
            Speaks::Http1 => {
                while let Some(end) = came.windows(4).position(|w| w == b"\r\n\r\n") {
                    let head = String::from_utf8(came.drain(..end + 4).collect()).expect("ASCII");
                    if head.contains("Upgrade: websocket") {
                        let accept = accept_of(&head);
                        let start = "HTTP/1.1 101 -\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
                        out.extend(format!("{start}Sec-WebSocket-Accept: {accept}\r\n\r\n").bytes());
                        self.speaks = Speaks::WebSocket;
                    } else {
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", BODY.len());
                        out.extend([head.as_bytes(), BODY].concat());
                    }
                }
            }
            Speaks::Http2 => {
                let whole = |came: &[u8]| {
                    FrameHead::read(came).filter(|head| came.len() >= HEAD_LEN + head.len as usize)
                };
                while let Some(head) = whole(came) {
                    came.drain(..HEAD_LEN + head.len as usize);
                    if head.kind == kind::HEADERS {
                        frame::write(&mut out, kind::HEADERS, flag::END_HEADERS, head.stream, &[0x88]);
                        frame::write(&mut out, kind::DATA, flag::END_STREAM, head.stream, BODY);
                    }
                }
            }
            Speaks::WebSocket => {
                // A short client frame: two header bytes, a four-byte mask, the payload.
                while came.len() >= 6 && came.len() >= 6 + usize::from(came[1] & 0x7f) {
                    let frame: Vec<u8> = came.drain(..6 + usize::from(came[1] & 0x7f)).collect();
                    out.extend([frame[0], frame[1] & 0x7f]);
                    out.extend(frame[6..].iter().zip(frame[2..6].iter().cycle()).map(|(b, mask)| b ^ mask));
                }
            }
        }
        out
    }
}

/// Peers on real sockets; their threads end with the process.
fn server(tls: Option<Arc<ServerConfig>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        LOADS.set(Some(false));
        for socket in listener.incoming().flatten() {
            let peer = Peer::new(tls.as_ref());
            std::thread::spawn(move || {
                LOADS.set(Some(false));
                serve(socket, peer)
            });
        }
    });
    address
}

fn serve(mut socket: TcpStream, mut peer: Peer) {
    let mut buffer = [0; 4096];
    socket.set_nodelay(true).expect("a socket option");
    while let Ok(n @ 1..) = socket.read(&mut buffer) {
        if socket.write_all(&peer.answer(&buffer[..n])).is_err() {
            return;
        }
    }
}

/// The same peers in simulated time. Their own allocations are not counted.
struct Peers {
    tls: Option<Arc<ServerConfig>>,
    /// Number of pieces each reply is split into.
    pieces: usize,
    /// Each peer, with the time by which everything it has sent so far has arrived.
    peers: BTreeMap<ConnId, (Peer, u64)>,
    /// TLS records so far, in both directions.
    records: u64,
}

impl Server for Peers {
    fn connect(&mut self, at_ns: u64, conn: ConnId) -> Result<u64, (u64, i32)> {
        LOADS.set(Some(false));
        self.peers.insert(conn, (Peer::new(self.tls.as_ref()), 0));
        LOADS.set(Some(true));
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        LOADS.set(Some(false));
        let (peer, all_came_ns) = self.peers.get_mut(&conn).expect("a connection");
        let answer = peer.answer(bytes);
        if self.tls.is_some() {
            self.records += records(bytes) + records(&answer);
        }
        *all_came_ns = at_ns.max(*all_came_ns);
        let mut come = |piece: &[u8]| {
            *all_came_ns += US;
            (*all_came_ns, Reply::Bytes(piece.to_vec()))
        };
        let replies = answer.chunks(answer.len().div_ceil(self.pieces).max(1)).map(&mut come).collect();
        LOADS.set(Some(true));
        replies
    }
}

/// The number of TLS records in these bytes.
fn records(mut wire: &[u8]) -> u64 {
    let mut count = 0;
    while let [_, _, _, a, b, rest @ ..] = wire {
        wire = &rest[usize::from(u16::from_be_bytes([*a, *b]))..];
        count += 1;
    }
    count
}

/// Where a load runs.
#[derive(Clone, Copy, Debug)]
enum On {
    Sockets(IoChoice),
    /// In simulated time, with each server reply split into this many pieces.
    Simulated(usize),
}

/// The number of allocations by load threads for this many requests, and the number of TLS records of a simulated load.
fn taken(spec: &LoadSpec, requests: u64, on: On, tls: Option<&Arc<ServerConfig>>) -> (u64, u64) {
    let mut spec = spec.clone();
    spec.until = Until::Requests(requests);
    if let Some(journey) = &mut spec.journey {
        journey.step_order.rounds = u64::MAX;
    }
    let (before, mut records) = (TAKEN.load(Ordering::Relaxed), 0);
    let outcome = match on {
        On::Sockets(io) => {
            spec.io = io;
            let origin = Origin { start_ns: now_ns(), zero_ns: 0, batch: 0, first_id: 0 };
            loadlab_load::run(&spec, &Control::default(), origin, &mut |_| {})
        }
        On::Simulated(pieces) => {
            LOADS.set(Some(true));
            let mut sim = Sim::new(Peers { tls: tls.cloned(), pieces, peers: BTreeMap::new(), records: 0 });
            let outcome = simulate(&spec, &Control::default(), &mut sim, &mut |_| {});
            LOADS.set(Some(false));
            records = sim.into_server().records;
            outcome
        }
    };
    assert_eq!(outcome.expect("it runs").measured.counts.ok, requests);
    let taken = TAKEN.load(Ordering::Relaxed) - before;
    assert!(taken > 0, "no allocation was counted, and a load begins with some");
    (taken, records)
}

impl On {
    /// Two request counts to compare: allocations at start-up are the same for both.
    fn requests(self) -> [u64; 2] {
        match self {
            On::Simulated(_) => [200, 1_200],
            On::Sockets(_) => [500, 2_500],
        }
    }

    /// How many allocations the additional requests of the larger count may cost in total.
    fn now_and_then(self) -> u64 {
        match self {
            // Buffers that grow once.
            On::Simulated(_) => 20,
            // The ten reports a second allocate a little for as long as the load runs, but less than once per two
            // requests.
            On::Sockets(_) => 1_000,
        }
    }
}

/// The backends available here.
fn everywhere() -> Vec<On> {
    let mut on = vec![On::Simulated(1), On::Simulated(3), On::Sockets(IoChoice::Epoll)];
    let size = Size { connections: 8, in_flight: 8, keep_alive: true, sources: false };
    match Uring::new(size) {
        Ok(_) => on.push(On::Sockets(IoChoice::Uring)),
        // The kernel may forbid io_uring, which `real.rs` reports; any other error is a failure.
        Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)), "{error}"),
    }
    on
}

/// Loads of every kind.
fn loads() -> Vec<(&'static str, LoadSpec)> {
    let http2 = |spec: LoadSpec| {
        let parts = HeadParts { method: "GET", scheme: "http", authority: "sim", path: "/", headers: &[] };
        let heads = vec![Heads::default().add(&parts).expect("a head")];
        LoadSpec { http2: Some(Http2 { heads, written: vec![], streams: 4 }), ..spec }
    };
    let look = |mut spec: LoadSpec| {
        spec.journey.as_mut().expect("a journey").scripts[0].checks.contains = vec![Text::new(b"oo")];
        spec
    };
    // Each user opens one WebSocket and sends everything else on it.
    let conversation_of = |parts: &[Script]| {
        let mut spec = journey();
        let scripts = conversation([vec![open()], vec![parts; 2_600 / parts.len()].concat()].concat());
        spec.requests = vec![support::get(); scripts.len()];
        let journey = spec.journey.as_mut().expect("a journey");
        journey.step_order.round = scripts.len() as u32;
        journey.scripts = scripts;
        spec
    };
    let loads = [
        ("HTTP/1.1", plain()),
        ("HTTP/2", http2(plain())),
        ("a journey", journey()),
        ("a journey with a check of the body", look(journey())),
        ("a journey over HTTP/2", over_http2(journey(), 4, &[vec![]])),
        ("a WebSocket on which something is said", conversation_of(&[say("{n} is said")])),
        ("a WebSocket on which something is asked", conversation_of(&[ask("{n} is said", "is said")])),
        (
            "a WebSocket on which what comes early is kept",
            conversation_of(&[pause(say("it"), 10 * US), listen("it")]),
        ),
    ];
    loads
        .into_iter()
        .map(|(what, spec)| (what, LoadSpec { model: Model::Closed { users: 8 }, ..spec }))
        .collect()
}

#[test]
fn requests_cost_load_threads_no_memory() {
    let _alone = lock(&ONE_AT_A_TIME);
    LOADS.set(Some(false));
    let address = server(None);
    for on in everywhere() {
        for (what, mut spec) in loads() {
            spec.hosts = vec![vec![address.into()]];
            let [(few, _), (many, _)] = on.requests().map(|requests| taken(&spec, requests, on, None));
            let [from, to] = on.requests();
            let most = few + on.now_and_then();
            assert!(many <= most, "{what}, {on:?}: {few} times for {from} requests, {many} for {to}");
        }
    }
}

/// rustls allocates once per record, in both directions: for what it encrypts, and for what it decrypts. That cannot be
/// avoided. The rest is our own code, and allocates nothing.
#[test]
fn requests_under_tls_cost_what_rustls_takes() {
    let _alone = lock(&ONE_AT_A_TIME);
    LOADS.set(Some(false));
    let config = support::tls::config(&["h2", "http/1.1"]);
    let address = server(Some(config.clone()));
    for on in everywhere() {
        for (what, mut spec) in loads() {
            let alpn = if spec.http2.is_some() { "h2" } else { "http/1.1" };
            spec.tls = Some(Box::new(support::tls::spec(alpn)));
            spec.hosts = vec![vec![address.into()]];
            let [from, to] = on.requests();
            let [few, many] = [from, to].map(|requests| taken(&spec, requests, on, Some(&config)));
            // One record each way per request, or fewer if several are coalesced.
            let records = match on {
                On::Simulated(_) => many.1 - few.1,
                On::Sockets(_) => 2 * (to - from),
            };
            let (few, many, most) = (few.0, many.0, few.0 + records + on.now_and_then());
            assert!(many <= most, "{what}, {on:?}: {few} times for {from} requests, {many} for {to}");
        }
    }
}
