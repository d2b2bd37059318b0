//! Fields that requests have in common, whether steps or messages send them: tags, header lines, at most one body.

use crate::model::journey::Body;
use crate::model::template::Template;
use crate::read::reader::{Fields, Reader};
use crate::text::error::Problem;
use crate::text::shorten::shorten;
use crate::text::span::Span;

/// Reports line breaks in a header field's value.
pub(crate) fn one_line(r: &mut Reader<'_>, span: Span, value: &Template) {
    if value.to_string().contains(|c: char| c.is_control() && c != '\t') {
        r.push(Problem::new(span, "a header field must be a single line"));
    }
}

/// Reads the series that a step or message counts towards.
pub(crate) fn read_tags(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    r.used_secret = None;
    for tag in r.texts(fields, "tags") {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if tag.text.is_empty() || tag.text.len() > 64 || !tag.text.chars().all(good) {
            let message = format!("`{}` is not a valid tag", shorten(&tag.text));
            r.wrong(&tag, message, Some("letters, digits, `-` and `_`, at most 64".to_owned()));
        } else if !tags.contains(&tag.text) {
            tags.push(tag.text);
        }
    }
    if let Some(span) = r.used_secret {
        let problem = Problem::new(span, "a tag cannot contain a secret: figures are named after it");
        r.push(problem.hint("if it is not a secret, write `${public:env.NAME}`"));
    }
    tags
}

/// Whether a body is allowed with the other keys.
pub(crate) fn only_one_body(r: &mut Reader<'_>, fields: &Fields<'_>) -> bool {
    let given: Vec<_> = ["body", "form", "multipart"].iter().filter_map(|k| fields.entry(k)).collect();
    let [first, second, ..] = given.as_slice() else { return true };
    let message = format!("`{}` and `{}` cannot be combined", first.key, second.key);
    let problem = Problem::new(second.key_span, message).hint("a request has one body");
    r.push(problem.related(format!("`{}` is here", first.key), first.key_span));
    false
}

/// No body.
pub(crate) const EMPTY: Body = Body::Empty;
