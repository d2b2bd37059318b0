//! Values encoded for JSON, forms and URLs.

use loadlab_record::spec::escape::Escape;

/// A number in JSON syntax: YAML also knows `0x10`, `1_000`, `007` and `.5`.
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

/// A value escaped for its place.
pub(crate) fn written(value: &str, escape: Escape) -> String {
    match escape {
        Escape::Raw | Escape::Header => value.to_owned(),
        Escape::Json => escaped(value),
        Escape::Url | Escape::UrlRaw | Escape::UrlTarget | Escape::Form => {
            let mut out = Vec::new();
            // Only header fields can fail.
            let _ = escape.write(value.as_bytes(), &mut out);
            String::from_utf8_lossy(&out).into_owned()
        }
    }
}

/// The escaping of the same place for a value put in unescaped.
pub(crate) fn raw(escape: Escape) -> Escape {
    match escape {
        Escape::Url => Escape::UrlRaw,
        Escape::Json | Escape::Form => Escape::Raw,
        other => other,
    }
}
