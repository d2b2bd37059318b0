//! The agent's end: takes a slot in an announced run and sends its part of each load.
//!
//! Orders count only if they are signed with the coordinator's key. An agent sends nothing before it owns a slot, and
//! nothing after it has not heard from the coordinator for a minute.
//!
//! In the order of a run:
//!
//! - `claim.rs`: finds a run and claims a slot in it.
//! - `run.rs`: takes part in the run until it is over; `state.rs`: what its tasks and loads share meanwhile.
//! - `orders.rs`: follows the coordinator's orders.
//! - `part.rs`: sends this agent's part of a load; `outgoing.rs`: its answers and reports to the coordinator.
//! - `liveness.rs`: whether the agent and the coordinator are alive; `time.rs`: asks for the coordinator's time.

mod claim;
mod liveness;
mod orders;
mod outgoing;
mod part;
mod run;
mod state;
mod time;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::Context;
use loadlab_load::LoadSpec;
use serde_json::Value;

use self::run::RunExit;
use super::{Denied, Server, Subjects, SwarmError, context_of, runtime};
use crate::signed::VerifyingKey;

/// If the coordinator is silent for this long, an agent stops sending.
pub const DEAD_MAN_NS: u64 = 60_000_000_000;
/// How often the agent checks for cancellation: rarely, since each check takes time from a core that the load may need.
const CANCEL_POLL: Duration = Duration::from_millis(250);
/// Maximum number of distinct denials by the server to report.
const MOST_DENIALS: usize = 20;

/// An agent's settings.
pub struct AgentOptions {
    /// How to reach the server.
    pub server: Server,
    /// The key that orders must be signed with.
    pub coordinator: VerifyingKey,
    /// Number of load threads, unless the load specifies it.
    pub threads: usize,
    /// Where reports are kept until the run is over.
    pub spool: PathBuf,
    /// The agent's name, different from all others.
    pub name: String,
    /// The only slot that it may take; `None`: any.
    pub slot: Option<usize>,
    /// Exit after one run.
    pub once: bool,
    /// Exit if no run is announced for this long.
    pub leaves_after: Option<Duration>,
}

/// Builds loads from the coordinator's descriptions.
pub trait Loads: Send + Sync {
    /// Builds the load described by `what`, in a run with this `bundle` and these `files`, with `threads` load threads
    /// unless the load specifies their number.
    ///
    /// # Errors
    /// The load cannot or must not be sent from here; the reason in words.
    fn load(
        &self,
        bundle: &Value,
        files: &[PathBuf],
        what: &Value,
        threads: usize,
    ) -> Result<LoadSpec, String>;

    /// Checks whether this agent may send its part of a load.
    ///
    /// # Errors
    /// The reason in words.
    fn accepts(&self, part: &LoadSpec) -> Result<(), String>;
}

/// Receives the agent's messages to its user.
pub type AgentLog<'a> = &'a (dyn Fn(&str) + Sync);

/// Takes part in runs until `cancelled`, or in a single run if the options say so.
///
/// # Errors
/// The server cannot be reached.
pub fn serve(
    options: &AgentOptions,
    loads: &Arc<dyn Loads>,
    log: AgentLog<'_>,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<(), SwarmError> {
    runtime()?.block_on(async {
        let (client, denied) = tokio::select! {
            connected = options.server.connect() => connected?,
            () = until(cancelled) => return Ok(()),
        };
        log(&format!("connected to {}", options.server.shown()));
        let random = || RandomState::new().build_hasher().finish();
        let id = format!("{:016x}{:016x}", random(), random());
        let agent = Agent { options, loads, log, client: &client, context: context_of(&client), id };
        tokio::select! {
            () = agent.runs() => Ok(()),
            () = agent.report_denials(denied) => Ok(()),
            () = until(cancelled) => Ok(()),
        }
    })
}

async fn until(cancelled: &(dyn Fn() -> bool + Sync)) {
    while !cancelled() {
        tokio::time::sleep(CANCEL_POLL).await;
    }
}

struct Agent<'a> {
    options: &'a AgentOptions,
    loads: &'a Arc<dyn Loads>,
    log: AgentLog<'a>,
    client: &'a Client,
    context: Context,
    /// Random id of this process; see [`crate::message::Claim::id`].
    id: String,
}

impl Agent<'_> {
    /// Reports what the server does not allow, each denial once.
    async fn report_denials(&self, mut denied: Denied) {
        let mut reported = BTreeSet::new();
        while let Some(why) = denied.recv().await {
            if reported.len() < MOST_DENIALS && reported.insert(why.clone()) {
                (self.log)(&format!("the NATS server denies a permission: {why}"));
            }
        }
        std::future::pending().await
    }

    /// Takes part in one run after another.
    async fn runs(&self) {
        let (mut done, mut refused) = (Vec::new(), String::new());
        loop {
            let announced = self.announced(&done, &mut refused);
            let announcement = match self.options.leaves_after {
                Some(most) => match tokio::time::timeout(most, announced).await {
                    Ok(announcement) => announcement,
                    Err(_) => {
                        return (self.log)(&format!("no run was announced within {} s", most.as_secs_f64()));
                    }
                },
                None => announced.await,
            };
            let (run, slots) = (announcement.run.clone(), announcement.slots);
            let subjects = Subjects { run: run.clone() };
            match self.claim(&subjects, &announcement.open).await {
                Some(claimed) => {
                    done.push(run.clone());
                    (self.log)(&format!("run {run}: slot {} of {slots}", claimed.slot));
                    let ended = self.run(&subjects, claimed, announcement.bundle, &announcement.files).await;
                    if ended == RunExit::GivenUp {
                        let slot = claimed.slot;
                        (self.log)(&format!(
                            "run {run}: slot {slot} is free again, because the coordinator did not hear from this agent"
                        ));
                        done.pop();
                        continue;
                    }
                    (self.log)(&format!("run {run}: over"));
                    if self.options.once {
                        return;
                    }
                }
                // A slot may become free later.
                None => {
                    let why = match self.options.slot {
                        Some(slot) => format!("run {run}: slot {slot} is taken, or not one of its {slots}"),
                        None => format!("run {run}: all slots are taken"),
                    };
                    if why != refused {
                        (self.log)(&why);
                        refused = why;
                    }
                }
            }
        }
    }
}
