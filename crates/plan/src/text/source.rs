//! The texts that make up a plan, and places in them.
//!
//! The plan file is source 0; every option on the command line that changes the plan (`--set …`, `--trials …`) is a
//! separate source, so that a mistake is shown where it was made. This module only finds lines and columns, and shows
//! hidden parts as asterisks; it does not know what a plan is.

use loadlab_record::secrets::MASK;

use crate::text::shorten::shorten;
use crate::text::span::Span;

/// One text and its name in messages.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The path of the plan as given, or the option as typed.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// All texts of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    list: Vec<Source>,
    /// Spans that messages do not show.
    hidden: Vec<Span>,
}

/// A place for people: line and column count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub snippet: String,
}

/// Maximum number of characters of a line that a message shows.
const SHOWN: usize = 100;

impl Sources {
    /// Adds a text; returns its number.
    pub fn add(&mut self, name: &str, text: &str) -> u32 {
        self.list.push(Source { name: name.to_owned(), text: text.to_owned() });
        (self.list.len() - 1) as u32
    }

    /// Shows these spans as asterisks from now on.
    pub fn hide(&mut self, spans: Vec<Span>) {
        self.hidden = spans;
    }

    /// The whole text of a source.
    pub fn text(&self, source: u32) -> &str {
        self.list.get(source as usize).map_or("", |s| s.text.as_str())
    }

    /// A source as it may be shown.
    pub fn shown(&self, source: u32) -> String {
        masked(self.text(source), &self.hidden, source)
    }

    /// A source's name; an option without its hidden parts.
    fn name(&self, index: u32, source: &Source) -> String {
        match source.name.split_once(' ') {
            Some(("--set", _)) if self.hidden.iter().any(|s| s.source == index) => {
                format!("--set {}", shorten(&self.shown(index)))
            }
            _ => source.name.clone(),
        }
    }

    fn is_hidden(&self, source: u32, at: usize) -> bool {
        self.hidden.iter().any(|s| s.source == source && (s.start as usize..s.end as usize).contains(&at))
    }

    /// The text of a span; empty if the span is not on character boundaries.
    pub fn slice(&self, span: Span) -> &str {
        self.list
            .get(span.source as usize)
            .and_then(|s| s.text.get(span.start as usize..span.end as usize))
            .unwrap_or("")
    }

    /// Line, column and the line itself with a caret under the span.
    pub fn spot(&self, span: Span) -> Spot {
        let Some(source) = self.list.get(span.source as usize) else {
            return Spot { file: String::new(), line: 0, column: 0, snippet: String::new() };
        };
        let text = source.text.as_str();
        // A byte order mark is no character of the first line.
        let front = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut at = (span.start as usize).clamp(front, text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let line_start = text[..at].rfind('\n').map_or(front, |i| i + 1);
        let line_text = text[line_start..].split(['\n', '\r']).next().unwrap_or("");
        let line = text[..line_start].matches('\n').count() + 1;
        let column = text[line_start..at].chars().count();
        let mut end = (span.end as usize).clamp(at, (line_start + line_text.len()).max(at));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let width = text[at..end].chars().count().max(1);
        let number = if source.name.starts_with("--") { String::new() } else { line.to_string() };
        let shown = |(i, c)| if self.is_hidden(span.source, line_start + i) { '*' } else { c };
        let line_text: String = line_text.char_indices().map(shown).collect();
        let snippet = draw(&number, &line_text, column, width);
        Spot { file: self.name(span.source, source), line, column: column + 1, snippet }
    }
}

/// The line between two rulers, cropped around the column, with control characters as blanks.
fn draw(number: &str, line: &str, column: usize, width: usize) -> String {
    let skip = if column > SHOWN * 2 / 3 { column - SHOWN / 2 } else { 0 };
    let rest = line.chars().count().saturating_sub(skip);
    let ahead = if skip > 0 { "…" } else { "" };
    let after = if rest > SHOWN { "…" } else { "" };
    let body: String =
        line.chars().skip(skip).take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let margin = " ".repeat(number.len().max(2));
    let carets = "^".repeat(width.min(SHOWN.saturating_sub(column - skip)).max(1));
    let indent = " ".repeat(column - skip + ahead.chars().count());
    format!("{margin} |\n{number:>2} | {ahead}{body}{after}\n{margin} | {indent}{carets}")
}

/// A source's text with some of its spans masked.
fn masked(text: &str, spans: &[Span], source: u32) -> String {
    let mut ranges: Vec<(usize, usize)> = spans
        .iter()
        .filter(|s| s.source == source)
        .map(|s| (s.start as usize, s.end as usize))
        .filter(|(start, end)| start < end && text.is_char_boundary(*start) && text.is_char_boundary(*end))
        .collect();
    ranges.sort_unstable();
    let (mut out, mut from) = (String::new(), 0);
    for (start, end) in ranges {
        if end <= from {
            continue;
        }
        let start = start.max(from);
        out.push_str(&text[from..start]);
        out.push_str(mask_at(text, start, end));
        from = end;
    }
    out.push_str(&text[from..]);
    out
}

/// The mask for a place. A plain scalar that begins with an asterisk would be an alias: this keeps it valid YAML.
fn mask_at(text: &str, start: usize, end: usize) -> &'static str {
    let before = text[..start].trim_end_matches([' ', '\t']).chars().next_back();
    let behind = text[end..].chars().next();
    let begins = start > 0
        && matches!(before, Some(':' | '-' | '[' | ',' | '{' | '\n'))
        && text[..start].ends_with([' ', '[', '{', '\t']);
    let ends = behind.is_none_or(|c| c.is_whitespace() || ",]}".contains(c));
    if begins && ends { "\"***\"" } else { MASK }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spot_is_counted_in_characters() {
        let mut sources = Sources::default();
        let source = sources.add("plan.yaml", "a: 1\nnäme: über\n");
        let start = "a: 1\nnäme: ".len() as u32;
        let spot = sources.spot(Span { source, start, end: start + 5 });
        assert_eq!((spot.line, spot.column), (2, 7));
        insta::assert_snapshot!(spot.snippet, @r"
           |
         2 | näme: über
           |       ^^^^
        ");
    }

    #[test]
    fn a_byte_order_mark_has_no_column() {
        let mut sources = Sources::default();
        let text = "\u{feff}a: 1\nb: 2\n";
        let source = sources.add("plan.yaml", text);
        for (place, expect) in [("a", (1, 1)), ("1", (1, 4)), ("b", (2, 1))] {
            let start = text.find(place).unwrap() as u32;
            let spot = sources.spot(Span { source, start, end: start + 1 });
            assert_eq!((spot.line, spot.column), expect, "{place}");
            assert!(!spot.snippet.contains('\u{feff}'), "{}", spot.snippet);
        }
        assert_eq!(sources.spot(Span { source, start: 0, end: 0 }).column, 1);
    }

    #[test]
    fn spans_outside_of_the_text_are_harmless() {
        let mut sources = Sources::default();
        let source = sources.add("plan.yaml", "ä");
        for (start, end) in [(0, 0), (1, 1), (2, 2), (1, 99), (99, 1)] {
            let spot = sources.spot(Span { source, start, end });
            assert_eq!(spot.line, 1, "{start}..{end}");
        }
        assert_eq!(sources.spot(Span { source: 7, start: 0, end: 0 }).line, 0);
    }

    #[test]
    fn long_lines_are_cropped_around_the_place() {
        let mut sources = Sources::default();
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let source = sources.add("plan.yaml", &text);
        let spot = sources.spot(Span { source, start: 500, end: 501 });
        assert_eq!(spot.column, 501);
        let lines: Vec<&str> = spot.snippet.lines().collect();
        assert!(lines.iter().all(|l| l.chars().count() < 120), "{}", spot.snippet);
        let caret = lines[2].chars().position(|c| c == '^');
        assert_eq!(caret.and_then(|i| lines[1].chars().nth(i)), Some('X'));
    }
}
