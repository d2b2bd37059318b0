//! The Debian package: dpkg itself installs it into a separate root and removes it again.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::as_root;
use crate::command::captured;
use crate::dist::{QUICK, Release};
use crate::root::files;
use crate::steps::Outcome;

/// Files that must exist once the package is installed.
const INSTALLED: &[&str] = &[
    "usr/bin/loadlab",
    "usr/share/bash-completion/completions/loadlab",
    "usr/share/doc/loadlab/THIRD-PARTY-NOTICES",
    "usr/share/doc/loadlab/copyright",
    "usr/share/man/man1/loadlab.1.gz",
    "usr/share/man/man1/loadlab-bench.1.gz",
];

/// Checks the package.
///
/// # Errors
/// dpkg rejects the package, a file is missing, or one is left behind.
pub fn check(release: &Release) -> Outcome {
    let scratch = tempfile::tempdir()?;
    let root = scratch.path().join("root");
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    dpkg(&root, &["--install"], &release.deb)?;
    let installed = in_usr(&root)?;
    for file in INSTALLED {
        ensure!(installed.iter().any(|f| f == file), "{file} is not in {installed:?}");
    }
    dpkg(&root, &["--verify"], Path::new("loadlab"))?;
    let mut version = as_root("chroot");
    version.arg(&root).args(["/usr/bin/loadlab", "--version"]);
    captured(&mut version, QUICK)?.ok("the installed loadlab")?;
    dpkg(&root, &["--remove"], Path::new("loadlab"))?;
    let left = in_usr(&root)?;
    ensure!(left.is_empty(), "dpkg leaves behind {left:?}");
    Ok(format!("dpkg installs {} files and removes them", installed.len()))
}

/// Files below `usr` in a root.
fn in_usr(root: &Path) -> Result<Vec<String>> {
    Ok(files(root)?.into_iter().filter(|file| file.starts_with("usr/")).collect())
}

/// Runs dpkg in another root.
fn dpkg(root: &Path, action: &[&str], what: &Path) -> Result<()> {
    let mut command = as_root("dpkg");
    command.arg(format!("--root={}", root.display())).arg(format!("--log={}/log", root.display()));
    // No chroot for scripts: the package has none, so nothing has to be installed in the root to run them.
    command.arg("--force-script-chrootless").args(action).arg(what);
    let ran = captured(&mut command, QUICK)?.ok(&format!("dpkg {}", action.join(" ")))?;
    // `--verify` only prints its findings.
    ensure!(action != ["--verify"] || ran.stdout.is_empty(), "dpkg --verify: {}", ran.stdout);
    Ok(())
}
