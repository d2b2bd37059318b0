//! `loadlab run` with WebSocket conversations, against another implementation's server that keeps its own records.

use crate::common::ports;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::common::chat::Chat;
use crate::common::proxy::Proxy;
use crate::run_support::{Lab, Ran, eventually};

/// The example from the reference, at another address.
fn of_the_reference(address: &str) -> String {
    let reference = include_str!("../../../docs/plan.md");
    let blocks = reference.split("```yaml\n").skip(1).filter_map(|b| b.split("```").next());
    let block = blocks.into_iter().find(|b| b.contains("name: a chat")).expect("the example");
    block.replace("127.0.0.1:8080", address)
}

fn counts(of: &Value) -> Vec<u64> {
    ["due", "dropped", "started", "ok", "failed", "in_flight"]
        .iter()
        .map(|key| of["requests"][key].as_u64().unwrap())
        .collect()
}

/// Asserts that the run ended well, even if a busy machine makes its measurement INVALID, and that every expectation
/// held; returns the summary.
#[track_caller]
fn held(lab: &Lab, ran: &Ran) -> Value {
    assert!(matches!(ran.code, Some(0 | 4)), "stdout:\n{}\nstderr:\n{}", ran.out, ran.err);
    let summary = lab.record().summary("default", 1);
    let held = |list: &Vec<Value>| !list.is_empty() && list.iter().all(|e| e["holds"] == true);
    assert!(summary["expectations"].as_array().is_some_and(held), "{:#}", summary["expectations"]);
    summary
}

/// Failures that occurred, by name.
fn failures(of: &Value) -> Value {
    let all = of["failures"].as_object().unwrap().iter().filter(|(_, n)| **n != json!(0));
    Value::Object(all.map(|(k, n)| (k.clone(), n.clone())).collect())
}

#[test]
fn the_example_of_the_reference_talks() {
    let chat = Chat::start();
    let lab = Lab::new();
    let plan = of_the_reference(&chat.address.to_string());
    // Long enough that no answer is late, however busy the machine is.
    let set = [
        "loads.talkers.duration=5s",
        "loads.watchers.duration=5s",
        "loads.talkers.journey.0.messages.1.timeout=30s",
        "expect.1=tag.hello.p90 < 30s",
    ];
    let ran = lab.run(&plan, &set.map(|set| ["--set", set]).concat());
    let summary = held(&lab, &ran);
    let books = chat.settled();
    let (talkers, watchers) = (&summary["by_load"]["talkers"], &summary["by_load"]["watchers"]);
    for load in [talkers, watchers] {
        let [due, dropped, started, ok, failed, in_flight] = counts(load)[..] else { panic!("six counts") };
        assert_eq!((due, dropped, failed, in_flight), (started, 0, 0, 0), "{load:#}");
        assert_eq!(ok, started);
    }
    // The server saw as many openings, closes and messages as were counted here.
    let opened: u64 = books.opened.values().sum();
    assert_eq!(summary["statuses"], json!({ "101": opened }));
    assert_eq!((books.goodbyes, books.cut), (opened, 0));
    let of_tag = |tag: &str| summary["by_tag"][tag]["requests"]["ok"].as_u64().unwrap();
    let said: u64 = books.texts.values().sum();
    assert_eq!(of_tag("hello"), said);
    assert_eq!(books.headers["sec-websocket-protocol"], "chat");
    assert!(books.texts.keys().all(|t| t.contains("\"seat\":")), "{:?}", books.texts);
    assert_eq!((books.opened["/watch"], of_tag("watch")), (10, 20));
    // Besides the messages, each conversation has an opening, a close, and a welcome unless its time was up by then.
    let (rest, opened) = (talkers["requests"]["ok"].as_u64().unwrap() - said, books.opened["/chat"]);
    assert!((2 * opened..=3 * opened).contains(&rest), "{rest} besides {said}, {opened} opened");
}

/// Each fault in a separate load: how it is counted, and what its example shows.
#[test]
fn each_fault_has_its_own_name_and_shows_what_came() {
    let chat = Chat::start();
    let lab = Lab::new();
    let faults: [(&str, Value, &str); 12] = [
        ("forbidden", json!({ "http_4xx": 2 }), "status 403 is not 101"),
        ("busy", json!({ "http_5xx": 2 }), "status 503 is not 101"),
        ("page", json!({ "check": 2 }), "status 302 is not 101"),
        ("wrong", json!({ "protocol": 2 }), "has no correct `Sec-WebSocket-Accept` header"),
        ("silent", json!({ "timeout": 2 }), "no message within 300 ms"),
        ("echo", json!({ "check": 2 }), "the body does not contain `pong`"),
        ("closes", json!({ "reset": 2 }), "the server closed the WebSocket with code 1001 (going away)"),
        ("resets", json!({ "reset": 2 }), "the server ended the connection without a close frame"),
        ("half", json!({ "truncated": 2 }), "the server ended the connection without a close frame"),
        ("nonsense", json!({ "protocol": 2 }), "an extension that was not negotiated"),
        ("large", json!({ "too_large": 2 }), "a message longer than allowed"),
        ("leaves", json!({ "reset": 2 }), "code 1001 (going away), before this part began"),
    ];
    let loads = faults.iter().map(|(path, ..)| {
        let url = chat.url(&format!("/{path}"));
        // Long enough that no other answer is late, nor a close before a part begins, however busy the machine is.
        let timeout = if *path == "silent" { "300ms" } else { "20s" };
        let pause = if *path == "leaves" { "pause: 3s, " } else { "" };
        format!(
            "  {path}:\n    users: 1\n    repeats: 2\n    journey:\n      - websocket: {url}\n        messages: [ {{ {pause}send: ping, expect: {{ contains: pong }}, on_unexpected: fail, timeout: {timeout} }} ]\n"
        )
    });
    let plan = format!("loadlab: 1\nname: faults\nloads:\n{}", loads.collect::<String>());
    lab.run(&plan, &[]);
    let summary = lab.record().summary("default", 1);
    let examples = lab.record().lines("default", 1, "examples.jsonl");
    for (path, expect, words) in &faults {
        let load = &summary["by_load"][path];
        assert_eq!(failures(load), *expect, "{path}");
        let [due, dropped, started, ok, failed, in_flight] = counts(load)[..] else { panic!("six counts") };
        assert_eq!((due, started, dropped, in_flight), (started, ok + failed, 0, 0), "{path}");
        let of_load = examples.iter().find(|e| e["load"] == *path && e["kept"] == "failed");
        let example = of_load.unwrap_or_else(|| panic!("no example of {path}"));
        assert!(example["error"].as_str().unwrap().contains(words), "{path}: {example:#}");
    }
    let echo = examples.iter().find(|e| e["load"] == "echo" && e["kept"] == "failed").unwrap();
    assert_eq!(
        (&echo["request"], &echo["request_head"]),
        (&json!("WebSocket /echo, message 1"), &json!("ping"))
    );
    assert_eq!(echo["response_body"], "ping");
    let page = examples.iter().find(|e| e["load"] == "page" && e["kept"] == "failed").unwrap();
    assert!(page["request_head"].as_str().unwrap().contains("\r\nUpgrade: websocket\r\n"), "{page:#}");
    assert_eq!(page["status"], 302);
}

/// A server's last answer and its close arrive together: the part that the close ends begins only once both are here.
#[test]
fn an_answer_and_a_close_in_one_piece() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ws://{}/", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let Ok(mut socket) = tungstenite::accept(stream) else { return };
                if socket.read().is_ok() {
                    // Buffered, so that it is not sent before the close.
                    let _ = socket.write(tungstenite::Message::text("pong"));
                    let _ = socket.close(None);
                }
                while socket.read().is_ok() {}
            });
        }
    });
    let lab = Lab::new();
    let load = "load:\n  users: 2\n  repeats: 20\n  think: 1ms\n";
    let journey = format!(
        "  journey:\n    - websocket: {url}\n      messages: [ {{ send: ping, expect: {{ contains: pong }} }} ]\n"
    );
    let ran =
        lab.run(&format!("loadlab: 1\nname: together\n{load}{journey}expect: [\"errors == 0\"]\n"), &[]);
    let summary = held(&lab, &ran);
    assert_eq!(
        counts(&summary),
        [120, 0, 120, 120, 0, 0],
        "an opening, a message and a close each: {summary:#}"
    );
    let (most_ms, elapsed_s) = (&summary["service_ms"]["max"], &summary["elapsed_s"]);
    let is_within = most_ms.as_f64().zip(elapsed_s.as_f64()).is_some_and(|(ms, s)| ms <= s * 1e3);
    assert!(is_within, "{most_ms} ms in {elapsed_s} s");
}

#[test]
fn bytes_files_captures_and_pings() {
    let chat = Chat::start();
    let lab = Lab::new();
    lab.file("data.bin", "0123456789");
    let plan = format!(
        r#"loadlab: 1
name: bytes
load:
  sessions: 20/s
  duration: 1s
  user_setup: [ {{ websocket: "{pings}" }} ]
  journey:
    - websocket: {echo}
      repeat: 2
      messages:
        - {{ send: {{ hex: "00 ff 0a" }}, expect: {{ size: "== 3" }} }}
        - {{ send: {{ file: data.bin }}, capture: {{ digits: {{ regex: "2(.*)7" }} }}, tags: [file] }}
        - {{ pause: 10ms, send: "got ${{digits}}", expect: {{ contains: "got 3456" }}, on_unexpected: fail }}
expect: [ "failed == 0", "tag.file.p50 < 10s" ]
"#,
        pings = chat.url("/pings"),
        echo = chat.url("/echo"),
    );
    let summary = held(&lab, &lab.run(&plan, &[]));
    let books = chat.settled();
    let users = books.opened["/echo"];
    assert_eq!((users, books.opened["/pings"]), (20, 20));
    assert_eq!(counts(&summary), [20 * 10, 0, 20 * 10, 20 * 10, 0, 0]);
    assert_eq!(books.texts, [("got 3456".to_owned(), 40)].into());
    let bytes = |payload: &[u8]| books.binaries.iter().filter(|b| *b == payload).count();
    assert_eq!((bytes(&[0, 0xff, 0x0a]), bytes(b"0123456789"), books.binaries.len()), (40, 40, 80));
    assert_eq!((books.goodbyes, books.cut), (40, 0));
}

/// Users that still hold their connections when the time is up close them properly, and are counted.
#[test]
fn who_holds_when_time_is_up_says_goodbye() {
    let chat = Chat::start();
    let lab = Lab::new();
    let plan = format!(
        "loadlab: 1\nname: idle\nload:\n  users: 200\n  duration: 8s\n  journey: [ {{ websocket: \"{}\", hold: 1h }} ]\nexpect: [ \"failed == 0\" ]\n",
        chat.url("/idle")
    );
    let summary = held(&lab, &lab.run(&plan, &[]));
    assert_eq!(counts(&summary), [400, 0, 400, 400, 0, 0]);
    assert_eq!(summary["generator"]["connections_peak"], 200);
    let books = chat.settled();
    assert_eq!((books.opened["/idle"], books.goodbyes, books.cut), (200, 200, 0));
}

/// nginx with TLS in front of the server; killed when dropped.
struct Nginx {
    child: Child,
    port: u16,
}

impl Nginx {
    fn start(lab: &Lab, chat: &Chat) -> Nginx {
        let port = ports::unused().port();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        lab.file("ca.pem", &made.cert.pem());
        lab.file("key.pem", &made.signing_key.serialize_pem());
        let path = lab.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {path}/{name};"))
            .collect();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;\nevents {{}}\n\
             http {{ access_log off; {temporary}\n\
             server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {path}/ca.pem; ssl_certificate_key {path}/key.pem;\n\
             location / {{ proxy_pass http://{}; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; \
             proxy_set_header Connection upgrade; }} }} }}\n",
            chat.address
        );
        lab.file("nginx.conf", &config);
        let child = Command::new("nginx")
            .args(["-c", &format!("{path}/nginx.conf"), "-p", &path.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is installed (apt-get install nginx-light)");
        let nginx = Nginx { child, port };
        eventually("nginx listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn conversations_under_tls() {
    let chat = Chat::start();
    let lab = Lab::new();
    let nginx = Nginx::start(&lab, &chat);
    let plan = format!(
        r#"loadlab: 1
name: tls
load:
  users: 5
  repeats: 10
  tls: {{ ca: ca.pem }}
  journey:
    - get: "https://127.0.0.1:{port}/page"
      on_failure: continue
      check: {{ status: 502 }}
    - websocket: "wss://127.0.0.1:{port}/echo"
      messages: [ {{ send: "hi from ${{user}}", expect: {{ contains: "hi from" }} }} ]
      repeat: 3
expect: [ "failed == 0" ]
"#,
        port = nginx.port,
    );
    let summary = held(&lab, &lab.run(&plan, &[]));
    assert_eq!(counts(&summary), [300, 0, 300, 300, 0, 0], "{summary:#}");
    let books = chat.settled();
    assert_eq!((books.opened["/echo"], books.texts.values().sum::<u64>()), (50, 150));
    assert!(summary["tls_ms"]["count"].as_u64().unwrap() >= 50);
}

#[test]
fn conversations_go_through_tunnels_of_a_proxy() {
    let (chat, proxy) = (Chat::start(), Proxy::start(None));
    let plain = chat.url("").replace("ws://", "");
    let lab = Lab::new();
    let nginx = Nginx::start(&lab, &chat);
    let plan = format!(
        r#"loadlab: 1
name: tunnels
load:
  users: 4
  repeats: 5
  proxy: "{proxy}"
  tls: {{ ca: ca.pem }}
  journey:
    - websocket: "wss://127.0.0.1:{port}/echo"
      messages: [ {{ send: "hi from ${{user}}", expect: {{ contains: "hi from" }} }} ]
    - websocket: "ws://{plain}/echo"
      messages: [ {{ send: "hi from ${{user}}", expect: {{ contains: "hi from" }} }} ]
expect: [ "failed == 0" ]
"#,
        proxy = proxy.url(),
        port = nginx.port,
    );
    let summary = held(&lab, &lab.run(&plan, &[]));
    assert_eq!(counts(&summary), [120, 0, 120, 120, 0, 0], "{summary:#}");
    let books = chat.settled();
    assert_eq!((books.opened["/echo"], books.texts.values().sum::<u64>()), (40, 40));
    let tunnels = proxy.counts().tunnels;
    let of = |address: String| tunnels.get(&address).copied();
    assert_eq!((of(format!("127.0.0.1:{}", nginx.port)), of(plain)), (Some(20), Some(20)));
    assert!(proxy.counts().asked.is_empty());
}

#[test]
fn other_hosts_are_refused_before_anything_is_sent() {
    let lab = Lab::new();
    let plan = "loadlab: 1\nname: far\nload: { users: 1, requests: 1, journey: [ { websocket: \"wss://192.0.2.1/\" } ] }\n";
    lab.run(plan, &[]).expect(5, &["`192.0.2.1` (192.0.2.1) is not loopback", "--allow-host 192.0.2.1"]);
}
