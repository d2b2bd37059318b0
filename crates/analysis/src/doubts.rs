//! Reasons not to trust a measurement.
//!
//! A doubt states what was seen, in figures, and what to do about it. A *grave* one makes the trial INVALID: the
//! summary's figures then do not (only) describe the system under test. Thresholds are constants with their reason; a
//! blameless generator in front of a slow or frozen system must raise no grave doubt, since waiting for the system is
//! `blocked`, not `late`.

mod failed;
mod resets;

use loadlab_record::Histogram;
use loadlab_record::expr::Expr;
use loadlab_record::histogram::rank_of;
use loadlab_record::load::OwnLimits;
use loadlab_record::load::{Series, Tick};
use loadlab_record::summary::{Doubt, Ended, LoadFacts, LostAgent, PERCENTILES, Stalls, Summary};
use loadlab_record::units::{format_count, format_duration_ns};

use crate::input::Planned;
use crate::steady;
use crate::totals::Totals;

/// Lateness below this changes no relevant figure, whatever the response times are: it is the order of one scheduling
/// hiccup.
const LATE_FLOOR_NS: f64 = 1e6;
/// Lateness above this share of a response time is visible in it.
const LATE_SHARE: f64 = 0.10;
/// Lateness that spoils a percentile, if it is also more than [`LATE_SHARE`] of the response time there. The rarer it
/// is, the more is tolerated: the usual request must leave on time, while one in a hundred may hit another task's
/// time slice (3 ms) on a shared core. So 1 ms on a median of 1 ms condemns a run if it is the rule, and is only
/// reported if it is the exception.
const LATE_SPOILS_NS: [(f64, f64); 3] = [(0.5, 0.5e6), (0.9, 1e6), (0.99, 3e6)];
/// More than one request in a hundred this late: the schedule sent was not the plan's.
const LATE_GRAVE_NS: f64 = 10e6;
/// At least this many requests must be that late: with few requests a single hiccup is their 99th percentile.
const LATE_REQUESTS: f64 = 10.0;
/// Little's law may be off by this much before it counts as broken.
const LITTLE_TOLERANCE: f64 = 0.05;
/// Requests each user must have made before users are compared with what was in flight: below, the edges of the load
/// weigh more than [`LITTLE_TOLERANCE`].
const LITTLE_REQUESTS_PER_USER: u64 = 20;
/// Load threads busier than this have no reserve left to react on time.
const BUSY_SHARE: f64 = 0.90;
/// A wait for a core above this share of the median response shows in response times: a request meets such waits when
/// it is due and when its answer arrives. Many short waits – every thread on a shared machine has them – do not show.
const RUN_DELAY_SHARE: f64 = 0.10;
/// Waits that add up to less than this share of the time are ignored.
const RUN_DELAY_FLOOR: f64 = 0.01;
/// loadlab itself stopped by a CPU limit for more than this share of the time.
const THROTTLED_SHARE: f64 = 0.01;
/// Users far from the median user, above this share of all: one in twenty is beyond chance …
const UNFAIR_SHARE: f64 = 0.05;
/// … if the median user had this many requests: with 100, even service times that spread by three times their mean
/// put fewer users that far off (the count's deviation is then 30 %, and the limit is 50 %).
const UNFAIR_REQUESTS: u64 = 100;
/// A machine suspended for longer than this; below, it is only the delay between reading two clocks.
const SUSPENDED_S: f64 = 1e-3;
/// A shorter load is mostly its own start and end, which keep a thread busy however much reserve it has.
const SHORTEST_BUSY_S: f64 = 0.1;
/// A tail beyond this share of the window shows in every rate of a load with a fixed number of requests.
const TAIL_SHARE: f64 = 0.10;
/// Too few samples even for a 90th percentile.
const FEW_SAMPLES: u64 = 100;

/// What doubts are based on besides the summary's own figures.
#[derive(Clone, Copy, Debug)]
pub struct Grounds<'a> {
    /// Counts and histograms, summed over loads.
    pub measured: &'a Totals,
    /// Ticks of all loads.
    pub ticks: &'a [Tick],
    /// Limits of the plan.
    pub planned: &'a Planned,
    /// Seconds in which at least one load ran and was not over, excluding the wait for stragglers.
    pub load_s: f64,
    /// Seconds in which at least one window was open.
    pub window_s: f64,
}

/// All doubts about a trial, grave ones first. `summary` needs its figures and its expectations, but no verdict yet.
pub fn doubts(summary: &Summary, grounds: &Grounds<'_>) -> Vec<Doubt> {
    let mut found: Vec<Doubt> = [
        accounting(grounds),
        late(summary, grounds),
        throttled(summary, grounds),
        stalls(summary, grounds),
        coarse_ticks(summary),
        agents_lost(summary),
        own_limits(summary),
        littles_law(summary, grounds),
        users_idle(summary, grounds),
        generator_cpu(summary, grounds),
        run_delay(summary, grounds),
        in_flight_cap(summary, grounds),
        dropped(summary, grounds),
        backlog(summary, grounds),
        unfair(summary),
        feed_exhausted(summary),
        failed::all_failed(summary),
        resets::resent_after_reset(summary),
        tail(summary, grounds),
        few_samples(summary),
        ended_early(summary),
    ]
    .into_iter()
    .flatten()
    .collect();
    // A system that falls behind gets slower; that is reported once.
    let is_behind = found.iter().any(|d| ["dropped", "backlog"].contains(&d.kind.as_str()));
    found.extend(settling(summary, grounds).into_iter().filter(|d| !is_behind || d.kind != "latency_rising"));
    found.sort_by_key(|d| !d.grave);
    found
}

pub(crate) fn doubt(kind: &str, grave: bool, evidence: String, hint: impl Into<String>) -> Option<Doubt> {
    Some(Doubt { kind: kind.to_owned(), grave, evidence, hint: hint.into() })
}

fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value < 10.0 { format!("{value:.1} %") } else { format!("{value:.0} %") }
}

fn ms(value_ms: f64) -> String {
    format_duration_ns(value_ms * 1e6)
}

/// Requests do not add up. Never the system's fault.
fn accounting(grounds: &Grounds<'_>) -> Option<Doubt> {
    let why = grounds.measured.unbalanced.as_ref()?;
    doubt("accounting", true, why.clone(), "this is a bug in loadlab: please report it with the record")
}

/// Whether requests have due times, which can be missed: the open model, a pace, or thinking. Then lateness decides
/// whether the generator kept up.
pub(crate) fn has_due_times(load: &LoadFacts) -> bool {
    load.model != "closed" || load.pace_s.is_some() || load.think_s.is_some_and(|s| s > 0.0)
}

/// Requests were noticed later than they were due. Only if requests have due times.
///
/// Grave when the reported figures are materially the generator's doing ([`late_is_grave`]). Otherwise reported when
/// it shows in the tail.
fn late(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    if !has_due_times(&summary.load) {
        return None;
    }
    late_so_far(&grounds.measured.series)
}

/// The same for any times, of a load whose requests have due times.
pub(crate) fn late_so_far(series: &Series) -> Option<Doubt> {
    let responses = responses(series);
    let grave = late_is_grave(series);
    let shown = [0.99, 0.999].into_iter().any(|q| {
        let enough = series.late.count() as f64 * (1.0 - q) >= 1.0;
        let late = quantile_ns(&series.late, q).unwrap_or(0.0);
        let response = quantile_ns(&responses, q).unwrap_or(0.0);
        enough && late > LATE_FLOOR_NS.max(LATE_SHARE * response)
    });
    if !grave && !shown {
        return None;
    }
    let figures = |of: &Histogram| {
        let figure = |(name, q)| {
            quantile_ns(of, q).map_or(String::new(), |ns| format!("{name} {}, ", format_duration_ns(ns)))
        };
        let most = format_duration_ns(of.max_ns().unwrap_or(0) as f64);
        format!("{}at most {most}", [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)].map(figure).concat())
    };
    doubt(
        "late",
        grave,
        format!(
            "requests left after they fell due: {}; response times, this included: {}",
            figures(&series.late),
            figures(&responses)
        ),
        "lower the rate, give loadlab more cores, or cores that are less busy (`--threads`, `--cpus`), or send the load from another machine",
    )
}

/// A percentile of the response times is more than [`LATE_SHARE`] the generator's own lateness, or the schedule that
/// was sent is not the plan's. Each percentile is compared with the same one of lateness: lateness of one request in
/// a hundred can move p99, and no percentile below it by more than a hundredth of the requests.
pub(crate) fn late_is_grave(series: &Series) -> bool {
    let late = &series.late;
    let count = late.count() as f64;
    if count < 2.0 * LATE_REQUESTS {
        return false;
    }
    let responses = responses(series);
    let at = |of: &Histogram, q: f64| quantile_ns(of, q.min(1.0 - LATE_REQUESTS / count)).unwrap_or(0.0);
    let spoiled = |(q, floor_ns): (f64, f64)| at(late, q) > floor_ns.max(LATE_SHARE * at(&responses, q));
    at(late, 0.99) > LATE_GRAVE_NS || LATE_SPOILS_NS.into_iter().any(spoiled)
}

/// Whether a generator that could not keep up spoils what this run is to show. If requests have due times, lateness
/// decides. Otherwise the throughput is a lower bound, which is only worth noting – unless an expectation depends on
/// response times, which include the generator's own queue, or a throughput was missed, for which the system would be
/// blamed.
fn shortage_is_grave(summary: &Summary, grounds: &Grounds<'_>) -> bool {
    if has_due_times(&summary.load) {
        return late_is_grave(&grounds.measured.series);
    }
    summary.expectations.iter().any(|e| {
        let missed = e.holds != Some(true);
        figures_in(&e.expr).iter().any(|f| tail_of(f).is_some() || missed && RATES.contains(&f.as_str()))
    })
}

/// Figures of throughput in expressions.
const RATES: [&str; 2] = ["rate", "goodput"];

/// The figures an expression names, without their prefix (`tag.page.p99` is `p99`).
fn figures_in(expr: &str) -> Vec<String> {
    let Ok(expr) = Expr::parse(expr) else { return Vec::new() };
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    expr.names().iter().map(|name| last(&name.text)).collect()
}

/// For a figure that is a time: the share of requests that suffices to move it. `None` for others.
fn tail_of(figure: &str) -> Option<f64> {
    let percentile = PERCENTILES.iter().find(|(name, _)| *name == figure).map(|(_, q)| 1.0 - q);
    percentile.or_else(|| ["max", "mean", "min", "stdev"].contains(&figure).then_some(0.0))
}

/// All responses, including censored and failed ones at their age.
fn responses(series: &Series) -> Histogram {
    let mut all = series.response_ok.clone();
    all.merge(&series.response_censored);
    all.merge(&series.response_failed);
    all
}

fn quantile_ns(histogram: &Histogram, quantile: f64) -> Option<f64> {
    histogram.at_rank(rank_of(quantile, histogram.count())).map(|ns| ns as f64)
}

/// loadlab's own cgroup was stopped by a CPU limit: whole periods in which it saw nothing.
fn throttled(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let grave = shortage_is_grave(summary, grounds);
    throttled_so_far(summary.generator.throttled_s?, grounds.load_s, &summary.load, grave)
}

/// The same for a load so far, and whether a shortage of the generator spoils what this run is to show.
pub(crate) fn throttled_so_far(
    throttled_s: f64,
    load_s: f64,
    load: &LoadFacts,
    is_grave: bool,
) -> Option<Doubt> {
    let share = share_of(throttled_s, load_s)?;
    if throttled_s < 1e-3 {
        return None;
    }
    doubt(
        "throttled",
        share > THROTTLED_SHARE && is_grave,
        format!(
            "loadlab itself was throttled by a CPU limit for {} of a load of {} (summed over cores){}",
            ms(throttled_s * 1e3),
            ms(load_s * 1e3),
            lower_bound(load)
        ),
        "raise the CPU limit of the container or session in which loadlab runs",
    )
}

/// What a saturated generator means for a throughput.
fn lower_bound(load: &LoadFacts) -> &'static str {
    if has_due_times(load) { "" } else { "; the throughput is a lower bound of what the system can do" }
}

/// loadlab was stopped, or its machine: SIGSTOP, a debugger, a virtual machine that was moved or paused, or cores
/// that others held for that long.
///
/// If requests have due times, lateness decides. Otherwise each gap is in one request of every user, and is grave if
/// these suffice to move a time that is expected. A suspended machine is always grave: its clock stood still.
fn stalls(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let still = summary.generator.stalls;
    let suspended_s = summary.generator.suspended_s.filter(|s| *s > SUSPENDED_S);
    if still.count == 0 && suspended_s.is_none() {
        return None;
    }
    let mut words: Vec<String> = still_words(still).into_iter().collect();
    words.extend(suspended_s.map(|s| format!("this machine was suspended for {}", ms(s * 1e3))));
    let touched = share_of(
        still.count as f64 * summary.concurrency_mean,
        responses(&grounds.measured.series).count() as f64,
    );
    let moved = |figure: &String| tail_of(figure).zip(touched).is_some_and(|(tail, share)| share >= tail);
    let grave = suspended_s.is_some()
        || match has_due_times(&summary.load) {
            true => late_is_grave(&grounds.measured.series),
            false => summary.expectations.iter().any(|e| figures_in(&e.expr).iter().any(moved)),
        };
    doubt(
        "generator_stalled",
        grave,
        words.join("; "),
        "find what stops it: a signal, a suspended or migrated virtual machine, or other processes on its cores (`--cpus`)",
    )
}

/// The thread that merges the counts of load threads had too little time, and ticks are longer than a second. Counts,
/// rates and percentiles of the whole load are complete.
fn coarse_ticks(summary: &Summary) -> Option<Doubt> {
    let coarse_s = summary.generator.coarse_s;
    if coarse_s <= 0.0 {
        return None;
    }
    doubt(
        "coarse_ticks",
        false,
        format!(
            "the thread that merges counts fell behind: {} of the load is in ticks longer than a second",
            ms(coarse_s * 1e3)
        ),
        "totals are complete, but these ticks hide what happened within them: leave loadlab a core, or use fewer tags",
    )
}

/// Agents were lost, and part of the load was not sent. What was measured is right, but of a smaller load.
fn agents_lost(summary: &Summary) -> Option<Doubt> {
    let lost: Vec<&LostAgent> = summary.agents.iter().flat_map(|agent| &agent.lost).collect();
    let first = lost.first()?;
    let who = match lost.len() {
        1 => format!("agent {} was lost", first.agent),
        n => format!("{n} agents were lost, first {}", first.agent),
    };
    let requests = &summary.requests;
    let what = match requests.not_offered_min.zip(requests.not_offered) {
        Some((least, most)) => {
            let count = |n: u64| format_count(n as f64);
            let missing = match least == most {
                true => count(most),
                false => format!("{} to {}", count(least), count(most)),
            };
            let covered = requests.due as f64 / ((requests.due + most) as f64).max(1.0);
            format!(
                "{missing} requests were not offered; the load covers {} of its schedule",
                percent(covered)
            )
        }
        None => "how much of the load was not sent is unknown, since it depends on how fast it is answered"
            .to_owned(),
    };
    doubt(
        "agents_lost",
        false,
        format!("{who} after {:.0} s: {what}", first.reported_until_s),
        "`summary.json` has each agent's part; run it again for the whole load",
    )
}

/// How long loadlab stalled; `None` if it did not.
pub(crate) fn still_words(still: Stalls) -> Option<String> {
    let all = match still.count {
        0 => return None,
        1 => String::new(),
        n => format!(", {} times for {} in all", format_count(n as f64), ms(still.total_s * 1e3)),
    };
    let (longest, at) = (ms(still.max_s * 1e3), ms(still.max_at_s * 1e3));
    Some(format!("loadlab stalled for {longest}, {at} into the load{all}"))
}

/// Connects that failed because loadlab's own machine lacked something. They are counted as failures of the system,
/// but are not.
fn own_limits(summary: &Summary) -> Option<Doubt> {
    own_limits_so_far(summary.connections.own_limits, summary.connections.attempted)
}

/// The same for attempts so far.
pub(crate) fn own_limits_so_far(own: OwnLimits, attempted: u64) -> Option<Doubt> {
    let kinds = [
        (
            own.open_files,
            "no file descriptor was left",
            "raise the limit on open files (`ulimit -n`), or use `--io uring`, whose sockets need none",
        ),
        (
            own.ports,
            "no local port was left",
            "widen `net.ipv4.ip_local_port_range`, connect from several addresses of this machine (`--source`), or keep connections alive",
        ),
        (own.memory, "the kernel had no memory for a socket", "free memory, or raise `net.ipv4.tcp_mem`"),
    ];
    let met: Vec<_> = kinds.into_iter().filter(|(n, _, _)| *n > 0).collect();
    if met.is_empty() {
        return None;
    }
    let whys: Vec<String> =
        met.iter().map(|(n, why, _)| format!("{} because {why}", format_count(*n as f64))).collect();
    let hints: Vec<&str> = met.iter().map(|(_, _, hint)| *hint).collect();
    let attempts = format_count(attempted as f64);
    doubt(
        "client_limit",
        true,
        format!(
            "of {attempts} connection attempts, limits of loadlab's own machine failed {}",
            whys.join(", ")
        ),
        format!("{}; `loadlab check --preflight` shows this machine's limits", hints.join("; ")),
    )
}

/// Little's law, N = X · R, between two accounts of the window: requests in flight in it as the engine added them up
/// while they ended, and what the histograms hold of them, without the time stragglers took after it. They differ
/// only if durations were lost, doubled or mistimed on the way into the record.
///
/// R is the service time: waiting before the start is not counted as in flight.
fn littles_law(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let series = &grounds.measured.series;
    let timed = [&series.service_ok, &series.service_censored, &series.response_failed];
    let count: u64 = timed.iter().map(|h| h.count()).sum();
    // A warm-up is in the engine's account and not in the histograms; a record reconstructed from ticks has its
    // requests in flight at whole seconds only.
    let whole = count == summary.requests.started && summary.ended != Ended::Partial;
    // Failures have only a response time, which includes the waiting.
    let failing = has_due_times(&summary.load) && series.response_failed.count() * 100 > count;
    let at_once = summary.load.users.or(summary.load.rate_per_s.map(|_| 1))?;
    let needed = at_once.saturating_mul(LITTLE_REQUESTS_PER_USER).max(FEW_SAMPLES);
    if !whole || failing || count < needed || grounds.window_s <= 0.0 {
        return None;
    }
    let after_s = grounds.measured.busy_s - grounds.measured.busy_in_window_s;
    let from_times =
        (timed.iter().map(|h| h.sum_ns() as f64 / 1e9).sum::<f64>() - after_s) / grounds.window_s;
    let off = (summary.concurrency_mean - from_times).abs() / summary.concurrency_mean.max(f64::MIN_POSITIVE);
    if off <= LITTLE_TOLERANCE {
        return None;
    }
    doubt(
        "littles_law",
        true,
        format!(
            "{:.1} requests in flight on average, but throughput × service time gives {from_times:.1}: {} off",
            summary.concurrency_mean,
            percent(off)
        ),
        "the recorded times do not add up to the load: please report it with the record",
    )
}

/// Users that neither wait for an answer nor think: the load was smaller than planned. Only checked if nothing else
/// explains it: no ramp, stages or late start, no think time, no pace, no failures to recover from, bounded by time,
/// and with enough requests for the edges of the load not to matter.
fn users_idle(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let load = &summary.load;
    let users = load.users.filter(|u| *u > 0)?;
    let explained = has_due_times(&summary.load)
        || load.ramp_s > 0.0
        || !load.stages.is_empty()
        || load.loads.values().any(|l| !l.stages.is_empty() || l.start_s > 0.0)
        || load.duration_s.is_none()
        || summary.requests.started < users.saturating_mul(LITTLE_REQUESTS_PER_USER)
        || summary.ended != Ended::Complete
        || summary.requests.failed * 100 > summary.requests.started;
    let users = users as f64;
    let idle = (users - summary.concurrency_mean) / users;
    if explained || grounds.window_s <= 0.0 || idle <= LITTLE_TOLERANCE {
        return None;
    }
    doubt(
        "users_idle",
        idle > 0.5,
        format!(
            "{} users, yet only {:.1} requests in flight on average: users were idle for {} of the time",
            format_count(users),
            summary.concurrency_mean,
            percent(idle)
        ),
        "give loadlab more cores, or cores that are less busy (`--threads`, `--cpus`); throughput here is a lower bound",
    )
}

/// Load threads without reserve. In the closed model the throughput is then a lower bound; it is grave only if an
/// expectation depends on response times, which include the generator's own queue.
fn generator_cpu(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let generator = &summary.generator;
    let share = share_of(generator.cpu_s, generator.threads as f64 * grounds.load_s)?;
    if share <= BUSY_SHARE || grounds.load_s < SHORTEST_BUSY_S {
        return None;
    }
    let threads = if generator.threads == 1 { "load thread was" } else { "load threads were" };
    doubt(
        "generator_cpu",
        !has_due_times(&summary.load) && shortage_is_grave(summary, grounds),
        format!(
            "{} {threads} busy for {} of the time{}",
            generator.threads,
            percent(share),
            lower_bound(&summary.load)
        ),
        "give loadlab more cores (`--threads`, `--cpus`), or send the load from another machine",
    )
}

/// Load threads that were ready and got no core, for long enough each time to show in response times.
///
/// The mean wait is compared with the median response, not the sum of waits with the time: on a machine shared with
/// the system a busy thread waits for a fifth of its time in slices of microseconds, and no figure shows it.
fn run_delay(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let generator = &summary.generator;
    let delay_s = generator.run_delay_s?;
    let share = share_of(delay_s, generator.threads as f64 * grounds.load_s)?;
    let each_ns = share_of(delay_s * 1e9, generator.time_slices? as f64)?;
    let median_ns = quantile_ns(&responses(&grounds.measured.series), 0.5)?;
    if share <= RUN_DELAY_FLOOR || each_ns <= RUN_DELAY_SHARE * median_ns {
        return None;
    }
    doubt(
        "cpu_wait",
        false,
        format!(
            "load threads waited {} for a core each time they were ready ({} of the time in total), compared with a median response of {}",
            format_duration_ns(each_ns),
            percent(share),
            format_duration_ns(median_ns)
        ),
        "give loadlab and the system under test separate cores (`--cpus`), or expect times to include the wait",
    )
}

/// The cap on requests in flight was reached: from then on the open model waits like a closed one.
fn in_flight_cap(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let cap = grounds.planned.max_in_flight.filter(|_| summary.load.model == "open")?;
    // A record that was cut off has only its ticks. Connections do not count: held ones have no request.
    let in_ticks = grounds.ticks.iter().map(|t| t.counts.in_flight).max().unwrap_or(0);
    // If arrivals are users, the cap is on users, including those that think.
    let users = summary.connections.users_peak;
    if in_ticks.max(users.or(summary.connections.in_flight_peak).unwrap_or(0)) < cap {
        return None;
    }
    let blocked = summary
        .blocked_ms
        .max
        .map_or(String::new(), |max| format!("; requests waited up to {} for a slot", ms(max)));
    doubt(
        "in_flight_cap",
        false,
        match users {
            None => {
                format!("the cap of {} requests in flight was reached{blocked}", format_count(cap as f64))
            }
            Some(_) => {
                format!("the cap of {} concurrent users was reached{blocked}", format_count(cap as f64))
            }
        },
        "the system is behind, or the cap is too low (`--max-in-flight`); response times include the wait for a slot",
    )
}

/// Requests were due and never started.
fn dropped(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    dropped_so_far(summary.requests.dropped, summary.requests.due, &summary.load, grounds.planned)
}

/// The same so far: dropped and due.
pub(crate) fn dropped_so_far(dropped: u64, due: u64, load: &LoadFacts, planned: &Planned) -> Option<Doubt> {
    let share = share_of(dropped as f64, due as f64)?;
    if dropped == 0 {
        return None;
    }
    let how = match planned.drops_when_behind {
        true => "as the plan asks when the system is behind",
        false if load.pace_s.is_some() => "still waiting for their user when the load ended",
        false => "still waiting for a slot when the load ended",
    };
    let pace = if load.pace_s.is_some() { "pace" } else { "rate" };
    doubt(
        "dropped",
        false,
        format!(
            "{} of {} requests due ({}) were never sent, {how}",
            format_count(dropped as f64),
            format_count(due as f64),
            percent(share)
        ),
        format!(
            "the system does not keep up with this {pace}; percentiles count dropped requests at their age, as a lower bound"
        ),
    )
}

/// More was due than was done, throughout: whatever the figures are, they grow with the length of the load.
fn backlog(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let load = &summary.load;
    let one_level = load.model == "open" && load.stages.is_empty() && load.loads.is_empty();
    // Drops already show this.
    if !one_level || summary.ended == Ended::Partial || summary.requests.dropped > 0 {
        return None;
    }
    let grew =
        steady::growing_backlog(grounds.ticks, load.duration_s.map_or(f64::INFINITY, |s| load.start_s + s))?;
    doubt(
        "backlog",
        false,
        format!("the system cannot keep up with {}/s: {grew}", format_count(load.rate_per_s.unwrap_or(0.0))),
        "lower the rate; the response times here depend on how long the load lasted",
    )
}

/// Some users of a closed load had far fewer answers than others, or far more.
///
/// Never grave: the system was measured, and that it serves some connections and starves others may be the very
/// finding. But percentiles count requests, and a user that waits ten times longer sends a tenth of them: starved
/// users are hardly in any percentile. Not checked if requests fail, since a refused user is back at once.
fn unfair(summary: &Summary) -> Option<Doubt> {
    let per_user = summary.connections.per_user?;
    let apart = share_of(per_user.outliers as f64, per_user.users as f64)?;
    let failing = summary.requests.failed * 100 > summary.requests.started;
    if apart < UNFAIR_SHARE || per_user.median < UNFAIR_REQUESTS || failing {
        return None;
    }
    let n = |value: u64| format_count(value as f64);
    doubt(
        "unfair",
        false,
        format!(
            "{} of {} users made less than half or more than twice as many requests as the median user: min {}, median {}, max {} (Jain's index {:.2})",
            n(per_user.outliers),
            n(per_user.users),
            n(per_user.min),
            n(per_user.median),
            n(per_user.max),
            per_user.jain
        ),
        "percentiles are per request and hide rarely served users; usual causes: connections spread unevenly over processes (SO_REUSEPORT) or workers, a full accept queue, or a load thread on a busier core",
    )
}

/// Users left because nothing was left for them to send.
///
/// Never grave: a feed that is dealt once may be the intended end of the load. But figures over a window with ever
/// fewer users do not describe a single load.
fn feed_exhausted(summary: &Summary) -> Option<Doubt> {
    let evidence = match summary.connections.users_without_row {
        0 => return None,
        1 => {
            "a user stopped because a data feed ran out of rows: the load was smaller from then on".to_owned()
        }
        n => format!(
            "{} users stopped because a data feed ran out of rows: the load kept shrinking",
            format_count(n as f64)
        ),
    };
    doubt("feed_exhausted", false, evidence, "give the feed more rows, or drop `once`")
}

/// Warm-up and drift within the window. A load that was cut off or broke had no steady state to reach.
fn settling(summary: &Summary, grounds: &Grounds<'_>) -> Vec<Doubt> {
    match summary.ended {
        Ended::Complete | Ended::Stopped => {
            steady::doubts(grounds.ticks, &summary.load, summary.window.from_s)
        }
        _ => Vec::new(),
    }
}

/// Finished users waited for stragglers, and the rates of a load with a fixed number of requests include that time:
/// it lasts until its last answer, whatever the reason. A load that is bounded by time has no such tail in its
/// window.
fn tail(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let load = &summary.load;
    let by_number = load.model == "closed" && load.duration_s.is_none() && load.loads.is_empty();
    let tail_s = summary.stragglers.tail_s;
    let share = share_of(tail_s, grounds.window_s)?;
    if !by_number || summary.ended != Ended::Complete || share <= TAIL_SHARE {
        return None;
    }
    doubt(
        "tail",
        false,
        format!(
            "the last answer came {} after the last request had begun, {} of the load: few requests were in flight then, but rates include that time",
            ms(tail_s * 1e3),
            percent(share)
        ),
        "limit the load by time (`-d`, `duration`), whose rates exclude stragglers",
    )
}

fn few_samples(summary: &Summary) -> Option<Doubt> {
    let count = summary.response_ms.count;
    // A program's requests are never timed. For failed ones more do not help: that is another doubt.
    let nothing_but_failures = summary.requests.ok == 0 && summary.requests.failed > 0;
    if count >= FEW_SAMPLES || summary.load.is_command() || nothing_but_failures {
        return None;
    }
    let evidence = match count {
        0 => "no request was timed".to_owned(),
        1 => "a single request was timed".to_owned(),
        n => format!("only {n} requests were timed"),
    };
    doubt(
        "few_samples",
        false,
        evidence,
        "run longer: a median needs 20 requests, p90 100, p99 1,000, p99.9 10,000",
    )
}

fn ended_early(summary: &Summary) -> Option<Doubt> {
    let (grave, evidence, hint) = match summary.ended {
        Ended::Complete => return None,
        Ended::Stopped => {
            (false, "a condition ended the load", "rates and percentiles cover the load up to that point")
        }
        Ended::Interrupted => (false, "the load was interrupted", "let it finish before comparing it"),
        Ended::Partial => (
            true,
            "loadlab was killed during the trial, or could not write its summary; this was reconstructed from what it had written",
            "run the trial again",
        ),
        Ended::Broken => (false, "the system broke during the trial", "see the events and logs of the trial"),
    };
    doubt("ended_early", grave, evidence.to_owned(), hint)
}

fn share_of(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
