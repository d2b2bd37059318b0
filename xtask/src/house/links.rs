//! Links between the files of the book, the labs and the root: each leads to an existing file, folder and heading.

use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use super::{Findings, House};

/// Checks all relative links in Markdown.
pub fn check(house: &House, findings: &mut Findings) -> Result<()> {
    for (path, text) in house.pages() {
        findings.look();
        for (line, target) in links(text) {
            if let Err(why) = resolve(house, path, &target) {
                findings.breach(path, line, format!("link to {target}: {why}"));
            }
        }
    }
    Ok(())
}

/// Checks the code files that pages name: `worker/mod.rs` must match the end of a file's path, taken without `crates/`
/// and `src/`. In the map of the code, folders such as `store/` are checked as well.
pub fn code_paths(house: &House, findings: &mut Findings) -> Result<()> {
    const MAP: &str = "ARCHITECTURE.md";
    let short = |path: &String| format!("/{}", path.trim_start_matches("crates/").replace("/src/", "/"));
    let paths: Vec<String> = house.paths.iter().map(short).collect();
    for (page, text) in house.pages() {
        findings.look();
        for (number, code) in text
            .lines()
            .enumerate()
            .flat_map(|(i, line)| line.split('`').skip(1).step_by(2).map(move |code| (i + 1, code)))
        {
            let is_path = !code.starts_with('/')
                && code.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'));
            let named = format!("/{}", code.trim_start_matches("crates/").replace("/src/", "/"));
            let is_found = match () {
                () if is_path && code.ends_with(".rs") => paths.iter().any(|path| path.ends_with(&named)),
                () if is_path && code.ends_with('/') && page == MAP => {
                    paths.iter().any(|path| path.contains(&named))
                }
                () => true,
            };
            if !is_found {
                findings.breach(page, number, format!("there is no `{code}`"));
            }
        }
    }
    Ok(())
}

fn resolve(house: &House, page: &str, target: &str) -> Result<(), String> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let found = if file.is_empty() {
        page.to_owned()
    } else {
        let folder = Path::new(page).parent().unwrap_or(Path::new(""));
        normal(&folder.join(file)).ok_or("leads out of the repository")?
    };
    let below = format!("{found}/");
    let folder = found.is_empty() || house.paths.iter().any(|path| path.starts_with(&below));
    if !folder && !house.paths.contains(&found) {
        return Err("there is no such file".to_owned());
    }
    match house.texts.get(&found) {
        Some(text) if !heading.is_empty() && found.ends_with(".md") => {
            let there = headings(text).iter().any(|h| h == heading);
            there.then_some(()).ok_or_else(|| format!("{found} has no heading `{heading}`"))
        }
        _ => Ok(()),
    }
}

/// The path without `.` and `..`; `None` if it leads out of the repository.
pub fn normal(path: &Path) -> Option<String> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::CurDir => {}
            Component::ParentDir if out.pop() => {}
            _ => return None,
        }
    }
    Some(out.to_string_lossy().into_owned())
}

/// Lines outside fenced blocks, with their numbers; inline code is removed.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let parts = line.split('`').enumerate().map(|(n, part)| if n % 2 == 0 { part } else { "" });
            lines.push((i + 1, parts.collect()));
        }
    }
    lines
}

/// Targets of local links: `[text](target)`, `![text](target)`, `[name]: target`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let inline = line.match_indices("](").map(|(at, _)| &line[at + 2..]);
        let defined = line.starts_with('[').then(|| line.split_once("]: ")).flatten().map(|(_, rest)| rest);
        for rest in inline.chain(defined) {
            let end = rest.find([')', ' ']).unwrap_or(rest.len());
            let target = rest[..end].trim_matches(['<', '>']);
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !elsewhere && !target.is_empty() {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// Anchors of headings, as code forges generate them.
fn headings(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let Some(title) = line.strip_prefix('#').filter(|_| !fenced) else { continue };
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = found.iter().filter(|f| **f == slug).count();
        found.push(if before == 0 { slug } else { format!("{slug}-{before}") });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::breaches_in;

    #[test]
    fn code_that_pages_name_is_there() {
        let check = |page: &str| {
            let files = [("ARCHITECTURE.md", page), ("crates/a/src/b/mod.rs", "//! B.")];
            breaches_in("code-paths", &files)
        };
        let elsewhere =
            |path: &str| breaches_in("code-paths", &[("README.md", "# A"), (path, "`b.rs` and `c/`")]).len();
        assert_eq!((elsewhere("docs/a.md"), elsewhere("crates/a/tests/a.md")), (1, 0));
        assert!(
            check("`b/mod.rs`, `a/b/mod.rs`, `crates/a/src/b/mod.rs`, `b/`, `a::b`, `GET /x/`").is_empty()
        );
        assert_eq!(
            check("\n`b.rs` and `c/`"),
            ["ARCHITECTURE.md:2: there is no `b.rs`", "ARCHITECTURE.md:2: there is no `c/`"]
        );
    }

    #[test]
    fn links_lead_somewhere() {
        let page = "# A page\n\n## What's new: 2 things\n\nSee [plan](docs/plan.md), [labs](labs/a/), \
            [there](docs/plan.md#the-top), [here](#whats-new-2-things), [out](https://example.org/x).\n\n\
            ```\n[no](link.md)\n```\n`[no](link.md)`\n[name]: docs/plan.md\n";
        let others =
            [("docs/plan.md", "# Plan\n## The top\n[up](../README.md)"), ("labs/a/plan.yaml", "a: 1")];
        let check = |page: &str| breaches_in("links", &[&[("README.md", page)][..], &others].concat());
        assert!(check(page).is_empty(), "{:?}", check(page));
        assert_eq!(check("[a](docs/none.md)"), ["README.md:1: link to docs/none.md: there is no such file"]);
        assert_eq!(check("\n![a](pictures/)"), ["README.md:2: link to pictures/: there is no such file"]);
        assert_eq!(check("[a](../x.md)"), ["README.md:1: link to ../x.md: leads out of the repository"]);
        let found = check("[a](docs/plan.md#end)");
        assert_eq!(found, ["README.md:1: link to docs/plan.md#end: docs/plan.md has no heading `end`"]);
        assert_eq!(check("[name]: none.md").len(), 1);
    }
}
