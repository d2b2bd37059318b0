//! How a run begins: connects to the server, makes the run's stream, uploads the files, and announces the run as long
//! as it lasts.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::Client;
use async_nats::connection::State;
use async_nats::jetstream::Context;
use loadlab_load::io::epoll::now_ns;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{LossPolicy, Shared};
use crate::agents::Agents;
use crate::message::{Announcement, FileOffer, OpenSlot, VERSION};
use crate::nats::{ANNOUNCED, HEADER_BYTES, HEARTBEAT_INTERVAL, Server, Subjects, SwarmError};
use crate::nats::{context_of, files, make_stream};
use crate::signed::SigningKey;

/// How long to wait for the reason of a failure.
const DENIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// A run to be announced.
pub struct RunOffer {
    /// How to reach the server.
    pub server: Server,
    /// The run's id: letters and digits.
    pub run: String,
    /// Number of agents that are to take part.
    pub slots: usize,
    /// Data that all loads of the run share.
    pub bundle: Value,
    /// Files to send to the agents.
    pub files: Vec<PathBuf>,
    /// The key that orders are signed with.
    pub key: SigningKey,
    /// What happens to a load if one of its agents is lost.
    pub on_loss: LossPolicy,
}

impl RunOffer {
    /// The signed announcement.
    fn announced(&self, open: Vec<OpenSlot>, files: &[FileOffer]) -> Vec<u8> {
        let (run, bundle, files) = (self.run.clone(), self.bundle.clone(), files.to_vec());
        self.key.seal(&Announcement { version: VERSION, run, slots: self.slots, open, bundle, files })
    }
}

/// A run whose stream exists and whose files are uploaded.
pub(super) struct OpenedRun {
    pub(super) client: Client,
    pub(super) context: Context,
    pub(super) files: Vec<FileOffer>,
}

/// Connects to the server, creates the run's stream, and uploads the files.
pub(super) async fn open(
    offer: &RunOffer,
    subjects: &Subjects,
    shutdown: &mut oneshot::Receiver<()>,
) -> Result<OpenedRun, SwarmError> {
    let (client, mut denied) = tokio::select! {
        connected = offer.server.connect() => connected?,
        _ = &mut *shutdown => return Err(SwarmError::Interrupted),
    };
    let context = context_of(&client);
    let files = files::offered(&offer.files)?;
    let bytes = offer.announced(Agents::new(offer.slots).open(), &files).len();
    let most = client.max_payload().saturating_sub(HEADER_BYTES);
    if bytes > most {
        return Err(SwarmError::Agents(format!(
            "the plan needs a message of {bytes} bytes, and the NATS server accepts at most {most}\nhint: raise its \
             `max_payload`"
        )));
    }
    if let Err(error) = make_stream(&context, subjects).await {
        // Whatever failed, the server may also say why.
        let why = tokio::time::timeout(DENIAL_TIMEOUT, denied.recv()).await;
        return Err(why.ok().flatten().map_or(error, SwarmError::Denied));
    }
    let sent = tokio::select! {
        sent = files::send(&context, subjects, &offer.files, most) => sent,
        _ = shutdown => Err(SwarmError::Interrupted),
    };
    if let Err(error) = sent {
        let _ = context.delete_stream(subjects.stream()).await;
        return Err(error);
    }
    Ok(OpenedRun { client, context, files })
}

/// Announces the run every second, so that agents can join later and all agents see that the coordinator is alive.
pub(super) async fn announce(
    client: &Client,
    subjects: &Subjects,
    offer: &RunOffer,
    files: &[FileOffer],
    shared: &Shared,
) {
    let mut beat = tokio::time::interval(HEARTBEAT_INTERVAL);
    // Signing takes time from a core that the load may need.
    let mut signed = (Vec::new(), offer.announced(Vec::new(), files));
    loop {
        beat.tick().await;
        let is_connected = client.connection_state() == State::Connected;
        shared.change(|agents| agents.connected(is_connected, now_ns()));
        let _ = client.publish(subjects.echo(), now_ns().to_string().into()).await;
        let open = shared.agents().open();
        if open != signed.0 {
            signed = (open.clone(), offer.announced(open, files));
        }
        // While the server is unreachable, no one receives it.
        let _ = client.publish(ANNOUNCED, signed.1.clone().into()).await;
    }
}
