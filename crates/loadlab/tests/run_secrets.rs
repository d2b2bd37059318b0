//! No secret appears in anything a run writes or serves, whatever the system under test does with it: a server that
//! echoes what it receives in every encoding, plain and compressed, in heads and bodies; a component that logs its
//! token; a collector that answers with the key it was sent. The encodings to search for are produced here, not by the
//! masking code.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::common::chat::Chat;
use crate::common::proxy::Proxy;
use crate::common::server::{Request, Server, Step, send};
use crate::run_support::front::Front;
use crate::run_support::{Lab, eventually};

/// The secrets, named after the way each is used or passed in.
const PASSWORD: &str = "s3cr?t/p+ss & \"x\" <y>";
const FILE_TOKEN: &str = "file-token/with+slash==";
const BASIC: &str = "b@sic:pass/word+1";
const PROXY: &str = "pr0xy p@ss%2F";
const COMPONENT: &str = "component&token+42";
const LITERAL: &str = "literal-bearer/token";
const SET: &str = "from=the+command/line";
const OTLP: &str = "otlp-key/+=<42>";
const SESSION: &str = "session-token/of+ada";
const SECRETS: [&str; 9] = [PASSWORD, FILE_TOKEN, BASIC, PROXY, COMPONENT, LITERAL, SET, OTLP, SESSION];
const PUBLIC: &str = "this-is-no-secret";
/// Number of answers across which the encodings of a secret are spread: examples keep only the first KiB of a body.
const PARTS: usize = 5;

fn percent(value: &str, is_plain: impl Fn(u8) -> bool, upper: bool) -> String {
    let one = |b: u8| match (is_plain(b), upper) {
        (true, _) => char::from(b).to_string(),
        (false, true) => format!("%{b:02X}"),
        (false, false) => format!("%{b:02x}"),
    };
    value.bytes().map(one).collect()
}

/// A secret in every encoding that is searched for.
fn encodings(value: &str) -> Vec<String> {
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let json = serde_json::Value::from(value).to_string();
    let json = json[1..json.len() - 1].to_owned();
    let each = |write: &dyn Fn(char) -> String| value.chars().map(write).collect::<String>();
    let special = |c: char, write: String| if c.is_ascii_alphanumeric() { c.to_string() } else { write };
    let html = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    let pair = format!("ada:{value}");
    vec![
        value.to_owned(),
        percent(value, unreserved, true),
        percent(value, unreserved, false),
        percent(value, |_| false, true),
        percent(value, |b| unreserved(b) || b == b' ', true).replace(' ', "+"),
        percent(value, |b| unreserved(b) || b == b' ', false).replace(' ', "+"),
        json.clone(),
        json.replace('/', "\\/"),
        each(&|c| special(c, format!("\\u{:04x}", c as u32))),
        each(&|c| special(c, format!("\\u{:04X}", c as u32))),
        html,
        each(&|c| special(c, format!("&#{};", c as u32))),
        each(&|c| special(c, format!("&#x{:x};", c as u32))),
        each(&|c| special(c, format!("&#x{:X};", c as u32))),
        STANDARD.encode(value),
        STANDARD_NO_PAD.encode(value),
        URL_SAFE.encode(value),
        URL_SAFE_NO_PAD.encode(value),
        STANDARD.encode(&pair),
        URL_SAFE_NO_PAD.encode(&pair),
    ]
}

/// The secrets found in these bytes.
fn leaks(what: &str, bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let all = SECRETS.iter().flat_map(|secret| encodings(secret));
    all.filter(|written| text.contains(written.as_str()))
        .map(|written| format!("{what}: {written}"))
        .collect()
}

fn answer(status: u16, fields: &str, body: &[u8]) -> Vec<Step> {
    let head = format!("HTTP/1.1 {status} Text\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    vec![send([head.as_bytes(), body].concat())]
}

/// Compresses a body, on a separate thread: the server's threads have small stacks.
fn packed(body: Vec<u8>) -> Vec<u8> {
    let pack = move || {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&body).expect("memory");
        packed.finish().expect("memory")
    };
    std::thread::spawn(pack).join().expect("it does not panic")
}

/// `/SECRET/PART` fails and echoes that part of the secret's encodings.
fn echo(request: &Request, stop: &AtomicBool) -> Vec<Step> {
    let path = request.target.split('?').next().unwrap_or_default();
    match path {
        "/stop" => {
            let n = u8::from(stop.load(Ordering::SeqCst));
            return answer(200, "", format!("{{\"n\": {n}}}").as_bytes());
        }
        "/login" => {
            let body = serde_json::json!({ "token": SESSION }).to_string();
            return answer(200, "", body.as_bytes());
        }
        _ => {}
    }
    let mut numbers = path.split('/').filter_map(|n| n.parse::<usize>().ok());
    let (secret, part) = (numbers.next().unwrap_or(0) % SECRETS.len(), numbers.next().unwrap_or(0));
    let written = encodings(SECRETS[secret]);
    let part: Vec<&str> = written.iter().skip(part).step_by(PARTS).map(String::as_str).collect();
    let mut body = part.join("\n").into_bytes();
    body.extend(format!("\n{}\n", request.target).bytes());
    body.extend(request.headers.iter().flat_map(|(name, value)| format!("{name}={value}\n").into_bytes()));
    body.extend(&request.body);
    let mut fields = format!(
        "X-Echo: {}\r\nSet-Cookie: sid={}\r\n",
        part[0].replace(['\r', '\n'], " "),
        part[part.len() - 1]
    );
    if request.header("accept-encoding").is_some_and(|kinds| kinds.contains("gzip")) {
        fields.push_str("Content-Encoding: gzip\r\n");
        body = packed(body);
    }
    answer(500, &fields, &body)
}

/// A step for every part of every secret, each with its own tag, so that an example of each is kept.
fn echoes(server: &str, load: &str) -> String {
    let mut steps = String::new();
    for (secret, part) in (0..SECRETS.len()).flat_map(|s| (0..PARTS).map(move |p| (s, p))) {
        let url = format!("{server}/{load}/{secret}/{part}");
        steps.push_str(&format!("      - {{ get: \"{url}\", tags: [s{secret}p{part}] }}\n"));
    }
    steps
}

fn plan(server: &Server, proxy: &Proxy) -> String {
    let url = |path: &str| server.url(path);
    format!(
        r#"loadlab: 1
name: secrets
description: "it says ${{public:env.E2E_PUBLIC}}"
system:
  components:
    talker:
      run: "echo my token is $API_TOKEN; printf %s \"$API_TOKEN\" | base64 -w0; echo; exec sleep 1000"
      env: {{ API_TOKEN: "${{env.E2E_COMPONENT}}" }}
      ready: {{ log: "my token" }}
  before_trial: "echo 'seeding with ${{env.E2E_COMPONENT}}'; echo '${{env.E2E_COMPONENT}}' >&2"
  probes:
    stop: {{ http: "{stop}?key=${{env.E2E_PASSWORD}}", json: /n }}
setup:
  - {{ post: "{login}", body: {{ json: {{ user: ada, password: "${{env.E2E_PASSWORD}}" }} }}, capture: {{ setup_token: {{ json: /token }} }} }}
loads:
  direct:
    users: 2
    duration: 10m
    think: 2ms
    timeout: 60s
    cookies: true
    user_setup:
      - {{ post: "{login}", form: {{ user: ada, password: "${{env.E2E_PASSWORD}}" }}, capture: {{ token: {{ json: /token }} }} }}
    journey:
      - {{ get: "{echo}/a?p=${{public:env.E2E_PUBLIC}}&k=${{env.E2E_PASSWORD}}", auth: {{ bearer: "${{token}}" }}, headers: {{ X-Public: "${{public:env.E2E_PUBLIC}}" }} }}
      - {{ get: "{echo}/b", auth: {{ bearer: "${{file:token.txt}}" }}, check: {{ status: 500, contains: "${{file:token.txt}}!" }} }}
      - {{ post: "{echo}/c", auth: {{ basic: {{ user: ada, password: "${{env.E2E_BASIC}}" }} }}, body: "the text ${{env.E2E_BASIC}}" }}
      - {{ get: "{echo}/d", auth: {{ bearer: {LITERAL} }} }}
      - {{ get: "{echo}/e", headers: {{ X-Api-Key: none }} }}
{direct}  packed:
    users: 2
    duration: 10m
    think: 2ms
    compression: true
    proxy: "http://ada:${{env.E2E_PROXY}}@{proxy}"
    journey:
{packed}stop_when: ["stop > 0"]
expect: ["errors < 1%"]
"#,
        stop = url("/stop"),
        login = url("/login"),
        echo = url("/0"),
        proxy = proxy.address,
        direct = echoes(&server.url(""), "direct"),
        packed = echoes(&server.url(""), "packed"),
    )
}

/// What loadlab serves at an address, until it closes the connection.
fn served(address: &str, path: &str) -> Vec<u8> {
    let mut all = Vec::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let _ = stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
        let _ = stream.read_to_end(&mut all);
    }
    all
}

fn started(mut command: Command, lab: &Lab) -> Child {
    let file = |name: &str| std::fs::File::create(lab.path().join(name)).expect("a file can be made");
    command.stdout(file("stdout")).stderr(file("stderr"));
    let known = [
        ("E2E_PASSWORD", PASSWORD),
        ("E2E_BASIC", BASIC),
        ("E2E_PROXY", PROXY),
        ("E2E_COMPONENT", COMPONENT),
        ("E2E_PUBLIC", PUBLIC),
    ];
    command.envs(known).spawn().expect("loadlab starts")
}

/// `127.0.0.1:PORT` and the path after it, from the output after `before`.
fn reported_address(lab: &Lab, before: &str) -> (String, String) {
    eventually(before, || {
        let reported = lab.read("stderr");
        let (_, rest) = reported.split_once(before)?;
        let (url, _) = rest.split_once('\n')?;
        let rest = url.split_whitespace().next()?.strip_prefix("http://")?;
        let (address, path) = rest.split_once('/')?;
        Some((address.to_owned(), format!("/{path}")))
    })
}

/// Every file below a folder.
fn files(dir: &Path, out: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), out),
            _ => out
                .push((entry.path().display().to_string(), std::fs::read(entry.path()).unwrap_or_default())),
        }
    }
}

/// A metrics collector that echoes the key it was sent. Its answers are not checked, its received pushes are.
fn collector() -> Server {
    Server::start(|request: &Request| {
        let key = request.header("x-key").unwrap_or("none").to_owned();
        answer(403, "", format!("no such key: {key}, {}", STANDARD.encode(&key)).as_bytes())
    })
}

/// This run's file in the state folder, while the run is in progress.
fn state_of(run: &str) -> Vec<(String, Vec<u8>)> {
    let dirs = ["/run/loadlab".to_owned(), format!("/tmp/loadlab-{}", rustix::process::geteuid().as_raw())];
    let dirs = dirs.into_iter().chain(std::env::var("XDG_RUNTIME_DIR").map(|dir| format!("{dir}/loadlab")));
    let mut all = Vec::new();
    dirs.for_each(|dir| files(Path::new(&dir), &mut all));
    all.retain(|(name, text)| name.contains(run) || String::from_utf8_lossy(text).contains(run));
    all
}

#[test]
fn nothing_a_run_leaves_or_serves_holds_a_secret() {
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    let server = Server::start(move |request: &Request| echo(request, &stopping));
    let user: &'static str = format!("Basic {}", STANDARD.encode(format!("ada:{PROXY}"))).leak();
    let (proxy, collector) = (Proxy::start(Some(user)), collector());
    let lab = Lab::new();
    lab.file("plan.yaml", &plan(&server, &proxy));
    lab.file("token.txt", &format!("{FILE_TOKEN}\n"));
    lab.file("otlp.txt", &format!("X-Key: {OTLP}\n"));
    let (out, url) = (lab.run_name(), collector.url(""));
    let set = format!("loads.direct.journey.4.headers.X-Api-Key={SET}");
    let args = ["run", "plan.yaml", "--out", &out, "--set", &set, "--junit", "junit.xml", "--json"];
    let more = [
        "--ui",
        "--ui-wait",
        "0s",
        "--prometheus",
        "127.0.0.1:0",
        "--otlp",
        &url,
        "--otlp-header",
        "@otlp.txt",
        "--otlp-interval",
        "100ms",
    ];
    let mut child = started(lab.command(&[&args[..], &more].concat()), &lab);

    let (page, path) = reported_address(&lab, "live in the browser: ");
    let (metrics, _) = reported_address(&lab, "metrics on ");
    let live = {
        let (page, path) = (page.clone(), format!("{}/live", path.trim_end_matches('/')));
        std::thread::spawn(move || served(&page, &path))
    };
    let wanted = SECRETS.len() * PARTS * 2;
    eventually("an answer to every step", || {
        let targets = server.counts().targets;
        let seen = targets.keys().filter(|t| t.starts_with("/direct/") || t.starts_with("/packed/")).count();
        (seen >= wanted).then_some(())
    });
    let mut all = vec![
        ("the live page".to_owned(), served(&page, &path)),
        ("metrics".to_owned(), served(&metrics, "/metrics")),
    ];
    assert!(all.iter().all(|(_, bytes)| bytes.len() > 200), "{all:?}");
    eventually("a push", || (collector.counts().requests > 0).then_some(()));
    all.extend(state_of(&out));
    stop.store(true, Ordering::SeqCst);
    let status = child.wait().expect("it ends");
    all.push(("live events".to_owned(), live.join().expect("it ends with the run")));
    assert!(matches!(status.code(), Some(1 | 4)), "{status:?}: {}", lab.read("stderr"));
    if let Some(push) = collector.counts().last {
        all.push(("a push".to_owned(), push.body));
    }

    files(&lab.record().dir, &mut all);
    all.extend(["stdout", "stderr", "junit.xml"].map(|name| (name.to_owned(), lab.read(name).into_bytes())));
    for format in ["text", "md", "html", "json", "csv"] {
        all.push((format!("the report as {format}"), lab.record().report(format).into_bytes()));
    }
    let kept = lab.record().lines("default", 1, "examples.jsonl");
    let tags: std::collections::BTreeSet<String> = kept.iter().map(|e| e["tag"].to_string()).collect();
    assert!(tags.len() >= SECRETS.len() * PARTS, "examples of every step: {tags:?}");
    let found: Vec<String> = all.iter().flat_map(|(what, bytes)| leaks(what, bytes)).collect();
    assert!(
        found.is_empty(),
        "{} secrets are shown:\n{}",
        found.len(),
        found[..found.len().min(40)].join("\n")
    );

    // The search does find text that is present.
    let holds = |what: &str| {
        all.iter()
            .any(|(name, bytes)| name.ends_with(what) && String::from_utf8_lossy(bytes).contains(PUBLIC))
    };
    assert!(holds("examples.jsonl") && holds("manifest.json") && holds("the report as html"));
    let log = lab.read(&format!("{out}/cases/default/1/logs/talker.out"));
    assert!(log.contains("my token is ***"), "{log}");
    let manifest = lab.record().manifest();
    assert!(manifest["plan_text"].as_str().is_some_and(|text| text.contains("${env.E2E_PASSWORD}")));
    assert_eq!(proxy.counts().refused, 0, "the password was sent as it is");
    assert_eq!(server.counts().last.map(|r| r.header("x-key").is_some()), Some(false));
}

/// Every encoding of every secret, with the variable that holds it.
fn written() -> Vec<(String, String)> {
    let all = SECRETS.iter().flat_map(|secret| encodings(secret));
    all.enumerate().map(|(n, written)| (format!("E2E_WRITTEN_{n}"), written)).collect()
}

/// Over HTTP/2, plain and compressed, and over WebSockets; with a component that outlives its trials and prints its
/// secret when it starts and again when it ends, and a component with a multi-line key.
fn plan_of_others(front: &Front, chat: &Chat) -> String {
    let known =
        ["E2E_PASSWORD", "E2E_BASIC", "E2E_PROXY", "E2E_SET", "E2E_LITERAL", "E2E_OTLP", "E2E_SESSION"];
    let headers: Vec<String> = known.iter().map(|name| format!("{name}: \"${{env.{name}}}\"")).collect();
    let messages = written().into_iter().map(|(name, _)| {
        let part =
            format!("send: \"${{public:env.{name}}}\", expect: {{ contains: nowhere }}, on_unexpected: fail");
        format!("          - {{ {part}, tags: [{}] }}\n", name.to_lowercase())
    });
    format!(
        r#"loadlab: 1
name: others
trials: 2
system:
  components:
    talker:
      lifetime: experiment
      run: "trap 'echo bye with $API_TOKEN; exit 0' TERM; echo my token is $API_TOKEN; sleep 1000 & wait $!"
      env: {{ API_TOKEN: "${{env.E2E_COMPONENT}}" }}
      ready: {{ log: "my token" }}
    signer:
      run: "printf '%s\\n' \"$KEY\" | while read -r line; do echo \"12:00 key $line\"; done; echo all; exec sleep 1000"
      env: {{ KEY: "${{file:key.pem}}" }}
      ready: {{ log: all }}
loads:
  plain:
    users: 2
    repeats: 1
    protocol: http/2
    tls: {{ insecure: true }}
    journey:
      - {{ get: "{front}/0/0", headers: {{ {headers}, File: "${{file:token.txt}}" }} }}
{plain}  packed:
    users: 2
    repeats: 1
    protocol: http/2
    tls: {{ insecure: true }}
    compression: true
    journey:
{packed}  conversation:
    users: 1
    repeats: 1
    journey:
      - websocket: "{chat}"
        headers: {{ Authorization: "Bearer ${{env.E2E_PASSWORD}}" }}
        messages:
{messages}expect: ["errors < 1%"]
"#,
        front = front.url(),
        headers = headers.join(", "),
        plain = echoes(&front.url(), "plain"),
        packed = echoes(&front.url(), "packed"),
        chat = chat.url("/echo?key=${env.E2E_PASSWORD}"),
        messages = messages.collect::<String>(),
    )
}

#[test]
fn nothing_over_other_protocols_holds_a_secret_nor_do_logs_of_who_lives_on() {
    let never = AtomicBool::new(false);
    let server = Server::start(move |request: &Request| echo(request, &never));
    let (front, chat, lab) = (Front::start(&server.url(""), true, 1000), Chat::start(), Lab::new());
    let body = STANDARD.encode((0..=255).collect::<Vec<u8>>());
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    lab.file(
        "key.pem",
        &format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n")),
    );
    lab.file("token.txt", FILE_TOKEN);
    lab.file("plan.yaml", &plan_of_others(&front, &chat));
    let out = lab.run_name();
    let mut command = lab.command(&["run", "plan.yaml", "--out", &out]);
    let more = [("E2E_SET", SET), ("E2E_LITERAL", LITERAL), ("E2E_OTLP", OTLP), ("E2E_SESSION", SESSION)];
    command.envs(more).envs(written());
    let status = started(command, &lab).wait().expect("it ends");
    assert!(matches!(status.code(), Some(1 | 4)), "{status:?}: {}", lab.read("stderr"));

    let mut all = Vec::new();
    files(&lab.record().dir, &mut all);
    all.extend(["stdout", "stderr"].map(|name| (name.to_owned(), lab.read(name).into_bytes())));
    all.extend(
        ["text", "html"]
            .map(|form| (format!("the report as {form}"), lab.record().report(form).into_bytes())),
    );
    // The secrets could have been found: every one was sent, came back, and is in the examples.
    let kept = lab.record().lines("default", 1, "examples.jsonl");
    let tags = |load: &str| {
        let of_load = kept
            .iter()
            .filter(|e| e["load"] == load && e["response_body"].is_string())
            // An answer without its own tag is identified by method and path.
            .filter(|e| e["tag"].as_str().is_some_and(|tag| !tag.contains(' ')));
        of_load.map(|e| e["tag"].to_string()).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((tags("plain"), tags("packed")), (SECRETS.len() * PARTS, SECRETS.len() * PARTS));
    assert_eq!(tags("conversation"), written().len(), "{kept:?}");
    let heard = chat.settled().texts;
    assert!(written().iter().all(|(_, text)| heard.contains_key(text)), "{heard:?}");
    assert!(front.answered("HTTP/2.0", 1) > 0);
    let found: Vec<String> = all.iter().flat_map(|(what, bytes)| leaks(what, bytes)).collect();
    assert!(
        found.is_empty(),
        "{} secrets are shown:\n{}",
        found.len(),
        found[..found.len().min(40)].join("\n")
    );

    // One log file spans both trials, to its last line.
    let log = |name: &str| lab.read(&format!("{out}/cases/default/1/logs/{name}.out"));
    assert_eq!(log("talker"), "my token is ***\nbye with ***\n");
    // The text around the key looks like a scheme and its credential.
    let (key, lines) = (log("signer"), "12:00 key ***\n".repeat(lines.len()));
    assert_eq!(key, format!("12:00 key -----BEGIN ***\n{lines}12:00 key -----END ***\nall\n"));
}

#[test]
fn nothing_that_a_bench_prints_holds_a_secret() {
    let never = AtomicBool::new(false);
    let server = Server::start(move |request: &Request| echo(request, &never));
    let user: &'static str = format!("Basic {}", STANDARD.encode(format!("ada:{PROXY}"))).leak();
    let (proxy, collector) = (Proxy::start(Some(user)), collector());
    let lab = Lab::new();
    lab.file("headers.txt", &format!("Authorization: Bearer {FILE_TOKEN}\n"));
    lab.file(
        "proxy.txt",
        &format!("http://ada:{}@{}\n", percent(PROXY, |b| b.is_ascii_alphanumeric(), true), proxy.address),
    );
    lab.file("otlp.txt", &format!("X-Key: {OTLP}\n"));
    let cookie = format!("Cookie: session={SESSION}; other=1");
    let otlp = collector.url("");
    let mut all = Vec::new();
    for (secret, part) in [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (3, 0), (3, 1), (3, 4), (8, 0), (8, 2)] {
        let target = server.url(&format!("/{secret}/{part}"));
        for form in [&["--json"][..], &["--plain"]] {
            let args = [
                "bench",
                &target,
                "-c",
                "1",
                "-n",
                "5",
                "-H",
                "@headers.txt",
                "-H",
                &cookie,
                "--proxy",
                "@proxy.txt",
            ];
            let more = [
                "--otlp",
                &otlp,
                "--otlp-header",
                "@otlp.txt",
                "--junit",
                "junit.xml",
                "--samples",
                "samples.jsonl",
                "--expect",
                "errors < 1%",
            ];
            let ran = lab.loadlab(&[&args[..], &more, form].concat());
            assert!(matches!(ran.code, Some(1 | 4)), "{ran:?}");
            all.push(("stdout".to_owned(), ran.out.into_bytes()));
            all.push(("stderr".to_owned(), ran.err.into_bytes()));
            all.extend(
                ["junit.xml", "samples.jsonl"].map(|name| (name.to_owned(), lab.read(name).into_bytes())),
            );
        }
    }
    let last = server.counts().last.unwrap();
    assert_eq!(last.header("authorization"), Some(format!("Bearer {FILE_TOKEN}").as_str()));
    let found: Vec<String> = all.iter().flat_map(|(what, bytes)| leaks(what, bytes)).collect();
    assert!(
        found.is_empty(),
        "{} secrets are shown:\n{}",
        found.len(),
        found[..found.len().min(40)].join("\n")
    );
    let shown = |text: &str| all.iter().any(|(_, bytes)| String::from_utf8_lossy(bytes).contains(text));
    assert!(
        shown("***") && shown("errors &lt; 1%") && shown("http_5xx"),
        "there is something to look through"
    );
}
