//! How every Rust file begins, which files a visitor finds at the root, and that every test file is compiled.

use anyhow::Result;

use super::imports::TABLE;
use super::{Findings, House};

/// Files that a visitor looks for at the root.
const AT_ROOT: &[&str] =
    &["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];
/// The minimum length of a file that counts as written, in bytes.
const NOT_EMPTY: usize = 200;

/// Every Rust file opens with a module comment that starts on the first line: what it is, why, and what it must not do.
pub fn opening(house: &House, findings: &mut Findings) -> Result<()> {
    for source in &house.sources {
        findings.look();
        let first = source.text.lines().next().unwrap_or_default();
        let words = first.strip_prefix("//!").is_some_and(|words| !words.trim().is_empty());
        if !words {
            findings.breach(&source.path, 1, "does not open with `//!` and a sentence");
        }
    }
    Ok(())
}

/// The files at the root exist, and the map of the code names every crate.
pub fn root(house: &House, findings: &mut Findings) -> Result<()> {
    for name in AT_ROOT {
        findings.look();
        match house.texts.get(*name) {
            None => findings.breach(name, 0, "is missing"),
            Some(text) if text.len() < NOT_EMPTY => findings.breach(name, 0, "is hardly more than a heading"),
            Some(_) => {}
        }
    }
    if !house.paths.iter().any(|path| path.starts_with("docs/") && path.ends_with(".md")) {
        findings.breach("docs", 0, "there is no book");
    }
    let map = house.texts.get("ARCHITECTURE.md").map_or("", String::as_str);
    for (name, _) in TABLE {
        if !map.contains(&format!("`{name}`")) && !map.contains(&format!("crates/{name}")) {
            findings.breach("ARCHITECTURE.md", 0, format!("does not name `{name}`"));
        }
    }
    Ok(())
}

/// A crate whose tests are one program lists them in `tests/all.rs`: an unlisted file is never compiled.
pub fn tests(house: &House, findings: &mut Findings) -> Result<()> {
    for path in &house.paths {
        let parts: Vec<_> = path.split('/').collect();
        let ["crates", name, "tests", file] = parts.as_slice() else { continue };
        let text = |file: &str| house.texts.get(&format!("crates/{name}/{file}")).map_or("", String::as_str);
        let (manifest, list) = (text("Cargo.toml"), text("tests/all.rs"));
        let Some(module) = file.strip_suffix(".rs").filter(|_| manifest.contains("autotests = false")) else {
            continue;
        };
        findings.look();
        let is_program = manifest.contains(&format!("[[test]]\nname = \"{module}\"\n"));
        if !is_program && !list.lines().any(|line| line == format!("mod {module};")) {
            findings.breach(path, 0, "is neither a module of `tests/all.rs` nor a `[[test]]`");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::breaches_in;

    #[test]
    fn a_file_says_what_it_is() {
        let check = |text: &str| breaches_in("opening", &[("crates/a/tests/a.rs", text)]).len();
        assert_eq!(check("//! Tests of a.\n"), 0);
        assert_eq!(check("//!\n//! Tests of a.\n"), 1);
        assert_eq!(check("// Tests of a.\n"), 1);
        assert_eq!(check("use std::fs;\n"), 1);
    }

    #[test]
    fn every_file_of_tests_is_compiled() {
        let check = |manifest: &str, list: &str| {
            let files = [
                ("crates/a/Cargo.toml", manifest),
                ("crates/a/tests/all.rs", list),
                ("crates/a/tests/b.rs", "//! B."),
            ];
            breaches_in("tests", &files)
        };
        let all = "autotests = false\n[[test]]\nname = \"all\"\n";
        assert!(check(all, "//! All.\nmod b;\n").is_empty());
        assert!(check(&format!("{all}[[test]]\nname = \"b\"\n"), "//! All.\n").is_empty());
        let expect = ["crates/a/tests/b.rs: is neither a module of `tests/all.rs` nor a `[[test]]`"];
        assert_eq!(check(all, "//! All.\nmod bb;\n"), expect);
    }

    #[test]
    fn the_root_is_furnished_and_the_map_whole() {
        let long = "words ".repeat(50);
        let map = format!(
            "{long} `record` `plan` `load` crates/system `run` `swarm` `analysis` `report` `loadlab` `benches` `shop` xtask/"
        );
        let files = |map| {
            vec![
                ("ARCHITECTURE.md", map),
                ("CHANGELOG.md", long.as_str()),
                ("CONTRIBUTING.md", &long),
                ("LICENSE-APACHE", &long),
                ("LICENSE-MIT", &long),
                ("README.md", &long),
                ("docs/plan.md", &long),
            ]
        };
        assert_eq!(breaches_in("root-files", &files(&map)), ["ARCHITECTURE.md: does not name `xtask`"]);
        let whole = format!("{map} `xtask`");
        assert!(breaches_in("root-files", &files(&whole)).is_empty());
        let found = breaches_in("root-files", &files(&whole)[1..6]);
        assert_eq!(&found[..2], ["ARCHITECTURE.md: is missing", "docs: there is no book"]);
    }
}
