//! trade-processor's page in a browser: opened once, while the load runs, and left alone until the system is down.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::command::{Ends, soon};
use crate::in_browser::in_a_browser;

/// How long the front end may take to come up, and the trial to end.
const LONGEST: Duration = Duration::from_secs(300);

/// Records every number of messages that the page shows, and which one it showed when its connection ended.
const NOTE: &str = "(() => {
  const messages = document.getElementById('messages'), state = document.getElementById('state');
  window.noted = { updates: 0, ended: null };
  new MutationObserver(() => { noted.updates += 1; }).observe(messages, { childList: true, characterData: true, subtree: true });
  new MutationObserver(() => {
    if (state.textContent === 'connecting') noted.ended ??= Number(messages.value.replaceAll(',', ''));
  }).observe(state, { childList: true, characterData: true, subtree: true });
})()";

/// What was seen of the page: the messages it counted when the front end went down, how often that number changed
/// before, requests other than its own files and the one stream of updates (a reloaded page has lost its records),
/// circles on the map, and ribbons between currencies.
const SEEN: &str = "({
  last: noted.ended,
  updates: noted.updates,
  asked: performance.getEntriesByType('resource').filter((e) => !/(page.css|world.js|page.js|events)$/.test(e.name)).length,
  countries: noted.countries,
  ribbons: noted.ribbons,
})";

/// Starts a run, once there is a browser; opens the page of the front end at a port, as soon as there is one, and
/// watches it until the front end ends it. Returns what was seen, and its scripts' errors.
///
/// # Errors
/// The run does not start or ends too early, there is no page in time, or the browser fails.
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
    // Take a picture once the page has content.
    browser.until("noted.updates >= 3");
    browser.until("document.querySelectorAll('.ribbon').length > 10");
    browser.picture(picture);
    browser.value(
        "noted.countries = document.querySelectorAll('.dot').length, noted.ribbons = document.querySelectorAll('.ribbon').length",
    );
    // [`Browser::until`] waits half a minute for a page; this waits for the trial.
    soon("the end of the front end", LONGEST, || {
        Ok((browser.value("noted.ended !== null") == json!(true)).then_some(()))
    })
    .with_context(|| format!("console: {:?}", browser.console))?;
    Ok(browser.value(SEEN))
}
