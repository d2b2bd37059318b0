//! What must not stay behind: unfinished code, tests that do not run or that sleep, traces of somebody's machine.

use anyhow::Result;

use super::{Findings, House};

/// Macros of unfinished code.
const UNFINISHED: &[&str] = &["dbg", "todo", "unimplemented"];

/// No unfinished code, no ignored test.
pub fn macros(house: &House, findings: &mut Findings) -> Result<()> {
    for source in &house.sources {
        findings.look();
        for name in UNFINISHED {
            for line in source.find_all(&[name, "!"]) {
                findings.breach(&source.path, line, format!("{name}!"));
            }
        }
        for line in source.find_all(&["#", "[", "ignore"]) {
            findings.breach(&source.path, line, "a test that does not run unasked");
        }
    }
    Ok(())
}

/// A test that sleeps is slow on a fast machine and fails on a slow one.
pub fn sleep(house: &House, findings: &mut Findings) -> Result<()> {
    for source in &house.sources {
        findings.look();
        let called = |n: &super::rust::Named| n.path == "sleep" || n.path.ends_with("::sleep");
        let paths = source.named().into_iter().filter(called).map(|n| n.line);
        let lines: Vec<_> = paths.filter(|line| source.in_test(*line)).collect();
        if !lines.is_empty() && !house.exceptions.allow("sleep", &source.path, lines.len()) {
            lines.iter().for_each(|line| findings.breach(&source.path, *line, "a test sleeps"));
        }
    }
    Ok(())
}

/// Where people and machines keep their work. In halves, so that this file does not name any.
fn machine_paths_to_find() -> [String; 4] {
    [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["/Use", "rs/"]].map(|halves| halves.concat())
}

/// No absolute path of somebody's machine, in any file. In `https://a.org/home/b` it is no such path.
pub fn machine_paths(house: &House, findings: &mut Findings) -> Result<()> {
    let needles = machine_paths_to_find();
    for (path, text) in &house.texts {
        findings.look();
        let mut found = Vec::new();
        for (i, line) in text.lines().enumerate() {
            for needle in &needles {
                let starts = line.match_indices(needle.as_str());
                let absolute =
                    |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}$~".contains(c));
                if starts.into_iter().any(|(at, _)| absolute(at)) {
                    found.push((i + 1, needle));
                }
            }
        }
        if !found.is_empty() && !house.exceptions.allow("machine-path", path, found.len()) {
            found
                .iter()
                .for_each(|(line, needle)| findings.breach(path, *line, format!("a path in {needle}")));
        }
    }
    Ok(())
}

/// The registry that everybody can reach.
const CRATES: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Lock files name packages and sums, not where one machine fetched them.
pub fn lock_files(house: &House, findings: &mut Findings) -> Result<()> {
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
            let elsewhere = line.starts_with("source = ") && line != format!("source = \"{CRATES}\"");
            let resolved =
                (line.contains("\"resolved\"") || line.starts_with("resolved ")) && line.contains("http");
            let tarball = line.contains("tarball: http");
            if elsewhere || resolved || tarball {
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
    fn unfinished_code_and_tests_that_do_not_run() {
        let check = |text: &str| {
            breaches_in("leftovers", &[("crates/a/tests/a.rs", &format!("//! A.\n{text}\n"))]).len()
        };
        assert_eq!(check("fn a() { \"todo!()\"; } // todo!()"), 0);
        assert_eq!(check(&format!("fn a() {{ {}!() }}", "todo")), 1);
        assert_eq!(check(&format!("fn a() {{ {}!(b) }}", "dbg")), 1);
        assert_eq!(check("#[test]\n#[ignore]\nfn a() {}"), 1);
        assert_eq!(check("#[test]\n#[ignore = \"slow\"]\nfn a() {}"), 1);
    }

    #[test]
    fn sleeping_tests() {
        let check =
            |path: &str, text: &str| breaches_in("sleep", &[(path, &format!("//! A.\n{text}\n"))]).len();
        assert_eq!(check("crates/a/src/a.rs", "fn a() { std::thread::sleep(b) }"), 0);
        assert_eq!(check("crates/a/tests/a.rs", "fn a() { std::thread::sleep(b) }"), 1);
        assert_eq!(check("crates/a/tests/a.rs", "fn a() { format!(\"thread::sleep(b)\") }"), 0);
        assert_eq!(check("crates/a/src/a.rs", "#[cfg(test)]\nmod tests { use std::thread::sleep; }"), 1);
        assert_eq!(
            check("crates/a/src/a.rs", "#[tokio::test]\nasync fn a() { tokio::time::sleep(b).await }"),
            1
        );
    }

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
        assert_eq!(check("Cargo.lock", &format!("source = \"{CRATES}\"\nchecksum = \"00\"")), 0);
        assert_eq!(check("labs/a/Cargo.lock", "source = \"registry+https://example.org/index\""), 1);
        assert_eq!(check("a/package-lock.json", "\"version\": \"1\",\n\"integrity\": \"sha512-x\""), 0);
        assert_eq!(check("a/package-lock.json", "\"resolved\": \"https://example.org/a.tgz\","), 1);
        assert_eq!(check("a/yarn.lock", "  resolved \"https://example.org/a.tgz\""), 1);
    }
}
