//! All test programs, again and again, for `cargo xtask long`: a test that fails by chance is a defect of the test. A
//! round takes a quarter of an hour, so those of earlier calls count as well, with their revisions, until one fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, ensure};

use crate::command::Ran;
use crate::steps::Outcome;
use crate::test_programs::{failed, run_all, test_threads};

/// What precedes the list of rounds in a result.
const LIST: &str = "none failed: ";
/// On two cores, they leave the tests half of the CPU.
pub const BUSY_LOOPS: usize = 2;

/// Runs all tests this many times, beside this many busy loops. `earlier` is the result of an earlier call, `revision`
/// the present one.
///
/// # Errors
/// Tests failed, each with its round; cargo cannot be started.
pub fn run(number: u32, busy_loops: usize, earlier: Option<&str>, revision: &str) -> Outcome {
    let mut failures = Vec::new();
    for round in 1..=number {
        let ran = beside(busy_loops, || run_all(&[]))?;
        if !ran.status.success() {
            failures.push(format!("round {round}: {}", what_failed(&ran.stdout, &ran.status.to_string())));
        }
    }
    ensure!(failures.is_empty(), "{} of {number} rounds failed: {}", failures.len(), failures.join("; "));
    Ok(added(earlier, number, &format!("of {revision} with {} tests at a time", test_threads())))
}

/// The names of the failed tests; the exit status if a build failed or a test program was killed, which names none.
fn what_failed(stdout: &str, status: &str) -> String {
    match failed(stdout) {
        Some(names) if !names.is_empty() => names.join(", "),
        _ => format!("cargo test: {status}"),
    }
}

/// Does the work beside this many busy loops.
fn beside(busy_loops: usize, work: impl FnOnce() -> Result<Ran>) -> Result<Ran> {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..busy_loops {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let ran = work();
        ends.store(true, Ordering::Relaxed);
        ran
    })
}

/// The result with these rounds added to those of an earlier result, if that has any.
fn added(earlier: Option<&str>, number: u32, of: &str) -> String {
    let list = earlier.and_then(|text| text.split_once(LIST)).map_or("", |(_, list)| list);
    let mut rounds: Vec<(u32, &str)> = list
        .split(", ")
        .filter_map(|part| part.split_once(' '))
        .filter_map(|(count, of)| Some((count.parse().ok()?, of)))
        .collect();
    match rounds.iter_mut().find(|(_, known)| *known == of) {
        Some((count, _)) => *count += number,
        None => rounds.push((number, of)),
    }
    let total: u32 = rounds.iter().map(|(count, _)| count).sum();
    let list: Vec<String> = rounds.iter().map(|(count, of)| format!("{count} {of}")).collect();
    let rounds = if total == 1 { "round" } else { "rounds" };
    format!("{total} {rounds} of all tests, {LIST}{}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_round_says_what_failed() {
        let tests = "running 2 tests\ntest a ... ok\ntest m::b ... FAILED\n";
        let result = "test result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        assert_eq!(what_failed(&format!("{tests}{result}"), "exit status: 101"), "m::b");
        assert_eq!(what_failed(tests, "signal: 9"), "cargo test: signal: 9");
        assert_eq!(
            what_failed("error: could not compile", "exit status: 101"),
            "cargo test: exit status: 101"
        );
    }

    #[test]
    fn rounds_of_earlier_calls_count_until_one_fails() {
        let first = added(None, 3, "of a with 4 tests at a time");
        assert_eq!(first, "3 rounds of all tests, none failed: 3 of a with 4 tests at a time");
        let more = added(Some(&first), 2, "of a with 4 tests at a time");
        assert_eq!(more, "5 rounds of all tests, none failed: 5 of a with 4 tests at a time");
        let both = added(Some(&more), 5, "of b with 8 tests at a time");
        assert_eq!(
            both,
            "10 rounds of all tests, none failed: 5 of a with 4 tests at a time, 5 of b with 8 tests at a time"
        );
        let after_failure = Some("FAILED: 1 of 10 rounds failed: round 2: x");
        assert_eq!(added(after_failure, 1, "of c"), "1 round of all tests, none failed: 1 of c");
    }
}
