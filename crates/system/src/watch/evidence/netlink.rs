//! Dumps of the kernel's socket tables (`sock_diag` over netlink): requests, and iteration over the answers.
//!
//! One socket per network namespace serves all tables in turn. This module knows nothing of the meaning of a table's
//! rows.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `SOCK_DIAG_BY_FAMILY`.
pub(super) const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// Message types: end of a dump, and error (`NLMSG_DONE`, `NLMSG_ERROR`).
const DONE: u16 = 3;
pub(super) const ERROR: u16 = 2;
/// Length of `struct nlmsghdr`.
const HEAD: usize = 16;

/// A netlink socket of one network namespace.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// Sequence number of the dump: the rest of a failed dump must not be mistaken for the next one.
    number: u32,
}

impl Netlink {
    /// Opens a socket in this thread's namespace.
    ///
    /// # Errors
    /// No such socket can be created.
    #[expect(unsafe_code, reason = "netlink sockets have no other way in")]
    pub fn here() -> io::Result<Netlink> {
        // SAFETY: socket(2) takes numbers, and what it returns is ours alone.
        let fd = unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened and is owned by nothing else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Netlink { socket, buffer: vec![0; 64 << 10], number: 0 })
    }

    /// Opens a socket in a process's namespace: a separate thread enters it, opens the socket, and ends.
    ///
    /// # Errors
    /// The namespace may not be entered, or is gone.
    pub fn of_process(pid: u32) -> io::Result<Netlink> {
        in_namespace_of(pid, Netlink::here)
    }

    /// Requests a dump. `take` gets the rows of each answer in turn.
    ///
    /// # Errors
    /// The kernel does not answer, or refuses, perhaps because it has no such table.
    #[expect(unsafe_code, reason = "send and receive on a netlink socket")]
    pub fn dump(&mut self, body: &[u8], mut take: impl FnMut(Rows<'_>)) -> io::Result<()> {
        self.number = self.number.wrapping_add(1);
        let request = request(body, self.number);
        // SAFETY: the buffer is as long as stated.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        loop {
            // SAFETY: the kernel writes no more than the buffer's length.
            let got = unsafe {
                libc::recv(self.socket.as_raw_fd(), self.buffer.as_mut_ptr().cast(), self.buffer.len(), 0)
            };
            let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
            let answer = self.buffer.get(..got).unwrap_or_default();
            take(Rows { bytes: answer, number: self.number });
            if end(answer, self.number)? {
                return Ok(());
            }
        }
    }
}

/// Opens something in a process's network namespace: a separate thread enters it, opens it, and ends.
///
/// # Errors
/// The namespace may not be entered, or is gone.
pub(super) fn in_namespace_of<T: Send + 'static>(pid: u32, open: fn() -> io::Result<T>) -> io::Result<T> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    let there = move || -> io::Result<T> {
        #[expect(unsafe_code, reason = "a thread that ends at once enters the namespace")]
        // SAFETY: setns(2) changes this thread alone, which does nothing else afterwards.
        let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
        if entered != 0 {
            return Err(io::Error::last_os_error());
        }
        open()
    };
    let thread = std::thread::Builder::new().name("loadlab-netns".into()).spawn(there)?;
    thread.join().map_err(|_| io::Error::other("the thread that entered the namespace failed"))?
}

/// `struct nlmsghdr`, then the request.
fn request(body: &[u8], number: u32) -> Vec<u8> {
    let length = HEAD + body.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// Messages in one answer to a dump: type and body. Truncated messages are left out.
struct Messages<'a> {
    bytes: &'a [u8],
    number: u32,
}

impl<'a> Iterator for Messages<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        while !self.bytes.is_empty() {
            let length = u32_at(self.bytes, 0).unwrap_or(0) as usize;
            let message = self.bytes.get(..length).filter(|message| message.len() >= HEAD);
            let Some(message) = message else {
                // Truncated: end the dump here, or we would wait forever for the rest.
                self.bytes = &[];
                return Some((DONE, &[]));
            };
            let (kind, number) = (u16_at(message, 4)?, u32_at(message, 8)?);
            self.bytes = self.bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
            if number == self.number {
                return Some((kind, message.get(HEAD..).unwrap_or_default()));
            }
        }
        None
    }
}

/// Whether the dump ends with this answer.
fn end(answer: &[u8], number: u32) -> io::Result<bool> {
    for (kind, body) in (Messages { bytes: answer, number }) {
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = u32_at(body, 0).map_or(0, |n| n as i32);
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            _ => {}
        }
    }
    Ok(false)
}

/// Rows of a table, from one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    bytes: &'a [u8],
    number: u32,
}

impl<'a> Rows<'a> {
    /// Each socket's row, starting with its family.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let messages = Messages { bytes: self.bytes, number: self.number };
        messages.take_while(|(kind, _)| *kind != DONE).filter(|(kind, _)| *kind == BY_FAMILY).map(|m| m.1)
    }

    /// Rows from hand-made bytes.
    #[cfg(test)]
    pub fn of(bytes: &'a [u8]) -> Rows<'a> {
        Rows { bytes, number: 0 }
    }
}

/// Attributes after a row's header: type and value. Truncated ones are left out.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The 32-bit number at this offset, in native byte order.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The 16-bit number at this offset, in native byte order.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A message as the kernel writes it.
#[cfg(test)]
pub(super) fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut message = request(body, 0);
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_error_of_the_kernel_is_one() {
        let error = end(&message(ERROR, &(-libc::EPERM).to_ne_bytes()), 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn a_dump_ends_once_and_what_is_left_of_another_is_none_of_it() {
        let all = [message(BY_FAMILY, b"row."), message(DONE, &[]), message(BY_FAMILY, b"late")].concat();
        assert_eq!(Rows::of(&all).iter().collect::<Vec<_>>(), [b"row."]);
        assert!(end(&all, 0).unwrap());
        assert!(!end(&all, 1).unwrap());
        assert_eq!(Rows { bytes: &all, number: 1 }.iter().count(), 0);
        // Truncated within the second message.
        assert!(end(&all[..25], 0).unwrap());
    }

    #[test]
    fn attributes_are_walked_through() {
        let bytes = [5, 0, 1, 0, b'x', 0, 0, 0, 4, 0, 2, 0, 9, 0, 3, 0];
        assert_eq!(attributes(&bytes).collect::<Vec<_>>(), [(1, &b"x"[..]), (2, &[])]);
        // A length of zero would loop forever.
        assert_eq!(attributes(&[0; 8]).count(), 0);
    }

    proptest! {
        #[test]
        fn no_answer_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = end(&bytes, 0);
            let rows: usize = Rows::of(&bytes).iter().map(<[u8]>::len).sum();
            let values: usize = attributes(&bytes).map(|(_, value)| value.len()).sum();
            prop_assert!(rows <= bytes.len() && values <= bytes.len());
        }
    }
}
