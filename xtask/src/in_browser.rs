//! Work in a real browser, of which what goes wrong comes back as an error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Result, anyhow};

use crate::browser::Browser;

/// Does something in a browser, which says what goes wrong by a panic, as tests do.
///
/// # Errors
/// What it said.
pub fn in_a_browser<T>(work: impl FnOnce(&mut Browser) -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| work(&mut Browser::start()))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("the browser failed");
        anyhow!("{text}")
    })
}
