//! What each generator says of its run. An output that lacks a figure it should have is an error; a figure that
//! a tool never tells is shown as not reported.

use std::fmt;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::order::{Order, ab_percentiles, k6_summary};

/// A run by its tool's account.
#[derive(Debug, PartialEq)]
pub struct Reported {
    /// Requests that were answered, all with 200.
    pub requests: f64,
    /// Of these, per second.
    pub rate_per_s: f64,
    /// Median latency.
    pub p50: P50,
}

/// A median, as far as a tool tells it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum P50 {
    /// In milliseconds.
    Ms(f64),
    /// It tells only the mean, in milliseconds.
    MeanMs(f64),
    /// It tells neither with any precision.
    NotReported,
}

impl P50 {
    /// The median in milliseconds, if it is one.
    pub fn ms(self) -> Option<f64> {
        match self {
            P50::Ms(ms) => Some(ms),
            P50::MeanMs(_) | P50::NotReported => None,
        }
    }
}

impl fmt::Display for P50 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            P50::Ms(ms) => write!(f, "{ms:.3} ms"),
            P50::MeanMs(ms) => write!(f, "not reported (mean {ms:.3} ms)"),
            P50::NotReported => write!(f, "not reported"),
        }
    }
}

/// loadlab's JSON document.
pub fn loadlab(_: &Order, text: &str) -> Result<Reported> {
    let json: Value = serde_json::from_str(text)?;
    // A plan's document has its trials in it.
    let json = json.pointer("/trials/0/summary").unwrap_or(&json);
    let number = |pointer: &str| {
        json.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no {pointer}"))
    };
    let failed = number("/requests/failed")?;
    ensure!(failed == 0.0, "{failed} requests failed");
    Ok(Reported {
        requests: number("/requests/ok")?,
        rate_per_s: number("/rate_per_s/ok")?,
        p50: P50::Ms(number("/response_ms/p50")?),
    })
}

/// A bare loop's JSON object.
pub fn bare(_: &Order, text: &str) -> Result<Reported> {
    let json: Value = serde_json::from_str(text)?;
    let number = |name: &str| json[name].as_f64().with_context(|| format!("no {name}"));
    let p50 = P50::Ms(number("p50_us")? / 1e3);
    Ok(Reported { requests: number("requests")?, rate_per_s: number("rate_per_s")?, p50 })
}

/// wrk's text.
pub fn wrk(_: &Order, text: &str) -> Result<Reported> {
    for trouble in ["Non-2xx or 3xx responses:", "Socket errors:"] {
        if let Some(line) = text.lines().find(|l| l.contains(trouble)) {
            bail!("{}", line.trim());
        }
    }
    let requests = text.lines().find(|l| l.contains(" requests in ")).context("no `requests in`")?;
    Ok(Reported {
        requests: first_number(requests)?,
        rate_per_s: after(text, "Requests/sec:")?,
        // Not just anywhere: `62.50%` of the samples may lie within a deviation.
        p50: P50::Ms(duration_ms(word_after(text, "\n     50% ")?)?),
    })
}

/// ab's text, and the file of its percentiles.
pub fn ab(order: &Order, text: &str) -> Result<Reported> {
    let csv = fs::read_to_string(ab_percentiles(order)).context("no file of percentiles")?;
    ab_of(text, &csv)
}

fn ab_of(text: &str, csv: &str) -> Result<Reported> {
    ensure!(!text.contains("Non-2xx responses:"), "responses are not 200");
    let failed = after(text, "Failed requests:")?;
    ensure!(failed == 0.0, "{failed} requests failed");
    let half = csv.lines().find_map(|l| l.strip_prefix("50,")).context("no 50 % among the percentiles")?;
    Ok(Reported {
        requests: after(text, "Complete requests:")?,
        rate_per_s: after(text, "Requests per second:")?,
        p50: P50::Ms(half.trim().parse()?),
    })
}

/// h2load's text. Versions that print no median print a mean.
pub fn h2load(_: &Order, text: &str) -> Result<Reported> {
    let requests = text.lines().find(|l| l.starts_with("requests: ")).context("no `requests:`")?;
    let count = |word: &str| {
        let part = requests.split([':', ',']).find(|p| p.trim().ends_with(word));
        first_number(part.with_context(|| format!("no `{word}`"))?)
    };
    let (failed, errored) = (count(" failed")?, count(" errored")?);
    ensure!(failed + errored == 0.0, "{requests}");
    let finished = text.lines().find(|l| l.starts_with("finished in ")).context("no `finished in`")?;
    let rate = finished.split(',').nth(1).context("no rate")?;
    Ok(Reported { requests: count(" succeeded")?, rate_per_s: first_number(rate)?, p50: h2load_p50(text)? })
}

fn h2load_p50(text: &str) -> Result<P50> {
    let lines: Vec<_> = text.lines().collect();
    let at = lines
        .iter()
        .position(|l| l.starts_with("time for request:") || l.starts_with("request  "))
        .context("no `time for request:`")?;
    let heading =
        lines[..at].iter().rev().find(|l| l.contains("mean") && l.contains("max")).context("no heading")?;
    let values: Vec<_> = lines[at].rsplit(':').next().unwrap_or_default().split_whitespace().collect();
    let column = |name: &str| heading.split_whitespace().position(|h| h == name).and_then(|i| values.get(i));
    match (column("median"), column("mean")) {
        (Some(median), _) => Ok(P50::Ms(duration_ms(median)?)),
        (None, Some(mean)) => Ok(P50::MeanMs(duration_ms(mean)?)),
        (None, None) => bail!("neither median nor mean in `{}`", lines[at]),
    }
}

/// hey's text.
pub fn hey(_: &Order, text: &str) -> Result<Reported> {
    ensure!(!text.contains("Error distribution:"), "requests failed");
    Ok(Reported {
        requests: only_200(text)?,
        rate_per_s: after(text, "Requests/sec:")?,
        p50: P50::Ms(seconds_of(text, "50% in ")? * 1000.0),
    })
}

/// oha's text.
pub fn oha(_: &Order, text: &str) -> Result<Reported> {
    Ok(Reported {
        requests: only_200(text)?,
        rate_per_s: after(text, "Requests/sec:")?,
        p50: P50::Ms(oha_p50_ms(text)?),
    })
}

/// `50.00% in 0.0012 sec`, or `50.00% in 1.2000 ms`.
fn oha_p50_ms(text: &str) -> Result<f64> {
    let line = text.lines().find(|l| l.trim_start().starts_with("50.00% in ")).context("no `50.00% in`")?;
    let words: Vec<_> = line.split_whitespace().collect();
    let (Some(value), Some(unit)) = (words.get(2), words.get(3)) else { bail!("`{line}`") };
    let factor = match *unit {
        "ns" => 1e-6,
        "us" | "µs" => 1e-3,
        "ms" => 1.0,
        "sec" | "secs" | "s" => 1e3,
        other => bail!("unit `{other}` in `{line}`"),
    };
    Ok(value.parse::<f64>()? * factor)
}

/// The counts of hey's and oha's `[200] 1234 responses`.
fn only_200(text: &str) -> Result<f64> {
    let mut found = None;
    for line in text.lines().map(str::trim).filter(|l| l.starts_with('[') && l.ends_with("responses")) {
        let count = line.strip_prefix("[200]").with_context(|| line.to_owned())?;
        found = Some(first_number(count)?);
    }
    found.context("no responses")
}

/// siege's JSON, after whatever it prints before. Its response time has two decimals of a second.
pub fn siege(_: &Order, text: &str) -> Result<Reported> {
    let start = text.find('{').context("no JSON")?;
    let json: Value = serde_json::from_str(&text[start..])?;
    let number = |name: &str| json[name].as_f64().with_context(|| format!("no {name}"));
    let (requests, good) = (number("transactions")?, number("successful_transactions")?);
    ensure!(
        number("failed_transactions")? == 0.0 && good >= requests * 0.99,
        "{good} of {requests} were good"
    );
    Ok(Reported { requests, rate_per_s: number("transaction_rate")?, p50: P50::NotReported })
}

/// The file of k6's summary.
pub fn k6(order: &Order, _: &str) -> Result<Reported> {
    k6_of(&fs::read_to_string(k6_summary(order)).context("no summary")?)
}

fn k6_of(text: &str) -> Result<Reported> {
    let json: Value = serde_json::from_str(text)?;
    let number = |pointer: &str| {
        json.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no {pointer}"))
    };
    let failed = number("/metrics/http_req_failed/value")?;
    ensure!(failed == 0.0, "{failed} of all requests failed");
    Ok(Reported {
        requests: number("/metrics/http_reqs/count")?,
        rate_per_s: number("/metrics/http_reqs/rate")?,
        p50: P50::Ms(number("/metrics/http_req_duration/med")?),
    })
}

pub fn word_after<'t>(text: &'t str, label: &str) -> Result<&'t str> {
    let rest = text.split_once(label).with_context(|| format!("no `{label}`"))?.1;
    rest.split_whitespace().next().with_context(|| format!("nothing after `{label}`"))
}

fn after(text: &str, label: &str) -> Result<f64> {
    let word = word_after(text, label)?;
    word.parse().with_context(|| format!("`{word}` after `{label}`"))
}

fn seconds_of(text: &str, label: &str) -> Result<f64> {
    let line =
        text.lines().find(|l| l.trim_start().starts_with(label)).with_context(|| format!("no `{label}`"))?;
    after(line, label)
}

fn first_number(text: &str) -> Result<f64> {
    let word = text.split_whitespace().next().context("nothing")?;
    word.parse().with_context(|| format!("`{word}` is no number"))
}

/// `637.00us`, `1.54ms`, `2.1s` in milliseconds.
pub fn duration_ms(text: &str) -> Result<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let value: f64 = text[..digits].parse().with_context(|| format!("`{text}`"))?;
    Ok(value
        * match &text[digits..] {
            "us" | "µs" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            "m" => 6e4,
            unit => bail!("unit `{unit}` in `{text}`"),
        })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::peers::cases::CASES;

    fn reported(parse: fn(&Order, &str) -> Result<Reported>, text: &str) -> Result<Reported> {
        let url = String::new();
        let (server, body, scratch) = (String::new(), Path::new(""), Path::new(""));
        parse(&Order { case: &CASES[0], seconds: 1, url, server, body, core: 0, scratch }, text)
    }

    fn is(requests: f64, rate_per_s: f64, p50: P50) -> Reported {
        Reported { requests, rate_per_s, p50 }
    }

    #[test]
    fn wrk_text() {
        let text = "    Latency   696.89us  258.23us   6.25ms   62.50%\n  Latency Distribution\n     50%  637.00us\n     75%    2.75ms\n  34204 requests in 1.01s, 10.05MB read\n\
            Requests/sec:  33959.93\nTransfer/sec:      9.98MB\n";
        assert_eq!(reported(wrk, text).unwrap(), is(34204.0, 33959.93, P50::Ms(0.637)));
        let bad = text.to_owned() + "  Non-2xx or 3xx responses: 12\n";
        assert_eq!(reported(wrk, &bad).unwrap_err().to_string(), "Non-2xx or 3xx responses: 12");
        assert!(reported(wrk, "").is_err());
    }

    #[test]
    fn ab_text() {
        let text = "Complete requests:      29463\nFailed requests:        0\nRequests per second:    29426.63 [#/sec] (mean)\n";
        let csv = "Percentage served,Time in ms\n0,0.253\n49,0.700\n50,0.727\n";
        assert_eq!(ab_of(text, csv).unwrap(), is(29463.0, 29426.63, P50::Ms(0.727)));
        assert!(ab_of(&text.replace("requests:        0", "requests:        7"), csv).is_err());
        assert!(ab_of(&(text.to_owned() + "Non-2xx responses:      29463\n"), csv).is_err());
        assert!(ab_of(text, "0,0.253\n").is_err());
    }

    #[test]
    fn h2load_text_with_and_without_a_median() {
        let head = "finished in 1.00s, 34229.00 req/s, 10.05MB/s\n\
            requests: 34229 total, 34279 started, 34229 done, 34229 succeeded, 0 failed, 0 errored, 0 timeout\n";
        let means = "                     min         max         mean         sd        +/- sd\n\
            time for request:       99us      8.43ms      1.45ms      1.58ms    80.35%\n";
        assert_eq!(
            reported(h2load, &format!("{head}{means}")).unwrap(),
            is(34229.0, 34229.0, P50::MeanMs(1.45))
        );
        let medians = "                     min         max         median      p95         p99         mean         sd        +/- sd\n\
            time for request:       99us      8.43ms      1.20ms      3.00ms      4.00ms      1.45ms      1.58ms    80.35%\n";
        assert_eq!(reported(h2load, &format!("{head}{medians}")).unwrap().p50, P50::Ms(1.2));
        assert!(reported(h2load, &format!("{}{means}", head.replace("0 failed", "3 failed"))).is_err());
        assert!(reported(h2load, head).is_err());
    }

    #[test]
    fn hey_and_oha_text() {
        let text = "Summary:\n  Requests/sec:\t22215.1391\n\nLatency distribution:\n  10% in 0.0005 secs\n  50% in 0.0016 secs\n\n\
            Status code distribution:\n  [200]\t22233 responses\n";
        assert_eq!(reported(hey, text).unwrap(), is(22233.0, 22215.1391, P50::Ms(1.6)));
        assert!(reported(hey, &text.replace("[200]", "[404]")).is_err());
        let text = "Summary:\n  Requests/sec:\t86000.5\n\nResponse time distribution:\n  50.00% in 0.0012 sec\n\n\
            Status code distribution:\n  [200] 86000 responses\n";
        assert_eq!(reported(oha, text).unwrap(), is(86000.0, 86000.5, P50::Ms(1.2)));
        assert_eq!(reported(oha, &text.replace("0.0012 sec", "550.5000 us")).unwrap().p50, P50::Ms(0.5505));
        assert!(reported(oha, &text.replace("[200] 86000 responses", "")).is_err());
    }

    #[test]
    fn json_documents() {
        let text = "{\"requests\": {\"ok\": 10, \"failed\": 0}, \"rate_per_s\": {\"ok\": 9.5}, \"response_ms\": {\"p50\": 0.4}}";
        assert_eq!(reported(loadlab, text).unwrap(), is(10.0, 9.5, P50::Ms(0.4)));
        assert!(reported(loadlab, &text.replace("\"failed\": 0", "\"failed\": 1")).is_err());
        let text = "{\"backend\": \"uring\", \"requests\": 10, \"rate_per_s\": 9.5, \"p50_us\": 400.5}";
        assert_eq!(reported(bare, text).unwrap(), is(10.0, 9.5, P50::Ms(0.4005)));
        assert!(reported(bare, &text.replace("400.5", "null")).is_err());
        let text = "a line before\n{\"transactions\": 9964, \"successful_transactions\": 9964, \"failed_transactions\": 0,\n\
            \"transaction_rate\": 10600.00, \"response_time\": 0.00}\n";
        assert_eq!(reported(siege, text).unwrap(), is(9964.0, 10600.0, P50::NotReported));
        assert!(
            reported(siege, &text.replace("successful_transactions\": 9964", "successful_transactions\": 0"))
                .is_err()
        );
        let text = "{\"metrics\": {\"http_reqs\": {\"count\": 100, \"rate\": 99.0}, \"http_req_failed\": {\"value\": 0},\n\
            \"http_req_duration\": {\"med\": 2.5}}}";
        assert_eq!(k6_of(text).unwrap(), is(100.0, 99.0, P50::Ms(2.5)));
        assert!(k6_of("{\"metrics\": {}}").is_err());
    }
}
