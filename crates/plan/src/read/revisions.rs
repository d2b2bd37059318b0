//! Revisions of the plan's repository to compare.

use crate::model::component_kind::{ComponentKind, Image, Lifetime};
use crate::model::plan::{Plan, Revision};
use crate::model::spec::ComponentSpec;
use crate::read::reader::{Fields, Reader};
use crate::text::error::{Problem, Problems};
use crate::text::shorten::shorten;

/// Maximum number of revisions of one run.
const MAX_REVISIONS: usize = 100;

/// Reads `revisions`.
pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<Revision> {
    let mut found: Vec<Revision> = Vec::new();
    for name in r.texts(fields, "revisions") {
        let text = name.text.as_str();
        let why = match () {
            () if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) => {
                Some(("is not the name of a revision", "a branch, a tag, a commit, or `HEAD~3`"))
            }
            () if text.starts_with('-') => {
                Some(("is not the name of a revision", "names do not begin with `-`"))
            }
            () if text.contains("..") => {
                Some(("is a range of revisions", "list its ends: `revisions: [main, HEAD]`"))
            }
            () if found.iter().any(|known| known.name == text) => {
                Some(("is listed twice", "list each revision once"))
            }
            () => None,
        };
        if let Some((why, hint)) = why {
            r.wrong(&name, format!("`{}` {why}", shorten(text)), Some(hint.to_owned()));
            continue;
        }
        let dir =
            r.revisions.iter().find(|known| known.name == name.text).and_then(|known| known.dir.clone());
        found.push(Revision { name: name.text, dir });
    }
    if found.len() > MAX_REVISIONS {
        r.push(Problem::new(fields.key_span("revisions"), format!("more than {MAX_REVISIONS} revisions")));
        found.truncate(MAX_REVISIONS);
    }
    found
}

/// Reports what would be the same for all revisions although it should be built from each. Call it once all cases have
/// been read.
pub(crate) fn check(plan: &Plan, fields: &Fields<'_>, problems: &mut Problems) {
    let Some(first) = plan.cases.first().filter(|_| !plan.revisions.is_empty()) else { return };
    let at = fields.key_span("revisions");
    if first.system.compose.is_some() {
        let message =
            "services of a Compose file cannot be compared by revision: their images have one name for all";
        problems.push(Problem::new(at, message).hint("describe them in `components`, each with its `build`"));
    }
    if let Some(second) = plan.cases.get(1) {
        let outlives = |c: &&ComponentSpec| c.lifetime == Lifetime::Experiment;
        let differs = |c: &&ComponentSpec| {
            !c.build.is_empty()
                || second.system.components.iter().any(|o| o.name == c.name && o.kind != c.kind)
        };
        if let Some(kept) = first.system.components.iter().filter(outlives).find(differs) {
            let message = format!(
                "`{}` has `lifetime: experiment`, so all revisions would have that of the first",
                kept.name
            );
            problems
                .push(Problem::new(at, message).hint("what differs between revisions has `lifetime: trial`"));
        }
    }
    let image = |c: &ComponentSpec| match &c.kind {
        ComponentKind::Container(container) => match &container.image {
            Image::Named(name) => Some((c.name.clone(), name.clone())),
            Image::Built { .. } => None,
        },
        _ => None,
    };
    let built = |case: &crate::model::spec::Case| -> Vec<(String, String)> {
        case.system.components.iter().filter(|c| !c.build.is_empty()).filter_map(image).collect()
    };
    let of_first = built(first);
    for (name, image) in plan.cases.get(1).map(built).unwrap_or_default() {
        if of_first.contains(&(name.clone(), image.clone())) {
            let message = format!(
                "`{name}` has the image `{}` at every revision, and builds it from each",
                shorten(&image)
            );
            problems
                .push(Problem::new(at, message).hint(format!("`{}:${{case.revision}}`", shorten(&image))));
        }
    }
}
