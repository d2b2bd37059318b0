//! Something that is already running: found and watched, but never started or stopped.
//!
//! A process is found by its pid or its command and watched with its descendants, or by its control group; a container
//! by its name. Metrics it reports over a Prometheus endpoint become samples as well: see [`crate::watch::scrape`].

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::target::{GoneAt, Target, are_there};
use crate::clock;
use crate::engine::container::address_in;
use crate::engine::{Call, Engine, EngineError, encoded};
use crate::error::{Error, Result};
use crate::process::{self, ProcessId};

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// How something ended that others started.
const GONE: &str = "it no longer runs";
const MADE_ANEW: &str = "its control group was removed and made anew";

/// How to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalSelector {
    /// By its pid.
    Pid(u32),
    /// By its program, or the beginning of its command line.
    Command(String),
    /// By its control group, a path below the cgroup root.
    Cgroup(String),
    /// By a container's name or id.
    Container(String),
}

/// A process, control group or container that was found.
#[derive(Clone, Debug)]
pub struct External {
    name: String,
    kind: ExternalKind,
}

#[derive(Clone, Debug)]
enum ExternalKind {
    Process(ProcessId),
    Container(ProcessId, Option<IpAddr>),
    Groups(Vec<PathBuf>, GoneAt),
}

impl External {
    /// Finds it.
    ///
    /// # Errors
    /// It does not exist, or is ambiguous.
    pub fn find(name: &str, seek: &ExternalSelector, engine: Option<&str>) -> Result<External> {
        let not =
            |what: String, hint: &'static str| Error::NotThere { component: name.to_owned(), what, hint };
        let kind = match seek {
            ExternalSelector::Pid(pid) => {
                let stat = process::stat(*pid).filter(|s| !s.is_dead());
                let hint = "name a running process: `ps -e` lists them";
                let stat = stat.ok_or_else(|| not(format!("no process has the pid {pid}"), hint))?;
                ExternalKind::Process(ProcessId { pid: *pid, start_ticks: stat.start_ticks })
            }
            ExternalSelector::Command(command) => {
                ExternalKind::Process(by_command(command).map_err(|why| {
                    not(why, "give more of its command line (`ps -eo pid,args`), or its pid")
                })?)
            }
            ExternalSelector::Cgroup(path) => {
                let dirs = groups_at(Path::new(CGROUPS), path);
                let hint = "give a path below /sys/fs/cgroup, such as `system.slice/nginx.service`";
                if dirs.is_empty() {
                    return Err(not(format!("there is no control group `{path}`"), hint));
                }
                ExternalKind::Groups(dirs, GoneAt::default())
            }
            ExternalSelector::Container(id) => {
                let failed = |source| Error::of_container(name, source);
                let (process, address) = by_container(id, engine).map_err(failed)?.ok_or_else(|| {
                    let hint = "`docker ps` lists running containers";
                    not(format!("no container `{id}` is running"), hint)
                })?;
                ExternalKind::Container(process, address)
            }
        };
        Ok(External { name: name.to_owned(), kind })
    }

    /// Its component name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of a container, where its engine gives it one.
    pub fn address(&self) -> Option<IpAddr> {
        match &self.kind {
            ExternalKind::Container(_, address) => *address,
            ExternalKind::Process(_) | ExternalKind::Groups(..) => None,
        }
    }

    /// What the watcher should read for it.
    pub fn target(&self) -> Target {
        match &self.kind {
            ExternalKind::Process(id) => Target::process_tree(&self.name, *id),
            ExternalKind::Container(id, _) => {
                Target::cgroup_of(&self.name, id.pid).unwrap_or_else(|| Target::process_tree(&self.name, *id))
            }
            ExternalKind::Groups(dirs, gone_at) => {
                // Groups that were made anew before this are not watched yet.
                gone_at.store(0, Ordering::Relaxed);
                Target::groups(&self.name, dirs, gone_at.clone())
            }
        }
    }

    /// Whether it has ended: when that was noticed, in nanoseconds of [`clock::now_ns`], and how. Control groups have
    /// ended, too, if they were removed while they were watched and made anew: so did everything in them.
    pub fn ended(&self) -> Option<(u64, &'static str)> {
        let is_there = match &self.kind {
            ExternalKind::Process(id) | ExternalKind::Container(id, _) => id.is_alive(),
            ExternalKind::Groups(dirs, gone_at) => {
                let is_there = are_there(dirs);
                let at_ns = gone_at.load(Ordering::Relaxed);
                if at_ns > 0 {
                    return Some((at_ns, if is_there { MADE_ANEW } else { GONE }));
                }
                is_there
            }
        };
        (!is_there).then(|| (clock::now_ns(), GONE))
    }
}

/// The one process running this command that was not started by another such process.
fn by_command(command: &str) -> std::result::Result<ProcessId, String> {
    let own = std::process::id();
    let all = process::snapshot();
    let is_it = |pid: u32| {
        let line = process::command_line(pid);
        let program = line.split(' ').next().and_then(|p| p.rsplit('/').next()).unwrap_or_default();
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        program == command || comm.trim() == command || (command.contains(' ') && line.starts_with(command))
    };
    let found: Vec<_> = all.iter().filter(|s| !s.is_dead() && s.pid != own && is_it(s.pid)).collect();
    let roots: Vec<_> = found.iter().filter(|s| !found.iter().any(|f| f.pid == s.parent)).collect();
    match roots.as_slice() {
        [] => Err(format!("no process runs `{command}`")),
        [one] => Ok(ProcessId { pid: one.pid, start_ticks: one.start_ticks }),
        several => {
            let pids: Vec<String> = several.iter().take(10).map(|s| s.pid.to_string()).collect();
            Err(format!("{} processes run `{command}`: {}", several.len(), pids.join(", ")))
        }
    }
}

/// The group of this path in every hierarchy that has it. Nothing outside the hierarchies is inspected.
fn groups_at(root: &Path, path: &str) -> Vec<PathBuf> {
    let relative = path.trim_start_matches("/sys/fs/cgroup").trim_start_matches('/');
    if relative.is_empty() || relative.split('/').any(|part| part == "..") {
        return Vec::new();
    }
    let has_group = |dir: &PathBuf| dir.join("cgroup.procs").exists();
    let below = std::fs::read_dir(root).into_iter().flatten().flatten();
    let hierarchies = below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path());
    let mut dirs: Vec<PathBuf> = hierarchies.map(|h| h.join(relative)).filter(has_group).collect();
    // With v2 alone, the root is the hierarchy.
    dirs.extend(Some(root.join(relative)).filter(has_group));
    dirs.sort();
    dirs.dedup();
    dirs
}

fn by_container(
    id: &str,
    engine: Option<&str>,
) -> std::result::Result<Option<(ProcessId, Option<IpAddr>)>, EngineError> {
    let engine = Engine::connect(engine)?;
    let path = format!("/containers/{}/json", encoded(id));
    let answer = engine.call(Call::new("inspect a container", "GET", path))?;
    let pid = answer.body["State"]["Pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let stat = pid.filter(|pid| *pid > 0).and_then(process::stat);
    let id = |s: process::Stat| ProcessId { pid: s.pid, start_ticks: s.start_ticks };
    Ok(stat.map(|stat| (id(stat), address_in(&answer.body))))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    fn find(seek: ExternalSelector) -> Result<External> {
        External::find("db", &seek, None)
    }

    #[test]
    fn what_is_not_there_is_reported() {
        insta::assert_snapshot!(find(ExternalSelector::Pid(u32::MAX - 1)).unwrap_err(), @r"
        component `db`: no process has the pid 4294967294
        hint: name a running process: `ps -e` lists them
        ");
        insta::assert_snapshot!(find(ExternalSelector::Command("no-such-program-here".into())).unwrap_err(), @r"
        component `db`: no process runs `no-such-program-here`
        hint: give more of its command line (`ps -eo pid,args`), or its pid
        ");
        insta::assert_snapshot!(find(ExternalSelector::Cgroup("../../etc".into())).unwrap_err(), @r"
        component `db`: there is no control group `../../etc`
        hint: give a path below /sys/fs/cgroup, such as `system.slice/nginx.service`
        ");
    }

    #[test]
    fn a_process_is_watched_until_it_is_gone() {
        // The child prints first: a newly started process has no command line until its program is loaded.
        let mut child = Command::new("sh")
            .args(["-c", "echo here; read -r _", "watched-7777"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let by_pid = find(ExternalSelector::Pid(child.id())).unwrap();
        let by_command =
            find(ExternalSelector::Command("sh -c echo here; read -r _ watched-7777".into())).unwrap();
        for external in [&by_pid, &by_command] {
            let sample = external.target().read_now().unwrap();
            assert_eq!((sample.component.as_str(), sample.pids), ("db", Some(1)));
            assert_eq!(external.ended(), None);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(by_pid.ended().is_some() && by_command.ended().is_some());
        assert!(by_pid.target().read_now().is_none());
    }

    #[test]
    fn a_group_that_is_made_anew_has_ended_and_is_read_on() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a.slice");
        let list = dir.join("cgroup.procs");
        let make = || {
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(&list, format!("{}\n", std::process::id())).unwrap();
        };
        make();
        let kind = ExternalKind::Groups(vec![dir.clone()], GoneAt::default());
        let external = External { name: "site".to_owned(), kind };
        let mut target = external.target();
        let processes = |target: &mut Target| target.read_now().map(|sample| sample.processes);
        assert_eq!(processes(&mut target), Some(Some(1)));
        assert_eq!(external.ended(), None);
        // Files of a removed group cannot be read any more, as little as this text.
        std::fs::write(&list, b"\xff").unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(processes(&mut target), None);
        let (at_ns, how) = external.ended().unwrap();
        assert!(at_ns > 0 && how == GONE, "{how}");
        make();
        assert_eq!(processes(&mut target), Some(Some(1)));
        assert_eq!(external.ended(), Some((at_ns, MADE_ANEW)));
        // The next trial watches the new one.
        assert!(external.target().read_now().is_some());
        assert_eq!(external.ended(), None);
    }

    #[test]
    fn groups_that_are_made_anew_begin_to_count_anew() {
        let root = tempfile::tempdir().unwrap();
        let dirs = ["blkio/a.slice", "systemd/a.slice"].map(|dir| root.path().join(dir));
        let [counts, list] = &dirs;
        let make = |dir: &PathBuf, pid: &str, bytes: u64| {
            std::fs::create_dir_all(dir).unwrap();
            std::fs::write(dir.join("cgroup.procs"), pid).unwrap();
            let line = format!("8:0 Read {bytes}\n8:0 Write 0\n");
            std::fs::write(dir.join("blkio.throttle.io_service_bytes"), line).unwrap();
        };
        let remove = |dir: &PathBuf| {
            // A file of a removed group cannot be read, as little as this text.
            std::fs::write(dir.join("cgroup.procs"), b"\xff").unwrap();
            std::fs::remove_dir_all(dir).unwrap();
        };
        let pid = std::process::id().to_string();
        make(counts, &pid, 1 << 40);
        make(list, &pid, 0);
        std::fs::remove_file(list.join("blkio.throttle.io_service_bytes")).unwrap();
        let kind = ExternalKind::Groups(dirs.to_vec(), GoneAt::default());
        let external = External { name: "site".to_owned(), kind };
        let mut target = external.target();
        let mut read = || target.read_now().map(|sample| sample.block_read_bytes);
        assert_eq!(read(), Some(Some(1 << 40)));
        // The folder of one hierarchy stays, but the processes are gone.
        remove(list);
        assert_eq!(read(), None);
        assert_eq!(external.ended().map(|(_, how)| how), Some(GONE));
        make(counts, &pid, 5);
        make(list, &pid, 0);
        std::fs::remove_file(list.join("blkio.throttle.io_service_bytes")).unwrap();
        assert_eq!(read(), Some(Some(5)));
        assert_eq!(external.ended().map(|(_, how)| how), Some(MADE_ANEW));
        // One that does not come back is not waited for.
        remove(list);
        remove(counts);
        assert_eq!(read(), None);
        make(list, &pid, 7);
        assert_eq!([read(), read()], [None, None]);
        assert_eq!(read(), Some(Some(7)));
    }

    #[test]
    fn a_group_is_found_in_each_hierarchy() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["cpu/a.slice/b", "memory/a.slice/b", "memory/c"] {
            std::fs::create_dir_all(root.path().join(dir)).unwrap();
            std::fs::write(root.path().join(dir).join("cgroup.procs"), "").unwrap();
        }
        let found = groups_at(root.path(), "/a.slice/b");
        assert_eq!(found, [root.path().join("cpu/a.slice/b"), root.path().join("memory/a.slice/b")]);
        assert!(groups_at(root.path(), "/").is_empty() && groups_at(root.path(), "x/..").is_empty());
    }
}
