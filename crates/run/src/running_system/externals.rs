//! Components that already run when the trial begins: they are found and watched, neither started nor stopped.

use std::net::IpAddr;

use loadlab_plan::{self as plan, Case, ComponentKind};
use loadlab_record::documents::event::EventKind;
use loadlab_system::{self as system, External, ExternalSelector, Scraper, Target};

use crate::event::RunEvent;
use crate::running_system::RunningSystem;
use crate::running_system::error::BringUpError;
use crate::state::{AbortReason, EventSink, TrialState};
use crate::translate::component::ready_of;
use crate::translate::error::TranslateError;

/// Components that already run, and which of all components are reached at this machine's address.
#[derive(Default)]
pub struct Externals {
    /// Running things that were found for this trial.
    found: Vec<External>,
    scrapers: Vec<Scraper>,
    /// Names of components that are reached at this machine's address.
    here: Vec<String>,
}

impl Externals {
    /// The watcher's targets among the things that already run.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        self.found.iter().map(External::target)
    }

    /// Endpoints to read every second.
    pub fn scrapers(&self) -> &[Scraper] {
        &self.scrapers
    }

    /// The address of a container that runs already.
    pub fn address(&self, component: &str) -> Option<IpAddr> {
        self.found.iter().find(|found| found.name() == component).and_then(External::address)
    }

    /// Whether the component is reached at this machine's address, up or not.
    pub fn is_here(&self, component: &str) -> bool {
        self.here.iter().any(|name| name == component)
    }

    /// Whether the component was found and is still there.
    fn is_found(&self, component: &str) -> bool {
        self.found.iter().any(|found| found.name() == component && found.ended().is_none())
    }

    /// Forgets what an earlier trial found.
    pub fn begin(&mut self, case: &Case) {
        self.found.clear();
        self.scrapers.clear();
        // A container has its own address, which is known once it is found.
        let is_here = |kind: &ComponentKind| match kind {
            ComponentKind::Process(_) => true,
            ComponentKind::External(external) => !matches!(external, plan::External::Container(_)),
            ComponentKind::Container(_) | ComponentKind::Service(_) => false,
        };
        let here = case.system.components.iter().filter(|c| is_here(&c.kind)).map(|c| c.name.clone());
        self.here = here.collect();
    }

    /// Checks whether something that already ran has ended, which aborts the trial like a component's death.
    pub fn check_ended(&self, state: &TrialState, emit: EventSink<'_>) {
        for found in &self.found {
            let Some((at_ns, how)) = found.ended() else { continue };
            let (component, status) = (found.name().to_owned(), how.to_owned());
            let died = EventKind::Died { component: component.clone(), status: status.clone() };
            state.record_event_at(at_ns, died);
            emit(RunEvent::Died { component: component.clone(), status: status.clone() });
            state.abort(AbortReason::Died { component, status });
        }
    }
}

impl RunningSystem {
    /// Finds the containers that already run, whose addresses others may be started with.
    ///
    /// # Errors
    /// The engine does not answer.
    pub(crate) fn find_containers(&mut self, case: &Case, state: &TrialState) -> Result<(), BringUpError> {
        for planned in &case.system.components {
            if let ComponentKind::External(external @ plan::External::Container(id)) = &planned.kind {
                match self.find(planned, external, &ExternalSelector::Container(id.clone()), case, state) {
                    // An earlier component may be what starts it.
                    Err(BringUpError::System(system::Error::NotThere { .. })) => {}
                    found => found?,
                }
            }
        }
        Ok(())
    }

    fn find(
        &mut self,
        planned: &plan::ComponentSpec,
        external: &plan::External,
        sought: &ExternalSelector,
        case: &Case,
        state: &TrialState,
    ) -> Result<(), BringUpError> {
        let name = &planned.name;
        let found = External::find(name, sought, case.system.engine.as_deref())?;
        state.record_note(format!("{name} runs already: {}", external.text()));
        // A container without a network of its own is reached here.
        if found.address().is_none() && !self.externals.is_here(name) {
            self.externals.here.push(name.clone());
        }
        self.externals.found.retain(|before| before.name() != name);
        self.externals.found.push(found);
        Ok(())
    }

    /// Finds a component that already runs, and waits until it answers. Most containers have been found before.
    ///
    /// # Errors
    /// It does not exist or does not answer.
    pub(crate) fn find_external(
        &mut self,
        planned: &plan::ComponentSpec,
        external: &plan::External,
        case: &Case,
        state: &TrialState,
    ) -> Result<(), BringUpError> {
        let name = &planned.name;
        let names = |n: &str| self.name(n, Some(name));
        let seek = match external {
            plan::External::Pid(pid) => ExternalSelector::Pid(*pid),
            plan::External::Command(command) => ExternalSelector::Command(command.clone()),
            plan::External::Cgroup(path) => ExternalSelector::Cgroup(path.clone()),
            plan::External::Container(_) if self.externals.is_found(name) => {
                return self.answers(planned, state);
            }
            // Perhaps it was found, and an earlier component has restarted it since.
            plan::External::Container(id) => ExternalSelector::Container(id.clone()),
            plan::External::Prometheus { url, labels } => {
                let what = format!("component `{name}`");
                let url = url.render(&names).map_err(|error| TranslateError::Name { what, error })?;
                let scraper = Scraper::new(name, &url, labels.clone())?;
                scraper.read(&mut || state.cancel.is_cancelled())?;
                self.externals.scrapers.push(scraper);
                return self.answers(planned, state);
            }
        };
        self.find(planned, external, &seek, case, state)?;
        self.answers(planned, state)
    }

    fn answers(&self, planned: &plan::ComponentSpec, state: &TrialState) -> Result<(), BringUpError> {
        if planned.ready.is_none() {
            return Ok(());
        }
        let ready = ready_of(planned, &|n| self.name(n, Some(&planned.name)))?;
        let after_s = system::ready::answers(&planned.name, &ready, &state.cancel)?;
        state.record_event(EventKind::Ready { component: planned.name.clone(), after_s });
        Ok(())
    }
}
