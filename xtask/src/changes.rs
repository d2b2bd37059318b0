//! Comparing revisions, on real servers: how often `loadlab` calls equal servers different, and how often `loadlab
//! bisect` names the right revision. Also runs the simulations of both at full length.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::{Ends, captured, cargo, program, shown, soon};
use crate::root::target;
use crate::steps::Outcome;

/// Number of sessions that compare equal servers, and how many of them may call one better or worse.
const SESSIONS: usize = 40;
const MOST_ALARMS: usize = 5;
/// Number of searches, and how many of them must name the right revision.
const SEARCHES: usize = 20;
const LEAST_RIGHT: usize = 19;
/// Revisions of each repository. From one of them on, a request takes 8 % longer; every ninth does not build.
const REVISIONS: usize = 64;
const FAST_MS: &str = "10";
const SLOW_MS: &str = "10.8";
/// Time limit of long commands.
const LONGEST: Duration = Duration::from_secs(900);
const QUICK: Duration = Duration::from_secs(20);

/// The server in the repositories; its delay depends on the revision.
const SERVER: &str = "import http.server, sys, time\n\
    WAIT_S = float(open('ms').read()) / 1000\n\
    class Shop(http.server.BaseHTTPRequestHandler):\n    protocol_version = 'HTTP/1.1'\n    def do_GET(self):\n        \
    time.sleep(WAIT_S)\n        self.wfile.write(b'HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok')\n    \
    def log_message(self, *words):\n        pass\n\
    http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Shop).serve_forever()\n";
const PLAN: &str = "loadlab: 1\nname: shop\nsystem:\n  components:\n    shop:\n      build: test ! -e broken\n      \
    run: python3 -u server.py ${port}\n      port: auto\n      ready: { tcp: '127.0.0.1:${port}' }\n\
    load:\n  users: 2\n  duration: 500ms\n  journey: [{ get: 'http://127.0.0.1:${components.shop.port}/' }]\n";

/// Simulated sessions of equal cases and simulated searches, at full length.
///
/// # Errors
/// Too many false alarms, or too few changes found.
pub fn simulated() -> Outcome {
    let mut command =
        cargo(&["test", "--locked", "--release", "-p", "loadlab-analysis", "--test", "all", "--"]);
    command.args(["sequential::", "bisect::", "details::", "--nocapture"]).env("LOADLAB_TEST_LONG", "1");
    let ran = captured(&mut command, LONGEST)?.ok("cargo test")?;
    // The tests print their counts.
    let said = format!("{}{}", ran.stdout, ran.stderr);
    let counted: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| line.contains(" of 2000") || line.starts_with("details: "))
        .collect();
    ensure!(
        counted.len() == 6,
        "the simulations of five kinds of noise and of details were not all there:\n{said}"
    );
    let trials = |line: &&str| line.starts_with("| ") && line.contains(" % |");
    let trials: Vec<String> = said.lines().map(str::trim).filter(trials).map(describe_row).collect();
    ensure!(trials.len() == 4, "the simulations of four shifts were not all there:\n{said}");
    Ok(format!(
        "false alarms at any stop: {}; trials until settled beside a fixed plan's: {}",
        counted.join(", "),
        trials.join(", ")
    ))
}

/// `| 5 % | 15 | 38 | …` as `15/38 at 5 %`.
fn describe_row(row: &str) -> String {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    match cells.as_slice() {
        [_, shift, trials, fixed, ..] => format!("{trials}/{fixed} at {shift}"),
        _ => row.to_owned(),
    }
}

/// Compares equal servers until `loadlab` is certain how they differ.
///
/// # Errors
/// A command fails, or too many sessions call one of them better or worse.
pub fn equal() -> Outcome {
    let loadlab = built()?;
    let dir = fresh("equal")?;
    let log = dir.join("demo.log");
    let mut demo = program(&loadlab);
    // The demo prints its address as a message, on standard error.
    demo.args(["demo", "--port", "0"]).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
    let _demo = Ends(demo.spawn().context("loadlab demo")?);
    let url = soon("the demo", QUICK, || Ok(address(&log)))?;
    let (mut alarms, mut settled, mut rounds) = (Vec::new(), 0, 0);
    for session in 0..SESSIONS {
        let out = dir.join(session.to_string());
        let mut command = program(&loadlab);
        command.args([
            "bench",
            &url,
            "--vs",
            &format!("{url}?again"),
            "--until-certain",
            "--json",
            "--quiet",
            "--no-watch",
        ]);
        command.args(["--duration", "200ms", "--users", "4", "--out"]).arg(&out);
        let ran = captured(&mut command, LONGEST)?;
        let found: Value = serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())?;
        let verdict = found["verdict"].as_str().context("no verdict")?;
        if !matches!(verdict, "same" | "cannot_tell") {
            alarms.push(session.to_string());
        }
        settled += usize::from(found["exit"] == 0);
        rounds += found["compared"]["comparisons"][0]["trials"][0].as_u64().unwrap_or(0);
        fs::remove_dir_all(&out)?;
    }
    ensure!(
        alarms.len() <= MOST_ALARMS,
        "{} of {SESSIONS} sessions of equal servers raised an alarm",
        alarms.len()
    );
    Ok(format!(
        "{} of {SESSIONS} sessions of equal servers raised an alarm, {settled} were settled as the same, after {:.1} rounds on average",
        alarms.len(),
        rounds as f64 / SESSIONS as f64
    ))
}

/// The URL that the demo has printed.
fn address(log: &Path) -> Option<String> {
    let said = fs::read_to_string(log).ok()?;
    let from = said.find("http://127.0.0.1:")?;
    let url = said[from..].split(|c: char| c.is_whitespace()).next()?;
    Some(format!("{}/", url.trim_end_matches('/')))
}

/// Searches repositories with one slow revision for it.
///
/// # Errors
/// A command fails, or too few searches name the right revision.
pub fn searched() -> Outcome {
    let loadlab = built()?;
    let dir = fresh("searched")?;
    let (mut wrong, mut trials) = (Vec::new(), 0);
    let began = Instant::now();
    for search in 0..SEARCHES {
        // Spread over the history, and never next to a revision that does not build.
        let slow = 2 + (search * 37 + 11) % (REVISIONS - 2);
        let slow = if slow % 9 < 2 { slow + 2 } else { slow }.min(REVISIONS);
        let repository = dir.join(search.to_string());
        history(&repository, slow)?;
        let mut command = program(&loadlab);
        command.args(["bisect", "v1..HEAD", "plan.yaml", "--figure", "p50", "--json", "--quiet", "--out"]);
        command.arg(dir.join(format!("{search}-record"))).current_dir(&repository);
        let ran = captured(&mut command, LONGEST)?;
        let found: Value = serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())?;
        trials += found["trials"].as_array().map_or(0, Vec::len);
        let named = found["first_bad"].as_array().context("no list")?;
        if !(named.len() == 1 && named[0]["subject"] == format!("Change {slow}")) {
            wrong.push(format!(
                "{slow}: {}",
                named.iter().map(|n| n["subject"].to_string()).collect::<Vec<_>>().join(" ")
            ));
        }
    }
    let right = SEARCHES - wrong.len();
    ensure!(right >= LEAST_RIGHT, "{right} of {SEARCHES} right, wrong: {}", wrong.join(", "));
    Ok(format!(
        "{right} of {SEARCHES} searches over {REVISIONS} revisions with 8 % planted are right, with {:.1} trials and {:.0} s on average",
        trials as f64 / SEARCHES as f64,
        began.elapsed().as_secs_f64() / SEARCHES as f64
    ))
}

fn history(dir: &Path, slow: usize) -> Result<()> {
    fs::create_dir_all(dir)?;
    let git = |words: &[&str]| -> Result<()> {
        let user =
            ["-c", "user.name=Nobody", "-c", "user.email=nobody@localhost", "-c", "init.defaultBranch=main"];
        captured(program("git").arg("-C").arg(dir).args(user).args(words), QUICK)?.ok("git")?;
        Ok(())
    };
    git(&["init", "--quiet"])?;
    fs::write(dir.join("server.py"), SERVER)?;
    for number in 0..=REVISIONS {
        fs::write(dir.join("ms"), if number < slow { FAST_MS } else { SLOW_MS })?;
        fs::write(dir.join("number"), number.to_string())?;
        let broken = dir.join("broken");
        if number % 9 == 0 && number > 0 {
            fs::write(&broken, "")?;
        } else if broken.exists() {
            fs::remove_file(&broken)?;
        }
        git(&["add", "--all"])?;
        git(&["commit", "--quiet", "--message", &format!("Change {number}")])?;
        if number == 0 {
            git(&["tag", "v1"])?;
        }
    }
    fs::write(dir.join("plan.yaml"), PLAN)?;
    Ok(())
}

fn built() -> Result<PathBuf> {
    shown(&mut cargo(&["build", "--locked", "--release", "-p", "loadlab"]))?.ok("cargo build")?;
    Ok(target().join("release/loadlab"))
}

fn fresh(name: &str) -> Result<PathBuf> {
    let dir = target().join("xtask/changes").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    Ok(dir)
}
