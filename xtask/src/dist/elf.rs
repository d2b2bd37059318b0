//! Reads from a program's ELF header which machine it is for, and whether it needs a loader.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::build::Arch;

/// Type of the program header that names the loader; a static program has none.
const INTERPRETER: u32 = 3;
/// Offsets in a 64-bit ELF header: see elf(5).
const MACHINE_AT: usize = 18;
const HEADERS_AT: usize = 32;
const HEADER_SIZE_AT: usize = 54;

/// Ensures that a program is static and built for an architecture.
///
/// # Errors
/// The program is for another machine, or needs a loader.
pub fn ensure_static(file: &Path, arch: Arch) -> Result<()> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    check(&bytes, arch).with_context(|| file.display().to_string())
}

fn check(bytes: &[u8], arch: Arch) -> Result<()> {
    let number = |at: usize, size: usize| -> Result<u64> {
        let part = bytes.get(at..at.saturating_add(size)).context("it is cut off")?;
        Ok(part.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    // 64-bit, little-endian.
    ensure!(bytes.starts_with(b"\x7fELF\x02\x01"), "it is no ELF program of 64 bits");
    let machine = number(MACHINE_AT, 2)?;
    let expected = match arch {
        Arch::X86_64 => 62,
        Arch::Aarch64 => 183,
    };
    ensure!(machine == expected, "it is for machine {machine}, not for {} ({expected})", arch.name());
    let (first, size) = (number(HEADERS_AT, 8)?, number(HEADER_SIZE_AT, 2)?);
    let count = number(HEADER_SIZE_AT + 2, 2)?;
    ensure!(count > 0, "it has no program headers");
    for index in 0..count {
        let at = usize::try_from(first + index * size)?;
        ensure!(number(at, 4)? != u64::from(INTERPRETER), "it is not static: it names a loader");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header, followed by one program header of the given type.
    fn program(machine: u8, kind: u8) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(64 + 56, 0);
        for (at, value) in [(MACHINE_AT, machine), (HEADERS_AT, 64), (HEADER_SIZE_AT, 56)] {
            bytes[at] = value;
        }
        bytes[HEADER_SIZE_AT + 2] = 1;
        bytes[64] = kind;
        bytes
    }

    #[test]
    fn a_loader_and_another_machine_are_seen() {
        let said = |bytes: &[u8], arch| check(bytes, arch).map_err(|e| e.to_string());
        assert_eq!(said(&program(62, 1), Arch::X86_64), Ok(()));
        assert_eq!(said(&program(183, 1), Arch::Aarch64), Ok(()));
        assert!(said(&program(62, 1), Arch::Aarch64).unwrap_err().starts_with("it is for machine 62"));
        assert!(said(&program(62, 3), Arch::X86_64).unwrap_err().contains("names a loader"));
        assert_eq!(said(b"#!/bin/sh", Arch::X86_64), Err("it is no ELF program of 64 bits".to_owned()));
        assert_eq!(said(&program(62, 1)[..64], Arch::X86_64), Err("it is cut off".to_owned()));
    }
}
