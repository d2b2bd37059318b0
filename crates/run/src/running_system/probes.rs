//! Converts the plan's probes, and its query for what was stored, to what the system reads.

use std::path::{Path, PathBuf};

use loadlab_plan as plan;
use loadlab_record::Secrets;
use loadlab_system::{OutputCommand, ProbeSource, ProbeSpec};

use crate::translate::component;
use crate::translate::error::{Names, TranslateError};

/// Context shared by all readings.
pub struct ProbeContext<'a> {
    /// Values for template names.
    pub names: Names<'a>,
    /// The plan's folder; commands run there.
    pub plan_dir: &'a Path,
    /// The environment variable that marks commands as belonging to this run, as (name, value).
    pub mark: (String, String),
    /// The log files of a component, by its name; `None` if it runs already.
    pub logs: &'a dyn Fn(&str) -> Option<Vec<PathBuf>>,
    /// Secrets that must not appear in messages.
    pub secrets: &'a Secrets,
}

/// Converts a probe.
///
/// # Errors
/// A name has no value.
pub fn probe(probe: &plan::ProbeSpec, around: &ProbeContext<'_>) -> Result<ProbeSpec, TranslateError> {
    let what = format!("probe `{}`", probe.name);
    let fill = |template: &plan::Template| {
        template.render(around.names).map_err(|error| TranslateError::Name { what: what.clone(), error })
    };
    let source = match &probe.source {
        plan::ProbeSource::Http { url, json_pointer } => {
            ProbeSource::Http { url: fill(url)?, json: Some(json_pointer.clone()) }
        }
        plan::ProbeSource::Prometheus { url, metric, labels } => {
            ProbeSource::Prometheus { url: fill(url)?, metric: metric.clone(), labels: labels.clone() }
        }
        plan::ProbeSource::Redis { address, words } => ProbeSource::Redis {
            address: fill(address)?,
            words: words.iter().map(fill).collect::<Result<_, _>>()?,
        },
        plan::ProbeSource::Command(line) => ProbeSource::Command(output(line, &what, around)?),
        plan::ProbeSource::Log { components, contains } => {
            let mut paths = Vec::new();
            for name in components {
                let unread = || format!("`{name}` runs already, so loadlab cannot read its output");
                let part = || TranslateError::Part { what: what.clone(), message: unread() };
                paths.extend((around.logs)(name).ok_or_else(part)?);
            }
            ProbeSource::Log { paths, contains: contains.clone() }
        }
    };
    Ok(ProbeSpec { name: probe.name.clone(), source })
}

/// Converts a command that is run for its output.
///
/// # Errors
/// A name has no value.
pub fn output(
    command: &plan::Command,
    what: &str,
    around: &ProbeContext<'_>,
) -> Result<OutputCommand, TranslateError> {
    Ok(OutputCommand {
        command: component::command(command, what, around.names)?,
        dir: around.plan_dir.to_owned(),
        env: vec![around.mark.clone()],
        secrets: around.secrets.clone(),
    })
}
