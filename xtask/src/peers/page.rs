//! The page that keeps the last tables, with what they were made on.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::measure::Cores;
use super::open::{OPEN_TOOLS, OpenTool};
use super::tools::Tool;
use crate::command::{captured, find, program};
use crate::root::root;

/// Where the last tables are kept, relative to the repository.
pub const PAGE: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- bench-peers: begin -->";
const END: &str = "<!-- bench-peers: end -->";

/// Puts the table on its page, with what it was made on; the page's name.
///
/// # Errors
/// The page cannot be read or written, or has no place for it.
pub fn keep(
    table: &str,
    tools: &[&Tool],
    (seconds, rounds): (u64, u64),
    cores: &Cores,
) -> Result<&'static str> {
    // loadlab's is that of the bare loops as well.
    let others = tools.iter().filter(|t| t.name == "loadlab" || !t.is_ours());
    let mut versions: Vec<_> = others.map(|t| t.reported_version()).collect();
    versions.extend(OPEN_TOOLS.iter().filter_map(OpenTool::reported_version));
    versions.push(nginx_version());
    let mut made = format!(
        "{}, {}, {} cores, {}. Medians of {rounds} rounds of {seconds} s; ratios to wrk are taken within each round.\n",
        line_of("date", &["-u", "+%Y-%m-%d"]),
        cpu_model(),
        std::thread::available_parallelism().map_or(0, usize::from),
        line_of("uname", &["-sr"])
    );
    if let Some(remark) = cores.remark() {
        let _ = writeln!(made, "{remark}.");
    }
    let text = format!("{made}\n{table}\nVersions: {}.\n", versions.join(" · "));
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| PAGE.to_owned())?;
    fs::write(&path, replaced(&page, &text)?)?;
    Ok(PAGE)
}

/// A page with other text between its marks.
fn replaced(page: &str, text: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("{PAGE} has no `{BEGIN}`"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} has no `{END}`"))?;
    Ok(format!("{before}{BEGIN}\n{text}{END}{after}"))
}

/// The processor, by its model.
pub fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|l| l.starts_with("model name"));
    let model = line.and_then(|l| l.split_once(':')).map(|(_, model)| model.trim().to_owned());
    model.unwrap_or_else(|| "an unnamed CPU".to_owned())
}

fn nginx_version() -> String {
    let Some(path) = find("nginx") else { return "nginx".to_owned() };
    let ran = captured(program(path).arg("-v"), Duration::from_secs(10));
    let said = ran.map(|r| r.stderr).unwrap_or_default();
    said.trim().rsplit(": ").next().unwrap_or("nginx").to_owned()
}

fn line_of(name: &str, arguments: &[&str]) -> String {
    let ran = captured(program(name).args(arguments), Duration::from_secs(10));
    ran.map(|r| r.stdout.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_keeps_what_stands_around_the_table() {
        let page = format!("# Benchmarks\n\n{BEGIN}\nold\n{END}\n\nEnd.\n");
        let expect = format!("# Benchmarks\n\n{BEGIN}\nnew\n{END}\n\nEnd.\n");
        assert_eq!(replaced(&page, "new\n").unwrap(), expect);
        assert!(replaced("# Benchmarks\n", "new").is_err());
    }
}
