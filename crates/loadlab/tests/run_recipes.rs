//! The recipes of docs/recipes.md, each run as a reader would: with one command, from the repository's folder. The
//! shop's counts are compared with loadlab's.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run_support::{Lab, Ran};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/loadlab is two folders deep")
        .to_owned()
}

/// Runs a recipe: its summary, and the shop's counts at the end.
fn cook(name: &str) -> (Value, impl Fn(&str) -> u64 + use<>) {
    let lab = Lab::new();
    let plan = format!("docs/recipes/{name}.yaml");
    let out = lab.path().join(lab.run_name()).display().to_string();
    let mut command = lab.command(&["run", &plan, "--out", &out, "--quiet"]);
    let ran = Ran::of(command.current_dir(root()).output().expect("loadlab starts"));
    ran.expect(0, &[]);
    assert_eq!(lab.left_behind(), Vec::<String>::new(), "{}", ran.err);
    let summary = lab.record().summary("default", 1);
    assert_eq!(summary["verdict"], "pass", "{summary:#}");
    let probes = summary["probes"].clone();
    let counted =
        move |name: &str| probes[name]["last"].as_f64().unwrap_or_else(|| panic!("{probes:#}")) as u64;
    assert_eq!(counted("refused"), 0);
    (summary, counted)
}

fn ok_of(summary: &Value, tag: &str) -> u64 {
    summary["by_tag"][tag]["requests"]["ok"].as_u64().unwrap_or_else(|| panic!("{summary:#}"))
}

fn ok(summary: &Value) -> u64 {
    summary["requests"]["ok"].as_u64().unwrap_or_else(|| panic!("{summary:#}"))
}

#[test]
fn login_once() {
    let (summary, counted) = cook("login-once");
    assert_eq!((counted("logins"), counted("orders")), (1, ok_of(&summary, "order")));
    assert_eq!((ok(&summary), ok_of(&summary, "browse")), (400, 200));
}

#[test]
fn login_per_user() {
    let (summary, counted) = cook("login-per-user");
    assert_eq!((counted("logins"), counted("logouts"), counted("orders")), (10, 10, 200));
    assert_eq!((counted("logged_in"), ok(&summary)), (0, 220));
}

#[test]
fn a_mix() {
    let (summary, counted) = cook("mix");
    let tags = ["item", "search", "page"].map(|tag| ok_of(&summary, tag));
    assert_eq!(tags, [counted("items"), counted("searches"), counted("pages")]);
    assert_eq!(tags.iter().sum::<u64>(), 2000);
}

#[test]
fn a_csv_feed() {
    let (summary, counted) = cook("csv-feed");
    assert_eq!((counted("items"), counted("orders"), ok(&summary)), (100, 100, 200));
}

#[test]
fn an_upload() {
    let (summary, counted) = cook("upload");
    assert_eq!(counted("uploads"), ok_of(&summary, "picture") + ok_of(&summary, "file"));
    let sent = summary["bytes"]["sent"].as_u64().unwrap();
    assert!(counted("uploaded_bytes") > 100 * 2 * 221 && counted("uploaded_bytes") < sent, "{summary:#}");
}

#[test]
fn a_chat() {
    let (summary, counted) = cook("chat");
    assert_eq!((counted("chats"), counted("messages")), (50, ok_of(&summary, "message")));
    // Opening and close requests count only towards the step.
    assert_eq!((ok_of(&summary, "chat"), ok(&summary)), (300, 300));
}

#[test]
fn an_api_over_http_2() {
    let (summary, counted) = cook("http2-api");
    assert_eq!((summary["load"]["protocol"].as_str(), counted("http2_connections")), (Some("http/2"), 4));
    assert_eq!(counted("items"), ok_of(&summary, "list") + ok_of(&summary, "item"));
    assert_eq!((counted("searches"), ok(&summary)), (ok_of(&summary, "search"), 2000));
}

#[test]
fn the_page_shows_what_the_plans_say() {
    let page = std::fs::read_to_string(root().join("docs/recipes.md")).unwrap();
    let plans: Vec<(String, String)> = std::fs::read_dir(root().join("docs/recipes"))
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "yaml"))
        .map(|entry| {
            (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    let blocks: Vec<&str> =
        page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    for block in &blocks {
        assert!(plans.iter().any(|(_, plan)| plan.contains(block)), "no plan in docs/recipes says\n{block}");
    }
    assert!(!plans.is_empty() && blocks.len() >= plans.len(), "{} blocks", blocks.len());
    for (name, _) in &plans {
        assert!(page.contains(&format!("](recipes/{name})")), "docs/recipes.md does not lead to {name}");
        assert!(page.contains(&format!("loadlab run docs/recipes/{name}")), "{name} has no run line");
    }
}
