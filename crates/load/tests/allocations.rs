//! What a load allocates, counted: not guessed from how its code reads.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use loadlab_load::course::Course;
use loadlab_load::http2::frame::{self, flag, kind};
use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::journey::capture::Slots;
use loadlab_load::journey::check::{Bound, Checks, Operator, Text};
use loadlab_load::journey::redirect::Site;
use loadlab_load::journey::template::{Escape, Template, Variable};
use loadlab_load::run::simulate;
use loadlab_load::script::{Journey, Message, Script};
use loadlab_load::{Control, LoadEvent, LoadSpec, Model, Until};

use support::http2::over_http2;

/// Counts what each thread takes and gives back.
struct Counting;

thread_local! {
    /// Bytes that this thread holds.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn held(more: isize) {
    // A thread that is ending has no such place any more.
    let _ = HELD.try_with(|held| held.set(held.get() + more));
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
