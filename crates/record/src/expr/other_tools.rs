//! Other load generators' words for figures, and their names here: hints for unknown names. A word that is also a name
//! here is never looked up.

use super::names::FIGURES;

/// Words of wrk, hey, ab, k6, Locust, Gatling, JMeter and vegeta, and what to write instead.
const WORDS: &[(&[&str], &str)] = &[
    (&["avg", "average", "arithmetic_mean"], "the mean response time is `mean`"),
    (&["med", "median", "percentile50"], "the median is `p50`"),
    (&["maximum", "longest", "slowest"], "the longest response time is `max`"),
    (&["minimum", "shortest", "fastest"], "the shortest response time is `min`"),
    (&["stddev", "std_dev", "sd", "standard_deviation"], "the standard deviation is `stdev`"),
    (
        &[
            "rps",
            "qps",
            "tps",
            "req_rate",
            "request_rate",
            "requests_per_second",
            "reqs_per_sec",
            "current_rps",
        ],
        "`goodput` is ok responses per second, `rate` requests started per second",
    ),
    (
        &["throughput", "transaction_rate", "successful_rate", "success_rate_per_s"],
        "`goodput` is ok responses per second",
    ),
    (
        &[
            "http_reqs",
            "reqs",
            "requests",
            "num_requests",
            "request_count",
            "total",
            "count",
            "hits",
            "transactions",
        ],
        "`started` is the number of requests, `ok` that of ok responses; per second they are `rate` and `goodput`",
    ),
    (
        &["iterations", "loops", "repeats"],
        "rounds of a journey are not a figure; `ok` is the number of ok responses",
    ),
    (
        &[
            "http_req_duration",
            "latency",
            "latencies",
            "response_time",
            "resp_time",
            "responsetime",
            "duration",
            "request_duration",
            "rt",
            "rtt",
            "time",
            "elapsed_time",
            "iteration_duration",
        ],
        "response times are `p50`, `p95`, `p99`, `mean` and `max`, as in `p95 < 200ms`",
    ),
    (
        &["http_req_waiting", "http_req_receiving", "http_req_sending", "ttfb"],
        "parts of a response are not timed; `service.p95` runs from when a request was started to its end",
    ),
    (
        &["http_req_connecting", "connect_time", "time_connect"],
        "connecting is `connect.p95`, `connect.mean` …",
    ),
    (&["http_req_tls_handshaking", "tls_time", "handshake"], "the TLS handshake is `tls.p95`, `tls.mean` …"),
    (&["http_req_blocked"], "waiting for a connection is `blocked.p95`, `blocked.mean` …"),
    (
        &[
            "error_rate",
            "errors_rate",
            "error_ratio",
            "http_req_failed",
            "fail_ratio",
            "fail_rate",
            "failure_rate",
            "failed_rate",
            "failed_percent",
            "failedrequests_percent",
            "error_percentage",
        ],
        "the share of failed requests is `errors`, as in `errors < 0.1%`",
    ),
    (
        &["failures", "failure_count", "error_count", "num_failures", "failed_requests", "fails", "ko"],
        "the number of failed requests is `failed`, their share `errors`",
    ),
    (
        &["success", "success_rate", "success_ratio", "successful_requests", "successful", "checks"],
        "ok / (ok + failed) is `availability`, as in `availability > 99.9%`; `ok` counts ok responses",
    ),
    (
        &["vus", "vus_max", "users", "user_count", "connections", "active"],
        "the mean number of requests in flight is `concurrency`",
    ),
    (&["timeouts", "timed_out"], "requests that timed out are `timeout`"),
    (
        &["status_4xx", "http_400", "http_404", "client_errors", "non_2xx"],
        "responses with a status of 400 to 499 are `http_4xx`",
    ),
    (
        &["status_5xx", "http_500", "http_503", "server_errors"],
        "responses with a status of 500 to 599 are `http_5xx`",
    ),
    (&["dropped_iterations"], "requests that were due and never started are `dropped`"),
    (
        &["data_received", "data_sent", "bytes", "bytes_in", "bytes_out", "transfer_rate"],
        "the load's bytes are not a figure of conditions; `COMPONENT.net.out` is what a component sent",
    ),
];

/// Words for figures of a component, after its name.
const OF_COMPONENTS: &[(&[&str], &str)] = &[
    (&["cpu_percent", "cpu_usage", "cpus", "processor"], "cpu"),
    (
        &["mem", "rss", "ram", "memory_usage", "memory_bytes", "mem_max", "peak_memory", "memory.peak"],
        "memory",
    ),
    (&["mem_mean", "memory.avg", "memory.average"], "memory.mean"),
    (&["cpu.avg", "cpu.average"], "cpu.mean"),
    (&["cpu.peak"], "cpu.max"),
    (&["threads", "processes"], "pids"),
    (&["fds", "files"], "open_files"),
    (&["oom", "ooms"], "oom_kills"),
];

/// What to write instead of a name that is unknown here and that another tool knows.
pub(super) fn hint<S: AsRef<str>>(name: &str, known: &[S]) -> Option<String> {
    let plain = name.to_ascii_lowercase().replace('-', "_");
    if let Some((_, hint)) = WORDS.iter().find(|(words, _)| words.contains(&plain.as_str())) {
        return Some((*hint).to_owned());
    }
    let digits = plain.strip_prefix('p').map(|rest| rest.trim_end_matches("th").trim_start_matches('_'));
    if let Some(figure) = digits.and_then(quantile) {
        return Some(figure);
    }
    let is_known = |name: &str| known.iter().any(|k| k.as_ref() == name);
    OF_COMPONENTS.iter().find_map(|(words, figure)| {
        let component = words.iter().find_map(|w| plain.strip_suffix(w)?.strip_suffix('.'))?;
        let meant = format!("{}.{figure}", &name[..component.len()]);
        is_known(&meant).then(|| format!("did you mean `{meant}`?"))
    })
}

/// What to write instead of other tools' functions: `p(95)`, `avg(x)`. `argument` is the number in it, if there is
/// one.
pub(super) fn function(name: &str, argument: Option<f64>) -> Option<String> {
    let (before, last) = name.rsplit_once('.').unwrap_or(("", name));
    let function = last.to_ascii_lowercase();
    match (function.as_str(), argument) {
        ("p" | "percentile" | "quantile" | "pct" | "perc", Some(value)) => {
            // A quantile may be given as a fraction.
            let percent = if value > 0.0 && value < 1.0 { value * 100.0 } else { value };
            quantile(&format!("{}", (percent * 1e6).round() / 1e6))
        }
        _ if before.is_empty() && FIGURES.contains(&last) => {
            Some(format!("write `{last}`, without parentheses"))
        }
        _ => hint::<&str>(&function, &[]),
    }
}

/// A percentile by its digits: `95`, `99.9`, `99_9`, `999`.
fn quantile(digits: &str) -> Option<String> {
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit() || c == '.' || c == '_') {
        return None;
    }
    let digits = match digits {
        "999" => "99_9".to_owned(),
        "9999" => "99_99".to_owned(),
        other => other.replace('.', "_"),
    };
    let figure = format!("p{digits}");
    match FIGURES.contains(&figure.as_str()) {
        true => Some(format!("write `{figure}`")),
        false => {
            Some("the percentiles are `p50`, `p75`, `p90`, `p95`, `p99`, `p99_9` and `p99_99`".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Expr, built_in_kind};
    use super::*;

    /// The hint for a condition.
    fn hinted(condition: &str) -> String {
        let known =
            ["web.cpu", "web.cpu.mean", "web.cpu.max", "web.memory", "web.memory.mean", "web.pids", "queue"];
        let checked = Expr::parse(condition).and_then(|expr| expr.check_names(&known));
        checked.expect_err(condition).hint.unwrap_or_default()
    }

    #[test]
    fn words_of_other_tools_are_hinted() {
        for (condition, meant) in [
            ("avg < 200ms", "`mean`"),
            ("median < 200ms", "`p50`"),
            ("med < 200ms", "`p50`"),
            ("stddev < 1ms", "`stdev`"),
            ("rps > 100", "`goodput`"),
            ("qps > 100", "`rate`"),
            ("req_rate > 100", "`goodput`"),
            ("throughput > 100/s", "`goodput`"),
            ("http_reqs > 100", "`started`"),
            ("requests > 100", "`started`"),
            ("http_req_duration < 200ms", "`p95 < 200ms`"),
            ("latency < 200ms", "`p95 < 200ms`"),
            ("response_time < 200ms", "`p95 < 200ms`"),
            ("http_req_waiting < 200ms", "`service.p95`"),
            ("http_req_connecting < 1ms", "`connect.p95`"),
            ("http_req_tls_handshaking < 1ms", "`tls.p95`"),
            ("http_req_blocked < 1ms", "`blocked.p95`"),
            ("http_req_failed < 0.01", "`errors < 0.1%`"),
            ("error_rate < 1%", "`errors < 0.1%`"),
            ("error-rate < 1%", "`errors < 0.1%`"),
            ("fail_ratio < 0.01", "`errors < 0.1%`"),
            ("failures == 0", "`failed`"),
            ("error_count == 0", "`failed`"),
            ("success_rate > 99%", "`availability"),
            ("checks > 99%", "`availability"),
            ("iterations > 100", "`ok`"),
            ("vus > 10", "`concurrency`"),
            ("timeouts == 0", "`timeout`"),
            ("http_500 == 0", "`http_5xx`"),
            ("http_404 == 0", "`http_4xx`"),
            ("dropped_iterations == 0", "`dropped`"),
            ("data_received > 1MB", "`COMPONENT.net.out`"),
            ("p(95) < 200ms", "write `p95`"),
            ("p(99) < 200ms", "write `p99`"),
            ("p(99.9) < 200ms", "write `p99_9`"),
            ("percentile(0.95) < 200ms", "write `p95`"),
            ("http_req_duration.p(95) < 200ms", "write `p95`"),
            ("p(97) < 200ms", "the percentiles are `p50`"),
            ("p999 < 1s", "write `p99_9`"),
            ("p95th < 1s", "write `p95`"),
            ("p97 < 1s", "the percentiles are"),
            ("max() < 1s", "write `max`, without parentheses"),
            ("avg(latency) < 1s", "`mean`"),
            ("web.mem < 1MiB", "did you mean `web.memory`?"),
            ("web.rss < 1MiB", "did you mean `web.memory`?"),
            ("web.cpu_percent < 50%", "did you mean `web.cpu`?"),
            ("web.cpu.avg < 50%", "did you mean `web.cpu.mean`?"),
            ("web.threads < 5", "did you mean `web.pids`?"),
        ] {
            let hint = hinted(condition);
            assert!(hint.contains(meant), "{condition}: {hint}");
        }
    }

    #[test]
    fn a_word_has_one_meaning_and_is_no_name_here() {
        let mut words: Vec<&str> =
            WORDS.iter().chain(OF_COMPONENTS).flat_map(|(words, _)| *words).copied().collect();
        for word in &words {
            assert_eq!(built_in_kind(word), None, "{word} is a name");
        }
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all);
    }
}
