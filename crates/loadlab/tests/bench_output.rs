//! What `loadlab bench` prints and where: the document, the live view, the summary, and usage errors.

#![expect(unsafe_code, reason = "openpty: a terminal of 40 columns")]

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::common::server::{Request, Server, Step, good, response, send, slow};
use crate::common::{Ran, Running, at, bench, check_identities, command, file, measured, n};

/// Keys of the contract's example, and their types: n number, n? number or null, s text, b boolean, l list, o object,
/// o? object or null.
const SHAPE: &[(&str, &str)] = &[
    ("loadlab", "s"),
    ("verdict", "s"),
    ("doubts", "l"),
    ("expectations", "l"),
    ("load.model", "s"),
    ("load.users", "n?"),
    ("load.rate_per_s", "n?"),
    ("load.duration_s", "n?"),
    ("load.keep_alive", "b"),
    ("load.protocol", "s"),
    ("elapsed_s", "n"),
    ("window.from_s", "n"),
    ("window.to_s", "n"),
    ("requests.due", "n"),
    ("requests.dropped", "n"),
    ("requests.started", "n"),
    ("requests.ok", "n"),
    ("requests.failed", "n"),
    ("requests.in_flight", "n"),
    ("failures.http_4xx", "n"),
    ("failures.http_5xx", "n"),
    ("failures.check", "n"),
    ("failures.timeout", "n"),
    ("failures.connect", "n"),
    ("failures.dns", "n"),
    ("failures.tls", "n"),
    ("failures.reset", "n"),
    ("failures.truncated", "n"),
    ("failures.protocol", "n"),
    ("failures.too_large", "n"),
    ("statuses", "o"),
    ("availability", "n?"),
    ("concurrency_mean", "n"),
    ("rate_per_s.due", "n"),
    ("rate_per_s.started", "n"),
    ("rate_per_s.ok", "n"),
    ("rate_per_s.ok_stdev", "n?"),
    ("rate_per_s.ok_max", "n?"),
    ("bytes.sent", "n"),
    ("bytes.received", "n"),
    ("by_tag", "o"),
    ("generator.io", "s"),
    ("generator.threads", "n"),
    ("generator.cpus", "l"),
    ("generator.cpu_s", "n"),
    ("generator.run_delay_s", "n?"),
    ("generator.time_slices", "n?"),
    ("generator.throttled_s", "n?"),
    ("generator.stalls.count", "n"),
    ("generator.stalls.max_s", "n"),
    ("generator.suspended_s", "n?"),
    ("generator.coarse_s", "n"),
    ("connections.own_limits.open_files", "n"),
    ("connections.own_limits.ports", "n"),
    ("connections.own_limits.memory", "n"),
    ("connections.in_flight_peak", "n?"),
    ("connections.per_user", "o?"),
    ("generator.peak_rss_bytes", "n"),
    ("generator.connections_peak", "n"),
    ("components", "o"),
    ("probes", "o"),
    ("drain_s", "n?"),
    ("loss", "o?"),
];
const DISTRIBUTIONS: [&str; 8] = [
    "response_ms",
    "ok_response_ms",
    "failed_response_ms",
    "service_ms",
    "late_ms",
    "blocked_ms",
    "connect_ms",
    "tls_ms",
];

fn check_shape(json: &Value, path: &str, kind: &str) {
    let value = at(json, path);
    let fits = match kind.trim_end_matches('?') {
        "n" => value.is_number(),
        "s" => value.is_string(),
        "b" => value.is_boolean(),
        "l" => value.is_array(),
        _ => value.is_object(),
    };
    assert!(fits || kind.ends_with('?') && value.is_null(), "{path} is {value}");
}

#[test]
fn the_document_has_the_contracts_shape() {
    let server = Server::start(|r: &Request| match r.number % 3 {
        0 => vec![send(response(404, "no"))],
        _ => good(r),
    });
    let url = server.url("/");
    for load in ["-c 3 -n 300", "-r 300/s -n 300", "-c 1 -n 1", "-c 2 -d 1200ms"] {
        let mut args = vec![url.as_str(), "--expect", "p50 < 10s"];
        args.extend(load.split(' '));
        let (json, _) = measured(&args);
        SHAPE.iter().for_each(|(path, kind)| check_shape(&json, path, kind));
        for distribution in DISTRIBUTIONS {
            for key in ["count", "censored"] {
                check_shape(&json, &format!("{distribution}.{key}"), "n");
            }
            for key in "mean stdev within_stdev min p50 p75 p90 p95 p99 p99_9 p99_99 max".split(' ') {
                check_shape(&json, &format!("{distribution}.{key}"), "n?");
            }
            check_shape(&json, &format!("{distribution}.over_ms"), "o");
        }
        for expectation in json["expectations"].as_array().unwrap() {
            check_shape(expectation, "expr", "s");
            assert!(expectation["holds"].is_boolean() || expectation["holds"].is_null());
            check_shape(expectation, "value", "n?");
        }
        for doubt in json["doubts"].as_array().unwrap() {
            [("kind", "s"), ("grave", "b"), ("evidence", "s"), ("hint", "s")]
                .iter()
                .for_each(|(p, k)| check_shape(doubt, p, k));
        }
        let open = load.starts_with("-r");
        assert_eq!(at(&json, "load.model"), if open { "open" } else { "closed" });
        assert_eq!(
            (at(&json, "load.users").is_null(), at(&json, "load.rate_per_s").is_null()),
            (open, !open)
        );
        assert!(["pass", "fail", "invalid", "none"].contains(&at(&json, "verdict").as_str().unwrap()));
        assert_eq!(at(&json, "loadlab"), env!("CARGO_PKG_VERSION"));
        if !open {
            assert_eq!(json["service_ms"], json["response_ms"], "the same without due times of their own");
        }
    }
}

#[test]
fn json_is_one_document_on_standard_output_and_nothing_else() {
    let server = Server::start(good);
    for extra in [&[][..], &["-q"]] {
        let ran = bench(&[&["--json", &server.url("/"), "-c", "2", "-d", "1200ms"][..], extra].concat());
        assert!(ran.stdout.starts_with("{\n") && ran.stdout.ends_with("}\n"), "{}", ran.stdout);
        let mut documents = serde_json::Deserializer::from_str(&ran.stdout).into_iter::<Value>();
        assert!(documents.next().unwrap().is_ok() && documents.next().is_none());
        assert_eq!(ran.stderr.is_empty(), !extra.is_empty(), "{}", ran.stderr);
    }
    // Even if the run fails, standard output has a document with the counts, and the error goes to standard error.
    let nobody = {
        let server = Server::start(good);
        server.url("/")
    };
    let ran = bench(&["--json", &nobody, "-c", "1"]);
    check_identities(&ran.json());
    assert!(ran.stderr.contains("error: "), "{}", ran.stderr);
    // If nothing ran, standard output is empty.
    let ran = bench(&["--json", "http://192.0.2.1/"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (5, ""));
}

/// The lines that show how far a load has come.
fn progress_of(ran: &Ran) -> Vec<&str> {
    ran.stderr.lines().skip(1).filter(|l| l.contains("/s") && l.contains("p99")).collect()
}

#[test]
fn without_a_terminal_progress_is_plain_lines_on_standard_error() {
    let server = Server::start(slow(Duration::from_millis(2)));
    let url = server.url("/");
    let attempt = || bench(&[&url, "-c", "2", "-d", "2500ms"]);
    let is_steady = |ran: &Ran| {
        let progress = progress_of(ran);
        progress.len() >= 2 && progress.iter().all(|l| !l.contains(" 0/s"))
    };
    let mut ran = attempt();
    for _ in 0..7 {
        // On a busy machine loadlab may have no core, or no answer, for a whole second.
        if !is_steady(&ran) {
            ran = attempt();
        }
    }
    for text in [&ran.stderr, &ran.stdout] {
        assert!(!text.contains('\x1b') && !text.contains('\r'), "{text:?}");
    }
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].contains(&server.url("/")) && lines[0].contains("2 users"), "{lines:?}");
    let progress = progress_of(&ran);
    assert!((2..=4).contains(&progress.len()), "a line a second: {lines:?}");
    // No progress line shows a rate of zero: the load was steady to its end.
    assert!(progress.iter().all(|l| !l.contains(" 0/s")), "{progress:?}");
    assert!(ran.stdout.contains(" ok in ") && ran.stdout.contains("p99"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("left"), "the view is not in the summary");
}

#[test]
fn the_summary_names_failures_with_an_example() {
    let server = Server::start(|r: &Request| match r.number % 4 {
        0 => vec![send(response(503, "the queue is full"))],
        1 => vec![Step::Close],
        _ => good(r),
    });
    let ran = bench(&[&server.url("/x"), "-n", "100", "-c", "4", "--expect", "errors < 1%"]);
    for part in
        ["FAIL", "50 failed", "http_5xx 25", "reset 25", "GET /x", "503", "the queue is full", "errors < 1%"]
    {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert_eq!(ran.code, 1);
}

#[test]
fn control_characters_of_a_server_do_not_reach_the_terminal() {
    let server = Server::start(|_: &Request| vec![send(response(500, "\x1b[2J\x07\r\nboo"))]);
    let ran = bench(&[&server.url("/"), "-n", "4", "-c", "1"]);
    assert!(!ran.stdout.contains(['\x1b', '\x07', '\r']), "{:?}", ran.stdout);
    assert!(ran.stdout.contains("boo"), "{}", ran.stdout);
}

/// Runs the command on a terminal this many columns wide: the exit code, and everything written to it.
fn on_terminal(columns: u16, args: &[&str], env: &[(&str, &str)]) -> (i32, String) {
    watching_terminal(columns, args, env, |_, _| {})
}

/// As [`on_terminal`]; calls `look` with all output so far whenever more appears.
#[expect(clippy::disallowed_methods, reason = "it resets a signal of the program that it starts")]
fn watching_terminal(
    columns: u16,
    args: &[&str],
    env: &[(&str, &str)],
    mut look: impl FnMut(&str, rustix::process::Pid),
) -> (i32, String) {
    let (mut master, mut slave) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: openpty writes two descriptors to the given places and reads the size; all of them are live here.
    let made =
        unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(made, 0);
    // SAFETY: both descriptors were just created and have no other owner.
    let (mut master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    // Processes that other tests start must not keep the terminal open.
    rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC).unwrap();
    rustix::io::fcntl_setfd(&slave, rustix::io::FdFlags::CLOEXEC).unwrap();
    let mut command = command(args);
    command
        .stdout(Stdio::from(slave.try_clone().unwrap()))
        .stderr(Stdio::from(slave))
        .env("TERM", "xterm-256color");
    command.envs(env.iter().copied());
    // A shell that started the tests in the background has them ignore it, and loadlab would, too.
    // SAFETY: between fork and exec, it only resets a signal, which is allowed there.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGQUIT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    // Dropping the command closes the parent's copies of the slave, so that reading ends when the child does.
    drop(command);
    let mut seen = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = master.read(&mut chunk) {
        seen.extend_from_slice(&chunk[..n]);
        look(&String::from_utf8_lossy(&seen), rustix::process::Pid::from_child(&child));
    }
    (child.wait().unwrap().code().unwrap_or(-1), String::from_utf8_lossy(&seen).into_owned())
}

/// Lines as shown on the terminal: what remains after carriage returns and erasures, without colour. Panics if a line
/// is ever wider than the terminal.
fn screen(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line: Vec<char> = Vec::new();
    let mut column = 0;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => {
                lines.push(line.drain(..).collect::<String>().trim_end().to_owned());
                column = 0;
            }
            '\x1b' => {
                assert_eq!(rest.next(), Some('['), "{text:?}");
                let sequence: String =
                    std::iter::from_fn(|| rest.next_if(|c| !c.is_ascii_alphabetic())).collect();
                match rest.next() {
                    Some('K') if sequence == "2" => line.clear(),
                    Some('m') => {}
                    other => panic!("{sequence}{other:?} in {text:?}"),
                }
            }
            c => {
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
                assert!(column <= columns, "wider than {columns}: {:?}", line.iter().collect::<String>());
            }
        }
    }
    lines.push(line.into_iter().collect());
    lines
}

#[test]
fn a_terminal_of_forty_columns_is_never_overrun() {
    let server = Server::start(|r: &Request| match r.number % 50 {
        0 => vec![send(response(500, &"a long text about what went wrong ".repeat(5)))],
        _ => slow(Duration::from_millis(1))(r),
    });
    let url = server.url("/a/rather/long/path?with=a&query=that&goes=on");
    for columns in [40, 80, 120] {
        for load in ["-c 4 -d 1300ms", "-r 300/s -d 1300ms"] {
            let mut args = vec![
                url.as_str(),
                "--plain",
                "--expect",
                "p50 < 10s and p99 < 20s and errors < 90%",
                "--expect",
                "p99_99 < 1h",
            ];
            args.extend(load.split(' '));
            let (code, text) = on_terminal(columns, &args, &[]);
            assert!(matches!(code, 6 | 4), "{text}");
            assert!(text.contains("\x1b[2K"), "a line that renews itself: {text:?}");
            let lines = screen(&text, columns as usize);
            assert!(lines.iter().any(|l| l.contains(" ok in ")), "{lines:#?}");
            assert!(
                lines.iter().all(|l| !l.contains('█') || l.contains('%')),
                "no progress is left: {lines:#?}"
            );
        }
    }
}

#[test]
fn no_colour_where_none_is_wanted_and_no_remains_of_the_live_line() {
    let server = Server::start(slow(Duration::from_millis(1)));
    let url = server.url("/");
    let args = [url.as_str(), "-c", "2", "-d", "1300ms", "--plain"];
    let (_, coloured) = on_terminal(80, &args, &[]);
    assert!(coloured.contains("\x1b[1m") || coloured.contains("\x1b[2m"), "{coloured:?}");
    let (code, plain) = on_terminal(80, &args, &[("NO_COLOR", "1")]);
    assert_eq!(code, 0);
    assert!(!plain.replace("\x1b[2K", "").contains('\x1b'), "{plain:?}");
    let lines = screen(&plain, 80);
    assert!(lines.iter().all(|l| !l.contains("left")), "{lines:#?}");
    assert!(lines.iter().any(|l| l.contains(" ok in ") && l.ends_with("none failed")), "{lines:#?}");
    // A dumb terminal gets plain lines.
    let (_, dumb) = on_terminal(80, &args, &[("TERM", "dumb")]);
    assert!(!dumb.contains("\x1b[2K"), "{dumb:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let server = Server::start(good);
    for args in [&["--json"][..], &[]] {
        let mut command = command(&[&[&server.url("/"), "-n", "50", "-c", "2"][..], args].concat());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.stdout(Stdio::from(writer));
        let mut child = command.spawn().unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = child.wait().unwrap();
        assert!(!stderr.contains("panic"), "{stderr}");
        assert_eq!(status.code(), Some(0), "{stderr}");
    }
    // Standard error has no reader, or the disk behind it is full.
    for url in [server.url("/"), "http://192.0.2.1/".to_owned()] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let full = File::options().write(true).open("/dev/full").unwrap();
        for side in [Stdio::from(writer), Stdio::from(full)] {
            let mut command = command(&["--json", &url, "-n", "50", "-c", "2"]);
            command.stderr(side);
            let output = command.spawn().unwrap().wait_with_output().unwrap();
            let code = if url.contains("192") { 5 } else { 0 };
            assert_eq!(output.status.code(), Some(code), "{url}");
            assert_eq!(output.stdout.is_empty(), code == 5);
        }
    }
    // What was measured is lost if the disk behind standard output is full.
    let mut command = command(&["--json", &server.url("/"), "-n", "50", "-c", "2"]);
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("cannot write to standard output"), "{stderr}");
}

/// Doubts are reported on standard error while the load runs, once each.
#[test]
fn doubts_are_reported_as_they_arise() {
    let server = Server::start(slow(Duration::from_millis(50)));
    let url = server.url("/");
    let load = ["-r", "400/s", "-d", "4s", "--max-in-flight", "4", "-t", "1", "--when-behind", "drop"];
    let ran = bench(&[&["--json", &url][..], &load].concat());
    let reported = |kind: &str| ran.stderr.lines().filter(|l| l.contains(&format!("doubt {kind}: "))).count();
    assert_eq!((reported("in_flight_cap"), reported("dropped")), (1, 1), "{}", ran.stderr);
    assert!(ran.stderr.contains("the cap of 4 requests in flight is reached"), "{}", ran.stderr);
}

/// A usage error exits with 2 and says what to do instead; nothing is sent.
#[test]
fn usage_errors_say_what_would_be_understood() {
    let server = Server::start(good);
    let url = server.url("/");
    let (_dir, list) = file(format!("# comment\n\n{url}\nhttp://[broken\n"));
    let list_text = list.display().to_string();
    let (_dir2, empty) = file("# nothing\n\n");
    let empty_text = empty.display().to_string();
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["<URL>", "Usage"]),
        (&["nonsense://x/"], &["only http", "hint: "]),
        (&["http://"], &["host is missing", "hint: "]),
        (&["http://127.0.0.1:0/"], &["port", "hint: "]),
        (&["http://127.0.0.1:99999/"], &["port", "1 to 65535"]),
        (&["http://127.0.0.1/a b"], &["spaces", "hint: "]),
        (&["http://me:secret@127.0.0.1/"], &["user and password"]),
        (&[&url, "-d", "10"], &["`10` is not a duration", "`10s`"]),
        (&[&url, "-d", "ten"], &["not a duration"]),
        (&[&url, "-d", "0s"], &["-d"]),
        (&[&url, "-r", "fast"], &["not a rate", "`1000/s`"]),
        (&[&url, "-r", "0"], &["not a rate"]),
        (&[&url, "-r", "-5"], &["-5"]),
        (&[&url, "-c", "0"], &["0", "from 1 to 10000000"]),
        (&[&url, "-n", "0"], &["0", "at least 1"]),
        (&[&url, "-t", "0"], &["must be from 1 to 1024"]),
        (&[&url, "-c", "5", "-r", "5/s"], &["cannot be used with"]),
        (&[&url, "-n", "5", "-d", "5s"], &["cannot be used with"]),
        (&[&url, "--urls", &list_text], &["cannot be used with"]),
        (&[&url, "--arrivals", "poisson"], &["--rate"]),
        (&[&url, "--max-in-flight", "5"], &["--rate"]),
        (&[&url, "--arrivals", "sometimes", "-r", "1"], &["constant", "poisson"]),
        (&[&url, "--timeout", "0s"], &["greater than zero"]),
        (&[&url, "-H", "no colon"], &["`Name: value`"]),
        (&[&url, "-H", "bad name: x"], &["`bad name` is not a header name"]),
        (&[&url, "-H", "x: a\nb"], &["control character", "hint: "]),
        (&[&url, "-X", "GE T"], &["`GE T` is not an HTTP method", "hint: "]),
        (&[&url, "-b", "@/nonexistent/body"], &["cannot read the body from /nonexistent/body"]),
        (&["--urls", "/nonexistent/list"], &["cannot read /nonexistent/list"]),
        (&["--urls", &list_text], &[&format!("{list_text}:4:1: "), "hint: "]),
        (&["--urls", &empty_text], &["contains no URL", "hint: "]),
        (&[&url, "--expect", "p98 < 5ms"], &["--expect 'p98 < 5ms'", "p98"]),
        (&[&url, "--expect", "p99 < "], &["--expect"]),
        (&[&url, "--expect", "p99 < 5"], &["--expect"]),
        (&[&url, "--stop-when", "failed >"], &["--stop-when"]),
        (&[&url, "--cpus", "x"], &["list of cores", "`1,3`"]),
        (&[&url, "--samples", "/nonexistent/samples"], &["cannot write samples to /nonexistent/samples"]),
        (&[&url, "--frobnicate"], &["--frobnicate"]),
    ];
    for (args, parts) in cases {
        let ran = bench(args);
        for part in *parts {
            assert!(ran.stderr.contains(part), "{args:?} says no {part:?}: {}", ran.stderr);
        }
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    }
    assert_eq!(server.counts().connections, 0, "nothing was sent");
}

#[test]
fn only_loopback_is_loaded_unasked() {
    for (target, host) in [
        ("http://192.0.2.7:80/", "192.0.2.7"),
        ("http://[2001:db8::1]/", "2001:db8::1"),
        ("http://8.8.8.8/", "8.8.8.8"),
    ] {
        let ran = bench(&[target, "-n", "1"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (5, ""), "{}", ran.stderr);
        for part in ["not loopback", &format!("--allow-host {host}"), "hint: "] {
            assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
        }
    }
    // Each URL of a list is checked, before anything is sent to the others.
    let server = Server::start(good);
    let (_dir, list) = file(format!("{}\nhttp://192.0.2.7/\n", server.url("/")));
    let ran = bench(&["--urls", &list.display().to_string(), "-n", "2"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert_eq!(server.counts().connections, 0);
    // All of 127.0.0.0/8 is loopback, and so is a name that resolves to it.
    let port = server.address.port();
    let other = Server::at("127.8.9.10:0", good);
    let (json, code) = measured(&[&other.url("/"), "-n", "5", "-c", "1"]);
    assert_eq!((code, n(&json, "requests.ok")), (0, 5));
    let (json, code) = measured(&[&format!("localhost:{port}"), "-n", "5", "-c", "1"]);
    assert_eq!((code, n(&json, "requests.ok")), (0, 5));
    // An unknown name.
    let ran = bench(&["http://no-such-host.invalid/", "-n", "1"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot resolve"), "{}", ran.stderr);
}

#[test]
fn help_names_every_option() {
    let ran = Running::start(command(&["--help"])).wait();
    assert_eq!(ran.code, 0);
    for option in
        "--users --rate --duration --requests --ramp --arrivals --when-behind --max-in-flight --grace \
        --threads --cpus --method --header --body --urls --no-keep-alive --timeout --io --expect --stop-when \
        --allow-host --samples --seed --json --quiet"
            .split_whitespace()
    {
        assert!(ran.stdout.contains(option), "{option}: {}", ran.stdout);
    }
}

/// The output before, on and after the alternate screen, which must be left exactly once.
fn parts(text: &str) -> (&str, &str, &str) {
    let (before, rest) = text.split_once("\x1b[?1049h").expect("the other screen is entered");
    let (on, after) = rest.split_once("\x1b[?1049l").expect("the other screen is left");
    assert!(!after.contains("\x1b[?1049"), "{after:?}");
    assert!(on.contains("\x1b[?25l") && after.contains("\x1b[?25h"), "the cursor is hidden and shown again");
    (before, on, after)
}

#[test]
fn a_screen_comes_and_leaves_the_result() {
    let server = Server::start(slow(Duration::from_millis(1)));
    let url = server.url("/");
    let args = [url.as_str(), "-c", "2", "-d", "3s"];
    let (code, text) = on_terminal(80, &args, &[]);
    assert_eq!(code, 0, "{text}");
    let (_, on, after) = parts(&text);
    assert!(on.contains("2 users for 3.00 s") && on.contains("p99"), "{on:?}");
    assert!(after.contains(" ok in ") && !after.contains("░"), "{after:?}");
    // The load is shown above the summary.
    assert!(after.contains("2 users for 3.00 s"), "{after:?}");
    // Colour is independent of the screen.
    let (_, plain) = on_terminal(80, &args, &[("NO_COLOR", "1")]);
    assert!(!parts(&plain).1.contains("\x1b[36m") && !parts(&plain).1.contains("\x1b[38;5;6m"), "{plain:?}");
    // Too narrow for a full screen.
    let (_, narrow) = on_terminal(30, &args, &[]);
    assert!(!narrow.contains("\x1b[?1049h") && narrow.contains("\x1b[2K"), "{narrow:?}");
}

#[test]
fn the_terminal_is_given_back_on_signals() {
    let server = Server::start(slow(Duration::from_millis(1)));
    let url = server.url("/");
    for (times, said) in [(1, " ok in "), (2, "stopped at once")] {
        let mut sent = 0;
        let (code, text) = watching_terminal(80, &[&url, "-c", "2", "-d", "60s"], &[], |seen, pid| {
            // a second signal ends the grace period of requests in flight at once
            if sent < times && seen.contains("p99") {
                (sent..times)
                    .for_each(|_| rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap());
                sent = times;
            }
        });
        assert_eq!(code, 130, "{text}");
        let (_, _, after) = parts(&text);
        // Two signals in quick succession may be received as one.
        assert!(after.contains(said) || after.contains(" ok in "), "{times}: {after:?}");
    }
    // Ctrl-\ ends loadlab as it ends any program.
    let mut sent = false;
    let (code, text) = watching_terminal(80, &[&url, "-c", "2", "-d", "60s"], &[], |seen, pid| {
        if !sent && seen.contains("p99") {
            sent = true;
            // No core file.
            let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            rustix::process::prlimit(Some(pid), rustix::process::Resource::Core, none).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
        }
    });
    assert_eq!(code, -1, "{text}");
    parts(&text);
}

/// Users of wrk need it, and what is printed while the screen is there is lost.
#[test]
fn what_connections_means_is_said_when_the_screen_is_gone() {
    let server = Server::start(good);
    let url = server.url("/");
    let (_, text) = on_terminal(100, &[&url, "--connections", "50", "-n", "200"], &[]);
    let (_, _, after) = parts(&text);
    assert!(after.contains("--connections holds connections open"), "{after:?}");
}

#[test]
fn on_a_terminal_the_page_stays_until_ctrl_c_and_the_exit_code_is_the_loads() {
    let server = Server::start(slow(Duration::from_millis(1)));
    let url = server.url("/");
    let args = [url.as_str(), "-c", "2", "-d", "1s", "--ui", "--expect", "failed > 0"];
    let mut sent = false;
    let (code, text) = watching_terminal(100, &args, &[], |seen, pid| {
        if !sent && seen.contains("until Ctrl-C") {
            sent = true;
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        }
    });
    assert!(sent && code == 1, "{code}: {text}");
    // The link is printed before the screen, on it, and in the note that says the report stays.
    assert!(text.matches("http://127.0.0.1:").count() >= 3, "{text}");
    let (before, on, after) = parts(&text);
    assert!(before.contains("live in the browser: ") && on.contains("the same in a browser: "), "{text:?}");
    assert!(after.contains(" ok in ") && after.contains("the report stays at "), "{after:?}");
    // If a waiting time is given, the page does not wait for Ctrl-C.
    let (code, text) = on_terminal(100, &[&args[..], &["--ui-wait", "0s"]].concat(), &[]);
    assert_eq!(code, 1, "{text}");
}
