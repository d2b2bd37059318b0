//! Lists of functions for the profiler. Only a runtime that compiles while it runs knows where its functions are, so it
//! is asked to list them; what it leaves behind is removed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::running_system::{StartedComponent, jvm};
use crate::state::TrialState;

/// Which components list their functions, and which of their processes may have left lists.
#[derive(Default)]
pub struct FunctionLists {
    /// Names of components asked to list their functions for a profile, which takes effect if Node runs them.
    asked: BTreeSet<String>,
    /// These components' processes, whose lists outlive them.
    listing: Vec<ListingProcess>,
}

/// A process that may write a list.
struct ListingProcess {
    pid: u32,
    /// Its working directory.
    folder: Option<PathBuf>,
}

impl FunctionLists {
    /// A component that is about to be started is asked to list its functions.
    pub(super) fn ask(&mut self, component: &str) {
        self.asked.insert(component.to_owned());
    }

    /// Takes over processes of components whose stacks were sampled. Java processes list their functions now.
    pub fn sampled(&mut self, processes: Vec<(String, u32)>, state: &TrialState) {
        for (component, pid) in
            processes.iter().filter(|(name, pid)| self.asked.contains(name) && jvm::is_java(*pid))
        {
            if let Err(why) = jvm::list_functions(*pid) {
                let text = format!(
                    "profile: functions of {component} have no names: jcmd {pid} Compiler.perfmap: {why}"
                );
                state.record_note(text);
            }
        }
        let own = processes.into_iter().filter(|(name, _)| self.asked.contains(name)).map(|(_, pid)| pid);
        self.listing.extend(own.map(ListingProcess::of));
    }

    /// Records processes that list their functions, sampled or not, before they end.
    pub(super) fn note(&mut self, up: &[StartedComponent]) {
        let own = up.iter().filter(|up| self.asked.contains(up.component.name()));
        self.listing.extend(own.flat_map(|up| up.component.pids()).map(ListingProcess::of));
    }

    /// Removes what processes that have ended left behind: Node leaves a list of functions in `/tmp`, and one log for
    /// each isolate in its working directory.
    pub(super) fn remove(&mut self) {
        self.listing.retain(|ListingProcess { pid, folder }| {
            let is_there = Path::new(&format!("/proc/{pid}")).exists();
            if !is_there {
                let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
                let entries = folder.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
                let end = format!("-{pid}-v8.log");
                let is_log = |name: &str| name.starts_with("isolate-0x") && name.ends_with(&end);
                let logs = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_log));
                logs.for_each(|log| drop(std::fs::remove_file(log.path())));
            }
            is_there
        });
    }
}

impl ListingProcess {
    fn of(pid: u32) -> ListingProcess {
        ListingProcess { pid, folder: std::fs::read_link(format!("/proc/{pid}/cwd")).ok() }
    }
}
