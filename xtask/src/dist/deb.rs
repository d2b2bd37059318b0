//! The Debian package. It is an `ar` archive of three files (deb(5)), so it can be built without Debian.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::build::Arch;
use super::{QUICK, Release, Stamp, archive};
use crate::command::{captured, program};

/// Where the package puts the files of the release folder: source and destination.
const PLACES: &[(&str, &str)] = &[
    ("loadlab", "usr/bin/loadlab"),
    ("README.md", "usr/share/doc/loadlab/README.md"),
    ("CHANGELOG.md", "usr/share/doc/loadlab/CHANGELOG.md"),
    ("THIRD-PARTY-NOTICES", "usr/share/doc/loadlab/THIRD-PARTY-NOTICES"),
    ("completions/loadlab", "usr/share/bash-completion/completions/loadlab"),
    ("completions/_loadlab", "usr/share/zsh/vendor-completions/_loadlab"),
    ("completions/loadlab.fish", "usr/share/fish/vendor_completions.d/loadlab.fish"),
];
const MAN: &str = "usr/share/man/man1";
const COPYRIGHT: &str = "usr/share/doc/loadlab/copyright";

/// Writes the package.
///
/// # Errors
/// A file is missing or cannot be written; `tar` or `gzip` fails.
pub fn write(release: &Release, version: &str, stamp: &Stamp) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let (data, control) = (scratch.path().join("data"), scratch.path().join("control"));
    lay_out(&release.folder, &data)?;
    fs::create_dir(&control)?;
    let (sums, installed_bytes) = sums(&data)?;
    fs::write(control.join("md5sums"), sums)?;
    fs::write(control.join("control"), control_file(version, release.arch, installed_bytes))?;
    let mut parts = vec![("debian-binary".to_owned(), b"2.0\n".to_vec())];
    for (name, from) in [("control", &control), ("data", &data)] {
        let packed = scratch.path().join(name).with_extension("tar.gz");
        archive::tar(from, &["."], &packed, stamp)?;
        parts.push((format!("{name}.tar.gz"), fs::read(packed)?));
    }
    Ok(fs::write(&release.deb, ar(&parts, stamp))?)
}

/// Copies the files to their places in the package.
fn lay_out(folder: &Path, data: &Path) -> Result<()> {
    let place = |to: &str| -> Result<PathBuf> {
        let to = data.join(to);
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        Ok(to)
    };
    for (from, to) in PLACES {
        fs::copy(folder.join(from), place(to)?).with_context(|| (*from).to_owned())?;
    }
    let mut copyright = "loadlab is licensed under either of the MIT licence or the Apache License, Version 2.0 \
                         (/usr/share/common-licenses/Apache-2.0),\nat your option. What it contains of others is in \
                         THIRD-PARTY-NOTICES, beside this file.\n\n"
        .to_owned();
    copyright.push_str(&fs::read_to_string(folder.join("LICENSE-MIT"))?);
    fs::write(place(COPYRIGHT)?, copyright)?;
    let pages = data.join(MAN);
    fs::create_dir_all(&pages)?;
    for entry in fs::read_dir(folder.join("man"))? {
        let to = pages.join(entry?.file_name());
        fs::copy(folder.join("man").join(to.file_name().context("a file has a name")?), &to)?;
        captured(program("gzip").arg("-n9").arg(&to), QUICK)?.ok("gzip")?;
    }
    Ok(())
}

/// A line for each file, as `md5sum` writes it, and the total size in bytes.
fn sums(data: &Path) -> Result<(String, u64)> {
    let (mut sums, mut bytes) = (String::new(), 0);
    for file in crate::root::files(data)? {
        bytes += data.join(&file).metadata()?.len();
        let ran = captured(program("md5sum").arg(&file).current_dir(data), QUICK)?.ok("md5sum")?;
        sums.push_str(&ran.stdout);
    }
    Ok((sums, bytes))
}

/// The package's metadata.
fn control_file(version: &str, arch: Arch, installed_bytes: u64) -> String {
    let mut text = String::new();
    for (key, value) in [
        ("Package", "loadlab"),
        ("Version", version),
        ("Architecture", arch.debian()),
        ("Maintainer", "the loadlab project <loadlab@localhost>"),
        ("Installed-Size", &installed_bytes.div_ceil(1024).to_string()),
        ("Recommends", "ca-certificates"),
        ("Section", "net"),
        ("Priority", "optional"),
        ("Description", "load tests of whole systems"),
    ] {
        let _ = writeln!(text, "{key}: {value}");
    }
    text + " One plan file describes a system, the load, what varies and what is expected.\n \
            loadlab starts the system, loads it, watches every component, and reports how\n \
            much load it takes, what saturates first, and whether a change helped.\n"
}

/// An `ar` archive: each file follows a header of sixty characters, and starts at an even offset.
fn ar(files: &[(String, Vec<u8>)], stamp: &Stamp) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, bytes) in files {
        let head = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", stamp.0, 0, 0, "100644", bytes.len());
        out.extend(head.as_bytes());
        out.extend(bytes);
        if out.len() % 2 == 1 {
            out.push(b'\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ar_has_heads_of_sixty_and_files_at_even_places() {
        let made = ar(&[("a".to_owned(), b"odd".to_vec()), ("b".to_owned(), vec![])], &Stamp("7".to_owned()));
        let head =
            |name: &str, size: &str| format!("{name:<16}7           0     0     100644  {size:<10}`\n");
        assert_eq!(
            String::from_utf8(made).unwrap(),
            format!("!<arch>\n{}odd\n{}", head("a", "3"), head("b", "0"))
        );
    }
}
