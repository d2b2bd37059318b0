//! Connections that outlive their load, over real sockets; the server counts them.

use std::sync::Arc;
use std::time::Instant;

use loadlab_load::io::epoll::now_ns;
use loadlab_load::run::Origin;
use loadlab_load::spec::request::RequestParts;
use loadlab_load::{
    Arrivals, ConnectionPool, Control, IoChoice, LoadError, LoadResult, LoadSpec, Model, Until, WhenBehind,
    run,
};

use crate::real::{CLOSE_WAIT, sockets_to};
use crate::server::{Server, Step, TIMEOUT, always, good};
use crate::skip;

/// Requests of a load of a fixed rate: with a connection for each of them, none has to wait or to open another,
/// however late the server is.
const AT_A_RATE: u64 = 12;

/// A load of users with ten requests each, or of a fixed rate, on two threads.
fn spec(server: &Server, model: Model, pool: &Arc<ConnectionPool>, io: IoChoice) -> LoadSpec {
    let parts = RequestParts {
        method: "GET".into(),
        host: server.address.to_string(),
        path: "/".into(),
        keep_alive: true,
        ..RequestParts::default()
    };
    let until = match model {
        Model::Closed { .. } => Until::Repeats(10),
        Model::Open { .. } => Until::Requests(AT_A_RATE),
    };
    let requests = vec![parts.build().expect("a request")];
    LoadSpec {
        threads: 2,
        io,
        pool: Some(pool.clone()),
        ..LoadSpec::new(model, until, requests, server.address)
    }
}

fn users(users: u64) -> Model {
    Model::Closed { users }
}

fn rate(rate_per_s: f64) -> Model {
    Model::Open {
        rate_per_s,
        arrivals: Arrivals::Constant,
        when_behind: WhenBehind::Queue,
        max_in_flight: 100,
    }
}

/// Runs the load; `None` if the backend is not allowed here.
fn loaded(spec: &LoadSpec) -> Option<LoadResult> {
    controlled(spec, &Control::default())
}

/// As [`loaded`], for a load that may be stopped.
fn controlled(spec: &LoadSpec, control: &Control) -> Option<LoadResult> {
    let start_ns = now_ns() + 5_000_000;
    let origin = Origin { start_ns, zero_ns: start_ns, batch: 0, first_id: 0 };
    match run(spec, control, origin, &mut |_| {}) {
        Ok(outcome) => Some(outcome),
        Err(LoadError::Io { error, .. }) => {
            skip::skip(&format!("this backend is not allowed here: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Connections attempted and reused, requests failed, and the peak of open connections.
fn reported(outcome: &LoadResult) -> (u64, u64, u64, u64) {
    let (c, counts) = (outcome.measured.connections, &outcome.measured.counts);
    (c.attempted, c.reused, counts.failed(), c.peak)
}

fn a_load_reuses_the_connections_of_the_last_one(io: IoChoice) {
    let server = Server::start(good);
    let pool = Arc::new(ConnectionPool::default());
    for (model, expected) in [
        (users(8), (8, 0, 0, 8)),
        (users(8), (0, 8, 0, 8)),
        (users(4), (0, 4, 0, 4)),
        // The previous load had no use for the other four, and closed them.
        (users(12), (8, 4, 0, 12)),
        (rate(100.0), (0, 12, 0, 12)),
    ] {
        let Some(outcome) = loaded(&spec(&server, model, &pool, io)) else { return };
        assert_eq!(reported(&outcome), expected);
    }
    assert_eq!(server.counts().connections, 16);
    drop(pool);
    let counts = server.settled();
    assert_eq!((counts.requests, counts.resets), (10 * (8 + 8 + 4 + 12) + AT_A_RATE, 0));
}

#[test]
fn connections_are_reused_with_io_uring() {
    a_load_reuses_the_connections_of_the_last_one(IoChoice::Uring);
}

#[test]
fn connections_are_reused_with_epoll() {
    a_load_reuses_the_connections_of_the_last_one(IoChoice::Epoll);
}

#[test]
fn surplus_connections_are_closed_before_the_load() {
    let server = Server::start(good);
    let pool = Arc::new(ConnectionPool::default());
    let load = |n| reported(&loaded(&spec(&server, users(n), &pool, IoChoice::Auto)).expect("some backend"));
    assert_eq!((load(9), pool.len()), ((9, 0, 0, 9), 9));
    pool.trim(4);
    assert_eq!(pool.len(), 4);
    assert_eq!((load(4), pool.len()), ((0, 4, 0, 4), 4));
    pool.clear();
    assert!(pool.is_empty());
    assert_eq!(server.settled_after(9).connections, 9);
}

#[test]
fn connections_in_use_at_the_end_are_not_pooled() {
    let server = Server::start(always(vec![Step::Hang]));
    let pool = Arc::new(ConnectionPool::default());
    for round in 1..=2 {
        let cut = LoadSpec { grace_ns: 50_000_000, ..spec(&server, users(4), &pool, IoChoice::Auto) };
        let control = Control::default();
        let outcome = std::thread::scope(|scope| {
            // It ends once all are under way, however long that takes.
            scope.spawn(|| {
                server.after(4 * round);
                control.stop();
            });
            controlled(&cut, &control).expect("some backend is allowed")
        });
        assert_eq!((reported(&outcome), outcome.measured.counts.in_flight), ((4, 0, 0, 4), 4));
    }
}

#[test]
fn connections_that_the_server_closed_are_opened_again() {
    let mut server = Server::start(good);
    let pool = Arc::new(ConnectionPool::default());
    let first = spec(&server, users(6), &pool, IoChoice::Auto);
    assert_eq!(reported(&loaded(&first).expect("some backend is allowed")), (6, 0, 0, 6));
    server.die();
    let address = server.address;
    drop(server);
    // The ends of the connections arrive a moment later.
    let until = Instant::now() + TIMEOUT;
    while sockets_to(address, CLOSE_WAIT) < 6 {
        assert!(Instant::now() < until, "the connections were not closed");
        std::thread::yield_now();
    }
    let server = Server::at(&address.to_string(), good);
    assert_eq!(reported(&loaded(&first).expect("some backend is allowed")), (6, 0, 0, 6));
    drop(pool);
    drop(first);
    assert_eq!(server.settled_after(6).requests, 60);
}
