//! Which cases of a run are compared with which.

use loadlab_record::manifest::{CaseFacts, Manifest};

/// Names that mark a case as the one the others are compared with.
const BASES: [&str; 2] = ["baseline", "control"];

/// The index of the case that the others are compared with: one called `baseline` or `control`, else the first.
fn base_among(cases: &[&str]) -> usize {
    let named = |name: &str| cases.iter().position(|case| case.eq_ignore_ascii_case(name));
    BASES.iter().find_map(|name| named(name)).unwrap_or(0)
}

/// The axis of revisions.
const REVISION: &str = "revision";

/// Which cases of a run are compared with which: (base, other), by their places. At several revisions each case is
/// compared with itself at the first one; otherwise all are compared with one.
pub fn pairs(manifest: &Manifest) -> Vec<(usize, usize)> {
    let cases = &manifest.cases;
    let Some(first) = manifest.revisions.first() else {
        let base = base_among(&cases.iter().map(|c| c.name.as_str()).collect::<Vec<_>>());
        return (0..cases.len()).filter(|other| *other != base).map(|other| (base, other)).collect();
    };
    let revision = |case: &CaseFacts| case.values.iter().find(|v| v.0 == REVISION).map(|v| v.1.clone());
    let others = |case: &CaseFacts| -> Vec<(String, String)> {
        case.values.iter().filter(|v| v.0 != REVISION).cloned().collect()
    };
    let is_base = |case: &&CaseFacts| revision(case).as_ref() == Some(&first.name);
    // Named cases may have equal values: then their names begin alike.
    let stem = |case: &CaseFacts| {
        let end = format!(", {REVISION}={}", revision(case).unwrap_or_default());
        case.name.strip_suffix(&end).unwrap_or_default().to_owned()
    };
    let mut found = Vec::new();
    for (base, of_base) in cases.iter().enumerate().filter(|(_, case)| is_base(case)) {
        let is_same = |case: &CaseFacts| others(case) == others(of_base) && stem(case) == stem(of_base);
        let at_others = cases.iter().enumerate().filter(|(_, case)| !is_base(case) && is_same(case));
        found.extend(at_others.map(|(other, _)| (base, other)));
    }
    found
}
