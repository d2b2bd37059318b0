//! Limits on open files: of this process, and of the processes it starts.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// The limit this process started with, once it has raised its own.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit on open files as far as this process may without privileges: each connection needs a descriptor,
/// and the limit that shells set (often 1,024) would show up as failures of the system. Processes it starts get the
/// original limit, as if a shell had started them.
///
/// # Errors
/// The kernel's.
pub fn raise() -> io::Result<()> {
    let given = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: given.maximum, ..given })?;
    GIVEN.get_or_init(|| given);
    Ok(())
}

/// How many files this process may have open.
pub fn allowed() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The limit for started processes, if it differs from this process's.
pub fn given() -> Option<Rlimit> {
    GIVEN.get().map(|given| Rlimit { current: given.current, maximum: given.maximum })
}

/// Gives a process that was just started the original limit, unless it has ended.
pub fn give(pid: u32) {
    if let (Some(limit), Some(pid)) = (given(), Pid::from_raw(pid as i32)) {
        let _ = prlimit(Some(pid), Resource::Nofile, limit);
    }
}
