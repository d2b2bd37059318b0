//! The matrix: named cases, or axes whose combinations are the cases.

use std::collections::{BTreeSet, HashMap, HashSet};

use loadlab_record::documents::manifest::REVISION_AXIS;

use crate::expand::chosen;
use crate::keys::{self, MAX_TRIALS};
use crate::model::case_values::{CaseValue, CaseValues, DEFAULT_CASE};
use crate::model::plan::Revision;
use crate::read::reader::Reader;
use crate::read::values::plain_text;
use crate::text::error::Problem;
use crate::text::node::{Entry, Node, ScalarKind, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;
use crate::text::suggest;

/// The axes and all cases.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    pub axes: Vec<String>,
    pub cases: Vec<CaseValues>,
    /// Remarks that are not mistakes.
    pub notes: Vec<String>,
}

/// Maximum number of axes, or of values of a named case.
const MAX_AXES: usize = 50;
/// Maximum number of items of `exclude` and of `include`.
const MAX_ITEMS: usize = 1000;
/// Maximum length of a case's name, in characters.
const MAX_NAME: usize = 200;

impl Matrix {
    /// The matrix of a plan that has none.
    pub fn single(span: Span) -> Matrix {
        Matrix {
            axes: Vec::new(),
            cases: vec![CaseValues::new(DEFAULT_CASE.to_owned(), Vec::new(), span)],
            notes: Vec::new(),
        }
    }

    /// Marks the cases that `--case` means, and returns their names.
    pub fn choose(&mut self, wanted: Option<&str>) -> BTreeSet<String> {
        if let Some(text) = wanted {
            let names = chosen::names_of(text, &self.cases, &self.axes);
            self.cases.iter_mut().for_each(|case| case.is_chosen = names.contains(&case.name));
        }
        self.cases.iter().filter(|case| case.is_chosen).map(|case| case.name.clone()).collect()
    }
}

/// Every case at every revision; for each case, the first revision comes first.
pub(crate) fn at_revisions(
    r: &mut Reader<'_>,
    matrix: Matrix,
    revisions: &[Revision],
    at: Span,
) -> Option<Matrix> {
    if matrix.axes.iter().any(|axis| axis == REVISION_AXIS) {
        let message = "the matrix already has an axis `revision`, which `revisions` would add";
        r.push(Problem::new(at, message).hint("rename that axis"));
        return None;
    }
    let is_single = matrix.axes.is_empty() && matrix.cases.iter().all(|case| case.name == DEFAULT_CASE);
    let with = |case: &CaseValues, revision: &Revision| {
        let name = match is_single {
            true => revision.name.clone(),
            false => format!("{}, {REVISION_AXIS}={}", case.name, revision.name),
        };
        let text = revision.name.clone();
        let value = CaseValue { axis: REVISION_AXIS.to_owned(), text, kind: ScalarKind::Text, span: at };
        let values = case.values.iter().cloned().chain([value]).collect();
        CaseValues { dir: revision.dir.clone(), ..CaseValues::new(name, values, case.span) }
    };
    let cases =
        matrix.cases.iter().flat_map(|case| revisions.iter().map(move |revision| with(case, revision)));
    let cases: Vec<CaseValues> = cases.collect();
    let axes = matrix.axes.into_iter().chain([REVISION_AXIS.to_owned()]).collect();
    unique_names(r, &cases);
    Some(Matrix { axes, cases, notes: matrix.notes })
}

/// Reads the matrix; `None` if it is broken (already reported).
pub(crate) fn read(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<Matrix> {
    let before = r.problems.count();
    let matrix = match &node.value {
        Value::List(items) => named(r, items, at),
        Value::Map(_) => combined(r, node, at),
        _ => {
            let message =
                format!("expected a list of named cases or `axes` for `matrix`, found {}", node.called());
            r.push(Problem::new(node.span, message).hint("matrix: { axes: { size: [small, large] } }"));
            return None;
        }
    }?;
    unique_names(r, &matrix.cases);
    (r.problems.count() == before).then_some(matrix)
}

fn named(r: &mut Reader<'_>, items: &[Node], at: Span) -> Option<Matrix> {
    if items.is_empty() {
        r.push(Problem::new(at, "`matrix` has no cases").hint("leave it out for a single case"));
        return None;
    }
    let mut axes: Vec<String> = Vec::new();
    let mut cases = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let entries = r.map(item, "a case such as `{ name: control, cpu: none }`");
        let name_entry = entries.iter().find(|e| e.key == "name");
        let Some(name_entry) = name_entry else {
            r.push(Problem::new(item.span, "this case has no `name`"));
            continue;
        };
        let Some((name, _)) = plain_text(&name_entry.value) else {
            let message = format!("expected a text for `name`, found {}", name_entry.value.called());
            r.push(Problem::new(name_entry.value.span, message));
            continue;
        };
        let others: Vec<&Entry> = entries.iter().filter(|e| e.key != "name").collect();
        if i == 0 {
            axes = others.iter().map(|e| e.key.clone()).collect();
            if axes.len() > MAX_AXES {
                r.push(Problem::new(item.span, format!("more than {MAX_AXES} values in a case")));
                return None;
            }
            for entry in &others {
                r.check_word(&entry.key, entry.key_span, "a value of a case");
            }
        }
        let values = values_of(r, &others, &axes, name, name_entry.value.span);
        cases.push(CaseValues::new(name.to_owned(), values, name_entry.value.span));
    }
    Some(Matrix { axes, cases, notes: Vec::new() })
}

/// The values of one case in the order of the axes; reports missing or unknown values.
fn values_of(
    r: &mut Reader<'_>,
    entries: &[&Entry],
    axes: &[String],
    case: &str,
    at: Span,
) -> Vec<CaseValue> {
    let known: Vec<&str> = axes.iter().map(String::as_str).collect();
    for entry in entries.iter().filter(|e| !known.contains(&e.key.as_str())) {
        let message =
            format!("case `{}` has `{}`, but the first case does not", shorten(case), shorten(&entry.key));
        let near = suggest::nearest(&entry.key, known.iter().copied());
        let hint =
            near.map_or("every case must set the same values".to_owned(), |n| format!("did you mean `{n}`?"));
        r.push(Problem::new(entry.key_span, message).hint(hint));
    }
    let mut values = Vec::new();
    for axis in axes {
        match entries.iter().find(|e| e.key == *axis) {
            Some(entry) => values.extend(axis_value(r, axis, &entry.value)),
            None => {
                let message = format!("case `{}` has no `{axis}`", shorten(case));
                r.push(Problem::new(at, message).hint("every case must set the same values"));
            }
        }
    }
    values
}

fn axis_value(r: &mut Reader<'_>, axis: &str, node: &Node) -> Option<CaseValue> {
    let Some((text, kind)) = plain_text(node) else {
        let message = format!("expected a text or a number for `{axis}`, found {}", node.called());
        let hint = node.is_null().then(|| "write `none` for no limit".to_owned());
        r.push(Problem::new(node.span, message).maybe_hint(hint));
        return None;
    };
    if text.contains("${")
        && !crate::read::values::is_measured(text)
        && !crate::outside::is_outside_only(text)
    {
        let message = "values of the matrix are literal: this `${…}` is not expanded here";
        r.push(Problem::new(node.span, message).hint("only `${env.NAME}` and `${file:PATH}` are"));
        return None;
    }
    Some(CaseValue { axis: axis.to_owned(), text: text.to_owned(), kind, span: node.span })
}

fn combined(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<Matrix> {
    let fields = r.fields(node, &keys::AXES, at)?;
    let axes_node = fields.get("axes")?;
    let mut axes: Vec<(String, Vec<CaseValue>)> = Vec::new();
    let entries = r.map(axes_node, "a map of axes such as `{ size: [small, large] }`");
    if entries.is_empty() && matches!(axes_node.value, Value::Map(_)) {
        r.push(
            Problem::new(fields.key_span("axes"), "`axes` is empty")
                .hint("leave `matrix` out for a single case"),
        );
        return None;
    }
    for entry in entries {
        r.check_word(&entry.key, entry.key_span, "an axis");
        if entry.key == "name" {
            r.push(Problem::new(entry.key_span, "`name` cannot be an axis: it is the name of the case"));
        }
        axes.push((entry.key.clone(), axis_values(r, entry)));
    }
    if axes.len() > MAX_AXES {
        r.push(Problem::new(fields.key_span("axes"), format!("more than {MAX_AXES} axes")));
        return None;
    }
    let product = axes.iter().try_fold(1usize, |n, (_, values)| n.checked_mul(values.len()));
    let most = MAX_TRIALS as usize;
    if product.is_none_or(|n| n > most) {
        let message = format!("these axes make more than {most} cases");
        r.push(Problem::new(fields.key_span("axes"), message).hint("fewer axes or values"));
        return None;
    }
    let names: Vec<String> = axes.iter().map(|(name, _)| name.clone()).collect();
    let mut cases = combinations(&axes, at);
    let mut notes = Vec::new();
    if let Some(exclude) = fields.get("exclude") {
        notes = leave_out(r, exclude, &names, &mut cases);
    }
    if let Some(include) = fields.get("include") {
        add(r, include, &names, &mut cases);
    }
    if cases.is_empty() && !axes.iter().any(|(_, values)| values.is_empty()) {
        r.push(Problem::new(at, "`matrix` has no cases left"));
    }
    Some(Matrix { axes: names, cases, notes })
}

fn axis_values(r: &mut Reader<'_>, entry: &Entry) -> Vec<CaseValue> {
    let items = r.list(&entry.value, "a list of values");
    if items.is_empty() && matches!(entry.value.value, Value::List(_)) {
        r.push(Problem::new(entry.key_span, format!("axis `{}` has no values", shorten(&entry.key))));
    }
    let mut seen = HashMap::new();
    let mut values = Vec::new();
    for item in items {
        let Some(value) = axis_value(r, &entry.key, item) else { continue };
        if let Some(first) = seen.insert(value.text.clone(), value.span) {
            let message = format!("axis `{}` has `{}` twice", shorten(&entry.key), shorten(&value.text));
            r.push(Problem::new(value.span, message).related("the first is here", first));
        }
        values.push(value);
    }
    values
}

/// Every combination; the last axis changes fastest.
fn combinations(axes: &[(String, Vec<CaseValue>)], span: Span) -> Vec<CaseValues> {
    let mut lists: Vec<Vec<CaseValue>> = vec![Vec::new()];
    for (_, values) in axes {
        lists = lists
            .iter()
            .flat_map(|list| values.iter().map(|v| list.iter().cloned().chain([v.clone()]).collect()))
            .collect();
    }
    lists.into_iter().map(|values| CaseValues::new(name_of(&values), values, span)).collect()
}

fn name_of(values: &[CaseValue]) -> String {
    let parts: Vec<String> = values.iter().map(|v| format!("{}={}", v.axis, v.text)).collect();
    parts.join(", ")
}

fn leave_out(r: &mut Reader<'_>, node: &Node, axes: &[String], cases: &mut Vec<CaseValues>) -> Vec<String> {
    let mut notes = Vec::new();
    let known: Vec<&str> = axes.iter().map(String::as_str).collect();
    let items = r.list(node, "a list of combinations to leave out");
    too_many(r, node, items);
    for item in items.iter().take(MAX_ITEMS) {
        let entries = r.map(item, "a combination such as `{ size: large }`");
        let mut wanted = Vec::new();
        for entry in entries {
            if known.contains(&entry.key.as_str()) {
                wanted.extend(axis_value(r, &entry.key, &entry.value));
            } else {
                let message = format!("there is no axis `{}`", shorten(&entry.key));
                r.push(Problem::new(entry.key_span, message).maybe_hint(suggest::hint(&entry.key, &known)));
            }
        }
        if wanted.len() != entries.len() || wanted.is_empty() {
            continue;
        }
        let before = cases.len();
        cases.retain(|case| {
            !wanted.iter().all(|w| case.values.iter().any(|v| v.axis == w.axis && v.text == w.text))
        });
        if cases.len() == before {
            // Not a mistake: a profile may have made the axes shorter.
            notes.push(format!("`exclude` of {} matches no combination", name_of(&wanted)));
        }
    }
    notes
}

fn add(r: &mut Reader<'_>, node: &Node, axes: &[String], cases: &mut Vec<CaseValues>) {
    let items = r.list(node, "a list of cases to add");
    too_many(r, node, items);
    for item in items.iter().take(MAX_ITEMS) {
        let entries = r.map(item, "a case with a value for every axis");
        let given = entries.iter().find(|e| e.key == "name");
        let others: Vec<&Entry> = entries.iter().filter(|e| e.key != "name").collect();
        let values = values_of(r, &others, axes, "to add", item.span);
        if values.len() != axes.len() {
            continue;
        }
        let (name, span) = match given.map(|e| (plain_text(&e.value), e)) {
            Some((Some((name, _)), entry)) => (name.to_owned(), entry.value.span),
            Some((None, entry)) => {
                r.push(Problem::new(entry.key_span, "the name of a case must be a text"));
                continue;
            }
            None => (name_of(&values), item.span),
        };
        cases.push(CaseValues::new(name, values, span));
    }
}

fn too_many(r: &mut Reader<'_>, node: &Node, items: &[Node]) {
    if items.len() > MAX_ITEMS {
        r.push(Problem::new(node.span, format!("more than {MAX_ITEMS} items here")));
    }
}

fn unique_names(r: &mut Reader<'_>, cases: &[CaseValues]) {
    let mut seen: HashMap<&str, Span> = HashMap::new();
    let mut said = HashSet::new();
    for case in cases {
        let length = case.name.chars().count();
        if case.name.trim().is_empty() || length > MAX_NAME || case.name.chars().any(char::is_control) {
            let message = format!("`{}` is not a valid name for a case", shorten(&case.name));
            r.push(Problem::new(case.span, message).hint(format!("one line of 1 to {MAX_NAME} characters")));
        }
        if let Some(first) = seen.insert(&case.name, case.span)
            && said.insert(&case.name)
        {
            let message = format!("two cases are named `{}`", shorten(&case.name));
            r.push(Problem::new(case.span, message).related("the first is here", first));
        }
    }
}
