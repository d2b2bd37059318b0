//! Exit codes, and how an error is shown.

use loadlab_analysis::Exit;
use loadlab_report::terminal::harmless_lines;

use crate::{mask, output};

/// The exit of a command that ended like this, and whose reports were written, or could not be.
pub fn with_reports<T, E>(ended: Exit, written: &Result<T, E>) -> Exit {
    match written {
        Ok(_) => ended,
        Err(_) => Exit::of([ended, Exit::CouldNotRun]),
    }
}

/// How a command ended: its exit status, and the message to show.
pub struct CommandEnd {
    exit: Exit,
    message: Option<String>,
    /// Replaces the exit code where another program's convention defines it, such as that of `git bisect run`.
    code: Option<u8>,
}

impl CommandEnd {
    /// Ends with this exit and no message.
    pub fn with(exit: Exit) -> Self {
        CommandEnd { exit, message: None, code: None }
    }

    /// Ends with this exit and an error message.
    pub fn error(exit: Exit, message: impl std::fmt::Display) -> Self {
        CommandEnd { exit, message: Some(message.to_string()), code: None }
    }

    /// Ends with the exit code that another program expects.
    pub fn with_code(self, code: u8) -> Self {
        CommandEnd { code: Some(code), ..self }
    }

    /// The exit, whatever code another program expects.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// The message to show.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Shows the error now, for a command that keeps running.
    pub fn shown(mut self) -> Self {
        if let Some(message) = self.message.take() {
            show(&message);
        }
        self
    }

    /// Shows the error and returns the process's exit code.
    pub fn into_code(self) -> std::process::ExitCode {
        if let Some(message) = &self.message {
            show(message);
        }
        let code = self.code.unwrap_or(self.exit.code());
        let is_lost = self.code.is_none() && code == Exit::Ok.code() && output::is_cut_off();
        std::process::ExitCode::from(if is_lost { Exit::CouldNotRun.code() } else { code })
    }
}

/// Shows an error on standard error: `error: …`, with each hint on a separate line.
pub fn show(message: &str) {
    let message = mask::text(message);
    let red = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Red.into()));
    let hint = anstyle::Style::new().fg_color(Some(anstyle::AnsiColor::Cyan.into()));
    let mut lines = String::new();
    for line in harmless_lines(&message).lines() {
        match line.trim_start().strip_prefix("hint:") {
            Some(rest) => lines.push_str(&format!("{hint}hint:{hint:#}{rest}\n")),
            None => lines.push_str(&format!("{line}\n")),
        }
    }
    output::write_stderr(&format!("{red}error:{red:#} {lines}"));
}

/// Shows a remark on standard error: `note: …`.
pub fn note(message: &str) {
    let message = mask::text(message);
    let style = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Yellow.into()));
    output::write_stderr(&format!("{style}note:{style:#} {}\n", harmless_lines(&message)));
}

/// Shows lines on standard error, without a prefix.
pub fn line(text: &str) {
    output::write_stderr(&format!("{}\n", harmless_lines(&mask::text(text))));
}
