//! Reads `derive`: figures derived from those of the plan's cases.

use loadlab_record::documents::figure::NumberKind;
use loadlab_record::expr::{self, Formula};

use crate::keys;
use crate::model::spec::{Case, DerivedSpec};
use crate::read::conditions::names_of;
use crate::read::reader::{Fields, Reader};
use crate::text::error::Problem;
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;
use crate::text::suggest;

/// Reads all derived figures; the cases are those of the whole matrix.
pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>, cases: &[Case]) -> Vec<DerivedSpec> {
    let Some(node) = fields.get("derive") else { return Vec::new() };
    let mut all = Vec::new();
    for entry in r.map(node, "a map of figures by name") {
        if entry.key.trim().is_empty() || entry.key.chars().any(char::is_control) {
            r.push(Problem::new(entry.key_span, "expected one line for the name of a figure in `derive`"));
        }
        let (value, against) = match &entry.value.value {
            Value::Map(_) => {
                let Some(own) = r.fields(&entry.value, &keys::DERIVED, entry.key_span) else { continue };
                let value = own.get("value").and_then(|n| read_one(r, n, cases));
                let against = own.get("against").map(|n| (n, read_one(r, n, cases)));
                if let (Some((_, kind)), Some((node, Some((_, other))))) = (&value, &against)
                    && kind != other
                {
                    let message = format!("{} cannot be compared with {}", kind.describe(), other.describe());
                    r.push(Problem::new(node.span, message).hint("both sides must be of the same kind"));
                }
                (value, against.and_then(|(_, formula)| formula))
            }
            _ => (read_one(r, &entry.value, cases), None),
        };
        let Some((value, _)) = value else { continue };
        all.push(DerivedSpec { name: entry.key.clone(), value, against: against.map(|(text, _)| text) });
    }
    all
}

/// Reads one side: its text, and its kind.
fn read_one(r: &mut Reader<'_>, node: &Node, cases: &[Case]) -> Option<(String, NumberKind)> {
    let text = r.scalar(node, "a formula such as `a.elapsed + b.elapsed`")?.text;
    let formula = match Formula::parse(&text) {
        Ok(formula) => formula,
        Err(error) => {
            r.push(Problem::new(node.span, error.message).maybe_hint(error.hint));
            return None;
        }
    };
    // If there are mistakes in the cases, a name may be missing because of them.
    if r.problems.count() > 0 {
        return None;
    }
    for name in formula.names() {
        if name.part.is_some() {
            let span = r.inner_span(node, &name.text);
            let problem = Problem::new(span, "what is derived is computed from whole trials");
            r.push(problem.hint("name the part in `figures`, and use that figure here"));
            return None;
        }
        if let Err((message, hint)) = check_name(&name.text, cases) {
            let span = r.inner_span(node, &name.text);
            r.push(Problem::new(span, message).maybe_hint(hint));
            return None;
        }
    }
    match formula.kind(&|name| kind_of(name, cases)) {
        Ok(kind) => Some((text, kind)),
        Err(error) => {
            r.push(Problem::new(node.span, error.message).maybe_hint(error.hint));
            None
        }
    }
}

/// The kind of a case's figure.
fn kind_of(name: &str, cases: &[Case]) -> Option<NumberKind> {
    let (case, figure) = split(name, cases)?;
    let named = case.figures.iter().find(|f| f.name == figure);
    named.map_or_else(|| expr::kind_of(figure), |f| Some(f.kind))
}

/// Splits `CASE.FIGURE`. Names of cases may contain dots: the longest match wins.
fn split<'a, 'n>(name: &'n str, cases: &'a [Case]) -> Option<(&'a Case, &'n str)> {
    let fits = |case: &'a Case| Some((case, name.strip_prefix(case.name.as_str())?.strip_prefix('.')?));
    cases.iter().filter_map(fits).max_by_key(|(case, _)| case.name.len())
}

fn check_name(name: &str, cases: &[Case]) -> Result<(), (String, Option<String>)> {
    let Some((case, figure)) = split(name, cases) else {
        let names: Vec<&str> = cases.iter().map(|c| c.name.as_str()).collect();
        let near =
            name.rsplit_once('.').and_then(|(before, _)| suggest::nearest(before, names.iter().copied()));
        let hint = match near {
            Some(near) => format!("did you mean case `{near}`?"),
            None => "a name is a case, a dot and a figure; put it in quotes if it contains spaces: `'empty \
                     POST.elapsed'`"
                .to_owned(),
        };
        return Err((format!("`{}` is not a figure of a case", shorten(name)), Some(hint)));
    };
    let mut known = names_of(&case.system, &case.loads);
    known.extend(case.figures.iter().map(|f| f.name.clone()));
    if expr::built_in_kind(figure).is_some() || known.iter().any(|k| k == figure) {
        return Ok(());
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let message = format!("case `{}` has no figure `{}`", case.name, shorten(figure));
    Err((message, suggest::hint(figure, &known)))
}
