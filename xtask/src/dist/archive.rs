//! The folder that a user unpacks: the program, documents, and files for shells and `man`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{QUICK, Stamp};
use crate::command::{captured, program};
use crate::root::root;

/// Files of the repository that are copied unchanged.
const FILES: &[&str] = &[
    "README.md",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "crates/loadlab/THIRD-PARTY-NOTICES",
    "packaging/Dockerfile",
];
/// Shells, and the name of the file in which each looks for completions.
pub const SHELLS: &[(&str, &str)] = &[("bash", "loadlab"), ("zsh", "_loadlab"), ("fish", "loadlab.fish")];
/// What a man page begins with, before its title.
const PAGE_BEGIN: &str = ".ie \\n(.g .ds Aq";

/// Creates the folder. The program `runs_here` writes completions and man pages.
///
/// # Errors
/// A file is missing or cannot be written, or the program writes none of its pages.
pub fn lay_out(folder: &Path, built: &Path, runs_here: &Path) -> Result<()> {
    for part in ["completions", "man"] {
        fs::create_dir_all(folder.join(part))?;
    }
    fs::copy(built, folder.join("loadlab")).with_context(|| built.display().to_string())?;
    for file in FILES {
        let from = root().join(file);
        let name = from.file_name().context("a file has a name")?;
        let to = folder.join(name);
        fs::copy(&from, &to).with_context(|| (*file).to_owned())?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o644))?;
    }
    let said = |args: &[&str]| -> Result<String> {
        let ran = captured(program(runs_here).args(args), QUICK)?.ok("loadlab")?;
        ensure!(!ran.stdout.is_empty(), "loadlab {} prints nothing", args.join(" "));
        Ok(ran.stdout)
    };
    for (shell, file) in SHELLS {
        fs::write(folder.join("completions").join(file), said(&["completions", shell])?)?;
    }
    let pages = man_pages(&said(&["man"])?)?;
    for (name, page) in &pages {
        fs::write(folder.join("man").join(format!("{name}.1")), page)?;
    }
    Ok(())
}

/// Packs the folder into an archive next to it.
///
/// # Errors
/// `tar` fails.
pub fn pack(folder: &Path, archive: &Path, stamp: &Stamp) -> Result<()> {
    let (dir, name) = (folder.parent().context("a folder's folder")?, folder.file_name());
    let name = name.context("a folder has a name")?.display().to_string();
    tar(dir, &[&name], archive, stamp)
}

/// Packs parts of a folder reproducibly: the same files give the same bytes.
///
/// # Errors
/// `tar` fails.
pub fn tar(dir: &Path, parts: &[&str], archive: &Path, stamp: &Stamp) -> Result<()> {
    let mut command = program("tar");
    command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=rX,u+rw"]);
    command.arg(format!("--mtime=@{}", stamp.0)).args(["--use-compress-program", "gzip -n9"]);
    command.arg("--create").arg("--file").arg(archive).arg("--directory").arg(dir).args(parts);
    captured(&mut command, QUICK)?.ok("tar")?;
    Ok(())
}

/// Splits a stream of man pages; each page gets the name in its title.
fn man_pages(stream: &str) -> Result<Vec<(String, String)>> {
    let mut pages: Vec<(String, String)> = Vec::new();
    for part in stream.split(PAGE_BEGIN).skip(1) {
        let title = part.lines().find_map(|line| line.strip_prefix(".TH "));
        let name = title.and_then(|t| t.split_whitespace().next()).context("a man page has no title")?;
        let name = name.trim_matches('"').to_lowercase();
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        ensure!(is_name, "a man page is titled {name}");
        pages.push((name, format!("{PAGE_BEGIN}{part}")));
    }
    ensure!(pages.len() > 1, "{} man pages", pages.len());
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_man_pages_is_split() {
        let page =
            |name: &str| format!("{PAGE_BEGIN} '\n.el .ds Aq '\n.TH {name} 1  \"{name} \" \n.SH NAME\n");
        let pages = man_pages(&format!("{}{}", page("loadlab"), page("loadlab-run"))).unwrap();
        assert_eq!(
            pages,
            [("loadlab".to_owned(), page("loadlab")), ("loadlab-run".to_owned(), page("loadlab-run"))]
        );
        assert!(man_pages("nothing").is_err());
        assert!(man_pages(&format!("{}{}", page("a"), page("../b"))).is_err());
    }
}
