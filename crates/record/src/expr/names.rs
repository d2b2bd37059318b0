//! The names expressions may use, and what their numbers are of.

use super::Kind;
use crate::numbers::NumberSummary;
use crate::outcome::Failure;
use crate::summary::ComponentSummary;

/// Figures of a distribution: behind a prefix (`service.p99`) or alone, then of the response time.
pub const FIGURES: [&str; 11] =
    ["p50", "p75", "p90", "p95", "p99", "p99_9", "p99_99", "max", "mean", "min", "stdev"];

/// Distributions: `service.p99` is of the summary's `service_ms`, `ok.p99` of `ok_response_ms`, and so on.
/// `response.p99` is `p99`.
pub const SERIES_PREFIXES: [&str; 8] =
    ["response", "ok", "failed_response", "service", "late", "blocked", "connect", "tls"];

/// Every built-in name that has no prefix. With [`FIGURES`] behind each of [`SERIES_PREFIXES`] they are all.
///
/// - Figures of the response time.
/// - Counts of the whole load: `due`, `dropped`, `started`, `ok`, `failed`, `in_flight`, each failure by name.
/// - `errors`: failed / started. `availability`: ok / (ok + failed).
/// - `rate`: requests started per second of the window; `goodput`: ok ones.
/// - `accepted`, `unanswered`, `persisted`, `doubled`, `lost` (at most): what a loss check found; without one
///   `accepted` is `ok`.
/// - `drain`, `elapsed`: how long the drain and the load took. `concurrency`: mean in flight.
#[rustfmt::skip]
pub const NAMES: [&str; 40] = [
    "p50", "p75", "p90", "p95", "p99", "p99_9", "p99_99", "max", "mean", "min", "stdev",
    "errors", "availability", "failed", "ok", "started", "due", "dropped", "in_flight",
    "rate", "goodput", "accepted", "unanswered", "persisted", "doubled", "lost",
    "drain", "elapsed", "concurrency",
    "http_4xx", "http_5xx", "check", "timeout", "connect", "dns", "tls", "reset", "truncated",
    "protocol", "too_large",
];

/// What can be asked of a component, behind its name: `edge1.cpu`.
///
/// `cpu` is the mean and `memory` the maximum over the load; `pids` and `open_files` are maxima.
pub(super) const COMPONENT_FIGURES: [(&str, Kind); 18] = [
    ("cpu", Kind::Percent),
    ("cpu.mean", Kind::Percent),
    ("cpu.max", Kind::Percent),
    ("cpu_time", Kind::Duration),
    ("throttled", Kind::Duration),
    ("memory", Kind::Bytes),
    ("memory.mean", Kind::Bytes),
    ("memory.max", Kind::Bytes),
    ("memory.last", Kind::Bytes),
    ("memory.limit", Kind::Bytes),
    ("net.in", Kind::Bytes),
    ("net.out", Kind::Bytes),
    ("block.read", Kind::Bytes),
    ("block.written", Kind::Bytes),
    ("pids", Kind::Plain),
    ("open_files", Kind::Plain),
    ("oom_kills", Kind::Plain),
    ("restarts", Kind::Plain),
];

/// Counts that a tag has, besides each failure by name.
const TAG_COUNTS: [&str; 7] = ["errors", "failed", "ok", "started", "due", "dropped", "in_flight"];

/// Distributions a tag has besides its response times.
const TAG_PREFIXES: [&str; 2] = ["ok", "failed_response"];

/// What a probe can be asked for behind its name, which alone is its last reading.
const PROBE_FIGURES: [&str; 4] = ["first", "last", "max", "mean"];

/// Every built-in name, those with prefixes included.
pub fn built_in_names() -> Vec<String> {
    let mut names: Vec<String> = NAMES.iter().map(|n| (*n).to_owned()).collect();
    for prefix in SERIES_PREFIXES {
        names.extend(FIGURES.iter().map(|figure| format!("{prefix}.{figure}")));
    }
    names
}

/// Every name about a component.
pub fn component_names(component: &str) -> Vec<String> {
    COMPONENT_FIGURES.iter().map(|(figure, _)| format!("{component}.{figure}")).collect()
}

/// The component that a name is about, and what is asked of it: `edge1.cpu.max` is `edge1` and `cpu.max`. The longest
/// figure that fits is meant.
pub fn component_figure(name: &str) -> Option<(&str, &'static str)> {
    let fits = COMPONENT_FIGURES.iter().filter_map(|(figure, _)| {
        let component = name.strip_suffix(figure)?.strip_suffix('.')?;
        (!component.is_empty()).then_some((component, *figure))
    });
    fits.max_by_key(|(_, figure)| figure.len())
}

/// A number of a component by the name behind its own, such as `cpu.max`; with what it is of, unless it was not measured.
pub fn number_of_component(component: &ComponentSummary, figure: &str) -> Option<(f64, Kind)> {
    let (_, kind) = COMPONENT_FIGURES.iter().find(|(name, _)| *name == figure)?;
    component_number(component, figure).map(|value| (value, *kind))
}

/// Every name about the requests with a tag.
pub fn tag_names(tag: &str) -> Vec<String> {
    let counts = TAG_COUNTS.into_iter().chain(Failure::ALL.into_iter().map(Failure::name));
    let mut names: Vec<String> =
        FIGURES.into_iter().chain(counts).map(|n| format!("tag.{tag}.{n}")).collect();
    for prefix in TAG_PREFIXES {
        names.extend(FIGURES.iter().map(|figure| format!("tag.{tag}.{prefix}.{figure}")));
    }
    names
}

/// Every name about a number that is captured from answers.
pub fn number_names(number: &str) -> Vec<String> {
    NumberSummary::FIGURES.iter().map(|figure| format!("number.{number}.{figure}")).collect()
}

/// Every name about a probe. Built-in names go before probes of the same name.
pub fn probe_names(probe: &str) -> Vec<String> {
    let figures = PROBE_FIGURES.iter().map(|figure| format!("{probe}.{figure}"));
    std::iter::once(probe.to_owned()).chain(figures).collect()
}

/// What a built-in name is of; `None` for names that are not built in.
pub fn built_in_kind(name: &str) -> Option<Kind> {
    if let Some((prefix, figure)) = name.split_once('.') {
        let known = SERIES_PREFIXES.contains(&prefix) && FIGURES.contains(&figure);
        return known.then_some(Kind::Duration);
    }
    if !NAMES.contains(&name) {
        return None;
    }
    Some(match name {
        "errors" | "availability" => Kind::Fraction,
        "rate" | "goodput" => Kind::Rate,
        "drain" | "elapsed" => Kind::Duration,
        _ if FIGURES.contains(&name) => Kind::Duration,
        _ => Kind::Plain,
    })
}

/// What a name is of as far as its form tells: built-in ones, `tag.NAME.p99`, `number.NAME.p99`, `COMPONENT.cpu`. A probe may
/// have such a form too (`cache.memory`): who knows the probes asks about them first.
pub fn kind_of(name: &str) -> Option<Kind> {
    if let Some(kind) = built_in_kind(name) {
        return Some(kind);
    }
    if let Some((tag, last)) = name.strip_prefix("tag.").and_then(|rest| rest.rsplit_once('.')) {
        return match last {
            _ if tag.is_empty() => None,
            _ if FIGURES.contains(&last) => Some(Kind::Duration),
            "errors" => Some(Kind::Fraction),
            _ => Some(Kind::Plain),
        };
    }
    if let Some((number, figure)) = name.strip_prefix("number.").and_then(|rest| rest.rsplit_once('.'))
        && !number.is_empty()
        && NumberSummary::FIGURES.contains(&figure)
    {
        return Some(Kind::Plain);
    }
    let mut figures = COMPONENT_FIGURES.iter();
    let found = figures.find(|(figure, _)| {
        let component = name.strip_suffix(figure).and_then(|rest| rest.strip_suffix('.'));
        component.is_some_and(|c| !c.is_empty())
    });
    found.map(|(_, kind)| *kind)
}

pub(super) fn component_number(c: &ComponentSummary, figure: &str) -> Option<f64> {
    let count = |n: Option<u64>| n.map(|n| n as f64);
    match figure {
        "cpu" | "cpu.mean" => c.cpu_percent.mean,
        "cpu.max" => c.cpu_percent.max,
        "cpu_time" => c.cpu_s.map(|s| s * 1000.0),
        "throttled" => c.throttled_s.map(|s| s * 1000.0),
        "memory" | "memory.max" => c.memory_bytes.max,
        "memory.mean" => c.memory_bytes.mean,
        "memory.last" => c.memory_bytes.last,
        "memory.limit" => count(c.memory_bytes.limit),
        "net.in" => count(c.net_bytes.received),
        "net.out" => count(c.net_bytes.sent),
        "block.read" => count(c.block_bytes.read),
        "block.written" => count(c.block_bytes.written),
        "pids" => count(c.pids_max),
        "open_files" => count(c.open_files_max),
        "oom_kills" => count(c.oom_kills),
        "restarts" => Some(c.restarts as f64),
        _ => None,
    }
}
