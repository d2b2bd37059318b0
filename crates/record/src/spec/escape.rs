//! How a value is escaped for its place: in a URL, a form, a JSON string or a header field.

use crate::text::url;

/// How a place escapes the values put into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Escape {
    /// Nothing: bodies that are plain text.
    #[default]
    Raw,
    /// A part of a path or query: percent-encoded except letters, digits and `-._~` (RFC 3986 §2.3).
    Url,
    /// A path or query already in URL form: only what would end the request line early is encoded.
    UrlRaw,
    /// As [`Escape::UrlRaw`], directly after the host: of a whole URL (a `Location`), scheme, host and fragment are
    /// dropped, and `/` is prepended if missing.
    UrlTarget,
    /// Between the quotes of a JSON string (RFC 8259 §7).
    Json,
    /// `application/x-www-form-urlencoded`: a blank is `+`.
    Form,
    /// A header field's value: line breaks and other control characters are refused.
    Header,
}

/// A value for a header field contains a control character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlCharacter;

impl Escape {
    /// Appends a value, escaped for its place.
    ///
    /// # Errors
    /// A control character in a header field.
    #[inline]
    pub fn write(self, value: &[u8], out: &mut Vec<u8>) -> Result<(), ControlCharacter> {
        match self {
            Escape::Raw => out.extend_from_slice(value),
            Escape::Header => {
                if value.iter().any(|b| is_control(*b) && *b != b'\t') {
                    return Err(ControlCharacter);
                }
                out.extend_from_slice(value);
            }
            Escape::Url => percent_encode(value, out, is_unreserved),
            Escape::UrlRaw => percent_encode(value, out, |b| b > b' ' && b < 0x7f && b != b'#'),
            Escape::UrlTarget => {
                let target = url::target_of(value);
                if !target.starts_with(b"/") {
                    out.push(b'/');
                }
                percent_encode(target, out, |b| b > b' ' && b < 0x7f && b != b'#');
            }
            Escape::Form => form(value, out),
            Escape::Json => json(value, out),
        }
        Ok(())
    }
}

fn is_control(byte: u8) -> bool {
    byte < b' ' || byte == 0x7f
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";

fn percent_encode(value: &[u8], out: &mut Vec<u8>, plain: impl Fn(u8) -> bool) {
    for &byte in value {
        if plain(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[
                b'%',
                HEX_UPPER[usize::from(byte >> 4)],
                HEX_UPPER[usize::from(byte & 15)],
            ]);
        }
    }
}

fn form(value: &[u8], out: &mut Vec<u8>) {
    for part in value.split_inclusive(|b| *b == b' ') {
        let (part, blank) = match part.strip_suffix(b" ") {
            Some(part) => (part, true),
            None => (part, false),
        };
        percent_encode(part, out, |b| b.is_ascii_alphanumeric() || matches!(b, b'*' | b'-' | b'.' | b'_'));
        if blank {
            out.push(b'+');
        }
    }
}

/// Bytes that are not UTF-8 become U+FFFD: the document stays valid.
fn json(value: &[u8], out: &mut Vec<u8>) {
    for chunk in value.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0..b' ' => {
                    let low = HEX_UPPER[usize::from(byte & 15)];
                    out.extend_from_slice(&[b'\\', b'u', b'0', b'0', b'0' + (byte >> 4), low]);
                }
                _ => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_escaped_for_their_place() {
        let all = "a B&=+%/?#\"\\\n\u{1}é~*";
        for (escape, expect) in [
            (Escape::Raw, all),
            (Escape::Url, "a%20B%26%3D%2B%25%2F%3F%23%22%5C%0A%01%C3%A9~%2A"),
            (Escape::UrlRaw, "a%20B&=+%/?%23\"\\%0A%01%C3%A9~*"),
            (Escape::Form, "a+B%26%3D%2B%25%2F%3F%23%22%5C%0A%01%C3%A9%7E*"),
            (Escape::Json, "a B&=+%/?#\\\"\\\\\\n\\u0001é~*"),
        ] {
            let mut out = Vec::new();
            assert_eq!(escape.write(all.as_bytes(), &mut out), Ok(()), "{escape:?}");
            assert_eq!(String::from_utf8(out).unwrap(), expect, "{escape:?}");
        }
        let mut out = Vec::new();
        assert_eq!(Escape::Header.write(b"a\tb\xff", &mut out), Ok(()));
        assert_eq!(Escape::Header.write(b"a\r\nb", &mut out), Err(ControlCharacter));
        assert_eq!(Escape::Header.write(b"\x7f", &mut out), Err(ControlCharacter));
    }

    #[test]
    fn paths_from_elsewhere_begin_with_a_slash() {
        for (value, expect) in [
            ("/a?b=c", "/a?b=c"),
            ("a b", "/a%20b"),
            ("http://other:80/x?y#z", "/x?y"),
            ("https://other", "/"),
            ("http://other?q", "/?q"),
            ("//other/x", "/x"),
            ("?q", "/?q"),
            ("", "/"),
            ("a/b://c", "/a/b://c"),
        ] {
            let mut out = Vec::new();
            Escape::UrlTarget.write(value.as_bytes(), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expect, "{value}");
        }
    }

    proptest! {
        #[test]
        fn escaped_json_is_the_value_again(value: String) {
            let mut out = b"\"".to_vec();
            Escape::Json.write(value.as_bytes(), &mut out).unwrap();
            out.push(b'"');
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), value);
        }

        #[test]
        fn json_of_any_bytes_is_json(value: Vec<u8>) {
            let mut out = b"\"".to_vec();
            Escape::Json.write(&value, &mut out).unwrap();
            out.push(b'"');
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), String::from_utf8_lossy(&value));
        }

        #[test]
        fn nothing_leaves_its_place(value: Vec<u8>) {
            for escape in [Escape::Url, Escape::UrlRaw, Escape::UrlTarget, Escape::Form] {
                let mut out = Vec::new();
                escape.write(&value, &mut out).unwrap();
                prop_assert!(out.iter().all(|b| (0x21..0x7f).contains(b) && *b != b'#'));
                if matches!(escape, Escape::Url | Escape::Form) {
                    prop_assert!(!out.iter().any(|b| b"&=/?;,".contains(b)));
                    let unplus: Vec<u8> = out.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
                    prop_assert_eq!(unpercent(&unplus), value.clone());
                }
            }
        }
    }

    fn unpercent(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < text.len() {
            if text[at] == b'%' {
                let hex = std::str::from_utf8(&text[at + 1..at + 3]).unwrap();
                out.push(u8::from_str_radix(hex, 16).unwrap());
                at += 3;
            } else {
                out.push(text[at]);
                at += 1;
            }
        }
        out
    }
}
