//! A separate network namespace for a test.

/// Moves this thread, and everything it starts from here on, into a network namespace with nothing but loopback. False
/// if this user is not permitted to; root is.
#[expect(unsafe_code, reason = "unshare")]
pub fn own() -> bool {
    // SAFETY: unshare takes a number and moves this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        assert!(!rustix::process::geteuid().is_root(), "root may make a network namespace");
        return false;
    }
    let done = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(done.is_ok_and(|s| s.success()), "`ip link set lo up` failed");
    true
}
