//! trade-processor's page in a browser: opened once, while the load runs, and left alone until the system is down.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::command::{Ends, soon};
use crate::in_browser::in_a_browser;

/// Time limit for the front end to start, and for the trial to end.
const LONGEST: Duration = Duration::from_secs(300);

/// Counts the updates of the number of messages on the page, and records the number shown when its connection ended.
const NOTE: &str = "(() => {
  const messages = document.getElementById('messages'), state = document.getElementById('state');
  window.noted = { updates: 0, ended: null };
  new MutationObserver(() => { noted.updates += 1; }).observe(messages, { childList: true, characterData: true, subtree: true });
  new MutationObserver(() => {
    if (state.textContent !== 'connecting') return;
    noted.ended ??= Number(messages.value.replaceAll(',', ''));
    noted.ended_at ??= performance.now();
  }).observe(state, { childList: true, characterData: true, subtree: true });
})()";

/// What was seen of the page: the number of messages it showed when the front end went down, how often that number
/// changed before, how many streams of updates it opened until then, requests other than for these and its own files (a
/// reloaded page has lost its records), circles on the map, and ribbons between currencies.
const SEEN: &str = "({
  last: noted.ended,
  updates: noted.updates,
  streams: performance.getEntriesByType('resource').filter((e) => /events$/.test(e.name) && e.startTime < noted.ended_at).length,
  asked: performance.getEntriesByType('resource').filter((e) => !/(page.css|world.js|page.js|events)$/.test(e.name)).length,
  countries: noted.countries,
  ribbons: noted.ribbons,
})";

/// Starts a run once the browser is ready, opens the front end's page as soon as the port accepts connections, and
/// watches it until the front end closes it. Returns the run, what was seen, and the page's console errors.
///
/// # Errors
/// The run does not start or ends too early, the page does not appear in time, or the browser fails.
pub fn watch(
    port: u16,
    picture: &Path,
    start: impl FnOnce() -> Result<Ends>,
) -> Result<(Ends, Value, Vec<String>)> {
    in_a_browser(|browser| {
        let mut run = start()?;
        soon("a front end", LONGEST, || {
            if let Some(status) = run.0.try_wait()? {
                bail!("loadlab run ended before its time: {status}");
            }
            Ok(TcpStream::connect(("127.0.0.1", port)).ok())
        })?;
        Ok((run, look(browser, port, picture)?, browser.console.clone()))
    })?
}

fn look(browser: &mut Browser, port: u16, picture: &Path) -> Result<Value> {
    browser.screen((1280, 760), "light");
    browser.call("Page.navigate", json!({ "url": format!("http://127.0.0.1:{port}/") }));
    browser.until(
        "document.readyState === 'complete' && document.getElementById('state')?.textContent === 'live'",
    );
    browser.value(NOTE);
    // Take a screenshot once the page has content.
    browser.until("noted.updates >= 3");
    browser.until("document.querySelectorAll('.ribbon').length > 10");
    browser.until("document.querySelectorAll('.dot').length > 20");
    browser.picture(picture);
    browser.value(
        "noted.countries = document.querySelectorAll('.dot').length, noted.ribbons = document.querySelectorAll('.ribbon').length",
    );
    // [`Browser::until`] waits a minute at most, for a page; this waits for the whole trial.
    soon("the end of the front end", LONGEST, || {
        Ok((browser.value("noted.ended !== null") == json!(true)).then_some(()))
    })
    .with_context(|| format!("console: {:?}", browser.console))?;
    Ok(browser.value(SEEN))
}
