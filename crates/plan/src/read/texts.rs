//! Reads what several sections share: paths, commands, environments, addresses, places.

use crate::model::component_kind::Command;
use crate::model::journey::Place;
use crate::model::template::Template;
use crate::read::reader::{Fields, Reader};
use crate::text::error::Problem;
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;
use crate::url;

/// A place in the plan, for later reports.
pub(crate) fn place(r: &Reader<'_>, span: Span) -> Place {
    let spot = r.sources.spot(span);
    Place { file: spot.file, line: spot.line, column: spot.column, snippet: spot.snippet }
}

/// A path in the plan: relative ones start in its folder. Only the text is handled; nothing is looked up.
pub(crate) fn in_folder(plan_dir: &str, path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    match path {
        _ if path.starts_with('/') => path.to_owned(),
        "" | "." => plan_dir.to_owned(),
        _ => format!("{}/{path}", plan_dir.trim_end_matches('/')),
    }
}

/// Reads a shell line, or a list of words.
pub(crate) fn read_command(r: &mut Reader<'_>, node: &Node) -> Option<Command> {
    const WHAT: &str = "a command: a shell line, or a list of words";
    if let Value::List(items) = &node.value {
        if items.is_empty() {
            r.push(Problem::new(node.span, format!("expected {WHAT}, found an empty list")));
            return None;
        }
        let words: Vec<Template> =
            items.iter().filter_map(|n| r.template(n, "a word of a command")).collect();
        return (words.len() == items.len()).then_some(Command::Words(words));
    }
    let line = r.template(node, WHAT)?;
    if line.as_text().is_some_and(|t| t.trim().is_empty()) {
        r.push(Problem::new(node.span, format!("expected {WHAT}, found an empty text")));
        return None;
    }
    if line.to_string().contains('\0') {
        r.push(Problem::new(node.span, "a command cannot contain a NUL character"));
        return None;
    }
    Some(Command::Shell(line))
}

pub(crate) fn read_env(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<(String, Template)> {
    let Some(node) = fields.get("env") else { return Vec::new() };
    let mut env = Vec::new();
    for entry in r.map(node, "a map of environment variables") {
        if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
            let message =
                format!("`{}` is not a valid name for an environment variable", shorten(&entry.key));
            r.push(Problem::new(entry.key_span, message));
        }
        env.extend(r.template(&entry.value, "a text").map(|value| (entry.key.clone(), value)));
    }
    env
}

/// Reads a URL that may still contain ports.
pub(crate) fn read_url(r: &mut Reader<'_>, node: &Node) -> Option<Template> {
    let template = r.url_text(node)?;
    check_rendered(r, node, &template, url::check)?;
    Some(template)
}

/// Checks the form of an address, with a port in place of names that are not known yet.
pub(crate) fn check_rendered(
    r: &mut Reader<'_>,
    node: &Node,
    template: &Template,
    check: impl Fn(&str) -> Result<(), url::UrlError>,
) -> Option<()> {
    let text = template.render(&|_| Some("1".to_owned())).ok()?;
    if let Err(error) = check(&text) {
        r.push(Problem::new(node.span, error.message).maybe_hint(error.hint));
        return None;
    }
    Some(())
}
