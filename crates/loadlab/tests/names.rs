//! A host name that resolves to other addresses by the end of the load. The names are in a hosts file that only the
//! binary under test sees, in a separate mount namespace; the server changes the file at the first request.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::server::{Request, Server, good};
use crate::common::{LOADLAB, skip};

/// Runs the binary in this folder, with the folder's hosts file as its own.
fn run_with(folder: &Path, args: &[&str]) -> (String, String) {
    let script = "mount --bind \"$0/hosts\" /etc/hosts && cd \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(folder).arg(LOADLAB).args(args).stdin(Stdio::null());
    let output = command.output().expect("unshare");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Whether this user may bind-mount in a separate namespace.
fn may_mount(folder: &Path) -> bool {
    let script = "mount --bind \"$0/hosts\" /etc/hosts";
    let ran = Command::new("unshare").args(["--mount", "sh", "-c", script]).arg(folder).output();
    ran.is_ok_and(|output| output.status.success())
}

fn moved(doubts: &Value) -> Vec<String> {
    let doubts = doubts["doubts"].as_array().expect("doubts");
    let of_names = doubts.iter().filter(|d| d["kind"] == "name_moved" && d["grave"] == false);
    of_names.map(|d| d["evidence"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_name_that_moves_during_a_load_is_a_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    let put = |shop: &str| std::fs::write(&hosts, format!("{shop} shop.invalid\n127.0.0.1 still.invalid\n"));
    put("127.0.0.1").unwrap();
    if !may_mount(folder.path()) {
        return skip::skip("a mount namespace of its own needs rights");
    }
    let path = hosts.clone();
    let server = Server::start(move |request: &Request| {
        // Write in place: the mounted file must remain the same one.
        std::fs::write(&path, "127.0.0.2 shop.invalid\n127.0.0.1 still.invalid\n").unwrap();
        good(request)
    });
    let url = |host: &str| format!("http://{host}:{}/", server.address.port());
    let bench = |url: &str, more: &[&str]| {
        put("127.0.0.1").unwrap();
        let (out, err) =
            run_with(folder.path(), &[&["bench", url, "-c", "1", "-n", "5", "--json"], more].concat());
        let document: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {err}"));
        assert_eq!(document["requests"]["ok"], 5, "{err}");
        moved(&document)
    };
    let evidence = "`shop.invalid` resolved to 127.0.0.1 when the load was prepared and resolves to 127.0.0.2 now; \
                    all connections went to the former";
    assert_eq!(bench(&url("shop.invalid"), &[]), [evidence]);
    for host in ["still.invalid", "127.0.0.1"] {
        assert!(bench(&url(host), &[]).is_empty(), "{host}");
    }
    let given = format!("shop.invalid:{}:127.0.0.1", server.address.port());
    assert!(bench(&url("shop.invalid"), &["--resolve", &given]).is_empty(), "it was never looked up");

    put("127.0.0.1").unwrap();
    let plan = format!(
        "loadlab: 1\nname: n\nload:\n  users: 1\n  requests: 5\n  journey: [ {{ get: \"{}\" }} ]\n",
        url("shop.invalid")
    );
    std::fs::write(folder.path().join("plan.yaml"), plan).unwrap();
    let (_, err) = run_with(folder.path(), &["run", "plan.yaml", "--out", "record", "--quiet"]);
    let trial = folder.path().join("record/cases/default/1");
    let read =
        |file: &str| std::fs::read_to_string(trial.join(file)).unwrap_or_else(|e| panic!("{e}: {err}"));
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(moved(&summary), [evidence]);
    assert!(read("events.jsonl").contains("\"name_moved\""), "{}", read("events.jsonl"));
}
