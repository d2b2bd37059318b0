//! The worker's loop: after its start it neither locks nor logs, and what runs for each request does not allocate.
//!
//! What runs for each request is marked `#[inline]`; what is rare is not, or is `#[cold]`. The steps of a
//! request's life must bear the mark, so that taking it off does not take them out of sight.

use anyhow::Result;

use super::rust::Source;
use super::{Findings, House};

/// The crate, and those of its files that are done before the loop starts or begin after it has ended. Any other
/// file, a new one as well, belongs to the loop.
const CRATE: &str = "crates/load/src/";
const AROUND_LOOP: &[&str] =
    &["generator.rs", "lib.rs", "names.rs", "run.rs", "source.rs", "spec.rs", "target.rs"];
/// Locks, and what prints or logs.
const LOCKS: &[&str] = &["Barrier", "Condvar", "Mutex", "ReentrantLock", "RwLock"];
const TELLS: &[&str] =
    &["print", "println", "eprint", "eprintln", "debug", "error", "info", "log", "trace", "warn"];

/// The file with the steps, and the steps.
const LIFE: &str = "crates/load/src/life.rs";
const STEPS: &[&str] = &["begin", "transmit", "received", "complete", "finish"];
/// Macros and calls that allocate.
const ALLOCATING_MACROS: &[&str] = &["format", "vec"];
const ALLOCATING_METHODS: &[&str] =
    &["clone", "collect", "into_boxed_slice", "into_owned", "to_owned", "to_string", "to_vec"];
const ALLOCATING_PATHS: &[[&str; 2]] = &[
    ["Arc", "new"],
    ["Box", "new"],
    ["Rc", "new"],
    ["String", "from"],
    ["String", "with_capacity"],
    ["Vec", "from"],
    ["Vec", "with_capacity"],
    ["VecDeque", "with_capacity"],
];

fn in_loop(source: &Source) -> bool {
    source.path.strip_prefix(CRATE).is_some_and(|file| !AROUND_LOOP.contains(&file))
}

/// No locks, no words.
pub fn no_locks(house: &House, findings: &mut Findings) -> Result<()> {
    for source in house.shipped().filter(|s| in_loop(s)) {
        findings.look();
        let locks =
            LOCKS.iter().flat_map(|l| source.find(&[l]).into_iter().map(move |line| (line, (*l).to_owned())));
        let tells =
            TELLS.iter().flat_map(|t| source.macros(t).into_iter().map(move |line| (line, format!("{t}!"))));
        let found: Vec<_> = locks.chain(tells).collect();
        if !found.is_empty() && !house.exceptions.allow("hot-loop", &source.path, found.len()) {
            found.iter().for_each(|(line, what)| findings.breach(&source.path, *line, what));
        }
    }
    Ok(())
}

/// No allocation in what is marked.
pub fn no_allocation(house: &House, findings: &mut Findings) -> Result<()> {
    for source in house.shipped().filter(|s| in_loop(s)) {
        let mut marked = Vec::new();
        for function in source.functions() {
            let is = |name: &str| function.attributes.iter().any(|a| a.path().is_ident(name));
            if !is("inline") || is("cold") {
                continue;
            }
            findings.look();
            marked.push(function.name.clone());
            let place = format!("{}::{}", source.path, function.name);
            let found: Vec<_> =
                allocations(source).into_iter().filter(|(line, _)| function.lines.contains(line)).collect();
            if !found.is_empty() && !house.exceptions.allow("hot-path", &place, found.len()) {
                for (line, what) in found {
                    findings.breach(
                        &source.path,
                        line,
                        format!("{what} in `{}`, for each request", function.name),
                    );
                }
            }
        }
        if source.path == LIFE {
            for step in STEPS.iter().filter(|step| !marked.iter().any(|m| m == *step)) {
                findings.breach(&source.path, 0, format!("`{step}` is not marked #[inline], or not there"));
            }
        }
    }
    Ok(())
}

/// Every allocation in a file, outside tests.
fn allocations(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut add = |run: &[&str], what: String| {
        found.extend(source.find(run).into_iter().map(|line| (line, what.clone())));
    };
    for name in ALLOCATING_MACROS {
        add(&[name, "!"], format!("{name}!"));
    }
    for name in ALLOCATING_METHODS {
        add(&[".", name], format!("{name}()"));
    }
    for [kind, name] in ALLOCATING_PATHS {
        add(&[kind, ":", ":", name], format!("{kind}::{name}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::breaches_in;

    #[test]
    fn locks_and_words_in_the_loop() {
        let check = |path: &str, text: &str| {
            breaches_in(
                "hot-loop",
                &[(path, &format!("//! A.\n{text}\n")), ("crates/load/src/conn.rs", "//! C.")],
            )
            .len()
        };
        assert_eq!(check("crates/load/src/recorder.rs", "use std::sync::atomic::AtomicU8;"), 0);
        assert_eq!(check("crates/load/src/io/epoll.rs", "use std::sync::Mutex;"), 1);
        assert_eq!(check("crates/load/src/run.rs", "use std::sync::Mutex;"), 0);
        assert_eq!(check("crates/load/src/worker.rs", "fn a() { tracing::info!(\"a\") }"), 1);
        assert_eq!(
            check("crates/load/src/worker.rs", "#[cfg(test)]\nmod tests { use std::sync::Mutex; }"),
            0
        );
    }

    #[test]
    fn allocation_on_the_path_of_a_request() {
        let life = |body: &str| {
            let steps = ["begin", "transmit", "received", "complete"];
            let steps: String = steps.iter().map(|s| format!("#[inline]\nfn {s}() {{}}\n")).collect();
            format!("//! L.\n{steps}{body}\n")
        };
        let check = |body: &str| breaches_in("hot-path", &[("crates/load/src/life.rs", &life(body))]);
        assert!(check("#[inline]\nfn finish() { a.push(1) }\n#[cold]\nfn keep() { a.to_vec() }").is_empty());
        let found = check("#[inline(always)]\nfn finish() { let a = Box::new(1);\nlet b = a.clone(); }");
        let at = "crates/load/src/life.rs";
        assert_eq!(
            found,
            [
                format!("{at}:12: clone() in `finish`, for each request"),
                format!("{at}:11: Box::new in `finish`, for each request"),
            ]
        );
        assert_eq!(
            check("fn finish() {}"),
            [format!("{at}: `finish` is not marked #[inline], or not there")]
        );
    }
}
