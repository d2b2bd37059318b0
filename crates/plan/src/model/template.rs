//! Texts that contain `${names}`.
//!
//! What the plan itself determines (`case.*`, `replica`, `plan.dir`, fixed ports) is put in while the plan is expanded;
//! what only a run can know remains, and [`Template::render`] puts it in. Secrets from outside are also put in there,
//! and only their names are shown. `$${` is a literal `${`. There is no arithmetic and there are no conditions here.

use std::fmt;

use loadlab_record::spec::escape::Escape;
use loadlab_record::spec::variable::Variable;
use loadlab_record::text::url;

/// A text with names whose values a run provides.
///
/// The names that can remain are `run.dir`, `port`, `port.NAME`, `components.NAME.port` and
/// `components.NAME.port.PORT`, where NAME is that of a [`crate::ComponentSpec`] and a port is one without a number.
/// Texts of a journey's steps can also contain [`Variable`]s, which change from request to request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Name(String, Escape),
    Given(Given),
    Variable { variable: Variable, escape: Escape, written: String },
}

/// A value from outside, already escaped for its place.
#[derive(Clone, PartialEq, Eq)]
struct Given {
    value: String,
    /// A secret's name as shown, between `${` and `}`; `None` if the value may be shown.
    written: Option<String>,
}

impl Given {
    fn shown(&self) -> String {
        self.written.as_ref().map_or_else(|| self.value.clone(), |name| format!("${{{name}}}"))
    }
}

/// Shows no secret values.
impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Given({:?})", self.shown())
    }
}

/// A piece of a text written anew for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A text, to be escaped once.
    Text {
        /// The text.
        text: String,
        /// How it is escaped.
        escape: Escape,
    },
    /// A value that changes from request to request.
    Variable {
        /// Which variable.
        variable: Variable,
        /// The escaping that its place needs.
        escape: Escape,
    },
}

/// A name that the run has no value for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown name `${{{name}}}`")]
pub struct UnknownName {
    /// The name.
    pub name: String,
}

impl Template {
    /// A text without names; `${` in it is literal.
    pub fn text(text: impl Into<String>) -> Self {
        let mut template = Template::default();
        template.push_text(&text.into());
        template
    }

    /// The text with all names replaced.
    ///
    /// # Errors
    /// The first name that `value_of` does not know; any variable, see [`Template::resolve`].
    pub fn render(&self, value_of: &dyn Fn(&str) -> Option<String>) -> Result<String, UnknownName> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Given(given) => out.push_str(&given.value),
                TemplatePart::Name(name, _) => {
                    out.push_str(&value_of(name).ok_or_else(|| UnknownName { name: name.clone() })?);
                }
                TemplatePart::Variable { written, .. } => return Err(UnknownName { name: written.clone() }),
            }
        }
        Ok(out)
    }

    /// The text with all names replaced, in pieces: texts, and the variables between them.
    ///
    /// # Errors
    /// The first name that `value_of` does not know.
    pub fn resolve(&self, value_of: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Segment>, UnknownName> {
        let mut out = Vec::new();
        for part in &self.parts {
            out.push(match part {
                TemplatePart::Text(text) => Segment::Text { text: text.clone(), escape: Escape::Raw },
                TemplatePart::Given(given) => {
                    Segment::Text { text: given.value.clone(), escape: Escape::Raw }
                }
                TemplatePart::Name(name, escape) => {
                    let text = value_of(name).ok_or_else(|| UnknownName { name: name.clone() })?;
                    Segment::Text { text, escape: *escape }
                }
                TemplatePart::Variable { variable, escape, .. } => {
                    Segment::Variable { variable: *variable, escape: *escape }
                }
            });
        }
        Ok(out)
    }

    /// For people: names put in as far as known, variables and secrets as in the plan.
    pub fn shown(&self, value_of: &dyn Fn(&str) -> Option<String>) -> String {
        let part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Given(given) => given.shown(),
            TemplatePart::Name(name, _) => value_of(name).unwrap_or_else(|| format!("${{{name}}}")),
            TemplatePart::Variable { written, .. } => format!("${{{written}}}"),
        };
        self.parts.iter().map(part).collect()
    }

    /// The variables in it, in order, including repetitions.
    pub fn variables(&self) -> impl Iterator<Item = Variable> {
        self.parts.iter().filter_map(|p| match p {
            TemplatePart::Variable { variable, .. } => Some(*variable),
            _ => None,
        })
    }

    /// The text with given values and placeholders for all names and variables, and where the first variable begins.
    pub(crate) fn sample(&self) -> (String, Option<(usize, Escape)>) {
        let (mut out, mut first) = (String::new(), None);
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Given(given) => out.push_str(&given.value),
                TemplatePart::Name(..) => out.push('1'),
                TemplatePart::Variable { escape, .. } => {
                    first = first.or(Some((out.len(), *escape)));
                    out.push('1');
                }
            }
        }
        (out, first)
    }

    /// A URL whose first variable follows the host directly, and is the whole path and query.
    pub(crate) fn starting_at_path(mut self) -> Template {
        let first = self.parts.iter_mut().find_map(|p| match p {
            TemplatePart::Variable { escape, .. } => Some(escape),
            _ => None,
        });
        if let Some(escape) = first {
            *escape = Escape::UrlTarget;
        }
        self
    }

    /// A URL whose path and query are a cell of the user's row: `feed` and `column` are numbered as in
    /// [`Variable::Feed`]. `written` is its shown form.
    pub fn with_target(base: &str, feed: u16, column: u16, written: &str) -> Template {
        let mut template = Template::text(base);
        template.push_variable(Variable::Feed { feed, column }, Escape::UrlTarget, written);
        template
    }

    /// Whether it is one variable and nothing else.
    pub(crate) fn as_variable(&self) -> Option<Variable> {
        match self.parts.as_slice() {
            [TemplatePart::Variable { variable, .. }] => Some(*variable),
            _ => None,
        }
    }

    /// The text, if no names remain in it.
    pub fn as_text(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text up to the first variable, with secrets put in, if no names remain before it: for a URL, this includes
    /// the host.
    pub fn until_variable(&self) -> Option<String> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Given(given) => out.push_str(&given.value),
                TemplatePart::Variable { .. } => break,
                TemplatePart::Name(..) => return None,
            }
        }
        let starts_late = matches!(self.parts.first(), Some(TemplatePart::Variable { .. }));
        (!starts_late).then_some(out)
    }

    /// A URL's path and query as in the plan, for people, without scheme, user, host and port. A secret that may
    /// contain more than a host is shown by its name.
    pub(crate) fn target_shown(&self) -> String {
        let (mut beginning, mut out, mut is_behind) = (String::new(), String::new(), false);
        for part in &self.parts {
            let (text, shown) = match part {
                TemplatePart::Text(text) => (text.as_str(), None),
                TemplatePart::Given(given) => (given.value.as_str(), given.written.as_ref()),
                TemplatePart::Name(name, _) => ("1", Some(name)),
                TemplatePart::Variable { written, .. } => {
                    // Variables come only after the host.
                    is_behind = true;
                    ("", Some(written))
                }
            };
            let before = beginning.len();
            beginning.push_str(text);
            let Some(at) = (if is_behind { Some(before) } else { path_at(&beginning) }) else { continue };
            is_behind = true;
            match shown {
                Some(name) => out.push_str(&format!("${{{name}}}")),
                None => out.push_str(&beginning[at.max(before)..]),
            }
        }
        if out.starts_with(['/', '$']) { out } else { format!("/{out}") }
    }

    /// The remaining names, in order, including repetitions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|p| match p {
            TemplatePart::Name(name, _) => Some(name.as_str()),
            _ => None,
        })
    }

    pub(crate) fn push_text(&mut self, text: &str) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(TemplatePart::Text(last)) => last.push_str(text),
            _ => self.parts.push(TemplatePart::Text(text.to_owned())),
        }
    }

    pub(crate) fn push_name(&mut self, name: &str, escape: Escape) {
        self.parts.push(TemplatePart::Name(name.to_owned(), escape));
    }

    /// `written` is a secret's shown form.
    pub(crate) fn push_given(&mut self, value: String, written: Option<String>) {
        self.parts.push(TemplatePart::Given(Given { value, written }));
    }

    pub(crate) fn push_variable(&mut self, variable: Variable, escape: Escape, written: &str) {
        self.parts.push(TemplatePart::Variable { variable, escape, written: written.to_owned() });
    }

    /// Appends another template, with its texts changed by `f`: for templates inside JSON or a form.
    pub(crate) fn push_mapped(&mut self, other: &Template, f: &dyn Fn(&str) -> String) {
        for part in &other.parts {
            match part {
                TemplatePart::Text(text) => self.push_text(&f(text)),
                other => self.parts.push(other.clone()),
            }
        }
    }
}

/// Where the path or query begins in a URL, or in the beginning of one; `None` without a scheme. It need not be valid
/// yet: a `#` ends nothing, since it may be in a proxy's password, and is refused elsewhere; what a socket is asked for
/// must begin with `/`.
pub(crate) fn path_at(url: &str) -> Option<usize> {
    if let Some(rest) = url::unix_socket(url) {
        // `/PATH:/URI`
        return rest.find(":/").map(|colon| url.len() - rest.len() + colon + 1);
    }
    let host_at = url.find("://")? + 3;
    url[host_at..].find(['/', '?']).map(|at| host_at + at)
}

/// As a person would write it: names and secrets as `${name}`.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => f.write_str(text)?,
                TemplatePart::Given(given) => f.write_str(&given.shown())?,
                TemplatePart::Name(name, _) => write!(f, "${{{name}}}")?,
                TemplatePart::Variable { written, .. } => write!(f, "${{{written}}}")?,
            }
        }
        Ok(())
    }
}

/// A piece of a text as in the plan.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    /// The text between `${` and `}`.
    Name(&'a str),
}

/// What is wrong with the braces of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BraceError {
    /// `${` without `}`.
    Open,
    /// `${}`.
    Empty,
}

/// Splits a text into pieces.
pub(crate) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, BraceError> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        // `$${`: one dollar is dropped, the rest stays as it is, including a closing brace.
        if at > 0 && rest.as_bytes()[at - 1] == b'$' {
            out.push(Piece::Text(&rest[..at - 1]));
            out.push(Piece::Text("${"));
            rest = &rest[at + 2..];
            continue;
        }
        let close = rest[at..].find('}').ok_or(BraceError::Open)?;
        let name = rest[at + 2..at + close].trim();
        if name.is_empty() {
            return Err(BraceError::Empty);
        }
        out.push(Piece::Text(&rest[..at]));
        out.push(Piece::Name(name));
        rest = &rest[at + close + 1..];
    }
    out.push(Piece::Text(rest));
    out.retain(|p| *p != Piece::Text(""));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match pieces(text) {
            Err(e) => format!("{e:?}"),
            Ok(list) => list
                .iter()
                .map(|p| match p {
                    Piece::Text(t) => format!("[{t}]"),
                    Piece::Name(n) => format!("<{n}>"),
                })
                .collect(),
        }
    }

    #[test]
    fn templates_are_parsed() {
        for (text, expect) in [
            ("", ""),
            ("plain $5 {x}", "[plain $5 {x}]"),
            ("${a}", "<a>"),
            ("x${ a.b }y${c}", "[x]<a.b>[y]<c>"),
            ("$${HOME}/x", "[${][HOME}/x]"),
            ("a$${b}${c}", "[a][${][b}]<c>"),
            ("${a", "Open"),
            ("${}", "Empty"),
            ("$", "[$]"),
        ] {
            assert_eq!(shown(text), expect, "{text}");
        }
    }

    #[test]
    fn names_are_put_in_at_run_time() {
        let mut template = Template::text("http://127.0.0.1:");
        template.push_name("port", Escape::Raw);
        template.push_text("/x");
        assert_eq!(template.as_text(), None);
        assert_eq!(template.names().collect::<Vec<_>>(), ["port"]);
        assert_eq!(template.to_string(), "http://127.0.0.1:${port}/x");
        let known = |n: &str| (n == "port").then(|| "80".to_owned());
        assert_eq!(template.render(&known).as_deref(), Ok("http://127.0.0.1:80/x"));
        let error = template.render(&|_| None).unwrap_err();
        assert_eq!(error.to_string(), "unknown name `${port}`");
        assert_eq!(Template::text("${x}").render(&known).as_deref(), Ok("${x}"));
        assert_eq!(template.until_variable(), None);
        let mut template = Template::text("http://127.0.0.1/");
        template.push_variable(Variable::User, Escape::Url, "user");
        assert_eq!(
            (template.as_text(), template.until_variable()),
            (None, Some("http://127.0.0.1/".to_owned()))
        );
    }
}
