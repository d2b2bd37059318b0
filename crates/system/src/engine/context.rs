//! Packs a folder into a tar archive for the engine to build an image from, leaving out what `.dockerignore` names.
//!
//! Names longer than the header field go into the extended header that every tar reader knows. Files are owned by root,
//! as in the engines' own clients: the result must not depend on who builds.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const BLOCK: usize = 512;
const IGNORE: &str = ".dockerignore";

type Failed = (PathBuf, io::Error);

/// Writes the folder and returns the number of bytes written. The Dockerfile, given by its path in the folder, and
/// `.dockerignore` are always sent, whatever the rules say: the engine needs them, and leaves them out of the image
/// itself.
pub(super) fn write(dir: &Path, dockerfile: &str, into: &mut impl Write) -> Result<u64, Failed> {
    let path = dir.join(IGNORE);
    let mut rules = match fs::read_to_string(&path) {
        Ok(text) => Rules::parse(&text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Rules::default(),
        // Without its rules everything would be sent, secrets included.
        Err(e) => return Err((path, e)),
    };
    rules.needed = vec![IGNORE.to_owned(), parts_of(dockerfile).collect::<Vec<_>>().join("/")];
    let mut archive = Archive { into, bytes: 0 };
    add_dir(dir, "", &rules, &mut archive)?;
    let ended = archive.write(&[0u8; 2 * BLOCK]);
    ended.map_err(|e| (dir.to_owned(), e))?;
    Ok(archive.bytes)
}

fn add_dir(
    dir: &Path,
    below: &str,
    rules: &Rules,
    archive: &mut Archive<'_, impl Write>,
) -> Result<(), Failed> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |e| (path, e)
    };
    let mut entries: Vec<_> = fs::read_dir(dir).map_err(at(dir))?.flatten().collect();
    // The same folder gives the same archive, so the engine's cache hits.
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = match entry.file_name().into_string() {
            Ok(name) if below.is_empty() => name,
            Ok(name) => format!("{below}/{name}"),
            Err(_) => return Err((path, io::Error::other("its name is not UTF-8"))),
        };
        let found = fs::symlink_metadata(&path).map_err(at(&path))?;
        let is_left_out = rules.leave_out(&name);
        if found.is_dir() {
            if !is_left_out {
                archive.entry(&name, &found, b'5', 0).map_err(at(&path))?;
            }
            if !is_left_out || rules.may_want_from(&name) {
                add_dir(&path, &name, rules, archive)?;
            }
        } else if is_left_out {
        } else if found.is_symlink() {
            let target = fs::read_link(&path).map_err(at(&path))?;
            archive.link(&name, &target.to_string_lossy(), &found).map_err(at(&path))?;
        } else if found.is_file() {
            let file = File::open(&path).map_err(at(&path))?;
            archive.file(&name, file, &found).map_err(at(&path))?;
        }
    }
    Ok(())
}

struct Archive<'a, W> {
    into: &'a mut W,
    bytes: u64,
}

impl<W: Write> Archive<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.into.write_all(bytes)
    }

    fn pad(&mut self, written: u64) -> io::Result<()> {
        let over = (written % BLOCK as u64) as usize;
        if over == 0 { Ok(()) } else { self.write(&[0u8; BLOCK][over..]) }
    }

    fn file(&mut self, name: &str, file: File, found: &fs::Metadata) -> io::Result<()> {
        self.entry(name, found, b'0', found.len())?;
        // The header already states the length: exactly that many bytes must follow.
        let copied = io::copy(&mut file.take(found.len()), self.into)?;
        self.bytes += copied;
        if copied != found.len() {
            return Err(io::Error::other("it shrank while it was read"));
        }
        self.pad(copied)
    }

    fn link(&mut self, name: &str, target: &str, found: &fs::Metadata) -> io::Result<()> {
        self.extended(&[("path", name), ("linkpath", target)])?;
        let head = header(name, target, found.permissions().mode(), 0, b'2', found.mtime());
        self.write(&head)
    }

    fn entry(&mut self, name: &str, found: &fs::Metadata, kind: u8, bytes: u64) -> io::Result<()> {
        let name = if kind == b'5' { format!("{name}/") } else { name.to_owned() };
        self.extended(&[("path", &name)])?;
        let head = header(&name, "", found.permissions().mode(), bytes, kind, found.mtime());
        self.write(&head)
    }

    /// Records `LENGTH KEY=VALUE
    /// ` for values that do not fit their field; the length counts itself.
    fn extended(&mut self, pairs: &[(&str, &str)]) -> io::Result<()> {
        let mut text = String::new();
        for (key, value) in pairs.iter().filter(|(_, value)| value.len() > 99) {
            let rest = key.len() + value.len() + 3;
            let digits = (1usize..).find(|n| (rest + n).to_string().len() == *n).unwrap_or(1);
            text.push_str(&format!("{} {key}={value}\n", rest + digits));
        }
        if text.is_empty() {
            return Ok(());
        }
        self.write(&header("extended", "", 0o644, text.len() as u64, b'x', 0))?;
        self.write(text.as_bytes())?;
        self.pad(text.len() as u64)
    }
}

/// A header in the 1988 POSIX format (ustar).
fn header(name: &str, target: &str, mode: u32, bytes: u64, kind: u8, mtime_s: i64) -> [u8; BLOCK] {
    let mut head = [0u8; BLOCK];
    let mut put = |at: usize, text: &[u8]| head[at..at + text.len()].copy_from_slice(text);
    let cut = |text: &str| text.as_bytes()[..text.len().min(99)].to_vec();
    put(0, &cut(name));
    put(100, format!("{:07o}\0", mode & 0o7777).as_bytes());
    put(108, b"0000000\x000000000\0");
    // Octal digits do not suffice for eight gigabytes and more; tar readers then accept base 256.
    if bytes < 1 << 33 {
        put(124, format!("{bytes:011o}\0").as_bytes());
    } else {
        put(124, &[0x80]);
        put(128, &bytes.to_be_bytes());
    }
    put(136, format!("{:011o}\0", mtime_s.clamp(0, (1 << 33) - 1)).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &cut(target));
    put(257, b"ustar\x0000");
    let sum: u32 = head.iter().map(|b| u32::from(*b)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    head
}

/// The lines of `.dockerignore`; the last match decides.
#[derive(Default)]
struct Rules {
    lines: Vec<(bool, Vec<String>)>,
    has_exceptions: bool,
    /// Files that are always sent.
    needed: Vec<String>,
}

/// The path's components.
fn parts_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

impl Rules {
    fn parse(text: &str) -> Rules {
        let mut rules = Rules::default();
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let (keep, pattern) = match line.strip_prefix('!') {
                Some(pattern) => (true, pattern.trim()),
                None => (false, line),
            };
            rules.has_exceptions |= keep;
            rules.lines.push((keep, parts_of(pattern).map(str::to_owned).collect()));
        }
        rules
    }

    /// A pattern that matches a folder matches everything below it.
    fn leave_out(&self, name: &str) -> bool {
        if self.needed.iter().any(|needed| needed == name) {
            return false;
        }
        let parts: Vec<&str> = name.split('/').collect();
        let matches = |pattern: &[String]| (1..=parts.len()).any(|n| path_matches(pattern, &parts[..n]));
        self.lines.iter().rev().find(|(_, pattern)| matches(pattern)).is_some_and(|(keep, _)| !keep)
    }

    /// Whether something below an excluded folder may still be included by a later `!`.
    fn may_want_from(&self, folder: &str) -> bool {
        let is_below = |path: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        self.has_exceptions || self.needed.iter().any(|needed| is_below(needed))
    }
}

fn path_matches(pattern: &[String], parts: &[&str]) -> bool {
    match (pattern.split_first(), parts.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "**" => {
            (0..=parts.len()).any(|skipped| path_matches(rest, &parts[skipped..]))
        }
        (Some((first, rest)), Some((part, parts))) => {
            name_matches(first.as_bytes(), part.as_bytes()) && path_matches(rest, parts)
        }
        _ => false,
    }
}

/// `*` is any text, `?` one character.
fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.first(), name.first()) {
        (None, None) => true,
        (Some(b'*'), _) => (0..=name.len()).any(|n| name_matches(&pattern[1..], &name[n..])),
        (Some(b'?'), Some(_)) => name_matches(&pattern[1..], &name[1..]),
        (Some(p), Some(n)) if p == n => name_matches(&pattern[1..], &name[1..]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored() {
        let rules = Rules::parse("# no\n*.log\n/target\n**/cache\n!keep.log\nsub/*/x\n");
        for (name, expect) in [
            ("a.log", true),
            ("keep.log", false),
            ("sub/a.log", false),
            ("target", true),
            ("target/debug/a", true),
            ("sub/target", false),
            ("cache", true),
            ("a/b/cache/c", true),
            ("sub/y/x", true),
            ("sub/x", false),
            ("Dockerfile", false),
        ] {
            assert_eq!(rules.leave_out(name), expect, "{name}");
        }
    }

    #[test]
    fn the_archive_is_one_that_tar_reads() {
        let dir = tempfile::tempdir().unwrap();
        let long = "a-folder-with-a-name-of-some-length/".repeat(4);
        let folder = dir.path().join("context").join(&long);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), b"deep").unwrap();
        fs::write(dir.path().join("context/run"), vec![7u8; 1000]).unwrap();
        fs::write(dir.path().join("context/secret"), b"x").unwrap();
        fs::write(dir.path().join("context/.dockerignore"), "secret\n").unwrap();
        fs::set_permissions(dir.path().join("context/run"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("run", dir.path().join("context/link")).unwrap();
        let mut bytes = Vec::new();
        let length = write(&dir.path().join("context"), "Dockerfile", &mut bytes).unwrap();
        assert_eq!((length, length % 512), (bytes.len() as u64, 0));
        let archive = dir.path().join("a.tar");
        fs::write(&archive, &bytes).unwrap();
        let out = dir.path().join("out");
        fs::create_dir(&out).unwrap();
        let status =
            std::process::Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&out).status().unwrap();
        assert!(status.success());
        assert_eq!(fs::read(out.join(&long).join("file")).unwrap(), b"deep");
        assert_eq!(fs::read(out.join("link")).unwrap(), vec![7u8; 1000]);
        assert_eq!(fs::metadata(out.join("run")).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(!out.join("secret").exists() && out.join(".dockerignore").exists());
    }
    /// The names of files in an archive of small ones.
    fn files_in(archive: &[u8]) -> Vec<String> {
        let heads = archive.chunks(BLOCK).filter(|block| &block[257..262] == b"ustar" && block[156] == b'0');
        let name = |block: &[u8]| String::from_utf8_lossy(&block[..100]).trim_end_matches('\0').to_owned();
        heads.map(name).collect()
    }

    #[test]
    fn what_the_engine_needs_is_sent_whatever_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["Dockerfile", "docker/Dockerfile", "docker/secret", "src/main", "secret"] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"x").unwrap();
        }
        for (ignored, dockerfile, expect) in [
            ("*\n!src\n", "Dockerfile", vec![".dockerignore", "Dockerfile", "src/main"]),
            ("*\n", "./docker/Dockerfile", vec![".dockerignore", "docker/Dockerfile"]),
            (
                "Dockerfile\n.dockerignore\ndocker\nsrc\n",
                "Dockerfile",
                vec![".dockerignore", "Dockerfile", "secret"],
            ),
        ] {
            fs::write(dir.path().join(IGNORE), ignored).unwrap();
            let mut bytes = Vec::new();
            write(dir.path(), dockerfile, &mut bytes).unwrap();
            assert_eq!(files_in(&bytes), expect, "{ignored:?}");
        }
    }

    #[test]
    fn rules_that_cannot_be_read_send_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), b"x").unwrap();
        let path = dir.path().join(IGNORE);
        let failed = || write(dir.path(), "Dockerfile", &mut Vec::new()).unwrap_err();
        fs::write(&path, b"secret\n\xff\n").unwrap();
        assert_eq!((failed().0, failed().1.kind()), (path.clone(), io::ErrorKind::InvalidData));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(failed().0, path);
    }
}
