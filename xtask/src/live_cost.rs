//! `cargo xtask live-cost`: what the live screen and the live page cost in throughput. The same load again and again,
//! nobody looking, the screen on a terminal, the page with a reader; in turn, so that a machine that changes its mind
//! changes it for all of them. Each is held against the round's run without a view.
//!
//! On a busy machine the figures are noise, and the command says so.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::command::{cargo, find, program, shown};
use crate::peers::measure::{Cores, busy_share};
use crate::peers::server::Server;
use crate::peers::table::median;
use crate::root::target;

/// What a view may cost at most: a share of the throughput without it.
const MOST: f64 = 0.02;
/// Above this share of busy cores figures are noise.
const QUIET: f64 = 0.1;
/// How long one run may take beyond its load.
pub const SPARE: Duration = Duration::from_secs(30);

/// Measure what the live screen and the live page cost in throughput
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of each load
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rounds; each has one load for each view
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Users
    #[arg(long, default_value_t = 50)]
    users: u64,
    /// This loadlab, instead of a release build of this repository
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Fail where a view costs more than 2 %
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

/// Runs it.
///
/// # Errors
/// nginx, `script` or the build is missing, or a load fails.
pub fn run(args: &Args) -> Result<ExitCode> {
    ensure!(find("nginx").is_some(), "nginx is not installed\nhint: apt-get install nginx-light");
    ensure!(find("script").is_some(), "script is not installed\nhint: apt-get install bsdutils");
    let binary = binary(args.binary.as_deref())?;
    remark_on_noise()?;
    let dir = target().join("xtask/live-cost");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let server = Server::start(&Cores::choose()?, &dir)?;
    let url = format!("http://{}/128", server.address());
    let mut rates = [const { Vec::new() }; VIEWS.len()];
    for round in 0..args.rounds {
        for step in 0..VIEWS.len() {
            let which = (round + step) % VIEWS.len();
            let rate = once(args, &binary, &url, VIEWS[which].0, &dir)?;
            println!("round {}, {}: {rate:.0} requests/s", round + 1, VIEWS[which].1);
            rates[which].push(rate);
        }
    }
    let (text, worst) = reported(&rates);
    println!("\n{text}");
    let failed = args.strict && worst > MOST;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The loadlab to be measured: the one given, or a release build.
///
/// # Errors
/// It does not build.
pub fn binary(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(binary) = given {
        return Ok(binary.to_owned());
    }
    shown(&mut cargo(&["build", "--locked", "--release", "-p", "loadlab"]))?.ok("the build of loadlab")?;
    Ok(target().join("release/loadlab"))
}

/// Says so where this machine is busy.
///
/// # Errors
/// The kernel does not tell.
pub fn remark_on_noise() -> Result<()> {
    let busy = busy_share(Duration::from_secs(1))?;
    if busy > QUIET {
        println!("this machine is {:.0} % busy with other things: figures are noise", busy * 100.0);
    }
    Ok(())
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

/// One load; its ok responses per second.
fn once(args: &Args, binary: &Path, url: &str, view: View, dir: &Path) -> Result<f64> {
    let (out, err) = (dir.join("out.json"), dir.join("err"));
    let mut words = vec![binary.display().to_string(), "bench".into(), url.into(), "--json".into()];
    words.extend(["-c".into(), args.users.to_string(), "-d".into(), format!("{}s", args.seconds)]);
    words.extend(match view {
        View::Nothing => vec!["--quiet".to_owned()],
        View::Screen => Vec::new(),
        View::Page => vec!["--quiet".to_owned(), "--ui".to_owned()],
    });
    // Each on a terminal of its own, so that the kernel's scheduler takes none for a better one; the result goes to a
    // file, and so does what is reported where it is not to be drawn.
    let quoted: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
    let reported = if view == View::Screen { String::new() } else { format!(" 2> '{}'", err.display()) };
    let line = format!("stty cols 120 rows 40; {} > '{}'{reported}", quoted.join(" "), out.display());
    fs::write(&err, "")?;
    let mut command = program("script");
    command.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm-256color");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let longest = Duration::from_secs(args.seconds) + SPARE;
    ended(&mut command, (view == View::Page).then_some(err.as_path()), longest)?;
    let text = fs::read_to_string(&out)?;
    let summary: Value = serde_json::from_str(&text)
        .with_context(|| format!("no result: {text}{}", fs::read_to_string(&err).unwrap_or_default()))?;
    summary["rate_per_s"]["ok"].as_f64().context("no rate in the result")
}

/// Runs a command to its end, with a reader of its page where it has one.
#[expect(clippy::disallowed_methods, reason = "between two looks, in a loop with an end")]
fn ended(command: &mut Command, page: Option<&Path>, longest: Duration) -> Result<()> {
    let since = Instant::now();
    let mut child = command.spawn().context("cannot start the load")?;
    let mut following = page.is_none();
    loop {
        if child.try_wait()?.is_some() {
            ensure!(following, "the page was never read");
            return Ok(());
        }
        if since.elapsed() > longest {
            let _ = child.kill();
            let _ = child.wait();
            bail!("a load did not end in {longest:?}");
        }
        if let Some(link) = page.filter(|_| !following).and_then(link_in) {
            following = true;
            std::thread::spawn(move || follow(&link));
        }
        sleep(Duration::from_millis(20));
    }
}

fn link_in(err: &Path) -> Option<String> {
    let text = fs::read_to_string(err).ok()?;
    let link = text.split("http://").nth(1)?;
    link.contains('\n').then(|| link.lines().next().unwrap_or_default().trim_end_matches('/').to_owned())
}

/// Reads the page's events to their end, and then takes the report, as a browser does.
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
