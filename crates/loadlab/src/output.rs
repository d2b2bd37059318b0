//! All output: everything on standard output or standard error goes through here, and so do files the user names.
//!
//! Much of the output comes from elsewhere: servers, components, other people's records. None of it may control the
//! terminal, so everything printed for people is made harmless here at the latest. Only the live screen bypasses this
//! module, and makes its own text harmless.

#![expect(clippy::disallowed_methods, reason = "the one place that prints, which makes text harmless")]

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use loadlab_record::documents::summary::Summary;
use loadlab_record::store::files;
use loadlab_report::terminal::{harmless_painted, is_harmful};
use serde_json::Value;

use crate::args::typed;
use crate::mask;

/// Who a text is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// People, in colour if supported.
    Text,
    /// Programs that read JSON: control characters occur only in its strings, where an escape is equivalent.
    Json,
    /// Programs that read another format: made harmless on a terminal, written byte for byte elsewhere.
    Data,
}

/// Whether standard output could not be written.
static IS_CUT_OFF: AtomicBool = AtomicBool::new(false);

/// Whether something printed is missing on standard output, as on a full disk.
pub fn is_cut_off() -> bool {
    IS_CUT_OFF.load(Ordering::Relaxed)
}

/// Takes the result of writing to standard output; a reader that has gone away is not an error.
fn printed(written: std::io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() != ErrorKind::BrokenPipe && !IS_CUT_OFF.swap(true, Ordering::Relaxed) {
        write_stderr(&format!("error: cannot write to standard output: {error}\n"));
    }
}

/// Writes text to standard output.
pub fn print(text: &str) {
    let mut out = anstream::stdout();
    printed(out.write_all(harmless_painted(&mask::text(text)).as_bytes()).and_then(|()| out.flush()));
}

/// As [`print()`], for any form.
pub fn print_as(form: Form, text: &str) {
    let text = match form {
        Form::Data if !out_is_terminal() => mask::text(text).into_owned(),
        Form::Json => json_escaped(&mask::text(text)),
        Form::Text | Form::Data => return print(text),
    };
    // Bypasses `anstream`, which would strip escape sequences.
    let mut out = std::io::stdout();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Prints a JSON document over several lines. Its strings are masked one by one; its field names are not.
pub fn print_json(document: &Value) {
    print_json_text(mask::secrets().json_pretty(document));
}

/// As [`print_json`], for a trial's summary.
pub fn print_summary(summary: &Summary) {
    print_json_text(mask::secrets().summary_json(summary));
}

fn print_json_text(text: serde_json::Result<Vec<u8>>) {
    let text = match text {
        Ok(text) => json_escaped(&String::from_utf8_lossy(&text)),
        Err(e) => e.to_string(),
    };
    let mut out = std::io::stdout();
    printed(writeln!(out, "{text}").and_then(|()| out.flush()));
}

fn json_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if is_harmful(c) => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

/// Writes text to standard error, keeping loadlab's own colours.
pub fn write_stderr(text: &str) {
    // The reader may be gone: that is no reason to panic.
    let _ = anstream::stderr().write_all(harmless_painted(&mask::text(text)).as_bytes());
}

/// Prints the argument parser's message, including help and version, and returns the exit code for it. Credentials in
/// typed arguments are masked.
pub fn usage(message: &clap::Error, words: &[String]) -> std::process::ExitCode {
    let text = typed::without_credentials(&message.render().ansi().to_string(), words);
    if message.use_stderr() {
        write_stderr(&text)
    } else {
        print(&text)
    }
    if !message.use_stderr() && is_cut_off() {
        return std::process::ExitCode::from(loadlab_analysis::Exit::CouldNotRun.code());
    }
    std::process::ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(2))
}

/// Redraws the status line on the terminal behind standard error. Erasing is not colour: it must reach the terminal
/// even under `NO_COLOR`, or the tail of a longer line stays.
pub fn renew(line: &str) {
    let mut err = std::io::stderr();
    let line = loadlab_report::terminal::harmless(&mask::text(line));
    let _ = write!(err, "\r\x1b[2K{line}").and_then(|()| err.flush());
}

/// Writes a file that the user named, like a shell's `>`.
///
/// # Errors
/// The reason in words.
pub fn write_file(path: &Path, text: &str) -> Result<(), String> {
    let written = files::create_named(path).and_then(|mut file| file.write_all(mask::text(text).as_bytes()));
    written.map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Whether standard error is a terminal that can be drawn on.
pub fn err_is_terminal() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Whether standard output is a terminal.
pub fn out_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Columns of the terminal behind standard output; 80 without one.
pub fn out_width() -> usize {
    width(&std::io::stdout())
}

/// As [`out_width`], for standard error.
pub fn err_width() -> usize {
    width(&std::io::stderr())
}

fn width(stream: &impl std::os::fd::AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(stream).ok().map(|s| s.ws_col as usize);
    size.filter(|w| *w > 0).unwrap_or(80)
}

/// Whether standard output supports colour (`NO_COLOR` and `CLICOLOR_FORCE` are respected).
pub fn out_has_colour() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// As [`out_has_colour`], for standard error.
pub fn err_has_colour() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_says_the_same() {
        let value =
            serde_json::json!({ "a\u{9b}": "b\u{202e}c\u{1b}[2J\n\u{85}\u{7f}\u{2028}ö", "n": [1, 2.5] });
        for text in [format!("{value}"), format!("{value:#}\n")] {
            let escaped = json_escaped(&text);
            assert!(escaped.chars().all(|c| c == '\n' || !is_harmful(c)), "{escaped:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        }
    }
}
