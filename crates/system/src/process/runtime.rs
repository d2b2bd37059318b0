//! Runtimes with their own scheduler: their threads do not show what their work waits for.
//!
//! A cheap check of the program, not proof: a packed or renamed program is not recognised.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// A runtime that hides what its work waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// Goroutines on a few threads.
    Go,
    /// Callbacks on one thread.
    Node,
}

impl Runtime {
    /// Recognises a process by its program; needs the right to inspect it.
    pub fn of_program(pid: u32) -> Option<Runtime> {
        let path = format!("/proc/{pid}/exe");
        let target = fs::read_link(&path).ok()?;
        let name = target.file_name()?.to_string_lossy();
        if matches!(name.trim_end_matches(" (deleted)"), "node" | "nodejs") {
            return Some(Runtime::Node);
        }
        has_section(&File::open(&path).ok()?, ".go.buildinfo").then_some(Runtime::Go)
    }

    /// Recognises a thread by the name that the runtime gives it.
    pub fn of_thread(name: &str) -> Option<Runtime> {
        // Names are cut at 15 bytes: `DelayedTaskScheduler`.
        matches!(name, "node" | "libuv-worker" | "DelayedTaskSche").then_some(Runtime::Node)
    }
}

/// The most that is read of a section name table; those of large programs take a few hundred bytes.
const NAMES_MAX_BYTES: usize = 64 * 1024;

/// Whether a 64-bit little-endian ELF file has a section of this name. Three short reads, whatever the file's size.
fn has_section(file: &File, name: &str) -> bool {
    let find = || {
        let mut head = [0; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        // Magic, class 64-bit, little-endian.
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let half = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (entry_bytes, names_index) = (half(0x3a), half(0x3e));
        let headers_at = word(&head, 0x28)?;
        let mut section = [0; 64];
        let section_at = headers_at.checked_add(entry_bytes * names_index)?;
        file.read_exact_at(&mut section, section_at).ok()?;
        let (names_at, length) = (word(&section, 0x18)?, word(&section, 0x20)?);
        let mut names = vec![0; usize::try_from(length).ok()?.min(NAMES_MAX_BYTES)];
        file.read_exact_at(&mut names, names_at).ok()?;
        Some(names.split(|b| *b == 0).any(|known| known == name.as_bytes()))
    };
    find().unwrap_or(false)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// An ELF file with two section headers, the second of which holds the names.
    fn program(names: &[u8]) -> File {
        let mut bytes = vec![0; 64 * 3];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[0x28..0x30].copy_from_slice(&64u64.to_le_bytes());
        bytes[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
        bytes[0x3e..0x40].copy_from_slice(&1u16.to_le_bytes());
        bytes[128 + 0x18..128 + 0x20].copy_from_slice(&192u64.to_le_bytes());
        bytes[128 + 0x20..128 + 0x28].copy_from_slice(&(names.len() as u64).to_le_bytes());
        bytes.extend_from_slice(names);
        file(&bytes)
    }

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn go_is_recognised_by_a_section() {
        let check = |file: File, expect: bool| assert_eq!(has_section(&file, ".go.buildinfo"), expect);
        check(program(b"\0.text\0.go.buildinfo\0.data\0"), true);
        check(program(b"\0.text\0.go.buildinfo.x\0x.go.buildinfo\0"), false);
        check(program(b""), false);
        check(file(b""), false);
        check(file(b"#!/bin/sh\n"), false);
        // Offsets beyond the end of the file, and beyond any file.
        let mut wild = vec![0xff; 64];
        wild[..6].copy_from_slice(b"\x7fELF\x02\x01");
        check(file(&wild), false);
        check(File::open("/proc/self/exe").unwrap(), false);
        assert!(has_section(&File::open("/proc/self/exe").unwrap(), ".text"));
    }

    #[test]
    fn node_is_recognised_by_the_names_of_threads() {
        assert_eq!(Runtime::of_thread("libuv-worker"), Some(Runtime::Node));
        assert_eq!(Runtime::of_thread("DelayedTaskSche"), Some(Runtime::Node));
        assert_eq!(Runtime::of_thread("worker"), None);
        assert_eq!(Runtime::of_program(std::process::id()), None);
    }
}
