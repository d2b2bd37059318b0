//! The final output of `bench` on terminals of several widths.

use std::collections::BTreeMap;

use loadlab_analysis::{LoadRun, TrialInput, summarise};
use loadlab_record::counts::example::{Example, ExampleReason};
use loadlab_record::counts::load::{
    Bytes, Connections, Counts, InWindow, Measured, Stragglers, TagMeasured, Window,
};
use loadlab_record::documents::summary::{
    Expectation, FewSamples, Generator, LoadFacts, LoadModel, Stalls, Summary, Verdict,
};
use loadlab_record::{Failure, Histogram};
use loadlab_report::{Trial, trial_text};

/// A closed load with two modes of response times, some failures and timeouts.
fn measured() -> Measured {
    let mut m = Measured {
        counts: Counts { due: 20_000, started: 20_000, ok: 19_950, in_flight: 8, ..Counts::default() },
        bytes: Bytes { sent: 2_400_000, received: 64_000_000 },
        window: Window { from_s: 0.0, to_s: 10.0 },
        in_window: InWindow { due: 20_000, started: 20_000, ok: 19_950 },
        elapsed_s: 10.0,
        connections: Connections {
            attempted: 53,
            opened: 52,
            requests_resent: 1,
            peak: 50,
            ..Connections::default()
        },
        ..Measured::default()
    };
    m.counts.failures.add(Failure::Http5xx, 40);
    m.counts.failures.add(Failure::Timeout, 2);
    m.statuses = BTreeMap::from([(200, 19_950), (503, 40)]);
    // a main mode around 2 ms and a second one, ten times slower, for one in fifty
    for i in 0..19_950u64 {
        let spread = (i * 7919) % 1000;
        let ns = if i % 50 == 0 { 20_000_000 + spread * 30_000 } else { 1_500_000 + spread * 1_700 };
        m.series.response_ok.record(ns);
    }
    m.series.response_failed.record_n(400_000, 40);
    m.series.response_censored.record_n(1_000_000_000, 2);
    m.series.response_censored.record_n(1_000_000, 8);
    m.series.connect.record_n(90_000, 52);
    m.busy_s = m.series.response_ok.sum_ns() as f64 / 1e9 + 2.0;
    m.busy_in_window_s = m.busy_s;
    let mut page = TagMeasured { response_ok: m.series.response_ok.clone(), ..TagMeasured::default() };
    page.counts = m.counts.clone();
    m.by_tag.insert("page".into(), page);
    m
}

fn summary(facts: LoadFacts, m: Measured) -> Summary {
    let runs = [LoadRun { load: "main".into(), batch: 0, at_s: 0.0, measured: m }];
    summarise(TrialInput {
        agents: Vec::new(),
        facts,
        loads: &runs,
        generator: Generator {
            io: "epoll".into(),
            threads: 1,
            cpus: vec![1],
            cpu_s: 9.4,
            run_delay_s: Some(0.021),
            peak_rss_bytes: 12_900_000,
            connections_peak: 50,
            ..Generator::default()
        },
        ..TrialInput::default()
    })
}

fn bench() -> Summary {
    let facts = LoadFacts {
        model: LoadModel::Closed,
        users: Some(5),
        duration_s: Some(10.0),
        keep_alive: true,
        protocol: "http/1.1".into(),
        url: "http://127.0.0.1:8080/index".into(),
        ..LoadFacts::default()
    };
    let mut s = summary(facts, measured());
    s.expectations = vec![
        Expectation {
            expr: "p99 < 200ms".into(),
            holds: Some(true),
            value: Some(45.6),
            unit: "ms".into(),
            note: None,
            undecided: None,
        },
        Expectation {
            expr: "errors < 0.1%".into(),
            holds: Some(false),
            value: Some(0.21),
            unit: "%".into(),
            note: None,
            undecided: None,
        },
        Expectation {
            expr: "stored == 1".into(),
            holds: None,
            value: None,
            unit: String::new(),
            note: Some("`stored` was never read".into()),
            undecided: None,
        },
        Expectation {
            expr: "p99_99 < 1s".into(),
            holds: None,
            value: None,
            unit: String::new(),
            note: Some(
                "`p99_99` is 48.9 ms (48.5…≥48.9) from 19,960 samples; 100,000 would decide it, 50.1 s at this rate".into(),
            ),
            undecided: Some(FewSamples { samples: 19_960, needed: 100_000, needed_s: Some(50.1) }),
        },
    ];
    s.verdict = Verdict::Fail;
    s
}

fn failed_example() -> Example {
    Example {
        kept: ExampleReason::Failed,
        outcome: "http_5xx".into(),
        load: "main".into(),
        tag: None,
        due_s: 4.2,
        response_ms: 0.41,
        service_ms: 0.41,
        user: Some(3),
        step: None,
        captured: BTreeMap::new(),
        address: "127.0.0.1:8080".into(),
        error: None,
        request: "GET /index".into(),
        request_head: String::new(),
        status: Some(503),
        response_head: None,
        response_body: Some("{\"error\": \"pool exhausted\"}\n\x1b[31m".into()),
    }
}

fn shown(summary: &Summary, width: usize, colour: bool) -> String {
    let m = measured();
    let examples = [failed_example()];
    trial_text(Trial { summary, ok_responses: &m.series.response_ok, examples: &examples }, width, colour)
}

#[test]
fn at_eighty_columns() {
    insta::assert_snapshot!(shown(&bench(), 80, false), @r#"
    FAIL  19,950 requests ok in 10.0 s: 1,995/s, 42 failed (0.21 %)
    http://127.0.0.1:8080/index · 5 users · 10.0 s · http/1.1 · keep-alive
    These response times hold for 5 users only: each sends its next request when its
    last one has ended, which hides the waiting a slow answer would have caused. For
    a fixed rate: -r RATE.

    Times          response            ok        failed       connect
      min           1.50 ms       1.50 ms        400 µs       90.0 µs
      p50           2.37 ms       2.37 ms        400 µs       90.0 µs
      p75           2.80 ms       2.80 ms        400 µs       90.0 µs
      p90           3.06 ms       3.06 ms       ~400 µs      ~90.0 µs
      p95           3.15 ms       3.15 ms      ≥ 400 µs     ≥ 90.0 µs
      p99           35.0 ms       35.0 ms      ≥ 400 µs     ≥ 90.0 µs
      p99.9         48.5 ms       48.5 ms      ≥ 400 µs     ≥ 90.0 µs
      p99.99      > 48.5 ms     ≥ 48.5 ms      ≥ 400 µs     ≥ 90.0 µs
      max          > 1.00 s       48.5 ms        400 µs       90.0 µs
      mean        > 3.09 ms       2.99 ms        400 µs       90.0 µs
      stdev               –       4.66 ms          0 ns         16 ns
      ~: estimated from few samples; `--json` has the intervals.
      10 response times were cut off by timeout, drop or the end of the load and
      count as at least their age.

    Response times of ok outcomes
      ≤ 2.20 ms  █████████████████████████████████████▏ 8,060 40.4 %
      ≤ 3.30 ms  █████████████████████████████████████████████████████ 11,491 57.6 %
      ≤ 4.70 ms
      ≤ 6.80 ms
      ≤ 10.0 ms
      ≤ 15.0 ms
      ≤ 22.0 ms  ▏ 39 0.20 %
      ≤ 33.0 ms  ▋ 140 0.70 %
      ≤ 47.0 ms  ▉ 200 1.0 %
      ≤ 68.0 ms  ▏ 20 0.10 %

    Outcomes
      ok 19,950 · http_5xx 40 (0.20 %) · timeout 2 (0.01 %) · in flight at the end 8
      200 × 19,950 · 503 × 40

    By tag  requests   failed           p50           p95           p99
      page    20,000       42       2.37 ms       3.15 ms       35.0 ms

    Throughput
      received 61.0 MiB (6.10 MiB/s) · sent 2.29 MiB (234 KiB/s)
      6.16 in flight on average · 1 request was sent again on another connection

    Generator
      epoll, 1 thread on core 1 · 94.0 % busy · waited for a core 0.21 %
      12.3 MiB at most · 50 connections at most

    What failed, for example
      http_5xx: GET /index → 503 (at 4.20 s, after 410 µs, 127.0.0.1:8080)
        {"error": "pool exhausted"} �[31m

    Doubts
      doubt   generator_cpu: 1 load thread was busy for 94 % of the time; the
              throughput is a lower bound of what the system can do
              hint: give loadlab more cores (`--threads`, `--cpus`), or send the
                    load from another machine

    Expectations
      ✔ holds   p99 < 200ms (measured 45.6 ms)
      ✘ failed  errors < 0.1% (measured 0.21 %)
      ✘ unknown stored == 1: `stored` was never read
      ? undecided p99_99 < 1s: `p99_99` is 48.9 ms (48.5…≥48.9) from 19,960 samples;
                  100,000 would decide it, 50.1 s at this rate
    "#);
}

#[test]
fn at_forty_columns() {
    insta::assert_snapshot!(shown(&bench(), 40, false), @r#"
    FAIL  19,950 requests ok in 10.0 s:
          1,995/s, 42 failed (0.21 %)
    http://127.0.0.1:8080/index · 5 users
    10.0 s · http/1.1 · keep-alive
    These response times hold for 5 users
    only: each sends its next request when
    its last one has ended, which hides the
    waiting a slow answer would have caused.
    For a fixed rate: -r RATE.

    Times          response            ok
      min           1.50 ms       1.50 ms
      p50           2.37 ms       2.37 ms
      p75           2.80 ms       2.80 ms
      p90           3.06 ms       3.06 ms
      p95           3.15 ms       3.15 ms
      p99           35.0 ms       35.0 ms
      p99.9         48.5 ms       48.5 ms
      p99.99      > 48.5 ms     ≥ 48.5 ms
      max          > 1.00 s       48.5 ms
      mean        > 3.09 ms       2.99 ms
      stdev               –       4.66 ms

                     failed       connect
      min            400 µs       90.0 µs
      p50            400 µs       90.0 µs
      p75            400 µs       90.0 µs
      p90           ~400 µs      ~90.0 µs
      p95          ≥ 400 µs     ≥ 90.0 µs
      p99          ≥ 400 µs     ≥ 90.0 µs
      p99.9        ≥ 400 µs     ≥ 90.0 µs
      p99.99       ≥ 400 µs     ≥ 90.0 µs
      max            400 µs       90.0 µs
      mean           400 µs       90.0 µs
      stdev            0 ns         16 ns
      ~: estimated from few samples;
      `--json` has the intervals.
      10 response times were cut off by
      timeout, drop or the end of the load
      and count as at least their age.

    Response times of ok outcomes
      ≤ 2.20 ms  █████████▏ 8,060 40.4 %
      ≤ 3.30 ms  █████████████ 11,491 57.6 %
      ≤ 4.70 ms
      ≤ 6.80 ms
      ≤ 10.0 ms
      ≤ 15.0 ms
      ≤ 22.0 ms  ▏ 39 0.20 %
      ≤ 33.0 ms  ▏ 140 0.70 %
      ≤ 47.0 ms  ▎ 200 1.0 %
      ≤ 68.0 ms  ▏ 20 0.10 %

    Outcomes
      ok 19,950 · http_5xx 40 (0.20 %)
      timeout 2 (0.01 %)
      in flight at the end 8
      200 × 19,950 · 503 × 40

    By tag
      page
        20,000 requests · 42 failed
        p50 2.37 ms · p95 3.15 ms
        p99 35.0 ms

    Throughput
      received 61.0 MiB (6.10 MiB/s)
      sent 2.29 MiB (234 KiB/s)
      6.16 in flight on average
      1 request was sent again on another
      connection

    Generator
      epoll, 1 thread on core 1
      94.0 % busy · waited for a core 0.21 %
      12.3 MiB at most
      50 connections at most

    What failed, for example
      http_5xx: GET /index → 503 (at 4.20 s,
      after 410 µs, 127.0.0.1:8080)
        {"error": "pool exhausted"} �[31m

    Doubts
      doubt   generator_cpu: 1 load thread
              was busy for 94 % of the time;
              the throughput is a lower
              bound of what the system can
              do
              hint: give loadlab more cores
                    (`--threads`, `--cpus`),
                    or send the load from
                    another machine

    Expectations
      ✔ holds   p99 < 200ms (measured 45.6
                ms)
      ✘ failed  errors < 0.1% (measured 0.21
                %)
      ✘ unknown stored == 1: `stored` was
                never read
      ? undecided p99_99 < 1s: `p99_99` is
                  48.9 ms (48.5…≥48.9) from
                  19,960 samples; 100,000
                  would decide it, 50.1 s at
                  this rate
    "#);
}

#[test]
fn colour_only_adds_and_no_width_is_exceeded() {
    for width in [40, 80, 200] {
        let (plain, coloured) = (shown(&bench(), width, false), shown(&bench(), width, true));
        let bare: String = coloured
            .split('\u{1b}')
            .enumerate()
            .map(|(i, part)| if i == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) })
            .collect();
        assert_eq!(bare, plain);
        for line in plain.lines() {
            assert!(loadlab_report::terminal::width_of(line) <= width, "{width}: {line}");
        }
    }
}

#[test]
fn a_single_user_is_one() {
    let mut s = bench();
    s.load.users = Some(1);
    let text = shown(&s, 200, false);
    assert!(text.contains("These response times hold for 1 user only: each sends"), "{text}");
}

#[test]
fn nothing_measured_is_said_and_does_not_break_it() {
    let facts = LoadFacts { model: LoadModel::Open, rate_per_s: Some(10.0), ..LoadFacts::default() };
    let s = summary(facts, Measured::default());
    let empty = Histogram::new();
    let text = trial_text(Trial { summary: &s, ok_responses: &empty, examples: &[] }, 80, false);
    assert!(text.contains("nothing was sent"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn what_the_generator_suffered() {
    let check = |generator: Generator, expect: &str| {
        assert_eq!(loadlab_report::wording::describe_generator(&generator, 10.0).join(" · "), expect);
    };
    let quiet = Generator { io: "epoll".into(), threads: 1, cpu_s: 1.0, ..Generator::default() };
    check(
        Generator { suspended_s: Some(1e-7), ..quiet.clone() },
        "epoll, 1 thread · 10.0 % busy · 0 B at most · 0 connections at most",
    );
    let still = Stalls { count: 2, total_s: 0.7, max_s: 0.4, max_at_s: 2.5 };
    check(
        Generator { throttled_s: Some(0.2), stalls: still, suspended_s: Some(30.0), ..quiet },
        "epoll, 1 thread · 10.0 % busy · stopped by a CPU limit for 200 ms · stalled for 700 ms · suspended for 30.0 s · 0 B at most · 0 connections at most",
    );
    let of_four = Generator {
        io: "epoll".into(),
        threads: 4,
        cpu_s: 9.6,
        busiest_cpu_s: Some(9.5),
        run_delay_s: Some(0.2),
        longest_run_delay_s: Some(0.2),
        ..Generator::default()
    };
    check(
        of_four,
        "epoll, 4 threads · the busiest 95.0 % busy · waited for a core at most 2.0 % · 0 B at most · 0 connections at most",
    );
}

#[test]
fn stragglers_are_named_and_the_rate_says_of_what_it_is() {
    let mut m = measured();
    (m.window.to_s, m.elapsed_s) = (3.0, 8.0);
    m.in_window.ok = 3870;
    m.stragglers = Stragglers { ok: 30, failed: 2, tail_s: 5.0 };
    let s = summary(LoadFacts { duration_s: Some(3.0), ..LoadFacts::default() }, m.clone());
    let text = trial_text(Trial { summary: &s, ok_responses: &Histogram::new(), examples: &[] }, 200, false);
    assert!(
        text.starts_with("19,950 requests ok in 8.00 s: 1,290/s over 3.00 s, 42 failed (0.21 %)"),
        "{text}"
    );
    let described = "32 stragglers (2 failed) began in time and ended after the load was over, the last one 5.00 s later: \
                their response times count, but no rate includes them.";
    assert!(text.contains(described), "{text}");
    // What every load has – answers that come a moment after its end – is not worth reporting.
    (m.window.to_s, m.elapsed_s, m.stragglers.tail_s) = (3.0, 3.004, 0.004);
    let s = summary(LoadFacts { duration_s: Some(3.0), ..LoadFacts::default() }, m);
    let text = trial_text(Trial { summary: &s, ok_responses: &Histogram::new(), examples: &[] }, 200, false);
    assert!(text.starts_with("19,950 requests ok in 3.00 s: 1,290/s, 42 failed"), "{text}");
    assert!(!text.contains("stragglers"), "{text}");
}
