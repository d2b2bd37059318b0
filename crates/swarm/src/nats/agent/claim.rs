//! Finds a run and claims a slot in it.

use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use futures_util::StreamExt;

use super::Agent;
use crate::message::{Announcement, Claim, OpenSlot, VERSION};
use crate::nats::{ANNOUNCED, HEARTBEAT_INTERVAL, Subjects, publish_until_stored};

/// How long an agent tries to claim a slot.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(20);

impl Agent<'_> {
    /// Waits for a run that this agent has not taken part in yet.
    pub(super) async fn announced(&self, done: &[String], refused: &mut String) -> Announcement {
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
            tokio::time::sleep(HEARTBEAT_INTERVAL / 4).await;
        }
    }

    /// Claims the first of these slots that is still free.
    pub(super) async fn claim(&self, subjects: &Subjects, open: &[OpenSlot]) -> Option<OpenSlot> {
        let (agent, id) = (self.options.name.clone(), self.id.clone());
        let claim = Claim { agent, id, threads: self.options.threads as u64 };
        let bytes = serde_json::to_vec(&claim).expect("texts and numbers");
        let is_wanted = |offered: &&OpenSlot| self.options.slot.is_none_or(|slot| offered.slot == slot);
        for offered in open.iter().filter(is_wanted) {
            let OpenSlot { slot, epoch, .. } = *offered;
            let id = format!("{}/claim/{slot}/{epoch}/{}", subjects.run, self.id);
            let message = PublishMessage::build().payload(bytes.clone().into()).message_id(id);
            let message = message.expected_last_subject_sequence(0);
            let claimed = publish_until_stored(&self.context, subjects.claim(slot, epoch), message);
            // The run may be over by now and its stream gone.
            if tokio::time::timeout(CLAIM_TIMEOUT, claimed).await.ok()? {
                return Some(*offered);
            }
        }
        None
    }
}
