//! Reports in a real browser: nothing appears on its console, and every chart is drawn.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::in_browser::in_a_browser;
use crate::lab::LABS;
use crate::root::target;
use crate::steps::Outcome;

/// Charts are drawn when they come into sight, so all of the page has to be in sight.
const ALL: (u32, u32) = (1280, 30_000);
/// What a reader sees first.
const FIRST: (u32, u32) = (1280, 2000);

/// A page whose script fails: the browser must tell of it, or its silence about others means nothing.
const FAILING: &str = "<!doctype html><title>fails</title><script>throw new Error('on purpose')</script>";

/// Every chart that is shown is drawn: of many cases one is shown at a time.
const IS_DRAWN: &str = "[...document.querySelectorAll('figure.chart')]\
    .every((f) => f.querySelector('canvas') || !f.checkVisibility())";

/// Opens the report of every lab that was run, in light and in dark.
///
/// # Errors
/// A report is missing, its console is not silent, or a chart is not drawn.
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
    let mut words = Vec::new();
    for lab in LABS {
        let report = lab.record_dir().join("report.html");
        ensure!(report.is_file(), "no report at {}: `labs end to end` makes it", report.display());
        let picture = folder.join(format!("{}.png", lab.name));
        let _ = fs::remove_file(&picture);
        for scheme in ["light", "dark"] {
            let drawn = drawn_of(&report, scheme, &picture);
            let drawn = drawn.with_context(|| format!("{} ({scheme})", report.display()))?;
            words.push(format!("{}, {scheme}: {drawn} charts", lab.name));
        }
        let bytes = fs::metadata(&picture).with_context(|| picture.display().to_string())?.len();
        ensure!(bytes > 10_000, "{} has {bytes} bytes: an empty page", picture.display());
        words.push(format!("picture: {}", picture.display()));
    }
    Ok(words.join("; "))
}

/// How many charts a report draws.
fn drawn_of(report: &Path, scheme: &str, picture: &Path) -> Result<usize> {
    let page = in_a_browser(|browser| {
        browser.screen(FIRST, scheme);
        browser.open(report);
        browser.picture(picture);
        browser.screen(ALL, scheme);
        browser.until(IS_DRAWN);
        let dom = browser.value("document.documentElement.outerHTML");
        Page { dom: dom.as_str().unwrap_or_default().to_owned(), console: browser.console.clone() }
    })?;
    check(&page)
}

/// A page after its scripts have run.
struct Page {
    dom: String,
    console: Vec<String>,
}

/// How many charts the page drew.
fn check(page: &Page) -> Result<usize> {
    ensure!(page.console.is_empty(), "on the console:\n{}", page.console.join("\n"));
    ensure!(page.dom.trim_end().ends_with("</html>"), "the page is not whole");
    // Of many cases one is shown at a time, and what is not shown is not drawn.
    let one_at_a_time = page.dom.contains("<body class=\"picked");
    let is_shown = |part: &&str| !(one_at_a_time && part.contains("class=\"case\""));
    let shown: Vec<&str> = page.dom.split("<section ").filter(is_shown).collect();
    let count = |what: &str| shown.iter().map(|part| part.matches(what).count()).sum::<usize>();
    let (charts, drawn) = (count("<figure class=\"chart"), count("<canvas"));
    ensure!(charts > 0, "there is no chart");
    ensure!(charts == drawn, "{drawn} of {charts} charts are drawn");
    Ok(drawn)
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
        let bare = "<figure class=\"chart\"></figure>";
        let many = |first: &str, second: &str| {
            let case =
                |class: &str, figure: &str| format!("<section id=\"a\" class=\"{class}\">{figure}</section>");
            let cases = format!("{}{}", case("case shown", first), case("case", second));
            page(&format!("<html><body class=\"picked\">{cases}</body></html>"), &[])
        };
        assert_eq!(many(figure, bare).unwrap(), 1);
        assert_eq!(many(bare, figure).unwrap_err().to_string(), "0 of 1 charts are drawn");
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
