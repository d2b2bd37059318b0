//! Loads that other processes send, on this machine or elsewhere: what the conductor asks of them, and what they make of
//! it. Each has the plan; from the conductor it learns which load it is, and the values that only the run knows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use loadlab_load::LoadSpec;
use loadlab_load::journey::capture::Slots;
use loadlab_load::run::{Control, LoadEvent, Origin, Outcome};
use loadlab_load::target::Allowed;
use loadlab_plan::{Body, Isolation, MessageContent, PartContent, Plan, Step};
use loadlab_record::summary::AgentSummary;
use serde::{Deserialize, Serialize};

use crate::level::Level;
use crate::translate::steps::all_steps;
use crate::translate::{self, RequestContext};

/// Processes that send loads in place of this one, each a part.
pub trait Senders: Send + Sync {
    /// Gets all of them ready for a load. `cancelled` is asked now and then.
    ///
    /// # Errors
    /// Why one of them cannot send its part, in words.
    fn prepare(
        &self,
        load: &RemoteLoad,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Box<dyn ReadySenders>, String>;

    /// From the decision that a load begins to its beginning, nanoseconds: all of them have to hear of it before.
    fn lead_ns(&self) -> u64;
}

/// Processes that are ready for a load.
pub trait ReadySenders: Send + Sync {
    /// Who they are, for the record.
    fn described(&self) -> String;

    /// Has the load sent. `cancelled` is asked now and then, also while nothing is reported; `tell` hears of processes that
    /// are lost, and of those that take their place.
    fn send(
        &self,
        spec: &LoadSpec,
        control: &Control,
        origin: Origin,
        cancelled: &dyn Fn() -> bool,
        tell: &dyn Fn(String),
        observer: &mut dyn FnMut(LoadEvent<'_>),
    ) -> SentLoad;
}

/// A load that other processes sent.
pub struct SentLoad {
    /// What all of them measured.
    pub outcome: Outcome,
    /// Why it was ended early, if so.
    pub trouble: Option<String>,
    /// Who sent what.
    pub agents: Vec<AgentSummary>,
}

/// Which load it is, and what only the run knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteLoad {
    /// Its case.
    pub case: String,
    /// The level of a search that the case is made for.
    pub level: Option<Level>,
    /// Its name in the case.
    pub load: String,
    /// Where the ids of its requests begin.
    pub first_id: u64,
    /// Load threads of each process, if the plan names their number.
    pub threads: Option<u64>,
    /// Names that its texts ask for, such as `components.web.port`, and their values.
    pub names: BTreeMap<String, String>,
    /// Addresses that the run has made, such as those of containers.
    pub addresses: Vec<IpAddr>,
}

/// The load as a process sees it that has the plan.
///
/// # Errors
/// The plan has no such load; it cannot be sent from here, or must not be.
pub fn spec_of(
    plan: &Plan,
    plan_dir: &Path,
    load: &RemoteLoad,
    allowed: &Allowed,
    threads: usize,
) -> Result<LoadSpec, String> {
    let case = match (&load.level, plan.cases()) {
        // A search has one.
        (Some(level), [base]) => Some(level.case(base)),
        (Some(_), _) => None,
        (None, cases) => cases.iter().find(|case| case.name == load.case).cloned(),
    };
    let planned = case.as_ref().and_then(|case| case.loads.iter().find(|planned| planned.name == load.load));
    let planned =
        planned.ok_or_else(|| format!("the plan has no load `{}` in a case `{}`", load.load, load.case))?;
    let names = |name: &str| load.names.get(name).cloned();
    let shared = Slots::new(0);
    let desk = RequestContext { load: planned, plan_dir, names: &names, shared: &shared, shared_names: &[] };
    translate::load_spec(&desk, allowed, threads).map(|(spec, _)| spec).map_err(|error| error.to_string())
}

/// The first file that a load of the plan needs, and what for; `None` if loads need none. Files do not travel with a
/// plan.
pub fn file_of(plan: &Plan) -> Option<(String, String)> {
    plan.cases().iter().flat_map(|case| &case.loads).find_map(|load| {
        let of_steps = all_steps(load).find_map(|(_, step, what)| Some((file_of_step(step)?, what)));
        let feed =
            || load.script.feeds.first().map(|feed| (feed.file.clone(), format!("feed `{}`", feed.name)));
        let tls = &load.http.tls;
        let certificate = || tls.ca.clone().or_else(|| tls.identity.as_ref().map(|(file, _)| file.clone()));
        let of_tls = || certificate().map(|file| (file, format!("`tls` of `{}`", load.name)));
        of_steps.or_else(feed).or_else(of_tls)
    })
}

fn file_of_step(step: &Step) -> Option<String> {
    let of_body = match &step.body {
        Body::File(file) => Some(file.clone()),
        Body::Multipart(parts) => parts.iter().find_map(|part| match &part.content {
            PartContent::File(file, _) => Some(file.clone()),
            PartContent::Text(_) => None,
        }),
        Body::Empty | Body::Text(_) | Body::Json(_) | Body::Form(_) => None,
    };
    let messages = step.websocket.iter().flat_map(|talk| &talk.messages);
    let of_message = messages.filter_map(|message| message.send.as_ref()).find_map(|content| match content {
        MessageContent::File(file) => Some(file.clone()),
        MessageContent::Text(_) | MessageContent::Bytes(_) => None,
    });
    of_body.or(of_message).or_else(|| step.urls.clone())
}

/// Why a plan's loads cannot be sent by other processes, in words; `None` if they can.
pub fn not_by_others(plan: &Plan) -> Option<String> {
    if plan.isolate != Isolation::None {
        return Some("its loads would be outside the network that `isolate` makes".to_owned());
    }
    for case in plan.cases() {
        if let Some(load) = case.loads.iter().find(|load| load.command().is_some()) {
            return Some(format!("load `{}` is a command, which only this machine runs", load.name));
        }
        if let Some(capture) = case.setup.captures.first() {
            return Some(format!(
                "`setup` captures `{}`, and captured values stay on this machine; capture it in `user_setup`",
                capture.name
            ));
        }
    }
    None
}
