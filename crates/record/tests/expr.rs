//! Expressions: what parses, what is refused and how, and what holds.

use std::collections::HashMap;

use loadlab_record::Failure;
use loadlab_record::Histogram;
use loadlab_record::counts::hlog::Interval;
use loadlab_record::counts::load::{Counts, Tick};
use loadlab_record::counts::quantile::{Estimate, FewSamples};
use loadlab_record::documents::figure::NumberKind;
use loadlab_record::documents::summary::{Distribution, LoadSummary, Requests, Summary};
use loadlab_record::expr::{
    Between, Evaluated, Expr, Figure, Known, MAX_DEPTH, NAMES, NumberSource, SummaryNumbers, TrialPart,
    Window, built_in_kind, built_in_names, component_names, kind_of, probe_names, tag_names,
};
use proptest::prelude::*;
use serde_json::json;

/// Numbers by name; unknown otherwise.
#[derive(Default)]
struct Table(HashMap<&'static str, Known>, Option<bool>);

impl NumberSource for Table {
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known {
        match (self.0.get(name), part) {
            (Some(known), None) => known.clone(),
            (Some(_), Some(TrialPart::Window(w))) => Known::Is(w.length_s() * 1000.0, NumberKind::Duration),
            (Some(_), Some(TrialPart::Batch(number))) => Known::Is(f64::from(number), NumberKind::Duration),
            (Some(_), Some(TrialPart::Drain)) => Known::Is(7.0, NumberKind::Duration),
            (None, _) => Known::Unknown("nobody measured it".to_owned()),
        }
    }

    fn steady(&self, name: &str, for_ns: u64) -> Option<bool> {
        assert_eq!((name, for_ns), ("stored", 5_000_000_000));
        self.1
    }
}

fn table() -> Table {
    let is = Known::Is;
    Table(
        HashMap::from([
            ("p99", is(150.0, NumberKind::Duration)),
            ("p50", is(12.5, NumberKind::Duration)),
            ("service.p99", is(100.0, NumberKind::Duration)),
            ("p99_9", Known::AtLeast(1_200.0, NumberKind::Duration)),
            ("errors", is(0.001, NumberKind::Fraction)),
            ("failed", is(7.0, NumberKind::Plain)),
            ("stored", is(95.0, NumberKind::Plain)),
            ("accepted", is(100.0, NumberKind::Plain)),
            ("hits", is(0.93, NumberKind::Plain)),
            ("rate", is(1_000.0, NumberKind::Rate)),
            ("goodput", is(960.0, NumberKind::Rate)),
            ("in_flight", is(150.0, NumberKind::Plain)),
            ("edge-1.cpu", is(42.0, NumberKind::Percent)),
            ("edge-1.memory", is(16.0 * 1024.0 * 1024.0, NumberKind::Bytes)),
        ]),
        None,
    )
}

fn evaluate(text: &str) -> Evaluated {
    Expr::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).evaluate(&table())
}

#[test]
fn what_holds() {
    let check = |text: &str, expect: Option<bool>| assert_eq!(evaluate(text).holds, expect, "{text}");
    for (text, expect) in [
        ("p99 < 200ms", true),
        ("p99 < 0.15s", false),
        ("p99 <= 150ms", true),
        ("p99 != 150ms", false),
        ("200ms > p99", true),
        ("p99 > 100_000us and p99 < 1m30s", true),
        ("p99 >= 1.5 * service.p99", true),
        ("p99 - service.p99 == 50ms", true),
        ("errors <= 0.1%", true),
        ("errors < 0.1%", false),
        ("errors < 0.01", true),
        ("1 - errors > 99%", true),
        ("hits > 90%", true),
        ("failed > 1024", false),
        ("stored >= accepted - 5", true),
        ("stored + 5 == accepted", true),
        ("stored-5 == accepted or failed == 7", true),
        ("goodput >= 95% * rate", true),
        ("goodput >= 97% * rate", false),
        ("rate == 60000/m and rate >= 1000", true),
        ("in_flight == rate * p99", true),
        ("edge-1.cpu < 50%", true),
        ("edge-1.cpu < 40%", false),
        ("edge-1.memory <= 16MiB", true),
        ("edge-1.memory > 16MB", true),
        ("edge-1.memory == 16777216", true),
        ("failed == 0 or p99 < 1s and p50 < 1s", true),
        ("(failed == 0 or p99 < 1s) and p50 < 1ms", false),
        ("-failed < -6", true),
        ("2 * (failed + 1) == 16", true),
        ("p99[10s..30s] == 20s", true),
        ("p99[0..500ms] < 1s", true),
        ("'edge-1.cpu' < 50%", true),
        ("rate > 0/s and p99 > 0", true),
    ] {
        check(text, Some(expect));
    }
}

#[test]
fn conditions_on_unknown_numbers_are_neither_true_nor_false() {
    let check = |text: &str, expect: Option<bool>| assert_eq!(evaluate(text).holds, expect, "{text}");
    check("lost == 0", None);
    check("lost == 0 and failed == 7", None);
    check("lost == 0 and failed == 0", Some(false));
    check("lost == 0 or failed == 7", Some(true));
    check("lost == 0 or failed == 0", None);
    check("stored == accepted or steady(stored, 5s)", None);
    let steady =
        |text: &str, holds| Expr::parse(text).unwrap().evaluate(&Table(table().0, Some(holds))).holds;
    assert_eq!(steady("stored == accepted or steady(stored, 5s)", true), Some(true));
    assert_eq!(steady("stored == accepted or steady(stored, 5s)", false), Some(false));
}

#[test]
fn censored_numbers_fail_every_less_than() {
    let check = |text: &str, expect: Option<bool>| assert_eq!(evaluate(text).holds, expect, "{text}");
    check("p99.9 < 1s", Some(false));
    check("p99.9 < 10s", Some(false));
    check("p99_9 <= 10s", Some(false));
    check("10s > p99.9", Some(false));
    check("0 < 10s - p99.9", Some(false));
    check("2 * p99.9 < 10s", Some(false));
    check("p99.9 > 1s", Some(true));
    check("p99.9 >= 1.2s", Some(true));
    check("p99.9 + 1s > 2s", Some(true));
    check("p99.9 > 2s", None);
    check("p99.9 == 1s", Some(false));
    check("p99.9 == 2s", None);
    check("p99.9 != 1s", Some(true));
    check("0 * p99.9 < 1s", Some(true));
}

#[test]
fn value_unit_and_note() {
    let check = |text: &str, value: Option<f64>, unit: &str, note: Option<&str>| {
        let got = evaluate(text);
        let close = match (got.value, value) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-9,
            (a, b) => a == b,
        };
        assert!(close && got.unit == unit, "{text}: {got:?}");
        assert_eq!(got.note.as_deref(), note, "{text}");
    };
    check("p99 < 200ms", Some(150.0), "ms", None);
    check("p99 < 2s", Some(0.15), "s", None);
    check("p99 < 1m30s", Some(0.15), "s", None);
    check("2s > p99", Some(2.0), "s", None);
    check("p99 > service.p99", Some(150.0), "ms", None);
    check("p99 < 100ms", Some(150.0), "ms", None);
    check("errors < 1%", Some(0.1), "%", None);
    check("errors < 0.01", Some(0.001), "", None);
    check("edge-1.cpu < 50%", Some(42.0), "%", None);
    check("edge-1.memory < 15MiB", Some(16.0), "MiB", None);
    check("rate > 30/m", Some(60_000.0), "/m", None);
    check("goodput >= 95% * rate", Some(960.0), "/s", None);
    check("failed == 7", Some(7.0), "", None);
    check(
        "p99 < 200ms and errors < 0.1% and failed == 0",
        Some(0.1),
        "%",
        Some("`errors < 0.1%` does not hold"),
    );
    check(
        "(p99 < 1ms or failed == 7) and errors < 0.1%",
        Some(0.1),
        "%",
        Some("`errors < 0.1%` does not hold"),
    );
    check("p99 < 200ms and lost == 0", None, "", Some("`lost == 0`: `lost` is unknown: nobody measured it"));
    check("p99.9 < 2s", None, "", Some("`p99_9` is at least 1200 ms"));
    check("p99.9 > 1s", None, "", None);
    check("lost == 0", None, "", Some("`lost` is unknown: nobody measured it"));
    check("steady(stored, 5s)", None, "", Some("`stored` has not been observed for 5s"));
    check("stored < 5s", Some(95.0), "", Some("a plain number cannot be compared with a duration"));
}

/// The message of an error, with the text and what it points at.
fn refused(text: &str) -> String {
    let error = Expr::parse(text).expect_err(text);
    assert!(text.get(error.at..error.at + error.len).is_some(), "{text}: {error:?}");
    let marks = format!("{}{}", " ".repeat(error.at), "^".repeat(error.len.max(1)));
    format!("{text}\n{marks}\n{error}")
}

#[test]
fn errors_point_and_hint() {
    insta::assert_snapshot!(refused(""), @r"

    ^
    expected a condition such as `p99 < 200ms`, found the end
    ");
    insta::assert_snapshot!(refused("p99"), @r"
    p99
    ^^^
    `p99` is a number, not a condition
    hint: compare it, as in `p99 < 200ms`
    ");
    insta::assert_snapshot!(refused("p99 < 200"), @r"
    p99 < 200
    ^^^^^^^^^
    cannot compare `p99` (a duration) and `200` (a plain number) in `p99 < 200`
    hint: write `200ms` or `200s`
    ");
    insta::assert_snapshot!(refused("errors < 1% && p99 < 2s"), @r"
    errors < 1% && p99 < 2s
                ^
    unknown operator `&`
    hint: write `and`
    ");
    insta::assert_snapshot!(refused("1s < p99 < 2s"), @r"
    1s < p99 < 2s
             ^
    unexpected `<`
    hint: compare two at a time: `1s < p99 and p99 < 2s`
    ");
    insta::assert_snapshot!(refused("edge1.memory < 15 MiB"), @r"
    edge1.memory < 15 MiB
                      ^^^
    unexpected `MiB`
    hint: write a unit directly after its number: `15MiB`
    ");
    insta::assert_snapshot!(refused("p99 < 200mz"), @r"
    p99 < 200mz
          ^^^^^
    `200mz` is not a number with a unit
    hint: numbers are written `1024`, `0.1%`, `200ms`, `1m30s`, `15MiB` or `1000/s`
    ");
    insta::assert_snapshot!(refused("(p99 < 2s"), @r"
    (p99 < 2s
    ^
    this `(` has no matching `)`
    ");
    insta::assert_snapshot!(refused("p99 < 2s p50 < 1s"), @r"
    p99 < 2s p50 < 1s
             ^^^
    unexpected `p50`
    hint: write a unit directly after its number: `15MiB`
    ");
    insta::assert_snapshot!(refused("p99[30s..10s] < 1s"), @r"
    p99[30s..10s] < 1s
       ^^^^^^^^^^
    the window 30s..10s is empty
    hint: write the earlier time first
    ");
    insta::assert_snapshot!(refused("rate(p99) < 1s"), @r"
    rate(p99) < 1s
    ^^^^
    there is no function `rate`
    hint: the only one is `steady(NAME, 5s)`
    ");
    insta::assert_snapshot!(refused("steady(stored)"), @r"
    steady(stored)
                 ^
    expected `,` and a duration, as in `steady(stored, 5s)`, found `)`
    ");
    insta::assert_snapshot!(refused("failed == 1 + (p99 < 2s)"), @r"
    failed == 1 + (p99 < 2s)
                  ^^^^^^^^^^
    `p99 < 2s` is a condition, not a number
    hint: join conditions with `and` or `or`
    ");
    insta::assert_snapshot!(refused("p99 + failed < 2s"), @r"
    p99 + failed < 2s
    ^^^^^^^^^^^^
    cannot add `p99` (a duration) and `failed` (a plain number) in `p99 + failed`
    ");
}

#[test]
fn more_that_is_refused() {
    for text in [
        "p99 <",
        "< 2s",
        "p99 = 2s",
        "not p99 < 2s",
        "p99 < 2s or",
        "and",
        "p99 ! 2s",
        "p99 < .5s",
        "p99 < 1e3ms",
        "p99[10s] < 1s",
        "p99[10..30] < 1s",
        "p99[10s..30s < 1s",
        "p99 < 2s)",
        "()",
        "'p99 < 2s",
        "'' < 2",
        "p99- 5ms < 2s",
        "p99. < 2s",
        "steady(stored, 5)",
        "steady(stored[1s..2s], 5s)",
        "steady(5s, stored)",
        "steady(stored, 5s",
        "steady < ",
        "5s[1s..2s] < 1s",
        "p99 < 15MiB",
        "5s < 15MiB",
        "errors < 1s",
        "rate * rate > 5",
        "p99 * service.p99 > 1s",
        "5ms * failed > 7",
        "p99 < 5%",
        "1 2",
        "a b",
        "§ < 1",
        "p99 ≤ 2s",
        "p99 < 2s # why",
        "1/0 > 2",
        "1/parsec > 2",
        "(p99 < 1s) < 2",
        "failed < 99999999999999999999d",
        "ok > 99%",
        "ok > 900/s",
        "1MiB > lost",
        "not_offered < 1%",
        "tag.a.failed < 1%",
        "errors < 10",
        "availability > 99",
    ] {
        let error = Expr::parse(text).expect_err(text);
        assert!(text.get(error.at..error.at + error.len).is_some(), "{text}: {error:?}");
        assert!(!error.message.is_empty() && !error.message.ends_with('.'), "{text}: {error}");
    }
    assert!(Expr::parse(&"x".repeat(20_000)).is_err());
    for text in
        ["errors == 0", "errors <= 1", "availability > 99%", "ok / started > 99%", "ok > 900", "hits > 90%"]
    {
        assert!(Expr::parse(text).is_ok(), "{text}");
    }
}

#[test]
fn depth_is_bounded_and_length_is_not_depth() {
    let nested = |depth: usize| format!("{}failed{} == 1", "(".repeat(depth), ")".repeat(depth));
    assert!(Expr::parse(&nested(MAX_DEPTH)).is_ok());
    assert!(Expr::parse(&nested(MAX_DEPTH + 1)).unwrap_err().message.contains("parentheses"));
    assert!(Expr::parse(&nested(4_000)).is_err());
    let long = format!("failed{} == 7", " + 0".repeat(2_000));
    assert_eq!(evaluate(&long).holds, Some(true));
    let long = format!("failed == 7{}", " and 1 == 1".repeat(800));
    assert_eq!(evaluate(&long).holds, Some(true));
}

#[test]
fn names_and_their_positions() {
    let expr = Expr::parse("load-balancer.memory < 5MiB and p99.9[10s..30s] < 1s or steady('my probe', 5s)")
        .unwrap();
    let names: Vec<_> = expr.names().into_iter().map(|n| (n.text, n.at, n.len, n.part)).collect();
    let window = Window { from_s: 10.0, to_s: 30.0 };
    assert_eq!(
        names,
        [
            ("load-balancer.memory".to_owned(), 0, 20, None),
            ("p99_9".to_owned(), 32, 5, Some(TrialPart::Window(window))),
            ("my probe".to_owned(), 63, 10, None)
        ]
    );
}

#[test]
fn unknown_names_come_with_a_hint() {
    let mut known = probe_names("stored");
    known.extend(component_names("edge1"));
    known.extend(tag_names("page"));
    let check = |text: &str, expect: &str| {
        let error = Expr::parse(text).unwrap().check_names(&known).expect_err(text);
        assert!(text[error.at..].starts_with(error.message.split('`').nth(1).unwrap()), "{error:?}");
        assert_eq!(error.to_string(), expect);
    };
    check("p999 < 1s", "unknown name `p999`\nhint: write `p99_9`");
    check("p99 < 1s and storde == 5", "unknown name `storde`\nhint: did you mean `stored`?");
    check("edge1.cpus < 50%", "unknown name `edge1.cpus`\nhint: did you mean `edge1.cpu`?");
    check("stored-5 == 1", "unknown name `stored-5`\nhint: a difference needs spaces: `stored - 5`");
    check(
        "accepted-stored == 1",
        "unknown name `accepted-stored`\nhint: a difference needs spaces: `accepted - stored`",
    );
    check(
        "queue_depth == 0",
        "unknown name `queue_depth`\nhint: known besides the built-in names: `stored`, `stored.first`, `stored.last`, `stored.max`, `stored.mean`, `edge1.cpu`, `edge1.cpu.mean`, `edge1.cpu.max` …",
    );
    for text in [
        "p99 < 1s",
        "p99.99 < 1s",
        "service.p99.9 < 1s",
        "edge1.memory.max < 5MB",
        "tag.page.p95 < 1s",
        "tag.page.http_5xx == 0",
        "timeout == 0",
    ] {
        Expr::parse(text).unwrap().check_names(&known).unwrap();
    }
    assert!(
        Expr::parse("x == 1").unwrap().check_names::<&str>(&[]).unwrap_err().hint.unwrap().contains("p50")
    );
}

#[test]
fn kinds_of_names_the_caller_knows() {
    let probe = |name: &str| if name == "cache.memory" { Some(NumberKind::Plain) } else { kind_of(name) };
    let check = |text: &str, fits: bool| {
        let expr = Expr::parse(text).unwrap();
        assert_eq!(expr.check_kinds(&probe).is_ok(), fits, "{text}");
    };
    check("edge1.cpu < 50%", true);
    check("edge1.cpu < 50", false);
    check("edge1.cpu == 0", true);
    check("edge1.memory < 15MiB", true);
    check("edge1.memory < 15ms", false);
    check("edge1.memory < edge1.cpu", false);
    check("cache.memory < 15ms", false);
    check("tag.page.p99 < 1s", true);
    check("tag.page.p99 < 15MiB", false);
    check("tag.page.errors < 1%", true);
    check("anything < 15MiB and anything < 1s", true);
    let error = Expr::parse("edge1.cpu < 50").unwrap().check_kinds(&|n| kind_of(n)).unwrap_err();
    assert_eq!(error.hint.as_deref(), Some("write `50%` (of one core)"));
    for name in built_in_names().iter().map(String::as_str).chain(NAMES) {
        assert!(built_in_kind(name).is_some() && kind_of(name) == built_in_kind(name), "{name}");
    }
    for failure in Failure::ALL {
        assert_eq!(built_in_kind(failure.name()), Some(NumberKind::Plain));
    }
}

#[test]
fn display_is_canonical() {
    let check = |text: &str, expect: &str| {
        let expr = Expr::parse(text).unwrap();
        assert_eq!(expr.to_string(), expect);
        assert_eq!(Expr::parse(expect).unwrap(), expr, "{text}");
    };
    check("p99.9<2s", "p99_9 < 2s");
    check("((p99 < 2s))", "p99 < 2s");
    check("p99<2s and(p50<1s or failed==0)", "p99 < 2s and (p50 < 1s or failed == 0)");
    check("(p99 < 2s and p50 < 1s) or failed == 0", "p99 < 2s and p50 < 1s or failed == 0");
    check("stored-a  -  (b - c)*2 >= -1", "stored-a - (b - c) * 2 >= -1");
    check("p99 [ 10s .. 1m30s ]<1s", "p99[10s..1m30s] < 1s");
    check("steady( stored ,5s )", "steady(stored, 5s)");
    check("\"it's\" == 1", "\"it's\" == 1");
    check("'a b'[0..1s] == 1 AND \"or\" == 2", "'a b'[0..1s] == 1 and 'or' == 2");
    check("steady == 1", "steady == 1");
}

fn summary() -> Summary {
    let none = serde_json::to_value(Distribution::default()).unwrap();
    let of = |ms: &mut dyn Iterator<Item = u64>, censored: &[u64]| {
        let (mut known, mut never) = (Histogram::new(), Histogram::new());
        ms.for_each(|v| known.record(v * 1_000_000));
        censored.iter().for_each(|v| never.record(v * 1_000_000));
        serde_json::to_value(Distribution::with_censored(&known, &never)).unwrap()
    };
    let requests =
        json!({"due": 1100, "dropped": 100, "started": 1000, "ok": 989, "failed": 10, "in_flight": 1});
    let component = json!({"cpu_percent": {"mean": 42.0, "max": 99.0}, "cpu_s": 4.2, "throttled_s": null, "memory_bytes": {"mean": 1e6, "max": 2e6, "last": 5e5, "limit": 15728640},
        "net_bytes": {"in": 7, "out": null}, "block_bytes": {"read": null, "written": null}, "pids_max": 3, "open_files_max": null, "oom_kills": 0, "restarts": 0});
    let value = json!({
        "loadlab": "0.1.0", "verdict": "none", "ended": "complete", "doubts": [], "expectations": [],
        "load": {"model": "closed", "users": 10, "rate_per_s": null, "duration_s": 3.0, "requests": null, "ramp_s": 0.0, "keep_alive": true,
                 "protocol": "http/1.1", "url": "http://127.0.0.1:1/", "seed": 0},
        "elapsed_s": 3.5, "window": {"from_s": 0.0, "to_s": 3.0}, "requests": requests, "failures": {"timeout": 4, "http_5xx": 6}, "statuses": {},
        "availability": 0.99, "concurrency_mean": 9.9, "rate_per_s": {"due": 366.0, "started": 333.0, "ok": 329.0, "ok_stdev": null, "ok_max": null},
        "bytes": {"sent": 0, "received": 0},
        "response_ms": of(&mut (1..=989), &[1500, 1500, 1500, 1500, 1500, 1500, 1500, 1500, 1500, 1500, 1500]),
        "ok_response_ms": of(&mut (1..=989), &[]), "failed_response_ms": of(&mut (1..=6), &[]), "service_ms": of(&mut (1..=50), &[]),
        "late_ms": none, "blocked_ms": none, "connect_ms": of(&mut (5..=5), &[]), "tls_ms": none,
        "by_tag": {"page": {"requests": requests, "failures": {"timeout": 4, "http_5xx": 6}, "response_ms": of(&mut (1..=30), &[]), "ok_response_ms": none, "failed_response_ms": none},
                   "a.b": {"requests": requests, "failures": {}, "response_ms": of(&mut (7..=7), &[]), "ok_response_ms": none, "failed_response_ms": none}},
        "connections": {"attempted": 0, "opened": 0, "requests_resent": 0, "peak": 0},
        "generator": {"io": "sim", "threads": 1, "cpus": [], "cpu_s": 0.0, "run_delay_s": null, "throttled_s": null, "peak_rss_bytes": 0, "connections_peak": 0},
        "components": {"edge1": component, "load-balancer": component},
        "probes": {"stored": {"first": 1.0, "last": 950.0, "max": 951.0, "mean": 500.0}}, "drain_s": 1.25,
        "loss": {"accepted": 989, "unanswered": 5, "persisted_distinct": 980, "doubled": 1, "lost_min": 9, "lost_max": 14, "by_id": true}
    });
    serde_json::from_value(value).unwrap()
}

/// Four seconds: in second n all of its 100 requests took n + 1 milliseconds, and those of the last second never ended.
fn seconds() -> (Vec<Tick>, Vec<Interval>) {
    let mut ticks = Vec::new();
    let mut intervals = Vec::new();
    for second in 0..4u64 {
        let from_s = second as f64;
        let mut tick =
            Tick { load: "main".to_owned(), from_s, to_s: from_s + 1.0, in_window: true, ..Tick::default() };
        (tick.counts.due, tick.counts.started, tick.counts.ok) = (100, 100, 100 - second);
        tick.counts.failures.add(Failure::Reset, second);
        ticks.push(tick);
        let mut histogram = Histogram::new();
        histogram.record_n((second + 1) * 1_000_000, 100);
        let tags: &[&str] =
            if second == 3 { &["response_censored"] } else { &["response", "tag.page.response", "late"] };
        intervals.extend(tags.iter().map(|tag| Interval::of(Some("main"), tag, from_s, 1.0, &histogram)));
    }
    (ticks, intervals)
}

#[test]
fn numbers_of_a_summary() {
    let summary = summary();
    let numbers = SummaryNumbers::new(&summary, &[]);
    let check = |name: &str, value: f64, kind: NumberKind| {
        assert_eq!(numbers.number(name, None), Known::Is(value, kind), "{name}")
    };
    check("p50", summary.response_ms.p50.unwrap(), NumberKind::Duration);
    check("response.p90", summary.response_ms.p90.unwrap(), NumberKind::Duration);
    check("min", 1.0, NumberKind::Duration);
    check("connect.max", 5.0, NumberKind::Duration);
    check("service.p50", summary.service_ms.p50.unwrap(), NumberKind::Duration);
    check("ok.max", 989.0, NumberKind::Duration);
    check("errors", 0.01, NumberKind::Fraction);
    check("availability", 0.99, NumberKind::Fraction);
    check("dropped", 100.0, NumberKind::Plain);
    check("timeout", 4.0, NumberKind::Plain);
    check("connect", 0.0, NumberKind::Plain);
    check("ok", 989.0, NumberKind::Plain);
    check("rate", 333.0, NumberKind::Rate);
    check("goodput", 329.0, NumberKind::Rate);
    check("lost", 14.0, NumberKind::Plain);
    check("accepted", 989.0, NumberKind::Plain);
    check("drain", 1250.0, NumberKind::Duration);
    check("edge1.cpu", 42.0, NumberKind::Percent);
    check("edge1.cpu.max", 99.0, NumberKind::Percent);
    check("load-balancer.memory", 2e6, NumberKind::Bytes);
    check("edge1.memory.limit", 15_728_640.0, NumberKind::Bytes);
    check("stored", 950.0, NumberKind::Plain);
    check("stored.max", 951.0, NumberKind::Plain);
    check("tag.page.p50", summary.by_tag["page"].response_ms.p50.unwrap(), NumberKind::Duration);
    check("tag.page.errors", 0.01, NumberKind::Fraction);
    check("tag.a.b.max", 7.0, NumberKind::Duration);

    let censored = |name: &str| {
        assert!(
            matches!(numbers.number(name, None), Known::AtLeast(ms, NumberKind::Duration) if ms > 400.0),
            "{name}"
        )
    };
    censored("p99");
    censored("max");
    censored("mean");
    let unknown = |name: &str, why: &str| {
        assert_eq!(numbers.number(name, None), Known::Unknown(why.to_owned()), "{name}")
    };
    let between = |name: &str, expect: (Option<f64>, u64, u64)| match numbers.number(name, None) {
        Known::Between(few) => {
            assert_eq!((few.estimate.high, few.few.samples, few.few.needed), expect, "{name}");
            assert!(few.estimate.low <= few.estimate.value && few.estimate.value.is_some(), "{name}");
        }
        known => panic!("{name}: {known:?}"),
    };
    between("service.p99", (None, 50, 1000));
    between("tag.page.p90", (None, 30, 100));
    unknown("late.p50", "no times were recorded");
    unknown("stdev", "11 of 1,000 never ended");
    unknown("edge1.open_files", "it was not measured");
    unknown("edge2.cpu", "the trial has no figure of that name");
    unknown("tag.nope.p50", "the trial has no figure of that name");
    assert_eq!(numbers.steady("stored", 1), None);

    let evaluate = |text: &str| Expr::parse(text).unwrap().evaluate(&numbers);
    assert_eq!(evaluate("p99 < 10s").holds, Some(false));
    assert_eq!(evaluate("p99 < 10s").note.as_deref(), Some("`p99` is at least 1500 ms"));
    assert_eq!(
        evaluate("service.p99 < 1s").note.as_deref(),
        Some("`service.p99` is 50.0 ms (48.0…≥50.0) from 50 samples; 1,000 would decide it, 1m at this rate")
    );
    assert_eq!(evaluate("lost == 0 and edge1.cpu < 50%").holds, Some(false));
    // every name that is offered is known
    let mut names = built_in_names();
    names.extend(component_names("edge1").into_iter().chain(tag_names("a.b")).chain(probe_names("stored")));
    for name in names {
        let known = numbers.number(&name, None);
        assert_ne!(known, Known::Unknown("the trial has no figure of that name".to_owned()), "{name}");
        if let (Known::Is(_, kind) | Known::AtLeast(_, kind), false) = (known, name.starts_with("stored")) {
            assert_eq!(kind_of(&name), Some(kind), "{name}");
        }
    }
}

#[test]
fn numbers_of_a_window() {
    let summary = summary();
    let (ticks, intervals) = seconds();
    let numbers = SummaryNumbers::new(&summary, &ticks).with_intervals(&intervals);
    let at = |name: &str, from_s: f64, to_s: f64| {
        numbers.number(name, Some(TrialPart::Window(Window { from_s, to_s })))
    };
    let time = |name: &str, from_s: f64, to_s: f64, expect_ms: f64| match at(name, from_s, to_s) {
        Known::Is(ms, NumberKind::Duration) => assert!((ms / expect_ms - 1.0).abs() < 0.001, "{name} {ms}"),
        known => panic!("{name} {known:?}"),
    };
    time("p50", 0.0, 1.0, 1.0);
    time("p50", 1.0, 3.0, 2.0);
    time("max", 0.5, 3.0, 3.0);
    time("tag.page.p90", 0.0, 3.0, 3.0);
    time("service.p50", 0.0, 1.0, 1.0);
    time("late.mean", 0.0, 2.0, 1.5);
    let censored = Known::AtLeast(4.0, NumberKind::Duration);
    assert_eq!((at("max", 0.0, 4.0), at("p50", 3.0, 4.0)), (censored.clone(), censored.clone()));
    // The fastest is known unless none ended.
    time("min", 0.0, 4.0, 1.0);
    assert_eq!(at("min", 3.0, 4.0), censored);
    assert_eq!(at("stdev", 2.0, 4.0), Known::Unknown("100 of 200 never ended".to_owned()));
    assert_eq!(at("errors", 2.0, 4.0), Known::Is(0.025, NumberKind::Fraction));
    assert_eq!(at("reset", 0.0, 3.0), Known::Is(3.0, NumberKind::Plain));
    assert_eq!(at("goodput", 2.0, 4.0), Known::Is(97.5, NumberKind::Rate));
    assert_eq!(at("rate", 0.0, 4.5), Known::Is(100.0, NumberKind::Rate));
    let why = |name: &str, from_s: f64, to_s: f64| match at(name, from_s, to_s) {
        Known::Unknown(why) => why,
        known => panic!("{known:?}"),
    };
    // The slowest second is a third of all; four seconds are enough to see that they differ.
    let p99 = Expr::parse("p99[0s..3s] < 5ms").unwrap().evaluate(&numbers);
    assert_eq!(
        (p99.holds, p99.note.as_deref()),
        (
            None,
            Some("`p99[0s..3s]` is ≥ 3.00 ms from 300 samples; 1,000 would decide it, 10.0 s at this rate")
        )
    );
    assert_eq!(p99.undecided, Some(FewSamples { samples: 300, needed: 1000, needed_s: Some(10.0) }));
    assert_eq!(why("p50", 1.2, 1.9), "1.2s..1.9s contains no whole second of the load");
    assert_eq!(why("p50", 2.0, 10.0), "the load ended after 4 s");
    assert_eq!(why("connect.p50", 0.0, 3.0), "no times were recorded");
    for name in
        ["edge1.cpu", "stored", "in_flight", "failed_response.p50", "lost", "tag.page.ok.p50", "stored.max"]
    {
        assert_eq!(
            why(name, 0.0, 3.0),
            "it is not recorded every second, so windows do not apply to it",
            "{name}"
        );
    }
    assert_eq!(why("nonsense", 0.0, 3.0), "the trial has no figure of that name");
    let bare = SummaryNumbers::new(&summary, &ticks)
        .number("p50", Some(TrialPart::Window(Window { from_s: 0.0, to_s: 1.0 })));
    assert_eq!(bare, Known::Unknown("it needs the histograms of latency.hlog".to_owned()));
    let expr = Expr::parse("max[0s..3s] < 2 * p50[0s..3s] and errors[3s..4s] > 2.9%").unwrap();
    assert_eq!(expr.evaluate(&numbers).holds, Some(true));
}

/// A server that hangs fails no request before its timeout, which may come after the part, or after the load.
#[test]
fn errors_are_unknown_where_requests_were_started_and_none_ended() {
    let tick = |second: u32, ok: u64| {
        let (from_s, counts) =
            (f64::from(second), Counts { due: 100, started: 100, ok, ..Counts::default() });
        Tick {
            load: "main".to_owned(),
            batch: second / 2,
            from_s,
            to_s: from_s + 1.0,
            counts,
            ..Tick::default()
        }
    };
    let ticks = [tick(0, 100), tick(1, 90), tick(2, 0), tick(3, 0)];
    let requests = |started: u64, ok: u64| Requests {
        due: started,
        started,
        ok,
        in_flight: started - ok,
        ..Requests::default()
    };
    let mut summary = summary();
    let batch = |ok: u64| LoadSummary { requests: requests(200, ok), ..LoadSummary::default() };
    summary.by_batch = [(1, batch(190)), (2, batch(0))].into();
    summary.by_tag.get_mut("page").unwrap().requests = requests(1, 0);
    let numbers = SummaryNumbers::new(&summary, &ticks);
    let evaluate = |text: &str| Expr::parse(text).unwrap().evaluate(&numbers);
    for known in ["errors[0s..3s] == 0", "errors[1s..2s] == 0", "errors[batch 1] == 0", "tag.a.b.errors < 2%"]
    {
        assert_eq!(evaluate(known).holds, Some(true), "{known}");
    }
    for unknown in ["errors[2s..4s] == 0", "errors[batch 2] == 0"] {
        let found = evaluate(unknown);
        assert_eq!(found.holds, None, "{unknown}");
        assert!(found.note.unwrap().ends_with("is unknown: 200 requests were started, and none ended"));
    }
    assert_eq!(
        evaluate("tag.page.errors == 0").note.as_deref(),
        Some("`tag.page.errors` is unknown: one request was started, and it did not end")
    );
    summary.requests = requests(400, 0);
    let errors = SummaryNumbers::new(&summary, &ticks).number("errors", None);
    assert_eq!(errors, Known::Unknown("400 requests were started, and none ended".to_owned()));
}

/// What is known of a percentile of a part, directly or by another figure, is known of that part: its largest sample, too.
#[test]
fn a_figure_of_a_part_has_that_parts_largest_sample() {
    let summary = summary();
    let (ticks, intervals) = seconds();
    let numbers = SummaryNumbers::new(&summary, &ticks).with_intervals(&intervals);
    let part = Figure::after(&[], "start", "p99[0s..2s]", NumberKind::Duration).unwrap();
    let other = Figure::after(std::slice::from_ref(&part), "again", "start", NumberKind::Duration).unwrap();
    for figure in [part, other] {
        match figure.formula.known(&numbers) {
            Known::Between(between) => {
                let largest = between.largest.expect("a sample");
                assert!((largest / 2.0 - 1.0).abs() < 0.001, "{}: {largest}", figure.name);
            }
            known => panic!("{}: {known:?}", figure.name),
        }
    }
}

/// A percentile of few samples, one that never ended, and an unknown number.
struct Few;

impl NumberSource for Few {
    fn number(&self, name: &str, _: Option<TrialPart>) -> Known {
        let between = |value: f64, low: f64, high: Option<f64>, samples: u64| {
            let estimate = Estimate { value: Some(value), low: Some(low), high };
            let few = FewSamples::of(samples, 0.99, 3.0);
            Known::Between(Between { estimate, largest: Some(44.0), kind: NumberKind::Duration, few })
        };
        match name {
            "p99" => between(41.2, 29.8, None, 300),
            "ok.p99" => between(41.2, 29.8, Some(43.0), 500),
            "max" => Known::AtLeast(60.0, NumberKind::Duration),
            "errors" => Known::Is(0.01, NumberKind::Fraction),
            _ => Known::Unknown("nobody knows it".into()),
        }
    }

    fn steady(&self, _: &str, _: u64) -> Option<bool> {
        None
    }
}

#[test]
fn few_samples_hold_fail_or_leave_open() {
    let evaluate = |text: &str| Expr::parse(text).unwrap().evaluate(&Few);
    let check = |text: &str, holds: Option<bool>, undecided: Option<u64>| {
        let found = evaluate(text);
        assert_eq!((found.holds, found.undecided.map(|few| few.samples)), (holds, undecided), "{text}");
        assert!(holds.is_some() || found.note.is_some(), "{text}");
    };
    // An open upper end means too few samples, not a request that never ended.
    check("p99 < 20ms", Some(false), None);
    check("p99 < 29.8ms", Some(false), None);
    check("p99 < 40ms", None, Some(300));
    check("p99 < 10s", None, Some(300));
    check("p99 > 20ms", Some(true), None);
    check("p99 > 10s", None, Some(300));
    check("ok.p99 < 50ms", Some(true), None);
    check("ok.p99 <= 43ms", Some(true), None);
    check("ok.p99 < 43ms", None, Some(500));
    check("ok.p99 > 50ms", Some(false), None);
    check("ok.p99 == 50ms", Some(false), None);
    check("ok.p99 == 41.2ms", None, Some(500));
    check("ok.p99 < 2 * p99", Some(true), None);
    check("p99 - ok.p99 < 1ms", None, Some(300));
    // A request that never ended fails as always, even combined with few samples.
    check("max < 10s", Some(false), None);
    check("p99 + max < 10s", Some(false), None);
    check("ok.p99 < max", Some(true), None);
    // More samples do not help with an unknown number; of several percentiles, the one that needs most samples is
    // named.
    check("p99 < stored", None, None);
    check("p99 < 40ms and stored == 1", None, None);
    check("p99 < 40ms and ok.p99 < 42ms", None, Some(300));
    check("ok.p99 < 42ms and p99 < 40ms", None, Some(300));
    check("p99 < 40ms and errors > 5%", Some(false), None);
    check("p99 < 40ms or errors < 5%", Some(true), None);
    check("p99 < 40ms or errors > 5%", None, Some(300));
    assert_eq!(
        evaluate("p99 < 40ms and errors < 5%").note.as_deref(),
        Some(
            "`p99 < 40ms`: `p99` is 41.2 ms (29.8…≥44.0) from 300 samples; 1,000 would decide it, 10.0 s at this rate"
        )
    );
    assert_eq!(
        evaluate("ok.p99 < 42ms").note.as_deref(),
        Some("`ok.p99` is 41.2 ms (29.8…43.0) from 500 samples; 1,000 would decide it, 6.00 s at this rate")
    );
}

/// Texts of conditions and numbers of varying depth, all of which parse (names are unknown, so kinds fit).
fn number_text() -> impl Strategy<Value = String> {
    let name = "[a-z_][a-z0-9_]{0,4}([.-][a-z0-9]{1,3}){0,2}"
        .prop_filter("a word", |n| !["and", "or", "steady"].contains(&n.as_str()));
    let leaf = prop_oneof![
        name.clone().prop_map(|n| format!("x{n}")),
        name.prop_map(|n| format!("x{n}[1s..1m2s]")),
        "'[^'\n]{1,6}'",
        (0u32..5000).prop_map(|n| n.to_string()),
        (1u32..5000).prop_map(|n| format!("{n}ms")),
        (1u32..5000).prop_map(|n| format!("{n}.5MiB")),
        (0u32..100).prop_map(|n| format!("{n}%")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec((inner.clone(), prop::bool::ANY), 1..4).prop_map(|terms| {
                let text: Vec<_> = terms
                    .iter()
                    .map(|(t, minus)| format!("{} {t}", if *minus { "-" } else { "+" }))
                    .collect();
                format!("(0 {})", text.join(" "))
            }),
            inner.clone().prop_map(|t| format!("(- {t})")),
            prop::collection::vec(inner, 1..4).prop_map(|factors| format!("({})", factors.join("*"))),
        ]
    })
}

fn condition_text() -> impl Strategy<Value = String> {
    let op = prop::sample::select(vec!["<", "<=", ">", ">=", "==", "!="]);
    let leaf = prop_oneof![
        4 => (number_text(), op, number_text()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        1 => "x[a-z]{0,3}".prop_map(|n| format!("steady({n}, 5s)")),
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        (prop::collection::vec(inner, 1..4), prop::bool::ANY, prop::bool::ANY).prop_map(
            |(parts, or, parens)| {
                let text = parts.join(if or { " or " } else { " and " });
                if parens { format!("({text})") } else { text }
            },
        )
    })
}

/// Returns a value of every kind, so that evaluation covers everything.
struct Anything;

impl NumberSource for Anything {
    fn number(&self, name: &str, _part: Option<TrialPart>) -> Known {
        let kinds = [
            NumberKind::Plain,
            NumberKind::Fraction,
            NumberKind::Percent,
            NumberKind::Duration,
            NumberKind::Bytes,
            NumberKind::Rate,
        ];
        let kind = kinds[name.len() % kinds.len()];
        match name.bytes().last().unwrap_or(0) % 4 {
            0 => Known::Unknown("?".to_owned()),
            1 => Known::AtLeast(name.len() as f64, kind),
            2 => Known::Is(f64::NAN, kind),
            _ => Known::Is(name.len() as f64, kind),
        }
    }

    fn steady(&self, name: &str, _for_ns: u64) -> Option<bool> {
        [None, Some(true), Some(false)][name.len() % 3]
    }
}

proptest! {
    #[test]
    fn what_is_displayed_parses_to_the_same(text in condition_text()) {
        if let Ok(expr) = Expr::parse(&text) {
            let shown = expr.to_string();
            let again = Expr::parse(&shown);
            prop_assert_eq!(again.as_ref(), Ok(&expr), "{}", shown);
            prop_assert_eq!(again.unwrap().to_string(), shown);
            let _ = expr.evaluate(&Anything);
            let _ = expr.check_kinds(&|n| kind_of(n));
            let _ = expr.check_names(&["x"]);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}") {
        let _ = Expr::parse(&text);
    }

    #[test]
    fn no_tokens_make_it_panic(tokens in prop::collection::vec(prop::sample::select(vec![
        "p99", "x-y.z", "and", "or", "steady", "(", ")", "[", "]", "..", ",", "<", "==", "+", "-", "*", "5", "5s", "1m30s", "2%", "3MiB", "7/s", "'a b'", "'", ".", "µ", "p99.9",
    ]), 0..24), blanks in prop::bool::ANY) {
        let text = tokens.join(if blanks { " " } else { "" });
        match Expr::parse(&text) {
            Ok(expr) => {
                let shown = expr.to_string();
                let again = Expr::parse(&shown);
                prop_assert_eq!(again.as_ref(), Ok(&expr), "{}", shown);
                let _ = expr.evaluate(&Anything);
            }
            Err(error) => prop_assert!(text.get(error.at..error.at + error.len).is_some(), "{:?}", error),
        }
    }
}

#[test]
fn most_generated_conditions_parse() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let parsed = (0..200)
        .filter(|_| Expr::parse(&condition_text().new_tree(&mut runner).unwrap().current()).is_ok())
        .count();
    assert!(parsed > 60, "only {parsed} of 200");
}

#[test]
fn figures_are_replaced_by_their_expressions() {
    let mut figures: Vec<Figure> = Vec::new();
    for (name, sum) in
        [("p99", "p99"), ("twice", "p99 * 2"), ("the rest", "(twice - p50) / 2"), ("itself", "itself + 1")]
    {
        figures.push(Figure::after(&figures, name, sum, NumberKind::Duration).expect("a figure"));
    }
    let table = table();
    let judged = |text: &str| {
        let condition = Expr::parse(text).expect("a condition").with_figures(&figures);
        assert_eq!(condition.to_string(), text);
        let found = condition.evaluate(&table);
        (found.holds, found.value)
    };
    assert_eq!(judged("twice < 301ms"), (Some(true), Some(300.0)));
    assert_eq!(judged("'the rest' - p99 > 1ms"), (Some(false), Some(-6.25)));
    assert_eq!(judged("p99 < 1s and itself < 3"), (None, None));
    // It uses the names of its figures, which decides what must be read while a load runs.
    let names = Expr::parse("'the rest' < 1s").expect("a condition").with_figures(&figures).names();
    assert_eq!(names.into_iter().map(|n| n.text).collect::<Vec<_>>(), ["p99", "p50"]);
}

#[test]
fn figures_do_not_double_without_end() {
    let mut figures = vec![Figure::after(&[], "f0", "p99 + p50", NumberKind::Duration).expect("a figure")];
    let error = loop {
        let last = figures.len() - 1;
        match Figure::after(
            &figures,
            &format!("f{}", last + 1),
            &format!("f{last} + f{last}"),
            NumberKind::Duration,
        ) {
            Ok(figure) => figures.push(figure),
            Err(error) => break error,
        }
    };
    // 2^9 is 512.
    assert_eq!(figures.len(), 9);
    assert_eq!(error.message, "with the figures that it uses, this is longer than 1000 names and numbers");
    assert_eq!((error.at, error.len), (0, "f8 + f8".len()));
}

#[test]
fn parts_of_a_trial_are_read_and_written_as_they_are() {
    let part = |text: &str| Expr::parse(text).map(|e| (e.to_string(), e.names()[0].part));
    assert_eq!(part("x[batch  2] < 1"), Ok(("x[batch 2] < 1".to_owned(), Some(TrialPart::Batch(2)))));
    assert_eq!(part("x[ drain ] < 1"), Ok(("x[drain] < 1".to_owned(), Some(TrialPart::Drain))));
    let wrong = |text: &str| Expr::parse(text).expect_err("it is wrong").message;
    assert_eq!(wrong("x[batch 0] < 1"), "batches are numbered from 1");
    assert_eq!(wrong("x[batch 1.5] < 1"), "batches are numbered from 1");
    assert_eq!(wrong("x[batch] < 1"), "expected the number of a batch, as in `[batch 2]`, found `]`");
    assert_eq!(
        wrong("x[pause] < 1"),
        "expected a part of the trial: `10s..30s`, `batch 2` or `drain`, found `pause`"
    );
}
