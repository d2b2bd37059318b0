//! WebSocket conversations in simulated time, against a scripted server.

use std::collections::BTreeMap;

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::journey::capture::{Capture, CaptureSlots, CaptureSource};
use loadlab_load::journey::json::Pointer;
use loadlab_load::journey::order::{Advance, StepOrder};
use loadlab_load::journey::redirect::Site;
use loadlab_load::journey::script::{ConversationAction, Journey, Script};
use loadlab_load::protocol::websocket::MessageType;
use loadlab_load::run::simulate;
use loadlab_load::spec::request::RequestParts;
use loadlab_load::{Arrivals, Control, IoChoice, LoadEvent, LoadResult, LoadSpec, Model, Until, WhenBehind};
use loadlab_record::Failure;
use loadlab_record::counts::example::Example;
use proptest::prelude::*;

use crate::chat;
use crate::support;
use crate::support::conversations::{
    WAIT, accept_of, ask, conversation, listen, open, open_at, part, pause, say, strict, within,
};
use crate::support::steps::template;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// The server's replies to a message, each with its delay. `{}` is replaced by the message.
type Answers = Vec<(u64, Does)>;

#[derive(Clone, Debug)]
enum Does {
    /// A frame: its first byte and its payload.
    Frame(u8, &'static str),
    Raw(Vec<u8>),
    Fin,
    Reset,
}

fn text(text: &'static str) -> Does {
    Does::Frame(0x81, text)
}

#[derive(Default)]
struct Chat {
    /// Status sent instead of 101.
    status: u16,
    /// Sent before the answer to the opening.
    interim: &'static str,
    /// Accept key sent instead of the correct one.
    accept: Option<&'static str>,
    /// Sent with and after the answer to the opening.
    greets: Answers,
    /// Replies to the n-th message of a connection; the last entry repeats for all later messages.
    answers: Vec<Answers>,
    /// The server does not answer a close.
    is_rude: bool,
    heard: BTreeMap<String, u64>,
    goodbyes: u64,
    openings: u64,
    closed: u64,
    pongs: u64,
    /// Number of messages received by connection.
    said: BTreeMap<ConnId, usize>,
    last_head: String,
}

impl Chat {
    /// Echoes each message after 10 ms.
    fn echo() -> Chat {
        Chat { answers: vec![vec![(10 * MS, text("{}"))]], ..Chat::default() }
    }

    fn saying(answers: Vec<Answers>) -> Chat {
        Chat { answers, ..Chat::default() }
    }

    fn open(&mut self, at_ns: u64, conn: ConnId, head: &str) -> Vec<(u64, Reply)> {
        self.openings += 1;
        self.last_head = head.to_owned();
        self.said.insert(conn, 0);
        let at = at_ns + MS;
        if self.status != 0 {
            let answer = format!("HTTP/1.1 {} No\r\nContent-Length: 4\r\n\r\nnope", self.status);
            return vec![(at, Reply::Bytes(answer.into()))];
        }
        let accept = accept_of(head);
        let accept = self.accept.map_or(accept, str::to_owned);
        let mut answer = format!(
            "{}HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n",
            self.interim
        )
        .into_bytes();
        let mut replies = Vec::new();
        for (after, does) in self.greets.clone() {
            match (after, reply(&does, "")) {
                (0, Reply::Bytes(bytes)) => answer.extend(bytes),
                (after, reply) => replies.push((at + after, reply)),
            }
        }
        replies.push((at, Reply::Bytes(answer)));
        replies
    }

    fn frame(&mut self, at_ns: u64, conn: ConnId, opcode: u8, payload: Vec<u8>) -> Vec<(u64, Reply)> {
        match opcode {
            8 => {
                self.goodbyes += 1;
                let goodbye = Reply::Bytes([&[0x88, payload.len() as u8], payload.as_slice()].concat());
                return if self.is_rude { Vec::new() } else { vec![(at_ns + MS, goodbye)] };
            }
            10 => {
                self.pongs += 1;
                return Vec::new();
            }
            _ => {}
        }
        let heard = String::from_utf8_lossy(&payload).into_owned();
        *self.heard.entry(heard.clone()).or_default() += 1;
        let said = self.said.get_mut(&conn).unwrap();
        let answers = self.answers.get(*said).or(self.answers.last()).cloned().unwrap_or_default();
        *said += 1;
        answers.iter().map(|(after, does)| (at_ns + after, reply(does, &heard))).collect()
    }
}

fn reply(does: &Does, heard: &str) -> Reply {
    match does {
        Does::Frame(first, text) => {
            let payload = text.replace("{}", heard);
            assert!(payload.len() < 126);
            Reply::Bytes([&[*first, payload.len() as u8], payload.as_bytes()].concat())
        }
        Does::Raw(bytes) => Reply::Bytes(bytes.clone()),
        Does::Fin => Reply::Fin,
        Does::Reset => Reply::Error(104),
    }
}

impl Server for Chat {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns)
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)> {
        if bytes.starts_with(b"GET ") {
            return self.open(at_ns, conn, std::str::from_utf8(bytes).unwrap());
        }
        let (mut rest, mut replies) = (bytes, Vec::new());
        while !rest.is_empty() {
            let length = usize::from(rest[1] & 0x7f);
            assert!(rest[1] & 0x80 != 0 && length < 126, "masked and short");
            let payload = rest[6..6 + length].iter().zip(rest[2..6].iter().cycle()).map(|(b, m)| b ^ m);
            replies.extend(self.frame(at_ns, conn, rest[0] & 15, payload.collect()));
            rest = &rest[6 + length..];
        }
        replies
    }

    fn closed(&mut self, _: u64, _: ConnId) {
        self.closed += 1;
    }
}

fn spec(model: Model, until: Until, scripts: Vec<Script>) -> LoadSpec {
    let request = |i: usize| {
        let parts = RequestParts {
            method: "GET".into(),
            host: "sim".into(),
            path: format!("/{i}"),
            keep_alive: true,
            ..RequestParts::default()
        };
        loadlab_load::spec::request::Request { tags: vec![i as u16], ..parts.build().unwrap() }
    };
    let rounds = match until {
        Until::Repeats(n) => n,
        _ => u64::MAX,
    };
    let requests = (0..scripts.len()).map(request).collect();
    LoadSpec {
        tags: (0..scripts.len()).map(|i| format!("part{i}")).collect(),
        journey: Some(Box::new(Journey {
            step_order: StepOrder {
                before: 0,
                round: scripts.len() as u32,
                after: 0,
                weights: vec![],
                rounds,
            },
            scripts,
            feeds: vec![],
            dealings: vec![],
            shared: CaptureSlots::new(0),
            sites: vec![Site {
                authority: "sim".into(),
                host: "sim".into(),
                is_secure: false,
                by_proxy: None,
            }],
            cookies: false,
            own: 1,
            numbers: vec![],
            remembered: vec![],
            sessions: false,
            unix_ns: Some(0),
        })),
        ..LoadSpec::new(model, until, requests, support::address())
    }
}

fn users(users: u64, rounds: u64, scripts: Vec<Script>) -> LoadSpec {
    spec(Model::Closed { users }, Until::Repeats(rounds), scripts)
}

fn go(spec: &LoadSpec, chat: Chat) -> (LoadResult, Chat, Vec<Example>) {
    let mut sim = Sim::new(chat);
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

/// The result of each part: the ok count, and failures by kind.
fn parts(outcome: &LoadResult) -> Vec<String> {
    let by_tag = &outcome.measured.by_tag;
    let one = |counts: &loadlab_record::counts::load::Counts| {
        let failed = Failure::ALL.iter().map(|f| (f.name(), counts.failures.get(*f)));
        let failed: String = failed.filter(|(_, n)| *n > 0).map(|(name, n)| format!(" {name} {n}")).collect();
        format!("ok {}{failed}", counts.ok)
    };
    by_tag.values().map(|tag| one(&tag.counts)).collect()
}

#[test]
fn users_open_send_messages_and_close() {
    let spec = users(3, 4, conversation(vec![open(), ask("hi", "hi"), ask("there", "there")]));
    let (outcome, chat, _) = go(&spec, Chat::echo());
    assert_eq!(parts(&outcome), ["ok 12", "ok 12", "ok 12", "ok 12"]);
    assert_eq!((chat.openings, chat.goodbyes, chat.closed), (12, 12, 12));
    assert_eq!(chat.heard, BTreeMap::from([("hi".into(), 12), ("there".into(), 12)]));
    assert_eq!(outcome.measured.statuses, BTreeMap::from([(101, 12)]));
    // 1 ms for the opening, 10 ms for each answer, 1 ms for the close.
    assert_eq!(outcome.measured.elapsed_s, 4.0 * 0.022);
    assert!(chat.last_head.starts_with("GET /chat HTTP/1.1\r\nHost: sim\r\nUpgrade: websocket\r\n"));
}

#[test]
fn a_message_is_not_held_back_until_the_one_before_is_acknowledged() {
    let spec = users(3, 1, conversation(vec![open(), say("one"), ask("two", "two")]));
    let mut sim = Sim::new(Chat::echo());
    simulate(&spec, &Control::default(), &mut sim, &mut |_| {}).unwrap();
    assert_eq!((sim.books().without_delay, sim.books().connects), (3, 3));
}

#[test]
fn interim_responses_come_before_an_opening() {
    let spec = users(1, 2, conversation(vec![open(), ask("hi", "hi")]));
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let (outcome, ..) = go(&spec, Chat { interim: hint, ..Chat::echo() });
    assert_eq!(parts(&outcome), ["ok 2", "ok 2", "ok 2"]);
    assert_eq!(outcome.measured.statuses, BTreeMap::from([(101, 2)]));
}

/// Checks one conversation and its close: the result of each part, and the error of the first one that failed.
#[track_caller]
fn check(chat: Chat, asks: Vec<Script>, expect: &[&str], error: &str) -> (LoadResult, Chat, Vec<Example>) {
    let spec = users(1, 1, conversation([vec![open()], asks].concat()));
    let (outcome, chat, examples) = go(&spec, chat);
    assert_eq!(parts(&outcome), expect, "{examples:#?}");
    let reported = examples.first().and_then(|e| e.error.clone()).unwrap_or_default();
    assert_eq!(reported, error);
    (outcome, chat, examples)
}

const NONE: &str = "ok 0";
const OK: &str = "ok 1";

#[test]
fn openings_that_fail() {
    let asks = || vec![ask("a", "a")];
    let refused = |status| Chat { status, ..Chat::echo() };
    check(refused(403), asks(), &["ok 0 http_4xx 1", NONE, NONE], "status 403 is not 101");
    check(refused(503), asks(), &["ok 0 http_5xx 1", NONE, NONE], "status 503 is not 101");
    let (_, _, examples) =
        check(refused(200), asks(), &["ok 0 check 1", NONE, NONE], "status 200 is not 101");
    assert_eq!(examples[0].status, Some(200));
    assert_eq!(examples[0].response_body.as_deref(), Some("nope"));
    let chat = Chat { accept: Some("AAAA"), ..Chat::echo() };
    let error = "the server's response to the opening handshake has no correct `Sec-WebSocket-Accept` header";
    check(chat, asks(), &["ok 0 protocol 1", NONE, NONE], error);
}

#[test]
fn each_fault_of_a_message_has_its_own_outcome() {
    let one = |does: Vec<(u64, Does)>| Chat::saying(vec![does, vec![(MS, text("{}"))]]);
    let asks = || vec![within(ask("a", "a"), S), ask("b", "b")];
    let nothing_follows = |first: &'static str| [OK, first, NONE, NONE];
    let frame = |bytes: &[u8]| vec![(MS, Does::Raw(bytes.to_vec()))];
    let closed = "the server closed the WebSocket with code 1001 (going away)";
    for (does, expect, error) in [
        (vec![], "ok 0 timeout 1", "no message within 1.00 s"),
        (
            vec![(MS, text("x")), (MS, text("y"))],
            "ok 0 timeout 1",
            "no message as expected within 1.00 s; 2 others arrived",
        ),
        (frame(&[0xc1, 0]), "ok 0 protocol 1", "an extension that was not negotiated"),
        (frame(&[0x81, 1, 0xff]), "ok 0 protocol 1", "a text that is not UTF-8"),
        (frame(&[0x81, 127, 0, 0, 0, 0, 0, 0x50, 0, 0]), "ok 0 too_large 1", "a message longer than allowed"),
        (vec![(MS, Does::Fin)], "ok 0 reset 1", "the server ended the connection without a close frame"),
        (vec![(MS, Does::Reset)], "ok 0 reset 1", "connection reset by peer"),
        (
            vec![(MS, Does::Raw(vec![0x81, 5, b'a'])), (2 * MS, Does::Fin)],
            "ok 0 truncated 1",
            "the server ended the connection without a close frame",
        ),
        (vec![(MS, Does::Raw(vec![0x88, 2, 3, 0xe9]))], "ok 0 reset 1", closed),
    ] {
        check(one(does), asks(), &nothing_follows(expect), error);
    }
}

#[test]
fn a_message_that_is_not_as_expected_is_a_failed_check_where_nothing_else_may_come() {
    let (_, chat, examples) = check(
        Chat::saying(vec![vec![(MS, text("error: bad"))], vec![(MS, text("{}"))]]),
        vec![strict(ask("a", "pong")), ask("b", "b")],
        // The conversation continues.
        &[OK, "ok 0 check 1", OK, OK],
        "the body does not contain `pong`",
    );
    assert_eq!(chat.goodbyes, 1);
    let example = &examples[0];
    assert_eq!((example.request_head.as_str(), example.response_body.as_deref()), ("a", Some("error: bad")));
}

#[test]
fn other_messages_are_skipped_and_a_timeout_shows_the_last() {
    let noise = || (0..1000).map(|i| (i, text("noise"))).collect::<Vec<_>>();
    let chat = Chat::saying(vec![[noise(), vec![(MS, text("{}"))]].concat()]);
    check(chat, vec![ask("a", "a")], &[OK, OK, OK], "");
    let (_, chat, examples) = check(
        Chat::saying(vec![noise()]),
        vec![within(ask("a", "a"), S)],
        &[OK, "ok 0 timeout 1", NONE],
        "no message as expected within 1.00 s; 1000 others arrived",
    );
    assert_eq!(examples[0].response_body.as_deref(), Some("noise"));
    // The connection was closed, and the server was sent the reason.
    assert_eq!((chat.goodbyes, chat.closed), (1, 1));
}

#[test]
fn fragments_and_pings_between_them() {
    let fragments = vec![
        (MS, Does::Frame(0x01, "to")),
        (2 * MS, Does::Frame(0x89, "?")),
        (3 * MS, Does::Raw(vec![0x00, 2, b'g'])),
        (4 * MS, Does::Raw(vec![b'e', 0x80, 4, b't', b'h', b'e', b'r'])),
    ];
    let (outcome, chat, _) = check(Chat::saying(vec![fragments]), vec![ask("a", "together")], &[OK; 3], "");
    assert_eq!((chat.pongs, outcome.measured.elapsed_s), (1, 0.006));
}

#[test]
fn a_message_received_before_the_wait_is_found() {
    // One greeting comes with the answer to the opening, the other later, while the user pauses.
    let chat = || Chat { greets: vec![(0, text("welcome")), (5 * MS, text("news"))], ..Chat::echo() };
    let parts = vec![listen("welcome"), pause(ask("a", "a"), 10 * MS), ask("b", "b")];
    check(chat(), parts, &[OK, OK, OK, OK, OK], "");
    // A message received earlier does not answer a later one.
    let parts = vec![pause(listen("welcome"), 10 * MS), within(ask("x", "news"), S)];
    check(
        chat(),
        parts,
        &[OK, OK, "ok 0 timeout 1", NONE],
        "no message as expected within 1.00 s; another one arrived",
    );
    // A part that waits for no answer leaves it for a later part to receive.
    let parts = vec![pause(say("x"), 10 * MS), listen("news")];
    check(chat(), parts, &[OK, OK, OK, OK], "");
}

#[test]
fn values_are_captured_and_sent() {
    let token = Capture { from: CaptureSource::Json(Pointer::parse("/id").unwrap()), is_number: false };
    let capturing = |script: Script| Script {
        captures: vec![(0, token.clone())],
        on_failure: Advance::EndRound,
        ..script
    };
    let chat = || Chat::saying(vec![vec![(MS, text("{\"id\": \"k7\"}"))], vec![(MS, text("{}"))]]);
    let parts = || vec![capturing(strict(ask("login", "id"))), ask("post {c}", "k7")];
    let (_, chat_after, _) = check(chat(), parts(), &[OK, OK, OK, OK], "");
    assert_eq!(chat_after.heard.keys().collect::<Vec<_>>(), ["login", "post k7"]);
    // A missing value ends the round, and closes the conversation gracefully.
    let (_, chat, _) = check(
        Chat::saying(vec![vec![(MS, text("{\"idea\": 1}"))]]),
        parts(),
        &[OK, "ok 0 check 1", NONE, NONE],
        "there was nothing to capture",
    );
    assert_eq!((chat.goodbyes, chat.closed), (1, 1));
}

/// Of the messages received, only the one waited for counts.
#[test]
fn what_is_captured_from_messages_as_a_number_is_counted() {
    let price = Capture { from: CaptureSource::Json(Pointer::parse("/price").unwrap()), is_number: true };
    let bid = Script { captures: vec![(0, price)], ..ask("bid", "taken") };
    let mut spec = users(2, 3, conversation(vec![open(), bid, ask("bye", "bye")]));
    spec.journey.as_mut().unwrap().numbers = vec![(0, "price".into())];
    let answers =
        vec![(MS, text("{\"other\": 1, \"price\": 7}")), (2 * MS, text("{\"taken\": 1, \"price\": 9.5}"))];
    let (outcome, ..) = go(&spec, Chat::saying(vec![answers, vec![(MS, text("{}"))]]));
    assert_eq!(parts(&outcome), ["ok 6", "ok 6", "ok 6", "ok 6"]);
    let price = &outcome.measured.numbers["price"];
    assert_eq!((price.count(), price.min(), price.max()), (6, Some(9.5), Some(9.5)));
}

/// The close frame is known before the answer is judged: what the user would say next is not sent.
#[test]
fn a_message_after_an_answer_that_comes_with_a_close_is_not_sent() {
    let gone = "the server closed the WebSocket with code 1001 (going away), before this part began";
    let invalid = "a frame of unknown type, before this part began";
    for (last, failed, error) in
        [(&[0x88, 2, 3, 0xe9][..], "ok 0 reset 1", gone), (&[0x83, 0], "ok 0 protocol 1", invalid)]
    {
        let answer = [&[0x81, 1, b'a'][..], last].concat();
        for next in [say("b"), ask("b", "b")] {
            let chat = Chat::saying(vec![vec![(MS, Does::Raw(answer.clone()))]]);
            let (outcome, chat, _) = check(chat, vec![ask("a", "a"), next], &[OK, OK, failed, NONE], error);
            assert_eq!(chat.heard.keys().collect::<Vec<_>>(), ["a"]);
            assert_eq!(outcome.measured.elapsed_s, 0.002);
        }
    }
}

/// A ping of which only a part has arrived when a message is sent is no part of the answer to it.
#[test]
fn an_answer_after_half_a_ping_is_taken() {
    let greets = vec![(5 * MS, Does::Raw(vec![0x89])), (15 * MS, Does::Raw(vec![1, b'?']))];
    let chat = Chat { greets, ..Chat::saying(vec![vec![], vec![(10 * MS, text("{}"))]]) };
    let parts = vec![pause(say("x"), 10 * MS), within(ask("a", "a"), S)];
    let (_, chat, _) = check(chat, parts, &[OK; 4], "");
    assert_eq!(chat.pongs, 1);
}

/// Messages that arrive between a part's end and the turn that finishes it belong to the parts after it.
#[test]
fn messages_that_come_together_go_to_one_part_each() {
    let together = [&[0x81, 1][..], b"a", &[0x81, 1], b"b", &[0x81, 1], b"a"].concat();
    let chat = || Chat { greets: vec![(0, Does::Raw(together.clone())), (0, text("b"))], ..Chat::default() };
    let parts = vec![listen("a"), listen("b"), listen("a"), listen("b")];
    let (outcome, ..) = check(chat(), parts, &[OK; 6], "");
    assert_eq!(outcome.measured.elapsed_s, 0.002);
}

#[test]
fn a_users_own_message_is_distinguished_from_others() {
    let own = |text: &str| {
        let echoes = vec![template("no {n}.")];
        part(ConversationAction::Message {
            send: Some((MessageType::Text, template(text))),
            wait: Some(WAIT),
            echoes,
        })
    };
    let answers = vec![(MS, text("say no 77.")), (2 * MS, text("{}"))];
    let spec = users(3, 5, conversation(vec![open(), own("say no {n}."), own("say no {n}.")]));
    let (outcome, chat, _) = go(&spec, Chat::saying(vec![answers]));
    assert_eq!(parts(&outcome), vec!["ok 15"; 4]);
    assert_eq!((chat.heard.len(), outcome.measured.elapsed_s), (30, 5.0 * 0.006), "each after 2 ms, not 1");
    let other = vec![vec![(MS, text("say no 77."))]];
    let error = "check failed: the message does not contain the text";
    check(Chat::saying(other), vec![strict(own("no {n}."))], &[OK, "ok 0 check 1", OK], error);
}

#[test]
fn the_part_after_a_pause_reports_how_the_connection_ended() {
    let hold = || vec![pause(open(), 10 * S)];
    let spec = || users(5, 2, conversation(hold()));
    let (outcome, chat, _) = go(&spec(), Chat::default());
    assert_eq!((parts(&outcome), chat.goodbyes), (vec!["ok 10".to_owned(); 2], 10));
    assert_eq!(outcome.measured.elapsed_s, 2.0 * 10.002);
    assert_eq!(outcome.measured.connections.peak, 5);
    let ends = |does: Does, expect: &[&str], error: &str| {
        let chat = Chat { greets: vec![(S, does)], ..Chat::default() };
        let (outcome, _, examples) = go(&spec(), chat);
        assert_eq!(parts(&outcome), expect);
        assert_eq!(examples.first().and_then(|e| e.error.clone()).unwrap_or_default(), error);
    };
    let gone = "the server closed the WebSocket with code 1001 (going away), before this part began";
    ends(Does::Raw(vec![0x88, 2, 3, 0xe9]), &["ok 10", "ok 0 reset 10"], gone);
    ends(Does::Raw(vec![0x88, 0]), &["ok 10", "ok 10"], "");
    let cut = "the server ended the connection without a close frame, before this part began";
    ends(Does::Fin, &["ok 10", "ok 0 reset 10"], cut);
    ends(
        Does::Raw(vec![0x83, 0]),
        &["ok 10", "ok 0 protocol 10"],
        "a frame of unknown type, before this part began",
    );
    // The ping is answered, the message skipped.
    let chat = Chat { greets: vec![(S, Does::Frame(0x89, "?")), (S, text("news"))], ..Chat::default() };
    let (outcome, chat, _) = go(&spec(), chat);
    assert_eq!((parts(&outcome), chat.pongs), (vec!["ok 10".to_owned(); 2], 10));
    let chat = Chat { is_rude: true, ..Chat::default() };
    let (outcome, _, _) = go(&users(1, 1, conversation(hold())), chat);
    assert_eq!(parts(&outcome), [OK, "ok 0 timeout 1"]);
}

#[test]
fn pausing_users_close_when_time_is_up() {
    let scripts = conversation(vec![pause(open(), 3600 * S), ask("a", "a")]);
    let (outcome, chat, _) = go(&spec(Model::Closed { users: 4 }, Until::Elapsed(S), scripts), Chat::echo());
    assert_eq!(parts(&outcome), ["ok 4", "ok 0", "ok 4"]);
    assert_eq!((chat.goodbyes, outcome.measured.elapsed_s), (4, 1.001));
}

#[test]
fn sessions_and_paces() {
    let scripts = || conversation(vec![open(), pause(ask("a", "a"), 100 * MS), ask("b", "b")]);
    let model = Model::Open {
        rate_per_s: 10.0,
        arrivals: Arrivals::Constant,
        when_behind: WhenBehind::Queue,
        max_in_flight: 100,
    };
    let mut sessions = spec(model, Until::Elapsed(S), scripts());
    if let Some(journey) = &mut sessions.journey {
        (journey.sessions, journey.step_order.rounds) = (true, 1);
    }
    let (outcome, chat, _) = go(&sessions, Chat::echo());
    assert_eq!((parts(&outcome), chat.closed), (vec!["ok 10".to_owned(); 4], 10));
    let mut paced = spec(Model::Closed { users: 2 }, Until::Elapsed(4 * S), scripts());
    paced.pace_ns = Some(500 * MS);
    let (outcome, chat, _) = go(&paced, Chat::echo());
    // Eight parts fall due for each user: two conversations.
    assert_eq!((parts(&outcome), chat.closed), (vec!["ok 4".to_owned(); 4], 4));
}

#[test]
fn a_mix_takes_conversations_whole() {
    let mut scripts = conversation(vec![open(), ask("a", "a")]);
    scripts.extend(conversation(vec![open(), ask("b", "b"), ask("c", "c")]));
    let mut spec = users(2, 50, scripts);
    if let Some(journey) = &mut spec.journey {
        journey.step_order.weights = vec![1, 1, 1, 2, 2, 2, 2];
    }
    let (outcome, chat, _) = go(&spec, Chat::echo());
    let parts = parts(&outcome);
    assert!(
        parts[..3].iter().all(|p| *p == parts[0]) && parts[3..].iter().all(|p| *p == parts[3]),
        "{parts:?}"
    );
    assert_eq!((chat.openings, chat.goodbyes, chat.heard["b"]), (100, 100, chat.heard["c"]));
}

#[test]
fn a_budget_that_ends_in_the_middle_of_a_conversation() {
    let scripts = conversation(vec![open(), ask("a", "a")]);
    let (outcome, chat, _) = go(&spec(Model::Closed { users: 2 }, Until::Requests(7), scripts), Chat::echo());
    assert_eq!(outcome.measured.counts.ok, 7);
    // The user left in the middle sends a close and closes the connection.
    assert_eq!((chat.openings, chat.goodbyes, chat.closed), (3, 3, 3));
}

#[test]
fn kept_messages_are_bounded() {
    // The first message is received at once. Of those that arrive while the user pauses, 64 are kept; the last is not
    // among them.
    let mut greets: Answers = vec![(0, text("first"))];
    greets.extend((0..100).map(|_| (MS, text("more"))));
    greets.push((2 * MS, text("last")));
    let chat = Chat { greets, ..Chat::default() };
    check(
        chat,
        vec![pause(listen("first"), 10 * MS), within(listen("last"), S)],
        &[OK, OK, "ok 0 timeout 1", NONE],
        "no message as expected within 1.00 s; 64 others arrived; 37 earlier messages did not fit in the buffer",
    );
}

#[test]
fn a_flood_of_pings_ends() {
    let pings: Vec<u8> = [0x89, 1, b'a'].repeat(100_001);
    check(
        Chat::saying(vec![vec![(MS, Does::Raw(pings))]]),
        vec![ask("a", "a")],
        &[OK, "ok 0 protocol 1", NONE],
        "a flood of frames that advance no message",
    );
}

/// Over real sockets, against another implementation's server, with messages larger than a socket takes at once.
#[track_caller]
fn over_sockets(io: IoChoice) {
    let server = chat::Chat::start();
    let large = "0123456789abcdef".repeat(40_000);
    let scripts =
        conversation(vec![open_at("/echo"), ask(&large, "cdef0123"), say(&large), ask("small", "small")]);
    let mut spec = users(8, 5, scripts);
    (spec.hosts, spec.io, spec.threads) = (vec![vec![server.address.into()]], io, 2);
    let zero_ns = loadlab_load::io::epoll::now_ns();
    let origin = loadlab_load::run::Origin { start_ns: zero_ns, zero_ns, batch: 0, first_id: 0 };
    let outcome = loadlab_load::run(&spec, &Control::default(), origin, &mut |_| {}).unwrap();
    outcome.measured.counts.balance().unwrap();
    assert_eq!(parts(&outcome), vec!["ok 40"; 5]);
    let books = server.settled();
    assert_eq!((books.opened["/echo"], books.goodbyes, books.cut), (40, 40, 0));
    assert_eq!((books.texts[&large], books.texts["small"]), (80, 40));
}

#[test]
fn over_sockets_with_epoll() {
    over_sockets(IoChoice::Epoll);
}

#[test]
fn over_sockets_with_uring() {
    over_sockets(IoChoice::Uring);
}

fn any_does() -> impl Strategy<Value = Does> {
    prop_oneof![
        6 => Just(text("{}")),
        2 => Just(text("other")),
        1 => Just(Does::Frame(0x89, "?")),
        1 => Just(Does::Frame(0x01, "half")),
        1 => Just(Does::Raw(vec![0x81, 9, b'x'])),
        1 => Just(Does::Raw(vec![0x88, 2, 3, 0xe8])),
        1 => Just(Does::Raw(vec![0x82, 127, 0, 0, 1, 0, 0, 0, 0, 0])),
        1 => Just(Does::Raw(vec![0xff])),
        1 => Just(Does::Fin),
        1 => Just(Does::Reset),
    ]
}

fn any_answers() -> impl Strategy<Value = Answers> {
    prop::collection::vec((0..1500 * MS, any_does()), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Whatever a server sends and whenever, everything due is accounted for, part by part.
    #[test]
    fn accounts_balance_whatever_is_said(
        greets in any_answers(),
        answers in prop::collection::vec(any_answers(), 1..4),
        (users, until, open_model, is_rude) in (1u64..5, 0..3u8, any::<bool>(), any::<bool>()),
        (pace, drops) in (prop::option::of(20..400u64), any::<bool>()),
    ) {
        let scripts = conversation(vec![
            pause(open(), 100 * MS),
            within(ask("a", "a"), 300 * MS),
            strict(ask("b", "b")),
            say("c"),
            within(listen("c"), S),
        ]);
        let until = match until {
            0 => Until::Repeats(3),
            1 => Until::Requests(17),
            _ => Until::Elapsed(3 * S),
        };
        let rate = Model::Open {
            rate_per_s: 5.0,
            arrivals: Arrivals::Poisson,
            when_behind: WhenBehind::Drop,
            max_in_flight: users,
        };
        let closed = !open_model || matches!(until, Until::Repeats(_));
        let mut spec = spec(if closed { Model::Closed { users } } else { rate }, until, scripts);
        spec.timeout_ns = 2 * S;
        if closed {
            spec.pace_ns = pace.map(|ms| ms * MS);
            spec.pace_when_behind = if drops { WhenBehind::Drop } else { WhenBehind::Queue };
        } else if let Some(journey) = &mut spec.journey {
            (journey.sessions, journey.step_order.rounds) = (true, 1);
        }
        let (outcome, chat, _) = go(&spec, Chat { greets, answers, is_rude, ..Chat::default() });
        let counts = &outcome.measured.counts;
        prop_assert_eq!(counts.due, counts.started + counts.dropped);
        for tag in outcome.measured.by_tag.values() {
            let counts = &tag.counts;
            prop_assert_eq!(counts.due, counts.started + counts.dropped);
            prop_assert_eq!(counts.started, counts.ok + counts.failed() + counts.in_flight);
        }
        prop_assert_eq!(chat.closed, outcome.measured.connections.attempted, "every connection is closed");
        prop_assert!(chat.openings <= outcome.measured.connections.attempted);
    }
}
