//! Orders: numbered when they are given, then signed and sent one after the other.

use std::sync::{MutexGuard, PoisonError};

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use tokio::sync::mpsc;

use super::Coordinator;
use super::announce::RunOffer;
use crate::message::{Numbered, Order};
use crate::nats::{Subjects, keep};

impl Coordinator {
    pub(super) fn orders(&self) -> MutexGuard<'_, (u64, mpsc::UnboundedSender<(u64, Order)>)> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an order and returns its number.
    pub(super) fn order(&self, order: Order) -> u64 {
        let mut orders = self.orders();
        let number = orders.0;
        orders.0 += 1;
        // The thread lives as long as the coordinator.
        let _ = orders.1.send((number, order));
        number
    }
}

/// Sends the queued orders, each signed, up to the last one.
pub(super) async fn give(
    context: &Context,
    subjects: &Subjects,
    offer: &RunOffer,
    mut queue: mpsc::UnboundedReceiver<(u64, Order)>,
) {
    while let Some((number, order)) = queue.recv().await {
        let is_last = order == Order::Over;
        let numbered = Numbered { run: subjects.run.clone(), number, order };
        let id = format!("{}/order/{number}", subjects.run);
        let message = PublishMessage::build().payload(offer.key.seal(&numbered).into()).message_id(id);
        keep(context, subjects.orders(), message).await;
        if is_last {
            return;
        }
    }
}
