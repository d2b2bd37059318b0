//! What happens to a system whose loadlab is killed.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use loadlab_system::ProcessId;
use loadlab_system::ledger::clean;
use serde_json::{Value, json};

use crate::common;
use crate::common::{FIXTURE, eventually, pid_in, run_id, runs, temp_dir, with_daemon};

/// A process that owns a system with one component and that component's daemon.
struct Owner {
    child: Child,
    stdin: Option<ChildStdin>,
    dir: PathBuf,
    component: ProcessId,
    daemon: ProcessId,
    guardian: Option<ProcessId>,
    report: Value,
}

fn process(value: &Value) -> Option<ProcessId> {
    serde_json::from_value(value.clone()).ok()
}

impl Owner {
    fn start(dir: &Path, state_dir: &Path, cgroup_root: &Path, guarded: bool) -> Owner {
        Self::start_by(Command::new(FIXTURE), dir, state_dir, cgroup_root, guarded)
    }

    fn start_by(
        mut command: Command,
        dir: &Path,
        state_dir: &Path,
        cgroup_root: &Path,
        guarded: bool,
    ) -> Owner {
        let own = json!({
            "run_id": run_id(), "dir": dir, "state_dir": state_dir, "cgroup_root": cgroup_root,
            "guarded": guarded, "command": with_daemon("daemon.pid"),
        });
        command.arg("own").arg(own.to_string()).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let report: Value = serde_json::from_str(&line).unwrap();
        Owner {
            stdin: child.stdin.take(),
            child,
            dir: dir.to_owned(),
            component: process(&report["component"]).unwrap(),
            daemon: pid_in(&dir.join("daemon.pid")),
            guardian: process(&report["guardian"]),
            report,
        }
    }

    /// Kills its whole process group.
    fn kill(&mut self) {
        let group = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }

    fn is_gone(&self) -> bool {
        !runs(self.component) && !runs(self.daemon) && !self.dir.join("scratch").exists()
    }
}

fn state_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).map(|e| e.flatten().map(|e| e.path()).collect());
    entries.unwrap_or_default()
}

fn cgroups_in(state_file: &Path) -> Vec<PathBuf> {
    let state: Value = serde_json::from_slice(&std::fs::read(state_file).unwrap()).unwrap();
    let resources = state["resources"].as_array().unwrap();
    resources.iter().filter_map(|r| r["cgroup"].as_str().map(PathBuf::from)).collect()
}

/// This host's cgroups, and a root without any.
fn roots(dir: &Path) -> [PathBuf; 2] {
    [PathBuf::from("/"), dir.join("no-root")]
}

#[test]
fn the_guardian_takes_down_what_a_killed_loadlab_left() {
    let dir = temp_dir();
    for root in roots(dir.path()) {
        let own = tempfile::tempdir_in(dir.path()).unwrap();
        let state_dir = own.path().join("state");
        let mut owner = Owner::start(own.path(), &state_dir, &root, true);
        let guardian = owner.guardian.unwrap();
        let cgroups = cgroups_in(&state_files(&state_dir)[0]);
        assert!(owner.component.is_alive() && owner.daemon.is_alive() && guardian.is_alive());
        // The guardian ignores what Ctrl-C and a closed terminal send.
        for signal in
            [rustix::process::Signal::INT, rustix::process::Signal::TERM, rustix::process::Signal::HUP]
        {
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(guardian.pid as i32).unwrap(),
                signal,
            )
            .unwrap();
        }
        owner.kill();
        eventually("the guardian's work", || (!guardian.is_alive()).then_some(()));
        assert!(owner.is_gone());
        assert!(cgroups.iter().all(|dir| !dir.exists()), "{cgroups:?}");
        assert!(state_files(&state_dir).is_empty());
    }
}

#[test]
fn an_orderly_end_leaves_nothing_for_the_guardian() {
    let dir = temp_dir();
    let state_dir = dir.path().join("state");
    let mut owner = Owner::start(dir.path(), &state_dir, Path::new("/"), true);
    owner.stdin = None;
    assert!(owner.child.wait().unwrap().success());
    assert!(owner.is_gone() && !owner.guardian.unwrap().is_alive());
    assert!(state_files(&state_dir).is_empty());
}

#[test]
fn clean_removes_what_is_left_when_the_guardian_was_killed_too() {
    let dir = temp_dir();
    let state_dir = dir.path().join("state");
    for root in roots(dir.path()) {
        let (killed_dir, living_dir) =
            (tempfile::tempdir_in(dir.path()).unwrap(), tempfile::tempdir_in(dir.path()).unwrap());
        let mut killed = Owner::start(killed_dir.path(), &state_dir, &root, true);
        let mut living = Owner::start(living_dir.path(), &state_dir, &root, false);
        let guardian = rustix::process::Pid::from_raw(killed.guardian.unwrap().pid as i32).unwrap();
        rustix::process::kill_process(guardian, rustix::process::Signal::KILL).unwrap();
        killed.kill();
        assert!(killed.daemon.is_alive(), "nobody is there to end it");

        let dry = clean::clean(&state_dir, clean::Cleaning { dry_run: true, ..Default::default() }).unwrap();
        assert!(killed.daemon.is_alive() && killed.dir.join("scratch").exists());
        let has = |what: &str| dry.iter().any(|i| i.what.starts_with(what));
        assert!(has(&format!("process {} (sleep 1000)", killed.daemon.pid)), "{dry:?}");
        assert!(has("folder ") && has("state file "), "{dry:?}");

        let cleaned = clean::clean(&state_dir, clean::Cleaning::default()).unwrap();
        assert!(cleaned.iter().all(|i| i.result.is_ok()), "{cleaned:?}");
        assert!(killed.is_gone());
        assert!(living.component.is_alive() && living.daemon.is_alive(), "{cleaned:?}");
        assert_eq!(state_files(&state_dir).len(), 1, "the living one's");
        assert_eq!(clean::clean(&state_dir, clean::Cleaning::default()).unwrap(), []);
        living.stdin = None;
        assert!(living.child.wait().unwrap().success());
    }
}

/// As an ordinary user: no cgroups, which is reported, and everything else as usual.
#[test]
fn without_rights_it_works_with_less() {
    let nobody = 65534;
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/setpriv").exists() {
        return common::skip::skip("it takes root and setpriv to become nobody");
    }
    // Not below the build folder, which `nobody` may not enter.
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(nobody), Some(nobody)).unwrap();
    let fixture = dir.path().join("fixture");
    // A child copies it: a file that this process had open for writing cannot be run while a child of another test,
    // forked meanwhile, still has it open.
    assert!(Command::new("cp").arg(FIXTURE).arg(&fixture).status().unwrap().success());
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&fixture);
    let state_dir = dir.path().join("state");
    let mut owner = Owner::start_by(command, dir.path(), &state_dir, Path::new("/"), true);
    let missing: Vec<String> = serde_json::from_value(owner.report["unavailable"].clone()).unwrap();
    assert!(missing.contains(&"cgroup controller `memory`".to_owned()), "{missing:?}");
    assert_eq!(owner.report["version"], "none");
    owner.kill();
    let guardian = owner.guardian.unwrap();
    eventually("the guardian's work", || (!guardian.is_alive()).then_some(()));
    assert!(owner.is_gone());
}
