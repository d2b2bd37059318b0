//! The README's first command as an ordinary user types it: without root, without capabilities, in a private folder.
//! [`crate::readme`] runs it as the current user, which in CI is root.
//!
//! Build results are copied along, so that only what the plan itself builds is compiled. Root's toolchain may be in a
//! folder that others cannot enter (`/root`, 0700): a mount namespace that ends with the command exposes it to the
//! user.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use crate::blocks::blocks;
use crate::command::{program, shown};
use crate::lab::Record;
use crate::root::{root, target};
use crate::steps::Outcome;

/// `nobody` and `nogroup`, which exist on every machine.
const NOBODY: u32 = 65_534;

/// Script that becomes the user and runs the command. `$1` is cargo's home, `$2` rustup's, `$3` the user's folder, `$4`
/// the command; the rest are settings of cargo. The toolchain keeps its path, since with another one cargo would
/// recompile everything: an inaccessible folder around it is replaced by one that contains nothing else.
const AS_USER: &str = r#"
set -euo pipefail
places=("$1" "$2") user=$3 command=$4
for i in 0 1; do
    mkdir -p "$user/toolchain$i"
    if [ -d "${places[i]}" ]; then mount --bind "${places[i]}" "$user/toolchain$i"; fi
done
for i in 0 1; do
    around=$(dirname "${places[i]}")
    if [ ! -d "$around" ]; then continue; fi
    if ! setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$around"; then
        mount -t tmpfs -o mode=755 tmpfs "$around"
    fi
    mkdir -p "${places[i]}"
    mount --bind "$user/toolchain$i" "${places[i]}"
done
cd "$user"
exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs \
    env -i "${@:5}" HOME="$user" TMPDIR="$user" CARGO_HOME="$1" RUSTUP_HOME="$2" CARGO_NET_OFFLINE=true \
    PATH="$user:$1/bin:/usr/local/bin:/usr/bin:/bin" bash -euo pipefail -c "$command"
"#;

/// Runs the command as an ordinary user.
///
/// # Errors
/// The command fails, leaves no complete record, or leaves processes behind.
pub fn run() -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Ok("these are an ordinary user's checks already".to_owned());
    }
    let home = tempfile::Builder::new().prefix("loadlab-user").tempdir()?;
    let command = first_command()?;
    move_in(home.path())?;
    let places = [cargo_home("CARGO_HOME", ".cargo"), cargo_home("RUSTUP_HOME", ".rustup")];
    let mut as_user = program("unshare");
    as_user.args(["--mount", "bash", "-c", AS_USER, "as-user"]).args(places).arg(home.path()).arg(&command);
    // With other build settings, the copied build results would be useless.
    as_user.args(
        env::vars().filter(|(name, _)| is_for_builds(name)).map(|(name, value)| format!("{name}={value}")),
    );
    let done = shown(&mut as_user)?;
    ensure!(done.status.success(), "as an ordinary user: {}\n{command}", done.status);
    let left = processes_of(NOBODY, home.path())?;
    ensure!(left.is_empty(), "processes are left: {}", left.join(", "));
    recorded(home.path())
}

/// The README's first block, with the program in place of the command that builds it.
fn first_command() -> Result<String> {
    const BUILDS: &str = "cargo run --release --";
    let text = fs::read_to_string(root().join("README.md")).context("README.md")?;
    let first = blocks(&text).into_iter().next().context("README.md has no block fenced as sh")?;
    ensure!(first.text.trim().starts_with(BUILDS), "README.md:{}: does not begin with {BUILDS}", first.line);
    Ok(first.text.replace(BUILDS, "loadlab"))
}

/// Copies the program, and the lab with its build results, into a folder owned by the user.
fn move_in(home: &Path) -> Result<()> {
    fs::create_dir(home.join("labs"))?;
    for (from, to) in
        [(target().join("release/loadlab"), "loadlab"), (root().join("labs/stair-stepper"), "labs")]
    {
        let done = shown(program("cp").arg("-a").arg(&from).arg(home.join(to)))?;
        ensure!(done.status.success(), "{}: {}", from.display(), done.status);
    }
    let done = shown(program("chown").args(["-R", &format!("{NOBODY}:{NOBODY}")]).arg(home))?;
    ensure!(done.status.success(), "chown: {}", done.status);
    fs::set_permissions(home, fs::Permissions::from_mode(0o755))?;
    Ok(chown(home, Some(NOBODY), Some(NOBODY))?)
}

fn is_for_builds(name: &str) -> bool {
    name.starts_with("CARGO_PROFILE_") || ["CARGO_INCREMENTAL", "RUSTFLAGS"].contains(&name)
}

fn cargo_home(name: &str, folder: &str) -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(folder);
    env::var_os(name).map_or_else(home, PathBuf::from)
}

/// Processes of a user whose working directory is below this folder.
fn processes_of(uid: u32, home: &Path) -> Result<Vec<String>> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // A process that has ended meanwhile does not count.
        let is_users = path.metadata().is_ok_and(|m| m.uid() == uid);
        let cwd = fs::read_link(path.join("cwd")).unwrap_or_default();
        if is_users && cwd.starts_with(home) {
            let command = fs::read_to_string(path.join("cmdline")).unwrap_or_default();
            found.push(format!("{}: {}", path.display(), command.replace('\0', " ")));
        }
    }
    Ok(found)
}

/// Checks that there is one record, that its trials passed, and that they measured the service's memory without
/// privileges.
fn recorded(home: &Path) -> Outcome {
    let runs: Vec<_> = fs::read_dir(home.join("loadlab-runs"))?.collect::<Result<_, _>>()?;
    ensure!(runs.len() == 1, "{} records", runs.len());
    let run = runs[0].path();
    ensure!(run.join("report.html").is_file(), "no report in {}", run.display());
    let mode = run.metadata()?.permissions().mode() & 0o777;
    ensure!(mode == 0o700, "others may look into the record: mode {mode:o}");
    let trials = Record::read(&run)?.trials;
    for summary in trials.iter().map(|trial| &trial.summary) {
        ensure!(summary["verdict"] == "pass", "a trial's verdict is {}", summary["verdict"]);
        let memory = summary["components"]["service"]["memory_bytes"]["max"].as_f64().unwrap_or(0.0);
        ensure!(memory > 0.0, "no memory of the service: {}", summary["components"]);
    }
    ensure!(!trials.is_empty(), "no trial in {}", run.display());
    Ok(format!("{} trials", trials.len()))
}
