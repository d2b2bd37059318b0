//! The page with the latest tables, and what they were measured on.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Bench;
use super::tools::versions;
use crate::command::{captured, program};
use crate::root::root;

/// The page where the latest tables are kept, relative to the repository.
pub const PAGE: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- bench-peers: begin -->";
const END: &str = "<!-- bench-peers: end -->";

/// Puts the tables on their page, with what they were measured on. Returns the page's name.
///
/// # Errors
/// The page cannot be read or written, or does not have the markers.
pub fn keep(tables: &str, bench: &Bench) -> Result<&'static str> {
    let mut text = format!(
        "{}, {}, {} cores, {}. Medians of {} rounds of {} s; ratios are taken within each round.\n",
        line_of("date", &["-u", "+%Y-%m-%d"]),
        cpu_model(),
        std::thread::available_parallelism().map_or(0, usize::from),
        line_of("uname", &["-sr"]),
        bench.rounds,
        bench.seconds
    );
    if let Some(remark) = bench.cores.remark() {
        let _ = writeln!(text, "{remark}.");
    }
    let _ = write!(text, "\n{tables}\nVersions: {}.\n", versions(&bench.tools));
    write_between(PAGE, (BEGIN, END), &text)?;
    Ok(PAGE)
}

/// Puts text between two markers on a page of the repository.
///
/// # Errors
/// The page cannot be read or written, or has no such markers.
pub fn write_between(page: &str, (begin, end): (&str, &str), text: &str) -> Result<()> {
    let path = root().join(page);
    let old = fs::read_to_string(&path).with_context(|| page.to_owned())?;
    let new =
        replaced(&old, (begin, end), text).with_context(|| format!("{page} has no `{begin}` and `{end}`"))?;
    fs::write(&path, new).with_context(|| page.to_owned())
}

fn replaced(page: &str, (begin, end): (&str, &str), text: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{text}{end}{after}"))
}

/// The processor's model name.
pub fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|l| l.starts_with("model name"));
    let model = line.and_then(|l| l.split_once(':')).map(|(_, model)| model.trim().to_owned());
    model.unwrap_or_else(|| "an unnamed CPU".to_owned())
}

fn line_of(name: &str, arguments: &[&str]) -> String {
    let ran = captured(program(name).args(arguments), Duration::from_secs(10));
    ran.map(|r| r.stdout.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_keeps_the_text_around_the_table() {
        let page = format!("# Benchmarks\n\n{BEGIN}\nold\n{END}\n\nEnd.\n");
        let expect = format!("# Benchmarks\n\n{BEGIN}\nnew\n{END}\n\nEnd.\n");
        assert_eq!(replaced(&page, (BEGIN, END), "new\n").unwrap(), expect);
        assert!(replaced("# Benchmarks\n", (BEGIN, END), "new").is_none());
    }
}
