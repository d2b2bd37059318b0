//! Tables: siege's property × concurrency, wrk's latency block, what happened after the load, and what each
//! component used, in the columns of `docker stats`.

use std::collections::BTreeSet;

use loadlab_analysis::cases::case::{CaseFindings, Spread};
use loadlab_analysis::cases::metric::{self, Better, Metric, ReadComponent, Unit, Value};
use loadlab_analysis::comparison::derived::Derived;
use loadlab_analysis::findings::Findings;
use loadlab_record::documents::summary::{ComponentSummary, Summary};

use super::{PlanOrder, ranged, spread_cell};
use crate::document::{Cell, Table, Weight};
use crate::figures::{self, NOTHING};

/// What siege names differently comes first, then figures that no other tool has.
const ROWS_OF_OTHER_TOOLS: [&str; 10] = [
    "transactions",
    "availability",
    "elapsed_time",
    "data_transferred",
    "throughput",
    "concurrency",
    "response_time",
    "shortest_transaction",
    "longest_transaction",
    "stdev",
];

/// One row per figure, one column per case: every figure there is, including failures of every kind that occurred.
pub fn figures(findings: &Findings<'_>) -> Table {
    let cases = &findings.cases;
    let happened = |m: &Metric| {
        let is_some = |s: &Summary| !matches!(m.of(s), Value::Known(0.0) | Value::Nothing);
        cases.iter().flat_map(|c| c.summaries()).any(is_some)
    };
    let own = metric::LOADLAB_METRICS.into_iter().chain(metric::OF_SYSTEM).filter(|m| match &*m.id {
        "dropped" | "in_flight" | "cpu_per_request" | "memory_peak" => happened(m),
        "stragglers" | "tail" => cases.iter().flat_map(|c| c.summaries()).any(Summary::has_tail),
        _ => true,
    });
    let of_plan = findings.figures.iter().filter(|m| findings.are_of_plan && metric::named(&m.id).is_none());
    let all = of_plan.cloned().chain(own).chain(ROWS_OF_OTHER_TOOLS.into_iter().filter_map(metric::named));
    let metrics: Vec<Metric> = all.chain(metric::failures().filter(happened)).collect();
    let trials = cases.iter().map(|c| c.summaries().count()).max().unwrap_or(0);
    Table {
        note: joined([
            (trials > 1).then(|| {
                "Each figure is its own median over the valid trials, of an even number the worse of the middle two, and \
                 below it the smallest … the largest. Percentiles are of one trial each and never averaged."
                    .to_owned()
            }),
            left_out(findings),
            not_measured(findings),
        ]),
        ..rows_of(findings, "Every figure of every case", &metrics)
    }
}

/// siege's twelve rows, under siege's names and in siege's order.
pub fn siege(findings: &Findings<'_>) -> Table {
    let failures = metric::failures()
        .filter(|m| findings.cases.iter().flat_map(|c| c.summaries()).any(|s| m.of(s) != Value::Known(0.0)));
    let metrics: Vec<Metric> = metric::SIEGE.into_iter().chain(failures).collect();
    rows_of(findings, "In siege's layout", &metrics)
}

fn rows_of(findings: &Findings<'_>, caption: &str, metrics: &[Metric]) -> Table {
    let cases = &findings.cases;
    let rows = metrics.iter().map(|m| {
        let name =
            Cell { detail: Some(m.about.to_string()), ..Cell::new(figures::percentile_label_of(&m.id)) };
        std::iter::once(name).chain(cases.iter().map(|c| figure_cell(c, m))).collect()
    });
    Table {
        caption: caption.to_owned(),
        head: std::iter::once("figure".to_owned()).chain(cases.iter().map(|c| c.label.clone())).collect(),
        text_columns: Vec::new(),
        rows: rows.collect(),
        note: None,
    }
}

/// Trials that contribute to no figure.
pub(super) fn left_out(findings: &Findings<'_>) -> Option<String> {
    const MAX_NAMED: usize = 4;
    let all: Vec<String> = findings.cases.iter().flat_map(CaseFindings::left_out).collect();
    let more = match all.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        n => format!("; and {n} more"),
    };
    let named = all.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join("; ");
    (!all.is_empty()).then(|| format!("Left out: {named}{more}."))
}

/// What a table lacks if programs generate the load.
pub(super) fn not_measured(findings: &Findings<'_>) -> Option<String> {
    let is_command = |c: &&CaseFindings<'_>| c.summaries().any(|s| s.load.is_command());
    let names: Vec<&str> =
        findings.cases.iter().filter(is_command).map(|c| c.case.facts.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "Programs make the load of {}: their requests are counted; “–” was not measured.",
            names.join("; ")
        )
    })
}

fn joined<const N: usize>(notes: [Option<String>; N]) -> Option<String> {
    notes.into_iter().flatten().reduce(|a, b| format!("{a} {b}"))
}

fn figure_cell(case: &CaseFindings<'_>, metric: &Metric) -> Cell {
    let cell = spread_cell(case, metric);
    let failing = metric.unit == Unit::Count
        && (metric.id == "failed_transactions" || metric.about.starts_with("failures"));
    let some = case.spread(metric).median.known().is_some_and(|v| v > 0.0);
    if failing && some { cell.with_weight(Weight::Doubtful) } else { cell }
}

/// wrk's block: how response times and seconds spread, socket errors, and other answers than 2xx and 3xx.
pub fn latency_block(findings: &Findings<'_>) -> Table {
    let ids = [
        ("avg", "response_time"),
        ("stdev", "stdev"),
        ("max", "longest_transaction"),
        ("± stdev", "within_stdev"),
        ("50 %", "p50"),
        ("75 %", "p75"),
        ("90 %", "p90"),
        ("99 %", "p99"),
        ("ok/s avg", "goodput"),
        ("ok/s stdev", "goodput_stdev"),
        ("ok/s max", "goodput_max"),
        ("connect errors", "connect_errors"),
        ("read, write errors", "io_errors"),
        ("timeouts", "timeout"),
        ("not 2xx, 3xx", "not_2xx_3xx"),
    ];
    let metrics: Vec<(&str, Metric)> =
        ids.iter().filter_map(|(label, id)| metric::named(id).map(|m| (*label, m))).collect();
    let cell = |case: &CaseFindings<'_>, m: &Metric| {
        let some = m.unit == Unit::Count && case.spread(m).max.known().is_some_and(|v| v > 0.0);
        let cell = spread_cell(case, m);
        if some { cell.with_weight(Weight::Doubtful) } else { cell }
    };
    let row = |case: &CaseFindings<'_>| {
        let name = Cell::new(&case.case.facts.name);
        std::iter::once(name).chain(metrics.iter().map(|(_, m)| cell(case, m))).collect()
    };
    Table {
        caption: "In wrk's layout".into(),
        head: std::iter::once("case".to_owned()).chain(metrics.iter().map(|(label, _)| (*label).to_owned())).collect(),
        text_columns: Vec::new(),
        rows: findings.cases.iter().map(row).collect(),
        note: joined([
            Some(
                "Response times of ok outcomes, and of those cut off by timeout, drop or the end of the load at no less \
                 than their age (“>”); “± stdev” is the share within one standard deviation of the mean."
                    .into(),
            ),
            not_measured(findings),
        ]),
    }
}

/// Drain and loss, if the plan measures them.
pub fn after(findings: &Findings<'_>) -> Option<Table> {
    let shown: Vec<Metric> = metric::AFTER
        .into_iter()
        .filter(|m| findings.cases.iter().any(|c| c.spread(m).reported() > 0))
        .collect();
    if shown.is_empty() {
        return None;
    }
    let head = shown.iter().map(|m| match &*m.id {
        "lost_min" => "lost, at least".to_owned(),
        "lost_max" => "lost, at most".to_owned(),
        id => id.to_owned(),
    });
    let row = |case: &CaseFindings<'_>| {
        let cells = shown.iter().map(|m| {
            let cell = spread_cell(case, m);
            let lost = m.id.starts_with("lost") && case.spread(m).median.known().is_some_and(|v| v > 0.0);
            if lost { cell.with_weight(Weight::Bad) } else { cell }
        });
        std::iter::once(Cell::new(&case.case.facts.name)).chain(cells).collect()
    };
    Some(Table {
        caption: "After the load".into(),
        head: std::iter::once("case".to_owned()).chain(head).collect(),
        text_columns: Vec::new(),
        rows: findings.cases.iter().map(row).collect(),
        note: Some(
            "Drain: from the end of the load until all work was done. Lost: accepted but never stored."
                .into(),
        ),
    })
}

/// What the plan derives from figures of its cases.
pub fn derived(findings: &Findings<'_>) -> Option<Table> {
    if findings.derived.is_empty() {
        return None;
    }
    let spread = |s: Option<&Spread>, unit| s.map_or(Cell::new(NOTHING), |s| ranged(s, unit));
    let row = |d: &Derived| {
        let interval = d.interval.map(|(low, high)| {
            let [low, high] = [low, high].map(|v| figures::value(Value::Known(v), Unit::Number));
            format!("{low} … {high}")
        });
        let how = match &d.facts.against {
            Some(against) => format!("{} against {against}", d.facts.value),
            None => d.facts.value.clone(),
        };
        vec![
            Cell::new(&d.facts.name),
            spread(Some(&d.value), d.unit),
            spread(d.against.as_ref(), d.unit),
            spread(d.ratio.as_ref(), Unit::Number),
            Cell::new(interval.unwrap_or_else(|| NOTHING.to_owned())),
            Cell::new(how),
        ]
    };
    let head = ["figure", "is", "against", "ratio", "ratio, 95 %", "how"];
    let mut table = Table {
        caption: "Derived figures".into(),
        head: head.map(str::to_owned).to_vec(),
        text_columns: vec![head.len() - 1],
        rows: findings.derived.iter().map(row).collect(),
        note: None,
    };
    let unknown = findings.derived.iter().filter_map(|d| Some((&d.facts.name, d.why_not.as_ref()?)));
    let unknown: Vec<String> = unknown.map(|(name, why)| format!("“{name}”: {why}")).collect();
    table.note = (!unknown.is_empty()).then(|| format!("Not known in every round: {}.", unknown.join("; ")));
    drop_unknown_columns(&mut table);
    Some(table)
}

/// What each component of a case used during the load, in the columns of `docker stats`.
pub fn components(case: &CaseFindings<'_>, order: &PlanOrder<'_>) -> Option<Table> {
    let names: BTreeSet<&str> =
        case.summaries().flat_map(|s| s.components.keys().map(String::as_str)).collect();
    if names.is_empty() {
        return None;
    }
    let mut names: Vec<&str> = names.into_iter().collect();
    order.sort(&mut names, |name| name);
    let head = [
        "component",
        "CPU %",
        "CPU % max",
        "CPU s",
        "CPU per request",
        "throttled",
        "memory mean",
        "memory max / limit",
        "memory %",
        "net in / out",
        "block read/written",
        "pids",
        "open files",
        "remarks",
    ];
    let mut table = Table {
        caption: "Component usage during the load".into(),
        head: head.map(str::to_owned).to_vec(),
        text_columns: vec![head.len() - 1],
        rows: names.iter().map(|name| component_row(case, name)).collect(),
        note: Some(
            "CPU % is of one core, its mean over the load without the wait for stragglers; memory % is of the component's limit. “–”: not available on this host."
                .into(),
        ),
    };
    drop_unknown_columns(&mut table);
    Some(table)
}

fn component_row(case: &CaseFindings<'_>, name: &str) -> Vec<Cell> {
    let spread = |read: ReadComponent| case.component_spread(name, read);
    let one = |read: ReadComponent, unit| ranged(&spread(read), unit);
    let two = |a: ReadComponent, b: ReadComponent| {
        let (a, b) = (spread(a).median, spread(b).median);
        match (a.known(), b.known()) {
            (None, None) => Cell::new(NOTHING),
            _ => {
                Cell::new(format!("{} / {}", figures::value(a, Unit::Bytes), figures::value(b, Unit::Bytes)))
            }
        }
    };
    let limited =
        |c: &ComponentSummary| Some(c.memory_bytes.max? / c.memory_bytes.limit.filter(|l| *l > 0)? as f64);
    let share = spread(limited);
    let full = share.median.known().is_some_and(|v| v > 0.95);
    let memory = match spread(|c| c.memory_bytes.limit.map(|v| v as f64)).median.known() {
        Some(_) => two(|c| c.memory_bytes.max, |c| c.memory_bytes.limit.map(|v| v as f64)),
        None => one(|c| c.memory_bytes.max, Unit::Bytes),
    };
    let throttled = spread(|c| c.throttled_s);
    let stopped = throttled.median.known().is_some_and(|v| v > 0.0);
    let weigh = |cell: Cell, doubtful| if doubtful { cell.with_weight(Weight::Doubtful) } else { cell };
    vec![
        Cell::new(name),
        one(|c| c.cpu_percent.mean, Unit::CpuPercent),
        one(|c| c.cpu_percent.max, Unit::CpuPercent),
        one(|c| c.cpu_s, Unit::S),
        cpu_per_request(case, name),
        weigh(ranged(&throttled, Unit::S), stopped),
        one(|c| c.memory_bytes.mean, Unit::Bytes),
        memory,
        weigh(ranged(&share, Unit::Share), full),
        two(|c| c.net_bytes.received.map(|v| v as f64), |c| c.net_bytes.sent.map(|v| v as f64)),
        two(|c| c.block_bytes.read.map(|v| v as f64), |c| c.block_bytes.written.map(|v| v as f64)),
        one(|c| c.pids_max.map(|v| v as f64), Unit::Count),
        one(|c| c.open_files_max.map(|v| v as f64), Unit::Count),
        component_remarks(case, name),
    ]
}

/// CPU time of a component for each ok response.
fn cpu_per_request(case: &CaseFindings<'_>, name: &str) -> Cell {
    let per_request = case.whole().map(|s| {
        let cpu_s = s.components.get(name).and_then(|c| c.cpu_s);
        cpu_s.filter(|_| s.requests.ok > 0).map(|cpu_s| cpu_s / s.requests.ok as f64 * 1e3).into()
    });
    ranged(&Spread::of(per_request.collect(), Better::Less), Unit::Ms)
}

fn component_remarks(case: &CaseFindings<'_>, name: &str) -> Cell {
    let mut remarks: Vec<String> = Vec::new();
    let mut bad = false;
    for c in case.summaries().filter_map(|s| s.components.get(name)) {
        let mut say = |text: String| {
            if !remarks.contains(&text) {
                remarks.push(text);
            }
        };
        if !c.limits.is_empty() {
            say(format!("limited to {}", c.limits.describe().join(", ")));
        } else if let Some(limit) = c.cpu_limit {
            say(format!("CPU limit {}", figures::cpu_percent(limit * 100.0)));
        }
        if let Some(died) = &c.died {
            bad = true;
            say(format!("died: {died}"));
        }
        if let Some(kills) = c.oom_kills.filter(|n| *n > 0) {
            bad = true;
            say(figures::plural(kills, "OOM kill", "OOM kills"));
        }
        if c.restarts > 0 {
            say(figures::plural(c.restarts, "restart", "restarts"));
        }
    }
    let cell = Cell::new(remarks.join(", "));
    if bad { cell.with_weight(Weight::Bad) } else { cell }
}

/// Drops columns without any known value.
pub(super) fn drop_unknown_columns(table: &mut Table) {
    let has_value: Vec<bool> = (0..table.head.len())
        .map(|i| table.rows.iter().any(|r| !matches!(r[i].text.as_str(), "" | NOTHING)))
        .collect();
    let heads: Vec<String> = table.text_columns.iter().map(|i| table.head[*i].clone()).collect();
    let keep = |i: usize| i == 0 || has_value[i];
    let mut at = 0..;
    table.head.retain(|_| at.next().is_some_and(keep));
    for row in &mut table.rows {
        let mut at = 0..;
        row.retain(|_| at.next().is_some_and(keep));
    }
    table.text_columns = heads.iter().filter_map(|w| table.head.iter().position(|h| h == w)).collect();
}
