//! Waiting until a component is up, while watching that it still lives.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cancel::{Cancel, Woke};
use crate::clock;
use crate::component::Component;
use crate::error::{Error, Result};
use crate::http;
use crate::spec::Ready;
use crate::system::System;

/// Pause between two attempts.
const PAUSE_NS: u64 = 15_000_000;
/// A component without a readiness check must have lived so long.
const ALIVE_NS: u64 = 50_000_000;
/// The first HTTP attempt may take so long; each later one twice as long as the one before.
const FIRST_ATTEMPT_NS: u64 = 1_000_000_000;

impl System {
    /// Waits until a component is ready, and returns after how many seconds since its start it was.
    ///
    /// Errors: it ended meanwhile (told at once), its time was up (both with the last lines of its logs), or
    /// `cancel` was.
    pub fn ready(&self, component: &Component, cancel: &Cancel) -> Result<f64> {
        let started_ns = component.started_ns();
        let mut check = Check::of(component);
        let until_ns = started_ns.saturating_add(check.within_ns());
        let pause_ns = match check {
            Check::Alive => ALIVE_NS,
            _ => PAUSE_NS,
        };
        let mut last = "no attempt was made".to_owned();
        loop {
            if !matches!(check, Check::Alive) {
                match check.attempt(component, until_ns, cancel) {
                    Ok(()) => return is_ready(component),
                    Err(why) => last = why,
                }
            }
            let now_ns = clock::now_ns();
            let pidfd = component.inner.pidfd.as_fd();
            match cancel.wait_for(Some(pidfd), until_ns.min(now_ns + pause_ns)) {
                Woke::Ready => return Err(ended_early(component)),
                Woke::Cancelled => {
                    return Err(Error::Cancelled {
                        doing: format!("waiting for component `{}`", component.name()),
                    });
                }
                Woke::TimedOut if matches!(check, Check::Alive) => return is_ready(component),
                Woke::TimedOut if clock::now_ns() >= until_ns => {
                    return Err(Error::NotReady {
                        component: component.name().to_owned(),
                        within_ns: check.within_ns(),
                        waited_for: check.words(),
                        last,
                        tail: component.tail(),
                    });
                }
                Woke::TimedOut => {}
            }
        }
    }
}

fn is_ready(component: &Component) -> Result<f64> {
    let after_s = (clock::now_ns() - component.started_ns()) as f64 / 1e9;
    component.inner.was_ready.store(true, Ordering::SeqCst);
    // The check may have been answered by the last breath of it, before its end was somebody's to tell.
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

/// A readiness check with what it remembers between attempts.
enum Check {
    Alive,
    Http { url: String, attempt_ns: u64, within_ns: u64 },
    Tcp { addr: String, within_ns: u64 },
    Log { pattern: String, within_ns: u64, logs: Vec<Search> },
}

/// How far a log was searched.
struct Search {
    offset: u64,
    /// The last bytes searched, in case the pattern began in them.
    carry: Vec<u8>,
}

impl Check {
    fn of(component: &Component) -> Check {
        match component.spec().ready.clone() {
            Ready::Alive => Check::Alive,
            Ready::Http { url, within_ns } => Check::Http { url, attempt_ns: FIRST_ATTEMPT_NS, within_ns },
            Ready::Tcp { addr, within_ns } => Check::Tcp { addr, within_ns },
            Ready::Log { pattern, within_ns } => {
                let logs = &component.inner.logs;
                let logs = logs.iter().map(|log| Search { offset: log.from, carry: Vec::new() }).collect();
                Check::Log { pattern, within_ns, logs }
            }
        }
    }

    fn within_ns(&self) -> u64 {
        match self {
            Check::Alive => u64::MAX,
            Check::Http { within_ns, .. } | Check::Tcp { within_ns, .. } | Check::Log { within_ns, .. } => {
                *within_ns
            }
        }
    }

    fn words(&self) -> String {
        match self {
            Check::Alive => "it lives".into(),
            Check::Http { url, .. } => format!("GET {url}"),
            Check::Tcp { addr, .. } => format!("connecting to {addr}"),
            Check::Log { pattern, .. } => format!("`{pattern}` in its output"),
        }
    }

    /// One attempt; the error is why not, in words.
    fn attempt(
        &mut self,
        component: &Component,
        until_ns: u64,
        cancel: &Cancel,
    ) -> std::result::Result<(), String> {
        match self {
            Check::Alive => Ok(()),
            Check::Http { url, attempt_ns, .. } => {
                let attempt_until_ns = until_ns.min(clock::now_ns() + *attempt_ns);
                let mut stop = || cancel.is_cancelled() || component.ended().is_some();
                match http::get(url, attempt_until_ns, &mut stop) {
                    Ok(response) if response.status < 400 => Ok(()),
                    Ok(response) => Err(format!("answered with status {}", response.status)),
                    Err(e @ http::HttpError::Timeout) => {
                        *attempt_ns *= 2;
                        Err(e.to_string())
                    }
                    Err(e) => Err(e.to_string()),
                }
            }
            Check::Tcp { addr, .. } => connect(addr),
            Check::Log { pattern, logs, .. } => {
                let found = component.inner.logs.iter().zip(logs).any(|(log, search)| {
                    search.finds(pattern.as_bytes(), |offset, into| log.read_since(offset, into))
                });
                if found { Ok(()) } else { Err("not found".into()) }
            }
        }
    }
}

fn connect(addr: &str) -> std::result::Result<(), String> {
    let mut found = addr.to_socket_addrs().map_err(|e| format!("`{addr}` is no address and port: {e}"))?;
    let address = found.next().ok_or_else(|| format!("`{addr}` has no address"))?;
    TcpStream::connect_timeout(&address, Duration::from_millis(250)).map(drop).map_err(|e| e.to_string())
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
