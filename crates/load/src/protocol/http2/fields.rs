//! The fields of a response: status, length, and whether the response is malformed (RFC 9113 §8.1–8.3).
//!
//! Blanks around values are allowed, although the RFC forbids them: sloppy applications write them, and nothing here
//! can be misled by them. Any other violation makes the response malformed.

/// The result of one field block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Value of `:status`, or 0.
    pub status: u16,
    /// Value of `content-length`.
    pub length: Option<u64>,
    /// Whether it had a field whose name begins with a colon.
    pub pseudo: bool,
    /// Whether it had any other field.
    regular: bool,
    /// The first violation, in words.
    pub breach: Option<&'static str>,
}

/// Fields that belong to a connection of HTTP/1 (RFC 9113 §8.2.2).
const OF_CONNECTION: [&[u8]; 5] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];

/// Whether it is a field that belongs to a connection of HTTP/1.
pub fn is_of_connection(name: &[u8]) -> bool {
    OF_CONNECTION.contains(&name)
}

/// Whether each byte may occur in a field's name.
static IN_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut i = 0x21;
    while i < 0x7f {
        table[i] = !(i as u8).is_ascii_uppercase() && i as u8 != b':';
        i += 1;
    }
    table
};

impl Facts {
    /// Takes the next field.
    #[inline]
    pub fn take(&mut self, name: &[u8], value: &[u8]) {
        if self.breach.is_none()
            && let Err(message) = self.look(name, value)
        {
            self.breach = Some(message);
        }
    }

    fn look(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if let [b':', pseudo @ ..] = name {
            self.pseudo = true;
            if self.regular {
                return Err("a pseudo-header field after regular ones");
            }
            if pseudo != b"status" {
                return Err("a pseudo-header field not allowed in responses");
            }
            if self.status != 0 {
                return Err(":status given twice");
            }
            self.status = status(value).ok_or(":status is not a status code")?;
            return Ok(());
        }
        self.regular = true;
        if name.is_empty() || !name.iter().all(|b| IN_NAME[*b as usize]) {
            return Err("invalid field name");
        }
        if memchr::memchr3(0, b'\r', b'\n', value).is_some() {
            return Err("invalid field value");
        }
        if is_of_connection(name) {
            return Err("a connection-specific field of HTTP/1");
        }
        if name == b"content-length" {
            let length = length(value).ok_or("content-length is not a number")?;
            if self.length.is_some_and(|l| l != length) {
                return Err("content-length given twice with different values");
            }
            self.length = Some(length);
        }
        Ok(())
    }
}

fn status(value: &[u8]) -> Option<u16> {
    let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = value else { return None };
    Some(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
}

fn length(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &[(&str, &str)], expect: Result<(u16, Option<u64>), &str>) {
        let mut facts = Facts::default();
        fields.iter().for_each(|(n, v)| facts.take(n.as_bytes(), v.as_bytes()));
        let found = facts.breach.map_or(Ok((facts.status, facts.length)), Err);
        assert_eq!(found, expect, "{fields:?}");
    }

    #[test]
    fn good_heads() {
        check(&[(":status", "200")], Ok((200, None)));
        check(&[(":status", "404"), ("content-length", "17"), ("a", " b ")], Ok((404, Some(17))));
        check(&[("x-trailer", "1")], Ok((0, None)));
        check(&[(":status", "200"), ("content-length", "5"), ("content-length", "5")], Ok((200, Some(5))));
        check(&[(":status", "999"), ("content-length", "18446744073709551615")], Ok((999, Some(u64::MAX))));
    }

    #[test]
    fn malformed_heads() {
        for (fields, message) in [
            (&[(":status", "200"), (":status", "200")][..], ":status given twice"),
            (&[("a", "b"), (":status", "200")], "a pseudo-header field after regular ones"),
            (&[(":path", "/")], "a pseudo-header field not allowed in responses"),
            (&[(":status", "20")], ":status is not a status code"),
            (&[(":status", "020")], ":status is not a status code"),
            (&[(":status", "2000")], ":status is not a status code"),
            (&[(":status", "+20")], ":status is not a status code"),
            (&[("", "b")], "invalid field name"),
            (&[("A", "b")], "invalid field name"),
            (&[("a b", "b")], "invalid field name"),
            (&[("a:b", "b")], "invalid field name"),
            (&[("a\u{e9}", "b")], "invalid field name"),
            (&[("a", "b\r\nc: d")], "invalid field value"),
            (&[("a", "b\0")], "invalid field value"),
            (&[("connection", "close")], "a connection-specific field of HTTP/1"),
            (&[("transfer-encoding", "chunked")], "a connection-specific field of HTTP/1"),
            (
                &[("content-length", "1"), ("content-length", "2")],
                "content-length given twice with different values",
            ),
            (&[("content-length", "-1")], "content-length is not a number"),
            (&[("content-length", "")], "content-length is not a number"),
            (&[("content-length", "18446744073709551616")], "content-length is not a number"),
        ] {
            check(fields, Err(message));
        }
    }
}
