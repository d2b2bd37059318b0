//! Reads `figures`: names for the numbers that matter. Their language is that of conditions.

use loadlab_record::documents::figure::{Better, NumberKind};
use loadlab_record::expr::{self, ExprError, Figure, Formula, NameRef, TrialPart};
use loadlab_record::text::units::{format_duration_ns, plural};

use crate::keys;
use crate::model::spec::FigureSpec;
use crate::read::reader::{Fields, Reader, Scalar};
use crate::text::error::Problem;
use crate::text::node::{Entry, Node, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;
use crate::text::suggest::listed;

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 80;
/// Maximum length of a unit, in characters.
const MAX_UNIT: usize = 20;

/// Names that a case knows, and their kinds.
pub(crate) struct Known {
    /// All names but the built-in ones.
    pub names: Vec<String>,
    /// The probes, whose names may look like other names.
    pub probes: Vec<String>,
    /// The plan's figures read so far.
    pub figures: Vec<Figure>,
    /// The kind of `capacity`, if the plan searches for it.
    pub capacity: Option<NumberKind>,
    /// Names that have no value in this case, since it lacks what they need.
    pub missing: Vec<NameRequirement>,
    /// Batches of the load that has most of them; of a level of a search, which has one.
    pub batches: u32,
    /// Whether conditions are about levels of a search.
    pub is_search: bool,
    /// When the last load ends by its plan, in seconds; `None` if that is unknown.
    pub end_s: Option<f64>,
}

/// What some names lack to have a value.
pub(crate) struct NameRequirement {
    pub names: &'static [&'static str],
    /// The section of the plan that gives them one.
    pub section: &'static str,
    /// Why they have none.
    pub why: String,
    /// What would help.
    pub hint: &'static str,
}

impl Known {
    /// A name's kind.
    pub fn kind(&self, name: &str) -> Option<NumberKind> {
        if let Some(figure) = self.figures.iter().find(|f| f.name == name) {
            return Some(figure.kind);
        }
        if let ("capacity", Some(kind)) = (name, self.capacity) {
            return Some(kind);
        }
        let is_probe = self.probes.iter().any(|probe| expr::probe_names(probe).iter().any(|n| n == name));
        if is_probe && expr::built_in_kind(name).is_none() {
            Some(NumberKind::Plain)
        } else {
            expr::kind_of(name)
        }
    }

    /// Reports a figure with a part of the trial: figures are for whole trials.
    pub fn check_parts(&self, asked: &[NameRef]) -> Result<(), ExprError> {
        let is_figure = |name: &&NameRef| {
            let is_name = self.names.contains(&name.text) || expr::built_in_kind(&name.text).is_some();
            !is_name && self.figures.iter().any(|f| f.name == name.text)
        };
        match asked.iter().find(|name| name.part.is_some() && is_figure(name)) {
            Some(name) => Err(ExprError {
                message: format!("`{}` is a figure of whole trials, not of parts", shorten(&name.text)),
                at: name.at,
                len: name.len,
                hint: Some("put the part behind the names in its definition".to_owned()),
            }),
            None => Ok(()),
        }
    }

    /// Reports a name or a batch that has no value in any trial: a condition on it could never be decided.
    pub fn check_needs(&self, asked: &[NameRef]) -> Result<(), ExprError> {
        for name in asked {
            let error = |message, hint| ExprError { message, at: name.at, len: name.len, hint: Some(hint) };
            let is_of_drain =
                |need: &NameRequirement| need.section == "drain" && name.part == Some(TrialPart::Drain);
            let needs =
                |need: &&NameRequirement| need.names.contains(&name.text.as_str()) || is_of_drain(need);
            if let Some(need) = self.missing.iter().find(needs) {
                let message = format!("`{}` has no value: {}", shorten(&name.text), need.why);
                return Err(error(message, need.hint.to_owned()));
            }
        }
        self.check_windows(asked)?;
        let beyond = |name: &&NameRef| matches!(name.part, Some(TrialPart::Batch(n)) if n > self.batches);
        let Some(name) = asked.iter().find(beyond) else { return Ok(()) };
        let (message, hint) = match self.is_search {
            true => ("a level of a search has only 1 batch".to_owned(), "leave the batch out"),
            false => (
                format!("the load has only {}", plural(u64::from(self.batches), "batch", "batches")),
                "batches are numbered from 1; `batches` of the load says how many there are",
            ),
        };
        Err(ExprError { message, at: name.at, len: name.len, hint: Some(hint.to_owned()) })
    }

    /// Reports figures of the load in a window that begins when it has ended. What components used, and what probes
    /// read, may be asked for later times as well.
    fn check_windows(&self, asked: &[NameRef]) -> Result<(), ExprError> {
        let Some(end_s) = self.end_s else { return Ok(()) };
        let beyond = |name: &&NameRef| {
            let is_late = matches!(name.part, Some(TrialPart::Window(w)) if w.from_s >= end_s);
            is_late && is_of_load(&name.text)
        };
        match asked.iter().find(beyond) {
            Some(name) => Err(ExprError {
                message: format!("`{}` is asked for a time after the load", shorten(&name.text)),
                at: name.at,
                len: name.len,
                hint: Some(format!("the load ends after {}", format_duration_ns(end_s * 1e9))),
            }),
            None => Ok(()),
        }
    }

    /// Reports `steady` for anything but a probe: steadiness is known only for probes.
    pub fn check_steady(&self, asked: &[NameRef]) -> Result<(), ExprError> {
        match asked.iter().find(|name| !self.probes.contains(&name.text)) {
            Some(name) => Err(ExprError {
                message: format!("`steady` takes a probe, and `{}` is not one", shorten(&name.text)),
                at: name.at,
                len: name.len,
                hint: Some(match self.probes.as_slice() {
                    [] => "probes are declared in `probes`".to_owned(),
                    probes => format!(
                        "declared probes: {}",
                        listed(&probes.iter().map(String::as_str).collect::<Vec<_>>())
                    ),
                }),
            }),
            None => Ok(()),
        }
    }

    /// Names that conditions may use.
    pub fn all_names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).chain(self.figures.iter().map(|f| f.name.as_str())).collect()
    }
}

/// Whether a name is about the load: it has no value in a part of the trial after it.
pub(crate) fn is_of_load(name: &str) -> bool {
    ["tag.", "number."].iter().any(|prefix| name.starts_with(prefix)) || expr::built_in_kind(name).is_some()
}

/// Reads all figures in order. A figure may use those before it, which are added to `known` as they are read; without
/// `known`, something else is wrong with the plan, and names cannot be checked.
pub(crate) fn read(
    r: &mut Reader<'_>,
    fields: &Fields<'_>,
    mut known: Option<&mut Known>,
) -> Vec<FigureSpec> {
    let Some(node) = fields.get("figures") else { return Vec::new() };
    let mut all = Vec::new();
    for entry in r.map(node, "a map of figures by name, such as `{ peak memory: service.memory.max }`") {
        check_name(r, entry);
        let (value, own) = match &entry.value.value {
            Value::Map(_) => match r.fields(&entry.value, &keys::FIGURE, entry.key_span) {
                Some(own) => (own.get("value"), Some(own)),
                None => continue,
            },
            _ => (Some(&entry.value), None),
        };
        let Some((node, scalar)) =
            value.and_then(|n| Some((n, r.scalar(n, "a number such as `p99` or `db.cpu_time / ok`")?)))
        else {
            continue;
        };
        let checked = Formula::parse(&scalar.text).and_then(|formula| match known.as_deref() {
            Some(known) => Ok((check(&formula, known, &entry.key)?, formula)),
            None => Ok((NumberKind::Plain, formula)),
        });
        let (kind, formula) = match checked {
            Ok(checked) => checked,
            Err(error) => {
                wrong(r, node, &scalar, error);
                continue;
            }
        };
        let mut spec = FigureSpec {
            name: entry.key.clone(),
            value: scalar.text.clone(),
            kind,
            unit: None,
            better: better_of(&formula, kind),
            about: None,
        };
        if let Some(own) = own {
            read_rest(r, &own, &mut spec, known.is_some());
        }
        if let Some(known) = known.as_deref_mut() {
            let taken = known.names.contains(&spec.name) || expr::built_in_kind(&spec.name).is_some();
            if taken && spec.value.trim() != spec.name {
                let message = format!("`{}` already is a name in conditions", shorten(&spec.name));
                r.push(Problem::new(entry.key_span, message).hint("call the figure something else"));
            }
            match Figure::after(&known.figures, &spec.name, &spec.value, spec.kind) {
                Ok(figure) => known.figures.push(figure),
                Err(error) => {
                    wrong(r, node, &scalar, ExprError { at: 0, len: scalar.text.len(), ..error });
                    // Later figures may use it.
                    known.figures.push(Figure { name: spec.name.clone(), formula, kind: spec.kind });
                }
            }
        }
        all.push(spec);
    }
    all
}

fn check_name(r: &mut Reader<'_>, entry: &Entry) {
    let name = &entry.key;
    let wrong = name.trim().is_empty() || name.trim() != name || name.chars().count() > MAX_NAME;
    if wrong || name.chars().any(|c| c.is_control() || matches!(c, '"' | '\'')) {
        let message = format!("`{}` is not a valid name for a figure", shorten(name));
        let hint = format!("one line of 1 to {MAX_NAME} characters, without quotes");
        r.push(Problem::new(entry.key_span, message).hint(hint));
    }
}

/// Checks a figure and returns its kind.
fn check(formula: &Formula, known: &Known, own_name: &str) -> Result<NumberKind, ExprError> {
    let names = known.all_names();
    known.check_parts(&formula.names())?;
    known.check_windows(&formula.names())?;
    formula.check_names(&names).map_err(|error| {
        let itself = formula.names().iter().any(|n| n.text == own_name && n.at == error.at);
        let hint = if itself {
            Some("a figure may use only figures defined before it".to_owned())
        } else {
            error.hint
        };
        ExprError { hint, ..error }
    })?;
    formula.kind(&|name| known.kind(name))
}

/// Reads `unit`, `better` and `about`.
fn read_rest(r: &mut Reader<'_>, own: &Fields<'_>, spec: &mut FigureSpec, is_kind_known: bool) {
    match r.choice(own, "better") {
        Some("more") => spec.better = Better::More,
        Some("less") => spec.better = Better::Less,
        Some(_) => spec.better = Better::Neither,
        None => {}
    }
    spec.about = r.text(own, "about");
    let Some(unit) =
        own.get("unit").and_then(|node| r.scalar(node, "a unit such as `ms`, `MiB` or `documents`"))
    else {
        return;
    };
    let is_one = (1..=MAX_UNIT).contains(&unit.text.chars().count())
        && !unit.text.starts_with(|c: char| c.is_ascii_digit())
        && !unit.text.chars().any(char::is_control);
    if !is_one {
        let message = format!("`{}` is not a unit", shorten(&unit.text));
        let hint = format!("`ms`, `MiB`, `%`, or a word of at most {MAX_UNIT} characters");
        return r.wrong(&unit, message, Some(hint));
    }
    let of_unit = match unit.text.as_str() {
        "%" => Some(NumberKind::Fraction),
        text => expr::kind_of_unit(text),
    };
    match of_unit {
        _ if !is_kind_known => {}
        None if spec.kind == NumberKind::Plain => spec.unit = Some(unit.text),
        // A ratio, of which 1 is 100 %, as for `errors`.
        Some(NumberKind::Fraction) if spec.kind == NumberKind::Plain => spec.kind = NumberKind::Fraction,
        // A probe's number has no unit: it gets this one.
        Some(kind) if spec.kind == NumberKind::Plain => {
            spec.value = format!("({}) * 1{}", spec.value, unit.text);
            spec.kind = kind;
        }
        Some(kind)
            if kind == spec.kind || kind == NumberKind::Fraction && spec.kind == NumberKind::Percent => {}
        _ => {
            let message = format!(
                "`{}` is {}, not {}",
                shorten(&spec.value),
                spec.kind.describe(),
                shorten(&unit.text)
            );
            let hint = "leave `unit` out: it is for numbers without a unit".to_owned();
            r.wrong(&unit, message, Some(hint));
        }
    }
    if spec.better == Better::Neither && r.choice(own, "better").is_none() {
        spec.better = better_of_kind(spec.kind);
    }
}

/// Which direction is better, as far as a number's name or kind shows.
fn better_of(formula: &Formula, kind: NumberKind) -> Better {
    let more = ["goodput", "rate", "ok", "availability", "accepted", "persisted", "capacity"];
    let less = [
        "failed",
        "dropped",
        "in_flight",
        "unanswered",
        "doubled",
        "lost",
        "not_offered",
        "oom_kills",
        "restarts",
    ];
    let of_name = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_failure = loadlab_record::Failure::ALL.into_iter().any(|f| f.name() == last);
        match last {
            _ if more.contains(&last) => Better::More,
            _ if less.contains(&last) || is_failure => Better::Less,
            _ => better_of_kind(kind),
        }
    };
    // Of a quotient no single name decides; of a sum they decide if they agree.
    let names = formula.summed_names().unwrap_or_default();
    let mut each = names.iter().map(|name| of_name(name));
    match each.next() {
        Some(first) if each.all(|better| better == first) => first,
        _ => better_of_kind(kind),
    }
}

fn better_of_kind(kind: NumberKind) -> Better {
    match kind {
        NumberKind::Duration | NumberKind::Bytes | NumberKind::Percent | NumberKind::Fraction => Better::Less,
        NumberKind::Rate => Better::More,
        NumberKind::Plain => Better::Neither,
    }
}

/// Reports a mistake at its part of the text, if that part occurs literally in the plan; otherwise at the whole text.
pub(crate) fn wrong(r: &mut Reader<'_>, node: &Node, scalar: &Scalar, error: ExprError) {
    let whole = r.sources.slice(node.span);
    let mut at = scalar.clone();
    match whole.find(&scalar.text) {
        Some(offset) if !scalar.text.is_empty() => {
            let start = scalar.span.start + (offset + error.at.min(scalar.text.len())) as u32;
            let end = (start + error.len as u32).min(scalar.span.end);
            at.span = Span { start, end: end.max(start), ..scalar.span };
        }
        _ => {}
    }
    // A value of the matrix is only part of the text: the mistake is reported at the text.
    let origin = at.origin.take();
    let mut problem = Problem::new(at.span, error.message).maybe_hint(error.hint);
    if let Some(origin) = origin {
        problem = problem.related(format!("this value is part of it: `{}`", r.sources.slice(origin)), origin);
    }
    r.push(problem);
}
