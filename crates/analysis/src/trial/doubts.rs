//! Reasons not to trust a measurement.
//!
//! A doubt states what was seen, in figures, and what to do about it. A *grave* one makes the trial INVALID: the
//! summary's figures then do not (only) describe the system under test. Thresholds are constants with their reason; a
//! blameless generator in front of a slow or frozen system must raise no grave doubt, since waiting for the system is
//! `blocked`, not `late`.

mod failed;
mod generator;
mod lateness;
mod resets;

use loadlab_record::Histogram;
use loadlab_record::counts::load::Tick;
use loadlab_record::documents::summary::{Doubt, Ended, LoadFacts, LoadModel, LostAgent, Summary};
use loadlab_record::text::units::{format_count, format_duration_ns, format_percent_short};

pub(crate) use generator::{BUSY_SHARE, client_limit_so_far, describe_stalls, throttled_so_far};
pub(crate) use lateness::{has_due_times, late_is_grave, late_so_far};

use crate::trial::doubt_kind;
use crate::trial::input::Planned;
use crate::trial::judge::was_target_gone;
use crate::trial::steady;
use crate::trial::totals::Totals;

/// Little's law may be off by this much before it counts as broken.
const LITTLE_TOLERANCE: f64 = 0.05;
/// Requests each user must have made before users are compared with what was in flight: below, the edges of the load
/// weigh more than [`LITTLE_TOLERANCE`].
const LITTLE_REQUESTS_PER_USER: u64 = 20;
/// Users far from the median user, above this share of all: one in twenty is beyond chance …
const UNFAIR_SHARE: f64 = 0.05;
/// … if the median user had this many requests: with 100, even service times that spread by three times their mean
/// put fewer users that far off (the count's deviation is then 30 %, and the limit is 50 %).
const UNFAIR_REQUESTS: u64 = 100;
/// At least this share of the users must have been active at a time, …
const CONCURRENT_SHARE: f64 = 0.9;
/// … as seen at the ends of at least this many seconds: in one or two all may have come and gone.
const CONCURRENT_TICKS: usize = 5;
/// Once this share of the requests has been started, users leave.
const MOST_STARTED: f64 = 0.9;
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

/// The doubts that a trial's figures raise, grave ones first. What its events raise (`event_doubts`) is added by
/// `summarise`; a search adds grave doubts of the level above its answer. `summary` needs its figures and its
/// expectations, but no verdict yet.
pub fn doubts(summary: &Summary, grounds: &Grounds<'_>) -> Vec<Doubt> {
    let mut found: Vec<Doubt> = [
        accounting(grounds),
        lateness::late(summary, grounds),
        generator::throttled(summary, grounds),
        generator::generator_stalled(summary, grounds),
        generator::coarse_ticks(summary),
        agents_lost(summary),
        generator::client_limit(summary),
        littles_law(summary, grounds),
        users_idle(summary, grounds),
        users_not_concurrent(summary, grounds),
        generator::generator_cpu(summary, grounds),
        generator::cpu_wait(summary, grounds),
        in_flight_cap(summary, grounds),
        dropped(summary, grounds),
        backlog(summary, grounds),
        unfair(summary),
        feed_exhausted(summary),
        failed::all_failed(summary),
        resets::resent_after_reset(summary, grounds),
        tail(summary, grounds),
        few_samples(summary),
        ended_early(summary),
    ]
    .into_iter()
    .flatten()
    .collect();
    // A system that falls behind gets slower; that is reported once.
    let is_behind = found.iter().any(|d| d.kind == doubt_kind::BACKLOG) || drops_many(summary);
    let is_news = |d: &Doubt| !is_behind || d.kind != doubt_kind::LATENCY_RISING;
    found.extend(settling(summary, grounds).into_iter().filter(is_news));
    found.sort_by_key(|d| !d.grave);
    found
}

pub(crate) fn doubt(kind: &str, grave: bool, evidence: String, hint: impl Into<String>) -> Option<Doubt> {
    Some(Doubt { kind: kind.to_owned(), grave, evidence, hint: hint.into() })
}

fn ms(value_ms: f64) -> String {
    format_duration_ns(value_ms * 1e6)
}

/// Requests do not add up. Never the system's fault.
fn accounting(grounds: &Grounds<'_>) -> Option<Doubt> {
    let why = grounds.measured.unbalanced.as_ref()?;
    doubt("accounting", true, why.clone(), "this is a bug in loadlab: please report it with the record")
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
                format_percent_short(covered)
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

/// Little's law, N = X · R, between two accounts of the window: requests in flight in it as the engine added them up
/// while they ended, and the durations in the histograms, minus the time stragglers took after it. The two differ only
/// if durations were lost, doubled or mistimed on their way into the record.
///
/// R is the service time: waiting before the start is not counted as in flight.
fn littles_law(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let series = &grounds.measured.series;
    let timed = [&series.service_ok, &series.service_censored, &series.response_failed];
    let count: u64 = timed.iter().map(|h| h.count()).sum();
    // A warm-up is in the engine's account and not in the histograms; a record reconstructed from ticks knows its
    // requests in flight only at whole seconds.
    let whole = count == summary.requests.started && summary.ended != Ended::Partial;
    // Failures have only a response time, which includes the waiting.
    let failing = has_due_times(&summary.load) && series.response_failed.count() * 100 > count;
    let at_once = summary.load.users.or(summary.load.rate_per_s.map(|_| 1))?;
    let needed = at_once.saturating_mul(LITTLE_REQUESTS_PER_USER).max(FEW_SAMPLES);
    if !whole || failing || count < needed || grounds.window_s <= 0.0 {
        return None;
    }
    let after_s = grounds.measured.busy_s - grounds.measured.busy_in_window_s;
    let mean_of = |times: &[&Histogram]| {
        (times.iter().map(|h| h.sum_ns() as f64 / 1e9).sum::<f64>() - after_s) / grounds.window_s
    };
    let most = mean_of(&timed);
    // A failure's response time includes any wait to be started, and that wait is not known separately.
    let least = if has_due_times(&summary.load) { mean_of(&timed[..2]).max(0.0) } else { most };
    let from_times = summary.concurrency_mean.clamp(least.min(most), most);
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
            format_percent_short(off)
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
        || summary.requests.failed * 100 > summary.started_by_loadlab();
    let users = users as f64;
    let idle = (users - summary.concurrency_mean) / users;
    if explained || grounds.window_s <= 0.0 || idle <= LITTLE_TOLERANCE {
        return None;
    }
    doubt(
        doubt_kind::USERS_IDLE,
        idle > 0.5,
        format!(
            "{} users, yet only {:.1} requests in flight on average: users were idle for {} of the time",
            format_count(users),
            summary.concurrency_mean,
            format_percent_short(idle)
        ),
        "give loadlab more cores, or cores that are less busy (`--threads`, `--cpus`); throughput here is a lower bound",
    )
}

/// Users were never all active at once: some had not begun when the requests ran out, or had made theirs before others
/// began. Checked only for users with a number of requests, each or in total, who have one in flight from their first
/// to their last; and only in the seconds before most requests have been started, since few users are left after that.
///
/// Never grave: what was sent was measured. But a system that serves these users one after another may not serve all
/// at once.
fn users_not_concurrent(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let load = &summary.load;
    let users = load.users.filter(|u| *u > 0)?;
    let first = grounds.ticks.first()?;
    let explained = has_due_times(load)
        || load.duration_s.is_some()
        || load.requests.is_some_and(|requests| requests < users)
        || !load.stages.is_empty()
        || grounds.ticks.iter().any(|tick| (&tick.load, tick.batch) != (&first.load, first.batch))
        || summary.ended != Ended::Complete
        || summary.connections.users_without_row > 0
        || summary.requests.failed * 100 > summary.started_by_loadlab();
    let mut started = 0;
    let has_more = |tick: &&Tick| {
        started += tick.counts.started;
        started as f64 <= MOST_STARTED * summary.requests.started as f64
    };
    let full: Vec<&Tick> = grounds.ticks.iter().take_while(has_more).collect();
    let most = full.iter().map(|tick| tick.counts.in_flight).max()?;
    let is_concurrent = most as f64 >= CONCURRENT_SHARE * users as f64;
    if explained || is_concurrent || full.len() < CONCURRENT_TICKS {
        return None;
    }
    doubt(
        "users_not_concurrent",
        false,
        format!(
            "at most {} of {} users were active at a time: the others had not started before the requests ran out, or \
             started only after these had finished",
            format_count(most as f64),
            format_count(users as f64)
        ),
        "to have more users active at once: more requests, a shorter ramp, more cores for loadlab, or more machines (`--swarm`)",
    )
}

/// The cap on requests in flight was reached: from then on the open model waits like a closed one. Each load thread has
/// a share of the cap, so arrivals may be held back on one thread while the others have slots left.
fn in_flight_cap(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    // With several loads, each has its own.
    let cap = grounds.planned.max_in_flight.filter(|_| summary.load.model == LoadModel::Open);
    // A record that was cut off has only its ticks. Connections do not count: held ones have no request.
    let in_ticks = grounds.ticks.iter().map(|t| t.counts.in_flight).max().unwrap_or(0);
    // If arrivals are users, the cap is on users, including those that think.
    let users = summary.connections.users_peak;
    let most = in_ticks.max(users.or(summary.connections.in_flight_peak).unwrap_or(0));
    let is_reached = cap.is_some_and(|cap| most >= cap);
    if !is_reached && summary.connections.held_back == 0 {
        return None;
    }
    let of_what = if users.is_some() { "concurrent users" } else { "requests in flight" };
    let cap_text = match cap {
        Some(cap) => format!("the cap of {} {of_what}", format_count(cap as f64)),
        None => format!("the cap on {of_what}"),
    };
    let reached = match is_reached {
        true => format!("{cap_text} was reached"),
        false => format!("a load thread reached its share of {cap_text}"),
    };
    // Of several loads, users with a pace may have been what requests waited for.
    let blocked = summary.blocked_ms.max.filter(|_| cap.is_some());
    let blocked =
        blocked.map_or(String::new(), |max| format!("; requests waited up to {} for a slot", ms(max)));
    doubt(
        doubt_kind::IN_FLIGHT_CAP,
        false,
        format!("{reached}{blocked}"),
        "the system is behind, or the cap is too low (`--max-in-flight`); response times include the wait for a slot",
    )
}

/// Requests were due and never started.
fn dropped(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    dropped_so_far(summary.requests.dropped, summary.requests.due, &summary.load, grounds.planned)
}

/// As [`dropped`], for the load so far.
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
            format_percent_short(share)
        ),
        format!(
            "the system does not keep up with this {pace}; percentiles count dropped requests at their age, as a lower bound"
        ),
    )
}

/// More was due than was done, throughout: whatever the figures are, they grow with the length of the load.
fn backlog(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let load = &summary.load;
    let one_level = load.model == LoadModel::Open && load.stages.is_empty() && load.loads.is_empty();
    // Many drops already show this.
    if !one_level || summary.ended == Ended::Partial || drops_many(summary) {
        return None;
    }
    let grew =
        steady::growing_backlog(grounds.ticks, load.duration_s.map_or(f64::INFINITY, |s| load.start_s + s))?;
    doubt(
        doubt_kind::BACKLOG,
        false,
        format!("the system cannot keep up with {}/s: {grew}", format_count(load.rate_per_s.unwrap_or(0.0))),
        "lower the rate; the response times here depend on how long the load lasted",
    )
}

/// More was dropped than a system that keeps up would leave undone.
pub fn drops_many(summary: &Summary) -> bool {
    summary.requests.dropped as f64 > MOST_DROPPED * summary.requests.due as f64
}

/// A system that keeps up does not drop more than this share of what is due.
const MOST_DROPPED: f64 = 0.01;

/// Some users of a closed load had far fewer answers than others, or far more.
///
/// Never grave: the system was measured, and that it serves some connections and starves others may be the very
/// finding. But percentiles count requests, and a user that waits ten times longer sends a tenth of them: starved
/// users are hardly in any percentile. Not checked if requests fail, since a refused user is back at once.
fn unfair(summary: &Summary) -> Option<Doubt> {
    let per_user = summary.connections.per_user?;
    let apart = share_of(per_user.outliers as f64, per_user.users as f64)?;
    let failing = summary.requests.failed * 100 > summary.started_by_loadlab();
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
    let by_number = load.model == LoadModel::Closed && load.duration_s.is_none() && load.loads.is_empty();
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
            format_percent_short(share)
        ),
        "limit the load by time (`-d`, `duration`), whose rates exclude stragglers",
    )
}

fn few_samples(summary: &Summary) -> Option<Doubt> {
    let count = summary.response_ms.count;
    // A program's requests are never timed. If none succeeded, more samples do not help: that is another doubt.
    if count >= FEW_SAMPLES || summary.load.is_command() || failed::nothing_succeeded(summary) {
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
        Ended::Broken if was_target_gone(summary) => {
            (false, "the target could not be reached", "is the server up, and is this its address?")
        }
        Ended::Broken => (false, "the system broke during the trial", "see the events and logs of the trial"),
    };
    doubt("ended_early", grave, evidence.to_owned(), hint)
}

fn share_of(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
