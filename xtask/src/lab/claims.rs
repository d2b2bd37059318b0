//! Assertions that are all made before any of them is reported, so that one run shows everything that does not hold.

use std::fmt::Display;

use anyhow::{bail, ensure};

use crate::steps::Outcome;

/// Assertions made, and those that did not hold.
#[derive(Default)]
pub struct Claims {
    made: usize,
    broken: Vec<String>,
}

impl Claims {
    /// Asserts; `otherwise` says what is wrong.
    pub fn claim(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        self.made += 1;
        if !holds {
            self.broken.push(otherwise());
        }
    }

    /// Asserts that two values are the same.
    pub fn same<T: PartialEq + Display>(&mut self, what: impl Display, is: T, should: T) {
        self.claim(is == should, || format!("{what}: {is}, should be {should}"));
    }

    /// How many held, or what did not.
    ///
    /// # Errors
    /// One did not hold, or none was made.
    pub fn into_outcome(self, of: &str) -> Outcome {
        ensure!(self.made > 0, "{of}: nothing was asserted");
        if !self.broken.is_empty() {
            bail!("{of}: {} of {} do not hold\n{}", self.broken.len(), self.made, self.broken.join("\n"));
        }
        Ok(format!("{} assertions on {of}", self.made))
    }
}
