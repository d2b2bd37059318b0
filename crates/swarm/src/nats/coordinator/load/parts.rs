//! The state of each part while its load is sent, as it is shown to the user once a second.

use std::collections::BTreeSet;

use loadlab_load::io::epoll::now_ns;
use loadlab_load::run::PartContent;
use loadlab_record::counts::load::Counts;

use super::Sending;
use crate::agents::Agents;

/// How often the state of all parts is reported.
const REPORT_INTERVAL_NS: u64 = 1_000_000_000;

/// The state of a part while its load is sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartState {
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

/// What a part reported last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastSecond {
    /// Successful responses per second; if the second was cut short, those of the second before.
    ok_per_s: f64,
    /// Requests in flight at its end.
    in_flight: u64,
}

impl Sending<'_> {
    pub(super) fn count(&mut self, part: usize, content: &PartContent) {
        let (Some(counts), Some(last)) = (self.counted.get_mut(part), self.last.get_mut(part)) else {
            return;
        };
        match content {
            PartContent::Counted(delta) => {
                counts.merge(&delta.counts);
                let s = delta.until_ns.saturating_sub(delta.from_ns) as f64 / 1e9;
                // The last few milliseconds of a load give no meaningful rate.
                if s > 0.1 {
                    last.ok_per_s = delta.counts.ok as f64 / s;
                }
                last.in_flight = delta.in_flight;
            }
            PartContent::Ended(_) => *last = LastSecond { ok_per_s: 0.0, in_flight: counts.in_flight },
        }
    }

    /// The state of all parts, if it is due to be reported.
    pub(super) fn parts_if_due(&mut self, agents: &Agents) -> Option<Vec<PartState>> {
        let now_ns = now_ns();
        if now_ns.saturating_sub(self.shown_ns) < REPORT_INTERVAL_NS {
            return None;
        }
        self.shown_ns = now_ns;
        Some(self.parts(agents, now_ns))
    }

    pub(super) fn parts(&self, agents: &Agents, now_ns: u64) -> Vec<PartState> {
        let load = self.ready.order.load;
        let given_up =
            agents.losses(load).iter().filter(|lost| lost.joined_ns.is_none()).map(|lost| lost.slot);
        let missing: BTreeSet<usize> = agents.lost(load, now_ns).into_iter().chain(given_up).collect();
        let parts = self.counted.iter().zip(&self.last).enumerate();
        let parts = parts.map(|(slot, (counts, last))| PartState {
            slot,
            agent: agents.name(slot).to_owned(),
            ok_per_s: last.ok_per_s,
            counts: Counts { in_flight: last.in_flight, ..counts.clone() },
            is_missing: missing.contains(&slot),
        });
        parts.collect()
    }
}
