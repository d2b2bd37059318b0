//! The rules that neither rustc nor clippy can check (theirs are in the root's Cargo.toml and clippy.toml), as tests:
//! each checks all files that it concerns, reports every violation, and fails if it finds nothing to check. No rule has
//! exceptions.
//!
//! Rust is parsed, never searched as text. Nothing here needs git or a network.

mod book;
mod circles;
mod evidence;
mod files;
mod imports;
mod leftovers;
mod links;
mod rust;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use crate::root;
use crate::steps::Outcome;
pub use links::normal;
use rust::Source;

/// The book's table of contents.
pub const CONTENTS: &str = "docs/SUMMARY.md";

/// Every file of the repository, read once.
pub struct House {
    /// Paths of all files, relative to the repository.
    pub paths: BTreeSet<String>,
    /// Contents of the files that are text, by path.
    pub texts: BTreeMap<String, String>,
    /// The files that are Rust, parsed.
    pub sources: Vec<Source>,
}

/// What a rule found.
#[derive(Default)]
pub struct Findings {
    /// Number of things checked.
    looked_at: usize,
    /// Violations, as `path:line: what`.
    breaches: Vec<String>,
}

impl Findings {
    /// Counts one more thing as checked.
    pub fn look(&mut self) {
        self.looked_at += 1;
    }

    /// Records a violation.
    pub fn breach(&mut self, at: &str, line: usize, what: impl AsRef<str>) {
        let place = if line == 0 { at.to_owned() } else { format!("{at}:{line}") };
        self.breaches.push(format!("{place}: {}", what.as_ref()));
    }
}

/// A rule: its name, its statement, and its check.
pub struct Rule {
    /// Its name, in one word.
    pub name: &'static str,
    /// Its statement, in one sentence.
    pub says: &'static str,
    /// Checks the repository.
    pub check: fn(&House, &mut Findings) -> Result<()>,
}

/// All rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "imports",
        says: "crates import one another only as the table allows",
        check: imports::check,
    },
    Rule {
        name: "circles",
        says: "modules side by side do not import one another in a circle",
        check: circles::check,
    },
    Rule { name: "opening", says: "a Rust file opens with `//!`", check: files::opening },
    Rule { name: "tests", says: "every file of tests is compiled", check: files::tests },
    Rule {
        name: "machine-path",
        says: "no absolute path of a developer's machine",
        check: leftovers::machine_paths,
    },
    Rule {
        name: "lock-files",
        says: "lock files name no registry but crates.io",
        check: leftovers::lock_files,
    },
    Rule { name: "root-files", says: "what a visitor looks for is there", check: files::root },
    Rule { name: "book", says: "the book's contents name every page", check: book::contents },
    Rule { name: "commands", says: "commands in Markdown are run, or say why not", check: book::commands },
    Rule { name: "links", says: "relative links lead somewhere", check: links::check },
    Rule { name: "code-paths", says: "code that pages name is there", check: links::code_paths },
    Rule {
        name: "figures",
        says: "tables of figures are made from what was measured",
        check: evidence::check,
    },
    Rule { name: "words", says: "the field's words, no idiom of our own", check: words::check },
];

impl House {
    /// Reads the repository.
    ///
    /// # Errors
    /// A file cannot be read, or is not Rust despite its name.
    pub fn read(root: &Path) -> Result<House> {
        let paths = root::files(root)?;
        let mut texts = BTreeMap::new();
        for path in &paths {
            let bytes = fs::read(root.join(path)).with_context(|| path.clone())?;
            // Files that are not text are pictures and the like.
            if let Ok(text) = String::from_utf8(bytes) {
                texts.insert(path.clone(), text);
            }
        }
        House::of(paths, texts)
    }

    fn of(paths: BTreeSet<String>, texts: BTreeMap<String, String>) -> Result<House> {
        let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let mut sources = rust.map(|(path, text)| Source::parse(path, text)).collect::<Result<Vec<_>>>()?;
        rust::mark_test_files(&mut sources);
        Ok(House { paths, texts, sources })
    }

    /// Markdown files. Those of tests are snapshots of the program's output, not part of the book.
    pub fn pages(&self) -> impl Iterator<Item = (&String, &String)> {
        self.texts.iter().filter(|(path, _)| path.ends_with(".md") && !path.contains("/tests/"))
    }

    /// Rust files of crates, xtask and the labs' services that are built into programs.
    pub fn shipped(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|s| !s.is_test && is_shipped(&s.path))
    }

    /// Violations of a rule.
    fn breaches(&self, rule: &Rule) -> Result<Vec<String>> {
        let mut findings = Findings::default();
        (rule.check)(self, &mut findings)?;
        ensure!(findings.looked_at > 0, "{}: there was nothing to look at", rule.name);
        Ok(findings.breaches)
    }
}

fn is_shipped(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    matches!(
        parts.as_slice(),
        ["crates", _, "src", ..] | ["benches" | "xtask", "src", ..] | ["labs", _, "service", "src", ..]
    )
}

/// `cargo xtask house`.
///
/// # Errors
/// The repository cannot be read.
pub fn run() -> Result<ExitCode> {
    match step() {
        Ok(found) => {
            println!("{found}");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            println!("{error:#}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Checks all rules, as a step.
///
/// # Errors
/// Every violation, by rule.
pub fn step() -> Outcome {
    let house = House::read(&root::root())?;
    let mut lines = Vec::new();
    let mut count = 0;
    for rule in RULES {
        let breaches = match house.breaches(rule) {
            Ok(breaches) => breaches,
            Err(error) => vec![format!("{error:#}")],
        };
        if !breaches.is_empty() {
            count += breaches.len();
            lines.push(format!("{}: {}\n  {}", rule.name, rule.says, breaches.join("\n  ")));
        }
    }
    if count > 0 {
        bail!("{count} breaches\n{}", lines.join("\n"));
    }
    Ok(format!("{} rules, {} Rust files, {} texts", RULES.len(), house.sources.len(), house.texts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Violations of one rule in a repository of the given files.
    pub fn breaches_in(rule: &str, files: &[(&str, &str)]) -> Vec<String> {
        let texts: BTreeMap<_, _> = files.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect();
        let house = House::of(texts.keys().cloned().collect(), texts).unwrap();
        let rule = RULES.iter().find(|r| r.name == rule).unwrap();
        house.breaches(rule).unwrap()
    }

    /// Checks the repository itself. A single test, so that the repository is read once; its message lists every
    /// violation.
    #[test]
    fn the_house_keeps_its_rules() {
        if let Err(error) = step() {
            panic!("{error:#}");
        }
    }

    #[test]
    fn a_rule_that_looks_at_nothing_fails() {
        let house = House::of(BTreeSet::new(), BTreeMap::new()).unwrap();
        for rule in RULES.iter().filter(|r| r.name != "imports") {
            let result = house.breaches(rule);
            assert!(!matches!(&result, Ok(none) if none.is_empty()), "{}", rule.name);
        }
    }
}
