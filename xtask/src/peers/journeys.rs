//! The same journey for loadlab and for k6: a row of data says who logs in, the answer has a token, and the next step
//! brings it along; both answers are looked at.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::Result;

use super::order::{Order, built};
use crate::command::program;

/// Rows of data.
const ROWS: u32 = 1000;

/// Writes the rows into the run's folder.
fn feed(order: &Order) -> Result<()> {
    let mut rows = String::from("user,item\n");
    for row in 0..ROWS {
        writeln!(rows, "user{row},{}", row * 7 % ROWS)?;
    }
    Ok(fs::write(order.scratch.join("people.csv"), rows)?)
}

/// loadlab with the journey as a plan; the record goes into the run's folder.
///
/// # Errors
/// A file cannot be written.
pub fn loadlab(order: &Order) -> Result<Command> {
    feed(order)?;
    let plan = order.scratch.join("journey.yaml");
    fs::write(&plan, plan_of(&order.url, order.case.connections, order.seconds))?;
    let out = order.scratch.join("record");
    let _ = fs::remove_dir_all(&out);
    let mut command = program(built("loadlab"));
    command.arg("run").arg(plan).args(["--json", "--quiet", "--out"]).arg(out);
    Ok(command)
}

fn plan_of(url: &str, users: u64, seconds: u64) -> String {
    format!(
        r#"loadlab: 1
name: journey
load:
  users: {users}
  duration: {seconds}s
  threads: 1
  feeds: {{ people: {{ file: people.csv }} }}
  journey:
    - get: "{url}/login?user=${{people.user}}"
      check: {{ status: 200, contains: token }}
      capture: {{ token: {{ json: /token }} }}
    - get: "{url}/item?id=${{people.item}}"
      auth: {{ bearer: "${{token}}" }}
      check: {{ status: 200, json: {{ /state: ok }} }}
"#
    )
}

/// The same for k6.
///
/// # Errors
/// A file cannot be written.
pub fn k6_script(order: &Order) -> Result<String> {
    feed(order)?;
    let url = &order.url;
    Ok(format!(
        r#"import http from 'k6/http';
import exec from 'k6/execution';
import {{ check }} from 'k6';
import {{ SharedArray }} from 'k6/data';
const people = new SharedArray('people', () => open('./people.csv').trim().split('\n').slice(1).map((line) => {{
  const [user, item] = line.split(',');
  return {{ user, item }};
}}));
export default function () {{
  const row = people[exec.scenario.iterationInTest % people.length];
  const login = http.get(`{url}/login?user=${{row.user}}`, {{ tags: {{ name: 'login' }} }});
  check(login, {{ ok: (r) => r.status === 200 && r.body.includes('token') }});
  const token = login.json('token');
  const item = http.get(`{url}/item?id=${{row.item}}`, {{ headers: {{ Authorization: `Bearer ${{token}}` }}, tags: {{ name: 'item' }} }});
  check(item, {{ ok: (r) => r.status === 200 && r.json('state') === 'ok' }});
}}
"#
    ))
}
