//! The coordinator's end: announces a run, gathers its agents, orders loads, and passes their reports on for merging.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, RequestErrorKind};
use futures_util::StreamExt;
use loadlab_load::LoadSpec;
use loadlab_load::io::epoll::now_ns;
use loadlab_load::measure::delta::Delta;
use loadlab_load::run::{Control, LoadEvent, LoadResult, Origin, Part, PartReport, due_between, merge};
use loadlab_load::spec::Elsewhere;
use loadlab_record::counts::load::Counts;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{ANNOUNCED, BEAT, HEADER_BYTES, Server, Subjects, SwarmError, files};
use super::{REPORT, context_of, follow, keep, make_stream, runtime, slot_of};
use crate::block::Block;
use crate::crew::{Crew, LOST_NS, LostPart, Pieces, Readiness};
use crate::message::{
    Announcement, Clock, FileOffer, JoinOrder, LoadOrder, Numbered, OpenSlot, Order, ThreadShare, VERSION,
};
use crate::reduce::{Next, ReportId};
use crate::signed::SigningKey;

/// How often a waiting thread checks whether it must end.
const LOOK: Duration = Duration::from_millis(100);
/// How long agents have to get ready for a load, in nanoseconds.
const READY_NS: u64 = 60_000_000_000;
/// Additional time per byte of the files that they receive first: 1 MB/s.
const READY_NS_PER_BYTE: u64 = 1_000;
/// How long the server may be unreachable during a load.
const DEAF_NS: u64 = 60_000_000_000;
/// Maximum time for letting agents know that the run is over.
const GOODBYE: Duration = Duration::from_secs(5);
/// How long agents have to report after a load should have ended.
const END_NS: u64 = 30_000_000_000;

/// How often the state of all parts is reported.
const SHOW_NS: u64 = 1_000_000_000;

/// How long a load without a schedule waits for replacements of lost agents.
const REPLACE_NS: u64 = 60_000_000_000;

/// What happens to a load if one of its agents is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossPolicy {
    /// The load ends and fails.
    #[default]
    Fail,
    /// The other agents continue.
    Degrade,
    /// The other agents continue, and a new agent takes the lost one's place.
    Replace,
}

/// A run to be announced.
pub struct RunOffer {
    /// How to reach the server.
    pub server: Server,
    /// The run's id: letters and digits.
    pub run: String,
    /// Number of agents that are to take part.
    pub slots: usize,
    /// Data that all loads of the run share.
    pub bundle: Value,
    /// Files to send to the agents.
    pub files: Vec<PathBuf>,
    /// The key that orders are signed with.
    pub key: SigningKey,
    /// What happens to a load if one of its agents is lost.
    pub on_loss: LossPolicy,
}

impl RunOffer {
    /// The signed announcement.
    fn announced(&self, open: Vec<OpenSlot>, files: &[FileOffer]) -> Vec<u8> {
        let (run, bundle, files) = (self.run.clone(), self.bundle.clone(), files.to_vec());
        self.key.seal(&Announcement { version: VERSION, run, slots: self.slots, open, bundle, files })
    }
}

/// A run whose loads are sent by agents. Dropping it informs the agents that the run is over.
pub struct Coordinator {
    shared: Arc<Shared>,
    on_loss: LossPolicy,
    /// How long agents have to get ready for a load, in nanoseconds.
    ready_ns: u64,
    /// The number of the next order, and the queue that orders are sent to.
    orders: Mutex<(u64, mpsc::UnboundedSender<(u64, Order)>)>,
    /// Dropped to end the network thread.
    stays: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    loads: Mutex<u64>,
}

/// State shared by the threads.
struct Shared {
    crew: Mutex<Crew>,
    changed: Condvar,
}

impl Shared {
    fn crew(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Crew)) {
        change(&mut self.crew());
        self.changed.notify_all();
    }

    /// Waits for a change, for at most [`LOOK`].
    fn wait<'c>(&self, crew: MutexGuard<'c, Crew>) -> MutexGuard<'c, Crew> {
        self.changed.wait_timeout(crew, LOOK).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Coordinator {
    /// Connects to the server, uploads the run's files, and announces the run.
    ///
    /// # Errors
    /// The server cannot be reached, does not support streams, or does not accept the files; or `cancelled`.
    pub fn start(offer: RunOffer, cancelled: &dyn Fn() -> bool) -> Result<Coordinator, SwarmError> {
        let on_loss = offer.on_loss;
        let sizes = offer.files.iter().filter_map(|file| Some(std::fs::metadata(file).ok()?.len()));
        let ready_ns = READY_NS.saturating_add(sizes.sum::<u64>().saturating_mul(READY_NS_PER_BYTE));
        let shared = Arc::new(Shared { crew: Mutex::new(Crew::new(offer.slots)), changed: Condvar::new() });
        let (orders, queue) = mpsc::unbounded_channel();
        let (stays, mut leaves) = oneshot::channel();
        let (began, begun) = std::sync::mpsc::channel();
        let onto = shared.clone();
        let body = move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(began.send(Err(error))),
            };
            runtime.block_on(async move {
                let subjects = Subjects { run: offer.run.clone() };
                let made = open(&offer, &subjects, &mut leaves);
                match made.await {
                    Ok(OpenedRun { client, context, files }) => {
                        let _ = began.send(Ok(()));
                        let (client, context, subjects) = (&client, &context, &subjects);
                        let network =
                            NetworkThread { client, context, subjects, offer: &offer, files: &files };
                        network.run(queue, leaves, &onto).await;
                    }
                    Err(error) => drop(began.send(Err(error))),
                }
            });
        };
        let thread = std::thread::Builder::new().name("loadlab-swarm".into()).spawn(body);
        let thread = thread.map_err(SwarmError::Thread)?;
        let mut stays = Some(stays);
        let begun = loop {
            if cancelled() {
                stays = None;
            }
            match begun.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                begun => break begun,
            }
        };
        match begun {
            Ok(Ok(())) => {
                let thread = Some(thread);
                let orders = Mutex::new((0, orders));
                Ok(Coordinator { shared, on_loss, ready_ns, orders, stays, thread, loads: Mutex::new(0) })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SwarmError::Agents("the swarm's own thread ended".to_owned())),
        }
    }

    /// Number of agents that the run needs.
    pub fn slots(&self) -> usize {
        self.shared.crew().slots()
    }

    /// Number of agents that have joined so far.
    pub fn agents_here(&self) -> usize {
        let crew = self.shared.crew();
        crew.slots() - crew.open().len()
    }

    /// Waits until every slot has an agent.
    ///
    /// # Errors
    /// It takes too long, or `cancelled`.
    pub fn gather(&self, at_most: Duration, cancelled: &dyn Fn() -> bool) -> Result<(), SwarmError> {
        let until_ns = now_ns().saturating_add(u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX));
        let mut crew = self.shared.crew();
        loop {
            let open = crew.open();
            if open.is_empty() {
                return Ok(());
            }
            if cancelled() {
                return Err(SwarmError::Interrupted);
            }
            if now_ns() >= until_ns {
                let here = crew.slots() - open.len();
                return Err(SwarmError::Agents(format!(
                    "{here} of {} agents came within {} s\nhint: an agent needs this server's URL and the coordinator's \
                     key: `loadlab agent --nats URL --coordinator-key KEY`",
                    crew.slots(),
                    at_most.as_secs()
                )));
            }
            crew = self.shared.wait(crew);
        }
    }

    /// Orders all agents to get ready for a load, and waits until they are. `threads` is the number of load threads on
    /// each agent, if the load specifies it.
    ///
    /// # Errors
    /// An agent cannot send its part or does not answer; or `cancelled`.
    pub fn prepare(
        self: &Arc<Self>,
        first_id: u64,
        threads: Option<u64>,
        what: Value,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<ReadyLoad, SwarmError> {
        let load = {
            let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
            *loads += 1;
            *loads - 1
        };
        let until_ns = now_ns().saturating_add(self.ready_ns);
        let mut crew = self.shared.crew();
        let order = LoadOrder { load, first_id, threads: crew.threads(threads), agents: crew.ids(), what };
        let number = self.order(Order::Prepare(order.clone()));
        crew.ordered(load, number);
        let mut ready = ReadyLoad { of: self.clone(), order, uncertainty_ns: 0 };
        loop {
            let why = match crew.readiness(load) {
                Readiness::Ready { uncertainty_ns } => {
                    ready.uncertainty_ns = uncertainty_ns;
                    return Ok(ready);
                }
                Readiness::Refused(slot, why) => {
                    Some(SwarmError::Agents(format!("agent {} (slot {slot}): {why}", crew.name(slot))))
                }
                Readiness::Waiting(_) if cancelled() => Some(SwarmError::Interrupted),
                Readiness::Waiting(slots) if now_ns() >= until_ns => {
                    let names: Vec<String> =
                        slots.iter().map(|slot| format!("{} (slot {slot})", crew.name(*slot))).collect();
                    let s = self.ready_ns / 1_000_000_000;
                    Some(SwarmError::Agents(format!("not ready within {s} s: {}", names.join(", "))))
                }
                Readiness::Waiting(_) if self.on_loss == LossPolicy::Replace => {
                    self.replace(&mut crew, &ready.order, None, &[]);
                    None
                }
                Readiness::Waiting(slots) => {
                    let lost = crew.lost(load, now_ns()).into_iter().find(|slot| slots.contains(slot));
                    lost.map(|slot| SwarmError::Agents(format!("{} before the load", silent(&crew, slot))))
                }
            };
            if let Some(why) = why {
                // Dropping `ready` takes the lock.
                drop(crew);
                return Err(why);
            }
            crew = self.shared.wait(crew);
        }
    }

    /// Gives up a load's silent agents and lets others join it. Returns messages about agents that were given up or
    /// joined.
    fn replace(
        &self,
        crew: &mut Crew,
        order: &LoadOrder,
        begun_ns: Option<u64>,
        counted: &[Counts],
    ) -> Vec<String> {
        let mut words = Vec::new();
        for slot in crew.lost(order.load, now_ns()) {
            let lost = silent(crew, slot);
            if crew.vacate(slot, self.orders().0) {
                words.push(format!("{lost}, and another may take its place"));
            }
        }
        for (slot, epoch) in crew.joining(order.load) {
            let begun = counted.get(slot).map_or(0, |counts| counts.started + counts.dropped);
            let order = LoadOrder { agents: crew.ids(), ..order.clone() };
            self.order(Order::Join(JoinOrder { slot, epoch, order, begun_ns, begun }));
            words.push(format!("agent {} takes slot {slot}", crew.name(slot)));
        }
        words
    }

    fn orders(&self) -> MutexGuard<'_, (u64, mpsc::UnboundedSender<(u64, Order)>)> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an order and returns its number.
    fn order(&self, order: Order) -> u64 {
        let mut orders = self.orders();
        let number = orders.0;
        orders.0 += 1;
        // The thread lives as long as the coordinator.
        let _ = orders.1.send((number, order));
        number
    }
}

/// A run whose stream exists and whose files are uploaded.
struct OpenedRun {
    client: Client,
    context: Context,
    files: Vec<FileOffer>,
}

/// Connects to the server, creates the run's stream, and uploads the files.
async fn open(
    offer: &RunOffer,
    subjects: &Subjects,
    leaves: &mut oneshot::Receiver<()>,
) -> Result<OpenedRun, SwarmError> {
    let (client, mut denied) = offer.server.connect().await?;
    let context = context_of(&client);
    let files = files::offered(&offer.files)?;
    let bytes = offer.announced(Crew::new(offer.slots).open(), &files).len();
    let most = client.max_payload().saturating_sub(HEADER_BYTES);
    if bytes > most {
        return Err(SwarmError::Agents(format!(
            "the plan makes a message of {bytes} bytes, and the NATS server takes {most}\nhint: its \
             `max_payload` may be larger"
        )));
    }
    make_stream(&context, subjects).await.map_err(|error| match denied.try_recv() {
        Ok(why) => SwarmError::Denied(why),
        Err(_) => error,
    })?;
    let sent = tokio::select! {
        sent = files::send(&context, subjects, &offer.files, most) => sent,
        _ = leaves => Err(SwarmError::Interrupted),
    };
    if let Err(error) = sent {
        let _ = context.delete_stream(subjects.stream()).await;
        return Err(error);
    }
    Ok(OpenedRun { client, context, files })
}

/// A message that an agent is silent.
fn silent(crew: &Crew, slot: usize) -> String {
    format!("agent {} (slot {slot}) was silent for {} s", crew.name(slot), LOST_NS / 1_000_000_000)
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.order(Order::Over);
        self.stays = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A load that all agents are ready for. Dropping it orders the agents to abort it, unless it is over.
pub struct ReadyLoad {
    of: Arc<Coordinator>,
    order: LoadOrder,
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
    /// Name of the agent that had it at the end.
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
    Parts(Vec<PartNow>),
}

/// The state of a part while its load is sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartNow {
    /// Its slot, from 0.
    pub slot: usize,
    /// Name of the agent that has it.
    pub agent: String,
    /// Successful responses per second during the last second reported.
    pub ok_per_s: f64,
    /// Request counts of the part so far.
    pub counts: Counts,
    /// The agent was silent for too long or was given up.
    pub is_missing: bool,
}

/// An agent that was lost, and what it left undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which agent was lost, and when.
    pub lost: LostPart,
    /// Minimum and maximum number of requests of its part that were never sent; `None` if unknown because the number
    /// that falls due depends on how fast they are answered.
    pub not_offered: Option<(u64, u64)>,
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
            last: vec![(0.0, 0); slots],
            shown_ns: origin.start_ns,
            silent: BTreeSet::new(),
            ended_early_ns: None,
            ending: Ending::default(),
        };
        let outcome = merge(spec, origin, slots, &mut |used| sending.next(used), observer);
        let ended_ns = sending.ended_early_ns.map_or(u64::MAX, |ns| ns.saturating_sub(origin.start_ns));
        let parts = sending.parts(&self.of.shared.crew(), now_ns());
        on_news(News::Parts(parts));
        let crew = self.of.shared.crew();
        let parts = sending.counted.iter().enumerate().map(|(slot, counts)| SentPart {
            agent: crew.name(slot).to_owned(),
            threads: self.order.threads[slot],
            clock: crew.clock(self.order.load, slot),
            counts: counts.clone(),
        });
        let lost = crew.losses(self.order.load);
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
            *before += not_offered.map_or(0, |(_, most)| most);
            Loss { lost: loss.clone(), not_offered }
        });
        Sent { outcome, trouble: sending.ending.trouble, parts: parts.collect(), losses: losses.collect() }
    }

    /// The part of the load that belongs to a slot.
    fn part(&self, spec: &LoadSpec, slot: usize) -> Option<LoadSpec> {
        let ThreadShare { before, own, after } = self.order.share(slot)?;
        let threads = usize::try_from(own).ok()?;
        Some(LoadSpec { threads, elsewhere: Elsewhere { before, after }, ..spec.clone() })
    }
}

/// An agent that does not hear from its coordinator stops sending after this long.
const DEAD_MAN_NS: u64 = super::agent::DEAD_MAN_NS;

/// How many requests of a part were never sent up to `to_ns`, on the load's clock, in addition to those already missing
/// `before`: minimum and maximum. What the lost agent sent after its last report is unknown: it may have sent until its
/// connection was found to be gone or, if that is unknown, until it must have noticed that the coordinator is silent.
///
/// Due times do not show which requests were missing: what fell due at the end of its last report may have been noticed
/// only after it.
fn not_offered(
    part: &LoadSpec,
    lost: &LostPart,
    before: u64,
    origin: Origin,
    to_ns: u64,
) -> Option<(u64, u64)> {
    let most = due_between(part, 0..to_ns)?.saturating_sub(lost.due.saturating_add(before));
    // Messages it sent before may have been in transit for a moment.
    let beat_ns = u64::try_from(BEAT.as_nanos()).unwrap_or(u64::MAX);
    let alive_ns = lost.gone_ns.unwrap_or(lost.seen_ns.saturating_add(DEAD_MAN_NS + 2 * beat_ns));
    let sent_until_ns = alive_ns.saturating_sub(origin.start_ns).max(lost.until_ns);
    let least = if sent_until_ns < to_ns { due_between(part, sent_until_ns..to_ns)? } else { 0 };
    Some((least.min(most), most))
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
    /// For each part, in its last whole second: successful responses per second, and requests in flight at its end.
    last: Vec<(f64, u64)>,
    /// When the state of all parts was last reported.
    shown_ns: u64,
    /// Slots of agents whose silence was reported.
    silent: BTreeSet<usize>,
    /// When the load was ended before its schedule was over.
    ended_early_ns: Option<u64>,
    ending: Ending,
}

impl Sending<'_> {
    /// Waits for the next report; `None` once all parts have ended.
    fn next(&mut self, mut used: Option<Box<Delta>>) -> Option<PartReport> {
        let (of, load) = (&self.ready.of, self.ready.order.load);
        let mut crew = of.shared.crew();
        loop {
            if let Some(parts) = self.parts_now(&crew) {
                drop(crew);
                (self.on_news)(News::Parts(parts));
                crew = of.shared.crew();
            }
            if let Some(Next { part, block }) = crew.next_report(load) {
                // Other threads need the crew in the meantime.
                drop(crew);
                let (what, whole) = block.into_part(used.take());
                if let Err(error) = whole {
                    let mut crew = of.shared.crew();
                    let why = format!("a report of agent {} (slot {part}) {error}", crew.name(part));
                    crew.damaged(load, why);
                }
                self.count(part, &what);
                return Some(PartReport { part, what });
            }
            if crew.is_over(load) {
                return None;
            }
            let now_ns = now_ns();
            let words = self.look_for_lost(&mut crew, now_ns);
            if self.ending.trouble.is_some() || (self.cancelled)() {
                self.control.abort();
            }
            if self.control.is_aborted() && !self.ending.is_aborted {
                self.ending.is_aborted = true;
                self.ended_early_ns.get_or_insert(now_ns);
                self.ending.until_ns.get_or_insert(now_ns + END_NS);
                of.order(Order::Abort { load });
            } else if self.control.is_stopped() && !self.ending.is_stopped {
                self.ending.is_stopped = true;
                self.ended_early_ns.get_or_insert(now_ns);
                of.order(Order::Stop { load });
            }
            if self.is_given_up(&crew, now_ns) {
                crew.finish(load);
                continue;
            }
            if !words.is_empty() {
                drop(crew);
                words.into_iter().map(News::Note).for_each(self.on_news);
                crew = of.shared.crew();
                continue;
            }
            crew = of.shared.wait(crew);
        }
    }

    fn count(&mut self, part: usize, what: &Part) {
        let (Some(counts), Some(last)) = (self.counted.get_mut(part), self.last.get_mut(part)) else {
            return;
        };
        match what {
            Part::Counted(delta) => {
                counts.merge(&delta.counts);
                let s = delta.until_ns.saturating_sub(delta.from_ns) as f64 / 1e9;
                // The last few milliseconds of a load give no meaningful rate.
                let rate = if s > 0.1 { delta.counts.ok as f64 / s } else { last.0 };
                *last = (rate, delta.in_flight);
            }
            Part::Ended(_) => *last = (0.0, counts.in_flight),
        }
    }

    /// The state of all parts, if it is due to be reported.
    fn parts_now(&mut self, crew: &Crew) -> Option<Vec<PartNow>> {
        let now_ns = now_ns();
        if now_ns.saturating_sub(self.shown_ns) < SHOW_NS {
            return None;
        }
        self.shown_ns = now_ns;
        Some(self.parts(crew, now_ns))
    }

    fn parts(&self, crew: &Crew, now_ns: u64) -> Vec<PartNow> {
        let load = self.ready.order.load;
        let given_up = crew.losses(load).iter().filter(|lost| lost.joined_ns.is_none()).map(|lost| lost.slot);
        let missing: BTreeSet<usize> = crew.lost(load, now_ns).into_iter().chain(given_up).collect();
        let parts = self.counted.iter().zip(&self.last).enumerate();
        let parts = parts.map(|(slot, (counts, (ok_per_s, in_flight)))| PartNow {
            slot,
            agent: crew.name(slot).to_owned(),
            ok_per_s: *ok_per_s,
            counts: Counts { in_flight: *in_flight, ..counts.clone() },
            is_missing: missing.contains(&slot),
        });
        parts.collect()
    }

    /// Deals with lost agents; returns messages about them.
    fn look_for_lost(&mut self, crew: &mut Crew, now_ns: u64) -> Vec<String> {
        let load = self.ready.order.load;
        if self.ending.trouble.is_none() {
            self.ending.trouble = self.trouble(crew, now_ns).map(SwarmError::Agents);
        }
        if self.ending.trouble.is_some() || self.ending.is_aborted {
            return Vec::new();
        }
        match self.ready.of.on_loss {
            LossPolicy::Fail => Vec::new(),
            LossPolicy::Degrade => {
                crew.give_up_dead(load, now_ns);
                let silent_now: BTreeSet<usize> = crew.lost(load, now_ns).into_iter().collect();
                let newly = silent_now.difference(&self.silent);
                let newly = newly.map(|slot| format!("{}; the others go on", silent(crew, *slot)));
                let is_given_up = |slot: &usize| crew.losses(load).iter().any(|loss| loss.slot == *slot);
                let back = self.silent.difference(&silent_now).filter(|slot| !is_given_up(slot));
                let back = back.map(|slot| format!("agent {} (slot {slot}) is back", crew.name(*slot)));
                let words = newly.chain(back).collect();
                self.silent = silent_now;
                words
            }
            LossPolicy::Replace => {
                self.ready.of.replace(crew, &self.ready.order, Some(self.begun_ns), &self.counted)
            }
        }
    }

    /// Whether to stop waiting for reports.
    fn is_given_up(&self, crew: &Crew, now_ns: u64) -> bool {
        if self.ending.until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
            return true;
        }
        // Lost agents will never report, and without a connection no agent can.
        let is_alone = crew.are_others_lost(self.ready.order.load, now_ns);
        if self.ending.is_aborted {
            return is_alone || crew.deaf_for_ns(now_ns) > LOST_NS;
        }
        is_alone
            && match self.ready.of.on_loss {
                LossPolicy::Fail => false,
                LossPolicy::Degrade => true,
                LossPolicy::Replace => {
                    now_ns >= self.over_ns.unwrap_or(self.begun_ns.saturating_add(REPLACE_NS))
                }
            }
    }

    /// Why the load cannot continue, in words.
    fn trouble(&self, crew: &Crew, now_ns: u64) -> Option<String> {
        let load = self.ready.order.load;
        if let Some(why) = crew.damage(load) {
            return Some(why.to_owned());
        }
        if crew.deaf_for_ns(now_ns) > DEAF_NS {
            return Some(format!(
                "the NATS server could not be reached for {} s: what agents sent meanwhile is unknown",
                DEAF_NS / 1_000_000_000
            ));
        }
        let lost = crew.lost(load, now_ns);
        let first = lost.first()?;
        let what = "what it sent after its last report is unknown";
        match self.ready.of.on_loss {
            LossPolicy::Fail => Some(format!("{}: {what}", silent(crew, *first))),
            LossPolicy::Degrade => {
                let given_up = crew.losses(load).iter().map(|loss| loss.slot);
                let all: BTreeSet<usize> = lost.iter().copied().chain(given_up).collect();
                (all.len() == crew.slots()).then(|| "all agents were lost".to_owned())
            }
            LossPolicy::Replace => None,
        }
    }
}

impl Drop for ReadyLoad {
    fn drop(&mut self) {
        let mut crew = self.of.shared.crew();
        let load = self.order.load;
        if !crew.is_over(load) {
            self.of.order(Order::Abort { load });
        }
        crew.forget(load);
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

/// What the network thread needs.
struct NetworkThread<'t> {
    client: &'t Client,
    context: &'t Context,
    subjects: &'t Subjects,
    offer: &'t RunOffer,
    files: &'t [FileOffer],
}

impl NetworkThread<'_> {
    /// Handles all communication until the run is over.
    async fn run(
        &self,
        queue: mpsc::UnboundedReceiver<(u64, Order)>,
        leaves: oneshot::Receiver<()>,
        shared: &Shared,
    ) {
        let NetworkThread { client, context, subjects, offer, files } = *self;
        let said = follow(context, subjects, subjects.said(), said_onto(subjects, shared));
        // An unreachable server must not keep a run from ending.
        let goodbye = async {
            let _ = leaves.await;
            tokio::time::sleep(GOODBYE).await;
        };
        tokio::select! {
            () = give(context, subjects, offer, queue) => {}
            () = announce(client, subjects, offer, files, shared) => {}
            () = hear(client, subjects, shared) => {}
            () = look_for_gone(client, subjects, shared) => {}
            () = answer_time_requests(client, subjects) => {}
            () = said => {}
            () = goodbye => return,
        }
        // Give agents a moment to read that the run is over.
        tokio::time::sleep(BEAT / 2).await;
        let _ = context.delete_stream(subjects.stream()).await;
    }
}

/// Sends the queued orders, each signed, up to the last one.
async fn give(
    context: &Context,
    subjects: &Subjects,
    offer: &RunOffer,
    mut queue: mpsc::UnboundedReceiver<(u64, Order)>,
) {
    while let Some((number, order)) = queue.recv().await {
        let is_last = order == Order::Over;
        let numbered = Numbered { run: subjects.run.clone(), number, order };
        let id = format!("{}/order/{number}", subjects.run);
        let message = PublishMessage::build().payload(offer.key.seal(&numbered).into()).message_id(id);
        keep(context, subjects.orders(), message).await;
        if is_last {
            return;
        }
    }
}

/// Announces the run every second, so that agents can join later and all agents see that the coordinator is alive.
async fn announce(
    client: &Client,
    subjects: &Subjects,
    offer: &RunOffer,
    files: &[FileOffer],
    shared: &Shared,
) {
    let mut beat = tokio::time::interval(BEAT);
    // Signing takes time from a core that the load may need.
    let mut signed = (Vec::new(), offer.announced(Vec::new(), files));
    loop {
        beat.tick().await;
        let is_connected = client.connection_state() == State::Connected;
        shared.change(|crew| crew.connected(is_connected, now_ns()));
        let _ = client.publish(subjects.echo(), now_ns().to_string().into()).await;
        let open = shared.crew().open();
        if open != signed.0 {
            signed = (open.clone(), offer.announced(open, files));
        }
        // While the server is unreachable, no one receives it.
        let _ = client.publish(ANNOUNCED, signed.1.clone().into()).await;
    }
}

/// Records signs of life: heartbeats and the coordinator's own echo.
async fn hear(client: &Client, subjects: &Subjects, shared: &Shared) {
    loop {
        if let Ok(mut beats) = client.subscribe(subjects.heartbeats()).await {
            while let Some(beat) = beats.next().await {
                if *beat.subject == *subjects.echo() {
                    let said_ns = std::str::from_utf8(&beat.payload).ok().and_then(|text| text.parse().ok());
                    shared
                        .change(|crew| said_ns.into_iter().for_each(|said_ns| crew.heard(said_ns, now_ns())));
                    continue;
                }
                let mut numbers = beat.subject.rsplit('.');
                let epoch = numbers.next().and_then(|epoch| epoch.parse().ok());
                let slot = numbers.next().and_then(|slot| slot.parse().ok());
                if let Some((slot, epoch)) = slot.zip(epoch) {
                    shared.change(|crew| crew.seen(slot, epoch, now_ns()));
                }
            }
        }
        tokio::time::sleep(BEAT / 4).await;
    }
}

/// Asks the server whether agents that missed a heartbeat are still connected.
async fn look_for_gone(client: &Client, subjects: &Subjects, shared: &Shared) {
    let mut beat = tokio::time::interval(BEAT);
    loop {
        beat.tick().await;
        let quiet = shared.crew().quiet(now_ns());
        for (slot, epoch) in quiet {
            let asked = client.request(subjects.alive(slot, epoch), Vec::new().into());
            match tokio::time::timeout(BEAT, asked).await {
                Ok(Ok(_)) => shared.change(|crew| crew.seen(slot, epoch, now_ns())),
                Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                    shared.change(|crew| crew.gone(slot, epoch, now_ns()));
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
}

/// Answers time requests with the times of arrival and reply.
async fn answer_time_requests(client: &Client, subjects: &Subjects) {
    loop {
        if let Ok(mut questions) = client.subscribe(subjects.time()).await {
            while let Some(question) = questions.next().await {
                let received_ns = now_ns();
                let Some(reply) = question.reply else { continue };
                let answer = serde_json::to_vec(&[received_ns, now_ns()]).expect("numbers");
                let _ = client.publish(reply, answer.into()).await;
            }
        }
        tokio::time::sleep(BEAT / 4).await;
    }
}

/// Handles what agents send; messages that cannot be parsed are ignored.
fn said_onto<'s>(
    subjects: &'s Subjects,
    shared: &'s Shared,
) -> impl FnMut(&async_nats::Message) -> bool + use<'s> {
    let mut pieces = Pieces::default();
    move |message| {
        let Some((slot, what)) = slot_of(&message.subject, subjects) else { return true };
        let what_of = |word: &str| what.strip_prefix(word)?.strip_prefix('.')?.parse::<u32>().ok();
        match (what_of("claim"), what_of("answer")) {
            (Some(epoch), _) => {
                if let Ok(claim) = serde_json::from_slice(&message.payload) {
                    shared.change(|crew| crew.claim(slot, epoch, claim, now_ns()));
                }
            }
            (None, Some(epoch)) => {
                if let Ok(answer) = serde_json::from_slice(&message.payload) {
                    shared.change(|crew| crew.answered(slot, epoch, answer));
                }
            }
            (None, None) => {
                let report = report_of(slot, what, message, &mut pieces);
                if let Some(CompleteReport { load, id, bytes }) = report {
                    let block = Block::open(&bytes);
                    shared.change(|crew| {
                        crew.seen(slot, id.epoch, now_ns());
                        match block {
                            Ok(block) => crew.reported(load, id, block),
                            Err(error) => {
                                let why = format!(
                                    "report {} of agent {} (slot {slot}) {error}",
                                    id.number,
                                    crew.name(slot)
                                );
                                crew.damaged(load, why);
                            }
                        }
                    });
                }
            }
        }
        true
    }
}

/// A report of which all pieces are here.
struct CompleteReport {
    load: u64,
    id: ReportId,
    bytes: Vec<u8>,
}

/// The report that this message completes, if it does.
fn report_of(
    slot: usize,
    what: &str,
    message: &async_nats::Message,
    pieces: &mut Pieces,
) -> Option<CompleteReport> {
    let (load, epoch) = what.strip_prefix("report.")?.split_once('.')?;
    let header = message.headers.as_ref()?.get(REPORT)?.as_str();
    let numbers: Vec<u64> = header.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [number, piece, all] = numbers.try_into().ok()?;
    let (load, id) = (load.parse().ok()?, ReportId { slot, epoch: epoch.parse().ok()?, number });
    let (piece, all) = (usize::try_from(piece).ok()?, usize::try_from(all).ok()?);
    Some(CompleteReport { load, id, bytes: pieces.take(load, id, piece, all, &message.payload)? })
}
