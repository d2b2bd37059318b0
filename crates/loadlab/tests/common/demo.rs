//! `loadlab demo` for the duration of a test: a server in a separate process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A running demo, killed when dropped.
pub struct Demo {
    child: Child,
    /// URL of its first page.
    pub url: String,
}

impl Demo {
    /// Starts the demo on a free port and waits until it is ready.
    pub fn start(args: &[&str]) -> Demo {
        let mut command = Command::new(super::LOADLAB);
        command.args(["demo", "--port", "0"]).args(args).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the demo starts");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let url = line.split_whitespace().find(|word| word.starts_with("http://"));
        let url = url.unwrap_or_else(|| panic!("{line}")).to_owned();
        Demo { child, url }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
