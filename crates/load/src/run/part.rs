//! A load that several processes send, each a part of it: what a process reports of its part, second by second, and how
//! all parts are merged into the same seconds and totals that one process would report.

use std::collections::{BTreeMap, VecDeque};

use loadlab_record::counts::load::Connections;
use loadlab_record::documents::summary::Generator;
use loadlab_record::text::time::SECOND_NS;

use super::collector::Collector;
use super::peaks::{Peaks, Tenth};
use super::seconds::{Complete, Seconds};
use super::{Control, LoadError, LoadEvent, LoadResult, Origin, simulated, threads};
use crate::io::sim;
use crate::measure::delta::{DELTA_NS, Delta, Gaps, Gauges, Sizes};
use crate::spec::LoadSpec;
use crate::start::{ConnectPhase, Start};
use crate::worker::WorkerEnd;

/// The end of a part.
#[derive(Clone, Debug, Default)]
pub struct PartEnd {
    /// How each of its load threads ended.
    pub threads: Vec<WorkerEnd>,
    /// What the load threads used.
    pub generator: Generator,
    /// How the held connections were opened.
    pub opened: Option<ConnectPhase>,
}

/// Runs this process's part of a load ([`LoadSpec::other_threads`]) on its own threads. Their counts go to `report` on
/// the caller's thread, numbered as worker 0: one delta for each second that all threads have reported, or for several
/// seconds if this thread fell behind.
///
/// `agree` is called once all threads are ready. It returns when the load begins, on the clock of
/// [`crate::io::epoll::now_ns`], and may wait for other processes.
///
/// # Errors
/// A thread cannot be started, or a backend fails. What was reported before remains valid.
pub fn run_part(
    spec: &LoadSpec,
    control: &Control,
    first_id: u64,
    agree: &(dyn Fn() -> u64 + Sync),
    report: &mut dyn FnMut(&mut Delta),
) -> Result<PartEnd, LoadError> {
    let start = Start::agreed(first_id, spec.threads, agree);
    let mut blocks = Blocks::new(spec);
    let (ends, generator) = threads::run(spec, control, &start, &mut |delta| blocks.add(delta, report))?;
    blocks.end(report);
    let threads = ends.into_iter().collect::<Result<_, _>>()?;
    let generator = Generator { connections_peak: blocks.most_open, ..generator };
    Ok(PartEnd { threads, generator, opened: start.opened.get().copied().filter(|_| spec.held.is_some()) })
}

/// As `run_part`, on simulated load threads and without waiting in real time.
///
/// # Errors
/// Those of [`super::simulate`].
pub fn simulate_part<S: sim::Server>(
    spec: &LoadSpec,
    control: &Control,
    io: &mut sim::Sim<S>,
    report: &mut dyn FnMut(&mut Delta),
) -> Result<PartEnd, LoadError> {
    let first = spec.other_threads.before;
    let mut blocks = Blocks::new(spec);
    let slots = first..first + spec.threads as u64;
    let threads = simulated::on_slots(spec, slots, control, io, &mut |delta| blocks.add(delta, report))?;
    blocks.end(report);
    let generator = Generator { io: "sim".into(), threads: spec.threads as u64, ..Generator::default() };
    Ok(PartEnd { threads, generator, opened: None })
}

/// One report from a part.
#[derive(Debug)]
pub struct PartReport {
    /// Number of the part, from 0.
    pub part: usize,
    /// What the part reports.
    pub content: PartContent,
}

/// What a part reports.
#[derive(Debug)]
pub enum PartContent {
    /// What the part counted in a second.
    Counted(Box<Delta>),
    /// The part has ended.
    Ended(Box<PartEnd>),
}

/// Merges the reports of all parts of a load, each part's in its own order, until there are no more. `spec` is the
/// whole load. `next` returns the next report; it is given the previous report's delta, whose memory it may reuse.
pub fn merge(
    spec: &LoadSpec,
    origin: Origin,
    parts: usize,
    next: &mut dyn FnMut(Option<Box<Delta>>) -> Option<PartReport>,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> LoadResult {
    let start = Start::new(origin.start_ns, origin.first_id, None);
    let mut collector = Collector::new(spec, origin, &start, parts);
    let mut ends: BTreeMap<usize, PartEnd> = BTreeMap::new();
    let mut used = None;
    while let Some(PartReport { part, content }) = next(used.take()) {
        match content {
            PartContent::Counted(mut delta) => {
                delta.worker = part;
                collector.add(&mut delta, observer);
                used = Some(delta);
            }
            PartContent::Ended(end) => {
                collector.worker_ended(part, observer);
                ends.insert(part, *end);
            }
        }
    }
    collector.end(observer);
    let opened = ends.values().filter_map(|end| end.opened);
    if let Some(opened) = opened.reduce(ConnectPhase::merge_concurrent) {
        let _ = start.opened.set(opened);
    }
    let generator = ends.values().map(|end| end.generator.clone()).reduce(Generator::merge_concurrent);
    let threads = ends.into_values().flat_map(|end| end.threads).collect();
    collector.outcome(threads, generator.unwrap_or_default())
}

/// Counts of this process's threads, merged into seconds.
struct Blocks {
    seconds: Seconds<Delta>,
    threads: Vec<ThreadReport>,
    peaks: Peaks,
    /// Tenths of a second that all threads have reported and that are not in a block yet.
    tenths: VecDeque<Tenth>,
    most_open: u64,
}

/// A thread's latest report.
#[derive(Clone, Copy, Default)]
struct ThreadReport {
    until_ns: u64,
    gaps: Gaps,
    window_to_ns: u64,
    last_start_ns: u64,
    last_end_ns: u64,
}

impl Blocks {
    fn new(spec: &LoadSpec) -> Self {
        let thread = ThreadReport { window_to_ns: u64::MAX, ..ThreadReport::default() };
        Blocks {
            seconds: Seconds::new(spec.threads).starting_at(spec.joins.at_ns),
            threads: vec![thread; spec.threads],
            peaks: Peaks::new(spec.threads).starting_at(spec.joins.at_ns),
            tenths: VecDeque::new(),
            most_open: 0,
        }
    }

    fn add(&mut self, delta: &mut Delta, report: &mut dyn FnMut(&mut Delta)) {
        self.threads[delta.worker] = ThreadReport {
            until_ns: if delta.last { u64::MAX } else { delta.until_ns },
            gaps: delta.gaps,
            window_to_ns: delta.window_to_ns,
            last_start_ns: delta.last_start_ns,
            last_end_ns: delta.last_end_ns,
        };
        // A thread's last delta counts toward the second it began in.
        let until_ns = if delta.is_long { delta.until_ns } else { delta.from_ns };
        self.peaks.add(delta.worker, delta.from_ns..delta.until_ns, delta.peaks(), delta.at_end());
        if delta.last {
            self.peaks.ended(delta.worker);
        }
        self.tenths.extend(std::iter::from_fn(|| self.peaks.complete()));
        let sizes = Sizes {
            worker: 0,
            tags: delta.by_tag.len(),
            numbers: delta.numbers.len(),
            warmup: delta.before.is_some(),
        };
        // Requests cut off at the end stay in flight permanently.
        let in_flight = delta.in_flight + delta.counts.in_flight;
        let gauges = Gauges { in_flight, open: delta.open };
        let make = || Delta::new(sizes);
        self.seconds.of(delta.from_ns..until_ns, delta.worker, gauges, make).add(delta);
        let reported_ns = self.threads.iter().map(|t| t.until_ns).min().unwrap_or(0);
        self.report_complete(reported_ns, report);
    }

    fn end(&mut self, report: &mut dyn FnMut(&mut Delta)) {
        self.report_complete(u64::MAX, report);
    }

    fn report_complete(&mut self, reported_ns: u64, report: &mut dyn FnMut(&mut Delta)) {
        while let Some(Complete { number, length, what: mut block, gauges }) =
            self.seconds.complete(reported_ns)
        {
            (block.in_flight, block.open) = (gauges.in_flight - block.counts.in_flight, gauges.open);
            let last = reported_ns == u64::MAX && self.seconds.is_empty();
            block.until_ns = if last { block.until_ns } else { (number + length) * SECOND_NS };
            self.finish(&mut block, last);
            report(&mut block);
            self.seconds.give_back(block);
        }
    }

    /// Fills in the peaks and what is known so far.
    fn finish(&mut self, block: &mut Delta, last: bool) {
        let threads = &self.threads;
        let most = |of: fn(&ThreadReport) -> u64| threads.iter().map(of).max().unwrap_or(0);
        block.worker = 0;
        // The block covers an interval of any length, up to its end.
        (block.is_long, block.last) = (true, last);
        block.window_to_ns = most(|t| t.window_to_ns);
        block.last_start_ns = most(|t| t.last_start_ns);
        block.last_end_ns = most(|t| t.last_end_ns);
        block.gaps = threads.iter().fold(Gaps::default(), |longer, t| longer.merge_concurrent(t.gaps));
        let mut peaks = Gauges::default();
        let until = block.until_ns.div_ceil(DELTA_NS);
        while let Some(tenth) = self.tenths.pop_front_if(|tenth| tenth.number < until || last) {
            peaks = peaks.larger(tenth.peaks);
        }
        block.flight_peak = peaks.in_flight;
        block.connections = Connections { peak: peaks.open, ..block.connections };
        self.most_open = self.most_open.max(peaks.open);
    }
}
