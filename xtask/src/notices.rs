//! Third-party notices: the licence texts of everything in the binary, in one file that accompanies it (`loadlab
//! licenses` prints it). `cargo xtask notices` writes it, `cargo xtask test` checks that it is up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::licences::{metadata, text};
use crate::root::root;
use crate::steps::Outcome;

/// Path of the file, in the repository.
const FILE: &str = "crates/loadlab/THIRD-PARTY-NOTICES";
/// Parts of the binary other than crates: name, purpose, path of the licence.
const ASSETS: &[(&str, &str, &str)] =
    &[("uPlot", "draws the charts of HTML reports", "crates/report/assets/uplot/LICENSE")];
/// Path of the text of Apache-2.0.
const APACHE: &str = "LICENSE-APACHE";
/// Prefixes of licence file names, in lower case.
const NAMES: &[&str] = &["license", "licence", "copying", "notice", "unlicense", "copyright"];

/// Regenerates the notices.
///
/// # Errors
/// The notices cannot be made or written.
pub fn write() -> Result<std::process::ExitCode> {
    let notices = notices()?;
    fs::write(root().join(FILE), &notices).context(FILE)?;
    println!("{FILE}: {} KB", notices.len() / 1000);
    Ok(std::process::ExitCode::SUCCESS)
}

/// Step of `cargo xtask test`: checks that the notices are up to date.
///
/// # Errors
/// The notices do not match the dependencies.
pub fn step() -> Outcome {
    let notices = notices()?;
    let written = fs::read_to_string(root().join(FILE)).context(FILE)?;
    ensure!(written == notices, "{FILE} is out of date\nhint: `cargo xtask notices` writes it anew");
    Ok(format!("{} KB", notices.len() / 1000))
}

fn notices() -> Result<String> {
    let metadata = metadata("Cargo.toml")?;
    let mut list = String::new();
    // Each text once, with the packages it applies to.
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut count = 0;
    for package in shipped(&metadata)? {
        let name = format!("{} {}", text(package, "name"), text(package, "version"));
        let from = match text(package, "repository") {
            "" => format!("https://crates.io/crates/{}", text(package, "name")),
            url => url.to_owned(),
        };
        writeln!(list, "{name}\n    {}\n    {from}", text(package, "license"))?;
        let folder = Path::new(text(package, "manifest_path")).parent().context("a manifest has a folder")?;
        let mut own = licences_in(folder)?;
        // Apache-2.0 has a single text, without names; crates that leave it out can be shipped with our copy.
        if own.is_empty() && is_apache(text(package, "license")) {
            own.push(plain(&fs::read_to_string(root().join(APACHE)).context(APACHE)?));
        }
        ensure!(
            !own.is_empty(),
            "{name} comes without the text of its licence\nhint: choose another, or ask for it"
        );
        for text in own {
            texts.entry(text).or_default().insert(name.clone());
        }
        count += 1;
    }
    for (name, what, file) in ASSETS {
        writeln!(list, "{name}\n    {what}")?;
        let text = fs::read_to_string(root().join(file)).context(*file)?;
        texts.entry(plain(&text)).or_default().insert((*name).to_owned());
    }
    ensure!(count > 0 && !texts.is_empty(), "the binary has no dependencies?");
    let mut out = format!(
        "Third-party notices of loadlab\n\nThe program loadlab is made of its own code, Rust's standard library (MIT OR \
         Apache-2.0, https://github.com/rust-lang/rust)\nand what is listed here, {count} crates among it. Their licences \
         follow, each text once. Written by `cargo xtask notices`.\n\n{list}"
    );
    // Sorted by the first package of each text, which is easier to search than the texts.
    let mut texts: Vec<(BTreeSet<String>, String)> = texts.into_iter().map(|(text, of)| (of, text)).collect();
    texts.sort();
    for (of, text) in texts {
        let of: Vec<String> = of.into_iter().collect();
        let line = "=".repeat(80);
        writeln!(out, "\n{line}\n{}\n{line}\n\n{text}", of.join(", "))?;
    }
    Ok(out)
}

/// Packages whose code is in the binary: what `loadlab` needs to run, directly or indirectly; not what is only used or
/// run at build time.
fn shipped(metadata: &Value) -> Result<Vec<&Value>> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    let by_id: BTreeMap<&str, &Value> = packages.iter().map(|p| (text(p, "id"), p)).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().context("no graph of dependencies")?;
    let nodes: BTreeMap<&str, &Value> = nodes.iter().map(|n| (text(n, "id"), n)).collect();
    let root = packages.iter().find(|p| p["name"] == "loadlab").context("no package `loadlab`")?;
    let mut open = vec![text(root, "id")];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let deps = nodes.get(id).and_then(|n| n["deps"].as_array()).map_or(&[][..], Vec::as_slice);
        for dep in deps.iter().filter(|dep| is_linked(dep)) {
            let id = text(dep, "pkg");
            if by_id.get(id).is_some_and(|p| !is_macro(p)) {
                open.push(id);
            }
        }
    }
    let mut found: Vec<&Value> = seen.iter().filter_map(|id| by_id.get(id).copied()).collect();
    found.retain(|p| !p["source"].is_null());
    found.sort_by_key(|p| (text(p, "name"), text(p, "version")));
    Ok(found)
}

/// Whether a dependency is more than a test or build dependency.
fn is_linked(dep: &Value) -> bool {
    let kinds = dep["dep_kinds"].as_array().map_or(&[][..], Vec::as_slice);
    kinds.iter().any(|kind| kind["kind"].is_null())
}

fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array().map_or(&[][..], Vec::as_slice);
    targets.iter().any(|t| t["kind"].as_array().is_some_and(|k| k.iter().any(|k| k == "proc-macro")))
}

/// Texts of the licences in a package's folder.
fn licences_in(folder: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
        if path.is_file() && NAMES.iter().any(|n| name.starts_with(n)) {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        Ok(plain(&String::from_utf8_lossy(&bytes)))
    };
    paths.iter().map(read).collect()
}

/// Normalised line ends, so that equal texts compare equal.
fn plain(text: &str) -> String {
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// Whether a licence expression offers Apache-2.0; `/` is the older form of `OR`.
fn is_apache(expression: &str) -> bool {
    expression.split(" OR ").flat_map(|part| part.split('/')).any(|licence| licence.trim() == "Apache-2.0")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_linked_is_shipped_and_nothing_else() {
        let package = |name: &str, kind: &str, source: Value| json!({ "id": name, "name": name, "version": "1.0.0", "source": source, "targets": [{ "kind": [kind] }] });
        let dep = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("loadlab", "bin", Value::Null), package("ours", "lib", Value::Null),
                package("linked", "lib", "x".into()), package("deep", "lib", "x".into()),
                package("derive", "proc-macro", "x".into()), package("of-derive", "lib", "x".into()),
                package("tested", "lib", "x".into()), package("builds", "lib", "x".into()),
            ],
            "resolve": { "nodes": [
                { "id": "loadlab", "deps": [dep("ours", Value::Null), dep("tested", "dev".into())] },
                { "id": "ours", "deps": [dep("linked", Value::Null), dep("derive", Value::Null)] },
                { "id": "linked", "deps": [dep("deep", Value::Null), dep("builds", "build".into())] },
                { "id": "derive", "deps": [dep("of-derive", Value::Null)] },
            ] },
        });
        let names: Vec<&str> = shipped(&metadata).unwrap().iter().map(|p| text(p, "name")).collect();
        assert_eq!(names, ["deep", "linked"]);
    }

    #[test]
    fn lines_end_alike() {
        assert_eq!(plain("\u{feff}\r\na  \r\nb\n\n"), "a\nb");
    }
}
