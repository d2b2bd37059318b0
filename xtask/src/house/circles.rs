//! No import cycles: sibling modules in a folder never import one another in a cycle, so that each can be read after
//! those it depends on. A module includes everything below it; imports between it and its own children are normal in
//! Rust.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::{Findings, House, rust::Source};

/// A module's path, as names from the crate's root; empty for the root.
type Module = Vec<String>;
/// For each module of a folder, the siblings it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks every folder of every crate.
pub fn check(house: &House, findings: &mut Findings) -> Result<()> {
    let mut crates: BTreeMap<&str, Crate<'_>> = BTreeMap::new();
    for source in house.shipped() {
        if let Some((root, below)) = source.path.split_once("/src/")
            // A separate program.
            && !below.starts_with("bin/")
        {
            crates.entry(root).or_default().modules.insert(module_of(below), source);
        }
    }
    for (root, all) in &crates {
        findings.look();
        for (folder, imports) in all.imports_by_folder() {
            for circle in circles(&imports) {
                let at = [&format!("{root}/src"), folder.join("/").as_str()].join("/");
                let at = at.trim_end_matches('/');
                findings.breach(at, 0, format!("{} import one another in a circle", circle.join(", ")));
            }
        }
    }
    Ok(())
}

/// The module in a file: `io/uring/mod.rs` is `io::uring`, `lib.rs` the root.
fn module_of(below: &str) -> Module {
    let mut names: Module = below.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let last = names.last().map(String::as_str);
    if last == Some("mod") || names.len() == 1 && matches!(last, Some("lib" | "main")) {
        names.pop();
    }
    names
}

/// The modules of a crate, and their sources.
#[derive(Default)]
struct Crate<'s> {
    modules: BTreeMap<Module, &'s Source>,
}

impl Crate<'_> {
    /// For each folder, which of its modules import which of their siblings, directly or through modules below them.
    fn imports_by_folder(&self) -> BTreeMap<Module, Imports> {
        let exports = self.exports();
        let mut folders: BTreeMap<Module, Imports> = BTreeMap::new();
        for (module, source) in &self.modules {
            for named in source.named().iter().filter(|named| !source.in_test(named.line)) {
                let Some(path) = self.absolute(module, &named.path) else { continue };
                let target = self.resolve(&path, &exports);
                let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                // Otherwise one of the two contains the other.
                let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) else { continue };
                let imports = folders.entry(module[..shared].to_vec()).or_default();
                imports.entry(from.clone()).or_default().insert(to.clone());
            }
        }
        folders
    }

    /// A path as names from the crate's root; `None` if it leads out of the crate.
    fn absolute(&self, module: &[String], path: &str) -> Option<Vec<String>> {
        let mut names = path.split("::").peekable();
        let mut base = match names.peek() {
            Some(&"crate") => Vec::new(),
            Some(&"self" | &"super") => module.to_vec(),
            // A child module, by its name.
            Some(name) if self.modules.contains_key(&[module, &[(*name).to_owned()]].concat()) => {
                module.to_vec()
            }
            _ => return None,
        };
        while let Some(name) = names.next_if(|name| matches!(*name, "crate" | "self" | "super")) {
            if name == "super" {
                base.pop();
            }
        }
        Some(base.into_iter().chain(names.map(str::to_owned)).collect())
    }

    /// The module that defines an item or that it is exported from.
    fn resolve(&self, path: &[String], exports: &BTreeMap<Vec<String>, Module>) -> Module {
        let longest = (0..=path.len()).rev().find(|n| self.modules.contains_key(&path[..*n]));
        let found = &path[..longest.unwrap_or(0)];
        let named = path.get(..found.len() + 1).and_then(|named| exports.get(named));
        named.cloned().unwrap_or_else(|| found.to_vec())
    }

    /// Re-exports: the exported path, and the module that the item comes from.
    fn exports(&self) -> BTreeMap<Vec<String>, Module> {
        let mut exports = BTreeMap::new();
        for (module, source) in &self.modules {
            for path in source.exported() {
                let Some(whole) = self.absolute(module, &path) else { continue };
                let from = self.resolve(&whole, &BTreeMap::new());
                if let Some(name) = whole.last() {
                    exports.insert([module.as_slice(), std::slice::from_ref(name)].concat(), from);
                }
            }
        }
        exports
    }
}

/// The largest sets of modules that can all reach one another.
fn circles(imports: &Imports) -> Vec<Vec<&str>> {
    let reached = |from: &str| {
        let (mut all, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(module) = next.pop() {
            for import in imports.get(&module).into_iter().flatten() {
                if all.insert(import.clone()) {
                    next.push(import.clone());
                }
            }
        }
        all
    };
    let reach: BTreeMap<&str, BTreeSet<String>> =
        imports.keys().map(|module| (module.as_str(), reached(module))).collect();
    let mut found: Vec<Vec<&str>> = Vec::new();
    for (module, theirs) in reach.iter().filter(|(module, theirs)| theirs.contains(**module)) {
        let back = |other: &str| reach.get(other).is_some_and(|others| others.contains(*module));
        let circle: Vec<&str> =
            reach.keys().copied().filter(|other| theirs.contains(*other) && back(other)).collect();
        if circle.len() > 1 && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::breaches_in;

    #[test]
    fn siblings_may_not_import_one_another_in_a_circle() {
        let check = |files: &[(&str, &str)], expect: &[&str]| {
            let files: Vec<(String, String)> =
                files.iter().map(|(p, t)| (format!("crates/a/src/{p}"), format!("//! A.\n{t}\n"))).collect();
            let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
            assert_eq!(breaches_in("circles", &files), expect, "{files:?}");
        };
        let lib = ("lib.rs", "mod one; mod two;");
        check(&[lib, ("one.rs", "use crate::two::B;"), ("two.rs", "pub struct B;")], &[]);
        let circle = &["crates/a/src: one, two import one another in a circle"];
        check(&[lib, ("one.rs", "use crate::two::B;"), ("two.rs", "fn a() { super::one::b() }")], circle);
        check(
            &[lib, ("one.rs", "use crate::{two};"), ("two.rs", "fn a() -> crate::one::A { x!() }")],
            circle,
        );
        // ignored in tests
        let tests = "#[cfg(test)]\nmod tests { use crate::one::A; }";
        check(&[lib, ("one.rs", "use crate::two::B;"), ("two.rs", tests)], &[]);
        // through what is below, and through what the root exports
        let below = ("two/deep/mod.rs", "use crate::one::A;");
        check(&[lib, ("one.rs", "use crate::two::B;"), ("two/mod.rs", "pub mod deep;"), below], circle);
        let exports = ("lib.rs", "mod one; mod two; pub use two::B;");
        check(&[exports, ("one.rs", "use crate::B;"), ("two.rs", "use crate::one::A;")], circle);
        // a module and its own children, and in a folder
        let parent = ("one/mod.rs", "mod a; mod b; use a::A; pub struct P;");
        let leaf = ("one/b.rs", "use super::a::A;");
        check(&[lib, ("two.rs", ""), parent, ("one/a.rs", "use super::P;"), leaf], &[]);
        let inner = &["crates/a/src/one: a, b import one another in a circle"];
        check(&[lib, ("two.rs", ""), parent, ("one/a.rs", "use crate::one::b::B;"), leaf], inner);
    }
}
