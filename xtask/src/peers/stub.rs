//! The stub of `benches/`, which counts and logs what it answers, and computes the truth from that.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::{Ends, program};
use crate::root::target;

/// A running stub; dropping it kills it.
pub struct Stub {
    child: Ends,
    output: BufReader<ChildStdout>,
    /// The address it listens on, as ADDRESS:PORT.
    pub address: String,
}

impl Stub {
    /// Starts the stub with arguments, and waits until it listens.
    ///
    /// # Errors
    /// The stub does not start.
    pub fn start(spawn: impl FnOnce(&mut Command) -> Result<Child>, arguments: &[String]) -> Result<Stub> {
        let mut command = program(target().join("release/stub"));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Ends(spawn(&mut command)?);
        let output = BufReader::new(child.0.stdout.take().context("the stub's output")?);
        let mut stub = Stub { child, output, address: String::new() };
        let mut line = String::new();
        stub.output.read_line(&mut line).context("the stub's output")?;
        let address = line.trim().strip_prefix("ready ").map(str::to_owned);
        stub.address = address.with_context(|| format!("the stub does not come up: {line}"))?;
        Ok(stub)
    }

    /// Stops the stub, and returns its output, unless requests arrived in pieces: then its log is incomplete.
    ///
    /// # Errors
    /// The stub failed, or requests arrived in pieces.
    pub fn end(mut self) -> Result<Value> {
        drop(self.child.0.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).context("the stub's output")?;
        let report: Value =
            serde_json::from_str(&text).with_context(|| format!("the stub's output: {text}"))?;
        ensure!(report["pieces"] == 0, "{} requests came in pieces", report["pieces"]);
        Ok(report)
    }
}
