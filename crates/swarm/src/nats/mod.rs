//! A swarm on NATS. One stream per run holds everything that must not be lost: claims, orders, answers and reports, in
//! the order in which the server received them. Every reader starts at the first message, so an agent or coordinator
//! that joins late, or reconnects, learns what the others know. Announcements, heartbeats and time requests are not
//! kept.
//!
//! The server is only transport: an agent keeps its reports on its own disk ([`crate::spool`]) until the run is over,
//! and resends what was not acknowledged; a report that arrives twice counts once.

pub mod agent;
pub mod coordinator;
mod files;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::context::{GetStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context, stream};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerError};
use futures_util::StreamExt;
use loadlab_record::text::url::ServerUrl;
use tokio::sync::mpsc;

/// Subject on which runs are announced.
const ANNOUNCED: &str = "loadlab.announce";
/// Interval between heartbeats and announcements.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a message waits for its acknowledgement before it is resent.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server that does not answer is tried at first.
const FIRST_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between attempts to connect again: an agent that cannot be heard for a few seconds is lost.
const RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// How long the server recognises a repeated message.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// Space reserved for a message's headers.
const HEADER_BYTES: usize = 4096;
/// The header of a report: its number, the index of this piece, and the number of pieces.
const REPORT: &str = "Loadlab-Report";

/// How to reach a NATS server.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`.
    pub url: String,
    /// A file with credentials (JWT and seed), or with only the seed of an NKEY.
    pub credentials: Option<PathBuf>,
    /// Certificates to trust in addition to the system's.
    pub ca: Option<PathBuf>,
    /// The name of this client in the server's connection lists.
    pub name: String,
    /// Where replies to it go, below `_INBOX`: the server may allow it no other inbox.
    pub inbox: String,
}

/// Why a swarm does not work.
#[derive(Debug, thiserror::Error)]
pub enum SwarmError {
    /// The server cannot be reached.
    #[error("cannot reach the NATS server {url}: {why}")]
    Connect {
        /// The server's URL without credentials.
        url: String,
        /// The reason in words.
        why: String,
    },
    /// The server has no JetStream, or does not allow its use.
    #[error(
        "the NATS server cannot create a stream for this run: {0}\nhint: enable JetStream (`nats-server -js`)"
    )]
    Stream(String),
    /// The server denies a permission that is needed.
    #[error("the NATS server denies a permission: {0}\nhint: deploy/nats has the permissions of each side")]
    Denied(String),
    /// A credentials file cannot be used.
    #[error("cannot use the credentials {path}: {why}")]
    Credentials {
        /// Path of the file.
        path: String,
        /// The reason in words.
        why: String,
    },
    /// A file that agents need cannot be sent.
    #[error("the file {path} cannot be sent to agents: {why}")]
    File {
        /// Path of the file.
        path: String,
        /// The reason in words.
        why: String,
    },
    /// The agents did not come, cannot send the load, or were lost.
    #[error("{0}")]
    Agents(String),
    /// The network thread or its runtime cannot be started.
    #[error("cannot start the swarm's own thread: {0}")]
    Thread(std::io::Error),
    /// Interrupted while waiting.
    #[error("interrupted")]
    Interrupted,
}

/// Permission errors reported by the server, in its own words.
type Denied = mpsc::UnboundedReceiver<String>;

impl Server {
    async fn connect(&self) -> Result<(Client, Denied), SwarmError> {
        let until = Instant::now() + FIRST_CONNECT_TIMEOUT;
        loop {
            let (deny, denied) = mpsc::unbounded_channel();
            let error = match self.options(deny)?.connect(self.shown()).await {
                Ok(client) => return Ok((client, denied)),
                Err(error) => error,
            };
            if error.kind() == ConnectErrorKind::TimedOut && Instant::now() < until {
                continue;
            }
            let (mut why, mut source) = (error.to_string(), std::error::Error::source(&error));
            while let Some(cause) = source {
                if !why.contains(&cause.to_string()) {
                    why.push_str(&format!(": {cause}"));
                }
                source = cause.source();
            }
            return Err(SwarmError::Connect { url: self.shown(), why });
        }
    }

    fn options(&self, deny: mpsc::UnboundedSender<String>) -> Result<ConnectOptions, SwarmError> {
        let mut options = ConnectOptions::new().name(&self.name).connection_timeout(ACK_TIMEOUT);
        options =
            options.reconnect_delay_callback(
                |attempts| if attempts <= 1 { Duration::ZERO } else { RECONNECT_DELAY },
            );
        options = options.event_callback(move |event| {
            if let Event::ServerError(ServerError::Other(why)) = event {
                // No one listens any more once the run is over.
                let _ = deny.send(why);
            }
            async {}
        });
        // The client ignores credentials in the URL.
        let of_url = ServerUrl::split(&self.url).user;
        options = match of_url.map(|user| user.split_once(':').ok_or(user)) {
            Some(Ok((user, password))) => options.user_and_password(user.to_owned(), password.to_owned()),
            Some(Err(token)) => options.token(token.to_owned()),
            None => options,
        };
        if let Some(path) = &self.credentials {
            let wrong = |why: String| SwarmError::Credentials { path: path.display().to_string(), why };
            let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            options = match text.trim() {
                seed if seed.starts_with("SU") => options.nkey(seed.to_owned()),
                _ => options.credentials(&text).map_err(|error| wrong(error.to_string()))?,
            };
        }
        if !self.inbox.is_empty() {
            options = options.custom_inbox_prefix(format!("_INBOX.{}", self.inbox));
        }
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        Ok(options)
    }

    /// The server's URL without credentials.
    pub fn shown(&self) -> String {
        ServerUrl::split(&self.url).without_user()
    }
}

/// The subjects and the stream of a run.
#[derive(Clone, Debug)]
struct Subjects {
    run: String,
}

impl Subjects {
    fn stream(&self) -> String {
        format!("LOADLAB_{}", self.run)
    }

    /// All subjects that the stream keeps.
    fn all_kept(&self) -> String {
        format!("loadlab.{}.kept.>", self.run)
    }

    fn orders(&self) -> String {
        format!("loadlab.{}.kept.orders", self.run)
    }

    /// Everything that agents send.
    fn all_from_agents(&self) -> String {
        format!("loadlab.{}.kept.slot.>", self.run)
    }

    fn claim(&self, slot: usize, epoch: u32) -> String {
        format!("loadlab.{}.kept.slot.{slot}.claim.{epoch}", self.run)
    }

    fn answer(&self, slot: usize, epoch: u32) -> String {
        format!("loadlab.{}.kept.slot.{slot}.answer.{epoch}", self.run)
    }

    fn reports(&self, slot: usize, load: u64, epoch: u32) -> String {
        format!("loadlab.{}.kept.slot.{slot}.report.{load}.{epoch}", self.run)
    }

    fn heartbeat(&self, slot: usize, epoch: u32) -> String {
        format!("loadlab.{}.heartbeat.{slot}.{epoch}", self.run)
    }

    /// The coordinator's messages to itself, ordered relative to the agents' heartbeats.
    fn echo(&self) -> String {
        format!("loadlab.{}.heartbeat.coordinator.0", self.run)
    }

    fn heartbeats(&self) -> String {
        format!("loadlab.{}.heartbeat.*.*", self.run)
    }

    /// Requests that an agent answers while it is alive; the server replies at once if there is no one to answer.
    fn alive(&self, slot: usize, epoch: u32) -> String {
        format!("loadlab.{}.alive.{slot}.{epoch}", self.run)
    }

    fn file(&self, index: usize) -> String {
        format!("loadlab.{}.kept.file.{index}", self.run)
    }

    fn files(&self) -> String {
        format!("loadlab.{}.kept.file.*", self.run)
    }

    fn time(&self) -> String {
        format!("loadlab.{}.time", self.run)
    }
}

/// The slot, and the rest of a subject under [`Subjects::said`].
fn slot_of<'s>(subject: &'s str, subjects: &Subjects) -> Option<(usize, &'s str)> {
    let rest = subject.strip_prefix(&format!("loadlab.{}.kept.slot.", subjects.run))?;
    let (slot, rest) = rest.split_once('.')?;
    Some((slot.parse().ok()?, rest))
}

/// Creates the stream of a run.
async fn make_stream(context: &Context, subjects: &Subjects) -> Result<(), SwarmError> {
    let config = stream::Config {
        name: subjects.stream(),
        subjects: vec![subjects.all_kept()],
        storage: stream::StorageType::File,
        duplicate_window: DUPLICATE_WINDOW,
        num_replicas: 1,
        ..stream::Config::default()
    };
    context.create_stream(config).await.map(drop).map_err(|error| SwarmError::Stream(error.to_string()))
}

/// Sends a message until the server has acknowledged it. For a message that must be the first on its subject, returns
/// whether it was.
async fn publish_until_stored(context: &Context, subject: String, message: PublishMessage) -> bool {
    loop {
        let sent = match context.send_publish(subject.clone(), message.clone()).await {
            Ok(acknowledged) => acknowledged.await.map(drop),
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) => return true,
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => return false,
            Err(_) => tokio::time::sleep(HEARTBEAT_INTERVAL / 4).await,
        }
    }
}

/// A JetStream context whose requests time out after [`ACK_TIMEOUT`].
fn context_of(client: &Client) -> Context {
    let mut context = jetstream::new(client.clone());
    context.set_timeout(ACK_TIMEOUT);
    context
}

/// Reads a subject of the stream from its first message, each message once and in order, whatever happens to the server
/// in the meantime. Ends when `take` returns false or the stream is gone.
async fn follow(
    context: &Context,
    subjects: &Subjects,
    filter: String,
    mut take: impl FnMut(&async_nats::Message) -> bool,
) {
    let mut next = 1;
    loop {
        let read = read_from(context, subjects, &filter, next);
        let Ok(mut messages) = read.await else {
            // A server that has just started may not have loaded its streams yet; this error code means that the stream
            // is gone.
            let is_gone =
                context.get_stream(subjects.stream()).await.is_err_and(|error| match error.kind() {
                    GetStreamErrorKind::JetStream(why) => why.error_code() == ErrorCode::STREAM_NOT_FOUND,
                    _ => false,
                });
            if is_gone {
                return;
            }
            tokio::time::sleep(HEARTBEAT_INTERVAL / 4).await;
            continue;
        };
        while let Some(Ok(message)) = messages.next().await {
            let Ok(sequence) = message.info().map(|info| info.stream_sequence) else { continue };
            if sequence < next {
                continue;
            }
            next = sequence + 1;
            if !take(&message.message) {
                return;
            }
        }
        tokio::time::sleep(HEARTBEAT_INTERVAL / 4).await;
    }
}

async fn read_from(
    context: &Context,
    subjects: &Subjects,
    filter: &str,
    next: u64,
) -> Result<pull::Ordered, async_nats::Error> {
    let stream = context.get_stream(subjects.stream()).await?;
    let config = pull::OrderedConfig {
        filter_subject: filter.to_owned(),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: next },
        ..pull::OrderedConfig::default()
    };
    Ok(stream.create_consumer(config).await?.messages().await?)
}

/// A single-threaded runtime for messages.
fn runtime() -> Result<tokio::runtime::Runtime, SwarmError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(SwarmError::Thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_slots() {
        let subjects = Subjects { run: "r1".into() };
        assert_eq!(slot_of(&subjects.claim(12, 2), &subjects), Some((12, "claim.2")));
        assert_eq!(slot_of(&subjects.reports(0, 3, 1), &subjects), Some((0, "report.3.1")));
        assert_eq!(slot_of(&subjects.orders(), &subjects), None);
        assert_eq!(slot_of(&Subjects { run: "r".into() }.claim(1, 0), &subjects), None);
    }

    #[test]
    fn credentials_of_a_url_are_not_shown() {
        let shown = |url: &str| Server { url: url.into(), ..Server::default() }.shown();
        assert_eq!(shown("nats://me:secret@a.test:4222"), "nats://a.test:4222");
        assert_eq!(shown("nats://token@127.0.0.1:1"), "nats://127.0.0.1:1");
        assert_eq!(shown("tls://a.test:4222"), "tls://a.test:4222");
        assert_eq!(shown("me:secret@a.test:4222"), "a.test:4222");
        assert_eq!(shown("a.test:4222"), "a.test:4222");
    }
}
