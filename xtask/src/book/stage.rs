//! The book as mdBook needs it: the pages of `docs/`, plus what they link to elsewhere in the repository (READMEs of
//! labs, the map of the code), so that every link of the built book leads somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::house::{CONTENTS, normal};

/// The book's folder in the repository.
const DOCS: &str = "docs";
/// Folder in the book for pages from elsewhere in the repository.
const BESIDE: &str = "repository";

/// Writes the book's sources into the folder `to`; `files` are all files of the repository, relative to `root`. Returns
/// the number of pages from outside `docs/`.
///
/// # Errors
/// A file cannot be read or written.
pub fn stage(root: &Path, files: &BTreeSet<String>, to: &Path) -> Result<usize> {
    // A new lab gets its page in the book at once, linked or not.
    let is_lab = |f: &str| f.starts_with("labs/") && f.ends_with("/README.md") && f.matches('/').count() == 2;
    let mut pending: Vec<String> =
        files.iter().filter(|f| f.starts_with("docs/") || is_lab(f)).cloned().collect();
    let mut seen: BTreeSet<String> = pending.iter().cloned().collect();
    let mut beside = BTreeMap::new();
    while let Some(path) = pending.pop() {
        let out = to.join(place(&path));
        fs::create_dir_all(out.parent().unwrap_or(to))?;
        if !path.ends_with(".md") {
            fs::copy(root.join(&path), &out).with_context(|| path.clone())?;
            continue;
        }
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let mut linked = BTreeSet::new();
        fs::write(&out, rewritten(&path, &text, files, &mut linked))?;
        if !path.starts_with("docs/") {
            let title = text.lines().find_map(|l| l.strip_prefix("# ")).unwrap_or(&path).to_owned();
            beside.insert(path.clone(), title);
        }
        pending.extend(linked.into_iter().filter(|link| seen.insert(link.clone())));
    }
    let summary = to.join("SUMMARY.md");
    let mut text = fs::read_to_string(&summary).context("docs/SUMMARY.md")?;
    text.push_str("\n# In the repository\n\n");
    for (path, title) in &beside {
        text.push_str(&format!("- [{title}]({})\n", place(path)));
    }
    fs::write(&summary, text)?;
    Ok(beside.len())
}

/// A repository file's path in the book.
fn place(path: &str) -> String {
    path.strip_prefix("docs/").map_or_else(|| format!("{BESIDE}/{path}"), str::to_owned)
}

/// A page with its links adapted to paths in the book; `linked` collects the files it links to.
fn rewritten(page: &str, text: &str, files: &BTreeSet<String>, linked: &mut BTreeSet<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fenced = false;
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        match is_fence {
            // The reason not to run a block is for the checks; mdBook would read it as part of the language.
            true => out.push_str(line.split(" not-run").next().unwrap_or(line)),
            false if fenced => out.push_str(line),
            false => line_of(&mut out, page, line, files, linked),
        }
        out.push('\n');
    }
    out
}

fn line_of(
    out: &mut String,
    page: &str,
    line: &str,
    files: &BTreeSet<String>,
    linked: &mut BTreeSet<String>,
) {
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at + 2);
        out.push_str(before);
        let end = after.find(')').unwrap_or(after.len());
        out.push_str(&target_of(page, &after[..end], files, linked));
        rest = &after[end..];
    }
    out.push_str(rest);
}

/// A link's target in the book; unchanged if it leads outside the repository or stays on the page.
fn target_of(page: &str, target: &str, files: &BTreeSet<String>, linked: &mut BTreeSet<String>) -> String {
    if target.contains("://") || target.starts_with('#') || target.starts_with("mailto:") {
        return target.to_owned();
    }
    let (file, heading) =
        target.split_once('#').map_or((target, String::new()), |(f, h)| (f, format!("#{h}")));
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut found = normal(&folder.join(file)).unwrap_or_default();
    // A folder means its README.
    if !files.contains(&found) {
        found = if found.is_empty() { "README.md".to_owned() } else { format!("{found}/README.md") };
    }
    if !files.contains(&found) {
        found = format!("{DOCS}/README.md");
    }
    linked.insert(found.clone());
    let here = place(page);
    let up = Path::new(&here).components().count().saturating_sub(1);
    let mut there = place(&found);
    // mdBook turns a README into `index.html` but does not adapt links to it. The table of contents names files, so it
    // is exempt.
    if page != CONTENTS && (there == "README.md" || there.ends_with("/README.md")) {
        there.truncate(there.len() - "README.md".len());
        there.push_str("index.md");
    }
    format!("{}{there}{heading}", "../".repeat(up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_of_the_staged_book_leads_to_a_page_in_it() {
        let from = tempfile::tempdir().unwrap();
        let to = tempfile::tempdir().unwrap();
        let files = [
            ("docs/SUMMARY.md", "# Summary\n\n- [The book](README.md)\n"),
            (
                "docs/README.md",
                "# The book\n[map](../MAP.md#rooms) [lab](../labs/a/) [p](how/to.md) [o](https://x/)\n",
            ),
            (
                "docs/how/to.md",
                "[up](../README.md) `x`\n```sh not-run: it shows\n[no](no.md)\n```\n[none](../../labs/none/)\n",
            ),
            ("MAP.md", "# The map\n[book](docs/README.md) [code](src/a.rs) [root](.)\n"),
            ("README.md", "# Root\n"),
            ("labs/a/README.md", "# Lab a\n[plan](plan.yaml) [map](../../MAP.md)\n"),
            ("labs/a/plan.yaml", "a: 1\n"),
            ("labs/new/README.md", "# Lab new\n"),
            ("src/a.rs", "//! A.\n"),
        ];
        for (path, text) in files {
            let file = from.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let known: BTreeSet<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(stage(from.path(), &known, to.path()).unwrap(), 4);
        let read =
            |path: &str| fs::read_to_string(to.path().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(
            read("README.md"),
            "# The book\n[map](repository/MAP.md#rooms) [lab](repository/labs/a/index.md) [p](how/to.md) [o](https://x/)\n"
        );
        assert_eq!(
            read("how/to.md"),
            "[up](../index.md) `x`\n```sh\n[no](no.md)\n```\n[none](../index.md)\n"
        );
        assert!(
            read("repository/MAP.md").contains(
                "[book](../index.md) [code](../repository/src/a.rs) [root](../repository/index.md)"
            )
        );
        assert!(read("repository/labs/a/README.md").contains("[plan](../../../repository/labs/a/plan.yaml)"));
        assert!(read("SUMMARY.md").ends_with(
            "# In the repository\n\n- [The map](repository/MAP.md)\n- [Root](repository/README.md)\n- [Lab a](repository/labs/a/README.md)\n- [Lab new](repository/labs/new/README.md)\n"
        ));
        assert!(to.path().join("repository/src/a.rs").is_file());
    }

    /// The real book: none of its links is broken.
    #[test]
    fn this_book_is_whole() {
        let root = crate::root::root();
        let to = tempfile::tempdir().unwrap();
        stage(&root, &crate::root::files(&root).unwrap(), to.path()).unwrap();
        let staged = crate::root::files(to.path()).unwrap();
        let mut links = 0;
        for page in staged.iter().filter(|f| f.ends_with(".md")) {
            let text = fs::read_to_string(to.path().join(page)).unwrap();
            let mut fenced = false;
            for line in text.lines() {
                fenced ^= line.trim_start().starts_with("```");
                for target in
                    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|_| !fenced)
                {
                    let file = target.split('#').next().unwrap_or_default();
                    if target.contains("://") || file.is_empty() {
                        continue;
                    }
                    let found = normal(&Path::new(page).parent().unwrap().join(file)).unwrap();
                    let found =
                        found.strip_suffix("index.md").map_or(found.clone(), |dir| format!("{dir}README.md"));
                    assert!(
                        staged.contains(&found),
                        "{page}: {target} leads to {found}, which is not in the book"
                    );
                    links += 1;
                }
            }
        }
        assert!(links > 50, "{links}");
    }
}
