//! The generators: where they are, how they are asked for one thread and a case, and who reads their output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::cases::{Ask, STREAMS};
use super::order::{Order, ab_percentiles, built, k6_summary};
use super::{journeys, parse};
use crate::command::{captured, find, program, shown};
use crate::root::target;

/// A load generator.
pub struct Tool {
    /// Its name and its program's.
    pub name: &'static str,
    /// The Debian package that holds it.
    pub package: Option<&'static str>,
    /// The command that gets it where Debian does not have it.
    pub fetch: &'static [&'static str],
    /// Arguments that make it tell its version; nothing where none do.
    version: &'static [&'static str],
    /// Its command for an order.
    pub command: fn(&Order) -> Result<Command>,
    /// What its output says.
    pub parse: fn(&Order, &str) -> Result<parse::Reported>,
}

/// All of them; wrk is what the others are compared with.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "loadlab",
        package: None,
        fetch: &[],
        version: &["--version"],
        command: loadlab,
        parse: parse::loadlab,
    },
    Tool {
        name: "loadlab-epoll",
        package: None,
        fetch: &[],
        version: &["--version"],
        command: loadlab_epoll,
        parse: parse::loadlab,
    },
    Tool {
        name: "before",
        package: None,
        fetch: &[],
        version: &["--version"],
        command: |order| Ok(before(&loadlab(order)?)),
        parse: parse::loadlab,
    },
    Tool {
        name: "before-epoll",
        package: None,
        fetch: &[],
        version: &["--version"],
        command: |order| Ok(before(&loadlab_epoll(order)?)),
        parse: parse::loadlab,
    },
    Tool {
        name: "bare-uring",
        package: None,
        fetch: &[],
        version: &[],
        command: bare_uring,
        parse: parse::bare,
    },
    Tool {
        name: "bare-epoll",
        package: None,
        fetch: &[],
        version: &[],
        command: bare_epoll,
        parse: parse::bare,
    },
    Tool { name: "wrk", package: Some("wrk"), fetch: &[], version: &["-v"], command: wrk, parse: parse::wrk },
    Tool {
        name: "ab",
        package: Some("apache2-utils"),
        fetch: &[],
        version: &["-V"],
        command: ab,
        parse: parse::ab,
    },
    Tool {
        name: "h2load",
        package: Some("nghttp2-client"),
        fetch: &[],
        version: &["--version"],
        command: h2load,
        parse: parse::h2load,
    },
    Tool { name: "hey", package: Some("hey"), fetch: &[], version: &[], command: hey, parse: parse::hey },
    Tool {
        name: "siege",
        package: Some("siege"),
        fetch: &[],
        version: &["--version"],
        command: siege,
        parse: parse::siege,
    },
    Tool {
        name: "oha",
        package: None,
        fetch: &["cargo", "install", "--locked", "oha"],
        version: &["--version"],
        command: oha,
        parse: parse::oha,
    },
    Tool {
        name: "k6",
        package: None,
        fetch: &["go", "install", "go.k6.io/k6@latest"],
        version: &["version"],
        command: k6,
        parse: parse::k6,
    },
];

impl Tool {
    /// It is built here.
    pub fn is_ours(&self) -> bool {
        matches!(self.name, "loadlab" | "loadlab-epoll" | "bare-epoll" | "bare-uring") || self.is_before()
    }

    /// It is loadlab of another revision, which is there where it was asked for.
    pub fn is_before(&self) -> bool {
        matches!(self.name, "before" | "before-epoll")
    }

    /// Its program, if it is here.
    pub fn path(&self) -> Option<PathBuf> {
        match self.name {
            "loadlab-epoll" => Some(built("loadlab")),
            _ if self.is_before() => Some(before_path()).filter(|path| path.exists()),
            name if self.is_ours() => Some(built(name)),
            name => found(name),
        }
    }

    /// Gets it from where its makers keep it, into a folder of this program.
    ///
    /// # Errors
    /// What it is made with is not here, or fails.
    pub fn get(&self) -> Result<()> {
        let [name, arguments @ ..] = self.fetch else { return Ok(()) };
        let Some(path) = find(name) else {
            println!("absent: {} (`{name}` is not installed)", self.name);
            return Ok(());
        };
        let bin = fetched();
        fs::create_dir_all(&bin)?;
        let mut command = program(path);
        command.args(arguments).env("GOBIN", &bin).env("CARGO_INSTALL_ROOT", bin.parent().unwrap_or(&bin));
        let ran = shown(&mut command)?;
        ensure!(ran.status.success(), "{}: {}", self.fetch.join(" "), ran.status);
        Ok(())
    }

    /// Its version in its own words, or Debian's.
    pub fn reported_version(&self) -> String {
        let asked = match (self.version, self.package) {
            ([], Some(package)) => {
                let mut command = program("dpkg-query");
                command.args(["--show", "--showformat", "${Package} ${Version}", package]);
                command
            }
            (arguments, _) => {
                let mut command = self.program();
                command.args(arguments);
                command
            }
        };
        let mut asked = asked;
        // Exit codes differ, and so does the stream: some print help after the version.
        let said = captured(&mut asked, Duration::from_secs(10)).map(|ran| ran.stdout + &ran.stderr);
        // siege tells first of a file that it makes in a home without one.
        let reports = |line: &&str| !line.trim().is_empty() && !line.starts_with("New configuration");
        let first = said.unwrap_or_default().lines().find(reports).unwrap_or(self.name).to_owned();
        first
            .split(" Copyright")
            .next()
            .unwrap_or_default()
            .replace("This is ", "")
            .replace(" <$Revision$>", "")
    }

    fn program(&self) -> Command {
        program(self.path().unwrap_or_else(|| self.name.into()))
    }
}

/// Where programs are that were fetched.
fn fetched() -> PathBuf {
    target().join("xtask/tools/bin")
}

/// A program on PATH, or one that was fetched.
fn found(name: &str) -> Option<PathBuf> {
    find(name).or_else(|| Some(fetched().join(name)).filter(|path| path.exists()))
}

/// A program on PATH, with arguments.
pub fn start(name: &str, arguments: &[&str]) -> Command {
    let mut command = program(found(name).unwrap_or_else(|| name.into()));
    command.args(arguments);
    command
}

fn loadlab(order: &Order) -> Result<Command> {
    if order.case.ask == Ask::Journey {
        return journeys::loadlab(order);
    }
    let mut command = program(built("loadlab"));
    command.args(["bench", &order.url, "--json", "--quiet", "-t", "1"]);
    command.args(["-c", &order.case.connections.to_string(), "-d", &format!("{}s", order.seconds)]);
    command.args(["--cpus", &order.core.to_string()]);
    match order.case.ask {
        Ask::KeepAlive => {}
        Ask::Close => drop(command.arg("--no-keep-alive")),
        Ask::Post => drop(command.args(["--body", &format!("@{}", order.body.display())])),
        // As the others, who look at no certificate.
        Ask::Secure => drop(command.arg("--insecure")),
        Ask::Handshake => drop(command.args(["--insecure", "--no-keep-alive", "--no-resumption"])),
        Ask::Streams => drop(command.args(["--http2", "--streams", &STREAMS.to_string()])),
        Ask::Journey => bail!("bench has no journeys"),
    }
    Ok(command)
}

fn loadlab_epoll(order: &Order) -> Result<Command> {
    let mut command = loadlab(order)?;
    command.args(["--io", "epoll"]);
    Ok(command)
}

/// Where the other revision of loadlab is while it is compared.
fn before_path() -> PathBuf {
    target().join("xtask/before/loadlab")
}

/// Takes a program for the other revision of loadlab; without one there is none.
///
/// # Errors
/// It cannot be copied.
pub fn take_before(given: Option<&Path>) -> Result<()> {
    let path = before_path();
    let _ = fs::remove_file(&path);
    let Some(given) = given else { return Ok(()) };
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    fs::copy(given, &path).with_context(|| given.display().to_string())?;
    Ok(())
}

/// The same command of the other revision.
fn before(command: &Command) -> Command {
    let mut other = program(before_path());
    other.args(command.get_args());
    other
}

fn bare_uring(order: &Order) -> Result<Command> {
    bare("bare-uring", order)
}

fn bare_epoll(order: &Order) -> Result<Command> {
    bare("bare-epoll", order)
}

fn bare(name: &str, order: &Order) -> Result<Command> {
    let mut command = program(built(name));
    command.args([&order.server, order.case.path, "-c", &order.case.connections.to_string()]);
    command.args(["-s", &order.seconds.to_string()]);
    if order.case.ask == Ask::Close {
        command.arg("--close");
    }
    Ok(command)
}

fn wrk(order: &Order) -> Result<Command> {
    let (connections, duration) = (format!("-c{}", order.case.connections), format!("-d{}s", order.seconds));
    let mut command = start("wrk", &["-t1", &connections, &duration, "--latency"]);
    match order.case.ask {
        Ask::KeepAlive => {}
        Ask::Secure => {}
        // It takes up no session.
        Ask::Close | Ask::Handshake => drop(command.args(["-H", "Connection: close"])),
        Ask::Streams | Ask::Journey => bail!("wrk cannot"),
        Ask::Post => {
            let body = fs::read_to_string(order.body)?;
            let script = order.scratch.join("wrk.lua");
            // Without a function of its own the script is run once, and the request made once.
            fs::write(&script, format!("wrk.method = \"POST\"\nwrk.body = \"{body}\"\n"))?;
            command.arg("-s").arg(script);
        }
    }
    command.arg(&order.url);
    Ok(command)
}

fn ab(order: &Order) -> Result<Command> {
    let (connections, seconds) = (order.case.connections.to_string(), order.seconds.to_string());
    let csv = ab_percentiles(order);
    let _ = fs::remove_file(&csv);
    // A time limit sets the number of requests to 50,000 unless a number follows it.
    let mut command = start("ab", &["-q", "-c", &connections, "-t", &seconds, "-n", "50000000", "-e"]);
    command.arg(csv);
    // It speaks HTTP/1.0: without -k the server closes.
    match order.case.ask {
        Ask::KeepAlive => drop(command.arg("-k")),
        Ask::Close => {}
        Ask::Post => drop(command.args(["-k", "-T", "application/octet-stream", "-p"]).arg(order.body)),
        Ask::Secure | Ask::Handshake | Ask::Streams | Ask::Journey => bail!("ab is not asked"),
    }
    command.arg(&order.url);
    Ok(command)
}

fn h2load(order: &Order) -> Result<Command> {
    let seconds = order.seconds.to_string();
    let mut command = start("h2load", &["-t1", "-D", &seconds]);
    match order.case.ask {
        Ask::Streams => {
            command.args([format!("-c{}", order.case.connections / STREAMS), format!("-m{STREAMS}")]);
        }
        _ => drop(command.arg("--h1").arg(format!("-c{}", order.case.connections))),
    }
    if order.case.ask == Ask::Post {
        command.arg("-d").arg(order.body);
    }
    command.arg(&order.url);
    Ok(command)
}

fn hey(order: &Order) -> Result<Command> {
    let (connections, duration) = (order.case.connections.to_string(), format!("{}s", order.seconds));
    let mut command = start("hey", &["-cpus", "1", "-z", &duration, "-c", &connections]);
    match order.case.ask {
        Ask::KeepAlive => {}
        Ask::Close => drop(command.arg("-disable-keepalive")),
        Ask::Post => drop(command.args(["-m", "POST", "-D"]).arg(order.body)),
        Ask::Secure | Ask::Handshake | Ask::Streams | Ask::Journey => bail!("hey is not asked"),
    }
    command.arg(&order.url);
    Ok(command)
}

/// siege has a thread for each connection and cannot be held to one; it has the one core like all others.
fn siege(order: &Order) -> Result<Command> {
    let settings = order.scratch.join("siege.conf");
    fs::write(
        &settings,
        "connection = keep-alive\nlimit = 100000\njson_output = true\nverbose = false\nlogging = false\nparser = false\n",
    )?;
    let (connections, seconds) = (order.case.connections.to_string(), format!("{}S", order.seconds));
    let mut command = start("siege", &["-b", "-q", "-c", &connections, "-t", &seconds, "-R"]);
    // It writes a template of its settings into the home folder.
    command.arg(settings).arg(&order.url).env("HOME", order.scratch);
    Ok(command)
}

fn oha(order: &Order) -> Result<Command> {
    let streams = if order.case.ask == Ask::Streams { STREAMS } else { 1 };
    let (connections, duration) =
        ((order.case.connections / streams).to_string(), format!("{}s", order.seconds));
    let mut command = start("oha", &["--no-tui", "-z", &duration, "-c", &connections]);
    match order.case.ask {
        Ask::KeepAlive => {}
        Ask::Close => drop(command.arg("--disable-keepalive")),
        Ask::Post => drop(command.args(["-m", "POST", "-D"]).arg(order.body)),
        Ask::Secure => drop(command.arg("--insecure")),
        Ask::Handshake => drop(command.args(["--insecure", "--disable-keepalive"])),
        Ask::Streams => drop(command.args(["--http2", "-p", &STREAMS.to_string()])),
        Ask::Journey => bail!("oha has no journeys"),
    }
    command.arg(&order.url).env("TOKIO_WORKER_THREADS", "1").env("NO_COLOR", "1");
    Ok(command)
}

fn k6(order: &Order) -> Result<Command> {
    let script = order.scratch.join("k6.js");
    let text = match order.case.ask {
        Ask::Journey => journeys::k6_script(order)?,
        _ => format!(
            "import http from 'k6/http';\nexport default function () {{ http.get('{}'); }}\n",
            order.url
        ),
    };
    fs::write(&script, text)?;
    let summary = k6_summary(order);
    let _ = fs::remove_file(&summary);
    let (users, duration) = (order.case.connections.to_string(), format!("{}s", order.seconds));
    let mut command =
        start("k6", &["run", "--quiet", "--vus", &users, "--duration", &duration, "--summary-export"]);
    command
        .arg(summary)
        .arg(script)
        .env("GOMAXPROCS", "1")
        .env("K6_NO_USAGE_REPORT", "true")
        .env("HOME", order.scratch);
    Ok(command)
}
