//! The import table: which crate may import which. A new edge is a deliberate change of this table.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Findings, House};
use crate::command::{captured, cargo};

/// Each crate, and the other crates that it may import.
///
/// `plan` imports `record` because plans contain expectations, which are judged over records: both use the same
/// language.
pub const TABLE: &[(&str, &[&str])] = &[
    ("record", &[]),
    ("plan", &["record"]),
    ("load", &["record"]),
    ("system", &["record"]),
    ("run", &["plan", "load", "system", "record", "analysis"]),
    ("swarm", &["load", "record"]),
    ("analysis", &["record"]),
    ("report", &["record", "analysis"]),
    ("loadlab", &["plan", "load", "system", "run", "record", "analysis", "report", "swarm"]),
    // These use the others from outside.
    ("benches", &[]),
    ("shop", &[]),
    ("xtask", &[]),
];

/// Pure crates, and dependencies that would let them reach the machine past the standard library.
const PURE: &[&str] = &["plan", "analysis", "report"];
const REACHES_OUT: &[&str] = &["io-uring", "libc", "mio", "nix", "rustix", "socket2", "tokio"];

/// Dependencies that print past the standard library, or handle signals: for the binary only.
const FOR_PROGRAMS: &[&str] = &["anstream", "ctrlc", "signal-hook"];

/// Asks cargo for the manifests and compares them with the table.
pub fn check(_: &House, findings: &mut Findings) -> Result<()> {
    let mut command = cargo(&["metadata", "--no-deps", "--format-version", "1", "--offline"]);
    let ran = captured(&mut command, Duration::from_secs(60))?.ok("cargo metadata")?;
    compare(&ran.stdout, findings)
}

fn compare(metadata: &str, findings: &mut Findings) -> Result<()> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    let table: BTreeMap<_, _> = TABLE.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for package in packages {
        findings.look();
        let name = short(package["name"].as_str().unwrap_or_default());
        seen.insert(name);
        let at = format!("crate {name}");
        let Some(may) = table.get(name) else {
            findings.breach(&at, 0, "is not in the import table");
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let (full, kind) = (dependency["name"].as_str().unwrap_or_default(), dependency["kind"].as_str());
            let (import, local) = (short(full), dependency["path"].is_string());
            let kind = kind.map_or(String::new(), |k| format!(" ({k})"));
            if local && !may.contains(&import) {
                findings.breach(&at, 0, format!("may not import {import}{kind}"));
            }
            if kind.is_empty() && PURE.contains(&name) && REACHES_OUT.contains(&full) {
                findings.breach(&at, 0, format!("is pure and may not depend on {full}"));
            }
            if kind.is_empty() && name != "loadlab" && FOR_PROGRAMS.contains(&full) {
                findings.breach(&at, 0, format!("is not the binary and may not depend on {full}"));
            }
        }
    }
    for missing in table.keys().filter(|name| !seen.contains(**name)) {
        findings.breach("import table", 0, format!("there is no crate {missing}"));
    }
    Ok(())
}

fn short(name: &str) -> &str {
    name.strip_prefix("loadlab-").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(change: impl FnOnce(&mut Vec<Value>)) -> Vec<String> {
        let mut packages: Vec<_> = TABLE
            .iter()
            .map(|(name, may)| {
                let dependency =
                    |n: &&str| json!({ "name": format!("loadlab-{n}"), "kind": null, "path": "p" });
                json!({ "name": name, "dependencies": may.iter().map(dependency).collect::<Vec<_>>() })
            })
            .collect();
        change(&mut packages);
        let mut findings = Findings::default();
        compare(&json!({ "packages": packages }).to_string(), &mut findings).unwrap();
        findings.breaches
    }

    #[test]
    fn a_new_edge_and_a_new_crate_are_breaches() {
        assert_eq!(check(|_| {}), [] as [&str; 0]);
        let add = |packages: &mut Vec<Value>, name: &str, dependency: Value| {
            let package = packages.iter_mut().find(|p| p["name"] == name).unwrap();
            package["dependencies"].as_array_mut().unwrap().push(dependency);
        };
        let found = check(|p| add(p, "load", json!({ "name": "loadlab-plan", "kind": null, "path": "p" })));
        assert_eq!(found, ["crate load: may not import plan"]);
        let found = check(|p| add(p, "record", json!({ "name": "loadlab-run", "kind": "dev", "path": "p" })));
        assert_eq!(found, ["crate record: may not import run (dev)"]);
        let found = check(|p| add(p, "report", json!({ "name": "tokio", "kind": null, "path": null })));
        assert_eq!(found, ["crate report: is pure and may not depend on tokio"]);
        let found = check(|p| add(p, "system", json!({ "name": "signal-hook", "kind": null, "path": null })));
        assert_eq!(found, ["crate system: is not the binary and may not depend on signal-hook"]);
        let found = check(|p| p.push(json!({ "name": "loadlab-utils", "dependencies": [] })));
        assert_eq!(found, ["crate utils: is not in the import table"]);
        let found = check(|p| p.retain(|p| p["name"] != "system"));
        assert_eq!(found, ["import table: there is no crate system"]);
    }
}
