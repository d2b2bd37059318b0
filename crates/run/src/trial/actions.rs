//! Events of the plan: what happens to components at given times during the load, whatever the load is doing.
//!
//! A separate thread carries events out one after the other. A component that an event ends on purpose does not count
//! as dead. An event that cannot be carried out aborts the trial, because it is then not the planned one.

use loadlab_plan::{Action, EventSpec, LeverSpec};
use loadlab_record::documents::event::EventKind;
use loadlab_system::{Cancel, CommandSpec, Component, ComponentSpec, Watcher, clock};

use crate::event::RunEvent;
use crate::limits;
use crate::running_system::{Changed, RunningSystem};
use crate::senders::Senders;
use crate::state::{AbortReason, EventSink, TrialState};
use crate::translate::component;

/// How often to try a port that is in use.
const PORT_POLL_INTERVAL_NS: u64 = 10_000_000;
/// How long a port may stay in use after its component is down.
const PORT_RELEASE_TIMEOUT_NS: u64 = 2_000_000_000;
/// How long a lever's command may take.
const LEVER_TIMEOUT_NS: u64 = 10_000_000_000;

/// What everything that runs in a trial works with. Here it carries out the events.
pub struct TrialContext<'a> {
    pub running: &'a RunningSystem,
    pub state: &'a TrialState,
    pub emit: EventSink<'a>,
    pub watcher: Option<&'a Watcher>,
    /// Zero of the trial's clock.
    pub zero_ns: u64,
    /// The processes that send the loads, if not this one.
    pub senders: Option<&'a dyn Senders>,
    /// The plan's levers, and the folder that their commands run in.
    pub levers: (&'a [LeverSpec], &'a str),
}

impl TrialContext<'_> {
    /// Carries out all events that are due before the loads are `over`. Returns how the components have changed.
    pub fn carry_out(&self, events: &[EventSpec], over: &Cancel) -> Changed {
        let mut changed = Changed::new();
        self.carry_out_all(events, over, &mut changed);
        // A killed container is kept as long as an event may start it again.
        for (name, now) in &mut changed {
            let Some(killed) = now.as_ref().filter(|c| c.is_container() && c.ended_on_request()) else {
                continue;
            };
            match self.running.system.kill(killed) {
                Ok(_) => *now = None,
                // It is taken down with the rest.
                Err(error) => self.state.record_event(EventKind::Note {
                    text: format!("`{name}` was killed, but not removed yet: {error}"),
                }),
            }
        }
        changed
    }

    /// Reverts what events have changed, even after an error or an interrupt.
    pub fn restore(&self, events: &[EventSpec]) {
        for event in events {
            let error = match event.action {
                Action::Set { lever, setting } => self.set(event, lever, setting).err(),
                _ => event.components.iter().find_map(|name| {
                    // A component that is gone has nothing to revert.
                    self.running.component(name).filter(|component| component.ended().is_none())?;
                    self.act_on(event, name, &mut Changed::new()).err()
                }),
            };
            if let Some(why) = error {
                let text = format!("`{}` could not be set back: {why}", event.text);
                (self.emit)(RunEvent::Note(text.clone()));
                self.state.record_event(EventKind::Failed { text: text.clone() });
                self.state.abort(AbortReason::Command(text));
            }
        }
    }

    /// Sets a lever of the plan by running its command.
    fn set(&self, event: &EventSpec, lever: usize, setting: usize) -> Result<(), String> {
        let (levers, dir) = self.levers;
        let wanted =
            levers.get(lever).and_then(|lever| lever.setting(setting)).ok_or("there is no such lever")?;
        let names = |name: &str| self.running.name(name, None);
        let what = format!("lever {}", event.text);
        let command = component::command(&wanted.command, &what, &names).map_err(|e| e.to_string())?;
        let spec = CommandSpec {
            name: what,
            command,
            dir: dir.into(),
            env: Vec::new(),
            timeout_ns: Some(LEVER_TIMEOUT_NS),
            log: self.running.log_files("levers", self.state).stdout,
        };
        // An interrupt ends the load; changes are reverted all the same.
        let result = self.running.system.run_command(&spec, &Cancel::new()).map_err(|e| e.to_string())?;
        result.checked().map(drop).map_err(|e| e.to_string())
    }

    fn carry_out_all(&self, events: &[EventSpec], over: &Cancel, changed: &mut Changed) {
        for (i, event) in events.iter().enumerate() {
            if self.state.wait_until(self.zero_ns.saturating_add(event.at_ns), over, || {}) {
                if !self.state.must_end() {
                    let events = events[i..].iter().map(|event| event.text.clone()).collect();
                    self.state.record_event(EventKind::Skipped { events });
                }
                return;
            }
            self.act(event, changed);
        }
    }

    fn act(&self, event: &EventSpec, changed: &mut Changed) {
        let mut error = None;
        if let Action::Set { lever, setting } = event.action {
            error = self.set(event, lever, setting).err();
        }
        if matches!(event.action, Action::Kill | Action::Restart | Action::Pause | Action::Disconnect) {
            self.state.disturb();
        }
        for name in &event.components {
            if let Err(why) = self.act_on(event, name, changed) {
                error = Some(format!("{name}: {why}"));
                break;
            }
        }
        let (what, components) = (event.text.clone(), event.components.clone());
        (self.emit)(RunEvent::Acted { what: what.clone(), error: error.clone() });
        self.state.record_event(EventKind::Action { what, components, error: error.clone() });
        if let Some(why) = error {
            self.state.abort(AbortReason::Command(format!("event `{}` failed: {why}", event.text)));
        }
    }

    fn act_on(&self, event: &EventSpec, name: &str, changed: &mut Changed) -> Result<(), String> {
        let planned = self.running.component(name).ok_or("it does not exist")?;
        let present = match changed.get(name) {
            Some(now) => now.clone(),
            None => Some(planned.clone()),
        };
        // Its limits may have changed since it was first started.
        let limits = present.as_ref().unwrap_or(&planned).limits();
        let spec = ComponentSpec { limits, ..planned.spec().clone() };
        let living =
            || present.clone().filter(|c| c.ended().is_none()).ok_or_else(|| "it is not up".to_owned());
        let message = |e: loadlab_system::Error| e.to_string();
        match event.action {
            Action::Kill if planned.is_container() => {
                let component = living()?;
                self.running.system.kill_container(&component).map_err(message)?;
                changed.insert(name.to_owned(), Some(component));
                self.report_down(name, "killed by an event");
            }
            Action::Kill => {
                let component = living()?;
                // If killing fails, the component still has to be taken down.
                self.running.system.kill(&component).map_err(message)?;
                changed.insert(name.to_owned(), None);
                self.report_down(name, "killed by an event");
            }
            Action::Restart if planned.is_container() => {
                let before = present.ok_or("its container is gone")?;
                self.restart_container(name, &before, changed)?;
            }
            Action::Restart => {
                if let Some(component) = &present {
                    self.running.system.down(component).map_err(message)?;
                    self.report_down(name, "restarted by an event");
                }
                // The old process is down, and a new one may not come up.
                changed.insert(name.to_owned(), None);
                let component = self.start(&spec)?;
                // It has to be taken down whether it becomes ready or not.
                changed.insert(name.to_owned(), Some(component.clone()));
                let after_s = self.running.system.ready(&component, &self.state.cancel).map_err(message)?;
                self.state.record_event(EventKind::Ready { component: name.to_owned(), after_s });
            }
            Action::Pause | Action::Resume => {
                let component = living()?;
                let reported =
                    if event.action == Action::Pause { component.pause() } else { component.resume() };
                let is_there = reported.map_err(message)?;
                return is_there.then_some(()).ok_or_else(|| "it has no process".to_owned());
            }
            Action::Limit { limit, value } => {
                let component = living()?;
                let wanted = limits::after_event(&component, limit, value);
                let missed = self.running.system.limit(&component, &wanted).map_err(message)?;
                for missing in missed {
                    let (component, what, why) = (name.to_owned(), missing.what, missing.why);
                    self.state.record_event(EventKind::Unavailable { component, what, why });
                }
                self.state.record_limits(&component);
                if let Some(watcher) = self.watcher {
                    watcher.set_limits(name, component.memory_limit_bytes());
                }
            }
            Action::Disconnect => self.running.system.disconnect(name).map_err(message)?,
            Action::Reconnect => self.running.system.reconnect(name).map_err(message)?,
            Action::Set { .. } => {}
        }
        Ok(())
    }

    fn restart_container(&self, name: &str, before: &Component, changed: &mut Changed) -> Result<(), String> {
        let message = |e: loadlab_system::Error| e.to_string();
        let was_up = !before.ended_on_request();
        // If restarting fails, it is unknown whether the container was stopped: it counts as present until it is taken
        // down.
        let component = self.running.system.restart_container(before).map_err(message)?;
        if was_up {
            self.report_down(name, "restarted by an event");
        }
        changed.insert(name.to_owned(), Some(component.clone()));
        self.report_up(&component);
        self.report_move(name, before, &component);
        let ready = self.running.ready_of(name).ok_or("it is not known when it is ready")?;
        let ready = self.running.system.ready_when(&component, ready, &self.state.cancel);
        let after_s = ready.map_err(message)?;
        self.state.record_event(EventKind::Ready { component: name.to_owned(), after_s });
        Ok(())
    }

    /// Reports a component that came back at a different address.
    fn report_move(&self, name: &str, before: &Component, now: &Component) {
        if now.address() != before.address() {
            let text = format!(
                "the engine gave `{name}` another address: clients of the old one, such as a load that uses \
                 `${{components.{name}.address}}`, no longer reach it"
            );
            self.state.record_and_show(text, self.emit);
        }
    }

    fn report_down(&self, name: &str, how: &str) {
        self.state.record_event(EventKind::Down { component: name.to_owned(), how: how.to_owned() });
    }

    /// Starts a component again.
    fn start(&self, spec: &ComponentSpec) -> Result<Component, String> {
        let until_ns = clock::now_ns() + PORT_RELEASE_TIMEOUT_NS;
        let component = loop {
            match self.running.system.up(spec) {
                Ok(component) => break component,
                // A connection of the load may just have been made from this port.
                Err(loadlab_system::Error::PortTaken { .. }) if clock::now_ns() < until_ns => {
                    self.state.cancel.wait_until(clock::now_ns() + PORT_POLL_INTERVAL_NS);
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        self.report_up(&component);
        Ok(component)
    }

    /// Reports a component that was started again, and watches it.
    fn report_up(&self, component: &Component) {
        self.state.abort_on_death(component.process());
        if let Some(relay) = self.running.system.relay_of(component.name()) {
            self.state.record_relay(&relay);
            self.watch(&relay);
        }
        let (name, pid) = (component.name().to_owned(), Some(component.process().pid));
        self.state.record_event(EventKind::Up { component: name, pid });
        self.state.record_limits(component);
        self.watch(component);
    }

    fn watch(&self, component: &Component) {
        if let Some(watcher) = self.watcher {
            watcher.add(component.target());
        }
    }
}
