//! What must not be left behind: traces of a developer's machine and of private registries.

use anyhow::Result;

use super::{Findings, House};
use crate::licences::CRATES_IO;

/// Prefixes of common home and work folders. Written in halves, so that this file does not contain any.
fn machine_paths_to_find() -> [String; 4] {
    [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["/Use", "rs/"]].map(|halves| halves.concat())
}

/// No file contains an absolute path from a developer's machine. A path within a URL, as in `https://a.org/home/b`,
/// does not count.
pub fn machine_paths(house: &House, findings: &mut Findings) -> Result<()> {
    let needles = machine_paths_to_find();
    for (path, text) in &house.texts {
        findings.look();
        for (i, line) in text.lines().enumerate() {
            for needle in &needles {
                let starts = line.match_indices(needle.as_str());
                let absolute =
                    |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}$~".contains(c));
                if starts.into_iter().any(|(at, _)| absolute(at)) {
                    findings.breach(path, i + 1, format!("a path in {needle}"));
                }
            }
        }
    }
    Ok(())
}

/// Lock files name packages and checksums, not where a particular machine fetched them; those of Cargo name crates.io.
/// `licences` sees only the packages of the platform that loadlab is built for; a lock file has those of all.
pub fn lock_files(house: &House, findings: &mut Findings) -> Result<()> {
    let crates_io = format!("source = \"{CRATES_IO}\"");
    for (path, text) in &house.texts {
        let name = path.rsplit('/').next().unwrap_or(path);
        if !matches!(
            name,
            "Cargo.lock" | "package-lock.json" | "npm-shrinkwrap.json" | "yarn.lock" | "pnpm-lock.yaml"
        ) {
            continue;
        }
        findings.look();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            let is_elsewhere = line.starts_with("source = ") && line != crates_io;
            let resolved =
                (line.contains("\"resolved\"") || line.starts_with("resolved ")) && line.contains("http");
            let tarball = line.contains("tarball: http");
            if is_elsewhere || resolved || tarball {
                findings.breach(path, i + 1, line);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::breaches_in;
    use super::*;

    #[test]
    fn traces_of_a_machine() {
        let [work, root, home, users] = machine_paths_to_find();
        let check = |text: &str| breaches_in("machine-path", &[("docs/a.md", text)]).len();
        for path in [&work, &root, &users] {
            assert_eq!(check(&format!("see {path}main/src")), 1, "{path}");
        }
        assert_eq!(check(&format!("\"{home}somebody\" and `{root}x`\n{work}a")), 3);
        assert_eq!(check(&format!("https://example.org{home}page and ./a{work}b, ~{root}a, $DIR{work}")), 0);
    }

    #[test]
    fn lock_files_of_everybody() {
        let check = |name: &str, text: &str| breaches_in("lock-files", &[(name, text)]).len();
        assert_eq!(check("Cargo.lock", &format!("source = \"{CRATES_IO}\"\nchecksum = \"00\"")), 0);
        assert_eq!(check("labs/a/Cargo.lock", "source = \"registry+https://example.org/index\""), 1);
        assert_eq!(check("a/package-lock.json", "\"version\": \"1\",\n\"integrity\": \"sha512-x\""), 0);
        assert_eq!(check("a/package-lock.json", "\"resolved\": \"https://example.org/a.tgz\","), 1);
        assert_eq!(check("a/yarn.lock", "  resolved \"https://example.org/a.tgz\""), 1);
    }
}
