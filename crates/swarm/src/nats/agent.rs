//! The agent's end: takes a slot in an announced run and sends its part of each load.
//!
//! Orders count only if they are signed with the coordinator's key. An agent sends nothing before it owns a slot, and
//! nothing after it has not heard from the coordinator for a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use futures_util::StreamExt;
use loadlab_load::LoadSpec;
use loadlab_load::io::epoll::now_ns;
use loadlab_load::run::{Control, run_part};
use loadlab_load::spec::{Elsewhere, Joins};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};

use super::{ANNOUNCED, BEAT, Denied, HEADER_BYTES, REPORT, Server, Subjects, SwarmError};
use super::{context_of, files, follow, keep, runtime};
use crate::block::{pack_counted, pack_ended};
use crate::clock::{Bounds, Exchange};
use crate::crew::LOST_NS;
use crate::message::{
    Announcement, Answer, Claim, Clock, FileOffer, JoinOrder, LoadOrder, Numbered, OpenSlot, Order, VERSION,
};
use crate::signed::VerifyingKey;
use crate::spool::Spool;

/// If the coordinator is silent for this long, an agent stops sending.
pub const DEAD_MAN_NS: u64 = 60_000_000_000;
/// How often a waiting thread checks whether it must end.
const LOOK: Duration = Duration::from_millis(100);
/// How often the agent checks for cancellation: rarely, since each check takes time from a core that the load may need.
const CANCEL_POLL: Duration = Duration::from_millis(250);
/// Maximum number of distinct denials by the server to report.
const MOST_DENIALS: usize = 20;
/// How long an agent tries to claim a slot.
const CLAIM: Duration = Duration::from_secs(20);
/// Number of time requests in quick succession at first, to get narrow bounds soon.
const FIRST_QUESTIONS: usize = 8;
/// How long an agent waits for the coordinator's time.
const TIME_NS: u64 = 20_000_000_000;
/// From an order to join a load that has begun to the first request, in nanoseconds.
const JOIN_NS: u64 = 200_000_000;

/// An agent's settings.
pub struct AgentOptions {
    /// How to reach the server.
    pub server: Server,
    /// The key that orders must be signed with.
    pub coordinator: VerifyingKey,
    /// Number of load threads, unless the load specifies it.
    pub threads: usize,
    /// Where reports are kept until the run is over.
    pub spool: PathBuf,
    /// The agent's name, different from all others.
    pub name: String,
    /// The only slot that it may take; `None`: any.
    pub slot: Option<usize>,
    /// Exit after one run.
    pub once: bool,
    /// Exit if no run is announced for this long.
    pub leaves_after: Option<Duration>,
}

/// Builds loads from the coordinator's descriptions.
pub trait Loads: Send + Sync {
    /// Builds the load described by `what`, in a run with this `bundle` and these `files`, with `threads` load threads
    /// unless the load specifies their number.
    ///
    /// # Errors
    /// The load cannot or must not be sent from here; the reason in words.
    fn load(
        &self,
        bundle: &Value,
        files: &[PathBuf],
        what: &Value,
        threads: usize,
    ) -> Result<LoadSpec, String>;

    /// Checks whether this agent may send its part of a load.
    ///
    /// # Errors
    /// The reason in words.
    fn accepts(&self, part: &LoadSpec) -> Result<(), String>;
}

/// Receives the agent's messages to its user.
pub type AgentLog<'a> = &'a (dyn Fn(&str) + Sync);

/// Takes part in runs until `cancelled`, or in a single run if the options say so.
///
/// # Errors
/// The server cannot be reached.
pub fn serve(
    options: &AgentOptions,
    loads: &Arc<dyn Loads>,
    log: AgentLog<'_>,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<(), SwarmError> {
    runtime()?.block_on(async {
        let (client, denied) = options.server.connect().await?;
        log(&format!("connected to {}", options.server.shown()));
        let random = || RandomState::new().build_hasher().finish();
        let id = format!("{:016x}{:016x}", random(), random());
        let agent = Agent { options, loads, log, client: &client, context: context_of(&client), id };
        tokio::select! {
            () = agent.runs() => Ok(()),
            () = agent.report_denials(denied) => Ok(()),
            () = until(cancelled) => Ok(()),
        }
    })
}

async fn until(cancelled: &(dyn Fn() -> bool + Sync)) {
    while !cancelled() {
        tokio::time::sleep(CANCEL_POLL).await;
    }
}

struct Agent<'a> {
    options: &'a AgentOptions,
    loads: &'a Arc<dyn Loads>,
    log: AgentLog<'a>,
    client: &'a Client,
    context: Context,
    /// Random id of this process; see [`Claim::id`].
    id: String,
}

impl Agent<'_> {
    /// Reports what the server does not allow, each denial once.
    async fn report_denials(&self, mut denied: Denied) {
        let mut reported = BTreeSet::new();
        while let Some(why) = denied.recv().await {
            if reported.len() < MOST_DENIALS && reported.insert(why.clone()) {
                (self.log)(&format!("the NATS server does not allow it: {why}"));
            }
        }
        std::future::pending().await
    }

    /// Takes part in one run after another.
    async fn runs(&self) {
        let (mut done, mut refused) = (Vec::new(), String::new());
        loop {
            let announced = self.announced(&done, &mut refused);
            let announcement = match self.options.leaves_after {
                Some(most) => match tokio::time::timeout(most, announced).await {
                    Ok(announcement) => announcement,
                    Err(_) => {
                        return (self.log)(&format!("no run is announced within {} s", most.as_secs_f64()));
                    }
                },
                None => announced.await,
            };
            let (run, slots) = (announcement.run.clone(), announcement.slots);
            let subjects = Subjects { run: run.clone() };
            match self.claim(&subjects, &announcement.open).await {
                Some(place) => {
                    done.push(run.clone());
                    (self.log)(&format!("run {run}: slot {} of {slots}", place.slot));
                    let ended = self.run(&subjects, place, announcement.bundle, &announcement.files).await;
                    if ended == PartEnded::GivenUp {
                        let slot = place.slot;
                        (self.log)(&format!(
                            "run {run}: slot {slot} is free again, because the coordinator did not hear from this agent"
                        ));
                        done.pop();
                        continue;
                    }
                    (self.log)(&format!("run {run}: over"));
                    if self.options.once {
                        return;
                    }
                }
                // A slot may become free later.
                None => {
                    let why = match self.options.slot {
                        Some(slot) => format!("run {run}: slot {slot} is taken, or not one of its {slots}"),
                        None => format!("run {run}: all slots are taken"),
                    };
                    if why != refused {
                        (self.log)(&why);
                        refused = why;
                    }
                }
            }
        }
    }

    /// Waits for a run that this agent has not taken part in yet.
    async fn announced(&self, done: &[String], refused: &mut String) -> Announcement {
        loop {
            if let Ok(mut announced) = self.client.subscribe(ANNOUNCED).await {
                while let Some(message) = announced.next().await {
                    let why = match self.options.coordinator.open::<Announcement>(&message.payload) {
                        Ok(announcement) if done.contains(&announcement.run) => continue,
                        Ok(announcement) if announcement.version == VERSION => return announcement,
                        Ok(announcement) => format!(
                            "run {}: its coordinator speaks version {}, this agent {VERSION}",
                            announcement.run, announcement.version
                        ),
                        Err(error) => format!("a run is announced, but {error}"),
                    };
                    if why != *refused {
                        (self.log)(&why);
                        *refused = why;
                    }
                }
            }
            tokio::time::sleep(BEAT / 4).await;
        }
    }

    /// Claims the first of these slots that is still free.
    async fn claim(&self, subjects: &Subjects, open: &[OpenSlot]) -> Option<OpenSlot> {
        let (agent, id) = (self.options.name.clone(), self.id.clone());
        let claim = Claim { agent, id, threads: self.options.threads as u64 };
        let bytes = serde_json::to_vec(&claim).expect("texts and numbers");
        let is_wanted = |place: &&OpenSlot| self.options.slot.is_none_or(|slot| place.slot == slot);
        for place in open.iter().filter(is_wanted) {
            let OpenSlot { slot, epoch, .. } = *place;
            let id = format!("{}/claim/{slot}/{epoch}/{}", subjects.run, self.id);
            let message = PublishMessage::build().payload(bytes.clone().into()).message_id(id);
            let message = message.expected_last_subject_sequence(0);
            let claimed = keep(&self.context, subjects.claim(slot, epoch), message);
            // The run may be over by now and its stream gone.
            if tokio::time::timeout(CLAIM, claimed).await.ok()? {
                return Some(*place);
            }
        }
        None
    }

    /// Takes part in a run until it is over or the coordinator has given this agent up.
    async fn run(
        &self,
        subjects: &Subjects,
        place: OpenSlot,
        bundle: Value,
        offered: &[FileOffer],
    ) -> PartEnded {
        let (outgoing, queue) = mpsc::unbounded_channel();
        let crew = Arc::new(Under {
            clock: Mutex::new(Bounds::default()),
            heard_ns: AtomicU64::new(now_ns()),
            is_left: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            flagged: Notify::new(),
            loads: Mutex::new(BTreeMap::new()),
        });
        let mut work = Work {
            agent: self,
            place,
            bundle,
            files: Ok(Arc::default()),
            under: crew.clone(),
            outgoing,
            next_order: 0,
            spool: self.options.spool.join(format!("{}-{}-{}", subjects.run, place.slot, place.epoch)),
        };
        let spool = work.spool.clone();
        let _ends = EndsWithRun { under: crew.clone(), spool: spool.clone() };
        let orders = async {
            let received = files::receive(&self.context, subjects, offered, &spool.join("files")).await;
            work.files = received.map(Arc::new);
            follow(&self.context, subjects, subjects.orders(), |message| work.order(message, subjects)).await;
        };
        tokio::select! {
            () = orders => {}
            () = self.send_outgoing(subjects, place, queue) => {}
            () = self.beat(subjects, place) => {}
            () = self.live(subjects, place) => {}
            () = self.ask_time(subjects, &crew) => {}
            () = self.listen(subjects, place, &crew) => {}
            () = dead_man(&crew) => {
                if crew.is_given_up.load(Ordering::Relaxed) {
                    return PartEnded::GivenUp;
                }
                let s = crew.silent_ns() / 1_000_000_000;
                let text = format!("nothing heard of the coordinator for {s} s, so nothing more is sent");
                (self.log)(&format!("run {}: {text}", subjects.run));
            }
        }
        PartEnded::Over
    }

    /// Sends the loads' answers and reports in order, each until the server has acknowledged it.
    async fn send_outgoing(
        &self,
        subjects: &Subjects,
        place: OpenSlot,
        mut queue: mpsc::UnboundedReceiver<Outgoing>,
    ) {
        let OpenSlot { slot, epoch, .. } = place;
        while let Some(message) = queue.recv().await {
            match message {
                Outgoing::Answer(answer) => {
                    let id = format!(
                        "{}/answer/{slot}/{epoch}/{}/{}",
                        subjects.run,
                        answer.load,
                        answer.ready.is_ok()
                    );
                    let bytes = serde_json::to_vec(&answer).expect("texts and numbers");
                    let message = PublishMessage::build().payload(bytes.into()).message_id(id);
                    keep(&self.context, subjects.answer(slot, epoch), message).await;
                }
                Outgoing::Report { load, number, bytes } => {
                    let most = self.client.max_payload().saturating_sub(HEADER_BYTES).max(HEADER_BYTES);
                    let pieces: Vec<&[u8]> = bytes.chunks(most).collect();
                    for (piece, part) in pieces.iter().enumerate() {
                        let id = format!("{}/{load}/{slot}/{epoch}/{number}/{piece}", subjects.run);
                        let header = format!("{number} {piece} {}", pieces.len());
                        let message = PublishMessage::build().payload(part.to_vec().into());
                        let message = message.header(REPORT, header.as_str()).message_id(id);
                        keep(&self.context, subjects.reports(slot, load, epoch), message).await;
                    }
                }
            }
        }
    }

    /// Sends a heartbeat every second.
    async fn beat(&self, subjects: &Subjects, place: OpenSlot) {
        let mut beat = tokio::time::interval(BEAT);
        loop {
            beat.tick().await;
            let _ = self.client.publish(subjects.heartbeat(place.slot, place.epoch), Vec::new().into()).await;
        }
    }

    /// Answers the coordinator's liveness requests as long as this agent runs.
    async fn live(&self, subjects: &Subjects, place: OpenSlot) {
        loop {
            if let Ok(mut asked) = self.client.subscribe(subjects.alive(place.slot, place.epoch)).await {
                while let Some(question) = asked.next().await {
                    let Some(reply) = question.reply else { continue };
                    let _ = self.client.publish(reply, Vec::new().into()).await;
                }
            }
            tokio::time::sleep(BEAT / 4).await;
        }
    }

    /// Asks the coordinator for the time: in quick succession at first, then every second.
    async fn ask_time(&self, subjects: &Subjects, under: &Under) {
        for question in 0.. {
            let asked_ns = now_ns();
            let answer = self.client.request(subjects.time(), Vec::new().into()).await;
            let returned_ns = now_ns();
            if let Ok(answer) = answer
                && let Ok([received_ns, answered_ns]) = serde_json::from_slice::<[u64; 2]>(&answer.payload)
            {
                under.heard();
                let exchange = Exchange { asked_ns, received_ns, answered_ns, returned_ns };
                under.clock.lock().unwrap_or_else(PoisonError::into_inner).add(exchange);
            }
            tokio::time::sleep(if question < FIRST_QUESTIONS { BEAT / 100 } else { BEAT }).await;
        }
    }

    /// Listens for announcements: whether the coordinator is alive, and whether it still counts on this agent.
    async fn listen(&self, subjects: &Subjects, place: OpenSlot, under: &Under) {
        loop {
            if let Ok(mut announced) = self.client.subscribe(ANNOUNCED).await {
                let mut verified = None::<(Vec<u8>, Announcement)>;
                while let Some(message) = announced.next().await {
                    // An announcement is repeated every second; verifying it takes time from a core that the load may
                    // need.
                    let known = verified.take_if(|(payload, _)| *payload == message.payload[..]);
                    let opened = || self.options.coordinator.open::<Announcement>(&message.payload).ok();
                    let known = known.map(|(_, announcement)| announcement).or_else(opened);
                    let Some(announcement) = known else { continue };
                    let is_free = |open: &OpenSlot| open.slot == place.slot && open.epoch > place.epoch;
                    match announcement.run == subjects.run {
                        true => {
                            under.heard();
                            if announcement.open.iter().any(is_free) {
                                under.set(&under.is_given_up);
                            }
                        }
                        false if under.silent_ns() > LOST_NS => under.set(&under.is_left),
                        false => {}
                    }
                    verified = Some((message.payload.to_vec(), announcement));
                }
            }
            tokio::time::sleep(BEAT / 4).await;
        }
    }
}

/// Returns when the coordinator has been silent for too long, when another run with its key has begun, or when this
/// agent was given up.
async fn dead_man(under: &Under) {
    let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    while under.silent_ns() < DEAD_MAN_NS && !is_set(&under.is_left) && !is_set(&under.is_given_up) {
        let left = Duration::from_nanos(DEAD_MAN_NS.saturating_sub(under.silent_ns()));
        let _ = tokio::time::timeout(left, under.flagged.notified()).await;
    }
}

/// How an agent's participation in a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartEnded {
    /// The run is over, at least for this agent.
    Over,
    /// The coordinator did not hear from this agent for too long and offers its slot to others.
    GivenUp,
}

/// Ends everything an agent does in a run, even if the agent itself is interrupted.
struct EndsWithRun {
    under: Arc<Under>,
    /// Holds the reports and files of this run only.
    spool: PathBuf,
}

impl Drop for EndsWithRun {
    fn drop(&mut self) {
        self.under.abort_all();
        let _ = std::fs::remove_dir_all(&self.spool);
    }
}

/// The shared state of an agent while it takes part in a run.
struct Under {
    clock: Mutex<Bounds>,
    /// When the coordinator was last heard from.
    heard_ns: AtomicU64,
    /// The coordinator is silent, and another run with its key was announced.
    is_left: AtomicBool,
    /// The coordinator has given up this agent.
    is_given_up: AtomicBool,
    /// Notified when one of these two flags is set.
    flagged: Notify,
    /// Loads in progress, by number.
    loads: Mutex<BTreeMap<u64, Arc<AgentLoad>>>,
}

/// A load of which this agent sends a part.
#[derive(Default)]
struct AgentLoad {
    control: Control,
    /// When the load begins, on the coordinator's clock.
    begins: Mutex<Option<u64>>,
    changed: Condvar,
}

impl Under {
    fn silent_ns(&self) -> u64 {
        now_ns().saturating_sub(self.heard_ns.load(Ordering::Relaxed))
    }

    fn set(&self, flag: &AtomicBool) {
        flag.store(true, Ordering::Relaxed);
        self.flagged.notify_one();
    }

    fn heard(&self) {
        self.heard_ns.fetch_max(now_ns(), Ordering::Relaxed);
    }

    fn load(&self, number: u64) -> Option<Arc<AgentLoad>> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    fn abort_all(&self) {
        let loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        loads.values().for_each(|load| load.abort());
    }

    /// The offset of this agent's clock from the coordinator's, and its uncertainty.
    fn clock(&self) -> Option<Clock> {
        let bounds = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = bounds.at(now_ns())?;
        Some(Clock { offset_ns: offset.estimate_ns, uncertainty_ns: offset.uncertainty_ns })
    }
}

impl AgentLoad {
    fn abort(&self) {
        self.control.abort();
        self.changed.notify_all();
    }

    fn begin(&self, at_ns: u64) {
        self.begins.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(at_ns);
        self.changed.notify_all();
    }

    /// Waits for a change, for at most [`LOOK`].
    fn wait(&self) {
        let begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.changed.wait_timeout(begins, LOOK).unwrap_or_else(PoisonError::into_inner);
    }

    /// Waits for the load's start time; `None` if the load is aborted first.
    fn begins(&self) -> Option<u64> {
        let mut begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.control.is_aborted() {
                return None;
            }
            if let Some(at_ns) = *begins {
                return Some(at_ns);
            }
            begins = self.changed.wait_timeout(begins, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A message from a load's thread to the coordinator.
enum Outgoing {
    Answer(Answer),
    Report { load: u64, number: u64, bytes: Vec<u8> },
}

/// Follows the orders of a run.
struct Work<'a> {
    agent: &'a Agent<'a>,
    place: OpenSlot,
    bundle: Value,
    /// The run's files; `Err` has the reason why they could not be received.
    files: Result<Arc<Vec<PathBuf>>, String>,
    under: Arc<Under>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    next_order: u64,
    spool: PathBuf,
}

impl Work<'_> {
    /// Follows an order; returns false once the run is over. An order that is not signed by the coordinator, or was
    /// already given, is ignored.
    fn order(&mut self, message: &async_nats::Message, subjects: &Subjects) -> bool {
        let numbered = match self.agent.options.coordinator.open::<Numbered>(&message.payload) {
            Ok(numbered) => numbered,
            Err(error) => {
                (self.agent.log)(&format!("run {}: an order was refused: {error}", subjects.run));
                return true;
            }
        };
        if numbered.run != subjects.run || numbered.number != self.next_order {
            return true;
        }
        self.next_order += 1;
        self.under.heard();
        // The order was for an agent that had the slot before.
        let is_old = numbered.number < self.place.from_order;
        match numbered.order {
            Order::Over => return false,
            _ if is_old => {}
            Order::Prepare(order) => self.prepare(order, None),
            Order::Join(JoinOrder { slot, epoch, order, begun_ns, begun }) if slot == self.place.slot => {
                if epoch > self.place.epoch {
                    (self.agent.log)(&format!("run {}: another agent has taken slot {slot}", subjects.run));
                    return false;
                }
                let load = order.load;
                self.prepare(order, begun_ns.map(|at_ns| Begun { at_ns, requests: begun }));
                if let Some((load, at_ns)) = self.under.load(load).zip(begun_ns) {
                    load.begin(at_ns);
                }
            }
            Order::Join(_) => {}
            Order::Begin { load, at_ns } => {
                self.under.load(load).into_iter().for_each(|load| load.begin(at_ns))
            }
            Order::Stop { load } => self.under.load(load).into_iter().for_each(|load| load.control.stop()),
            Order::Abort { load } => self.under.load(load).into_iter().for_each(|load| load.abort()),
        }
        true
    }

    /// Gets ready for a load on a separate thread.
    fn prepare(&mut self, order: LoadOrder, begun: Option<Begun>) {
        let load = Arc::new(AgentLoad::default());
        let part = PartOfLoad {
            slot: self.place.slot,
            begun,
            bundle: self.bundle.clone(),
            files: self.files.clone(),
            loads: self.agent.loads.clone(),
            threads: self.agent.options.threads,
            under: self.under.clone(),
            outgoing: self.outgoing.clone(),
            spool: self.spool.join(order.load.to_string()),
            load: load.clone(),
        };
        self.under.loads.lock().unwrap_or_else(PoisonError::into_inner).insert(order.load, load);
        let number = order.load;
        if order.agents.get(self.place.slot) != Some(&self.agent.id) {
            let why = "it is for the agent of another run".to_owned();
            (self.agent.log)(&format!("an order was refused: {why}"));
            let _ = self.outgoing.send(Outgoing::Answer(Answer {
                load: number,
                ready: Err(why),
                joins_ns: None,
            }));
            return;
        }
        let body = move || part.send(&order);
        if let Err(error) = std::thread::Builder::new().name(format!("loadlab-part-{number}")).spawn(body) {
            let ready = Err(format!("cannot start a thread: {error}"));
            let _ = self.outgoing.send(Outgoing::Answer(Answer { load: number, ready, joins_ns: None }));
        }
    }
}

/// A load that other agents already send.
#[derive(Clone, Copy)]
struct Begun {
    /// When it began, on the coordinator's clock.
    at_ns: u64,
    /// Requests of this part that were started or dropped so far.
    requests: u64,
}

/// An agent's part of one load.
struct PartOfLoad {
    slot: usize,
    begun: Option<Begun>,
    bundle: Value,
    files: Result<Arc<Vec<PathBuf>>, String>,
    loads: Arc<dyn Loads>,
    threads: usize,
    under: Arc<Under>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    spool: PathBuf,
    load: Arc<AgentLoad>,
}

impl PartOfLoad {
    /// Sends the part and reports what was counted.
    fn send(&self, order: &LoadOrder) {
        if let Err(why) = self.try_send(order) {
            self.answer(order.load, Err(why), None);
        }
    }

    fn answer(&self, load: u64, ready: Result<Clock, String>, joins_ns: Option<u64>) {
        // The receiver lives as long as the run.
        let _ = self.outgoing.send(Outgoing::Answer(Answer { load, ready, joins_ns }));
    }

    /// When to join a load that has already begun: shortly from now, on the load's clock.
    fn joins(&self, begun: Begun) -> Option<Joins> {
        let bounds = *self.under.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = now_ns();
        let began_ns = bounds.at(now_ns)?.here(begun.at_ns);
        let at_ns = (now_ns + JOIN_NS).saturating_sub(began_ns);
        Some(Joins { at_ns, begun: begun.requests })
    }

    /// Computes a value that depends on the coordinator's clock; an agent that has just come waits for the first time
    /// answer.
    fn known_time<T>(&self, of: impl Fn() -> Option<T>) -> Result<T, String> {
        let until_ns = now_ns() + TIME_NS;
        loop {
            if let Some(known) = of() {
                return Ok(known);
            }
            if self.load.control.is_aborted() || now_ns() >= until_ns {
                return Err("the coordinator did not say what time it is".to_owned());
            }
            self.load.wait();
        }
    }

    fn try_send(&self, order: &LoadOrder) -> Result<(), String> {
        let share = order.share(self.slot).ok_or("the order does not know this slot")?;
        let files = self.files.as_ref().map_err(String::clone)?;
        let mut spec = self.loads.load(&self.bundle, files, &order.what, self.threads)?;
        spec.threads = usize::try_from(share.own).map_err(|_| "too many threads")?;
        spec.elsewhere = Elsewhere { before: share.before, after: share.after };
        self.loads.accepts(&spec)?;
        let joins_ns = match self.begun {
            None => None,
            Some(begun) => {
                spec.joins = self.known_time(|| self.joins(begun))?;
                Some(spec.joins.at_ns)
            }
        };
        let mut spool = Spool::open(&self.spool)
            .map_err(|e| format!("cannot keep reports in {}: {e}", self.spool.display()))?;
        let failed = Mutex::new(None);
        let agree = || {
            match self.known_time(|| self.under.clock()) {
                Ok(clock) => self.answer(order.load, Ok(clock), joins_ns),
                Err(why) => {
                    self.answer(order.load, Err(why), None);
                    self.load.abort();
                }
            }
            let begins = self.load.begins();
            let bounds = *self.under.clock.lock().unwrap_or_else(PoisonError::into_inner);
            match begins.zip(bounds.at(now_ns())) {
                Some((at_ns, offset)) => offset.here(at_ns),
                None => now_ns(),
            }
        };
        let mut report = |bytes: Vec<u8>| match spool.append(&bytes) {
            Ok(number) => drop(self.outgoing.send(Outgoing::Report { load: order.load, number, bytes })),
            Err(error) => {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(format!("cannot keep reports in {}: {error}", self.spool.display()));
                self.load.abort();
            }
        };
        let ended = run_part(&spec, &self.load.control, order.first_id, &agree, &mut |delta| {
            report(pack_counted(delta));
        });
        let end = ended.map_err(|error| error.to_string())?;
        report(pack_ended(&end));
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }
}
