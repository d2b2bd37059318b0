//! Charts of the load of one trial: throughput, failures, response times and their distribution, what was in flight.

use std::collections::{BTreeMap, BTreeSet};

use loadlab_analysis::cases::metric::Unit;
use loadlab_record::Failure;
use loadlab_record::counts::load::{Tick, TickMs};
use loadlab_record::store::TrialRecord;

use super::distributions;
use super::flat_lines::{QuietText, parted};
use super::one_trial::ChartedTrial;
use super::readings::TickBin;
use crate::colour::Colour;
use crate::document::{Chart, Line, Multiples};

impl ChartedTrial<'_> {
    /// How the load went, in the order readers ask: what got through, what did not, how long it took.
    pub(super) fn load(&self, record: &TrialRecord, is_measured: bool) -> Multiples {
        let mut of = Multiples { title: "Load".to_owned(), charts: Vec::new(), quiet: Vec::new() };
        self.throughput(&mut of);
        // Of a program's load only its requests are known.
        if is_measured {
            self.failures(&mut of);
        } else {
            of.quiet.push("Failures, requests in flight and connections: not measured.".to_owned());
        }
        of.charts.extend(self.response_times());
        of.charts.extend(self.heat(record));
        if is_measured {
            self.in_flight(&mut of);
        }
        of
    }

    /// Drawn however constant it is, since everything else is read against it; left out if all was zero.
    fn throughput(&self, of: &mut Multiples) {
        let open = |t: &Tick| t.counts.due.abs_diff(t.counts.started) > 0 || t.counts.dropped > 0;
        let behind = self.ticks.iter().flat_map(|b| &b.ticks).any(|t| open(t));
        let mut lines = vec![self.tick_line("ok", Colour::Nth(0), |t| t.counts.ok)];
        if behind {
            lines.push(self.tick_line("due", Colour::Asked, |t| t.counts.due));
            lines.push(self.tick_line("dropped", Colour::Failure(0), |t| t.counts.dropped));
        }
        let some = |l: &Line| l.values.iter().flatten().any(|v| *v > 0.0);
        if lines.iter().any(some) {
            lines.retain(|l| l.name != "dropped" || some(l));
            of.charts.extend(self.chart("throughput", "Throughput", Unit::PerS, self.tick_times(), lines));
        } else if !self.ticks.is_empty() {
            of.quiet.push("Throughput: 0/s throughout.".to_owned());
        }
    }

    fn tick_times(&self) -> Vec<f64> {
        self.ticks.iter().map(|b| b.at_s).collect()
    }

    fn tick_line(&self, name: &str, colour: Colour, read: impl Fn(&Tick) -> u64) -> Line {
        let values = self.ticks.iter().map(|b| b.per_s(&read)).collect();
        Line { name: name.to_owned(), values, colour, limit: false, of: Vec::new() }
    }

    /// A line for each kind that occurred.
    fn failures(&self, of: &mut Multiples) {
        let ticks = || self.ticks.iter().flat_map(|b| &b.ticks);
        let occurred = |kind: &Failure| ticks().any(|t| t.counts.failures.get(*kind) > 0);
        let kinds: Vec<Failure> = Failure::ALL.into_iter().filter(occurred).collect();
        if kinds.is_empty() {
            of.quiet.extend((!self.ticks.is_empty()).then(|| "Failures: none.".to_owned()));
            return;
        }
        let line = |(i, kind): (usize, &Failure)| {
            self.tick_line(kind.name(), Colour::Failure(i), |t: &Tick| t.counts.failures.get(*kind))
        };
        let lines = kinds.iter().enumerate().map(line).collect();
        of.charts.extend(self.chart("failures", "Failures by kind", Unit::PerS, self.tick_times(), lines));
    }

    /// How often each response time occurred, by second: a shift of the many and a few slow ones look alike in
    /// percentiles, but not here.
    fn heat(&self, record: &TrialRecord) -> Option<Chart> {
        let (at_s, heat) = distributions::heat(record)?;
        let title = "Response time distribution, ok";
        let note = "Darker: more responses (logarithmic).";
        Some(Chart {
            logarithmic: true,
            heat: Some(heat),
            note: Some(note.into()),
            ..self.empty("heat", title, Unit::Ms, at_s)
        })
    }

    /// What the system was holding: unanswered requests, and open connections.
    fn in_flight(&self, of: &mut Multiples) {
        let read = |read: fn(&Tick) -> u64| -> Vec<Option<f64>> {
            let at = |bin: &TickBin<'_>| {
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
        let all = [
            ("Requests in flight", line("in flight", Colour::Nth(0), read(|t| t.counts.in_flight))),
            (
                "Connections",
                line("connections", Colour::Percentile { rank: 2, load: 1 }, read(|t| t.connections)),
            ),
        ];
        let mut lines = Vec::new();
        for (name, line) in all {
            let (moving, quiet) = parted(
                vec![line],
                Unit::Count,
                QuietText { name, zero: "none at the end of any second" },
                |_| None,
            );
            lines.extend(moving);
            of.quiet.extend(quiet);
        }
        let title = "In flight and connections";
        of.charts.extend(self.chart("held", title, Unit::Count, self.tick_times(), lines));
    }

    fn response_times(&self) -> Option<Chart> {
        let loads: BTreeSet<&str> =
            self.ticks.iter().flat_map(|b| &b.ticks).map(|t| t.load.as_str()).collect();
        type ReadTick = fn(&TickMs) -> Option<f64>;
        let all: [(&str, usize, ReadTick); 4] =
            [("p50", 0, |t| t.p50), ("p90", 1, |t| t.p90), ("p99", 2, |t| t.p99), ("max", 3, |t| t.max)];
        // Four lines for each of several loads would be indistinguishable.
        let shown: Vec<_> = if loads.len() > 1 { vec![all[0], all[2]] } else { all.to_vec() };
        let mut lines = Vec::new();
        for (i, load) in loads.iter().enumerate() {
            for (name, rank, read) in &shown {
                let name = if loads.len() > 1 { format!("{load} {name}") } else { (*name).to_owned() };
                let values = self.ticks.iter().map(|b| b.largest(load, read)).collect();
                let colour = Colour::Percentile { rank: *rank, load: i };
                lines.push(Line { name, values, colour, limit: false, of: Vec::new() });
            }
        }
        let known = || lines.iter().flat_map(|l| &l.values).flatten().copied().filter(|v| *v > 0.0);
        let spans_decades = known().fold(0.0, f64::max) > 30.0 * known().fold(f64::INFINITY, f64::min);
        let chart = self.chart("response", "Response times, ok", Unit::Ms, self.tick_times(), lines)?;
        // A point that covers several seconds shows the largest of their percentiles.
        let step_s = self.ticks.windows(2).map(|b| b[1].at_s - b[0].at_s).fold(0.0, f64::max).round();
        let note = (step_s > 1.0).then(|| format!("Each point: the largest of {step_s:.0} seconds."));
        Some(Chart { logarithmic: spans_decades, note, ..chart })
    }
}
