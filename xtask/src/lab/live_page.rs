//! trade-processor's page in a browser: opened once, while the load goes, and left alone until the system is down.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::command::{Ends, soon};
use crate::in_browser::in_a_browser;

/// The front end may take so long to come up, and the trial to end.
const LONGEST: Duration = Duration::from_secs(300);

/// Notes every number of messages that the page shows, and which one stood there when its connection ended.
const NOTE: &str = "(() => {
  const messages = document.getElementById('messages'), state = document.getElementById('state');
  window.noted = { updates: 0, ended: null };
  new MutationObserver(() => { noted.updates += 1; }).observe(messages, { childList: true, characterData: true, subtree: true });
  new MutationObserver(() => {
    if (state.textContent === 'connecting') noted.ended ??= Number(messages.value.replaceAll(',', ''));
  }).observe(state, { childList: true, characterData: true, subtree: true });
})()";

/// A page that is loaded anew has no notes any more; one that asks for its numbers has asked for more than this.
const ASKED: &str = "performance.getEntriesByType('resource').filter((e) => !/(page.css|world.js|page.js|events)$/.test(e.name)).length";

/// What was seen of the page.
pub struct Seen {
    /// The messages it counted when the front end went down.
    pub last: f64,
    /// How often the number changed under its reader's eyes.
    pub updates: u64,
    /// Requests that the page made beside its own files and the one stream of updates.
    pub asked: u64,
    /// Circles on the map.
    pub countries: u64,
    /// Ribbons between currencies.
    pub ribbons: u64,
    /// What its scripts complained of.
    pub console: Vec<String>,
}

/// Starts a run, once there is a browser; opens the page of the front end at a port, as soon as there is one, and watches
/// it until the front end ends it.
///
/// # Errors
/// The run does not start or ends too early, there is no page in time, or the browser fails.
pub fn watch(port: u16, picture: &Path, start: impl FnOnce() -> Result<Ends>) -> Result<(Ends, Seen)> {
    in_a_browser(|browser| {
        let mut run = start()?;
        soon("a front end", LONGEST, || {
            if let Some(status) = run.0.try_wait()? {
                bail!("loadlab run ended before its time: {status}");
            }
            Ok(TcpStream::connect(("127.0.0.1", port)).ok())
        })?;
        Ok((run, look(browser, port, picture)?))
    })?
}

fn look(browser: &mut Browser, port: u16, picture: &Path) -> Result<Seen> {
    browser.screen((1280, 760), "light");
    browser.call("Page.navigate", json!({ "url": format!("http://127.0.0.1:{port}/") }));
    browser.until(
        "document.readyState === 'complete' && document.getElementById('state')?.textContent === 'live'",
    );
    browser.value(NOTE);
    // A picture of a page that has something on it.
    browser.until("noted.updates >= 3");
    browser.until("document.querySelectorAll('.ribbon').length > 10");
    browser.picture(picture);
    let count = |browser: &mut Browser, what: &str| browser.value(what).as_u64().unwrap_or(0);
    let countries = count(browser, "document.querySelectorAll('.dot').length");
    let ribbons = count(browser, "document.querySelectorAll('.ribbon').length");
    // [`Browser::until`] gives a page half a minute; this waits for the trial.
    soon("the end of the front end", LONGEST, || {
        Ok((browser.value("noted.ended !== null") == json!(true)).then_some(()))
    })
    .with_context(|| format!("console: {:?}", browser.console))?;
    let noted = browser.value("noted");
    let asked = count(browser, ASKED);
    let number = |key: &str| noted.get(key).and_then(Value::as_f64);
    Ok(Seen {
        last: number("ended").unwrap_or(f64::NAN),
        updates: noted["updates"].as_u64().unwrap_or(0),
        asked,
        countries,
        ribbons,
        console: browser.console.clone(),
    })
}
