//! Journeys in simulated time, against a shop that knows its customers: strangers get 401.

use std::collections::BTreeMap;

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::journey::capture::{Capture, CaptureSlots, CaptureSource};
use loadlab_load::journey::check::{Checks, Expect, JsonCheck, Text};
use loadlab_load::journey::example::CapturedName;
use loadlab_load::journey::json::Pointer;
use loadlab_load::journey::order::{Advance, StepOrder};
use loadlab_load::journey::redirect::Site;
use loadlab_load::journey::rows::{Dealing, Rows};
use loadlab_load::journey::script::{Deal, Expected, Journey, Script};
use loadlab_load::protocol::http2::{HeadParts, Heads};
use loadlab_load::run::simulate;
use loadlab_load::spec::Http2;
use loadlab_load::spec::request::RequestParts;
use loadlab_load::{Arrivals, Control, LoadEvent, LoadResult, LoadSpec, Model, Until, WhenBehind};
use loadlab_record::Failure;
use loadlab_record::counts::example::Example;
use loadlab_record::counts::numbers::Numbers;
use loadlab_record::spec::bound::{Bound, Operator};
use loadlab_record::spec::escape::Escape;
use loadlab_record::spec::schedule::Think;
use loadlab_record::spec::variable::{Unit, Variable};

use crate::support;
use crate::support::http2::{Over, Whim, over_http2, over_http2_with};
use crate::support::steps::{step, template};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// A shop that answers each request after 10 ms.
#[derive(Default)]
struct Shop {
    /// Requests by method, path without its number, and status.
    seen: BTreeMap<String, u64>,
    /// Token by user name.
    tokens: BTreeMap<String, String>,
    /// Requested paths, in order.
    paths: Vec<String>,
    /// Every n-th login is refused; 0 refuses none.
    refuses: u64,
    /// Items have no price.
    no_prices: bool,
}

impl Shop {
    fn answer(&mut self, text: &str) -> (u16, String) {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let (method, path) = {
            let mut words = head.split(' ');
            (words.next().unwrap(), words.next().unwrap())
        };
        self.paths.push(path.to_owned());
        if method == "POST" {
            let length = head.split("Content-Length: ").nth(1).unwrap().split("\r\n").next().unwrap();
            assert_eq!(length.parse::<usize>().unwrap(), body.len(), "{text}");
        }
        let token = head.split("Authorization: Bearer ").nth(1).map(|t| t.split("\r\n").next().unwrap());
        let known = token.is_some_and(|t| self.tokens.values().any(|k| k == t));
        if path == "/login" {
            let logins = self.seen.iter().filter(|(k, _)| k.contains("/login")).map(|(_, n)| n).sum::<u64>();
            if self.refuses > 0 && (logins + 1) % self.refuses == 0 {
                return (403, "{}".into());
            }
            let token = format!("token-{}", logins);
            self.tokens.insert(body.to_owned(), token.clone());
            return (200, format!("{{\"token\": \"{token}\"}}"));
        }
        match (known, path) {
            (false, _) => (401, "{}".into()),
            (_, "/buy") => (201, "{}".into()),
            (_, "/logout") => (204, String::new()),
            _ if self.no_prices => (200, "{\"id\": 1}".into()),
            _ => (200, format!("{{\"id\": 1, \"price\": 9.5, \"path\": \"{path}\"}}")),
        }
    }
}

impl Server for Shop {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        let text = std::str::from_utf8(bytes).unwrap().to_owned();
        let (status, body) = self.answer(&text);
        let mut first = text.split(' ');
        let method = first.next().unwrap();
        let path = first.next().unwrap().trim_end_matches(|c: char| c.is_ascii_digit());
        *self.seen.entry(format!("{method} {path} {status}")).or_default() += 1;
        let answer = match status {
            204 => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            _ => format!("HTTP/1.1 {status} Status\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
        };
        // In two pieces, so that the body has to be reassembled.
        let (a, b) = answer.split_at(answer.len() - 2);
        let at = at_ns + 10 * MS;
        vec![(at, Reply::Bytes(a.into())), (at, Reply::Bytes(b.into()))]
    }
}

fn token() -> (u16, Capture) {
    (0, Capture { from: CaptureSource::Json(Pointer::parse("/token").unwrap()), is_number: false })
}

const BEARER: &str = "Authorization: Bearer {c}";

/// Login, two steps, and logout.
fn shopping(rounds: u64) -> Journey {
    let feed = |text: &str| Rows::from_csv(text.as_bytes(), &["name".to_owned()]).unwrap();
    let login = Script {
        captures: vec![token()],
        on_failure: Advance::EndRound,
        ..step("POST /login HTTP/1.1", Some("{a}"))
    };
    let item = step(&format!("GET /item/{{b}} HTTP/1.1\r\n{BEARER}"), None);
    let buy = Script {
        checks: Checks { statuses: vec![201], ..Checks::default() },
        ..step(&format!("POST /buy HTTP/1.1\r\n{BEARER}"), Some("{\"user\": {u}, \"n\": {n}, \"i\": {i}}"))
    };
    let logout = step(&format!("POST /logout HTTP/1.1\r\n{BEARER}"), Some(""));
    Journey {
        step_order: StepOrder { before: 1, round: 2, after: 1, weights: vec![], rounds },
        scripts: vec![login, item, buy, logout],
        feeds: vec![feed("name\nann\nbob\ncyd\n"), feed("name\n1\n2\n3\n4\n5\n")],
        dealings: vec![
            Deal { dealing: Dealing::default(), per_user: true },
            Deal { dealing: Dealing::default(), per_user: false },
        ],
        shared: CaptureSlots::new(0),
        sites: vec![Site { authority: "sim".into(), host: "sim".into(), is_secure: false, by_proxy: None }],
        cookies: false,
        own: 1,
        remembered: vec![],
        numbers: vec![],
        sessions: false,
        unix_ns: Some(1_790_000_000 * S),
    }
}

fn spec(model: Model, until: Until, journey: Journey) -> LoadSpec {
    let requests = journey.scripts.iter().map(|_| support::get()).collect();
    LoadSpec { journey: Some(Box::new(journey)), ..LoadSpec::new(model, until, requests, support::address()) }
}

fn go(spec: &LoadSpec, shop: Shop) -> (LoadResult, Shop, Vec<Example>) {
    let mut sim = Sim::new(shop);
    let mut examples = Vec::new();
    let outcome = simulate(spec, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Example(example) = event {
            examples.push(*example);
        }
    })
    .unwrap();
    outcome.measured.counts.balance().unwrap();
    (outcome, sim.into_server(), examples)
}

fn seen(shop: &Shop) -> Vec<(&str, u64)> {
    shop.seen.iter().map(|(k, n)| (k.as_str(), *n)).collect()
}

#[test]
fn users_log_in_once_shop_in_rounds_and_log_out() {
    let spec = spec(Model::Closed { users: 3 }, Until::Repeats(4), shopping(4));
    let (outcome, shop, _) = go(&spec, Shop::default());
    let expect =
        [("GET /item/ 200", 12), ("POST /buy 201", 12), ("POST /login 200", 3), ("POST /logout 204", 3)];
    assert_eq!(seen(&shop), expect);
    assert_eq!((outcome.measured.counts.ok, outcome.measured.counts.started), (30, 30));
    assert_eq!(shop.tokens.keys().collect::<Vec<_>>(), ["ann", "bob", "cyd"], "each has a row of its own");
    // Twelve rounds deal five items in turn.
    for (item, times) in [("1", 3), ("2", 3), ("3", 2), ("4", 2), ("5", 2)] {
        assert_eq!(shop.paths.iter().filter(|p| **p == format!("/item/{item}")).count(), times, "{item}");
    }
    assert_eq!(outcome.measured.connections.opened, 3);
    assert_eq!(outcome.captured, [Some(b"token-0".to_vec())]);
}

#[test]
fn when_time_is_up_users_finish_their_step_and_log_out() {
    let spec = spec(Model::Closed { users: 3 }, Until::Elapsed(S), shopping(u64::MAX));
    let (outcome, shop, _) = go(&spec, Shop::default());
    let counts = &outcome.measured.counts;
    assert_eq!((shop.seen["POST /login 200"], shop.seen["POST /logout 204"]), (3, 3));
    // 100 requests of 10 ms each fit into the second; the last one starts at 0.99 s.
    assert_eq!((counts.ok, counts.failed()), (3 * 101, 0));
    assert_eq!(outcome.measured.elapsed_s, 1.01);
}

#[test]
fn users_who_think_log_out_too() {
    let mut journey = shopping(u64::MAX);
    journey.scripts[1].think = Some(Think::Constant(20 * S));
    let spec = spec(Model::Closed { users: 2 }, Until::Elapsed(S), journey);
    let (outcome, shop, _) = go(&spec, Shop::default());
    let expect = [("GET /item/ 200", 2), ("POST /login 200", 2), ("POST /logout 204", 2)];
    assert_eq!(seen(&shop), expect);
    assert_eq!(outcome.measured.elapsed_s, 1.01);
}

#[test]
fn a_refused_login_is_tried_again_and_counts_as_a_round() {
    let spec = spec(Model::Closed { users: 1 }, Until::Repeats(3), shopping(3));
    let shop = Shop { refuses: 1, ..Shop::default() };
    let (outcome, shop, examples) = go(&spec, shop);
    // Three attempts; the logout cannot be rendered without a token, and is not sent.
    assert_eq!(seen(&shop), [("POST /login 403", 3)]);
    let counts = &outcome.measured.counts;
    assert_eq!(
        (counts.started, counts.failures.get(Failure::Http4xx), counts.failures.get(Failure::Check)),
        (4, 3, 1)
    );
    let reported: Vec<_> =
        examples.iter().map(|e| (e.outcome.as_str(), e.error.as_deref().unwrap())).collect();
    assert_eq!(reported[0], ("http_4xx", "status 403 is not below 400"));
    assert_eq!(reported[3], ("check", "a value it needs was not captured"));
    assert_eq!(examples[0].request_head, "POST /login HTTP/1.1\r\nHost: sim\r\nContent-Length: 3\r\n\r\n");
}

#[test]
fn a_capture_that_finds_nothing_fails_its_step_and_ends_the_round() {
    let mut journey = shopping(2);
    let price = Capture { from: CaptureSource::Json(Pointer::parse("/price").unwrap()), is_number: true };
    journey.own = 2;
    journey.scripts[1].captures = vec![(1, price)];
    let spec = spec(Model::Closed { users: 1 }, Until::Repeats(2), journey);
    let (outcome, shop, examples) = go(&spec, Shop { no_prices: true, ..Shop::default() });
    assert_eq!(seen(&shop), [("GET /item/ 200", 2), ("POST /login 200", 1), ("POST /logout 204", 1)]);
    assert_eq!(outcome.measured.counts.failures.get(Failure::Check), 2);
    assert_eq!(examples[0].error.as_deref(), Some("there was nothing to capture"));
    assert_eq!(examples[0].response_body.as_deref(), Some("{\"id\": 1}"));
}

/// Answers after a second, all requests at the same time; refuses one user, and never answers another.
#[derive(Default)]
struct Crowded {
    /// What the two users sent.
    sent: BTreeMap<u64, String>,
}

impl Crowded {
    const REFUSED: u64 = 5_000;
    const UNHEARD: u64 = 5_500;
}

impl Server for Crowded {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let user = text.split('/').nth(1).unwrap().parse().unwrap();
        let answer = |bytes: &[u8]| (at_ns + S, Reply::Bytes(bytes.into()));
        match user {
            Self::UNHEARD => {
                self.sent.insert(user, text);
                vec![]
            }
            Self::REFUSED => {
                self.sent.insert(user, text);
                vec![answer(b"HTTP/1.1 500 Status\r\nContent-"), answer(b"Length: 2\r\n\r\nno")]
            }
            _ => vec![answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
        }
    }
}

#[test]
fn examples_show_what_was_sent_however_many_requests_are_in_flight() {
    let post = step("POST /{u}/{n} HTTP/1.1\r\nX-Id: {x}", Some("row {a}, id {x}"));
    let journey = Journey {
        step_order: StepOrder { before: 0, round: 1, after: 0, weights: vec![], rounds: 1 },
        scripts: vec![post],
        own: 0,
        feeds: vec![Rows::from_csv(b"name\n1\n2\n3\n4\n5\n6\n7\n", &["name".to_owned()]).unwrap()],
        dealings: vec![Deal { dealing: Dealing::default(), per_user: false }],
        ..shopping(1)
    };
    let spec =
        LoadSpec { timeout_ns: 2 * S, ..spec(Model::Closed { users: 6_000 }, Until::Repeats(1), journey) };
    let mut sim = Sim::new(Crowded::default());
    let mut examples = Vec::new();
    let outcome = simulate(&spec, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Example(example) = event {
            examples.push(*example);
        }
    })
    .unwrap();
    let counts = &outcome.measured.counts;
    assert_eq!((counts.started, counts.ok, counts.failed()), (6_000, 5_998, 2));
    let server = sim.into_server();
    for (user, outcome) in [(Crowded::REFUSED, "http_5xx"), (Crowded::UNHEARD, "timeout")] {
        let example = examples.iter().find(|e| e.outcome == outcome).unwrap();
        assert_eq!(example.user, Some(user));
        let sent = &server.sent[&user];
        let (head, body) = sent.split_once("\r\n\r\n").unwrap();
        assert_eq!(example.request_head, format!("{head}\r\n\r\n"));
        assert!(head.contains("\r\nX-Id: ") && body.starts_with("row "), "{sent}");
    }
}

#[test]
fn a_load_without_responses_lasts_until_its_last_timeout() {
    let journey = Journey {
        step_order: StepOrder { before: 0, round: 1, after: 0, weights: vec![], rounds: 1 },
        scripts: vec![step("GET /5500/{u} HTTP/1.1", None)],
        own: 0,
        feeds: vec![],
        dealings: vec![],
        ..shopping(1)
    };
    let spec = LoadSpec { timeout_ns: 2 * S, ..spec(Model::Closed { users: 3 }, Until::Repeats(1), journey) };
    let outcome =
        simulate(&spec, &Control::default(), &mut Sim::new(Crowded::default()), &mut |_| {}).unwrap();
    let (counts, window) = (&outcome.measured.counts, outcome.measured.window);
    assert_eq!((counts.ok, counts.failures.get(Failure::Timeout)), (0, 3));
    assert_eq!((window.from_s, window.to_s), (0.0, outcome.measured.elapsed_s));
    assert!((2.0..2.1).contains(&window.to_s), "{window:?}");
}

#[test]
fn a_feed_that_runs_out_lets_users_leave() {
    let mut journey = shopping(u64::MAX);
    journey.dealings[1].dealing.is_once = true;
    let spec = spec(Model::Closed { users: 2 }, Until::Repeats(100), journey);
    let (outcome, shop, _) = go(&spec, Shop::default());
    let expect =
        [("GET /item/ 200", 5), ("POST /buy 201", 5), ("POST /login 200", 2), ("POST /logout 204", 2)];
    assert_eq!(seen(&shop), expect);
    assert_eq!((outcome.measured.counts.failed(), outcome.measured.counts.dropped), (0, 0));
    assert_eq!(outcome.measured.connections.users_without_row, 2);
}

#[test]
fn failed_checks_go_on_or_end_the_round() {
    for (on_failure, bought) in [(Advance::On, 6), (Advance::EndRound, 0)] {
        let mut journey = shopping(3);
        journey.scripts[1].checks.contains = vec![Text::new(b"nowhere")];
        journey.scripts[1].on_failure = on_failure;
        let spec = spec(Model::Closed { users: 2 }, Until::Repeats(3), journey);
        let (outcome, shop, examples) = go(&spec, Shop::default());
        assert_eq!(outcome.measured.counts.failures.get(Failure::Check), 6);
        assert_eq!(shop.seen.get("POST /buy 201").copied().unwrap_or(0), bought);
        assert_eq!(examples[0].error.as_deref(), Some("the body does not contain `nowhere`"));
    }
}

#[test]
fn a_rate_of_requests_takes_them_by_weight_with_a_row_each() {
    let mut journey = shopping(u64::MAX);
    journey.scripts = vec![step("GET /a/{b} HTTP/1.1", None), step("GET /b/{n} HTTP/1.1", None)];
    journey.step_order = StepOrder { before: 0, round: 2, after: 0, weights: vec![1, 4], rounds: u64::MAX };
    let model = Model::Open {
        rate_per_s: 1000.0,
        arrivals: Arrivals::Constant,
        when_behind: WhenBehind::Queue,
        max_in_flight: 100,
    };
    let (outcome, shop, _) = go(&spec(model, Until::Elapsed(10 * S), journey), Shop::default());
    assert_eq!(outcome.measured.counts.failures.get(Failure::Http4xx), 10_000);
    let a = shop.seen["GET /a/ 401"];
    assert_eq!(a + shop.seen["GET /b/ 401"], 10_000);
    assert!((2_300..2_700).contains(&a), "a quarter: {a}");
    let mut numbers: Vec<&str> = shop.paths.iter().filter_map(|p| p.strip_prefix("/b/")).collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all, "no sequence number comes twice");
}

fn arrivals(rate_per_s: f64, max_in_flight: u64, when_behind: WhenBehind) -> Model {
    Model::Open { rate_per_s, arrivals: Arrivals::Constant, when_behind, max_in_flight }
}

#[test]
fn users_arrive_make_their_journey_and_leave() {
    let mut journey = shopping(2);
    journey.sessions = true;
    journey.scripts[1].think = Some(Think::Constant(500 * MS));
    let names: String = (0..30).map(|i| format!("u{i}\n")).collect();
    journey.feeds[0] = Rows::from_csv(format!("name\n{names}").as_bytes(), &["name".to_owned()]).unwrap();
    let spec = spec(arrivals(10.0, 1000, WhenBehind::Queue), Until::Elapsed(3 * S), journey);
    let (outcome, shop, _) = go(&spec, Shop::default());
    // 30 arrivals; sessions that begin in the last second finish within the grace period.
    let expect =
        [("GET /item/ 200", 60), ("POST /buy 201", 60), ("POST /login 200", 30), ("POST /logout 204", 30)];
    assert_eq!(seen(&shop), expect);
    let measured = &outcome.measured;
    assert_eq!((measured.counts.ok, measured.counts.dropped), (180, 0));
    assert_eq!(measured.connections.opened, 30, "each has a connection of its own");
    // Six steps of 10 ms and two pauses of 500 ms: a session lasts 1.06 s, so eleven are present at a time.
    assert_eq!(measured.connections.peak, 11);
    assert_eq!(measured.elapsed_s, 2.9 + 1.06);
    assert_eq!(measured.series.late.max_ns(), Some(0));
}

#[test]
fn users_that_find_no_free_slot_wait_or_are_dropped() {
    for (when_behind, dropped) in [(WhenBehind::Queue, 0), (WhenBehind::Drop, 15)] {
        let mut journey = shopping(1);
        journey.sessions = true;
        // Room for one session; a session of four steps takes 40 ms, and one arrives every 20 ms.
        let spec = spec(arrivals(50.0, 1, when_behind), Until::Requests(30), journey);
        let (outcome, shop, _) = go(&spec, Shop::default());
        let counts = &outcome.measured.counts;
        assert_eq!((counts.dropped, counts.ok), (dropped, (30 - dropped) * 4), "{:?}", seen(&shop));
        assert_eq!(outcome.measured.connections.peak, 1);
    }
}

/// Sets a cookie on the first visit, then echoes the cookies it received in a compressed page.
struct Baker;

impl Server for Baker {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        let text = std::str::from_utf8(bytes).unwrap();
        let cookie = text.split("Cookie: ").nth(1).map_or("none", |c| c.split("\r\n").next().unwrap());
        let page = format!("{{\"cookie\": \"{cookie}\", \"padding\": \"{}\"}}", "x".repeat(500));
        let mut packed = Vec::new();
        let mut encoder = flate2::read::GzEncoder::new(page.as_bytes(), flate2::Compression::best());
        std::io::Read::read_to_end(&mut encoder, &mut packed).unwrap();
        let set = if cookie == "none" { "Set-Cookie: id=42; Path=/; HttpOnly\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 200 OK\r\n{set}Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            packed.len()
        );
        vec![(at_ns + MS, Reply::Bytes([head.into_bytes(), packed].concat()))]
    }
}

#[test]
fn cookies_are_sent_back_and_compressed_pages_are_decoded() {
    let mut journey = shopping(3);
    journey.cookies = true;
    let page = step("GET / HTTP/1.1", None);
    let size = |value| vec![Bound { operator: Operator::AtLeast, value }];
    let first = Script {
        checks: Checks { contains: vec![Text::new(b"\"none\"")], ..Checks::default() },
        ..page.clone()
    };
    let later = Script {
        checks: Checks { contains: vec![Text::new(b"\"id=42\"")], size: size(500.0), ..Checks::default() },
        ..page
    };
    journey.step_order = StepOrder { before: 1, round: 1, after: 0, weights: vec![], rounds: 3 };
    journey.scripts = vec![first, later];
    let spec = spec(Model::Closed { users: 3 }, Until::Repeats(3), journey);
    let outcome = simulate(&spec, &Control::default(), &mut Sim::new(Baker), &mut |_| {}).unwrap();
    let counts = &outcome.measured.counts;
    assert_eq!((counts.ok, counts.failed()), (12, 0));
    assert!(outcome.measured.bytes.received < 12 * 300, "bytes are those of the wire");
}

/// Records each id posted to `/ID`; refuses every fifth, and never answers the one after it.
#[derive(Default)]
struct Store(Vec<u64>);

impl Server for Store {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        let text = std::str::from_utf8(bytes).unwrap();
        let Some(id) =
            text.strip_prefix("POST /").map(|t| t.split(' ').next().unwrap().parse::<u64>().unwrap())
        else {
            return vec![(at_ns + MS, Reply::Bytes("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into()))];
        };
        self.0.push(id);
        let status = if id % 5 == 0 { "503 No" } else { "201 Created" };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        if id % 5 == 1 { Vec::new() } else { vec![(at_ns + MS, Reply::Bytes(answer.into_bytes()))] }
    }
}

#[test]
fn every_id_that_was_sent_is_reported_once_by_its_outcome() {
    let mut journey = shopping(20);
    // Only requests with an id consume one.
    journey.step_order = StepOrder { before: 0, round: 2, after: 0, weights: vec![], rounds: 20 };
    journey.scripts = vec![step("POST /{x} HTTP/1.1", Some("")), step("GET / HTTP/1.1", None)];
    let mut spec = spec(Model::Closed { users: 3 }, Until::Repeats(20), journey);
    spec.timeout_ns = 50 * MS;
    let (reported, outcome, store) = reported_by(&spec, Store::default());
    let all = |rest: fn(u64) -> bool| (0..60).filter(|id| rest(id % 5)).collect::<Vec<u64>>();
    assert_eq!(reported, [all(|r| r > 1), all(|r| r == 1), all(|r| r == 0)]);
    assert_eq!(outcome.measured.counts.started, 120);
    let mut seen = store.0;
    seen.sort_unstable();
    assert_eq!(seen, (0..60).collect::<Vec<u64>>());
}

/// Runs a load and returns the ids that were accepted, unanswered and refused, each in order, and the other results.
fn reported_by<S: Server>(spec: &LoadSpec, server: S) -> ([Vec<u64>; 3], LoadResult, S) {
    let mut reported: [Vec<u64>; 3] = Default::default();
    let mut sim = Sim::new(server);
    let outcome = simulate(spec, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Second(second) = event {
            reported[0].extend(&second.ids.accepted);
            reported[1].extend(&second.ids.unanswered);
            reported[2].extend(&second.ids.refused);
        }
    })
    .unwrap();
    outcome.measured.counts.balance().unwrap();
    reported.iter_mut().for_each(|ids| ids.sort_unstable());
    (reported, outcome, sim.into_server())
}

/// Takes orders. Every third one at `/door` is accepted on the spot (303 to a page); the others are redirected with
/// their body to `/desk`, some by way of `/hall`. An order that reaches the desk is kept, refused (503) or never
/// answered.
#[derive(Default)]
struct Depot {
    /// By id: the bodies received, in order.
    came: BTreeMap<u64, Vec<String>>,
    accepted: Vec<u64>,
    unanswered: Vec<u64>,
    refused: Vec<u64>,
    /// Page requests without an order.
    pages: u64,
}

impl Server for Depot {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        let text = std::str::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let answer = |status: &str, to: &str| {
            let text = format!("HTTP/1.1 {status}\r\n{to}Content-Length: 0\r\n\r\n");
            vec![(at_ns + MS, Reply::Bytes(text.into_bytes()))]
        };
        if method == "GET" {
            assert!(body.is_empty(), "{text}");
            self.pages += 1;
            return if path == "/page" {
                answer("307 Here", "Location: /page2\r\n")
            } else {
                answer("200 OK", "")
            };
        }
        let id: u64 = body.split(' ').next().unwrap().parse().unwrap();
        self.came.entry(id).or_default().push(body.to_owned());
        match (path, id % 3) {
            ("/door", 0) => {
                self.accepted.push(id);
                answer("303 Taken", "Location: /page\r\n")
            }
            ("/door", 1) => answer("308 There", "Location: /hall\r\n"),
            ("/door" | "/hall", _) => answer("307 There", "Location: /desk\r\n"),
            _ if id.is_multiple_of(5) => {
                self.refused.push(id);
                answer("503 No", "")
            }
            _ if id % 5 == 1 => {
                self.unanswered.push(id);
                Vec::new()
            }
            _ => {
                self.accepted.push(id);
                answer("201 BufferedResponse", "")
            }
        }
    }
}

impl Depot {
    /// Checks that the server's records agree with the report, and that everything received more than once was
    /// identical.
    fn agrees(mut self, reported: &[Vec<u64>; 3], what: &str) -> Depot {
        for ids in [&mut self.accepted, &mut self.unanswered, &mut self.refused] {
            ids.sort_unstable();
        }
        assert_eq!(
            [&self.accepted, &self.unanswered, &self.refused],
            [&reported[0], &reported[1], &reported[2]],
            "{what}"
        );
        for (id, texts) in &self.came {
            assert!(texts.iter().all(|text| *text == texts[0]), "{what}: {id}: {texts:?}");
        }
        self
    }
}

/// Orders with an id, a number, a time and a random part.
fn orders(rounds: u64) -> Journey {
    let mut journey = shopping(rounds);
    journey.step_order = StepOrder { before: 0, round: 1, after: 0, weights: vec![], rounds };
    let mut body = template("{x} {n} ");
    body.push(Variable::Uuid, Escape::Raw);
    body.push(Variable::Now(Unit::Nanos), Escape::Raw);
    let mut order = step("POST /door HTTP/1.1", Some(""));
    order.message.as_mut().unwrap().body = Some(body);
    journey.scripts = vec![Script { redirects: 3, has_id: true, ..order }];
    journey
}

#[test]
fn a_redirected_order_is_one_order() {
    let users = (Model::Closed { users: 4 }, Until::Repeats(30));
    let rate = (arrivals(40.0, 100, WhenBehind::Queue), Until::Requests(120));
    for (what, (model, until)) in [("users", users), ("rate", rate)] {
        let mut plain = spec(model, until, orders(30));
        plain.timeout_ns = 50 * MS;
        let streams = over_http2(plain.clone(), 2, &[vec![]]);
        let (reported, outcome, depot) = reported_by(&plain, Depot::default());
        let depot = depot.agrees(&reported, what);
        // 120 orders: 40 followed by two pages, 40 by way of the hall, 40 straight to the desk.
        assert_eq!((depot.came.len(), depot.pages), (120, 80), "{what}");
        assert_eq!(outcome.measured.counts.started, 40 * 3 + 40 * 3 + 40 * 2, "{what}");
        assert!(reported.iter().all(|ids| ids.len() > 10), "{what}: {reported:?}");
        let (reported, _, over) = reported_by(&streams, Over::new(Depot::default(), None));
        let depot = over.inner.agrees(&reported, &format!("{what} over HTTP/2"));
        assert_eq!((depot.came.len(), depot.pages), (120, 80), "{what} over HTTP/2");
    }
}

#[test]
fn a_redirect_that_time_cuts_off_is_an_order_refused() {
    for end_ms in 20..40 {
        let (reported, _, depot) = reported_by(
            &spec(Model::Closed { users: 7 }, Until::Elapsed(end_ms * MS), orders(1000)),
            Depot::default(),
        );
        let all: usize = reported.iter().map(Vec::len).sum();
        assert_eq!(all, depot.came.len(), "{end_ms} ms: {reported:?}");
        let mut accepted = depot.accepted;
        accepted.sort_unstable();
        assert_eq!(reported[0], accepted, "{end_ms} ms");
    }
}

/// Closes the connection just before every sixth request arrives.
#[derive(Default)]
struct Closing(Vec<String>);

impl Server for Closing {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        self.0.push(String::from_utf8(bytes.to_vec()).unwrap());
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into();
        let is_closed = self.0.len().is_multiple_of(6);
        vec![(at_ns + MS, if is_closed { Reply::Fin } else { Reply::Bytes(answer) })]
    }

    fn saw(&self, _: ConnId) -> bool {
        !self.0.len().is_multiple_of(6)
    }
}

#[test]
fn what_is_sent_again_is_the_same_request() {
    let mut journey = orders(20);
    let mut ask = step("GET /{x}/{n} HTTP/1.1", None);
    ask.message.as_mut().unwrap().fields.push(Variable::Uuid, Escape::Raw);
    ask.message.as_mut().unwrap().fields.push_text(b": x\r\n", Escape::Raw).unwrap();
    journey.scripts = vec![ask];
    let (reported, outcome, asked) =
        reported_by(&spec(Model::Closed { users: 1 }, Until::Repeats(20), journey), Closing::default());
    assert_eq!((reported, outcome.measured.counts.failed()), ([(0..20).collect(), vec![], vec![]], 0));
    let again: Vec<_> = asked.0.windows(2).filter(|w| w[0] == w[1]).collect();
    let mut once = asked.0.clone();
    once.dedup();
    assert_eq!((asked.0.len(), again.len(), once.len()), (23, 3, 20), "{:?}", asked.0);

    for refused in [1, 6, 17] {
        let users = spec(Model::Closed { users: 1 }, Until::Repeats(9), orders(9));
        let mut load = over_http2(users, 1, &[vec![]]);
        load.timeout_ns = 50 * MS;
        let (reported, outcome, over) =
            reported_by(&load, Over::new(Depot::default(), Some(Whim::Refuse(refused))));
        assert_eq!(outcome.measured.connections.requests_resent, 1, "stream {refused} refused");
        let depot = over.inner.agrees(&reported, &format!("stream {refused} refused"));
        assert_eq!(depot.came.keys().copied().collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
    }
}

/// `/N` redirects to `/N-1`, `/0` answers; `/away` redirects to an unknown host, `/other` to the second host.
#[derive(Default)]
struct Signpost(Vec<String>);

impl Server for Signpost {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        let text = std::str::from_utf8(bytes).unwrap();
        let line = text.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
        let path = line.split(' ').nth(1).unwrap();
        let answer = match path.trim_start_matches('/') {
            "away" => "HTTP/1.1 302 F\r\nLocation: http://stranger/\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "other" => "HTTP/1.1 307 T\r\nLocation: http://second/0\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "0" => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(),
            n => {
                let n: u32 = n.parse().unwrap();
                format!("HTTP/1.1 303 S\r\nLocation: /{}\r\nContent-Length: 0\r\n\r\n", n - 1)
            }
        };
        let host = text.split("Host: ").nth(1).unwrap().lines().next().unwrap();
        self.0.push(format!("{line} {host} {}", text.split("\r\n\r\n").nth(1).unwrap()));
        vec![(at_ns + MS, Reply::Bytes(answer.into_bytes()))]
    }
}

/// A user that leaves follows the redirect of its last step, too, and then is gone.
#[test]
fn a_final_step_that_is_redirected_ends() {
    let mut journey = shopping(1);
    journey.step_order = StepOrder { before: 0, round: 1, after: 1, weights: vec![], rounds: u64::MAX };
    let checks = Checks { statuses: vec![200], ..Checks::default() };
    let logout = Script { redirects: 3, checks, ..step("POST /2 HTTP/1.1", Some("x")) };
    journey.scripts = vec![step("GET /0 HTTP/1.1", None), logout];
    let spec = spec(Model::Closed { users: 2 }, Until::Elapsed(5 * MS), journey);
    let mut sim = Sim::new(Signpost::default());
    let outcome = simulate(&spec, &Control::default(), &mut sim, &mut |_| {}).unwrap();
    outcome.measured.counts.balance().unwrap();
    let asked = sim.into_server().0;
    let count = |line: &str| asked.iter().filter(|asked| asked.trim_end() == line).count();
    assert_eq!((count("POST /2 sim x"), count("GET /1 sim")), (2, 2), "{asked:?}");
    assert_eq!(outcome.measured.counts.in_flight, 0);
}

#[test]
fn redirects_are_followed_as_far_as_asked_and_each_hop_counts() {
    let run = |path: &str, most: u8| {
        let mut journey = shopping(1);
        journey.step_order = StepOrder { before: 0, round: 1, after: 0, weights: vec![], rounds: 1 };
        let start = step(&format!("POST {path} HTTP/1.1"), Some("x"));
        let checks = Checks { statuses: vec![200], ..Checks::default() };
        journey.scripts = vec![Script { redirects: most, checks, ..start }];
        journey.sites.push(Site {
            authority: "second".into(),
            host: "second".into(),
            is_secure: false,
            by_proxy: None,
        });
        let mut spec = spec(Model::Closed { users: 1 }, Until::Repeats(1), journey);
        spec.hosts.push(vec!["127.0.0.2:80".parse().unwrap()]);
        let mut sim = Sim::new(Signpost::default());
        let mut why = None;
        let outcome = simulate(&spec, &Control::default(), &mut sim, &mut |event| {
            if let LoadEvent::Example(example) = event {
                why = example.error;
            }
        });
        let measured = outcome.unwrap().measured;
        (sim.into_server().0, measured.counts.ok, measured.counts.failed(), measured.connections.opened, why)
    };
    let (asked, ok, failed, opened, _) = run("/2", 2);
    assert_eq!(asked, ["POST /2 sim x", "GET /1 sim ", "GET /0 sim "]);
    assert_eq!((ok, failed, opened), (3, 0, 1));
    let (asked, ok, failed, _, why) = run("/3", 2);
    assert_eq!((asked.len(), ok, failed), (3, 2, 1));
    assert_eq!(why.as_deref(), Some("it was redirected more often than the plan allows"));
    let (asked, ok, failed, opened, _) = run("/other", 1);
    assert_eq!(asked, ["POST /other sim x", "POST /0 second x"]);
    assert_eq!((ok, failed, opened), (2, 0, 2));
    let (_, ok, failed, _, why) = run("/away", 5);
    assert_eq!((ok, failed), (0, 1));
    assert_eq!(why.as_deref(), Some("it is redirected to a host that no step of the load uses"));
    let (_, _, failed, _, why) = run("/2", 0);
    assert_eq!((failed, why.as_deref()), (1, Some("status 303 is not 200")));
}

/// Redirects as the path specifies, `/303/…` with status 303: to the second host if `second` comes next, otherwise to
/// the first. Records each request, including header fields that carry credentials or describe a body.
#[derive(Default)]
struct Leader(Vec<String>);

impl Server for Leader {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        let text = std::str::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let line = lines.next().unwrap().trim_end_matches(" HTTP/1.1");
        let mut fields: Vec<String> = lines.map(str::to_ascii_lowercase).collect();
        fields.sort();
        self.0.push(format!("{line} {} {body}", fields.join(", ")));
        let path = line.split(' ').nth(1).unwrap().trim_start_matches('/');
        let answer = match path.split_once('/') {
            None => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(),
            Some((status, rest)) => {
                let (host, rest) = match rest.split_once('/') {
                    Some(("second", rest)) => ("second", rest),
                    _ => ("sim", rest),
                };
                format!("HTTP/1.1 {status} R\r\nLocation: http://{host}/{rest}\r\nContent-Length: 0\r\n\r\n")
            }
        };
        vec![(at_ns + MS, Reply::Bytes(answer.into_bytes()))]
    }
}

/// The last request of a step that is redirected as its path says: request line, fields and body.
fn asked_last(path: &str, over: bool) -> String {
    let mut journey = shopping(1);
    journey.step_order = StepOrder { before: 0, round: 1, after: 0, weights: vec![], rounds: 1 };
    let fields = "Content-Type: a/b\r\nCookie: c=1\r\nProxy-Authorization: p\r\nX-A: x\r\nAuthorization: {u}";
    let start = step(&format!("POST {path} HTTP/1.1\r\n{fields}"), Some("x"));
    journey.scripts = vec![Script { redirects: 9, ..start }];
    let (authority, host) = ("second".into(), "second".into());
    journey.sites.push(Site { authority, host, is_secure: false, by_proxy: None });
    let mut load = spec(Model::Closed { users: 1 }, Until::Repeats(1), journey);
    load.hosts.push(vec!["127.0.0.2:80".parse().unwrap()]);
    let control = Control::default();
    let (outcome, mut asked) = if over {
        let fixed = [("Content-Type", "a/b"), ("Cookie", "c=1"), ("Proxy-Authorization", "p"), ("X-A", "x")];
        let load = over_http2_with(load, 1, &fixed, &[vec![("Authorization", template("{u}"))]]);
        let mut sim = Sim::new(Over::new(Leader::default(), None));
        (simulate(&load, &control, &mut sim, &mut |_| {}), sim.into_server().inner.0)
    } else {
        let mut sim = Sim::new(Leader::default());
        (simulate(&load, &control, &mut sim, &mut |_| {}), sim.into_server().0)
    };
    assert_eq!(outcome.unwrap().measured.counts.failed(), 0, "{asked:?}");
    asked.pop().unwrap()
}

#[test]
fn credentials_go_to_no_other_origin_and_a_get_describes_no_body() {
    for over in [false, true] {
        let check = |path, expect: &str| assert_eq!(asked_last(path, over), expect, "{path} {over}");
        let (secrets, kind) = ("authorization: 0, ", "content-length: 1, content-type: a/b, ");
        let proxied = "proxy-authorization: p, ";
        check("/307/0", &format!("POST /0 {secrets}{kind}cookie: c=1, host: sim, {proxied}x-a: x x"));
        check("/303/0", &format!("GET /0 {secrets}cookie: c=1, host: sim, {proxied}x-a: x "));
        check("/302/0", &format!("GET /0 {secrets}cookie: c=1, host: sim, {proxied}x-a: x "));
        check("/307/second/0", &format!("POST /0 {kind}host: second, x-a: x x"));
        check("/303/second/0", "GET /0 host: second, x-a: x ");
        // Fields dropped on one redirect do not come back on return to the first host.
        check("/308/second/307/0", &format!("POST /0 {kind}host: sim, x-a: x x"));
        check("/301/307/0", &format!("GET /0 {secrets}cookie: c=1, host: sim, {proxied}x-a: x "));
    }
}

#[test]
fn a_journey_is_the_same_each_time() {
    let run = || {
        let mut journey = shopping(u64::MAX);
        journey.scripts[2].think = Some(Think::Exponential(30 * MS));
        journey.dealings[1].dealing = Dealing { is_shuffled: true, is_once: false, seed: 3 };
        let (outcome, shop, _) =
            go(&spec(Model::Closed { users: 7 }, Until::Elapsed(3 * S), journey), Shop::default());
        (outcome.measured.counts, shop.paths)
    };
    assert_eq!(run(), run());
}

/// Login, two steps and logout over HTTP/2, with this many users per connection.
fn shopping_over_http2(model: Model, until: Until, journey: Journey, streams: u32) -> LoadSpec {
    let bearer = || vec![("Authorization", template("Bearer {c}"))];
    over_http2(spec(model, until, journey), streams, &[vec![], bearer(), bearer(), bearer()])
}

fn go_over<S: Server>(spec: &LoadSpec, server: Over<S>) -> (LoadResult, Over<S>, Vec<Example>) {
    let mut sim = Sim::new(server);
    let mut examples = Vec::new();
    let outcome = simulate(spec, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Example(example) = event {
            examples.push(*example);
        }
    })
    .unwrap();
    outcome.measured.counts.balance().unwrap();
    (outcome, sim.into_server(), examples)
}

#[test]
fn a_journey_over_http2_is_the_same_journey() {
    for (streams, connections) in [(1, 3), (2, 2), (3, 1), (100, 1)] {
        let spec = shopping_over_http2(Model::Closed { users: 3 }, Until::Repeats(4), shopping(4), streams);
        let (outcome, server, _) = go_over(&spec, Over::new(Shop::default(), None));
        let expect =
            [("GET /item/ 200", 12), ("POST /buy 201", 12), ("POST /login 200", 3), ("POST /logout 204", 3)];
        assert_eq!(seen(&server.inner), expect, "{streams} streams");
        assert_eq!((outcome.measured.counts.ok, outcome.measured.counts.started), (30, 30));
        assert_eq!(outcome.measured.connections.opened, connections);
        assert_eq!(server.inner.tokens.keys().collect::<Vec<_>>(), ["ann", "bob", "cyd"]);
        assert_eq!(outcome.captured, [Some(b"token-0".to_vec())]);
    }
}

#[test]
fn cookies_redirects_and_compressed_pages_over_http2() {
    let mut journey = shopping(3);
    journey.cookies = true;
    let page = step("GET / HTTP/1.1", None);
    let holds = |text: &[u8]| Checks { contains: vec![Text::new(text)], ..Checks::default() };
    journey.step_order = StepOrder { before: 1, round: 1, after: 0, weights: vec![], rounds: 3 };
    journey.scripts = vec![
        Script { checks: holds(b"\"none\""), ..page.clone() },
        Script { checks: holds(b"\"id=42\""), ..page },
    ];
    let load = over_http2(spec(Model::Closed { users: 3 }, Until::Repeats(3), journey), 3, &[vec![], vec![]]);
    let (outcome, _, examples) = go_over(&load, Over::new(Baker, None));
    assert_eq!((outcome.measured.counts.ok, outcome.measured.counts.failed()), (12, 0), "{examples:?}");

    let mut journey = shopping(1);
    journey.step_order = StepOrder { before: 0, round: 1, after: 0, weights: vec![], rounds: 1 };
    let start = |path: &str| step(&format!("POST {path} HTTP/1.1"), Some("x"));
    journey.scripts =
        vec![Script { redirects: 2, ..start("/2") }, Script { redirects: 1, ..start("/other") }];
    journey.step_order.round = 2;
    journey.sites.push(Site {
        authority: "second".into(),
        host: "second".into(),
        is_secure: false,
        by_proxy: None,
    });
    let mut load =
        over_http2(spec(Model::Closed { users: 2 }, Until::Repeats(1), journey), 2, &[vec![], vec![]]);
    load.hosts.push(vec!["127.0.0.2:80".parse().unwrap()]);
    let (outcome, server, examples) = go_over(&load, Over::new(Signpost::default(), None));
    let mut asked = server.inner.0;
    asked.sort();
    asked.dedup();
    let hops = ["GET /0 sim ", "GET /1 sim ", "POST /0 second x", "POST /2 sim x", "POST /other sim x"];
    assert_eq!(asked, hops);
    assert_eq!((outcome.measured.counts.ok, outcome.measured.counts.failed()), (10, 0), "{examples:?}");
    assert_eq!(outcome.measured.connections.opened, 2, "one to each host, for both users");
}

#[test]
fn sessions_over_http2_share_connections_or_close_their_own() {
    for (streams, opened) in [(1, 30), (10, 1)] {
        let mut journey = shopping(2);
        journey.sessions = true;
        let names: String = (0..30).map(|i| format!("u{i}\n")).collect();
        journey.feeds[0] = Rows::from_csv(format!("name\n{names}").as_bytes(), &["name".to_owned()]).unwrap();
        let spec = shopping_over_http2(
            arrivals(10.0, 1000, WhenBehind::Queue),
            Until::Elapsed(3 * S),
            journey,
            streams,
        );
        let (outcome, server, _) = go_over(&spec, Over::new(Shop::default(), None));
        let expect = [
            ("GET /item/ 200", 60),
            ("POST /buy 201", 60),
            ("POST /login 200", 30),
            ("POST /logout 204", 30),
        ];
        assert_eq!(seen(&server.inner), expect);
        assert_eq!((outcome.measured.counts.ok, outcome.measured.connections.opened), (180, opened));
    }
}

#[test]
fn goaway_and_refused_streams_during_a_journey_lose_nothing() {
    for whim in [Whim::Goodbye(1), Whim::Goodbye(7), Whim::Refuse(1), Whim::Refuse(8)] {
        let spec = shopping_over_http2(Model::Closed { users: 3 }, Until::Repeats(4), shopping(4), 3);
        let (outcome, server, examples) = go_over(&spec, Over::new(Shop::default(), Some(whim)));
        let expect =
            [("GET /item/ 200", 12), ("POST /buy 201", 12), ("POST /login 200", 3), ("POST /logout 204", 3)];
        assert_eq!(seen(&server.inner), expect, "{whim:?}");
        let counts = &outcome.measured.counts;
        assert_eq!((counts.started, counts.ok, counts.failed()), (30, 30, 0), "{whim:?} {examples:?}");
        let again = u64::from(matches!(whim, Whim::Goodbye(_)));
        assert_eq!((outcome.measured.connections.opened, server.goodbyes), (1 + again, again));
    }
}

#[test]
fn a_stream_that_is_reset_fails_its_step_alone() {
    let spec = shopping_over_http2(Model::Closed { users: 3 }, Until::Repeats(4), shopping(4), 3);
    // The eighth request is some user's second step or a later one: that user continues with the next step.
    let (outcome, server, examples) = go_over(&spec, Over::new(Shop::default(), Some(Whim::Reset(8))));
    let counts = &outcome.measured.counts;
    assert_eq!((counts.started, counts.ok, counts.failures.get(Failure::Reset)), (30, 29, 1));
    assert_eq!((server.requests, outcome.measured.connections.opened), (30, 1));
    assert_eq!(examples[0].error.as_deref(), Some("the server reset the stream"));
    assert!(examples[0].request_head.starts_with(":method "), "{}", examples[0].request_head);
}

#[test]
fn answers_that_are_cut_off_or_too_long_are_called_what_they_are() {
    for (whim, failure, opened) in
        [(Whim::CutOff(4), Failure::Truncated, 1), (Whim::LongHead(4), Failure::TooLarge, 2)]
    {
        let spec = shopping_over_http2(Model::Closed { users: 1 }, Until::Repeats(4), shopping(4), 1);
        let (outcome, server, _) = go_over(&spec, Over::new(Shop::default(), Some(whim)));
        let counts = &outcome.measured.counts;
        assert_eq!((counts.started, counts.ok, counts.failures.get(failure)), (10, 9, 1), "{whim:?}");
        assert_eq!((server.requests, outcome.measured.connections.opened), (10, opened), "{whim:?}");
    }
}

/// The others on its connection only lose that: no answer of theirs is too long.
#[test]
fn a_head_that_is_too_long_is_that_of_one_request() {
    let spec = shopping_over_http2(Model::Closed { users: 3 }, Until::Repeats(4), shopping(4), 3);
    let (outcome, _, _) = go_over(&spec, Over::new(Shop::default(), Some(Whim::LongHead(4))));
    let counts = &outcome.measured.counts;
    let of = |failure: Failure| counts.failures.get(failure);
    assert_eq!((counts.started, of(Failure::TooLarge), outcome.measured.connections.opened), (30, 1, 2));
    assert_eq!(of(Failure::TooLarge) + of(Failure::Protocol), counts.failed());
}

#[test]
fn a_body_waits_for_room_and_no_longer_than_the_timeout() {
    let run = |later: Option<u64>| {
        let mut spec = shopping_over_http2(Model::Closed { users: 3 }, Until::Repeats(2), shopping(2), 3);
        spec.timeout_ns = S;
        go_over(&spec, Over::new(Shop::default(), Some(Whim::Window(2, later))))
    };
    let (outcome, server, _) = run(Some(50 * MS));
    assert_eq!(server.inner.tokens.keys().collect::<Vec<_>>(), ["ann", "bob", "cyd"], "bodies came whole");
    assert_eq!((outcome.measured.counts.ok, outcome.measured.counts.failed()), (18, 0));
    let (outcome, server, examples) = run(None);
    // Logins were sent before the server announced its small window; purchases were not.
    let counts = &outcome.measured.counts;
    assert_eq!((counts.started, counts.ok, counts.failures.get(Failure::Timeout)), (18, 12, 6));
    assert_eq!((server.requests, outcome.measured.connections.opened), (12, 1));
    let reported = examples[0].error.as_deref();
    assert_eq!(
        reported,
        Some("no complete response within the timeout: the server left no window to send the whole request")
    );
}

#[test]
fn failed_exchanges_over_http2_show_their_heads() {
    let mut journey = shopping(1);
    journey.scripts[1].checks.contains = vec![Text::new(b"nowhere")];
    journey.remembered = vec![CapturedName { name: "token".into(), is_secret: true }];
    let spec = shopping_over_http2(Model::Closed { users: 1 }, Until::Repeats(1), journey, 1);
    let (_, _, examples) = go_over(&spec, Over::new(Shop::default(), None));
    let example = &examples[0];
    assert_eq!((example.user, example.step.as_deref()), (Some(0), Some("step 1")));
    assert_eq!(example.captured["token"], "***");
    assert_eq!(example.error.as_deref(), Some("the body does not contain `nowhere`"));
    assert_eq!(
        example.request_head,
        ":method GET\r\n:scheme http\r\n:authority sim\r\n:path /item/1\r\nauthorization: Bearer ***\r\n"
    );
    assert_eq!(example.status, Some(200));
    assert_eq!(example.response_head.as_deref(), Some(":status 200\r\ncontent-length: 42\r\n\r\n"));
    assert_eq!(example.response_body.as_deref(), Some("{\"id\": 1, \"price\": 9.5, \"path\": \"/item/1\"}"));
}

#[test]
fn what_is_captured_as_a_number_is_counted() {
    let price = || Capture { from: CaptureSource::Json(Pointer::parse("/price").unwrap()), is_number: true };
    let journey = || {
        let mut journey = shopping(5);
        journey.own = 2;
        journey.numbers = vec![(1, "price".into())];
        journey.scripts[1].captures = vec![(1, price())];
        journey
    };
    let closed = Model::Closed { users: 3 };
    let once = spec(closed.clone(), Until::Repeats(5), journey());
    let plain = go(&once, Shop::default()).0;
    let load = shopping_over_http2(closed, Until::Repeats(5), journey(), 4);
    let over = go_over(&load, Over::new(Shop::default(), None)).0;
    for outcome in [plain, over] {
        let price = &outcome.measured.numbers["price"];
        assert_eq!(
            (price.count(), price.min(), price.mean(), price.max()),
            (15, Some(9.5), Some(9.5), Some(9.5))
        );
    }
    // Each is in the second in which its answer came.
    let mut of_seconds = Numbers::default();
    let outcome = simulate(&once, &Control::default(), &mut Sim::new(Shop::default()), &mut |event| {
        if let LoadEvent::Second(second) = event {
            second.numbers.values().for_each(|numbers| of_seconds.merge(numbers));
        }
    });
    assert_eq!(of_seconds, outcome.unwrap().measured.numbers["price"]);
}

#[test]
fn examples_show_the_step_and_hide_credentials() {
    for over in [false, true] {
        let mut journey = shopping(1);
        let path = Capture { from: CaptureSource::Json(Pointer::parse("/path").unwrap()), is_number: false };
        journey.own = 2;
        journey.scripts[1].captures = vec![(1, path)];
        journey.scripts[2].checks.contains = vec![Text::new(b"nowhere")];
        let of = |name: &str, is_secret| CapturedName { name: name.into(), is_secret };
        journey.remembered = vec![of("token", true), of("item", false)];
        journey.sessions = true;
        // The path of a purchase contains the token.
        let buy = step(&format!("POST /buy?{{c}} HTTP/1.1\r\n{BEARER}"), Some("{c}"));
        journey.scripts[2].message = buy.message;
        let model = arrivals(10.0, 10, WhenBehind::Queue);
        let (outcome, examples) = if over {
            let load = shopping_over_http2(model, Until::Requests(2), journey, 1);
            let (outcome, _, examples) = go_over(&load, Over::new(Shop::default(), None));
            (outcome, examples)
        } else {
            let (outcome, _, examples) = go(&spec(model, Until::Requests(2), journey), Shop::default());
            (outcome, examples)
        };
        let shown: Vec<_> = examples.iter().map(|e| (e.user, e.step.as_deref().unwrap())).collect();
        assert_eq!(shown, [(Some(0), "step 2"), (Some(1), "step 2")]);
        assert_eq!((&*examples[0].captured["item"], &*examples[0].captured["token"]), ("/item/1", "***"));
        assert!(examples[0].request_head.contains("/buy?***"), "{}", examples[0].request_head);
        // Slow requests are reported at the end: the token originates from a login's answer.
        let login = outcome.slowest.iter().find(|e| e.step.as_deref() == Some("before 1")).unwrap();
        assert_eq!(login.response_body.as_deref(), Some("{\"token\": \"***\"}"));
        let all = format!("{examples:?}{:?}", outcome.slowest);
        assert!(!all.contains("token-"), "{all}");
    }
}

#[test]
fn a_login_that_failed_and_a_token_that_was_renewed_are_not_shown() {
    // The answer contains the token, but the check fails.
    let mut journey = shopping(1);
    journey.scripts[0].checks.contains = vec![Text::new(b"nowhere")];
    journey.remembered = vec![CapturedName { name: "token".into(), is_secret: true }];
    let (_, _, examples) = go(&spec(Model::Closed { users: 1 }, Until::Repeats(1), journey), Shop::default());
    assert_eq!(examples[0].step.as_deref(), Some("before 1"));
    assert!(examples[0].response_body.as_ref().is_some_and(|b| b.contains("\"***\"")), "{examples:?}");
    // The first token is sent in a request whose answer replaces it with another value.
    let mut journey = shopping(1);
    let price = Capture { from: CaptureSource::Json(Pointer::parse("/price").unwrap()), is_number: false };
    journey.scripts[1].captures = vec![(0, price)];
    journey.scripts[1].message = step(&format!("GET /item/{{c}} HTTP/1.1\r\n{BEARER}"), None).message;
    journey.scripts[1].checks.contains = vec![];
    journey.remembered = vec![CapturedName { name: "token".into(), is_secret: true }];
    let (outcome, _, examples) =
        go(&spec(Model::Closed { users: 1 }, Until::Repeats(1), journey), Shop::default());
    let all = format!("{examples:?}{:?}", outcome.slowest);
    assert!(all.contains("GET /item/***") && !all.contains("token-"), "{all}");
}

/// Refuses everyone with a page that contains a token, and sends only the first `most` bytes of the page.
struct Gate {
    is_packed: bool,
    most: usize,
}

impl Gate {
    const TOKEN: &str = "tk-Zx81Qw7Lm2Rp";

    /// The page, split into the part that arrives and the part that does not.
    fn page(&self) -> (Vec<u8>, Vec<u8>) {
        let text = format!("{{\"note\": \"not today\", \"token\": \"{}\", \"more\": \"then\"}}", Gate::TOKEN);
        let mut page = text.into_bytes();
        if self.is_packed {
            // Stored rather than compressed, so that a prefix contains its text literally.
            let mut encoder = flate2::read::GzEncoder::new(page.as_slice(), flate2::Compression::none());
            let mut packed = Vec::new();
            std::io::Read::read_to_end(&mut encoder, &mut packed).unwrap();
            page = packed;
        }
        let rest = page.split_off(self.most.min(page.len()));
        (page, rest)
    }
}

impl Server for Gate {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        let (page, rest) = self.page();
        let encoding = if self.is_packed { "Content-Encoding: gzip\r\n" } else { "" };
        let length = page.len() + rest.len();
        let head = format!("HTTP/1.1 403 No\r\n{encoding}Content-Length: {length}\r\n\r\n");
        let mut replies = vec![(at_ns + MS, Reply::Bytes([head.into_bytes(), page].concat()))];
        if !rest.is_empty() {
            replies.push((at_ns + 2 * MS, Reply::Fin));
        }
        replies
    }
}

#[test]
fn a_login_that_is_refused_shows_no_token_however_it_comes() {
    for is_packed in [false, true] {
        let length = Gate { is_packed, most: usize::MAX }.page().0.len();
        for most in 1..=length {
            let gate = || Gate { is_packed, most };
            let shows_token = gate().page().0.windows(4).any(|w| w == &Gate::TOKEN.as_bytes()[..4]);
            let mut journey = shopping(1);
            journey.step_order = StepOrder { before: 0, round: 1, after: 0, weights: vec![], rounds: 1 };
            journey.remembered = vec![CapturedName { name: "token".into(), is_secret: true }];
            let spec = spec(Model::Closed { users: 1 }, Until::Repeats(1), journey);
            let mut examples: Vec<Example> = Vec::new();
            let mut hear = |event: LoadEvent| {
                if let LoadEvent::Example(example) = event {
                    examples.push(*example);
                }
            };
            let outcome = simulate(&spec, &Control::default(), &mut Sim::new(gate()), &mut hear).unwrap();
            let all = format!("{examples:?}{:?}", outcome.slowest);
            assert_eq!((examples.len(), outcome.measured.counts.failed()), (1, 1), "{all}");
            assert!(!all.contains(&Gate::TOKEN[..4]), "{is_packed} {most} of {length}: {all}");
            let body = examples[0].response_body.as_deref().unwrap_or_default();
            if most == length {
                assert!(
                    body.ends_with("{\"note\": \"not today\", \"token\": \"***\", \"more\": \"then\"}"),
                    "{body}"
                );
            } else if shows_token {
                assert!(body.contains("***") || body.starts_with("[not shown"), "{most} of {length}: {body}");
            }
        }
    }
}

#[test]
fn given_secrets_appear_in_no_example() {
    let mut load = spec(Model::Closed { users: 1 }, Until::Requests(2), shopping(1));
    load.journey = None;
    let path = "/login?key=abc%2Fdef-123".to_owned();
    let parts = RequestParts { method: "GET".into(), host: "sim".into(), path, ..RequestParts::default() };
    load.requests = vec![parts.build().unwrap()];
    load.secrets.add(b"abc/def-123").unwrap();
    let (outcome, _, examples) = go(&load, Shop::default());
    assert_eq!(examples[0].request, "GET /login?key=***");
    assert!(examples[0].request_head.starts_with("GET /login?key=*** HTTP/1.1\r\n"), "{examples:?}");
    assert!(!format!("{examples:?}{:?}", outcome.slowest).contains("def-123"));
}

#[test]
fn failures_without_a_journey_show_their_heads_too() {
    let mut load = spec(Model::Closed { users: 2 }, Until::Requests(4), shopping(1));
    load.journey = None;
    load.requests.truncate(1);
    let headers = [("Accept".to_owned(), "*/*".to_owned())];
    let parts = HeadParts { method: "GET", scheme: "http", authority: "sim", path: "/", headers: &headers };
    let heads = vec![Heads::default().add(&parts).unwrap()];
    load.http2 = Some(Http2 { heads, written: vec![], streams: 2 });
    let (outcome, _, examples) = go_over(&load, Over::new(Shop::default(), None));
    assert_eq!(outcome.measured.counts.failures.get(Failure::Http4xx), 4);
    assert_eq!(examples.len(), 4);
    for example in examples {
        assert_eq!(
            example.request_head,
            ":method GET\r\n:scheme http\r\n:authority sim\r\n:path /\r\naccept: */*\r\n"
        );
        assert_eq!(example.status, Some(401));
        assert_eq!(example.response_head.as_deref(), Some(":status 401\r\ncontent-length: 2\r\n\r\n"));
        assert_eq!((example.response_body.as_deref(), example.step), (Some("{}"), None));
    }
}

#[test]
fn checks_compare_with_the_users_own_values() {
    for (expected, good) in [("/item/{b}", true), ("/item/{c}", false)] {
        let mut journey = shopping(4);
        let place = JsonCheck {
            shown: "/path".into(),
            pointer: Pointer::parse("/path").unwrap(),
            expect: Expect::Same(vec![]),
        };
        let price = JsonCheck {
            shown: "/price".into(),
            pointer: Pointer::parse("/price").unwrap(),
            expect: Expect::Same(vec![]),
        };
        let item = &mut journey.scripts[1];
        item.checks = Checks { json: vec![place, price], holds: vec![vec![]], ..Checks::default() };
        item.expected = vec![
            (Expected::Json(0), template(expected)),
            // A number, compared as text.
            (Expected::Json(1), template("9.5")),
            (Expected::Holds(0), template("item/{b}")),
        ];
        let spec = spec(Model::Closed { users: 3 }, Until::Repeats(4), journey);
        let (outcome, _, examples) = go(&spec, Shop::default());
        let failed = if good { 0 } else { 12 };
        assert_eq!(outcome.measured.counts.failures.get(Failure::Check), failed, "{examples:?}");
        if let Some(example) = examples.first() {
            assert_eq!(example.error.as_deref(), Some("JSON `/path` is not `/item/token-0`: \"/item/1\""));
        }
    }
}
