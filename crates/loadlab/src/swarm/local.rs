//! A swarm on this machine, to try swarms out: a NATS server in a dedicated folder, and agents as processes. All of it
//! ends with this process.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use loadlab_swarm::nats::Server;

/// Prefix of the folders' names; the id of the process that made the folder follows.
const FOLDER: &str = "loadlab-swarm-";
/// Deadline for the server to listen.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Longer than a run takes to lock the folder that it made.
const UNLOCKED: Duration = Duration::from_secs(60);
/// The file in a folder that its run holds a lock on.
const LOCK: &str = "lock";
/// How long agents have to exit once the run is over.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// The environment variable that hands the server's URL to agents: other users can see a command line.
pub const URL: &str = "LOADLAB_NATS";

/// A server and its agents.
pub struct LocalSwarm {
    dir: PathBuf,
    server: Child,
    agents: Vec<Child>,
    url: String,
    /// Held until the folder is removed.
    _lock: Option<File>,
}

impl LocalSwarm {
    /// Starts a server and this many agents, which follow only orders that are signed with this key.
    ///
    /// # Errors
    /// In words: what could not be started.
    pub fn start(agents: usize, public_key: &str) -> Result<LocalSwarm, String> {
        remove_left_behind();
        let name = format!("{FOLDER}{}-{:x}", std::process::id(), random());
        let dir = std::env::temp_dir().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|error| format!("cannot make the folder {}: {error}", dir.display()))?;
        // Some file systems have no locks.
        let lock = lock(&dir).ok();
        let (server, url) = match start_server(&dir) {
            Ok(started) => started,
            Err(why) => {
                let _ = std::fs::remove_dir_all(&dir);
                return Err(why);
            }
        };
        let mut swarm = LocalSwarm { dir, server, agents: Vec::new(), url, _lock: lock };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores / agents).max(1);
        for number in 1..=agents {
            let agent = swarm.agent(number, threads, public_key);
            let agent = agent.map_err(|error| format!("cannot start an agent: {error}"))?;
            swarm.agents.push(agent);
        }
        Ok(swarm)
    }

    /// How to reach the server.
    pub fn server(&self) -> Server {
        Server { url: self.url.clone(), name: "loadlab coordinator".to_owned(), ..Server::default() }
    }

    fn agent(&self, number: usize, threads: usize, public_key: &str) -> std::io::Result<Child> {
        let log = std::fs::File::create(self.dir.join(format!("agent-{number}.log")))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["agent", "--once", "--trust-plan", "--coordinator-key", public_key]);
        command.args(["--threads", &threads.to_string(), "--name", &format!("local-{number}")]);
        command.arg("--spool").arg(self.dir.join(format!("spool-{number}")));
        command.env(URL, &self.url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        ends_with_this(&mut command).spawn()
    }
}

impl Drop for LocalSwarm {
    fn drop(&mut self) {
        let until = Instant::now() + EXIT_TIMEOUT;
        for agent in &mut self.agents {
            while Instant::now() < until && matches!(agent.try_wait(), Ok(None)) {
                pause();
            }
            let _ = agent.kill();
            let _ = agent.wait();
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Marks a folder as used for as long as the file is open.
fn lock(dir: &Path) -> std::io::Result<File> {
    let file = File::create(dir.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

/// Whether the run of a folder has ended: it no longer holds the lock, and no process has its number. In another
/// container that shares the folder processes have other numbers.
fn is_left_behind(dir: &Path, pid: u32) -> bool {
    let is_free = || match File::open(dir.join(LOCK)) {
        Ok(file) => file.try_lock().is_ok(),
        // Its run is about to make the file, unless the folder is old.
        Err(error) => {
            error.kind() == std::io::ErrorKind::NotFound && age(dir).is_some_and(|age| age > UNLOCKED)
        }
    };
    !Path::new(&format!("/proc/{pid}")).exists() && is_free()
}

fn age(dir: &Path) -> Option<Duration> {
    dir.metadata().and_then(|found| found.modified()).ok()?.elapsed().ok()
}

/// Removes folders of runs that were killed: their servers and agents ended with them.
fn remove_left_behind() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.split('-').next());
        let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| is_left_behind(&entry.path(), pid)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Starts a server with streams on a free loopback port; a password keeps everyone else out.
fn start_server(dir: &Path) -> Result<(Child, String), String> {
    let token = format!("{:016x}{:016x}", random(), random());
    let config = dir.join("nats.conf");
    let written = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&config);
    let text = format!(
        "listen: 127.0.0.1:-1\nports_file_dir: \"{dir}\"\njetstream {{ store_dir: \"{dir}/streams\" }}\n\
         authorization {{ user: loadlab, password: \"{token}\" }}\n",
        dir = dir.display()
    );
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("cannot write {}: {error}", config.display()))?;
    let log = std::fs::File::create(dir.join("nats.log")).map_err(|error| error.to_string())?;
    let mut command = Command::new("nats-server");
    command.arg("-c").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut server = ends_with_this(&mut command).spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            "nats-server is not installed\nhint: on Debian and Ubuntu it is in the package nats-server"
                .to_owned()
        }
        _ => format!("cannot start nats-server: {error}"),
    })?;
    let until = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(port) = port_of(dir, server.id()) {
            return Ok((server, format!("nats://loadlab:{token}@127.0.0.1:{port}")));
        }
        let ended = server.try_wait().ok().flatten();
        if ended.is_some() || Instant::now() >= until {
            let _ = server.kill();
            let _ = server.wait();
            let log = std::fs::read_to_string(dir.join("nats.log")).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it printed nothing");
            return Err(format!("nats-server did not start listening: {last}"));
        }
        pause();
    }
}

/// The port in the ports file that a server has written.
fn port_of(dir: &Path, pid: u32) -> Option<u16> {
    let text = std::fs::read_to_string(dir.join(format!("nats-server_{pid}.ports"))).ok()?;
    let ports: serde_json::Value = serde_json::from_str(&text).ok()?;
    ports["nats"][0].as_str()?.rsplit_once(':')?.1.parse().ok()
}

/// Has the kernel kill the process when this one ends, for whatever reason. A terminal's Ctrl-C does not reach the
/// process: this one decides when a load ends, and collects what was sent.
#[expect(unsafe_code, reason = "prctl between fork and exec is safe to call")]
fn ends_with_this(command: &mut Command) -> &mut Command {
    let parent = rustix::process::getpid();
    command.process_group(0);
    // SAFETY: both calls are async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The parent may have ended before the signal was set.
            match rustix::process::getppid() == Some(parent) {
                true => Ok(()),
                false => Err(std::io::ErrorKind::Interrupted.into()),
            }
        })
    }
}

/// A number that nobody else has.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[expect(clippy::disallowed_methods, reason = "waits for another process, which gives no sign")]
fn pause() {
    std::thread::sleep(POLL_INTERVAL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_another_container_uses_is_not_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        // Above the largest number that a process can have.
        let nobody = 1 << 30;
        assert!(!is_left_behind(dir.path(), nobody), "not locked yet");
        let held = lock(dir.path()).unwrap();
        assert!(!is_left_behind(dir.path(), nobody));
        drop(held);
        // Never locked: a process that another test forks at this moment would keep a lock until it execs.
        let old = tempfile::tempdir().unwrap();
        File::create(old.path().join(LOCK)).unwrap();
        assert!(is_left_behind(old.path(), nobody));
        assert!(!is_left_behind(old.path(), std::process::id()));
    }
}
