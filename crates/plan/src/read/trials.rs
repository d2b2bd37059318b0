//! How many trials each case has: a number, or until it is certain how the cases differ.

use loadlab_record::documents::manifest::{TRIALS_FOR_DIFFERENCES, base_among};

use crate::keys::{self, MAX_TRIALS};
use crate::model::plan::{Plan, TrialOrder, UntilCertain};
use crate::model::spec::Case;
use crate::read::reader::{Fields, Reader};
use crate::read::values::share;
use crate::text::error::{Problem, Problems};
use crate::text::node::Value;
use crate::text::shorten::shorten;

/// Default for `within`: smaller differences do not matter.
const WITHIN: f64 = 0.02;
const AT_MOST: u64 = 30;

/// Reads `trials`.
pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>, plan: &mut Plan) {
    let Some(node) = fields.get("trials") else { return };
    if !matches!(node.value, Value::Map(_)) {
        plan.trials = r.count(fields, "trials").unwrap_or(1) as u32;
        plan.has_control = is_compared(plan.trials);
        return;
    }
    let Some(of_trials) = r.fields(node, &keys::TRIALS, fields.key_span("trials")) else { return };
    let has_control = r.flag(&of_trials, "control").unwrap_or(true);
    if of_trials.get("count").is_some() {
        plan.trials = r.count(&of_trials, "count").unwrap_or(1) as u32;
        plan.has_control = has_control && is_compared(plan.trials);
        return;
    }
    if r.choice(&of_trials, "until").is_none() {
        return;
    }
    let at_most = r.count(&of_trials, "at_most").unwrap_or(AT_MOST);
    plan.trials = at_most.min(MAX_TRIALS) as u32;
    let within = of_trials.get("within").and_then(|node| {
        let scalar = r.scalar(node, "a share such as `2%`")?;
        let within = share(&scalar.text).filter(|share| *share > 0.0 && *share < 1.0);
        if within.is_none() {
            let message = format!("`{}` is not a share above 0 % and below 100 %", shorten(&scalar.text));
            r.wrong(&scalar, message, Some("`within: 2%`".to_owned()));
        }
        within
    });
    let budget_ns = r.positive_duration(&of_trials, "budget");
    plan.has_control = has_control;
    plan.until_certain = Some(UntilCertain { within: within.unwrap_or(WITHIN), budget_ns });
}

/// Whether this many trials are compared: fewer decide nothing, and neither does a control with fewer.
fn is_compared(trials: u32) -> bool {
    trials as usize >= TRIALS_FOR_DIFFERENCES
}

/// Checks what trials with `until: certain` need: two cases in random order.
pub(crate) fn check(plan: &Plan, cases: usize, fields: &Fields<'_>, problems: &mut Problems) {
    if plan.until_certain.is_none() {
        return;
    }
    let at = fields.key_span("trials");
    if cases < 2 {
        let message = "with one case there is nothing to be certain of: cases are compared with one another";
        problems.push(
            Problem::new(at, message).hint("add a `matrix` of cases, or say how many trials: `trials: 5`"),
        );
    }
    if plan.order == TrialOrder::Sequential {
        let message = "`order: sequential` cannot be combined with `until: certain`: what is certain rests on a random order";
        problems.push(Problem::new(fields.key_span("order"), message).related("trials are here", at));
    }
}

/// Repeats the cases that others are compared with, under another name.
pub(crate) fn add_controls(plan: &mut Plan) {
    // With only one case, or one revision, there is no comparison.
    plan.has_control &= plan.cases.len() > 1 && plan.revisions.len() != 1 && !plan.quick;
    if !plan.has_control {
        return;
    }
    let names: Vec<&str> = plan.cases.iter().map(|case| case.name.as_str()).collect();
    let bases: Vec<usize> = match plan.revisions.first() {
        None => vec![base_among(&names)],
        Some(first) => {
            let is_first = |case: &Case| case.values.last().is_some_and(|(_, name)| *name == first.name);
            plan.cases.iter().enumerate().filter(|(_, case)| is_first(case)).map(|(place, _)| place).collect()
        }
    };
    plan.has_control = !bases.is_empty();
    for base in bases {
        let base = plan.cases[base].clone();
        let first = if base.name.eq_ignore_ascii_case("control") { "again" } else { "control" };
        let mut name = format!("{} ({first})", base.name);
        // A plan may have a case of that name.
        while plan.cases.iter().any(|case| case.name == name) {
            name.push('*');
        }
        plan.cases.push(Case { name, control_of: Some(base.name.clone()), ..base });
    }
}
