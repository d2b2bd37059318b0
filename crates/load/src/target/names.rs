//! Host names and the addresses they resolved to when a load was prepared: whether they resolve to others afterwards.
//!
//! Names are looked up once, before the load, and every connection goes to what was found. A name that moves meanwhile
//! (a fail-over, a deployment) would go unnoticed. It is looked up again once nothing is sent any more, on a dedicated
//! thread, since a resolver may take long to answer; load threads never look anything up.

use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use loadlab_record::sync::lock;

/// How long to wait for all names together.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A name that resolves to other addresses than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The host name.
    pub host: String,
    /// Addresses when the load was prepared.
    pub before: Vec<IpAddr>,
    /// Addresses afterwards.
    pub after: Vec<IpAddr>,
}

/// A name and the addresses found for it.
#[derive(Clone, Debug)]
struct LookedUp {
    host: String,
    port: u16,
    addresses: BTreeSet<IpAddr>,
}

/// Names that were looked up, each with its latest result. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<Vec<LookedUp>>>);

impl Names {
    /// Records a lookup. Addresses are skipped, and so is `localhost`, which nobody can move.
    pub fn found(&self, host: &str, port: u16, addresses: impl Iterator<Item = IpAddr>) {
        if host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost") {
            return;
        }
        let mut names = lock(&self.0);
        names.retain(|n| !(n.host.eq_ignore_ascii_case(host) && n.port == port));
        names.push(LookedUp { host: host.to_owned(), port, addresses: addresses.collect() });
    }

    /// Names that resolve to something else now. A name that cannot be looked up, or not within five seconds, is not
    /// known to have moved.
    pub fn moved(&self) -> Vec<Moved> {
        self.moved_by(&|host, port| Some((host, port).to_socket_addrs().ok()?.map(|a| a.ip()).collect()))
    }

    fn moved_by(
        &self,
        look_up: &'static (impl Fn(&str, u16) -> Option<BTreeSet<IpAddr>> + Sync),
    ) -> Vec<Moved> {
        let names = lock(&self.0).clone();
        let (sender, results) = channel();
        let asked = names.clone();
        if names.is_empty()
            || !starts(move || {
                asked.iter().for_each(|name| {
                    let _ = sender.send(look_up(&name.host, name.port));
                })
            })
        {
            return Vec::new();
        }
        let until = Instant::now() + RESOLVE_TIMEOUT;
        let mut moved: Vec<Moved> = Vec::new();
        for LookedUp { host, addresses: before, .. } in names {
            let Ok(after) = results.recv_timeout(until.saturating_duration_since(Instant::now())) else {
                break;
            };
            // A different order is no change: a name's addresses may be served in rotation.
            let Some(after) = after.filter(|after| !after.is_empty() && *after != before) else { continue };
            let list = |addresses: BTreeSet<IpAddr>| addresses.into_iter().collect();
            let one = Moved { host, before: list(before), after: list(after) };
            if !moved.contains(&one) {
                moved.push(one);
            }
        }
        moved
    }
}

/// Starts `work` on a thread that nobody waits for; returns whether it started.
fn starts(work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name("names".into()).spawn(work).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(addresses: &[&str]) -> BTreeSet<IpAddr> {
        addresses.iter().map(|a| a.parse().unwrap()).collect()
    }

    #[test]
    fn a_name_has_moved_if_its_set_of_addresses_changed() {
        let names = Names::default();
        let found = |host: &str, addresses: &[&str]| names.found(host, 80, set(addresses).into_iter());
        found("moved.test", &["192.0.2.1", "192.0.2.2"]);
        found("more.test", &["192.0.2.1"]);
        found("turned.test", &["192.0.2.9", "192.0.2.1"]);
        found("gone.test", &["192.0.2.1"]);
        found("empty.test", &["192.0.2.1"]);
        found("again.test", &["192.0.2.5"]);
        found("AGAIN.test", &["192.0.2.1"]);
        found("127.0.0.1", &["127.0.0.1"]);
        found("LocalHost", &["127.0.0.1"]);
        let moved = names.moved_by(&|host, _| match host {
            "moved.test" => Some(set(&["192.0.2.3"])),
            "more.test" => Some(set(&["192.0.2.7", "192.0.2.1"])),
            "turned.test" => Some(set(&["192.0.2.1", "192.0.2.9"])),
            "gone.test" => None,
            "empty.test" => Some(set(&[])),
            "AGAIN.test" => Some(set(&["192.0.2.1"])),
            other => panic!("{other} needs no looking up"),
        });
        let hosts: Vec<&str> = moved.iter().map(|m| m.host.as_str()).collect();
        assert_eq!(hosts, ["moved.test", "more.test"]);
        assert_eq!(moved[0].before.len(), 2);
        assert_eq!(moved[0].after, ["192.0.2.3".parse::<IpAddr>().unwrap()]);
        assert!(Names::default().moved().is_empty());
    }
}
