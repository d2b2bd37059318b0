//! Reports in a real browser: the console stays empty, and every chart is drawn.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::in_browser::in_a_browser;
use crate::lab::LABS;
use crate::root::target;
use crate::steps::Outcome;

/// Size of a window that shows the whole page: charts are drawn only when they scroll into view.
const ALL: (u32, u32) = (1280, 30_000);
/// Size of a window that shows what a reader sees first.
const FIRST: (u32, u32) = (1280, 2000);

/// A page whose script fails: the browser must report that, or an empty console on other pages means nothing.
const FAILING: &str = "<!doctype html><title>fails</title><script>throw new Error('on purpose')</script>";

/// Every visible chart is drawn: with many cases one is shown at a time.
const IS_DRAWN: &str = "[...document.querySelectorAll('figure.chart')]\
    .every((f) => f.querySelector('canvas') || !f.checkVisibility())";

/// Opens the report of every lab that was run, in light and dark.
///
/// # Errors
/// A report is missing, its console is not empty, or a chart is not drawn.
pub fn open_all() -> Outcome {
    let folder = target().join("xtask/browser");
    fs::create_dir_all(&folder)?;
    let failing = folder.join("failing.html");
    fs::write(&failing, FAILING)?;
    let console = in_a_browser(|browser| {
        browser.go(&failing);
        browser.until("document.title === 'fails' && document.readyState === 'complete'");
        browser.console.len()
    })?;
    ensure!(console == 1, "the browser tells of {console} errors of a page that has one");
    let mut shown = Vec::new();
    for lab in LABS {
        let report = lab.record_dir().join("report.html");
        ensure!(report.is_file(), "no report at {}: `labs end to end` makes it", report.display());
        let picture = folder.join(format!("{}.png", lab.name));
        let _ = fs::remove_file(&picture);
        for scheme in ["light", "dark"] {
            let drawn = drawn_of(&report, scheme, &picture);
            let drawn = drawn.with_context(|| format!("{} ({scheme})", report.display()))?;
            shown.push(format!("{}, {scheme}: {drawn} charts", lab.name));
        }
        let bytes = fs::metadata(&picture).with_context(|| picture.display().to_string())?.len();
        ensure!(bytes > 10_000, "{} has {bytes} bytes: an empty page", picture.display());
        shown.push(format!("picture: {}", picture.display()));
    }
    Ok(shown.join("; "))
}

/// The number of charts that a report draws: all visible ones, and at least one.
fn drawn_of(report: &Path, scheme: &str, picture: &Path) -> Result<u64> {
    let (drawn, console) = in_a_browser(|browser| {
        browser.screen(FIRST, scheme);
        browser.open(report);
        browser.picture(picture);
        browser.screen(ALL, scheme);
        browser.until(IS_DRAWN);
        let drawn = browser.value("document.querySelectorAll('figure.chart canvas').length");
        (drawn.as_u64().unwrap_or(0), browser.console.clone())
    })?;
    ensure!(console.is_empty(), "on the console:\n{}", console.join("\n"));
    ensure!(drawn > 0, "there is no chart");
    Ok(drawn)
}
