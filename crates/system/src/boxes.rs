//! What a run knows of its container engine, which is looked for when it is first needed.

use crate::component::lock;
use crate::engine::{Engine, EngineError};
use crate::state::Resource;
use crate::system::System;

/// What is known of the container engine.
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    /// As the plan names it.
    pub named: Option<String>,
    /// Once it was needed.
    pub engine: Option<Engine>,
    /// The Compose that is installed, once it was needed: its words.
    pub compose: Option<Vec<String>>,
    /// The run's network is there.
    pub has_network: bool,
    /// What is in the ledger.
    pub made: Vec<Resource>,
    /// What the engine was asked for and gave no answer to.
    pub asked: Vec<Resource>,
}

impl System {
    /// Which engine runs containers: `docker`, `podman`, a socket. To be said before the first one.
    pub fn use_engine(&self, named: Option<&str>) {
        lock(&self.boxes).named = named.map(str::to_owned);
    }

    /// The engine, looked for when it is first needed.
    ///
    /// # Errors
    /// See [`Engine::connect`].
    pub fn engine(&self) -> Result<Engine, EngineError> {
        let mut boxes = lock(&self.boxes);
        if let Some(engine) = &boxes.engine {
            return Ok(engine.clone());
        }
        let engine = Engine::connect(boxes.named.as_deref())?;
        boxes.engine = Some(engine.clone());
        Ok(engine)
    }
}
