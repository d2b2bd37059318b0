//! Reports in a real browser: nothing appears on its console, and every chart is drawn.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::command::{captured, find, program};
use crate::lab::LABS;
use crate::root::target;
use crate::steps::Outcome;

/// How long the browser may take for one page.
const LONGEST: Duration = Duration::from_secs(90);

/// A browser that does nothing of its own accord, and tells what pages write on the console.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--log-level=0",
    // Charts are drawn when they come into sight, so all of the page has to be in sight.
    "--window-size=1280,30000",
    "--virtual-time-budget=10000",
];

/// A page whose script fails: the browser must tell of it, or its silence about others means nothing.
const FAILING: &str = "<!doctype html><title>fails</title><script>throw new Error('on purpose')</script>";

/// Opens the report of every lab that was run, in light and in dark.
///
/// # Errors
/// A report is missing, its console is not silent, or a chart is not drawn.
pub fn open_all() -> Outcome {
    let folder = target().join("xtask/browser");
    fs::create_dir_all(&folder)?;
    let failing = folder.join("failing.html");
    fs::write(&failing, FAILING)?;
    let shown = open(&failing, &[])?;
    ensure!(
        shown.console.len() == 1,
        "the browser does not tell of errors on its console: {:?}",
        shown.console
    );
    let mut words = Vec::new();
    for lab in LABS {
        let report = lab.record_dir().join("report.html");
        ensure!(report.is_file(), "no report at {}: `labs end to end` makes it", report.display());
        for (name, extra) in [("light", &[][..]), ("dark", &["--blink-settings=preferredColorScheme=0"][..])]
        {
            let page = open(&report, extra)?;
            let drawn = check(&page).with_context(|| format!("{} ({name})", report.display()))?;
            words.push(format!("{}, {name}: {drawn} charts", lab.name));
        }
        let picture = folder.join(format!("{}.png", lab.name));
        picture_of(&report, &picture)?;
        words.push(format!("picture: {}", picture.display()));
    }
    Ok(words.join("; "))
}

/// A page after its scripts have run.
struct Page {
    dom: String,
    console: Vec<String>,
}

fn open(file: &Path, extra: &[&str]) -> Result<Page> {
    let ran = browse(file, &[&["--dump-dom"], extra].concat())?;
    let console = ran.1.lines().filter(|l| l.contains(":CONSOLE")).map(str::to_owned).collect();
    Ok(Page { dom: ran.0, console })
}

fn picture_of(file: &Path, picture: &Path) -> Result<()> {
    let _ = fs::remove_file(picture);
    browse(file, &[&format!("--screenshot={}", picture.display()), "--window-size=1280,2000"])?;
    let bytes = fs::metadata(picture).with_context(|| picture.display().to_string())?.len();
    ensure!(bytes > 10_000, "{} has {bytes} bytes: an empty page", picture.display());
    Ok(())
}

/// Opens a file: the browser's standard output and error.
fn browse(file: &Path, extra: &[&str]) -> Result<(String, String)> {
    let chromium = find("chromium").context("chromium is not installed")?;
    let profile = Profile::new()?;
    let mut command = program(chromium);
    command.args(FLAGS).args(extra);
    command.arg(format!("--user-data-dir={}", profile.0.display()));
    command.arg(format!("file://{}", file.display()));
    let ran = captured(&mut command, LONGEST)?;
    if !ran.status.success() {
        bail!("chromium: {}\n{}", ran.status, ran.stderr);
    }
    Ok((ran.stdout, ran.stderr))
}

/// How many charts the page drew.
fn check(page: &Page) -> Result<usize> {
    ensure!(page.console.is_empty(), "on the console:\n{}", page.console.join("\n"));
    ensure!(page.dom.trim_end().ends_with("</html>"), "the page is not whole");
    let charts = page.dom.matches("<figure class=\"chart").count();
    let drawn = page.dom.matches("<canvas").count();
    ensure!(charts > 0, "there is no chart");
    ensure!(charts == drawn, "{drawn} of {charts} charts are drawn");
    Ok(drawn)
}

/// A browser's profile: a folder of its own each time, removed after use.
struct Profile(PathBuf);

impl Profile {
    fn new() -> Result<Profile> {
        let dir = target().join(format!("xtask/browser/profile-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        Ok(Profile(dir))
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        // A helper of the browser may still write; what is left is below target/ and gets used again.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_must_be_silent_whole_and_drawn() {
        let figure = "<figure class=\"chart\" data-chart=\"a\"><canvas></canvas></figure>";
        let page = |dom: &str, console: &[&str]| {
            check(&Page { dom: dom.to_owned(), console: console.iter().map(|c| (*c).to_owned()).collect() })
        };
        assert_eq!(page(&format!("<html>{figure}{figure}</html>"), &[]).unwrap(), 2);
        for (dom, console, expect) in [
            ("<html></html>", &[][..], "there is no chart"),
            ("<html><figure class=\"chart\"></figure></html>", &[], "0 of 1 charts are drawn"),
            (&format!("<html>{figure}"), &[], "the page is not whole"),
            (&format!("<html>{figure}</html>"), &["INFO:CONSOLE:1] \"oh\""], "on the console:"),
        ] {
            let error = page(dom, console).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        }
    }
}
