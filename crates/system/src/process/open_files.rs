//! How many files this process may have open, and how many those that it starts.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What this process was given, once it has more.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// Takes as many open files as this process may have without asking anybody: each connection is one, and the limit that
/// shells set (often 1,024) would show as failures of the system. What it starts has the limit that was given, as if a
/// shell had started it.
///
/// # Errors
/// The kernel's.
pub fn raise() -> io::Result<()> {
    let given = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: given.maximum, ..given })?;
    GIVEN.get_or_init(|| given);
    Ok(())
}

/// How many this process may have.
pub fn allowed() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What processes that are started have, where it is not what this one has.
pub(crate) fn given() -> Option<Rlimit> {
    GIVEN.get().map(|given| Rlimit { current: given.current, maximum: given.maximum })
}
