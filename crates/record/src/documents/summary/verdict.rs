//! What a trial comes to: how its load ended, the verdict, reasons to doubt it, and what was expected.

use serde::{Deserialize, Serialize};

use crate::counts::quantile::FewSamples;
use crate::text::units::significant;

/// A trial's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every expectation held.
    Pass,
    /// An expectation did not hold, or a component died that should not have.
    Fail,
    /// Nothing failed, but too few samples leave an expectation open.
    Undecided,
    /// The measurement cannot be trusted.
    Invalid,
    /// Nothing was expected.
    None,
}

/// How a load ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// As planned.
    #[default]
    Complete,
    /// By a `stop_when` condition.
    Stopped,
    /// By Ctrl-C.
    Interrupted,
    /// loadlab was killed; this was assembled from what it had written.
    Partial,
    /// A component died, or the system did not come up.
    Broken,
}

/// A reason not to trust a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doubt {
    /// Short name: `late`, `littles_law`, `generator_cpu` …
    pub kind: String,
    /// Whether the doubt makes the trial INVALID.
    pub grave: bool,
    /// The figures it is based on.
    pub evidence: String,
    /// What to do about it.
    pub hint: String,
}

/// An expectation and whether it held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// As written.
    pub expr: String,
    /// `null`: undecided because there are too few samples (see `undecided`), or not known for another reason, in which
    /// case it counts as failed.
    pub holds: Option<bool>,
    /// The left-hand number of its first (or failing) comparison, in the unit it was written in.
    pub value: Option<f64>,
    /// The unit of `value`: `ms`, `s`, `%`, `MiB`, `/s`; empty for plain numbers.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub unit: String,
    /// Why it could not be known, or which part failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// Set if too few samples leave it open; this many would decide it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undecided: Option<FewSamples>,
}

impl Expectation {
    /// Whether too few samples leave it open.
    pub fn is_undecided(&self) -> bool {
        self.holds.is_none() && self.undecided.is_some()
    }

    /// Whether it does not hold or cannot be known, and more samples would not help.
    pub fn is_missed(&self) -> bool {
        self.holds != Some(true) && !self.is_undecided()
    }

    /// How many significant digits of `value` readers need, at least `least`: a value close to a limit in the
    /// expression must not read like the limit.
    pub fn digits(&self, least: i32) -> i32 {
        let Some(value) = self.value else { return least };
        let limits = numbers_in(&self.expr);
        let reads_like_a_limit = |digits: i32| {
            let shown: f64 = significant(value, digits).parse().unwrap_or(value);
            limits.iter().any(|limit| *limit == shown && *limit != value)
        };
        (least..=MOST_DIGITS).find(|digits| !reads_like_a_limit(*digits)).unwrap_or(least)
    }
}

/// A difference in later digits comes from the arithmetic, not from a measurement.
const MOST_DIGITS: i32 = 12;

/// The numbers that are written in an expression. Those in names, such as the 99 of `p99`, do no harm.
fn numbers_in(expr: &str) -> Vec<f64> {
    let numbers = expr.split(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_')));
    numbers.filter_map(|text| text.replace('_', "").parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_close_to_a_limit_does_not_read_like_it() {
        for (expr, value, least, expect) in [
            ("p99 < 50ms", 7.98712, 4, "7.987"),
            ("p99 < 50ms", 50.0, 4, "50.00"),
            ("p99 < 50ms", 50.004, 4, "50.004"),
            ("p99 < 50ms", 49.96, 3, "49.96"),
            ("goodput >= 1_000/s", 999.98, 4, "999.98"),
            ("availability > 99.9% and p99 < 2s", 99.90004, 4, "99.90004"),
            ("errors < 0.1%", 0.09996, 3, "0.09996"),
            // As close as the arithmetic is exact.
            ("errors < 0.1%", 0.1 - 1e-17, 4, "0.1000"),
        ] {
            let (holds, unit, note) = (Some(true), String::new(), None);
            let expr = expr.to_owned();
            let e = Expectation { expr, holds, value: Some(value), unit, note, undecided: None };
            assert_eq!(significant(value, e.digits(least)), expect, "{}", e.expr);
        }
    }
}
