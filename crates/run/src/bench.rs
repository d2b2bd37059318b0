//! One load against URLs: no plan, no system, no record.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;

use loadlab_analysis::{Planned, TrialInput, summarise};
use loadlab_load::LoadSpec;
use loadlab_load::resident;
use loadlab_load::run::Origin;
use loadlab_load::target::TargetError;
use loadlab_load::target::names::Names;
use loadlab_record::counts::example::Example;
use loadlab_record::counts::load::{Series, Tick};
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::summary::{Generator, LoadFacts, Summary};
use loadlab_record::expr::Expr;
use loadlab_record::watch::evidence::Evidence;
use loadlab_record::watch::sample::Sample;
use loadlab_system::{
    Answering, Cancel, Emit, IdleReadings, SampleTiming, Target, TrialClock, WatchEvent, Watcher, clock,
};

use crate::event::RunEvent;
use crate::state::{EventSink, TrialState};
use crate::translate::hosts::name_moved;
use crate::trial::facts::{facts_of, planned_of};
use crate::trial::measure::{LEAD_NS, LoadRequest, MeasuredLoad, measure};
use crate::unanswered::unanswered;
use crate::watch::{Watch, leaves_files, unseen};

/// A load to bench, and how.
pub struct Bench {
    /// The load.
    pub spec: LoadSpec,
    /// The first URL, for display.
    pub url: String,
    /// The expectations that must hold.
    pub expect: Vec<Expr>,
    /// The load ends when any of these holds.
    pub stop_when: Vec<Expr>,
    /// The addresses that its host names resolved to.
    pub names: Names,
    /// Where to write resource samples of the generator, the host and the watched processes, one JSON line each.
    pub samples: Option<PathBuf>,
    /// What to watch besides the generator.
    pub watch: Watch,
}

/// The result of a bench.
pub struct BenchResult {
    /// The summary document.
    pub summary: Summary,
    /// The exchanges that were kept.
    pub examples: Vec<Example>,
    /// One entry per second of load.
    pub ticks: Vec<Tick>,
    /// All durations in the measured window.
    pub series: Series,
    /// Why it ended early, if something spoiled it.
    pub trouble: Option<String>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The target may not be loaded or does not resolve.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The engine could not run the load.
    #[error("{0}")]
    Load(String),
    /// The samples file cannot be written.
    #[error("cannot write samples to {path}: {error}")]
    Samples {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        error: std::io::Error,
    },
}

/// The processes that answer, and their state before the load.
pub struct IdleProcesses {
    found: Answering,
    at_rest: Option<IdleReadings>,
}

impl Bench {
    /// Finds the processes that answer and reads what is watched. This takes milliseconds; run it on a separate thread,
    /// in parallel with other checks, and no load has to wait for it.
    pub fn read_idle(&self) -> IdleProcesses {
        let found = self.watch.find(&self.watch.addresses(&self.spec));
        let targets = || found.targets().into_iter().chain([Target::generator(), Target::host()]).collect();
        let at_rest = is_watched(self, &found).then(|| IdleReadings::read(targets()));
        IdleProcesses { found, at_rest }
    }
}

/// Runs the load to its end or until cancelled.
///
/// # Errors
/// Only if nothing could be measured.
pub fn bench(
    bench: &Bench,
    before: IdleProcesses,
    cancel: &Cancel,
    emit: EventSink<'_>,
) -> Result<BenchResult, BenchError> {
    let secrets = &bench.spec.secrets;
    let emit: EventSink<'_> = &|event: RunEvent| emit(event.masked(secrets));
    let facts = facts_of(&bench.spec, &bench.url);
    let state = Arc::new(TrialState::new(None, cancel.clone(), bench.spec.secrets.clone()));
    let IdleProcesses { found, at_rest } = before;
    if let Some(text) = found.described(0) {
        emit(RunEvent::Note(text));
    }
    // Before zero of the clock: of millions of random arrivals, finding the end takes long.
    let planned_s = bench.spec.schedule_ns().map(|ns| ns as f64 / 1e9);
    resident::leave_start_behind();
    let zero_ns = clock::now_ns() + LEAD_NS;
    state.set_clock(zero_ns);
    let watcher = watch(bench, &state, found, at_rest, zero_ns)?;
    emit(RunEvent::LoadStarted {
        load: bench.spec.name.clone(),
        batch: (0, 1),
        planned_s,
        planned_requests: facts.requests.filter(|_| !facts.sessions),
    });
    let origin = Origin { start_ns: zero_ns, zero_ns, batch: 0, first_id: 0 };
    let request = LoadRequest {
        spec: &bench.spec,
        facts: &facts,
        stop_when: &bench.stop_when,
        expect: &bench.expect,
        figures: &[],
        has_viewer: false,
        is_warmup_found: false,
        origin,
        senders: None,
    };
    let measured = measure(&request, &state, None, emit);
    if let Some(watcher) = watcher {
        watcher.stop();
    }
    let trouble = state.abort_reason().map(|t| t.describe());
    let Some(measured) = measured else {
        return Err(BenchError::Load(trouble.unwrap_or_else(|| "the load could not run".to_owned())));
    };
    emit(RunEvent::LoadEnded { load: bench.spec.name.clone(), how: measured.how.clone() });
    let moved = bench.names.moved().into_iter();
    let events: Vec<Event> = moved.map(|m| Event { at_s: state.now_s(), what: name_moved(m) }).collect();
    let (samples, seen) = state.collected();
    for event in seen {
        if let EventKind::Note { text } = event.what {
            emit(RunEvent::Note(text));
        }
    }
    let evidence = state.evidence();
    let seen = WatchedSystem { samples: &samples, evidence: &evidence, events: &events };
    let summary = secrets.mask_value(summary_of(bench, facts, &measured, &seen));
    let summary = summary.ok_or_else(|| BenchError::Load("the summary could not be masked".to_owned()))?;
    let MeasuredLoad { run, examples, ticks, .. } = measured;
    let examples = secrets.mask_value(examples).unwrap_or_default();
    let trouble = trouble.or_else(|| unanswered(&summary, &examples));
    Ok(BenchResult { summary, examples, ticks, series: run.measured.series, trouble })
}

/// What was observed besides the load.
struct WatchedSystem<'a> {
    samples: &'a [Sample],
    evidence: &'a [Evidence],
    events: &'a [Event],
}

fn summary_of(bench: &Bench, facts: LoadFacts, measured: &MeasuredLoad, seen: &WatchedSystem<'_>) -> Summary {
    summarise(TrialInput {
        agents: Vec::new(),
        facts,
        loads: std::slice::from_ref(&measured.run),
        ticks: &measured.ticks,
        samples: seen.samples,
        evidence: seen.evidence,
        events: seen.events,
        generator: Generator { machine_cores: crate::host::machine_cores(), ..measured.generator.clone() },
        ended: measured.ended,
        expect: &bench.expect,
        intervals: &measured.intervals,
        drain_s: None,
        loss: None,
        planned: Planned { cores: crate::host::cores(), ..planned_of(&bench.spec) },
    })
}

/// Whether processes were found or watching was requested.
fn is_watched(bench: &Bench, found: &Answering) -> bool {
    bench.samples.is_some() || *found != Answering::default() && leaves_files()
}

/// Watches the processes that answer, the generator and the host; `None` if none of it is requested.
fn watch(
    bench: &Bench,
    state: &Arc<TrialState>,
    found: Answering,
    at_rest: Option<IdleReadings>,
    origin_ns: u64,
) -> Result<Option<Watcher>, BenchError> {
    let finds = found != Answering::default() && leaves_files();
    if let Some(unseen) = unseen(&found).filter(|_| !finds) {
        state.take_watch_event(unseen);
    }
    let Some(at_rest) = at_rest else { return Ok(None) };
    let failed = |path: &PathBuf, error| BenchError::Samples { path: path.clone(), error };
    let file = bench.samples.as_ref().map(|path| {
        loadlab_record::store::files::create_named(path).map(Mutex::new).map_err(|error| failed(path, error))
    });
    let file = file.transpose()?;
    let (state, secrets) = (state.clone(), bench.spec.secrets.clone());
    let emit: Emit = Arc::new(move |watched: WatchEvent| {
        if let (WatchEvent::Samples(samples), Some(Ok(mut file))) = (&watched, file.as_ref().map(Mutex::lock))
        {
            // A full disk ends the file, not the load.
            let _ = secrets.samples_lines(samples).map(|lines| file.write_all(&lines));
        }
        state.take_watch_event(watched);
    });
    let could_not = |error: loadlab_system::Error| BenchError::Load(error.to_string());
    let (clock, timing) = (TrialClock { origin_ns }, SampleTiming::default());
    let mut watcher =
        Watcher::start_in(timing, clock, at_rest, Vec::new(), emit.clone()).map_err(could_not)?;
    let addresses = bench.watch.addresses(&bench.spec);
    if finds && !addresses.is_empty() {
        watcher.follow(addresses, found, emit).map_err(could_not)?;
    }
    Ok(Some(watcher))
}
