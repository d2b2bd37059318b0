//! A container that goes and comes back in the middle of a load: the same one, with its files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::component::{Component, Inner, Origin};
use crate::engine::container::ContainerHandle;
use crate::engine::{Call, EngineError};
use crate::error::{Error, Result};
use crate::system::System;

impl System {
    /// Kills a container of a component, which stays, to be started again or taken down.
    ///
    /// # Errors
    /// It is no container; the engine could not kill it.
    pub fn kill_container(&self, component: &Component) -> Result<()> {
        let (inner, handle) = handle_of(component)?;
        inner.leaving.store(true, Ordering::SeqCst);
        let call = Call::new("kill the container", "POST", format!("/containers/{}/kill", handle.id));
        match handle.engine.call(call) {
            // One that has just ended by itself does not run, and that is a conflict to the engine.
            Ok(_) | Err(EngineError::Refused { status: 409, .. }) => {}
            Err(error) => return Err(Error::of_container(&inner.spec.name, error)),
        }
        inner.wait_reaped();
        handle.finish_logs();
        Ok(())
    }

    /// Starts a container of a component again, as its `stop` says and with the limits that it has by now. Its address
    /// is the engine's to give.
    ///
    /// # Errors
    /// It is no container, or not there any more; what the engine says; a limit that did not take.
    pub fn restart_container(&self, component: &Component) -> Result<Component> {
        let (inner, handle) = handle_of(component)?;
        inner.leaving.store(true, Ordering::SeqCst);
        let limits = component.limits();
        self.stop_container(inner, handle, inner.spec.stop.within_ns)?;
        inner.wait_reaped();
        handle.finish_logs();
        self.monitor.forget(inner);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let since_ns = now.map(|now| now.as_nanos()).ok();
        let started = self.start_container(&inner.spec, &handle.engine, &handle.id, since_ns);
        let component = match started {
            Ok(component) => component,
            Err(error) => {
                // Report the first error; the label finds what is left.
                let _ = handle.remove();
                return Err(error);
            }
        };
        // The engine has made its groups anew.
        if component.limits() != limits
            && let Err(error) = self.limit(&component, &limits)
        {
            // It runs as nobody asked, and its name would be taken when the next trial begins.
            let _ = self.kill(&component);
            return Err(error);
        }
        Ok(component)
    }
}

/// What an engine holds of a component.
fn handle_of(component: &Component) -> Result<(&Arc<Inner>, &ContainerHandle)> {
    let inner = &component.inner;
    match &inner.origin {
        Origin::Container(handle) => Ok((inner, handle)),
        Origin::Process => {
            Err(Error::AlreadyUp { component: component.name().to_owned(), pid: inner.id.pid })
        }
    }
}
