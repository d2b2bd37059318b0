//! What a run knows of its container engine, which is looked up when first needed.

use super::System;
use crate::engine::leftovers::RUN_LABEL;
use crate::engine::{Engine, EngineError};
use crate::error::Result;
use crate::ledger::state::{self, Resource};
use crate::sync::lock;

/// What is known of the container engine.
#[derive(Debug, Default)]
pub(crate) struct EngineState {
    /// As the plan names it.
    pub named: Option<String>,
    /// Set once it was needed.
    pub engine: Option<Engine>,
    /// The installed Compose, once it was needed: the words of its command.
    pub compose: Option<Vec<String>>,
    /// The run's network exists.
    pub has_network: bool,
    /// What is in the ledger.
    pub made: Vec<Resource>,
    /// What the engine was asked for and has not answered.
    pub asked: Vec<Resource>,
}

impl System {
    /// Which engine runs containers: `docker`, `podman`, a socket. Call this before the first one.
    pub fn use_engine(&self, named: Option<&str>) {
        lock(&self.engine_state).named = named.map(str::to_owned);
    }

    /// The engine, looked up when first needed.
    ///
    /// # Errors
    /// See [`Engine::connect`].
    pub fn engine(&self) -> std::result::Result<Engine, EngineError> {
        let mut engine_state = lock(&self.engine_state);
        if let Some(engine) = &engine_state.engine {
            return Ok(engine.clone());
        }
        let engine = Engine::connect(engine_state.named.as_deref())?;
        engine_state.engine = Some(engine.clone());
        Ok(engine)
    }

    /// From here on everything that has the run's label at the engine goes with the run.
    pub(crate) fn remember_engine(&self, engine: &Engine) -> Result<()> {
        self.remember(Resource::Engine { socket: engine.socket().to_owned(), label: self.engine_label() })
    }

    /// The label of everything the run itself makes at an engine.
    pub(crate) fn engine_label(&self) -> String {
        format!("{}={}", RUN_LABEL, self.run_label())
    }

    /// Puts something into the ledger once, for as long as the system lives.
    pub(crate) fn remember(&self, resource: Resource) -> Result<()> {
        let mut engine_state = lock(&self.engine_state);
        if !engine_state.made.contains(&resource) {
            engine_state.made.push(resource.clone());
            return self.ledger.made(resource);
        }
        Ok(())
    }

    /// Has the engine make something, which is in the ledger until the engine has answered: it will be made even when
    /// loadlab is gone.
    pub(crate) fn asking<T, E>(
        &self,
        resource: Resource,
        ask: impl FnOnce() -> std::result::Result<T, E>,
        is_answered: impl FnOnce(&E) -> bool,
    ) -> Result<std::result::Result<T, E>> {
        self.ledger.made(resource.clone())?;
        let made = ask();
        match &made {
            Err(error) if !is_answered(error) => lock(&self.engine_state).asked.push(resource),
            _ => self.ledger.done(resource)?,
        }
        Ok(made)
    }

    /// The value of the label of everything that the run makes.
    pub(crate) fn run_label(&self) -> String {
        self.ledger.mark().replace("LOADLAB_RUN=", "")
    }

    /// A name at the engine, unlike that of any other run.
    pub(crate) fn name_for(&self, part: &str) -> String {
        format!("loadlab-{}-{part}", crate::cgroup::folder_name(&self.run_id).trim_start_matches('_'))
    }

    /// The tag of the process that the run belongs to.
    pub(crate) fn owner_tag(&self) -> String {
        state::tag(self.ledger.owner())
    }
}
