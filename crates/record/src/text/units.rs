//! Durations, sizes, rates and CPU shares as people write them, and back.
//!
//! Durations `300ms 10s 1m30s`; sizes `15MiB 30kB`; rates `1000/s`; CPU `1%` (of one core) or `0.5` (cores).
//! Parsing is strict: an unknown unit or a missing one is an error that states what would be accepted.

use crate::counts::quantile::Estimate;
use crate::text::time::SECOND_NS;

/// Why a quantity was not understood: what was expected, in words, with an example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct UnitError {
    /// What was given.
    pub text: String,
    /// What would be accepted, such as "a duration such as `300ms`, `10s` or `1m30s`".
    pub expected: &'static str,
}

/// The longest duration that plans and options may name.
pub const YEAR_NS: u64 = 366 * 86_400 * SECOND_NS;

const DURATION: &str = "a duration such as `300ms`, `10s` or `1m30s`";
const SIZE: &str = "a size such as `512`, `30kB` or `15MiB`";
const RATE: &str = "a rate such as `1000/s` or `30/m`";
const CPU: &str = "a CPU limit such as `1%` (of one core), `50%` or `0.5` (cores)";

fn bad(text: &str, expected: &'static str) -> UnitError {
    UnitError { text: text.to_owned(), expected }
}

/// Splits a leading decimal number from what follows. No sign, no exponent.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let number: String = text[..end].chars().filter(|c| *c != '_').collect();
    let value: f64 = number.parse().ok()?;
    value.is_finite().then_some((value, &text[end..]))
}

/// A duration in nanoseconds, from `300ms`, `10s`, `1m30s`, `1h`, `250us`, `10ns`; a bare `0` is zero.
pub fn parse_duration_ns(text: &str) -> Result<u64, UnitError> {
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(0);
    }
    let mut total = 0f64;
    let mut last_unit = f64::INFINITY;
    while !rest.is_empty() {
        let (value, tail) = split_number(rest).ok_or_else(|| bad(text, DURATION))?;
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let unit = match &tail[..end] {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            "d" => 86400e9,
            _ => return Err(bad(text, DURATION)),
        };
        // `30s1m` and `1s1s` are typos, not durations.
        if unit >= last_unit {
            return Err(bad(text, DURATION));
        }
        last_unit = unit;
        total += value * unit;
        rest = &tail[end..];
    }
    if last_unit.is_infinite() || total > u64::MAX as f64 / 2.0 {
        return Err(bad(text, DURATION));
    }
    Ok(total.round() as u64)
}

/// A size in bytes, from `512`, `512B`, `30kB`, `2MB`, `15MiB`, `1GiB`. `k`, `M`, `G` are 1000s, `Ki`, `Mi`, `Gi`
/// 1024s.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let (value, unit) = split_number(text.trim()).ok_or_else(|| bad(text, SIZE))?;
    let unit = unit.trim_start();
    let factor = match unit.strip_suffix(['B', 'b']).unwrap_or(unit) {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" | "m" => 1e6,
        "G" | "g" => 1e9,
        "T" | "t" => 1e12,
        "Ki" | "ki" => 1024.0,
        "Mi" | "mi" => 1024f64.powi(2),
        "Gi" | "gi" => 1024f64.powi(3),
        "Ti" | "ti" => 1024f64.powi(4),
        _ => return Err(bad(text, SIZE)),
    };
    let bytes = value * factor;
    if bytes > 1e18 || bytes.fract() != 0.0 && unit.is_empty() {
        return Err(bad(text, SIZE));
    }
    Ok(bytes.round() as u64)
}

/// A count, from `1000`, `1_000`, `10k` or `1M`; `None` if it is not a whole number.
pub fn parse_count(text: &str) -> Option<u64> {
    let (value, unit) = split_number(text.trim())?;
    let count = match unit {
        "" => value,
        "k" | "K" => value * 1e3,
        "M" => value * 1e6,
        _ => return None,
    };
    (count.fract() == 0.0 && count < 9e15).then_some(count as u64)
}

/// The lowest rate: schedules count in millionths of a request per second.
const LEAST_RATE_PER_S: f64 = 1e-4;

/// A rate per second, from `1000/s`, `30/m`, `100/h` or a bare number (per second): at least 0.0001/s.
pub fn parse_rate_per_s(text: &str) -> Result<f64, UnitError> {
    let (value, unit) = split_number(text.trim()).ok_or_else(|| bad(text, RATE))?;
    let per_s = match unit.trim() {
        "" | "/s" | "/sec" => value,
        "/m" | "/min" => value / 60.0,
        "/h" => value / 3600.0,
        _ => return Err(bad(text, RATE)),
    };
    if (LEAST_RATE_PER_S..=1e9).contains(&per_s) { Ok(per_s) } else { Err(bad(text, RATE)) }
}

/// As [`parse_rate_per_s`], and also thousands: `5k`, `5k/s`.
///
/// # Errors
/// It is not a rate.
pub fn parse_short_rate_per_s(text: &str) -> Result<f64, UnitError> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let written_out = parse_count(number).map(|count| format!("{count}/{unit}"));
    parse_rate_per_s(written_out.as_deref().unwrap_or(text))
}

/// A CPU limit in cores, from `1%` (of one core) or `0.5` (cores).
pub fn parse_cpu_cores(text: &str) -> Result<f64, UnitError> {
    let (value, unit) = split_number(text.trim()).ok_or_else(|| bad(text, CPU))?;
    let cores = match unit.trim() {
        "%" => value / 100.0,
        "" => value,
        _ => return Err(bad(text, CPU)),
    };
    if cores > 0.0 && cores <= 4096.0 { Ok(cores) } else { Err(bad(text, CPU)) }
}

/// A duration for reading: three significant digits, in a suitable unit (`870 ns`, `4.21 ms`, `1m30s`).
pub fn format_duration_ns(ns: f64) -> String {
    let abs = ns.abs();
    let (value, unit) = match abs {
        _ if abs < 999.5 => return format!("{ns:.0} ns"),
        _ if abs < 999.5e3 => (ns / 1e3, "µs"),
        _ if abs < 999.5e6 => (ns / 1e6, "ms"),
        _ if abs < 60e9 => (ns / 1e9, "s"),
        _ => return format_long(abs, ns < 0.0),
    };
    format!("{} {unit}", significant(value, 3))
}

fn format_long(abs_ns: f64, negative: bool) -> String {
    let total_s = (abs_ns / 1e9).round() as u64;
    let (h, m, s) = (total_s / 3600, total_s / 60 % 60, total_s % 60);
    let sign = if negative { "-" } else { "" };
    match (h, m, s) {
        (0, m, 0) => format!("{sign}{m}m"),
        (0, m, s) => format!("{sign}{m}m{s:02}s"),
        (h, m, 0) => format!("{sign}{h}h{m:02}m"),
        (h, m, s) => format!("{sign}{h}h{m:02}m{s:02}s"),
    }
}

/// A size for reading, in 1024s: `512 B`, `15.0 MiB`.
pub fn format_bytes(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value.abs() < 1023.5 || unit == "TiB" {
            return match unit {
                "B" => format!("{value:.0} B"),
                _ => format!("{} {unit}", significant(value, 3)),
            };
        }
        value /= 1024.0;
    }
    unreachable!("the last unit returns")
}

/// `1 request`, `2 requests`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", format_count(n as f64), if n == 1 { one } else { many })
}

/// A count or rate for reading: thousands separated (`12,345`), three digits below 100.
pub fn format_count(value: f64) -> String {
    if value.abs() < 100.0 && value.fract() != 0.0 {
        return significant(value, 3);
    }
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

/// A share in 0..=1 as whole per cent: `42 %`.
pub fn format_percent_whole(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A share in 0..=1 as per cent, with one decimal below 10: `4.2 %`, `42 %`. One close to nothing or to all gets enough
/// decimals not to read like it: `0.003 %`, `99.96 %`.
pub fn format_percent_short(share: f64) -> String {
    let value = share * 100.0;
    let rest = 100.0 - value;
    let decimals_of =
        |small: f64| significant(small, 1).split_once('.').map_or(0, |(_, digits)| digits.len());
    let decimals = match () {
        () if value > 0.0 && value < 0.05 => decimals_of(value),
        () if value < 10.0 => 1,
        () if rest > 0.0 && rest <= 0.5 => decimals_of(rest),
        () => 0,
    };
    format!("{value:.decimals$} %")
}

/// A number to this many significant digits, without exponent and never cutting the integer part.
pub fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    // Rounded first, since rounding may carry into a new digit: 9.996 is 10.0.
    let exponent = format!("{:.*e}", (digits - 1).max(0) as usize, value.abs());
    let magnitude: i32 = exponent.split('e').nth(1).and_then(|e| e.parse().ok()).unwrap_or(0);
    format!("{value:.*}", (digits - 1 - magnitude).max(0) as usize)
}

/// What few samples show about a percentile, `41.2 ms (29.8…≥44.0)`: the estimate, and the interval that contains it
/// at 95 %. `largest` is the largest sample: if the interval has no upper end, the percentile may be that or more.
pub fn estimate_text(estimate: Estimate, largest: Option<f64>, format: impl Fn(f64) -> String) -> String {
    let Estimate { value, low, high } = estimate;
    let Some(value) = value else {
        return low.map_or_else(|| "unknown".to_owned(), |low| format!("≥ {}", format(low)));
    };
    let shown = format(value);
    let unit = shown.rsplit_once(' ').map(|(_, unit)| unit);
    // A common unit is written once.
    let short = |v: f64| match v {
        0.0 => "0".to_owned(),
        v => {
            let text = format(v);
            match (text.rsplit_once(' '), unit) {
                (Some((number, own)), Some(unit)) if own == unit => number.to_owned(),
                _ => text,
            }
        }
    };
    // All that is known is that the value is no smaller than the largest sample.
    if high.is_none() && low.is_some_and(|low| format(low) == shown) {
        return format!("≥ {shown}");
    }
    let low = low.map(short).unwrap_or_default();
    let high = high.map(short).or_else(|| largest.map(|v| format!("≥{}", short(v)))).unwrap_or_default();
    format!("{shown} ({low}…{high})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ns) in [
            ("300ms", 300_000_000),
            ("10s", 10_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5s", 1_500_000_000),
            ("250us", 250_000),
            ("0", 0),
            ("0s", 0),
            ("1h", 3_600_000_000_000),
        ] {
            assert_eq!(parse_duration_ns(text), Ok(ns), "{text}");
        }
        for text in ["", "10", "s", "-1s", "1s1s", "30s1m", "1x", "1e3s", "ten", "99999999999h"] {
            assert!(parse_duration_ns(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_rates_and_cpu() {
        assert_eq!(parse_bytes("15MiB"), Ok(15 << 20));
        assert_eq!(parse_bytes("30kB"), Ok(30_000));
        assert_eq!(parse_bytes("512"), Ok(512));
        assert!(parse_bytes("1.5").is_err());
        assert!(parse_bytes("1 furlong").is_err());
        assert_eq!(parse_rate_per_s("1000/s"), Ok(1000.0));
        assert_eq!(parse_rate_per_s("30/m"), Ok(0.5));
        assert_eq!(parse_short_rate_per_s("5k/s"), Ok(5000.0));
        assert_eq!(parse_short_rate_per_s("5k"), Ok(5000.0));
        assert!(parse_short_rate_per_s("5k/day").is_err());
        assert!(parse_rate_per_s("0").is_err());
        assert_eq!(parse_rate_per_s("0.5/h"), Ok(0.5 / 3600.0));
        assert!(parse_rate_per_s("0.002/h").is_err());
        assert_eq!(parse_cpu_cores("1%"), Ok(0.01));
        assert_eq!(parse_cpu_cores("0.5"), Ok(0.5));
        assert!(parse_cpu_cores("0").is_err());
        assert!(parse_cpu_cores("half").is_err());
    }

    #[test]
    fn readable() {
        assert_eq!(format_duration_ns(870.0), "870 ns");
        assert_eq!(format_duration_ns(4_213_000.0), "4.21 ms");
        assert_eq!(format_duration_ns(999_900.0), "1.00 ms");
        assert_eq!(format_duration_ns(90e9), "1m30s");
        assert_eq!(format_bytes(15.0 * 1024.0 * 1024.0), "15.0 MiB");
        assert_eq!(format_bytes(1024.0), "1.00 KiB");
        assert_eq!(format_count(1_234_567.0), "1,234,567");
        assert_eq!(format_count(12.345), "12.3");
        assert_eq!(significant(9.996, 3), "10.0");
        assert_eq!(significant(0.0123, 2), "0.012");
    }

    #[test]
    fn a_share_that_is_not_nothing_or_not_all_does_not_read_like_it() {
        for (share, text) in [
            (0.0, "0.0 %"),
            (0.000_03, "0.003 %"),
            (0.000_499, "0.05 %"),
            (0.042, "4.2 %"),
            (0.42, "42 %"),
            (0.994, "99 %"),
            (0.995, "99.5 %"),
            (0.999_6, "99.96 %"),
            (0.999_996, "99.9996 %"),
            (1.0, "100 %"),
            (1.02, "102 %"),
        ] {
            assert_eq!(format_percent_short(share), text);
        }
    }

    #[test]
    fn estimates_are_short_and_say_what_is_open() {
        let check = |value: Option<f64>, low: Option<f64>, high: Option<f64>, expect: &str| {
            let text =
                estimate_text(Estimate { value, low, high }, Some(44.0), |ms| format_duration_ns(ms * 1e6));
            assert_eq!(text, expect);
        };
        check(Some(41.2), Some(29.8), None, "41.2 ms (29.8…≥44.0)");
        check(Some(41.2), Some(29.8), Some(43.0), "41.2 ms (29.8…43.0)");
        check(Some(1.2), Some(0.9), Some(1500.0), "1.20 ms (900 µs…1.50 s)");
        check(Some(44.0), Some(0.0), None, "44.0 ms (0…≥44.0)");
        check(Some(44.0), Some(44.0), None, "≥ 44.0 ms");
        check(Some(44.0), Some(44.0), Some(44.0), "44.0 ms (44.0…44.0)");
        check(None, Some(29.8), None, "≥ 29.8 ms");
        check(None, None, None, "unknown");
        // Numbers without a unit, and without a known minimum.
        let number = Estimate { value: Some(-3.0), low: None, high: None };
        assert_eq!(estimate_text(number, Some(7.0), |v| format!("{v}")), "-3 (…≥7)");
    }
}
