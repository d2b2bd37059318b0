//! Reads typed values from nodes, and collects mistakes instead of stopping at the first.
//!
//! A reader belongs to one case: it puts the case's values in before it reads a number or a unit, and a mistake in
//! such a value is shown in the matrix and at the place that uses it. If the matrix itself is broken, values that
//! depend on it are skipped, so that everything else is still checked.

use std::collections::BTreeSet;

use loadlab_record::spec::escape::Escape;

use crate::keys::{Section, other_tools, renamed};
use crate::model::case_values::CaseValues;
use crate::model::plan::Revision;
use crate::model::template::{BraceError, Piece, Template, pieces};
use crate::outside::{self, Outside};
use crate::read::names::{NameMeaning, Names};
use crate::text::error::{Problem, Problems};
use crate::text::node::{Entry, Node, ScalarKind, Value};
use crate::text::shorten::shorten;
use crate::text::source::Sources;
use crate::text::span::Span;
use crate::text::suggest;

/// A scalar with the case's values in it.
#[derive(Clone, Debug)]
pub(crate) struct Scalar {
    pub text: String,
    pub kind: ScalarKind,
    /// Where the scalar is used.
    pub span: Span,
    /// Where the value is in the matrix.
    pub origin: Option<Span>,
}

/// Which names a text may keep for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// No names: the text is needed while the plan is checked.
    Now,
    /// The run's folder and ports.
    Run,
    /// As `Run`, in a URL: what comes from outside is encoded.
    Url,
    /// As `Run`, and variables that change from request to request, escaped for their place.
    Request(Escape),
}

/// A port as templates see it.
#[derive(Clone, Debug)]
pub(crate) struct KnownPort {
    /// `port` or `port.NAME`.
    pub variable: String,
    pub number: Option<u16>,
}

/// A running component as templates see it.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// Name of the replica: `edge2`.
    pub name: String,
    /// Name of the component: `edge`.
    pub group: String,
    pub replica: u32,
    pub ports: Vec<KnownPort>,
}

/// The inputs that all cases share.
#[derive(Clone, Copy)]
pub(crate) struct SharedInputs<'a> {
    pub sources: &'a Sources,
    pub plan_dir: &'a str,
    /// Where revisions are checked out, for those that the plan names.
    pub revisions: &'a [Revision],
    /// Values of `${env.…}` and `${file:…}`.
    pub outside: &'a Outside,
    /// See [`crate::Options::is_search`].
    pub is_search: bool,
    /// Whether missing values are allowed.
    pub is_lenient: bool,
}

/// The case being read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope<'a> {
    Case(&'a CaseValues),
    /// What is common to all cases.
    AllCases,
    /// The matrix is broken: everything that depends on it is skipped.
    Unknown,
}

/// The meaning of a name.
enum Meaning {
    Value { text: String, kind: ScalarKind, origin: Option<Span> },
    Later,
    Unknown,
}

/// A resolved text.
pub(crate) struct Resolved {
    pub template: Template,
    pub kind: ScalarKind,
    /// Where the value is in the matrix.
    pub origin: Option<Span>,
    /// Whether nothing was wrong.
    pub whole: bool,
}

pub(crate) struct Reader<'a> {
    pub sources: &'a Sources,
    pub problems: Problems,
    pub plan_dir: &'a str,
    /// See [`SharedInputs`].
    pub revisions: &'a [Revision],
    pub scope: Scope<'a>,
    /// All components of this case.
    pub instances: Vec<Instance>,
    /// The component being read: its index in `instances`.
    pub own: Option<usize>,
    /// Names of the probes of this case.
    pub probes: Vec<String>,
    /// `${requests}` of the command being read.
    pub requests: Option<u64>,
    /// `${value}` of the lever being read.
    pub value: Option<u64>,
    /// Where a value of the case was put in since this was last reset to `None`.
    pub used_case: Option<Span>,
    /// The same for `cpuset`, which cannot be changed while a component runs.
    pub used_case_for_cores: Option<Span>,
    /// Number of values read for replicas, to limit the total over all cases.
    pub cost: usize,
    /// Variables that the current step may use.
    pub names: Names,
    /// See [`SharedInputs`].
    pub outside: &'a Outside,
    /// See [`SharedInputs`].
    pub is_search: bool,
    /// See [`SharedInputs`].
    pub is_lenient: bool,
    /// Values that must not be shown.
    pub secrets: BTreeSet<String>,
    /// Where a secret was put in since this was last reset to `None`.
    pub used_secret: Option<Span>,
}

/// A map that has only keys of its section.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'n> {
    pub section: &'static Section,
    entries: &'n [Entry],
    /// Where to report that something is missing.
    pub at: Span,
}

impl<'n> Fields<'n> {
    /// Takes a node without any checks, for a first look.
    pub fn of(node: &'n Node, section: &'static Section, at: Span) -> Self {
        Fields { section, entries: node.entries(), at }
    }

    pub fn get(&self, name: &str) -> Option<&'n Node> {
        self.entry(name).map(|e| &e.value)
    }

    pub fn entry(&self, name: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|e| e.key == name)
    }

    /// Its entries, in order.
    pub fn entries(&self) -> &'n [Entry] {
        self.entries
    }

    pub fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    pub fn key_span(&self, name: &str) -> Span {
        self.entry(name).map_or(self.at, |e| e.key_span)
    }
}

/// The place of a name in a text.
pub(crate) struct NameSpot<'s> {
    /// The text.
    pub node: &'s Node,
    /// The text between the braces.
    pub name: &'s str,
    pub when: When,
    /// Where the text is in the matrix, if the name comes from the case.
    pub origin: Option<Span>,
    /// Whether an `@` follows: at the beginning of a URL, the name is then user or password.
    pub is_user: bool,
}

impl<'a> Reader<'a> {
    pub fn new(from: SharedInputs<'a>, scope: Scope<'a>) -> Self {
        let SharedInputs { sources, plan_dir, revisions, outside, is_search, is_lenient } = from;
        Reader {
            sources,
            revisions,
            outside,
            is_search,
            is_lenient,
            secrets: BTreeSet::new(),
            used_secret: None,
            problems: Problems::default(),
            plan_dir,
            names: Names::default(),
            scope,
            instances: Vec::new(),
            own: None,
            probes: Vec::new(),
            requests: None,
            value: None,
            used_case: None,
            used_case_for_cores: None,
            cost: 0,
        }
    }

    /// The inputs of this reader, for another one.
    pub fn from(&self) -> SharedInputs<'a> {
        let &Reader { sources, plan_dir, revisions, outside, is_search, is_lenient, .. } = self;
        SharedInputs { sources, plan_dir, revisions, outside, is_search, is_lenient }
    }

    pub fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Reports a mistake in a scalar: in the matrix if the scalar came from there.
    pub fn wrong(&mut self, scalar: &Scalar, message: impl Into<String>, hint: Option<String>) {
        let problem = match (scalar.origin, self.scope) {
            (Some(origin), Scope::Case(case)) => Problem::new(origin, message)
                .related(format!("used here, in case `{}`", case.name), scalar.span),
            _ => Problem::new(scalar.span, message),
        };
        self.push(problem.maybe_hint(hint));
    }

    /// The entries of a map with free keys.
    pub fn map<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Entry] {
        match &node.value {
            Value::Map(entries) => entries,
            _ => {
                let message = format!("expected {what}, found {}", node.called());
                self.push(Problem::new(node.span, message));
                &[]
            }
        }
    }

    /// The items of a list.
    pub fn list<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        match &node.value {
            Value::List(items) => items,
            _ => {
                let message = format!("expected {what}, found {}", node.called());
                self.push(
                    Problem::new(node.span, message)
                        .hint("a list is written `[a, b]`, or one `- item` a line"),
                );
                &[]
            }
        }
    }

    /// A map with the keys of a section: reports unknown, missing or excess ones.
    pub fn fields<'n>(&mut self, node: &'n Node, section: &'static Section, at: Span) -> Option<Fields<'n>> {
        let Value::Map(entries) = &node.value else {
            let keys = suggest::listed(&section.names());
            let message = format!("expected a map for {}, found {}", section.called, node.called());
            let span = if node.is_null() { at } else { node.span };
            self.push(Problem::new(span, message).hint(format!("its keys are {keys}")));
            return None;
        };
        // If it contains an unknown key, a key that seems to be missing may be that one.
        let mut whole = true;
        for entry in entries.iter().filter(|e| section.key(&e.key).is_none()) {
            whole = false;
            self.unknown_key(entry, section);
        }
        self.check_groups(entries, section, at, whole);
        let has = |name: &str| entries.iter().find(|e| e.key == name);
        for need in section.needs {
            let met = need.needs.iter().any(|name| has(name).is_some());
            if let (Some(entry), false, true) = (has(need.key), met, whole) {
                let message = format!("`{}` needs `{}`, which is missing", need.key, need.needs[0]);
                self.push(Problem::new(entry.key_span, message).hint(need.hint));
            }
        }
        for name in section.required {
            if whole && !entries.iter().any(|e| e.key == *name) {
                self.push(
                    Problem::new(at, format!("{} needs `{name}`", section.called))
                        .hint(doc_of(section, name)),
                );
            }
        }
        Some(Fields { section, entries, at })
    }

    fn unknown_key(&mut self, entry: &Entry, section: &'static Section) {
        // Searching for what was meant is the slow part, and nobody reads more than a screenful.
        if self.problems.is_full() {
            return;
        }
        if let Some(to) = renamed::key(section, &entry.key) {
            let message = format!("`{}` of {} was renamed to `{to}`", entry.key, section.called);
            self.push(Problem::new(entry.key_span, message).hint(doc_of(section, to)));
            return;
        }
        let allowed = section.names();
        let near = suggest::nearest(&entry.key, allowed.iter().copied());
        let place = crate::keys::SECTIONS.iter().find(|s| s.key(&entry.key).is_some());
        let hint = match (near, place) {
            _ if let Some(meant) = other_tools::hint(section, &entry.key) => Some(meant.to_owned()),
            (Some(name), _) => Some(format!("did you mean `{name}`?")),
            (None, Some(place)) => Some(format!("`{}` is a key of {}", entry.key, place.called)),
            (None, None) => suggest::hint(&entry.key, &allowed),
        };
        let message = format!("unknown key `{}` in {}", shorten(&entry.key), section.called);
        self.push(Problem::new(entry.key_span, message).maybe_hint(hint));
    }

    fn check_groups(&mut self, entries: &[Entry], section: &'static Section, at: Span, whole: bool) {
        for group in section.groups {
            let present: Vec<&Entry> =
                entries.iter().filter(|e| group.keys.contains(&e.key.as_str())).collect();
            match present.as_slice() {
                [] if whole => {
                    let keys = suggest::listed(group.keys);
                    self.push(
                        Problem::new(at, format!("{} needs one of {keys}", section.called)).hint(group.why),
                    );
                }
                [first, second, ..] => {
                    let message = format!("`{}` and `{}` cannot be combined", first.key, second.key);
                    let problem = Problem::new(second.key_span, message).hint(group.why);
                    self.push(problem.related(format!("`{}` is here", first.key), first.key_span));
                }
                _ => {}
            }
        }
    }

    /// Reads any scalar with the case's values in it; `what` states what was expected, with its article.
    pub fn scalar(&mut self, node: &Node, what: &str) -> Option<Scalar> {
        let Value::Scalar(kind, text) = &node.value else {
            self.push(Problem::new(node.span, format!("expected {what}, found {}", node.called())));
            return None;
        };
        if *kind == ScalarKind::Null {
            self.push(Problem::new(node.span, format!("expected {what}, found nothing")));
            return None;
        }
        let Resolved { template, kind, origin, .. } = self.resolve(node, *kind, text, When::Now)?;
        let text = template.as_text()?.to_owned();
        Some(Scalar { text, kind, span: node.span, origin })
    }

    /// Reads a text that may keep names for the run.
    pub fn template(&mut self, node: &Node, what: &str) -> Option<Template> {
        match &node.value {
            Value::Scalar(kind, text) if *kind != ScalarKind::Null => {
                Some(self.resolve(node, *kind, text, When::Run)?.template)
            }
            _ => {
                self.push(Problem::new(node.span, format!("expected {what}, found {}", node.called())));
                None
            }
        }
    }

    /// Reads a URL that may keep names for the run.
    pub fn url_text(&mut self, node: &Node) -> Option<Template> {
        match &node.value {
            Value::Scalar(kind, text) if *kind != ScalarKind::Null => {
                Some(self.resolve(node, *kind, text, When::Url)?.template)
            }
            _ => {
                self.push(Problem::new(node.span, format!("expected a URL, found {}", node.called())));
                None
            }
        }
    }

    /// Reads a text of a request, with its variables escaped for their place.
    pub fn request_text(&mut self, node: &Node, what: &str, escape: Escape) -> Option<Template> {
        match &node.value {
            Value::Scalar(kind, text) if *kind != ScalarKind::Null => {
                Some(self.resolve(node, *kind, text, When::Request(escape))?.template)
            }
            _ => {
                self.push(Problem::new(node.span, format!("expected {what}, found {}", node.called())));
                None
            }
        }
    }

    /// Puts in known values; `None` if something is wrong, or if the matrix is broken and the value depends on it.
    pub fn resolve(&mut self, node: &Node, kind: ScalarKind, text: &str, when: When) -> Option<Resolved> {
        let list = self.pieces_of(node, text)?;
        let mut out = Resolved { template: Template::default(), kind, origin: None, whole: true };
        for (i, piece) in list.iter().enumerate() {
            match piece {
                Piece::Text(text) => out.template.push_text(text),
                Piece::Name(name) => {
                    let behind = list[i + 1..].iter().find_map(|piece| match piece {
                        Piece::Text(text) => text.find(['@', '/', '?', '#']).map(|at| text.as_bytes()[at]),
                        Piece::Name(_) => None,
                    });
                    let is_user = behind == Some(b'@');
                    let spot = NameSpot { node, name, when, origin: None, is_user };
                    self.put(&spot, list.len() == 1, &mut out);
                }
            }
        }
        out.whole.then_some(out)
    }

    fn pieces_of<'t>(&mut self, node: &Node, text: &'t str) -> Option<Vec<Piece<'t>>> {
        let (message, hint) = match pieces(text) {
            Ok(list) => return Some(list),
            Err(BraceError::Open) => ("`${` without a `}`", "for a plain `${` write `$${`"),
            Err(BraceError::Empty) => ("`${}` is empty", "for a plain `${}` write `$${}`"),
        };
        self.push(Problem::new(self.inner_span(node, "${"), message).hint(hint));
        None
    }

    /// Puts in the value of one name, as far as it is known.
    fn put(&mut self, spot: &NameSpot<'_>, is_all: bool, out: &mut Resolved) {
        let NameSpot { node, name, when, .. } = *spot;
        if let Some(asked) = outside::asked(name) {
            return self.put_outside(asked, spot, out);
        }
        if let When::Request(escape) = when {
            match self.word(node, name, escape) {
                NameMeaning::Variable(variable, escape) => {
                    out.template.push_variable(variable, escape, name);
                    out.kind = ScalarKind::Text;
                    return;
                }
                NameMeaning::Wrong => {
                    out.whole = false;
                    return;
                }
                NameMeaning::Other => {}
            }
        }
        match self.meaning(name) {
            Meaning::Value { text, kind, origin } => {
                if origin.is_some() {
                    out.origin = out.origin.or(origin);
                    self.used_case = Some(node.span);
                }
                out.kind = if is_all { kind } else { ScalarKind::Text };
                self.put_value(&text, NameSpot { origin, ..*spot }, out);
            }
            Meaning::Later if when != When::Now => {
                let escape = if let When::Request(escape) = when { escape } else { Escape::Raw };
                out.template.push_name(name, escape);
            }
            Meaning::Later => {
                let message =
                    format!("`${{{name}}}` is known only while the system runs, but this is needed earlier");
                self.push(Problem::new(self.inner_span(node, name), message));
                out.whole = false;
            }
            Meaning::Unknown => {
                out.whole = false;
                self.unknown_name(node, name, when);
            }
        }
    }

    /// Puts in a value; one from the matrix may ask for something outside.
    fn put_value(&mut self, text: &str, spot: NameSpot<'_>, out: &mut Resolved) {
        if spot.origin.is_none() || !text.contains("${") || !outside::is_outside_only(text) {
            return out.template.push_text(text);
        }
        for piece in pieces(text).unwrap_or_default() {
            match piece {
                Piece::Text(text) => out.template.push_text(text),
                Piece::Name(name) => {
                    if let Some(asked) = outside::asked(name) {
                        self.put_outside(asked, &NameSpot { name, ..spot }, out);
                    }
                }
            }
        }
    }

    fn meaning(&self, name: &str) -> Meaning {
        let value = |text: String| Meaning::Value { text, kind: ScalarKind::Text, origin: None };
        if let Some(axis) = name.strip_prefix("case.") {
            let Scope::Case(case) = self.scope else { return Meaning::Unknown };
            if axis == "name" {
                return Meaning::Value {
                    text: case.name.clone(),
                    kind: ScalarKind::Text,
                    origin: Some(case.span),
                };
            }
            return case.values.iter().find(|v| v.axis == axis).map_or(Meaning::Unknown, |v| {
                Meaning::Value { text: v.text.clone(), kind: v.kind, origin: Some(v.span) }
            });
        }
        let own = self.own.and_then(|i| self.instances.get(i));
        let port = |ports: &[KnownPort], variable: &str| match ports.iter().find(|p| p.variable == variable) {
            Some(KnownPort { number: Some(n), .. }) => {
                Meaning::Value { text: n.to_string(), kind: ScalarKind::Number, origin: None }
            }
            Some(_) => Meaning::Later,
            None => Meaning::Unknown,
        };
        match (name, own) {
            ("requests" | "value", None) => {
                let number = if name == "value" { self.value } else { self.requests };
                number.map_or(Meaning::Unknown, |n| Meaning::Value {
                    text: n.to_string(),
                    kind: ScalarKind::Number,
                    origin: None,
                })
            }
            ("plan.dir", _) => value(self.plan_dir.to_owned()),
            ("run.dir", _) => Meaning::Later,
            ("replica", Some(own)) => {
                Meaning::Value { text: own.replica.to_string(), kind: ScalarKind::Number, origin: None }
            }
            _ => match name.strip_prefix("components.").and_then(|n| n.split_once('.')) {
                Some((instance, variable)) => self
                    .instances
                    .iter()
                    .find(|i| i.name == instance)
                    .map_or(Meaning::Unknown, |i| port(&i.ports, variable)),
                None => own.map_or(Meaning::Unknown, |own| port(&own.ports, name)),
            },
        }
    }

    fn unknown_name(&mut self, node: &Node, name: &str, when: When) {
        let hangs_on_matrix = name.starts_with("case.") && matches!(self.scope, Scope::Unknown);
        if hangs_on_matrix || self.problems.is_full() {
            return;
        }
        if name.starts_with("case.") && matches!(self.scope, Scope::AllCases) {
            let problem = Problem::new(self.inner_span(node, name), "this is the same for all cases");
            self.push(problem.hint("`${case.…}` can be used in `system`, in loads and in conditions"));
            return;
        }
        let known = self.known_names(when);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let group = name.strip_prefix("components.").and_then(|n| n.split('.').next());
        let several =
            self.instances.iter().find(|i| Some(i.group.as_str()) == group && Some(i.name.as_str()) != group);
        let hint = if let Some(first) = several {
            format!("there are several: choose one, such as `${{components.{}.port}}`", first.name)
        } else if let Some(near) = suggest::nearest(name, known.iter().copied()) {
            format!("did you mean `${{{near}}}`?")
        } else if !name.contains('.') && name != "port" && name != "replica" {
            let name = shorten(name);
            format!(
                "known here: {}; for the shell's own `${{{name}}}` write `$${{{name}}}`",
                suggest::listed(&known)
            )
        } else if name == "port" && self.own.is_some() {
            "give the component `port: auto`, or a number".to_owned()
        } else {
            format!("known here: {}", suggest::listed(&known))
        };
        let message = format!("unknown name `${{{}}}`", shorten(name));
        self.push(Problem::new(self.inner_span(node, name), message).hint(hint));
    }

    fn known_names(&self, when: When) -> Vec<String> {
        let mut names = Vec::new();
        if let Scope::Case(case) = self.scope {
            names.extend(case.values.iter().map(|v| format!("case.{}", v.axis)));
            names.push("case.name".to_owned());
        }
        names.push("plan.dir".to_owned());
        names.extend(self.requests.map(|_| "requests".to_owned()));
        names.extend(self.value.map(|_| "value".to_owned()));
        if let Some(own) = self.own.and_then(|i| self.instances.get(i)) {
            names.push("replica".to_owned());
            names.extend(own.ports.iter().map(|p| p.variable.clone()));
        }
        if when != When::Now {
            names.push("run.dir".to_owned());
            let ports = self.instances.iter().flat_map(|i| i.ports.iter().map(move |p| (i, p)));
            names.extend(ports.map(|(i, p)| format!("components.{}.{}", i.name, p.variable)));
        }
        if matches!(when, When::Request(_)) {
            names.extend(self.names.known());
        }
        names
    }

    /// The part of a scalar that equals `inner`, or all of it if escapes or folding hide it.
    pub fn inner_span(&self, node: &Node, inner: &str) -> Span {
        let text = self.sources.slice(node.span);
        match text.find(inner) {
            Some(at) if !inner.is_empty() => {
                let start = node.span.start + at as u32;
                Span { start, end: start + inner.len() as u32, ..node.span }
            }
            _ => node.span,
        }
    }
}

fn doc_of(section: &Section, name: &str) -> String {
    let doc = section.key(name).map_or("", |k| k.doc).trim_end_matches('.');
    match (doc.chars().next(), doc.chars().nth(1)) {
        // A word in capitals stays unchanged.
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            format!("{}{}", first.to_lowercase(), &doc[first.len_utf8()..])
        }
        _ => doc.to_owned(),
    }
}
