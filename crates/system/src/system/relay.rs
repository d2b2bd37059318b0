//! loadlab's side of a relay: starts it before its component, sends it the link's shape, reads its counts, and takes it
//! down with the component.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadlab_record::sync::lock;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::{Role, System};
use crate::component::{Component, Inner};
use crate::error::{Error, Result};
use crate::logs;
use crate::netns::NetworkPlacement;
use crate::relay::{ARG, LinkShape, RelayCounts, RelayReport};
use crate::spec::{Command, ComponentSpec, Limits, LinkLimits, LogFiles, Ready, RelayAt, Stop};

/// Longer than a relay ever takes to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const HINT: &str = "the relay's own output is in its log, next to the component's";

/// The relays that are up, by component name.
pub(crate) type Relays = Mutex<BTreeMap<String, Relay>>;

/// A relay that is up.
#[derive(Debug)]
pub(crate) struct Relay {
    inner: Arc<Inner>,
    control: BufReader<UnixStream>,
    shape: LinkShape,
}

/// A relay's name.
fn name_of(component: &str) -> String {
    format!("{component}-relay")
}

fn shape_of(limits: &LinkLimits) -> LinkShape {
    LinkShape {
        delay_ns: limits.delay_ns.unwrap_or(0),
        // An event may have reduced the delay.
        jitter_ns: limits.jitter_ns.unwrap_or(0).min(limits.delay_ns.unwrap_or(0)),
        loss: limits.loss.unwrap_or(0.0),
    }
}

impl System {
    /// The relay in front of a component, if there is one: itself a component, and watched like any other.
    pub fn relay_of(&self, component: &str) -> Option<Component> {
        lock(&self.relays).get(component).map(|relay| Component { inner: relay.inner.clone() })
    }

    /// Traffic counts of a component's relay so far.
    pub fn relayed(&self, component: &str) -> Option<RelayCounts> {
        let mut relays = lock(&self.relays);
        let relay = relays.get_mut(component)?;
        let shape = relay.shape;
        relay.set_shape(&shape, &[]).ok().map(|report| report.counts)
    }

    /// Puts a component's relay in place, if it is to have one, and limits its link: in force before the component's
    /// first instruction, like all limits. Returns what is in force.
    pub(crate) fn prepare_link(
        &self,
        spec: &ComponentSpec,
        placement: &NetworkPlacement,
    ) -> Result<LinkLimits> {
        self.start_relay(spec, placement)?;
        let limited = self.limit_link(&spec.name, &LinkLimits::default(), &spec.limits.link);
        if limited.is_err() {
            // Report the first error. A relay left running would be mistaken for the next one.
            let _ = self.end_relay(&spec.name);
        }
        limited
    }

    fn start_relay(&self, spec: &ComponentSpec, placement: &NetworkPlacement) -> Result<()> {
        let Some(at) = &spec.relay else { return Ok(()) };
        let failed = |why: String| failed(&spec.name, why);
        let exe = self.exe.as_ref().ok_or_else(|| failed("this program cannot act as a relay".to_owned()))?;
        let mut words = vec![exe.display().to_string(), ARG.to_owned()];
        if let RelayAt::Ports(pairs) = at {
            let pairs: Vec<String> = pairs.iter().map(|(at, to)| format!("{at}:{to}")).collect();
            words.push(pairs.join(","));
        }
        let name = name_of(&spec.name);
        let dir = spec.logs.stdout.parent().unwrap_or(&spec.dir);
        let (ours, theirs) = UnixStream::pair().map_err(|e| failed(e.to_string()))?;
        ours.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(|e| failed(e.to_string()))?;
        let relay = ComponentSpec {
            name: name.clone(),
            command: Command::Argv(words),
            env: Vec::new(),
            ready: Ready::Alive,
            limits: Limits::default(),
            stop: Stop::default(),
            logs: LogFiles::in_folder(dir, &name),
            ports: Vec::new(),
            cpus: Vec::new(),
            relay: None,
            ..spec.clone()
        };
        let inner = self.start(&relay, Role::Relay(theirs.into()))?;
        let mut relay =
            Relay { inner: inner.clone(), control: BufReader::new(ours), shape: LinkShape::default() };
        match relay.set_shape(&shape_of(&spec.limits.link), &placement.taps) {
            Ok(_) => {
                inner.was_ready.store(true, Ordering::SeqCst);
                lock(&self.relays).insert(spec.name.clone(), relay);
                Ok(())
            }
            Err(why) => {
                let said = logs::tail(&inner.logs);
                self.take_down(&inner, Some(0))?;
                Err(failed(format!("{why}{said}")))
            }
        }
    }

    /// Takes down a component's relay, if it has one.
    pub(crate) fn end_relay(&self, component: &str) -> Result<()> {
        let relay = lock(&self.relays).remove(component);
        relay.map_or(Ok(()), |relay| self.take_down(&relay.inner, Some(0)).map(drop))
    }

    /// Shapes a component's link; returns what is in force, as reported by the kernel and the relay.
    pub(crate) fn limit_link(
        &self,
        component: &str,
        old: &LinkLimits,
        new: &LinkLimits,
    ) -> Result<LinkLimits> {
        let mut in_force = LinkLimits::default();
        if old.bytes_per_s != new.bytes_per_s {
            self.set_bandwidth(component, new.bytes_per_s)?;
        }
        if new.bytes_per_s.is_some() {
            in_force.bytes_per_s = self.bandwidth(component)?;
        }
        let mut relays = lock(&self.relays);
        let Some(relay) = relays.get_mut(component) else {
            return match (LinkLimits { bytes_per_s: None, ..*new }) == LinkLimits::default() {
                true => Ok(in_force),
                false => Err(failed(component, "no relay was started".to_owned())),
            };
        };
        let RelayReport { shape, .. } =
            relay.set_shape(&shape_of(new), &[]).map_err(|why| failed(component, why))?;
        in_force.delay_ns = new.delay_ns.map(|_| shape.delay_ns);
        in_force.jitter_ns = new.jitter_ns.filter(|_| new.delay_ns.is_some()).map(|_| shape.jitter_ns);
        in_force.loss = new.loss.map(|_| shape.loss);
        Ok(in_force)
    }
}

fn failed(component: &str, why: String) -> Error {
    Error::Network { doing: format!("relay traffic to component `{component}`"), why, hint: HINT }
}

impl Relay {
    /// Sends the shape; the first message also carries both ends of the link. The report confirms what is in force.
    fn set_shape(
        &mut self,
        shape: &LinkShape,
        links: &[OwnedFd],
    ) -> std::result::Result<RelayReport, String> {
        let message = |e: &dyn std::fmt::Display| format!("the relay does not respond: {e}");
        let mut line = serde_json::to_vec(shape).map_err(|e| message(&e))?;
        line.push(b'\n');
        if links.is_empty() {
            self.control.get_mut().write_all(&line).map_err(|e| message(&e))?;
        } else {
            let links: Vec<_> = links.iter().map(|link| link.as_fd()).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            ancillary.push(SendAncillaryMessage::ScmRights(&links));
            let stream = self.control.get_ref();
            sendmsg(stream, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)
                .map_err(|e| message(&e))?;
        }
        let mut answer = String::new();
        match self.control.read_line(&mut answer) {
            Ok(0) => return Err("the relay has ended".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(message(&error)),
        }
        let report: RelayReport = serde_json::from_str(&answer).map_err(|e| message(&e))?;
        if report.shape != *shape {
            return Err(format!("the relay applied {:?} instead of {shape:?}", report.shape));
        }
        self.shape = *shape;
        Ok(report)
    }
}
