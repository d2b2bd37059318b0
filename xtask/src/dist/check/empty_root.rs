//! The program alone in an empty root: no C library, no loader, no certificates, no `/proc`, no `/tmp`.

use std::fs;

use anyhow::{Result, ensure};

use super::{answers_all, as_root, bench_args, server};
use crate::command::{captured, program};
use crate::dist::{QUICK, Release, elf};
use crate::steps::Outcome;

/// Checks the program.
///
/// # Errors
/// The program is not static, does not start there, or a request fails.
pub fn check(release: &Release) -> Outcome {
    elf::ensure_static(&release.program(), release.arch)?;
    let empty = tempfile::tempdir()?;
    // Copied by another process: a child that this one starts meanwhile would have the copy open for writing, and a
    // program that somebody writes to cannot be started.
    captured(program("cp").arg(release.program()).arg(empty.path().join("loadlab")), QUICK)?.ok("cp")?;
    let alone = || {
        let mut command = as_root("chroot");
        command.arg(empty.path()).arg("/loadlab");
        command
    };
    let version = captured(alone().arg("--version"), QUICK)?.ok("loadlab --version")?.stdout;
    ensure!(version.trim() == concat!("loadlab ", env!("CARGO_PKG_VERSION")), "--version prints {version}");
    let scratch = tempfile::tempdir()?;
    let server = server(scratch.path())?;
    for url in [format!("http://{}/128", server.address()), format!("https://{}/128", server.secure())] {
        answers_all(alone().args(bench_args(&url)))?;
    }
    let left: Vec<_> = fs::read_dir(empty.path())?.collect::<Result<_, _>>()?;
    ensure!(left.len() == 1, "it leaves something behind: {left:?}");
    Ok("starts in an empty root, and loads nginx by http and https".to_owned())
}
