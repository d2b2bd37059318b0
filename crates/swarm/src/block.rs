//! What an agent counted in one second, or how its part ended, as bytes: JSON for small values, the compact form for
//! histograms, and deflate over both. Merging blocks gives exactly what a single recorder would have counted.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use loadlab_load::measure::delta::{Delta, Gaps, Ids, Sizes};
use loadlab_load::run::{ConnectPhase, PartContent, PartEnd, Stopped, WorkerEnd};
use loadlab_record::counts::compact::{self, Compact, Damaged, read_into, read_varint, write_varint};
use loadlab_record::counts::dependence::InOrder;
use loadlab_record::counts::example::Example;
use loadlab_record::counts::load::{Bytes, Connections, Counts, InWindow, Series, Stragglers, TagMeasured};
use loadlab_record::counts::numbers::Numbers;
use loadlab_record::documents::summary::Generator;
use serde::{Deserialize, Serialize};

/// Maximum size of an unpacked block: the ids of a million requests take a tenth of this.
const MOST_BYTES: u64 = 64 << 20;
/// Maximum number of users in one part.
const MOST_USERS: u64 = 20_000_000;
/// All status codes are below this.
const STATUSES: usize = 1000;
/// Maximum number of tags or captured numbers; a plan has fewer.
const MOST_SERIES: usize = 10_000;

/// Why bytes are not a valid block.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// They were not packed by an agent, or were cut short.
    #[error("cannot be unpacked: {0}")]
    Packed(std::io::Error),
    /// The JSON head is invalid.
    #[error("has unreadable counts: {0}")]
    Json(#[from] serde_json::Error),
    /// A histogram or the framing is damaged.
    #[error("has damaged histograms")]
    Damaged,
}

impl From<Damaged> for BlockError {
    fn from(_: Damaged) -> Self {
        BlockError::Damaged
    }
}

/// The part of a block that is written as JSON. Times are nanoseconds on the load's clock.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Head {
    Counted(Box<Counted>),
    Ended(Box<Ended>),
}

#[derive(Serialize, Deserialize)]
struct Counted {
    from_ns: u64,
    until_ns: u64,
    last: bool,
    counts: Counts,
    in_flight: u64,
    open: u64,
    statuses: BTreeMap<u16, u64>,
    bytes: Bytes,
    /// Due, started, ok.
    in_window: [u64; 3],
    busy_ns: u64,
    busy_in_window_ns: u64,
    stragglers: Stragglers,
    /// `null` while the window is open-ended.
    window_to_ns: Option<u64>,
    last_start_ns: u64,
    last_end_ns: u64,
    flight_peak: u64,
    connections: Connections,
    /// Number of gaps, their sum, the longest, and when the longest began; nanoseconds.
    gaps: [u64; 4],
    examples: Vec<Example>,
    has_before: bool,
    by_tag: Vec<Counts>,
    numbers: usize,
}

#[derive(Serialize, Deserialize)]
struct Ended {
    threads: Vec<Thread>,
    generator: Generator,
    opened: Option<(u64, u64)>,
}

/// A [`WorkerEnd`] without what its users captured: secrets stay where they are used.
#[derive(Serialize, Deserialize)]
struct Thread {
    ended_ns: u64,
    stopped_ns: Option<u64>,
    slowest: Vec<Example>,
    gaps: [u64; 4],
    /// Number of users by number of requests sent.
    per_user: BTreeMap<u64, u64>,
    users_without_row: u64,
    users_peak: Option<u64>,
}

/// Packs a report of a part.
pub fn pack(content: &PartContent) -> Vec<u8> {
    match content {
        PartContent::Counted(delta) => pack_counted(delta),
        PartContent::Ended(end) => pack_ended(end),
    }
}

/// Packs what a part counted in one second.
pub fn pack_counted(delta: &Delta) -> Vec<u8> {
    let mut body = Vec::new();
    write_histograms(delta, &mut body);
    packed(&Head::Counted(Box::new(counted(delta))), &body)
}

/// Packs the end of a part.
pub fn pack_ended(end: &PartEnd) -> Vec<u8> {
    packed(&Head::Ended(Box::new(ended(end))), &[])
}

fn packed(head: &Head, body: &[u8]) -> Vec<u8> {
    let head = serde_json::to_vec(head).expect("numbers and texts");
    let mut length = Vec::new();
    write_varint(head.len() as u64, &mut length);
    // Writing to memory does not fail.
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
    [length.as_slice(), &head, body].iter().for_each(|piece| packed.write_all(piece).expect("memory"));
    packed.finish().expect("memory")
}

/// A block whose histograms are not decoded yet: a thousand such blocks are small, but a thousand deltas are not.
pub struct Block {
    head: Head,
    body: Vec<u8>,
}

/// What is needed of a block before its turn comes.
#[derive(Clone, Copy, Debug)]
pub struct SecondHead {
    /// See [`Delta::until_ns`].
    pub until_ns: u64,
    /// See [`Delta::in_flight`].
    pub in_flight: u64,
    /// Requests that fell due in this second.
    pub due: u64,
    /// See [`Delta::window_to_ns`].
    pub window_to_ns: u64,
    /// See [`Delta::gaps`].
    pub gaps: Gaps,
    /// Whether it is the part's last second.
    pub last: bool,
}

impl Default for SecondHead {
    /// Nothing was reported yet, so the window has no end.
    fn default() -> Self {
        let (until_ns, in_flight, due, gaps) = Default::default();
        SecondHead { until_ns, in_flight, due, window_to_ns: u64::MAX, gaps, last: false }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("known", &self.known()).finish_non_exhaustive()
    }
}

impl Block {
    /// Decompresses a block and reads its head.
    ///
    /// # Errors
    /// The bytes were not made by [`pack`].
    pub fn open(packed: &[u8]) -> Result<Block, BlockError> {
        let mut bytes = Vec::new();
        let mut decoder = DeflateDecoder::new(packed).take(MOST_BYTES + 1);
        decoder.read_to_end(&mut bytes).map_err(BlockError::Packed)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(BlockError::Damaged);
        }
        let mut rest = bytes.as_slice();
        let length = usize::try_from(read_varint(&mut rest)?).map_err(|_| Damaged)?;
        let (head, body) = rest.split_at_checked(length).ok_or(Damaged)?;
        let head = serde_json::from_slice(head)?;
        if let Head::Counted(head) = &head
            && (head.by_tag.len() > MOST_SERIES
                || head.numbers > MOST_SERIES
                || head.statuses.keys().any(|status| usize::from(*status) >= STATUSES))
        {
            return Err(BlockError::Damaged);
        }
        Ok(Block { head, body: body.to_vec() })
    }

    /// A block for a part whose agent was lost: it contains only the requests in flight, which stay in flight for good.
    pub fn cut_off(at: SecondHead) -> Block {
        let mut delta = nothing_counted(at, at.until_ns);
        delta.counts.in_flight = at.in_flight;
        // How old they were is not known, nor of which tag.
        delta.window.response_censored.record_n(0, at.in_flight);
        Block::of(&delta)
    }

    /// A block for a part that nobody sent between its last report and `until_ns`.
    pub fn nothing(last: SecondHead, until_ns: u64) -> Block {
        Block::of(&nothing_counted(last, until_ns))
    }

    fn of(delta: &Delta) -> Block {
        let mut body = Vec::new();
        write_histograms(delta, &mut body);
        Block { head: Head::Counted(Box::new(counted(delta))), body }
    }

    /// A block for a part that ends without a report.
    pub fn end() -> Block {
        Block { head: Head::Ended(Box::new(ended(&PartEnd::default()))), body: Vec::new() }
    }

    /// Damages the block as corruption in transit would, for tests.
    #[doc(hidden)]
    pub fn without_last_byte(mut self) -> Block {
        self.body.pop();
        self
    }

    /// The facts about a second; `None` if this block is the end of a part.
    pub fn known(&self) -> Option<SecondHead> {
        let Head::Counted(head) = &self.head else { return None };
        Some(SecondHead {
            until_ns: head.until_ns,
            in_flight: head.in_flight,
            due: head.counts.due,
            window_to_ns: head.window_to_ns.unwrap_or(u64::MAX),
            gaps: gaps_of(head.gaps),
            last: head.last,
        })
    }

    /// Decodes the block, and tells whether it was intact: if its histograms are damaged, the counts remain, so that
    /// the load's totals still add up. A delta that is no longer needed can be passed in to reuse its memory.
    pub fn into_content(self, used: Option<Box<Delta>>) -> (PartContent, Result<(), BlockError>) {
        match self.head {
            Head::Counted(head) => {
                let (delta, whole) = delta_of(*head, &self.body, used);
                (PartContent::Counted(delta), whole.map_err(BlockError::from))
            }
            Head::Ended(head) => match end_of(*head) {
                Ok(end) if self.body.is_empty() => (PartContent::Ended(Box::new(end)), Ok(())),
                _ => (PartContent::Ended(Box::default()), Err(BlockError::Damaged)),
            },
        }
    }
}

/// A delta without counts, from the end of a part's last report to `until_ns`.
fn nothing_counted(last: SecondHead, until_ns: u64) -> Delta {
    let mut delta = Delta::new(Sizes { worker: 0, tags: 0, numbers: 0, warmup: false });
    (delta.from_ns, delta.until_ns) = (last.until_ns, until_ns);
    (delta.window_to_ns, delta.gaps) = (last.window_to_ns, last.gaps);
    delta
}

/// Unpacks a report of a part.
///
/// # Errors
/// The bytes were not made by [`pack`].
pub fn unpack(packed: &[u8]) -> Result<PartContent, BlockError> {
    let (content, whole) = Block::open(packed)?.into_content(None);
    whole.map(|()| content)
}

fn counted(delta: &Delta) -> Counted {
    let statuses = delta.statuses.iter().enumerate().filter(|(_, n)| **n > 0);
    Counted {
        from_ns: delta.from_ns,
        until_ns: delta.until_ns,
        last: delta.last,
        counts: delta.counts.clone(),
        in_flight: delta.in_flight,
        open: delta.open,
        statuses: statuses.map(|(status, n)| (status as u16, *n)).collect(),
        bytes: delta.bytes,
        in_window: [delta.in_window.due, delta.in_window.started, delta.in_window.ok],
        busy_ns: delta.busy_ns,
        busy_in_window_ns: delta.busy_in_window_ns,
        stragglers: delta.stragglers,
        window_to_ns: Some(delta.window_to_ns).filter(|ns| *ns != u64::MAX),
        last_start_ns: delta.last_start_ns,
        last_end_ns: delta.last_end_ns,
        flight_peak: delta.flight_peak,
        connections: delta.connections,
        gaps: of_gaps(delta.gaps),
        examples: delta.examples.clone(),
        has_before: delta.before.is_some(),
        by_tag: delta.by_tag.iter().map(|tag| tag.counts.clone()).collect(),
        numbers: delta.numbers.len(),
    }
}

fn delta_of(head: Counted, body: &[u8], used: Option<Box<Delta>>) -> (Box<Delta>, Result<(), Damaged>) {
    let fits = |delta: &Delta| {
        (delta.by_tag.len(), delta.numbers.len(), delta.before.is_some())
            == (head.by_tag.len(), head.numbers, head.has_before)
    };
    let sizes = Sizes { worker: 0, tags: head.by_tag.len(), numbers: head.numbers, warmup: head.has_before };
    let mut delta = used.filter(|delta| fits(delta)).unwrap_or_else(|| Box::new(Delta::new(sizes)));
    delta.clear();
    let mut rest = body;
    let read = read_histograms(&mut delta, &mut rest);
    let whole = read.and(if rest.is_empty() { Ok(()) } else { Err(Damaged) });
    if whole.is_err() {
        delta.clear();
    }
    for (status, n) in head.statuses {
        delta.statuses[usize::from(status)] = n;
    }
    delta.by_tag.iter_mut().zip(head.by_tag).for_each(|(tag, counts)| tag.counts = counts);
    let [due, started, ok] = head.in_window;
    (delta.from_ns, delta.until_ns, delta.is_long, delta.last) =
        (head.from_ns, head.until_ns, true, head.last);
    (delta.counts, delta.in_flight, delta.open) = (head.counts, head.in_flight, head.open);
    (delta.bytes, delta.in_window) = (head.bytes, InWindow { due, started, ok });
    (delta.busy_ns, delta.busy_in_window_ns) = (head.busy_ns, head.busy_in_window_ns);
    (delta.stragglers, delta.window_to_ns) = (head.stragglers, head.window_to_ns.unwrap_or(u64::MAX));
    (delta.last_start_ns, delta.last_end_ns) = (head.last_start_ns, head.last_end_ns);
    (delta.flight_peak, delta.connections) = (head.flight_peak, head.connections);
    (delta.gaps, delta.examples) = (gaps_of(head.gaps), head.examples);
    (delta, whole)
}

fn of_gaps(gaps: Gaps) -> [u64; 4] {
    [gaps.count, gaps.sum_ns, gaps.longest_ns, gaps.longest_at_ns]
}

fn gaps_of([count, sum_ns, longest_ns, longest_at_ns]: [u64; 4]) -> Gaps {
    Gaps { count, sum_ns, longest_ns, longest_at_ns }
}

fn write_histograms(delta: &Delta, out: &mut Vec<u8>) {
    write_series(&delta.window, out);
    delta.before.iter().for_each(|before| write_series(before, out));
    for tag in &delta.by_tag {
        [&tag.response_ok, &tag.response_censored, &tag.response_failed].iter().for_each(|h| h.write_to(out));
    }
    delta.numbers.iter().for_each(|numbers| numbers.write_to(out));
    delta.in_order.write_to(out);
    [&delta.ids.accepted, &delta.ids.unanswered, &delta.ids.refused]
        .iter()
        .for_each(|ids| write_ids(ids, out));
}

fn read_histograms(delta: &mut Delta, from: &mut &[u8]) -> compact::Result<()> {
    read_series(&mut delta.window, from)?;
    if let Some(before) = &mut delta.before {
        read_series(before, from)?;
    }
    for tag in &mut delta.by_tag {
        let TagMeasured { response_ok, response_censored, response_failed, .. } = tag;
        for histogram in [response_ok, response_censored, response_failed] {
            read_into(histogram, from)?;
        }
    }
    for numbers in &mut delta.numbers {
        *numbers = Numbers::read_from(from)?;
    }
    delta.in_order = InOrder::read_from(from)?;
    delta.ids = Ids { accepted: read_ids(from)?, unanswered: read_ids(from)?, refused: read_ids(from)? };
    Ok(())
}

fn write_series(series: &Series, out: &mut Vec<u8>) {
    series.all().into_iter().for_each(|(_, histogram)| histogram.write_to(out));
}

fn read_series(series: &mut Series, from: &mut &[u8]) -> compact::Result<()> {
    series.all_mut().into_iter().try_for_each(|(_, histogram)| read_into(histogram, from))
}

/// Writes ids sorted and as differences: ids of one second are close to each other.
fn write_ids(ids: &[u64], out: &mut Vec<u8>) {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    write_varint(sorted.len() as u64, out);
    let mut before = 0;
    for id in sorted {
        write_varint(id - before, out);
        before = id;
    }
}

fn read_ids(from: &mut &[u8]) -> compact::Result<Vec<u64>> {
    let count = read_varint(from)?;
    if count > from.len() as u64 {
        return Err(Damaged);
    }
    let mut id = 0u64;
    (0..count)
        .map(|_| {
            id = id.checked_add(read_varint(from)?).ok_or(Damaged)?;
            Ok(id)
        })
        .collect()
}

fn ended(end: &PartEnd) -> Ended {
    let threads = end.threads.iter().map(|thread| {
        let mut per_user = BTreeMap::new();
        thread.per_user.iter().for_each(|requests| *per_user.entry(*requests).or_default() += 1);
        Thread {
            ended_ns: thread.ended_ns,
            stopped_ns: thread.stopped.map(|stopped| stopped.at_ns),
            slowest: thread.slowest.clone(),
            gaps: of_gaps(thread.gaps),
            per_user,
            users_without_row: thread.users_without_row,
            users_peak: thread.users_peak,
        }
    });
    let opened = end.opened.map(|phase| (phase.took_ns, phase.grown_bytes));
    Ended { threads: threads.collect(), generator: end.generator.clone(), opened }
}

fn end_of(head: Ended) -> Result<PartEnd, BlockError> {
    let users = head.threads.iter().flat_map(|thread| thread.per_user.values());
    if users.fold(0, |sum, n| u64::saturating_add(sum, *n)) > MOST_USERS {
        return Err(BlockError::Damaged);
    }
    let threads = head.threads.into_iter().map(|thread| {
        let per_user = thread.per_user.into_iter();
        WorkerEnd {
            ended_ns: thread.ended_ns,
            stopped: thread.stopped_ns.map(|at_ns| Stopped { at_ns, ..Stopped::default() }),
            slowest: thread.slowest,
            captured: Vec::new(),
            gaps: gaps_of(thread.gaps),
            per_user: per_user.flat_map(|(requests, users)| (0..users).map(move |_| requests)).collect(),
            users_without_row: thread.users_without_row,
            users_peak: thread.users_peak,
        }
    });
    let opened = head.opened.map(|(took_ns, grown_bytes)| ConnectPhase { took_ns, grown_bytes });
    Ok(PartEnd { threads: threads.collect(), generator: head.generator, opened })
}
