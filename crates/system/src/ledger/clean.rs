//! Removes what killed runs left behind.

use std::fs;
use std::path::{Path, PathBuf};

use super::state::{Resource, RunState, is_dead, own_dir};
use crate::cancel::Cancel;
use crate::clock;
use crate::engine::{Engine, EngineError, leftovers};
use crate::error::{Error, Result};
use crate::process::{self, ProcessId, kill};

/// A file in every folder that may be removed with all its contents; its text is the run's mark.
const SCRATCH_MARK: &str = ".loadlab-scratch";
/// How long after a request an engine may still create what it was asked for.
pub(crate) const SETTLES_NS: u64 = 15_000_000_000;
/// Time limit for taking down one run, nanoseconds.
const TAKEDOWN_TIMEOUT_NS: u64 = 10_000_000_000;
/// How long a guardian may be at work: it kills processes, asks engines, and removes cgroups.
pub const GUARDIAN_TIMEOUT_NS: u64 = 2 * TAKEDOWN_TIMEOUT_NS + SETTLES_NS;
/// Pause between two looks at a guardian.
const ROUND_NS: u64 = 5_000_000;

/// Marks a scratch folder as one that may be removed with all its contents.
pub(crate) fn mark_scratch(dir: &Path, mark: &str) -> Result<()> {
    let file = dir.join(SCRATCH_MARK);
    fs::write(&file, mark).map_err(Error::file("write", &file))
}

/// Removes a scratch folder if it carries this mark.
pub(crate) fn remove_scratch(dir: &Path, mark: &str) -> std::io::Result<()> {
    match fs::read_to_string(dir.join(SCRATCH_MARK)) {
        Ok(text) if text == mark => empty_scratch(dir).and_then(|()| fs::remove_dir_all(dir)),
        Ok(_) => Err(std::io::Error::other("it now belongs to another run")),
        Err(_) if !dir.exists() => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes everything in a scratch folder but its mark: what is left if that fails, or is cut off, can still be removed
/// later.
fn empty_scratch(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() == SCRATCH_MARK {
            continue;
        }
        let path = entry.path();
        removed(if entry.file_type()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) })?;
    }
    Ok(())
}

/// Removes a scratch folder that a killed run left behind, so that another run can have it: the guardian of the killed
/// one, or `clean`, would later remove it with what the other had put there. Any other folder stays.
pub(crate) fn remove_left(dir: &Path, state_dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    await_guardians(dir, state_dir);
    // The last part of a mark names the process that owns the run.
    let is_left = |mark: &String| mark.rsplit('/').next().is_some_and(is_dead);
    match fs::read_to_string(dir.join(SCRATCH_MARK)).ok().filter(is_left) {
        Some(mark) => removed(remove_scratch(dir, &mark)).map_err(Error::file("remove", dir)),
        None => Ok(()),
    }
}

/// The state files in a folder, as far as they can be read.
fn states_in(state_dir: &Path) -> impl Iterator<Item = RunState> {
    let entries = fs::read_dir(state_dir).into_iter().flatten();
    let files = entries.flatten().map(|e| e.path()).filter(|f| f.extension().is_some_and(|e| e == "json"));
    files.filter_map(|file| serde_json::from_slice::<RunState>(&fs::read(file).ok()?).ok())
}

/// Ids of the runs in other pid namespaces, in order. [`clean`] leaves them alone: whether they are alive cannot be
/// known here.
pub fn elsewhere(state_dir: &Path) -> Vec<String> {
    let mut ids: Vec<String> =
        states_in(state_dir).filter(RunState::is_elsewhere).map(|state| state.run_id).collect();
    ids.sort();
    ids
}

/// The guardians of killed runs that are about to remove this folder.
pub(crate) fn guardians_of(dir: &Path, state_dir: &Path) -> Vec<ProcessId> {
    let boot_id = process::boot_id();
    let own = Resource::Dir(dir.to_owned());
    let is_left = |s: &RunState| s.boot_id == boot_id && !s.is_alive() && s.resources.contains(&own);
    states_in(state_dir)
        .filter(is_left)
        .filter_map(|state| state.guardian)
        .filter(ProcessId::is_alive)
        .collect()
}

/// Waits for the guardians of killed runs that are about to remove this folder.
fn await_guardians(dir: &Path, state_dir: &Path) {
    let guardians = guardians_of(dir, state_dir);
    let until_ns = clock::now_ns() + GUARDIAN_TIMEOUT_NS;
    let never = Cancel::new();
    while guardians.iter().any(ProcessId::is_alive) && clock::now_ns() < until_ns {
        never.wait_until(clock::now_ns() + ROUND_NS);
    }
}

/// One thing that a killed run left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanedItem {
    /// The run that left it behind.
    pub run_id: String,
    /// `process 4711 (nginx: worker process)`, `cgroup /sys/…`, `folder /tmp/…`, `state file /run/…`.
    pub what: String,
    /// `Ok` if it is gone now (or, in a dry run, would be removed); else why not.
    pub result: std::result::Result<(), String>,
}

/// Options of [`clean`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Cleaning {
    /// Only list what would be removed.
    pub dry_run: bool,
    /// Report what cannot be removed one last time, then drop it from the ledger: an engine may be gone for good.
    pub forget: bool,
}

/// Removes what killed runs left behind, according to the files in the state folder; live runs are left alone.
pub fn clean(state_dir: &Path, how: Cleaning) -> Result<Vec<CleanedItem>> {
    let mut cleaned = Vec::new();
    let entries = match fs::read_dir(state_dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(cleaned),
        entries => entries.map_err(Error::file("read", state_dir))?,
    };
    own_dir(state_dir)?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    files.sort();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "json")) {
        let read = match fs::read(file) {
            // The run has ended in the meantime.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.map_err(|e| e.to_string()),
        };
        match read.and_then(|text| serde_json::from_slice::<RunState>(&text).map_err(|e| e.to_string())) {
            Ok(state) if state.is_alive() => {}
            Ok(mut state) => {
                state.file = file.clone();
                cleaned.extend(take_down(&state, how));
            }
            Err(why) => cleaned.push(CleanedItem {
                run_id: String::new(),
                what: format!("state file {}", file.display()),
                result: Err(format!("it cannot be read and was kept: {why}")),
            }),
        }
    }
    // Left by a loadlab killed while writing a state file: what it was about to make was never made.
    for file in files.iter().filter(|f| f.to_string_lossy().ends_with(".json.new")) {
        let state = fs::read(file).ok().and_then(|text| serde_json::from_slice::<RunState>(&text).ok());
        if let Some(state) = state.filter(|state| !state.is_alive()) {
            let is_gone = if how.dry_run { Ok(()) } else { removed(fs::remove_file(file)) };
            let what = format!("unfinished state file {}", file.display());
            let result = is_gone.map_err(|e| e.to_string());
            cleaned.push(CleanedItem { run_id: state.run_id, what, result });
        }
    }
    Ok(cleaned)
}

/// Counts a missing resource as removed: the run's guardian cleans up as well.
fn removed(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Kills the processes of a run whose loadlab is gone, and removes what it made. The state file is removed last, and
/// stays if anything else does, unless that is to be forgotten.
pub(crate) fn take_down(state: &RunState, how: Cleaning) -> Vec<CleanedItem> {
    let Cleaning { dry_run, forget } = how;
    let until_ns = clock::now_ns() + TAKEDOWN_TIMEOUT_NS;
    let mut items = Vec::new();
    let mut item = |what: String, result| {
        items.push(CleanedItem { run_id: state.run_id.clone(), what, result });
    };
    // After a reboot no pids and cgroups are left, only folders.
    let same_boot = state.boot_id == process::boot_id();
    let cgroups: Vec<PathBuf> = state.resources.iter().filter_map(cgroup_of).collect();
    if same_boot {
        for (what, pid) in processes_of(state, &cgroups) {
            let killed = dry_run || kill::kill_process(pid) || !pid.is_alive();
            item(what, if killed { Ok(()) } else { Err("not permitted".into()) });
        }
        if !dry_run {
            // Catches anything forked in the meantime.
            let groups = kill::kill_groups(&cgroups, until_ns);
            let rest = || processes_of(state, &cgroups).iter().map(|(_, id)| id.pid).collect();
            if let Err(left) = groups.and_then(|_| kill::kill_until_none(until_ns, rest)) {
                item(format!("processes {left:?}"), Err("still running after SIGKILL".into()));
            }
        }
    }
    for (socket, label) in engines_of(state) {
        let settled_ns = settled_ns(state, label);
        take_down_at(socket, label, dry_run, &mut || clock::now_ns() >= settled_ns, &mut item);
    }
    let until_ns = clock::now_ns() + TAKEDOWN_TIMEOUT_NS;
    for dir in cgroups.iter().filter(|dir| dir.exists()) {
        let gone = dry_run || remove_run_group(dir, until_ns);
        let result = if gone { Ok(()) } else { Err("it is in use, or loadlab may not remove it".into()) };
        item(format!("cgroup {}", dir.display()), result);
    }
    for resource in &state.resources {
        if let Resource::Dir(dir) = resource
            && dir.exists()
        {
            let removed = if dry_run { Ok(()) } else { remove_scratch(dir, &state.mark) };
            item(format!("folder {}", dir.display()), removed.map_err(|e| e.to_string()));
        }
    }
    let all_gone = items.iter().all(|i| i.result.is_ok());
    if state.file.exists() {
        let result = match (all_gone || forget, dry_run) {
            (true, false) => removed(fs::remove_file(&state.file)).map_err(|e| e.to_string()),
            (true, true) => Ok(()),
            (false, _) => Err("kept, because parts of the run remain (--forget removes it anyway)".into()),
        };
        let what = format!("state file {}", state.file.display());
        items.push(CleanedItem { run_id: state.run_id.clone(), what, result });
    }
    items
}

/// Sockets and labels of everything that a run made at engines, or asked them for.
fn engines_of(state: &RunState) -> Vec<(&Path, &str)> {
    let mut found: Vec<(&Path, &str)> = Vec::new();
    for resource in &state.resources {
        if let Resource::Engine { socket, label } | Resource::Asked { socket, label, .. } = resource
            && !found.contains(&(socket, label))
        {
            found.push((socket, label));
        }
    }
    found
}

/// When nothing more with this label can appear: at once, unless a request was pending when the run ended.
fn settled_ns(state: &RunState, label: &str) -> u64 {
    let is_asked =
        state.resources.iter().any(|r| matches!(r, Resource::Asked { label: l, .. } if l == label));
    if is_asked && state.boot_id == process::boot_id() { clock::now_ns() + SETTLES_NS } else { 0 }
}

/// Removes what a run made at an engine, which survives a reboot.
fn take_down_at(
    socket: &Path,
    label: &str,
    dry_run: bool,
    is_settled: &mut dyn FnMut() -> bool,
    item: &mut dyn FnMut(String, std::result::Result<(), String>),
) {
    if !leftovers::is_ours(label) {
        return;
    }
    let tried = match dry_run {
        true => {
            leftovers::find(socket, label).map(|(_, left)| left.into_iter().map(|l| (l.what, None)).collect())
        }
        false => leftovers::remove_until(socket, label, is_settled),
    };
    match tried {
        Ok(tried) => tried.into_iter().for_each(|(what, error): (String, Option<_>)| {
            item(what, error.map_or(Ok(()), |e: EngineError| Err(e.to_string())));
        }),
        Err(error) => item(format!("containers with the label {label}"), Err(error.to_string())),
    }
}

/// Removes what killed runs left at container engines without a record in a state file: an engine may complete a
/// request long after the process that sent it is gone. Skips engines that do not answer, and resources of runs that
/// are alive or whose state cannot be known here.
pub fn clean_engines(how: Cleaning) -> Vec<CleanedItem> {
    let mut cleaned = Vec::new();
    for engine in Engine::all() {
        let strays = leftovers::strays(&engine, &is_dead).unwrap_or_default();
        for (run, left) in strays {
            let removed = if how.dry_run { Ok(()) } else { left.remove(&engine) };
            let run_id = run.trim_start_matches(leftovers::PROJECT).to_owned();
            // A run's mark has its pid and start time after its name.
            let run_id = run_id.rsplitn(3, '/').last().unwrap_or_default().to_owned();
            cleaned.push(CleanedItem { run_id, what: left.what, result: removed.map_err(|e| e.to_string()) });
        }
    }
    cleaned
}

/// A cgroup that a run may have made. Whatever else a file claims, only `…/loadlab/RUN` is killed and removed.
fn cgroup_of(resource: &Resource) -> Option<PathBuf> {
    match resource {
        Resource::Cgroup(dir) if dir.parent()?.file_name()? == crate::cgroup::tree::TOP => Some(dir.clone()),
        _ => None,
    }
}

/// All live processes of a run, each with a description.
fn processes_of(state: &RunState, cgroups: &[PathBuf]) -> Vec<(String, ProcessId)> {
    let all = process::snapshot();
    let mut pids: Vec<u32> = cgroups.iter().flat_map(|dir| kill::processes_in(dir)).collect();
    for resource in &state.resources {
        if let Resource::Group(leader) = resource {
            let family = process::ProcessFamily { leader: *leader, mark: state.mark.clone() };
            pids.extend(family.members(&all).iter().map(|s| s.pid));
        }
    }
    pids.extend(process::marked(&state.mark).iter().map(|s| s.pid));
    pids.sort_unstable();
    pids.dedup();
    // The caller is not a leftover, even if it was started from within a component.
    pids.retain(|pid| *pid != std::process::id());
    let described = |pid: u32| {
        let id = ProcessId { pid, start_ticks: process::stat(pid)?.start_ticks };
        Some((format!("process {pid} ({})", process::command_of(pid)), id))
    };
    pids.into_iter().filter_map(described).collect()
}

/// Removes a run's cgroup, and the folder of all runs if this was the last run in it.
pub(crate) fn remove_run_group(dir: &Path, until_ns: u64) -> bool {
    let gone = kill::remove_groups(dir, until_ns);
    if let Some(top) =
        dir.parent().filter(|top| top.file_name().is_some_and(|n| n == crate::cgroup::tree::TOP))
    {
        // This fails while another run uses the folder.
        let _ = fs::remove_dir(top);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::super::Ledger;
    use super::super::state::tag;
    use super::*;
    use loadlab_record::sync::lock;

    const CLEAN: Cleaning = Cleaning { dry_run: false, forget: false };
    const DRY: Cleaning = Cleaning { dry_run: true, forget: false };

    fn private_dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn the_file_follows_the_ledger_and_goes_with_the_last_resource() {
        let dir = private_dir();
        let state_dir = dir.path().join("state");
        let ledger = Ledger::open(&state_dir, "run/1", dir.path(), None).unwrap();
        let group = Resource::Group(ProcessId { pid: 7, start_ticks: 8 });
        ledger.made(Resource::Dir("/tmp/x".into())).unwrap();
        ledger.made(group.clone()).unwrap();
        ledger.done(Resource::Dir("/tmp/x".into())).unwrap();
        let file = lock(&ledger.state).file.clone();
        let state: RunState = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(
            (state.run_id.as_str(), state.resources.as_slice()),
            ("run/1", [group.clone()].as_slice())
        );
        assert!(state.is_alive() && !ledger.is_guarded());
        // The run is alive: clean leaves it alone.
        assert_eq!(clean(&state_dir, CLEAN).unwrap(), []);
        ledger.close().unwrap();
        assert!(file.exists(), "the group is still there");
        ledger.done(group).unwrap();
        ledger.close().unwrap();
        assert!(!file.exists());
    }

    fn dead_run(dir: &Path, resources: Vec<Resource>) -> RunState {
        let state = RunState {
            run_id: "dead".into(),
            owner: ProcessId { pid: std::process::id(), start_ticks: 1 },
            boot_id: process::boot_id(),
            run_dir: dir.to_owned(),
            mark: "LOADLAB_RUN=dead/1/2".into(),
            guardian: None,
            resources,
            file: dir.join("dead.json"),
        };
        state.save().unwrap();
        state
    }

    #[test]
    fn a_tag_names_one_process_of_one_namespace() {
        let own = ProcessId::own();
        assert!(!is_dead(&tag(own)), "this process lives");
        let gone = tag(ProcessId { start_ticks: own.start_ticks + 1, ..own });
        assert!(is_dead(&gone));
        let elsewhere = format!("{}0", gone);
        for unknown in ["", "1-2", "x-y-z", "1-2-3-4", elsewhere.as_str()] {
            assert!(!is_dead(unknown), "{unknown}: nothing is known of it");
        }
    }

    #[test]
    fn a_run_of_another_pid_namespace_is_left_alone() {
        let state_dir = private_dir();
        let scratch = state_dir.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        let mut state = dead_run(state_dir.path(), vec![Resource::Dir(scratch.clone())]);
        let mut run = |namespace: &str, boot_id: String| {
            state.mark = format!("LOADLAB_RUN=dead/1/2/{}{namespace}", tag(state.owner));
            state.boot_id = boot_id;
            state.save().unwrap();
            mark_scratch(&scratch, &state.mark).unwrap();
        };
        run("0", process::boot_id());
        assert_eq!(clean(state_dir.path(), CLEAN).unwrap(), []);
        assert_eq!(elsewhere(state_dir.path()), ["dead"]);
        assert!(scratch.exists());
        // No namespace outlives a boot.
        run("0", "another boot".to_owned());
        assert!(elsewhere(state_dir.path()).is_empty());
        assert_eq!(clean(state_dir.path(), DRY).unwrap().len(), 2);
        run("", process::boot_id());
        assert!(elsewhere(state_dir.path()).is_empty());
        assert_eq!(clean(state_dir.path(), CLEAN).unwrap().len(), 2);
        assert!(!scratch.exists());
    }

    #[test]
    fn clean_removes_only_marked_folders() {
        let state_dir = private_dir();
        let work = private_dir();
        let (scratch, other) = (work.path().join("scratch"), work.path().join("other"));
        for dir in [&scratch, &other] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("data"), "x").unwrap();
        }
        let dirs = [&scratch, &other].map(|dir| Resource::Dir(dir.clone()));
        let state = dead_run(state_dir.path(), dirs.to_vec());
        mark_scratch(&scratch, &state.mark).unwrap();
        mark_scratch(&other, "LOADLAB_RUN=other/1/2").unwrap();

        let dry = clean(state_dir.path(), DRY).unwrap();
        assert_eq!(dry.len(), 3);
        assert!(scratch.exists() && state.file.exists());

        let items = clean(state_dir.path(), CLEAN).unwrap();
        assert!(!scratch.exists() && other.exists());
        let errors: Vec<_> = items.iter().map(|i| i.result.clone().err().unwrap_or_default()).collect();
        let kept = "kept, because parts of the run remain (--forget removes it anyway)";
        assert_eq!(errors, ["", "it now belongs to another run", kept]);
    }

    #[test]
    fn the_mark_of_a_scratch_folder_goes_last() {
        let work = private_dir();
        let (scratch, mark) = (work.path().join("scratch"), "LOADLAB_RUN=dead/1/2");
        fs::create_dir_all(scratch.join("data/more")).unwrap();
        fs::write(scratch.join("data/file"), "x").unwrap();
        fs::write(scratch.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(work.path(), scratch.join("link")).unwrap();
        mark_scratch(&scratch, mark).unwrap();
        empty_scratch(&scratch).unwrap();
        let left: Vec<_> = fs::read_dir(&scratch).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [SCRATCH_MARK]);
        remove_scratch(&scratch, mark).unwrap();
        assert!(!scratch.exists() && work.path().exists());
    }

    #[test]
    fn the_scratch_folder_of_a_killed_run_makes_room() {
        let work = private_dir();
        let own = ProcessId::own();
        let dead = ProcessId { start_ticks: own.start_ticks + 1, ..own };
        let mark_of = |process: ProcessId| format!("LOADLAB_RUN=a/run/{}/1/{}", process.pid, tag(process));
        for (name, mark, is_left) in [
            ("dead", Some(mark_of(dead)), true),
            ("alive", Some(mark_of(own)), false),
            ("unknown", Some("LOADLAB_RUN=run/1/2".to_owned()), false),
            ("foreign", None, false),
        ] {
            let dir = work.path().join(name);
            fs::create_dir(&dir).unwrap();
            if let Some(mark) = &mark {
                mark_scratch(&dir, mark).unwrap();
            }
            for _ in 0..2 {
                remove_left(&dir, &work.path().join("no-states")).unwrap();
                assert_eq!(dir.exists(), !is_left, "{name}");
            }
        }
    }

    #[test]
    fn the_guardian_of_a_killed_run_finishes_first() {
        use std::process::{Command, Stdio};
        let work = private_dir();
        let dir = work.path().join("scratch");
        fs::create_dir(&dir).unwrap();
        // Like a guardian, it begins its work when its input ends, and then has something to do.
        let mut child =
            Command::new("sh").args(["-c", "cat; sleep 0.1"]).stdin(Stdio::piped()).spawn().unwrap();
        let guardian = ProcessId::of(child.id()).unwrap();
        let mut state = dead_run(work.path(), vec![Resource::Dir(dir.clone())]);
        state.guardian = Some(guardian);
        state.save().unwrap();
        assert_eq!(guardians_of(&dir, work.path()), [guardian]);
        assert_eq!(guardians_of(work.path(), work.path()), [], "it removes another folder");
        drop(child.stdin.take());
        remove_left(&dir, work.path()).unwrap();
        assert_eq!(guardians_of(&dir, work.path()), []);
        assert!(!guardian.is_alive() && dir.exists(), "it has no mark");
        child.wait().unwrap();
    }

    #[test]
    fn what_cannot_be_removed_can_be_forgotten() {
        let state_dir = private_dir();
        let socket = state_dir.path().join("no-engine.sock");
        let label = "loadlab.run=dead/1/2".to_owned();
        let state = dead_run(state_dir.path(), vec![Resource::Engine { socket, label }]);
        let unfinished = state.file.with_extension("json.new");
        fs::copy(&state.file, &unfinished).unwrap();

        let failed = |items: &[CleanedItem]| items.iter().filter(|i| i.result.is_err()).count();
        let items = clean(state_dir.path(), CLEAN).unwrap();
        assert_eq!((items.len(), failed(&items)), (3, 2), "{items:?}");
        assert!(state.file.exists() && !unfinished.exists());

        let forget = |dry_run| clean(state_dir.path(), Cleaning { dry_run, forget: true }).unwrap();
        assert_eq!((failed(&forget(true)), state.file.exists()), (1, true));
        assert_eq!((failed(&forget(false)), state.file.exists()), (1, false));
        assert_eq!(forget(false), []);
    }

    #[test]
    fn a_file_that_names_a_foreign_cgroup_does_no_harm() {
        let state_dir = private_dir();
        let victim = private_dir();
        fs::write(victim.path().join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        dead_run(state_dir.path(), vec![Resource::Cgroup(victim.path().to_owned())]);
        let items = clean(state_dir.path(), DRY).unwrap();
        assert!(items.iter().all(|i| i.what.starts_with("state file ")), "{items:?}");
    }

    #[test]
    fn an_unreadable_file_is_reported_and_left() {
        let state_dir = private_dir();
        fs::write(state_dir.path().join("x.json"), "{").unwrap();
        let items = clean(state_dir.path(), CLEAN).unwrap();
        assert!(items[0].result.as_ref().unwrap_err().starts_with("it cannot be read"), "{items:?}");
        assert_eq!(clean(&state_dir.path().join("none"), CLEAN).unwrap(), []);
    }
}
