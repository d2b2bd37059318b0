//! The summary of a trial that has none because loadlab was killed, reconstructed from what it had written second by
//! second.
//!
//! Requests due but not started at the last tick count as dropped, those started but not ended as in flight, so that
//! the identities of the accounting hold. What happened after the last tick is lost, the summary is
//! [`Ended::Partial`], and a grave doubt reports it.

use std::collections::BTreeMap;

use loadlab_record::counts::load::{Bytes, Connections, Counts, InWindow, Measured, Tick, Window};
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::manifest::{CaseFacts, FigureFacts};
use loadlab_record::documents::summary::{Ended, Generator, LoadFacts, LoadModel, Summary};
use loadlab_record::expr::Figure;
use loadlab_record::store::TrialRecord;
use loadlab_record::watch::names::GENERATOR;
use loadlab_record::watch::sample::Sample;

use crate::trial::components::cpu_s;
use crate::trial::input::{LoadRun, Planned, TrialInput};
use crate::trial::summarise::summarise;

/// The summary of a cut-off trial. `case` provides the users or the rate, as far as the manifest has them, and
/// `figures` are the manifest's.
pub fn partial(trial: &TrialRecord, case: &CaseFacts, figures: &[FigureFacts]) -> Summary {
    let loads = loads_of(trial);
    let samples = trial.samples.unpacked();
    summarise(TrialInput {
        facts: facts_of(trial, case),
        loads: &loads,
        ticks: &trial.ticks,
        samples: &samples,
        events: &trial.events,
        evidence: &trial.evidence,
        generator: generator_of(trial, &samples),
        agents: Vec::new(),
        ended: Ended::Partial,
        expect: &[],
        intervals: &trial.intervals,
        drain_s: None,
        loss: None,
        planned: Planned { figures: figures_of(figures, case), ..Planned::default() },
    })
}

/// The figures that the plan names, as computed for this case.
fn figures_of(figures: &[FigureFacts], case: &CaseFacts) -> Vec<Figure> {
    let mut all: Vec<Figure> = Vec::new();
    for figure in figures {
        let text = case.figures.get(&figure.name).unwrap_or(&figure.value);
        // One that cannot be parsed has no value, as in a trial without measurements.
        all.extend(Figure::after(&all, &figure.name, text, figure.kind).ok());
    }
    all
}

fn facts_of(trial: &TrialRecord, case: &CaseFacts) -> LoadFacts {
    let planned = trial.events.iter().find_map(|event| match &event.what {
        EventKind::Planned { load } => Some(load.as_ref().clone()),
        _ => None,
    });
    // Cut off before its load began, or recorded by an older loadlab.
    planned.unwrap_or_else(|| LoadFacts {
        model: if case.rate_per_s.is_some() { LoadModel::Open } else { LoadModel::Closed },
        users: case.users,
        rate_per_s: case.rate_per_s,
        ..LoadFacts::default()
    })
}

/// One run for each load and batch, from its ticks. The trial's histograms do not separate batches; they go to the
/// first run, since only their sum is ever used.
fn loads_of(trial: &TrialRecord) -> Vec<LoadRun> {
    let mut by_run: BTreeMap<(String, u32), Vec<&Tick>> = BTreeMap::new();
    for tick in &trial.ticks {
        by_run.entry((tick.load.clone(), tick.batch)).or_default().push(tick);
    }
    let mut runs: Vec<LoadRun> = by_run
        .into_iter()
        .map(|((load, batch), ticks)| {
            let at_s = ticks.first().map_or(0.0, |t| t.from_s);
            LoadRun { load, batch, at_s, measured: measured_of(&ticks, at_s) }
        })
        .collect();
    runs.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    if let Some(first) = runs.first_mut() {
        first.measured.series = trial.series.clone();
        for interval in &trial.intervals {
            if let Some(tag) = interval.request_tag() {
                let tag = first.measured.by_tag.entry(tag.to_owned()).or_default();
                match interval.series() {
                    "response" => interval.merge_into(&mut tag.response_ok),
                    "response_censored" => interval.merge_into(&mut tag.response_censored),
                    "response_failed" => interval.merge_into(&mut tag.response_failed),
                    _ => {}
                }
            }
        }
    }
    runs
}

fn measured_of(ticks: &[&Tick], at_s: f64) -> Measured {
    let mut counts = Counts::default();
    let mut out = Measured::default();
    let (mut window, mut in_flight_before) = (None::<Window>, 0.0);
    for tick in ticks {
        counts.merge(&Counts { in_flight: 0, ..tick.counts.clone() });
        out.bytes = Bytes {
            sent: out.bytes.sent + tick.bytes.sent,
            received: out.bytes.received + tick.bytes.received,
        };
        for (status, n) in &tick.statuses {
            *out.statuses.entry(*status).or_default() += n;
        }
        if tick.in_window {
            let from_s = window.map_or(tick.from_s - at_s, |w| w.from_s);
            window = Some(Window { from_s, to_s: tick.to_s - at_s });
            out.in_window = InWindow {
                due: out.in_window.due + tick.counts.due,
                started: out.in_window.started + tick.counts.started,
                ok: out.in_window.ok + tick.counts.ok,
            };
        }
        // In flight between two readings, by the trapezoid.
        let busy_s = (in_flight_before + tick.counts.in_flight as f64) / 2.0 * (tick.to_s - tick.from_s);
        out.busy_s += busy_s;
        out.busy_in_window_s += if tick.in_window { busy_s } else { 0.0 };
        in_flight_before = tick.counts.in_flight as f64;
        out.connections = Connections { peak: out.connections.peak.max(tick.connections), ..out.connections };
    }
    counts.in_flight = counts.started.saturating_sub(counts.ok + counts.failed());
    counts.dropped = counts.due.saturating_sub(counts.started);
    out.counts = counts;
    out.window = window.unwrap_or_default();
    out.elapsed_s = ticks.last().map_or(0.0, |t| t.to_s - at_s);
    out
}

/// The generator's figures, as far as its own samples show them.
fn generator_of(trial: &TrialRecord, samples: &[Sample]) -> Generator {
    let own = || samples.iter().filter(|s| s.component == GENERATOR && s.at_s >= 0.0);
    let cpu: Vec<f64> = own().filter_map(cpu_s).collect();
    Generator {
        io: "unknown".to_owned(),
        cpu_s: cpu.last().zip(cpu.first()).map_or(0.0, |(last, first)| last - first),
        peak_rss_bytes: own().filter_map(|s| s.resident_bytes.or(s.memory_bytes)).max().unwrap_or(0),
        connections_peak: trial.ticks.iter().map(|t| t.connections).max().unwrap_or(0),
        ..Generator::default()
    }
}
