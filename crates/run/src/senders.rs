//! Loads sent by other processes, on this machine or elsewhere: what the conductor asks of them, and what they do with
//! it. Each process has the plan; from the conductor it learns which load to send and the values that only the run
//! knows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use loadlab_load::LoadSpec;
use loadlab_load::journey::capture::CaptureSlots;
use loadlab_load::run::{Control, LoadEvent, LoadResult, Origin};
use loadlab_load::target::Allowed;
use loadlab_plan::{
    Body, FeedSpec, Isolation, LoadSpec as PlannedLoad, MessageContent, PartContent, Place, Plan, Step,
};
use loadlab_record::counts::load::Counts;
use loadlab_record::documents::summary::AgentSummary;
use serde::{Deserialize, Serialize};

use crate::level::Level;
use crate::translate::steps::all_steps;
use crate::translate::{self, RequestContext};

/// Processes that send loads in place of this one, each sending a part.
pub trait Senders: Send + Sync {
    /// Prepares all senders for a load. `cancelled` is polled while this waits.
    ///
    /// # Errors
    /// One of them cannot send its part; the reason in words.
    fn prepare(
        &self,
        load: &RemoteLoad,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Box<dyn ReadySenders>, String>;

    /// Lead time from the decision to start a load to its start, in nanoseconds: the decision has to reach all senders
    /// first.
    fn lead_ns(&self) -> u64;
}

/// Senders that are ready for a load.
pub trait ReadySenders: Send + Sync {
    /// Describes the senders, for the record.
    fn described(&self) -> String;

    /// Runs the load on the senders. `cancelled` is polled throughout, even while nothing is reported; `on_news`
    /// receives news about the senders.
    fn send(
        &self,
        spec: &LoadSpec,
        control: &Control,
        origin: Origin,
        cancelled: &dyn Fn() -> bool,
        on_news: &dyn Fn(SenderNews),
        observer: &mut dyn FnMut(LoadEvent<'_>),
    ) -> SentLoad;
}

/// News about the processes that send a load.
#[derive(Clone, Debug, PartialEq)]
pub enum SenderNews {
    /// A sender was lost, replaced, or came back; in words.
    Note(String),
    /// All senders, about once a second and at the end.
    Agents(Vec<AgentNow>),
}

/// A process that sends a part of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentNow {
    /// Its slot, from 0.
    pub slot: u64,
    /// Its name.
    pub agent: String,
    /// Successful responses per second during the last second it reported.
    pub ok_per_s: f64,
    /// Its request counts so far.
    pub counts: Counts,
    /// It was silent for too long or was given up.
    pub is_missing: bool,
}

/// The result of a load sent by other processes.
pub struct SentLoad {
    /// The combined measurements of all senders.
    pub outcome: LoadResult,
    /// Why the load ended early, if it did.
    pub trouble: Option<String>,
    /// What each sender contributed.
    pub agents: Vec<AgentSummary>,
}

/// Identifies a load for a remote process, with the values that only the run knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteLoad {
    /// Name of its case.
    pub case: String,
    /// The search level that the case is run at, if any.
    pub level: Option<Level>,
    /// Name of the load within the case.
    pub load: String,
    /// First id of its requests.
    pub first_id: u64,
    /// Load threads per process, if the plan specifies them.
    pub threads: Option<u64>,
    /// Names that the load's templates use, such as `components.web.port`, and their values.
    pub names: BTreeMap<String, String>,
    /// Addresses that the run created, such as those of containers.
    pub addresses: Vec<IpAddr>,
}

/// Builds the load spec in a process that has the plan.
///
/// # Errors
/// The plan has no such load, or the load cannot or must not be sent from here.
pub fn spec_of(
    plan: &Plan,
    files: &PlanFiles,
    load: &RemoteLoad,
    allowed: &Allowed,
    threads: usize,
) -> Result<LoadSpec, String> {
    let case = match (&load.level, plan.cases()) {
        // `loadlab find` searches a single case; its levels are named separately.
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
            for NeededFile { file, what, .. } in files_of_load(&mut planned) {
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
    let shared = CaptureSlots::new(0);
    let context =
        RequestContext { load: planned, plan_dir, names: &names, shared: &shared, shared_names: &[] };
    translate::load_spec(&context, allowed, threads).map(|(spec, _)| spec).map_err(|error| error.to_string())
}

/// Where a process finds the files that the plan's loads need.
#[derive(Clone, Debug)]
pub enum PlanFiles {
    /// In the plan's folder.
    Folder(PathBuf),
    /// The coordinator sent them; local paths by the name the plan uses.
    Received(BTreeMap<String, PathBuf>),
}

/// A file that the plan's loads need.
#[derive(Clone, Debug)]
pub struct NeededFile<F = String> {
    /// Its path as in the plan.
    pub file: F,
    /// What first needs it, such as "step 1 of `load`".
    pub what: String,
    /// The step or feed, in the plan; the plan without a line for files of `tls`.
    pub at: Place,
    /// Feeds and URL lists are read before anything is up, all others when the load begins.
    pub is_read_first: bool,
}

/// The files that the plan's loads need, each once.
pub fn files_of(plan: &Plan) -> Vec<NeededFile> {
    let mut all: Vec<NeededFile> = Vec::new();
    for load in plan.cases().iter().flat_map(|case| &case.loads) {
        for needed in files_of_load(&mut load.clone()) {
            let NeededFile { file, what, at, is_read_first } = needed;
            match all.iter_mut().find(|known| known.file == *file) {
                Some(known) => known.is_read_first |= is_read_first,
                None => all.push(NeededFile { file: file.clone(), what, at, is_read_first }),
            }
        }
    }
    all
}

fn files_of_load(load: &mut PlannedLoad) -> Vec<NeededFile<&mut String>> {
    let whats: Vec<String> = all_steps(load).map(|placed| placed.what).collect();
    let PlannedLoad { name, script, journey, http, .. } = load;
    let plan = journey.first().map(|step| step.at.file.clone()).unwrap_or_default();
    let steps = script.user_setup.iter_mut().chain(journey).chain(&mut script.user_teardown);
    let mut files = Vec::new();
    for (step, what) in steps.zip(whats) {
        let at = step.at.clone();
        let needed =
            |(file, is_read_first)| NeededFile { file, what: what.clone(), at: at.clone(), is_read_first };
        files.extend(files_of_step(step).into_iter().map(needed));
    }
    for FeedSpec { name, file, at, .. } in &mut script.feeds {
        files.push(NeededFile { file, what: format!("feed `{name}`"), at: at.clone(), is_read_first: true });
    }
    let of_tls =
        http.tls.ca.iter_mut().chain(http.tls.identity.iter_mut().flat_map(|(cert, key)| [cert, key]));
    for file in of_tls {
        let at = Place { file: plan.clone(), ..Place::default() };
        files.push(NeededFile { file, what: format!("`tls` of `{name}`"), at, is_read_first: false });
    }
    files
}

/// Files that a step names, and whether each is a URL list.
fn files_of_step(step: &mut Step) -> Vec<(&mut String, bool)> {
    let mut files = Vec::new();
    match &mut step.body {
        Body::File(file) => files.push(file),
        Body::Multipart(parts) => files.extend(parts.iter_mut().filter_map(|part| match &mut part.content {
            PartContent::File(file, _) => Some(file),
            PartContent::Text(_) => None,
        })),
        Body::Empty | Body::Text(_) | Body::Json(_) | Body::Form(_) => {}
    }
    let messages = step.websocket.iter_mut().flat_map(|conversation| &mut conversation.messages);
    files.extend(messages.filter_map(|message| match message.send.as_mut()? {
        MessageContent::File(file) => Some(file),
        MessageContent::Text(_) | MessageContent::Bytes(_) => None,
    }));
    let lists = step.urls.iter_mut().map(|list| (list, true));
    files.into_iter().map(|file| (file, false)).chain(lists).collect()
}

/// The private-key file of a client certificate, if one of the plan's loads has one.
pub fn private_key_of(plan: &Plan) -> Option<&str> {
    let mut loads = plan.cases().iter().flat_map(|case| &case.loads);
    loads.find_map(|load| load.http.tls.identity.as_ref().map(|(_, key)| key.as_str()))
}

/// Why the plan's loads cannot be sent by other processes, in words; `None` if they can.
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
