//! Containers: their definitions in the plan are converted for the system, and their images built or pulled.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use loadlab_plan::{self as plan, Case, ComponentKind};
use loadlab_record::documents::event::EventKind;
use loadlab_system::{self as system, Cancel, ContainerSpec, HealthCheck, ImageBuild, Network, clock};

use crate::event::RunEvent;
use crate::running_system::error::BringUpError;
use crate::running_system::{Builds, RunningSystem};
use crate::state::EventSink;
use crate::translate::component::{ready_of, words_of};
use crate::translate::error::{Names, TranslateError};

/// How long a container or service without a readiness check may take to become healthy.
pub(super) const HEALTHY_TIMEOUT_NS: u64 = 60_000_000_000;

/// Converts a container of the plan.
///
/// # Errors
/// A name has no value.
pub fn container(
    planned: &plan::ComponentSpec,
    container: &plan::ContainerSpec,
    names: Names<'_>,
) -> Result<ContainerSpec, TranslateError> {
    let what = format!("component `{}`", planned.name);
    let fill = |template: &plan::Template| {
        template.render(names).map_err(|error| TranslateError::Name { what: what.clone(), error })
    };
    let fill_all = |all: &[plan::Template]| all.iter().map(fill).collect::<Result<Vec<String>, _>>();
    let (mut entrypoint, mut command) = (fill_all(&container.entrypoint)?, Vec::new());
    match &container.command {
        None => {}
        Some(plan::Command::Words(words)) => command = fill_all(words)?,
        // As everywhere in a plan, a text is a shell command line; here it is run by the image's shell.
        Some(plan::Command::Shell(line)) => {
            if entrypoint.is_empty() {
                entrypoint = vec!["/bin/sh".to_owned(), "-c".to_owned()];
            }
            command = vec![fill(line)?];
        }
    }
    let is_published = !matches!(container.network, plan::Network::Host);
    let published = container.ports.iter().filter(|_| is_published).filter_map(|(variable, inner)| {
        let outside = names(variable)?.parse().ok()?;
        Some((outside, *inner))
    });
    let mut aliases = vec![planned.name.clone(), planned.group.clone()];
    aliases.dedup();
    let health = match &container.health {
        None => None,
        Some(health) => Some(HealthCheck {
            is_shell: matches!(health.command, plan::Command::Shell(_)),
            command: words_of(&health.command, &what, names)?,
            every_ns: health.interval_ns,
            timeout_ns: health.timeout_ns,
            retries: health.retries,
        }),
    };
    Ok(ContainerSpec {
        image: image_name(&planned.group, &container.image),
        entrypoint,
        command,
        published: published.collect(),
        volumes: fill_all(&container.volumes)?,
        network: match &container.network {
            plan::Network::Run => Network::Run,
            plan::Network::Host => Network::Host,
            plan::Network::None => Network::None,
            plan::Network::Named(name) => Network::Named(name.clone()),
        },
        aliases,
        health,
        user: container.user.clone(),
    })
}

/// The name of an image. A built image is named after its component and what it is built from, so that the next run
/// finds what the engine has cached.
fn image_name(group: &str, image: &plan::Image) -> String {
    match image {
        plan::Image::Named(name) => name.clone(),
        plan::Image::Built { context, dockerfile, args, target } => {
            let mut hasher = DefaultHasher::new();
            (context, dockerfile, args, target).hash(&mut hasher);
            format!("loadlab-build/{group}:{:016x}", hasher.finish())
        }
    }
}

/// When a container or a service counts as up.
///
/// # Errors
/// A name has no value.
pub fn ready(planned: &plan::ComponentSpec, names: Names<'_>) -> Result<system::Ready, TranslateError> {
    match &planned.ready {
        None => Ok(system::Ready::Healthy { timeout_ns: HEALTHY_TIMEOUT_NS }),
        Some(_) => ready_of(planned, names),
    }
}

impl RunningSystem {
    /// Ensures that all images are present, by building or pulling them.
    ///
    /// # Errors
    /// There is no engine, or an image cannot be obtained.
    pub(crate) fn build_images(
        &mut self,
        cases: &[Case],
        cancel: &Cancel,
        builds: &mut Builds,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        let mut done: Vec<String> = Vec::new();
        let mut built = Vec::new();
        for case in cases {
            self.system.use_engine(case.system.engine.as_deref());
            for planned in &case.system.components {
                let ComponentKind::Container(container) = &planned.kind else { continue };
                let image = image_name(&planned.group, &container.image);
                if !done.contains(&image) {
                    self.image(&planned.group, &container.image, cancel, builds, emit)?;
                    done.push(image);
                }
            }
            if let Some(compose) = &case.system.compose {
                let log = self.builds_dir()?.join("compose.log");
                let spec = self.compose_spec_to_build(case, compose, &log)?;
                let values = (compose.file.clone(), spec.env.clone());
                // Values of the case may be arguments of a build.
                if !built.contains(&values) {
                    self.system.compose_build(&spec, cancel)?;
                    self.compose_built = Some(values.clone());
                    built.push(values);
                }
            }
        }
        Ok(())
    }

    fn image(
        &self,
        group: &str,
        image: &plan::Image,
        cancel: &Cancel,
        builds: &mut Builds,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        let name = image_name(group, image);
        let component = |source| system::Error::of_container(group, source);
        let engine = self.system.engine().map_err(component)?;
        let plan::Image::Built { context, dockerfile, args, target } = image else {
            return Ok(engine.ensure_image(&name, cancel).map_err(component)?);
        };
        let what = format!("image of {group}");
        let command = format!("build {context}");
        emit(RunEvent::Building { what: what.clone(), command: command.clone() });
        let began_ns = clock::now_ns();
        let build = ImageBuild {
            image: name,
            context: PathBuf::from(context),
            dockerfile: dockerfile.clone(),
            args: args.clone(),
            target: target.clone(),
        };
        let path = self.builds_dir()?.join(format!("{group}-image.log"));
        let log = std::fs::File::options().append(true).create(true).open(&path);
        let mut log = log.map_err(|error| BringUpError::Folder { path, error })?;
        let built = engine.build_image(&build, self.system.scratch(), cancel, &mut log);
        let took_s = (clock::now_ns() - began_ns) as f64 / 1e9;
        let exit = Some(i32::from(built.is_err()));
        builds.push((clock::now_ns(), EventKind::Command { name: what.clone(), command, exit, took_s }));
        built.map_err(component)?;
        emit(RunEvent::Built { what, took_s });
        Ok(())
    }

    pub(super) fn builds_dir(&self) -> Result<PathBuf, BringUpError> {
        let path = self.run_dir.join("builds");
        match std::fs::create_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(BringUpError::Folder { path, error }),
        }
    }
}
