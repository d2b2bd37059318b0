//! The accounting property: whatever a server does, over any protocol, from any number of load threads and with any
//! model, every request that fell due is accounted for exactly once, in every table, and the server's own books agree.
//!
//! To run a single seed: `LOADLAB_SEED=123 cargo test -p loadlab-load --test all accounts`. To compare all operations
//! of two revisions: `LOADLAB_TRACES=FILE` appends each plain load's seed, trace and figures; sort both files and
//! compare them.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, LazyLock};

use loadlab_load::io::sim::{Books, Like, Network, Sim};
use loadlab_load::journey::check::Checks;
use loadlab_load::journey::order::{Advance, StepOrder};
use loadlab_load::journey::redirect::Site;
use loadlab_load::journey::script::{ConversationAction, Expected, Journey, Script};
use loadlab_load::protocol::http2::{HeadParts, Heads};
use loadlab_load::protocol::tls::{TlsConfig, TlsParts, Trust, Versions, server_name};
use loadlab_load::random::Random;
use loadlab_load::run::{Second, simulate};
use loadlab_load::spec::request::{Request, RequestParts};
use loadlab_load::spec::{HeldConnections, Http2, Proxy, TlsSpec};
use loadlab_load::{Arrivals, Control, Ids, LoadEvent, LoadResult, LoadSpec, Model, Until, WhenBehind};
use loadlab_record::Failure;
use loadlab_record::counts::load::{Bytes, Counts, Measured, Series, TagMeasured, Tick};
use loadlab_record::spec::schedule::Stage;
use loadlab_record::spec::schedule::Think;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;

use crate::support;
use crate::support::conversations;
use crate::support::http2::over_http2;
use crate::support::peer::{Asked, Fault, Ledger, Peer, Protocol};
use crate::support::steps::{plain_journey, step, template};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

const SEEDS: u64 = 2000;
/// Every pair of values of two dimensions occurs at least this many times.
const EACH_PAIR: u64 = 50;

const PROTOCOLS: [Protocol; 3] = [Protocol::Http1, Protocol::Http2, Protocol::WebSocket];
const FAULTS: [Fault; 7] = [
    Fault::ShortWrites,
    Fault::PartialReads,
    Fault::Resets,
    Fault::Goodbyes,
    Fault::Stalls,
    Fault::Floods,
    Fault::Garbage,
];
const MODELS: [By; 4] = [By::Closed, By::Open, By::Stages, By::Sessions];

/// What decides when something falls due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Closed,
    Open,
    Stages,
    Sessions,
}

/// What one seed tests; every other choice is drawn from the seed.
#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    protocol: Protocol,
    tls: bool,
    fault: Fault,
    threads: usize,
    by: By,
}

impl Case {
    fn of(seed: u64) -> Case {
        let mut rest = seed as usize;
        let mut next = |count: usize| {
            let value = rest % count;
            rest /= count;
            value
        };
        let (protocol, tls, fault) = (PROTOCOLS[next(3)], next(2) == 1, FAULTS[next(7)]);
        let (threads, by) = (1 + next(3), MODELS[next(4)]);
        Case { seed, protocol, tls, fault, threads, by }
    }

    /// The case's value in each dimension.
    fn values(&self) -> [usize; 5] {
        [
            self.protocol as usize,
            usize::from(self.tls),
            self.fault as usize,
            self.threads - 1,
            self.by as usize,
        ]
    }
}

/// Makes the choices that a case leaves open.
struct Choice(Random);

impl Choice {
    fn below(&mut self, most: u64) -> u64 {
        self.0.next_u64() % most
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn think(&mut self) -> Think {
        let ms = 1 + self.below(40);
        self.of(&[
            Think::None,
            Think::Constant(ms * MS),
            Think::Uniform(0, ms * MS),
            Think::Exponential(ms * MS),
        ])
    }
}

/// A server's TLS settings, and the certificate to trust.
static CERTIFICATE: LazyLock<(Arc<ServerConfig>, Arc<ServerConfig>, Vec<u8>)> = LazyLock::new(|| {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["sim".to_owned()]).unwrap().self_signed(&key).unwrap();
    let config = |alpn: &str| {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let private = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let chain = vec![certificate.der().clone()];
        let mut config = builder.unwrap().with_no_client_auth().with_single_cert(chain, private).unwrap();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        Arc::new(config)
    };
    (config("http/1.1"), config("h2"), certificate.pem().into_bytes())
});

fn tls_of(choice: &mut Choice, protocol: Protocol) -> (TlsSpec, Arc<ServerConfig>) {
    let (http1, http2, pem) = &*CERTIFICATE;
    let alpn = if protocol == Protocol::Http2 { "h2" } else { "http/1.1" };
    let parts = TlsParts {
        trust: Trust::Authorities(pem.clone()),
        identity: None,
        versions: choice.of(&[Versions::Both, Versions::Both, Versions::Only12]),
        resumption: choice.one_in(2),
        alpn: vec![alpn.as_bytes().to_vec()],
    };
    let names = vec![Some(server_name("sim").unwrap())];
    let server = if protocol == Protocol::Http2 { http2 } else { http1 };
    (TlsSpec { config: TlsConfig::new(&parts).unwrap(), names }, server.clone())
}

/// Nothing takes long in a calm case, so a request that times out was forgotten.
fn is_calm(case: &Case) -> bool {
    let quick = [Fault::ShortWrites, Fault::PartialReads, Fault::Resets, Fault::Goodbyes];
    quick.contains(&case.fault) && case.seed % 5 < 3
}

/// A short load with few requests.
fn load(case: &Case, choice: &mut Choice) -> LoadSpec {
    let users = 1 + choice.below(6);
    let elapsed = Until::Elapsed((50 + choice.below(900)) * MS);
    let requests = Until::Requests(5 + choice.below(50));
    let rate = Model::Open {
        rate_per_s: (5 + choice.below(80)) as f64,
        arrivals: choice.of(&[Arrivals::Constant, Arrivals::Poisson]),
        when_behind: choice.of(&[WhenBehind::Queue, WhenBehind::Drop]),
        max_in_flight: 1 + choice.below(8),
    };
    let (model, until) = match case.by {
        By::Closed => (Model::Closed { users }, choice.of(&[elapsed, requests, Until::Repeats(4)])),
        By::Open | By::Sessions => (rate, choice.of(&[elapsed, requests])),
        By::Stages if case.protocol != Protocol::WebSocket && choice.one_in(2) => (rate, elapsed),
        By::Stages => (Model::Closed { users }, elapsed),
    };
    let is_open = matches!(model, Model::Open { .. });
    let tags = 2;
    let mut spec = LoadSpec::new(model, until, requests_of(case, choice, tags), support::address());
    let makes_journey = case.protocol == Protocol::WebSocket || case.by == By::Sessions || choice.one_in(2);
    if makes_journey {
        spec = with_journey(case, choice, spec);
    }
    spec.tags = (0..spec.requests.len()).map(|i| format!("part{i}")).collect();
    if case.protocol == Protocol::Http2 {
        spec = over_streams(spec, choice.of(&[1, 2, 100]));
    }
    if case.by == By::Stages {
        staged(choice, &mut spec);
    } else if choice.one_in(4) {
        spec.ramp_ns = choice.below(400) * MS;
    }
    // Closed loads think, are paced, or neither.
    if !is_open && choice.one_in(3) {
        spec.pace_ns = Some((5 + choice.below(100)) * MS);
        spec.pace_when_behind = choice.of(&[WhenBehind::Queue, WhenBehind::Drop]);
    } else {
        spec.think = choice.think();
    }
    (spec.threads, spec.seed) = (case.threads, case.seed);
    spec.timeout_ns = if is_calm(case) { 20 * S } else { (20 + choice.below(280)) * MS };
    spec.grace_ns = choice.below(600) * MS;
    spec.warmup_ns = if choice.one_in(4) { choice.below(300) * MS } else { 0 };
    spec.keep_alive = !choice.one_in(5);
    let stays = spec.by_streams() == 0 && case.protocol == Protocol::Http1 && case.by != By::Sessions;
    if stays && choice.one_in(8) {
        let rate_per_s = (50 + choice.below(2000)) as f64;
        spec.held = Some(HeldConnections { connections: 8 + choice.below(10), rate_per_s });
    }
    if choice.one_in(8) {
        // Two addresses: requests move to the second if the first refuses.
        spec.hosts[0].push(support::address().into());
    }
    spec
}

/// Properties of a load beyond its parts.
trait Shape {
    /// Streams per connection; 0 without HTTP/2.
    fn by_streams(&self) -> u32;
}

impl Shape for LoadSpec {
    fn by_streams(&self) -> u32 {
        self.http2.as_ref().map_or(0, |http2| http2.streams)
    }
}

/// Requests that are identical each time: small ones, and some with a body that takes several writes.
fn requests_of(case: &Case, choice: &mut Choice, count: u16) -> Vec<Request> {
    let one = |tag: u16, length: Option<u64>| {
        let parts = RequestParts {
            method: if length.is_some() { "POST".into() } else { "GET".into() },
            host: "sim".into(),
            path: format!("/{tag}"),
            body: length.map(|length| vec![b'b'; length as usize]),
            keep_alive: case.protocol != Protocol::Http1 || !case.seed.is_multiple_of(5),
            ..RequestParts::default()
        };
        Request { tags: vec![tag], ..parts.build().unwrap() }
    };
    (0..count)
        .map(|tag| {
            let length = choice.of(&[None, None, Some(3), Some(6000), Some(30_000)]);
            one(tag, length)
        })
        .collect()
}

/// The load of `spec` with users who identify themselves: each request has an id, and each answer is for its user.
fn with_journey(case: &Case, choice: &mut Choice, spec: LoadSpec) -> LoadSpec {
    let mine = || Checks { holds: vec![vec![]], ..Checks::default() };
    let expected = || vec![(Expected::Holds(0), template("for={u} id="))];
    let scripts = match case.protocol {
        Protocol::WebSocket => conversation(choice),
        Protocol::Http1 | Protocol::Http2 => {
            // Several records, so that a server under TLS may see only part of the body.
            let large = if case.tls && case.protocol == Protocol::Http1 { 20_000 } else { 5000 };
            let body = "b".repeat(choice.of(&[1, large]));
            let ask = step("GET /ask?id={x}&for={u} HTTP/1.1", None);
            let tell = step("POST /tell?id={x}&for={u} HTTP/1.1", Some(&body));
            let scripts = [ask, tell].map(|script| Script { checks: mine(), expected: expected(), ..script });
            scripts.into_iter().map(|script| thinking(choice, script)).collect()
        }
    };
    let sessions = case.by == By::Sessions || (case.protocol == Protocol::WebSocket && case.by == By::Open);
    let rounds = match spec.until {
        Until::Repeats(n) => n,
        // A conversation belongs to its user, so an open rate of conversations is a rate of users with one conversation
        // each.
        _ if sessions && case.by == By::Open => 1,
        _ if sessions => 1 + choice.below(3),
        _ => u64::MAX,
    };
    let count = scripts.len();
    let request = |tag: u16| Request { tags: vec![tag], ..support::get() };
    let journey = Journey {
        step_order: StepOrder { before: 0, round: count as u32, after: 0, weights: vec![], rounds },
        scripts,
        sites: vec![Site {
            authority: "sim".into(),
            host: "sim".into(),
            is_secure: case.tls,
            by_proxy: None,
        }],
        own: 1,
        sessions,
        ..plain_journey()
    };
    LoadSpec { requests: (0..count as u16).map(request).collect(), journey: Some(Box::new(journey)), ..spec }
}

fn thinking(choice: &mut Choice, script: Script) -> Script {
    let think = if choice.one_in(3) { Some(choice.think()) } else { None };
    let on_failure = choice.of(&[Advance::On, Advance::On, Advance::EndRound]);
    Script { think, on_failure, ..script }
}

/// An opening, messages with and without an answer, and a close.
fn conversation(choice: &mut Choice) -> Vec<Script> {
    let long = "m".repeat(choice.of(&[1, 200, 6000]));
    let mut ask = conversations::ask(&format!("{long} id={{x}} for={{u}}"), "for=");
    if let Some(ConversationAction::Message { echoes, .. }) =
        ask.conversation.as_mut().map(|conversation| &mut conversation.part)
    {
        *echoes = vec![template("for={u} id={x};")];
    }
    ask.has_id = true;
    let mut parts = vec![conversations::open(), ask];
    if choice.one_in(2) {
        parts.push(conversations::say("said"));
    }
    if choice.one_in(3) {
        parts.push(conversations::within(conversations::listen("nothing"), (1 + choice.below(50)) * MS));
    }
    let mut all: Vec<Script> = parts.into_iter().map(|part| thinking(choice, part)).collect();
    all = conversations::conversation(all);
    all
}

fn over_streams(spec: LoadSpec, streams: u32) -> LoadSpec {
    if spec.journey.is_some() {
        return over_http2(spec, streams, &[vec![], vec![]]);
    }
    let mut all = Heads::default();
    let heads = spec.requests.iter().map(|request| {
        let method = if request.bytes.starts_with(b"POST") { "POST" } else { "GET" };
        let parts = HeadParts { method, scheme: "http", authority: "sim", path: "/", headers: &[] };
        all.add(&parts).unwrap()
    });
    let heads = heads.collect();
    LoadSpec { http2: Some(Http2 { heads, written: vec![], streams }), ..spec }
}

/// Stages that cover the load's whole duration, with levels up to its number of users or its rate.
fn staged(choice: &mut Choice, spec: &mut LoadSpec) {
    let most = match spec.model {
        Model::Closed { users } => users as f64,
        Model::Open { rate_per_s, .. } => rate_per_s,
    };
    let level = |choice: &mut Choice| (most * choice.below(5) as f64 / 4.0).round();
    let mut stages = vec![Stage { from: most, to: most, over_ns: 100 * MS }];
    for _ in 0..choice.below(4) {
        let (to, over_ns) = (level(choice), choice.below(250) * MS);
        let from = if choice.one_in(3) { to } else { stages[stages.len() - 1].to };
        stages.push(Stage { from, to, over_ns });
    }
    spec.until = Until::Elapsed(stages.iter().map(|stage| stage.over_ns).sum());
    spec.stages = stages;
}

fn network(case: &Case, choice: &mut Choice) -> Network {
    let strong = |is_it: bool, strong: f64, weak: f64, choice: &mut Choice| match is_it {
        true => strong,
        false if choice.one_in(3) => weak,
        false => 0.0,
    };
    Network {
        seed: case.seed,
        like: choice.of(&[Like::Epoll, Like::Uring]),
        short_writes: strong(case.fault == Fault::ShortWrites, 0.8, 0.2, choice),
        partial_reads: strong(case.fault == Fault::PartialReads, 0.8, 0.2, choice),
        resets: strong(case.fault == Fault::Resets, 0.05, 0.005, choice),
        stalls: if is_calm(case) { 0.0 } else { strong(case.fault == Fault::Stalls, 0.02, 0.002, choice) },
        pause_ns: choice.of(&[0, 100_000, MS]),
        until_ns: u64::MAX,
    }
}

/// The outcome of a case.
#[derive(Debug, PartialEq)]
struct Ran {
    measured: Measured,
    seconds: Seconds,
    /// Connections open when the last second ended.
    open: u64,
    books: Books,
    ledger: Ledger,
}

/// All seconds merged.
#[derive(Debug, Default, PartialEq)]
struct Seconds {
    counts: Counts,
    bytes: Bytes,
    statuses: BTreeMap<u16, u64>,
    ids: Ids,
    series: Series,
    by_tag: BTreeMap<String, TagMeasured>,
    ticks: Vec<Tick>,
}

impl Seconds {
    fn add(&mut self, second: &Second) {
        let tick = &second.tick;
        let before = self.counts.in_flight;
        self.counts.merge(&tick.counts);
        // Subtract what was already in flight when the previous second ended.
        self.counts.in_flight -= before;
        self.bytes.sent += tick.bytes.sent;
        self.bytes.received += tick.bytes.received;
        for (status, n) in &tick.statuses {
            *self.statuses.entry(*status).or_default() += n;
        }
        self.ids.append(&mut second.ids.clone());
        self.series.merge(&second.window);
        self.series.merge(&second.before);
        for (tag, measured) in &second.by_tag {
            self.by_tag.entry(tag.clone()).or_default().merge(measured);
        }
        self.ticks.push(tick.clone());
    }
}

fn run(case: &Case) -> (LoadSpec, Network, Ran) {
    let mut choice = Choice(Random::new(case.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let mut spec = load(case, &mut choice);
    let mut server = Peer::new(case.protocol, case.fault, case.seed);
    if case.tls {
        let (tls, config) = tls_of(&mut choice, case.protocol);
        spec.tls = Some(Box::new(tls));
        server = server.under_tls(Some(config));
    }
    if choice.one_in(6) {
        let connect = b"CONNECT sim:80 HTTP/1.1\r\nHost: sim:80\r\n\r\n";
        spec.proxy = Some(Box::new(Proxy { connects: vec![Some(connect.as_slice().into())] }));
        server = server.behind_proxy(true);
    }
    let network = network(case, &mut choice);
    let mut sim = Sim::new(server).network(network);
    // Some loads are stopped or aborted early.
    let ends = choice.of(&[None, None, None, None, Some(false), Some(true)]);
    let ends_at_s = choice.below(500) as f64 / 1e3;
    let (control, mut seconds) = (Control::default(), Seconds::default());
    let outcome = simulate(&spec, &control, &mut sim, &mut |event| match event {
        LoadEvent::Second(second) => seconds.add(second),
        LoadEvent::Progress(now) => {
            assert!(now.at_s < 600.0, "it never ends: {now:?}");
            match ends.filter(|_| now.at_s >= ends_at_s) {
                Some(true) => control.abort(),
                Some(false) => control.stop(),
                None => {}
            }
        }
        LoadEvent::Example(_) => {}
    });
    let LoadResult { measured, .. } = outcome.unwrap();
    let (books, open) = (sim.books().clone(), seconds.ticks.last().map_or(0, |tick| tick.connections));
    let ledger = sim.into_server().ledger;
    (spec, network, Ran { measured, seconds, open, books, ledger })
}

/// Invariants that hold whatever happened.
fn check(case: &Case, spec: &LoadSpec, ran: &Ran) {
    check_counts(spec, ran);
    check_times(spec, ran);
    check_network(case, ran);
    check_ids(case, spec, ran);
    check_server(case, spec, ran);
    let measured = &ran.measured;
    let planned_s = spec.schedule_ns().map(|ns| (ns + spec.grace_ns) as f64 / 1e9);
    if let Some(most_s) = planned_s.filter(|_| matches!(spec.until, Until::Elapsed(_))) {
        assert!(measured.elapsed_s <= most_s + 0.001, "it ends when it is to: {} s", measured.elapsed_s);
    }
}

/// Every request is counted once, with one outcome, in its own second and under its own tag.
fn check_counts(spec: &LoadSpec, ran: &Ran) {
    let (measured, seconds) = (&ran.measured, &ran.seconds);
    let counts = &measured.counts;
    assert_eq!(counts.balance(), Ok(()));
    assert_eq!(counts.failed(), Failure::ALL.iter().map(|f| counts.failures.get(*f)).sum::<u64>());
    assert_eq!(&seconds.counts, counts, "seconds add up to the whole");
    assert_eq!((seconds.bytes, &seconds.statuses), (measured.bytes, &measured.statuses));
    let mut tagged = Counts::default();
    for (tag, measured) in &measured.by_tag {
        assert_eq!(measured.counts.balance(), Ok(()), "{tag}");
        tagged.merge(&measured.counts);
    }
    assert_eq!(&tagged, counts, "tags add up to the whole");
    for (tag, measured) in &measured.by_tag {
        assert_eq!(seconds.by_tag[tag].counts, measured.counts, "{tag}");
    }
    if let (Until::Requests(n), Model::Open { .. }, None) = (spec.until, &spec.model, &spec.journey) {
        assert!(counts.due <= n);
    }
    // Every complete answer has a status, and each status its own outcome.
    if spec.journey.as_ref().is_none_or(|j| j.scripts.iter().all(|script| script.conversation.is_none())) {
        let of = |failure| counts.failures.get(failure);
        let complete = counts.ok + of(Failure::Http4xx) + of(Failure::Http5xx) + of(Failure::Check);
        assert_eq!(measured.statuses.values().sum::<u64>(), complete, "answers: {:?}", measured.statuses);
    }
}

/// Each histogram has as many values as there were outcomes.
fn check_times(spec: &LoadSpec, ran: &Ran) {
    let (counts, series) = (&ran.measured.counts, &ran.seconds.series);
    let timeouts = counts.failures.get(Failure::Timeout);
    let censored = timeouts + counts.in_flight + counts.dropped;
    assert_eq!(series.response_ok.count(), counts.ok);
    assert_eq!(series.response_failed.count(), counts.failed() - timeouts);
    assert_eq!(series.response_censored.count(), censored);
    let timed = |n: u64| if spec.sends_when_free() { 0 } else { n };
    assert_eq!(series.service_ok.count(), timed(counts.ok));
    assert_eq!(series.service_censored.count(), timed(timeouts + counts.in_flight));
    assert_eq!((series.late.count(), series.blocked.count()), (timed(counts.due), timed(counts.started)));
    assert_eq!(series.connect.count(), ran.measured.connections.opened);
    assert!(series.tls.count() <= series.connect.count());
    if spec.warmup_ns == 0 {
        assert_eq!(&ran.measured.series, series, "seconds' times are the window's");
        let sums = |of: fn(&TagMeasured) -> u64| ran.measured.by_tag.values().map(of).sum::<u64>();
        assert_eq!(sums(|tag| tag.response_ok.count()), counts.ok);
        assert_eq!(sums(|tag| tag.response_failed.count()), counts.failed() - timeouts);
        assert_eq!(sums(|tag| tag.response_censored.count()), censored);
    }
}

/// The bytes reported as sent and received are the bytes that crossed the network, and no connection is left open.
fn check_network(case: &Case, ran: &Ran) {
    let Ran { measured, books, ledger, .. } = ran;
    assert_eq!((measured.bytes.sent, measured.bytes.received), (books.sent, books.received));
    assert_eq!(books.delivered, ledger.received);
    let connections = &measured.connections;
    assert_eq!(
        (connections.attempted, books.connects, ledger.connects),
        (books.connects, ledger.connects, ledger.closes)
    );
    assert_eq!((books.closes, ran.open), (books.connects, 0), "every connection is closed at the end");
    assert!(connections.opened <= connections.attempted);
    if case.protocol == Protocol::Http1 && !case.tls {
        assert_eq!(books.after_last, 0, "nothing is asked where no answer can come");
    }
    assert!(books.most_waiting <= MOST_WAITING, "{} bytes wait on one connection", books.most_waiting);
}

/// Upper bound on the bytes waiting on one connection: bodies, and replies to a server that does not read.
const MOST_WAITING: usize = 1 << 20;

/// Every id is sent with one request and reported once, in agreement with the server.
fn check_ids(case: &Case, spec: &LoadSpec, ran: &Ran) {
    let Ids { accepted, unanswered, refused } = &ran.seconds.ids;
    let mut reported: Vec<u64> = [accepted.as_slice(), unanswered, refused].concat();
    let all = reported.len();
    reported.sort_unstable();
    reported.dedup();
    assert_eq!(reported.len(), all, "an id is reported once");
    for (id, times) in &ran.ledger.seen {
        assert!(reported.binary_search(id).is_ok(), "the server saw {id}, and nothing is reported of it");
        assert_eq!(*times, 1, "the server saw {id} again");
    }
    let has_ids = spec.journey.is_some() && case.protocol != Protocol::WebSocket;
    if has_ids {
        assert_eq!(accepted.len() as u64, ran.measured.counts.ok, "an id for each good answer");
    }
    if case.fault != Fault::Garbage {
        for id in accepted {
            assert!(ran.ledger.accepted.contains(id), "{id} is accepted, and the server never said so");
        }
        for id in refused {
            assert!(ran.ledger.refused.contains(id), "{id} is refused, and the server never did");
        }
    }
}

/// The server received no more requests than were started, and sent at least as many answers as were counted.
fn check_server(case: &Case, spec: &LoadSpec, ran: &Ran) {
    let (counts, ledger) = (&ran.measured.counts, &ran.ledger);
    let good = |asked| ledger.good.get(&asked).copied().unwrap_or(0);
    // A close may be sent on a connection whose conversation was abandoned.
    if case.protocol != Protocol::WebSocket {
        assert!(ledger.requests <= counts.started, "{} requests of {counts:?}", ledger.requests);
        assert!(counts.ok <= good(Asked::Request), "{} good answers, {counts:?}", good(Asked::Request));
        if case.fault != Fault::Garbage {
            assert_eq!(counts.failures.get(Failure::Check), 0, "every answer is for its own user");
        }
        return;
    }
    let Some(journey) = &spec.journey else { return };
    for (script, (tag, measured)) in journey.scripts.iter().zip(&ran.measured.by_tag) {
        let most = match script.conversation.as_ref().map(|conversation| &conversation.part) {
            Some(ConversationAction::Open { .. }) => good(Asked::Opening),
            Some(ConversationAction::Message { send: Some(_), wait: Some(_), .. }) => good(Asked::Message),
            Some(ConversationAction::Close) => good(Asked::Goodbye),
            _ => u64::MAX,
        };
        assert!(measured.counts.ok <= most, "{tag}: {} of {most} answers", measured.counts.ok);
    }
}

/// When nothing is slow nothing is abandoned, and an undisturbed connection is kept.
fn check_calm(case: &Case, spec: &LoadSpec, network: &Network, ran: &Ran) {
    let quiet = matches!(case.fault, Fault::ShortWrites | Fault::PartialReads);
    let counts = &ran.measured.counts;
    let waits_in_vain = |script: &Script| {
        let part = script.conversation.as_ref().map(|conversation| &conversation.part);
        matches!(part, Some(ConversationAction::Message { send: None, .. }))
    };
    let scripts = spec.journey.iter().flat_map(|j| &j.scripts).map(Some).chain(std::iter::repeat(None));
    for ((tag, measured), script) in ran.measured.by_tag.iter().zip(scripts) {
        let timeouts = measured.counts.failures.get(Failure::Timeout);
        assert!(timeouts == 0 || script.is_some_and(waits_in_vain), "{tag}: {timeouts} were forgotten");
    }
    let sessions = spec
        .journey
        .as_ref()
        .is_some_and(|j| j.sessions || j.scripts.iter().any(|s| s.conversation.is_some()));
    if network.resets == 0.0
        && quiet
        && !case.seed.is_multiple_of(5)
        && spec.keep_alive
        && !sessions
        && spec.held.is_none()
    {
        let places = match spec.model {
            Model::Closed { users } => users,
            Model::Open { max_in_flight, .. } => max_in_flight.max(spec.threads as u64),
        };
        let opened = ran.measured.connections.attempted;
        let most = places + counts.failed() + ran.ledger.early;
        assert!(opened <= most, "{opened} connections for {places}, {counts:?}");
    }
}

/// Appends a line to the trace file, if one is requested.
fn note_trace(case: &Case, ran: &Ran) {
    let Ok(file) = std::env::var("LOADLAB_TRACES") else { return };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    let mut figures = std::hash::DefaultHasher::new();
    format!("{ran:?}").hash(&mut figures);
    let line = format!("{} {:016x} {:016x}\n", case.seed, ran.books.trace, figures.finish());
    file.write_all(line.as_bytes()).unwrap();
}

/// Runs all seeds of one protocol, plain or under TLS.
#[expect(clippy::print_stderr, reason = "which case failed, so that it can be run alone")]
fn accounts(protocol: Protocol, tls: bool) {
    let only: Option<u64> = std::env::var("LOADLAB_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = (0..SEEDS).filter(|seed| only.is_none_or(|only| only == *seed));
    let mut ended: BTreeMap<&str, u64> = BTreeMap::new();
    for case in seeds.map(Case::of).filter(|case| (case.protocol, case.tls) == (protocol, tls)) {
        let counts = catch_unwind(AssertUnwindSafe(|| {
            let (spec, network, ran) = run(&case);
            check(&case, &spec, &ran);
            if is_calm(&case) {
                check_calm(&case, &spec, &network, &ran);
            }
            if !tls {
                // A replay must match to the last byte and nanosecond.
                assert_eq!(run(&case).2, ran, "a replay differs");
                note_trace(&case, &ran);
            }
            (ran.measured.counts, ran.ledger)
        }));
        let (counts, ledger) = counts.unwrap_or_else(|panic| {
            eprintln!("{case:?}");
            resume_unwind(panic);
        });
        *ended.entry("ok").or_default() += counts.ok;
        *ended.entry("dropped").or_default() += counts.dropped;
        *ended.entry("in flight").or_default() += counts.in_flight;
        *ended.entry("answered early").or_default() += ledger.early;
        *ended.entry("never read").or_default() += ledger.unread;
        for (failure, n) in counts.failures.nonzero() {
            *ended.entry(failure.name()).or_default() += n;
        }
    }
    if only.is_none() {
        // The test proves little if next to nothing succeeds, or next to nothing fails.
        for end in ["ok", "dropped", "in flight", "connect", "reset", "timeout", "truncated", "protocol"] {
            assert!(ended.get(end).is_some_and(|n| *n >= 20), "{end}: {ended:?}");
        }
        for end in ["answered early", "never read"] {
            assert!(ended[end] >= 20 || protocol != Protocol::Http1, "{end}: {ended:?}");
        }
    }
}

/// When the faults end, in the load that is checked second by second.
const HEALS_NS: u64 = 500 * MS;

/// Users who always have a request under way, with a short timeout.
fn steady(case: &Case, choice: &mut Choice) -> LoadSpec {
    let until = Until::Elapsed(3 * S);
    let mut spec =
        LoadSpec::new(Model::Closed { users: 4 }, until, requests_of(case, choice, 2), support::address());
    if case.protocol == Protocol::WebSocket || choice.one_in(2) {
        spec = with_journey(case, choice, spec);
        let scripts = spec.journey.iter_mut().flat_map(|journey| &mut journey.scripts);
        scripts.for_each(|script| script.think = None);
    }
    spec.tags = (0..spec.requests.len()).map(|i| format!("part{i}")).collect();
    if case.protocol == Protocol::Http2 {
        spec = over_streams(spec, choice.of(&[1, 2, 100]));
    }
    (spec.think, spec.timeout_ns, spec.grace_ns) = (Think::Constant(50 * MS), 200 * MS, 300 * MS);
    (spec.threads, spec.seed) = (case.threads, case.seed);
    spec
}

/// The counts of each second of a steady load whose server and network fail until `heals_ns`.
fn healed(case: &Case, heals_ns: u64) -> (LoadSpec, Vec<Counts>) {
    let mut choice = Choice(Random::new(case.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let mut spec = steady(case, &mut choice);
    let mut server = Peer::new(case.protocol, case.fault, case.seed).until(heals_ns);
    if case.tls {
        let (tls, config) = tls_of(&mut choice, case.protocol);
        spec.tls = Some(Box::new(tls));
        server = server.under_tls(Some(config));
    }
    if choice.one_in(3) {
        let connect = b"CONNECT sim:80 HTTP/1.1\r\nHost: sim:80\r\n\r\n";
        spec.proxy = Some(Box::new(Proxy { connects: vec![Some(connect.as_slice().into())] }));
        server = server.behind_proxy(true);
    }
    // A silent but open HTTP/2 connection is not abandoned, so only the server stalls.
    let network = Network { stalls: 0.0, until_ns: heals_ns, ..network(case, &mut choice) };
    let mut sim = Sim::new(server).network(network);
    let mut seconds = Vec::new();
    let outcome = simulate(&spec, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Second(second) = event {
            seconds.push(second.tick.counts.clone());
        }
    });
    outcome.unwrap();
    (spec, seconds)
}

#[test]
fn whatever_fails_the_load_is_whole_again_when_it_is_over() {
    let all = (PROTOCOLS.len() * 2 * FAULTS.len()) as u64;
    let mut failed_before: BTreeMap<Protocol, u64> = BTreeMap::new();
    // Every fault of each protocol, plain and under TLS, with one to three threads.
    for case in (0..all).map(|i| Case::of(i + all * (i % 3))) {
        let ((spec, ill), (_, well)) = (healed(&case, HEALS_NS), healed(&case, 0));
        let (counts, well) = (&ill[2], &well[2]);
        let waits_in_vain = spec.journey.iter().flat_map(|j| &j.scripts).any(|script| {
            matches!(
                script.conversation.as_ref().map(|conversation| &conversation.part),
                Some(ConversationAction::Message { send: None, .. })
            )
        });
        let timeouts = counts.failures.get(Failure::Timeout);
        let failed = counts.failed() - if waits_in_vain { timeouts } else { 0 };
        assert_eq!(failed, 0, "{case:?}: {counts:?}");
        assert!(well.ok >= 20, "{case:?}: {well:?}");
        // Losing one of the four users would cost a quarter of the requests.
        assert!(counts.ok * 10 >= well.ok * 9, "{case:?}: {} of {}", counts.ok, well.ok);
        *failed_before.entry(case.protocol).or_default() += ill[0].failed();
    }
    assert!(failed_before.values().all(|n| *n >= 50), "there was much to recover from: {failed_before:?}");
}

#[test]
fn accounts_balance_over_http1() {
    accounts(Protocol::Http1, false);
}

#[test]
fn accounts_balance_over_http1_under_tls() {
    accounts(Protocol::Http1, true);
}

#[test]
fn accounts_balance_over_http2() {
    accounts(Protocol::Http2, false);
}

#[test]
fn accounts_balance_over_http2_under_tls() {
    accounts(Protocol::Http2, true);
}

#[test]
fn accounts_balance_over_websockets() {
    accounts(Protocol::WebSocket, false);
}

#[test]
fn accounts_balance_over_websockets_under_tls() {
    accounts(Protocol::WebSocket, true);
}

#[test]
fn every_pair_of_values_occurs_often() {
    let counts = [3, 2, 7, 3, 4];
    let mut pairs: BTreeMap<[usize; 4], u64> = BTreeMap::new();
    for case in (0..SEEDS).map(Case::of) {
        let values = case.values();
        for one in 0..values.len() {
            for other in one + 1..values.len() {
                *pairs.entry([one, values[one], other, values[other]]).or_default() += 1;
            }
        }
    }
    let all: usize = (0..5).flat_map(|one| (one + 1..5).map(move |other| counts[one] * counts[other])).sum();
    assert_eq!(pairs.len(), all, "every pair occurs");
    for (pair, times) in pairs {
        assert!(times >= EACH_PAIR, "{pair:?} occurs {times} times");
    }
}
