//! What a plan needs of this machine besides what its loads need: cgroups that can be limited, separate networks, a
//! container engine, ports, programs. These are tried out before anything is built, and by `check --preflight`: a plan
//! that cannot be completed here is not started.

use std::path::Path;

use loadlab_load::target::Allowed;
use loadlab_plan::{Command, ComponentKind, ComponentSpec, Isolation, Plan, PlanError, PlanErrors};
use loadlab_system::{Engine, Error, Limits, Net, host_check};

use crate::limits;
use crate::manifest::plan_dir;
use crate::preflight::{Finding, Severity};
use crate::running_system::RunningSystem;
use crate::running_system::error::BringUpError;
use crate::senders::{NeededFile, files_of};
use crate::translate::urls::makes_files;
use crate::translate::{check_targets, journey::check_feeds, urls};

/// A kind of need: its name and the result of trying it; `None` if the plan has no such need.
type Tried = (&'static str, Option<Result<(), BringUpError>>);

/// Tries everything out for a run, in the run's own cgroups.
///
/// # Errors
/// The first need that this machine does not meet.
pub fn check(plan: &Plan, running: &RunningSystem) -> Result<(), BringUpError> {
    try_all(plan, Some(running)).into_iter().filter_map(|(_, tried)| tried).collect()
}

/// Tries everything out without a run: a blocker for each unmet need.
pub fn findings(plan: &Plan) -> Vec<Finding> {
    let finding = |(what, tried): Tried| {
        let (figure, effect, severity) = match tried? {
            Ok(()) => ("tried out".to_owned(), "works as the plan needs it".to_owned(), Severity::Ok),
            Err(error) => {
                let text = error.to_string();
                let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
                let rest = rest.lines().map(str::trim).collect::<Vec<_>>().join("; ");
                (first.to_owned(), rest, Severity::Blocker)
            }
        };
        Some(Finding { what, figure, effect, remedy: None, severity })
    };
    try_all(plan, None).into_iter().filter_map(finding).collect()
}

/// Checks the files that the plan's loads read, as a run will before anything is up: that they are there, and that
/// feeds and URL lists contain what the plan takes from them. Files that commands of the plan may yet make are not
/// checked; bodies and certificates neither if components come up, which may make them as well.
///
/// # Errors
/// In words: all files that are missing, or else what is wrong with one.
pub fn check_files(plan: &Plan) -> Result<(), String> {
    if makes_files(plan) {
        return Ok(());
    }
    let dir = plan_dir(plan);
    let nothing_comes_up = components(plan).all(|c| matches!(c.kind, ComponentKind::External(_)));
    let is_read_first = |needed: &NeededFile| nothing_comes_up || needed.is_read_first;
    let is_missing = |file: &str| dir.join(file).try_exists().is_ok_and(|there| !there);
    let missing = files_of(plan).into_iter().filter(is_read_first).filter(|needed| is_missing(&needed.file));
    let mistake = |needed: NeededFile| {
        let message = format!("{}: there is no file {}", needed.what, dir.join(&needed.file).display());
        needed.at.mistake(message, Some("paths are relative to the plan's folder".to_owned()))
    };
    let missing: Vec<PlanError> = missing.map(mistake).collect();
    if !missing.is_empty() {
        return Err(PlanErrors(missing).to_string());
    }
    check_feeds(plan, &dir).map_err(|errors| errors.to_string())?;
    for load in plan.cases().iter().flat_map(|case| &case.loads) {
        urls::expanded(load, &dir).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Why a run of this plan, without further options, would refuse one of its targets, in words: a host that is neither
/// loopback nor allowed by the plan, or a name that does not resolve here. Names are resolved, as the run would do.
pub fn refused_target(plan: &Plan) -> Option<String> {
    let allowed = Allowed { hosts: plan.allow_hosts.clone(), ..Allowed::default() };
    let checked = check_targets(plan.cases(), &allowed);
    let refused = checked.and_then(|()| urls::check(plan, &plan_dir(plan), &allowed)).err()?;
    refused.is_target().then(|| refused.to_string())
}

fn try_all(plan: &Plan, running: Option<&RunningSystem>) -> Vec<Tried> {
    vec![
        ("limits", limits_given(plan, running)),
        ("networks", networks_given(plan)),
        ("container engine", engine_given(plan, running)),
        ("ports", ports_free(plan)),
        ("programs", programs_there(plan)),
    ]
}

/// The components of all cases.
fn components(plan: &Plan) -> impl Iterator<Item = &ComponentSpec> {
    plan.cases().iter().flat_map(|case| &case.system.components)
}

fn limits_given(plan: &Plan, running: Option<&RunningSystem>) -> Option<Result<(), BringUpError>> {
    let mut wanted: Vec<(&str, Limits)> = Vec::new();
    for component in components(plan).filter(|c| matches!(c.kind, ComponentKind::Process(_))) {
        let limits = limits::of_plan(&component.limits);
        let of_groups = Limits { open_files: None, link: Default::default(), ..limits };
        let one = (component.name.as_str(), of_groups);
        if of_groups != Limits::default() && !wanted.contains(&one) {
            wanted.push(one);
        }
    }
    let wanted: Vec<_> = wanted.iter().map(|(name, limits)| (*name, limits)).collect();
    let given = match running {
        _ if wanted.is_empty() => return None,
        Some(running) => running.system.check_limits(wanted),
        None => host_check::check_limits(wanted),
    };
    Some(given.map_err(BringUpError::from))
}

fn networks_given(plan: &Plan) -> Option<Result<(), BringUpError>> {
    (plan.isolate != Isolation::None).then(|| Net::check().map_err(BringUpError::from))
}

fn engine_given(plan: &Plan, running: Option<&RunningSystem>) -> Option<Result<(), BringUpError>> {
    let needs = |component: &&ComponentSpec| {
        matches!(component.kind, ComponentKind::Container(_) | ComponentKind::Service(_))
    };
    let mut needed = plan.cases().iter().filter_map(|case| {
        let component = case.system.components.iter().find(needs)?;
        Some((case.system.engine.as_deref(), component.name.as_str()))
    });
    let (engine, component) = needed.next()?;
    let connected = match running {
        Some(running) => {
            running.system.use_engine(engine);
            running.system.engine()
        }
        None => Engine::connect(engine),
    };
    Some(connected.map(drop).map_err(|source| Error::of_container(component, source).into()))
}

/// Checks fixed ports, except in an isolated run: in its own network every port is free.
fn ports_free(plan: &Plan) -> Option<Result<(), BringUpError>> {
    let mut wanted: Vec<(u16, &str)> = Vec::new();
    for component in components(plan).filter(|_| plan.isolate == Isolation::None) {
        for port in component.ports.iter().filter_map(|port| port.number) {
            if !wanted.iter().any(|(known, _)| *known == port) {
                wanted.push((port, &component.name));
            }
        }
    }
    if wanted.is_empty() {
        return None;
    }
    let mut checks = wanted.into_iter().map(|(port, component)| host_check::check_ports(component, &[port]));
    Some(checks.try_for_each(|checked| checked).map_err(BringUpError::from))
}

fn programs_there(plan: &Plan) -> Option<Result<(), BringUpError>> {
    let mut wanted: Vec<(String, String)> = Vec::new();
    let mut want = |command: &Command, by: &str| {
        if let Some(program) = program_of(command)
            && !wanted.iter().any(|(known, _)| *known == program)
        {
            wanted.push((program, by.to_owned()));
        }
    };
    for case in plan.cases() {
        for component in &case.system.components {
            component.build.iter().for_each(|build| want(build, &format!("build of `{}`", component.group)));
            // A component with its own PATH is looked up there.
            let has_path = component.env.iter().any(|(name, _)| name == "PATH");
            if let (ComponentKind::Process(run), false) = (&component.kind, has_path) {
                want(run, &format!("component `{}`", component.group));
            }
        }
        let system = &case.system;
        for (name, commands) in [
            ("seed", &system.seed),
            ("before_trial", &system.before_trial),
            ("after_trial", &system.after_trial),
        ] {
            commands.iter().for_each(|command| want(command, &format!("`{name}`")));
        }
    }
    if wanted.is_empty() {
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<_> = std::env::split_paths(&path).collect();
    let missing =
        wanted.into_iter().find(|(program, _)| !dirs.iter().any(|dir| is_program(&dir.join(program))));
    Some(match missing {
        None => Ok(()),
        Some((program, by)) => Err(BringUpError::Missing(format!(
            "{by}: `{program}` is not on PATH\nhint: install it, or write the path of the program"
        ))),
    })
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The program that a command starts with, if it is looked up on PATH. Excluded: paths, which a build may yet create;
/// placeholders filled in later; words of the shell itself.
fn program_of(command: &Command) -> Option<String> {
    let (first, is_shell) = match command {
        Command::Shell(line) => (line.to_string(), true),
        Command::Words(words) => (words.first()?.to_string(), false),
    };
    let first = if is_shell { first.split_whitespace().next()?.to_owned() } else { first };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    let is_name = first.chars().all(is_plain) && first.starts_with(|c: char| c.is_ascii_alphanumeric());
    (is_name && !(is_shell && OF_SHELLS.contains(&first.as_str()))).then_some(first)
}

/// Words that a shell handles without a program: built-ins and grammar (POSIX.1-2024, dash and bash).
const OF_SHELLS: &[&str] = &[
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "chdir",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
];

#[cfg(test)]
mod tests {
    use loadlab_plan::Template;

    use super::*;

    #[test]
    fn programs_are_what_is_looked_for_on_path() {
        let check = |line: &str, expect: Option<&str>| {
            assert_eq!(program_of(&Command::Shell(Template::text(line))).as_deref(), expect, "{line}");
        };
        check("nginx -c lb.conf", Some("nginx"));
        check("  g++-13 x.cc", Some("g++-13"));
        check("sleep 1000 & wait", Some("sleep"));
        for line in [
            "./server --port 1",
            "/usr/bin/env x",
            "cd x && make",
            "A=1 server",
            "(server)",
            "{ a; }",
            "",
            "! x",
            ". ./env",
            "\"my server\"",
            "$SERVER",
            "exec server",
            "ulimit -Sn > limit",
            "a;b",
            "server&",
            "[ -f x ]",
        ] {
            check(line, None);
        }
        let words = |words: &[&str]| Command::Words(words.iter().map(|w| Template::text(*w)).collect());
        assert_eq!(
            program_of(&words(&["echo", "x"])).as_deref(),
            Some("echo"),
            "no shell, no word of its own"
        );
        assert_eq!(program_of(&words(&["./a b"])), None);
    }
}
