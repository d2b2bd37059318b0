//! Warm-up, drift and stalls, over series of seconds.

use loadlab_analysis::trial::steady::{Second, WarmUp, doubts, drift, warm_up};
use loadlab_record::counts::load::{Counts, Tick, TickMs};
use loadlab_record::documents::summary::{LoadFacts, LoadModel};

use crate::chance::Chance;

/// Seconds of ten users: from the median responses follow the answers, as in the closed model.
fn closed(times_ms: &[f64]) -> Vec<Second> {
    let second = |(i, ms): (usize, &f64)| Second {
        from_s: i as f64,
        to_s: i as f64 + 1.0,
        due: 10_000.0 / ms,
        ok: 10_000.0 / ms,
        failed: 0,
        p50_ms: Some(*ms),
    };
    times_ms.iter().enumerate().map(second).collect()
}

/// As [`closed`], at a sustainable fixed rate.
fn open(times_ms: &[f64]) -> Vec<Second> {
    closed(times_ms).into_iter().map(|s| Second { due: 500.0, ok: 500.0, ..s }).collect()
}

/// This many seconds around a level, with noise.
fn level(ms: f64, seconds: usize, seed: u64) -> Vec<f64> {
    let mut chance = Chance::new(seed);
    (0..seconds).map(|_| ms * (1.0 + 0.03 * chance.normal())).collect()
}

fn joined(parts: &[&[f64]]) -> Vec<f64> {
    parts.concat()
}

fn until(found: Option<WarmUp>) -> Option<f64> {
    found.map(|w| w.until_s)
}

#[test]
fn a_warm_up_is_found_with_its_end() {
    for seed in 0..20 {
        let rest = level(10.0, 30, seed);
        for (start, around) in [
            (&[40.0, 30.0, 22.0, 16.0, 13.0][..], 5.0),
            (&[16.0, 14.0, 13.0][..], 3.0),
            (&[100.0, 60.0, 40.0, 28.0, 20.0, 16.0, 14.0, 12.5][..], 8.0),
        ] {
            for seconds in [closed(&joined(&[start, &rest])), open(&joined(&[start, &rest]))] {
                let is_open = seconds[0].due == 500.0;
                let end = until(warm_up(&seconds, is_open));
                assert!(end.is_some_and(|e| (e - around).abs() <= 2.0), "seed {seed} {start:?}: {end:?}");
            }
        }
    }
}

/// The remainder may differ by next to nothing, and not by chance: here it gets steadier in the middle, as on a real
/// server.
#[test]
fn a_warm_up_is_found_before_a_rest_that_hardly_differs() {
    let start = [188.0, 154.8, 123.1, 88.9, 54.6];
    let rest = [
        40.567, 40.632, 40.698, 40.763, 40.698, 40.370, 40.305, 40.501, 40.501, 40.501, 40.534, 40.534,
        40.370, 40.337, 40.501,
    ];
    for even in [&rest[..], &[40.5; 15], &[[40.6; 5], [40.5; 5], [40.5; 5]].concat()] {
        assert_eq!(until(warm_up(&closed(&joined(&[&start, even])), false)), Some(5.0), "{even:?}");
    }
}

#[test]
fn a_steady_load_has_none() {
    for seed in 0..200 {
        let seconds = closed(&level(10.0, 30, seed));
        assert_eq!(until(warm_up(&seconds, false)), None, "seed {seed}");
        assert_eq!(drift(&seconds, |s| s.p50_ms), None, "seed {seed}");
        assert_eq!(drift(&seconds, |s| Some(s.ok)), None, "seed {seed}");
    }
}

/// A stall of this length at this moment, in the closed or the open model, of a system that is used at half of its
/// capacity: the resulting seconds.
fn stalled(at_s: f64, length_s: f64, is_open: bool) -> Vec<Second> {
    let (step_s, rate, most) = (0.01, 500.0, 1000.0);
    let mut seconds = Vec::new();
    let mut waiting: f64 = 0.0;
    for second in 0..30 {
        let (mut ok, mut slow) = (0.0, Vec::new());
        for step in 0..100 {
            let now = f64::from(second) + f64::from(step) * step_s;
            let is_still = now >= at_s && now < at_s + length_s;
            waiting += if is_open { rate * step_s } else { 0.0 };
            let served = match (is_still, is_open) {
                (true, _) => 0.0,
                (false, true) => waiting.min(most * step_s),
                (false, false) => most * step_s,
            };
            waiting -= if is_open { served } else { 0.0 };
            ok += served;
            // in the open model later requests wait for earlier ones; users of a closed one waited once
            if served > 0.0 {
                slow.push(10.0 + if is_open { waiting / most * 1e3 } else { 0.0 });
            }
        }
        slow.sort_by(f64::total_cmp);
        let from_s = f64::from(second);
        let due = if is_open { rate } else { ok };
        let p50_ms = slow.get(slow.len() / 2).copied();
        seconds.push(Second { from_s, to_s: from_s + 1.0, due, ok, failed: 0, p50_ms });
    }
    seconds
}

#[test]
fn a_stall_is_never_taken_for_warm_up() {
    for is_open in [false, true] {
        for at in 0..60 {
            for length in 1..60 {
                let (at_s, length_s) = (f64::from(at) * 0.25, f64::from(length) * 0.2);
                let seconds = stalled(at_s, length_s, is_open);
                let found = warm_up(&seconds, is_open);
                assert_eq!(found, None, "open {is_open}: {length_s} s from {at_s} s: {seconds:?}");
            }
        }
    }
    // nor one within a warm-up, nor a start with failures
    let mut seconds = closed(&joined(&[&[40.0, 30.0, 22.0, 16.0, 13.0], &level(10.0, 30, 1)]));
    seconds[2].ok = 3.0;
    assert_eq!(warm_up(&seconds, false), None);
    let mut seconds = closed(&joined(&[&[40.0, 30.0, 22.0, 16.0, 13.0], &level(10.0, 30, 1)]));
    seconds[1].failed = 4;
    assert_eq!(warm_up(&seconds, false), None);
}

#[test]
fn drift_is_a_clear_trend_that_matters() {
    let rising = |by: f64, seed| -> Vec<Second> {
        let times = level(10.0, 60, seed);
        closed(&times.iter().enumerate().map(|(i, ms)| ms * (1.0 + by * i as f64 / 59.0)).collect::<Vec<_>>())
    };
    for seed in 0..20 {
        let found = drift(&rising(0.5, seed), |s| s.p50_ms).expect("half as much again");
        assert!((found.share().expect("a start") - 0.5).abs() < 0.1, "seed {seed}: {found:?}");
        assert!(drift(&rising(0.05, seed), |s| s.p50_ms).is_none(), "seed {seed}: 5 % matter to nobody");
        assert!(
            drift(&rising(-0.3, seed), |s| s.p50_ms).is_some_and(|d| d.share().is_some_and(|s| s < -0.2)),
            "seed {seed}"
        );
    }
    // a stall in the middle is no drift
    assert_eq!(drift(&stalled(12.0, 3.0, false), |s| Some(s.ok)), None);
}

#[test]
fn doubts_say_what_was_seen() {
    let tick = |(i, ms): (usize, &f64)| Tick {
        load: "main".into(),
        from_s: i as f64,
        to_s: i as f64 + 1.0,
        in_window: true,
        counts: Counts { due: 1000, ok: 1000, started: 1000, ..Counts::default() },
        response_ms: TickMs { count: 1000, p50: Some(*ms), ..TickMs::default() },
        ..Tick::default()
    };
    let facts = LoadFacts { model: LoadModel::Open, duration_s: Some(30.0), ..LoadFacts::default() };
    let say = |times: &[f64], from_s| -> Vec<String> {
        let ticks: Vec<Tick> = times.iter().enumerate().map(tick).collect();
        doubts(&ticks, &facts, from_s)
            .into_iter()
            .map(|d| format!("{}: {}\n  {}", d.kind, d.evidence, d.hint))
            .collect()
    };
    let warm = joined(&[&[40.0, 30.0, 22.0, 16.0], &[10.0; 26]]);
    insta::assert_snapshot!(say(&warm, 0.0).join("\n"), @r"
    warm_up: the median response fell from 40.0 ms in the first second to 10.0 ms after 4 s, and the figures include those seconds
      `warmup: 4s` (or `warmup: auto`) in a plan leaves them out
    ");
    // a planned warm-up that covers it leaves nothing to report
    assert_eq!(say(&warm, 4.0), Vec::<String>::new());
    let rising: Vec<f64> = (0..30).map(|i| 10.0 + 0.3 * f64::from(i)).collect();
    insta::assert_snapshot!(say(&rising, 0.0).join("\n"), @r"
    latency_rising: the median response of a second rose from 10.0 ms to 18.7 ms (+87 %) over the window: no single figure describes it
      run longer, and look for what grows with time: memory, queues, tables, files
    ");
    // growth from zero has no relative size
    let explodes: Vec<f64> = (0..30).map(|i| 0.1 * 1.3f64.powi(i)).collect();
    insta::assert_snapshot!(say(&explodes, 0.0).join("\n"), @r"
    latency_rising: the median response of a second rose from 0 ns to 36.1 ms over the window: no single figure describes it
      run longer, and look for what grows with time: memory, queues, tables, files
    ");
}
