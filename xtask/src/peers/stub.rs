//! The stub of `benches/`, which logs what happened and works the truth out of it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::measure::{Cores, start_on};
use super::order::built;
use crate::command::program;

/// A running stub; dropped, it is gone.
pub struct Stub {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Where it listens, as ADDRESS:PORT.
    pub address: String,
}

impl Stub {
    /// Starts it on the server's core, for requests at a rate; it stands still where `freeze` says when and how long.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start(cores: &Cores, rate_per_s: f64, freeze: Option<(f64, f64)>) -> Result<Stub> {
        let mut command = program(built("stub"));
        command.args(["--rate", &rate_per_s.to_string()]);
        if let Some((at_s, length_s)) = freeze {
            command.args(["--freeze-at-s", &at_s.to_string(), "--freeze-s", &length_s.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = start_on(cores.server, &mut command)?;
        let mut output = BufReader::new(child.stdout.take().context("the stub's output")?);
        let mut line = String::new();
        output.read_line(&mut line).context("the stub's output")?;
        let address = line.trim().strip_prefix("ready ").map(str::to_owned);
        let mut stub = Stub { child, output, address: String::new() };
        stub.address = address.with_context(|| format!("the stub does not come up: {line}"))?;
        Ok(stub)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Ends it, and gives what it tells.
    ///
    /// # Errors
    /// It failed, or requests came in pieces, so that its log is not whole.
    pub fn end(mut self) -> Result<Value> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).context("the stub's output")?;
        let reported: Value =
            serde_json::from_str(&text).with_context(|| format!("the stub's output: {text}"))?;
        ensure!(reported["pieces"] == 0, "{} requests came in pieces", reported["pieces"]);
        Ok(reported)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
