//! The run's manifest: the resolved plan, as its record keeps it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use loadlab_plan::{self as plan, Case, Plan};
use loadlab_record::documents::manifest::{
    CaseFacts, ComponentFacts, DerivedFacts, FigureFacts, Host, Manifest, RunEnded, UntilCertain,
};
use loadlab_record::store::{RECORD_VERSION, case_dir_names};
use loadlab_record::text::hex::to_hex;

use crate::host;
use crate::options::RunOptions;

/// The folder that a plan's relative paths refer to, as an absolute path.
pub fn plan_dir(plan: &Plan) -> PathBuf {
    std::path::absolute(&plan.dir).unwrap_or_else(|_| Path::new(&plan.dir).to_owned())
}

/// SHA-256 of a plan's text, in hexadecimal, as recorded.
pub fn plan_sha256(text: &str) -> String {
    use sha2::{Digest, Sha256};
    to_hex(&Sha256::digest(text.as_bytes()))
}

/// The manifest of a run that is about to begin.
pub fn manifest_of(plan: &Plan, options: &RunOptions) -> Manifest {
    let cases = plan.cases();
    let dirs = case_dir_names(&cases.iter().map(|c| c.name.as_str()).collect::<Vec<_>>());
    let components = cases.iter().flat_map(|c| &c.system.components);
    let figures = figures(plan);
    let facts = |c: &plan::ComponentSpec| ComponentFacts { name: c.name.clone(), run: c.kind.text() };
    Manifest {
        record: RECORD_VERSION,
        loadlab: env!("CARGO_PKG_VERSION").to_owned(),
        name: plan.name.clone(),
        plan_path: plan.path.clone(),
        plan_text: plan.shown_text.clone(),
        plan_sha256: plan_sha256(&options.plan_text),
        options: options.as_given.clone(),
        started: host::rfc3339_now(),
        ended: None,
        how: RunEnded::Partial,
        writer: host::writer(),
        host: Host::default(),
        words: plan.describe(),
        revisions: options.revisions.clone(),
        commit: options.commit.clone().filter(|_| options.revisions.is_empty()),
        components: first_of_each(components.map(facts), |c| c.name.clone()),
        axes: plan.axes.clone(),
        cases: cases.iter().zip(&dirs).map(|(case, dir)| case_facts(case, dir, &figures)).collect(),
        trials: plan.trials,
        until_certain: plan.until_certain.map(until_certain),
        expect: first_of_each(cases.iter().flat_map(expected).map(|e| e.text.clone()), String::clone),
        figures,
        layout: plan.layout.map(str::to_owned),
        derive: plan.derive.iter().map(derived_facts).collect(),
        quick: plan.quick,
        search: None,
        why: None,
    }
}

/// The expectations of a case: those of each search level and those of its trials.
fn expected(case: &Case) -> impl Iterator<Item = &plan::Expression> {
    case.find.iter().flat_map(|find| &find.expect).chain(&case.expect)
}

/// The figures that matter, each as defined by the first case that has it.
pub fn figures(plan: &Plan) -> Vec<FigureFacts> {
    let all = plan.cases().iter().flat_map(|c| &c.figures);
    first_of_each(all.map(figure_facts), |f| f.name.clone())
}

/// The manifest's form of this setting, with a freshly drawn seed that cannot be known in advance.
pub fn until_certain(until: plan::UntilCertain) -> UntilCertain {
    let random = RandomState::new().build_hasher().finish();
    UntilCertain {
        within: until.within,
        budget_s: until.budget_ns.map(|ns| ns as f64 / 1e9),
        // Integers below 2⁵³ are exact in JSON.
        seed: random >> 11,
        ended: None,
    }
}

/// The figures of a case, as records and events represent them.
pub fn figures_of_case(case: &Case) -> Vec<FigureFacts> {
    case.figures.iter().map(figure_facts).collect()
}

fn figure_facts(figure: &plan::FigureSpec) -> FigureFacts {
    let plan::FigureSpec { name, value, kind, unit, better, about } = figure.clone();
    FigureFacts { name, value, kind, unit, better, about }
}

fn derived_facts(derived: &plan::DerivedSpec) -> DerivedFacts {
    let plan::DerivedSpec { name, value, against } = derived.clone();
    DerivedFacts { name, value, against }
}

/// A case, whose folder is `dir`, beside the `figures` of the whole run.
pub fn case_facts(case: &Case, dir: &str, figures: &[FigureFacts]) -> CaseFacts {
    let model = match case.loads.as_slice() {
        [load] => Some(&load.model),
        _ => None,
    };
    let (users, rate_per_s) = match model {
        Some(plan::Model::Closed { users, .. }) => (Some(*users), None),
        Some(plan::Model::Open { rate_per_s, .. }) => (None, Some(*rate_per_s)),
        // A rate of arriving users is not a rate of requests.
        Some(plan::Model::Sessions { .. } | plan::Model::Command(_)) | None => (None, None),
    };
    let differs =
        |f: &&plan::FigureSpec| figures.iter().any(|all| all.name == f.name && all.value != f.value);
    let own = case.figures.iter().filter(differs).map(|f| (f.name.clone(), f.value.clone()));
    CaseFacts {
        name: case.name.clone(),
        dir: dir.to_owned(),
        values: case.values.clone(),
        users,
        rate_per_s,
        figures: own.collect(),
        control_of: case.control_of.clone(),
    }
}

/// Keeps the first item with each key, in order.
fn first_of_each<T, K: Ord>(all: impl Iterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = std::collections::BTreeSet::new();
    all.filter(|one| seen.insert(key(one))).collect()
}
