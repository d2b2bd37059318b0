//! The section of one case.

use std::collections::BTreeSet;

use loadlab_analysis::cases::case::{CaseFindings, Spread};
use loadlab_analysis::cases::metric::{self, Better, Unit, Value};
use loadlab_record::documents::summary::{Distribution, LoadSummary, Summary};

use super::{PlanOrder, agents, case_id, charts, marks, profile, ranged, remarks, sockets, tables};
use crate::document::{Block, Cell, Fact, Section, Table, Weight};
use crate::wording::{describe_generator, describe_load};

/// The section of a case: what it is, how it went, what its components used, its seconds, and its exchanges.
pub fn section(index: usize, case: &CaseFindings<'_>, order: &PlanOrder<'_>) -> Section {
    let mut blocks = vec![Block::Facts(facts(case))];
    let troubles = remarks::troubles(case);
    if !troubles.is_empty() {
        blocks.push(Block::Heading("Failed or missing trials".into()));
        blocks.push(Block::Remarks(troubles));
    }
    let expectations = remarks::expectations(case);
    if !expectations.is_empty() {
        blocks.push(Block::Heading("Expectations".into()));
        blocks.push(Block::Remarks(expectations));
    }
    let suspects = remarks::suspects(case);
    if !suspects.is_empty() {
        blocks.push(Block::Heading("First bottleneck".into()));
        blocks.push(Block::Remarks(suspects));
    }
    blocks.extend(tables::components(case, order).map(Block::Table));
    blocks.extend(sockets::pairs(case).map(Block::Table));
    // An hour of load has many samples: they are unpacked once.
    let by_component =
        case.typical().and_then(|t| t.record).map(|r| r.samples.by_component()).unwrap_or_default();
    blocks.extend(sockets::table(&by_component, order).map(Block::Table));
    blocks.extend(agents::table(case).map(Block::Table));
    blocks.extend(by_load(case).map(Block::Table));
    blocks.extend(by_tag(case).map(Block::Table));
    blocks.extend(numbers(case).map(Block::Table));
    blocks.extend(probes(case).map(Block::Table));
    blocks.extend(profile::blocks(index, case, order));
    let charts = charts::of_case(index, case, by_component, order);
    if !charts.is_empty() {
        blocks.push(Block::Heading(charts_heading(case)));
        let first = charts.iter().flat_map(|part| &part.charts).next();
        blocks.extend(first.and_then(marks::describe_marks).map(Block::Paragraph));
        blocks.extend(charts.into_iter().map(Block::Multiples));
    }
    blocks.extend(remarks::events(case));
    blocks.extend(remarks::examples(case));
    Section {
        id: case_id(index),
        title: case.case.facts.name.clone(),
        case: Some(case.verdict),
        is_folded: false,
        blocks,
    }
}

fn charts_heading(case: &CaseFindings<'_>) -> String {
    let measured = case.trials.len();
    match case.typical() {
        Some(trial) if measured > 1 => {
            format!("Over time: trial {} of {measured}, the one with the median goodput", trial.number)
        }
        _ => "Over time".to_owned(),
    }
}

fn facts(case: &CaseFindings<'_>) -> Vec<Fact> {
    let mut facts: Vec<Fact> =
        case.case.facts.values.iter().map(|(axis, value)| Fact::new(axis, value)).collect();
    if let Some(summary) = case.whole().next() {
        if summary.load.loads.is_empty() {
            facts.push(Fact::new("load", describe_load(&summary.load).join(" · ")));
        }
        for (name, load) in &summary.load.loads {
            facts.push(Fact::new(format!("load {name}"), describe_load(load).join(" · ")));
        }
        let generator = describe_generator(&summary.generator, summary.asked_s());
        facts.push(Fact::new("generator", generator.join(" · ")));
    }
    facts
}

/// The results of each of several loads.
fn by_load(case: &CaseFindings<'_>) -> Option<Table> {
    let loads: BTreeSet<&str> = case.summaries().flat_map(|s| s.by_load.keys().map(String::as_str)).collect();
    if loads.is_empty() {
        return None;
    }
    let cell = |name: &str, unit: Unit, read: &dyn Fn(&LoadSummary) -> Value| {
        let of = |s: &Summary| s.by_load.get(name).map_or(Value::Nothing, read);
        let better = if unit == Unit::PerS { Better::More } else { Better::Less };
        ranged(&Spread::of(case.whole().map(of).collect(), better), unit)
    };
    let failed = |name: &str| {
        let of = |s: &Summary| metric::failed_of_load(s, name);
        ranged(&Spread::of(case.whole().map(of).collect(), Better::Less), Unit::Count)
    };
    let times = ["p50", "p95", "p99", "max"];
    let rows = loads.iter().map(|name| {
        let count = |read: fn(&LoadSummary) -> u64| {
            cell(name, Unit::Count, &|l: &LoadSummary| Value::Known(read(l) as f64))
        };
        let mut row = vec![
            Cell::new(*name),
            cell(name, Unit::S, &|l| Value::Known(l.window.from_s)),
            cell(name, Unit::S, &|l| Value::Known(l.window.to_s)),
            count(|l| l.requests.due),
            count(|l| l.requests.dropped),
            failed(name),
            cell(name, Unit::PerS, &|l| Value::Known(l.rate_per_s.ok)),
        ];
        row.extend(times.map(|time| cell(name, Unit::Ms, &|l| metric::figure(&l.response_ms, time))));
        row
    });
    let head = ["load", "from", "to", "due", "dropped", "failed", "ok"];
    Some(Table {
        caption: "By load".into(),
        head: head.into_iter().chain(times).map(str::to_owned).collect(),
        text_columns: Vec::new(),
        rows: rows.collect(),
        note: Some("From and to: the interval that its rate and times cover, on the trial's clock.".into()),
    })
}

/// Requests and response times by tag, if requests have tags.
fn by_tag(case: &CaseFindings<'_>) -> Option<Table> {
    let tags: BTreeSet<&str> = case.summaries().flat_map(|s| s.by_tag.keys().map(String::as_str)).collect();
    if tags.is_empty() {
        return None;
    }
    let count = |tag: &str, read: fn(&loadlab_record::documents::summary::Requests) -> u64| {
        let of = |s: &Summary| s.by_tag.get(tag).map(|t| read(&t.requests) as f64).into();
        ranged(&Spread::of(case.whole().map(of).collect(), Better::Less), Unit::Count)
    };
    let time = |tag: &str, name: &str| {
        let of = |s: &Summary| {
            s.by_tag
                .get(tag)
                .map_or(Value::Nothing, |t| metric::figure(&t.response_ms as &Distribution, name))
        };
        ranged(&Spread::of(case.whole().map(of).collect(), Better::Less), Unit::Ms)
    };
    let times = ["mean", "p50", "p95", "p99", "max"];
    let rows = tags.iter().map(|tag| {
        let failed = count(tag, |r| r.failed);
        let weight = if failed.text == "0" { Weight::Plain } else { Weight::Doubtful };
        let mut row = vec![Cell::new(*tag), count(tag, |r| r.started), failed.with_weight(weight)];
        row.extend(times.iter().map(|name| time(tag, name)));
        row
    });
    Some(Table {
        caption: "By tag".into(),
        head: ["tag", "requests", "failed"].into_iter().chain(times).map(str::to_owned).collect(),
        text_columns: Vec::new(),
        rows: rows.collect(),
        note: None,
    })
}

/// Numbers that the plan captures from answers.
fn numbers(case: &CaseFindings<'_>) -> Option<Table> {
    let names: BTreeSet<&str> = case.summaries().flat_map(|s| s.numbers.keys().map(String::as_str)).collect();
    if names.is_empty() {
        return None;
    }
    let cell = |name: &str, figure: &str| {
        let of = |s: &Summary| s.numbers.get(name).map_or(Value::Nothing, |n| metric::number(n, figure));
        let unit = if figure == "count" { Unit::Count } else { Unit::Number };
        ranged(&Spread::of(case.whole().map(of).collect(), Better::Neither), unit)
    };
    let shown = ["count", "mean", "min", "p50", "p95", "p99", "max"];
    let rows = names.iter().map(|name| {
        let mut row = vec![Cell::new(*name)];
        row.extend(shown.map(|figure| cell(name, figure)));
        row
    });
    Some(Table {
        caption: "Captured numbers".into(),
        head: std::iter::once("number").chain(shown).map(str::to_owned).collect(),
        text_columns: Vec::new(),
        rows: rows.collect(),
        note: Some("Values captured from responses with `number: true`.".into()),
    })
}

fn probes(case: &CaseFindings<'_>) -> Option<Table> {
    let names: BTreeSet<&str> = case.summaries().flat_map(|s| s.probes.keys().map(String::as_str)).collect();
    if names.is_empty() {
        return None;
    }
    let cell = |name: &str, read: fn(&loadlab_record::documents::summary::ProbeSummary) -> Option<f64>| {
        let of = |s: &Summary| s.probes.get(name).and_then(read).into();
        ranged(&Spread::of(case.whole().map(of).collect(), Better::Neither), Unit::Number)
    };
    let rows = names.iter().map(|name| {
        vec![
            Cell::new(*name),
            cell(name, |p| p.first),
            cell(name, |p| p.mean),
            cell(name, |p| p.max),
            cell(name, |p| p.last),
        ]
    });
    Some(Table {
        caption: "Probes".into(),
        head: ["probe", "first", "mean", "largest", "last (drained)"].map(str::to_owned).to_vec(),
        text_columns: Vec::new(),
        rows: rows.collect(),
        note: None,
    })
}
