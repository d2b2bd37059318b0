//! Ends a level early once it is certain to miss an expectation, whatever follows.
//!
//! At a constant rate, the number of requests of a level is known beforehand. If more of them have already failed than
//! `errors < 1%` allows over all of them, or more have taken longer than `p99 < 100ms` allows, nothing that follows can
//! make up for it. Each expectation of a level is turned into conditions that end its load.

use loadlab_plan as plan;
use loadlab_record::counts::quantile::quantile_of;
use loadlab_record::documents::summary::{Ended, Summary};
use loadlab_record::expr::{Expr, SummaryNumbers};

use crate::level::Level;

/// Fewer responses than this end nothing: a percentile of so few is too uncertain.
const LEAST_RESPONSES: f64 = 100.0;
/// Percentiles available while a load runs, even from few responses.
const LIVE: [&str; 3] = ["p50", "p75", "p90"];

/// Conditions any of which ends a level's load. Empty if the number of requests is not known beforehand.
pub(super) fn conditions(expect: &[Expr], level: &Level, loads: &[plan::LoadSpec]) -> Vec<Expr> {
    let [load] = loads else { return Vec::new() };
    let plan::Model::Open { rate_per_s, arrivals: plan::Arrivals::Constant, .. } = load.model else {
        return Vec::new();
    };
    // Each redirect is a further request.
    if load.script.redirects > 0 {
        return Vec::new();
    }
    // One more, since both ends may have a request.
    let requests_in = |ns: u64| rate_per_s * ns as f64 / 1e9 + 1.0;
    let (settling, measured) = (requests_in(level.settle_ns), requests_in(level.length_ns));
    let all = expect.iter().map(ToString::to_string);
    let texts = all.flat_map(|text| of_expectation(&text, settling, measured));
    texts.filter_map(|text| Expr::parse(&text).ok()).collect()
}

/// Whether the level was stopped because one of these conditions held.
pub(super) fn is_decided(conditions: &[Expr], summary: &Summary) -> bool {
    let numbers = SummaryNumbers::new(summary, &[]);
    summary.ended == Ended::Stopped && conditions.iter().any(|one| one.evaluate(&numbers).holds == Some(true))
}

/// The conditions for an expectation whose parts must all hold; none if the expectation has another form.
fn of_expectation(text: &str, settling: f64, measured: f64) -> Vec<String> {
    let is_plain = !text.contains(['(', '[']) && !text.split(' ').any(|word| word == "or" || word == "not");
    let parts: Vec<&str> = if is_plain { text.split(" and ").collect() } else { Vec::new() };
    parts.into_iter().flat_map(|part| of_part(part, settling, measured)).collect()
}

fn of_part(part: &str, settling: f64, measured: f64) -> Vec<String> {
    let words: Vec<&str> = part.split_whitespace().collect();
    let (name, bound) = match words.as_slice() {
        [name, "<" | "<=", bound] => (*name, (*bound).to_owned()),
        [name, "<" | "<=", bound, unit] => (*name, format!("{bound}{unit}")),
        _ => return Vec::new(),
    };
    if name == "errors" {
        let share = bound.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
        let most = share.map(|percent| (percent / 100.0 * (settling + measured)).ceil());
        return most.map(|most| format!("failed > {most}")).into_iter().collect();
    }
    let Some(quantile) = quantile_of(name) else { return Vec::new() };
    let of = |live: &&str| {
        let longer = 1.0 - quantile_of(live)?;
        // More responses exceed the live percentile than the expectation allows in the whole level.
        let enough = (measured * (1.0 - quantile) / longer).max(LEAST_RESPONSES);
        (enough < 0.99 * measured)
            .then(|| format!("{live} > {bound} and ok > {}", (settling + enough).ceil()))
    };
    LIVE.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        // 200 requests while settling, 1,000 in the measurement.
        of_expectation(text, 200.0, 1000.0)
    }

    #[test]
    fn what_cannot_be_made_up_for_ends_a_level() {
        assert_eq!(of("errors < 1%"), ["failed > 12"]);
        assert_eq!(of("errors <= 0.5 %"), ["failed > 6"]);
        // Ten of 1,000 may be slower; ten of 100 are, if more than a tenth of those are.
        let p99 = ["p50 > 80ms and ok > 300", "p75 > 80ms and ok > 300", "p90 > 80ms and ok > 301"];
        assert_eq!(of("p99 < 80ms")[..2], p99[..2]);
        assert!(of("p99 < 80ms")[2].starts_with("p90 > 80ms and ok > 30"));
        assert_eq!(of("p50 < 80ms"), [""; 0], "half of all is known only at the end");
        assert_eq!(of("p90 < 1.5s and errors < 1%").len(), 3);
    }

    #[test]
    fn what_it_cannot_read_ends_nothing() {
        for text in [
            "p99 < 80ms or errors < 1%",
            "goodput > 100",
            "not (p99 > 80ms)",
            "p99[1s..2s] < 80ms",
            "web.cpu < 50%",
        ] {
            assert_eq!(of(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn what_it_writes_is_a_condition() {
        for text in ["p99 < 80ms", "p99_9 <= 1.5 s", "errors < 1 %", "p95 < 250us"] {
            let written = of(text);
            assert!(!written.is_empty(), "{text}");
            for one in written {
                assert!(Expr::parse(&one).is_ok(), "{one}");
            }
        }
    }
}
