//! Text to tokens. Every token knows its position, since every error message needs one.

use super::{ExprError, Literal, NumberKind, Quantity};
use crate::spec::bound::Operator;
use crate::text::units;

/// A token and its position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) what: TokenKind,
    pub(super) at: usize,
    pub(super) len: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Name(String),
    Literal(Literal),
    Operator(Operator),
    And,
    Or,
    Plus,
    Minus,
    Times,
    Divide,
    Open,
    Close,
    OpenWindow,
    CloseWindow,
    Dots,
    Comma,
    End,
}

fn error(message: String, at: usize, len: usize, hint: Option<&str>) -> ExprError {
    ExprError { message, at, len, hint: hint.map(str::to_owned) }
}

/// All tokens of a text; the last one is [`TokenKind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ExprError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let (what, len) = match c {
            '0'..='9' => literal(text, at)?,
            '"' | '\'' => quoted(text, at, c)?,
            _ if c.is_alphabetic() || c == '_' => name(text, at)?,
            _ => punctuation(text, at, c)?,
        };
        tokens.push(Token { what, at, len });
        at += len;
    }
    tokens.push(Token { what: TokenKind::End, at: text.len(), len: 0 });
    Ok(tokens)
}

fn punctuation(text: &str, at: usize, c: char) -> Result<(TokenKind, usize), ExprError> {
    let rest = &text[at..];
    if let Some((sign, operator)) = Operator::ALL.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
        return Ok((TokenKind::Operator(operator), sign.len()));
    }
    let what = match c {
        '+' => TokenKind::Plus,
        '-' => TokenKind::Minus,
        '*' => TokenKind::Times,
        '/' => TokenKind::Divide,
        '(' => TokenKind::Open,
        ')' => TokenKind::Close,
        '[' => TokenKind::OpenWindow,
        ']' => TokenKind::CloseWindow,
        ',' => TokenKind::Comma,
        '.' if rest.starts_with("..") => return Ok((TokenKind::Dots, 2)),
        '&' => return Err(error("unknown operator `&`".to_owned(), at, 1, Some("write `and`"))),
        '|' => return Err(error("unknown operator `|`".to_owned(), at, 1, Some("write `or`"))),
        '=' => return Err(error("`=` is not a comparison".to_owned(), at, 1, Some("write `==`"))),
        '!' => {
            let hint = "invert the comparison: `p99 >= 2s` for `not p99 < 2s`";
            return Err(error("unknown operator `!`".to_owned(), at, 1, Some(hint)));
        }
        '.' => return Err(error("a number begins with a digit".to_owned(), at, 1, Some("write `0.5`"))),
        '<' | '>' => return Err(error(format!("`{c}` is not an operator"), at, 1, None)),
        _ => {
            return Err(error(
                format!("unexpected character `{}`", c.escape_debug()),
                at,
                c.len_utf8(),
                None,
            ));
        }
    };
    Ok((what, c.len_utf8()))
}

fn name(text: &str, at: usize) -> Result<(TokenKind, usize), ExprError> {
    let rest = &text[at..];
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    let mut len = rest.find(|c| !in_name(c)).unwrap_or(rest.len());
    // `a..b` is a window's dots, never a name
    len = rest[..len].find("..").unwrap_or(len);
    let found = &rest[..len];
    if found.ends_with(['-', '.']) {
        let message = format!("`{found}` is not a name");
        return Err(error(message, at, len, Some("put spaces around a `-` that subtracts")));
    }
    Ok((
        match found {
            "and" | "AND" => TokenKind::And,
            "or" | "OR" => TokenKind::Or,
            _ => TokenKind::Name(canonical(found)),
        },
        len,
    ))
}

/// `p99.9` and `p99.99` are written `p99_9` and `p99_99` in documents.
fn canonical(name: &str) -> String {
    for (spelled, canonical) in [("p99.9", "p99_9"), ("p99.99", "p99_99")] {
        if let Some(before) = name.strip_suffix(spelled)
            && (before.is_empty() || before.ends_with('.'))
        {
            return format!("{before}{canonical}");
        }
    }
    name.to_owned()
}

fn quoted(text: &str, at: usize, quote: char) -> Result<(TokenKind, usize), ExprError> {
    let rest = &text[at + 1..];
    match rest.find(quote) {
        Some(0) => Err(error("the name is empty".to_owned(), at, 2, None)),
        Some(end) => Ok((TokenKind::Name(canonical(&rest[..end])), end + 2)),
        None => Err(error(format!("the name has no closing {quote}"), at, text.len() - at, None)),
    }
}

fn literal(text: &str, at: usize) -> Result<(TokenKind, usize), ExprError> {
    let rest = &text[at..];
    let len = literal_len(rest);
    let written = &rest[..len];
    match quantity(written) {
        Some(quantity) => Ok((TokenKind::Literal(Literal { quantity, text: written.to_owned(), at }), len)),
        None => {
            let divided = written.split_once('/').is_some_and(|(number, _)| quantity(number).is_some());
            let hint = match divided {
                true => "put spaces around a `/` that divides",
                false => "numbers are written `1024`, `0.1%`, `200ms`, `1m30s`, `15MiB` or `1000/s`",
            };
            Err(error(format!("`{written}` is not a number with a unit"), at, len, Some(hint)))
        }
    }
}

/// The length of a number with its unit: digits, letters, `%`, a point before a digit, a slash before a letter.
fn literal_len(rest: &str) -> usize {
    let mut chars = rest.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, c)| *c);
        let belongs = match c {
            '.' => next.is_some_and(|c| c.is_ascii_digit()),
            '/' => next.is_some_and(char::is_alphabetic),
            _ => c.is_alphanumeric() || c == '_' || c == '%',
        };
        if !belongs {
            return at;
        }
    }
    rest.len()
}

/// A number with its unit. Durations come before sizes: `5m` is five minutes, `5M` five million bytes.
pub(super) fn quantity(written: &str) -> Option<Quantity> {
    let plain = |text: &str| -> Option<f64> {
        let digits: String = text.chars().filter(|c| *c != '_').collect();
        let numeric = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
        digits.parse::<f64>().ok().filter(|n| numeric && n.is_finite())
    };
    if let Some(value) = plain(written) {
        return Some(Quantity { kind: NumberKind::Plain, value });
    }
    if let Some(percent) = written.strip_suffix('%') {
        return plain(percent).map(|value| Quantity { kind: NumberKind::Percent, value });
    }
    if let Some((number, per)) = written.split_once('/') {
        // a load has no rate of 0, but a number may be compared with one
        let value = match plain(number)? {
            0.0 => units::parse_rate_per_s(&format!("1/{per}")).ok().map(|_| 0.0)?,
            _ => units::parse_rate_per_s(written).ok()?,
        };
        return Some(Quantity { kind: NumberKind::Rate, value });
    }
    if let Ok(ns) = units::parse_duration_ns(written) {
        return Some(Quantity { kind: NumberKind::Duration, value: ns as f64 / 1e6 });
    }
    let bytes = units::parse_bytes(written).ok()?;
    Some(Quantity { kind: NumberKind::Bytes, value: bytes as f64 })
}
