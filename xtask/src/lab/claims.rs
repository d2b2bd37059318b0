//! Assertions that are all evaluated before any of them is reported, so that one run shows every failure.

use std::fmt::Display;

use anyhow::{bail, ensure};
use serde_json::Value;

use crate::steps::Outcome;

/// Counts assertions, and records those that failed.
#[derive(Default)]
pub struct Claims {
    made: usize,
    broken: Vec<String>,
}

impl Claims {
    /// Asserts that `holds`; `otherwise` describes the failure.
    pub fn claim(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        self.made += 1;
        if !holds {
            self.broken.push(otherwise());
        }
    }

    /// Asserts that two values are equal.
    pub fn same<T: PartialEq + Display>(&mut self, what: impl Display, is: T, should: T) {
        self.claim(is == should, || format!("{what}: {is}, should be {should}"));
    }

    /// Asserts something about the numbers of a JSON value, such as `requests/ok + requests/failed <= 2 *
    /// requests/started`. See [`number`] for the operands; `<`, `<=` and `==` compare both sides and can be chained. A
    /// comparison with a missing number fails.
    pub fn hold(&mut self, what: &str, value: &Value, assertion: &str) {
        let is_compared = |word: &&str| matches!(*word, "<" | "<=" | "==");
        let words: Vec<&str> = assertion.split_whitespace().collect();
        let sides: Vec<f64> = words.split(|w| is_compared(w)).map(|side| sum(value, side)).collect();
        let operators: Vec<&str> = words.iter().copied().filter(is_compared).collect();
        let holds = operators.iter().zip(sides.windows(2)).all(|(operator, pair)| match *operator {
            "<" => pair[0] < pair[1],
            "<=" => pair[0] <= pair[1],
            _ => pair[0] == pair[1],
        });
        self.claim(holds && !operators.is_empty(), || format!("{what}: `{assertion}` is not so: {sides:?}"));
    }

    /// Whether an assertion whose failure contains this text failed.
    pub fn breaks(&self, text: &str) -> bool {
        self.broken.iter().any(|broken| broken.contains(text))
    }

    /// The number of assertions, or the failures.
    ///
    /// # Errors
    /// An assertion failed, or none was made.
    pub fn into_outcome(self, of: &str) -> Outcome {
        ensure!(self.made > 0, "{of}: nothing was asserted");
        if !self.broken.is_empty() {
            bail!("{of}: {} of {} do not hold\n{}", self.broken.len(), self.made, self.broken.join("\n"));
        }
        Ok(format!("{} assertions on {of}", self.made))
    }
}

/// A sum of products; NaN if there is nothing to add.
fn sum(value: &Value, words: &[&str]) -> f64 {
    if words.is_empty() {
        return f64::NAN;
    }
    let (mut sum, mut sign, mut product) = (0.0, 1.0, 1.0);
    for word in words {
        match *word {
            "*" => {}
            "+" | "-" => {
                sum += sign * product;
                (sign, product) = (if *word == "-" { -1.0 } else { 1.0 }, 1.0);
            }
            word => product *= number(value, word),
        }
    }
    sum + sign * product
}

/// A literal number, a number in a JSON value by its path (`requests/ok`), the sum of all numbers in an object
/// (`failures/*`), or the first of several that exists (`response_ms/p50|response_ms/over_ms/p50`). NaN if it is
/// missing.
pub fn number(value: &Value, words: &str) -> f64 {
    let one = |word: &str| {
        if let Ok(number) = word.parse() {
            return Some(number);
        }
        match word.strip_suffix("/*") {
            Some(path) => {
                let all = value.pointer(&format!("/{path}"))?.as_object()?.values();
                Some(all.filter_map(Value::as_f64).sum())
            }
            None => value.pointer(&format!("/{word}"))?.as_f64(),
        }
    };
    words.split('|').find_map(one).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_compared() {
        let value = json!({"a": 2, "b": {"c": 3, "d": 4}, "none": null});
        let holds = |assertion: &str| {
            let mut claims = Claims::default();
            claims.hold("it", &value, assertion);
            claims.into_outcome("it").is_ok()
        };
        for good in
            ["a + b/c == 5", "b/* - a == 5", "a < b/c <= 2 * b/c - 3", "x|none|a == 2", "a * b/c < 6.5 "]
        {
            assert!(holds(good), "{good}");
        }
        for bad in ["a == b/c", "a < b/c < 3", "x == x", "a <= x", "none/* == 0", "a", "", "<= a"] {
            assert!(!holds(bad), "{bad}");
        }
    }
}
