//! The network thread: everything that the coordinator sends and receives, until the run is over.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::Context;
use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::announce::{RunOffer, announce};
use super::liveness::{look_for_gone, receive_heartbeats};
use super::orders::{QueuedOrder, send_orders};
use super::receive::message_handler;
use super::time::answer_time_requests;
use crate::message::FileOffer;
use crate::nats::{HEARTBEAT_INTERVAL, Subjects, follow};

/// Maximum time for letting agents know that the run is over.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// What the network thread needs.
pub(super) struct NetworkThread<'t> {
    pub(super) client: &'t Client,
    pub(super) context: &'t Context,
    pub(super) subjects: &'t Subjects,
    pub(super) offer: &'t RunOffer,
    pub(super) files: &'t [FileOffer],
}

impl NetworkThread<'_> {
    /// Handles all communication until the run is over.
    pub(super) async fn run(
        &self,
        queue: mpsc::UnboundedReceiver<QueuedOrder>,
        shutdown: oneshot::Receiver<()>,
        shared: &Shared,
    ) {
        let NetworkThread { client, context, subjects, offer, files } = *self;
        let said = follow(context, subjects, subjects.all_from_agents(), message_handler(subjects, shared));
        // An unreachable server must not keep a run from ending.
        let goodbye = async {
            let _ = shutdown.await;
            tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
        };
        tokio::select! {
            () = send_orders(context, subjects, offer, queue) => {}
            () = announce(client, subjects, offer, files, shared) => {}
            () = receive_heartbeats(client, subjects, shared) => {}
            () = look_for_gone(client, subjects, shared) => {}
            () = answer_time_requests(client, subjects) => {}
            () = said => {}
            () = goodbye => return,
        }
        // Give agents a moment to read that the run is over.
        tokio::time::sleep(HEARTBEAT_INTERVAL / 2).await;
        let _ = context.delete_stream(subjects.stream()).await;
    }
}
