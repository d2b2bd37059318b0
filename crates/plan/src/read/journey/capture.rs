//! Reads captures: where a value is found, and whether that place can be read.

use crate::keys::journey::CAPTURE;
use crate::model::journey::{Capture, CaptureFrom};
use crate::read::reader::{Fields, Reader, Scalar};
use crate::text::error::Problem;
use crate::text::node::{Entry, Node};
use crate::text::shorten::shorten;

/// Maximum size of a compiled expression, bytes; the engine compiles it again with the same limit.
const REGEX_BYTES: usize = 1 << 20;

/// Reads a step's captures. Their names were recorded earlier.
pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<Capture> {
    let Some(node) = fields.get("capture") else { return Vec::new() };
    let entries = r.map(node, "a map of values to capture, such as `{ token: { json: /token } }`");
    entries.iter().filter_map(|entry| read_one(r, entry)).collect()
}

fn read_one(r: &mut Reader<'_>, entry: &Entry) -> Option<Capture> {
    let fields = r.fields(&entry.value, &CAPTURE, entry.key_span)?;
    let is_number = r.flag(&fields, "number").unwrap_or(false);
    let from = if let Some(node) = fields.get("json") {
        CaptureFrom::Json(read_pointer(r, node)?)
    } else if let Some(node) = fields.get("header") {
        CaptureFrom::Header(read_header_name(r, node)?)
    } else if let Some(node) = fields.get("regex") {
        CaptureFrom::Regex(read_regex(r, node)?)
    } else {
        let node = fields.get("body")?;
        if r.flag(&fields, "body")? {
            CaptureFrom::Body
        } else {
            r.push(Problem::new(node.span, "`body` can only be `true`").hint("leave it out"));
            return None;
        }
    };
    let slot = r.names.slot(&entry.key)? as u16;
    Some(Capture { slot, from, is_number })
}

fn read_pointer(r: &mut Reader<'_>, node: &Node) -> Option<String> {
    let scalar = r.scalar(node, "a JSON pointer such as `/token`")?;
    check_pointer(r, &scalar).then_some(scalar.text)
}

/// Whether a text is a JSON pointer; reports what is wrong with it.
pub(crate) fn check_pointer(r: &mut Reader<'_>, scalar: &Scalar) -> bool {
    let text = scalar.text.as_str();
    if !text.is_empty() && !text.starts_with('/') {
        let message = format!("`{}` is not a JSON pointer: a pointer starts with `/`", shorten(text));
        let hint = format!("`/{}`", text.trim_start_matches("$.").replace(['.', '['], "/").replace(']', ""));
        r.wrong(scalar, message, Some(hint));
        return false;
    }
    if text.split('~').skip(1).any(|after| !after.starts_with(['0', '1'])) {
        r.wrong(scalar, "in a JSON pointer `~` is written `~0`", None);
        return false;
    }
    true
}

fn read_header_name(r: &mut Reader<'_>, node: &Node) -> Option<String> {
    let scalar = r.scalar(node, "the name of a header field")?;
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if scalar.text.is_empty() || !scalar.text.chars().all(token) {
        let message = format!("`{}` is not a valid name for a header field", shorten(&scalar.text));
        r.wrong(&scalar, message, None);
        return None;
    }
    Some(scalar.text)
}

fn read_regex(r: &mut Reader<'_>, node: &Node) -> Option<String> {
    let scalar = r.scalar(node, "a regular expression such as `id=(\\d+)`")?;
    match regex::bytes::RegexBuilder::new(&scalar.text).size_limit(REGEX_BYTES).build() {
        Ok(regex) if regex.captures_len() < 2 => {
            let message = format!("`{}` has no group", shorten(&scalar.text));
            r.wrong(&scalar, message, Some("put `(…)` around the part to capture".to_owned()));
            None
        }
        Ok(_) => Some(scalar.text),
        Err(regex::Error::CompiledTooBig(_)) => {
            r.wrong(&scalar, "this regular expression is too large", None);
            None
        }
        Err(error) => {
            // The last line has the error; the lines before it draw its position, as our message does with the plan's
            // own line.
            let why = error.to_string();
            let why = why.lines().last().unwrap_or("").trim_start_matches("error: ").to_owned();
            r.wrong(&scalar, format!("this is not a regular expression: {why}"), None);
            None
        }
    }
}
