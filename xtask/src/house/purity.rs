//! Who may do what to the machine: unsafe code, printing, exiting, signals, clock, threads, files, network.

use anyhow::Result;

use super::rust::Source;
use super::{Findings, House};

/// Unsafe code is in the files listed as exceptions, and nowhere else.
pub fn unsafe_code(house: &House, findings: &mut Findings) -> Result<()> {
    for source in &house.sources {
        findings.look();
        let lines = source.find_all(&["unsafe"]);
        if let Some(first) = lines.first()
            && !house.exceptions.allow("unsafe", &source.path, lines.len())
        {
            findings.breach(&source.path, *first, format!("{} places with unsafe code", lines.len()));
        }
    }
    Ok(())
}

/// Macros that print.
const PRINTS: &[&str] = &["print", "println", "eprint", "eprintln"];
/// Paths that print, exit or handle signals.
const OUTSIDE: &[&str] = &[
    "std::process::exit",
    "std::process::abort",
    "std::io::stdout",
    "std::io::stderr",
    "libc::signal",
    "libc::sigaction",
    "libc::exit",
    "libc::_exit",
    "signal_hook",
    "ctrlc",
];

/// Only programs print, exit and handle signals.
pub fn outside(house: &House, findings: &mut Findings) -> Result<()> {
    for source in house.shipped() {
        findings.look();
        let mut found: Vec<(usize, String)> = PRINTS
            .iter()
            .flat_map(|m| source.macros(m).into_iter().map(move |l| (l, format!("{m}!"))))
            .collect();
        found.extend(used(source, OUTSIDE));
        report(house, "outside", source, found, findings);
    }
    Ok(())
}

/// The binary's own sources, and what reaches a terminal.
const BINARY: &str = "crates/loadlab/src/";
const TERMINAL: &[&str] = &["std::io::stdout", "std::io::stderr", "anstream"];

/// The binary prints in one place, which lets nothing through that steers a terminal.
pub fn terminal(house: &House, findings: &mut Findings) -> Result<()> {
    for source in house.shipped().filter(|s| s.path.starts_with(BINARY)) {
        findings.look();
        let macros =
            PRINTS.iter().flat_map(|m| source.macros(m).into_iter().map(move |l| (l, format!("{m}!"))));
        let found = macros.chain(used(source, TERMINAL)).collect();
        report(house, "terminal", source, found, findings);
    }
    Ok(())
}

/// Crates that take text or values and return values or text.
const PURE: &[&str] = &["crates/plan/src/", "crates/analysis/src/", "crates/report/src/"];
/// What they may not touch. Addresses are values: `core::net` has them without the network.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::env",
    "std::process",
    "std::os",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
];

/// plan, analysis and report have no clock, threads, files, environment or network.
pub fn pure(house: &House, findings: &mut Findings) -> Result<()> {
    let pure = |s: &&Source| PURE.iter().any(|dir| s.path.starts_with(dir));
    for source in house.shipped().filter(pure) {
        findings.look();
        let found = used(source, IMPURE).collect();
        report(house, "pure", source, found, findings);
    }
    Ok(())
}

/// Places outside tests that use one of these paths or something in it; or import what contains it under a
/// name that would hide it (`use std::time; time::Instant::now()`), or everything (`use std::time::*`).
fn used<'s>(source: &'s Source, forbidden: &'s [&str]) -> impl Iterator<Item = (usize, String)> + 's {
    source.named().into_iter().filter(|n| !source.in_test(n.line)).filter_map(move |named| {
        let path = named.path.strip_suffix("::*").unwrap_or(&named.path);
        let inside = |whole: &str, part: &str| {
            part.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        // Short forms after an import: `process::exit`, `io::stdout`.
        let short = |f: &str| f.split_once("::").is_some_and(|(_, f)| f.contains("::") && inside(f, path));
        let hides = |f: &str| inside(path, f) && named.path != path;
        let hit = forbidden.iter().any(|f| inside(f, path) || short(f) || hides(f));
        hit.then(|| (named.line, format!("`{}`", named.path)))
    })
}

fn report(
    house: &House,
    rule: &str,
    source: &Source,
    mut found: Vec<(usize, String)>,
    findings: &mut Findings,
) {
    found.sort();
    found.dedup();
    if !found.is_empty() && !house.exceptions.allow(rule, &source.path, found.len()) {
        for (line, what) in found {
            findings.breach(&source.path, line, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::breaches_in;

    #[test]
    fn unsafe_code_is_found_everywhere() {
        let check = |text: &str| {
            breaches_in("unsafe", &[("crates/a/src/lib.rs", &format!("//! A.\n{text}\n"))]).len()
        };
        assert_eq!(check("fn a() { b() } // unsafe"), 0);
        assert_eq!(check("#![deny(unsafe_op_in_unsafe_fn)]"), 0);
        assert_eq!(check("fn a() { unsafe { b() } }"), 1);
        assert_eq!(check("unsafe impl Send for A {}"), 1);
        assert_eq!(check("macro_rules! m { () => { unsafe { b() } } }"), 1);
        assert_eq!(check("#[cfg(test)]\nmod tests { fn a() { unsafe { b() } } }"), 1);
    }

    #[test]
    fn printing_exiting_and_signals() {
        let check = |text: &str| {
            breaches_in("outside", &[("crates/a/src/lib.rs", &format!("//! A.\n{text}\n"))]).len()
        };
        assert_eq!(check("fn a() { format!(\"println!\"); command.stdout(b); }"), 0);
        assert_eq!(check("#[cfg(test)]\nmod tests { fn a() { println!(); } }"), 0);
        for text in [
            "fn a() { println!(); }",
            "fn a() { eprint!(\"\"); }",
            "fn a() { std::process::exit(1) }",
            "use std::process::exit;",
            "use std::process;\nfn a() { process::exit(1) }",
            "use std::io;\nfn a() { io::stdout().flush() }",
            "use signal_hook::flag;",
        ] {
            assert_eq!(check(text), 1, "{text}");
        }
    }

    #[test]
    fn the_binary_prints_in_one_place() {
        let check = |text: &str| {
            breaches_in("terminal", &[("crates/loadlab/src/a.rs", &format!("//! A.\n{text}\n"))]).len()
        };
        assert_eq!(check("fn a() { crate::output::print(\"\") }"), 0);
        for text in ["fn a() { println!() }", "fn a() { anstream::stderr() }", "use std::io::stderr;"] {
            assert_eq!(check(text), 1, "{text}");
        }
    }

    #[test]
    fn pure_crates_reach_nothing() {
        let check = |text: &str| {
            breaches_in("pure", &[("crates/plan/src/lib.rs", &format!("//! A.\n{text}\n"))]).len()
        };
        assert_eq!(check("use std::time::Duration;\nuse std::collections::BTreeMap;\nuse std::fmt;"), 0);
        assert_eq!(check("fn a() { env!(\"CARGO_PKG_VERSION\") }"), 0);
        assert_eq!(check("#[cfg(test)]\nmod tests { use std::fs; }"), 0);
        for text in [
            "use std::fs;",
            "use std::{fmt, fs};",
            "use std::time::{Duration, Instant};",
            "fn a() { std::time::SystemTime::now() }",
            "use std::time::*;",
            "use std::time;\nfn a() { time::Instant::now() }",
            "fn a() { format!(\"{:?}\", std::env::var(\"A\")) }",
            "use std::net::IpAddr;",
        ] {
            assert_eq!(check(text), 1, "{text}");
        }
    }
}
