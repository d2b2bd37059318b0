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

/// The limit in the text of `/proc/PID/limits`; `None` if it has none.
pub fn parsed(limits: &str) -> Option<Rlimit> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    // `unlimited` is not a number.
    let mut numbers = line.split_ascii_whitespace().map(|number| number.parse().ok());
    Some(Rlimit { current: numbers.next()?, maximum: numbers.next()? })
}

/// Gives a process that was just started the original limit, unless it has ended.
pub fn give(pid: u32) {
    if let (Some(limit), Some(pid)) = (given(), Pid::from_raw(pid as i32)) {
        let _ = prlimit(Some(pid), Resource::Nofile, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_kernel_are_parsed() {
        let check = |line: &str, expect: Option<(Option<u64>, Option<u64>)>| {
            let head = "Limit                     Soft Limit           Hard Limit           Units     \n";
            let found = parsed(&format!("{head}{line}")).map(|limit| (limit.current, limit.maximum));
            assert_eq!(found, expect, "{line}");
        };
        let both = "Max open files            1024                 524288               files     \n";
        check(both, Some((Some(1024), Some(524_288))));
        let none = "Max open files            unlimited            unlimited            files     \n";
        check(none, Some((None, None)));
        check("Max open files\n", None);
        check("", None);
    }
}
