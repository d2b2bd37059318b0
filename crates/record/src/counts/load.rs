//! What a load counted and timed: totals, and one tick a second.
//!
//! Identities that hold for every value of [`Counts`] however a run ended, checked by [`Counts::balance`]: `due =
//! started + dropped` and `started = ok + failed + in_flight`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counts::dependence::InOrder;
use crate::counts::histogram::Histogram;
use crate::counts::numbers::Numbers;
use crate::counts::outcome::Failures;
use crate::omitted::is_default;

/// Requests, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Fell due.
    pub due: u64,
    /// Fell due and never started.
    pub dropped: u64,
    /// Had their first action.
    pub started: u64,
    /// Complete and good.
    pub ok: u64,
    /// Ended otherwise, by how.
    pub failures: Failures,
    /// Still in flight when counting stopped.
    pub in_flight: u64,
}

impl Counts {
    /// The sum of all failures.
    pub fn failed(&self) -> u64 {
        self.failures.total()
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Counts) {
        self.due += other.due;
        self.dropped += other.dropped;
        self.started += other.started;
        self.ok += other.ok;
        self.failures.merge(&other.failures);
        self.in_flight += other.in_flight;
    }

    /// Checks the identities; the error is the one that does not hold. A violation is a bug of loadlab and makes a run
    /// INVALID.
    pub fn balance(&self) -> Result<(), String> {
        if self.due != self.started + self.dropped {
            return Err(format!("due {} ≠ started {} + dropped {}", self.due, self.started, self.dropped));
        }
        if self.started != self.ok + self.failed() + self.in_flight {
            let Counts { started, ok, in_flight, .. } = self;
            return Err(format!(
                "started {started} ≠ ok {ok} + failed {} + in flight {in_flight}",
                self.failed()
            ));
        }
        Ok(())
    }
}

/// Bytes on the wire as the generator's sockets saw them (request and response heads and bodies).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// Written.
    pub sent: u64,
    /// Read.
    pub received: u64,
}

impl Bytes {
    /// Adds another's bytes.
    pub fn merge(&mut self, other: Bytes) {
        self.sent += other.sent;
        self.received += other.received;
    }
}

/// Durations by meaning, each in its own histogram: errors never share one with successes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// end − due of ok outcomes.
    pub response_ok: Histogram,
    /// Age since due of timeouts, of what was in flight at the end, and of what was dropped.
    pub response_censored: Histogram,
    /// end − due of failures other than timeouts.
    pub response_failed: Histogram,
    /// end − started of ok outcomes. Empty when every request starts as it falls due (`service_is_response`).
    pub service_ok: Histogram,
    /// Age since started of timeouts and of what was in flight at the end; empty as above.
    pub service_censored: Histogram,
    /// noticed − due.
    pub late: Histogram,
    /// started − noticed.
    pub blocked: Histogram,
    /// Time to connect, of connections that succeeded.
    pub connect: Histogram,
    /// Time of TLS handshakes that succeeded.
    pub tls: Histogram,
}

impl Series {
    /// Name and histogram of every series, in the order of the record. The names are tags in `latency.hlog`.
    pub fn all(&self) -> [(&'static str, &Histogram); 9] {
        [
            ("response", &self.response_ok),
            ("response_censored", &self.response_censored),
            ("response_failed", &self.response_failed),
            ("service", &self.service_ok),
            ("service_censored", &self.service_censored),
            ("late", &self.late),
            ("blocked", &self.blocked),
            ("connect", &self.connect),
            ("tls", &self.tls),
        ]
    }

    /// As [`Series::all`], mutable.
    pub fn all_mut(&mut self) -> [(&'static str, &mut Histogram); 9] {
        [
            ("response", &mut self.response_ok),
            ("response_censored", &mut self.response_censored),
            ("response_failed", &mut self.response_failed),
            ("service", &mut self.service_ok),
            ("service_censored", &mut self.service_censored),
            ("late", &mut self.late),
            ("blocked", &mut self.blocked),
            ("connect", &mut self.connect),
            ("tls", &mut self.tls),
        ]
    }

    /// Adds another's histograms.
    pub fn merge(&mut self, other: &Series) {
        for ((_, mine), (_, theirs)) in self.all_mut().into_iter().zip(other.all()) {
            mine.merge(theirs);
        }
    }

    /// Empties every histogram.
    pub fn clear(&mut self) {
        self.all_mut().into_iter().for_each(|(_, h)| h.clear());
    }
}

/// Counts and times of the requests with one tag.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TagMeasured {
    /// Their outcomes.
    pub counts: Counts,
    /// end − due of ok outcomes.
    pub response_ok: Histogram,
    /// Ages of timeouts and of requests in flight or dropped.
    pub response_censored: Histogram,
    /// end − due of failures other than timeouts.
    pub response_failed: Histogram,
}

impl TagMeasured {
    /// Name and histogram of every series of a tag, as in `latency.hlog` after `tag.NAME.`.
    pub fn all(&self) -> [(&'static str, &Histogram); 3] {
        [
            ("response", &self.response_ok),
            ("response_censored", &self.response_censored),
            ("response_failed", &self.response_failed),
        ]
    }

    /// As [`TagMeasured::all`], mutable.
    pub fn all_mut(&mut self) -> [(&'static str, &mut Histogram); 3] {
        [
            ("response", &mut self.response_ok),
            ("response_censored", &mut self.response_censored),
            ("response_failed", &mut self.response_failed),
        ]
    }

    /// Adds another's counts and histograms.
    pub fn merge(&mut self, other: &TagMeasured) {
        self.counts.merge(&other.counts);
        self.response_ok.merge(&other.response_ok);
        self.response_censored.merge(&other.response_censored);
        self.response_failed.merge(&other.response_failed);
    }

    /// Resets counts and histograms.
    pub fn clear(&mut self) {
        self.counts = Counts::default();
        self.response_ok.clear();
        self.response_censored.clear();
        self.response_failed.clear();
    }
}

/// The part of the load that percentiles and rates cover, on the load's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Start, seconds from the load's start.
    pub from_s: f64,
    /// End, seconds from the load's start.
    pub to_s: f64,
}

impl Window {
    /// Its length in seconds.
    pub fn length_s(self) -> f64 {
        (self.to_s - self.from_s).max(0.0)
    }
}

/// Everything one load measured, from start to its last outcome, merged over its workers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Requests of the whole load.
    pub counts: Counts,
    /// Complete responses by status, of the whole load.
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes of the whole load.
    pub bytes: Bytes,
    /// Times of the requests that fell due in the window.
    pub series: Series,
    /// Counts and times by tag, for requests that have one.
    pub by_tag: BTreeMap<String, TagMeasured>,
    /// Numbers captured from answers to requests that fell due in the window, by name.
    pub numbers: BTreeMap<String, Numbers>,
    /// The window.
    pub window: Window,
    /// Requests whose event (falling due, starting, ending ok) lay inside the window.
    pub in_window: InWindow,
    /// Start to last outcome, or to when loadlab stopped waiting for it.
    pub elapsed_s: f64,
    /// Sum over requests of the time between start and end (∫ in-flight dt), whole load.
    pub busy_s: f64,
    /// The part of `busy_s` that lies inside the window.
    pub busy_in_window_s: f64,
    /// Requests in flight at the window's end that still ended.
    pub stragglers: Stragglers,
    /// Connections made, remade and held.
    pub connections: Connections,
    /// Response times of the first requests that fell due in the window, in the order they fell due.
    pub in_order: InOrder,
}

/// Event counts within the window; rates are these counts divided by its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InWindow {
    /// Fell due inside.
    pub due: u64,
    /// Started inside.
    pub started: u64,
    /// Ended ok inside.
    pub ok: u64,
}

impl InWindow {
    /// Adds another's counts.
    pub fn merge(&mut self, other: InWindow) {
        self.due += other.due;
        self.started += other.started;
        self.ok += other.ok;
    }
}

/// Requests started before the load was over that ended afterwards, within the grace period. Percentiles include their
/// times; no rate includes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stragglers {
    /// Answered with success.
    pub ok: u64,
    /// Ended otherwise.
    pub failed: u64,
    /// Time from when the load stopped starting requests to its last answer, seconds. It counts from the end of the
    /// window or, for a closed load bounded by number, whose window ends with its last answer, from the start of its
    /// last request.
    pub tail_s: f64,
}

impl Stragglers {
    /// Combines it with another load's or batch's, and keeps the longest tail.
    pub fn merge(&mut self, other: Stragglers) {
        self.ok += other.ok;
        self.failed += other.failed;
        self.tail_s = self.tail_s.max(other.tail_s);
    }

    /// Number of stragglers.
    pub fn count(self) -> u64 {
        self.ok + self.failed
    }
}

/// Connections of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// Attempts to connect.
    pub attempted: u64,
    /// Attempts that succeeded.
    pub opened: u64,
    /// Connections that an earlier load to the same place had left open. Not included in the two above.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reused: u64,
    /// Requests sent again on a new connection because the idle one closed without an answer. Not failures, not counted
    /// twice.
    pub requests_resent: u64,
    /// Resent requests whose connection was reset with no sign that the server had closed it before, so the server may
    /// have read them. Only requests that are safe to repeat are resent in that case.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resent_after_reset: u64,
    /// Peak number open at one time (to within a tenth of a second).
    pub peak: u64,
    /// Time to open the held connections before the load began, seconds; `null` if none are held.
    #[serde(default)]
    pub connect_phase_s: Option<f64>,
    /// loadlab's own memory per held connection, bytes (excludes the kernel's share).
    #[serde(default)]
    pub bytes_per_connection: Option<f64>,
    /// Attempts that failed on a limit of the machine loadlab runs on, not of the system under test.
    #[serde(default)]
    pub own_limits: OwnLimits,
    /// Peak number of requests in flight (to within a tenth of a second) in the open model; `null` in the closed model.
    #[serde(default)]
    pub in_flight_peak: Option<u64>,
    /// Peak number of users present where arrivals are users (summed over load threads), including users in think time;
    /// otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users_peak: Option<u64>,
    /// Arrivals of the open model, requests or users, that found all slots of their load thread taken: they waited, or
    /// were dropped. A thread may have no slot left while others have. Absent if none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub held_back: u64,
    /// How requests were spread over users; `null` if each user has its own number of requests, or there are no users.
    #[serde(default)]
    pub per_user: Option<PerUser>,
    /// Users of the closed model that left because a data feed had no row for them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub users_without_row: u64,
}

impl Connections {
    /// Adds another's connections and what came of them. Peaks and times are not sums.
    pub fn add_made(&mut self, other: &Connections) {
        self.attempted += other.attempted;
        self.opened += other.opened;
        self.reused += other.reused;
        self.requests_resent += other.requests_resent;
        self.resent_after_reset += other.resent_after_reset;
        self.held_back += other.held_back;
        self.own_limits.merge(other.own_limits);
    }
}

/// A limit of loadlab's own machine that keeps it from connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnLimit {
    /// Open files, of this process or of the machine (EMFILE, ENFILE).
    OpenFiles,
    /// Ports to connect from (EADDRNOTAVAIL).
    Ports,
    /// Memory of the kernel (ENOBUFS, ENOMEM).
    Memory,
}

/// Attempts to connect that failed on limits of loadlab's own machine, by limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnLimits {
    /// No descriptor was left.
    pub open_files: u64,
    /// No port was left to connect from, or the source address is not this machine's.
    pub ports: u64,
    /// The kernel had no memory left for the connection.
    pub memory: u64,
}

impl OwnLimits {
    /// Counts one failed attempt.
    pub fn add(&mut self, limit: OwnLimit) {
        match limit {
            OwnLimit::OpenFiles => self.open_files += 1,
            OwnLimit::Ports => self.ports += 1,
            OwnLimit::Memory => self.memory += 1,
        }
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: OwnLimits) {
        self.open_files += other.open_files;
        self.ports += other.ports;
        self.memory += other.memory;
    }

    /// The sum over all limits.
    pub fn total(self) -> u64 {
        self.open_files + self.ports + self.memory
    }
}

/// How requests were spread over the users of a closed load. A user that started later, in a ramp, is extrapolated to
/// the whole time; one that started in the second half is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerUser {
    /// Users that are counted.
    pub users: u64,
    /// Requests of the user with the fewest.
    pub min: u64,
    /// Median requests per user.
    pub median: u64,
    /// Requests of the user with the most.
    pub max: u64,
    /// Users with less than half, or more than twice, the median.
    pub outliers: u64,
    /// Jain's index, (Σx)² / (n · Σx²): 1 if all users had the same number, 1/n if one had everything.
    pub jain: f64,
}

impl PerUser {
    /// From the requests of each user, in any order; `None` without users.
    pub fn of(mut requests: Vec<u64>) -> Option<PerUser> {
        requests.sort_unstable();
        let (min, max) = (*requests.first()?, *requests.last()?);
        let median = requests[(requests.len() - 1) / 2];
        let outliers = requests
            .iter()
            .filter(|n| n.saturating_mul(2) < median || **n > median.saturating_mul(2))
            .count();
        let users = requests.len() as f64;
        let sum: f64 = requests.iter().map(|n| *n as f64).sum();
        let squares: f64 = requests.iter().map(|n| (*n as f64).powi(2)).sum();
        let jain = if squares > 0.0 { sum * sum / (users * squares) } else { 1.0 };
        Some(PerUser { users: requests.len() as u64, min, median, max, outliers: outliers as u64, jain })
    }
}

/// One second of load: one line of `ticks.jsonl`. Events are counted in their own second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Name of the load in the plan.
    pub load: String,
    /// Repeat of the load against the running system (from 0).
    pub batch: u32,
    /// Start, seconds on the trial's clock (0 = first load's start).
    pub from_s: f64,
    /// End, likewise. A tick is a second long; the last one of a load may be shorter, and any may be several seconds
    /// long (see `Generator::coarse_s`).
    pub to_s: f64,
    /// Falls inside the measured window.
    pub in_window: bool,
    /// Requests by event in this second; `in_flight` is the number at its end.
    #[serde(flatten)]
    pub counts: Counts,
    /// Bytes in this second.
    pub bytes: Bytes,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Connections open at the end of this second.
    pub connections: u64,
    /// Response times of ok outcomes that ended in this second.
    pub response_ms: TickMs,
    /// Ages of requests censored in this second.
    pub censored_ms: TickMs,
    /// Response times of other failures that ended in this second.
    pub failed_ms: TickMs,
    /// Lateness of requests noticed in this second.
    pub late_ms: TickMs,
    /// Blocking of requests started in this second.
    pub blocked_ms: TickMs,
}

/// A second's worth of durations in milliseconds, for charts; percentiles are of this second alone and are never
/// averaged (the histograms in `latency.hlog` are for merging).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TickMs {
    /// Number of durations.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

impl From<&Histogram> for TickMs {
    fn from(h: &Histogram) -> Self {
        let ms = |ns: u64| ns as f64 / 1e6;
        TickMs {
            count: h.count(),
            mean: h.mean_ns().map(|ns| ns / 1e6),
            p50: h.quantile_ns(0.5).map(ms),
            p90: h.quantile_ns(0.9).map(ms),
            p99: h.quantile_ns(0.99).map(ms),
            max: h.max_ns().map(ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_requests_fell_on_users() {
        let check = |requests: &[u64], expect: Option<(u64, u64, u64, u64, f64)>| {
            let got = PerUser::of(requests.to_vec());
            let got = got.map(|p| (p.min, p.median, p.max, p.outliers, (p.jain * 1e3).round() / 1e3));
            assert_eq!(got, expect, "{requests:?}");
        };
        check(&[], None);
        check(&[0, 0], Some((0, 0, 0, 0, 1.0)));
        check(&[7, 7, 7, 7], Some((7, 7, 7, 0, 1.0)));
        check(&[100, 0, 0, 0], Some((0, 0, 100, 1, 0.25)));
        // nine of ten fast, one ten times slower
        check(&[100, 100, 100, 100, 100, 10, 100, 100, 100, 100], Some((10, 100, 100, 1, 0.919)));
        // half and twice as many are not outliers yet
        check(&[50, 100, 200], Some((50, 100, 200, 0, 0.778)));
        check(&[49, 100, 201], Some((49, 100, 201, 2, 0.773)));
    }
}
