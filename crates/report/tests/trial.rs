//! The end of `bench` on terminals of several widths.

use std::collections::BTreeMap;

use loadlab_analysis::{LoadRun, Planned, TrialInput, summarise};
use loadlab_record::example::{Example, Kept};
use loadlab_record::load::{Bytes, Connections, Counts, InWindow, Measured, TagMeasured, Window};
use loadlab_record::summary::{Ended, Expectation, Generator, LoadFacts, Summary, Verdict};
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
        connections: Connections { attempted: 53, opened: 52, reconnects: 1, peak: 50 },
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
    let mut page = TagMeasured { response_ok: m.series.response_ok.clone(), ..TagMeasured::default() };
    page.counts = m.counts.clone();
    m.by_tag.insert("page".into(), page);
    m
}

fn summary(facts: LoadFacts, m: Measured) -> Summary {
    let runs = [LoadRun { load: "main".into(), batch: 0, at_s: 0.0, measured: m }];
    summarise(TrialInput {
        facts,
        loads: &runs,
        ticks: &[],
        samples: &[],
        events: &[],
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
        ended: Ended::Complete,
        expect: &[],
        intervals: &[],
        drain_s: None,
        loss: None,
        planned: Planned::default(),
    })
}

fn bench() -> Summary {
    let facts = LoadFacts {
        model: "closed".into(),
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
        },
        Expectation {
            expr: "errors < 0.1%".into(),
            holds: Some(false),
            value: Some(0.21),
            unit: "%".into(),
            note: None,
        },
        Expectation {
            expr: "p99_99 < 1s".into(),
            holds: None,
            value: None,
            unit: String::new(),
            note: Some("needs 100,000 samples, got 19,960".into()),
        },
    ];
    s.verdict = Verdict::Fail;
    s
}

fn failed_example() -> Example {
    Example {
        kept: Kept::Failed,
        outcome: "http_5xx".into(),
        load: "main".into(),
        tag: None,
        due_s: 4.2,
        response_ms: 0.41,
        service_ms: 0.41,
        user: Some(3),
        address: "127.0.0.1:8080".into(),
        error: None,
        request: "GET /index".into(),
        request_head: String::new(),
        status: Some(503),
        response_head: None,
        response_body: Some("{\"error\": \"pool exhausted\"}\n\x1b[31m".into()),
    }
}

#[test]
fn show() {
    let s = bench();
    let m = measured();
    let t = Trial { summary: &s, ok_responses: &m.series.response_ok, examples: &[failed_example()] };
    for w in [40, 80, 200] {
        println!("{}", "=".repeat(w));
        println!("{}", trial_text(t, w, false));
    }
    println!("{}", trial_text(t, 80, true));
    let _ = Histogram::new();
}
