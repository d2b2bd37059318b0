//! The names expressions may use, and the kinds of their numbers.

use super::NumberKind;
use crate::counts::numbers::NumberSummary;
use crate::documents::summary::ComponentSummary;

/// A table's entry: name, kind, and meaning, for the page of all names.
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) kind: NumberKind,
    pub(super) doc: &'static str,
}

const fn named(name: &'static str, kind: NumberKind, doc: &'static str) -> Named {
    Named { name, kind, doc }
}

/// The names of a table.
const fn names_in<const N: usize>(table: &[Named; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut i = 0;
    while i < N {
        names[i] = table[i].name;
        i += 1;
    }
    names
}

/// Figures of a distribution.
pub(super) const TIMES: [Named; 11] = [
    named("p50", NumberKind::Duration, "The median."),
    named("p75", NumberKind::Duration, "Three of four are at most this."),
    named("p90", NumberKind::Duration, "Nine of ten."),
    named("p95", NumberKind::Duration, "19 of 20."),
    named("p99", NumberKind::Duration, "99 of 100."),
    named("p99_9", NumberKind::Duration, "999 of 1,000; also written `p99.9`."),
    named("p99_99", NumberKind::Duration, "9,999 of 10,000; also written `p99.99`."),
    named("max", NumberKind::Duration, "The longest."),
    named("mean", NumberKind::Duration, "The arithmetic mean."),
    named("min", NumberKind::Duration, "The shortest."),
    named("stdev", NumberKind::Duration, "The standard deviation."),
];

/// Figures of a distribution: after a prefix (`service.p99`), or alone for the response time.
pub const FIGURES: [&str; 11] = names_in(&TIMES);

/// Distributions. Their figures are durations.
pub(super) const SERIES: [Named; 8] = [
    named(
        "response",
        NumberKind::Duration,
        "From when a request was due to the end of its response; requests that never ended count at their age. `response.p99` is `p99`.",
    ),
    named("ok", NumberKind::Duration, "The same, of ok responses only."),
    named("failed_response", NumberKind::Duration, "The same, of failed responses only."),
    named("service", NumberKind::Duration, "From when a request was started to the end of its response."),
    named(
        "late",
        NumberKind::Duration,
        "From when a request was due to when loadlab noticed: the generator's own delay.",
    ),
    named("blocked", NumberKind::Duration, "Waiting for a free connection or slot."),
    named("connect", NumberKind::Duration, "Opening a connection."),
    named("tls", NumberKind::Duration, "The TLS handshake."),
];

/// Distributions: `service.p99` is of the summary's `service_ms`, `ok.p99` of `ok_response_ms`, and so on.
/// `response.p99` is `p99`.
pub const SERIES_PREFIXES: [&str; 8] = names_in(&SERIES);

/// Counts of the requests of a load or a tag, and the share of errors.
pub(super) const COUNTS: [Named; 18] = [
    named("errors", NumberKind::Fraction, "Share of started requests that failed: `errors < 0.1%`."),
    named("due", NumberKind::Plain, "Requests that fell due: `started` + `dropped`."),
    named("dropped", NumberKind::Plain, "Requests that were due and never started."),
    named("started", NumberKind::Plain, "Requests that were started: `ok` + `failed` + `in_flight`."),
    named(
        "ok",
        NumberKind::Plain,
        "Complete responses with a status below 400, or as the step's checks decide.",
    ),
    named("failed", NumberKind::Plain, "All failures: the sum of `http_4xx` to `too_large`."),
    named("in_flight", NumberKind::Plain, "Requests still under way when the load ended."),
    named("http_4xx", NumberKind::Plain, "Responses with a status of 400 to 499."),
    named("http_5xx", NumberKind::Plain, "Responses with a status of 500 or above."),
    named("check", NumberKind::Plain, "Responses that failed a check of the plan."),
    named("timeout", NumberKind::Plain, "No complete response within the timeout."),
    named("connect", NumberKind::Plain, "The connection could not be opened."),
    named("dns", NumberKind::Plain, "The host's name could not be resolved."),
    named("tls", NumberKind::Plain, "The TLS handshake failed."),
    named("reset", NumberKind::Plain, "The connection was closed or reset before any byte of a response."),
    named("truncated", NumberKind::Plain, "The connection ended inside a response."),
    named("protocol", NumberKind::Plain, "What was received is not a valid response."),
    named("too_large", NumberKind::Plain, "The response exceeds a limit of loadlab."),
];

/// Figures of the whole load that tags do not have.
pub(super) const WHOLE: [Named; 8] = [
    named("rate", NumberKind::Rate, "Requests started per second of the measured window."),
    named("goodput", NumberKind::Rate, "Ok responses per second of the measured window."),
    named("availability", NumberKind::Fraction, "ok / (ok + failed), without requests of programs."),
    named("concurrency", NumberKind::Plain, "Mean number of requests in flight."),
    named(
        "not_offered",
        NumberKind::Plain,
        "Requests that nobody sent because agents of a swarm were lost, at most: `not_offered == 0`.",
    ),
    named("elapsed", NumberKind::Duration, "How long the load took."),
    named("drain", NumberKind::Duration, "How long the drain took; needs `drain` in the plan."),
    named(
        "capacity",
        NumberKind::Rate,
        "The highest rate, or number of users, that meets the conditions of `find`; needs `find` in the plan.",
    ),
];

/// The results of a durability check, and its starting point.
pub(super) const STORED: [Named; 5] = [
    named(
        "accepted",
        NumberKind::Plain,
        "Requests that were answered ok; without `durability` the same as `ok`.",
    ),
    named(
        "unanswered",
        NumberKind::Plain,
        "Requests that were sent and got no answer: they may be stored or not.",
    ),
    named("persisted", NumberKind::Plain, "Distinct ids, or the count, found in the store."),
    named("doubled", NumberKind::Plain, "Ids that were stored more than once."),
    named("lost", NumberKind::Plain, "Accepted and not stored, at most: `lost == 0`."),
];

/// Every built-in name without a prefix. With [`FIGURES`] after each of [`SERIES_PREFIXES`] these are all: figures of
/// the response time, counts of the whole load with each failure by name, rates, and the results of a durability
/// check.
pub const NAMES: [&str; 42] = {
    let parts: [&[Named]; 4] = [&TIMES, &COUNTS, &WHOLE, &STORED];
    let mut names = [""; 42];
    let (mut part, mut next) = (0, 0);
    while part < parts.len() {
        let mut i = 0;
        while i < parts[part].len() {
            names[next] = parts[part][i].name;
            (i, next) = (i + 1, next + 1);
        }
        part += 1;
    }
    names
};

/// Figures of a component, after its name: `edge1.cpu`.
pub(super) const COMPONENT_FIGURES: [Named; 18] = [
    named("cpu", NumberKind::Percent, "Mean CPU during the load; 100% is one core. The same as `cpu.mean`."),
    named("cpu.mean", NumberKind::Percent, "Mean CPU during the load; 100% is one core."),
    named("cpu.max", NumberKind::Percent, "CPU of its busiest sample."),
    named("cpu_time", NumberKind::Duration, "CPU time during the load."),
    named("throttled", NumberKind::Duration, "How long its CPU limit stopped it."),
    named("memory", NumberKind::Bytes, "Largest memory during the load. The same as `memory.max`."),
    named("memory.mean", NumberKind::Bytes, "Mean memory during the load."),
    named("memory.max", NumberKind::Bytes, "Largest memory during the load."),
    named("memory.last", NumberKind::Bytes, "Memory in the last sample."),
    named("memory.limit", NumberKind::Bytes, "Its memory limit."),
    named("net.in", NumberKind::Bytes, "Bytes received over its network."),
    named("net.out", NumberKind::Bytes, "Bytes sent over its network."),
    named("block.read", NumberKind::Bytes, "Bytes read from disks."),
    named("block.written", NumberKind::Bytes, "Bytes written to disks."),
    named("pids", NumberKind::Plain, "Largest number of processes and threads."),
    named("open_files", NumberKind::Plain, "Largest number of open files."),
    named("oom_kills", NumberKind::Plain, "Processes killed for lack of memory."),
    named(
        "restarts",
        NumberKind::Plain,
        "How often it was started again, over the whole trial; unknown for a part.",
    ),
];

/// Distributions a tag has besides its response times.
pub(super) const TAG_PREFIXES: [&str; 2] = ["ok", "failed_response"];

/// Figures of a probe, after its name, which alone is its last reading.
pub(super) const PROBE_FIGURES: [Named; 4] = [
    named("first", NumberKind::Plain, "The first reading."),
    named("last", NumberKind::Plain, "The last reading: the same as its name alone."),
    named("max", NumberKind::Plain, "The largest reading."),
    named("mean", NumberKind::Plain, "The mean of all readings."),
];

/// Whether this is a figure of a probe: `max` in `queue.max`.
pub fn is_probe_figure(name: &str) -> bool {
    PROBE_FIGURES.iter().any(|figure| figure.name == name)
}

/// Every built-in name, including those with prefixes.
pub fn built_in_names() -> Vec<String> {
    let mut names: Vec<String> = NAMES.iter().map(|n| (*n).to_owned()).collect();
    for prefix in SERIES_PREFIXES {
        names.extend(FIGURES.iter().map(|figure| format!("{prefix}.{figure}")));
    }
    names
}

/// Every name about a component.
pub fn component_names(component: &str) -> Vec<String> {
    COMPONENT_FIGURES.iter().map(|figure| format!("{component}.{}", figure.name)).collect()
}

/// The component and figure of a name: `edge1.cpu.max` is `edge1` and `cpu.max`. The longest matching figure wins.
pub fn component_figure(name: &str) -> Option<(&str, &'static str)> {
    let fits = COMPONENT_FIGURES.iter().filter_map(|figure| {
        let component = name.strip_suffix(figure.name)?.strip_suffix('.')?;
        (!component.is_empty()).then_some((component, figure.name))
    });
    fits.max_by_key(|(_, figure)| figure.len())
}

/// A component's number by its figure, such as `cpu.max`, with its kind, unless it was not measured.
pub fn number_of_component(component: &ComponentSummary, figure: &str) -> Option<(f64, NumberKind)> {
    let named = COMPONENT_FIGURES.iter().find(|named| named.name == figure)?;
    component_number(component, figure).map(|value| (value, named.kind))
}

/// Every name about the requests with a tag.
pub fn tag_names(tag: &str) -> Vec<String> {
    let plain = TIMES.iter().chain(&COUNTS);
    let mut names: Vec<String> = plain.map(|n| format!("tag.{tag}.{}", n.name)).collect();
    for prefix in TAG_PREFIXES {
        names.extend(FIGURES.iter().map(|figure| format!("tag.{tag}.{prefix}.{figure}")));
    }
    names
}

/// Every name about a number captured from answers.
pub fn number_names(number: &str) -> Vec<String> {
    NumberSummary::FIGURES.iter().map(|figure| format!("number.{number}.{figure}")).collect()
}

/// Every name about a probe. Built-in names take precedence over probes of the same name.
pub fn probe_names(probe: &str) -> Vec<String> {
    let figures = PROBE_FIGURES.iter().map(|figure| format!("{probe}.{}", figure.name));
    std::iter::once(probe.to_owned()).chain(figures).collect()
}

/// A built-in name's kind; `None` for names that are not built in.
pub fn built_in_kind(name: &str) -> Option<NumberKind> {
    if let Some((prefix, figure)) = name.split_once('.') {
        let known = SERIES_PREFIXES.contains(&prefix) && FIGURES.contains(&figure);
        return known.then_some(NumberKind::Duration);
    }
    let mut all = TIMES.iter().chain(&COUNTS).chain(&WHOLE).chain(&STORED);
    all.find(|n| n.name == name).map(|n| n.kind)
}

/// Whether a built-in name, also of a tag, is a number of requests or messages.
pub(super) fn is_count(name: &str) -> bool {
    let last =
        name.strip_prefix("tag.").and_then(|rest| rest.rsplit_once('.')).map_or(name, |(_, last)| last);
    last == "not_offered"
        || COUNTS.iter().chain(&STORED).any(|n| n.name == last && n.kind == NumberKind::Plain)
}

/// A name's kind as far as its form shows: built-in ones, `tag.NAME.p99`, `number.NAME.p99`, `COMPONENT.cpu`. A probe
/// may have such a form too (`cache.memory`): a caller that knows the probes checks them first.
pub fn kind_of(name: &str) -> Option<NumberKind> {
    if let Some(kind) = built_in_kind(name) {
        return Some(kind);
    }
    if let Some((tag, last)) = name.strip_prefix("tag.").and_then(|rest| rest.rsplit_once('.')) {
        return match last {
            _ if tag.is_empty() => None,
            _ if FIGURES.contains(&last) => Some(NumberKind::Duration),
            "errors" => Some(NumberKind::Fraction),
            _ => Some(NumberKind::Plain),
        };
    }
    if let Some((number, figure)) = name.strip_prefix("number.").and_then(|rest| rest.rsplit_once('.'))
        && !number.is_empty()
        && NumberSummary::FIGURES.contains(&figure)
    {
        return Some(NumberKind::Plain);
    }
    let found = COMPONENT_FIGURES.iter().find(|figure| {
        let component = name.strip_suffix(figure.name).and_then(|rest| rest.strip_suffix('.'));
        component.is_some_and(|c| !c.is_empty())
    });
    found.map(|figure| figure.kind)
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
