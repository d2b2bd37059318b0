//! Who waits for whom: sockets and threads of every component, read many times a second and added up to one line of
//! evidence about once a second.
//!
//! [`sockets`] reads the kernel's table of sockets and attributes both ends to components; [`packets`] times some
//! exchanges exactly where the kernel's clock is too coarse; [`threads`] says what threads do and wait for.

pub(crate) mod packets;
pub(crate) mod sockets;
#[cfg_attr(not(test), expect(dead_code, reason = "wired in with the evidence thread"))]
pub(crate) mod threads;

/// The processes of a component, as the watcher saw them last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    /// Its name.
    pub component: String,
    /// Its processes.
    pub pids: Vec<u32>,
}
