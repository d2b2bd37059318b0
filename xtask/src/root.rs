//! The repository on disk: where it is, and what it contains. It does not use git, so that a tarball works too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Folders that contain nothing of ours: what builds, runs and fuzzing leave behind, and git's own.
const NOT_OURS: &[&str] = &[".git", "artifacts", "corpus", "loadlab-runs", "node_modules", "target"];

/// The repository's folder.
pub fn root() -> PathBuf {
    // Cargo provides the manifest's current path; since the build, the tree may have moved.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = manifest.filter(|dir| dir.ends_with("xtask"));
    let xtask = here.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    xtask.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Cargo's target folder for the workspace.
pub fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Folders of labs that have a plan, sorted.
///
/// # Errors
/// The folder `labs` cannot be read.
pub fn labs() -> io::Result<Vec<PathBuf>> {
    let mut labs = Vec::new();
    for entry in fs::read_dir(root().join("labs"))? {
        let path = entry?.path();
        if path.join("plan.yaml").is_file() {
            labs.push(path);
        }
    }
    labs.sort();
    Ok(labs)
}

/// Names of the parts that several labs use and that Maven builds, sorted.
///
/// # Errors
/// The folder `labs/parts` cannot be read.
pub fn parts_of_labs() -> io::Result<Vec<String>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(root().join("labs/parts"))? {
        let entry = entry?;
        if entry.path().join("pom.xml").is_file() {
            parts.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    parts.sort();
    Ok(parts)
}

/// Every file of ours below a folder, relative to it, with `/` between the parts.
///
/// # Errors
/// A folder cannot be read.
pub fn files(root: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            // Below `src` every folder is code, whatever its name.
            let ours = folder.iter().any(|part| part == "src")
                || !NOT_OURS.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && ours {
                folders.push(entry.path());
            } else if kind.is_file()
                && ours
                && let Ok(path) = entry.path().strip_prefix(root)
            {
                found.insert(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(found)
}
