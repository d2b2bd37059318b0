//! Screens of every size, from events alone.

use std::collections::BTreeMap;

use loadlab_record::Failure;
use loadlab_record::load::{Counts, Tick, TickMs};
use loadlab_record::sample::Sample;
use loadlab_run::RunEvent;
use loadlab_run::event::Progress;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

fn sample(component: &str, at_s: f64, cpu_s: f64, memory: u64, limit: Option<u64>) -> Sample {
    Sample {
        at_s,
        component: component.into(),
        cpu_s: Some(cpu_s),
        memory_bytes: Some(memory),
        memory_limit_bytes: limit,
        throttled_s: (component == "edge").then_some(at_s * 0.4),
        ..Sample::default()
    }
}

/// Six seconds of a trial under way.
fn state() -> State {
    let mut state = State::new("edges under limits");
    let cpu_limits = BTreeMap::from([("edge".to_owned(), 0.5)]);
    let case = "1% CPU".to_owned();
    state.event(1.0, &RunEvent::TrialStarted { case, trial: 2, place: 3, of: 15, cpu_limits });
    state.event(2.0, &RunEvent::Ready { component: "edge".into(), after_s: 0.25 });
    let load = "main".to_owned();
    state.event(
        3.0,
        &RunEvent::LoadStarted { load, batch: (1, 3), planned_s: Some(20.0), planned_requests: None },
    );
    for second in 0..6u64 {
        let at_s = second as f64;
        let samples = vec![
            sample("edge", at_s, at_s * 0.49, (9 + second) << 20, Some(15 << 20)),
            sample("database", at_s, at_s * 0.12, 300 << 20, None),
            sample("loadlab", at_s, at_s * 0.2, 14 << 20, None),
            Sample {
                component: "probes".into(),
                probes: BTreeMap::from([("queue depth".into(), at_s * 7.0)]),
                ..Sample::default()
            },
        ];
        state.event(4.0 + at_s, &RunEvent::Watched(samples));
        let counts = Counts { ok: 1000 + 100 * second, ..Counts::default() };
        let response_ms =
            TickMs { p50: Some(1.0 + at_s), p99: Some(20.0 * (1.0 + at_s)), ..TickMs::default() };
        let tick = Tick {
            load: "main".into(),
            from_s: at_s,
            to_s: at_s + 1.0,
            counts,
            response_ms,
            ..Tick::default()
        };
        state.event(4.0 + at_s, &RunEvent::Second(Box::new(tick)));
    }
    let mut counts = Counts { due: 8000, started: 8000, ok: 7500, in_flight: 10, ..Counts::default() };
    counts.failures.add(Failure::Http5xx, 490);
    let progress = Progress {
        load: "main".into(),
        at_s: 6.0,
        counts,
        ok_per_s: 1499.6,
        p50_ms: Some(3.5),
        p99_ms: Some(110.0),
        connections: 10,
    };
    state.event(9.0, &RunEvent::Progress(progress));
    state.event(9.1, &RunEvent::Note("the kernel killed processes of `edge` for memory (1 so far)".into()));
    state.event(9.2, &RunEvent::Died { component: "edge".into(), status: "signal 9\u{1b}[31m".into() });
    state
}

fn screen(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
    terminal.draw(|frame| draw(frame, state, 10.0, true)).expect("memory takes it");
    let buffer = terminal.backend().buffer().clone();
    let row = |y: u16| {
        (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>().trim_end().to_owned()
    };
    (0..height).map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn eighty_columns() {
    insta::assert_snapshot!(screen(&state(), 80, 24), @r"
    edges under limits                                                  [3/15]  0:10
    1% CPU, trial 2 · loading 0:07
    batch 2/3  █████████████████▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  0:14 left
      ok      1,500/s  ▆▆▇▇██
      p50     6.00 ms  ▂▃▅▆▇█
      p99      120 ms  ▂▃▅▆▇█
      7,500 ok · 490 http_5xx · 10 in flight · 10 connections
    ── components ──────────────────────────────────────────────────────────────────
      edge      CPU █████▉  49.00 % of 50.00 %   mem █████▋ 14.0 MiB of 15.0 MiB
      database  CPU         12.00 %              mem         300 MiB
      loadlab   CPU         20.00 %              mem        14.0 MiB
    ── probes ──────────────────────────────────────────────────────────────────────
      queue depth         35  ▁▂▄▅▇█
    ── events, newest first ────────────────────────────────────────────────────────
      0:09  edge died: signal 9�[31m
      0:09  note: the kernel killed processes of `edge` for memory (1 so far)
      0:02  edge ready after 250 ms
    ");
}

#[test]
fn forty_columns() {
    insta::assert_snapshot!(screen(&state(), 40, 16), @r"
    edges under limits          [3/15]  0:10
    1% CPU, trial 2 · loading 0:07
    batch 2/3  █████▍░░░░░░░░░░░░  0:14 left
      ok      1,500/s  ▆▆▇▇██
      p50     6.00 ms  ▂▃▅▆▇█
      p99      120 ms  ▂▃▅▆▇█
      7,500 ok · 490 http_5xx · 10 in flight
    ── components ──────────────────────────
      edge      CPU  49.00 %  mem 14.0 MiB
      database  CPU  12.00 %  mem  300 MiB
      loadlab   CPU  20.00 %  mem 14.0 MiB
    ── events, newest first ────────────────
      0:09  edge died: signal 9�[31m
      0:09  note: the kernel killed process…
      0:02  edge ready after 250 ms
    ");
}

#[test]
fn two_hundred_columns() {
    insta::assert_snapshot!(screen(&state(), 200, 20), @r"
    edges under limits                                                                                                                                                                          [3/15]  0:10
    1% CPU, trial 2 · loading 0:07
    batch 2/3  ██████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  0:14 left
      ok      1,500/s  ▆▆▇▇██
      p50     6.00 ms  ▂▃▅▆▇█
      p99      120 ms  ▂▃▅▆▇█
      7,500 ok · 490 http_5xx · 10 in flight · 10 connections · so far p50 3.50 ms, p99 110 ms
    ── components ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      edge      CPU ███████████████████████▌  49.00 % of 50.00 %   mem ██████████████████████▍░ 14.0 MiB of 15.0 MiB  stopped 40.0 %
      database  CPU                           12.00 %              mem                           300 MiB
      loadlab   CPU                           20.00 %              mem                          14.0 MiB
    ── probes ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      queue depth         35  ▁▂▄▅▇█
    ── events, newest first ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      0:09  edge died: signal 9�[31m
      0:09  note: the kernel killed processes of `edge` for memory (1 so far)
      0:02  edge ready after 250 ms
    ");
}

#[test]
fn many_components_leave_room_for_events() {
    let mut state = state();
    let many = (0..300).map(|i| sample(&format!("shard-{i}"), 1.0, 0.1, 1 << 20, None)).collect();
    state.event(9.5, &RunEvent::Watched(many));
    let text = screen(&state, 80, 24);
    assert!(text.contains("… and 29") && text.contains("died: signal 9"), "{text}");
}

#[test]
fn nothing_is_drawn_outside_of_any_size() {
    let state = state();
    for width in [1, 5, 36, 79, 300] {
        for height in [1, 2, 7, 12, 60] {
            assert_eq!(screen(&state, width, height).split('\n').count(), usize::from(height));
        }
    }
}
