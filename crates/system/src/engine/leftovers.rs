//! Finds what a run made at an engine by its label, and removes it: containers first, then networks and volumes.
//!
//! It works from the label alone, so that the guardian can do it, or `clean` after a power cut. An engine completes a
//! request even if the process that sent it is gone, so one listing is never enough.

use std::path::Path;

use serde_json::Value;

use super::{Call, Engine, EngineError, Result, labelled};
use crate::cancel::Cancel;
use crate::clock;

/// The label of everything a run makes.
pub(crate) const RUN_LABEL: &str = "loadlab.run";
/// The label Compose gives to everything in a project.
pub(crate) const PROJECT_LABEL: &str = "com.docker.compose.project";
/// Prefix of our projects' names.
pub(crate) const PROJECT: &str = "loadlab-";
/// Time limit for removing one resource, nanoseconds.
const REMOVE_TIMEOUT_NS: u64 = 20_000_000_000;
/// Pause between two listings, nanoseconds.
const POLL_INTERVAL_NS: u64 = 100_000_000;
/// How many times a removal is retried while the engine still refuses it.
const TRIES: u32 = 5;

/// A resource left over: its description, and the API path to remove it.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    pub what: String,
    path: String,
}

/// Whether this label can only belong to a run; anything else that a state file claims is left alone.
pub(crate) fn is_ours(label: &str) -> bool {
    match label.split_once('=') {
        Some((RUN_LABEL, run)) => !run.is_empty(),
        Some((PROJECT_LABEL, project)) => project.len() > PROJECT.len() && project.starts_with(PROJECT),
        _ => false,
    }
}

/// Everything with a label at the engine behind a socket.
///
/// # Errors
/// The engine does not answer. Without its socket nothing can be known.
pub(crate) fn find(socket: &Path, label: &str) -> Result<(Engine, Vec<Leftover>)> {
    let engine = Engine::at(socket)?;
    let left = list(&engine, label)?.into_iter().map(|(_, left)| left).collect();
    Ok((engine, left))
}

/// Everything that has a label (`key=value`, or a key alone), each with the label's value.
fn list(engine: &Engine, label: &str) -> Result<Vec<(String, Leftover)>> {
    let filters = labelled(label);
    let key = label.split('=').next().unwrap_or_default();
    let mut left = Vec::new();
    let list = |path: String| engine.call(Call::new("list what a run has made", "GET", path)).map(|a| a.body);
    let text = |value: &Value| value.as_str().unwrap_or_default().trim_start_matches('/').to_owned();
    let mut add = |found: &Value, what: String, path: String| {
        left.push((text(&found["Labels"][key]), Leftover { what, path }));
    };
    for found in items(list(format!("/containers/json?all=1&filters={filters}"))?) {
        let (id, name) = (text(&found["Id"]), text(&found["Names"][0]));
        add(&found, format!("container {name}"), format!("/containers/{id}?force=1&v=1"));
    }
    for found in items(list(format!("/networks?filters={filters}"))?) {
        let (id, name) = (text(&found["Id"]), text(&found["Name"]));
        add(&found, format!("network {name}"), format!("/networks/{id}"));
    }
    for found in items(list(format!("/volumes?filters={filters}"))?["Volumes"].take()) {
        let name = text(&found["Name"]);
        add(&found, format!("volume {name}"), format!("/volumes/{name}?force=1"));
    }
    // Without an id the path would name all resources of its kind.
    left.retain(|(_, l)| !l.path.contains("/?") && !l.path.ends_with('/'));
    Ok(left)
}

fn items(list: Value) -> Vec<Value> {
    match list {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

impl Leftover {
    /// Removes the resource; one that is already gone counts as removed.
    pub fn remove(&self, engine: &Engine) -> Result<()> {
        let doing = format!("remove the {}", self.what);
        engine.call(Call::new(doing, "DELETE", self.path.clone()).with_timeout(REMOVE_TIMEOUT_NS)).map(drop)
    }
}

/// Removes everything with a label, until two listings agree and `is_settled` returns true: what a dead process asked
/// the engine for may appear only after a listing. Returns what it tried to remove, with the error if it is still
/// there.
///
/// # Errors
/// The engine does not answer.
pub(crate) fn remove_until(
    socket: &Path,
    label: &str,
    is_settled: &mut dyn FnMut() -> bool,
) -> Result<Vec<(String, Option<EngineError>)>> {
    let mut tried: Vec<(String, Option<EngineError>)> = Vec::new();
    let never = Cancel::new();
    let (mut listings, mut again) = (0, 0);
    loop {
        // Check this before the listing, so that at least one listing follows once everything has settled.
        let settled = is_settled();
        let (engine, left) = find(socket, label)?;
        let is_new = left.iter().any(|l| !tried.iter().any(|(what, _)| *what == l.what));
        (listings, again) = (listings + 1, if is_new { 0 } else { again + 1 });
        // A resource that another process is just removing refuses for a moment.
        let is_enough = left.is_empty() || again >= TRIES;
        if listings > 1 && again > 0 && settled && is_enough {
            return Ok(tried);
        }
        for one in left {
            let error = one.remove(&engine).err();
            match tried.iter_mut().find(|(what, _)| *what == one.what) {
                Some((_, last)) => *last = error,
                None => tried.push((one.what, error)),
            }
        }
        never.wait_until(clock::now_ns() + POLL_INTERVAL_NS);
    }
}

/// Removes everything with a label; tries all, then returns the first failure.
pub(crate) fn remove_all(socket: &Path, label: &str) -> Result<()> {
    remove_until(socket, label, &mut || true)?.into_iter().find_map(|(_, error)| error).map_or(Ok(()), Err)
}

/// What runs have left at an engine when their state files are gone too: everything that carries a run's label or
/// belongs to a run's Compose project. `is_dead` decides from a run's [`tag`](crate::ledger::state::tag) whether its
/// loadlab process is gone.
pub(crate) fn strays(engine: &Engine, is_dead: &dyn Fn(&str) -> bool) -> Result<Vec<(String, Leftover)>> {
    let mut found: Vec<(String, Leftover)> = Vec::new();
    for key in [RUN_LABEL, PROJECT_LABEL] {
        for (value, left) in list(engine, key)? {
            let run = match key {
                RUN_LABEL => value.rsplit_once('/'),
                _ => tail_of(&value).filter(|_| value.starts_with(PROJECT)),
            };
            let Some((run, _)) = run.filter(|(_, tag)| is_dead(tag)) else { continue };
            if !found.iter().any(|(_, l)| l.path == left.path) {
                found.push((run.to_owned(), left));
            }
        }
    }
    // Networks and volumes are free only once their containers are gone.
    found.sort_by_key(|(_, left)| !left.path.starts_with("/containers/"));
    Ok(found)
}

/// Splits a project's name into `loadlab-shop-4711` and the tag, such as `1267-a1b2-effffffc`.
fn tail_of(project: &str) -> Option<(&str, &str)> {
    let (at, _) = project.rmatch_indices('-').nth(2)?;
    Some((&project[..at], &project[at + 1..]))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;

    /// A fake engine whose n-th listing is `containers(n)`, until something is removed.
    fn engine(socket: &Path, containers: impl Fn(usize) -> &'static [&'static str] + Send + 'static) {
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            let (mut listings, mut removed) = (0, Vec::new());
            for mut stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(&stream).lines().map_while(std::result::Result::ok);
                let asked = lines.next().unwrap_or_default();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let path = asked.split(' ').nth(1).unwrap_or_default();
                let body = if path.ends_with("/version") {
                    json!({ "ApiVersion": "1.41", "MinAPIVersion": "1.24" })
                } else if path.contains("/containers/json") {
                    listings += 1;
                    let there = containers(listings).iter().filter(|id| !removed.contains(*id));
                    there.map(|id| json!({ "Id": id, "Names": [id] })).collect()
                } else if asked.starts_with("DELETE") {
                    removed.extend(["early", "late"].into_iter().filter(|id| path.contains(id)));
                    json!({})
                } else if path.contains("/volumes") {
                    json!({ "Volumes": [] })
                } else {
                    json!([])
                };
                let body = body.to_string();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
            }
        });
    }

    fn whats(tried: Vec<(String, Option<EngineError>)>) -> Vec<String> {
        tried.into_iter().map(|(what, error)| error.map_or(what, |e| e.to_string())).collect()
    }

    #[test]
    fn what_comes_after_a_listing_is_removed_too() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        // The container appears only after the first listing.
        engine(&socket, |listing| if listing == 1 { &[] } else { &["late"] });
        let tried = remove_until(&socket, "loadlab.run=a", &mut || true).unwrap();
        assert_eq!(whats(tried), ["container late"]);
    }

    #[test]
    fn what_was_asked_for_is_waited_for_however_many_listings_agree() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        engine(&socket, |listing| if listing < 6 { &["early"] } else { &["early", "late"] });
        let mut asked = 0;
        let mut is_settled = || {
            asked += 1;
            asked > 7
        };
        let tried = remove_until(&socket, "loadlab.run=a", &mut is_settled).unwrap();
        assert_eq!(whats(tried), ["container early", "container late"]);
    }

    #[test]
    fn a_project_is_of_the_process_in_its_name() {
        assert_eq!(tail_of("loadlab-shop-1-4711-1267-a1-ff"), Some(("loadlab-shop-1-4711", "1267-a1-ff")));
        assert_eq!(tail_of("loadlab"), None);
    }

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
