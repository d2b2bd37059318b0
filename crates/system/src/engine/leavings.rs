//! What a run has made at an engine, found by its label and removed: containers first, then networks and volumes.
//!
//! It works from the label alone, so that it can be done by the guardian, or by `clean` after a power cut.

use std::path::Path;

use serde_json::Value;

use super::container::RUN_LABEL;
use super::{Call, Engine, EngineError, Result, labelled};

/// The label that Compose gives to everything of a project.
pub(crate) const PROJECT_LABEL: &str = "com.docker.compose.project";
/// Projects of ours have names that begin so.
pub(crate) const PROJECT: &str = "loadlab-";
/// Removing one thing may take so long.
const REMOVE_NS: u64 = 20_000_000_000;

/// Something that is left: what it is in words, and where it is removed.
#[derive(Debug)]
pub(crate) struct Left {
    pub what: String,
    path: String,
}

/// Whether this label can only be that of a run: whatever else a state file claims is left alone.
pub(crate) fn is_ours(label: &str) -> bool {
    match label.split_once('=') {
        Some((RUN_LABEL, run)) => !run.is_empty(),
        Some((PROJECT_LABEL, project)) => project.len() > PROJECT.len() && project.starts_with(PROJECT),
        _ => false,
    }
}

/// Everything with a label at the engine of a socket.
///
/// # Errors
/// The engine does not answer. Without its socket nothing can be known.
pub(crate) fn find(socket: &Path, label: &str) -> Result<(Engine, Vec<Left>)> {
    let engine = Engine::at(socket)?;
    let filters = labelled(label);
    let mut left = Vec::new();
    let list = |path: String| engine.call(Call::new("list what a run has made", "GET", path)).map(|a| a.body);
    let text = |value: &Value| value.as_str().unwrap_or_default().trim_start_matches('/').to_owned();
    for found in items(list(format!("/containers/json?all=1&filters={filters}"))?) {
        let (id, name) = (text(&found["Id"]), text(&found["Names"][0]));
        left.push(Left { what: format!("container {name}"), path: format!("/containers/{id}?force=1&v=1") });
    }
    for found in items(list(format!("/networks?filters={filters}"))?) {
        let (id, name) = (text(&found["Id"]), text(&found["Name"]));
        left.push(Left { what: format!("network {name}"), path: format!("/networks/{id}") });
    }
    for found in items(list(format!("/volumes?filters={filters}"))?["Volumes"].take()) {
        let name = text(&found["Name"]);
        left.push(Left { what: format!("volume {name}"), path: format!("/volumes/{name}?force=1") });
    }
    // Something without an id would name all of its kind.
    left.retain(|l| !l.path.contains("/?") && !l.path.ends_with('/'));
    Ok((engine, left))
}

fn items(list: Value) -> Vec<Value> {
    match list {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

impl Left {
    /// Removes it; one that is gone meanwhile is removed.
    pub fn remove(&self, engine: &Engine) -> Result<()> {
        let doing = format!("remove the {}", self.what);
        engine.call(Call::new(doing, "DELETE", self.path.clone()).within(REMOVE_NS)).map(drop)
    }
}

/// Removes everything with a label; the first thing that cannot be removed is told when all were tried.
pub(crate) fn remove_all(socket: &Path, label: &str) -> Result<()> {
    let (engine, left) = find(socket, label)?;
    let failed: Vec<EngineError> = left.iter().filter_map(|l| l.remove(&engine).err()).collect();
    failed.into_iter().next().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_of_runs_are_followed() {
        for (label, expect) in [
            ("loadlab.run=a/1/2", true),
            ("loadlab.run=", false),
            ("loadlab.run", false),
            ("com.docker.compose.project=loadlab-a-1", true),
            ("com.docker.compose.project=shop", false),
            ("com.docker.compose.project=loadlab-", false),
            ("maintainer=x", false),
            ("", false),
        ] {
            assert_eq!(is_ours(label), expect, "{label}");
        }
    }
}
