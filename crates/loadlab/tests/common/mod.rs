//! Runs the binary as a user would, and reads its results: exit code, standard output and standard error.

pub mod chat;
pub mod demo;
pub mod network;
pub mod nginx;
pub mod ports;
pub mod proxy;
#[allow(dead_code, reason = "the tests of `load` use the rest of it")]
pub mod server;
pub mod skip;

use std::cell::Cell;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use server::Counts;

/// The binary under test.
pub const LOADLAB: &str = env!("CARGO_BIN_EXE_loadlab");

/// The result of running the binary.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Parses standard output as its one document.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("no document ({e}): {}\n{}", self.stdout, self.stderr))
    }
}

thread_local! {
    /// The backend that this thread's tests request.
    static IO: Cell<&'static str> = const { Cell::new("auto") };
}

/// Runs a test on one backend; skips it if the kernel does not allow that backend.
pub fn on(io: &'static str, test: fn()) {
    IO.set(io);
    if io == "uring" && bench(&["http://127.0.0.1:9/", "-n", "1"]).stderr.contains("the uring backend failed")
    {
        return skip::skip("this kernel or container does not allow io_uring");
    }
    test();
}

/// Runs tests on every backend.
#[macro_export]
macro_rules! on_every_backend {
    ($($test:ident)*) => {
        mod epoll { $(#[test] fn $test() { $crate::common::on("epoll", super::$test); })* }
        mod uring { $(#[test] fn $test() { $crate::common::on("uring", super::$test); })* }
    };
}

/// Calls `run` with each of these at the same time, on this thread's backend. It is for loads that mostly wait, and
/// leave the machine to one another.
pub fn side_by_side<A: Send, T: Send, const N: usize>(each: [A; N], run: impl Fn(A) -> T + Sync) -> [T; N] {
    let (io, run) = (IO.get(), &run);
    std::thread::scope(|scope| {
        let started = each.map(|one| {
            scope.spawn(move || {
                IO.set(io);
                run(one)
            })
        });
        started.map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The command `loadlab bench …`, not started yet.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(LOADLAB);
    command
        .arg("bench")
        .args(["--io", IO.get()])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env_remove("COLUMNS");
    command
}

/// A run in progress.
pub struct Running {
    pub child: Child,
    stdout: std::thread::JoinHandle<String>,
    stderr: std::thread::JoinHandle<String>,
}

fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        let mut child = command.spawn().expect("the binary starts");
        let stdout = reader(child.stdout.take().expect("a pipe"));
        let stderr = reader(child.stderr.take().expect("a pipe"));
        Running { child, stdout, stderr }
    }

    #[expect(unsafe_code, reason = "kill, for the signals a user sends")]
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes two numbers; the process is our child and has not been waited for yet.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits for the run to end; kills it rather than hang.
    pub fn wait(self) -> Ran {
        self.wait_looking(|_| ())
    }

    /// As [`Running::wait`]; calls back with the process id every few milliseconds.
    #[expect(clippy::disallowed_methods, reason = "between two looks at a process, in a loop with an end")]
    pub fn wait_looking(mut self, mut look: impl FnMut(u32)) -> Ran {
        let until = Instant::now() + server::TIMEOUT;
        let status = loop {
            match self.child.try_wait().expect("a child of ours") {
                Some(status) => break status,
                None if Instant::now() > until => {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    panic!("still running after {:?}", server::TIMEOUT);
                }
                None => {
                    look(self.child.id());
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        };
        Ran {
            code: status.code().unwrap_or(-1),
            stdout: self.stdout.join().unwrap_or_default(),
            stderr: self.stderr.join().unwrap_or_default(),
        }
    }
}

/// Runs `loadlab bench …` to its end.
pub fn bench(args: &[&str]) -> Ran {
    Running::start(command(args)).wait()
}

/// Runs `loadlab bench --json …` to its end: the document, after [`check_identities`], and the exit code.
pub fn measured(args: &[&str]) -> (Value, i32) {
    let mut all = vec!["--json"];
    all.extend(args);
    let ran = bench(&all);
    let json = ran.json();
    check_identities(&json);
    (json, ran.code)
}

/// [`measured`], repeated up to seven times if only this machine's load makes the measurement INVALID.
pub fn measured_again(args: &[&str]) -> (Value, i32) {
    let mut last = measured(args);
    for _ in 0..7 {
        let doubts = last.0["doubts"].as_array().expect("doubts");
        let mut grave = doubts.iter().filter(|doubt| doubt["grave"] == true).peekable();
        let is_grave = grave.peek().is_some();
        if !is_grave || !grave.all(|doubt| OF_A_BUSY_MACHINE.iter().any(|kind| doubt["kind"] == *kind)) {
            break;
        }
        last = measured(args);
    }
    last
}

/// A whole number in a document.
pub fn n(json: &Value, path: &str) -> u64 {
    let value = at(json, path);
    value.as_u64().unwrap_or_else(|| panic!("{path} is {value}"))
}

/// A number in a document; `None` for `null`.
pub fn f(json: &Value, path: &str) -> Option<f64> {
    at(json, path).as_f64()
}

/// A value in a document, by a path such as `requests.ok`.
pub fn at<'j>(json: &'j Value, path: &str) -> &'j Value {
    path.split('.').fold(json, |v, key| {
        v.get(key).unwrap_or_else(|| panic!("no `{key}` on the way to `{path}` in {json:#}"))
    })
}

/// The count of a status; 0 if it is absent.
pub fn status(json: &Value, status: u16) -> u64 {
    json["statuses"].get(status.to_string()).and_then(Value::as_u64).unwrap_or(0)
}

/// Holds however a run ended: due = started + dropped, started = ok + failed + in flight, failed = Σ failures, and Σ
/// statuses are the complete responses.
pub fn check_identities(json: &Value) {
    let r = |key: &str| n(json, &format!("requests.{key}"));
    assert_eq!(r("due"), r("started") + r("dropped"), "{json:#}");
    assert_eq!(r("started"), r("ok") + r("failed") + r("in_flight"), "{json:#}");
    let failures = json["failures"].as_object().expect("failures");
    let failed: u64 = failures.values().filter_map(Value::as_u64).sum();
    assert_eq!(failed, r("failed"), "{json:#}");
    let statuses: u64 =
        json["statuses"].as_object().expect("statuses").values().filter_map(Value::as_u64).sum();
    let complete =
        r("ok") + n(json, "failures.http_4xx") + n(json, "failures.http_5xx") + n(json, "failures.check");
    assert_eq!(statuses, complete, "{json:#}");
    let doubts = json["doubts"].as_array().expect("doubts");
    assert!(doubts.iter().all(|d| d["kind"] != "accounting"), "{json:#}");
}

/// Grave doubts that a busy machine alone can cause: loadlab itself was late, or had no core.
pub const OF_A_BUSY_MACHINE: [&str; 4] = ["late", "throttled", "generator_stalled", "generator_cpu"];

/// The kinds of a document's doubts.
pub fn doubts(json: &Value) -> Vec<String> {
    let doubts = json["doubts"].as_array().expect("doubts");
    doubts.iter().filter_map(|d| d["kind"].as_str().map(str::to_owned)).collect()
}

/// Failures that occurred, by name.
pub fn failures(json: &Value) -> Vec<(String, u64)> {
    let all = json["failures"].as_object().expect("failures");
    all.iter().map(|(k, v)| (k.clone(), v.as_u64().unwrap_or(0))).filter(|(_, n)| *n > 0).collect()
}

/// If every exchange was complete, both ends saw the same bytes, requests and connections.
pub fn check_same(json: &Value, server: &Counts) {
    assert_eq!(n(json, "requests.started"), server.requests, "requests: {json:#}\n{server:?}");
    assert_eq!(n(json, "bytes.sent"), server.received, "bytes sent");
    assert_eq!(n(json, "bytes.received"), server.sent, "bytes received");
    assert_eq!(n(json, "connections.opened"), server.connections, "connections");
}

/// A file with this content, removed when the value is dropped.
pub fn file(content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("file");
    std::fs::write(&path, content).expect("a file");
    (dir, path)
}
