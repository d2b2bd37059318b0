//! Answers and reports on their way to the coordinator.

use async_nats::jetstream::message::PublishMessage;
use tokio::sync::mpsc;

use super::Agent;
use crate::message::{Answer, OpenSlot};
use crate::nats::{HEADER_BYTES, REPORT, Subjects, publish_until_stored};

/// A message from a load's thread to the coordinator.
pub(super) enum Outgoing {
    Answer(Answer),
    Report {
        load: u64,
        number: u64,
        bytes: Vec<u8>,
        /// Number of the order to send it again: the server drops a message with an id that it has seen.
        again: Option<u64>,
    },
}

impl Agent<'_> {
    /// Sends the loads' answers and reports in order, each until the server has acknowledged it.
    pub(super) async fn send_outgoing(
        &self,
        subjects: &Subjects,
        claimed: OpenSlot,
        mut queue: mpsc::UnboundedReceiver<Outgoing>,
    ) {
        let OpenSlot { slot, epoch, .. } = claimed;
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
                    publish_until_stored(&self.context, subjects.answer(slot, epoch), message).await;
                }
                Outgoing::Report { load, number, bytes, again } => {
                    let again = again.map(|order| format!("/{order}")).unwrap_or_default();
                    let most = self.client.max_payload().saturating_sub(HEADER_BYTES).max(HEADER_BYTES);
                    let pieces: Vec<&[u8]> = bytes.chunks(most).collect();
                    for (piece, part) in pieces.iter().enumerate() {
                        let id = format!("{}/{load}/{slot}/{epoch}/{number}/{piece}{again}", subjects.run);
                        let header = format!("{number} {piece} {}", pieces.len());
                        let message = PublishMessage::build().payload(part.to_vec().into());
                        let message = message.header(REPORT, header.as_str()).message_id(id);
                        publish_until_stored(&self.context, subjects.reports(slot, load, epoch), message)
                            .await;
                    }
                }
            }
        }
    }
}
