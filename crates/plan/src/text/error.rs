//! A plan's mistakes and their places: everything that could be found in one pass.
//!
//! Messages are lower case, state what was expected, and carry a hint with the fix if there is one.

use std::collections::HashSet;
use std::fmt;

use loadlab_record::secrets::Secrets;

use crate::text::source::Sources;
use crate::text::span::Span;

/// One mistake in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The plan's path as given, or the option with the mistake (`--set load.users=x`).
    pub file: String,
    /// Line, from 1; 0 if the mistake has no place in a text.
    pub line: usize,
    /// Column in characters, from 1; 0 if the mistake has no place in a text.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
    /// The line with a caret under the place, three lines; empty without a place.
    pub snippet: String,
    /// Where else to look: the place that uses a value of the matrix, the first of two values that exclude each other.
    pub related: Option<Related>,
    /// How to fix it.
    pub hint: Option<String>,
}

/// A second place related to a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// What is there, such as "used here".
    pub label: String,
    /// As in [`PlanError`].
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// As in [`PlanError`].
    pub snippet: String,
}

impl PlanError {
    /// The mistake with secrets masked: a message may quote a value, or the beginning of one.
    pub(crate) fn masked(self, secrets: &Secrets) -> PlanError {
        let mask = |text: String| secrets.mask_shortened(&text).into_owned();
        let related = |r: Related| Related { file: mask(r.file), snippet: mask(r.snippet), ..r };
        PlanError {
            file: mask(self.file),
            message: mask(self.message),
            snippet: mask(self.snippet),
            related: self.related.map(related),
            hint: self.hint.map(mask),
            ..self
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&place(&self.file, self.line, self.column))?;
        write!(f, ": {}", self.message)?;
        if !self.snippet.is_empty() {
            write!(f, "\n{}", self.snippet)?;
        }
        if let Some(r) = &self.related {
            write!(f, "\n  {}: {}\n{}", r.label, place(&r.file, r.line, r.column), r.snippet)?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PlanError {}

/// `plan.yaml:3:7`; for an option, only its name: its lines are not worth giving.
fn place(file: &str, line: usize, column: usize) -> String {
    if line == 0 || file.starts_with("--") { file.to_owned() } else { format!("{file}:{line}:{column}") }
}

/// Everything wrong with a plan, in the order of the text; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanErrors(pub Vec<PlanError>);

impl fmt::Display for PlanErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            write!(f, "{error}")?;
        }
        if self.0.len() >= MAX_MISTAKES {
            write!(f, "\n\nmore than {MAX_MISTAKES} mistakes: only the first are shown")?;
        }
        Ok(())
    }
}

impl std::error::Error for PlanErrors {}

/// Maximum number of mistakes collected: a plan in the wrong format would fill screens.
pub(crate) const MAX_MISTAKES: usize = 100;

/// A mistake before its line and column are determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub span: Span,
    pub message: String,
    pub related: Option<(String, Span)>,
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Problem { span, message: message.into(), related: None, hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    pub fn related(mut self, label: impl Into<String>, span: Span) -> Self {
        self.related = Some((label.into(), span));
        self
    }

    /// The mistake with its line, column and the lines themselves.
    pub fn render(self, sources: &Sources) -> PlanError {
        let spot = sources.spot(self.span);
        let related = self.related.map(|(label, span)| {
            let spot = sources.spot(span);
            Related { label, file: spot.file, line: spot.line, column: spot.column, snippet: spot.snippet }
        });
        PlanError {
            file: spot.file,
            line: spot.line,
            column: spot.column,
            message: self.message,
            snippet: spot.snippet,
            related,
            hint: self.hint,
        }
    }
}

/// Mistakes found so far. The same mistake at the same place is kept once, although every case is checked.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    seen: HashSet<(Span, String)>,
}

impl Problems {
    pub fn push(&mut self, problem: Problem) {
        if self.list.len() < MAX_MISTAKES && self.seen.insert((problem.span, problem.message.clone())) {
            self.list.push(problem);
        }
    }

    pub fn count(&self) -> usize {
        self.list.len()
    }

    pub fn append(&mut self, other: Problems) {
        other.list.into_iter().for_each(|p| self.push(p));
    }

    pub fn is_full(&self) -> bool {
        self.list.len() >= MAX_MISTAKES
    }

    /// In the order of the text.
    pub fn into_errors(mut self, sources: &Sources) -> PlanErrors {
        self.list.sort_by_key(|p| p.span);
        PlanErrors(self.list.into_iter().map(|p| p.render(sources)).collect())
    }
}
