//! What `loadlab -h` looks like: its commands in groups, from the table of the commands itself.

use std::fmt::Write;

use clap::builder::StyledStr;

/// Commands by what they are for, in the order of the help.
pub const GROUPS: &[(&str, &[&str])] = &[
    ("Run a load", &["init", "check", "bench", "run", "find"]),
    ("Look at results", &["show", "report", "compare", "list", "baseline"]),
    ("Prepare and clean", &["clean", "schema", "completions", "man", "licenses", "help"]),
];

/// The command line with its commands in groups.
pub fn grouped(command: clap::Command) -> clap::Command {
    let styles = clap::builder::Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = String::from("{about}\n\n{usage-heading} {usage}\n");
    for (group, names) in GROUPS {
        let _ = write!(text, "\n{header}{group}:{header:#}\n");
        for name in *names {
            let found = command.find_subcommand(name);
            let about = found.and_then(|c| c.get_about()).map(ToString::to_string);
            let about = about.unwrap_or_else(|| "Print help of a command".to_owned());
            let _ = writeln!(
                text,
                "  {literal}{name}{literal:#}{:pad$}{about}",
                "",
                pad = 13 - name.len().min(12)
            );
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    command.help_template(StyledStr::from(text))
}
