//! `loadlab run` with journeys, against a shop that knows its customers and keeps its own records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::server::{Request, Server, Step};
use crate::run_support::Lab;
use crate::run_support::front::Front;

/// What the shop has recorded.
#[derive(Default)]
struct Books {
    /// User name by token.
    tokens: BTreeMap<String, String>,
    /// Number of logins by user name.
    logins: BTreeMap<String, u64>,
    /// Items bought, each with its buyer.
    bought: Vec<(String, String)>,
    logouts: u64,
    cookies: u64,
    strangers: u64,
}

fn reply(status: u16, headers: &str, body: &str) -> Vec<Step> {
    let head = format!("HTTP/1.1 {status} Status\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    vec![Step::Send((head + body).into_bytes())]
}

fn shop(books: Arc<Mutex<Books>>) -> Server {
    Server::start(move |request: &Request| {
        let mut books = books.lock().unwrap();
        let body = String::from_utf8_lossy(&request.body).into_owned();
        if request.target == "/admin" {
            assert_eq!(request.header("authorization"), Some("Basic cm9vdDphOmI="));
            return reply(200, "", "{\"key\": \"sesame\"}");
        }
        if request.target == "/login" {
            let name = body.split('&').find_map(|f| f.strip_prefix("user=")).unwrap_or_default().to_owned();
            let token = format!("t{}", books.tokens.len());
            books.tokens.insert(token.clone(), name.clone());
            *books.logins.entry(name).or_default() += 1;
            return reply(
                200,
                "Set-Cookie: sid=1; Path=/\r\n",
                &format!("{{\"auth\": {{\"token\": \"{token}\"}}}}"),
            );
        }
        books.cookies += u64::from(request.header("cookie") == Some("sid=1"));
        let token = request.header("authorization").and_then(|a| a.strip_prefix("Bearer "));
        let Some(name) = token.and_then(|t| books.tokens.get(t)).cloned() else {
            books.strangers += 1;
            return reply(401, "", "");
        };
        match request.target.as_str() {
            "/logout" => {
                books.logouts += 1;
                reply(204, "", "")
            }
            "/old" => reply(302, "Location: /page?a=b\r\n", ""),
            "/page?a=b" => reply(200, "", "moved here"),
            "/buy" => {
                assert_eq!(request.header("x-key"), Some("sesame"), "what setup captured is there for all");
                assert_eq!(request.header("content-type"), Some("application/json"));
                books.bought.push((name, body));
                reply(201, "", "{}")
            }
            item => reply(200, "", &format!("{{\"item\": \"{item}\", \"price\": 3}}")),
        }
    })
}

/// A plan for the shop's customers that uses all features in between; `how` are further lines of the load.
fn customers(at: &str, how: &str) -> String {
    format!(
        r#"loadlab: 1
name: a shop
setup:
  - post: {at}/admin
    auth: {{ basic: {{ user: root, password: "a:b" }} }}
    capture: {{ key: {{ json: /key }} }}
load:
  users: 2
  repeats: 3
  cookies: true
{how}  redirects: 2
  feeds:
    people: {{ file: people.csv, per: user }}
    items: {{ file: items.jsonl }}
  user_setup:
    - post: {at}/login
      form: {{ user: "${{people.name}}", password: "${{people.secret}}" }}
      capture: {{ token: {{ json: /auth/token }} }}
  journey:
    - get: "{at}/item/${{items.id}}"
      auth: {{ bearer: "${{token}}" }}
      tags: [item]
      check: {{ status: 200, json: {{ /price: 3, /item: "/item/${{items.id}}" }}, contains: "/item/${{items.id}}", size: "> 10" }}
    - get: {at}/old
      auth: {{ bearer: "${{token}}" }}
      check: {{ contains: moved }}
    - post: {at}/buy
      auth: {{ bearer: "${{token}}" }}
      headers: {{ x-key: "${{key}}" }}
      body: {{ json: {{ what: "${{items.what}}", user: "${{user}}", round: "${{iteration}}" }} }}
      check: {{ status: 201 }}
  user_teardown:
    - {{ post: {at}/logout, auth: {{ bearer: "${{token}}" }} }}
expect: ["failed == 0", "tag.item.failed == 0"]
"#
    )
}

fn people_and_items() -> Lab {
    let lab = Lab::new();
    lab.file("people.csv", "name,secret\nann,x y\nbob,z\n");
    lab.file("items.jsonl", "{\"id\": 7, \"what\": \"a \\\"b\\\"\"}\n{\"id\": 8, \"what\": \"c\"}\n");
    lab
}

/// A customer's complete journey.
#[test]
fn customers_log_in_shop_and_log_out() {
    let books = Arc::new(Mutex::new(Books::default()));
    let server = shop(books.clone());
    let lab = people_and_items();
    let plan = customers(server.url("").trim_end_matches('/'), "");
    let ran = lab.run(&plan, &[]);
    ran.expect(0, &[]);
    let books = books.lock().unwrap();
    assert_eq!(books.logins, BTreeMap::from([("ann".to_owned(), 1), ("bob".to_owned(), 1)]));
    assert_eq!((books.logouts, books.strangers, books.bought.len()), (2, 0, 6));
    let mut ann: Vec<&str> =
        books.bought.iter().filter(|(n, _)| n == "ann").map(|(_, b)| b.as_str()).collect();
    ann.sort_unstable();
    assert_eq!(ann.len(), 3);
    for (round, body) in ["0", "1", "2"].iter().zip(books.bought.iter().filter(|(n, _)| n == "ann")) {
        let body: serde_json::Value =
            serde_json::from_str(&body.1).unwrap_or_else(|e| panic!("{e}: {}", body.1));
        assert!(["a \"b\"", "c"].contains(&body["what"].as_str().unwrap()), "{body}");
        assert_eq!(body["round"].to_string().trim_matches('"'), *round);
    }
    let summary = lab.record().summary("default", 1);
    // Two logins, six rounds of three steps and a redirect each, two logouts; setup is not part of the load.
    let requests = &summary["requests"];
    assert_eq!((&requests["ok"], &requests["started"]), (&28.into(), &28.into()), "{summary:#}");
    assert_eq!(summary["by_tag"]["item"]["requests"]["ok"], 6, "{}", summary["by_tag"]);
    assert_eq!(books.cookies, 26, "all but the logins");
    assert_eq!(server.counts().requests, 29);
}

/// A failed check is reported with the actual value.
#[test]
fn failed_checks_show_what_was_there_instead() {
    let server = shop(Arc::default());
    let lab = Lab::new();
    let at = server.url("");
    let at = at.trim_end_matches('/');
    let plan = format!(
        "loadlab: 1\nname: n\nload:\n  users: 1\n  repeats: 2\n  user_setup: [{{ post: {at}/login, form: {{ user: u }}, capture: {{ token: {{ json: /auth/token }} }} }}]\n  \
         journey:\n    - {{ get: \"{at}/item/${{random(5, 5)}}\", auth: {{ bearer: \"${{token}}\" }}, check: {{ json: {{ /price: 4 }} }}, on_failure: end }}\n    \
         - {{ get: {at}/never, auth: {{ bearer: \"${{token}}\" }} }}\nexpect: [\"errors == 0\"]\n"
    );
    let ran = lab.run(&plan, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let record = lab.record();
    let summary = record.summary("default", 1);
    assert_eq!(summary["failures"]["check"], 2);
    let examples = record.lines("default", 1, "examples.jsonl");
    let failed = examples.iter().find(|e| e["outcome"] == "check").unwrap();
    assert_eq!(failed["error"], "JSON `/price` is not 4: 3");
    assert!(failed["request_head"].as_str().unwrap().starts_with("GET /item/5 HTTP/1.1\r\n"), "{failed}");
    assert_eq!(failed["user"], 0);
    assert!(!server.counts().targets.contains_key("/never"), "the round was over");
}

/// Users arrive, complete their journey, and leave.
#[test]
fn sessions_arrive_and_leave() {
    let books = Arc::new(Mutex::new(Books::default()));
    let server = shop(books.clone());
    let lab = Lab::new();
    let at = server.url("");
    let at = at.trim_end_matches('/');
    let plan = format!(
        "loadlab: 1\nname: n\nload:\n  sessions: 20/s\n  duration: 1s\n  journey:\n    \
         - {{ post: {at}/login, form: {{ user: \"u${{user}}\" }}, capture: {{ token: {{ json: /auth/token }} }} }}\n    \
         - {{ get: {at}/x, auth: {{ bearer: \"${{token}}\" }} }}\n    - {{ post: {at}/logout, auth: {{ bearer: \"${{token}}\" }} }}\n"
    );
    let ran = lab.run(&plan, &[]);
    assert!(matches!(ran.code, Some(0 | 4)), "{ran:?}");
    let books = books.lock().unwrap();
    assert_eq!((books.logins.len(), books.logouts, books.strangers), (20, 20, 0), "each is somebody else");
    let summary = lab.record().summary("default", 1);
    assert_eq!((&summary["requests"]["ok"], &summary["connections"]["opened"]), (&60.into(), &20.into()));
    assert_eq!(summary["load"]["sessions"], true);
    assert!(lab.record().report("md").contains("users arriving at 20/s"));
}

/// Feed files are checked before anything is brought up.
#[test]
fn a_feed_without_the_column_is_a_mistake_of_the_plan() {
    let lab = Lab::new();
    lab.file("people.csv", "name,secret\nann,x\n");
    let plan = |file: &str, column: &str| {
        format!(
            "loadlab: 1\nname: n\nload:\n  users: 1\n  requests: 1\n  feeds: {{ people: {{ file: {file} }} }}\n  \
             journey: [{{ get: \"http://127.0.0.1:9/${{{column}}}\" }}]\n"
        )
    };
    for (file, column, words) in [
        ("people.csv", "people.nam", "plan.yaml:7:"),
        ("people.csv", "people.nam", "has no column `nam`"),
        ("absent.csv", "people.name", "plan.yaml:6:"),
        ("absent.csv", "people.name", "No such file"),
    ] {
        let ran = lab.loadlab(&[
            "run",
            &lab.file("plan.yaml", &plan(file, column)).display().to_string(),
            "--out",
            "r",
        ]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(words), "{}", ran.err);
        let _ = std::fs::remove_dir_all(lab.path().join("r"));
    }
}

/// A `setup` that fails ends the trial before it begins.
#[test]
fn a_setup_that_fails_is_reported() {
    let server = shop(Arc::default());
    let lab = Lab::new();
    let url = server.url("/nothing");
    let plan = format!(
        "loadlab: 1\nname: n\nsetup: [{{ get: {url} }}]\nload: {{ users: 1, requests: 1, journey: [{{ get: {url} }}] }}\n"
    );
    let ran = lab.run(&plan, &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("`setup` failed: GET /nothing: status 401"), "{}", ran.err);
}

/// The same customers through a server that speaks TLS and, if allowed, HTTP/2; both counts must match.
#[test]
fn customers_shop_over_http2_and_over_what_the_server_offers() {
    for (takes_http2, goodbye_after, how, spoken) in [
        (true, 1000, "  protocol: http/2\n  streams_per_connection: 2\n", "http/2"),
        (true, 1000, "  protocol: auto\n  streams_per_connection: 2\n", "http/2"),
        (false, 1000, "  protocol: auto\n  streams_per_connection: 2\n", "http/1.1"),
        (true, 5, "  protocol: http/2\n", "http/2"),
    ] {
        let books = Arc::new(Mutex::new(Books::default()));
        let server = shop(books.clone());
        let front = Front::start(server.url("").trim_end_matches('/'), takes_http2, goodbye_after);
        let lab = people_and_items();
        let trust = format!("  tls: {{ ca: {} }}\n", front.authority().display());
        let plan = customers(&front.url(), &format!("{how}{trust}"));
        let ran = lab.run(&plan, &[]);
        ran.expect(0, &[]);
        let books = books.lock().unwrap();
        assert_eq!(books.logins, BTreeMap::from([("ann".to_owned(), 1), ("bob".to_owned(), 1)]), "{how}");
        assert_eq!(
            (books.logouts, books.strangers, books.bought.len(), books.cookies),
            (2, 0, 6, 26),
            "{how}"
        );
        let record = lab.record();
        let summary = record.summary("default", 1);
        let requests = &summary["requests"];
        assert_eq!((&requests["ok"], &requests["started"]), (&28.into(), &28.into()), "{summary:#}");
        assert_eq!(summary["load"]["protocol"], spoken);
        let opened = summary["connections"]["opened"].as_u64().unwrap();
        match (spoken, goodbye_after) {
            ("http/2", 1000) => assert_eq!(opened, 1, "two users share it"),
            ("http/1.1", _) => assert_eq!(opened, 2),
            // Each user sends 14 requests, and nginx sends a GOAWAY after every fifth.
            _ => assert!((6..=8).contains(&opened), "{opened}"),
        }
        assert_eq!(server.counts().requests, 29);
        let version = if spoken == "http/2" { "HTTP/2.0" } else { "HTTP/1.1" };
        // From `setup` and from the load; a handshake that only negotiates is not a request.
        assert_eq!(front.answered(version, 29), 29, "{how}");
        let noted = record.lines("default", 1, "events.jsonl").iter().any(|e| {
            let text = e["text"].as_str().unwrap_or_default();
            text.contains("as negotiated before the load")
        });
        assert_eq!(noted, how.contains("auto"));
    }
}

/// Captured numbers are reported, and expectations can use them.
#[test]
fn captured_numbers_are_statistics() {
    let server = shop(Arc::default());
    let lab = Lab::new();
    let at = server.url("");
    let at = at.trim_end_matches('/');
    let plan = format!(
        "loadlab: 1\nname: n\nload:\n  users: 1\n  repeats: 30\n  user_setup: [{{ post: {at}/login, form: {{ user: u }}, capture: {{ token: {{ json: /auth/token }} }} }}]\n  \
         journey:\n    - {{ get: \"{at}/item\", auth: {{ bearer: \"${{token}}\" }}, capture: {{ price: {{ json: /price, number: true }} }} }}\n\
         expect: [\"number.price.p50 == 3\", \"number.price.count == 30\", \"number.price.max < 3.5\"]\n"
    );
    let ran = lab.run(&plan, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = lab.record();
    let price = &record.summary("default", 1)["numbers"]["price"];
    let three = serde_json::json!(3.0);
    assert_eq!((&price["count"], &price["mean"], &price["p50"]), (&30.into(), &three, &three), "{price}");
    assert!(price["p99"].is_null(), "thirty values tell no p99");
    for format in ["md", "text", "html"] {
        assert!(record.report(format).contains("Captured numbers"), "{format}");
    }
    let unknown = plan.replace("number.price.p50", "number.prise.p50");
    let ran = lab.run(&unknown, &["--dry-run"]);
    assert!(ran.err.contains("did you mean `number.price.p50`?"), "{}", ran.err);
}

/// If a server's protocol cannot be determined, the error names the server, and nothing is sent.
#[test]
fn an_unknown_server_protocol_is_an_error() {
    let server = shop(Arc::default());
    let lab = Lab::new();
    let at = server.url("").replace("http:", "https:");
    let plan = |protocol: &str, url: &str| {
        format!(
            "loadlab: 1\nname: n\nload: {{ users: 1, requests: 2, protocol: {protocol}, tls: {{ insecure: true }}, journey: [{{ get: \"{url}\" }}] }}\n"
        )
    };
    let ran = lab.run(&plan("auto", &at), &[]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.err.contains("`protocol` of `load`: cannot determine the server's protocol: 127.0.0.1:"));
    assert!(ran.err.contains("hint: set `protocol: http/1.1` or `http/2`"), "{}", ran.err);
    // Without TLS there is no negotiation, so the protocol is HTTP/1.1.
    let lab = Lab::new();
    lab.run(&plan("auto", &server.url("/x")), &[]).expect(0, &[]);
    assert_eq!(lab.record().summary("default", 1)["load"]["protocol"], "http/1.1");
}

/// Nothing was ever answered, since the server is not trusted: exit code 5 and the reason, even with --quiet.
#[test]
fn a_certificate_that_is_not_trusted_is_the_reason_that_is_given() {
    let server = shop(Arc::default());
    let front = Front::start(server.url("").trim_end_matches('/'), false, 1000);
    let lab = Lab::new();
    let plan = format!(
        "loadlab: 1\nname: n\nload:\n  users: 1\n  requests: 2\n  journey: [{{ get: \"{}/x\" }}]\n",
        front.url()
    );
    for args in [&[][..], &["--quiet"], &["--quiet", "--json"]] {
        let ran = lab.run(&plan, args);
        ran.expect(5, &["no TLS connection with", "self-signed", "hint:", "insecure"]);
        std::fs::remove_dir_all(lab.path().join(lab.run_name())).expect("its record");
    }
    assert_eq!(server.counts().requests, 0);
}

/// If the server lacks the protocol that the plan requires, requests fail with that reason and a separate message.
#[test]
fn a_server_without_the_protocol_asked_for_fails_as_tls() {
    let server = shop(Arc::default());
    let front = Front::start(server.url("").trim_end_matches('/'), false, 1000);
    let lab = Lab::new();
    let plan = format!(
        "loadlab: 1\nname: n\nload:\n  users: 1\n  requests: 2\n  protocol: http/2\n  tls: {{ insecure: true }}\n  journey: [{{ get: \"{}/x\" }}]\n",
        front.url()
    );
    lab.run(&plan, &[]);
    let record = lab.record();
    let summary = record.summary("default", 1);
    assert_eq!((&summary["failures"]["tls"], &summary["requests"]["started"]), (&2.into(), &2.into()));
    let examples = record.lines("default", 1, "examples.jsonl");
    let reported = examples[0]["error"].as_str().unwrap();
    assert!(reported.contains("protocol"), "{reported}");
    assert_eq!(server.counts().requests, 0);
}
