//! Bytes written in hexadecimal digits.

/// The bytes that pairs of digits stand for; `None` if there is anything but digits, or half a pair.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    if pairs.remainder().is_empty() { Some(pairs.map(|pair| pair[0] << 4 | pair[1]).collect()) } else { None }
}

/// Two digits for each byte.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        assert_eq!(to_hex(&[0x00, 0xff, 0x7a]), "00ff7a");
        assert_eq!(from_hex(&to_hex(b"any bytes")).as_deref(), Some(&b"any bytes"[..]));
    }

    #[test]
    fn pairs_of_digits() {
        for (text, expect) in [
            ("", Some(vec![])),
            ("00fF7a", Some(vec![0x00, 0xff, 0x7a])),
            ("0", None),
            ("00 f", None),
            ("0g", None),
            ("+1", None),
            ("ü1", None),
        ] {
            assert_eq!(from_hex(text), expect, "{text}");
        }
    }
}
