//! Which cases `--case` means: by their names, or by a label that reports give them.

use std::collections::BTreeSet;

use loadlab_record::documents::labels::Labels;
use loadlab_record::documents::manifest::{CaseFacts, REVISION_AXIS};

use crate::model::case_values::CaseValues;
use crate::model::spec::Case;
use crate::read::command_load::is_meant;
use crate::text::suggest;

/// Names of the cases that a text means: those whose name it matches, or else the case with this label, at every
/// revision if the label names none. Empty if it means none, or if several cases have the label.
pub(crate) fn names_of(text: &str, cases: &[CaseValues], axes: &[String]) -> BTreeSet<String> {
    let names = |is_so: &dyn Fn(&CaseValues) -> bool| -> BTreeSet<String> {
        cases.iter().filter(|case| is_so(case)).map(|case| case.name.clone()).collect()
    };
    let matching = names(&|case: &CaseValues| is_meant(text, case));
    if !matching.is_empty() {
        return matching;
    }
    let labelled =
        |facts: &[CaseFacts]| Labels::of(facts.iter(), axes).named(text, facts.iter()).map(str::to_owned);
    let whole: Vec<CaseFacts> = cases.iter().map(|case| facts(case, &case.name, true)).collect();
    if let Some(name) = labelled(&whole) {
        return names(&|case: &CaseValues| case.name == name);
    }
    let own: Vec<CaseFacts> = cases.iter().map(|case| facts(case, case.own_name(), false)).collect();
    labelled(&own).map(|name| names(&|case: &CaseValues| case.own_name() == name)).unwrap_or_default()
}

/// What labels are made from; without the revision for a case as the plan has it.
fn facts(case: &CaseValues, name: &str, has_revision: bool) -> CaseFacts {
    let values = case.values.iter().filter(|value| has_revision || value.axis != REVISION_AXIS);
    CaseFacts {
        name: name.to_owned(),
        values: values.map(|value| (value.axis.clone(), value.text.clone())).collect(),
        ..CaseFacts::default()
    }
}

/// What to write instead of a text that means no case.
pub(crate) fn hint(text: &str, cases: &[Case]) -> Option<String> {
    let has_value = |case: &&Case| {
        case.values.iter().any(|(axis, value)| {
            value == text
                || text.strip_prefix(axis.as_str()).and_then(|rest| rest.strip_prefix('='))
                    == Some(value.as_str())
        })
    };
    let having: Vec<&str> = cases.iter().filter(has_value).map(|case| case.name.as_str()).collect();
    if having.is_empty() {
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        return suggest::hint(text, &names);
    }
    let listed = suggest::listed(&having);
    Some(format!("cases with that value: {listed}; in a name, `*` matches any text"))
}
