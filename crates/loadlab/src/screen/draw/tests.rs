//! Screens of every size, from events alone.

use std::collections::BTreeMap;

use loadlab_analysis::{TrialInput, summarise};
use loadlab_record::Failure;
use loadlab_record::counts::load::{Counts, Tick, TickMs};
use loadlab_record::counts::quantile::FewSamples;
use loadlab_record::documents::figure::{Better, FigureValue, NumberKind};
use loadlab_record::documents::manifest::FigureFacts;
use loadlab_record::documents::summary::Verdict;
use loadlab_record::watch::sample::Sample;
use loadlab_run::RunEvent;
use loadlab_run::event::Progress;
use loadlab_run::senders::AgentNow;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::live::wording::describe;

fn sample(component: &str, at_s: f64, cpu_s: f64, memory: u64, limit: Option<u64>) -> Sample {
    // Throttled in 4 of 10 periods a second, on four cores each time.
    let of_edge = |per_s: f64| (component == "edge").then_some(at_s * per_s);
    Sample {
        at_s,
        component: component.into(),
        cpu_s: Some(cpu_s),
        memory_bytes: Some(memory),
        memory_limit_bytes: limit,
        periods: of_edge(10.0).map(|n| n as u64),
        throttled_periods: of_edge(4.0).map(|n| n as u64),
        throttled_s: of_edge(1.6),
        ..Sample::default()
    }
}

/// Six seconds of a running trial.
fn state() -> State {
    state_of_plan(Vec::new())
}

/// As [`state`], for a plan that names figures.
fn state_of_plan(figures: Vec<FigureFacts>) -> State {
    let mut state = State::new("edges under limits");
    let cpu_limits = BTreeMap::from([("edge".to_owned(), 0.5)]);
    let case = "1% CPU".to_owned();
    state.on_event(
        1.0,
        &RunEvent::TrialStarted { case, trial: 2, place: 3, of: 15, at_most: false, cpu_limits, figures },
    );
    state.on_event(2.0, &RunEvent::Ready { component: "edge".into(), after_s: 0.25 });
    let load = "main".to_owned();
    state.on_event(
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
        state.on_event(4.0 + at_s, &RunEvent::Watched(samples));
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
        state.on_event(4.0 + at_s, &RunEvent::Second(Box::new(tick)));
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
    state.on_event(9.0, &RunEvent::Progress(progress));
    state
        .on_event(9.1, &RunEvent::Note("the kernel killed processes of `edge` for memory (1 so far)".into()));
    state.on_event(9.2, &RunEvent::Died { component: "edge".into(), status: "signal 9\u{1b}[31m".into() });
    state
}

fn facts(name: &str, kind: NumberKind) -> FigureFacts {
    let (name, value) = (name.to_owned(), "rate".to_owned());
    FigureFacts { name, value, kind, unit: None, better: Better::Less, about: None }
}

/// As [`state`], with figures that matter: one known, one from few samples, one a lower bound, and one known only at
/// the trial's end.
fn state_with_figures() -> State {
    let figures = vec![
        facts("peak memory", NumberKind::Bytes),
        facts("GET /items p99", NumberKind::Duration),
        facts("slowest", NumberKind::Duration),
        facts("drain", NumberKind::Duration),
    ];
    let mut state = state_of_plan(figures);
    for second in 0..4u64 {
        let memory = FigureValue { value: Some((second + 9) as f64 * 1048576.0), ..FigureValue::default() };
        let few = Some(FewSamples { samples: 60, needed: 1000, needed_s: None });
        let interval = Some([Some(29.8), Some(60.0)]);
        let p99 = FigureValue { estimate: Some(41.2), interval, few, ..FigureValue::default() };
        let slowest = FigureValue { at_least: Some(900.0), ..FigureValue::default() };
        let drain = FigureValue { note: Some("nothing was drained".into()), ..FigureValue::default() };
        let all = [("peak memory", memory), ("GET /items p99", p99), ("slowest", slowest), ("drain", drain)];
        let values = all.map(|(name, value)| (name.to_owned(), value)).to_vec();
        state.on_event(5.0 + second as f64, &RunEvent::Figures { load: "main".into(), values });
    }
    state
}

/// Four agents, one of which has failed requests, and one of which is missing.
#[test]
fn agents_have_a_row_each() {
    let mut state = state();
    for second in 0..5u64 {
        let agent = |slot: u64, name: &str, failed: u64| {
            let mut counts = Counts { ok: second * (slot + 2) * 700, in_flight: slot, ..Counts::default() };
            counts.failures.add(Failure::Http5xx, failed);
            let ok_per_s = ((slot + 2) * 700 + 150 * second) as f64;
            AgentNow { slot, agent: name.to_owned(), ok_per_s, counts, is_missing: slot == 2 && second > 2 }
        };
        let agents = vec![
            agent(0, "host-a", 0),
            agent(1, "host-b", 12),
            agent(2, "host-c\u{1b}[31m", 0),
            agent(3, "host-d", 0),
        ];
        state.on_event(5.0 + second as f64, &RunEvent::Agents { load: "main".into(), agents });
    }
    insta::assert_snapshot!(screen(&state, 80, 24), @r"
    edges under limits                                                  [3/15]  0:10
    1% CPU, trial 2 · loading 0:07
    batch 2/3  █████████████████▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  0:14 left
      ok      1,500/s  ▆▆▇▇██
      p50     6.00 ms  ▂▃▅▆▇█
      p99      120 ms  ▂▃▅▆▇█
      7,500 ok · 490 http_5xx · 10 in flight · 10 connections
    ── components ──────────────────────────────────────────────────────────────────
      edge      CPU █████▉   49.0 % of 50.0 %    mem █████▋ 14.0 MiB of 15.0 MiB
      database  CPU          12.0 %              mem         300 MiB
      loadlab   CPU          20.0 %              mem        14.0 MiB
    ── probes ──────────────────────────────────────────────────────────────────────
      queue depth         35  ▁▂▄▅▇█
    ── agents ──────────────────────────────────────────────────────────────────────
      host-c�[31m (slot 2)    missing
      host-a (slot 0)         2,000/s             ▆▆▇▇█
      host-b (slot 1)         2,700/s  12 failed  ▆▇▇██
      host-d (slot 3)         4,100/s             ▇▇▇██
    ── events, newest first ────────────────────────────────────────────────────────
      0:09  edge died: signal 9�[31m
      0:09  note: the kernel killed processes of `edge` for memory (1 so far)
      0:02  edge ready after 250 ms
    ");
    insta::assert_snapshot!(screen(&state, 40, 21), @r"
    edges under limits          [3/15]  0:10
    1% CPU, trial 2 · loading 0:07
    batch 2/3  █████▍░░░░░░░░░░░░  0:14 left
      ok      1,500/s  ▆▆▇▇██
      p50     6.00 ms  ▂▃▅▆▇█
      p99      120 ms  ▂▃▅▆▇█
      7,500 ok · 490 http_5xx · 10 in flight
    ── components ──────────────────────────
      edge      CPU   49.0 %  mem 14.0 MiB
      database  CPU   12.0 %  mem  300 MiB
      loadlab   CPU   20.0 %  mem 14.0 MiB
    ── probes ──────────────────────────────
      queue depth         35  ▁▂▄▅▇█
    ── agents ──────────────────────────────
      host-c�[31m (slot 2)    missing      …
      host-a (slot 0)         2,000/s      …
      … and 2 more
    ── events, newest first ────────────────
      0:09  edge died: signal 9�[31m
      0:09  note: the kernel killed process…
      0:02  edge ready after 250 ms
    ");
}

#[test]
fn figures_that_matter_come_first() {
    insta::assert_snapshot!(screen(&state_with_figures(), 80, 24), @r"
    edges under limits                                                  [3/15]  0:10
    1% CPU, trial 2 · loading 0:07
    batch 2/3  █████████████████▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  0:14 left
      ok      1,500/s  ▆▆▇▇██
      p50     6.00 ms  ▂▃▅▆▇█
      p99      120 ms  ▂▃▅▆▇█
      7,500 ok · 490 http_5xx · 10 in flight · 10 connections
    ── figures that matter ─────────────────────────────────────────────────────────
      peak memory      12.0 MiB  ▆▇▇█
      GET /items p99   ~41.2 ms  ████
      slowest          > 900 ms  ████
      drain                   –  ····
    ── components ──────────────────────────────────────────────────────────────────
      edge      CPU █████▉   49.0 % of 50.0 %    mem █████▋ 14.0 MiB of 15.0 MiB
      database  CPU          12.0 %              mem         300 MiB
      loadlab   CPU          20.0 %              mem        14.0 MiB
    ── probes ──────────────────────────────────────────────────────────────────────
      queue depth         35  ▁▂▄▅▇█
    ── events, newest first ────────────────────────────────────────────────────────
      0:09  edge died: signal 9�[31m
      0:09  note: the kernel killed processes of `edge` for memory (1 so far)
      0:02  edge ready after 250 ms
    ");
    insta::assert_snapshot!(screen(&state_with_figures(), 40, 16), @r"
    edges under limits          [3/15]  0:10
    1% CPU, trial 2 · loading 0:07
    batch 2/3  █████▍░░░░░░░░░░░░  0:14 left
      ok      1,500/s  ▆▆▇▇██
      p50     6.00 ms  ▂▃▅▆▇█
      p99      120 ms  ▂▃▅▆▇█
      7,500 ok · 490 http_5xx · 10 in flight
    ── figures that matter ─────────────────
      peak memory      12.0 MiB  ▆▇▇█
      GET /items p99   ~41.2 ms  ████
      slowest          > 900 ms  ████
      drain                   –  ····
    ── events, newest first ────────────────
      0:09  edge died: signal 9�[31m
      0:09  note: the kernel killed process…
      0:02  edge ready after 250 ms
    ");
}

#[test]
fn figures_of_several_loads_say_whose_they_are_and_a_new_trial_begins_anew() {
    let mut state = state_with_figures();
    let load = "second".to_owned();
    let started =
        RunEvent::LoadStarted { load, batch: (0, 1), planned_s: Some(20.0), planned_requests: None };
    state.on_event(9.5, &started);
    let shown = screen(&state, 100, 40);
    for line in ["  peak memory of main", "  peak memory of second", "  drain of second"] {
        assert!(shown.contains(line), "{shown}");
    }
    let case = "other".to_owned();
    let (cpu_limits, figures) = (BTreeMap::new(), vec![facts("peak memory", NumberKind::Bytes)]);
    state.on_event(
        11.0,
        &RunEvent::TrialStarted { case, trial: 1, place: 4, of: 15, at_most: false, cpu_limits, figures },
    );
    assert!(!screen(&state, 100, 40).contains("figures that matter"));
    state.on_event(12.0, &started);
    let shown = screen(&state, 100, 40);
    assert!(shown.contains("  peak memory          –"), "{shown}");
}

#[test]
fn the_end_of_a_trial_names_the_first_figures() {
    let mut state = state_with_figures();
    let mut summary = summarise(TrialInput::default());
    summary.verdict = Verdict::None;
    summary.bottleneck = None;
    summary.doubts.clear();
    summary.requests.ok = 256;
    // Less than one a second is not rounded to none, nor to one.
    summary.rate_per_s.ok = 0.4266;
    let memory = FigureValue { value: Some(12e6), ..FigureValue::default() };
    summary.figures.insert("peak memory".into(), memory);
    let ended = RunEvent::TrialEnded {
        case: "1% CPU".into(),
        trial: 2,
        summary: Some(Box::new(summary)),
        failure: None,
        figures: vec![facts("peak memory", NumberKind::Bytes), facts("drain", NumberKind::Duration)],
    };
    assert_eq!(describe(&ended).as_deref(), Some("  256 ok, 0.427/s, peak memory 11.4 MiB, drain –"));
    state.on_event(10.0, &ended);
    let line = state.done.back().map(|(_, text)| text.as_str());
    assert_eq!(
        line,
        Some("– 1% CPU, trial 2: 0.427/s, peak memory 11.4 MiB, GET /items p99 –, slowest –, 0 failed")
    );
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
      edge      CPU █████▉   49.0 % of 50.0 %    mem █████▋ 14.0 MiB of 15.0 MiB
      database  CPU          12.0 %              mem         300 MiB
      loadlab   CPU          20.0 %              mem        14.0 MiB
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
      edge      CPU   49.0 %  mem 14.0 MiB
      database  CPU   12.0 %  mem  300 MiB
      loadlab   CPU   20.0 %  mem 14.0 MiB
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
      edge      CPU ███████████████████████▌   49.0 % of 50.0 %    mem ██████████████████████▍░ 14.0 MiB of 15.0 MiB  stopped 40.0 %
      database  CPU                            12.0 %              mem                           300 MiB
      loadlab   CPU                            20.0 %              mem                          14.0 MiB
    ── probes ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      queue depth         35  ▁▂▄▅▇█
    ── events, newest first ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      0:09  edge died: signal 9�[31m
      0:09  note: the kernel killed processes of `edge` for memory (1 so far)
      0:02  edge ready after 250 ms
    ");
}

#[test]
fn without_periods_the_time_over_all_cores_is_named_as_that() {
    let mut state = state();
    for at_s in [6.0, 7.0] {
        let edge = Sample { periods: None, throttled_periods: None, ..sample("edge", at_s, at_s, 0, None) };
        state.on_event(9.5 + at_s, &RunEvent::Watched(vec![edge]));
    }
    let shown = screen(&state, 200, 20);
    assert!(shown.contains("  stopped 160.0 % of a core"), "{shown}");
}

#[test]
fn a_changed_cpu_limit_is_followed() {
    let mut state = state();
    let replicas = ["edge1", "edge2", "edge-db"].map(|name| sample(name, 1.0, 0.1, 1 << 20, None)).to_vec();
    state.on_event(9.3, &RunEvent::Watched(replicas));
    let mut limits_after = |what: &str, error: Option<&str>| {
        let acted = RunEvent::Acted { what: what.to_owned(), error: error.map(str::to_owned) };
        state.on_event(9.5, &acted);
        let limit = |name: &str| state.components.iter().find(|c| c.name == name)?.cpu_limit;
        (limit("edge"), limit("edge1"), limit("edge2"), limit("edge-db"))
    };
    assert_eq!(limits_after("limit edge cpu 1.5", Some("no such group")), (Some(0.5), None, None, None));
    assert_eq!(limits_after("limit edge memory 20MiB", None), (Some(0.5), None, None, None));
    assert_eq!(limits_after("limit edge cpu 5%", None), (Some(0.05), None, None, None));
    assert_eq!(limits_after("limit edge cpu none", None), (None, None, None, None));
    // If no component has the name, it means all replicas.
    state.components.retain(|c| c.name != "edge");
    let acted = RunEvent::Acted { what: "limit edge cpu 2".to_owned(), error: None };
    state.on_event(9.6, &acted);
    let limits: Vec<_> = state.components.iter().map(|c| (c.name.as_str(), c.cpu_limit)).collect();
    let replicas = [("edge1", Some(2.0)), ("edge2", Some(2.0)), ("edge-db", None)];
    assert_eq!(limits, [&[("database", None), ("loadlab", None)][..], &replicas].concat());
}

#[test]
fn a_stall_shows_no_response_times_of_earlier_seconds() {
    let mut state = state();
    let second = |from_s: f64, to_s: f64| {
        let tick = Tick { load: "main".into(), from_s, to_s, ..Tick::default() };
        RunEvent::Second(Box::new(tick))
    };
    state.on_event(10.0, &second(6.0, 7.0));
    let shown = screen(&state, 200, 20);
    for line in ["  p50           –  ", "  p99           –  ", " · so far p50 3.50 ms, p99 110 ms"] {
        assert!(shown.contains(line), "{line} {shown}");
    }
    // Until the first second is over, the values so far are all there is.
    state.loads[0] = Load { progress: state.loads[0].progress.clone(), ..Load::default() };
    assert!(screen(&state, 200, 20).contains("  p50     3.50 ms\n"));
}

#[test]
fn what_earlier_batches_counted_stays() {
    let mut state = state();
    let started = RunEvent::LoadStarted {
        load: "main".to_owned(),
        batch: (2, 3),
        planned_s: Some(20.0),
        planned_requests: None,
    };
    state.on_event(9.5, &started);
    let counts = Counts { due: 9, started: 9, ok: 7, in_flight: 2, ..Counts::default() };
    let progress = Progress { load: "main".into(), counts, ..Progress::default() };
    state.on_event(9.6, &RunEvent::Progress(progress));
    let shown = screen(&state, 80, 24);
    assert!(shown.contains("\n  7,507 ok · 490 http_5xx · 2 in flight"), "{shown}");
}

#[test]
fn many_components_leave_room_for_events() {
    let mut state = state();
    let many = (0..300).map(|i| sample(&format!("shard-{i}"), 1.0, 0.1, 1 << 20, None)).collect();
    state.on_event(9.5, &RunEvent::Watched(many));
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
