//! Connections in simulated time: when they are opened and abandoned, and which times are attributed to them.

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::journey::capture::CaptureSlots;
use loadlab_load::journey::order::StepOrder;
use loadlab_load::journey::redirect::Site;
use loadlab_load::journey::script::{Journey, Message, Script};
use loadlab_load::journey::template::Template;
use loadlab_load::protocol::http2::frame::{self, FrameHead, HEAD_LEN, PREFACE, flag, kind};
use loadlab_load::protocol::http2::{HeadParts, Heads};
use loadlab_load::run::simulate;
use loadlab_load::spec::{HeldConnections, Http2, Proxy};
use loadlab_load::{Control, LoadEvent, LoadResult, LoadSpec, Model, Until};
use loadlab_record::Failure;
use loadlab_record::spec::escape::Escape;
use loadlab_record::spec::schedule::Think;
use loadlab_record::spec::variable::Variable;

use crate::support;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const NEVER: u64 = u64::MAX / 2;

fn spec(model: Model, until: Until) -> LoadSpec {
    LoadSpec::new(model, until, vec![support::get()], support::address())
}

/// `spec` over HTTP/2, with this many users per connection.
fn over_http2(spec: LoadSpec, streams: u32) -> LoadSpec {
    let parts = HeadParts { method: "GET", scheme: "http", authority: "sim", path: "/", headers: &[] };
    let heads = vec![Heads::default().add(&parts).unwrap()];
    LoadSpec { http2: Some(Http2 { heads, written: vec![], streams }), ..spec }
}

/// Answers at once, over HTTP/1.1 and HTTP/2.
#[derive(Default)]
struct Plain {
    /// How long a connection takes to open.
    connect_ns: u64,
    /// Connections requested before this time never open or, with `accepts`, never get an answer.
    dead_until_ns: u64,
    /// The connections of `dead_until_ns` do open, but nothing sent on them is answered.
    accepts: bool,
    /// When connections were requested.
    connects: Vec<u64>,
    closed: u64,
    requests: u64,
    /// Every other connect is refused, the first one included.
    refuses: bool,
    /// Sends GOAWAY with every such response of HTTP/2; 0: never.
    goes_away_after: u64,
    /// Never answers the first request over HTTP/2.
    forgets_first: bool,
    /// When each connection was requested.
    since: std::collections::BTreeMap<ConnId, u64>,
}

impl Server for Plain {
    fn connect(&mut self, at_ns: u64, conn: ConnId) -> Result<u64, (u64, i32)> {
        self.connects.push(at_ns);
        self.since.insert(conn, at_ns);
        if self.refuses && self.connects.len() % 2 == 1 {
            return Err((at_ns, libc::ECONNREFUSED));
        }
        let is_dead = at_ns < self.dead_until_ns && !self.accepts;
        Ok(if is_dead { NEVER } else { at_ns + self.connect_ns })
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        if self.since[&conn] < self.dead_until_ns {
            return vec![];
        }
        let mut answer = Vec::new();
        if bytes.starts_with(b"GET") {
            self.requests += 1;
            answer.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        } else {
            let mut rest = bytes;
            if let Some(after) = rest.strip_prefix(PREFACE) {
                frame::write_settings(&mut answer, &[]);
                rest = after;
            }
            while let Some(head) = FrameHead::read(rest) {
                rest = &rest[HEAD_LEN + head.len as usize..];
                if head.kind == kind::HEADERS {
                    self.requests += 1;
                    if self.forgets_first && self.requests == 1 {
                        continue;
                    }
                    let flags = flag::END_HEADERS | flag::END_STREAM;
                    // `:status: 200`
                    frame::write(&mut answer, kind::HEADERS, flags, head.stream, &[0x88]);
                    if self.goes_away_after > 0 && self.requests.is_multiple_of(self.goes_away_after) {
                        let goodbye = [head.stream.to_be_bytes(), [0; 4]].concat();
                        frame::write(&mut answer, kind::GOAWAY, 0, 0, &goodbye);
                    }
                }
            }
        }
        if answer.is_empty() { vec![] } else { vec![(at_ns + MS, Reply::Bytes(answer))] }
    }

    fn closed(&mut self, _: u64, _: ConnId) {
        self.closed += 1;
    }
}

fn go<S: Server>(spec: &LoadSpec, server: S) -> (LoadResult, S) {
    let mut sim = Sim::new(server);
    let outcome = simulate(spec, &Control::default(), &mut sim, &mut |_| {}).unwrap();
    outcome.measured.counts.balance().unwrap();
    (outcome, sim.into_server())
}

/// How many connections send everything at once, whether or not earlier sends are acknowledged, and how many there are.
fn without_delay(load: &LoadSpec, server: impl Server) -> (u64, u64) {
    let mut sim = Sim::new(server);
    simulate(load, &Control::default(), &mut sim, &mut |_| {}).unwrap();
    (sim.books().without_delay, sim.books().connects)
}

#[test]
fn where_one_send_may_follow_another_before_a_response_none_is_held_back() {
    let users = || spec(Model::Closed { users: 4 }, Until::Requests(20));
    assert_eq!(without_delay(&users(), Plain::default()), (0, 4));
    assert_eq!(without_delay(&over_http2(users(), 2), Plain::default()), (2, 2));
    // The first request follows the end of the handshake.
    let mut secured = users();
    secured.tls = Some(Box::new(support::tls::spec("http/1.1")));
    let server = support::tls::Under::new(Plain::default(), support::tls::config(&["http/1.1"]), MS);
    assert_eq!(without_delay(&secured, server), (4, 4));
}

#[test]
fn shared_connections_that_never_open_are_replaced() {
    let users = || {
        let mut load = over_http2(spec(Model::Closed { users: 6 }, Until::Elapsed(9 * S + 1)), 3);
        load.timeout_ns = S;
        load
    };
    let dead = |until, accepts| Plain { dead_until_ns: until, accepts, ..Plain::default() };
    // Two connections are abandoned each second, until the server is back.
    let (outcome, server) = go(&users(), dead(4 * S + 1, false));
    assert_eq!(outcome.measured.counts.failures.get(Failure::Timeout), 5 * 6);
    assert!(outcome.measured.counts.ok > 0);
    assert_eq!(server.connects, [0, 0, S, S, 2 * S, 2 * S, 3 * S, 3 * S, 4 * S, 4 * S, 5 * S, 5 * S]);
    assert_eq!(server.closed, 12);
    // The same when the tunnel or TLS is what never completes.
    let mut tunnelled = users();
    tunnelled.proxy =
        Some(Box::new(Proxy { connects: vec![Some((*b"CONNECT sim:80 HTTP/1.1\r\n\r\n").into())] }));
    let mut secured = users();
    secured.tls = Some(Box::new(support::tls::spec("h2")));
    for load in [tunnelled, secured] {
        let (outcome, server) = go(&load, dead(NEVER, true));
        assert_eq!((outcome.measured.counts.ok, server.connects.len()), (0, 20), "{:?}", server.connects);
    }
    // A request that has just begun to wait gets the full timeout: no connection younger than the timeout is closed.
    let mut ramped = users();
    ramped.ramp_ns = S;
    let (outcome, server) = go(&ramped, Plain { connect_ns: 900 * MS, ..Plain::default() });
    assert_eq!((outcome.measured.counts.failed(), server.connects.len()), (0, 2));
}

/// A host of two addresses, of which one refuses: each time a shared connection is replaced, both are tried.
#[test]
fn a_host_that_was_reached_has_all_its_addresses_again() {
    let mut load = over_http2(spec(Model::Closed { users: 1 }, Until::Requests(6_000)), 1);
    load.hosts[0].push(support::address().into());
    // Each connection lasts for longer than an address that refused is left out.
    let (outcome, server) = go(&load, Plain { refuses: true, goes_away_after: 1_500, ..Plain::default() });
    let counts = &outcome.measured.counts;
    assert_eq!((counts.ok, counts.failed(), server.connects.len()), (6_000, 0, 8));
}

/// The server says goodbye but leaves one of two requests unanswered, and the connection open.
#[test]
fn a_connection_that_the_server_leaves_is_replaced_when_its_last_request_times_out() {
    let mut load = over_http2(spec(Model::Closed { users: 2 }, Until::Requests(4)), 2);
    load.timeout_ns = S;
    load.think = Think::Constant(100 * MS);
    let (outcome, server) = go(&load, Plain { forgets_first: true, goes_away_after: 2, ..Plain::default() });
    let counts = &outcome.measured.counts;
    // The other user's next request waits until then, and both go on.
    assert_eq!((counts.ok, counts.failures.get(Failure::Timeout)), (3, 1));
    assert_eq!((server.connects, server.closed), (vec![0, S], 2));
}

/// The other user waits for the next connection, which goes to the host's other address.
#[test]
fn a_request_that_times_out_names_the_address_that_was_replaced() {
    let mut left = over_http2(spec(Model::Closed { users: 2 }, Until::Requests(4)), 2);
    left.hosts[0].push("127.0.0.2:80".parse().unwrap());
    left.timeout_ns = S;
    left.think = Think::Constant(100 * MS);
    // The second user begins half a second later, so its request has not timed out.
    let stuck = LoadSpec { ramp_ns: S, ..left.clone() };
    let leaves = Plain { forgets_first: true, goes_away_after: 2, ..Plain::default() };
    let never_opens = Plain { dead_until_ns: 1, ..Plain::default() };
    for (load, server) in [(left, leaves), (stuck, never_opens)] {
        let mut failed = Vec::new();
        let mut sim = Sim::new(server);
        simulate(&load, &Control::default(), &mut sim, &mut |event| {
            if let LoadEvent::Example(example) = event {
                failed.push((example.outcome, example.address));
            }
        })
        .unwrap();
        assert_eq!(failed, [("timeout".to_owned(), "127.0.0.1:80".to_owned())]);
        assert_eq!(sim.into_server().connects, [0, S]);
    }
}

#[test]
fn connections_that_are_made_before_the_window_are_not_in_it() {
    for streams in [1, 4] {
        let mut load = over_http2(spec(Model::Closed { users: 4 }, Until::Elapsed(4 * S)), streams);
        load.warmup_ns = S;
        let server = || Plain { connect_ns: 30 * MS, ..Plain::default() };
        let (outcome, _) = go(&load, server());
        let measured = &outcome.measured;
        assert_eq!(measured.connections.opened, 4 / u64::from(streams));
        assert_eq!(measured.series.connect.count(), 0, "they were made in the warm-up");
        load.warmup_ns = 0;
        let (outcome, _) = go(&load, server());
        assert_eq!(outcome.measured.series.connect.count(), 4 / u64::from(streams));
        assert_eq!(outcome.measured.series.connect.min_ns().unwrap() / MS, 30);
    }
}

#[test]
fn handshakes_of_before_the_window_are_not_in_it() {
    let config = support::tls::config(&["h2", "http/1.1"]);
    // With streams, users share connections.
    for streams in [None, Some(1), Some(4)] {
        let plain = spec(Model::Closed { users: 4 }, Until::Elapsed(4 * S));
        let mut load = streams.map_or(plain.clone(), |streams| over_http2(plain, streams));
        load.tls = Some(Box::new(support::tls::spec(if streams.is_some() { "h2" } else { "http/1.1" })));
        let mut check = |warmup_ns: u64, in_window: bool| {
            load.warmup_ns = warmup_ns;
            let server = Plain { connect_ns: 30 * MS, ..Plain::default() };
            let (outcome, _) = go(&load, support::tls::Under::new(server, config.clone(), 50 * MS));
            let (measured, opened) = (&outcome.measured, 4 / u64::from(streams.unwrap_or(1)));
            assert_eq!((measured.counts.failed(), measured.connections.opened), (0, opened));
            let times = [&measured.series.connect, &measured.series.tls];
            let expect = if in_window { opened } else { 0 };
            assert_eq!(times.map(|times| times.count()), [expect; 2], "{streams:?}, {warmup_ns}");
            if in_window {
                assert_eq!(times.map(|times| times.min_ns().unwrap() / MS), [30, 50]);
            }
        };
        check(0, true);
        check(S, false);
        // The window begins when the connections are open but TLS is still being negotiated, or just before it
        // completes.
        check(40 * MS, false);
        check(79 * MS, false);
    }
}

#[test]
fn connects_that_begin_before_the_load_are_timed_in_full() {
    // Ten connections, one every 100 ms; the last is still connecting when the load stops waiting for them.
    let mut load = spec(Model::Closed { users: 10 }, Until::Elapsed(2 * S));
    load.held = Some(HeldConnections { connections: 10, rate_per_s: 10.0 });
    load.timeout_ns = 300 * MS;
    let (outcome, _) = go(&load, Plain { connect_ns: 550 * MS, ..Plain::default() });
    let connect = &outcome.measured.series.connect;
    assert_eq!((outcome.measured.counts.failed(), connect.count()), (0, 10));
    assert_eq!((connect.min_ns().unwrap() / MS, connect.max_ns().unwrap() / MS), (550, 550));
}

/// A step on the first host, then a step whose variable has no value, on the second host if `elsewhere`.
fn forgetful(elsewhere: bool) -> LoadSpec {
    let ask = |slot: Option<u16>, host: u16| {
        let mut target = Template::default();
        target.push_text(b"/", Escape::Raw).unwrap();
        slot.into_iter()
            .for_each(|slot| target.push(Variable::Capture { slot, is_number: false }, Escape::Url));
        let message = Message { method: "GET".into(), target, fields: Template::default(), body: None };
        Script { message: Some(message), host, ..Script::plain() }
    };
    let site =
        |name: &str| Site { authority: name.into(), host: name.into(), is_secure: false, by_proxy: None };
    let journey = Journey {
        step_order: StepOrder { before: 0, round: 2, after: 0, weights: vec![], rounds: 5 },
        scripts: vec![ask(None, 0), ask(Some(0), u16::from(elsewhere))],
        feeds: vec![],
        dealings: vec![],
        shared: CaptureSlots::new(0),
        sites: vec![site("sim"), site("second")],
        cookies: false,
        own: 1,
        remembered: vec![],
        numbers: vec![],
        sessions: false,
        unix_ns: Some(0),
    };
    let mut load = spec(Model::Closed { users: 1 }, Until::Repeats(5));
    load.requests.push(load.requests[0].clone());
    load.requests[1].host = u16::from(elsewhere);
    load.hosts.push(vec!["127.0.0.2:80".parse().unwrap()]);
    LoadSpec { journey: Some(Box::new(journey)), ..load }
}

#[test]
fn a_request_that_cannot_be_written_opens_and_closes_no_connection() {
    for elsewhere in [false, true] {
        let over = support::http2::over_http2(forgetful(elsewhere), 1, &[vec![], vec![]]);
        for load in [forgetful(elsewhere), over] {
            let (outcome, server) = go(&load, Plain::default());
            let counts = &outcome.measured.counts;
            assert_eq!((counts.ok, counts.failures.get(Failure::Check), server.requests), (5, 5, 5));
            // One connection, closed at the end.
            assert_eq!((server.connects.len(), server.closed), (1, 1), "elsewhere: {elsewhere}");
        }
    }
    // No connection is opened if nothing else is requested.
    let mut load = forgetful(false);
    load.journey.as_mut().unwrap().step_order =
        StepOrder { before: 0, round: 1, after: 0, weights: vec![], rounds: 5 };
    load.journey.as_mut().unwrap().scripts.remove(0);
    load.requests.truncate(1);
    for load in [load.clone(), support::http2::over_http2(load, 1, &[vec![]])] {
        let (outcome, server) = go(&load, Plain::default());
        assert_eq!((outcome.measured.counts.failed(), server.connects.len()), (5, 0));
    }
}

#[test]
fn users_that_think_are_not_requests_in_flight() {
    let mut load = forgetful(false);
    let journey = load.journey.as_mut().unwrap();
    journey.sessions = true;
    journey.step_order = StepOrder { before: 0, round: 1, after: 0, weights: vec![], rounds: 2 };
    journey.scripts.truncate(1);
    load.requests.truncate(1);
    load.think = Think::Constant(S);
    // Ten users arrive per second and stay for a second each; their two requests take a millisecond.
    load.model = Model::Open {
        rate_per_s: 10.0,
        arrivals: loadlab_load::Arrivals::Constant,
        when_behind: loadlab_load::WhenBehind::Queue,
        max_in_flight: 100,
    };
    load.until = Until::Elapsed(5 * S);
    load.threads = 2;
    let (outcome, _) = go(&load, Plain::default());
    let connections = &outcome.measured.connections;
    assert!(connections.users_peak.unwrap() >= 10, "{connections:?}");
    // In a tenth of a second one user arrives, and another sends its second request.
    assert!((1..=4).contains(&connections.in_flight_peak.unwrap()), "{connections:?}");
    assert!(connections.peak >= 10, "{connections:?}");
}
