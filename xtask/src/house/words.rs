//! Words that must not come back: a private idiom that no reader searches for. The check covers Markdown, the program's
//! messages, and its help, but not comments.

use anyhow::Result;

use super::{Findings, House};

/// Each idiom, and the standard term to use instead.
const WORDS: &[(&str, &str)] = &[
    ("gave first", "the first bottleneck"),
    ("how sure", "confidence"),
    ("at its end", "saturated, or: when it ends"),
    ("stood still", "stalled"),
    ("held to", "checked against"),
    ("speaks against", "a doubt"),
    ("cannot be told", "is unknown"),
    ("could not be told", "is unknown"),
    ("are told", "are reported"),
    ("is told", "is reported"),
    ("untold", "unknown"),
    ("is none", "there is no …"),
    ("so many", "that many, or the number"),
    ("believe any", "accept any"),
    ("the baseline no more", "no longer the baseline"),
    ("so long", "that long, or: within this time"),
    ("whoever", "anyone who"),
    ("held on to", "kept"),
];

/// The idioms that a text contains, each once.
fn found_in(text: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let lower = text.to_lowercase();
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    WORDS.iter().filter(move |(idiom, _)| {
        lower.match_indices(idiom).any(|(at, _)| {
            let (before, behind) = (&lower[..at], &lower[at + idiom.len()..]);
            !is_letter(before.chars().next_back()) && !is_letter(behind.chars().next())
        })
    })
}

/// Checks Markdown pages, string literals in programs, and the doc comments of their arguments, which are their help.
pub fn check(house: &House, findings: &mut Findings) -> Result<()> {
    let pages = house.texts.iter().filter(|(path, _)| path.ends_with(".md") && !path.contains("/tests/"));
    for (path, text) in pages {
        findings.look();
        // The changelog's table of renames lists the former words beside the new ones.
        let lines =
            text.lines().enumerate().filter(|(_, line)| path != "CHANGELOG.md" || !line.starts_with('|'));
        report(path, lines.map(|(i, line)| (i + 1, line)), findings);
    }
    for source in house.shipped().filter(|s| s.path.starts_with("crates/")) {
        findings.look();
        let is_help = source.path.starts_with("crates/loadlab/src/args");
        // Doc comments are tokens: `doc = "…"`.
        let is_comment =
            |at: usize| at > 1 && source.tokens[at - 2].text == "doc" && source.tokens[at - 1].text == "=";
        let texts = source.tokens.iter().enumerate().filter(|(at, token)| {
            token.text.contains('"') && !source.in_test(token.line) && (is_help || !is_comment(*at))
        });
        report(&source.path, texts.map(|(_, token)| (token.line, token.text.as_str())), findings);
    }
    Ok(())
}

fn report<'t>(path: &str, lines: impl Iterator<Item = (usize, &'t str)>, findings: &mut Findings) {
    for (line, text) in lines {
        for (idiom, better) in found_in(text) {
            findings.breach(path, line, format!("“{idiom}”: write {better}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::breaches_in;

    #[test]
    fn idiom_is_found_in_pages_texts_and_help() {
        let check = |path: &str, text: &str| breaches_in("words", &[(path, text)]);
        assert_eq!(
            check("docs/a.md", "A\nWhat gave first.\n"),
            ["docs/a.md:2: “gave first”: write the first bottleneck"]
        );
        assert!(check("docs/a.md", "A shield to is nonentity.\n").is_empty());
        let code = "crates/a/src/lib.rs";
        assert_eq!(check(code, "//! It is told.\nfn a() { say(\"it cannot be told\") }\n").len(), 1);
        assert!(check(code, "//! It is told.\n/// That is told.\nfn a() {}\n").is_empty());
        assert_eq!(check("crates/loadlab/src/args/mod.rs", "//! A.\n/// All are told\nfn a() {}\n").len(), 1);
    }
}
