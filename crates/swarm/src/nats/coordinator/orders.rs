//! Orders: numbered when they are given, then signed and sent one after the other.

use std::sync::MutexGuard;

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use loadlab_record::sync::lock;
use tokio::sync::mpsc;

use super::Coordinator;
use super::announce::RunOffer;
use crate::message::{Numbered, Order};
use crate::nats::{Subjects, publish_until_stored};

/// The orders that a coordinator gives.
pub(super) struct Orders {
    /// The number of the next order.
    pub(super) next: u64,
    /// Where orders wait to be sent.
    pub(super) queue: mpsc::UnboundedSender<QueuedOrder>,
}

/// An order that waits to be sent.
pub(super) struct QueuedOrder {
    number: u64,
    order: Order,
}

impl Coordinator {
    pub(super) fn orders(&self) -> MutexGuard<'_, Orders> {
        lock(&self.orders)
    }

    /// Queues an order and returns its number.
    pub(super) fn order(&self, order: Order) -> u64 {
        let mut orders = self.orders();
        let number = orders.next;
        orders.next += 1;
        // The thread lives as long as the coordinator.
        let _ = orders.queue.send(QueuedOrder { number, order });
        number
    }
}

/// Sends the queued orders, each signed, up to the last one.
pub(super) async fn send_orders(
    context: &Context,
    subjects: &Subjects,
    offer: &RunOffer,
    mut queue: mpsc::UnboundedReceiver<QueuedOrder>,
) {
    while let Some(QueuedOrder { number, order }) = queue.recv().await {
        let is_last = order == Order::Over;
        let numbered = Numbered { run: subjects.run.clone(), number, order };
        let id = format!("{}/order/{number}", subjects.run);
        let message = PublishMessage::build().payload(offer.key.seal(&numbered).into()).message_id(id);
        publish_until_stored(context, subjects.orders(), message).await;
        if is_last {
            return;
        }
    }
}
