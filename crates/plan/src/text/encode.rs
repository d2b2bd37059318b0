//! Values as JSON, forms and URLs want them written.

/// A number as JSON writes it: YAML also knows `0x10`, `1_000`, `007` and `.5`.
pub(crate) fn json_number(text: &str) -> String {
    if text.parse::<serde_json::Number>().is_ok() {
        return text.to_owned();
    }
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    let digits = plain.strip_prefix("0x").map(|d| (d, 16)).or(plain.strip_prefix("0o").map(|d| (d, 8)));
    let whole = digits.and_then(|(d, radix)| u64::from_str_radix(d, radix).ok());
    match (whole, plain.parse::<f64>()) {
        (Some(n), _) => n.to_string(),
        (None, Ok(n)) if n.is_finite() => {
            if n.fract() == 0.0 && n.abs() < 1e15 {
                format!("{n:.0}")
            } else {
                n.to_string()
            }
        }
        _ => format!("\"{}\"", escaped(text)),
    }
}

pub(crate) fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// As `application/x-www-form-urlencoded` has it.
pub(crate) fn form_encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'*' | b'-' | b'.' | b'_' => out.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Percent-encodes all bytes but the plain ones.
pub(crate) fn percent(value: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let one = |b: u8| if is_plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    value.bytes().map(one).collect()
}
