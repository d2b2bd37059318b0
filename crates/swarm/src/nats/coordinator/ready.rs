//! Waiting for agents: until every slot has one, and before each load until all are ready for it.

use std::sync::Arc;
use std::time::Duration;

use loadlab_load::io::epoll::now_ns;
use loadlab_record::sync::lock;
use serde_json::Value;

use super::load::ReadyLoad;
use super::replace::describe_silence;
use super::{Coordinator, LossPolicy};
use crate::agents::Readiness;
use crate::message::{LoadOrder, Order};
use crate::nats::SwarmError;

impl Coordinator {
    /// Waits until every slot has an agent.
    ///
    /// # Errors
    /// It takes too long, or `cancelled`.
    pub fn gather(&self, at_most: Duration, cancelled: &dyn Fn() -> bool) -> Result<(), SwarmError> {
        let until_ns = now_ns().saturating_add(u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX));
        let mut agents = self.shared.agents();
        loop {
            let open = agents.open();
            if open.is_empty() {
                return Ok(());
            }
            if cancelled() {
                return Err(SwarmError::Interrupted);
            }
            if now_ns() >= until_ns {
                let here = agents.slot_count() - open.len();
                return Err(SwarmError::Agents(format!(
                    "only {here} of {} agents joined within {} s\nhint: an agent needs this server's URL and the coordinator's \
                     key: `loadlab agent --nats URL --coordinator-key KEY`",
                    agents.slot_count(),
                    at_most.as_secs()
                )));
            }
            agents = self.shared.wait(agents);
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
            let mut loads = lock(&self.loads);
            *loads += 1;
            *loads - 1
        };
        let mut until_ns = now_ns().saturating_add(self.ready_ns);
        let mut agents = self.shared.agents();
        // An agent that takes a free slot later could not follow this order, which does not name it.
        while let Some(open) = agents.open().first() {
            if cancelled() {
                return Err(SwarmError::Interrupted);
            }
            if now_ns() >= until_ns {
                let s = self.ready_ns / 1_000_000_000;
                return Err(SwarmError::Agents(format!("no agent took slot {} within {s} s", open.slot)));
            }
            agents = self.shared.wait(agents);
        }
        // Whoever has just come has time to get ready.
        until_ns = now_ns().saturating_add(self.ready_ns);
        let order =
            LoadOrder { load, first_id, threads: agents.threads(threads), agents: agents.ids(), what };
        let number = self.order(Order::Prepare(order.clone()));
        agents.ordered(load, number);
        let mut ready = ReadyLoad { of: self.clone(), order, uncertainty_ns: 0 };
        loop {
            let why = match agents.readiness(load) {
                Readiness::Ready { uncertainty_ns } => {
                    ready.uncertainty_ns = uncertainty_ns;
                    return Ok(ready);
                }
                Readiness::Refused(slot, why) => {
                    Some(SwarmError::Agents(format!("agent {} (slot {slot}): {why}", agents.name(slot))))
                }
                Readiness::Waiting(_) if cancelled() => Some(SwarmError::Interrupted),
                Readiness::Waiting(slots) if now_ns() >= until_ns => {
                    let names: Vec<String> =
                        slots.iter().map(|slot| format!("{} (slot {slot})", agents.name(*slot))).collect();
                    let s = self.ready_ns / 1_000_000_000;
                    Some(SwarmError::Agents(format!("not ready within {s} s: {}", names.join(", "))))
                }
                Readiness::Waiting(_) if self.on_loss == LossPolicy::Replace => {
                    self.replace(&mut agents, &ready.order, None, &[]);
                    None
                }
                Readiness::Waiting(slots) => {
                    let lost = agents.lost(load, now_ns()).into_iter().find(|slot| slots.contains(slot));
                    lost.map(|slot| {
                        SwarmError::Agents(format!("{} before the load", describe_silence(&agents, slot)))
                    })
                }
            };
            if let Some(why) = why {
                // Dropping `ready` takes the lock.
                drop(agents);
                return Err(why);
            }
            agents = self.shared.wait(agents);
        }
    }
}
