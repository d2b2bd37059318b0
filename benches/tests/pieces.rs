//! The loops and the stub against one another: what a loop reports is what the stub saw, and all of them print it as
//! JSON. How fast they are does not matter here.

#[path = "../../crates/loadlab/tests/common/skip.rs"]
mod skip;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

struct Stub {
    child: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Stub {
    fn start(args: &[&str]) -> Stub {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stub"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("ready ").unwrap().to_owned();
        Stub { child, output, address }
    }

    fn end(mut self) -> Value {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&text).unwrap()
    }
}

/// Runs one of the loops to its end; `None`, with a message, if this kernel does not provide io_uring.
fn report_of(binary: &str, args: &[&str]) -> Option<Value> {
    let ran = Command::new(binary).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    if said.contains("error: io_uring:") {
        skip::skip(&format!("{binary}: this kernel or container does not allow io_uring"));
        return None;
    }
    assert!(ran.status.success(), "{said}");
    Some(serde_json::from_slice(&ran.stdout).unwrap())
}

#[test]
fn closed_loops_count_what_the_stub_answered() {
    let loops = [env!("CARGO_BIN_EXE_bare-epoll"), env!("CARGO_BIN_EXE_bare-uring")];
    let mut counted = 0;
    for binary in loops {
        for more in [&[][..], &["--close"]] {
            let stub = Stub::start(&[]);
            let mut args = vec![stub.address.as_str(), "/", "-c", "17", "-n", "2000"];
            args.extend(more);
            let report = report_of(binary, &args);
            let seen = stub.end();
            let Some(report) = report else { continue };
            // One more: it learns the answer's length first.
            assert_eq!(
                (&report["requests"], &seen["requests"]),
                (&2000.into(), &2001.into()),
                "{binary} {more:?}"
            );
            assert_eq!(seen["pieces"], 0);
            assert!(report["p50_us"].as_f64().unwrap() > 0.0 && report["rate_per_s"].as_f64().unwrap() > 0.0);
            counted += 1;
        }
    }
    assert!(counted >= 2, "epoll at least");
}

#[test]
fn a_loop_that_meets_no_server_or_no_page_says_so() {
    // A port that the kernel never assigns: one that was free a moment ago may be another test's stub by now.
    let nobody = "127.0.0.1:1";
    for binary in [env!("CARGO_BIN_EXE_bare-epoll"), env!("CARGO_BIN_EXE_bare-uring")] {
        let ran = Command::new(binary).args([nobody, "/"]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && ran.stdout.is_empty(), "{binary}: {said}");
        assert!(said.contains("error: connect to 127.0.0.1:"), "{binary}: {said}");
    }
}

#[test]
fn the_timer_keeps_its_schedule_and_the_stub_works_out_the_truth() {
    let stub = Stub::start(&["--rate", "2000", "--freeze-at-s", "0.1", "--freeze-s", "0.1"]);
    let args = ["--rate", "2000", "-s", "0.5", "--server", &stub.address, "-c", "1000"];
    let report = report_of(env!("CARGO_BIN_EXE_bare-timer"), &args).unwrap();
    let seen = stub.end();
    assert_eq!(
        (&report["due"], &report["answered"], &report["not_sent"]),
        (&1000.into(), &1000.into(), &0.into())
    );
    assert_eq!((&seen["requests"], &seen["froze"]), (&1000.into(), &true.into()));
    // A fifth was due during the freeze, and the first of them waited for all of it.
    assert!(seen["response_ms"]["max"].as_f64().unwrap() >= 95.0, "{seen}");
    assert!(report["late_ms"]["p50"].as_f64().unwrap() >= 0.0);
}

#[test]
fn the_timer_alone() {
    let report = report_of(env!("CARGO_BIN_EXE_bare-timer"), &["--rate", "1000", "-s", "0.05"]).unwrap();
    assert_eq!(report["due"], 50);
    assert!(report["late_ms"]["max"].as_f64() >= report["late_ms"]["p50"].as_f64());
}
