//! The figures that cases are compared by: one table, read by findings, tables, CSV and JSON alike.
//!
//! The first twelve are siege's, under siege's names, so that a table made by hand from siege can be laid
//! beside ours; then our own.

use std::borrow::Cow;
use std::cell::Cell;

use loadlab_record::Failure;
use loadlab_record::counts::numbers::NumberSummary;
use loadlab_record::counts::quantile::{Estimate, quantile_of, samples_needed};
pub use loadlab_record::documents::figure::Better;
use loadlab_record::documents::figure::{FigureValue, NumberKind};
use loadlab_record::documents::manifest::FigureFacts;
use loadlab_record::documents::summary::{ComponentSummary, Distribution, LoadFacts, Summary};
use loadlab_record::expr::{Formula, Known, NumberSource, TrialPart};

/// A figure of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// The value.
    Known(f64),
    /// A lower bound: the value lies among censored ones.
    Over(f64),
    /// Too few samples: only an interval is known, at 95 %.
    Between(Few),
    /// No value.
    Nothing,
}

/// What too few samples show about a percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Few {
    /// Estimate and interval.
    pub estimate: Estimate,
    /// The largest sample: if the interval has no upper end, the percentile may be that or more.
    pub largest: Option<f64>,
    /// Samples that would give a number.
    pub needed: u64,
}

impl Few {
    /// Whether only the number of samples needed is known, as in older records.
    pub fn is_unknown(self) -> bool {
        self.estimate == Estimate::default()
    }

    /// Its most likely value, or its lower bound.
    pub fn likely(self) -> f64 {
        self.estimate.value.or(self.estimate.low).unwrap_or(0.0)
    }
}

impl Value {
    /// The number, if it is known.
    pub fn known(self) -> Option<f64> {
        match self {
            Value::Known(v) => Some(v),
            _ => None,
        }
    }
}

impl From<Option<f64>> for Value {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Value::Nothing, Value::Known)
    }
}

/// The unit of a figure's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A whole number.
    Count,
    /// A number.
    Number,
    /// Events per second.
    PerS,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
    /// 0..=1, read as per cent.
    Share,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerS,
    /// Per cent of one core.
    CpuPercent,
}

impl Unit {
    /// Its name in CSV and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Number => "number",
            Unit::PerS => "per_s",
            Unit::Ms => "ms",
            Unit::S => "s",
            Unit::Share => "share",
            Unit::Bytes => "bytes",
            Unit::BytesPerS => "bytes_per_s",
            Unit::CpuPercent => "percent_of_core",
        }
    }
}

impl From<NumberKind> for Unit {
    fn from(kind: NumberKind) -> Unit {
        match kind {
            NumberKind::Plain => Unit::Number,
            NumberKind::Fraction => Unit::Share,
            NumberKind::Percent => Unit::CpuPercent,
            NumberKind::Duration => Unit::Ms,
            NumberKind::Bytes => Unit::Bytes,
            NumberKind::Rate => Unit::PerS,
        }
    }
}

/// A part of a trial that has its own figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Requests of a step, or with a tag.
    Step(String),
    /// One of several loads.
    Load(String),
    /// A batch of the load, from 1.
    Batch(u32),
    /// A component of the system.
    Component(String),
    /// A probe.
    Probe(String),
}

/// How a figure of a part is read.
#[derive(Clone, Debug)]
pub(crate) struct OfPart {
    /// The part.
    pub(crate) part: Part,
    /// Name of the figure, as for the whole trial.
    pub(crate) name: &'static str,
    /// Its name for readers.
    pub(crate) title: String,
    /// Reads the figure of this name from a part.
    pub(crate) read: fn(&Part, &'static str, &Summary) -> Value,
}

/// How a figure is read from a summary.
#[derive(Clone, Debug)]
enum Read {
    Plain(fn(&Summary) -> Value),
    /// A count of one kind of failure.
    Failures(Failure),
    /// A figure that the plan names, under its id.
    OfPlan(NumberKind),
    /// A figure of a part of the trial.
    OfPart(OfPart),
}

/// The value of a plan's figure.
pub fn of_figure(figure: &FigureValue, kind: NumberKind) -> Value {
    match figure.known(kind) {
        Known::Is(value, _) => Value::Known(value),
        Known::AtLeast(value, _) => Value::Over(value),
        Known::Between(b) => {
            Value::Between(Few { estimate: b.estimate, largest: b.largest, needed: b.few.needed })
        }
        Known::Unknown(_) => Value::Nothing,
    }
}

/// A figure: name, unit, and where to find it in a summary.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Name, as in CSV and JSON.
    pub id: Cow<'static, str>,
    /// What it is, in a few words.
    pub about: Cow<'static, str>,
    /// Unit of its number.
    pub unit: Unit,
    /// What a plain number counts, if the plan declares it: `documents`.
    pub counts: Option<String>,
    /// Which direction is better, as the plan declares or implies.
    better: Option<Better>,
    /// How the plan computes it.
    value: Option<String>,
    read: Read,
}

/// Compares by name, unit and direction.
impl PartialEq for Metric {
    fn eq(&self, other: &Metric) -> bool {
        (&self.id, self.unit, self.better) == (&other.id, other.unit, other.better)
    }
}

impl Metric {
    const fn new(id: &'static str, about: &'static str, unit: Unit, read: fn(&Summary) -> Value) -> Metric {
        let (id, about) = (Cow::Borrowed(id), Cow::Borrowed(about));
        Metric { id, about, unit, counts: None, better: None, value: None, read: Read::Plain(read) }
    }

    /// A figure that a plan names.
    pub fn of_plan(facts: &FigureFacts) -> Metric {
        Metric {
            id: Cow::Owned(facts.name.clone()),
            about: Cow::Owned(facts.about.clone().unwrap_or_else(|| facts.value.clone())),
            unit: facts.kind.into(),
            counts: facts.unit.clone(),
            better: Some(facts.better),
            value: Some(facts.value.clone()),
            read: Read::OfPlan(facts.kind),
        }
    }

    /// A figure of a part of the trial: its id, and what it is.
    pub(crate) fn of_part(of: OfPart, id: String, about: &'static str, unit: Unit, better: Better) -> Metric {
        Metric {
            id: Cow::Owned(id),
            about: Cow::Borrowed(about),
            unit,
            counts: None,
            better: Some(better),
            value: None,
            read: Read::OfPart(of),
        }
    }

    /// The part of the trial that it describes; `None` for the whole.
    pub fn part(&self) -> Option<&Part> {
        if let Read::OfPart(of) = &self.read { Some(&of.part) } else { None }
    }

    /// Its name for readers: the plan's own unchanged, the others in words.
    pub fn title(&self) -> String {
        match &self.read {
            Read::OfPlan(_) => return self.id.to_string(),
            Read::OfPart(of) => return of.title.clone(),
            Read::Plain(_) | Read::Failures(_) => {}
        }
        match &*self.id {
            "cpu_per_request" => "CPU per request".to_owned(),
            "memory_peak" => "peak memory".to_owned(),
            "lost_max" => "lost, at most".to_owned(),
            id => id.replace('_', if id.starts_with('p') { "." } else { " " }),
        }
    }

    /// Which direction is better.
    pub fn better(&self) -> Better {
        if let Some(better) = self.better {
            return better;
        }
        match &*self.id {
            id if MORE_IS_BETTER.contains(&id) => Better::More,
            id if NEITHER_IS_BETTER.contains(&id) => Better::Neither,
            _ => Better::Less,
        }
    }

    /// Whether it is the built-in figure of this name, or the plan's name for it.
    pub fn stands_for(&self, id: &str) -> bool {
        self.id == id || self.value.as_deref().is_some_and(|value| value.trim() == id)
    }

    /// The figure's value in a trial.
    pub fn of(&self, summary: &Summary) -> Value {
        let is_of_whole = matches!(self.read, Read::Plain(_) | Read::Failures(_));
        let is_of_load = is_of_whole && !OF_SYSTEM.iter().any(|m| m.id == self.id);
        if is_of_load && summary.load.is_command() && !OF_COMMANDS.contains(&&*self.id) {
            return Value::Nothing;
        }
        match &self.read {
            Read::OfPlan(kind) => {
                summary.figures.get(&*self.id).map_or(Value::Nothing, |figure| of_figure(figure, *kind))
            }
            Read::OfPart(of) => (of.read)(&of.part, of.name, summary),
            Read::Plain(read) => read(summary),
            Read::Failures(kind) => Value::Known(summary.failures.get(*kind) as f64),
        }
    }

    /// How exactly the figure is known in a trial, in its own unit: a smaller difference says nothing. 0 unless it is
    /// one of memory, which the kernel charges ahead on each core of the machine, for each component.
    pub fn resolution(&self, summary: &Summary) -> f64 {
        // Older records do not know the number of cores.
        let of_reading = CHARGED_AHEAD_BYTES * summary.generator.machine_cores.unwrap_or(1) as f64;
        match &self.read {
            Read::Plain(_) if self.id == "memory_peak" => of_reading * summary.components.len() as f64,
            Read::OfPart(of) if of.name == "memory_max" => of_reading,
            Read::OfPlan(NumberKind::Bytes) => {
                let known = self.value.as_deref().and_then(|text| shift_by(text, of_reading, summary));
                known.unwrap_or(0.0)
            }
            _ => 0.0,
        }
    }
}

/// What the kernel charges a control group at a time, and keeps for it on each core (`MEMCG_CHARGE_BATCH`, 64 pages).
pub(crate) const CHARGED_AHEAD_BYTES: f64 = 262_144.0;
/// Readings of a component's memory, as conditions name them.
const READINGS_OF_MEMORY: [&str; 4] = ["memory", "memory.max", "memory.mean", "memory.last"];

/// By how much a figure of a plan is off if each reading of memory in it is off by this much: factors count. `None` if
/// anything else is part of it, as in memory per request, or if readings are divided by readings.
fn shift_by(text: &str, bytes: f64, summary: &Summary) -> Option<f64> {
    let formula = Formula::parse(text).ok()?;
    let names = formula.names();
    let is_reading = |name: &str| {
        let of = |component: &str| name.strip_prefix(component)?.strip_prefix('.');
        let mut figures = summary.components.keys().filter_map(|component| of(component));
        figures.any(|figure| READINGS_OF_MEMORY.contains(&figure))
    };
    if !names.iter().all(|name| is_reading(&name.text)) {
        return None;
    }
    let value = |shifted: Option<usize>| {
        let readings = ShiftedReading { shifted, bytes, evaluated: Cell::new(0) };
        formula.evaluate(&readings).ok().map(|(value, _)| value)
    };
    let level = value(None)?;
    (0..names.len()).map(|place| Some((value(Some(place))? - level).abs())).sum()
}

/// Readings of memory that are all 0, except for one. An expression reads each of its names once, always in the same
/// order.
struct ShiftedReading {
    /// Which one, in that order.
    shifted: Option<usize>,
    bytes: f64,
    evaluated: Cell<usize>,
}

impl NumberSource for ShiftedReading {
    fn number(&self, _: &str, _: Option<TrialPart>) -> Known {
        let place = self.evaluated.replace(self.evaluated.get() + 1);
        Known::Is(if self.shifted == Some(place) { self.bytes } else { 0.0 }, NumberKind::Bytes)
    }

    fn steady(&self, _: &str, _: u64) -> Option<bool> {
        None
    }
}

/// Figures for which more is better.
const MORE_IS_BETTER: [&str; 9] = [
    "transactions",
    "successful_transactions",
    "availability",
    "transaction_rate",
    "throughput",
    "goodput",
    "goodput_max",
    "accepted",
    "persisted",
];
/// Figures for which neither more nor less is better.
const NEITHER_IS_BETTER: [&str; 4] = ["elapsed_time", "data_transferred", "concurrency", "within_stdev"];

/// The figures of a load that a program generates: nothing else of it is visible.
const OF_COMMANDS: [&str; 14] = [
    "transactions",
    "elapsed_time",
    "transaction_rate",
    "successful_transactions",
    "goodput",
    "goodput_stdev",
    "goodput_max",
    "dropped",
    "drain",
    "accepted",
    "persisted",
    "lost_min",
    "lost_max",
    "loss",
];

/// siege's twelve rows, in siege's order.
pub const SIEGE: [Metric; 12] = [
    Metric::new("transactions", "complete responses", Unit::Count, |s| {
        Value::Known(s.statuses.values().sum::<u64>().max(s.requests.ok) as f64)
    }),
    Metric::new("availability", "ok of all that ended", Unit::Share, |s| s.availability.into()),
    Metric::new("elapsed_time", "first start to last outcome", Unit::S, |s| Value::Known(s.elapsed_s)),
    Metric::new("data_transferred", "received", Unit::Bytes, |s| Value::Known(s.bytes.received as f64)),
    Metric::new("response_time", "mean", Unit::Ms, |s| figure(&s.response_ms, "mean")),
    Metric::new("transaction_rate", "ok per second", Unit::PerS, |s| Value::Known(s.rate_per_s.ok)),
    Metric::new("throughput", "received per second of the elapsed time", Unit::BytesPerS, |s| {
        Some(s.bytes.received as f64 / s.elapsed_s).filter(|v| v.is_finite()).into()
    }),
    Metric::new("concurrency", "mean in flight", Unit::Number, |s| Value::Known(s.concurrency_mean)),
    Metric::new("successful_transactions", "ok", Unit::Count, |s| Value::Known(s.requests.ok as f64)),
    Metric::new("failed_transactions", "failed", Unit::Count, |s| Value::Known(s.requests.failed as f64)),
    Metric::new("longest_transaction", "slowest response", Unit::Ms, |s| figure(&s.response_ms, "max")),
    Metric::new("shortest_transaction", "fastest response", Unit::Ms, |s| figure(&s.response_ms, "min")),
];

/// Our own rows, in addition to siege's.
pub const LOADLAB_METRICS: [Metric; 14] = [
    Metric::new("goodput", "ok per second", Unit::PerS, |s| Value::Known(s.rate_per_s.ok)),
    Metric::new("goodput_stdev", "over the seconds of the window", Unit::PerS, |s| {
        s.rate_per_s.ok_stdev.into()
    }),
    Metric::new("goodput_max", "best second", Unit::PerS, |s| s.rate_per_s.ok_max.into()),
    Metric::new("errors", "failed share of started requests", Unit::Share, |s| {
        // If none ended, it is not known how many fail.
        let started = s.started_by_loadlab();
        let is_known = started > 0 && s.ended_by_loadlab() > 0;
        is_known.then(|| s.requests.failed as f64 / started as f64).into()
    }),
    Metric::new("dropped", "due and never sent", Unit::Count, |s| Value::Known(s.requests.dropped as f64)),
    Metric::new("in_flight", "still in flight at the end", Unit::Count, |s| {
        Value::Known(s.requests.in_flight as f64)
    }),
    Metric::new("stragglers", "ended after the load was over", Unit::Count, |s| {
        Value::Known(s.stragglers.count() as f64)
    }),
    Metric::new("tail", "from when no more requests began to the last answer", Unit::S, |s| {
        Value::Known(s.stragglers.tail_s)
    }),
    Metric::new("p50", "median response", Unit::Ms, |s| figure(&s.response_ms, "p50")),
    Metric::new("p75", "of responses", Unit::Ms, |s| figure(&s.response_ms, "p75")),
    Metric::new("p90", "of responses", Unit::Ms, |s| figure(&s.response_ms, "p90")),
    Metric::new("p95", "of responses", Unit::Ms, |s| figure(&s.response_ms, "p95")),
    Metric::new("p99", "of responses", Unit::Ms, |s| figure(&s.response_ms, "p99")),
    Metric::new("p99_9", "of responses", Unit::Ms, |s| figure(&s.response_ms, "p99_9")),
];

/// Figures of responses, errors and seconds that wrk prints beyond the rows above.
const WRK: [Metric; 5] = [
    Metric::new("stdev", "of responses", Unit::Ms, |s| figure(&s.response_ms, "stdev")),
    Metric::new("within_stdev", "of responses", Unit::Share, |s| s.response_ms.within_stdev.into()),
    Metric::new("connect_errors", "no connection: not made, no name, no TLS", Unit::Count, |s| {
        failed(s, &[Failure::Connect, Failure::Dns, Failure::Tls])
    }),
    // A peer that goes away shows at the next read or write, whichever comes first: wrk's two counts are one here.
    Metric::new(
        "io_errors",
        "connections that ended early, and answers that were not HTTP",
        Unit::Count,
        |s| failed(s, &[Failure::Reset, Failure::Truncated, Failure::Protocol]),
    ),
    Metric::new("not_2xx_3xx", "responses with another status", Unit::Count, |s| {
        let others = s.statuses.iter().filter(|(status, _)| !(200..400).contains(*status));
        Value::Known(others.map(|(_, n)| *n).sum::<u64>() as f64)
    }),
];

fn failed(summary: &Summary, kinds: &[Failure]) -> Value {
    Value::Known(kinds.iter().map(|kind| summary.failures.get(*kind)).sum::<u64>() as f64)
}

/// What happened after the load.
pub const AFTER: [Metric; 5] = [
    Metric::new("drain", "until the work was done", Unit::S, |s| s.drain_s.into()),
    Metric::new(
        "accepted",
        "answered with success, where ids or a count show what was stored",
        Unit::Count,
        |s| s.loss.map(|l| l.accepted as f64).into(),
    ),
    Metric::new("persisted", "sent and found in the store", Unit::Count, |s| {
        s.loss.map(|l| l.persisted_distinct as f64).into()
    }),
    Metric::new("lost_min", "accepted and not stored, at least", Unit::Count, |s| {
        s.loss.map(|l| l.lost_min as f64).into()
    }),
    Metric::new("lost_max", "accepted but not stored, at most", Unit::Count, |s| {
        s.loss.map(|l| l.lost_max as f64).into()
    }),
];

/// Resources used by the whole system.
pub const OF_SYSTEM: [Metric; 2] = [
    Metric::new("cpu_per_request", "CPU time of all components per ok response", Unit::Ms, |s| {
        let cpu_s = over_components(s, |c| c.cpu_s);
        cpu_s.filter(|_| s.requests.ok > 0).map(|v| v / s.requests.ok as f64 * 1e3).into()
    }),
    Metric::new("memory_peak", "peak memory of each component, summed", Unit::Bytes, |s| {
        over_components(s, |c| c.memory_bytes.max).into()
    }),
];

/// A sum over all components; `None` if there are no components, or one does not report it.
fn over_components(summary: &Summary, read: ReadComponent) -> Option<f64> {
    let all: Option<Vec<f64>> = summary.components.values().map(read).collect();
    all.filter(|a| !a.is_empty()).map(|a| a.iter().sum())
}

/// What was lost, as a share.
const LOSS: Metric = Metric::new("loss", "accepted but not stored, at most", Unit::Share, |s| {
    let lost = s.loss.filter(|l| l.accepted > 0);
    lost.map(|l| l.lost_max as f64 / l.accepted as f64).into()
});

/// A count for every kind of failure.
pub fn failures() -> impl Iterator<Item = Metric> {
    Failure::ALL.into_iter().map(|kind| Metric {
        id: Cow::Borrowed(kind.name()),
        about: Cow::Borrowed("failures of this kind"),
        unit: Unit::Count,
        counts: None,
        better: None,
        value: None,
        read: Read::Failures(kind),
    })
}

/// All figures.
pub fn all() -> Vec<Metric> {
    let own = SIEGE.into_iter().chain(LOADLAB_METRICS).chain(WRK).chain(AFTER);
    own.chain(OF_SYSTEM).chain([LOSS]).chain(failures()).collect()
}

/// The figure with a name.
pub fn named(id: &str) -> Option<Metric> {
    all().into_iter().find(|m| m.id == id)
}

/// The figures that matter if the plan names none, limited to those that any of the trials has.
pub fn usual(trials: &[&Summary]) -> Vec<Metric> {
    let ids = ["goodput", "errors", "p50", "p99", "cpu_per_request", "memory_peak", "drain", "lost_max"];
    let has = |m: &Metric| trials.iter().any(|s| m.of(s) != Value::Nothing);
    ids.into_iter().filter_map(named).filter(has).collect()
}

/// A figure of a distribution; if it is unknown, what is known about it.
pub fn figure(distribution: &Distribution, name: &str) -> Value {
    if let Some(over) = distribution.over_ms.get(name) {
        return Value::Over(*over);
    }
    if let Some(value) = distribution.figure(name).flatten() {
        return Value::Known(value);
    }
    match distribution.few.of(name).zip(quantile_of(name)) {
        Some((estimate, quantile)) => Value::Between(Few {
            estimate,
            largest: distribution.largest_seen(),
            needed: samples_needed(quantile),
        }),
        None => before(distribution, name).map_or(Value::Nothing, Value::Between),
    }
}

/// A figure of captured numbers; if it is unknown, what is known about it.
pub fn number(number: &NumberSummary, name: &str) -> Value {
    let estimated = number.few.of(name).zip(quantile_of(name));
    let few = |(estimate, quantile)| {
        Value::Between(Few { estimate, largest: number.max, needed: samples_needed(quantile) })
    };
    estimated.map_or_else(|| number.figure(name).flatten().into(), few)
}

/// Failed requests of one of several loads: nothing is known of those that a program makes.
pub fn failed_of_load(summary: &Summary, load: &str) -> Value {
    let is_command = summary.load.loads.get(load).is_some_and(LoadFacts::is_command);
    match summary.by_load.get(load).filter(|_| !is_command) {
        Some(load) => Value::Known(load.requests.failed as f64),
        None => Value::Nothing,
    }
}

/// For older records, which only have the number of samples.
fn before(distribution: &Distribution, name: &str) -> Option<Few> {
    let needed = quantile_of(name).map(samples_needed)?;
    let few = 0 < distribution.count && distribution.count < needed;
    few.then(|| Few { estimate: Estimate::default(), largest: None, needed })
}

/// Reads a figure of a component.
pub type ReadComponent = fn(&ComponentSummary) -> Option<f64>;

/// What is reported about a component, for files: name, unit, and where to find it.
pub const COMPONENT: [(&str, Unit, ReadComponent); 18] = [
    ("cpu_percent_mean", Unit::CpuPercent, |c| c.cpu_percent.mean),
    ("cpu_percent_max", Unit::CpuPercent, |c| c.cpu_percent.max),
    ("cpu_s", Unit::S, |c| c.cpu_s),
    ("cpu_limit", Unit::Number, |c| c.cpu_limit),
    ("throttled_s", Unit::S, |c| c.throttled_s),
    ("memory_mean", Unit::Bytes, |c| c.memory_bytes.mean),
    ("memory_max", Unit::Bytes, |c| c.memory_bytes.max),
    ("memory_last", Unit::Bytes, |c| c.memory_bytes.last),
    ("memory_limit", Unit::Bytes, |c| c.memory_bytes.limit.map(|v| v as f64)),
    ("memory_share", Unit::Share, |c| {
        Some(c.memory_bytes.max? / c.memory_bytes.limit.filter(|l| *l > 0)? as f64)
    }),
    ("net_in", Unit::Bytes, |c| c.net_bytes.received.map(|v| v as f64)),
    ("net_out", Unit::Bytes, |c| c.net_bytes.sent.map(|v| v as f64)),
    ("block_read", Unit::Bytes, |c| c.block_bytes.read.map(|v| v as f64)),
    ("block_written", Unit::Bytes, |c| c.block_bytes.written.map(|v| v as f64)),
    ("pids_max", Unit::Count, |c| c.pids_max.map(|v| v as f64)),
    ("open_files_max", Unit::Count, |c| c.open_files_max.map(|v| v as f64)),
    ("oom_kills", Unit::Count, |c| c.oom_kills.map(|v| v as f64)),
    ("restarts", Unit::Count, |c| Some(c.restarts as f64)),
];
