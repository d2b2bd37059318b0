//! Runs work in a real browser, and turns its failures into errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Result, anyhow};

use crate::browser::Browser;

/// Does something in a browser, where failures are panics, as in tests.
///
/// # Errors
/// The panic's message.
pub fn in_a_browser<T>(work: impl FnOnce(&mut Browser) -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| work(&mut Browser::start()))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("the browser failed");
        anyhow!("{text}")
    })
}
