//! The document of one trial: `bench --json` and each trial's `summary.json`.
//!
//! Names and shapes are a contract others build on: additions are free, a change breaks. Durations are in
//! milliseconds, rates per second of the measured window, sizes in bytes. A number that cannot be known is `null`,
//! never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counts::dependence::Dependence;
use crate::counts::histogram::{Histogram, rank_of};
use crate::counts::load::{Bytes, Connections, Counts, Stragglers, Window};
use crate::counts::numbers::NumberSummary;
use crate::counts::outcome::Failures;
pub use crate::counts::quantile::FewSamples;
pub use crate::counts::quantile::PERCENTILES;
use crate::counts::quantile::{Estimate, Estimates, ranks, samples_needed};
use crate::documents::bottleneck::Bottleneck;
use crate::documents::figure::FigureValue;
use crate::documents::search::SearchFacts;
use crate::watch::evidence::Pair;
use crate::watch::limits::LimitsInForce;

/// A trial's document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of loadlab that wrote it.
    pub loadlab: String,
    /// The overall judgement.
    pub verdict: Verdict,
    /// How the load ended.
    pub ended: Ended,
    /// Reasons not to trust it.
    pub doubts: Vec<Doubt>,
    /// What was expected, and whether it held.
    pub expectations: Vec<Expectation>,
    /// The load as planned.
    pub load: LoadFacts,
    /// Start to last outcome, batches and pauses included.
    pub elapsed_s: f64,
    /// What percentiles and rates cover.
    pub window: Window,
    /// Requests in flight when the load was over that still ended: their times count, but no rate includes them.
    #[serde(default)]
    pub stragglers: Stragglers,
    /// Requests by outcome.
    pub requests: Requests,
    /// Failures by kind; their sum is `requests.failed`.
    pub failures: Failures,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// ok / (ok + failed); `null` when nothing ended.
    pub availability: Option<f64>,
    /// Mean number of requests in flight in the window.
    pub concurrency_mean: f64,
    /// Rates over the window.
    pub rate_per_s: Rates,
    /// Bytes of the whole load.
    pub bytes: Bytes,
    /// end − due of ok outcomes, and of censored ones at their age.
    pub response_ms: Distribution,
    /// end − due of ok outcomes alone.
    pub ok_response_ms: Distribution,
    /// end − due of failures other than timeouts, which are among the censored of `response_ms`.
    pub failed_response_ms: Distribution,
    /// end − started.
    pub service_ms: Distribution,
    /// noticed − due.
    pub late_ms: Distribution,
    /// started − noticed.
    pub blocked_ms: Distribution,
    /// Time to connect.
    pub connect_ms: Distribution,
    /// Time of TLS handshakes.
    pub tls_ms: Distribution,
    /// By tag.
    pub by_tag: BTreeMap<String, TagSummary>,
    /// Numbers that the plan captures from answers, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub numbers: BTreeMap<String, NumberSummary>,
    /// By load, where a trial has several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub by_load: BTreeMap<String, LoadSummary>,
    /// By batch of the load, from 1, where there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub by_batch: BTreeMap<u32, LoadSummary>,
    /// Connections of the load.
    pub connections: Connections,
    /// What the generator used.
    pub generator: Generator,
    /// The agents that sent the loads, by part; empty if loadlab itself did.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub agents: Vec<AgentSummary>,
    /// Component usage during the load.
    pub components: BTreeMap<String, ComponentSummary>,
    /// Probes over the load and the drain.
    pub probes: BTreeMap<String, ProbeSummary>,
    /// Time from the load's end until the work was done; `null` if the plan has no drain.
    pub drain_s: Option<f64>,
    /// What was accepted and never stored; `null` if the plan has no way to check.
    pub loss: Option<Loss>,
    /// Events of the plan, as they were carried out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub actions: Vec<ActionSummary>,
    /// Connections between components during the load, as means over it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub pairs: Vec<Pair>,
    /// The figures that the plan names, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub figures: BTreeMap<String, FigureValue>,
    /// What was searched for, if the trial is a search: all other figures are from the level that was found or, if none
    /// was, from the lowest level that was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub search: Option<SearchFacts>,
    /// What held the system back; absent in older records.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bottleneck: Option<Bottleneck>,
}

impl Summary {
    /// How long the planned load lasted, seconds, without the wait for stragglers.
    pub fn asked_s(&self) -> f64 {
        self.elapsed_s.min(self.window.to_s)
    }

    /// Whether the load continued for stragglers for a noticeable time: 2 % of its window.
    pub fn has_tail(&self) -> bool {
        self.stragglers.tail_s > 0.02 * self.window.length_s()
    }
}

/// A trial's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every expectation held.
    Pass,
    /// An expectation did not hold, or a component died that should not have.
    Fail,
    /// Nothing failed, but too few samples leave an expectation open.
    Undecided,
    /// The measurement cannot be trusted.
    Invalid,
    /// Nothing was expected.
    None,
}

/// How a load ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// As planned.
    #[default]
    Complete,
    /// By a `stop_when` condition.
    Stopped,
    /// By Ctrl-C.
    Interrupted,
    /// loadlab was killed; this was assembled from what it had written.
    Partial,
    /// A component died, or the system did not come up.
    Broken,
}

/// A reason not to trust a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doubt {
    /// Short name: `late`, `littles_law`, `generator_cpu` …
    pub kind: String,
    /// Whether the doubt makes the trial INVALID.
    pub grave: bool,
    /// The figures it is based on.
    pub evidence: String,
    /// What to do about it.
    pub hint: String,
}

/// An expectation and whether it held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// As written.
    pub expr: String,
    /// `null`: undecided because there are too few samples (see `undecided`), or not known for another reason, in which
    /// case it counts as failed.
    pub holds: Option<bool>,
    /// The left-hand number of its first (or failing) comparison, in the unit it was written in.
    pub value: Option<f64>,
    /// The unit of `value`: `ms`, `s`, `%`, `MiB`, `/s`; empty for plain numbers.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub unit: String,
    /// Why it could not be known, or which part failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// Set if too few samples leave it open; this many would decide it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undecided: Option<FewSamples>,
}

impl Expectation {
    /// Whether too few samples leave it open.
    pub fn is_undecided(&self) -> bool {
        self.holds.is_none() && self.undecided.is_some()
    }

    /// Whether it does not hold or cannot be known, and more samples would not help.
    pub fn is_missed(&self) -> bool {
        self.holds != Some(true) && !self.is_undecided()
    }
}

/// A load as planned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadFacts {
    /// `closed`, `open`, `mixed`, or `command`: a program makes the load, a probe counts its requests, and nothing
    /// else about them is measured.
    pub model: String,
    /// Users, in the closed model; with stages the maximum.
    pub users: Option<u64>,
    /// Rate, in the open model; with stages the maximum.
    pub rate_per_s: Option<f64>,
    /// The rate is of users, who arrive, make a journey and leave; otherwise of requests.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub sessions: bool,
    /// Delay from the start of the trial's loads to the start of this one, seconds.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub start_s: f64,
    /// How users or rate change.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stages: Vec<StageFacts>,
    /// Planned duration, if it is bounded by time.
    pub duration_s: Option<f64>,
    /// Planned requests, if it is bounded by number.
    pub requests: Option<u64>,
    /// Ramp at the start.
    pub ramp_s: f64,
    /// Mean think time between a user's requests, if there is any.
    #[serde(default)]
    pub think_s: Option<f64>,
    /// How think times are distributed, if there are any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub think: Option<ThinkFacts>,
    /// Interval at which a user's steps fall due, if users are paced (they then have their own due times).
    #[serde(default)]
    pub pace_s: Option<f64>,
    /// Connections are reused.
    pub keep_alive: bool,
    /// `http/1.1`.
    pub protocol: String,
    /// The first URL, for reading.
    pub url: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Each load's own facts, if a trial has several; the rest is then the combined load.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub loads: BTreeMap<String, LoadFacts>,
}

impl LoadFacts {
    /// Whether programs make all of the load: requests are counted and the time is measured, but response times,
    /// failures, bytes and requests in flight were not measured, whatever their values here.
    pub fn is_command(&self) -> bool {
        self.model == "command"
    }
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// A stage of a load: a straight line from one level to another. Levels are users, or requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageFacts {
    /// Level at its start.
    pub from: f64,
    /// Level at its end.
    pub to: f64,
    /// Duration, seconds; 0 is a jump.
    pub over_s: f64,
}

/// How think times are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkFacts {
    /// Always this, seconds.
    ConstantS(f64),
    /// Uniformly between these, seconds.
    UniformS(f64, f64),
    /// Exponentially with this mean, seconds.
    ExponentialS(f64),
    /// Set by each step separately, with this mean over the steps, seconds.
    OfStepsS(f64),
}

/// The result of one of several loads, or of one of several batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSummary {
    /// From the start of its first window to the end of its last, on the trial's clock.
    pub window: Window,
    /// Requests in flight when it was over that still ended.
    #[serde(default)]
    pub stragglers: Stragglers,
    /// Requests by outcome.
    pub requests: Requests,
    /// Failures by kind.
    pub failures: Failures,
    /// Rates over its own windows.
    pub rate_per_s: Rates,
    /// end − due, censored ones included.
    pub response_ms: Distribution,
    /// end − due of ok outcomes.
    pub ok_response_ms: Distribution,
}

/// Requests by outcome. `due = started + dropped`, `started = ok + failed + in_flight`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Fell due.
    pub due: u64,
    /// Fell due and never started.
    pub dropped: u64,
    /// Had their first action.
    pub started: u64,
    /// Complete and good.
    pub ok: u64,
    /// Ended otherwise.
    pub failed: u64,
    /// Still in flight at the end.
    pub in_flight: u64,
    /// Upper bound of the requests that would have fallen due in the parts of lost agents. Absent if loadlab itself
    /// sent the loads, or if the number is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_offered: Option<u64>,
    /// As `not_offered`, but a lower bound: what an agent sent after its last report is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_offered_min: Option<u64>,
}

impl From<&Counts> for Requests {
    fn from(c: &Counts) -> Self {
        Requests {
            due: c.due,
            dropped: c.dropped,
            started: c.started,
            ok: c.ok,
            failed: c.failed(),
            in_flight: c.in_flight,
            not_offered: None,
            not_offered_min: None,
        }
    }
}

/// A part of a trial's loads, and the agent that sent it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentSummary {
    /// Index of the part, from 0.
    pub slot: u64,
    /// The agent's name; the last agent's, if another was lost.
    pub agent: String,
    /// Number of its load threads.
    pub threads: u64,
    /// The coordinator's clock minus its own, as estimated, seconds.
    pub clock_offset_s: Option<f64>,
    /// The true offset differs by no more than this, milliseconds.
    pub clock_uncertainty_ms: Option<f64>,
    /// Requests of the part.
    pub requests: Requests,
    /// Agents that were lost while they sent this part.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lost: Vec<LostAgent>,
}

impl AgentSummary {
    /// Adds the same part of another load.
    pub fn merge(&mut self, other: AgentSummary) {
        let Requests { due, dropped, started, ok, failed, in_flight, not_offered, not_offered_min } =
            other.requests;
        let own = &mut self.requests;
        own.due += due;
        own.dropped += dropped;
        own.started += started;
        own.ok += ok;
        own.failed += failed;
        own.in_flight += in_flight;
        own.not_offered = own.not_offered.zip(not_offered).map(|(a, b)| a + b);
        own.not_offered_min = own.not_offered_min.zip(not_offered_min).map(|(a, b)| a + b);
        self.lost.extend(other.lost);
        let latest = AgentSummary { requests: own.clone(), lost: std::mem::take(&mut self.lost), ..other };
        *self = latest;
    }
}

/// An agent that was lost in the middle of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LostAgent {
    /// Its name.
    pub agent: String,
    /// Name of the load.
    pub load: String,
    /// Repeat of the load, from 0.
    pub batch: u32,
    /// End of what it had reported, seconds on the trial's clock.
    pub reported_until_s: f64,
    /// When another agent took over its part, seconds on the trial's clock; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replaced_at_s: Option<f64>,
    /// Upper bound of the requests that would have fallen due between the two, or up to the end. Absent if their number
    /// depends on how fast they are answered.
    pub not_offered: Option<u64>,
    /// As `not_offered`, but a lower bound.
    pub not_offered_min: Option<u64>,
}

/// Rates over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Fell due per second.
    pub due: f64,
    /// Started per second.
    pub started: f64,
    /// Ended ok per second: the goodput.
    pub ok: f64,
    /// Standard deviation of `ok` over the whole ticks of the window.
    pub ok_stdev: Option<f64>,
    /// `ok` in the largest tick.
    pub ok_max: Option<f64>,
}

/// Durations in milliseconds. A percentile is `null` with fewer than 10 / (1 − q) samples, when `p99_estimate` and
/// `p99_interval` give what is known, or if it falls among censored samples, when `over_ms` has its lower bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Samples, censored ones included.
    pub count: u64,
    /// Censored samples: durations known only to be at least this long.
    pub censored: u64,
    /// Mean, with censored samples at their age.
    pub mean: Option<f64>,
    /// Standard deviation, likewise.
    pub stdev: Option<f64>,
    /// Share within one standard deviation of the mean.
    pub within_stdev: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 75th percentile.
    pub p75: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// 99.99th percentile.
    pub p99_99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Lower bounds of values that are `null` or only known from below, by name.
    pub over_ms: BTreeMap<String, f64>,
    /// Estimates of percentiles that are `null` because there are too few samples.
    #[serde(flatten)]
    pub few: Estimates,
}

impl Distribution {
    /// From exact durations alone, each independent of the others.
    pub fn of(known: &Histogram) -> Self {
        Self::with_censored(known, &Histogram::new())
    }

    /// From exact durations and right-censored ones, each independent of the others.
    pub fn with_censored(known: &Histogram, censored: &Histogram) -> Self {
        Self::dependent(known, censored, Dependence::NONE)
    }

    /// From exact durations and right-censored ones with this autocorrelation.
    ///
    /// A quantile lies between two bounds: censored values taken at their age (`low`), and taken as endless (`high`).
    /// If the two differ by more than 1 %, the quantile is only known to be at least `low`; otherwise `high` is
    /// reported, which never flatters.
    pub fn dependent(known: &Histogram, censored: &Histogram, dependence: Dependence) -> Self {
        let mut all = known.clone();
        all.merge(censored);
        let ms = |ns: u64| ns as f64 / 1e6;
        let mut out = Distribution {
            count: all.count(),
            censored: censored.count(),
            mean: all.mean_ns().map(|v| v / 1e6),
            stdev: all.stdev_ns().map(|v| v / 1e6),
            within_stdev: all.within_stdev(),
            // A censored request may take longer than any other, so its age is not the minimum if there is a real one.
            min: known.min_ns().or(all.min_ns()).map(ms),
            ..Distribution::default()
        };
        for (name, quantile) in PERCENTILES {
            if all.count() < samples_needed(quantile) {
                out.estimate(name, quantile, [known, &all], dependence);
                continue;
            }
            let rank = rank_of(quantile, all.count());
            match known_at(known, &all, rank) {
                Some(value) => *out.percentile_mut(name) = Some(value),
                None => {
                    out.over_ms.insert(name.to_owned(), ms(all.at_rank(rank).unwrap_or(0)));
                }
            }
        }
        match all.max_ns() {
            // However young a censored request is, it may have taken longer than any other.
            Some(max) if censored.is_empty() => out.max = Some(ms(max)),
            Some(max) => {
                out.over_ms.insert("max".to_owned(), ms(max));
            }
            None => {}
        }
        if let (Some(mean), true) = (out.mean, out.censored > 0) {
            out.over_ms.insert("mean".to_owned(), mean);
        }
        out
    }

    /// What too few samples show about a percentile. Censored values count at their age for the lower end, and as
    /// endless for the upper end. If all above the lower end are endless, the percentile falls among the censored.
    fn estimate(&mut self, name: &str, quantile: f64, [known, all]: [&Histogram; 2], dependence: Dependence) {
        if all.is_empty() {
            return;
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        let inflation = dependence.inflation();
        let ranks = ranks(all.count(), quantile, inflation);
        if let Some(low) = ranks.low.filter(|low| known.at_rank(*low).is_none()) {
            self.over_ms.insert(name.to_owned(), ms(all.at_rank(low).unwrap_or(0)));
            return;
        }
        let estimate = Estimate {
            value: known_at(known, all, rank_of(quantile, all.count())),
            low: Some(ranks.low.and_then(|rank| all.at_rank(rank)).map_or(0.0, ms)),
            high: ranks.high.and_then(|rank| known.at_rank(rank)).map(ms),
        };
        self.few.set(name, estimate);
        self.few.widened = (inflation > 1.0).then_some(inflation);
    }

    /// The largest sample, censored or not: a percentile without an upper bound may be this or more.
    pub fn largest_seen(&self) -> Option<f64> {
        self.max.or_else(|| self.over_ms.get("max").copied())
    }

    fn percentile_mut(&mut self, name: &str) -> &mut Option<f64> {
        match name {
            "p50" => &mut self.p50,
            "p75" => &mut self.p75,
            "p90" => &mut self.p90,
            "p95" => &mut self.p95,
            "p99" => &mut self.p99,
            "p99_9" => &mut self.p99_9,
            "p99_99" => &mut self.p99_99,
            _ => unreachable!("only names of PERCENTILES"),
        }
    }

    /// A figure by its name (`p50` … `p99_99`, `max`, `min`, `mean`, `stdev`), if there is such a name.
    pub fn figure(&self, name: &str) -> Option<Option<f64>> {
        Some(match name {
            "p50" => self.p50,
            "p75" => self.p75,
            "p90" => self.p90,
            "p95" => self.p95,
            "p99" => self.p99,
            "p99_9" => self.p99_9,
            "p99_99" => self.p99_99,
            "max" => self.max,
            "min" => self.min,
            "mean" => self.mean,
            "stdev" => self.stdev,
            _ => return None,
        })
    }
}

/// The value at a rank in milliseconds, if it is the same to within 1 % whether censored values are taken at their age
/// or as endless; `None`: it never ended.
fn known_at(known: &Histogram, all: &Histogram, rank: u64) -> Option<f64> {
    let (low, high) = (all.at_rank(rank)?, known.at_rank(rank)?);
    (high as f64 <= low as f64 * 1.01).then(|| high as f64 / 1e6)
}

/// Requests of one tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TagSummary {
    /// By outcome.
    pub requests: Requests,
    /// Failures by kind.
    pub failures: Failures,
    /// end − due, censored ones included.
    pub response_ms: Distribution,
    /// end − due of ok outcomes.
    pub ok_response_ms: Distribution,
    /// end − due of failures.
    pub failed_response_ms: Distribution,
}

/// What the generator used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// `uring`, `epoll` (or `sim` in tests).
    pub io: String,
    /// Load threads.
    pub threads: u64,
    /// Cores the load threads were bound to; empty when free.
    pub cpus: Vec<u64>,
    /// CPU time of the load threads up to the end of the load, seconds, without the wait for stragglers.
    pub cpu_s: f64,
    /// Time load threads were runnable but waited for a core, seconds; `null` where the kernel does not report it.
    pub run_delay_s: Option<f64>,
    /// How often load threads got a core; the average wait each time is `run_delay_s` divided by this.
    #[serde(default)]
    pub time_slices: Option<u64>,
    /// Time that a CPU limit throttled loadlab's own cgroup, or an enclosing one, seconds.
    pub throttled_s: Option<f64>,
    /// Stretches of time in which a load thread did not run at all, for whatever reason.
    #[serde(default)]
    pub stalls: Stalls,
    /// Lower bound of the time this machine was suspended during the load, seconds: no clock of the load shows it.
    #[serde(default)]
    pub suspended_s: Option<f64>,
    /// Cores of this machine that are online, to which counters of the whole machine refer: loadlab may be allowed
    /// fewer. Absent if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_cores: Option<u64>,
    /// Time of the load in ticks longer than a second, seconds: the merging thread had too little time. Counts over the
    /// whole load are complete nevertheless.
    #[serde(default)]
    pub coarse_s: f64,
    /// Peak resident memory of loadlab.
    pub peak_rss_bytes: u64,
    /// Most connections open at one time.
    pub connections_peak: u64,
}

impl Generator {
    /// Combines two generators that ran at the same time on separate threads.
    pub fn beside(mut self, other: Generator) -> Generator {
        fn add<T: std::ops::Add<Output = T> + Copy>(a: Option<T>, b: Option<T>) -> Option<T> {
            a.zip(b).map(|(a, b)| a + b).or(a).or(b)
        }
        self.cpus.extend(other.cpus);
        self.cpus.sort_unstable();
        self.cpus.dedup();
        Generator {
            // A load made by a program has no I/O backend.
            io: if other.io.is_empty() { self.io } else { other.io },
            threads: self.threads + other.threads,
            cpus: self.cpus,
            cpu_s: self.cpu_s + other.cpu_s,
            run_delay_s: add(self.run_delay_s, other.run_delay_s),
            time_slices: add(self.time_slices, other.time_slices),
            stalls: self.stalls.beside(other.stalls),
            coarse_s: self.coarse_s.max(other.coarse_s),
            connections_peak: self.connections_peak + other.connections_peak,
            // These describe a whole process.
            throttled_s: other.throttled_s.or(self.throttled_s),
            suspended_s: other.suspended_s.or(self.suspended_s),
            machine_cores: other.machine_cores.or(self.machine_cores),
            peak_rss_bytes: self.peak_rss_bytes.max(other.peak_rss_bytes),
        }
    }
}

/// Gaps of more than a tenth of a second between when a load thread asked to be woken, or was last seen, and when it
/// ran: it was stopped, starved, or its machine was paused. Of several threads, the gaps of the one that stalled
/// longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// Number of gaps.
    pub count: u64,
    /// Their sum, seconds.
    pub total_s: f64,
    /// The longest, seconds.
    pub max_s: f64,
    /// When the longest began, seconds on the trial's clock.
    pub max_at_s: f64,
}

impl Stalls {
    /// Combines it with the gaps of the same threads at another time.
    pub fn then(self, other: Stalls) -> Stalls {
        let longer = if other.max_s > self.max_s { other } else { self };
        Stalls { count: self.count + other.count, total_s: self.total_s + other.total_s, ..longer }
    }

    /// Of two threads at the same time, the one that stalled longer.
    pub fn beside(self, other: Stalls) -> Stalls {
        if other.total_s > self.total_s { other } else { self }
    }
}

/// What a component used during the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComponentSummary {
    /// Percent of one core, over the load; the mean excludes the wait for stragglers.
    pub cpu_percent: MeanMax,
    /// CPU seconds over the load.
    pub cpu_s: Option<f64>,
    /// Time throttled by its CPU limit, seconds.
    pub throttled_s: Option<f64>,
    /// Memory.
    pub memory_bytes: MemorySummary,
    /// Network link bytes over the load; `null` unless it has its own namespace.
    pub net_bytes: InOut,
    /// Block I/O over the load.
    pub block_bytes: ReadWritten,
    /// Most processes and threads.
    pub pids_max: Option<u64>,
    /// Most open files.
    pub open_files_max: Option<u64>,
    /// Open files before any load, if the trial's own samples do not show it: a search keeps connections open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files_at_rest: Option<u64>,
    /// OOM kills.
    pub oom_kills: Option<u64>,
    /// Times it was started again.
    pub restarts: u64,
    /// How it died, in words, if it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub died: Option<String>,
    /// CPU limit in cores.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_limit: Option<f64>,
    /// Its limits when the load began, as read back from the kernel.
    #[serde(skip_serializing_if = "LimitsInForce::is_empty", default)]
    pub limits: LimitsInForce,
    /// When its processes were OOM-killed, seconds on the trial's clock.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub oom_kills_at_s: Vec<f64>,
}

/// Mean and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeanMax {
    /// Mean over time.
    pub mean: Option<f64>,
    /// Largest reading.
    pub max: Option<f64>,
}

/// Memory of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemorySummary {
    /// Mean over time.
    pub mean: Option<f64>,
    /// Largest reading.
    pub max: Option<f64>,
    /// Last reading, after the drain.
    pub last: Option<f64>,
    /// The limit in force at the largest reading.
    pub limit: Option<u64>,
}

/// Network bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InOut {
    /// Received.
    #[serde(rename = "in")]
    pub received: Option<u64>,
    /// Sent.
    #[serde(rename = "out")]
    pub sent: Option<u64>,
}

/// Block I/O bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadWritten {
    /// Read.
    pub read: Option<u64>,
    /// Written.
    pub written: Option<u64>,
}

/// A probe over the load and the drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeSummary {
    /// First reading of the load.
    pub first: Option<f64>,
    /// Last reading, after the drain.
    pub last: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Mean of the readings.
    pub mean: Option<f64>,
    /// Readings that failed.
    #[serde(skip_serializing_if = "is_none_failed", default)]
    pub failed: u64,
}

fn is_none_failed(count: &u64) -> bool {
    *count == 0
}

/// An event of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActionSummary {
    /// Time of the event, seconds on the trial's clock.
    pub at_s: f64,
    /// The event as in the plan: `kill edge2`.
    pub what: String,
    /// Why the event could not be carried out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// What was accepted and never stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Requests answered with success.
    pub accepted: u64,
    /// Requests sent but not answered.
    pub unanswered: u64,
    /// Distinct records stored.
    pub persisted_distinct: u64,
    /// Records stored more than once.
    pub doubled: u64,
    /// Lower bound of the lost.
    pub lost_min: u64,
    /// Upper bound of the lost.
    pub lost_max: u64,
    /// Whether loss was determined by ids, not by counts.
    pub by_id: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hist(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut h = Histogram::new();
        values.into_iter().for_each(|v| h.record(v));
        h
    }

    #[test]
    fn percentiles_among_censored_are_null_with_a_bound() {
        // 60 answered in 1 ms, 40 abandoned after 1,000 ms
        let known = hist(std::iter::repeat_n(1_000_000, 60));
        let censored = hist(std::iter::repeat_n(1_000_000_000, 40));
        let d = Distribution::with_censored(&known, &censored);
        assert_eq!((d.count, d.censored), (100, 40));
        assert_eq!(d.p50, Some(1.0));
        assert_eq!((d.p75, d.over_ms["p75"]), (None, 1000.0));
        assert_eq!((d.max, d.over_ms["max"]), (None, 1000.0));
        // 100 samples support p90, not p95; but its lower end, too, is one that never ended
        assert_eq!((d.over_ms["p90"], d.over_ms["p95"], d.over_ms["p99_99"]), (1000.0, 1000.0, 1000.0));
        assert!(d.few.is_empty());
    }

    #[test]
    fn few_samples_with_censored_ones_are_open_above() {
        // 199 answered in 1 … 199 ms, one abandoned after 30 s: the upper end of p90 is known, those of p95 and above
        // are not.
        let known = hist((1..=199).map(|i| i * 1_000_000));
        let d = Distribution::with_censored(&known, &hist([30_000_000_000]));
        let near = |value: Option<f64>, expect: f64| (value.unwrap() - expect).abs() <= expect / 1000.0;
        assert!(near(d.p95, 190.0), "{d:?}");
        let p99 = d.few.of("p99").unwrap();
        assert!(near(p99.value, 198.0) && near(p99.low, 195.0) && p99.high.is_none(), "{p99:?}");
        // The slowest is the one that never ended: there is no estimate, but still a lower end.
        let p99_9 = d.few.of("p99_9").unwrap();
        assert!(p99_9.value.is_none() && near(p99_9.low, 199.0) && p99_9.high.is_none(), "{p99_9:?}");
        assert_eq!(d.largest_seen(), Some(30_000.0));
        // p99.99 lies above the 200th of 200 at 95 %: it is among those that never ended.
        assert_eq!(d.over_ms.keys().collect::<Vec<_>>(), ["max", "mean", "p99_99"]);
    }

    #[test]
    fn requests_that_hang_together_widen_and_are_said() {
        let known = hist((1..=90).map(|i| i * 1_000_000));
        let plain = Distribution::of(&known);
        let wide = Distribution::dependent(&known, &Histogram::new(), Dependence::known(3.0));
        let (a, b) = (plain.few.of("p90").unwrap(), wide.few.of("p90").unwrap());
        assert!(b.low < a.low && a.high.is_some() && b.high.is_none(), "{a:?} {b:?}");
        assert_eq!((plain.few.widened, wide.few.widened), (None, Some(3.0)));
        let json = serde_json::to_value(&wide).unwrap();
        assert_eq!(
            (&json["p90"], &json["p90_interval"][1]),
            (&serde_json::Value::Null, &serde_json::Value::Null)
        );
        assert_eq!(json["p90_interval"][0].as_f64(), b.low);
        assert_eq!(serde_json::from_value::<Distribution>(json).unwrap(), wide);
    }

    #[test]
    fn a_few_young_in_flight_ones_do_not_hide_the_median() {
        let known = hist((0..100_000).map(|i| 1_000_000 + i * 10));
        let censored = hist((0..50).map(|i| i * 20_000));
        let d = Distribution::with_censored(&known, &censored);
        assert!((d.p50.unwrap() - 1.5).abs() < 0.02, "{d:?}");
        // the censored hide the tail: 50 of 100,050 could be beyond p99.95
        assert_eq!(d.p99_99, None);
        assert!(d.over_ms["p99_99"] > 1.99);
    }

    #[test]
    fn too_few_samples_tell_no_percentile() {
        let d = Distribution::of(&hist([1_000_000; 19]));
        assert_eq!((d.p50, d.max, d.mean), (None, Some(1.0), Some(1.0)));
        assert!(d.over_ms.is_empty());
        assert_eq!(samples_needed(0.5), 20);
        assert_eq!(samples_needed(0.9999), 100_000);
    }
}
