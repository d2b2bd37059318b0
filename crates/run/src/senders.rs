//! Loads that other processes send, on this machine or elsewhere: what the conductor asks of them, and what they make of
//! it. Each has the plan; from the conductor it learns which load it is, and the values that only the run knows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use loadlab_load::LoadSpec;
use loadlab_load::journey::capture::Slots;
use loadlab_load::run::{Control, LoadEvent, Origin, Outcome};
use loadlab_load::target::Allowed;
use loadlab_plan::{Body, Isolation, LoadSpec as Planned, MessageContent, PartContent, Plan, Step};
use loadlab_record::load::Counts;
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

    /// Has the load sent. `cancelled` is asked now and then, also while nothing is reported; `tell` hears of the
    /// processes.
    fn send(
        &self,
        spec: &LoadSpec,
        control: &Control,
        origin: Origin,
        cancelled: &dyn Fn() -> bool,
        tell: &dyn Fn(SenderNews),
        observer: &mut dyn FnMut(LoadEvent<'_>),
    ) -> SentLoad;
}

/// What is worth knowing of processes that send a load.
#[derive(Clone, Debug, PartialEq)]
pub enum SenderNews {
    /// One was lost, or replaced, or is back; in words.
    Note(String),
    /// All of them, about once a second, and at the end.
    Agents(Vec<AgentNow>),
}

/// A process that sends a part of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentNow {
    /// Its part, from 0.
    pub slot: u64,
    /// Its name.
    pub agent: String,
    /// Successful responses per second, in the last second that it reported.
    pub ok_per_s: f64,
    /// Its requests so far.
    pub counts: Counts,
    /// It was silent for too long, or is given up.
    pub is_missing: bool,
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
    files: &PlanFiles,
    load: &RemoteLoad,
    allowed: &Allowed,
    threads: usize,
) -> Result<LoadSpec, String> {
    let case = match (&load.level, plan.cases()) {
        // `loadlab find` searches one, whose levels have names of their own.
        (Some(level), [base]) => Some(level.of_trial(base)),
        (Some(level), cases) => {
            cases.iter().find(|case| case.name == load.case).map(|base| level.of_trial(base))
        }
        (None, cases) => cases.iter().find(|case| case.name == load.case).cloned(),
    };
    let planned = case.and_then(|case| case.loads.into_iter().find(|planned| planned.name == load.load));
    let mut planned =
        planned.ok_or_else(|| format!("the plan has no load `{}` in a case `{}`", load.load, load.case))?;
    let plan_dir = match files {
        PlanFiles::Folder(dir) => dir.as_path(),
        PlanFiles::Received(received) => {
            for (file, what) in files_of_load(&mut planned) {
                let path = received.get(file.as_str());
                let path =
                    path.ok_or_else(|| format!("{what} needs the file `{file}`, which was not sent"))?;
                *file = path.display().to_string();
            }
            // No other file is read.
            Path::new("/nonexistent")
        }
    };
    let planned = &planned;
    let names = |name: &str| load.names.get(name).cloned();
    let shared = Slots::new(0);
    let context =
        RequestContext { load: planned, plan_dir, names: &names, shared: &shared, shared_names: &[] };
    translate::load_spec(&context, allowed, threads).map(|(spec, _)| spec).map_err(|error| error.to_string())
}

/// Where a process has the files that loads of a plan need.
#[derive(Clone, Debug)]
pub enum PlanFiles {
    /// In the plan's folder.
    Folder(PathBuf),
    /// The coordinator sent them; by name, as the plan has it.
    Received(BTreeMap<String, PathBuf>),
}

/// The files that loads of the plan need, by name, each with what needs it first.
pub fn files_of(plan: &Plan) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for load in plan.cases().iter().flat_map(|case| &case.loads) {
        for (file, what) in files_of_load(&mut load.clone()) {
            if !all.iter().any(|(known, _)| known == file) {
                all.push((file.clone(), what));
            }
        }
    }
    all
}

/// The names of a load's files, each with what needs it.
fn files_of_load(load: &mut Planned) -> Vec<(&mut String, String)> {
    let whats: Vec<String> = all_steps(load).map(|(_, _, what)| what).collect();
    let Planned { name, script, journey, http, .. } = load;
    let steps = script.user_setup.iter_mut().chain(journey).chain(&mut script.user_teardown);
    let mut files = Vec::new();
    for (step, what) in steps.zip(whats) {
        files.extend(files_of_step(step).into_iter().map(|file| (file, what.clone())));
    }
    files.extend(script.feeds.iter_mut().map(|feed| (&mut feed.file, format!("feed `{}`", feed.name))));
    let of_tls =
        http.tls.ca.iter_mut().chain(http.tls.identity.iter_mut().flat_map(|(cert, key)| [cert, key]));
    files.extend(of_tls.map(|file| (file, format!("`tls` of `{name}`"))));
    files
}

fn files_of_step(step: &mut Step) -> Vec<&mut String> {
    let mut files = Vec::new();
    match &mut step.body {
        Body::File(file) => files.push(file),
        Body::Multipart(parts) => files.extend(parts.iter_mut().filter_map(|part| match &mut part.content {
            PartContent::File(file, _) => Some(file),
            PartContent::Text(_) => None,
        })),
        Body::Empty | Body::Text(_) | Body::Json(_) | Body::Form(_) => {}
    }
    let messages = step.websocket.iter_mut().flat_map(|talk| &mut talk.messages);
    files.extend(messages.filter_map(|message| match message.send.as_mut()? {
        MessageContent::File(file) => Some(file),
        MessageContent::Text(_) | MessageContent::Bytes(_) => None,
    }));
    files.extend(&mut step.urls);
    files
}

/// The file with the private key of a client certificate, if a load of the plan has one.
pub fn private_key_of(plan: &Plan) -> Option<&str> {
    let mut loads = plan.cases().iter().flat_map(|case| &case.loads);
    loads.find_map(|load| load.http.tls.identity.as_ref().map(|(_, key)| key.as_str()))
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
