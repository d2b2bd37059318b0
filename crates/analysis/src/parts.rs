//! Where a figure of a whole trial is looked for once it differs: the same figure of each step, load, batch or component,
//! and what probes report.

use std::collections::BTreeSet;

use loadlab_record::figure::Better;
use loadlab_record::quantile::PERCENTILES;
use loadlab_record::summary::{ComponentSummary, Distribution, LoadSummary, Requests, Summary, TagSummary};

use crate::metric::{Metric, Unit, Value, figure};

/// A part of a trial that has figures of its own.
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

/// A figure that parts have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartFigure {
    /// Of steps, loads and batches, by name.
    Percentile(&'static str),
    /// Of loads and batches.
    Goodput,
    /// Of steps, loads and batches.
    Errors,
    /// Of components: CPU time per ok response of the trial.
    Cpu,
    /// Of components.
    Memory,
    /// Of probes.
    Mean,
}

/// The figures of parts in which a figure's difference may lie. A single step, load, batch or component is the whole,
/// and has none.
pub fn parts_of(metric: &Metric, trials: &[&Summary]) -> Vec<Metric> {
    let percentile = PERCENTILES.iter().map(|(name, _)| *name).find(|name| metric.stands_for(name));
    let figure = match percentile {
        Some(name) => PartFigure::Percentile(name),
        None => {
            let known = [
                ("goodput", PartFigure::Goodput),
                ("errors", PartFigure::Errors),
                ("cpu_per_request", PartFigure::Cpu),
                ("memory_peak", PartFigure::Memory),
            ];
            match known.iter().find(|(name, _)| metric.stands_for(name)) {
                Some((_, figure)) => *figure,
                None => return Vec::new(),
            }
        }
    };
    let steps = names(trials, |s| s.by_tag.keys().map(|n| Part::Step(n.clone())).collect());
    let loads = names(trials, |s| s.by_load.keys().map(|n| Part::Load(n.clone())).collect());
    let batches = names(trials, |s| s.by_batch.keys().map(|n| Part::Batch(*n)).collect());
    let components = names(trials, |s| s.components.keys().map(|n| Part::Component(n.clone())).collect());
    let all = match figure {
        PartFigure::Percentile(_) | PartFigure::Errors => [steps, loads, batches].concat(),
        PartFigure::Goodput => [loads, batches].concat(),
        PartFigure::Cpu | PartFigure::Memory => components,
        PartFigure::Mean => Vec::new(),
    };
    all.into_iter().map(|part| metric_of(part, figure)).collect()
}

/// What each probe reported on average.
pub fn probes(trials: &[&Summary]) -> Vec<Metric> {
    let all = trials.iter().flat_map(|s| s.probes.keys());
    let names: BTreeSet<&String> = all.collect();
    names.into_iter().map(|name| metric_of(Part::Probe(name.clone()), PartFigure::Mean)).collect()
}

/// Several of a kind, each once.
fn names(trials: &[&Summary], of: impl Fn(&Summary) -> Vec<Part>) -> Vec<Part> {
    let all: BTreeSet<Part> = trials.iter().flat_map(|s| of(s)).collect();
    if all.len() < 2 { Vec::new() } else { all.into_iter().collect() }
}

fn metric_of(part: Part, figure: PartFigure) -> Metric {
    let (name, title, unit) = match figure {
        PartFigure::Percentile(name) => (name, name.replace('_', "."), Unit::Ms),
        PartFigure::Goodput => ("goodput", "goodput".to_owned(), Unit::PerS),
        PartFigure::Errors => ("errors", "errors".to_owned(), Unit::Share),
        PartFigure::Cpu => ("cpu_per_request", "CPU per request".to_owned(), Unit::Ms),
        PartFigure::Memory => ("memory_max", "peak memory".to_owned(), Unit::Bytes),
        PartFigure::Mean => ("mean", "mean".to_owned(), Unit::Number),
    };
    let (id, title, about) = match &part {
        Part::Step(of) => (format!("tag.{of}.{name}"), format!("{title} of {of}"), "of this step"),
        Part::Load(of) => (format!("load.{of}.{name}"), format!("{title} of load {of}"), "of this load"),
        Part::Batch(of) => (format!("batch.{of}.{name}"), format!("{title} of batch {of}"), "of this batch"),
        Part::Component(of) => (format!("{of}.{name}"), format!("{title} of {of}"), "of this component"),
        Part::Probe(of) => (format!("{of}.{name}"), format!("{title} of {of}"), "of this probe's readings"),
    };
    let better = match figure {
        PartFigure::Goodput => Better::More,
        PartFigure::Mean => Better::Neither,
        _ => Better::Less,
    };
    Metric::of_part((part, figure), (id, title, about), unit, better)
}

/// What counts of requests that are a part of all.
struct Of<'a> {
    requests: &'a Requests,
    response_ms: &'a Distribution,
    goodput_per_s: Option<f64>,
}

impl<'a> From<&'a LoadSummary> for Of<'a> {
    fn from(load: &'a LoadSummary) -> Of<'a> {
        Of {
            requests: &load.requests,
            response_ms: &load.response_ms,
            goodput_per_s: Some(load.rate_per_s.ok),
        }
    }
}

impl<'a> From<&'a TagSummary> for Of<'a> {
    fn from(tag: &'a TagSummary) -> Of<'a> {
        let TagSummary { requests, response_ms, .. } = tag;
        Of { requests, response_ms, goodput_per_s: None }
    }
}

/// A part's figure in a trial.
pub(crate) fn value(part: &Part, of: PartFigure, summary: &Summary) -> Value {
    let requests = match part {
        Part::Step(name) => summary.by_tag.get(name).map(Of::from),
        Part::Load(name) => summary.by_load.get(name).map(Of::from),
        Part::Batch(number) => summary.by_batch.get(number).map(Of::from),
        Part::Component(name) => {
            return summary.components.get(name).map_or(Value::Nothing, |c| of_component(c, of, summary));
        }
        Part::Probe(name) => return summary.probes.get(name).and_then(|p| p.mean).into(),
    };
    let Some(requests) = requests else { return Value::Nothing };
    match of {
        PartFigure::Percentile(name) => figure(requests.response_ms, name),
        PartFigure::Goodput => requests.goodput_per_s.into(),
        PartFigure::Errors => {
            let Requests { failed, started, .. } = *requests.requests;
            (started > 0).then(|| failed as f64 / started as f64).into()
        }
        PartFigure::Cpu | PartFigure::Memory | PartFigure::Mean => Value::Nothing,
    }
}

fn of_component(component: &ComponentSummary, of: PartFigure, summary: &Summary) -> Value {
    let ok = summary.requests.ok;
    match of {
        PartFigure::Cpu => component.cpu_s.filter(|_| ok > 0).map(|cpu_s| cpu_s / ok as f64 * 1e3).into(),
        PartFigure::Memory => component.memory_bytes.max.into(),
        _ => Value::Nothing,
    }
}
