//! Waits until a component is ready, while watching that it is still alive.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cancel::{Cancel, WaitOutcome};
use crate::clock;
use crate::component::{Component, Origin};
use crate::engine::container::Health;
use crate::error::{Error, Result};
use crate::http;
use crate::spec::Ready;
use crate::system::System;

/// Pause between two attempts, nanoseconds: short at first, since a small component is up in a few milliseconds, then
/// doubled each time up to the second value.
const PAUSES_NS: (u64, u64) = (2_000_000, 15_000_000);
/// How long a component without a readiness check must have lived to count as ready.
const ALIVE_NS: u64 = 50_000_000;
/// As `ALIVE_NS`, for a container without a health check: its command starts a while after the engine reports the
/// container as running.
const CONTAINER_ALIVE_NS: u64 = 300_000_000;
/// Pause between two queries to a container engine.
const QUERY_INTERVAL_NS: u64 = 50_000_000;
/// Time limit of the first HTTP attempt; it doubles with each attempt that times out.
const FIRST_ATTEMPT_NS: u64 = 1_000_000_000;

impl System {
    /// Waits until a component is ready; returns the seconds from its start until then.
    ///
    /// Errors: it ended (returned at once), its deadline passed (both with the last lines of its logs), or `cancel` was
    /// triggered.
    pub fn ready(&self, component: &Component, cancel: &Cancel) -> Result<f64> {
        self.ready_when(component, &component.spec().ready, cancel)
    }

    /// As [`System::ready`], with a check that was not known when the component started, such as one with its address.
    ///
    /// # Errors
    /// As for [`System::ready`].
    pub fn ready_when(&self, component: &Component, ready: &Ready, cancel: &Cancel) -> Result<f64> {
        let started_ns = component.started_ns();
        let mut check = Check::of(component, ready);
        let until_ns = started_ns.saturating_add(check.timeout_ns());
        let mut pause_ns = match check {
            Check::Alive => ALIVE_NS,
            Check::Healthy { .. } => QUERY_INTERVAL_NS,
            _ => PAUSES_NS.0,
        };
        let mut last = None;
        loop {
            if !matches!(check, Check::Alive) {
                match check.attempt(component, until_ns, cancel) {
                    Ok(()) => return mark_ready(component),
                    // An attempt cut short by the deadline is less informative than the previous ones.
                    Err(why) if last.is_none() || clock::now_ns() < until_ns => last = Some(why),
                    Err(_) => {}
                }
            }
            let now_ns = clock::now_ns();
            let pidfd = component.inner.pidfd.as_fd();
            match cancel.wait_for(Some(pidfd), until_ns.min(now_ns + pause_ns)) {
                WaitOutcome::Ready => return Err(ended_early(component)),
                WaitOutcome::Cancelled => {
                    return Err(Error::Cancelled {
                        doing: format!("waiting for component `{}`", component.name()),
                    });
                }
                WaitOutcome::TimedOut if matches!(check, Check::Alive) => return mark_ready(component),
                WaitOutcome::TimedOut if clock::now_ns() >= until_ns => {
                    return Err(Error::NotReady {
                        component: component.name().to_owned(),
                        timeout_ns: check.timeout_ns(),
                        waited_for: check.describe(),
                        last: last.unwrap_or_else(|| "no attempt was made".to_owned()),
                        oom_kills: component.inner.group.oom_kills().unwrap_or(0),
                        tail: component.tail(),
                    });
                }
                WaitOutcome::TimedOut => pause_ns = (pause_ns * 2).min(PAUSES_NS.1),
            }
        }
    }
}

/// Waits until something that is already running answers; returns the seconds this took.
///
/// # Errors
/// The deadline passed, or `cancel` was triggered.
pub fn answers(name: &str, ready: &Ready, cancel: &Cancel) -> Result<f64> {
    let (begun_ns, mut attempt_ns) = (clock::now_ns(), FIRST_ATTEMPT_NS);
    let (timeout_ns, waited_for) = match ready {
        Ready::Http { url, timeout_ns } => (*timeout_ns, format!("GET {url}")),
        Ready::Tcp { addr, timeout_ns } => (*timeout_ns, format!("connecting to {addr}")),
        Ready::Alive | Ready::Healthy { .. } | Ready::Log { .. } => return Ok(0.0),
    };
    let until_ns = begun_ns.saturating_add(timeout_ns);
    loop {
        let attempt = match ready {
            Ready::Http { url, .. } => get(url, until_ns, &mut attempt_ns, &mut || cancel.is_cancelled()),
            Ready::Tcp { addr, .. } => connect(addr),
            Ready::Alive | Ready::Healthy { .. } | Ready::Log { .. } => Ok(()),
        };
        let now_ns = clock::now_ns();
        match attempt {
            Ok(()) => return Ok((now_ns - begun_ns) as f64 / 1e9),
            Err(last) if now_ns >= until_ns => {
                let (component, tail) = (name.to_owned(), crate::error::Tail::default());
                return Err(Error::NotReady { component, timeout_ns, waited_for, last, tail, oom_kills: 0 });
            }
            Err(_) if cancel.wait_until(until_ns.min(now_ns + PAUSES_NS.1)) => {
                return Err(Error::Cancelled { doing: format!("waiting for component `{name}`") });
            }
            Err(_) => {}
        }
    }
}

/// One attempt of an HTTP readiness check; an attempt that timed out lets the next take twice as long.
fn get(
    url: &str,
    until_ns: u64,
    attempt_ns: &mut u64,
    stop: &mut dyn FnMut() -> bool,
) -> std::result::Result<(), String> {
    match http::get(url, until_ns.min(clock::now_ns() + *attempt_ns), stop) {
        Ok(response) if response.status < 400 => Ok(()),
        Ok(response) => Err(format!("answered with status {}", response.status)),
        Err(e @ http::HttpError::Timeout) => {
            *attempt_ns *= 2;
            Err(e.to_string())
        }
        Err(e) => Err(e.to_string()),
    }
}

/// Marks the component as ready; returns the seconds since its start.
fn mark_ready(component: &Component) -> Result<f64> {
    let after_s = (clock::now_ns() - component.started_ns()) as f64 / 1e9;
    component.inner.was_ready.store(true, Ordering::SeqCst);
    // The component may have answered just before its end was noticed.
    if component.ended().is_some() { Err(ended_early(component)) } else { Ok(after_s) }
}

fn ended_early(component: &Component) -> Error {
    let ended = component.inner.wait_reaped();
    Error::EndedEarly {
        component: component.name().to_owned(),
        status: ended.status.to_string(),
        tail: component.tail(),
    }
}

/// A readiness check and its state between attempts.
enum Check {
    Alive,
    Http { url: String, attempt_ns: u64, timeout_ns: u64 },
    Tcp { addr: String, timeout_ns: u64 },
    Log { pattern: String, timeout_ns: u64, logs: Vec<Search> },
    Healthy { timeout_ns: u64 },
}

/// How far a log has been searched.
struct Search {
    offset: u64,
    /// The last bytes searched, in case the pattern begins in them.
    carry: Vec<u8>,
}

impl Check {
    fn of(component: &Component, ready: &Ready) -> Check {
        match ready.clone() {
            Ready::Alive => Check::Alive,
            Ready::Http { url, timeout_ns } => Check::Http { url, attempt_ns: FIRST_ATTEMPT_NS, timeout_ns },
            Ready::Tcp { addr, timeout_ns } => Check::Tcp { addr, timeout_ns },
            Ready::Healthy { timeout_ns } => Check::Healthy { timeout_ns },
            Ready::Log { pattern, timeout_ns } => {
                let logs = &component.inner.logs;
                let logs = logs.iter().map(|log| Search { offset: log.from, carry: Vec::new() }).collect();
                Check::Log { pattern, timeout_ns, logs }
            }
        }
    }

    fn timeout_ns(&self) -> u64 {
        match self {
            Check::Alive => u64::MAX,
            Check::Http { timeout_ns, .. }
            | Check::Tcp { timeout_ns, .. }
            | Check::Log { timeout_ns, .. }
            | Check::Healthy { timeout_ns } => *timeout_ns,
        }
    }

    fn describe(&self) -> String {
        match self {
            Check::Alive => "it runs".into(),
            Check::Http { url, .. } => format!("GET {url}"),
            Check::Tcp { addr, .. } => format!("connecting to {addr}"),
            Check::Log { pattern, .. } => format!("`{pattern}` in its output"),
            Check::Healthy { .. } => "its health check".into(),
        }
    }

    /// One attempt; the error is the reason in words.
    fn attempt(
        &mut self,
        component: &Component,
        until_ns: u64,
        cancel: &Cancel,
    ) -> std::result::Result<(), String> {
        match self {
            Check::Alive => Ok(()),
            Check::Http { url, attempt_ns, .. } => {
                let mut stop = || cancel.is_cancelled() || component.ended().is_some();
                get(url, until_ns, attempt_ns, &mut stop)
            }
            Check::Tcp { addr, .. } => connect(addr),
            Check::Healthy { .. } => is_healthy(component),
            Check::Log { pattern, logs, .. } => {
                let found = component.inner.logs.iter().zip(logs).any(|(log, search)| {
                    search.finds(pattern.as_bytes(), |offset, into| log.read_since(offset, into))
                });
                if found { Ok(()) } else { Err("not found".into()) }
            }
        }
    }
}

/// A container without a health check counts as healthy once it has lived for a moment.
fn is_healthy(component: &Component) -> std::result::Result<(), String> {
    let health = match &component.inner.origin {
        Origin::Process => Health::Unchecked,
        Origin::Container(handle) => handle.health(),
    };
    match health {
        Health::Well => Ok(()),
        Health::Unchecked if clock::now_ns() >= component.started_ns() + CONTAINER_ALIVE_NS => Ok(()),
        Health::Unchecked => Err("it has only just started".into()),
        Health::Not(why) => Err(why),
    }
}

fn connect(addr: &str) -> std::result::Result<(), String> {
    let found = addr.to_socket_addrs().map_err(|e| format!("`{addr}` is not an address and port: {e}"))?;
    let found: Vec<SocketAddr> = found.collect();
    match http::connect(&found, Duration::from_millis(250), u64::MAX) {
        Ok(_) => Ok(()),
        // The caller's message already has the address.
        Err(http::HttpError::Connect { source, .. }) => Err(source.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

impl Search {
    fn finds(&mut self, pattern: &[u8], read: impl FnOnce(u64, &mut Vec<u8>) -> u64) -> bool {
        let mut text = std::mem::take(&mut self.carry);
        self.offset = read(self.offset, &mut text);
        let found = pattern.is_empty() || text.windows(pattern.len()).any(|window| window == pattern);
        let keep = text.len().min(pattern.len().saturating_sub(1));
        self.carry = text.split_off(text.len() - keep);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_across_two_reads_is_found() {
        let mut search = Search { offset: 0, carry: Vec::new() };
        let mut step = |text: &'static [u8]| {
            search.finds(b"ready", |offset, into| {
                into.extend(text);
                offset + text.len() as u64
            })
        };
        assert!(!step(b"not re"));
        assert!(!step(b""));
        assert!(!step(b"a"));
        assert!(step(b"dy to serve"));
        assert!(!step(b"rea"));
    }
}
