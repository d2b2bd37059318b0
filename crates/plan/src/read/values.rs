//! Typed scalars: durations, sizes, rates, counts, choices, names.

use loadlab_record::text::units::{self, UnitError, YEAR_NS};

use crate::keys::{Shape, renamed};
use crate::read::reader::{Fields, Reader, Scalar};
use crate::text::error::Problem;
use crate::text::node::{Node, ScalarKind, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;
use crate::text::suggest;

/// Reads a share: `2%` is 0.02.
pub(crate) fn share(text: &str) -> Option<f64> {
    let percent = text.trim().strip_suffix('%')?.trim().parse::<f64>().ok()?;
    Some(percent / 100.0).filter(|share| share.is_finite())
}

impl Reader<'_> {
    fn unit<T>(&mut self, node: &Node, what: &str, read: fn(&str) -> Result<T, UnitError>) -> Option<T> {
        let scalar = self.scalar(node, what)?;
        match read(&scalar.text) {
            Ok(value) => Some(value),
            Err(error) => {
                let missing = scalar.kind == ScalarKind::Number && what.contains("duration");
                let hint = missing.then(|| format!("add a unit: `{}s`?", scalar.text));
                self.wrong(&scalar, format!("`{}` is not {}", shorten(&scalar.text), error.expected), hint);
                None
            }
        }
    }

    /// A duration under a key, in nanoseconds; at most a year, so that their sums do not overflow.
    pub fn duration(&mut self, fields: &Fields<'_>, key: &str) -> Option<u64> {
        self.duration_of(fields.get(key)?, key)
    }

    /// As `duration`, for a value somewhere under the key.
    pub fn duration_of(&mut self, node: &Node, key: &str) -> Option<u64> {
        let ns = self.unit(node, "a duration such as `300ms`, `10s` or `1m30s`", units::parse_duration_ns)?;
        if ns > YEAR_NS {
            self.push(Problem::new(node.span, format!("`{key}` is longer than a year")));
            return None;
        }
        Some(ns)
    }

    /// A duration that must not be zero.
    pub fn positive_duration(&mut self, fields: &Fields<'_>, key: &str) -> Option<u64> {
        let ns = self.duration(fields, key)?;
        if ns == 0 {
            let span = fields.get(key).map_or(fields.at, |n| n.span);
            self.push(Problem::new(span, format!("`{key}` must be greater than zero")));
            return None;
        }
        Some(ns)
    }

    /// Reads a rate in requests per second.
    pub fn rate(&mut self, node: &Node) -> Option<f64> {
        self.unit(node, "a rate such as `1000/s` or `30/m`", units::parse_rate_per_s)
    }

    /// Reads a whole number within the bounds of its key.
    pub fn count(&mut self, fields: &Fields<'_>, key: &str) -> Option<u64> {
        let node = fields.get(key)?;
        let (least, most) = match fields.section.key(key).map(|k| &k.shape) {
            Some(Shape::Count(least, most) | Shape::CountOr(least, most, _)) => (*least, *most),
            _ => (0, u64::MAX),
        };
        let scalar = self.scalar(node, "a whole number")?;
        let beyond = |value: &str| format!("`{key}` is {value}; it must be from {least} to {most}");
        let digits = scalar.text.strip_prefix('-').unwrap_or(&scalar.text);
        let is_whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let Some(value) = whole_number(&scalar.text) else {
            if is_whole {
                self.wrong(&scalar, beyond(&shorten(&scalar.text)), None);
                return None;
            }
            let meant = units::parse_count(&scalar.text).map(|count| format!("write `{count}`"));
            self.wrong(&scalar, format!("`{}` is not a whole number", shorten(&scalar.text)), meant);
            return None;
        };
        if value < least || value > most {
            self.wrong(&scalar, beyond(&value.to_string()), None);
            return None;
        }
        Some(value)
    }

    /// Reads `true` or `false`.
    pub fn flag(&mut self, fields: &Fields<'_>, key: &str) -> Option<bool> {
        let scalar = self.scalar(fields.get(key)?, "`true` or `false`")?;
        match scalar.text.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            other => {
                self.wrong(&scalar, format!("`{}` is neither `true` nor `false`", shorten(other)), None);
                None
            }
        }
    }

    /// Reads one of the words of its key.
    pub fn choice(&mut self, fields: &Fields<'_>, key: &str) -> Option<&'static str> {
        let words = match fields.section.key(key).map(|k| &k.shape) {
            Some(Shape::OneOf(words)) => *words,
            _ => &[],
        };
        let listed = suggest::listed(words);
        let scalar = self.scalar(fields.get(key)?, &format!("one of {listed}"))?;
        let found = words.iter().copied().find(|w| *w == scalar.text);
        if found.is_none() {
            let (message, near) = match renamed::value(fields.section, key, &scalar.text) {
                Some(to) => (format!("`{}` of `{key}` was renamed to `{to}`", scalar.text), None),
                None => (
                    format!("`{}` is not a value of `{key}`: use one of {listed}", shorten(&scalar.text)),
                    suggest::nearest(&scalar.text, words.iter().copied()),
                ),
            };
            self.wrong(&scalar, message, near.map(|w| format!("did you mean `{w}`?")));
        }
        found
    }

    /// Reads a complete text under a key.
    pub fn text(&mut self, fields: &Fields<'_>, key: &str) -> Option<String> {
        self.scalar(fields.get(key)?, "a text").map(|s| s.text)
    }

    /// Reads a list of texts under a key; empty if the key is missing.
    pub fn texts(&mut self, fields: &Fields<'_>, key: &str) -> Vec<Scalar> {
        let Some(node) = fields.get(key) else { return Vec::new() };
        let items = self.list(node, "a list of texts");
        items.iter().filter_map(|n| self.scalar(n, "a text")).collect()
    }

    /// Whether a name is valid for a component, load, port or profile.
    pub fn check_name(&mut self, name: &str, span: Span, what: &str) -> bool {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        let fine = !name.is_empty() && name.len() <= 64 && name.chars().all(good);
        if !fine {
            let message = format!("`{}` is not a valid name for {what}", shorten(name));
            let better: String = name
                .chars()
                .take(64)
                .map(|c| if good(c.to_ascii_lowercase()) { c.to_ascii_lowercase() } else { '-' })
                .collect();
            let hint = format!("lower-case letters, digits, `-` and `_`, at most 64: `{better}`");
            self.push(Problem::new(span, message).hint(hint));
        }
        fine
    }

    /// Whether a name is valid for a probe or an axis.
    pub fn check_word(&mut self, name: &str, span: Span, what: &str) -> bool {
        let head = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        let fine = head && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !fine {
            let message = format!("`{}` is not a valid name for {what}", shorten(name));
            self.push(
                Problem::new(span, message)
                    .hint("letters, digits and `_`, at most 64, not starting with a digit"),
            );
        }
        fine
    }
}

/// A scalar's text whatever its type, for values that are only names.
pub(crate) fn plain_text(node: &Node) -> Option<(&str, ScalarKind)> {
    match &node.value {
        Value::Scalar(ScalarKind::Null, _) => None,
        Value::Scalar(kind, text) => Some((text, *kind)),
        _ => None,
    }
}

/// Reads digits with `_` between them.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    let fine = text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || c == '_');
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    if fine { digits.parse().ok() } else { None }
}

/// Parses a count, for limits that are counts.
pub(crate) fn parse_count(text: &str) -> Result<u64, UnitError> {
    whole_number(text)
        .filter(|n| *n > 0)
        .ok_or_else(|| UnitError { text: text.to_owned(), expected: "a whole number from 1" })
}

/// Whether a text is a measured limit: it may be in the matrix although it is not a plain value.
pub(crate) fn is_measured(text: &str) -> bool {
    text.trim_start().starts_with("${measured")
}
