//! What one worker counted in one interval, since its last delta: the unit that a load thread hands over.

use loadlab_record::counts::dependence::InOrder;
use loadlab_record::counts::example::Example;
use loadlab_record::counts::load::{Bytes, Connections, Counts, InWindow, Series, Stragglers, TagMeasured};
use loadlab_record::counts::numbers::Numbers;

/// How often a delta is handed over. Divides a second.
pub const DELTA_NS: u64 = 100_000_000;

/// What a worker counted in one interval.
#[derive(Debug)]
pub struct Delta {
    /// Number of the worker.
    pub worker: usize,
    /// Start of the interval on the load's clock, inclusive: a multiple of [`DELTA_NS`].
    pub from_ns: u64,
    /// End of the interval on the load's clock, exclusive.
    pub until_ns: u64,
    /// Whether the interval is longer than [`DELTA_NS`] because no empty delta had come back. It then lies within a
    /// second, or ends with one.
    pub is_long: bool,
    /// Requests by event. `in_flight` is set in the last delta only: the requests cut off.
    pub counts: Counts,
    /// Requests in flight when the interval ended.
    pub in_flight: u64,
    /// Connections open when the interval ended.
    pub open: u64,
    /// Complete responses by status code.
    pub statuses: Box<[u64; 1000]>,
    /// Bytes sent and received.
    pub bytes: Bytes,
    /// Times of requests due in the window.
    pub window: Series,
    /// Times of requests due before the window; present only if there is a warm-up.
    pub before: Option<Box<Series>>,
    /// Measurements by tag; window only.
    pub by_tag: Vec<TagMeasured>,
    /// Captured numbers, by their index in the journey; window only.
    pub numbers: Vec<Numbers>,
    /// Events inside the window.
    pub in_window: InWindow,
    /// Total time in flight of the requests that ended in this interval.
    pub busy_ns: u64,
    /// The part of `busy_ns` inside the window.
    pub busy_in_window_ns: u64,
    /// Requests that began before the window's end and ended after it; a delta cannot know `tail_s`.
    pub stragglers: Stragglers,
    /// End of the window, as far as known; `u64::MAX` while it is open-ended.
    pub window_to_ns: u64,
    /// Start of the most recently started request so far.
    pub last_start_ns: u64,
    /// Connections made in the interval, and the most open at once.
    pub connections: Connections,
    /// Most requests in flight in the interval.
    pub flight_peak: u64,
    /// End of the last complete exchange so far.
    pub last_end_ns: u64,
    /// Periods in which the worker did not run, so far.
    pub gaps: Gaps,
    /// Failed exchanges kept in this interval.
    pub examples: Vec<Example>,
    /// The worker's first response times in the window; timeouts and cut-off requests count at their age. In the last
    /// delta only.
    pub in_order: InOrder,
    /// Ids of requests that ended in the interval.
    pub ids: Ids,
    /// Whether the worker has ended.
    pub last: bool,
}

/// Requests in flight and connections open, at one time or at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Requests in flight.
    pub in_flight: u64,
    /// Connections open.
    pub open: u64,
}

impl Gauges {
    /// The larger of each.
    pub(crate) fn larger(self, other: Gauges) -> Gauges {
        Gauges { in_flight: self.in_flight.max(other.in_flight), open: self.open.max(other.open) }
    }

    /// The sum of each.
    pub(crate) fn plus(self, other: Gauges) -> Gauges {
        Gauges { in_flight: self.in_flight + other.in_flight, open: self.open + other.open }
    }
}

/// Dimensions of a delta.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Number of the worker it belongs to.
    pub worker: usize,
    /// Number of tags.
    pub tags: usize,
    /// How many numbers are captured.
    pub numbers: usize,
    /// Whether there is a warm-up.
    pub warmup: bool,
}

/// Periods in which the worker did not run, on the load's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Number of gaps.
    pub count: u64,
    /// Sum of their lengths.
    pub sum_ns: u64,
    /// Length of the longest gap.
    pub longest_ns: u64,
    /// When the longest gap began.
    pub longest_at_ns: u64,
}

impl Gaps {
    /// Of two threads running at the same time, the gaps of the one that was stopped longer.
    pub fn merge_concurrent(self, other: Gaps) -> Gaps {
        if other.sum_ns > self.sum_ns { other } else { self }
    }
}

/// Ids of requests that ended, by outcome; unordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Answered successfully.
    pub accepted: Vec<u64>,
    /// Sent, but not answered completely.
    pub unanswered: Vec<u64>,
    /// Answered, but not successfully.
    pub refused: Vec<u64>,
}

impl Ids {
    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.accepted.is_empty() && self.unanswered.is_empty() && self.refused.is_empty()
    }

    /// Removes all ids, and keeps their memory.
    pub fn clear(&mut self) {
        self.accepted.clear();
        self.unanswered.clear();
        self.refused.clear();
    }

    /// Moves in the ids of `other`, leaving it empty.
    pub fn append(&mut self, other: &mut Ids) {
        self.accepted.append(&mut other.accepted);
        self.unanswered.append(&mut other.unanswered);
        self.refused.append(&mut other.refused);
    }
}

impl Delta {
    /// An empty delta.
    pub fn new(sizes: Sizes) -> Self {
        let Sizes { worker, tags, numbers, warmup } = sizes;
        Delta {
            worker,
            from_ns: 0,
            until_ns: 0,
            is_long: false,
            counts: Counts::default(),
            in_flight: 0,
            open: 0,
            statuses: Box::new([0; 1000]),
            bytes: Bytes::default(),
            window: Series::default(),
            before: warmup.then(Box::default),
            by_tag: (0..tags).map(|_| TagMeasured::default()).collect(),
            numbers: (0..numbers).map(|_| Numbers::default()).collect(),
            in_window: InWindow::default(),
            busy_ns: 0,
            flight_peak: 0,
            busy_in_window_ns: 0,
            stragglers: Stragglers::default(),
            window_to_ns: u64::MAX,
            last_start_ns: 0,
            connections: Connections::default(),
            last_end_ns: 0,
            gaps: Gaps::default(),
            examples: Vec::new(),
            in_order: InOrder::default(),
            ids: Ids::default(),
            last: false,
        }
    }

    /// Its gauges when the interval ended.
    pub(crate) fn at_end(&self) -> Gauges {
        Gauges { in_flight: self.in_flight, open: self.open }
    }

    /// The maximum of its gauges in the interval.
    pub(crate) fn peaks(&self) -> Gauges {
        Gauges { in_flight: self.flight_peak, open: self.connections.peak }
    }

    /// Adds another delta's counts. Gauges, peaks, and everything counted "so far" are left to the caller.
    pub fn add(&mut self, other: &mut Delta) {
        self.until_ns = self.until_ns.max(other.until_ns);
        self.counts.merge(&other.counts);
        self.statuses.iter_mut().zip(&*other.statuses).for_each(|(sum, n)| *sum += n);
        self.bytes.merge(other.bytes);
        self.window.merge(&other.window);
        if let (Some(sum), Some(before)) = (&mut self.before, &other.before) {
            sum.merge(before);
        }
        self.by_tag.iter_mut().zip(&other.by_tag).for_each(|(sum, tag)| sum.merge(tag));
        self.numbers.iter_mut().zip(&other.numbers).for_each(|(sum, numbers)| sum.merge(numbers));
        self.in_window.merge(other.in_window);
        self.busy_ns += other.busy_ns;
        self.busy_in_window_ns += other.busy_in_window_ns;
        self.stragglers.merge(other.stragglers);
        self.connections.add_made(&other.connections);
        self.examples.append(&mut other.examples);
        self.in_order.merge(std::mem::take(&mut other.in_order));
        self.ids.append(&mut other.ids);
    }

    /// Empties it for reuse.
    pub fn clear(&mut self) {
        self.is_long = false;
        self.counts = Counts::default();
        self.statuses.fill(0);
        self.bytes = Bytes::default();
        self.window.clear();
        if let Some(before) = &mut self.before {
            before.clear();
        }
        self.by_tag.iter_mut().for_each(TagMeasured::clear);
        self.numbers.iter_mut().for_each(Numbers::clear);
        self.in_window = InWindow::default();
        self.busy_ns = 0;
        self.busy_in_window_ns = 0;
        self.stragglers = Stragglers::default();
        self.connections = Connections::default();
        self.examples.clear();
        self.in_order = InOrder::default();
        self.ids.clear();
    }
}
