//! A container as its engine knows it: its exit status, its health, signals to it, its removal.

use std::net::IpAddr;
use std::sync::Mutex;

use loadlab_record::Secrets;
use loadlab_record::sync::lock;
use serde_json::Value;

use super::logs::Follower;
use super::{CALL_TIMEOUT_NS, Call, Engine, Result};
use crate::spec::Signal;

/// How long an engine may take to report how a container ended; two calls are made, each with this limit.
const ANSWER_TIMEOUT_NS: u64 = 5_000_000_000;

/// A running container, as only its engine knows it.
#[derive(Debug)]
pub(crate) struct ContainerHandle {
    pub engine: Engine,
    pub id: String,
    pub address: Option<IpAddr>,
    pub follower: Mutex<Option<Follower>>,
    /// Secrets that no message about it may quote.
    pub secrets: Secrets,
}

/// The address at which a container can be reached from this machine, as the engine describes it.
pub(crate) fn address_in(found: &Value) -> Option<IpAddr> {
    if found["HostConfig"]["NetworkMode"].as_str() == Some("host") {
        return Some(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let networks = found["NetworkSettings"]["Networks"].as_object()?;
    networks.values().find_map(|n| n["IPAddress"].as_str()?.parse().ok())
}

/// A container's state according to its own health check.
pub(crate) enum Health {
    /// It has no health check.
    Unchecked,
    Well,
    /// Not healthy yet, or no longer; the reason in words.
    Not(String),
}

impl ContainerHandle {
    /// Inspects the container by its id; `None` if it no longer exists or the engine does not answer.
    fn inspect(&self, timeout_ns: u64) -> Option<Value> {
        let call = Call::new("inspect a container", "GET", format!("/containers/{}/json", self.id));
        self.engine.call(call.with_timeout(timeout_ns)).ok().filter(|a| a.status == 200).map(|a| a.body)
    }

    /// Its exit status, and whether the kernel killed it for memory. Call this once its first process has ended. An
    /// engine that does not answer is given up on after ten seconds, so do not call this on a thread that others wait
    /// for.
    pub fn ended(&self) -> (Option<i32>, bool) {
        // The engine notices the end a moment after the kernel has reported it to us.
        let wait = Call::new("wait for a container", "POST", format!("/containers/{}/wait", self.id));
        let waited = self.engine.call(wait.with_timeout(ANSWER_TIMEOUT_NS)).ok();
        let status = waited.and_then(|a| a.body["StatusCode"].as_i64());
        let state = self.inspect(ANSWER_TIMEOUT_NS).map(|found| found["State"].clone()).unwrap_or_default();
        let status = status.or(state["ExitCode"].as_i64()).and_then(|n| i32::try_from(n).ok());
        (status, state["OOMKilled"].as_bool().unwrap_or(false))
    }

    pub fn signal(&self, signal: Signal) -> bool {
        let path = format!("/containers/{}/kill?signal={}", self.id, signal.number());
        self.engine.call(Call::new("signal a container", "POST", path)).is_ok_and(|a| a.status < 400)
    }

    pub fn health(&self) -> Health {
        let Some(found) = self.inspect(CALL_TIMEOUT_NS) else {
            return Health::Not("it no longer exists".into());
        };
        let health = &found["State"]["Health"];
        match health["Status"].as_str() {
            // The engine starts its health checks a moment after the container.
            None | Some("" | "none") if has_check(&found["Config"]["Healthcheck"]) => {
                Health::Not("its health check has not run yet".into())
            }
            None | Some("" | "none") => Health::Unchecked,
            Some("healthy") => Health::Well,
            Some(status) => {
                let last = health["Log"].as_array().and_then(|log| log.last());
                let said = last.and_then(|l| l["Output"].as_str()).unwrap_or_default().trim();
                let said = self.secrets.mask(said);
                let said: String = said.chars().filter(|c| !c.is_control()).take(200).collect();
                let exit = last.and_then(|l| l["ExitCode"].as_i64());
                Health::Not(match exit {
                    Some(exit) => format!("`{status}`; its check ended with status {exit}: {said}"),
                    None => format!("`{status}`; its health check has not run yet"),
                })
            }
        }
    }

    pub fn finish_logs(&self) {
        if let Some(mut follower) = lock(&self.follower).take() {
            follower.finish();
        }
    }

    pub fn remove(&self) -> Result<()> {
        remove(&self.engine, &self.id)
    }
}

pub(crate) fn remove(engine: &Engine, id: &str) -> Result<()> {
    let path = format!("/containers/{id}?force=1&v=1");
    engine.call(Call::new("remove a container", "DELETE", path)).map(drop)
}

/// Whether the image or the plan has a health check.
fn has_check(check: &Value) -> bool {
    let test = check["Test"].as_array().map_or(&[][..], Vec::as_slice);
    test.first().is_some_and(|first| first.as_str() != Some("NONE"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_is_of_the_network_it_is_on() {
        let on = |networks: Value| {
            address_in(
                &json!({ "HostConfig": { "NetworkMode": "x" }, "NetworkSettings": { "Networks": networks } }),
            )
        };
        assert_eq!(on(json!({ "x": { "IPAddress": "172.18.0.2" } })), "172.18.0.2".parse().ok());
        assert_eq!(on(json!({ "none": { "IPAddress": "" } })), None);
        let host = json!({ "HostConfig": { "NetworkMode": "host" } });
        assert_eq!(address_in(&host), "127.0.0.1".parse().ok());
    }
}
