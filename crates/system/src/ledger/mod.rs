//! Records what a run makes on this machine, before it is made, so that another process can remove it.
//!
//! Each change is written twice: to a file in the state folder, which survives everything but a reboot, and through a
//! pipe to the guardian, which acts at once when loadlab is gone. [`clean`] works from the files alone. A run is alive
//! while a process with its pid *and* start time exists; nothing of such a run is touched, nor of one in another pid
//! namespace, of which this cannot be known.

pub mod clean;
pub mod folder;
pub mod guardian;
pub mod state;

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use loadlab_record::sync::lock;

use self::guardian::Guardian;
use self::state::{Change, Resource, RunState, own_dir, tag};
use crate::clock;
use crate::error::{Error, Result};
use crate::process::{self, ProcessId};

/// Keeps a run's state in its file and at its guardian.
#[derive(Debug)]
pub(crate) struct Ledger {
    state: Mutex<RunState>,
    guardian: Mutex<Option<Guardian>>,
}

impl Ledger {
    /// Begins a run: its state file exists from now on.
    pub fn open(
        state_dir: &Path,
        run_id: &str,
        run_dir: &Path,
        guardian: Option<Guardian>,
    ) -> Result<Ledger> {
        own_dir(state_dir)?;
        let owner = ProcessId::own();
        let file_name =
            format!("{}-{}-{}.json", crate::cgroup::folder_name(run_id), owner.pid, clock::now_ns());
        let mark = format!("LOADLAB_RUN={run_id}/{}/{}/{}", owner.pid, clock::now_ns(), tag(owner));
        let state = RunState {
            run_id: run_id.to_owned(),
            owner,
            boot_id: process::boot_id(),
            run_dir: run_dir.to_owned(),
            mark,
            guardian: guardian.as_ref().map(Guardian::process),
            resources: Vec::new(),
            file: state_dir.join(file_name),
        };
        state.save()?;
        let ledger = Ledger { state: Mutex::new(state.clone()), guardian: Mutex::new(guardian) };
        ledger.notify_guardian(&Change::Run(state));
        Ok(ledger)
    }

    /// The `NAME=value` entry in the environment of everything the run starts.
    pub fn mark(&self) -> String {
        lock(&self.state).mark.clone()
    }

    /// The process that owns the run.
    pub fn owner(&self) -> ProcessId {
        lock(&self.state).owner
    }

    /// Records a resource. Call this before it is made, if its name is known by then.
    pub fn made(&self, resource: Resource) -> Result<()> {
        self.change(Change::Made(resource))
    }

    /// Removes a resource from the record. Call this after it is removed.
    pub fn done(&self, resource: Resource) -> Result<()> {
        self.change(Change::Done(resource))
    }

    fn change(&self, change: Change) -> Result<()> {
        // The guardian first: it needs no disk.
        self.notify_guardian(&change);
        let mut state = lock(&self.state);
        state.apply(change);
        state.save()
    }

    fn notify_guardian(&self, change: &Change) {
        let mut guardian = lock(&self.guardian);
        if let Some(there) = guardian.as_mut()
            && there.send(change).is_err()
        {
            *guardian = None;
        }
    }

    /// Whether the run has a guardian that is still listening.
    pub fn is_guarded(&self) -> bool {
        lock(&self.guardian).is_some()
    }

    /// Ends the run: removes its file and releases the guardian. Anything still in the ledger is left to `clean`.
    pub fn close(&self) -> Result<()> {
        let state = lock(&self.state);
        if state.resources.is_empty() {
            match fs::remove_file(&state.file) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::file("remove", &state.file)(e));
                }
                _ => {}
            }
        }
        drop(state);
        let guardian = lock(&self.guardian).take();
        if let Some(guardian) = guardian {
            guardian.finish();
        }
        Ok(())
    }
}
