//! Flags that were renamed: the old name is refused, and the message has the new one.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands, the flag's old name, and its new name.
const FLAGS: &[(&[&str], &str, &str)] = &[
    (&["find"], "--probe", "--level-duration"),
    (&["find"], "--probes", "--max-levels"),
    (&["report", "list", "compare"], "--output", "--out"),
    (&["baseline", "show", "compare"], "--in", "--runs-dir"),
    (&["compare"], "--same-within", "--equivalence-margin"),
    (&["bench"], "--tls", "--tls-version"),
    (&["run", "bench"], "--otlp-every", "--otlp-interval"),
];

/// The message for a parser that stopped at a flag that was renamed.
pub fn refusal(error: &clap::Error, command: &str) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return None };
    let typed = typed.split('=').next().unwrap_or_default();
    let (_, from, to) = FLAGS.iter().find(|(of, from, _)| *from == typed && of.contains(&command))?;
    Some(format!("`{from}` was renamed to `{to}`\nhint: `loadlab {command} --help` lists all options"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{parse_from, whole};

    #[test]
    fn old_flags_are_refused_with_their_new_names() {
        for (commands, from, to) in FLAGS {
            for command in *commands {
                let all = whole();
                let known =
                    all.find_subcommand(command).unwrap().get_arguments().filter_map(|a| a.get_long());
                let known: Vec<&str> = known.collect();
                assert!(known.contains(&&to[2..]) && !known.contains(&&from[2..]), "{command}: {known:?}");
                for flag in [(*from).to_owned(), format!("{from}=1")] {
                    let error = parse_from(["loadlab", command, &flag]).unwrap_err();
                    let said = refusal(&error, command).unwrap_or_default();
                    assert!(said.contains(&format!("renamed to `{to}`")), "{command} {flag}: {said}");
                }
            }
        }
    }

    #[test]
    fn other_mistakes_are_left_to_clap() {
        for words in
            [&["loadlab", "bench", "--probe"][..], &["loadlab", "find"], &["loadlab", "find", "--what"]]
        {
            let error = parse_from(words).unwrap_err();
            assert_eq!(refusal(&error, words[1]), None, "{words:?}");
        }
    }
}
