//! The times that `loadlab bench` reports, compared with the server's own log, and its conclusions: verdicts, doubts,
//! exit codes. These tests take real seconds and run one at a time; the tolerances allow for a busy machine, not for
//! wrong figures.

use std::time::Duration;

use super::alone::alone;
use crate::common::server::{Counts, Request, Server, Step, always, good, response, send, slow};
use crate::common::{
    Running, at, bench, check_identities, check_same, command, doubts, f, measured, measured_again, n,
    side_by_side,
};
use crate::on_every_backend;

on_every_backend! {
    a_frozen_server_shows_its_full_weight
    a_frozen_server_and_few_slots_is_blocking
    fast_failures_improve_nothing
    percentiles_beyond_the_timeout_are_lower_bounds
    too_few_samples_give_no_percentile
    expectations_and_their_exit_codes
    exit_codes_in_their_order
    a_generator_that_stalled_is_invalid
}

/// Response times in milliseconds according to the server's log: request k of a constant rate was due at its own
/// time, and the k-th answer is its answer. Sorted.
fn truth(server: &Counts, rate_per_s: f64) -> Vec<f64> {
    let seconds = |pick: fn(&(Duration, Duration)) -> Duration| {
        let mut all: Vec<f64> = server.log.iter().map(|entry| pick(entry).as_secs_f64()).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let (came, answered) = (seconds(|e| e.0), seconds(|e| e.1));
    let due = |k: usize| k as f64 / rate_per_s;
    // No request arrives before it is due, so the request that arrived earliest relative to its number shows when the
    // load began.
    let begin = came.iter().enumerate().map(|(k, at)| at - due(k)).fold(f64::INFINITY, f64::min);
    let mut times: Vec<f64> =
        answered.iter().enumerate().map(|(k, at)| (at - begin - due(k)) * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    sorted[((sorted.len() as f64 * quantile).ceil() as usize).clamp(1, sorted.len()) - 1]
}

/// loadlab may be blamed only for its own lateness.
fn check_blame(json: &serde_json::Value, code: i32) {
    if code == 4 {
        assert!(doubts(json).contains(&"late".to_owned()), "{json:#}");
        // With few requests there is no p99.
        let late_ms = f(json, "late_ms.p99").or(f(json, "late_ms.max"));
        assert!(late_ms > Some(1.0), "{json:#}");
    } else {
        assert_eq!(code, 0, "{json:#}");
    }
}

#[expect(clippy::disallowed_methods, reason = "a server frozen for a known time is what is tested")]
fn a_frozen_server_shows_its_full_weight() {
    let _alone = alone();
    let server = Server::start(good);
    let running = Running::start(command(&["--json", &server.url("/"), "-r", "1000/s", "-d", "10s"]));
    server.after(4000);
    server.freeze();
    std::thread::sleep(Duration::from_millis(1500));
    server.thaw();
    let ran = running.wait();
    let json = ran.json();
    check_identities(&json);
    let counts = server.settled();
    check_same(&json, &counts);
    check_blame(&json, ran.code);
    assert_eq!((n(&json, "requests.ok"), n(&json, "requests.due")), (10_000, 10_000));
    let truth = truth(&counts, 1000.0);
    // The server cannot know the generator's own lateness, which loadlab reports.
    let late_ms = f(&json, "late_ms.max").unwrap();
    for (name, q, at_least) in
        [("p90", 0.9, 400.0), ("p99", 0.99, 1300.0), ("p99_9", 0.999, 1400.0), ("max", 1.0, 1450.0)]
    {
        let (reported, true_ms) = (f(&json, &format!("response_ms.{name}")).unwrap(), quantile(&truth, q));
        let allowed_ms = 0.05 * true_ms + 30.0 + late_ms;
        assert!(
            (reported - true_ms).abs() <= allowed_ms,
            "{name}: reported {reported}, true {true_ms}, late by {late_ms}"
        );
        assert!(reported >= at_least, "{name}: {reported}");
    }
    assert!(f(&json, "response_ms.p50").unwrap() < 100.0, "{json:#}");
}

/// Whether nothing came to the server for 20 ms in the last two of six seconds.
fn has_pause(counts: &Counts) -> bool {
    let mut came: Vec<Duration> = counts.log.iter().map(|(came, _)| *came).collect();
    came.sort();
    let late = came.first().copied().unwrap_or_default() + Duration::from_secs(4);
    came.windows(2).any(|pair| pair[1] > late && pair[1] - pair[0] > Duration::from_millis(20))
}

#[expect(clippy::disallowed_methods, reason = "a server frozen for a known time is what is tested")]
fn a_frozen_server_and_few_slots_is_blocking() {
    let _alone = alone();
    let frozen = || {
        let server = Server::start(good);
        let args = ["--json", &server.url("/"), "-r", "1000/s", "-d", "6s", "--max-in-flight", "50"];
        let running = Running::start(command(&args));
        server.after(1000);
        server.freeze();
        std::thread::sleep(Duration::from_millis(1000));
        server.thaw();
        let ran = running.wait();
        let json = ran.json();
        check_identities(&json);
        (json, ran.code, server.settled())
    };
    let (mut json, mut code, mut counts) = frozen();
    for _ in 0..7 {
        // If loadlab or the server has no core just when the load ends, more is due then than there are slots.
        if n(&json, "requests.dropped") > 0 && (f(&json, "late_ms.max") > Some(20.0) || has_pause(&counts)) {
            (json, code, counts) = frozen();
        }
    }
    check_blame(&json, code);
    assert!(counts.peak <= 50);
    assert_eq!(n(&json, "requests.dropped"), 0, "it catches up: {json:#}");
    let true_ms = quantile(&truth(&counts, 1000.0), 0.9);
    let reported = f(&json, "response_ms.p90").unwrap();
    let late_ms = f(&json, "late_ms.max").unwrap();
    assert!(
        (reported - true_ms).abs() <= 0.05 * true_ms + 30.0 + late_ms,
        "reported {reported}, true {true_ms}, late by {late_ms}"
    );
    assert!(f(&json, "blocked_ms.max").unwrap() > 700.0, "{json:#}");
    assert!(doubts(&json).contains(&"in_flight_cap".to_owned()));
    assert!(f(&json, "service_ms.p50").unwrap() < 100.0);
}

fn fast_failures_improve_nothing() {
    let _alone = alone();
    let server = Server::start(|r: &Request| match r.number % 2 {
        0 => slow(Duration::from_millis(60))(r),
        _ => vec![send(response(503, "busy"))],
    });
    for load in [["-c", "10"], ["-r", "200/s"]] {
        let url = server.url("/");
        let mut args = vec![url.as_str(), "-n", "400"];
        args.extend(load);
        let (json, _) = measured(&args);
        assert_eq!((n(&json, "requests.ok"), n(&json, "failures.http_5xx")), (200, 200));
        assert!(f(&json, "response_ms.p50").unwrap() >= 60.0, "{json:#}");
        assert!(f(&json, "response_ms.min").unwrap() >= 60.0);
        assert!(f(&json, "failed_response_ms.p50").unwrap() < 60.0, "{json:#}");
        assert_eq!((n(&json, "response_ms.count"), n(&json, "failed_response_ms.count")), (200, 200));
        assert_eq!(f(&json, "availability"), Some(0.5));
        assert!(f(&json, "rate_per_s.ok").unwrap() < f(&json, "rate_per_s.started").unwrap());
    }
}

fn percentiles_beyond_the_timeout_are_lower_bounds() {
    let _alone = alone();
    let server = Server::start(|r: &Request| match r.number % 5 {
        0 => vec![Step::Hang],
        _ => good(r),
    });
    let (json, code) = measured(&[
        &server.url("/"),
        "-n",
        "1000",
        "-c",
        "200",
        "--timeout",
        "4s",
        "--expect",
        "p99 < 1h",
        "--expect",
        "p50 < 1h",
    ]);
    // On a busy machine a good answer may take that long as well.
    assert!((200..300).contains(&n(&json, "failures.timeout")), "{json:#}");
    assert_eq!(n(&json, "requests.ok") + n(&json, "failures.timeout"), 1000);
    for name in ["p90", "p95", "p99", "max"] {
        assert_eq!(f(&json, &format!("response_ms.{name}")), None, "{name}: {json:#}");
        assert!(f(&json, &format!("response_ms.over_ms.{name}")).unwrap() >= 4000.0, "{name}");
    }
    assert!(f(&json, "response_ms.p50").unwrap() < 1000.0);
    // An unknown value fails any upper bound, however high.
    let (p99, p50) = (&json["expectations"][0], &json["expectations"][1]);
    assert_eq!((p99["holds"].as_bool(), p50["holds"].as_bool()), (Some(false), Some(true)), "{json:#}");
    assert_eq!((code, at(&json, "verdict").as_str()), (1, Some("fail")), "{json:#}");
}

fn too_few_samples_give_no_percentile() {
    let _alone = alone();
    let server = Server::start(good);
    let (json, code) = measured_again(&[
        &server.url("/"),
        "-n",
        "100",
        "-c",
        "2",
        "--expect",
        "p90 < 10s",
        "--expect",
        "p99 < 10s",
        "--expect",
        "p99 > 1ns",
    ]);
    for (name, reported) in
        [("p50", true), ("p75", true), ("p90", true), ("p95", false), ("p99", false), ("p99_99", false)]
    {
        assert_eq!(f(&json, &format!("response_ms.{name}")).is_some(), reported, "{name}: {json:#}");
    }
    assert_eq!(json["response_ms"]["over_ms"], serde_json::json!({}));
    // A few samples give an estimate within an interval. 100 samples give p99 no upper bound, however fast they are.
    assert!(json["response_ms"].get("p90_interval").is_none(), "{json:#}");
    let (estimate, interval) = (f(&json, "response_ms.p99_estimate"), &json["response_ms"]["p99_interval"]);
    assert!(interval[1].is_null() && interval[0].as_f64() <= estimate && estimate.is_some(), "{json:#}");
    assert!(estimate <= f(&json, "response_ms.max"), "{json:#}");
    let [p90, p99, above] = [0, 1, 2].map(|i| &json["expectations"][i]);
    assert_eq!((p90["holds"].as_bool(), above["holds"].as_bool()), (Some(true), Some(true)), "{json:#}");
    assert!(
        p99["holds"].is_null() && p99["note"].as_str().unwrap().contains("1,000 would decide it"),
        "{p99}"
    );
    let undecided = &p99["undecided"];
    assert_eq!((&undecided["samples"], &undecided["needed"]), (&100.into(), &1000.into()), "{p99}");
    let (needed_s, window_s) = (undecided["needed_s"].as_f64().unwrap(), f(&json, "window.to_s").unwrap());
    assert!((needed_s - 10.0 * window_s).abs() < 1e-6, "{p99}");
    assert_eq!((at(&json, "verdict").as_str(), code), (Some("undecided"), 6), "{json:#}");
}

fn expectations_and_their_exit_codes() {
    let _alone = alone();
    let server = Server::start(|r: &Request| match r.number % 100 {
        99 => vec![send(response(500, "no"))],
        _ => good(r),
    });
    for (expect, holds) in [
        ("p50 < 10s", Some(true)),
        ("p50 < 1ns", Some(false)),
        ("errors < 2%", Some(true)),
        ("errors < 0.5%", Some(false)),
        ("failed == 2", Some(true)),
        ("dropped == 0 and failed <= 2", Some(true)),
        ("goodput > 1/s or failed > 100", Some(true)),
        ("max < 10s and p90 < 10s", Some(true)),
        // However fast the answers: 200 samples are too few to put p99 below any value, but enough to put it above one.
        ("p99_9 < 10h", None),
        ("p99 < 10h and failed == 2", None),
        ("p99 < 10h or failed == 2", Some(true)),
        ("p99_9 < 1ns", Some(false)),
        ("p99_9 > 1ns", Some(true)),
    ] {
        let (json, code) = measured_again(&[&server.url("/"), "-n", "200", "-c", "4", "--expect", expect]);
        assert_eq!(json["expectations"][0]["holds"].as_bool(), holds, "{expect}: {json:#}");
        let (exit, verdict) = match holds {
            Some(true) => (0, "pass"),
            Some(false) => (1, "fail"),
            None => (6, "undecided"),
        };
        assert_eq!((code, at(&json, "verdict").as_str()), (exit, Some(verdict)), "{expect}");
    }
    let (json, code) = measured_again(&[&server.url("/"), "-n", "200", "-c", "4"]);
    assert_eq!((code, at(&json, "verdict").as_str()), (0, Some("none")));
}

fn exit_codes_in_their_order() {
    let _alone = alone();
    let never = ["--expect", "p50 < 1ns"];
    // 1 before 6
    let server = Server::start(good);
    let few = [&server.url("/"), "-n", "30", "-c", "2", "--expect", "p99 < 10h"];
    let both = [&few[..], &never].concat();
    let mut ran = bench(&both);
    for _ in 0..7 {
        if ran.code == 4 {
            ran = bench(&both);
        }
    }
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let mut ran = bench(&few);
    for _ in 0..7 {
        // INVALID because this machine is busy.
        if ran.code == 4 {
            ran = bench(&few);
        }
    }
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    assert!(
        ran.stdout.starts_with("UNDECIDED ") && ran.stdout.contains("? undecided p99 < 10h"),
        "{}",
        ran.stdout
    );
    // 130 before 1
    let server = Server::start(slow(Duration::from_millis(5)));
    let url = server.url("/");
    let running = Running::start(command(&[&["--json", &url, "-d", "50s"][..], &never].concat()));
    server.after(200);
    running.signal(libc::SIGINT);
    let ran = running.wait();
    assert_eq!((ran.code, at(&ran.json(), "verdict").as_str()), (130, Some("fail")));
    // 5 before 1, at a port where nothing listens
    let nobody = {
        let server = Server::start(good);
        server.url("/")
    };
    assert_eq!(bench(&[&[nobody.as_str()][..], &never].concat()).code, 5);
    // 2 before 5: the input is checked before the environment
    let ran = bench(&["http://192.0.2.1/", "--expect", "p99 <"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let ran = bench(&["http://192.0.2.1/", "--stop-when", "nonsense > 1"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
}

/// loadlab was stopped for 400 ms, and its threads take a turn at least every 100 ms.
fn check_stalls(json: &serde_json::Value) {
    assert!(doubts(json).contains(&"generator_stalled".to_owned()), "{json:#}");
    let still = |key: &str| f(json, &format!("generator.stalls.{key}")).unwrap();
    let (longest, began) = (still("max_s"), still("max_at_s"));
    assert!(longest > 0.29 && longest <= still("total_s") && still("count") >= 1.0, "{json:#}");
    assert!(began >= 0.0 && began + longest <= f(json, "elapsed_s").unwrap() + 0.1, "{json:#}");
}

/// Stopped from outside in the middle of a schedule, loadlab measured its own stall.
#[expect(clippy::disallowed_methods, reason = "a generator stopped for a known time is what is tested")]
fn a_generator_that_stalled_is_invalid() {
    let _alone = alone();
    let stand_still = |load: &[&str]| {
        let server = Server::start(slow(Duration::from_millis(2)));
        let url = server.url("/");
        let running = Running::start(command(
            &[&["--json", &url, "-d", "4s", "--expect", "p50 < 1ns"][..], load].concat(),
        ));
        server.after(100);
        running.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(400));
        running.signal(libc::SIGCONT);
        let ran = running.wait();
        let json = ran.json();
        check_identities(&json);
        assert_eq!(server.settled().requests, n(&json, "requests.started"));
        // reported while it ran, and not only at the end
        let reported =
            ran.stderr.lines().filter(|l| l.contains("doubt generator_stalled: loadlab stalled for "));
        assert!(reported.count() >= 1, "{}", ran.stderr);
        (ran.code, json)
    };
    // At the same time: a busier machine makes stalls longer, and longer is what is asserted.
    let [open, closed] = side_by_side([["-r", "400/s"], ["-c", "4"]], |load| stand_still(&load));
    let (code, json) = open;
    // 4 before 1
    assert_eq!((code, at(&json, "verdict").as_str()), (4, Some("invalid")), "{json:#}");
    assert!(doubts(&json).contains(&"late".to_owned()));
    assert!(f(&json, "late_ms.max").unwrap() > 300.0);
    assert_eq!(n(&json, "requests.due"), 1600);
    check_stalls(&json);
    // Users have no due times to miss.
    let (code, json) = closed;
    assert_eq!((code, doubts(&json).contains(&"late".to_owned())), (1, false), "{json:#}");
    check_stalls(&json);
    // A server that is slow, or never answers, is not the generator's fault. Few enough requests that all can be sent
    // at the end, if a busy machine has no core for loadlab before.
    let server = Server::start(always(vec![Step::Hang]));
    let (json, code) = measured(&[&server.url("/"), "-r", "50/s", "-d", "1s", "--timeout", "300ms"]);
    check_blame(&json, code);
    assert_eq!(n(&json, "failures.timeout"), 50);
}
