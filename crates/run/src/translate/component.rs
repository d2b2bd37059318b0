//! Converts components of the plan to components of the system.

use std::path::PathBuf;

use loadlab_plan as plan;
use loadlab_system as system;

use crate::translate::error::{Names, TranslateError};

/// Converts a command of the plan.
pub fn command(
    command: &plan::Command,
    what: &str,
    names: Names<'_>,
) -> Result<system::Command, TranslateError> {
    let fill = |template: &plan::Template| {
        template.render(names).map_err(|error| TranslateError::Name { what: what.to_owned(), error })
    };
    Ok(match command {
        plan::Command::Shell(line) => system::Command::Shell(fill(line)?),
        plan::Command::Words(words) => {
            system::Command::Argv(words.iter().map(fill).collect::<Result<_, _>>()?)
        }
    })
}

/// Converts a component of the plan whose ports are known.
///
/// # Errors
/// A name has no value.
pub fn component(
    component: &plan::ComponentSpec,
    names: Names<'_>,
    ports: Vec<u16>,
    logs: system::LogFiles,
) -> Result<system::ComponentSpec, TranslateError> {
    let what = format!("component `{}`", component.name);
    let signal = system::Signal::parse(&component.stop.signal).unwrap_or(system::Signal::TERM);
    let (command, ready) = match &component.kind {
        plan::ComponentKind::Process(run) => (command(run, &what, names)?, ready_of(component, names)?),
        // Only shown in messages; the readiness check is determined once the address is known.
        other => (system::Command::Argv(vec![other.text()]), system::Ready::Alive),
    };
    Ok(system::ComponentSpec {
        name: component.name.clone(),
        command,
        dir: PathBuf::from(&component.dir),
        env: env_of(&component.env, &what, names)?,
        ready,
        limits: crate::limits::of_plan(&component.limits),
        stop: system::Stop { signal, timeout_ns: component.stop.timeout_ns },
        logs,
        ports,
        cpus: component.limits.cpuset.clone(),
        // Set by the caller, who knows whether there is a relay.
        relay: None,
    })
}

/// Makes runtimes that compile code at run time reveal its functions: Node lists them on request, Java preserves frame
/// pointers. Other programs ignore these variables.
pub fn name_functions(env: &mut Vec<(String, String)>) {
    for (name, option) in
        [("NODE_OPTIONS", "--perf-basic-prof"), ("JAVA_TOOL_OPTIONS", "-XX:+PreserveFramePointer")]
    {
        match env.iter_mut().find(|(known, _)| known == name) {
            Some((_, value)) if value.contains(option) => {}
            Some((_, value)) => *value = format!("{value} {option}"),
            None => {
                let inherited = std::env::var(name).unwrap_or_default();
                env.push((name.to_owned(), format!("{inherited} {option}").trim().to_owned()));
            }
        }
    }
}

/// Environment variables with template names filled in.
///
/// # Errors
/// A name has no value.
pub fn env_of(
    env: &[(String, plan::Template)],
    what: &str,
    names: Names<'_>,
) -> Result<Vec<(String, String)>, TranslateError> {
    let fill = |(name, value): &(String, plan::Template)| match value.render(names) {
        Ok(value) => Ok((name.clone(), value)),
        Err(error) => Err(TranslateError::Name { what: what.to_owned(), error }),
    };
    env.iter().map(fill).collect()
}

/// When a component counts as up: as soon as it is alive, unless the plan specifies a check. That is of the component
/// itself, even if it names its port in full, as others do: a relay in front of it accepts before the component does.
///
/// # Errors
/// A name has no value.
pub fn ready_of(component: &plan::ComponentSpec, names: Names<'_>) -> Result<system::Ready, TranslateError> {
    let in_full = format!("components.{}.", component.name);
    let own_port = |name: &str| {
        let own = name.strip_prefix(&in_full).filter(|own| *own == "port" || own.starts_with("port."));
        names(own.unwrap_or(name))
    };
    let fill = |template: &plan::Template| {
        let what = || format!("component `{}`", component.name);
        template.render(&own_port).map_err(|error| TranslateError::Name { what: what(), error })
    };
    let Some(plan::ReadySpec { sign, timeout_ns }) = &component.ready else {
        return Ok(system::Ready::Alive);
    };
    let timeout_ns = *timeout_ns;
    Ok(match sign {
        plan::ReadySign::Http(url) => system::Ready::Http { url: fill(url)?, timeout_ns },
        plan::ReadySign::Tcp(addr) => system::Ready::Tcp { addr: fill(addr)?, timeout_ns },
        plan::ReadySign::Log(pattern) => system::Ready::Log { pattern: fill(pattern)?, timeout_ns },
        plan::ReadySign::Health => system::Ready::Healthy { timeout_ns },
    })
}

/// The words of a command; a shell command line counts as one word.
///
/// # Errors
/// A name has no value.
pub fn words_of(
    planned: &plan::Command,
    what: &str,
    names: Names<'_>,
) -> Result<Vec<String>, TranslateError> {
    Ok(match command(planned, what, names)? {
        system::Command::Shell(line) => vec![line],
        system::Command::Argv(words) => words,
    })
}

/// Names of components' addresses and ports that a component is started with.
pub fn names_passed(component: &plan::ComponentSpec) -> Vec<String> {
    let env = component.env.iter().map(|(_, value)| value);
    names_in(component.kind.templates().into_iter().chain(env)).collect()
}

/// Names of components' addresses and ports in these templates.
pub fn names_in<'a>(templates: impl Iterator<Item = &'a plan::Template>) -> impl Iterator<Item = String> {
    let names = templates.flat_map(plan::Template::names);
    names.filter(|name| name.starts_with("components.")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use loadlab_plan::{Options, Plan};

    use super::*;

    #[test]
    fn a_component_is_ready_itself_whatever_is_in_front_of_it() {
        // Behind a relay, a component knows another port than those who name it in full.
        let names = |name: &str| {
            let value = if name.starts_with("components.") { "1" } else { "2" };
            Some(value.to_owned())
        };
        for (port, expect) in [
            ("port", "2"),
            ("components.web.port", "2"),
            ("components.web.port.admin", "2"),
            ("components.db.port", "1"),
        ] {
            let ready = format!("{{ tcp: \"127.0.0.1:${{{port}}}\" }}");
            let web = format!("run: x, port: auto, ports: {{ admin: auto }}, ready: {ready}");
            let text = format!(
                "loadlab: 1\nname: t\nsystem: {{ components: {{ db: {{ run: x, port: auto }}, web: {{ {web} }} }} }}\n\
                 load: {{ users: 1, requests: 1, journey: [{{ get: 'http://127.0.0.1/' }}] }}\n"
            );
            let plan = Plan::parse("t.yaml", &text, &Options::default()).unwrap();
            let web = &plan.cases()[0].system.components[1];
            let system::Ready::Tcp { addr, .. } = ready_of(web, &names).unwrap() else { panic!("{port}") };
            assert_eq!(addr, format!("127.0.0.1:{expect}"), "{port}");
        }
    }
}
