//! `cargo xtask test`: everything CI checks. Quick steps come first, beside the first build; each runs even if an
//! earlier one failed, and none passes because it finds nothing to check.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, program, shown};
use crate::steps::{Outcome, Steps};
use crate::test_programs::{failed, judge, last_lines, run_again, run_all};
use crate::{
    book, disk, dist, house, lab, licences, long, notices, ordinary_user, packages, page, planted, readme,
    root,
};

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    /// Install Debian packages and parts of Rust that are missing
    #[arg(long)]
    install: bool,
    /// Only what takes a few minutes: format, house, clippy, and all tests except those that run loadlab end to end
    #[arg(long)]
    quick: bool,
    /// Only steps whose names contain this; may be repeated
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
}

/// Runs the steps.
///
/// # Errors
/// No step was chosen. Failures of steps are in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut steps = Steps::new(&args.only);
    let first = |steps: &mut Steps| {
        steps.step("packages", || packages::ready(packages::FOR_TESTS, args.install));
        steps.step("format", format);
        steps.step("house", house::step);
        steps.step("licences", licences::step);
        steps.step("notices", notices::step);
        steps.step("age of the long checks", long::age);
    };
    if args.quick {
        first(&mut steps);
        steps.step("clippy", clippy_of_workspace);
        steps.step("tests", quick_tests);
        return steps.finish();
    }
    steps.step("disk space", disk::step);
    // Packages are downloaded meanwhile: a build needs none of them.
    steps.steps_with(first, |others| others.step("build of tests", build_of_tests));
    // Tests mostly wait, so builds run beside them. The release build comes first: it does not hold the lock that
    // `cargo test` needs to start.
    let builds = |others: &mut Steps| {
        others.step("build", build);
        others.step("dist: build", || dist::check::build(args.install));
        others.step("plans of labs", lab::check_plans);
        others.step("build of labs", build_of_labs);
        others.step("build of planted systems", planted::build);
    };
    steps.step_with("tests", || tests(args.install), builds);
    // These steps measure, and need the machine to themselves.
    steps.step("planted bottlenecks", planted::quick);
    steps.step("planted capacities", planted::capacities::quick);
    steps.step("planted levers", planted::levers::quick);
    steps.step("planted hot functions", planted::profiles::quick);
    steps.step("labs end to end", lab::run_all);
    // These steps only have to work, however slowly.
    let lints = |others: &mut Steps| {
        others.step("clippy", clippy);
        others.step("docs", docs);
        others.step("fuzz targets", fuzz_targets);
    };
    let documented = |steps: &mut Steps| {
        dist::check::steps(steps);
        steps.step("tests of labs", tests_of_labs);
        steps.step("readme", readme::run_all);
        steps.step("readme as an ordinary user", ordinary_user::run);
        steps.step("peers", peers);
        steps.step("reports in a browser", page::open_all);
    };
    steps.steps_with(documented, lints);
    steps.step("book", book::step);
    // Some of the book's examples expect response times.
    steps.step("commands of the book", book::commands::run_all);
    steps.finish()
}

/// A small comparison with peers: our own programs, a second each. This checks that it works, not its results.
fn peers() -> Outcome {
    let only = ["loadlab", "loadlab-epoll", "bare-epoll", "bare-timer"].map(|tool| ["--only", tool]);
    let cases =
        ["get-50", "close", "post-1k", "tls-50", "tls-close", "http2-20x10", "journey-50", "late-1000"]
            .map(|case| ["--case", case]);
    // A separate process, because it moves into another network namespace.
    let mut command = program(std::env::current_exe().context("this program's file")?);
    command.args(["bench-peers", "--seconds", "1", "--rounds", "1"]);
    let ran = shown(command.args(only.as_flattened()).args(cases.as_flattened()))?;
    ensure!(ran.status.success(), "bench-peers: {}", ran.status);
    let rows = ran.stdout.lines().find_map(|line| line.split_once(" rows ran")?.0.parse::<usize>().ok());
    let rows = rows.context("bench-peers does not tell how many rows ran")?;
    ensure!(rows == cases.len(), "bench-peers: {rows} of {} rows ran", cases.len());
    Ok(format!("{rows} rows"))
}

/// Manifest of the fuzz targets, a separate workspace, so that other builds do not need their engine.
const FUZZ: &str = "fuzz/Cargo.toml";

fn format() -> Outcome {
    let manifests = service_manifests()?;
    check("cargo fmt", &["fmt", "--all", "--check"])?;
    for manifest in &manifests {
        check("cargo fmt", &["fmt", "--check", "--manifest-path", manifest])?;
    }
    check("cargo fmt", &["fmt", "--check", "--manifest-path", FUZZ])?;
    Ok(format!("workspace, {} labs and fuzz", manifests.len()))
}

fn clippy_of_workspace() -> Outcome {
    let args = ["clippy", "--locked", "--workspace", "--all-targets", "--keep-going", "--", "-D", "warnings"];
    check("cargo clippy", &args)?;
    Ok("workspace".to_owned())
}

fn clippy() -> Outcome {
    let manifests = service_manifests()?;
    clippy_of_workspace()?;
    // Crates of this repository that the fuzz targets use are linted above.
    for manifest in manifests.iter().map(String::as_str).chain([FUZZ]) {
        let mut clippy = shared(manifest, &["clippy", "--locked", "--all-targets", "--no-deps"]);
        let ran = shown(clippy.args(["--", "-D", "warnings"]))?;
        ensure!(ran.status.success(), "cargo clippy: {}\n{}", ran.status, last_lines(&ran.stdout));
    }
    Ok(format!("workspace, {} labs and fuzz", manifests.len()))
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

fn build_of_tests() -> Outcome {
    check("cargo test", &["test", "--locked", "--workspace", "--no-run"])?;
    Ok("workspace".to_owned())
}

/// Runs the tests without those of the binary that run loadlab end to end, which take minutes.
fn quick_tests() -> Outcome {
    let crates = count_tests(&["test", "--locked", "--workspace", "--exclude", "loadlab"])?;
    let binary = count_tests(&["test", "--locked", "--package", "loadlab", "--bins"])?;
    Ok(format!("{crates} of libraries, {binary} of the binary"))
}

/// Seed of the property tests. A change must not be refused for a case that another one found by chance: the rounds of
/// `cargo xtask long`, `cargo xtask test --quick` and `cargo test` draw new cases each time.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// Runs all tests of the workspace.
fn tests(installed: bool) -> Outcome {
    // If everything missing was installed, no test may be skipped.
    let all = [SEED, ("LOADLAB_LEAVE_NO_TEST_OUT", "1")];
    let env = if installed { &all[..] } else { &all[..1] };
    let ran = run_all(env)?;
    let failed = failed(&ran.stdout);
    let is_repeated = failed.as_ref().is_some_and(|names| (1..=MOST_AGAIN).contains(&names.len()));
    let Some(failed) = failed.filter(|_| is_repeated && !ran.status.success()) else { return judge(&ran) };
    let names = failed.join(", ");
    println!("\n==== again, one at a time, to tell where to look: {names}");
    let again = run_again(&failed, env)?;
    let alone = if again.status.success() { "pass" } else { "do not all pass" };
    judge(&ran).with_context(|| format!("{names}: alone they {alone}"))
}

/// Up to this many failed tests are run again, alone: whether they were disturbed or fail on their own shows where to
/// look first. They still count as failed.
const MOST_AGAIN: usize = 3;

/// Arguments for tests of the labs' services. Optimised like the services, so that their dependencies are compiled
/// once.
const TEST_OF_LAB: [&str; 4] = ["test", "--locked", "--release", "--manifest-path"];

/// Builds the services of the labs, their tests, and the parts that several labs use.
fn build_of_labs() -> Outcome {
    let manifests = service_manifests()?;
    for manifest in &manifests {
        check("cargo test", &[&TEST_OF_LAB[..], &[manifest, "--no-run"]].concat())?;
        let lab =
            Path::new(manifest).ancestors().nth(2).and_then(Path::file_name).context("a lab's folder")?;
        for options in lab::builds(&lab.to_string_lossy()) {
            let build = ["build", "--locked", "--release", "--manifest-path", manifest];
            check("cargo build", &[&build, options.as_slice()].concat())?;
        }
    }
    let parts = root::parts_of_labs().context("cannot read labs/parts")?;
    for part in &parts {
        let ran = shown(program("labs/parts/build.sh").arg(part))?;
        ensure!(
            ran.status.success(),
            "labs/parts/build.sh {part}: {}\n{}",
            ran.status,
            last_lines(&ran.stdout)
        );
    }
    Ok(format!("{} labs, {} parts", manifests.len(), parts.len()))
}

fn tests_of_labs() -> Outcome {
    let mut found = Vec::new();
    for manifest in service_manifests()? {
        found.push(count_tests(&[&TEST_OF_LAB[..], &[&manifest]].concat())?);
    }
    Ok(found.join(", "))
}

/// A cargo command on a separate workspace that uses what the main one has compiled, and leaves that workspace's own
/// target folder alone: a step that runs at the same time may copy it.
fn shared(manifest: &str, args: &[&str]) -> Command {
    let (command, options) = args.split_first().expect("a command");
    let mut cargo = cargo(&[&[*command, "--manifest-path", manifest], options].concat());
    cargo.env("CARGO_TARGET_DIR", root::target());
    cargo
}

/// Runs the bodies of the fuzz targets over their seeds, and compiles the targets themselves without linking: fuzzing
/// takes longer than a check may (fuzz/README.md).
fn fuzz_targets() -> Outcome {
    let found = judge(&shown(&mut shared(FUZZ, &["test", "--locked"]))?)?;
    let mut engine = shared(FUZZ, &["check", "--locked", "--bins", "--features", "engine"]);
    // Nothing is linked, so libFuzzer itself need not be compiled.
    let ran = shown(engine.env("CUSTOM_LIBFUZZER_PATH", root::target().join("no-engine.a")))?;
    ensure!(ran.status.success(), "cargo check: {}", ran.status);
    Ok(found)
}

/// Runs cargo, which shows its own messages.
fn check(what: &str, args: &[&str]) -> Result<()> {
    let ran = shown(&mut cargo(args))?;
    ensure!(ran.status.success(), "{what}: {}\n{}", ran.status, last_lines(&ran.stdout));
    Ok(())
}

/// Runs tests, and requires that there are some and that all pass.
fn count_tests(args: &[&str]) -> Outcome {
    judge(&shown(&mut cargo(args))?)
}

/// The manifests of the services of all labs.
fn service_manifests() -> Result<Vec<String>> {
    let labs = root::labs().context("cannot read labs/")?;
    let manifests: Vec<_> = labs.iter().map(|lab| lab.join("service/Cargo.toml")).collect();
    let found: Vec<_> = manifests.iter().filter(|m| m.is_file()).map(|m| m.display().to_string()).collect();
    ensure!(!found.is_empty(), "there is no labs/*/service/Cargo.toml");
    Ok(found)
}
