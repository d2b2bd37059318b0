//! The flags of other tools, and what each tool means by them.

use super::answers::Wish;

/// The tools that have a flag, and what they mean by it.
pub(super) type Meaning = (&'static str, Wish);

/// Flags, and what each tool means by them. Those with one dash and several letters are hey's and vegeta's.
#[rustfmt::skip]
pub(super) const FLAGS: &[(&str, &[Meaning])] = &[
    ("-z", &[("oha and hey", Wish::Duration)]),
    ("-k", &[("curl and k6", Wish::Insecure), ("ab", Wish::KeepAlive)]),
    ("-m", &[("oha, hey and autocannon", Wish::Method), ("h2load", Wish::Streams)]),
    ("-R", &[("wrk2 and autocannon", Wish::Rate)]),
    ("-q", &[("oha", Wish::Rate), ("hey", Wish::RatePerWorker)]),
    ("-T", &[("oha, hey and ab", Wish::ContentType), ("h2load", Wish::Timeout)]),
    ("-s", &[("wrk", Wish::Script), ("ab", Wish::Timeout), ("k6", Wish::Stages)]),
    ("-D", &[("oha and hey", Wish::BodyFile), ("h2load", Wish::Duration)]),
    ("-A", &[("oha and hey", Wish::Accept), ("ab", Wish::Basic), ("siege", Wish::UserAgent)]),
    ("-a", &[("oha and hey", Wish::Basic), ("autocannon", Wish::Requests)]),
    ("-x", &[("oha, hey and curl", Wish::Proxy)]),
    ("-p", &[("ab", Wish::BodyFile), ("autocannon", Wish::Pipelining)]),
    ("-u", &[("Locust", Wish::Users), ("k6", Wish::Users), ("curl", Wish::Basic), ("ab", Wish::BodyFile)]),
    ("-i", &[("k6", Wish::Iterations), ("autocannon and h2load", Wish::UrlList), ("ab", Wish::Method)]),
    ("-f", &[("siege", Wish::UrlList), ("Locust", Wish::Script)]),
    ("-e", &[("k6", Wish::Env), ("ab", Wish::Format)]),
    ("-g", &[("ab", Wish::Format)]),
    ("-j", &[("oha and autocannon", Wish::Json)]),
    ("-l", &[("autocannon", Wish::Percentiles)]),
    ("-w", &[("autocannon", Wish::Threads), ("ab", Wish::HtmlReport)]),
    ("-W", &[("autocannon", Wish::Warmup)]),
    ("-L", &[("wrk", Wish::Percentiles)]),
    ("-C", &[("ab", Wish::Cookie)]),
    ("-v", &[("ab and siege", Wish::Verbose)]),
    ("-P", &[("ab", Wish::Proxy)]),
    ("-F", &[("oha and autocannon", Wish::Form)]),
    ("-U", &[("k6 and oha", Wish::UserAgent)]),
    ("-Z", &[("oha", Wish::BodyFile)]),
    ("--vus", &[("k6", Wish::Users)]),
    ("--concurrency", &[("siege", Wish::Users)]),
    ("--concurrent", &[("siege", Wish::Users)]),
    ("--clients", &[("h2load", Wish::Users)]),
    ("--connections", &[("wrk and autocannon", Wish::Users)]),
    ("--max-connections", &[("vegeta", Wish::InFlight)]),
    ("--iterations", &[("k6", Wish::Iterations)]),
    ("--reps", &[("siege", Wish::Iterations)]),
    ("--amount", &[("autocannon", Wish::Requests)]),
    ("--duration", &[("wrk, k6 and autocannon", Wish::Duration)]),
    ("--time", &[("siege", Wish::Duration)]),
    ("--run-time", &[("Locust", Wish::Duration)]),
    ("--stage", &[("k6", Wish::Stages)]),
    ("--rps", &[("k6", Wish::Rate)]),
    ("--qps", &[("fortio", Wish::Rate)]),
    ("--burst-rate", &[("oha", Wish::Rate)]),
    ("--overall-rate", &[("autocannon", Wish::Rate)]),
    ("--connection-rate", &[("autocannon", Wish::RatePerWorker)]),
    ("--spawn-rate", &[("Locust", Wish::SpawnRate)]),
    ("--hatch-rate", &[("Locust", Wish::SpawnRate)]),
    ("--rate-period", &[("h2load", Wish::SpawnRate)]),
    ("--max-concurrent-streams", &[("h2load", Wish::Streams)]),
    ("--latency", &[("wrk", Wish::Percentiles)]),
    ("--percentiles", &[("k6", Wish::Percentiles)]),
    ("--summary-trend-stats", &[("k6", Wish::Percentiles)]),
    ("--latency-correction", &[("oha", Wish::LatencyCorrection)]),
    ("--script", &[("wrk", Wish::Script)]),
    ("--locustfile", &[("Locust", Wish::Script)]),
    ("--summary-export", &[("k6", Wish::Json)]),
    ("--output-format", &[("oha", Wish::Format)]),
    ("--csv", &[("Locust", Wish::Format)]),
    ("--html", &[("Locust", Wish::HtmlReport)]),
    ("--log-format", &[("k6", Wish::Format)]),
    ("--threshold", &[("k6", Wish::Thresholds)]),
    ("--thresholds", &[("k6", Wish::Thresholds)]),
    ("--tag", &[("k6", Wish::Tags)]),
    ("--env", &[("k6", Wish::Env)]),
    ("--no-tui", &[("oha", Wish::NoScreen)]),
    ("--headless", &[("Locust", Wish::NoScreen)]),
    ("--no-progress", &[("autocannon", Wish::NoScreen)]),
    ("--silent", &[("curl", Wish::Quiet)]),
    ("--verbose", &[("siege and h2load", Wish::Verbose)]),
    ("--web", &[("k6", Wish::Screen)]),
    ("--disable-keepalive", &[("oha", Wish::NoKeepAlive)]),
    ("--no-connection-reuse", &[("k6", Wish::NoKeepAlive)]),
    ("--keep-alive", &[("siege", Wish::KeepAlive)]),
    ("--keepalive", &[("vegeta", Wish::KeepAlive)]),
    ("--disable-compression", &[("oha", Wish::Compression)]),
    ("--compressed", &[("curl", Wish::Compression)]),
    ("--redirect", &[("oha", Wish::Redirects)]),
    ("--max-redirects", &[("k6", Wish::Redirects)]),
    ("--location", &[("curl", Wish::Redirects)]),
    ("--insecure-skip-tls-verify", &[("k6", Wish::Insecure)]),
    ("--tls-skip-verify", &[("other tools", Wish::Insecure)]),
    ("--ca-cert", &[("oha", Wish::CaFile)]),
    ("--root-certs", &[("vegeta", Wish::CaFile)]),
    ("--connect-to", &[("oha and h2load", Wish::Resolve)]),
    ("--unix-socket", &[("oha and curl", Wish::UnixSocket)]),
    ("--http-version", &[("oha", Wish::Http2)]),
    ("--h2", &[("hey", Wish::Http2)]),
    ("--tlsv1.3", &[("curl", Wish::TlsVersion)]),
    ("--tlsv1.2", &[("curl", Wish::TlsVersion)]),
    ("--pipelining", &[("autocannon", Wish::Pipelining)]),
    ("--workers", &[("autocannon", Wish::Threads)]),
    ("--cpus", &[("hey", Wish::Threads)]),
    ("--max-workers", &[("vegeta", Wish::InFlight)]),
    ("--max-vus", &[("k6", Wish::InFlight)]),
    ("--urls-from-file", &[("oha", Wish::UrlList)]),
    ("--rand-regex-url", &[("oha", Wish::UrlList)]),
    ("--input-file", &[("h2load", Wish::UrlList)]),
    ("--targets", &[("vegeta", Wish::UrlList)]),
    ("--url", &[("curl and siege", Wish::Target)]),
    ("--host", &[("oha", Wish::Host), ("Locust", Wish::Target)]),
    ("--data", &[("curl and h2load", Wish::Body)]),
    ("--data-binary", &[("curl", Wish::Body)]),
    ("--json-body", &[("other tools", Wish::Body)]),
    ("--form", &[("curl and autocannon", Wish::Form)]),
    ("--user", &[("curl", Wish::Basic)]),
    ("--bearer", &[("other tools", Wish::Bearer)]),
    ("--cookie", &[("curl", Wish::Cookie)]),
    ("--content-type", &[("siege", Wish::ContentType)]),
    ("--user-agent", &[("siege and k6", Wish::UserAgent)]),
    ("--request", &[("curl", Wish::Method)]),
    ("--max-time", &[("curl", Wish::Timeout)]),
    ("--delay", &[("siege", Wish::Think)]),
    ("--think-time", &[("other tools", Wish::Think)]),
    ("--benchmark", &[("siege", Wish::NoThink)]),
    ("--warmup", &[("autocannon", Wish::Warmup)]),
    ("--warm-up-time", &[("h2load", Wish::Warmup)]),
    ("--ramp-up", &[("other tools", Wish::Ramp)]),
    ("--output", &[("k6, vegeta and curl", Wish::Record)]),
    ("--renderStatusCodes", &[("autocannon", Wish::Percentiles)]),
    ("-cpus", &[("hey", Wish::Threads)]),
    ("-host", &[("hey", Wish::Host)]),
    ("-h2", &[("hey", Wish::Http2)]),
    ("-disable-keepalive", &[("hey", Wish::NoKeepAlive)]),
    ("-disable-compression", &[("hey", Wish::Compression)]),
    ("-disable-redirects", &[("hey", Wish::Redirects)]),
    ("-rate", &[("vegeta", Wish::Rate)]),
    ("-qps", &[("fortio", Wish::Rate)]),
    ("-duration", &[("vegeta", Wish::Duration)]),
    ("-targets", &[("vegeta", Wish::UrlList)]),
    ("-workers", &[("vegeta", Wish::Users)]),
    ("-max-workers", &[("vegeta", Wish::InFlight)]),
    ("-connections", &[("vegeta", Wish::Held)]),
    ("-keepalive", &[("vegeta", Wish::KeepAlive)]),
    ("-insecure", &[("vegeta", Wish::Insecure)]),
    ("-timeout", &[("vegeta", Wish::Timeout)]),
    ("-method", &[("other tools", Wish::Method)]),
    ("-redirects", &[("vegeta", Wish::Redirects)]),
    ("-root-certs", &[("vegeta", Wish::CaFile)]),
];

/// Flags of `bench` that other tools have as well, for commands that read a plan: with the meaning that `bench` gives
/// them.
pub(super) const OF_BENCH: &[(&str, Wish)] = &[
    ("-c", Wish::Users),
    ("--users", Wish::Users),
    ("-r", Wish::Rate),
    ("--rate", Wish::Rate),
    ("-d", Wish::Duration),
    ("--duration", Wish::Duration),
    ("-n", Wish::Requests),
    ("--requests", Wish::Requests),
    ("--ramp", Wish::Ramp),
    ("-X", Wish::Method),
    ("--method", Wish::Method),
    ("-H", Wish::HeaderField),
    ("--header", Wish::HeaderField),
    ("-b", Wish::Body),
    ("--body", Wish::Body),
    ("--urls", Wish::UrlList),
    ("--no-keep-alive", Wish::NoKeepAlive),
    ("--insecure", Wish::Insecure),
    ("--cacert", Wish::CaFile),
    ("--cert", Wish::Certificate),
    ("--key", Wish::Certificate),
    ("--tls-version", Wish::TlsVersion),
    ("--http2", Wish::Http2),
    ("--streams", Wish::Streams),
    ("--proxy", Wish::Proxy),
    ("--timeout", Wish::Timeout),
    ("--expect", Wish::Thresholds),
    ("-t", Wish::Threads),
    ("--threads", Wish::Threads),
    ("--save", Wish::Record),
];

/// A value of `-t` that is not a number of threads.
pub(super) const NOT_THREADS: &[Meaning] =
    &[("oha and hey", Wish::Timeout), ("ab and siege", Wish::Duration)];

/// A value of `-d` that is not a duration.
pub(super) const NOT_DURATION: &[Meaning] = &[("oha, hey and curl", Wish::Body)];

#[cfg(test)]
mod tests {
    use super::super::answers::ANSWERS;
    use super::*;

    #[test]
    fn every_wish_has_one_answer_and_no_flag_occurs_twice() {
        let values = [("-t", NOT_THREADS), ("-d", NOT_DURATION)];
        for (flag, meanings) in FLAGS.iter().chain(&values) {
            for (_, wish) in *meanings {
                assert_eq!(ANSWERS.iter().filter(|a| a.wish == *wish).count(), 1, "{flag} {wish:?}");
            }
        }
        for (flag, _) in FLAGS {
            assert_eq!(FLAGS.iter().filter(|(other, _)| other == flag).count(), 1, "{flag}");
        }
    }
}
