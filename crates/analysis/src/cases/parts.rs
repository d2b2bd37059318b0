//! Where to look once a figure of a whole trial differs: the same figure of each step, load, batch or component, and
//! the readings of probes.

use std::collections::BTreeSet;

use loadlab_record::counts::quantile::PERCENTILES;
use loadlab_record::documents::figure::Better;
use loadlab_record::documents::summary::{
    ComponentSummary, Distribution, LoadSummary, Requests, Summary, TagSummary,
};

use crate::cases::metric::{Metric, OfPart, Part, Unit, Value, figure};

/// A figure that exists for parts of a trial; each variant names the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartFigure {
    /// Of steps, loads and batches; holds the percentile's name.
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

/// The figures of parts in which a difference of `metric` may lie. A single step, load, batch or component is the
/// whole trial, and has none.
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

/// The mean reading of each probe.
pub fn probes(trials: &[&Summary]) -> Vec<Metric> {
    let all = trials.iter().flat_map(|s| s.probes.keys());
    let names: BTreeSet<&String> = all.collect();
    names.into_iter().map(|name| metric_of(Part::Probe(name.clone()), PartFigure::Mean)).collect()
}

/// The parts of one kind, each once; empty if there are fewer than two.
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
    let read = match figure {
        PartFigure::Percentile(_) => percentile,
        PartFigure::Goodput => goodput,
        PartFigure::Errors => errors,
        PartFigure::Cpu => cpu_per_request,
        PartFigure::Memory => memory_max,
        PartFigure::Mean => mean,
    };
    Metric::of_part(OfPart { part, name, title, read }, id, about, unit, better)
}

/// The figures of a subset of a trial's requests.
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

/// The requests of a step, load or batch in a trial.
fn requests<'a>(part: &Part, summary: &'a Summary) -> Option<Of<'a>> {
    match part {
        Part::Step(name) => summary.by_tag.get(name).map(Of::from),
        Part::Load(name) => summary.by_load.get(name).map(Of::from),
        Part::Batch(number) => summary.by_batch.get(number).map(Of::from),
        Part::Component(_) | Part::Probe(_) => None,
    }
}

fn component<'a>(part: &Part, summary: &'a Summary) -> Option<&'a ComponentSummary> {
    if let Part::Component(name) = part { summary.components.get(name) } else { None }
}

fn percentile(part: &Part, name: &'static str, summary: &Summary) -> Value {
    requests(part, summary).map_or(Value::Nothing, |of| figure(of.response_ms, name))
}

fn goodput(part: &Part, _: &'static str, summary: &Summary) -> Value {
    requests(part, summary).and_then(|of| of.goodput_per_s).into()
}

fn errors(part: &Part, _: &'static str, summary: &Summary) -> Value {
    // How a program's requests end, nobody sees; a batch's requests may include some.
    let has_programs = match part {
        Part::Load(name) => summary.load.is_program(name),
        Part::Batch(_) => summary.load.has_programs(),
        Part::Step(_) | Part::Component(_) | Part::Probe(_) => false,
    };
    let is_known = |of: &Of<'_>| of.requests.started > 0 && of.requests.ended() > 0 && !has_programs;
    let of = requests(part, summary).filter(is_known);
    of.map(|of| of.requests.failed as f64 / of.requests.started as f64).into()
}

fn cpu_per_request(part: &Part, _: &'static str, summary: &Summary) -> Value {
    let ok = summary.requests.ok;
    let cpu_s = component(part, summary).and_then(|of| of.cpu_s).filter(|_| ok > 0);
    cpu_s.map(|cpu_s| cpu_s / ok as f64 * 1e3).into()
}

fn memory_max(part: &Part, _: &'static str, summary: &Summary) -> Value {
    component(part, summary).and_then(|of| of.memory_bytes.max).into()
}

fn mean(part: &Part, _: &'static str, summary: &Summary) -> Value {
    let Part::Probe(name) = part else { return Value::Nothing };
    summary.probes.get(name).and_then(|probe| probe.mean).into()
}
