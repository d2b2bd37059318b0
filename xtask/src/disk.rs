//! Room on the disk: a build that runs out of it fails in the middle, with the words of a linker.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::root::target;
use crate::steps::Outcome;

/// What all builds and runs of `cargo xtask test` take, from a clean checkout, bytes.
const NEEDED: u64 = 5_500_000_000;
/// What must be free even if most of that is there already, bytes.
const LEAST: u64 = 1_000_000_000;

/// Fails if too little is free where the target folder is, considering what that contains already.
pub fn step() -> Outcome {
    let dir = target();
    let existing = dir.ancestors().find(|dir| dir.exists()).context("no folder is there")?;
    let (free, used) = (free_bytes(existing)?, if dir.exists() { size_of(&dir) } else { 0 });
    let needed = NEEDED.saturating_sub(used).max(LEAST);
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    ensure!(
        free >= needed,
        "{:.1} GB are free at {}, and {:.1} GB are needed\nhint: `cargo clean`, or remove clones that are no longer used",
        gigabytes(free),
        existing.display(),
        gigabytes(needed)
    );
    Ok(format!("{:.1} GB free", gigabytes(free)))
}

/// Bytes that a folder's file system has for this user.
fn free_bytes(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir).with_context(|| dir.display().to_string())?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Bytes of the files below a folder, as far as they can be read.
fn size_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size_of(&entry.path()),
        _ => entry.metadata().map_or(0, |m| m.len()),
    };
    entries.map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("below")).unwrap();
        std::fs::write(dir.path().join("a"), [0; 10]).unwrap();
        std::fs::write(dir.path().join("below/b"), [0; 32]).unwrap();
        assert_eq!(size_of(dir.path()), 42);
        assert!(free_bytes(dir.path()).unwrap() > 0);
    }
}
