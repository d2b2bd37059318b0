//! The plan's repository, as git knows it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use loadlab_record::documents::manifest::{CommitFacts, RevisionFacts, short_commit};
use loadlab_record::text::units::plural;

/// The most files that a message names.
const NAMED: usize = 3;

/// The commit that is checked out in a file's repository; `None` if the file is in no repository, or git cannot say.
pub fn present(file: &Path) -> Option<CommitFacts> {
    // A plan that is not a file was made from a URL, and tests no tree.
    let file = file.is_file().then(|| std::path::absolute(file).ok()).flatten()?;
    let dir = file.parent()?;
    let head = text(&git(dir, ["log", "-1", "--format=%H %s", "HEAD", "--"]).ok()?);
    let (commit, subject) = head.split_once(' ').unwrap_or((&head, ""));
    let status = git(dir, ["status", "--porcelain", "--untracked-files=no"]).ok()?;
    Some(CommitFacts { commit: commit.to_owned(), subject: subject.to_owned(), changed: !status.is_empty() })
}

/// The repository that a plan is in.
pub struct Repository {
    root: PathBuf,
    /// The plan's folder, relative to `root`.
    prefix: PathBuf,
}

impl Repository {
    /// The repository that a folder is in.
    ///
    /// # Errors
    /// In words: the folder is in no repository, or git cannot be run.
    pub fn of(dir: &Path) -> Result<Repository, String> {
        let said = git(dir, ["rev-parse", "--show-toplevel"]).map_err(|why| match why {
            Failed::NoGit(why) => why,
            Failed::Said(why) => format!(
                "the plan compares revisions, but {} is in no git repository that can be read: {why}\nhint: move the plan into \
                 the repository of what it tests",
                dir.display()
            ),
        })?;
        let prefix = git(dir, ["rev-parse", "--show-prefix"]).map_err(Failed::message)?;
        // Drops the trailing slash, which would otherwise occur twice in paths of the plan.
        Ok(Repository { root: path(&said), prefix: path(&prefix).components().collect() })
    }

    /// The plan's folder, relative to the repository's root.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The name of the repository's folder.
    pub fn name(&self) -> &OsStr {
        self.root.file_name().unwrap_or(OsStr::new("repository"))
    }

    /// The plan's folder in the working tree.
    pub fn dir(&self) -> PathBuf {
        self.root.join(&self.prefix)
    }

    /// A revision by its name.
    ///
    /// # Errors
    /// In words: there is no such revision.
    pub fn revision(&self, name: &str) -> Result<RevisionFacts, String> {
        let commit = format!("{name}^{{commit}}");
        let words = ["rev-parse", "--verify", "--quiet", "--end-of-options", &commit];
        let commit = git(&self.root, words).map(|out| text(&out)).map_err(|_| {
            format!(
                "there is no revision `{name}` in {}\nhint: check the name with `git log {name}`; a clone without its history or its \
                 branches gets them with `git fetch --unshallow` and `git fetch origin {name}:{name}`",
                self.root.display()
            )
        })?;
        let subject = git(&self.root, ["show", "-s", "--format=%s", &commit]).map_err(Failed::message)?;
        Ok(RevisionFacts { name: name.to_owned(), commit, subject: text(&subject) })
    }

    /// The revisions from `good`, which is the first of them, to `bad`: along first parents, oldest first.
    ///
    /// # Errors
    /// In words: `good` is not before `bad`, or not on its line of first parents.
    pub fn between(&self, good: &RevisionFacts, bad: &RevisionFacts) -> Result<Vec<RevisionFacts>, String> {
        let is_before = ["merge-base", "--is-ancestor", &good.commit, &bad.commit];
        git(&self.root, is_before).map_err(|_| {
            let (good, bad) = (&good.name, &bad.name);
            format!("`{good}` is not before `{bad}`\nhint: `$(git merge-base {good} {bad})..{bad}` lists the commits in between")
        })?;
        let range = format!("{}..{}", good.commit, bad.commit);
        let words = ["log", "--first-parent", "--reverse", "--format=%H %s", &range];
        let out = git(&self.root, words).map_err(Failed::message)?;
        let read = |line: &str| {
            let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
            let name = short_commit(commit).to_owned();
            RevisionFacts { name, commit: commit.to_owned(), subject: subject.to_owned() }
        };
        let mut all = vec![good.clone()];
        all.extend(text(&out).lines().map(read));
        if let Some(first) = all.get(1) {
            self.check_first_parent(first, good, bad)?;
        }
        Ok(all)
    }

    /// Refuses a good revision that came into the line of the bad one with a merge: commits of that line before the
    /// merge do not build on it.
    fn check_first_parent(
        &self,
        first: &RevisionFacts,
        good: &RevisionFacts,
        bad: &RevisionFacts,
    ) -> Result<(), String> {
        let parent = format!("{}^1", first.commit);
        let words = ["rev-parse", "--verify", "--quiet", "--end-of-options", &parent];
        if git(&self.root, words).is_ok_and(|out| text(&out) == good.commit) {
            return Ok(());
        }
        let (good, bad) = (&good.name, &bad.name);
        Err(format!(
            "`{good}` is not on the line of first parents of `{bad}`: a merge brought it in, so commits before that merge do not \
             build on it\nhint: take a good commit from `git log --first-parent {bad}`"
        ))
    }

    /// Refuses a revision whose checkout would not be complete.
    ///
    /// # Errors
    /// In words: the revision has submodules.
    pub fn check_submodules(&self, revision: &RevisionFacts) -> Result<(), String> {
        let all = git(&self.root, ["ls-tree", "-r", "-z", "--full-tree", &revision.commit])
            .map_err(Failed::message)?;
        let found = all.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"160000 commit "));
        let name = found.and_then(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1));
        name.map_or(Ok(()), |name| {
            Err(format!(
                "`{}` has the submodule {}, which is not checked out with it\nhint: a matrix of two cases, each with its own \
                 `build` and folder, compares such trees",
                revision.name,
                String::from_utf8_lossy(name)
            ))
        })
    }

    /// Changes of the working tree that belong to none of the revisions, in words, if one of the revisions is the
    /// commit that is checked out here: a user who compares that one may think that it has the changes. Changes of the
    /// plan do not count: the plan is always that of the working tree.
    ///
    /// # Errors
    /// In words: git cannot say.
    pub fn changed_since(&self, revisions: &[RevisionFacts], plan: &Path) -> Result<Option<String>, String> {
        let Ok(head) = git(&self.root, ["rev-parse", "--verify", "--quiet", "HEAD"]) else { return Ok(None) };
        let head = text(&head);
        let Some(present) = revisions.iter().find(|revision| revision.commit == head) else {
            return Ok(None);
        };
        let status = git(&self.root, ["status", "--porcelain", "-z", "--untracked-files=no", "--no-renames"])
            .map_err(Failed::message)?;
        let plan = self.prefix.join(plan);
        let changed: Vec<PathBuf> = status
            .split(|byte| *byte == 0)
            .filter_map(|entry| entry.get(3..))
            .map(|name| PathBuf::from(OsStr::from_bytes(name)))
            .filter(|name| *name != plan)
            .collect();
        Ok((!changed.is_empty()).then(|| {
            format!(
                "the tree has changes in {} that `{}` does not have: {}",
                plural(changed.len() as u64, "file", "files"),
                present.name,
                listed(&changed)
            )
        }))
    }

    /// Checks a revision out into a new folder, as a separate repository that borrows the objects of this one.
    ///
    /// # Errors
    /// In words.
    pub fn check_out(&self, revision: &RevisionFacts, into: &Path) -> Result<(), String> {
        let file = |path: &Path| {
            let path = path.display().to_string();
            move |error: std::io::Error| format!("cannot write {path}: {error}")
        };
        fs::create_dir_all(into).map_err(file(into))?;
        let of_git = |what: &str| {
            let out = git(&self.root, ["rev-parse", "--git-path", what]).map_err(Failed::message)?;
            Ok::<_, String>(self.root.join(path(&out)))
        };
        let format = git(&self.root, ["rev-parse", "--show-object-format"]).map_err(Failed::message)?;
        let format = format!("--object-format={}", text(&format));
        git(into, ["init", "--quiet", "--template=", &format]).map_err(Failed::message)?;
        let alternates = into.join(".git/objects/info/alternates");
        fs::create_dir_all(into.join(".git/objects/info")).map_err(file(into))?;
        let mut objects = of_git("objects")?.into_os_string();
        objects.push("\n");
        fs::write(&alternates, objects.as_bytes()).map_err(file(&alternates))?;
        let shallow = of_git("shallow")?;
        if shallow.exists() {
            fs::copy(&shallow, into.join(".git/shallow")).map_err(file(into))?;
        }
        // Builds often take their version from `git describe`.
        let root = self.root.as_os_str();
        let tags = ["fetch", "--quiet", "--no-auto-gc", "--no-tags"].map(OsStr::new);
        let tags = tags.into_iter().chain([root, OsStr::new("refs/tags/*:refs/tags/*")]);
        git(into, tags).map_err(Failed::message)?;
        let check_out =
            ["-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach", &revision.commit];
        git(into, check_out).map(drop).map_err(Failed::message)
    }

    /// Files that git tracks or would add, among `paths` and below them. Paths are relative to the plan's folder.
    ///
    /// # Errors
    /// In words.
    pub fn files(&self, paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let words =
            ["--literal-pathspecs", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"];
        let words = words.map(OsStr::new).into_iter().chain(paths.iter().map(|path| path.as_os_str()));
        let out = git(&self.dir(), words).map_err(Failed::message)?;
        let names = out.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
    }
}

/// Why git gave no answer.
enum Failed {
    /// git is not installed, or cannot be started.
    NoGit(String),
    /// git's error message.
    Said(String),
}

impl Failed {
    fn message(self) -> String {
        match self {
            Failed::NoGit(why) => why,
            Failed::Said(why) => format!("git: {why}"),
        }
    }
}

/// Runs git without the user's hooks, and without the variables that name a repository (which are set if loadlab runs
/// in a hook).
fn git(dir: &Path, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Vec<u8>, Failed> {
    let mut command = Command::new("git");
    // Signatures would be printed between commits.
    let plain = ["-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false"];
    command.arg("-C").arg(dir).args(plain).args(words).env("LC_ALL", "C");
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"] {
        command.env_remove(name);
    }
    let output = command.stdin(std::process::Stdio::null()).output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failed::NoGit("git is not installed, and revisions need it\nhint: apt-get install git".to_owned())
        }
        _ => Failed::NoGit(format!("git cannot be started: {error}")),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("fatal: ");
    Err(Failed::Said(if said.is_empty() { output.status.to_string() } else { said.to_owned() }))
}

fn text(out: &[u8]) -> String {
    String::from_utf8_lossy(out).trim_end().to_owned()
}

fn path(out: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(out.strip_suffix(b"\n").unwrap_or(out)))
}

/// The first few of these files, and how many more there are.
pub(super) fn listed(files: &[PathBuf]) -> String {
    let named: Vec<String> = files.iter().take(NAMED).map(|file| file.display().to_string()).collect();
    let more = files.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_good_end_is_on_the_line_of_first_parents() {
        let dir = tempfile::tempdir().unwrap();
        let settings =
            ["user.name=Nobody", "user.email=nobody@localhost", "commit.gpgsign=false", "tag.gpgsign=false"];
        let of_git = |words: &[&str]| {
            let settings = settings.iter().flat_map(|setting| ["-c", *setting]);
            let said = git(dir.path(), settings.chain(words.iter().copied()));
            assert!(said.is_ok(), "git {words:?}");
        };
        let commit = |message: &str| of_git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        of_git(&["init", "--quiet"]);
        commit("Start");
        of_git(&["tag", "start"]);
        of_git(&["checkout", "--quiet", "-b", "side"]);
        commit("On the side");
        of_git(&["tag", "v1"]);
        of_git(&["checkout", "--quiet", "-"]);
        commit("Before the merge");
        of_git(&["merge", "--quiet", "--no-ff", "-m", "Merge", "side"]);
        of_git(&["tag", "merged"]);
        commit("After");

        let Ok(repository) = Repository::of(dir.path()) else { panic!("it is a repository") };
        let between = |good: &str, bad: &str| {
            let (good, bad) = (repository.revision(good).unwrap(), repository.revision(bad).unwrap());
            let found = repository.between(&good, &bad)?;
            Ok::<_, String>(found.into_iter().map(|revision| revision.subject).collect::<Vec<_>>())
        };
        let all = ["Start", "Before the merge", "Merge", "After"].map(str::to_owned);
        assert_eq!(between("start", "HEAD"), Ok(all.to_vec()));
        assert_eq!(between("merged", "HEAD"), Ok(all[2..].to_vec()));
        assert_eq!(between("v1", "v1"), Ok(vec!["On the side".to_owned()]));
        let why = between("v1", "HEAD").unwrap_err();
        assert!(why.starts_with("`v1` is not on the line of first parents of `HEAD`"), "{why}");
        assert!(why.ends_with("\nhint: take a good commit from `git log --first-parent HEAD`"), "{why}");
        let why = between("HEAD", "start").unwrap_err();
        assert!(why.starts_with("`HEAD` is not before `start`"), "{why}");
    }
}
