//! The generators: how to make each of them use one thread and run a row, and the little that is read from its output.
//! The server counts its work, the kernel its resources.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::cases::{Ask, STREAMS};
use crate::command::{captured, find, path_with, program, shown};
use crate::packages::install_packages;
use crate::root::target;

/// A load generator. In its strings, words in braces are placeholders that [`Order::filled`] replaces.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// The command that installs it; empty if we build it.
    pub get: &'static str,
    /// Its command line, with `{how}` for the options that a row adds.
    command: &'static str,
    /// The kinds of row that it supports, with the options for each.
    pub asks: &'static [(Ask, &'static str)],
    says: Says,
}

/// What is read from a generator's output.
enum Says {
    /// JSON, by pointers: the numbers of good and of failed requests, and the median, with its unit in milliseconds.
    Json { good: &'static str, failed: &'static str, p50: &'static str, unit_ms: f64 },
    /// The median, which follows this text.
    Median(&'static str),
    /// Nothing: the output has no median, or none to the microsecond without parsing a file or a table.
    Nothing,
}

const BENCH: &str = "bench {url} -t 1 --cpus {core} -d {s}s";
const LOADLAB: Tool = Tool {
    name: "loadlab",
    get: "",
    command: "{program} {how} --json --quiet",
    asks: &[
        (Ask::KeepAlive, "{bench} -c {users}"),
        (Ask::Close, "{bench} -c {users} --no-keep-alive"),
        (Ask::Post, "{bench} -c {users} --body @{dir}/body"),
        // Like the other tools, which do not verify certificates.
        (Ask::Secure, "{bench} -c {users} --insecure"),
        (Ask::Handshake, "{bench} -c {users} --insecure --no-keep-alive --no-resumption"),
        (Ask::Streams, "{bench} -c {users} --http2 --streams {streams}"),
        (Ask::Journey, "run {dir}/journey.yaml --out {dir}/record"),
        // As many connections as oha holds.
        (Ask::Rate, "{bench} -r {rate} --connections 100"),
    ],
    says: Says::Json {
        good: "/requests/ok",
        failed: "/requests/failed",
        p50: "/response_ms/p50",
        unit_ms: 1.0,
    },
};
const LOADLAB_EPOLL: Tool =
    Tool { name: "loadlab-epoll", command: "{program} {how} --json --quiet --io epoll", ..LOADLAB };
const BARE_URING: Tool = Tool {
    name: "bare-uring",
    get: "",
    command: "{program} {server} {path} -c {users} -s {s} {how}",
    asks: &[(Ask::KeepAlive, ""), (Ask::Close, "--close")],
    says: Says::Json { good: "/requests", failed: "", p50: "/p50_us", unit_ms: 1e-3 },
};

/// All generators; wrk is the reference.
pub const TOOLS: &[Tool] = &[
    LOADLAB,
    LOADLAB_EPOLL,
    Tool { name: "before", ..LOADLAB },
    Tool { name: "before-epoll", ..LOADLAB_EPOLL },
    BARE_URING,
    Tool { name: "bare-epoll", ..BARE_URING },
    Tool {
        name: "bare-timer",
        // Enough connections that it never waits for one.
        command: "{program} --rate {rate} -s {s} --server {server} -c 1000",
        asks: &[(Ask::Rate, "")],
        ..BARE_URING
    },
    Tool {
        name: "wrk",
        get: "apt-get install wrk",
        command: "{program} -t1 -c{users} -d{s}s --latency {how} {url}",
        asks: &[
            (Ask::KeepAlive, ""),
            (Ask::Close, "-H {close}"),
            (Ask::Post, "-s {dir}/wrk.lua"),
            (Ask::Secure, ""),
            // wrk resumes no session.
            (Ask::Handshake, "-H {close}"),
        ],
        // With the line break: `62.50%` of the samples may lie within a deviation.
        says: Says::Median("\n     50%"),
    },
    Tool {
        name: "ab",
        get: "apt-get install apache2-utils",
        // A time limit sets the number of requests to 50,000, unless a number follows it.
        command: "{program} -q -c {users} -t {s} -n 50000000 {how} {url}",
        // ab speaks HTTP/1.0: without -k the server closes the connection.
        asks: &[
            (Ask::KeepAlive, "-k"),
            (Ask::Close, ""),
            (Ask::Post, "-k -T application/octet-stream -p {dir}/body"),
        ],
        says: Says::Nothing,
    },
    Tool {
        name: "h2load",
        get: "apt-get install nghttp2-client",
        command: "{program} -t1 -D {s} -c{connections} {how} {url}",
        asks: &[(Ask::KeepAlive, "--h1"), (Ask::Post, "--h1 -d {dir}/body"), (Ask::Streams, "-m{streams}")],
        says: Says::Nothing,
    },
    Tool {
        name: "hey",
        get: "apt-get install hey",
        command: "{program} -cpus 1 -z {s}s -c {users} {how} {url}",
        asks: &[
            (Ask::KeepAlive, ""),
            (Ask::Close, "-disable-keepalive"),
            (Ask::Post, "-m POST -D {dir}/body"),
        ],
        says: Says::Median(" 50% in"),
    },
    Tool {
        name: "siege",
        get: "apt-get install siege",
        // siege has a thread for each connection; like all tools it has only the one core. It writes a template of its
        // settings to HOME.
        command: "env HOME={dir} {program} -b -q -c {users} -t {s}S -R {dir}/siege.conf {url}",
        asks: &[(Ask::KeepAlive, "")],
        says: Says::Nothing,
    },
    Tool {
        name: "oha",
        get: "cargo install --locked oha",
        command: "env TOKIO_WORKER_THREADS=1 NO_COLOR=1 {program} --no-tui -z {s}s -c {connections} {how} {url}",
        asks: &[
            (Ask::KeepAlive, ""),
            (Ask::Close, "--disable-keepalive"),
            (Ask::Post, "-m POST -D {dir}/body"),
            (Ask::Secure, "--insecure"),
            (Ask::Handshake, "--insecure --disable-keepalive"),
            (Ask::Streams, "--http2 -p {streams}"),
            (Ask::Rate, "-q {rate} --latency-correction"),
        ],
        says: Says::Median("50.00% in"),
    },
    Tool {
        name: "k6",
        get: "go install go.k6.io/k6@latest",
        command: "env GOMAXPROCS=1 K6_NO_USAGE_REPORT=true HOME={dir} {program} run --quiet {how}",
        asks: &[
            (Ask::KeepAlive, "--vus {users} --duration {s}s {dir}/get.js"),
            (Ask::Journey, "--vus {users} --duration {s}s {dir}/journey.js"),
            (Ask::Rate, "{dir}/open.js"),
        ],
        says: Says::Nothing,
    },
    Tool {
        name: "vegeta",
        get: "go install github.com/tsenart/vegeta/v12@latest",
        command: "env GOMAXPROCS=1 {program} attack -targets={dir}/vegeta.txt -rate={rate}/1s -duration={s}s \
                  -output={dir}/vegeta.bin",
        asks: &[(Ask::Rate, "")],
        says: Says::Nothing,
    },
];

/// What a tool has to do.
pub struct Order<'o> {
    /// The kind of row.
    pub ask: Ask,
    /// Requests in flight, in a row without a rate.
    pub users: u64,
    /// Requests per second, in a row with a rate.
    pub rate_per_s: f64,
    /// Length of the load.
    pub seconds: u64,
    /// The server, as ADDRESS:PORT.
    pub server: String,
    /// The URL to request.
    pub url: String,
    /// The path in that URL.
    pub path: &'static str,
    /// The core the tool is started on.
    pub core: usize,
    /// A folder for its files.
    pub dir: &'o Path,
}

impl Order<'_> {
    /// A text with its placeholders replaced by the order's values.
    fn filled(&self, text: &str) -> String {
        let streams = if self.ask == Ask::Streams { STREAMS } else { 1 };
        let mut text = text.to_owned();
        for (name, value) in [
            ("{users}", self.users.to_string()),
            ("{connections}", (self.users / streams).to_string()),
            ("{streams}", streams.to_string()),
            ("{rate}", self.rate_per_s.to_string()),
            ("{s}", self.seconds.to_string()),
            ("{server}", self.server.clone()),
            ("{url}", self.url.clone()),
            ("{path}", self.path.to_owned()),
            ("{core}", self.core.to_string()),
            ("{dir}", self.dir.display().to_string()),
            ("{close}", "Connection: close".to_owned()),
        ] {
            text = text.replace(name, &value);
        }
        text
    }

    /// Writes the files that command lines name. Removes the previous record, since loadlab overwrites none.
    fn write_files(&self) -> Result<()> {
        let _ = fs::remove_dir_all(self.dir.join("record"));
        let body = "y".repeat(1024);
        let mut people = String::from("user,item\n");
        for row in 0..1000 {
            writeln!(people, "user{row},{}", row * 7 % 1000)?;
        }
        for (name, text) in [
            ("body", body.as_str()),
            ("people.csv", &people),
            // Without a function the script runs once, and the request is built once.
            ("wrk.lua", &format!("wrk.method = \"POST\"\nwrk.body = \"{body}\"\n")),
            (
                "siege.conf",
                "connection = keep-alive\nlimit = 100000\nverbose = false\nlogging = false\nparser = false\n",
            ),
            ("vegeta.txt", "GET {url}\n"),
            ("get.js", "import http from 'k6/http';\nexport default function () { http.get('{url}'); }\n"),
            ("open.js", include_str!("files/open.js")),
            ("journey.js", include_str!("files/journey.js")),
            ("journey.yaml", include_str!("files/journey.yaml")),
        ] {
            fs::write(self.dir.join(name), self.filled(text))?;
        }
        Ok(())
    }
}

impl Tool {
    fn package(&self) -> Option<&'static str> {
        self.get.strip_prefix("apt-get install ")
    }

    fn program(&self) -> &'static str {
        match self.name {
            "loadlab-epoll" => "loadlab",
            "before" | "before-epoll" => BEFORE,
            name => name,
        }
    }

    /// Whether the tool is installed, or built here.
    pub fn is_here(&self) -> bool {
        // Ours are built before this check; another revision exists only if it was requested.
        self.get.is_empty() && self.program() != BEFORE
            || env::split_paths(&path()).any(|dir| dir.join(self.program()).is_file())
    }

    /// The command for an order; also writes the order's files.
    ///
    /// # Errors
    /// The tool does not support this kind of row, or a file cannot be written.
    pub fn command(&self, order: &Order) -> Result<Command> {
        let how = self.asks.iter().find(|(ask, _)| *ask == order.ask);
        let (_, how) = how.with_context(|| format!("{} cannot do that", self.name))?;
        order.write_files()?;
        let text = self.command.replace("{how}", how).replace("{bench}", BENCH);
        let mut words =
            text.split_whitespace().map(|word| order.filled(&word.replace("{program}", self.program())));
        let mut command = program(words.next().unwrap_or_default());
        command.args(words).env("PATH", path());
        Ok(command)
    }

    /// The median that the tool reports, in milliseconds; for our own tools also the number of requests they count,
    /// after a check that none failed.
    ///
    /// # Errors
    /// The output has no median, or requests of our own tools failed.
    pub fn said(&self, text: &str) -> Result<(Option<f64>, Option<f64>)> {
        match self.says {
            Says::Nothing => Ok((None, None)),
            Says::Median(label) => Ok((Some(duration_ms(text, label)?), None)),
            Says::Json { good, failed, p50, unit_ms } => {
                let json: Value = serde_json::from_str(text)?;
                // The result of a plan contains its trials.
                let json = json.pointer("/trials/0/summary").unwrap_or(&json);
                let number =
                    |at: &str| json.pointer(at).and_then(Value::as_f64).with_context(|| format!("no {at}"));
                let failed = if failed.is_empty() { 0.0 } else { number(failed)? };
                ensure!(failed == 0.0, "{failed} requests failed");
                Ok((Some(number(p50)? * unit_ms), Some(number(good)?)))
            }
        }
    }
}

/// The duration after a label, such as `637.00us` or `0.0016 secs`, in milliseconds.
fn duration_ms(text: &str, label: &str) -> Result<f64> {
    let rest = text.split_once(label).with_context(|| format!("no `{label}`"))?.1.trim_start();
    let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (value, rest) = rest.split_at(digits);
    let unit_ms = match rest.split_whitespace().next().unwrap_or_default() {
        "us" | "µs" => 1e-3,
        "ms" => 1.0,
        "s" | "sec" | "secs" => 1e3,
        unit => bail!("unit `{unit}` after `{label}`"),
    };
    Ok(value.parse::<f64>().with_context(|| format!("`{value}` after `{label}`"))? * unit_ms)
}

/// The file name of loadlab's other revision, below [`fetched`].
const BEFORE: &str = "loadlab-before";

/// Folder of downloaded programs, and of the other revision of loadlab while it is compared.
fn fetched() -> PathBuf {
    target().join("xtask/tools/bin")
}

/// Search path: our own programs, downloaded ones, then all others.
fn path() -> OsString {
    path_with(&[target().join("release"), fetched()]).unwrap_or_default()
}

/// Uses a program as the other revision of loadlab; without one, removes the previous one.
///
/// # Errors
/// The program cannot be copied.
pub fn take_before(given: Option<&Path>) -> Result<()> {
    let bin = fetched();
    fs::create_dir_all(&bin)?;
    let _ = fs::remove_file(bin.join(BEFORE));
    if let Some(given) = given {
        fs::copy(given, bin.join(BEFORE)).with_context(|| given.display().to_string())?;
    }
    Ok(())
}

/// Installs missing tools: Debian's packages, and others into this program's folder if their build tools are installed.
///
/// # Errors
/// A command fails.
pub fn install() -> Result<()> {
    let missing = || TOOLS.iter().filter(|t| !t.get.is_empty() && !t.is_here());
    let packages: Vec<_> = missing().filter_map(Tool::package).collect();
    install_packages(&packages)?;
    for tool in missing() {
        let mut words = tool.get.split(' ');
        let Some(path) = words.next().and_then(find) else { continue };
        let mut command = program(path);
        let bin = fetched();
        command.args(words).env("GOBIN", &bin).env("CARGO_INSTALL_ROOT", bin.parent().unwrap_or(&bin));
        shown(&mut command)?.ok(tool.get)?;
    }
    Ok(())
}

/// The versions of the tools that ran and of nginx: from Debian, or as they report themselves.
pub fn versions(tools: &[&Tool]) -> String {
    let line = |command: &mut Command| {
        let ran = captured(command.env("PATH", path()), Duration::from_secs(10));
        ran.map(|r| r.stdout.lines().next().unwrap_or_default().to_owned()).unwrap_or_default()
    };
    let mut debian = program("dpkg-query");
    debian.args(["--show", "--showformat", "${Package} ${Version} · ", "nginx"]);
    debian.args(tools.iter().filter_map(|t| t.package()));
    let mut all = line(&mut debian);
    // loadlab's version also applies to the bare loops.
    for (name, argument) in
        [("loadlab", "--version"), ("oha", "--version"), ("k6", "version"), ("vegeta", "-version")]
    {
        if tools.iter().any(|t| t.name == name) {
            all.push_str(&line(program(name).arg(argument)));
            all.push_str(" · ");
        }
    }
    all.trim_end_matches(" · ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> &'static Tool {
        TOOLS.iter().find(|t| t.name == name).unwrap()
    }

    #[test]
    fn commands_are_filled_in() {
        let dir = tempfile::tempdir().unwrap();
        let words = |name: &str, ask: Ask| {
            let (server, url) = ("127.0.0.1:80".to_owned(), "http://127.0.0.1:80/128".to_owned());
            let (users, rate_per_s, seconds) = (200, 1000.0, 3);
            let order = Order {
                ask,
                users,
                rate_per_s,
                seconds,
                server,
                url,
                path: "/128",
                core: 1,
                dir: dir.path(),
            };
            let command = tool(name).command(&order)?;
            let words: Vec<_> = command.get_args().map(|a| a.display().to_string()).collect();
            Ok::<_, anyhow::Error>(words.join("|").replace(&dir.path().display().to_string(), "DIR"))
        };
        assert_eq!(
            words("wrk", Ask::Close).unwrap(),
            "-t1|-c200|-d3s|--latency|-H|Connection: close|http://127.0.0.1:80/128"
        );
        assert_eq!(words("h2load", Ask::Streams).unwrap(), "-t1|-D|3|-c20|-m10|http://127.0.0.1:80/128");
        assert_eq!(
            words("loadlab", Ask::Rate).unwrap(),
            "bench|http://127.0.0.1:80/128|-t|1|--cpus|1|-d|3s|-r|1000|--connections|100|--json|--quiet"
        );
        assert!(words("h2load", Ask::Close).is_err());
        let plan = fs::read_to_string(dir.path().join("journey.yaml")).unwrap();
        assert!(plan.contains("users: 200\n") && plan.contains("/128/login?user=${people.user}\""), "{plan}");
        // Names used in one tool's text are available to all of them.
        for tool in TOOLS {
            for (ask, _) in tool.asks {
                let words = words(tool.name, *ask).unwrap();
                assert!(!words.contains(['{', '}']), "{words}");
            }
        }
    }

    #[test]
    fn medians_are_found() {
        let text = "    Latency   696.89us  258.23us   6.25ms   62.50%\n  Latency Distribution\n     50%  637.00us\n     75%    2.75ms\n";
        assert_eq!(tool("wrk").said(text).unwrap(), (Some(0.637), None));
        assert_eq!(tool("hey").said("  10% in 0.0005 secs\n  50% in 0.0016 secs\n").unwrap().0, Some(1.6));
        assert_eq!(tool("oha").said("  50.00% in 0.5505 ms\n").unwrap().0, Some(0.5505));
        assert!(tool("oha").said("  50.00% in 0.5 h\n").is_err() && tool("wrk").said("").is_err());
        let text = "{\"requests\": {\"ok\": 10, \"failed\": 0}, \"response_ms\": {\"p50\": 0.4}}";
        assert_eq!(tool("loadlab").said(text).unwrap(), (Some(0.4), Some(10.0)));
        assert!(tool("loadlab").said(&text.replace("\"failed\": 0", "\"failed\": 1")).is_err());
        let text = "{\"backend\": \"uring\", \"requests\": 10, \"p50_us\": 400.0}";
        assert_eq!(tool("bare-uring").said(text).unwrap(), (Some(0.4), Some(10.0)));
    }
}
