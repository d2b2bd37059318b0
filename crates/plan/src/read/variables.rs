//! Names in the texts of a step: variables that change from request to request.

use loadlab_record::spec::escape::Escape;
use loadlab_record::spec::variable::{Unit, Variable};

use crate::read::names::MAX_NAMES;
use crate::read::names::{KnownCapture, NameMeaning, StepOwner};
use crate::read::reader::Reader;
use crate::text::encode;
use crate::text::error::Problem;
use crate::text::node::{Entry, Node, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;
use crate::text::suggest;

/// Names that already have a meaning.
const RESERVED: &[&str] = &[
    "user",
    "iteration",
    "sequence",
    "unique",
    "uuid",
    "now",
    "random",
    "raw",
    "case",
    "env",
    "file",
    "public",
    "plan",
    "run",
    "components",
    "replica",
    "port",
];
impl Reader<'_> {
    /// The meaning of a name in a request; reports what is wrong with it.
    pub fn word(&mut self, node: &Node, name: &str, escape: Escape) -> NameMeaning {
        let (inner, escape) = match call(name, "raw") {
            Some(inner) => (inner, encode::raw(escape)),
            None => (name, escape),
        };
        match self.variable(node, inner) {
            Ok(Some(variable)) => NameMeaning::Variable(variable, escape),
            Ok(None) if inner != name => {
                let message = format!("`{}` is not a variable", shorten(inner));
                let problem = Problem::new(self.inner_span(node, name), message);
                self.push(problem.hint("`raw(NAME)` inserts a captured value unchanged"));
                NameMeaning::Wrong
            }
            Ok(None) => NameMeaning::Other,
            Err(problem) => {
                self.push(problem);
                NameMeaning::Wrong
            }
        }
    }

    fn variable(&mut self, node: &Node, name: &str) -> Result<Option<Variable>, Problem> {
        let problem = |r: &Self, message: String| Problem::new(r.inner_span(node, name), message);
        let in_load = self.names.place == StepOwner::Load;
        let variable = match name {
            "user" | "iteration" | "sequence" | "unique" if !in_load => {
                let message = format!("`setup` does not run as a user, so there is no `${{{name}}}`");
                return Err(problem(self, message));
            }
            "user" => Variable::User,
            "iteration" => Variable::Iteration,
            "sequence" => Variable::Sequence,
            "unique" => Variable::Id,
            "uuid" => Variable::Uuid,
            "now" | "now.ms" => Variable::Now(Unit::Millis),
            "now.s" => Variable::Now(Unit::Seconds),
            "now.us" => Variable::Now(Unit::Micros),
            "now.ns" => Variable::Now(Unit::Nanos),
            "now.iso" => Variable::Now(Unit::Rfc3339),
            "random" => {
                return Err(problem(self, "`random` needs bounds".to_owned()).hint("`${random(1, 6)}`"));
            }
            _ => {
                if let Some(unit) = name.strip_prefix("now.") {
                    let message = format!("`{}` is not a form of the time", shorten(unit));
                    let hint = "`now.s`, `now.ms`, `now.us`, `now.ns`, or `now.iso`";
                    return Err(problem(self, message).hint(hint));
                }
                if let Some(bounds) = call(name, "random") {
                    return bounds_of(bounds).map(Some).map_err(|why| {
                        problem(self, format!("`{}`: {why}", shorten(name))).hint("`${random(1, 6)}`")
                    });
                }
                return self.column_or_capture(node, name);
            }
        };
        Ok(Some(variable))
    }

    fn column_or_capture(&mut self, node: &Node, name: &str) -> Result<Option<Variable>, Problem> {
        let span = self.inner_span(node, name);
        if let Some((feed, column)) = name.split_once('.')
            && let Some(at) = self.names.feeds.iter().position(|f| f.name == feed)
        {
            let columns = &mut self.names.feeds[at].columns;
            let column = columns.iter().position(|(c, _)| c == column).unwrap_or_else(|| {
                columns.push((column.to_owned(), span));
                columns.len() - 1
            });
            if column >= MAX_NAMES {
                return Err(Problem::new(
                    span,
                    format!("more than {MAX_NAMES} columns of one feed are used"),
                ));
            }
            return Ok(Some(Variable::Feed { feed: at as u16, column: column as u16 }));
        }
        if self.names.feeds.iter().any(|f| f.name == name) {
            let problem = Problem::new(span, format!("`{name}` is a feed: name one of its columns"));
            return Err(problem.hint(format!("`${{{name}.COLUMN}}`")));
        }
        if let Some((feed, column)) = name.split_once('.')
            && let Some(near) = suggest::nearest(feed, self.names.feeds.iter().map(|f| f.name.as_str()))
        {
            let problem = Problem::new(span, format!("unknown name `${{{}}}`", shorten(name)));
            return Err(problem.hint(format!("did you mean `${{{near}.{}}}`?", shorten(column))));
        }
        let Some(slot) = self.names.slot(name) else { return Ok(None) };
        let known = &self.names.captures[slot];
        if !known.is_visible && self.names.has_single_requests {
            let message =
                format!("`{name}` is captured only from a response, and a rate sends single requests");
            let problem = Problem::new(span, message).related("captured here", known.span);
            return Err(problem.hint("in `sessions: 5/s` users arrive, make one journey and leave"));
        }
        if !known.is_visible {
            let problem = Problem::new(span, format!("`{name}` is used before any step captures it"));
            return Err(problem.related("captured here", known.span).hint("capture it in an earlier step"));
        }
        let is_number = known.is_number;
        self.names.uses_own_captures |= slot >= self.names.shared;
        Ok(Some(Variable::Capture { slot: slot as u16, is_number }))
    }

    /// Records the captures of some steps before any of these steps is read.
    pub fn note_captures<'n>(&mut self, steps: Option<&'n Node>) {
        let Some(Value::List(items)) = steps.map(|n| &n.value) else { return };
        let messages = |step: &'n Node| match step.get("messages").map(|n| &n.value) {
            Some(Value::List(messages)) => messages.as_slice(),
            _ => &[],
        };
        let all = items.iter().flat_map(|step| std::iter::once(step).chain(messages(step)));
        let maps = all.filter_map(|node| node.get("capture"));
        for entry in maps.flat_map(Node::entries) {
            self.note_capture(entry);
        }
    }

    fn note_capture(&mut self, entry: &Entry) {
        let is_number = entry.value.get("number").is_some_and(is_true);
        let name = entry.key.as_str();
        if let Some(feed) = self.names.feeds.iter().find(|f| f.name == name) {
            let problem = Problem::new(entry.key_span, format!("`{name}` is the name of a feed"));
            let problem = problem.related("the feed is here", feed.span);
            self.push(problem.hint("rename one of the two"));
            return;
        }
        match self.names.slot(name) {
            Some(slot) if slot < self.names.shared => {
                let problem =
                    Problem::new(entry.key_span, format!("`{name}` is already captured by `setup`"));
                let problem = problem.related("captured here", self.names.captures[slot].span);
                self.push(problem.hint("all users see that value: rename this one"));
            }
            Some(slot) if self.names.captures[slot].is_number != is_number => {
                let problem = Problem::new(
                    entry.key_span,
                    format!("`{name}` is a number in one place but not in the other"),
                );
                let problem = problem.related("the other one is here", self.names.captures[slot].span);
                self.push(problem.hint("use `number: true` in both, or another name"));
            }
            Some(_) => {}
            None => {
                if !self.check_variable(name, entry.key_span, "a captured value") {
                    return;
                }
                if self.names.captures.len() >= MAX_NAMES {
                    self.push(Problem::new(entry.key_span, format!("more than {MAX_NAMES} captured values")));
                    return;
                }
                let (name, span) = (name.to_owned(), entry.key_span);
                self.names.captures.push(KnownCapture { name, span, is_number, is_visible: false });
            }
        }
    }

    /// Whether a name is valid for a feed or a captured value.
    pub fn check_variable(&mut self, name: &str, span: Span, what: &str) -> bool {
        if !self.check_word(name, span, what) {
            return false;
        }
        if RESERVED.contains(&name) {
            let message = format!("`{name}` is not a valid name for {what}: it is reserved");
            self.push(Problem::new(span, message));
            return false;
        }
        true
    }
}

fn is_true(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar(_, text) if text == "true")
}

/// The text between the parentheses of `NAME(…)`.
fn call<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.strip_prefix(name)?.trim_start().strip_prefix('(')?.strip_suffix(')').map(str::trim)
}

fn bounds_of(text: &str) -> Result<Variable, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [low, high] = parts.as_slice() else { return Err("two bounds".to_owned()) };
    let whole =
        |part: &str| part.parse::<i64>().map_err(|_| format!("`{}` is not a whole number", shorten(part)));
    let (low, high) = (whole(low)?, whole(high)?);
    if low > high {
        return Err("the lower bound comes first".to_owned());
    }
    Ok(Variable::Random { low, high })
}
