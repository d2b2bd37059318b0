//! The coordinator's end: announces a run, gathers its agents, orders loads, and passes their reports on for merging.
//!
//! In the order of a run:
//!
//! - `announce.rs`: connects, uploads the run's files and announces the run.
//! - `ready.rs`: waits until every slot has an agent, and before each load until all are ready for it.
//! - `orders.rs`: numbers, signs and sends orders.
//! - `receive.rs`: takes in what agents send: claims, answers and reports.
//! - `load/`: a load while agents send it, and its result.
//! - `replace.rs`: gives up lost agents and lets others take their places.
//! - `liveness.rs`: which agents are alive; `time.rs`: answers their time requests.
//! - `network.rs`: the thread on which all messages are sent and received.

mod announce;
mod liveness;
mod load;
mod network;
mod orders;
mod ready;
mod receive;
mod replace;
mod time;

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use loadlab_record::sync::{lock, wait_timeout};
use tokio::sync::{mpsc, oneshot};

use self::announce::{OpenedRun, open};
use self::network::NetworkThread;
use self::orders::Orders;
use super::{Subjects, SwarmError, runtime};
use crate::agents::Agents;
use crate::message::Order;

pub use announce::RunOffer;
pub use load::{Loss, News, NotOffered, PartState, ReadyLoad, Sent, SentPart};

/// How often a waiting thread checks whether it must end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long agents have to get ready for a load, in nanoseconds.
const READY_TIMEOUT_NS: u64 = 60_000_000_000;
/// Additional time per byte of the files that they receive first: 1 MB/s.
const READY_NS_PER_BYTE: u64 = 1_000;

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

/// A run whose loads are sent by agents. Dropping it informs the agents that the run is over.
pub struct Coordinator {
    shared: Arc<Shared>,
    on_loss: LossPolicy,
    /// How long agents have to get ready for a load, in nanoseconds.
    ready_ns: u64,
    orders: Mutex<Orders>,
    /// Dropped to end the network thread.
    shutdown_sender: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    loads: Mutex<u64>,
}

/// State shared by the threads.
struct Shared {
    agents: Mutex<Agents>,
    changed: Condvar,
}

impl Shared {
    fn agents(&self) -> MutexGuard<'_, Agents> {
        lock(&self.agents)
    }

    fn change(&self, change: impl FnOnce(&mut Agents)) {
        change(&mut self.agents());
        self.changed.notify_all();
    }

    /// Waits for a change, for at most [`POLL_INTERVAL`].
    fn wait<'c>(&self, agents: MutexGuard<'c, Agents>) -> MutexGuard<'c, Agents> {
        wait_timeout(&self.changed, agents, POLL_INTERVAL)
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
        let ready_ns = READY_TIMEOUT_NS.saturating_add(sizes.sum::<u64>().saturating_mul(READY_NS_PER_BYTE));
        let shared =
            Arc::new(Shared { agents: Mutex::new(Agents::new(offer.slots)), changed: Condvar::new() });
        let (orders, queue) = mpsc::unbounded_channel();
        let (shutdown_sender, mut shutdown) = oneshot::channel();
        let (began, begun) = std::sync::mpsc::channel();
        let onto = shared.clone();
        let body = move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(began.send(Err(error))),
            };
            runtime.block_on(async move {
                let subjects = Subjects { run: offer.run.clone() };
                let made = open(&offer, &subjects, &mut shutdown);
                match made.await {
                    Ok(OpenedRun { client, context, files }) => {
                        let _ = began.send(Ok(()));
                        let (client, context, subjects) = (&client, &context, &subjects);
                        let network =
                            NetworkThread { client, context, subjects, offer: &offer, files: &files };
                        network.run(queue, shutdown, &onto).await;
                    }
                    Err(error) => drop(began.send(Err(error))),
                }
            });
        };
        let thread = std::thread::Builder::new().name("loadlab-swarm".into()).spawn(body);
        let thread = thread.map_err(SwarmError::Thread)?;
        let mut shutdown_sender = Some(shutdown_sender);
        let begun = loop {
            if cancelled() {
                shutdown_sender = None;
            }
            match begun.recv_timeout(POLL_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                begun => break begun,
            }
        };
        match begun {
            Ok(Ok(())) => {
                let thread = Some(thread);
                let orders = Mutex::new(Orders { next: 0, queue: orders });
                Ok(Coordinator {
                    shared,
                    on_loss,
                    ready_ns,
                    orders,
                    shutdown_sender,
                    thread,
                    loads: Mutex::new(0),
                })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SwarmError::Agents("the swarm's own thread ended".to_owned())),
        }
    }

    /// Number of agents that the run needs.
    pub fn slot_count(&self) -> usize {
        self.shared.agents().slot_count()
    }

    /// Number of agents that have joined so far.
    pub fn agents_here(&self) -> usize {
        let agents = self.shared.agents();
        agents.slot_count() - agents.open().len()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.order(Order::Over);
        self.shutdown_sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
