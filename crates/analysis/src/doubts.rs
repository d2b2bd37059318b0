//! Reasons not to trust a measurement.
//!
//! A doubt says what was seen, in figures, and what to do about it. A *grave* one makes the trial INVALID:
//! what the summary reports is then not (only) the system under test. Thresholds are constants with their
//! reason; a blameless generator in front of a slow or frozen system must raise no grave doubt, since
//! waiting for the system is `blocked`, not `late`.

use loadlab_record::Histogram;
use loadlab_record::histogram::rank_of;
use loadlab_record::load::{Series, Tick};
use loadlab_record::summary::{Doubt, Ended, LoadFacts, Summary};
use loadlab_record::units::{format_count, format_duration_ns};

use crate::summarise::{Planned, Totals};

/// Lateness below this changes no figure anybody reads, whatever the response times are: it is the order
/// of one scheduling hiccup.
const LATE_FLOOR_NS: f64 = 1e6;
/// Lateness above this share of a response time is visible in it.
const LATE_SHARE: f64 = 0.10;
/// More than one request in a hundred this late: the schedule of the plan was not the one that was sent.
const LATE_GRAVE_NS: f64 = 10e6;
/// More than one request in a hundred this late spoils the percentiles of a fast system; below, it is what a core
/// shared with something else costs now and then, and is told without condemning the run.
const LATE_SPOILS_NS: f64 = 3e6;
/// Little's law may be off by so much before it counts as broken.
const LITTLE_TOLERANCE: f64 = 0.05;
/// Requests each user must have made before Little's law is asked: below, the edges of the load weigh more
/// than [`LITTLE_TOLERANCE`].
const LITTLE_REQUESTS_PER_USER: u64 = 20;
/// Load threads busier than this have no reserve left to notice things on time.
const BUSY_SHARE: f64 = 0.90;
/// Load threads that waited for a core for more than this share of the time.
const RUN_DELAY_SHARE: f64 = 0.05;
/// loadlab itself stopped by a CPU limit for more than this share of the time.
const THROTTLED_SHARE: f64 = 0.01;
/// Fewer samples than this tell not even a 90th percentile.
const FEW_SAMPLES: u64 = 100;

/// What doubts rest on besides the summary's own figures.
#[derive(Clone, Copy, Debug)]
pub struct Grounds<'a> {
    /// Counts and histograms, summed over loads.
    pub measured: &'a Totals,
    /// Ticks of all loads.
    pub ticks: &'a [Tick],
    /// Limits of the plan.
    pub planned: &'a Planned,
    /// Seconds in which at least one load ran.
    pub load_s: f64,
}

/// All doubts about a trial, grave ones first. `summary` needs its figures and its expectations, not yet
/// its verdict.
pub fn doubts(summary: &Summary, grounds: &Grounds<'_>) -> Vec<Doubt> {
    let mut found: Vec<Doubt> = [
        accounting(grounds),
        late(summary, grounds),
        throttled(summary, grounds),
        littles_law(summary, grounds),
        users_idle(summary, grounds),
        generator_cpu(summary, grounds),
        run_delay(summary, grounds),
        in_flight_cap(summary, grounds),
        dropped(summary, grounds),
        few_samples(summary),
        ended_early(summary),
    ]
    .into_iter()
    .flatten()
    .collect();
    found.sort_by_key(|d| !d.grave);
    found
}

fn doubt(kind: &str, grave: bool, evidence: String, hint: &str) -> Option<Doubt> {
    Some(Doubt { kind: kind.to_owned(), grave, evidence, hint: hint.to_owned() })
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
    doubt("accounting", true, why.clone(), "this is a bug of loadlab: please report it with the record")
}

/// Requests were noticed later than they fell due. Only where requests have due times of their own.
///
/// Grave when what is reported is materially the generator's doing: p99 of lateness above 1 ms and above
/// 10 % of the median response, or above 10 ms outright. Otherwise told when it shows in the tail.
fn late(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    if summary.load.model == "closed" && !has_due_times(&summary.load) {
        return None;
    }
    let series = &grounds.measured.series;
    let p99 = quantile_ns(&series.late, 0.99)?;
    let responses = responses(series);
    let median = quantile_ns(&responses, 0.5).unwrap_or(0.0);
    // With few requests a single hiccup is their p99: ten of them must be that late.
    let count = series.late.count();
    let sure =
        quantile_ns(&series.late, (1.0 - 10.0 / count as f64).clamp(0.5, 0.99)).filter(|_| count >= 20);
    let grave =
        sure.is_some_and(|late| late > LATE_GRAVE_NS || late > LATE_SPOILS_NS && late > LATE_SHARE * median);
    let shown = [0.99, 0.999].into_iter().find(|q| {
        let enough = series.late.count() as f64 * (1.0 - q) >= 1.0;
        let late = quantile_ns(&series.late, *q).unwrap_or(0.0);
        let response = quantile_ns(&responses, *q).unwrap_or(0.0);
        enough && late > LATE_FLOOR_NS.max(LATE_SHARE * response)
    });
    if !grave && shown.is_none() {
        return None;
    }
    let max = series.late.max_ns().unwrap_or(0) as f64;
    let evidence = format!(
        "requests left up to {} after they fell due (p99 {}), against a median response of {}",
        format_duration_ns(max),
        format_duration_ns(p99),
        format_duration_ns(median)
    );
    doubt(
        "late",
        grave,
        evidence,
        "lower the rate, give loadlab more or freer cores (`--threads`, `--cpus`), or load from another machine",
    )
}

/// Requests of its users fall due at times of their own: at a pace, or when a user has thought.
fn has_due_times(load: &LoadFacts) -> bool {
    load.pace_s.is_some() || load.think_s.is_some_and(|s| s > 0.0)
}

/// All responses, censored and failed ones at their age.
fn responses(series: &Series) -> Histogram {
    let mut all = series.response_ok.clone();
    all.merge(&series.response_censored);
    all.merge(&series.response_failed);
    all
}

fn quantile_ns(histogram: &Histogram, quantile: f64) -> Option<f64> {
    histogram.at_rank(rank_of(quantile, histogram.count())).map(|ns| ns as f64)
}

/// loadlab's own cgroup was stopped by a CPU limit: whole stretches of time in which it saw nothing.
fn throttled(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let throttled_s = summary.generator.throttled_s?;
    let share = share_of(throttled_s, grounds.load_s)?;
    if throttled_s < 1e-3 {
        return None;
    }
    doubt(
        "throttled",
        share > THROTTLED_SHARE,
        format!(
            "loadlab itself was stopped by a CPU limit for {} ({} of the load)",
            ms(throttled_s * 1e3),
            percent(share)
        ),
        "raise the CPU limit of the container or session loadlab runs in",
    )
}

/// Little's law between two independent accounts of the same time: requests in flight as the engine
/// integrated them, against the sum of the recorded durations. In the closed model without pacing the two
/// are one quantity; they differ only if durations were lost, doubled or mistimed.
fn littles_law(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let users = asked_of_little(summary, grounds)?;
    let series = &grounds.measured.series;
    // From the start on, as the engine counts; where users start as they are due, service is response.
    let sum_ns =
        series.service_ok.sum_ns() + series.service_censored.sum_ns() + series.response_failed.sum_ns();
    let from_times = sum_ns as f64 / 1e9 / grounds.load_s;
    let off = (summary.concurrency_mean - from_times).abs() / summary.concurrency_mean.max(f64::MIN_POSITIVE);
    // Every user may have one request that straddles the end of the window and is told only in one account.
    let edge = 1.0 / LITTLE_REQUESTS_PER_USER as f64;
    if off <= LITTLE_TOLERANCE.max(edge) {
        return None;
    }
    doubt(
        "littles_law",
        true,
        format!(
            "{} users: {:.1} requests in flight on average, but throughput × response time gives {from_times:.1}",
            format_count(users as f64),
            summary.concurrency_mean
        ),
        "the recorded times do not account for the load: please report it with the record",
    )
}

/// The users, where Little's law can be asked: closed, no due times of their own, the whole load measured,
/// and enough requests for its edges not to matter.
fn asked_of_little(summary: &Summary, grounds: &Grounds<'_>) -> Option<u64> {
    let load = &summary.load;
    // What was put together from ticks has its in-flight requests at whole seconds only.
    let asked = load.model == "closed" && load.pace_s.is_none() && summary.ended != Ended::Partial;
    let users = load.users.filter(|_| asked)?;
    let series = &grounds.measured.series;
    let timed =
        series.response_ok.count() + series.response_censored.count() + series.response_failed.count();
    // A warm-up is in the engine's integral and not in the histograms.
    let whole = timed == summary.requests.started + summary.requests.dropped;
    let enough = users > 0 && timed >= users.saturating_mul(LITTLE_REQUESTS_PER_USER);
    (whole && enough && grounds.load_s > 0.0).then_some(users)
}

/// Users that neither wait for an answer nor think: the load was smaller than the plan says. Only asked
/// where nothing else explains it: no ramp, stages or late start, no think time, no failures to recover from, bounded by time.
fn users_idle(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let users = asked_of_little(summary, grounds)? as f64;
    let load = &summary.load;
    let explained = load.ramp_s > 0.0
        || !load.stages.is_empty()
        || load.loads.values().any(|l| !l.stages.is_empty() || l.start_s > 0.0)
        || load.think_s.is_some_and(|s| s > 0.0)
        || load.duration_s.is_none()
        || summary.ended != Ended::Complete
        || summary.requests.failed * 100 > summary.requests.started;
    // After its end a load only waits for what is in flight: the longest request bounds that.
    let longest_s = responses(&grounds.measured.series).max_ns().unwrap_or(0) as f64 / 1e9;
    let tolerance = LITTLE_TOLERANCE + longest_s / grounds.load_s;
    let idle = (users - summary.concurrency_mean) / users;
    if explained || idle <= tolerance {
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
        "give loadlab more or freer cores (`--threads`, `--cpus`); throughput here is a lower bound",
    )
}

/// Load threads without reserve. In the closed model the throughput is then a lower bound; it is grave only
/// where an expectation rests on response times, which include the generator's own queue.
fn generator_cpu(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let generator = &summary.generator;
    let share = share_of(generator.cpu_s, generator.threads as f64 * grounds.load_s)?;
    if share <= BUSY_SHARE {
        return None;
    }
    let closed = summary.load.model == "closed";
    let meaning = if closed { "; the throughput is a lower bound of what the system gives" } else { "" };
    let threads = if generator.threads == 1 { "load thread was" } else { "load threads were" };
    doubt(
        "generator_cpu",
        closed && summary.expectations.iter().any(|e| rests_on_times(&e.expr)),
        format!("{} {threads} busy for {} of the time{meaning}", generator.threads, percent(share)),
        "give loadlab more cores (`--threads`, `--cpus`) or load from another machine",
    )
}

/// An expression names a response or service time.
fn rests_on_times(expr: &str) -> bool {
    const TIMES: [&str; 11] =
        ["p50", "p75", "p90", "p95", "p99", "p99_9", "p99_99", "max", "mean", "min", "stdev"];
    expr.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| TIMES.contains(&word))
}

/// Load threads that were ready and got no core.
fn run_delay(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let generator = &summary.generator;
    let share = share_of(generator.run_delay_s?, generator.threads as f64 * grounds.load_s)?;
    if share <= RUN_DELAY_SHARE {
        return None;
    }
    doubt(
        "run_delay",
        false,
        format!(
            "load threads waited for a core for {} of the time: they share it with something",
            percent(share)
        ),
        "keep the system under test and loadlab on cores of their own (`--cpus`), or expect times to include the wait",
    )
}

/// The cap on requests in flight was reached: from there on the open model waits like a closed one.
fn in_flight_cap(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let cap = grounds.planned.max_in_flight.filter(|_| summary.load.model == "open")?;
    let in_ticks = grounds.ticks.iter().map(|t| t.counts.in_flight).max().unwrap_or(0);
    let most = in_ticks.max(summary.generator.connections_peak).max(summary.connections.peak);
    if most < cap {
        return None;
    }
    let blocked = summary
        .blocked_ms
        .max
        .map_or(String::new(), |max| format!("; requests waited up to {} for a slot", ms(max)));
    doubt(
        "in_flight_cap",
        false,
        format!("{} requests were in flight at once, the most allowed{blocked}", format_count(cap as f64)),
        "the system is behind, or raise `--max-in-flight`; waiting for a slot is in the response times",
    )
}

/// Requests fell due and were never started.
fn dropped(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let Summary { requests, .. } = summary;
    let share = share_of(requests.dropped as f64, requests.due as f64)?;
    if requests.dropped == 0 {
        return None;
    }
    let how = match grounds.planned.drops_when_behind {
        true => "as the plan wants when it is behind",
        false if summary.load.pace_s.is_some() => "still waiting for their user when the load ended",
        false => "still waiting for a slot when the load ended",
    };
    let pace = if summary.load.pace_s.is_some() { "pace" } else { "rate" };
    doubt(
        "dropped",
        false,
        format!(
            "{} of {} requests due ({}) were never sent, {how}",
            format_count(requests.dropped as f64),
            format_count(requests.due as f64),
            percent(share)
        ),
        &format!(
            "the system does not keep up with this {pace}; percentiles count what was dropped at its age, as a lower bound"
        ),
    )
}

fn few_samples(summary: &Summary) -> Option<Doubt> {
    let count = summary.response_ms.count;
    if count >= FEW_SAMPLES {
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
        "load for longer: a median needs 20 requests, p90 100, p99 1,000, p99.9 10,000",
    )
}

fn ended_early(summary: &Summary) -> Option<Doubt> {
    let (grave, evidence, hint) = match summary.ended {
        Ended::Complete => return None,
        Ended::Stopped => (
            false,
            "a `stop_when` condition ended the load",
            "rates and percentiles cover the load up to there",
        ),
        Ended::Interrupted => {
            (false, "the load was interrupted", "let it run to its end before comparing it")
        }
        Ended::Partial => (
            true,
            "loadlab was killed during the trial; this was put together from what it had written",
            "run the trial again",
        ),
        Ended::Broken => (false, "the system broke during the trial", "see the events and logs of the trial"),
    };
    doubt("ended_early", grave, evidence.to_owned(), hint)
}

fn share_of(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
