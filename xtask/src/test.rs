//! `cargo xtask test`: everything CI checks. Quick steps come first; each goes on after another's failure, and
//! none passes by finding nothing to check.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, program, shown};
use crate::steps::{Outcome, Steps};
use crate::{house, lab, packages, page, readme, root};

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    /// Install Debian packages and parts of Rust that are missing
    #[arg(long)]
    install: bool,
    /// Leave out the labs end to end, their reports in a browser and the README's commands
    #[arg(long)]
    quick: bool,
    /// Only steps whose names contain this; may be repeated
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
}

/// Runs them.
///
/// # Errors
/// No step was chosen. Failures of steps are in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut steps = Steps::new(&args.only);
    steps.step("packages", || packages::ready(packages::FOR_TESTS, args.install));
    steps.step("format", format);
    steps.step("house", house::step);
    steps.step("clippy", clippy);
    steps.step("docs", docs);
    steps.step("build", build);
    steps.step("tests", tests);
    steps.step("tests of labs", tests_of_labs);
    steps.step("fuzz targets", fuzz_targets);
    if !args.quick {
        steps.step("peers", peers);
        steps.step("labs end to end", lab::run_all);
        steps.step("reports in a browser", page::open_all);
        steps.step("readme", readme::run_all);
    }
    steps.finish()
}

/// The comparison with peers in small: our own programs, a second each. That it works is checked, not what it finds.
fn peers() -> Outcome {
    let only = ["loadlab", "loadlab-epoll", "bare-epoll", "bare-timer"].map(|tool| ["--only", tool]);
    let cases = ["get-50", "close", "post-1k", "late-1000"].map(|case| ["--case", case]);
    // A process of its own: it moves into another network.
    let mut command = program(std::env::current_exe().context("this program's file")?);
    command.args(["bench-peers", "--seconds", "1", "--rounds", "1"]);
    let ran = shown(command.args(only.as_flattened()).args(cases.as_flattened()))?;
    ensure!(ran.status.success(), "bench-peers: {}", ran.status);
    Ok(format!("{} rows", cases.len()))
}

fn format() -> Outcome {
    let manifests = service_manifests()?;
    check("cargo fmt", &["fmt", "--all", "--check"])?;
    for manifest in &manifests {
        check("cargo fmt", &["fmt", "--check", "--manifest-path", manifest])?;
    }
    Ok(format!("workspace and {} lab", manifests.len()))
}

fn clippy() -> Outcome {
    let manifests = service_manifests()?;
    check(
        "cargo clippy",
        &["clippy", "--locked", "--workspace", "--all-targets", "--keep-going", "--", "-D", "warnings"],
    )?;
    for manifest in &manifests {
        let args =
            ["clippy", "--locked", "--all-targets", "--manifest-path", manifest, "--", "-D", "warnings"];
        check("cargo clippy", &args)?;
    }
    Ok(format!("workspace and {} lab", manifests.len()))
}

fn docs() -> Outcome {
    let mut command = cargo(&["doc", "--locked", "--workspace", "--no-deps", "--keep-going"]);
    let ran = shown(command.env("RUSTDOCFLAGS", "-Dwarnings"))?;
    ensure!(ran.status.success(), "cargo doc: {}", ran.status);
    Ok("no warnings".to_owned())
}

fn build() -> Outcome {
    check("cargo build", &["build", "--locked", "--release"])?;
    let binary = root::target().join("release/loadlab");
    let bytes = binary.metadata().with_context(|| format!("no binary at {}", binary.display()))?.len();
    Ok(format!("{:.1} MB", bytes as f64 / 1e6))
}

fn tests() -> Outcome {
    // Unoptimised: building optimised test programs takes longer than what they save.
    count_tests(&["test", "--locked", "--workspace", "--no-fail-fast"])
}

fn tests_of_labs() -> Outcome {
    let mut found = Vec::new();
    for manifest in service_manifests()? {
        found.push(count_tests(&["test", "--locked", "--manifest-path", &manifest])?);
    }
    Ok(found.join(", "))
}

/// The bodies of the fuzz targets over their seeds, and the targets themselves as far as the compiler goes:
/// fuzzing takes longer than a check may (fuzz/README.md).
fn fuzz_targets() -> Outcome {
    const MANIFEST: &str = "fuzz/Cargo.toml";
    let found = count_tests(&["test", "--locked", "--manifest-path", MANIFEST])?;
    let mut build = cargo(&["check", "--locked", "--bins", "--manifest-path", MANIFEST]);
    let target = crate::root::target().join("fuzz");
    let ran = shown(build.env("RUSTFLAGS", "--cfg fuzzing").env("CARGO_TARGET_DIR", target))?;
    ensure!(ran.status.success(), "cargo check: {}", ran.status);
    Ok(found)
}

/// Runs cargo, which shows its own messages.
fn check(what: &str, args: &[&str]) -> Result<()> {
    let ran = shown(&mut cargo(args))?;
    ensure!(ran.status.success(), "{what}: {}", ran.status);
    Ok(())
}

/// Runs tests; that there are any counts as much as that they pass.
fn count_tests(args: &[&str]) -> Outcome {
    let ran = shown(&mut cargo(args))?;
    let (passed, ignored) = counted(&ran.stdout);
    ensure!(ran.status.success(), "cargo test: {} ({passed} tests passed)", ran.status);
    ensure!(passed > 0, "cargo test ran no test");
    ensure!(ignored == 0, "{ignored} tests are ignored");
    Ok(format!("{passed} tests"))
}

/// Tests passed and ignored, by the summary lines of test programs.
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

/// The manifests of the services of all labs.
fn service_manifests() -> Result<Vec<String>> {
    let labs = root::labs().context("cannot read labs/")?;
    let manifests: Vec<_> = labs.iter().map(|lab| lab.join("service/Cargo.toml")).collect();
    let found: Vec<_> = manifests.iter().filter(|m| m.is_file()).map(|m| m.display().to_string()).collect();
    ensure!(!found.is_empty(), "there is no labs/*/service/Cargo.toml");
    Ok(found)
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
}
