//! Cases of one run, or of several, compared.

use crate::cases::case::CaseFindings;
use crate::cases::groups::Groups;
use crate::cases::metric::Metric;
use crate::comparison::compare::{Comparison, Options, Side, compare};
use crate::comparison::design::Design;
use crate::comparison::interval::{Call, Method};
use crate::comparison::moved::moved;

/// A case as one side of a comparison, under this name.
pub fn side<'a>(case: &'a CaseFindings<'_>, name: &str) -> Side<'a> {
    Side::of(name, case.trials.iter().map(|t| (t.number, t.summary)))
}

/// What cases are compared by, and how.
#[derive(Clone, Copy, Debug)]
pub struct Comparing<'a> {
    /// The figures that the plan names, in addition to the usual ones.
    pub figures: &'a [Metric],
    /// Whether the run gives only a first impression.
    pub quick: bool,
    /// How to judge.
    pub options: Options,
    /// How cases of the run are compared, if trials continued until that was certain.
    pub design: Option<&'a Design>,
    /// Which of its components are replicas.
    pub groups: &'a Groups,
}

/// The cases of a run that [`crate::comparison::pairs::pairs`] names, compared.
pub fn within(cases: &[CaseFindings<'_>], pairs: &[(usize, usize)], how: Comparing<'_>) -> Vec<Comparison> {
    pairs.iter().map(|(base, other)| pair(cases, *base, *other, how)).collect()
}

/// Two cases of one run, by index. Their trials took turns, so they are paired by round.
pub fn pair(cases: &[CaseFindings<'_>], base: usize, other: usize, how: Comparing<'_>) -> Comparison {
    let of = |place: usize| side(&cases[place], &cases[place].case.facts.name);
    let records = |place: usize| cases[place].case.trials.iter();
    let (records_of_base, records_of_other) = (records(base), records(other));
    let (base, other) = (of(base), of(other));
    let is_control = |case: &CaseFindings<'_>| case.case.facts.control_of.as_ref() == Some(&base.name);
    let control = cases.iter().position(is_control).map(of);
    let mut found = match how.design {
        Some(design) => design.compare(&base, &other, control.as_ref(), how.options),
        None => compare(&base, &other, Method::Paired, how.figures, how.options),
    };
    if let (None, Some(control)) = (how.design, &control) {
        found = found.with_control(&base, control);
        found.left_out.extend(control.left_out.iter().cloned());
    }
    found.moved = moved(&base, &other, how.groups);
    if how.quick {
        say_quick(&mut found);
    }
    found.with_profiles(records_of_base, records_of_other)
}

/// A case of one run against a case of another. The names distinguish the runs; the comparison is quick if either run
/// was.
pub fn across(base: &Side<'_>, other: &Side<'_>, how: Comparing<'_>) -> Comparison {
    let mut found = compare(base, other, Method::Welch, how.figures, how.options);
    found.moved = moved(base, other, how.groups);
    if how.quick {
        say_quick(&mut found);
    }
    found
}

/// A quick run gives a first impression, whatever its figures are.
fn say_quick(comparison: &mut Comparison) {
    let text = "a quick run: it gives a first look and no verdict on differences";
    comparison.why_not.get_or_insert_with(|| text.to_owned());
    comparison.details.clear();
    for row in &mut comparison.rows {
        row.call = Call::CannotTell;
        row.trials_needed = None;
    }
}
