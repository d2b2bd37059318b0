//! Runs all test programs of the workspace, and reads what they print.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;

use anyhow::{Result, ensure};

use crate::command::{Ran, cargo, shown};
use crate::steps::Outcome;

/// The least number of test threads. Most tests wait: for servers, for a second of load, for a timeout.
const TEST_THREADS: usize = 4;
/// The module of the tests that depend on timing and run one at a time: `crates/loadlab/tests/timed`.
const TIMED: &str = "timed::";

/// Runs all tests. Those that depend on timing come last: at the same time as the others, they would measure the
/// others' load, and since they run one at a time they would block every test thread.
///
/// # Errors
/// Cargo cannot be started, or a program takes too long.
pub fn run_all(env: &[(&str, &str)]) -> Result<Ran> {
    let mut most = test(&["--no-fail-fast", "--", "--skip", TIMED], env);
    // Also for the whole workspace and with this program, so that features and settings, and with them builds, are the
    // same.
    let mut timed = test(&["--no-fail-fast", "--test", "all", "--bin", "xtask", "--", TIMED], env);
    let (most, timed) = (shown(&mut most)?, shown(&mut timed)?);
    ensure!(counted(&timed.stdout).0 > 0, "no test has a name with `{TIMED}`");
    let status = if most.status.success() { timed.status } else { most.status };
    Ok(Ran { status, stdout: most.stdout + &timed.stdout, stderr: String::new() })
}

/// Runs tests once more, by name, one at a time.
///
/// # Errors
/// Cargo cannot be started, or a program takes too long.
pub fn run_again(names: &[String], env: &[(&str, &str)]) -> Result<Ran> {
    let mut args = vec!["--no-fail-fast", "--", "--exact", "--test-threads=1"];
    args.extend(names.iter().map(String::as_str));
    shown(&mut test(&args, env))
}

/// Runs tests by name, several at a time.
///
/// # Errors
/// Cargo cannot be started, or a program takes too long.
pub fn run_named(names: &[&str], env: &[(&str, &str)]) -> Result<Ran> {
    shown(&mut test(&[&["--test", "all", "--", "--exact"], names].concat(), env))
}

/// A `cargo test` command. Unoptimised: building optimised test programs takes longer than it saves.
fn test(args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = cargo(&[&["test", "--locked", "--workspace"], args].concat());
    command.env("RUST_TEST_THREADS", test_threads()).envs(env.iter().copied());
    command
}

/// How many tests run at a time, unless they depend on timing: `RUST_TEST_THREADS` if it is set.
pub fn test_threads() -> String {
    let usual = || thread::available_parallelism().map_or(1, usize::from).max(TEST_THREADS).to_string();
    std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| usual())
}

/// The names of failed tests, from the lines that report each test; `None` if these are incomplete, because a test
/// program was killed or a line is mixed with output.
pub fn failed(text: &str) -> Option<Vec<String>> {
    let names = text.lines().filter_map(|l| l.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    let began = text.lines().filter(|l| l.starts_with("running ") && l.contains(" test")).count();
    let results: Vec<&str> = text.lines().filter(|l| l.starts_with("test result:")).collect();
    let number = |line: &&str| line.split(" failed").next()?.rsplit(' ').next()?.parse::<usize>().ok();
    let failures: usize = results.iter().filter_map(number).sum();
    (began == results.len() && failures == names.len()).then(|| names.into_iter().collect())
}

/// The number of tests that passed.
///
/// # Errors
/// A test failed or is ignored, or none ran.
pub fn judge(ran: &Ran) -> Outcome {
    let (passed, ignored) = counted(&ran.stdout);
    ensure!(
        ran.status.success(),
        "cargo test: {} ({passed} tests passed)\n{}",
        ran.status,
        output_of_failed(&ran.stdout)
    );
    ensure!(passed > 0, "cargo test ran no test");
    ensure!(ignored == 0, "{ignored} tests are ignored");
    Ok(format!("{passed} tests"))
}

/// The most lines repeated from a failed test or command: readers look at the summary of all steps first.
const MOST_LINES: usize = 40;

/// The output of each failed test; the last lines of everything if none is named.
fn output_of_failed(text: &str) -> String {
    let is_heading = |line: &&str| line.starts_with("---- ") && line.ends_with(" ----");
    let mut found: Vec<&str> = Vec::new();
    let mut left = 0;
    for line in text.lines() {
        if is_heading(&line) {
            left = MOST_LINES;
        } else if line == "failures:" {
            left = 0;
        }
        if left > 0 {
            found.push(line);
            left -= 1;
        }
    }
    if found.is_empty() { last_lines(text) } else { found.join("\n") }
}

/// The end of an output.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(MOST_LINES)..].join("\n")
}

/// Numbers of tests passed and ignored, from the summary lines of test programs.
fn counted(text: &str) -> (u64, u64) {
    let mut sums = (0, 0);
    for line in text.lines().filter(|l| l.starts_with("test result:")) {
        let number = |word: &str| {
            let before = line.split(word).next().unwrap_or_default();
            before.split_whitespace().last().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
        };
        sums.0 += number(" passed");
        sums.1 += number(" ignored");
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_lines_are_counted() {
        let text = "running 2 tests\ntest a ... ok\n\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.2s\n";
        assert_eq!(counted(text), (14, 1));
        assert_eq!(counted("nothing"), (0, 0));
    }

    #[test]
    fn what_failed_tests_printed_is_repeated() {
        let text = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nwhy\n\nfailures:\n    a\n\ntest result: FAILED.\n";
        assert_eq!(output_of_failed(text), "---- a stdout ----\nwhy\n");
        assert_eq!(output_of_failed("error: no such file\n"), "error: no such file");
        let long = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        assert!(last_lines(&long).starts_with("60\n61\n"));
    }

    #[test]
    fn failed_tests_have_names() {
        let check = |text: &str, expect: Option<&[&str]>| {
            assert_eq!(
                failed(text).as_deref(),
                expect.map(|e| e.iter().map(|n| n.to_string()).collect::<Vec<_>>()).as_deref(),
                "{text}"
            );
        };
        let reported = "running 3 tests\ntest b ... ok\ntest m::c ... FAILED\ntest a ... FAILED\n\nfailures:\n    a\n    m::c\n\n";
        let result = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured\n";
        check(&format!("{reported}{result}"), Some(&["a", "m::c"]));
        check(
            &format!(
                "running 1 test\ntest a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored\n{reported}{result}"
            ),
            Some(&["a", "m::c"]),
        );
        check(
            "running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored\nerror: test failed\n",
            Some(&[]),
        );
        // killed before its result; a name preceded by output
        check(reported, None);
        check(&format!("{reported}{result}").replace("test a ... FAILED", "test a ... words\nFAILED"), None);
    }
}
