//! The thread of a load: builds the load, says when it is ready, sends this agent's part, and reports what was counted.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use loadlab_load::io::epoll::now_ns;
use loadlab_load::run::run_part;
use loadlab_load::spec::{JoinPoint, OtherThreads};
use loadlab_record::sync::lock;
use serde_json::Value;
use tokio::sync::mpsc;

use super::Loads;
use super::outgoing::Outgoing;
use super::state::{AgentLoad, RunState};
use crate::block::{pack_counted, pack_ended};
use crate::message::{Answer, Clock, LoadOrder};
use crate::spool::Spool;

/// How long an agent waits for the coordinator's time.
const TIME_TIMEOUT_NS: u64 = 20_000_000_000;
/// From an order to join a load that has begun to the first request, in nanoseconds.
const JOIN_LEAD_NS: u64 = 200_000_000;

/// A load that other agents already send.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    /// When it began, on the coordinator's clock.
    pub(super) at_ns: u64,
    /// Requests of this part that were started or dropped so far.
    pub(super) requests: u64,
}

/// An agent's part of one load.
pub(super) struct PartOfLoad {
    pub(super) slot: usize,
    pub(super) begun: Option<Begun>,
    pub(super) bundle: Value,
    pub(super) files: Result<Arc<Vec<PathBuf>>, String>,
    pub(super) loads: Arc<dyn Loads>,
    pub(super) threads: usize,
    pub(super) run_state: Arc<RunState>,
    pub(super) outgoing: mpsc::UnboundedSender<Outgoing>,
    pub(super) spool: PathBuf,
    pub(super) load: Arc<AgentLoad>,
}

impl PartOfLoad {
    /// Sends the part and reports what was counted.
    pub(super) fn send(&self, order: &LoadOrder) {
        if let Err(why) = self.try_send(order) {
            self.answer(order.load, Err(why), None);
        }
    }

    fn answer(&self, load: u64, ready: Result<Clock, String>, joins_ns: Option<u64>) {
        // The receiver lives as long as the run.
        let _ = self.outgoing.send(Outgoing::Answer(Answer { load, ready, joins_ns }));
    }

    /// When to join a load that has already begun: shortly from now, on the load's clock.
    fn joins(&self, begun: Begun) -> Option<JoinPoint> {
        let bounds = *lock(&self.run_state.clock);
        let now_ns = now_ns();
        let began_ns = bounds.at(now_ns)?.here(begun.at_ns);
        let at_ns = (now_ns + JOIN_LEAD_NS).saturating_sub(began_ns);
        Some(JoinPoint { at_ns, begun: begun.requests })
    }

    /// Computes a value that depends on the coordinator's clock; an agent that has just come waits for the first time
    /// answer.
    fn known_time<T>(&self, of: impl Fn() -> Option<T>) -> Result<T, String> {
        let until_ns = now_ns() + TIME_TIMEOUT_NS;
        loop {
            if let Some(known) = of() {
                return Ok(known);
            }
            if self.load.control.is_aborted() || now_ns() >= until_ns {
                return Err("the coordinator did not answer requests for its time".to_owned());
            }
            self.load.wait();
        }
    }

    fn try_send(&self, order: &LoadOrder) -> Result<(), String> {
        let share = order.share(self.slot).ok_or_else(|| format!("the order has no slot {}", self.slot))?;
        let files = self.files.as_ref().map_err(String::clone)?;
        let mut spec = self.loads.load(&self.bundle, files, &order.what, self.threads)?;
        spec.threads = usize::try_from(share.own).map_err(|_| "too many threads")?;
        spec.other_threads = OtherThreads { before: share.before, after: share.after };
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
            match self.known_time(|| self.run_state.clock()) {
                Ok(clock) => self.answer(order.load, Ok(clock), joins_ns),
                Err(why) => {
                    // If a load thread failed meanwhile, its own error is the answer.
                    if !self.load.control.is_aborted() {
                        self.answer(order.load, Err(why), None);
                    }
                    self.load.abort();
                }
            }
            let begins = self.load.begins();
            let bounds = *lock(&self.run_state.clock);
            match begins.zip(bounds.at(now_ns())) {
                Some((at_ns, offset)) => offset.here(at_ns),
                None => now_ns(),
            }
        };
        let mut report = |bytes: Vec<u8>| match spool.append(&bytes) {
            Ok(number) => {
                drop(self.outgoing.send(Outgoing::Report { load: order.load, number, bytes, again: None }))
            }
            Err(error) => {
                *lock(&failed) = Some(format!("cannot keep reports in {}: {error}", self.spool.display()));
                self.load.abort();
            }
        };
        let ended = run_part(&spec, &self.load.control, order.first_id, &agree, &mut |delta| {
            report(pack_counted(delta));
        });
        let end = ended.map_err(|error| error.to_string())?;
        report(pack_ended(&end));
        let why = lock(&failed).take();
        why.map_or(Ok(()), Err)
    }
}
