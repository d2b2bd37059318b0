//! A load that agents send: starts it, passes their reports on for merging, and ends it when it is over, was stopped or
//! cannot continue.
//!
//! `parts.rs` has the state of each agent's part meanwhile; `losses.rs` what follows when agents are lost.

mod losses;
mod parts;

use std::collections::BTreeMap;
use std::sync::Arc;

use loadlab_load::LoadSpec;
use loadlab_load::io::epoll::now_ns;
use loadlab_load::measure::delta::Delta;
use loadlab_load::run::{Control, LoadEvent, LoadResult, Origin, PartReport, merge};
use loadlab_load::spec::OtherThreads;
use loadlab_record::counts::load::Counts;

use self::losses::not_offered;
use self::parts::LastSecond;
use super::Coordinator;
use crate::message::{Clock, LoadOrder, Order, ThreadShare};
use crate::nats::SwarmError;
use crate::reduce::OrderedReport;

pub use losses::{Loss, NotOffered};
pub use parts::PartState;

/// How long agents have to report after a load should have ended.
const END_TIMEOUT_NS: u64 = 30_000_000_000;

/// A load that all agents are ready for. Dropping it orders the agents to abort it, unless it is over.
pub struct ReadyLoad {
    pub(super) of: Arc<Coordinator>,
    pub(super) order: LoadOrder,
    /// Maximum error of the estimated clock offset of any agent, in nanoseconds.
    pub uncertainty_ns: u64,
}

/// The result of a load sent by agents.
pub struct Sent {
    /// The merged measurements.
    pub outcome: LoadResult,
    /// Why the load was ended early, if it was.
    pub trouble: Option<SwarmError>,
    /// What was sent of each part, by slot.
    pub parts: Vec<SentPart>,
    /// Agents that were lost.
    pub losses: Vec<Loss>,
}

/// What was sent of a part, by all agents that had it.
#[derive(Clone, Debug, PartialEq)]
pub struct SentPart {
    /// Name of the agent that sent it last.
    pub agent: String,
    /// Its number of load threads.
    pub threads: u64,
    /// Its clock offset.
    pub clock: Option<Clock>,
    /// Request counts of the part.
    pub counts: Counts,
}

/// News while a load is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// An agent was lost, replaced, or came back; in words.
    Note(String),
    /// The state of every part: once a second, and at the end.
    Parts(Vec<PartState>),
}

impl ReadyLoad {
    /// Runs the load on the agents, starting at `origin`, and merges their reports. `cancelled` is polled throughout,
    /// even while no agent reports anything; `on_news` receives news about the agents.
    pub fn run(
        &self,
        spec: &LoadSpec,
        control: &Control,
        origin: Origin,
        cancelled: &dyn Fn() -> bool,
        on_news: &dyn Fn(News),
        observer: &mut dyn FnMut(LoadEvent<'_>),
    ) -> Sent {
        self.of.order(Order::Begin { load: self.order.load, at_ns: origin.start_ns });
        let slots = self.order.threads.len();
        let mut sending = Sending {
            ready: self,
            control,
            cancelled,
            on_news,
            begun_ns: origin.start_ns,
            over_ns: spec.schedule_ns().map(|ns| origin.start_ns.saturating_add(ns)),
            counted: vec![Counts::default(); slots],
            last: vec![LastSecond::default(); slots],
            shown_ns: origin.start_ns,
            silent: BTreeMap::new(),
            ended_early_ns: None,
            ending: Ending::default(),
        };
        let outcome = merge(spec, origin, slots, &mut |used| sending.next(used), observer);
        let ended_ns = sending.ended_early_ns.map_or(u64::MAX, |ns| ns.saturating_sub(origin.start_ns));
        let parts = sending.parts(&self.of.shared.agents(), now_ns());
        on_news(News::Parts(parts));
        let agents = self.of.shared.agents();
        let parts = sending.counted.iter().enumerate().map(|(slot, counts)| SentPart {
            agent: agents.sender(self.order.load, slot).to_owned(),
            threads: self.order.threads[slot],
            clock: agents.clock(self.order.load, slot),
            counts: counts.clone(),
        });
        let lost = agents.losses(self.order.load);
        let mut missing = vec![0; slots];
        let losses = lost.iter().enumerate().map(|(number, loss)| {
            // Once a later agent of the same part has reported, requests missing after that are attributed to its own
            // loss.
            let later = lost[number + 1..].iter().find(|later| later.slot == loss.slot);
            let to_ns = loss.joined_ns.unwrap_or(ended_ns);
            let to_ns = later.map_or(to_ns, |later| later.until_ns.min(to_ns));
            let part = self.part(spec, loss.slot);
            let before = &mut missing[loss.slot];
            let not_offered = part.and_then(|part| not_offered(&part, loss, *before, origin, to_ns));
            *before += not_offered.map_or(0, |missing| missing.most);
            Loss { lost: loss.clone(), not_offered }
        });
        Sent { outcome, trouble: sending.ending.trouble, parts: parts.collect(), losses: losses.collect() }
    }

    /// The part of the load that belongs to a slot.
    fn part(&self, spec: &LoadSpec, slot: usize) -> Option<LoadSpec> {
        let ThreadShare { before, own, after } = self.order.share(slot)?;
        let threads = usize::try_from(own).ok()?;
        Some(LoadSpec { threads, other_threads: OtherThreads { before, after }, ..spec.clone() })
    }
}

impl Drop for ReadyLoad {
    fn drop(&mut self) {
        let mut agents = self.of.shared.agents();
        let load = self.order.load;
        if !agents.is_over(load) {
            self.of.order(Order::Abort { load });
        }
        agents.forget(load);
    }
}

/// A load in progress.
struct Sending<'a> {
    ready: &'a ReadyLoad,
    control: &'a Control,
    cancelled: &'a dyn Fn() -> bool,
    on_news: &'a dyn Fn(News),
    begun_ns: u64,
    /// When its schedule ends, if known.
    over_ns: Option<u64>,
    /// Counts reported for each part so far.
    counted: Vec<Counts>,
    /// What each part reported last.
    last: Vec<LastSecond>,
    /// When the state of all parts was last reported.
    shown_ns: u64,
    /// Slots of agents whose silence was reported, and when.
    silent: BTreeMap<usize, u64>,
    /// When the load was ended before its schedule was over.
    ended_early_ns: Option<u64>,
    ending: Ending,
}

impl Sending<'_> {
    /// Waits for the next report; `None` once all parts have ended.
    fn next(&mut self, mut used: Option<Box<Delta>>) -> Option<PartReport> {
        let (of, load) = (&self.ready.of, self.ready.order.load);
        loop {
            // Whoever is asked may write to disk, which must not hold up the network's thread.
            let is_cancelled = (self.cancelled)();
            let mut agents = of.shared.agents();
            if let Some(parts) = self.parts_if_due(&agents) {
                drop(agents);
                (self.on_news)(News::Parts(parts));
                agents = of.shared.agents();
            }
            if let Some(OrderedReport { part, block }) = agents.next_report(load) {
                // Other threads need the state of the agents in the meantime.
                drop(agents);
                let (content, whole) = block.into_content(used.take());
                if let Err(error) = whole {
                    let mut agents = of.shared.agents();
                    let why = format!("a report of agent {} (slot {part}) {error}", agents.name(part));
                    agents.damaged(load, why);
                }
                self.count(part, &content);
                return Some(PartReport { part, content });
            }
            if agents.is_over(load) {
                return None;
            }
            let now_ns = now_ns();
            let notes = self.look_for_lost(&mut agents, now_ns);
            if self.ending.trouble.is_some() || is_cancelled {
                self.control.abort();
            }
            if self.control.is_aborted() && !self.ending.is_aborted {
                self.ending.is_aborted = true;
                self.ended_early_ns.get_or_insert(now_ns);
                self.ending.until_ns.get_or_insert(now_ns + END_TIMEOUT_NS);
                of.order(Order::Abort { load });
            } else if self.control.is_stopped() && !self.ending.is_stopped {
                self.ending.is_stopped = true;
                self.ended_early_ns.get_or_insert(now_ns);
                of.order(Order::Stop { load });
            }
            if !notes.is_empty() {
                drop(agents);
                notes.into_iter().map(News::Note).for_each(self.on_news);
                continue;
            }
            if self.is_given_up(&agents, now_ns) {
                agents.finish(load);
                // One that is merely silent may still send.
                of.order(Order::Abort { load });
                continue;
            }
            drop(of.shared.wait(agents));
        }
    }
}

/// How a load is being ended before its schedule is over.
#[derive(Default)]
struct Ending {
    is_stopped: bool,
    is_aborted: bool,
    until_ns: Option<u64>,
    trouble: Option<SwarmError>,
}
