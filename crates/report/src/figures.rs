//! Figures for readers: durations, percentiles that may be unknown, shares, counts.
//!
//! All in one place, so that the terminal, Markdown and HTML never disagree about a number. An unknown figure is
//! shown in words (`41.2 ms (29.8…≥44.0)`, `> 30 s`, `–`), never as zero.

use loadlab_analysis::cases::metric::{self, Few, Metric, Unit, Value};
use loadlab_record::counts::quantile::Estimate;
use loadlab_record::documents::summary::Distribution;
pub use loadlab_record::text::units::plural;
use loadlab_record::text::units::{
    estimate_text, format_bytes, format_count, format_duration_ns, significant,
};

/// Shown if there is no value.
pub const NOTHING: &str = "–";
/// Significant digits of a plain number.
pub const DIGITS: i32 = 4;

/// A duration in milliseconds.
pub fn ms(value: f64) -> String {
    format_duration_ns(value * 1e6)
}

/// A duration in seconds, for elapsed times: `10.0 s`, `1m30s`.
pub fn seconds(value: f64) -> String {
    if value == 0.0 { "0 s".to_owned() } else { format_duration_ns(value * 1e9) }
}

/// A share in 0..=1 as per cent: with enough digits not to round a failure away (`0.02 %`, `99.98 %`).
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    let distance = value.abs().min((100.0 - value).abs());
    match distance {
        _ if !value.is_finite() => NOTHING.to_owned(),
        0.0 => format!("{value:.0} %"),
        d if d >= 1.0 => format!("{value:.1} %"),
        d if d >= 0.01 => format!("{value:.2} %"),
        d if d >= 0.0001 => format!("{value:.4} %"),
        _ if value < 50.0 => "< 0.0001 %".to_owned(),
        _ => "> 99.9999 %".to_owned(),
    }
}

/// A percentage of one core: `6.25 %`, `62.5 %`, `104 %`.
pub fn cpu_percent(value: f64) -> String {
    match value {
        0.0 => "0 %".to_owned(),
        v if v.abs() < 0.01 => "< 0.01 %".to_owned(),
        v if v.abs() < 10.0 => format!("{v:.2} %"),
        v if v.abs() < 100.0 => format!("{v:.1} %"),
        v => format!("{v:.0} %"),
    }
}

/// A whole number with thousands separators.
pub fn count(value: u64) -> String {
    format_count(value as f64)
}

/// A rate: `12,345/s`.
pub fn rate(per_s: f64) -> String {
    format!("{}/s", format_count(round(per_s, 4)))
}

/// A size in 1024s.
pub fn bytes(value: f64) -> String {
    format_bytes(value)
}

/// A plain number, at most [`DIGITS`] significant digits, with thousands separators.
pub fn number(value: f64) -> String {
    // Rounded first: 999.97 becomes a whole number, whose zeros are not idle.
    let value = round(value, DIGITS);
    if value.fract() == 0.0 || value.abs() >= 1000.0 {
        return format_count(value);
    }
    let digits = significant(value, DIGITS);
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A figure, or the placeholder if there is no value.
pub fn or_nothing<T>(value: Option<T>, format: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), format)
}

/// Rounds to this many significant digits.
pub fn round(value: f64, digits: i32) -> f64 {
    significant(value, digits).parse().unwrap_or(value)
}

/// `p99_9` in the usual notation: `p99.9`.
pub fn percentile_label(name: &str) -> String {
    name.replace('_', ".")
}

/// A figure of a distribution by its name, as far as known: the value, `> 30 s` if it lies among censored ones, the
/// estimate with its interval if there are too few samples, `–` if there are none.
pub fn figure(distribution: &Distribution, name: &str) -> String {
    value(metric::figure(distribution, name), Unit::Ms)
}

/// As [`figure`], for a cell without room for an interval: `~41.2 ms`.
pub fn short_figure(distribution: &Distribution, name: &str) -> String {
    match metric::figure(distribution, name) {
        Value::Between(few) if !few.is_unknown() => short(few, Unit::Ms),
        known => value(known, Unit::Ms),
    }
}

fn short(few: Few, unit: Unit) -> String {
    // If there is no upper end, the largest sample is only a lower bound.
    let Estimate { value, low, high } = few.estimate;
    let mark = if value.is_none() || high.is_none() && low == value { "≥ " } else { "~" };
    format!("{mark}{}", known(few.likely(), unit))
}

/// A figure for a cell: with few samples only the estimate, and its interval separately.
pub fn in_cell(of: Value, metric: &Metric) -> (String, Option<String>) {
    match of {
        Value::Between(few) if !few.is_unknown() => {
            let all = value(of, metric.unit);
            let interval = all.split_once('(').map(|(_, rest)| rest.trim_end_matches(')').to_owned());
            (short(few, metric.unit), interval)
        }
        _ => (with_name(of, metric), None),
    }
}

/// A figure's name for a table's row: percentiles in the usual notation, everything else unchanged.
pub fn percentile_label_of(id: &str) -> String {
    let digits = id.strip_prefix('p').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if digits { percentile_label(id) } else { id.to_owned() }
}

/// A value in its unit, as far as known.
pub fn value(value: Value, unit: Unit) -> String {
    match value {
        Value::Known(v) => known(v, unit),
        Value::Over(v) => format!("> {}", known(v, unit)),
        Value::Between(few) if few.is_unknown() => format!("needs {}", count(few.needed)),
        Value::Between(few) => estimate_text(few.estimate, few.largest, |v| known(v, unit)),
        Value::Nothing => NOTHING.to_owned(),
    }
}

/// A value of a figure, with what it counts if the plan declares that.
pub fn with_name(of: Value, metric: &Metric) -> String {
    let text = value(of, metric.unit);
    match (&metric.counts, of) {
        (Some(what), Value::Known(_) | Value::Over(_)) => format!("{text} {what}"),
        _ => text,
    }
}

fn known(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => format_count(value.round()),
        Unit::Number => number(round(value, 4)),
        Unit::PerS => rate(value),
        Unit::Ms => ms(value),
        Unit::S => seconds(value),
        Unit::Share => percent(value),
        Unit::Bytes => bytes(value),
        Unit::BytesPerS => format!("{}/s", bytes(value)),
        Unit::CpuPercent => cpu_percent(value),
    }
}

/// A range of values; a common unit appears once. `None` if both read the same.
pub fn range(min: Option<f64>, max: Value, unit: Unit) -> Option<String> {
    let (from, to) = (known(min?, unit), value(max, unit));
    if from == to {
        return None;
    }
    let unit_of = |text: &str| text.rsplit_once(' ').map(|(_, unit)| unit.to_owned());
    let from = match (unit_of(&from), unit_of(&to)) {
        (Some(a), Some(b)) if a == b => {
            from.rsplit_once(' ').map_or(from.clone(), |(number, _)| number.to_owned())
        }
        _ => from.strip_suffix("/s").filter(|f| !f.contains(' ')).map_or(from.clone(), str::to_owned),
    };
    Some(format!("{from} … {to}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadlab_record::Histogram;

    #[test]
    fn a_failure_is_never_rounded_away() {
        for (share, text) in [
            (0.0, "0 %"),
            (1.0, "100 %"),
            (0.999_8, "99.98 %"),
            (0.000_1, "0.01 %"),
            (0.000_002, "0.0002 %"),
            (1e-9, "< 0.0001 %"),
            (1.0 - 1e-9, "> 99.9999 %"),
            (0.5, "50.0 %"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(percent(share), text);
        }
    }

    #[test]
    fn numbers_have_no_idle_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (12.3456, "12.35"),
            (100.04, "100"),
            (999.9, "999.9"),
            (999.97, "1,000"),
            (-999.97, "-1,000"),
            (12_345.6, "12,346"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn unknown_figures_say_why() {
        let mut known = Histogram::new();
        known.record_n(1_000_000, 60);
        let mut censored = Histogram::new();
        censored.record_n(30_000_000_000, 40);
        let d = Distribution::with_censored(&known, &censored);
        assert_eq!(figure(&d, "p50"), "1.00 ms");
        assert_eq!(figure(&d, "p75"), "> 30.0 s");
        assert_eq!(figure(&d, "p99"), "> 30.0 s");
        assert_eq!(figure(&d, "mean"), "> 12.0 s");
        assert_eq!(figure(&Distribution::default(), "p99"), "–");
    }
}
