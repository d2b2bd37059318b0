//! Reads what a step sends: texts, JSON, forms, parts, files.

use loadlab_record::spec::escape::Escape;

use crate::keys;
use crate::keys::journey::PART;
use crate::model::journey::Body;
use crate::model::journey::{FormPart, PartContent};
use crate::model::template::Template;
use crate::read::journey::request_fields;
use crate::read::reader::{Fields, Reader, Resolved, When};
use crate::read::texts::{in_folder, place};
use crate::text::encode::{escaped, json_number, written};
use crate::text::error::Problem;
use crate::text::node::{Node, ScalarKind, Value};
use crate::text::span::Span;

/// Reads a step's body, if it has one; `None` if something is wrong with it.
pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Body> {
    if !request_fields::only_one_body(r, fields) {
        return None;
    }
    if let Some(node) = fields.get("form") {
        return read_form(r, node).map(Body::Form);
    }
    if let Some(node) = fields.get("multipart") {
        return read_parts(r, node, fields.key_span("multipart")).map(Body::Multipart);
    }
    match fields.get("body") {
        Some(node) => read_body(r, node, fields.key_span("body")),
        None => Some(request_fields::EMPTY),
    }
}

fn read_body(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<Body> {
    if let Value::Scalar(..) = node.value {
        return r.request_text(node, "a text, `{file: …}` or `{json: …}`", Escape::Raw).map(Body::Text);
    }
    let fields = r.fields(node, &keys::BODY, at)?;
    if let Some(file) = fields.get("file") {
        return read_path(r, file).map(Body::File);
    }
    let mut template = Template::default();
    json_template(r, fields.get("json")?, &mut template)?;
    Some(Body::Json(template))
}

/// Reads a path, relative to the plan's folder.
pub(crate) fn read_path(r: &mut Reader<'_>, node: &Node) -> Option<String> {
    let path = r.scalar(node, "a path")?;
    if path.text.is_empty() {
        r.wrong(&path, "expected a path, found an empty text", None);
        return None;
    }
    Some(in_folder(r.plan_dir, &path.text))
}

/// Reads a form as `name=value&…`, encoded.
fn read_form(r: &mut Reader<'_>, node: &Node) -> Option<Template> {
    let mut template = Template::default();
    let entries = r.map(node, "a map of fields");
    let mut whole = matches!(node.value, Value::Map(_));
    for (i, entry) in entries.iter().enumerate() {
        let and = if i > 0 { "&" } else { "" };
        template.push_text(&format!("{and}{}=", written(&entry.key, Escape::Form)));
        match r.request_text(&entry.value, "a text", Escape::Form) {
            Some(value) => template.push_mapped(&value, &|text| written(text, Escape::Form)),
            None => whole = false,
        }
    }
    whole.then_some(template)
}

fn read_parts(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<Vec<FormPart>> {
    let items = r.list(node, "a list of parts such as `- { name: avatar, file: picture.png }`");
    if items.is_empty() {
        if let Value::List(_) = node.value {
            r.push(Problem::new(at, "`multipart` is empty"));
        }
        return None;
    }
    let parts: Vec<FormPart> = items.iter().filter_map(|n| read_part(r, n)).collect();
    (parts.len() == items.len()).then_some(parts)
}

fn read_part(r: &mut Reader<'_>, node: &Node) -> Option<FormPart> {
    let fields = r.fields(node, &PART, node.span.point())?;
    let name = read_quotable(r, &fields, "name");
    let filename = read_quotable(r, &fields, "filename");
    let content_type = read_quotable(r, &fields, "type");
    let content = match (fields.get("text"), fields.get("file")) {
        (Some(node), None) => PartContent::Text(r.request_text(node, "a text", Escape::Raw)?),
        (None, Some(node)) => {
            let at = place(r, node.span);
            PartContent::File(read_path(r, node)?, at)
        }
        _ => return None,
    };
    let filename = filename.or_else(|| match &content {
        PartContent::File(path, _) => path.rsplit('/').next().map(str::to_owned),
        PartContent::Text(_) => None,
    });
    let fallback = matches!(content, PartContent::File(..)).then(|| "application/octet-stream".to_owned());
    Some(FormPart { name: name?, content, filename, content_type: content_type.or(fallback) })
}

/// Reads a text in a part's head: one line, no quotes.
fn read_quotable(r: &mut Reader<'_>, fields: &Fields<'_>, key: &str) -> Option<String> {
    let scalar = r.scalar(fields.get(key)?, "a text")?;
    if scalar.text.contains(|c: char| c.is_control() || c == '"') {
        r.wrong(&scalar, format!("`{key}` must be a single line without quotes"), None);
        return None;
    }
    Some(scalar.text)
}

/// Appends a node as JSON text; names that only the run knows remain.
pub(crate) fn json_template(r: &mut Reader<'_>, node: &Node, out: &mut Template) -> Option<()> {
    match &node.value {
        Value::Scalar(ScalarKind::Null, _) => out.push_text("null"),
        Value::Scalar(kind, text) => {
            let Resolved { template, kind, .. } =
                r.resolve(node, *kind, text, When::Request(Escape::Json))?;
            let is_number = template.as_variable().is_some_and(|v| v.is_number());
            match (kind, template.as_text()) {
                (ScalarKind::Bool, Some(text)) => out.push_text(text),
                (ScalarKind::Number, Some(text)) => out.push_text(&json_number(text)),
                _ if is_number => out.push_mapped(&template, &str::to_owned),
                _ => {
                    out.push_text("\"");
                    out.push_mapped(&template, &escaped);
                    out.push_text("\"");
                }
            }
        }
        Value::List(items) => {
            out.push_text("[");
            for (i, item) in items.iter().enumerate() {
                out.push_text(if i > 0 { "," } else { "" });
                json_template(r, item, out)?;
            }
            out.push_text("]");
        }
        Value::Map(entries) => {
            out.push_text("{");
            for (i, entry) in entries.iter().enumerate() {
                let comma = if i > 0 { "," } else { "" };
                out.push_text(&format!("{comma}\"{}\":", escaped(&entry.key)));
                json_template(r, &entry.value, out)?;
            }
            out.push_text("}");
        }
    }
    Some(())
}
