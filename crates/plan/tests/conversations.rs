//! The language of conversations over WebSockets: what a step becomes, and its mistakes.

use loadlab_plan::{MessageContent, OnFailure, Options, Plan, schema};

use crate::common::{HEAD, mistakes};

const CONVERSATION: &str = include_str!("plans/conversation.yaml");

/// First lines and hints of the mistakes in a plan.
fn shown(text: &str) -> String {
    let all = mistakes(text, &Options::default());
    let kept =
        all.lines().filter(|l| l.starts_with("plan.yaml") || l.contains("hint:") || l.contains("is here:"));
    kept.collect::<Vec<_>>().join("\n")
}

/// The mistakes in a step.
fn step(step: &str) -> String {
    shown(&format!("{HEAD}load:\n  users: 1\n  requests: 1\n  journey:\n    - {step}\n"))
}

#[test]
fn the_schema_knows_them() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let plan: serde_json::Value = serde_saphyr::from_str(CONVERSATION).expect("YAML");
    let errors: Vec<String> =
        validator.iter_errors(&plan).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn conversations_are_read() {
    let plan = Plan::parse("plan.yaml", CONVERSATION, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let load = &plan.cases()[0].loads[0];
    let [first, second] = load.journey.as_slice() else { panic!("two steps") };
    let conversation = first.websocket.as_ref().unwrap();
    assert_eq!(
        (conversation.repeat, conversation.hold_ns, conversation.messages.len()),
        (3, 10_000_000_000, 7)
    );
    assert_eq!(conversation.subprotocols, ["chat.v2", "chat"]);
    assert_eq!(first.on_failure, OnFailure::End, "a later message needs what this one captures");
    let skips: Vec<bool> = conversation.messages.iter().map(|m| m.skips_unexpected).collect();
    assert_eq!(skips, [true, true, false, false, false, false, false]);
    assert_eq!(conversation.messages[2].send, Some(MessageContent::Bytes(vec![0, 0xff, 0x0a])));
    assert!(
        matches!(&conversation.messages[4].expect, Some(checks) if checks.is_empty()),
        "any message will do"
    );
    let hello = &conversation.messages[1];
    assert_eq!(hello.expect.as_ref().unwrap().contains, ["seat"]);
    assert_eq!(
        hello.echoes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["hello from ${people.name}"]
    );
    assert_eq!((first.requests(), second.requests()), (2 + 3 * 6, 2));
    assert_eq!(first.all_tags().collect::<Vec<_>>(), ["chat", "hello"]);
    let words = plan.describe();
    insta::assert_snapshot!(words.iter().find(|w| w.starts_with("journey")).unwrap(), @"journey: WebSocket wss://127.0.0.1:8443/rooms/${random(1, 6)}?as=${people.name}, 6 messages 3 times, held open for 10s [chat], captures seat, last, a failure ends the journey, then WebSocket ws://127.0.0.1:8080, 0 messages, held open for 1m");
}

#[test]
fn conversations_that_cannot_be() {
    insta::assert_snapshot!(step("{ websocket: \"http://a/\", body: x, capture: { a: { body: true } } }"), @r"
    plan.yaml:7:20: expected a WebSocket URL
      hint: `ws://HOST:PORT/PATH`
    plan.yaml:7:33: a WebSocket step has no `body`
      hint: `messages` say what is sent, expected and captured
    ");
    insta::assert_snapshot!(
        step("{ websocket: \"ws://a/\", messages: [ {}, { send: a, timeout: 1s, on_unexpected: ignore }, { expect: { status: 200 } }, { capture: { a: { header: b } } } ] }"),
        @r"
        plan.yaml:7:43: a message needs `send`, `expect`, `capture` or `pause`
        plan.yaml:7:58: `timeout` needs `expect`, which is missing
          hint: it applies to the expected reply
        plan.yaml:7:71: `on_unexpected` needs `expect`, which is missing
          hint: it applies to the expected reply
        plan.yaml:7:108: a message has no `status`
          hint: use `contains`, `json` or `size`
        plan.yaml:7:143: a message has no `header`
          hint: use `json`, `regex` or `body`
        "
    );
    insta::assert_snapshot!(
        step("{ websocket: \"ws://a/\", messages: [ { send: { hex: 0g } }, { send: { hex: \"00\", json: 1 } }, { send: \"${b}\" }, { capture: { b: { body: true } } } ] }"),
        @r#"
        plan.yaml:7:58: `0g` is not hexadecimal
          hint: write two digits for each byte, such as `"00 ff"`
        plan.yaml:7:87: `hex` and `json` cannot be combined
          `hex` is here: plan.yaml:7:76
          hint: a message has one content
        plan.yaml:7:111: `b` is used before any step captures it
          hint: capture it in an earlier step
        "#
    );
    insta::assert_snapshot!(
        step("{ websocket: \"ws://a/\", headers: { Upgrade: x, sec-websocket-protocol: y }, subprotocols: [a b], repeat: 10000, messages: [ { send: a }, { send: b } ] }"),
        @r"
        plan.yaml:7:42: `Upgrade` is set by loadlab
        plan.yaml:7:54: `sec-websocket-protocol` is set by loadlab
          hint: set `subprotocols` of the step
        plan.yaml:7:98: `a b` is not a valid name for a subprotocol
        plan.yaml:7:104: more than 10000 messages in one step
          hint: use a shorter conversation, and open it more often
        "
    );
    insta::assert_snapshot!(step("{ get: \"http://a/\", messages: [ { send: x } ], hold: 1s }"), @r"
    plan.yaml:7:27: `messages` needs `websocket`, which is missing
      hint: only a WebSocket has `messages`; a request has a `body`
    plan.yaml:7:54: `hold` needs `websocket`, which is missing
      hint: `think` of the load is a pause after each request
    ");
    let load = |keys: &str| {
        let text = format!(
            "{HEAD}load:\n  duration: 1m\n  {keys}\n  journey:\n    - {{ websocket: \"ws://a/\", messages: [ {{ pause: 1s }} ], hold: 1s }}\n"
        );
        shown(&text)
    };
    insta::assert_snapshot!(load("rate: 5/s"), @r"
    plan.yaml:7:9: a rate sends single requests, not conversations
      hint: use `users`, or `sessions: 5/s`: users that arrive, talk and leave
    ");
    insta::assert_snapshot!(load("users: 5\n  protocol: http/2"), @r"
    plan.yaml:8:9: WebSockets are opened over HTTP/1.1 only
      `protocol` is here: plan.yaml:6:3
      hint: put users of WebSockets into a separate load without `protocol`
    ");
    insta::assert_snapshot!(load("users: 5\n  pace: 1s"), @r"
    plan.yaml:8:45: `pause` cannot be combined with `pace`
      `pace` is here: plan.yaml:6:3
      hint: `pace` sets when each part of the conversation falls due
    plan.yaml:8:60: `hold` cannot be combined with `pace`
      `pace` is here: plan.yaml:6:3
      hint: `pace` sets when each part of the conversation falls due
    ");
    let text = format!(
        "{HEAD}setup:\n  - websocket: \"ws://a/\"\nload: {{ users: 1, requests: 1, journey: [{{ get: \"http://a/\" }}] }}\n"
    );
    insta::assert_snapshot!(shown(&text), @r"
    plan.yaml:4:5: `setup` cannot open a WebSocket
      hint: `user_setup` of a load can, for each of its users
    ");
}
