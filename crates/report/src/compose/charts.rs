//! Charts of one trial of a case: load, response times, components and probes on one clock.
//!
//! Systems of many components are drawn by their [`DRAWN`] busiest, the others as one line of their own.

use std::collections::{BTreeMap, BTreeSet};

use loadlab_analysis::case::CaseFindings;
use loadlab_analysis::components::{cpu_s, probe_name};
use loadlab_analysis::metric::Unit;
use loadlab_record::Failure;
use loadlab_record::load::{Tick, TickMs};
use loadlab_record::sample::Sample;
use loadlab_record::store::TrialRecord;

use super::marks::{bands, marks, turns};
use super::readings::{Bin, Readings, rebin};
use super::{Order, shapes};
use crate::document::{Along, Band, Chart, Line, Mark};
use crate::figures;

/// More lines than this in one chart cannot be told apart.
const DRAWN: usize = 20;
/// A limit above so many times the largest value would squash what there is to see.
const LIMIT_IN_SIGHT: f64 = 4.0;

/// All charts of the case's typical trial.
pub fn of_case(index: usize, case: &CaseFindings<'_>, order: &Order<'_>) -> Vec<Chart> {
    let Some((record, summary)) = case.typical().and_then(|t| Some((t.record?, t.summary.as_deref()?)))
    else {
        return Vec::new();
    };
    let limits: BTreeMap<&str, f64> =
        summary.components.iter().filter_map(|(n, c)| Some((n.as_str(), c.cpu_limit? * 100.0))).collect();
    let trial = Trial {
        prefix: format!("case-{}", index + 1),
        marks: marks(record),
        turns: turns(record, &summary.load),
        bands: bands(record),
        ticks: rebin(&record.ticks),
        samples: Readings::of(record, order),
    };
    let mut charts = Vec::new();
    charts.extend(trial.throughput());
    charts.extend(trial.failures());
    charts.extend(trial.response_times());
    charts.extend(trial.heat(record));
    charts.extend(trial.in_flight());
    charts.extend(trial.cpu(&limits));
    charts.extend(trial.memory());
    charts.extend(
        trial.rates("net", "Network, in and out", |s| Some((s.net_in_bytes? + s.net_out_bytes?) as f64)),
    );
    charts.extend(trial.rates("block", "Block I/O, read and written", |s| {
        Some((s.block_read_bytes? + s.block_written_bytes?) as f64)
    }));
    charts.extend(trial.throttled());
    charts.extend(trial.probes());
    charts
}

struct Trial<'a> {
    prefix: String,
    marks: Vec<Mark>,
    turns: Vec<Mark>,
    bands: Vec<Band>,
    ticks: Vec<Bin<'a>>,
    samples: Readings,
}

impl Trial<'_> {
    fn chart(&self, name: &str, title: &str, unit: Unit, at_s: Vec<f64>, lines: Vec<Line>) -> Option<Chart> {
        if at_s.len() < 2 || !lines.iter().any(|l| l.values.iter().any(Option::is_some)) {
            return None;
        }
        Some(Chart {
            id: format!("{}-{name}", self.prefix),
            title: title.to_owned(),
            group: self.prefix.clone(),
            along: Along::Seconds,
            unit,
            logarithmic: false,
            at: at_s,
            lines,
            heat: None,
            marks: self.marks.clone(),
            turns: self.turns.clone(),
            bands: self.bands.clone(),
            note: None,
        })
    }

    fn throughput(&self) -> Option<Chart> {
        let open = |t: &Tick| t.counts.due.abs_diff(t.counts.started) > 0 || t.counts.dropped > 0;
        let behind = self.ticks.iter().flat_map(|b| &b.ticks).any(|t| open(t));
        let mut lines = vec![
            self.tick_line("ok", 0, |t| t.counts.ok),
            self.tick_line("failed", 1, |t| t.counts.failed()),
        ];
        if behind {
            lines.push(self.tick_line("due", 2, |t| t.counts.due));
            lines.push(self.tick_line("dropped", 3, |t| t.counts.dropped));
        }
        self.chart("throughput", "Throughput and errors", Unit::PerS, self.tick_times(), lines)
    }

    fn tick_times(&self) -> Vec<f64> {
        self.ticks.iter().map(|b| b.at_s).collect()
    }

    fn tick_line(&self, name: &str, colour: usize, read: impl Fn(&Tick) -> u64) -> Line {
        let values = self.ticks.iter().map(|b| b.per_s(&read)).collect();
        Line { name: name.to_owned(), values, colour, limit: false, of: Vec::new() }
    }

    /// Failures by kind, where there are several kinds: one is what the chart of throughput shows.
    fn failures(&self) -> Option<Chart> {
        let ticks = || self.ticks.iter().flat_map(|b| &b.ticks);
        let kinds: Vec<Failure> = Failure::ALL
            .into_iter()
            .filter(|kind| ticks().any(|t| t.counts.failures.get(*kind) > 0))
            .collect();
        if kinds.len() < 2 {
            return None;
        }
        let line = |(i, kind): (usize, &Failure)| {
            self.tick_line(kind.name(), i, |t: &Tick| t.counts.failures.get(*kind))
        };
        let lines = kinds.iter().enumerate().map(line).collect();
        self.chart("failures", "Failures by kind", Unit::PerS, self.tick_times(), lines)
    }

    /// How often which response time was, by second: a shift of the many and a few that are slow look alike in
    /// percentiles, and not here.
    fn heat(&self, record: &TrialRecord) -> Option<Chart> {
        let (at_s, heat) = shapes::heat(record)?;
        let title = "Response time distribution over time (ok outcomes)";
        let chart = Chart {
            id: format!("{}-heat", self.prefix),
            title: title.to_owned(),
            group: self.prefix.clone(),
            along: Along::Seconds,
            unit: Unit::Ms,
            logarithmic: true,
            at: at_s,
            lines: Vec::new(),
            heat: Some(heat),
            marks: self.marks.clone(),
            turns: self.turns.clone(),
            bands: self.bands.clone(),
            note: Some(
                "Darker means more responses, on a logarithmic scale, so that a few slow ones stay visible."
                    .into(),
            ),
        };
        Some(chart)
    }

    /// What the system was holding: requests without an answer yet, and connections open.
    fn in_flight(&self) -> Option<Chart> {
        let of = |read: fn(&Tick) -> u64| -> Vec<Option<f64>> {
            let at = |bin: &Bin<'_>| {
                let mut by_load: BTreeMap<&str, u64> = BTreeMap::new();
                for tick in &bin.ticks {
                    let most = by_load.entry(&tick.load).or_default();
                    *most = (*most).max(read(tick));
                }
                (!bin.ticks.is_empty()).then(|| by_load.into_values().sum::<u64>() as f64)
            };
            self.ticks.iter().map(at).collect()
        };
        let line = |name: &str, colour, values| Line {
            name: name.to_owned(),
            values,
            colour,
            limit: false,
            of: Vec::new(),
        };
        let lines = vec![
            line("in flight", 0, of(|t| t.counts.in_flight)),
            line("connections", 2, of(|t| t.connections)),
        ];
        let lines = moving(lines);
        if lines.is_empty() {
            return None;
        }
        let title = "Requests in flight and open connections";
        self.chart("held", title, Unit::Count, self.tick_times(), lines)
    }

    fn response_times(&self) -> Option<Chart> {
        let loads: BTreeSet<&str> =
            self.ticks.iter().flat_map(|b| &b.ticks).map(|t| t.load.as_str()).collect();
        type Read = fn(&TickMs) -> Option<f64>;
        let all: [(&str, Read); 4] =
            [("p50", |t| t.p50), ("p90", |t| t.p90), ("p99", |t| t.p99), ("max", |t| t.max)];
        // Four lines for each of several loads could not be told apart.
        let shown: Vec<_> = if loads.len() > 1 { vec![all[0], all[2]] } else { all.to_vec() };
        let mut lines = Vec::new();
        for load in &loads {
            for (name, read) in &shown {
                let name = if loads.len() > 1 { format!("{load} {name}") } else { (*name).to_owned() };
                let values = self.ticks.iter().map(|b| b.largest(load, read)).collect();
                lines.push(Line { name, values, colour: lines.len(), limit: false, of: Vec::new() });
            }
        }
        let known = || lines.iter().flat_map(|l| &l.values).flatten().copied().filter(|v| *v > 0.0);
        let spans_decades = known().fold(0.0, f64::max) > 30.0 * known().fold(f64::INFINITY, f64::min);
        let chart =
            self.chart("response", "Response times of ok outcomes", Unit::Ms, self.tick_times(), lines)?;
        let note = "Percentiles of each second; a point that covers several seconds shows the largest.";
        Some(Chart { logarithmic: spans_decades, note: Some(note.into()), ..chart })
    }

    fn cpu(&self, limits: &BTreeMap<&str, f64>) -> Option<Chart> {
        let lines = self.component_lines(|list| {
            let rates = self.samples.rates(list, cpu_s);
            rates.into_iter().map(|v| v.map(|v| v * 100.0)).collect()
        });
        let limits = limits.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect();
        let (lines, note) = with_limits(lines, limits, Unit::CpuPercent);
        let chart = self.chart(
            "cpu",
            "CPU of each component, of one core",
            Unit::CpuPercent,
            self.samples.at_s(),
            lines,
        )?;
        Some(Chart { note, ..chart })
    }

    fn memory(&self) -> Option<Chart> {
        let read = |s: &Sample| s.memory_bytes.or(s.resident_bytes).map(|v| v as f64);
        let lines = self.component_lines(|list| self.samples.levels(list, read));
        let limits = self.samples.components().filter_map(|(name, list)| {
            let limit = list.iter().rev().find_map(|s| s.memory_limit_bytes)?;
            Some((name.to_owned(), limit as f64))
        });
        let (lines, note) = with_limits(lines, limits.collect(), Unit::Bytes);
        let chart =
            self.chart("memory", "Memory of each component", Unit::Bytes, self.samples.at_s(), lines)?;
        Some(Chart { note, ..chart })
    }

    fn rates(&self, name: &str, title: &str, read: fn(&Sample) -> Option<f64>) -> Option<Chart> {
        let lines = self.component_lines(|list| self.samples.rates(list, read));
        self.chart(name, title, Unit::BytesPerS, self.samples.at_s(), moving(lines))
    }

    fn throttled(&self) -> Option<Chart> {
        let lines = self.component_lines(|list| self.samples.rates(list, |s| s.throttled_s));
        let title = "Time throttled by the CPU limit, share of each second and thread";
        self.chart("throttled", title, Unit::Share, self.samples.at_s(), moving(lines))
    }

    fn probes(&self) -> Option<Chart> {
        let mut names: BTreeMap<String, (&[Sample], &str)> = BTreeMap::new();
        for (_, list) in &self.samples.by_component {
            for sample in list {
                for probe in sample.probes.keys() {
                    names.entry(probe_name(sample, probe)).or_insert((list, probe));
                }
            }
        }
        let lines = names.into_iter().enumerate().map(|(colour, (name, (list, probe)))| {
            let values = self.samples.levels(list, |s| s.probes.get(probe).copied());
            Line { name, values, colour, limit: false, of: Vec::new() }
        });
        self.chart("probes", "Probes", Unit::Number, self.samples.at_s(), lines.collect())
    }

    fn component_lines(&self, values: impl Fn(&[Sample]) -> Vec<Option<f64>>) -> Vec<Line> {
        let line = |(colour, (name, list)): (usize, (&str, &[Sample]))| Line {
            name: if name == "loadlab" { "loadlab (generator)".to_owned() } else { name.to_owned() },
            values: values(list),
            colour,
            limit: false,
            of: vec![name.to_owned()],
        };
        let lines = self.samples.components().enumerate().map(line);
        busiest(lines.filter(|l| l.values.iter().any(Option::is_some)).collect())
    }
}

/// The lines that reach highest, in their order, and the sum of the others.
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
    let sum = |moment: usize| {
        others.iter().filter_map(|l| l.values.get(moment).copied().flatten()).reduce(|a, b| a + b)
    };
    let name = format!("{} others together", others.len());
    lines.push(Line {
        name,
        values: (0..moments).map(sum).collect(),
        colour: 6,
        limit: false,
        of: Vec::new(),
    });
    lines
}

/// Lines with anything above zero.
fn moving(lines: Vec<Line>) -> Vec<Line> {
    lines.into_iter().filter(|l| l.values.iter().flatten().any(|v| *v > 0.0)).collect()
}

/// Limits as dashed lines in their component's colour, components with the same limit on one line; those out
/// of sight are said in words.
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
        let described = figures::value(loadlab_analysis::metric::Value::Known(limit), unit);
        if limit > most * LIMIT_IN_SIGHT {
            out_of_sight.push(format!("{} of {}", described, names.join(", ")));
            continue;
        }
        let first = lines.iter().find(|l| l.of.first() == names.first());
        let (colour, moments) = first.map_or((0, 0), |l| (l.colour, l.values.len()));
        let name = format!("limit of {} ({described})", names.join(", "));
        lines.push(Line { name, values: vec![Some(limit); moments], colour, limit: true, of: names });
    }
    let note =
        (!out_of_sight.is_empty()).then(|| format!("Limits far above usage: {}.", out_of_sight.join("; ")));
    (lines, note)
}
