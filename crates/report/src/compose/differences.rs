//! How cases differ in the most important figure, in a sentence.

use loadlab_analysis::cases::case::{CaseFindings, without_controls};
use loadlab_analysis::cases::metric::{Better, Metric, Unit, Value};
use loadlab_analysis::comparison::compare::Comparison;
use loadlab_analysis::comparison::interval::Call;
use loadlab_analysis::findings::Findings;

use crate::document::Fact;
use crate::figures;
use crate::wording::capital;

/// Cases named in the sentence.
const MAX_NAMED: usize = 3;

/// The sentence; `None` with a single case, or if fewer than two have known values.
pub(super) fn fact(findings: &Findings<'_>) -> Option<Fact> {
    let metric = findings.figures.iter().find(|m| m.better() != Better::Neither)?;
    let text = match findings.comparisons.is_empty() {
        true => ends(&findings.cases, metric)?,
        false => compared(findings, metric)?,
    };
    Some(Fact::new("Differences", text))
}

/// The cases with the lowest and the highest value, in words.
fn ends(cases: &[CaseFindings<'_>], metric: &Metric) -> Option<String> {
    // A lower bound sorts above all known values.
    let known = |case: &CaseFindings<'_>| {
        let value = case.spread(metric).median;
        match value {
            Value::Known(known) => Ok(((0, known), value, case.label.clone())),
            Value::Over(bound) => Ok(((1, bound), value, case.label.clone())),
            _ => Err(format!("“{}”", case.label)),
        }
    };
    let (mut all, mut unknown) = (Vec::new(), Vec::new());
    for case in without_controls(cases) {
        match known(case) {
            Ok(one) => all.push(one),
            Err(name) => unknown.push(name),
        }
    }
    all.sort_by(|a, b| a.0.0.cmp(&b.0.0).then(a.0.1.total_cmp(&b.0.1)));
    let (least, most) = (all.first()?, all.last()?);
    let text = |value: &((u8, f64), Value, String)| {
        format!("{} (“{}”)", figures::with_name(value.1, metric), value.2)
    };
    let title = capital(&metric.title());
    let rest = match unknown.len() {
        0 => String::new(),
        1 => format!("; not known in {}", unknown[0]),
        n => format!("; not known in {n} cases"),
    };
    match all.len() {
        0 | 1 => None,
        _ if figures::with_name(least.1, metric) == figures::with_name(most.1, metric) => {
            let every = if unknown.is_empty() { "every case" } else { "every other case" };
            Some(format!("{title} is {} in {every}{rest}.", figures::with_name(least.1, metric)))
        }
        _ if metric.better() == Better::More => {
            Some(format!("{title}: highest {}, lowest {}{rest}.", text(most), text(least)))
        }
        _ => Some(format!("{title}: lowest {}, highest {}{rest}.", text(least), text(most))),
    }
}

/// The results of the comparisons for this figure.
fn compared(findings: &Findings<'_>, metric: &Metric) -> Option<String> {
    let comparisons = &findings.comparisons;
    let label = |name: &str| {
        let case = findings.cases.iter().find(|c| c.case.facts.name == name);
        case.map_or_else(|| name.to_owned(), |c| c.label.clone())
    };
    let first = &comparisons.first()?.base;
    let base = match comparisons.iter().all(|c| c.base == *first) {
        true => format!("“{}”", label(first)),
        false => "the same case at the first revision".to_owned(),
    };
    let one = |c: &Comparison| {
        let row = c.rows.iter().find(|r| r.metric.id == metric.id)?;
        let call = match row.call {
            Call::Better => "better",
            Call::Worse => "worse",
            Call::Same => "the same",
            Call::Changed => "changed",
            Call::CannotTell => "cannot tell",
        };
        let effect = row.effect.filter(|_| metric.unit != Unit::Share);
        let ratio = effect.map(|e| format!("{} ×, ", figures::number(figures::round(e.value, 3))));
        Some(format!("“{}” {}{call}", label(&c.other), ratio.unwrap_or_default()))
    };
    let all: Vec<String> = comparisons.iter().filter_map(one).collect();
    if all.is_empty() {
        return None;
    }
    let more = match all.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        n => format!("; {n} more in the table"),
    };
    let shown = all.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join("; ");
    Some(format!("{} against {base}: {shown}{more}.", capital(&metric.title())))
}
