//! Metrics pushed to a collector with its own counts, and to collectors that are down, refuse, or never answer.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::common::server::{Request, Server, Step, good, response, send};
use crate::common::{Ran, Running, bench, command};
use crate::run_support::front::Front;

/// The pushes a collector received, in order.
type Received = Arc<Mutex<Vec<Value>>>;

/// A collector that accepts every push and answers the n-th with these steps.
fn collector(answer: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> (Server, Received) {
    let received = Received::default();
    let kept = received.clone();
    let server = Server::start(move |request: &Request| {
        assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/metrics"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        let body = serde_json::from_slice(&request.body).expect("JSON");
        let mut kept = kept.lock().expect("no test panics in it");
        kept.push(body);
        answer(kept.len())
    });
    (server, received)
}

fn takes(_: usize) -> Vec<Step> {
    vec![send(response(200, "{}"))]
}

/// The points of a metric in a push, by their attributes.
fn points(push: &Value, name: &str) -> Vec<(BTreeMap<String, String>, f64)> {
    let metrics = push["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().expect("metrics");
    let of = |metric: &Value| {
        let data = metric["sum"].as_object().or(metric["gauge"].as_object()).expect("a sum or a gauge");
        let point = |p: &Value| {
            let attributes = p["attributes"].as_array().expect("attributes").iter();
            let text = |a: &Value| a["value"]["stringValue"].as_str().expect("text").to_owned();
            let labels =
                attributes.map(|a| (a["key"].as_str().expect("a key").to_owned(), text(a))).collect();
            (labels, p["asDouble"].as_f64().expect("a number"))
        };
        data["dataPoints"].as_array().expect("points").iter().map(point).collect::<Vec<_>>()
    };
    metrics.iter().filter(|m| m["name"] == name).flat_map(of).collect()
}

fn ok_of(push: &Value) -> Option<f64> {
    points(push, "loadlab.requests").into_iter().find(|(labels, _)| labels["outcome"] == "ok").map(|(_, n)| n)
}

/// A timeout long enough for any collector that answers, however busy the machine; only silent collectors get a short
/// one.
fn load(target: &Server, url: &str, more: &[&str]) -> Ran {
    load_within(target, url, more, "20000")
}

fn load_within(target: &Server, url: &str, more: &[&str], timeout_ms: &str) -> Ran {
    let args = ["-c", "4", "-n", "3000", "--otlp", url, "--otlp-interval", "50ms"];
    let mut command = command(&[&[target.url("/").as_str()], &args[..], more].concat());
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", timeout_ms);
    Running::start(command).wait()
}

#[test]
fn the_last_push_holds_what_the_server_counted() {
    let target = Server::start(good);
    let (server, received) = collector(takes);
    let ran = load(&target, &server.url(""), &["--quiet"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let pushes = received.lock().expect("it is done");
    let reported: Vec<f64> = pushes.iter().filter_map(ok_of).collect();
    assert!(reported.is_sorted(), "a sum never shrinks: {reported:?}");
    let last = pushes.last().expect("at least the last push");
    assert_eq!(target.settled().answered, 3000);
    assert_eq!(ok_of(last), Some(3000.0));
    assert_eq!(points(last, "loadlab.due")[0].1, 3000.0);
    assert_eq!(points(last, "loadlab.dropped")[0].1, 0.0);
    let quantiles: Vec<String> =
        points(last, "loadlab.response").into_iter().map(|(labels, _)| labels["quantile"].clone()).collect();
    assert_eq!(quantiles, ["0.5", "0.99"]);
    // the schema's JSON mapping: 64-bit numbers are text, and points have times
    let metrics = last["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().expect("metrics");
    let requests = metrics.iter().find(|m| m["name"] == "loadlab.requests").expect("requests");
    assert_eq!(requests["unit"], "{request}");
    assert_eq!(
        (&requests["sum"]["aggregationTemporality"], &requests["sum"]["isMonotonic"]),
        (&json!(2), &json!(true))
    );
    let point = &requests["sum"]["dataPoints"][0];
    let ns =
        |key: &str| point[key].as_str().and_then(|t| t.parse::<u64>().ok()).expect("nanoseconds as text");
    assert!(
        ns("startTimeUnixNano") > 1_700_000_000_000_000_000 && ns("startTimeUnixNano") < ns("timeUnixNano")
    );
    let resource = &last["resourceMetrics"][0]["resource"]["attributes"];
    assert_eq!(resource[0], json!({ "key": "service.name", "value": { "stringValue": "loadlab" } }));
}

/// Whatever a collector does, the run is unaffected and reports the problem once.
#[test]
fn a_collector_that_fails_disturbs_nothing_and_is_reported_once() {
    let target = Server::start(good);
    let check = |url: &str, more: &[&str], expect: &str| {
        let before = target.settled().answered;
        let is_slow = expect.starts_with("no answer");
        let ran = load_within(&target, url, more, if is_slow { "2000" } else { "20000" });
        assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
        let reported: Vec<&str> = ran.stderr.lines().filter(|l| l.contains("--otlp")).collect();
        assert!(reported.len() == 1 && reported[0].contains(expect), "{reported:?} has no {expect}");
        assert_eq!(target.settled().answered, before + 3000);
    };
    // A port that the kernel never assigns.
    let nobody = "http://127.0.0.1:1".to_owned();
    check(&nobody, &[], "refused");
    check(&nobody, &["--quiet"], "refused");
    let (busy, _) = collector(|_| vec![send(response(503, "later"))]);
    check(&busy.url(""), &[], "it answered 503");
    let (partial, received) = collector(|n| {
        let some = r#"{"partialSuccess":{"rejectedDataPoints":"2","errorMessage":"too old"}}"#;
        vec![send(response(200, if n == 1 { some } else { "{}" }))]
    });
    check(&partial.url(""), &[], "it rejected 2 points: too old");
    // the push is retried, and the running sums make up for what was lost
    assert_eq!(received.lock().expect("it is done").last().and_then(ok_of), Some(3000.0));
    let (silent, _) = collector(|_| vec![Step::Hang]);
    check(&silent.url(""), &[], "no answer");
    // A status line that never ends, one byte at a time.
    let (slow, _) = collector(|_| {
        let byte = || [send("H"), Step::Wait(std::time::Duration::from_millis(300))];
        (0..30).flat_map(|_| byte()).collect()
    });
    check(&slow.url(""), &[], "no answer: not within 2 s");
    let (rude, _) = collector(|_| vec![send("SSH-2.0-none\r\n"), Step::Close]);
    check(&rude.url(""), &[], "the answer is not HTTP");
}

/// nginx terminates TLS for a collector.
#[test]
fn over_https_with_credentials() {
    let target = Server::start(good);
    let received = Received::default();
    let kept = received.clone();
    let collector = Server::start(move |request: &Request| {
        if request.header("authorization") != Some("Bearer s3cret") {
            return vec![send(response(401, "who?"))];
        }
        kept.lock().expect("no test panics in it").push(serde_json::from_slice(&request.body).expect("JSON"));
        takes(1)
    });
    let front = Front::start(&collector.url(""), false, 1000);
    let authority = front.authority().display().to_string();
    let trusted = ["--otlp-ca", &authority, "--quiet"];
    let ran = load(
        &target,
        &front.url(),
        &[&trusted[..], &["--otlp-header", "Authorization: Bearer s3cret"]].concat(),
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let pushes = received.lock().expect("it is done");
    assert_eq!(pushes.last().and_then(ok_of), Some(3000.0));
    assert!(
        front.answered("HTTP/1.1\" 200", pushes.len() as u64) >= pushes.len() as u64,
        "pushes that did not come through nginx"
    );

    let check = |url: &str, more: &[&str], expect: &str| {
        let is_slow = expect.starts_with("no answer");
        let ran = load_within(&target, url, more, if is_slow { "2000" } else { "20000" });
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let reported: Vec<&str> = ran.stderr.lines().filter(|l| l.contains("--otlp")).collect();
        assert!(reported.len() == 1 && reported[0].contains(expect), "{reported:?} has no {expect}");
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    };
    check(&front.url(), &trusted, "it answered 401");
    check(
        &front.url(),
        &["--quiet", "--otlp-header", "X: s3cret"],
        "certificate is self-signed, or signed by an unknown authority",
    );
    // A server that answers a TLS greeting as a plain web server would.
    let plain = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}", plain.local_addr().expect("its address"));
    std::thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&response(400, "what?"));
        }
    });
    check(&url, &trusted, "the server does not speak TLS here");
}

#[test]
fn mistakes_of_usage() {
    let check = |args: &[&str], expect: &str| {
        let ran = bench(&[&["http://127.0.0.1:9/"], args].concat());
        assert!(ran.code == 2 && ran.stderr.contains(expect), "{}", ran.stderr);
    };
    for timeout in ["2s", "0", "-1"] {
        let mut command = command(&["http://127.0.0.1:9/", "--otlp", "http://127.0.0.1:1"]);
        command.env("OTEL_EXPORTER_OTLP_TIMEOUT", timeout);
        let ran = Running::start(command).wait();
        let expect = format!("--otlp: OTEL_EXPORTER_OTLP_TIMEOUT={timeout}: it must be milliseconds");
        assert!(ran.code == 2 && ran.stderr.contains(&expect), "{}", ran.stderr);
    }
    check(
        &["--otlp", "https://collector", "--otlp-ca", "/nowhere/ca.pem"],
        "--otlp: cannot read /nowhere/ca.pem",
    );
    check(
        &["--otlp", "https://collector", "--otlp-ca", "/dev/null"],
        "--otlp: the CA file contains no certificate",
    );
    check(&["--otlp", "https://bad_host!"], "`bad_host!` is not a host");
    check(&["--otlp", "https://-bad"], "`-bad` is not a name that a certificate can be issued for");
    check(&["--otlp", "http://c", "--otlp-header", "a b: c"], "--otlp: `a b` is not a header name");
    check(&["--otlp", "http://c", "--otlp-header", "secret"], "expected `Name: value`");
    check(&["--otlp-header", "a: b"], "--otlp <URL>");
    check(&["--otlp-ca", "a"], "--otlp <URL>");
    check(&["--otlp", "collector:4318"], "is not a URL such as `http://127.0.0.1:4318`");
    check(&["--otlp-interval", "1s"], "--otlp <URL>");
}
