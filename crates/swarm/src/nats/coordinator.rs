//! The coordinator's end: announces a run, gathers its agents, orders loads, and hands their reports to the merging.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_nats::Client;
use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use futures_util::StreamExt;
use loadlab_load::LoadSpec;
use loadlab_load::io::epoll::now_ns;
use loadlab_load::run::{Control, LoadEvent, Origin, Outcome, PartReport, merge};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{ANNOUNCED, BEAT, HEADER_BYTES, Server, Subjects, SwarmError};
use super::{REPORT, context_of, follow, keep, make_stream, runtime, slot_of};
use crate::block::unpack;
use crate::crew::{Crew, LOST_NS, Pieces, Readiness};
use crate::message::{Announcement, LoadOrder, Numbered, Order, VERSION};
use crate::reduce::ReportId;
use crate::signed::SigningKey;

/// How often a waiting thread looks whether it must end.
const LOOK: Duration = Duration::from_millis(50);
/// How long agents have to get ready for a load.
const READY_NS: u64 = 60_000_000_000;
/// How long the server may be unreachable in the middle of a load.
const DEAF_NS: u64 = 60_000_000_000;
/// How long it takes at most to tell agents that the run is over.
const GOODBYE: Duration = Duration::from_secs(5);
/// How long agents have to report once a load was to end.
const END_NS: u64 = 30_000_000_000;

/// A run as it is announced.
pub struct RunOffer {
    /// How the server is reached.
    pub server: Server,
    /// The run's id: letters and digits.
    pub run: String,
    /// How many agents are to take part.
    pub slots: usize,
    /// What all loads of the run have in common.
    pub bundle: Value,
    /// What orders are signed with.
    pub key: SigningKey,
}

impl RunOffer {
    /// What agents hear of it, signed.
    fn announced(&self) -> Vec<u8> {
        let (run, bundle) = (self.run.clone(), self.bundle.clone());
        self.key.seal(&Announcement { version: VERSION, run, slots: self.slots, bundle })
    }
}

/// A run whose loads are sent by agents. Dropping it tells them that it is over.
pub struct Coordinator {
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
    /// Dropped when the thread is to end.
    stays: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    loads: Mutex<u64>,
}

/// What the threads share.
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

    /// Waits for a change, or a little.
    fn wait<'c>(&self, crew: MutexGuard<'c, Crew>) -> MutexGuard<'c, Crew> {
        self.changed.wait_timeout(crew, LOOK).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Coordinator {
    /// Reaches the server and announces the run.
    ///
    /// # Errors
    /// The server cannot be reached, or keeps no streams.
    pub fn start(offer: RunOffer) -> Result<Coordinator, SwarmError> {
        let shared = Arc::new(Shared { crew: Mutex::new(Crew::new(offer.slots)), changed: Condvar::new() });
        let (orders, queue) = mpsc::unbounded_channel();
        let (stays, leaves) = oneshot::channel();
        let (began, begun) = std::sync::mpsc::channel();
        let onto = shared.clone();
        let body = move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(began.send(Err(error))),
            };
            runtime.block_on(async move {
                let subjects = Subjects { run: offer.run.clone() };
                let made = async {
                    let client = offer.server.connect().await?;
                    let context = context_of(&client);
                    let bytes = offer.announced().len();
                    let most = client.max_payload().saturating_sub(HEADER_BYTES);
                    if bytes > most {
                        return Err(SwarmError::Agents(format!(
                            "the plan makes a message of {bytes} bytes, and the NATS server takes {most}\nhint: its \
                             `max_payload` may be larger"
                        )));
                    }
                    make_stream(&context, &subjects).await?;
                    Ok((client, context))
                };
                match made.await {
                    Ok((client, context)) => {
                        let _ = began.send(Ok(()));
                        let talk = Talk { client: &client, context: &context, subjects: &subjects, offer: &offer };
                        talk.run(queue, leaves, &onto).await;
                    }
                    Err(error) => drop(began.send(Err(error))),
                }
            });
        };
        let thread = std::thread::Builder::new().name("loadlab-swarm".into()).spawn(body);
        let thread = thread.map_err(SwarmError::Thread)?;
        match begun.recv() {
            Ok(Ok(())) => {
                let (stays, thread) = (Some(stays), Some(thread));
                Ok(Coordinator { shared, orders, stays, thread, loads: Mutex::new(0) })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SwarmError::Agents("the swarm's own thread ended".to_owned())),
        }
    }

    /// Waits until every slot has an agent.
    ///
    /// # Errors
    /// That takes too long, or `cancelled`.
    pub fn gather(&self, at_most: Duration, cancelled: &dyn Fn() -> bool) -> Result<(), SwarmError> {
        let until_ns = now_ns().saturating_add(u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX));
        let mut crew = self.shared.crew();
        loop {
            let vacant = crew.vacant();
            if vacant.is_empty() {
                return Ok(());
            }
            if cancelled() {
                return Err(SwarmError::Interrupted);
            }
            if now_ns() >= until_ns {
                let here = crew.slots() - vacant.len();
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
    /// each, if the load names one.
    ///
    /// # Errors
    /// An agent cannot send its part, or does not answer; `cancelled`.
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
        let until_ns = now_ns() + READY_NS;
        let mut crew = self.shared.crew();
        crew.ordered(load);
        let mut ready = ReadyLoad { of: self.clone(), load, slots: crew.slots(), uncertainty_ns: 0 };
        let order = LoadOrder { load, first_id, threads: crew.threads(threads), what };
        self.order(Order::Prepare(order));
        loop {
            match crew.readiness(load) {
                Readiness::Ready { uncertainty_ns } => {
                    ready.uncertainty_ns = uncertainty_ns;
                    return Ok(ready);
                }
                Readiness::Refused(slot, why) => {
                    let why = format!("agent {} (slot {slot}): {why}", crew.name(slot));
                    // Dropping what was prepared takes the lock.
                    drop(crew);
                    return Err(SwarmError::Agents(why));
                }
                Readiness::Waiting(_) if cancelled() => {
                    drop(crew);
                    return Err(SwarmError::Interrupted);
                }
                Readiness::Waiting(slots) if now_ns() >= until_ns => {
                    let names: Vec<String> =
                        slots.iter().map(|slot| format!("{} (slot {slot})", crew.name(*slot))).collect();
                    drop(crew);
                    return Err(SwarmError::Agents(format!(
                        "not ready within {} s: {}",
                        READY_NS / 1_000_000_000,
                        names.join(", ")
                    )));
                }
                Readiness::Waiting(_) => {}
            }
            crew = self.shared.wait(crew);
        }
    }

    fn order(&self, order: Order) {
        // The thread lives as long as this does.
        let _ = self.orders.send(order);
    }
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

/// A load that all agents are ready for. Dropping it tells them that nothing of it is to be sent any more.
pub struct ReadyLoad {
    of: Arc<Coordinator>,
    load: u64,
    slots: usize,
    /// An agent's clock may differ from what was estimated by so much, nanoseconds.
    pub uncertainty_ns: u64,
}

impl ReadyLoad {
    /// Has the load sent, from `origin` on, and merges what the agents report.
    ///
    /// The second value is why the load was ended early, if an agent was lost. `cancelled` is asked now and then, also
    /// while no agent reports anything.
    pub fn run(
        &self,
        spec: &LoadSpec,
        control: &Control,
        origin: Origin,
        cancelled: &dyn Fn() -> bool,
        observer: &mut dyn FnMut(LoadEvent<'_>),
    ) -> (Outcome, Option<SwarmError>) {
        self.of.order(Order::Begin { load: self.load, at_ns: origin.start_ns });
        let mut ending = Ending::default();
        let mut reports = std::iter::from_fn(|| self.next(control, cancelled, &mut ending));
        let outcome = merge(spec, origin, self.slots, &mut reports, observer);
        (outcome, ending.lost)
    }

    /// Waits for the next report; `None` once all parts have ended.
    fn next(
        &self,
        control: &Control,
        cancelled: &dyn Fn() -> bool,
        ending: &mut Ending,
    ) -> Option<PartReport> {
        let shared = &self.of.shared;
        let mut crew = shared.crew();
        loop {
            if let Some(report) = crew.next_report(self.load) {
                return Some(report);
            }
            if crew.is_over(self.load) {
                return None;
            }
            let now_ns = now_ns();
            if ending.lost.is_none() {
                ending.lost = self.why_lost(&crew, now_ns).map(SwarmError::Agents);
            }
            if ending.lost.is_some() || cancelled() {
                control.abort();
            }
            if control.is_aborted() && !ending.is_aborted {
                ending.is_aborted = true;
                ending.until_ns.get_or_insert(now_ns + END_NS);
                self.of.order(Order::Abort { load: self.load });
            } else if control.is_stopped() && !ending.is_stopped {
                ending.is_stopped = true;
                self.of.order(Order::Stop { load: self.load });
            }
            // Those that are lost will never report, and without a connection nobody does.
            let is_given_up = ending.until_ns.is_some_and(|until_ns| now_ns >= until_ns);
            let is_alone = crew.are_others_lost(self.load, now_ns) || crew.deaf_for_ns(now_ns) > LOST_NS;
            if is_given_up || (ending.is_aborted && is_alone) {
                crew.finish(self.load);
                continue;
            }
            crew = shared.wait(crew);
        }
    }
}

impl ReadyLoad {
    /// Why the load cannot go on, in words.
    fn why_lost(&self, crew: &Crew, now_ns: u64) -> Option<String> {
        if let Some(why) = crew.damage(self.load) {
            return Some(why.to_owned());
        }
        if crew.deaf_for_ns(now_ns) > DEAF_NS {
            return Some(format!(
                "the NATS server could not be reached for {} s: what agents sent meanwhile is unknown",
                DEAF_NS / 1_000_000_000
            ));
        }
        let slot = crew.lost(self.load, now_ns)?;
        Some(format!(
            "agent {} (slot {slot}) was silent for {} s: what it sent after its last report is unknown",
            crew.name(slot),
            LOST_NS / 1_000_000_000
        ))
    }
}

impl Drop for ReadyLoad {
    fn drop(&mut self) {
        let mut crew = self.of.shared.crew();
        if !crew.is_over(self.load) {
            self.of.order(Order::Abort { load: self.load });
        }
        crew.forget(self.load);
    }
}

/// How a load comes to its end before its schedule does.
#[derive(Default)]
struct Ending {
    is_stopped: bool,
    is_aborted: bool,
    until_ns: Option<u64>,
    lost: Option<SwarmError>,
}

/// What the coordinator's thread needs.
struct Talk<'t> {
    client: &'t Client,
    context: &'t Context,
    subjects: &'t Subjects,
    offer: &'t RunOffer,
}

impl Talk<'_> {
    /// Everything that is said on the network, until the run is over.
    async fn run(
        &self,
        queue: mpsc::UnboundedReceiver<Order>,
        leaves: oneshot::Receiver<()>,
        shared: &Shared,
    ) {
        let Talk { client, context, subjects, offer } = *self;
        let said = follow(context, subjects, subjects.said(), said_onto(subjects, shared));
        // A server that is gone must not keep a run from ending.
        let goodbye = async {
            let _ = leaves.await;
            tokio::time::sleep(GOODBYE).await;
        };
        tokio::select! {
            () = give(context, subjects, offer, queue) => {}
            () = announce(client, offer, shared) => {}
            () = hear(client, subjects, shared) => {}
            () = tell_time(client, subjects) => {}
            () = said => {}
            () = goodbye => return,
        }
        // Agents have a moment to read that it is over.
        tokio::time::sleep(BEAT / 2).await;
        let _ = context.delete_stream(subjects.stream()).await;
    }
}

/// Gives the orders, each signed, until the last one.
async fn give(
    context: &Context,
    subjects: &Subjects,
    offer: &RunOffer,
    mut queue: mpsc::UnboundedReceiver<Order>,
) {
    let mut number = 0;
    while let Some(order) = queue.recv().await {
        let is_last = order == Order::Over;
        let numbered = Numbered { run: subjects.run.clone(), number, order };
        let id = format!("{}/order/{number}", subjects.run);
        let message = PublishMessage::build().payload(offer.key.seal(&numbered).into()).message_id(id);
        keep(context, subjects.orders(), message).await;
        number += 1;
        if is_last {
            return;
        }
    }
}

/// Announces the run every second: agents that come later join it, and all see that the coordinator lives.
async fn announce(client: &Client, offer: &RunOffer, shared: &Shared) {
    let sealed = offer.announced();
    let mut beat = tokio::time::interval(BEAT);
    loop {
        beat.tick().await;
        let is_connected = client.connection_state() == State::Connected;
        shared.change(|crew| crew.connected(is_connected, now_ns()));
        // While the server is gone nobody hears it.
        let _ = client.publish(ANNOUNCED, sealed.clone().into()).await;
    }
}

/// Notes who lives.
async fn hear(client: &Client, subjects: &Subjects, shared: &Shared) {
    loop {
        if let Ok(mut beats) = client.subscribe(subjects.heartbeats()).await {
            while let Some(beat) = beats.next().await {
                let slot = beat.subject.rsplit('.').next().and_then(|slot| slot.parse().ok());
                if let Some(slot) = slot {
                    shared.change(|crew| crew.seen(slot, now_ns()));
                }
            }
        }
        tokio::time::sleep(BEAT / 4).await;
    }
}

/// Answers agents that ask for the time: when the question came, and when the answer went.
async fn tell_time(client: &Client, subjects: &Subjects) {
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

/// Takes what agents say; what cannot be understood is left out.
fn said_onto<'s>(
    subjects: &'s Subjects,
    shared: &'s Shared,
) -> impl FnMut(&async_nats::Message) -> bool + use<'s> {
    let mut pieces = Pieces::default();
    move |message| {
        let Some((slot, what)) = slot_of(&message.subject, subjects) else { return true };
        match what {
            "claim" => {
                if let Ok(claim) = serde_json::from_slice(&message.payload) {
                    shared.change(|crew| crew.claim(slot, claim, now_ns()));
                }
            }
            "answer" => {
                if let Ok(answer) = serde_json::from_slice(&message.payload) {
                    shared.change(|crew| crew.answered(slot, answer));
                }
            }
            _ => {
                if let Some((load, id, bytes)) = report_of(slot, what, message, &mut pieces) {
                    let part = unpack(&bytes);
                    shared.change(|crew| {
                        crew.seen(slot, now_ns());
                        match part {
                            Ok(part) => crew.reported(load, id, part),
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

/// The load, the id and the bytes of a report that is now whole.
fn report_of(
    slot: usize,
    what: &str,
    message: &async_nats::Message,
    pieces: &mut Pieces,
) -> Option<(u64, ReportId, Vec<u8>)> {
    let (load, epoch) = what.strip_prefix("report.")?.split_once('.')?;
    let header = message.headers.as_ref()?.get(REPORT)?.as_str();
    let numbers: Vec<u64> = header.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [number, piece, all] = numbers.try_into().ok()?;
    let (load, id) = (load.parse().ok()?, ReportId { slot, epoch: epoch.parse().ok()?, number });
    let (piece, all) = (usize::try_from(piece).ok()?, usize::try_from(all).ok()?);
    Some((load, id, pieces.take((load, id), piece, all, &message.payload)?))
}
