//! What a load allocates, counted: not guessed from how its code reads.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use loadlab_load::course::Course;
use loadlab_load::http2::frame::{self, FrameHead, HEAD_LEN, flag, kind};
use loadlab_load::http2::{HeadParts, Heads};
use loadlab_load::io::ConnId;
use loadlab_load::io::epoll::now_ns;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::io::uring::{Size, Uring};
use loadlab_load::journey::capture::Slots;
use loadlab_load::journey::check::{Bound, Checks, Operator, Text};
use loadlab_load::journey::redirect::Site;
use loadlab_load::journey::template::{Escape, Template, Variable};
use loadlab_load::run::{Origin, simulate};
use loadlab_load::script::{Journey, Message, Script};
use loadlab_load::spec::Http2;
use loadlab_load::{Control, IoChoice, LoadEvent, LoadSpec, Model, Until};

use support::http2::over_http2;

/// Counts what each thread takes and gives back.
struct Counting;

thread_local! {
    /// Bytes that this thread holds.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// It is a load thread, as far as this test knows.
    static LOADS: Cell<bool> = const { Cell::new(true) };
}

/// How often load threads have taken memory. One test at a time reads it.
static TAKEN: AtomicU64 = AtomicU64::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn held(more: isize) {
    // A thread that is ending has no such place any more.
    let _ = HELD.try_with(|held| held.set(held.get() + more));
    if more > 0 && LOADS.try_with(Cell::get).unwrap_or(false) {
        TAKEN.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with what it was given; counting touches no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        held(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        held(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        held(size as isize - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MS: u64 = 1_000_000;
const PIECE: usize = 16 * 1024;
const PIECES: usize = 64;
const USERS: u64 = 64;

/// Answers with a body of a MiB in pieces, one each 100 ms.
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

/// A load of one request that is written anew each time.
fn journey() -> LoadSpec {
    let mut target = Template::default();
    target.push_text(b"/", Escape::Raw).unwrap();
    target.push(Variable::User, Escape::Raw);
    let message = Message { method: "GET".into(), target, fields: Template::default(), body: None };
    let journey = Journey {
        course: Course { before: 0, round: 1, after: 0, weights: vec![], rounds: 1 },
        scripts: vec![Script { message: Some(message), ..Script::plain() }],
        feeds: vec![],
        dealings: vec![],
        shared: Slots::new(0),
        sites: vec![Site { authority: "sim".into(), host: "sim".into(), is_secure: false, by_proxy: None }],
        cookies: false,
        own: 0,
        remembered: vec![],
        numbers: vec![],
        sessions: false,
        unix_ns: 0,
    };
    LoadSpec { journey: Some(Box::new(journey)), ..plain() }
}

fn plain() -> LoadSpec {
    LoadSpec::new(Model::Closed { users: USERS }, Until::Repeats(1), vec![support::get()], support::address())
}

/// Bytes that this thread holds when all but the last pieces of each body have come.
fn held_late(spec: &LoadSpec) -> isize {
    let (before, mut held) = (HELD.get(), Vec::new());
    let outcome = simulate(spec, &Control::default(), &mut Sim::new(Large), &mut |event| {
        if let LoadEvent::Progress(_) = event {
            held.push(HELD.get() - before);
        }
    });
    assert_eq!(outcome.unwrap().measured.counts.ok, USERS);
    // The last tenths are told when all is over.
    held[PIECES - 4]
}

#[test]
fn bodies_that_nobody_looks_at_are_not_kept() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    LOADS.set(false);
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
        // The size of a body that is not encoded is counted, not looked at.
        let sized =
            held_late(&over(checked(|c| c.size = vec![Bound { operator: Operator::Greater, value: 9.0 }])));
        assert!(sized < bodies / 2, "{sized} bytes");
        let seen = held_late(&over(checked(|c| c.contains = vec![Text::new(b"xx")])));
        assert!(seen > bodies, "{seen} bytes: it looks where nothing is kept");
    }
}

/// A server that answers each request with two bytes, over HTTP/1 and HTTP/2; its threads end with the process.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        LOADS.set(false);
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || {
                LOADS.set(false);
                serve(socket)
            });
        }
    });
    address
}

fn serve(mut socket: TcpStream) {
    let (mut came, mut buffer, mut out) = (Vec::new(), [0; 4096], Vec::new());
    let mut is_http2 = false;
    socket.set_nodelay(true).expect("a socket option");
    while let Ok(n @ 1..) = socket.read(&mut buffer) {
        came.extend_from_slice(&buffer[..n]);
        out.clear();
        if !is_http2 && came.starts_with(frame::PREFACE) {
            is_http2 = true;
            came.drain(..frame::PREFACE.len());
            frame::write_settings(&mut out, &[]);
        }
        if is_http2 {
            while let Some(head) = FrameHead::read(&came).filter(|h| came.len() >= HEAD_LEN + h.len as usize)
            {
                came.drain(..HEAD_LEN + head.len as usize);
                if head.kind == kind::HEADERS {
                    frame::write(&mut out, kind::HEADERS, flag::END_HEADERS, head.stream, &[0x88]);
                    frame::write(&mut out, kind::DATA, flag::END_STREAM, head.stream, b"ok");
                }
            }
        } else if !came.starts_with(b"PRI") {
            while let Some(end) = came.windows(4).position(|w| w == b"\r\n\r\n") {
                came.drain(..end + 4);
                out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        }
        if socket.write_all(&out).is_err() {
            return;
        }
    }
}

/// How often load threads take memory for so many requests.
fn taken(spec: &LoadSpec, requests: u64) -> u64 {
    let mut spec = spec.clone();
    spec.until = Until::Requests(requests);
    if let Some(journey) = &mut spec.journey {
        journey.course.rounds = u64::MAX;
    }
    let origin = Origin { start_ns: now_ns(), zero_ns: 0, batch: 0, first_id: 0 };
    let before = TAKEN.load(Ordering::Relaxed);
    let outcome = loadlab_load::run(&spec, &Control::default(), origin, &mut |_| {}).expect("it runs");
    assert_eq!(outcome.measured.counts.ok, requests);
    TAKEN.load(Ordering::Relaxed) - before
}

#[test]
fn requests_cost_load_threads_no_memory() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    LOADS.set(false);
    let address = server();
    let http2 = |spec: LoadSpec| {
        let parts = HeadParts { method: "GET", scheme: "http", authority: "sim", path: "/", headers: &[] };
        let heads = vec![Heads::default().add(&parts).expect("a head")];
        LoadSpec { http2: Some(Http2 { heads, written: vec![], streams: 4 }), ..spec }
    };
    let look = |mut spec: LoadSpec| {
        spec.journey.as_mut().expect("a journey").scripts[0].checks.contains = vec![Text::new(b"ok")];
        spec
    };
    let backends = match Uring::new(Size { connections: 8, in_flight: 8, keep_alive: true, sources: false }) {
        Ok(_) => vec![IoChoice::Epoll, IoChoice::Uring],
        Err(_) => vec![IoChoice::Epoll],
    };
    for io in backends {
        for (what, spec) in [
            ("HTTP/1.1", plain()),
            ("HTTP/2", http2(plain())),
            ("a journey", journey()),
            ("a journey with a check of the body", look(journey())),
            ("a journey over HTTP/2", over_http2(journey(), 4, &[vec![]])),
        ] {
            let mut spec = LoadSpec { io, model: Model::Closed { users: 8 }, ..spec };
            spec.hosts = vec![vec![address.into()]];
            let (few, many) = (taken(&spec, 1_000), taken(&spec, 10_000));
            // What is told ten times a second may take memory now and then; nine thousand requests must not, one in ten.
            assert!(many < few + 900, "{what}, {io:?}: {few} times for 1,000 requests, {many} for 10,000");
        }
    }
}
