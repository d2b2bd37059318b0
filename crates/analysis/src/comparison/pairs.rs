//! Which cases of a run are compared with which.

use loadlab_record::documents::manifest::{CaseFacts, Manifest, REVISION_AXIS, RevisionFacts, base_among};

/// Which cases of a run are compared with which: (base, other), by index. With several revisions each case is compared
/// with itself at the first one; otherwise all are compared with one base.
pub fn pairs(manifest: &Manifest) -> Vec<(usize, usize)> {
    pairs_among(&manifest.cases.iter().collect::<Vec<_>>(), &manifest.revisions)
}

/// As [`pairs`], for some cases of a run, by index among these.
pub fn pairs_among(cases: &[&CaseFacts], revisions: &[RevisionFacts]) -> Vec<(usize, usize)> {
    let Some(first) = revisions.first() else {
        let base = base_among(&cases.iter().map(|c| c.name.as_str()).collect::<Vec<_>>());
        let is_other = |other: &usize| *other != base && cases[*other].control_of.is_none();
        return (0..cases.len()).filter(is_other).map(|other| (base, other)).collect();
    };
    let revision = |case: &CaseFacts| case.values.iter().find(|v| v.0 == REVISION_AXIS).map(|v| v.1.clone());
    let others = |case: &CaseFacts| -> Vec<(String, String)> {
        case.values.iter().filter(|v| v.0 != REVISION_AXIS).cloned().collect()
    };
    let is_base =
        |case: &&CaseFacts| case.control_of.is_none() && revision(case).as_ref() == Some(&first.name);
    // Named cases may have equal values; then the rest of their names must match.
    let stem = |case: &CaseFacts| {
        let end = format!(", {REVISION_AXIS}={}", revision(case).unwrap_or_default());
        case.name.strip_suffix(&end).unwrap_or_default().to_owned()
    };
    let mut found = Vec::new();
    for (base, of_base) in cases.iter().enumerate().filter(|(_, case)| is_base(case)) {
        let is_same = |case: &CaseFacts| others(case) == others(of_base) && stem(case) == stem(of_base);
        let at_others = cases
            .iter()
            .enumerate()
            .filter(|(_, case)| case.control_of.is_none() && !is_base(case) && is_same(case));
        found.extend(at_others.map(|(other, _)| (base, other)));
    }
    found
}

/// The control of this case: the same case under another name.
pub fn control_of(manifest: &Manifest, base: usize) -> Option<usize> {
    let base = &manifest.cases.get(base)?.name;
    manifest.cases.iter().position(|case| case.control_of.as_ref() == Some(base))
}
