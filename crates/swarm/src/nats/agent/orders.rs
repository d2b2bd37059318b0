//! Follows the coordinator's orders: each once, and only if it is signed.

use std::path::PathBuf;
use std::sync::Arc;

use loadlab_record::sync::lock;
use serde_json::Value;
use tokio::sync::mpsc;

use super::Agent;
use super::outgoing::Outgoing;
use super::part::{Begun, PartOfLoad};
use super::state::{AgentLoad, RunState};
use crate::message::{Answer, JoinOrder, LoadOrder, Numbered, OpenSlot, Order};
use crate::nats::Subjects;
use crate::spool::Spool;

/// The most reports that are sent again at a time; the coordinator asks for more.
const MOST_RESENT: usize = 64;

/// Follows the orders of a run.
pub(super) struct Work<'a> {
    pub(super) agent: &'a Agent<'a>,
    pub(super) claimed: OpenSlot,
    pub(super) bundle: Value,
    /// The run's files; `Err` has the reason why they could not be received.
    pub(super) files: Result<Arc<Vec<PathBuf>>, String>,
    pub(super) run_state: Arc<RunState>,
    pub(super) outgoing: mpsc::UnboundedSender<Outgoing>,
    pub(super) next_order: u64,
    pub(super) spool: PathBuf,
}

impl Work<'_> {
    /// Follows an order; returns false once the run is over. An order that is not signed by the coordinator, or was
    /// already given, is ignored.
    pub(super) fn order(&mut self, message: &async_nats::Message, subjects: &Subjects) -> bool {
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
        self.run_state.heard();
        // The order was for an agent that had the slot before.
        let is_old = numbered.number < self.claimed.from_order;
        match numbered.order {
            Order::Over => return false,
            _ if is_old => {}
            Order::Prepare(order) => self.prepare(order, None),
            Order::Join(JoinOrder { slot, epoch, order, begun_ns, begun }) if slot == self.claimed.slot => {
                if epoch > self.claimed.epoch {
                    (self.agent.log)(&format!("run {}: another agent has taken slot {slot}", subjects.run));
                    return false;
                }
                let load = order.load;
                self.prepare(order, begun_ns.map(|at_ns| Begun { at_ns, requests: begun }));
                if let Some((load, at_ns)) = self.run_state.load(load).zip(begun_ns) {
                    load.begin(at_ns);
                }
            }
            Order::Join(_) => {}
            Order::Begin { load, at_ns } => {
                self.run_state.load(load).into_iter().for_each(|load| load.begin(at_ns))
            }
            Order::Stop { load } => {
                self.run_state.load(load).into_iter().for_each(|load| load.control.stop())
            }
            Order::Resend { load, slot, epoch, number } if self.is_for(slot, epoch) => {
                self.resend(load, number, numbered.number);
            }
            Order::GiveUp { load, slot, epoch } if self.is_for(slot, epoch) => {
                let why = "the load goes on without this agent, which the coordinator did not hear from";
                (self.agent.log)(&format!("run {}: {why}", subjects.run));
                self.run_state.load(load).into_iter().for_each(|load| load.abort());
            }
            Order::Resend { .. } | Order::GiveUp { .. } => {}
            Order::Abort { load } => self.run_state.load(load).into_iter().for_each(|load| load.abort()),
        }
        true
    }

    fn is_for(&self, slot: usize, epoch: u32) -> bool {
        (slot, epoch) == (self.claimed.slot, self.claimed.epoch)
    }

    /// Sends reports again, as far as they are kept.
    fn resend(&self, load: u64, from: u64, order: u64) {
        let kept = Spool::read(&self.spool_of(load), from, MOST_RESENT);
        for (number, bytes) in kept.unwrap_or_default() {
            // The receiver lives as long as the run.
            let _ = self.outgoing.send(Outgoing::Report { load, number, bytes, again: Some(order) });
        }
    }

    /// Where the reports of a load are kept.
    fn spool_of(&self, load: u64) -> PathBuf {
        self.spool.join(load.to_string())
    }

    /// Gets ready for a load on a separate thread.
    fn prepare(&mut self, order: LoadOrder, begun: Option<Begun>) {
        let load = Arc::new(AgentLoad::default());
        let part = PartOfLoad {
            slot: self.claimed.slot,
            begun,
            bundle: self.bundle.clone(),
            files: self.files.clone(),
            loads: self.agent.loads.clone(),
            threads: self.agent.options.threads,
            run_state: self.run_state.clone(),
            outgoing: self.outgoing.clone(),
            spool: self.spool_of(order.load),
            load: load.clone(),
        };
        lock(&self.run_state.loads).insert(order.load, load);
        let number = order.load;
        if order.agents.get(self.claimed.slot) != Some(&self.agent.id) {
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
