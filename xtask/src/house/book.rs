//! The book: its table of contents names every page once and nothing else, and its commands are fenced so that they are
//! run.

use anyhow::{Context, Result};

use super::{CONTENTS, Findings, House};
use crate::blocks;

/// Every page of `docs/` is in the table of contents, once.
pub fn contents(house: &House, findings: &mut Findings) -> Result<()> {
    let text = house.texts.get(CONTENTS).with_context(|| format!("there is no {CONTENTS}"))?;
    let mut listed: Vec<(usize, String)> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let target = line.split_once("](").and_then(|(_, rest)| rest.split(')').next());
        if let Some(target) = target.filter(|t| !t.is_empty()) {
            listed.push((i + 1, format!("docs/{target}")));
        }
    }
    for (i, (line, page)) in listed.iter().enumerate() {
        findings.look();
        if listed[..i].iter().any(|(_, other)| other == page) {
            findings.breach(CONTENTS, *line, format!("{page} is listed twice"));
        }
        if !house.texts.contains_key(page) {
            findings.breach(CONTENTS, *line, format!("there is no {page}"));
        }
    }
    let pages = house.paths.iter().filter(|p| p.starts_with("docs/") && p.ends_with(".md") && *p != CONTENTS);
    for page in pages {
        findings.look();
        if !listed.iter().any(|(_, known)| known == page) {
            findings.breach(page, 0, format!("is not in {CONTENTS}"));
        }
    }
    Ok(())
}

/// Whether a page's commands are run: those of the README and of the book are.
fn is_run(path: &str) -> bool {
    path == "README.md" || path.starts_with("docs/")
}

/// Commands in Markdown are run, or state why they are not.
pub fn commands(house: &House, findings: &mut Findings) -> Result<()> {
    for (path, text) in house.pages() {
        findings.look();
        for (line, what) in blocks::mistakes(text) {
            findings.breach(path, line, what);
        }
        let blocks =
            blocks::blocks(text).into_iter().filter(|block| block.not_run.is_none() && !is_run(path));
        for block in blocks {
            findings.breach(path, block.line, "nobody runs the commands of this page: `sh not-run: WHY`");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::breaches_in;

    #[test]
    fn every_page_is_in_the_contents_once() {
        let check =
            |summary: &str| breaches_in("book", &[("docs/SUMMARY.md", summary), ("docs/a.md", "# A")]);
        assert_eq!(check("- [A](a.md)\n- [Draft]()\n"), Vec::<String>::new());
        assert_eq!(check("# Summary\n"), ["docs/a.md: is not in docs/SUMMARY.md"]);
        assert_eq!(check("- [A](a.md)\n- [A](a.md)\n"), ["docs/SUMMARY.md:2: docs/a.md is listed twice"]);
        assert_eq!(check("- [A](a.md)\n- [B](b.md)\n"), ["docs/SUMMARY.md:2: there is no docs/b.md"]);
    }

    #[test]
    fn commands_are_run_or_say_why_not() {
        let check = |page: &str| breaches_in("commands", &[("README.md", page)]).len();
        assert_eq!(check("```sh\nx\n```\n```sh not-run: takes an hour\nx\n```\n"), 0);
        assert_eq!(check("```sh not-run\nx\n```\n```bash\nx\n```\n"), 2);
        let elsewhere = |page: &str| breaches_in("commands", &[("labs/a/README.md", page)]);
        assert_eq!(elsewhere("```sh not-run: takes an hour\nx\n```\n"), Vec::<String>::new());
        assert_eq!(
            elsewhere("# A\n```sh\nx\n```\n"),
            ["labs/a/README.md:2: nobody runs the commands of this page: `sh not-run: WHY`"]
        );
    }
}
