//! The servers of planted systems, built with their languages' own tools and only standard libraries: C, Go, Rust. Node
//! and Python need no build. A missing program is an error: no system is ever skipped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use crate::command::{captured, find, program};
use crate::lab;
use crate::packages::{FOR_PLANTED, ready};
use crate::root::{root, target};

/// Folder of sources and plans.
pub fn sources() -> PathBuf {
    root().join("xtask/planted")
}

/// Folder of built programs and of records.
pub fn out() -> PathBuf {
    target().join("xtask/planted")
}

/// Builds all servers. Returns a search path that finds them.
///
/// # Errors
/// A program is missing, or a server does not build.
pub fn build() -> Result<OsString> {
    ready(FOR_PLANTED, false)?;
    let bin = out().join("bin");
    fs::create_dir_all(&bin).with_context(|| bin.display().to_string())?;
    let from = |file: &str| sources().join(file);
    let cc = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"];
    run("cc", &cc, &from("tier.c"), &bin.join("tier-c"))?;
    run("rustc", &["-O", "--edition", "2024"], &from("tier.rs"), &bin.join("tier-rust"))?;
    for name in ["tier", "balance", "names"] {
        run("go", &["build"], &from(&format!("{name}.go")), &bin.join(format!("{name}-go")))?;
    }
    on_path(bin)
}

/// Builds the server whose capacity is planted. Returns a search path that finds it.
///
/// # Errors
/// As for [`build`].
pub fn build_capacity() -> Result<OsString> {
    ready(FOR_PLANTED, false)?;
    let bin = out().join("bin");
    fs::create_dir_all(&bin).with_context(|| bin.display().to_string())?;
    run("go", &["build"], &sources().join("capacities/server.go"), &bin.join("capacity-go"))?;
    on_path(bin)
}

/// Builds the server whose pool can be changed. Returns a search path that finds it and the other servers.
///
/// # Errors
/// As for [`build`].
pub fn build_levers() -> Result<OsString> {
    let bin = out().join("bin");
    fs::create_dir_all(&bin).with_context(|| bin.display().to_string())?;
    run("go", &["build"], &sources().join("levers/pool.go"), &bin.join("pool-go"))?;
    on_path(bin)
}

/// Builds the services with a planted hot function. Returns a search path that finds them.
///
/// # Errors
/// As for [`build`].
pub fn build_hot() -> Result<OsString> {
    let bin = out().join("bin");
    fs::create_dir_all(&bin).with_context(|| bin.display().to_string())?;
    let from = |file: &str| sources().join("profiles").join(file);
    let cc = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"];
    run("cc", &cc, &from("hot.c"), &bin.join("hot-c"))?;
    // The C library has no frame pointers: its callers are found through the frames of their own callers.
    let with_frames = [cc.as_slice(), &["-fno-omit-frame-pointer"]].concat();
    run("cc", &with_frames, &from("wait.c"), &bin.join("wait-c"))?;
    run("rustc", &["-O", "--edition", "2024"], &from("hot.rs"), &bin.join("hot-rust"))?;
    run("go", &["build"], &from("hot.go"), &bin.join("hot-go"))?;
    on_path(bin)
}

fn on_path(bin: PathBuf) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths([bin].into_iter().chain(env::split_paths(&path)))?)
}

/// Builds servers that need no other file, for an image that contains nothing else.
///
/// # Errors
/// A server does not build.
pub fn static_servers(to: &Path) -> Result<()> {
    let cc = ["-O2", "-static", "-pthread"];
    run("cc", &cc, &sources().join("tier.c"), &to.join("tier-c"))?;
    run("go", &["build"], &sources().join("tier.go"), &to.join("tier-go"))
}

/// Compiles one file into a program.
fn run(compiler: &str, options: &[&str], from: &Path, to: &Path) -> Result<()> {
    ensure!(find(compiler).is_some(), "{compiler} is not installed");
    let mut command = program(compiler);
    // Download nothing: neither a toolchain nor a module.
    command.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").env("GOFLAGS", "").env("CGO_ENABLED", "0");
    command.args(options).arg("-o").arg(to).arg(from);
    captured(&mut command, crate::command::LONGEST)?.ok(&format!("{compiler} {}", from.display()))?;
    Ok(())
}

/// The given loadlab, or the release build.
///
/// # Errors
/// The program does not exist, or does not build.
pub fn loadlab(other: Option<&Path>) -> Result<PathBuf> {
    if let Some(file) = other {
        return file.canonicalize().with_context(|| file.display().to_string());
    }
    lab::built()
}
