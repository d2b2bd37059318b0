//! Lost agents, before a load and during it: gives them up and lets others take their places.

use loadlab_load::io::epoll::now_ns;
use loadlab_record::counts::load::Counts;

use super::Coordinator;
use crate::agents::{Agents, LOST_AFTER_NS};
use crate::message::{JoinOrder, LoadOrder, Order};

/// How long a second of a vacant part may still be needed: clocks are not known exactly.
const PASSED_AFTER_NS: u64 = 1_000_000_000;

impl Coordinator {
    /// Gives up a load's silent agents and lets others join it; the seconds of the load go on while nobody has a slot.
    /// Returns messages about agents that were given up or joined.
    pub(super) fn replace(
        &self,
        agents: &mut Agents,
        order: &LoadOrder,
        begun_ns: Option<u64>,
        counted: &[Counts],
    ) -> Vec<String> {
        let mut notes = Vec::new();
        for slot in agents.lost(order.load, now_ns()) {
            let lost = describe_silence(agents, slot);
            if agents.vacate(slot, self.orders().next) {
                notes.push(format!("{lost}, and another may take its place"));
            }
        }
        for (slot, epoch) in agents.joining(order.load) {
            let begun = counted.get(slot).map_or(0, |counts| counts.started + counts.dropped);
            let order = LoadOrder { agents: agents.ids(), ..order.clone() };
            self.order(Order::Join(JoinOrder { slot, epoch, order, begun_ns, begun }));
            notes.push(format!("agent {} takes slot {slot}", agents.name(slot)));
        }
        if let Some(begun_ns) = begun_ns {
            // Whoever joins does so later than now.
            let now_ns = now_ns().saturating_sub(begun_ns);
            agents.pass_vacant(order.load, now_ns.saturating_sub(PASSED_AFTER_NS));
        }
        notes
    }
}

/// A message that an agent is silent.
pub(super) fn describe_silence(agents: &Agents, slot: usize) -> String {
    format!("agent {} (slot {slot}) was silent for {} s", agents.name(slot), LOST_AFTER_NS / 1_000_000_000)
}
