//! Containers that go away and come back in the middle of a load: the same container, with its files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::component::{Component, Inner, Origin};
use crate::engine::container::ContainerHandle;
use crate::engine::{Call, EngineError};
use crate::error::{Error, Result};
use crate::system::System;

impl System {
    /// Kills a component's container but keeps it, to be started again or taken down.
    ///
    /// # Errors
    /// It is not a container; the engine could not kill it.
    pub fn kill_container(&self, component: &Component) -> Result<()> {
        let (inner, handle) = handle_of(component)?;
        inner.is_stopping.store(true, Ordering::SeqCst);
        let call = Call::new("kill the container", "POST", format!("/containers/{}/kill", handle.id));
        match handle.engine.call(call) {
            // A container that has just ended on its own is not running, which the engine reports as a conflict.
            Ok(_) | Err(EngineError::Refused { status: 409, .. }) => {}
            Err(error) => return Err(Error::of_container(&inner.spec.name, error)),
        }
        inner.wait_reaped();
        handle.finish_logs();
        Ok(())
    }

    /// Restarts a component's container: stops it as its `stop` specifies, and starts it again with its current limits.
    /// The engine chooses its address.
    ///
    /// # Errors
    /// It is not a container, or no longer exists; the engine's error; a limit that did not take effect.
    pub fn restart_container(&self, component: &Component) -> Result<Component> {
        let (inner, handle) = handle_of(component)?;
        inner.is_stopping.store(true, Ordering::SeqCst);
        let limits = component.limits();
        self.stop_container(inner, handle, inner.spec.stop.timeout_ns)?;
        inner.wait_reaped();
        handle.finish_logs();
        self.monitor.forget(inner);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let since_ns = now.map(|now| now.as_nanos()).ok();
        let started = self.start_container(&inner.spec, &handle.engine, &handle.id, since_ns);
        let component = match started {
            Ok(component) => component,
            Err(error) => {
                // Report the first error; the label finds anything left.
                let _ = handle.remove();
                return Err(error);
            }
        };
        // The engine has made its cgroups anew.
        if component.limits() != limits
            && let Err(error) = self.limit(&component, &limits)
        {
            // It is running with the wrong limits, and its name would be taken when the next trial begins.
            let _ = self.kill(&component);
            return Err(error);
        }
        Ok(component)
    }
}

/// The component's container at its engine.
fn handle_of(component: &Component) -> Result<(&Arc<Inner>, &ContainerHandle)> {
    let inner = &component.inner;
    match &inner.origin {
        Origin::Container(handle) => Ok((inner, handle)),
        Origin::Process => {
            Err(Error::AlreadyUp { component: component.name().to_owned(), pid: inner.id.pid })
        }
    }
}
