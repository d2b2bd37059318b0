//! A program for another architecture, run under qemu's emulation. The emulator is unpacked, not installed.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::{answers_all, bench_args, server};
use crate::command::{captured, find, program};
use crate::dist::{QUICK, Release};
use crate::root::{files, target};
use crate::steps::Outcome;

/// Checks the program, if there is an emulator.
///
/// # Errors
/// The program does not start, or a request fails.
pub fn check(release: &Release) -> Outcome {
    let name = release.arch.name();
    let qemu = match emulator(name) {
        Ok(qemu) => qemu,
        Err(error) => return Ok(format!("{name} NOT RUN, since there is no emulator: {error}")),
    };
    let emulated = || {
        let mut command = program(&qemu);
        command.arg(release.program());
        command
    };
    let version = captured(emulated().arg("--version"), QUICK)?.ok("loadlab --version")?.stdout;
    ensure!(version.trim() == concat!("loadlab ", env!("CARGO_PKG_VERSION")), "--version prints {version}");
    let scratch = tempfile::tempdir()?;
    let server = server(scratch.path())?;
    for url in [format!("http://{}/128", server.address()), format!("https://{}/128", server.secure())] {
        answers_all(emulated().args(bench_args(&url)))?;
    }
    Ok(format!("{name} in qemu loads nginx by http and https"))
}

/// The installed emulator, or the one from Debian's package, unpacked below `target/`.
fn emulator(arch: &str) -> Result<PathBuf> {
    let (name, package) = (format!("qemu-{arch}-static"), "qemu-user-static");
    if let Some(found) = find(&name) {
        return Ok(found);
    }
    let dir = target().join("xtask/qemu");
    let own = dir.join("usr/bin").join(&name);
    if !own.is_file() {
        std::fs::create_dir_all(&dir)?;
        let download = ["download", "--quiet", package];
        captured(program("apt-get").args(download).current_dir(&dir), QUICK)?.ok("apt-get download")?;
        let deb = files(&dir)?.into_iter().find(|file| file.ends_with(".deb")).context("no package")?;
        captured(program("dpkg-deb").arg("-x").arg(dir.join(deb)).arg(&dir), QUICK)?.ok("dpkg-deb")?;
    }
    ensure!(own.is_file(), "{package} has no {name}");
    Ok(own)
}
