//! Tests that cannot run everywhere. A skipped test says so; where skipping is forbidden it fails.

#![expect(clippy::print_stderr, reason = "a test that is left out says so")]
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};

/// Set by `cargo xtask test --install`: a machine that has every missing package installed has no reason to skip a
/// test.
const NOTHING: &str = "LOADLAB_LEAVE_NO_TEST_OUT";

/// Prints why a test cannot run here, or fails if no test may be skipped.
#[track_caller]
pub fn skip(why: &str) {
    assert!(std::env::var_os(NOTHING).is_none(), "left out, which {NOTHING} forbids: {why}");
    eprintln!("skipped: {why}");
}

/// Skips a test because this host provides no limits. Fails if this user can create a cgroup with limits, since there
/// is then no reason to skip.
#[track_caller]
pub fn skip_for_limits(why: &str) {
    let are_given = CONTROLLERS.iter().all(|files| is_given(files));
    assert!(!are_given, "left out, though this user can make cgroups with limits: {why}");
    skip(why);
}

/// The files by which each controller limits a group, in v2 and in v1.
const CONTROLLERS: [[&str; 2]; 3] =
    [["cpu.max", "cpu.cfs_quota_us"], ["memory.max", "memory.limit_in_bytes"], ["pids.max", "pids.max"]];

/// Whether a group created here has one of these files, in any hierarchy.
fn is_given(files: &[&str]) -> bool {
    let root = PathBuf::from("/sys/fs/cgroup");
    let below = std::fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path());
    // Each test has its own thread, so the name is unique.
    let name = format!("loadlab-skip-{}-{:?}", std::process::id(), std::thread::current().id());
    let mut hierarchies = std::iter::once(root).chain(below);
    hierarchies.any(|dir| dir.join("cgroup.procs").exists() && has_limit(&dir.join(&name), files))
}

fn has_limit(group: &Path, files: &[&str]) -> bool {
    let has = std::fs::create_dir(group).is_ok() && files.iter().any(|file| group.join(file).exists());
    // If the group was not created, there is nothing to remove.
    let _ = std::fs::remove_dir(group);
    has
}
