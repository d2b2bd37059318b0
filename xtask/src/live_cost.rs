//! `cargo xtask live-cost`: what the live screen and the live page cost in throughput. The same load runs repeatedly:
//! without a view, with the screen on a terminal, and with the page and a reader. They take turns, so that a change of
//! the machine's speed affects all of them, and each is compared with the run without a view in the same round.
//!
//! On a busy machine the figures are noise, and the command reports that.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::{Ends, cargo, find, program, shown, soon};
use crate::peers::measure::{Cores, busy_share};
use crate::peers::server::Server;
use crate::peers::table::median;
use crate::root::target;

/// The most a view may cost: a share of the throughput without it.
const MOST: f64 = 0.02;
/// Above this share of busy cores the figures are noise.
const QUIET: f64 = 0.1;
/// Extra time allowed for one run beyond its load.
pub const SPARE: Duration = Duration::from_secs(30);

/// Measure what the live screen and the live page cost in throughput
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of each load
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Number of rounds; each has one load for each view
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Number of users
    #[arg(long, default_value_t = 50)]
    users: u64,
    /// Measure this loadlab, instead of a release build of this repository
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Fail if a view costs more than 2 %
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum View {
    Nothing,
    Screen,
    Page,
}

const VIEWS: [(View, &str); 3] = [(View::Nothing, "nothing"), (View::Screen, "screen"), (View::Page, "page")];

/// Runs the measurement.
///
/// # Errors
/// nginx, `script` or the build is missing, or a load fails.
pub fn run(args: &Args) -> Result<ExitCode> {
    ensure!(find("script").is_some(), "script is not installed\nhint: apt-get install bsdutils");
    let setup = Setup::new("live-cost", args.binary.as_deref())?;
    let mut rates = [const { Vec::new() }; VIEWS.len()];
    for round in 0..args.rounds {
        for step in 0..VIEWS.len() {
            let which = (round + step) % VIEWS.len();
            let rate = once(args, &setup, VIEWS[which].0)?;
            println!("round {}, {}: {rate:.0} requests/s", round + 1, VIEWS[which].1);
            rates[which].push(rate);
        }
    }
    let (text, worst) = reported(&rates);
    println!("\n{text}");
    let failed = args.strict && worst > MOST;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The setup of a measurement.
pub struct Setup {
    /// The loadlab given, or a release build.
    pub binary: PathBuf,
    /// An empty folder.
    pub dir: PathBuf,
    /// URL of a page served by nginx.
    pub url: String,
    _server: Server,
}

impl Setup {
    /// Starts nginx, and warns if this machine is busy.
    ///
    /// # Errors
    /// nginx or the build is missing.
    pub fn new(name: &str, binary: Option<&Path>) -> Result<Setup> {
        if binary.is_none() {
            shown(&mut cargo(&["build", "--locked", "--release", "-p", "loadlab"]))?.ok("cargo build")?;
        }
        let busy = busy_share(Duration::from_secs(1))?;
        if busy > QUIET {
            println!("this machine is {:.0} % busy with other things: figures are noise", busy * 100.0);
        }
        let dir = target().join("xtask").join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let server = Server::start(&Cores::choose()?, &dir)?;
        let url = format!("http://{}/128", server.address());
        let binary = binary.map_or_else(|| target().join("release/loadlab"), Path::to_owned);
        Ok(Setup { binary, dir, url, _server: server })
    }
}

/// The table, and the largest cost.
fn reported(rates: &[Vec<f64>; VIEWS.len()]) -> (String, f64) {
    let mut text = String::from(
        "| view | requests/s, median | cost, median of rounds | standard error |\n|---|---|---|---|\n",
    );
    let mut worst = f64::NEG_INFINITY;
    for (i, (view, name)) in VIEWS.iter().enumerate() {
        let mid = median(rates[i].clone()).unwrap_or(f64::NAN);
        if *view == View::Nothing {
            let _ = writeln!(text, "| {name} | {mid:.0} | | |");
            continue;
        }
        let costs: Vec<f64> =
            rates[i].iter().zip(&rates[0]).map(|(with, without)| 1.0 - with / without).collect();
        let n = costs.len() as f64;
        let mean = costs.iter().sum::<f64>() / n;
        let spread = costs.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        let cost = median(costs).unwrap_or(f64::NAN);
        worst = worst.max(cost);
        let error = (spread / n).sqrt() * 100.0;
        let _ = writeln!(text, "| {name} | {mid:.0} | {:.2} % | {error:.2} % |", cost * 100.0);
    }
    let _ = write!(
        text,
        "\nA view may cost {:.0} %; one whose standard error is larger than that tells nothing.",
        MOST * 100.0
    );
    (text, worst)
}

/// Runs one load, and returns its ok responses per second.
fn once(args: &Args, setup: &Setup, view: View) -> Result<f64> {
    let (out, err) = (setup.dir.join("out.json"), setup.dir.join("err"));
    let view_words = match view {
        View::Nothing => "--quiet",
        View::Screen => "",
        View::Page => "--quiet --ui",
    };
    // Each load has its own terminal, so that the kernel's scheduler does not favour one. The result goes to a file,
    // and so does standard error unless the screen is drawn there.
    let reported = if view == View::Screen { String::new() } else { format!(" 2> '{}'", err.display()) };
    let line = format!(
        "stty cols 120 rows 40; '{}' bench '{}' --json -c {} -d {}s {view_words} > '{}'{reported}",
        setup.binary.display(),
        setup.url,
        args.users,
        args.seconds,
        out.display()
    );
    fs::write(&err, "")?;
    let mut command = program("script");
    command.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm-256color");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Ends(command.spawn().context("cannot start the load")?);
    let mut is_read = view != View::Page;
    soon("the end of a load", Duration::from_secs(args.seconds) + SPARE, || {
        if let Some(link) = link_in(&err).filter(|_| !is_read) {
            is_read = true;
            std::thread::spawn(move || follow(&link));
        }
        Ok(child.0.try_wait()?)
    })?;
    ensure!(is_read, "the page was never read");
    let text = fs::read_to_string(&out)?;
    let summary: Value = serde_json::from_str(&text)
        .with_context(|| format!("no result: {text}{}", fs::read_to_string(&err).unwrap_or_default()))?;
    summary["rate_per_s"]["ok"].as_f64().context("no rate in the result")
}

fn link_in(err: &Path) -> Option<String> {
    let text = fs::read_to_string(err).ok()?;
    let link = text.split("http://").nth(1)?;
    link.contains('\n').then(|| link.lines().next().unwrap_or_default().trim_end_matches('/').to_owned())
}

/// Reads the page's events until they end, and then gets the report, as a browser does.
fn follow(link: &str) {
    let Some((address, token)) = link.split_once('/') else { return };
    for path in ["live", ""] {
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        let _ = write!(stream, "GET /{token}/{path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_shares_of_the_rounds_own_rate() {
        let (text, worst) =
            reported(&[vec![100.0, 200.0, 100.0], vec![99.0, 198.0, 99.0], vec![101.0, 202.0, 99.5]]);
        assert!(text.contains("| screen | 99 | 1.00 % | 0.00 % |"), "{text}");
        assert!(text.contains("| page | 101 | -1.00 % | 0.50 % |"), "{text}");
        assert!((worst - 0.01).abs() < 1e-9, "{worst}");
    }
}
