//! The run's container engine, looked up when first needed.

use loadlab_record::sync::lock;

use super::System;
use crate::engine::leftovers::RUN_LABEL;
use crate::engine::{Engine, EngineError};
use crate::error::Result;
use crate::ledger::state::{self, Resource};

/// What is known about the container engine.
#[derive(Debug, Default)]
pub(crate) struct EngineState {
    /// The engine as the plan names it.
    pub named: Option<String>,
    /// The engine, once it was needed.
    pub engine: Option<Engine>,
    /// The installed Compose, once it was needed: the words of its command.
    pub compose: Option<Vec<String>>,
    /// Whether the run's network exists.
    pub has_network: bool,
    /// Resources already in the ledger.
    pub made: Vec<Resource>,
    /// What the engine was asked for and has not confirmed.
    pub asked: Vec<Resource>,
}

impl System {
    /// Which engine runs containers: `docker`, `podman`, or a socket. Call this before the engine is first needed.
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

    /// Records the engine in the ledger: from here on, everything there with the run's label is removed with the run.
    pub(crate) fn remember_engine(&self, engine: &Engine) -> Result<()> {
        self.remember(Resource::Engine { socket: engine.socket().to_owned(), label: self.engine_label() })
    }

    /// The label of everything the run itself makes at an engine.
    pub(crate) fn engine_label(&self) -> String {
        format!("{}={}", RUN_LABEL, self.run_label())
    }

    /// Records a resource in the ledger once, for as long as the system lives.
    pub(crate) fn remember(&self, resource: Resource) -> Result<()> {
        let mut engine_state = lock(&self.engine_state);
        if !engine_state.made.contains(&resource) {
            engine_state.made.push(resource.clone());
            return self.ledger.made(resource);
        }
        Ok(())
    }

    /// Asks the engine to make something, which stays in the ledger until the engine has answered: the engine will make
    /// it even if loadlab is gone by then.
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

    /// The label value of everything that the run makes.
    pub(crate) fn run_label(&self) -> String {
        self.ledger.mark().replace("LOADLAB_RUN=", "")
    }

    /// A name at the engine that no other run uses.
    pub(crate) fn name_for(&self, part: &str) -> String {
        format!("loadlab-{}-{part}", crate::cgroup::folder_name(&self.run_id).trim_start_matches('_'))
    }

    /// The tag of the process that owns the run.
    pub(crate) fn owner_tag(&self) -> String {
        state::tag(self.ledger.owner())
    }
}
