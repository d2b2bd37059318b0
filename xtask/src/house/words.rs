//! Words that must not come back: a private idiom that no reader searches for. The check covers Markdown, the program's
//! messages and its help, pages' scripts and the example plans, but not the comments of Rust files.

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
    ("told apart", "distinguished"),
    ("tell of", "report"),
    ("tells of", "reports"),
    ("untold", "unknown"),
    ("is none", "there is no …"),
    ("so many", "that many, or the number"),
    ("believe any", "accept any"),
    ("the baseline no more", "no longer the baseline"),
    ("so long", "that long, or: within this time"),
    ("whoever", "anyone who"),
    ("somebody", "who it is, or: others"),
    ("held on to", "kept"),
];

/// Words that are an idiom or not, depending on what follows.
struct Contextual {
    /// In lower case, as all idioms here.
    words: &'static str,
    /// The standard term to use instead.
    better: &'static str,
    /// Whether they are an idiom before this rest of the line or literal.
    is_idiom: fn(&str) -> bool,
}

const CONTEXTUAL: &[Contextual] = &[
    Contextual { words: "of its own", better: "its own …, or: separate", is_idiom: is_phrase_end },
    Contextual { words: "of their own", better: "their own …, or: separate", is_idiom: is_phrase_end },
    Contextual { words: "stand in", better: "are in", is_idiom: is_place },
    Contextual { words: "stands", better: "is, or: is written", is_idiom: is_place },
];

/// “Figures of its own, …”, but not “of its own namespace”. A line that ends there counts too, whatever the next one
/// begins with.
fn is_phrase_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([',', '.', ';', ':', ')', '"'])
}

/// “Stands in the table”, but not “stands for the slot”, “stands in for a database” or “stand in the way”.
fn is_place(rest: &str) -> bool {
    ![" for", " in for", " the way", " out"].iter().any(|correct| rest.starts_with(*correct))
}

/// The idioms that a text contains, each once, with the standard term.
fn found_in(text: &str) -> Vec<(&'static str, &'static str)> {
    let lower = text.to_lowercase();
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let contains = |words: &str, is_idiom: fn(&str) -> bool| {
        lower.match_indices(words).any(|(at, _)| {
            let (before, rest) = (&lower[..at], &lower[at + words.len()..]);
            !is_letter(before.chars().next_back()) && !is_letter(rest.chars().next()) && is_idiom(rest)
        })
    };
    let always = WORDS.iter().filter(|(words, _)| contains(words, |_| true)).copied();
    let here = CONTEXTUAL.iter().filter(|c| contains(c.words, c.is_idiom)).map(|c| (c.words, c.better));
    always.chain(here).collect()
}

/// Whether all lines of a file are checked: pages of the book, scripts and the page that the program serves, and plans
/// that it writes.
fn is_read_whole(path: &str) -> bool {
    const WHOLE: [&str; 4] = [
        "crates/report/assets/js/",
        "crates/loadlab/assets/live.",
        "crates/loadlab/src/commands/init/examples/",
        "action.yml",
    ];
    (path.ends_with(".md") && !path.contains("/tests/")) || WHOLE.iter().any(|start| path.starts_with(start))
}

/// Checks pages, scripts and examples, string literals in programs, and the doc comments of their arguments, which are
/// their help.
pub fn check(house: &House, findings: &mut Findings) -> Result<()> {
    for (path, text) in house.texts.iter().filter(|(path, _)| is_read_whole(path)) {
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
        assert_eq!(check("crates/report/assets/js/a.js", "// Somebody\n").len(), 1);
        assert_eq!(check("crates/loadlab/src/commands/init/examples/a.yaml", "# It tells of b.\n").len(), 1);
    }

    #[test]
    fn what_follows_decides_about_some_words() {
        let check = |text: &str| breaches_in("words", &[("docs/a.md", text)]).len();
        assert_eq!(check("A step has figures of its own, and steps names of their own.\n"), 2);
        assert_eq!(check("Each step has figures of its own\nand each case names of their own\n"), 2);
        assert_eq!(check("It is of its own namespace, and none of their own business.\n"), 0);
        assert_eq!(check("It stands in quotes.\nThey stand in the caption.\nThe text stands above.\n"), 3);
        assert_eq!(check("A stand-in stands in for it, and `~1` stands for `/`.\n"), 0);
        assert_eq!(check("They stand in for it, or stand in the way of one that stands out.\n"), 0);
    }
}
