//! Licences and sources of all dependencies, checked quickly: what Cargo knows of each package is compared with the
//! list in `xtask/deny.toml`. `cargo xtask long` also checks the licence texts, with cargo-deny.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::command::cargo;
use crate::root::{labs, root};
use crate::steps::Outcome;

/// cargo-deny's configuration, with the list of licences.
pub const CONFIG: &str = "xtask/deny.toml";
/// The only source a package may have, besides this repository.
pub const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// The platform loadlab is built for.
pub const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Manifests of all workspaces (ours, fuzz, the labs' services), relative to the repository.
///
/// # Errors
/// The labs cannot be read.
pub fn workspaces() -> Result<Vec<String>> {
    let mut manifests = vec!["Cargo.toml".to_owned(), "fuzz/Cargo.toml".to_owned()];
    for lab in labs().context("cannot read labs/")? {
        let manifest = lab.join("service/Cargo.toml");
        if manifest.is_file() {
            manifests.push(manifest.strip_prefix(root()).unwrap_or(&manifest).display().to_string());
        }
    }
    Ok(manifests)
}

/// All packages of a workspace and their dependencies, as `cargo metadata` reports them.
///
/// # Errors
/// Cargo fails, or a lock file is out of date.
pub fn metadata(manifest: &str) -> Result<Value> {
    let args = ["metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM];
    // Run directly: the output is too long for a pipe, and not worth showing.
    let output = cargo(&args).args(["--manifest-path", manifest]).output().context("cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata of {manifest}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("cargo metadata of {manifest}"))
}

/// Step of `cargo xtask test`.
///
/// # Errors
/// Lists each package that is not allowed, and why.
pub fn step() -> Outcome {
    let config = fs::read_to_string(root().join(CONFIG)).context(CONFIG)?;
    let allowed = allowed(&config)?;
    let (mut looked_at, mut wrong) = (BTreeSet::new(), BTreeSet::new());
    for manifest in workspaces()? {
        let metadata = metadata(&manifest)?;
        for package in metadata["packages"].as_array().context("no packages")? {
            let name = format!("{} {}", text(package, "name"), text(package, "version"));
            if let Err(why) = check(package, &allowed) {
                wrong.insert(format!("{manifest}: {name}: {why}"));
            }
            looked_at.insert(name);
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
    }
    Ok(format!("{} packages", looked_at.len()))
}

fn check(package: &Value, allowed: &[String]) -> Result<(), String> {
    match package["source"].as_str() {
        None | Some(CRATES_IO) => {}
        Some(other) => return Err(format!("it comes from {other}")),
    }
    match package["license"].as_str() {
        None => Err("it names no licence".to_owned()),
        Some(expression) => match is_allowed(expression, allowed) {
            Some(true) => Ok(()),
            Some(false) => Err(format!("`{expression}` is not in the list of {CONFIG}")),
            None => Err(format!("`{expression}` is no expression of licences")),
        },
    }
}

/// A text of a JSON object; empty if missing.
pub fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// The list `allow` in the section `licenses`.
fn allowed(config: &str) -> Result<Vec<String>> {
    let section =
        config.split("\n[").find(|s| s.starts_with("licenses]")).context("no section [licenses]")?;
    let list = section.split_once("\nallow = [").context("no list `allow`")?.1;
    let list = list.split_once(']').context("`allow` has no end")?.0;
    let names: Vec<String> = list.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    ensure!(!names.is_empty(), "`allow` is empty");
    Ok(names)
}

/// Whether licences of the list satisfy an SPDX expression; `None` if the expression is invalid. `/` is an old form of
/// OR.
fn is_allowed(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let met = chain(&mut rest, allowed, false)?;
    rest.is_empty().then_some(met)
}

/// Parses alternatives or, one level `down`, licences that are needed together.
fn chain(rest: &mut &[&str], allowed: &[String], down: bool) -> Option<bool> {
    let next = |rest: &mut &[&str]| if down { one(rest, allowed) } else { chain(rest, allowed, true) };
    let mut met = next(rest)?;
    while let Some((word, more)) =
        rest.split_first().filter(|(word, _)| **word == if down { "AND" } else { "OR" })
    {
        *rest = more;
        // Both sides must be parsed, whatever the first one's result.
        let other = next(rest)?;
        met = if *word == "AND" { met & other } else { met | other };
    }
    Some(met)
}

fn one(rest: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let (first, more) = rest.split_first()?;
    *rest = more;
    match *first {
        "(" => {
            let met = chain(rest, allowed, false)?;
            let (")", more) = rest.split_first().map(|(word, more)| (*word, more))? else { return None };
            *rest = more;
            Some(met)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        name => {
            let mut name = name.to_owned();
            if let ["WITH", exception, more @ ..] = *rest {
                name = format!("{name} WITH {exception}");
                *rest = more;
            }
            Some(allowed.contains(&name))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_are_met_by_one_alternative() {
        let allowed: Vec<String> = ["MIT", "ISC", "BSD-3-Clause"].map(str::to_owned).into();
        for (expression, expect) in [
            ("MIT", Some(true)),
            ("Apache-2.0", Some(false)),
            ("MIT OR Apache-2.0", Some(true)),
            ("MIT/Apache-2.0", Some(true)),
            ("MIT AND Apache-2.0", Some(false)),
            ("ISC AND (Apache-2.0 OR MIT)", Some(true)),
            ("(Apache-2.0 OR GPL-3.0) AND BSD-3-Clause", Some(false)),
            ("Apache-2.0 WITH LLVM-exception OR MIT", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
            // AND binds tighter than OR.
            ("MIT OR Apache-2.0 AND GPL-3.0", Some(true)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT ISC", None),
        ] {
            assert_eq!(is_allowed(expression, &allowed), expect, "{expression}");
        }
    }

    #[test]
    fn packages_come_from_here_or_crates_io_and_name_a_licence() {
        let allowed = vec!["MIT".to_owned()];
        let is_good = |source: Value, license: Value| {
            check(&json!({ "source": source, "license": license }), &allowed).is_ok()
        };
        assert!(is_good(Value::Null, "MIT".into()));
        assert!(is_good(CRATES_IO.into(), "MIT".into()));
        assert!(!is_good("git+https://github.com/x/y#1".into(), "MIT".into()));
        assert!(!is_good("registry+https://elsewhere.example/index".into(), "MIT".into()));
        assert!(!is_good(Value::Null, Value::Null));
        assert!(!is_good(Value::Null, "GPL-3.0-only".into()));
    }

    #[test]
    fn allowed_licences_are_read_from_the_configuration() {
        let config = fs::read_to_string(root().join(CONFIG)).unwrap();
        let names = allowed(&config).unwrap();
        assert!(names.contains(&"MIT".to_owned()) && names.iter().all(|n| !n.contains(' ')), "{names:?}");
        assert!(allowed("[bans]\nallow = [\"x\"]\n").is_err());
    }
}
