//! One character of a text in every encoding: as itself, `%2B`, `+`, `\n`, `\/`, `\u002b`, `&plus;`, `&#43;`, and with
//! an escape of the escape (`%252B`, `\\\/`, `&amp;#43;`).

use super::entities;

/// How many levels of escapes are decoded.
pub const DEPTH: u8 = 2;
/// Maximum digits of a number in an escape, including leading zeros.
const MOST_DIGITS: usize = 10;

/// What can be read at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A character's bytes, and where its encoding ends.
    Unit(Unit),
    /// The text ends within an escape.
    CutOff,
}

/// Bytes of one character, and where its encoding ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    bytes: [u8; 4],
    count: u8,
    /// The offset after it.
    pub end: usize,
}

impl Unit {
    fn byte(byte: u8, end: usize) -> Unit {
        Unit { bytes: [byte, 0, 0, 0], count: 1, end }
    }

    fn character(c: char, end: usize) -> Unit {
        let mut bytes = [0; 4];
        let count = c.encode_utf8(&mut bytes).len() as u8;
        Unit { bytes, count, end }
    }

    /// What it represents.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.count)]
    }
}

/// Whether a byte may represent another one.
#[inline]
pub fn is_special(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&' | b'+')
}

/// Everything that the text at a position may represent.
pub fn each(text: &[u8], at: usize, depth: u8, take: &mut dyn FnMut(Read)) {
    let Some(byte) = text.get(at) else { return take(Read::CutOff) };
    take(Read::Unit(Unit::byte(*byte, at + 1)));
    match byte {
        b'+' => take(Read::Unit(Unit::byte(b' ', at + 1))),
        b'%' | b'\\' | b'&' if depth > 0 => {
            each(text, at, depth - 1, &mut |read| match read {
                Read::Unit(sign) => match sign.bytes() {
                    b"%" => hex_pair(text, sign.end, take),
                    b"\\" => backslash(text, sign.end, depth, take),
                    b"&" => ampersand(text, sign.end, take),
                    _ if sign.end > at + 1 => take(read),
                    _ => {}
                },
                Read::CutOff => take(read),
            });
        }
        _ => {}
    }
}

fn hex_pair(text: &[u8], at: usize, take: &mut dyn FnMut(Read)) {
    match number(text, at, 16, 2) {
        Digits { count: 2, value, end, .. } => take(Read::Unit(Unit::byte(value as u8, end))),
        Digits { is_cut_off: true, .. } => take(Read::CutOff),
        _ => {}
    }
}

fn backslash(text: &[u8], at: usize, depth: u8, take: &mut dyn FnMut(Read)) {
    let Some(sign) = text.get(at) else { return take(Read::CutOff) };
    let mut byte = |byte| take(Read::Unit(Unit::byte(byte, at + 1)));
    match sign {
        b'n' => byte(b'\n'),
        b't' => byte(b'\t'),
        b'r' => byte(b'\r'),
        b'b' => byte(8),
        b'f' => byte(12),
        b'v' => byte(11),
        b'0' => byte(0),
        b'x' => hex_pair(text, at + 1, take),
        b'u' => unicode(text, at + 1, take),
        sign if sign.is_ascii_punctuation() => each(text, at, depth - 1, &mut |read| match read {
            Read::Unit(unit) if !matches!(unit.bytes(), [b] if b.is_ascii_punctuation()) => {}
            read => take(read),
        }),
        _ => {}
    }
}

/// `002b`, a pair of surrogates, or `{2b}`.
fn unicode(text: &[u8], at: usize, take: &mut dyn FnMut(Read)) {
    if text.get(at) == Some(&b'{') {
        let digits = number(text, at + 1, 16, MOST_DIGITS);
        return match (char::from_u32(digits.value), text.get(digits.end)) {
            (_, None) => take(Read::CutOff),
            (Some(c), Some(b'}')) => take(Read::Unit(Unit::character(c, digits.end + 1))),
            _ => {}
        };
    }
    let first = number(text, at, 16, 4);
    match first {
        Digits { is_cut_off: true, .. } => return take(Read::CutOff),
        Digits { count: 4, .. } => {}
        _ => return,
    }
    if let Some(c) = char::from_u32(first.value) {
        return take(Read::Unit(Unit::character(c, first.end)));
    }
    // The backslash of a pair's second half may itself be escaped, too.
    let slashes = text[first.end..].iter().take_while(|b| **b == b'\\').count();
    let behind = first.end + slashes;
    let second = number(text, behind + 1, 16, 4);
    match text.get(behind) {
        None => take(Read::CutOff),
        Some(b'u') if second.is_cut_off => take(Read::CutOff),
        Some(b'u') if second.count == 4 && slashes > 0 => {
            let pair = char::decode_utf16([first.value as u16, second.value as u16]).next();
            if let Some(Ok(c)) = pair {
                take(Read::Unit(Unit::character(c, second.end)));
            }
        }
        _ => {}
    }
}

/// `#43;`, `#x2b;`, `plus;`; the semicolon may be missing after a number.
fn ampersand(text: &[u8], at: usize, take: &mut dyn FnMut(Read)) {
    if text.get(at) != Some(&b'#') {
        let rest = text.get(at..).unwrap_or_default();
        let length =
            rest.iter().take(entities::MAX_NAME_BYTES + 1).take_while(|b| b.is_ascii_alphanumeric()).count();
        return match (rest.get(length), entities::character(&rest[..length])) {
            (None, _) if entities::may_begin(&rest[..length]) => take(Read::CutOff),
            (Some(b';'), Some(c)) => take(Read::Unit(Unit::character(c, at + length + 1))),
            _ => {}
        };
    }
    let digits = match text.get(at + 1) {
        Some(b'x' | b'X') => number(text, at + 2, 16, MOST_DIGITS),
        _ => number(text, at + 1, 10, MOST_DIGITS),
    };
    match (char::from_u32(digits.value), text.get(digits.end)) {
        (_, None) => take(Read::CutOff),
        (Some(c), sign) if digits.count > 0 => {
            let end = digits.end + usize::from(sign == Some(&b';'));
            take(Read::Unit(Unit::character(c, end)));
        }
        _ => {}
    }
}

/// The number in an escape.
struct Digits {
    value: u32,
    count: usize,
    end: usize,
    /// The text ended before the maximum number of digits.
    is_cut_off: bool,
}

fn number(text: &[u8], at: usize, base: u32, most: usize) -> Digits {
    let rest = text.get(at..).unwrap_or_default();
    let mut digits = Digits { value: 0, count: 0, end: at.min(text.len()), is_cut_off: false };
    for byte in rest.iter().take(most) {
        let Some(digit) = char::from(*byte).to_digit(base) else { return digits };
        digits.value = digits.value.saturating_mul(base).saturating_add(digit);
        digits.count += 1;
        digits.end += 1;
    }
    digits.is_cut_off = digits.count < most;
    digits
}

/// The value without its percent-encoding, if it has any. A `%` without two digits stands for itself: a secret may
/// contain one as it is.
pub fn without_percent_encoding(value: &[u8]) -> Option<Vec<u8>> {
    let (mut decoded, mut at) = (Vec::with_capacity(value.len()), 0);
    while let Some(byte) = value.get(at) {
        let digits = number(value, at + 1, 16, 2);
        let is_escape = *byte == b'%' && digits.count == 2;
        decoded.push(if is_escape { digits.value as u8 } else { *byte });
        at = if is_escape { digits.end } else { at + 1 };
    }
    (decoded.len() < value.len()).then_some(decoded)
}
