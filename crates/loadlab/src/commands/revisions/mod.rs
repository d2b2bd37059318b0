//! The revisions that a plan compares, each checked out into its own folder.
//!
//! Such a folder is a repository that borrows the objects of the plan's repository: builds may ask git what they build,
//! and nothing is written into the plan's own repository. All of them are in one folder, which is removed when this
//! process ends, however it ends.

mod files;
pub mod git;

use std::path::{Path, PathBuf};

use loadlab_analysis::Exit;
use loadlab_plan::{Options, Revision};
use loadlab_record::documents::manifest::RevisionFacts;
use loadlab_system::{Guardian, OwnFolder};

use super::read_plan::{self, ReadPlan};
use crate::args::PlanChoice;
use crate::exit::CommandEnd;
use git::Repository;

/// A plan whose revisions are checked out.
pub struct CheckedOut {
    /// The plan, with the folders of its revisions.
    pub read: ReadPlan,
    /// Commits of the revisions, for the record.
    pub facts: Vec<RevisionFacts>,
    /// What a reader should know about the revisions.
    pub notes: Vec<String>,
    trees: Trees,
}

impl CheckedOut {
    /// Removes the trees now; returns what cannot be removed, in words.
    pub fn remove(self) -> Option<String> {
        self.trees.remove()
    }
}

/// Checks out the revisions of a plan. The guardian removes them if this process cannot.
///
/// # Errors
/// The plan is in no repository, a revision does not exist or has submodules, the tree has changes that no revision
/// has, or a file or folder cannot be written.
pub fn check_out(
    read: &ReadPlan,
    choice: &PlanChoice,
    allow_dirty: bool,
    guardian: Guardian,
) -> Result<CheckedOut, CommandEnd> {
    let bad = |why: String| CommandEnd::error(Exit::BadPlan, why);
    let not_up = |why: String| CommandEnd::error(Exit::NotUp, why);
    let repository = Repository::of(Path::new(&read.plan.dir)).map_err(bad)?;
    let mut facts = Vec::new();
    for revision in &read.plan.revisions {
        let known = repository.revision(&revision.name).map_err(bad)?;
        repository.check_submodules(&known).map_err(bad)?;
        facts.push(known);
    }
    let mut notes = Vec::new();
    notes.extend(changes(&repository, &facts, &read.path, allow_dirty).map_err(bad)?);
    if let [first, others @ ..] = facts.as_slice()
        && let Some(same) = others.iter().find(|other| other.commit == first.commit)
    {
        notes.push(format!(
            "`{}` and `{}` are the same commit: what differs is chance",
            first.name, same.name
        ));
    }
    let trees = Trees::new(repository, guardian).map_err(not_up)?;
    let mut revisions = Vec::new();
    for known in &facts {
        let (dir, taken) = trees.check_out(known, &read.text).map_err(not_up)?;
        notes.extend(taken);
        revisions.push(Revision { name: known.name.clone(), dir: Some(dir) });
    }
    let with = Options { revisions, ..read.read_with.clone() };
    let read = read_plan::parse(&read.path, read.text.clone(), with, choice)?;
    Ok(CheckedOut { read, facts, notes, trees })
}

/// A folder with trees of revisions, which is removed when this process ends, however it ends.
pub struct Trees {
    repository: Repository,
    folder: OwnFolder,
}

impl Trees {
    /// Makes an empty folder; the guardian removes it if this process cannot.
    ///
    /// # Errors
    /// In words: the folder cannot be made.
    pub fn new(repository: Repository, guardian: Guardian) -> Result<Trees, String> {
        let folder =
            OwnFolder::new(&std::env::temp_dir(), "revisions", guardian).map_err(|e| e.to_string())?;
        Ok(Trees { repository, folder })
    }

    /// The repository that the revisions are from.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Checks a revision out, and adds what the plan names and the revision lacks. Returns the plan's folder in the
    /// tree, and what a reader should know.
    ///
    /// # Errors
    /// In words.
    pub fn check_out(&self, known: &RevisionFacts, plan: &str) -> Result<(String, Option<String>), String> {
        let into = self.folder.path().join(&known.commit).join(self.repository.name());
        let dir: PathBuf = into.join(self.repository.prefix()).components().collect();
        if into.exists() {
            return Ok((dir.display().to_string(), None));
        }
        self.repository.check_out(known, &into)?;
        let taken = files::complete(&self.repository, plan, &dir)?;
        let taken =
            taken.map(|taken| format!("`{}` has no {taken}: taken from the working tree", known.name));
        Ok((dir.display().to_string(), taken))
    }

    /// Removes the trees now; returns what cannot be removed, in words.
    pub fn remove(self) -> Option<String> {
        let path = self.folder.path().display().to_string();
        self.folder.remove().err().map(|error| format!("{path} remains: {error}\nhint: try `loadlab clean`"))
    }
}

/// A remark on changes of the tree that none of the revisions has, if `allow_dirty` leaves them out.
///
/// # Errors
/// In words: there are such changes and they may not be left out, or git cannot say.
pub fn changes(
    repository: &Repository,
    revisions: &[RevisionFacts],
    plan: &str,
    allow_dirty: bool,
) -> Result<Option<String>, String> {
    match (repository.changed_since(revisions, &file_name(plan))?, allow_dirty) {
        (Some(changed), false) => {
            Err(format!("{changed}\nhint: commit or stash them; or --allow-dirty leaves them out"))
        }
        (changed, _) => Ok(changed.map(|changed| format!("{changed}; they are left out"))),
    }
}

fn file_name(path: &str) -> PathBuf {
    Path::new(path).file_name().map(PathBuf::from).unwrap_or_default()
}
