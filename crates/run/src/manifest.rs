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
        given: plan.given.iter().map(|(name, value)| (name.clone(), kept(value))).collect(),
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

/// A public value from outside as the manifest keeps it: without passwords in URLs, and of a long one only the hash.
fn kept(value: &str) -> String {
    const MOST_BYTES: usize = 200;
    let value = plan::credentials::masked_url(value);
    if value.len() > MOST_BYTES { format!("SHA-256 {}", plan_sha256(&value)) } else { value.into_owned() }
}

/// What is different about a plan since the run began whose manifest is `recorded`, although its text is the same: a
/// value from outside may have changed. In words; compared as the record has it, without secrets.
pub fn changed_since(recorded: &Manifest, plan: &Plan, options: &RunOptions) -> Option<String> {
    let now = options.secrets.mask_value(manifest_of(plan, options))?;
    difference(recorded, &now)
}

/// The first thing that differs between what two manifests say of the plan.
fn difference(recorded: &Manifest, now: &Manifest) -> Option<String> {
    // Paths differ if the plan was moved, and revisions are checked out into another folder each time.
    let is_elsewhere = recorded.plan_path != now.plan_path || !now.revisions.is_empty();
    // Another version may describe the same plan in other words.
    let is_same_version = recorded.loadlab == now.loadlab;
    let differ = |(then, now): &(String, String)| match is_elsewhere {
        // Where a text is cut off depends on the paths in it.
        true if then.contains('…') || now.contains('…') => false,
        true => without_paths(then) != without_paths(now),
        false => then != now,
    };
    let mut pairs = facts(recorded, is_same_version).into_iter().zip(facts(now, is_same_version));
    let found = pairs.find_map(|((what, then), (_, now))| {
        let most = then.len().max(now.len());
        let at = |list: &[String], i: usize| list.get(i).cloned().unwrap_or_default();
        let mut both = (0..most).map(|i| (at(&then, i), at(&now, i)));
        both.find(differ).map(|pair| (what, pair))
    });
    // The words leave out headers, for example, and environment variables of components. Where the plan is makes no
    // difference to these values: a slash in one may be that of an image's name.
    let mut given = recorded.given.iter().map(|(name, then)| {
        (name.as_str(), (then.clone(), now.given.get(name).cloned().unwrap_or_default()))
    });
    let found = found.or_else(|| given.find(|(_, (then, now))| then != now));
    let of = |text: String| match text.is_empty() {
        true => "nothing".to_owned(),
        false => format!("`{}`", text.replace('\n', " ")),
    };
    found.map(|(what, (then, now))| format!("{what}: {}, which was {}", of(now), of(then)))
}

/// What a manifest says of the plan, each with a word for it: most readable first.
fn facts(manifest: &Manifest, has_words: bool) -> [(&'static str, Vec<String>); 7] {
    fn lines<T: serde::Serialize>(all: &[T]) -> Vec<String> {
        all.iter().map(|one| serde_json::to_string(one).unwrap_or_default()).collect()
    }
    let component = |c: &ComponentFacts| format!("{} {}", c.name, c.run).replace('\n', " ");
    [
        ("plan", if has_words { manifest.words.clone() } else { Vec::new() }),
        ("component", manifest.components.iter().map(component).collect()),
        ("axis", manifest.axes.clone()),
        ("case", lines(&manifest.cases)),
        ("expectation", manifest.expect.clone()),
        ("figure", lines(&manifest.figures)),
        ("derived figure", lines(&manifest.derive)),
    ]
}

/// The words of a text that are not paths.
fn without_paths(text: &str) -> Vec<&str> {
    text.split_whitespace().filter(|word| !word.contains('/') || word.contains("://")).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(words: &[&str], run: &str) -> Manifest {
        let value = serde_json::json!({
            "record": 2, "loadlab": "1", "name": "test", "plan_path": "plan.yaml", "plan_text": "", "plan_sha256": "",
            "options": [], "started": "", "ended": null, "how": "partial", "writer": { "pid": 1, "start_ticks": 1 },
            "host": Host::default(), "words": words, "components": [{ "name": "web", "run": run }], "axes": [],
            "trials": 1, "expect": ["p99 < 1s"], "quick": false, "cases": [],
        });
        serde_json::from_value(value).expect("a manifest")
    }

    #[test]
    fn a_plan_is_another_one_if_it_describes_something_else() {
        let began = manifest(&["test", "load: 1 user"], "./web");
        assert_eq!(difference(&began, &Manifest { how: RunEnded::Complete, ..began.clone() }), None);
        let words = manifest(&["test", "load: 2 users"], "./web");
        assert_eq!(
            difference(&began, &words).as_deref(),
            Some("plan: `load: 2 users`, which was `load: 1 user`")
        );
        assert_eq!(difference(&began, &Manifest { loadlab: "2".to_owned(), ..words }), None);
        let more = manifest(&["test", "load: 1 user", "note: x"], "./web");
        assert_eq!(difference(&began, &more).as_deref(), Some("plan: `note: x`, which was nothing"));
        let run = manifest(&["test", "load: 1 user"], "./web\n-v");
        assert_eq!(
            difference(&began, &run).as_deref(),
            Some("component: `web ./web -v`, which was `web ./web`")
        );
        let expect = Manifest { expect: vec!["p99 < 2s".to_owned()], ..began.clone() };
        let said = "expectation: `p99 < 2s`, which was `p99 < 1s`";
        assert_eq!(difference(&began, &expect).as_deref(), Some(said));
    }

    /// As in headers, which the words leave out.
    #[test]
    fn a_plan_is_another_one_if_something_else_is_given_to_it() {
        let given = |value: &str| Manifest {
            given: [("env.KIND".to_owned(), kept(value))].into(),
            ..manifest(&["test"], "./web")
        };
        let began = given("small");
        assert_eq!(difference(&began, &given("small")), None);
        let said = difference(&began, &given("large\nlarger"));
        assert_eq!(said.as_deref(), Some("env.KIND: `large larger`, which was `small`"));
        // Another version does not describe it in other words.
        let other = Manifest { loadlab: "2".to_owned(), ..given("large") };
        assert_eq!(difference(&began, &other).as_deref(), Some("env.KIND: `large`, which was `small`"));
        // Not a path, although it has a slash: it is also compared if the plan was moved.
        let moved = Manifest { plan_path: "moved.yaml".to_owned(), ..given("a.test/web:2") };
        let said = difference(&given("a.test/web:1"), &moved);
        assert_eq!(said.as_deref(), Some("env.KIND: `a.test/web:2`, which was `a.test/web:1`"));
        // A record of a version that did not keep it.
        assert_eq!(difference(&manifest(&["test"], "./web"), &began), None);
        assert_eq!(kept("http://user:pass-word@a.test/"), "http://user:***@a.test/");
        let (one, two) = (given(&"a".repeat(1000)), given(&"b".repeat(1000)));
        assert!(difference(&one, &two).is_some_and(|said| said.starts_with("env.KIND: `SHA-256 ")));
    }

    #[test]
    fn paths_of_a_plan_that_was_moved_are_not_compared() {
        let words = |dir: &str, url: &str| {
            let moved = manifest(&[&format!("web: built from {dir}/web, ready when {url} answers")], dir);
            Manifest { plan_path: format!("{dir}/plan.yaml"), ..moved }
        };
        let began = words("/one", "http://127.0.0.1:1/");
        assert_eq!(difference(&began, &words("/two", "http://127.0.0.1:1/")), None);
        assert!(difference(&began, &words("/two", "http://127.0.0.1:2/")).is_some());
        let same_place =
            Manifest { plan_path: began.plan_path.clone(), ..words("/two", "http://127.0.0.1:1/") };
        assert!(difference(&began, &same_place).is_some());
    }
}
