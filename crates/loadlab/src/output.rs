//! What loadlab tells about itself: schema, completions, manual; and small things about the terminal.

use std::io::{IsTerminal, Write};

use clap::CommandFactory;
use loadlab_analysis::Exit;

use crate::args::Args;
use crate::exit::Ended;
use crate::mask;

/// Writes to standard output; a reader that has gone away is no error.
pub fn print(text: &str) {
    let text = mask::text(text);
    let mut out = anstream::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Standard error is a terminal that can be drawn on.
pub fn err_is_terminal() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Standard output is a terminal.
pub fn out_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Columns of the terminal behind a stream; 80 where there is none.
pub fn width(stream: &impl std::os::fd::AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(stream).ok().map(|s| s.ws_col as usize);
    size.filter(|w| *w > 0).unwrap_or(80)
}

/// Standard output takes colour (`NO_COLOR` and `CLICOLOR_FORCE` are heeded).
pub fn out_has_colour() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// The same of standard error.
pub fn err_has_colour() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// `loadlab schema`.
pub fn schema() -> Ended {
    print(&format!("{:#}\n", loadlab_plan::schema()));
    Ended::with(Exit::Ok)
}

/// `loadlab completions SHELL`.
pub fn completions(shell: clap_complete::Shell) -> Ended {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "loadlab", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ended::with(Exit::Ok)
}

/// `loadlab man`.
pub fn man() -> Ended {
    let command = Args::command();
    let mut page = Vec::new();
    let mut render = |command: clap::Command| clap_mangen::Man::new(command).render(&mut page);
    let mut rendered = render(command.clone());
    // One stream holds a page for loadlab and one for each of its commands.
    for sub in command.get_subcommands() {
        let name = format!("loadlab-{}", sub.get_name());
        rendered = rendered.and_then(|()| render(sub.clone().display_name(name.clone()).name(name)));
    }
    match rendered {
        Ok(()) => print(&String::from_utf8_lossy(&page)),
        Err(error) => return Ended::error(Exit::BadPlan, format!("cannot make the manual: {error}")),
    }
    Ended::with(Exit::Ok)
}
