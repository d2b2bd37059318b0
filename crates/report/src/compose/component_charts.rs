//! Charts of components in one trial: of the bottleneck alone, of the others together, and of the generator.
//!
//! Systems with many components are drawn by their [`DRAWN`] busiest, and the maximum of the others.

use std::collections::{BTreeMap, BTreeSet};

use loadlab_analysis::cases::metric::{Unit, Value};
use loadlab_analysis::trial::components::{cpu_s, probe_name};
use loadlab_record::watch::sample::Sample;

use super::flat_lines::{QuietText, parted};
use super::one_trial::ChartedTrial;
use crate::colour::Colour;
use crate::document::{Chart, Line, Multiples};
use crate::figures;

/// More lines than this in one chart cannot be told apart, nor labelled beside it.
const DRAWN: usize = 10;
/// A limit more than this many times the largest value would squash the lines.
const LIMIT_IN_SIGHT: f64 = 4.0;

/// Components that are drawn together.
pub(super) struct ChartGroup<'a> {
    /// Prefix of its charts' names.
    pub(super) id: &'static str,
    /// The subject of its charts, for their titles; empty for components in general.
    pub(super) of: &'a str,
    /// Its components and their samples.
    pub(super) components: Vec<(&'a str, &'a [Sample])>,
}

/// A figure of components.
struct Figure<'a> {
    id: &'static str,
    title: &'static str,
    unit: Unit,
    text: QuietText,
    /// Limits by component, in the figure's unit.
    limits: BTreeMap<&'a str, f64>,
}

impl ChartedTrial<'_> {
    /// CPU, memory, network and disk of these components, `first` before the others.
    pub(super) fn part(&self, title: String, part: &ChartGroup<'_>, first: &str) -> Multiples {
        let mut of = Multiples { title, charts: Vec::new(), quiet: Vec::new() };
        let mut figures: Vec<(Figure<'_>, Vec<Line>)> =
            vec![self.cpu(part), self.throttled(part), self.memory(part)];
        figures.push(self.rates(part, "net", "Network, in and out", "Network", |s| {
            Some((s.net_in_bytes? + s.net_out_bytes?) as f64)
        }));
        figures.push(self.rates(part, "block", "Block I/O, read and written", "Block I/O", |s| {
            Some((s.block_read_bytes? + s.block_written_bytes?) as f64)
        }));
        figures.sort_by_key(|(figure, _)| figure.id != first);
        for (figure, lines) in figures {
            self.add(&mut of, part, figure, lines);
        }
        of
    }

    /// Numbers read from the system while it ran.
    pub(super) fn probes(&self, of: &mut Multiples) {
        let mut probes: BTreeMap<String, (&str, &[Sample], &str)> = BTreeMap::new();
        for (owner, list) in &self.samples.by_component {
            for sample in list {
                for probe in sample.probes.keys() {
                    probes.entry(probe_name(sample, probe)).or_insert((owner, list, probe));
                }
            }
        }
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut line = |i: usize, name: String, (owner, list, probe): (&str, &[Sample], &str)| Line {
            name,
            values: self.samples.levels(list, |s| s.probes.get(probe).copied()),
            // In its component's colour; further ones of that component, and those without a component, in shades
            // that no component has.
            colour: match self.samples.components().any(|(n, _)| n == owner) && seen.insert(owner.to_owned())
            {
                true => self.samples.colour(owner),
                false => Colour::Percentile { rank: i, load: i / 4 },
            },
            limit: false,
            of: Vec::new(),
        };
        let lines = probes.into_iter().enumerate().map(|(i, (name, of))| line(i, name, of)).collect();
        let text = QuietText { name: "Probes", zero: "0 throughout" };
        let (lines, quiet) = parted(lines, Unit::Number, text, |_| None);
        of.charts.extend(self.chart("probes", "Probes", Unit::Number, self.samples.at_s(), lines));
        of.quiet.extend(quiet);
    }

    fn add(&self, of: &mut Multiples, part: &ChartGroup<'_>, figure: Figure<'_>, lines: Vec<Line>) {
        let limit_of = |line: &Line| figure.limits.get(line.of.first()?.as_str()).copied();
        let (lines, quiet) = parted(lines, figure.unit, figure.text, limit_of);
        of.quiet.extend(quiet);
        if lines.is_empty() {
            return;
        }
        let lines = busiest(lines);
        let drawn = |name: &str| lines.iter().any(|l| l.of.iter().any(|of| of == name));
        let limits = figure.limits.iter().filter(|(name, _)| drawn(name));
        let limits = limits.map(|(name, limit)| ((*name).to_owned(), *limit)).collect();
        let (lines, note) = with_limits(lines, limits, figure.unit);
        let title = match part.of {
            "" => figure.title.to_owned(),
            of => format!("{of}: {}", figure.title),
        };
        let id = format!("{}{}", part.id, figure.id);
        let chart = self.chart(&id, &title, figure.unit, self.samples.at_s(), lines);
        of.charts.extend(chart.map(|chart| Chart { note, ..chart }));
    }

    fn cpu<'a>(&'a self, part: &ChartGroup<'a>) -> (Figure<'a>, Vec<Line>) {
        let lines = self.component_lines(part, |list| {
            let rates = self.samples.rates(list, cpu_s);
            rates.into_iter().map(|v| v.map(|v| v * 100.0)).collect()
        });
        let text = QuietText { name: "CPU", zero: "0 % throughout" };
        let limits = self.cpu_limits.clone();
        (Figure { id: "cpu", title: "CPU, of one core", unit: Unit::CpuPercent, text, limits }, lines)
    }

    fn memory<'a>(&'a self, part: &ChartGroup<'a>) -> (Figure<'a>, Vec<Line>) {
        let read = |s: &Sample| s.memory_bytes.or(s.resident_bytes).map(|v| v as f64);
        let lines = self.component_lines(part, |list| self.samples.levels(list, read));
        let limit = |list: &[Sample]| list.iter().rev().find_map(|s| s.memory_limit_bytes).map(|l| l as f64);
        let limits = part.components.iter().filter_map(|(name, list)| Some((*name, limit(list)?))).collect();
        let text = QuietText { name: "Memory", zero: "0 B throughout" };
        (Figure { id: "memory", title: "Memory", unit: Unit::Bytes, text, limits }, lines)
    }

    fn rates<'a>(
        &'a self,
        part: &ChartGroup<'a>,
        id: &'static str,
        title: &'static str,
        name: &'static str,
        read: fn(&Sample) -> Option<f64>,
    ) -> (Figure<'a>, Vec<Line>) {
        let lines = self.component_lines(part, |list| self.samples.rates(list, read));
        let text = QuietText { name, zero: "0 B/s throughout" };
        (Figure { id, title, unit: Unit::BytesPerS, text, limits: BTreeMap::new() }, lines)
    }

    fn throttled<'a>(&'a self, part: &ChartGroup<'a>) -> (Figure<'a>, Vec<Line>) {
        let mut lines = self.component_lines(part, |list| self.share_throttled(list));
        // Without a limit this chart makes no sense.
        let limited = |line: &Line| line.of.iter().any(|name| self.cpu_limits.contains_key(name.as_str()));
        lines.retain(|line| limited(line) || line.values.iter().flatten().any(|v| *v > 0.0));
        let is_counted = |name: &str| {
            let own = part.components.iter().find(|(n, _)| *n == name);
            own.is_some_and(|(_, list)| list.iter().any(|s| s.periods.is_some()))
        };
        let (counted, timed): (Vec<&mut Line>, Vec<&mut Line>) =
            lines.iter_mut().partition(|l| l.of.iter().any(|name| is_counted(name)));
        let title = match counted.is_empty() {
            true => "Throttled, of one core",
            false => {
                timed.into_iter().for_each(|line| line.name.push_str(" (of one core)"));
                "Throttled, share of periods"
            }
        };
        let text = QuietText { name: "Throttled", zero: "never" };
        (Figure { id: "throttled", title, unit: Unit::Share, text, limits: BTreeMap::new() }, lines)
    }

    /// The share of its CPU limit's periods in which a component was throttled. If only the time is known, that is a
    /// sum over cores, which may exceed the time that passed.
    fn share_throttled(&self, list: &[Sample]) -> Vec<Option<f64>> {
        if !list.iter().any(|s| s.periods.is_some()) {
            return self.samples.rates(list, |s| s.throttled_s);
        }
        let throttled = self.samples.rates(list, |s| s.throttled_periods.map(|n| n as f64));
        let all = self.samples.rates(list, |s| s.periods.map(|n| n as f64));
        let share = |(throttled, all): (Option<f64>, Option<f64>)| {
            let (throttled, all) = (throttled?, all?);
            Some(if all > 0.0 { (throttled / all).min(1.0) } else { 0.0 })
        };
        throttled.into_iter().zip(all).map(share).collect()
    }

    fn component_lines(
        &self,
        part: &ChartGroup<'_>,
        values: impl Fn(&[Sample]) -> Vec<Option<f64>>,
    ) -> Vec<Line> {
        let line = |(name, list): &(&str, &[Sample])| Line {
            name: (*name).to_owned(),
            values: values(list),
            colour: self.samples.colour(name),
            limit: false,
            of: vec![(*name).to_owned()],
        };
        part.components.iter().map(line).collect()
    }
}

/// The lines that reach highest, in their order, and at each moment the maximum of the others: their sum would squash
/// the rest.
fn busiest(mut lines: Vec<Line>) -> Vec<Line> {
    if lines.len() <= DRAWN {
        return lines;
    }
    let peak = |l: &Line| l.values.iter().flatten().copied().fold(0.0, f64::max);
    let mut peaks: Vec<(f64, usize)> = lines.iter().enumerate().map(|(i, l)| (peak(l), i)).collect();
    peaks.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let kept: BTreeSet<usize> = peaks.iter().take(DRAWN - 1).map(|(_, i)| *i).collect();
    let mut at = 0..;
    let others: Vec<Line> = lines.extract_if(.., |_| at.next().is_some_and(|i| !kept.contains(&i))).collect();
    let moments = others.iter().map(|l| l.values.len()).max().unwrap_or(0);
    let largest = |moment: usize| {
        others.iter().filter_map(|l| l.values.get(moment).copied().flatten()).reduce(f64::max)
    };
    let name = format!("largest of {} others", others.len());
    lines.push(Line {
        name,
        values: (0..moments).map(largest).collect(),
        colour: Colour::Asked,
        limit: false,
        of: Vec::new(),
    });
    lines
}

/// Limits as dashed lines in their component's colour, with one line for components with the same limit; those out of
/// sight are reported in words.
fn with_limits(mut lines: Vec<Line>, limits: Vec<(String, f64)>, unit: Unit) -> (Vec<Line>, Option<String>) {
    let most = lines.iter().flat_map(|l| &l.values).flatten().copied().fold(0.0, f64::max);
    let mut by_limit: Vec<(f64, Vec<String>)> = Vec::new();
    for (name, limit) in limits {
        match by_limit.iter_mut().find(|(l, _)| *l == limit) {
            Some((_, names)) => names.push(name),
            None => by_limit.push((limit, vec![name])),
        }
    }
    let mut out_of_sight = Vec::new();
    for (limit, names) in by_limit {
        let described = figures::value(Value::Known(limit), unit);
        if limit > most * LIMIT_IN_SIGHT {
            out_of_sight.push(format!("{} of {}", described, names.join(", ")));
            continue;
        }
        let first = lines.iter().find(|l| l.of.first() == names.first());
        let moments = lines.first().map_or(0, |l| l.values.len());
        let colour = first.filter(|_| names.len() == 1).map_or(Colour::Asked, |l| l.colour);
        let name = format!("limit of {} ({described})", names.join(", "));
        lines.push(Line { name, values: vec![Some(limit); moments], colour, limit: true, of: names });
    }
    let note =
        (!out_of_sight.is_empty()).then(|| format!("Limits far above usage: {}.", out_of_sight.join("; ")));
    (lines, note)
}
