//! Waiting for agents: until every slot has one, and before each load until all are ready for it.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use loadlab_load::io::epoll::now_ns;
use loadlab_record::sync::lock;
use loadlab_record::text::time::SECOND_NS;
use serde_json::Value;

use super::load::ReadyLoad;
use super::replace::describe_silence;
use super::{Coordinator, LossPolicy};
use crate::agents::{Agents, LOST_AFTER_NS, LostPart, Readiness};
use crate::message::{LoadOrder, Order};
use crate::nats::SwarmError;

/// How long a load whose trial fails if an agent is lost waits for another in its place, before it begins.
const SPARE_TIMEOUT_NS: u64 = 15_000_000_000;

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
        let mut agents = self.with_all_agents(cancelled)?;
        // Whoever has just come has time to get ready.
        let until_ns = now_ns().saturating_add(self.ready_ns);
        let order =
            LoadOrder { load, first_id, threads: agents.threads(threads), agents: agents.ids(), what };
        let number = self.order(Order::Prepare(order.clone()));
        agents.ordered(load, number);
        let mut ready = ReadyLoad { of: self.clone(), order, uncertainty_ns: 0 };
        let mut vacant_since_ns: Option<u64> = None;
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
                Readiness::Waiting(_) => {
                    // Nothing of the load was sent yet, so another agent may send it, whatever the policy; but not of
                    // a load beside it.
                    if let Some(why) = self.lost_elsewhere(&agents, load) {
                        drop(agents);
                        return Err(why);
                    }
                    self.replace(&mut agents, &ready.order, None, &[]);
                    let is_open = !agents.open().is_empty();
                    vacant_since_ns = is_open.then(|| vacant_since_ns.unwrap_or_else(now_ns));
                    let waited_ns = vacant_since_ns.map_or(0, |since_ns| now_ns().saturating_sub(since_ns));
                    (waited_ns > self.spare_ns()).then(|| self.not_replaced(&agents, load))
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

    /// Waits until every slot has an agent: one that takes a free slot later could not follow an order that does not
    /// name it.
    fn with_all_agents(&self, cancelled: &dyn Fn() -> bool) -> Result<MutexGuard<'_, Agents>, SwarmError> {
        let until_ns = now_ns().saturating_add(self.spare_ns());
        let mut agents = self.shared.agents();
        while let Some(open) = agents.open().first() {
            if cancelled() {
                return Err(SwarmError::Interrupted);
            }
            if now_ns() >= until_ns {
                let s = self.spare_ns() / SECOND_NS;
                return Err(SwarmError::Agents(format!("no agent took slot {} within {s} s", open.slot)));
            }
            agents = self.shared.wait(agents);
        }
        Ok(agents)
    }

    /// How long a slot may be without an agent before a load, in nanoseconds.
    fn spare_ns(&self) -> u64 {
        if self.on_loss == LossPolicy::Replace { self.ready_ns } else { SPARE_TIMEOUT_NS }
    }

    /// Why an agent that is lost cannot be replaced, if it also sends a load that must not lose it.
    fn lost_elsewhere(&self, agents: &Agents, load: u64) -> Option<SwarmError> {
        if self.on_loss == LossPolicy::Replace {
            return None;
        }
        let mut lost = agents.lost(load, now_ns()).into_iter();
        let slot = lost.find(|slot| agents.is_busy_elsewhere(*slot, load))?;
        Some(SwarmError::Agents(format!("{} before the load", describe_silence(agents, slot))))
    }

    /// An error that says which lost agents' places nobody took before a load.
    fn not_replaced(&self, agents: &Agents, load: u64) -> SwarmError {
        let open = agents.open();
        let is_open = |lost: &&LostPart| open.iter().any(|open| open.slot == lost.slot);
        let lost = agents.losses(load).iter().filter(is_open);
        let names: Vec<String> = lost.map(|lost| format!("{} (slot {})", lost.agent, lost.slot)).collect();
        let [lost_s, s] = [LOST_AFTER_NS, self.spare_ns()].map(|ns| ns / SECOND_NS);
        SwarmError::Agents(format!(
            "silent for {lost_s} s before the load: {}; no other agent took the place within {s} s",
            names.join(", ")
        ))
    }
}
