//! Network namespaces of a run: one for the load, and one per component, linked to a bridge.
//!
//! In its own namespace no firewall tracks connections, all ports are free, and a component's traffic goes over its own
//! link: its byte counts are exact, and the link can be cut or slowed.
//!
//! The namespaces have no names. A thread that calls [`Net::enter`] moves into a new one with all threads it starts
//! from then on; other namespaces are held open by descriptors here and by the processes in them. When these are gone,
//! for any reason, the kernel removes namespaces, links and the bridge by itself: the ledger has nothing to record, and
//! a killed run leaves nothing behind.
//!
//! Links are made by `ip` and `tc` of iproute2, a process or two for each component as it comes up: that takes a few
//! milliseconds before a load, and hand-written netlink would only duplicate what is readable here.

pub(crate) mod tap;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use loadlab_record::sync::lock;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::{Error, Result};

/// The bridge, and the first two octets of all addresses on it: a range reserved for network tests.
const BRIDGE: &str = "loadlab0";
const RANGE: (u8, u8) = (198, 18);
/// Bytes that a rate-limited link passes in one burst before its sender has to wait.
const BURST_BYTES: u64 = 16 << 10;
const WAIT: &str = "50ms";
/// How many packets may queue for a busy relay.
const TAP_QUEUE: u32 = 5000;

/// How a run's components share a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Load and components share one namespace.
    Shared,
    /// Each component has its own namespace and address.
    Each,
}

/// The network a component is placed in.
#[derive(Debug, Default)]
pub(crate) struct NetworkPlacement {
    /// Its namespace; `None`: loadlab's.
    pub network: Option<OwnedFd>,
    /// Both halves of its link, if a relay goes between them: the component's, and the bridge's.
    pub taps: Vec<OwnedFd>,
}

/// The namespaces of a run. If the thread that entered drops this, it returns to its original namespace.
#[derive(Debug)]
pub struct Net {
    isolation: Isolation,
    home: OwnedFd,
    own: OwnedFd,
    /// Id of the thread that entered: links find its namespace by it.
    entered: i32,
    members: Mutex<BTreeMap<String, Member>>,
}

#[derive(Debug)]
struct Member {
    number: u16,
    /// The component's namespace while it is up.
    namespace: Option<OwnedFd>,
}

impl Member {
    fn address(&self) -> Ipv4Addr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(RANGE.0, RANGE.1, high, low)
    }

    /// Its hardware address, the same each time it comes up: neighbours cache it for half a minute, and would otherwise
    /// send to one that is gone.
    fn hardware(&self) -> String {
        let [high, low] = self.number.to_be_bytes();
        format!("02:00:{:02x}:{:02x}:{high:02x}:{low:02x}", RANGE.0, RANGE.1)
    }

    /// Name of its link's end at the bridge.
    fn port(&self) -> String {
        format!("ll{}", self.number)
    }
}

impl Net {
    /// Checks whether this process may create network namespaces.
    ///
    /// # Errors
    /// Not permitted.
    pub fn check() -> Result<()> {
        make().map(drop)
    }

    /// Moves this thread, and all threads it starts from now on, into the run's own namespace.
    ///
    /// # Errors
    /// Not permitted, or `ip` is missing.
    pub fn enter(isolation: Isolation) -> Result<Net> {
        let home = here()?;
        enter_new()?;
        let own = here()?;
        let entered = rustix::thread::gettid().as_raw_nonzero().get();
        // From here on, dropping `net` returns the thread to its original namespace.
        let net = Net { isolation, home, own, entered, members: Mutex::default() };
        let mut lines = vec!["link set lo up".to_owned()];
        if isolation == Isolation::Each {
            lines.push(format!("link add {BRIDGE} type bridge"));
            lines.push(format!("addr add {}.{}.0.1/16 dev {BRIDGE}", RANGE.0, RANGE.1));
            lines.push(format!("link set {BRIDGE} up"));
        }
        ip(&net.own, &lines, "make the run's network")?;
        Ok(net)
    }

    /// The address a component has or will have, if it gets its own.
    pub fn address(&self, component: &str) -> Option<IpAddr> {
        if self.isolation == Isolation::Shared {
            return None;
        }
        let mut members = lock(&self.members);
        // Number 1 is the bridge's.
        let next = members.len() as u16 + 2;
        let new = || Member { number: next, namespace: None };
        let member = members.entry(component.to_owned()).or_insert_with(new);
        Some(member.address().into())
    }

    /// The load's namespace.
    pub(crate) fn common(&self) -> Result<OwnedFd> {
        self.own.try_clone().map_err(os("keep a namespace"))
    }

    /// Makes a component's namespace and link, anew each time it comes up; returns the load's namespace if all
    /// components share it.
    pub(crate) fn join(&self, component: &str, is_relayed: bool) -> Result<NetworkPlacement> {
        let common = || Ok(NetworkPlacement { network: Some(self.common()?), ..NetworkPlacement::default() });
        let Some(address) = self.address(component) else { return common() };
        let namespace = make()?;
        let mut members = lock(&self.members);
        let Some(member) = members.get_mut(component) else { return common() };
        let port = member.port();
        let doing = format!("make the link of component `{component}`");
        // The namespace of an earlier life may hold its link until its last process is gone.
        member.namespace = None;
        let _ = ip(&self.own, &[format!("link del {port}")], &doing);
        let mut taps = Vec::new();
        let hardware = member.hardware();
        let link = if is_relayed {
            taps = vec![tap_in(&namespace, "eth0", &doing)?, tap_in(&self.own, &port, &doing)?];
            format!("link set eth0 address {hardware} txqueuelen {TAP_QUEUE}")
        } else {
            format!("link add eth0 address {hardware} type veth peer name {port} netns {}", self.entered)
        };
        let theirs = [
            "link set lo up".to_owned(),
            link,
            format!("addr add {address}/16 dev eth0"),
            "link set eth0 up".to_owned(),
        ];
        ip(&namespace, &theirs, &doing)?;
        let ours = [format!("link set {port} master {BRIDGE}"), format!("link set {port} up")];
        ip(&self.own, &ours, &doing)?;
        let given = namespace.try_clone().map_err(os("keep a namespace"))?;
        member.namespace = Some(namespace);
        Ok(NetworkPlacement { network: Some(given), taps })
    }

    /// Applies a change at the bridge's end of a component's link.
    pub(crate) fn at_port(
        &self,
        component: &str,
        doing: &'static str,
        line: &dyn Fn(&str) -> String,
    ) -> Result<()> {
        let members = lock(&self.members);
        let member = members.get(component).filter(|m| m.namespace.is_some());
        let member = member.ok_or_else(|| no_link(component, doing))?;
        ip(&self.own, &[line(&member.port())], &format!("{doing} component `{component}`"))
    }

    pub(crate) fn set_bandwidth(&self, component: &str, bytes_per_s: Option<u64>) -> Result<()> {
        let doing = "limit the bandwidth of";
        let members = lock(&self.members);
        let member = members.get(component).filter(|m| m.namespace.is_some());
        let member = member.ok_or_else(|| no_link(component, doing))?;
        let Some(namespace) = &member.namespace else { return Ok(()) };
        // Each end limits what it sends, so limit both.
        for (at, device) in [(&self.own, member.port()), (namespace, "eth0".to_owned())] {
            let words = match bytes_per_s {
                Some(rate) => format!(
                    "qdisc replace dev {device} root tbf rate {}bit burst {} latency {WAIT}",
                    rate.saturating_mul(8).max(1),
                    BURST_BYTES.max(rate / 100)
                ),
                None => format!("qdisc del dev {device} root"),
            };
            let done = run("tc", at, &[words], &format!("{doing} component `{component}`"));
            // Without a previous limit there is nothing to remove, so removal may fail.
            if bytes_per_s.is_some() {
                done?;
            }
        }
        Ok(())
    }

    /// Reads back the limit on a component's link, in bytes per second, at the bridge's end.
    pub(crate) fn bandwidth(&self, component: &str) -> Result<Option<u64>> {
        let members = lock(&self.members);
        let member = members.get(component).filter(|m| m.namespace.is_some());
        let member = member.ok_or_else(|| no_link(component, "read the bandwidth of"))?;
        let line = format!("-j qdisc show dev {}", member.port());
        let doing = format!("inspect the link of component `{component}`");
        let shown = output("tc", &self.own, &line, &doing)?;
        rate_in(&shown).map_err(|why| Error::Network {
            doing,
            why: format!("`tc {line}`: {why}"),
            hint: "iproute2 must print rules as JSON (`tc -j`); versions since 2018 do",
        })
    }
}

/// Rate of a limited link, in bytes per second, from the output of `tc -j qdisc show`; `None` if it is not limited.
fn rate_in(shown: &[u8]) -> std::result::Result<Option<u64>, String> {
    let rules: Vec<serde_json::Value> = serde_json::from_slice(shown)
        .map_err(|e| format!("cannot parse its output: {e}: {}", String::from_utf8_lossy(shown).trim()))?;
    let Some(rule) = rules.iter().find(|rule| rule["kind"] == "tbf") else { return Ok(None) };
    let rate = rule["options"]["rate"].as_u64();
    rate.map(Some).ok_or_else(|| format!("it has no rate: {rule}"))
}

impl Drop for Net {
    fn drop(&mut self) {
        // Only the thread that entered has something to return to; if this fails it stays in its own namespace.
        if rustix::thread::gettid().as_raw_nonzero().get() == self.entered {
            let _ = move_into(&self.home);
        }
    }
}

pub(crate) fn no_link(component: &str, doing: &'static str) -> Error {
    Error::NoLink { component: component.to_owned(), doing }
}

fn os(doing: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Os { doing, source }
}

/// This thread's network namespace.
fn here() -> Result<OwnedFd> {
    File::open("/proc/thread-self/ns/net").map(OwnedFd::from).map_err(os("open this network namespace"))
}

#[expect(unsafe_code, reason = "unshare: a network namespace of the run itself")]
fn enter_new() -> Result<()> {
    // SAFETY: only CLONE_NEWNET: memory, files and descriptors stay as they are, and no other thread is affected.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|e| Error::Isolate { source: e.into() })
}

fn move_into(namespace: &OwnedFd) -> std::io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).map_err(Into::into)
}

/// Runs something on a separate thread, so that this one stays in its namespace.
fn aside<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("loadlab-net".into()).spawn_scoped(scope, work);
        let gone = || os("work in a network namespace")(std::io::Error::other("its thread panicked"));
        thread.map_err(os("start a thread"))?.join().map_err(|_| gone())?
    })
}

/// A new namespace without any process in it.
fn make() -> Result<OwnedFd> {
    aside(|| enter_new().and_then(|()| here()))
}

fn ip(namespace: &OwnedFd, lines: &[String], doing: &str) -> Result<()> {
    run("ip", namespace, lines, doing)
}

/// Runs lines of `ip` or `tc` in a namespace.
fn run(program: &'static str, namespace: &OwnedFd, lines: &[String], doing: &str) -> Result<()> {
    lines.iter().try_for_each(|line| output(program, namespace, line, doing).map(drop))
}

/// The output of a line of `ip` or `tc` in a namespace.
fn output(program: &'static str, namespace: &OwnedFd, line: &str, doing: &str) -> Result<Vec<u8>> {
    let failed = |why: String, hint| Error::Network { doing: doing.to_owned(), why, hint };
    aside(|| {
        move_into(namespace).map_err(os("enter a network namespace"))?;
        let mut command = Command::new(program);
        command.args(line.split(' ')).stdin(Stdio::null()).current_dir("/");
        let output = command.output().map_err(|e| {
            failed(format!("{program}: {e}"), "install iproute2 (`apt-get install iproute2`)")
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let hint = "the kernel must have veth, bridge and tbf (`modprobe veth bridge sch_tbf`)";
            return Err(failed(format!("`{program} {line}`: {said}"), hint));
        }
        Ok(output.stdout)
    })
}

/// A TAP device in a namespace, for a relay.
fn tap_in(namespace: &OwnedFd, name: &str, doing: &str) -> Result<OwnedFd> {
    aside(|| {
        move_into(namespace).map_err(os("enter a network namespace"))?;
        tap::open(name).map_err(|error| Error::Network {
            doing: doing.to_owned(),
            why: format!("/dev/net/tun: {error}"),
            hint: "a delay or loss needs the kernel's tun (`modprobe tun`) and its device",
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_before_and_stay() {
        let file = || OwnedFd::from(File::open("/dev/null").unwrap());
        let members = Mutex::default();
        let net = Net { isolation: Isolation::Each, home: file(), own: file(), entered: 0, members };
        let of = |name: &str| net.address(name).unwrap().to_string();
        assert_eq!(
            (of("a").as_str(), of("b").as_str(), of("a").as_str()),
            ("198.18.0.2", "198.18.0.3", "198.18.0.2")
        );
    }

    #[test]
    fn a_limit_that_cannot_be_read_is_an_error() {
        for (shown, expect) in [
            (
                r#"[{"kind":"tbf","handle":"8001:","root":true,"options":{"rate":1048576,"burst":16384}}]"#,
                Ok(Some(1 << 20)),
            ),
            (r#"[{"kind":"noqueue","handle":"0:","root":true,"refcnt":2,"options":{}}]"#, Ok(None)),
            ("[]", Ok(None)),
            ("qdisc tbf 8001: root refcnt 2 rate 8Mbit", Err("cannot parse its output")),
            ("", Err("cannot parse its output")),
            (r#"[{"kind":"tbf","options":{"rate":"8Mbit"}}]"#, Err("it has no rate")),
        ] {
            match (rate_in(shown.as_bytes()), expect) {
                (Ok(got), Ok(expect)) => assert_eq!(got, expect, "{shown}"),
                (Err(why), Err(begins)) => assert!(why.starts_with(begins), "{shown}: {why}"),
                (got, _) => panic!("{shown}: {got:?}"),
            }
        }
    }

    #[test]
    fn one_without_a_link_is_reported() {
        insta::assert_snapshot!(no_link("db", "disconnect"), @r"
        cannot disconnect component `db`: it is not up, or has no network link
        hint: `isolate: true` in the plan gives each process component one
        ");
    }
}
