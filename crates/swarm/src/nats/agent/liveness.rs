//! Whether both ends are alive: the agent's heartbeats, and how long the coordinator has been silent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;

use super::state::RunState;
use super::{Agent, DEAD_MAN_NS};
use crate::agents::LOST_AFTER_NS;
use crate::message::{Announcement, OpenSlot};
use crate::nats::{ANNOUNCED, HEARTBEAT_INTERVAL, Subjects};

impl Agent<'_> {
    /// Sends a heartbeat every second.
    pub(super) async fn beat(&self, subjects: &Subjects, claimed: OpenSlot) {
        let mut beat = tokio::time::interval(HEARTBEAT_INTERVAL);
        loop {
            beat.tick().await;
            let _ =
                self.client.publish(subjects.heartbeat(claimed.slot, claimed.epoch), Vec::new().into()).await;
        }
    }

    /// Answers the coordinator's liveness requests as long as this agent runs.
    pub(super) async fn live(&self, subjects: &Subjects, claimed: OpenSlot) {
        loop {
            if let Ok(mut asked) = self.client.subscribe(subjects.alive(claimed.slot, claimed.epoch)).await {
                while let Some(question) = asked.next().await {
                    let Some(reply) = question.reply else { continue };
                    let _ = self.client.publish(reply, Vec::new().into()).await;
                }
            }
            tokio::time::sleep(HEARTBEAT_INTERVAL / 4).await;
        }
    }

    /// Listens for announcements: whether the coordinator is alive, and whether it still counts on this agent.
    pub(super) async fn listen(&self, subjects: &Subjects, claimed: OpenSlot, run_state: &RunState) {
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
                    let is_free = |open: &OpenSlot| open.slot == claimed.slot && open.epoch > claimed.epoch;
                    match announcement.run == subjects.run {
                        true => {
                            run_state.heard();
                            if announcement.open.iter().any(is_free) {
                                run_state.raise(&run_state.is_given_up);
                            }
                        }
                        false if run_state.silent_ns() > LOST_AFTER_NS => run_state.raise(&run_state.is_left),
                        false => {}
                    }
                    verified = Some((message.payload.to_vec(), announcement));
                }
            }
            tokio::time::sleep(HEARTBEAT_INTERVAL / 4).await;
        }
    }
}

/// Returns when the coordinator has been silent for too long, when another run with its key has begun, or when this
/// agent was given up.
pub(super) async fn dead_man(run_state: &RunState) {
    let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    while run_state.silent_ns() < DEAD_MAN_NS
        && !is_set(&run_state.is_left)
        && !is_set(&run_state.is_given_up)
    {
        let left = Duration::from_nanos(DEAD_MAN_NS.saturating_sub(run_state.silent_ns()));
        let _ = tokio::time::timeout(left, run_state.flagged.notified()).await;
    }
}
