//! The layout of `loadlab -h`: the commands in groups, described as in their definitions.

use std::fmt::Write;

use clap::builder::StyledStr;

/// Commands grouped by purpose, in the order of the help.
pub const GROUPS: &[(&str, &[&str])] = &[
    ("Run a load", &["init", "check", "bench", "run", "ab", "bisect", "resume", "find", "why", "agent"]),
    ("Look at results", &["show", "report", "compare", "list", "baseline"]),
    ("Prepare and clean", &["clean", "demo", "schema", "completions", "man", "licenses"]),
];

/// The command line with its commands in groups.
pub fn grouped(command: clap::Command) -> clap::Command {
    let styles = clap::builder::Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = String::from("{about}\n\n{usage-heading} {usage}\n");
    for (place, (group, names)) in GROUPS.iter().enumerate() {
        // The first group follows the usage without a gap: a screen has no row to spare.
        let gap = if place == 0 { "" } else { "\n" };
        let _ = writeln!(text, "{gap}{header}{group}:{header:#}");
        for name in *names {
            // This loadlab was built without the command.
            let Some(found) = command.find_subcommand(name) else { continue };
            let about = found.get_about().map(ToString::to_string).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::GROUPS;
    use crate::args::whole;

    /// The short help of a command, or of loadlab if `command` is empty, laid out for a terminal `columns` wide.
    fn short_help(command: &str, columns: usize) -> String {
        let mut all = whole().term_width(columns).max_term_width(columns);
        all.build();
        match command {
            "" => all.render_help().to_string(),
            name => all.find_subcommand_mut(name).expect("a command").render_help().to_string(),
        }
    }

    #[test]
    fn essentials_fit_a_screen() {
        for command in
            ["", "bench", "run", "ab", "bisect", "find", "why", "init", "show", "compare", "report", "list"]
        {
            for columns in [80, 100] {
                let help = short_help(command, columns);
                let lines = help.lines().count();
                assert!(
                    lines <= 35,
                    "`loadlab {command} -h` has {lines} lines on {columns} columns:\n{help}"
                );
                let widest = help.lines().map(|l| l.chars().count()).max().unwrap_or(0);
                assert!(widest <= columns, "`loadlab {command} -h` is {widest} columns wide:\n{help}");
            }
        }
    }

    #[test]
    fn every_command_has_a_group() {
        let all = whole();
        let mut named: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        named.retain(|name| cfg!(feature = "swarm") || *name != "agent");
        named.sort_unstable();
        let mut known: Vec<&str> = all.get_subcommands().map(clap::Command::get_name).collect();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn everything_is_in_the_long_help() {
        let mut all = whole();
        all.build();
        for name in ["bench", "run", "find"] {
            let command = all.find_subcommand_mut(name).expect("a command");
            let help = command.render_long_help().to_string();
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(help.contains(&format!("--{option}")), "{name} --{option}");
            }
            assert!(help.lines().filter(|l| l.ends_with(':') && !l.starts_with(' ')).count() >= 4, "{help}");
        }
    }

    /// One name for one thing: options that commands share are spelled alike, and take the same values.
    #[test]
    fn commands_share_their_options() {
        let all = whole();
        let command = |name: &str| all.find_subcommand(name).expect("a command");
        let shared =
            ["out", "json", "quiet", "plain", "junit", "prometheus", "otlp", "ui", "allow-host", "resolve"];
        let of_urls = [
            "method",
            "header",
            "body",
            "timeout",
            "http2",
            "streams",
            "proxy",
            "insecure",
            "cacert",
            "cert",
            "key",
            "tls-version",
            "no-resumption",
            "no-keep-alive",
            "watch-pid",
            "no-watch",
            "expect",
        ];
        let of_plans = ["profile", "set", "case", "tags"];
        for (names, options) in [
            (&["bench", "run", "find"][..], &shared[..]),
            (&["bench", "find"], &of_urls),
            (&["run", "find", "check"], &of_plans),
        ] {
            for option in options {
                let found: Vec<&clap::Arg> = names
                    .iter()
                    .map(|name| {
                        let mut all = command(name).get_arguments();
                        all.find(|a| a.get_long() == Some(option))
                            .unwrap_or_else(|| panic!("{name} --{option}"))
                    })
                    .collect();
                for other in &found[1..] {
                    assert_eq!(found[0].get_short(), other.get_short(), "--{option}");
                    assert_eq!(found[0].get_value_names(), other.get_value_names(), "--{option}");
                    // For `find`, what it expects belongs to the search.
                    if *option != "expect" {
                        assert_eq!(found[0].get_help_heading(), other.get_help_heading(), "--{option}");
                    }
                }
            }
        }
    }
}
