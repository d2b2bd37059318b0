//! Whether a load had settled: warm-up at its start, drift within it, a growing backlog.
//!
//! A *warm-up* is a system that gets faster on its own: caches fill, code is compiled, pools are created. Its seconds
//! are found by MSER (White 1997): the cut that leaves the steadiest rest. A cut is accepted only if what it removes
//! looks like a warm-up: slow from the very first second, less and less so, and answering throughout. A *stall* is not
//! a warm-up: a second with far fewer answers than its response times explain, or with more answers than usual because
//! they had piled up before. Anything that looks like both is not cut off: leaving out a stall would hide the worst
//! part, and a slow start that stays in only makes the figures conservative.
//!
//! *Drift* is a trend over what remains ([`crate::statistics::trend`]), large enough to matter.
//!
//! All of it works on seconds; loads with fewer than [`MIN_SECONDS`] of them, with stages, or in batches are not judged.

use loadlab_record::counts::load::Tick;
use loadlab_record::documents::summary::{Doubt, LoadFacts, LoadModel};
use loadlab_record::text::units::format_duration_ns;

use crate::statistics::trend::{median, stretches, trend};
use crate::trial::doubt_kind;

/// With fewer seconds a trend cannot be judged.
pub const MIN_SECONDS: usize = 10;
/// Fewer slow seconds than this at the start are a hiccup.
const FEWEST_WARM: usize = 3;
/// Times that differ by less than this share count as equal.
const EVEN_SHARE: f64 = 0.02;
/// The start is slower than the rest by at least this share, or it would not matter.
const WARM_SHARE: f64 = 0.10;
/// … and by more than this many times the typical deviation from the median (Hampel's identifier: 3 × 1.4826
/// deviations).
const WARM_DEVIATIONS: f64 = 3.0 * 1.4826;
/// A second with less than this share of the answers that its response times explain was a stall.
const STALL_SHARE: f64 = 0.5;
/// In the open model a second with this much more than was due was catching up; with this much less, falling behind.
const UNEVEN: f64 = 0.10;
/// Number of sections whose means are tested for a trend.
const STRETCHES: usize = 10;
/// Significance of a trend, in standard deviations: one trendless series in a thousand exceeds it, …
const SURE: f64 = 3.29;
/// … with this much change over the window.
const DRIFT_SHARE: f64 = 0.10;
/// A backlog that grows by more than this share of what is due.
const BACKLOG_SHARE: f64 = 0.01;
/// Two counts of requests in flight differ by chance, by about the square root of their sum. A backlog grows by more
/// than this many times as much.
const BEYOND_CHANCE: f64 = 1.5;

/// A second of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Its start, seconds on the trial's clock.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// Due per second.
    pub due: f64,
    /// Successful answers per second.
    pub ok: f64,
    /// Number of requests that ended otherwise.
    pub failed: u64,
    /// Median response in milliseconds, if anything was answered.
    pub p50_ms: Option<f64>,
}

/// Whole seconds of a load after its ramp; empty if they do not show a steady state: several loads or batches, or
/// stages.
pub fn seconds_of(ticks: &[Tick], facts: &LoadFacts) -> Vec<Second> {
    let one = ticks.first().map(|t| (&t.load, t.batch));
    let many = ticks.iter().any(|t| Some((&t.load, t.batch)) != one);
    if many || !facts.stages.is_empty() || !facts.loads.is_empty() {
        return Vec::new();
    }
    let from_s = facts.start_s + facts.ramp_s;
    // Answers after the schedule's end are leftovers, not a second of the load.
    let to_s = facts.duration_s.map_or(f64::INFINITY, |s| facts.start_s + s + 0.05);
    let whole =
        ticks.iter().filter(|t| t.to_s - t.from_s >= 0.9 && t.from_s >= from_s - 0.05 && t.to_s <= to_s);
    whole
        .map(|t| Second {
            from_s: t.from_s,
            to_s: t.to_s,
            due: t.counts.due as f64 / (t.to_s - t.from_s),
            ok: t.counts.ok as f64 / (t.to_s - t.from_s),
            failed: t.counts.failed(),
            p50_ms: t.response_ms.p50,
        })
        .collect()
}

/// A system that got faster on its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmUp {
    /// End of the warm-up, seconds on the trial's clock.
    pub until_s: f64,
    /// Median response of its first second, milliseconds.
    pub first_ms: f64,
    /// Median response of a typical second afterwards.
    pub then_ms: f64,
}

/// The warm-up at the start of a load; `None` if there is none, or if what looks like one may be a stall.
pub fn warm_up(seconds: &[Second], open: bool) -> Option<WarmUp> {
    if seconds.len() < MIN_SECONDS {
        return None;
    }
    // A second without any answer is a stall, wherever it is in the part under examination.
    let answered = seconds.iter().take_while(|s| s.p50_ms.is_some()).count();
    let times: Vec<f64> = seconds[..answered].iter().filter_map(|s| s.p50_ms).collect();
    if times.len() < MIN_SECONDS {
        return None;
    }
    let cut = mser(&times)?;
    let rest = &times[cut..];
    let then_ms = median(&mut rest.to_vec())?;
    let deviation = median(&mut rest.iter().map(|v| (v - then_ms).abs()).collect::<Vec<_>>())?;
    // The steadiest rest may begin a while after the last slow second.
    let usual = then_ms * (1.0 + EVEN_SHARE) + 2.0 * 1.4826 * deviation;
    let cut = times[..cut].iter().rposition(|v| *v > usual)? + 1;
    let start = &times[..cut];
    let first_ms = *start.first()?;
    let typical = median(&mut start.to_vec())?;
    let slow = then_ms * (1.0 + WARM_SHARE) + WARM_DEVIATIONS * deviation;
    let is_warm = cut >= FEWEST_WARM && typical > then_ms * (1.0 + WARM_SHARE) && first_ms > slow;
    if !is_warm || !goes_down(start) || stalls(&seconds[..cut], &seconds[cut..answered], open) {
        return None;
    }
    Some(WarmUp { until_s: seconds[cut - 1].to_s, first_ms, then_ms })
}

/// The cut that leaves the steadiest rest: the least variance of the rest's mean. `None` if nothing should be cut
/// off, or if the best cut is so late that the series had not settled at all.
///
/// Differences below [`EVEN_SHARE`] count as perfectly steady: otherwise a server that answers within half a per cent
/// of the same time would have its steadiest rest anywhere.
fn mser(values: &[f64]) -> Option<usize> {
    let most = values.len() / 2;
    let even = EVEN_SHARE * median(&mut values[most..].to_vec())?;
    let score = |cut: usize| {
        let rest = &values[cut..];
        let n = rest.len() as f64;
        let mean = rest.iter().sum::<f64>() / n;
        let variance = rest.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        (variance + even * even) / n
    };
    let best = (0..=most).map(|cut| (score(cut), cut)).min_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.1 > 0 && best.1 < most).then_some(best.1)
}

/// Whether the start is slowest at its beginning, and then gets faster.
fn goes_down(start: &[f64]) -> bool {
    let slowest = start.iter().copied().fold(0.0, f64::max);
    let points: Vec<(f64, f64)> = start.iter().enumerate().map(|(i, v)| (i as f64, *v)).collect();
    let falls = match trend(&points) {
        Some(trend) => trend.tau <= -0.5,
        None => start.windows(2).all(|w| w[1] <= w[0]),
    };
    falls && start[0] >= 0.8 * slowest
}

/// Whether something stalled in the first seconds, or was catching up after a stall.
fn stalls(start: &[Second], rest: &[Second], open: bool) -> bool {
    let Some(usual_ok) = median(&mut rest.iter().map(|s| s.ok).collect::<Vec<_>>()) else { return true };
    let times = || rest.iter().filter_map(|s| s.p50_ms).collect::<Vec<_>>();
    let Some(usual_ms) = median(&mut times()) else { return true };
    let odd = |s: &Second| {
        if open {
            // Everything due is answered in its second, or it piles up: then a slow system cannot be distinguished
            // from one that stood still.
            return (s.ok - s.due).abs() > UNEVEN * s.due.max(1.0);
        }
        // The number of answers that this many users and these times explain (Little's law).
        let explained = s.p50_ms.map_or(0.0, |ms| usual_ok * (usual_ms / ms).min(1.0));
        s.ok < STALL_SHARE * explained || s.ok > usual_ok * (1.0 + UNEVEN)
    };
    start.iter().any(|s| s.failed > 0 || odd(s))
}

/// A trend within a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Value at the start of the window, by the trend.
    pub from: f64,
    /// Value at its end.
    pub to: f64,
}

impl Drift {
    /// Change relative to the start: 0.5 is half as much again; `None` if it began at zero.
    pub fn share(self) -> Option<f64> {
        (self.from > 0.0).then(|| self.to / self.from - 1.0)
    }
}

/// Drift of a value read from each second; `None` if there is no clear one.
pub fn drift(seconds: &[Second], read: impl Fn(&Second) -> Option<f64>) -> Option<Drift> {
    let points: Vec<(f64, f64)> = seconds.iter().filter_map(|s| Some((s.from_s, read(s)?))).collect();
    if points.len() < MIN_SECONDS {
        return None;
    }
    let means = stretches(&points, STRETCHES);
    let found = trend(&means)?;
    let middle = median(&mut means.iter().map(|p| p.1).collect::<Vec<_>>())?;
    let length_s = points.last()?.0 - points.first()?.0;
    let change = found.slope * length_s;
    let matters = change.abs() > DRIFT_SHARE * middle.abs();
    (matters && found.z.abs() >= SURE)
        .then_some(Drift { from: (middle - change / 2.0).max(0.0), to: (middle + change / 2.0).max(0.0) })
}

/// Why the system was behind and falling further behind until the schedule's end (`until_s`), in words; `None` if it
/// kept up. Only for the open model: the backlog of users is bounded by their number.
pub fn growing_backlog(ticks: &[Tick], until_s: f64) -> Option<String> {
    let (mut due, mut done) = (0u64, 0u64);
    let from_s = ticks.first()?.from_s;
    let mut points = vec![(from_s, 0.0)];
    let mut last_due_s = f64::NEG_INFINITY;
    for tick in ticks {
        due += tick.counts.due;
        // What was dropped was never done.
        done += tick.counts.ok + tick.counts.failed();
        if tick.counts.due > 0 {
            last_due_s = tick.to_s;
        }
        points.push((tick.to_s, due.saturating_sub(done) as f64));
    }
    // What comes after the schedule, and a second in which it ended, is the backlog being worked off.
    points.retain(|p| p.0 <= last_due_s && p.0 <= until_s + 0.05);
    let last = points.last()?.1;
    let dropped: u64 = ticks.iter().map(|t| t.counts.dropped).sum();
    let length_s = (points.last()?.0 - from_s).max(f64::MIN_POSITIVE);
    let due = points_due(ticks, from_s + length_s);
    let found = trend(&points[1..]);
    let grows = found.is_some_and(|t| t.z > 2.58 && t.slope > BACKLOG_SHARE * due as f64 / length_s);
    // With few seconds no trend is certain. What is merely in flight stays constant once the first answers have
    // arrived; a backlog doubles from the middle to the end.
    let middle =
        points.iter().filter(|p| p.0 > from_s && p.0 <= from_s + length_s / 2.0).map(|p| p.1).next_back();
    let is_large = match middle {
        Some(middle) => {
            let is_beyond_chance = last - middle > BEYOND_CHANCE * (last + middle).sqrt();
            last > 0.05 * due as f64 && last > 1.5 * middle && is_beyond_chance
        }
        None => last > 0.5 * due as f64,
    };
    (grows || is_large).then(|| {
        let dropped = if dropped > 0 { format!(", {dropped} were dropped") } else { String::new() };
        format!("the backlog grew to {last:.0} of {due} requests{dropped}")
    })
}

/// Requests that were due by then.
fn points_due(ticks: &[Tick], by_s: f64) -> u64 {
    ticks.iter().filter(|t| t.to_s <= by_s + 1e-6).map(|t| t.counts.due).sum()
}

/// Doubts about how settled a load was. `from_s` is where its window begins, on the trial's clock.
pub fn doubts(ticks: &[Tick], facts: &LoadFacts, from_s: f64) -> Vec<Doubt> {
    let seconds = seconds_of(ticks, facts);
    let open = facts.model == LoadModel::Open;
    let mut found = Vec::new();
    let ms = |v: f64| format_duration_ns(v * 1e6);
    let warm = warm_up(&seconds, open);
    let until_s = warm.map_or(f64::NEG_INFINITY, |w| w.until_s);
    if let Some(w) = warm.filter(|w| w.until_s > from_s + 0.5) {
        let length = (w.until_s - facts.start_s).round().max(1.0);
        found.push(Doubt {
            kind: "warm_up".into(),
            grave: false,
            evidence: format!(
                "the median response fell from {} in the first second to {} after {length:.0} s, and the figures include those seconds",
                ms(w.first_ms),
                ms(w.then_ms)
            ),
            hint: format!("`warmup: {length:.0}s` (or `warmup: auto`) in a plan leaves them out"),
        });
    }
    let settled: Vec<Second> =
        seconds.into_iter().filter(|s| s.from_s >= from_s.max(until_s) - 0.05).collect();
    let hint = "run longer, and look for what grows with time: memory, queues, tables, files";
    let mut say = |what: &str, drift: Option<Drift>, unit: &dyn Fn(f64) -> String| {
        if let Some(d) = drift {
            let way = if d.to > d.from { "rose" } else { "fell" };
            let is_worse = d.to > d.from && what.contains("response");
            let share = d.share().map(|share| format!(" ({:+.0} %)", share * 100.0)).unwrap_or_default();
            found.push(Doubt {
                kind: if is_worse { doubt_kind::LATENCY_RISING } else { "drift" }.into(),
                grave: false,
                evidence: format!(
                    "{what} {way} from {} to {}{share} over the window: no single figure describes it",
                    unit(d.from),
                    unit(d.to)
                ),
                hint: hint.into(),
            });
        }
    };
    let times = drift(&settled, |s| s.p50_ms);
    say("the median response of a second", times, &ms);
    // With a fixed number of users goodput follows from response times, so only one of the two is reported.
    if times.is_none() {
        let rate = |v: f64| format!("{v:.0}/s");
        say("goodput", drift(&settled, |s| Some(s.ok)), &rate);
    }
    found
}
