//! Files that the plan names and a revision lacks: a plan is often newer than what it tests.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::git::{Repository, listed};

/// The most names that are looked up.
const MOST_WORDS: usize = 10_000;

/// Copies the files that the plan's text names from the working tree into the plan's folder of a revision, if they are
/// missing there. Files that git ignores are left out: they were built here, and each revision builds its own. Returns
/// what was copied, in words.
///
/// # Errors
/// In words: a file cannot be copied.
pub fn complete(repository: &Repository, plan: &str, into: &Path) -> Result<Option<String>, String> {
    let failed = |path: &Path, error: std::io::Error| format!("cannot copy {}: {error}", path.display());
    fs::create_dir_all(into).map_err(|error| failed(into, error))?;
    let from = repository.dir();
    let missing: Vec<PathBuf> = words(plan)
        .into_iter()
        .filter(|path| from.join(path).exists() && !into.join(path).exists())
        .collect();
    let files = repository.files(&missing)?;
    for file in &files {
        let (source, target) = (from.join(file), into.join(file));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
        }
        copy(&source, &target).map_err(|error| failed(&source, error))?;
    }
    Ok((!files.is_empty()).then(|| listed(&files)))
}

/// Copies a file, or what a link to a file leads to, since that may be in no revision; a link to a folder as a link.
/// git also lists files that were deleted from the tree: there is nothing to copy.
fn copy(source: &Path, target: &Path) -> std::io::Result<()> {
    let Ok(found) = fs::metadata(source) else { return Ok(()) };
    match fs::read_link(source) {
        _ if found.is_file() => fs::copy(source, target).map(drop),
        Ok(_) if target.symlink_metadata().is_ok() => Ok(()),
        Ok(to) => std::os::unix::fs::symlink(to, target),
        Err(_) => Err(std::io::Error::other("it is a repository inside this one")),
    }
}

/// Words of the plan that may be paths in or below its folder, each once.
fn words(plan: &str) -> Vec<PathBuf> {
    let text = plan.replace("${plan.dir}/", " ");
    let is_between = |c: char| c.is_whitespace() || "\"'`,;:=|&<>()[]{}@#$".contains(c);
    let mut found: Vec<PathBuf> = Vec::new();
    for word in text.split(is_between).filter(|word| !word.is_empty()) {
        let parts: Vec<Component<'_>> = Path::new(word).components().collect();
        let path: PathBuf = parts.iter().filter(|part| **part != Component::CurDir).collect();
        let is_inside = parts.iter().all(|part| matches!(part, Component::CurDir | Component::Normal(_)));
        if is_inside && path != Path::new("") && !found.contains(&path) && found.len() < MOST_WORDS {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_folder_is_copied_as_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, into) = (dir.path().join("tree"), dir.path().join("into"));
        fs::create_dir_all(tree.join("real")).unwrap();
        std::os::unix::fs::symlink("real", tree.join("conf")).unwrap();
        copy(&tree.join("conf"), &dir.path().join("conf")).unwrap();
        assert_eq!(fs::read_link(dir.path().join("conf")).unwrap(), Path::new("real"));
        fs::write(dir.path().join("elsewhere"), "rows").unwrap();
        std::os::unix::fs::symlink("../elsewhere", tree.join("rows.csv")).unwrap();
        copy(&tree.join("rows.csv"), &dir.path().join("rows.csv")).unwrap();
        assert!(dir.path().join("rows.csv").symlink_metadata().unwrap().is_file());
        copy(&tree.join("deleted"), &into).unwrap();
        assert!(!into.exists() && copy(&tree.join("real"), &into).is_err());
    }

    #[test]
    fn paths_are_found_in_commands_maps_and_lists() {
        let plan = "run: ./app/server --config=${plan.dir}/conf/a.yaml <in.txt\nfeeds: { people: { file: people.csv } }\n\
                    volumes: [data:/var/data]\nup: ../secret /etc/passwd";
        let found = words(plan);
        for path in ["app/server", "conf/a.yaml", "in.txt", "people.csv", "data"] {
            assert!(found.contains(&PathBuf::from(path)), "{path}: {found:?}");
        }
        let outside = |path: &&PathBuf| path.is_absolute() || path.starts_with("..");
        assert_eq!(found.iter().find(outside), None);
    }
}
