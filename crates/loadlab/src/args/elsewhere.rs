//! Flags of other load generators: what each means there, and its equivalent here. If two tools mean different things
//! by one flag, both are named. What was typed is repeated only if it is a flag or a number: anything else may be a
//! credential.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What a flag asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Accept,
    Basic,
    Bearer,
    Body,
    BodyFile,
    CaFile,
    Certificate,
    Compression,
    ContentType,
    Cookie,
    Duration,
    Env,
    Format,
    Form,
    HeaderField,
    Held,
    Host,
    HtmlReport,
    Http2,
    InFlight,
    Insecure,
    Iterations,
    Json,
    KeepAlive,
    LatencyCorrection,
    Method,
    NoKeepAlive,
    NoScreen,
    NoThink,
    Percentiles,
    Pipelining,
    Proxy,
    Quiet,
    Ramp,
    Rate,
    RatePerWorker,
    Record,
    Redirects,
    Requests,
    Resolve,
    Screen,
    Script,
    SpawnRate,
    Stages,
    Streams,
    Tags,
    Target,
    Think,
    Threads,
    Thresholds,
    Timeout,
    TlsVersion,
    UnixSocket,
    UrlList,
    UserAgent,
    Users,
    Verbose,
    Warmup,
}

/// A wish in words, and what to write instead for `bench`, `run` and `find`.
struct Answer {
    wish: Wish,
    is: &'static str,
    bench: &'static str,
    run: &'static str,
    find: &'static str,
}

const fn answer(
    wish: Wish,
    is: &'static str,
    bench: &'static str,
    run: &'static str,
    find: &'static str,
) -> Answer {
    Answer { wish, is, bench, run, find }
}

const IN_STEP: &str = "set in a step of the plan";

const ANSWERS: &[Answer] = &[
    answer(
        Wish::Accept,
        "the `Accept` header",
        "`-H 'Accept: …'`",
        "`headers` of a step",
        "`-H 'Accept: …'`",
    ),
    answer(
        Wish::Basic,
        "a user name and password",
        "`-H @FILE`, where the file has `Authorization: Basic …`",
        "`auth: { basic: { user: …, password: … } }` of a step",
        "`-H @FILE`, where the file has `Authorization: Basic …`",
    ),
    answer(
        Wish::Bearer,
        "a bearer token",
        "`-H @FILE`, where the file has `Authorization: Bearer …`",
        "`auth: { bearer: … }` of a step",
        "`-H @FILE`, where the file has `Authorization: Bearer …`",
    ),
    answer(
        Wish::Body,
        "the body",
        "`-b TEXT`, or `-b @FILE`",
        "`body` of a step",
        "`-b TEXT`, or `-b @FILE`",
    ),
    answer(
        Wish::BodyFile,
        "a file with the body",
        "`-b @FILE`",
        "`body: { file: … }` of a step",
        "`-b @FILE`",
    ),
    answer(
        Wish::CaFile,
        "certificates to trust",
        "`--cacert FILE`",
        "`tls: { ca: FILE }` of the load",
        "`--cacert FILE`",
    ),
    answer(
        Wish::Certificate,
        "the client's certificate",
        "`--cert FILE --key FILE`",
        "`tls: { cert: FILE, key: FILE }` of the load",
        "`--cert FILE --key FILE`",
    ),
    answer(
        Wish::Compression,
        "compressed responses",
        "off, unless you ask with `-H 'Accept-Encoding: gzip'`",
        "`compression: true` of the load",
        "off, unless you ask with `-H 'Accept-Encoding: gzip'`",
    ),
    answer(
        Wish::ContentType,
        "the content type of the body",
        "`-H 'Content-Type: application/json'`",
        "`headers` of a step",
        "`-H 'Content-Type: application/json'`",
    ),
    answer(
        Wish::Cookie,
        "a cookie",
        "`-H 'Cookie: …'`",
        "`cookies: true` of the load, or `headers` of a step",
        "`-H 'Cookie: …'`",
    ),
    answer(Wish::Duration, "the duration", "`-d 10s`", "`--set load.duration=10s`", "`--level-duration 10s`"),
    answer(
        Wish::Env,
        "a variable of the script",
        "not needed: there is no script",
        "`--set PATH=VALUE`, or `${env.NAME}` in the plan",
        "`--set PATH=VALUE`",
    ),
    answer(
        Wish::Format,
        "the format of the output",
        "`--json`; with `--save`, `loadlab report --format text|md|html|json|csv`",
        "`--json`; afterwards `loadlab report last --format text|md|html|json|csv`",
        "`--json`; afterwards `loadlab report last --format text|md|html|json|csv`",
    ),
    answer(
        Wish::Form,
        "a form",
        "`-b 'a=1&b=2' -H 'Content-Type: application/x-www-form-urlencoded'`; files need a plan (`multipart` of a step)",
        "`form` or `multipart` of a step",
        "a plan: `form` or `multipart` of a step",
    ),
    answer(
        Wish::HeaderField,
        "a header field",
        "`-H 'Name: value'`",
        "`headers` of a step",
        "`-H 'Name: value'`",
    ),
    answer(
        Wish::Held,
        "the number of connections",
        "`-c 50` for users with a connection each, or `--connections N` for connections that are held open",
        "`--set load.users=50`: each user has a connection",
        "`--users 1..500`: each user has a connection",
    ),
    answer(Wish::Host, "the `Host` header", "`-H 'Host: …'`", "`headers` of a step", "`-H 'Host: …'`"),
    answer(
        Wish::HtmlReport,
        "an HTML report",
        "`--save`: the record has `report.html`",
        "always written: `report.html` in the record",
        "always written: `report.html` in the record",
    ),
    answer(Wish::Http2, "HTTP/2", "`--http2`", "`--set load.protocol=http/2`", "`--http2`"),
    answer(
        Wish::InFlight,
        "the most requests at a time",
        "`--max-in-flight N`, with `-r`",
        "`--set load.max_in_flight=N`, with a `rate`",
        "`--set load.max_in_flight=N`, with a plan that has a `rate`",
    ),
    answer(
        Wish::Insecure,
        "accepting any certificate",
        "`--insecure`",
        "`--set load.tls.insecure=true`",
        "`--insecure`",
    ),
    answer(
        Wish::Iterations,
        "the number of iterations",
        "`-n 1000`: requests in all",
        "`--set load.requests=1000`, or `repeats` for each user",
        "not needed: levels are measured for a time",
    ),
    answer(
        Wish::Json,
        "results as JSON",
        "`--json > FILE`",
        "`--json > FILE`; `summary.json` of each trial is in the record",
        "`--json > FILE`",
    ),
    answer(
        Wish::KeepAlive,
        "reusing connections",
        "always on; `--no-keep-alive` turns it off",
        "always on; `--set load.keep_alive=false` turns it off",
        "always on; `--no-keep-alive` turns it off",
    ),
    answer(
        Wish::LatencyCorrection,
        "response times from when requests were due",
        "always so with `-r`",
        "always so with a `rate`",
        "always so with `--rate`",
    ),
    answer(Wish::Method, "the method", "`-X POST`", "the key of a step: `post: http://…`", "`-X POST`"),
    answer(
        Wish::NoKeepAlive,
        "a connection per request",
        "`--no-keep-alive`",
        "`--set load.keep_alive=false`",
        "`--no-keep-alive`",
    ),
    answer(
        Wish::NoScreen,
        "no live screen",
        "`--plain`, or `-q`",
        "`--plain`, or `-q`",
        "`--plain`, or `-q`",
    ),
    answer(
        Wish::NoThink,
        "no pause between requests",
        "always so: users send as soon as they have a response",
        "always so without `think` in the plan",
        "always so without `think` in the plan",
    ),
    answer(
        Wish::Percentiles,
        "percentiles",
        "always reported: leave it out",
        "always reported: leave it out",
        "always reported: leave it out",
    ),
    answer(
        Wish::Pipelining,
        "pipelining",
        "HTTP/1.1 pipelining is not supported; `--http2 --streams N` sends N requests at a time on a connection",
        "HTTP/1.1 pipelining is not supported; `streams_per_connection` of HTTP/2 is",
        "HTTP/1.1 pipelining is not supported; `--http2 --streams N` is",
    ),
    answer(Wish::Proxy, "a proxy", "`--proxy URL`", "`--set load.proxy=URL`", "`--proxy URL`"),
    answer(Wish::Quiet, "less output", "`-q`", "`-q`", "`-q`"),
    answer(
        Wish::Ramp,
        "the time to reach full load",
        "`--ramp 10s`",
        "`--set load.ramp=10s`",
        "`--settle 10s`",
    ),
    answer(
        Wish::Rate,
        "requests per second",
        "`-r 1000/s`",
        "`rate: 1000/s` instead of `users` in the plan",
        "`--rate 100/s..5000/s`, the range to search",
    ),
    answer(
        Wish::RatePerWorker,
        "requests per second of each worker",
        "`-r 1000/s`, for all of them together",
        "`rate: 1000/s` instead of `users` in the plan, for all of them together",
        "`--rate 100/s..5000/s`, for all of them together",
    ),
    answer(
        Wish::Record,
        "keeping the results",
        "`--save`, or `-o DIR`",
        "always kept; `-o DIR` says where",
        "always kept; `-o DIR` says where",
    ),
    answer(
        Wish::Redirects,
        "following redirects",
        "never followed; a plan follows them with `redirects: N`",
        "`--set load.redirects=N`",
        "`--set load.redirects=N`, with a plan",
    ),
    answer(
        Wish::Requests,
        "the number of requests",
        "`-n 1000`",
        "`--set load.requests=1000`",
        "not needed: levels are measured for a time",
    ),
    answer(
        Wish::Resolve,
        "the address of a host",
        "`--resolve HOST:PORT:ADDR`",
        "`--resolve HOST:PORT:ADDR`",
        "`--resolve HOST:PORT:ADDR`",
    ),
    answer(Wish::Screen, "a live page", "`--ui`", "`--ui`", "`--ui`"),
    answer(
        Wish::Script,
        "a script",
        "a plan says what users do: `loadlab init URL` writes one, `loadlab run` runs it",
        "the plan says what users do, in `journey`",
        "a plan says what users do, in `journey`",
    ),
    answer(
        Wish::SpawnRate,
        "users started per second",
        "`--ramp 10s`: users start evenly over this time",
        "`--set load.ramp=10s`: users start evenly over this time",
        "`--settle 10s`",
    ),
    answer(
        Wish::Stages,
        "stages of the load",
        "a plan has `stages`; `--ramp T` is a single rise",
        "`stages` of the load",
        "not possible: a search varies one number",
    ),
    answer(
        Wish::Streams,
        "streams per connection",
        "`--http2 --streams N`",
        "`--set load.streams_per_connection=N`",
        "`--http2 --streams N`",
    ),
    answer(
        Wish::Tags,
        "tags of results",
        "for plans: `tags` of a step",
        "`tags` of a step; `--tags a,b` selects steps",
        "for plans: `tags` of a step",
    ),
    answer(
        Wish::Target,
        "the URL",
        "an argument by itself: `loadlab bench URL`",
        IN_STEP,
        "an argument by itself: `loadlab find URL`",
    ),
    answer(
        Wish::Think,
        "a pause between requests",
        "a plan has `think` and `pace`; with `-r` requests fall due anyway",
        "`--set load.think=1s`",
        "`--set load.think=1s`, with a plan",
    ),
    answer(
        Wish::Threads,
        "load threads",
        "`-t 2`",
        "`--set load.threads=2`",
        "`--set load.threads=2`, with a plan",
    ),
    answer(
        Wish::Thresholds,
        "conditions that must hold",
        "`--expect 'p99 < 200ms'`",
        "`expect` of the plan",
        "`--expect 'p99 < 200ms'`",
    ),
    answer(
        Wish::Timeout,
        "the timeout of a request",
        "`--timeout 30s`",
        "`--set load.timeout=30s`",
        "`--timeout 30s`",
    ),
    answer(
        Wish::TlsVersion,
        "the TLS version",
        "`--tls-version 1.3`",
        "`tls: { versions: [\"1.3\"] }` of the load",
        "`--tls-version 1.3`",
    ),
    answer(
        Wish::UnixSocket,
        "a Unix socket",
        "the URL: `unix:/PATH/TO.sock:/URL/PATH`",
        "the URL of a step: `unix:/PATH/TO.sock:/URL/PATH`",
        "the URL of a step in a plan: `unix:/PATH/TO.sock:/URL/PATH`",
    ),
    answer(
        Wish::UrlList,
        "a file of URLs",
        "`--urls FILE`",
        "`urls: FILE` as a step",
        "`urls: FILE` as a step of a plan",
    ),
    answer(
        Wish::UserAgent,
        "the `User-Agent` header",
        "`-H 'User-Agent: …'`",
        "`headers` of a step",
        "`-H 'User-Agent: …'`",
    ),
    answer(
        Wish::Users,
        "concurrent users",
        "`-c 50`",
        "`--set load.users=50`",
        "`--users 1..500`, the range to search",
    ),
    answer(
        Wish::Verbose,
        "more output",
        "`--plain` prints lines; with `--save` the record has failed exchanges in full",
        "`--plain` prints lines; the record has failed exchanges in full",
        "`--plain` prints lines",
    ),
    answer(
        Wish::Warmup,
        "a warm-up",
        "a plan has `warmup`: bench leaves nothing out",
        "`--set load.warmup=5s`",
        "`--settle 5s`",
    ),
];

/// The tools that have a flag, and what they mean by it.
type Meaning = (&'static str, Wish);

/// Flags, and what each tool means by them. Those with one dash and several letters are hey's and vegeta's.
#[rustfmt::skip]
const FLAGS: &[(&str, &[Meaning])] = &[
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
const OF_BENCH: &[(&str, Wish)] = &[
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
const NOT_THREADS: &[Meaning] = &[("oha and hey", Wish::Timeout), ("ab and siege", Wish::Duration)];

/// A value of `-d` that is not a duration.
const NOT_DURATION: &[Meaning] = &[("oha, hey and curl", Wish::Body)];

/// The message for an error of the parser, if another tool's flag explains it.
pub fn explanation(error: &clap::Error, command: &str, words: &[String]) -> Option<String> {
    if !["bench", "run", "find"].contains(&command) {
        return None;
    }
    let stopped = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(typed)) => typed.as_str(),
        _ => "",
    };
    if let Some(word) = words.iter().find_map(|word| with_one_dash(word)) {
        return Some(word.explained(command));
    }
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let flag = stopped.split('=').next().unwrap_or_default();
            if let Some((_, meanings)) = FLAGS.iter().find(|(known, _)| *known == flag) {
                return Some(foreign(flag, meanings, command));
            }
            if let (Some((_, wish)), true) = (OF_BENCH.iter().find(|(f, _)| *f == flag), command != "bench") {
                return Some(message(
                    &format!("`loadlab {command}` has no `{flag}`"),
                    &[("", *wish)],
                    command,
                ));
            }
            // `-q 100` is `-q` and a stray number.
            let before =
                words.iter().position(|word| word == stopped).and_then(|at| words.get(at.checked_sub(1)?));
            let is_number = !stopped.is_empty() && stopped.chars().all(|c| c.is_ascii_digit());
            (before.is_some_and(|word| word == "-q") && is_number).then(|| {
                let (_, meanings) = FLAGS.iter().find(|(flag, _)| *flag == "-q").unwrap_or(&FLAGS[0]);
                message("`-q` is short for `--quiet` and takes no value", meanings, command)
            })
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => bad_value(error, stopped, command),
        _ => None,
    }
}

/// A flag such as `-rate=50` of tools that write long names with one dash.
struct OneDash {
    flag: String,
    meanings: Option<&'static [Meaning]>,
}

impl OneDash {
    fn explained(&self, command: &str) -> String {
        match self.meanings {
            Some(meanings) => foreign(&self.flag, meanings, command),
            None => {
                format!("`{}` has one dash\nhint: names of options have two: `-{}`", self.flag, self.flag)
            }
        }
    }
}

/// The word as such a flag; `None` if it is a short option with its value, or a value.
fn with_one_dash(word: &str) -> Option<OneDash> {
    let flag = word.split('=').next().unwrap_or_default();
    if flag.len() < 3 || flag.starts_with("--") || !flag.starts_with('-') {
        return None;
    }
    if let Some((_, meanings)) = FLAGS.iter().find(|(known, _)| *known == flag) {
        return Some(OneDash { flag: flag.to_owned(), meanings: Some(meanings) });
    }
    let long = format!("-{flag}");
    let is_ours = OF_BENCH.iter().any(|(known, _)| *known == long);
    is_ours.then(|| OneDash { flag: flag.to_owned(), meanings: None })
}

fn foreign(flag: &str, meanings: &[Meaning], command: &str) -> String {
    message(&format!("`loadlab {command}` has no `{flag}`"), meanings, command)
}

/// What is wrong, and the equivalent here for each meaning.
fn message(what: &str, meanings: &[Meaning], command: &str) -> String {
    let mut out = what.to_owned();
    for (who, wish) in meanings {
        let Some(answer) = ANSWERS.iter().find(|a| a.wish == *wish) else { continue };
        let here = match command {
            "run" => answer.run,
            "find" => answer.find,
            _ => answer.bench,
        };
        let whose = if who.is_empty() { String::new() } else { format!(" ({who})") };
        out.push_str(&format!("\nhint: {}{whose}: {here}", answer.is));
    }
    out
}

/// A value that an option cannot take: a number without its unit, or what another tool would understand.
fn bad_value(error: &clap::Error, stopped: &str, command: &str) -> Option<String> {
    let option = stopped.split_whitespace().next().unwrap_or_default();
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return None };
    let is_number = !value.is_empty() && value.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_of_time = stopped.ends_with("<T>");
    match option {
        _ if is_of_time && is_number => Some(format!(
            "`{option} {value}`: `{value}` is not a duration, it has no unit\nhint: {value} seconds are `{value}s`"
        )),
        // hey's and siege's: `-t 30S`, `-z 1M`.
        _ if is_of_time && loadlab_record::text::units::parse_duration_ns(value).is_ok() => None,
        _ if is_of_time && loadlab_record::text::units::parse_duration_ns(&value.to_lowercase()).is_ok() => {
            let lower = value.to_lowercase();
            Some(format!("`{option} {value}`: units are small letters\nhint: write `{lower}`"))
        }
        "--duration" => {
            Some(message("the value of `-d` is not a duration such as `10s`", NOT_DURATION, command))
        }
        "--threads" if !is_number => {
            Some(message("the value of `-t` is not a number of load threads", NOT_THREADS, command))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse_from;

    /// The message about a command line.
    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match parse_from(std::iter::once("loadlab".to_owned()).chain(words.iter().cloned())) {
            Ok(_) => "understood".to_owned(),
            Err(error) => explanation(&error, &words[0], &words).unwrap_or_else(|| error.to_string()),
        }
    }

    const URL: &str = "http://127.0.0.1:1/";

    /// For every flag in the table and each command: the flag does not exist, and the hint has its equivalent.
    #[test]
    fn every_flag_of_the_table_is_explained() {
        let all = crate::args::whole();
        let bench = all.find_subcommand("bench").unwrap();
        let longs: Vec<&str> = bench.get_arguments().filter_map(clap::Arg::get_long).collect();
        let shorts: Vec<char> = bench.get_arguments().filter_map(clap::Arg::get_short).collect();
        for (flag, meanings) in FLAGS {
            let exists = match flag.strip_prefix("--") {
                Some(long) => longs.contains(&long),
                None => flag.len() == 2 && flag.chars().nth(1).is_some_and(|c| shorts.contains(&c)),
            };
            if exists {
                continue;
            }
            let text = said(&format!("bench {URL} {flag}"));
            for (who, wish) in *meanings {
                let answer = ANSWERS.iter().find(|a| a.wish == *wish).unwrap();
                let hint = format!("hint: {} ({who}): {}", answer.is, answer.bench);
                assert!(text.contains(&hint), "{flag}: {text}");
                assert!(text.contains(&format!("has no `{flag}`")), "{flag}: {text}");
            }
        }
    }

    #[test]
    fn flags_of_others_by_what_they_mean() {
        for (line, holds) in [
            ("-z 10s", &["oha and hey", "`-d 10s`"][..]),
            ("-k", &["(curl and k6): `--insecure`", "(ab): always on; `--no-keep-alive`"]),
            ("-m POST", &["(oha, hey and autocannon): `-X POST`", "(h2load): `--http2 --streams N`"]),
            ("-R 100", &["`-r 1000/s`"]),
            ("-q 100", &["`-q` is short for `--quiet`", "requests per second (oha)", "of each worker (hey)"]),
            ("-T application/json", &["`-H 'Content-Type: application/json'`"]),
            ("-s script.lua", &["a script (wrk): a plan says what users do"]),
            ("--vus 5", &["concurrent users (k6): `-c 50`"]),
            ("--iterations=5", &["`-n 1000`"]),
            ("--latency", &["always reported: leave it out"]),
            ("--qps 5", &["`-r 1000/s`"]),
            ("--summary-export=x.json", &["`--json > FILE`"]),
            ("--concurrency 5", &["`-c 50`"]),
            ("--run-time 5m", &["`-d 10s`"]),
            ("-rate=50", &["has no `-rate`", "`-r 1000/s`"]),
            ("-duration=5s", &["has no `-duration`", "`-d 10s`"]),
            ("-cpus 2", &["has no `-cpus`", "`-t 2`"]),
            ("-users=5", &["`-users` has one dash", "`--users`"]),
            ("-disable-keepalive", &["`--no-keep-alive`"]),
            ("-d 5", &["it has no unit", "`5s`"]),
            ("--timeout 5", &["it has no unit", "`5s`"]),
            ("-d 30S", &["units are small letters", "`30s`"]),
            ("-d {\"a\":1}", &["not a duration", "the body (oha, hey and curl): `-b TEXT`"]),
            ("-t 30s", &["(oha and hey): `--timeout 30s`", "(ab and siege): `-d 10s`"]),
        ] {
            let text = said(&format!("bench {URL} {line}"));
            for part in holds {
                assert!(text.contains(part), "{line}: {text}");
            }
        }
        for (line, holds) in [
            ("run plan.yaml --vus 10", "`--set load.users=50`"),
            ("run plan.yaml -d 10s", "`--set load.duration=10s`"),
            ("run plan.yaml -c 10", "`--set load.users=50`"),
            ("run plan.yaml --insecure", "`--set load.tls.insecure=true`"),
            ("run plan.yaml -e A=b", "`--set PATH=VALUE`"),
            ("find plan.yaml --vus 10", "`--users 1..500`"),
            ("find plan.yaml -d 10s", "`--level-duration 10s`"),
            ("find plan.yaml -r 100", "`--rate 100/s..5000/s`"),
        ] {
            assert!(said(line).contains(holds), "{line}: {}", said(line));
        }
    }

    #[test]
    fn counts_may_have_a_letter() {
        for line in ["-c 10k", "-n 1M", "-c 2K -n 10_000", "-r 5k", "-r 5k/s", "-r 100/s --max-in-flight 20k"]
        {
            assert_eq!(said(&format!("bench {URL} {line}")), "understood", "{line}");
        }
        for (line, holds) in [
            ("-c ten", "expected a whole number such as `50` or `10k`"),
            ("-c 0", "must be from 1 to 10000000"),
            ("-c 1.5", "expected a whole number such as `50` or `10k`"),
            ("-n 0", "must be at least 1"),
        ] {
            let text = said(&format!("bench {URL} {line}"));
            assert!(text.contains(holds), "{line}: {text}");
        }
    }

    /// What was typed may be a credential.
    #[test]
    fn values_are_not_repeated() {
        for line in ["-d s3cret-body", "-t s3cret", "--data=s3cret", "--bearer s3cret", "--user=a:s3cret"] {
            let text = said(&format!("bench {URL} {line}"));
            assert!(!text.contains("s3cret") && text.contains("hint: "), "{line}: {text}");
        }
    }

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
