//! The revisions that a plan compares, each checked out into a folder of its own.
//!
//! Such a folder is a repository that borrows the objects of the plan's: builds may ask git what they build, and nothing is
//! written into the plan's own repository. All of them are in one folder, which goes with this process, however that ends.

mod files;
mod git;

use std::path::{Path, PathBuf};

use loadlab_analysis::Exit;
use loadlab_plan::{Options, Revision};
use loadlab_record::manifest::RevisionFacts;
use loadlab_system::{Guardian, OwnFolder};

use super::check::{self, ReadPlan};
use crate::args::PlanChoice;
use crate::exit::Ended;
use git::Repository;

/// A plan whose cases are in folders of their revisions.
pub struct CheckedOut {
    /// With the folders of its revisions.
    pub read: ReadPlan,
    /// For the record.
    pub facts: Vec<RevisionFacts>,
    /// What a reader should know about them.
    pub notes: Vec<String>,
    folder: OwnFolder,
}

impl CheckedOut {
    /// Removes the folders now; what cannot be removed is said.
    pub fn remove(self) -> Option<String> {
        let path = self.folder.path().display().to_string();
        self.folder.remove().err().map(|error| format!("{path} remains: {error}\nhint: try `loadlab clean`"))
    }
}

/// Checks out the revisions of a plan. The guardian removes them if this process cannot.
///
/// # Errors
/// The plan is in no repository, a revision does not exist or has submodules, the tree has changes that no revision has, or
/// something cannot be written.
pub fn check_out(
    read: &ReadPlan,
    choice: &PlanChoice,
    allow_dirty: bool,
    guardian: Guardian,
) -> Result<CheckedOut, Ended> {
    let bad = |why: String| Ended::error(Exit::BadPlan, why);
    let not_up = |why: String| Ended::error(Exit::NotUp, why);
    let repository = Repository::of(Path::new(&read.plan.dir)).map_err(bad)?;
    let mut facts = Vec::new();
    for revision in &read.plan.revisions {
        let known = repository.revision(&revision.name).map_err(bad)?;
        repository.check_submodules(&known).map_err(bad)?;
        facts.push(known);
    }
    let mut notes = Vec::new();
    let plan = file_name(&read.path);
    if let Some(changed) = repository.changed_since(&facts, &plan).map_err(bad)? {
        match allow_dirty {
            true => notes.push(format!("{changed}; they are left out")),
            false => {
                let hint = "commit or stash them; or --allow-dirty leaves them out";
                return Err(bad(format!("{changed}\nhint: {hint}")));
            }
        }
    }
    if let [first, others @ ..] = facts.as_slice()
        && let Some(same) = others.iter().find(|other| other.commit == first.commit)
    {
        notes.push(format!(
            "`{}` and `{}` are the same commit: what differs is chance",
            first.name, same.name
        ));
    }
    let folder =
        OwnFolder::new(&std::env::temp_dir(), "revisions", guardian).map_err(|e| not_up(e.to_string()))?;
    let mut revisions = Vec::new();
    for (number, known) in facts.iter().enumerate() {
        let into = folder.path().join(number.to_string()).join(repository.name());
        repository.check_out(known, &into).map_err(not_up)?;
        let dir: PathBuf = into.join(repository.prefix()).components().collect();
        let taken = files::complete(&repository, &read.text, &dir).map_err(not_up)?;
        notes.extend(
            taken.map(|taken| format!("`{}` has no {taken}: taken from the present tree", known.name)),
        );
        revisions.push(Revision { name: known.name.clone(), dir: Some(dir.display().to_string()) });
    }
    let with = Options { revisions, ..read.read_with.clone() };
    let read = check::parse(&read.path, read.text.clone(), with, choice)?;
    Ok(CheckedOut { read, facts, notes, folder })
}

fn file_name(path: &str) -> PathBuf {
    Path::new(path).file_name().map(PathBuf::from).unwrap_or_default()
}
