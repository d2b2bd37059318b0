//! Ports of components: given ones, and free ones that are found for them and held until the components take over.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use loadlab_plan::ComponentSpec;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, socket_with};

/// Known ports by template name: `components.NAME.port`, `components.NAME.port.PORT`.
#[derive(Debug, Default)]
pub struct Ports {
    numbers: BTreeMap<String, u16>,
    /// For ports behind a relay: the relay's port, which others connect to.
    outside: BTreeMap<String, u16>,
    /// Sockets that are bound but not listening: no other process gets the port, and early connects are refused.
    held: BTreeMap<String, Vec<OwnedFd>>,
    /// By port: what keeps other runs on this machine from choosing it, also between its release and the component's
    /// bind, and while the component is down.
    claims: BTreeMap<u16, OwnedFd>,
}

impl Ports {
    /// The port that the component itself listens on.
    pub fn get(&self, name: &str) -> Option<u16> {
        self.numbers.get(name).copied()
    }

    /// The port that others connect to.
    pub fn outside(&self, name: &str) -> Option<u16> {
        self.outside.get(name).copied().or_else(|| self.get(name))
    }

    /// The ports of a component that are behind a relay, as (port the relay listens on, port behind it).
    pub fn before(&self, component: &ComponentSpec) -> Vec<(u16, u16)> {
        let names = component.ports.iter().map(|p| name_of(component, &p.variable()));
        names.filter_map(|name| Some((*self.outside.get(&name)?, self.get(&name)?))).collect()
    }

    /// All ports of a component.
    pub fn of(&self, component: &ComponentSpec) -> Vec<u16> {
        component.ports.iter().filter_map(|p| self.get(&name_of(component, &p.variable()))).collect()
    }

    /// Finds the ports of a component that is about to be started. `is_in_use` reports whether a running component was
    /// started with a given port name: such a port keeps its number, or that component would talk to the wrong one.
    ///
    /// # Errors
    /// No port is free.
    pub fn find(
        &mut self,
        component: &ComponentSpec,
        is_in_use: &dyn Fn(&str) -> bool,
    ) -> std::io::Result<()> {
        self.release(component);
        for port in &component.ports {
            let name = name_of(component, &port.variable());
            let number = match (port.number, self.get(&name).filter(|_| is_in_use(&name))) {
                (Some(given), _) => given,
                (None, Some(number)) => number,
                (None, None) => self.hold_a_free_one(component)?,
            };
            // A relay port that others were started with keeps its number.
            if component.is_relayed && !(is_in_use(&name) && self.outside.contains_key(&name)) {
                let number = self.hold_a_free_one(component)?;
                self.outside.insert(name.clone(), number);
            }
            self.numbers.insert(name, number);
        }
        let Ports { numbers, outside, claims, .. } = self;
        claims.retain(|port, _| numbers.values().chain(outside.values()).any(|known| known == port));
        Ok(())
    }

    /// Finds a free port for a component.
    fn hold_a_free_one(&mut self, component: &ComponentSpec) -> std::io::Result<u16> {
        let FreePort { number, socket, claim } = hold_a_free_one()?;
        self.held.entry(component.name.clone()).or_default().push(socket);
        self.claims.extend(claim.map(|claim| (number, claim)));
        Ok(number)
    }

    /// Releases a component's ports, so that it can bind them.
    pub fn release(&mut self, component: &ComponentSpec) {
        self.held.remove(&component.name);
    }
}

fn name_of(component: &ComponentSpec, variable: &str) -> String {
    format!("components.{}.{variable}", component.name)
}

/// Fewest ports above those that the kernel chooses from, so that it is worth trying them.
const MIN_PORTS: usize = 256;

/// A free port, bound.
struct FreePort {
    number: u16,
    socket: OwnedFd,
    /// See [`Ports::claims`].
    claim: Option<OwnedFd>,
}

/// Finds a free port, above the range of ports that the kernel chooses from if there are any: between the release of a
/// port and the bind of its component, an outgoing connection of a load could take one that the kernel chooses.
fn hold_a_free_one() -> std::io::Result<FreePort> {
    let kernels = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let above = ports_above(&kernels).filter(|above| above.len() >= MIN_PORTS);
    let claimed = |number| {
        let claim = claim(number).ok()?;
        Some(FreePort { number, socket: hold(number).ok()?, claim: Some(claim) })
    };
    match above.and_then(|above| in_turn(above).find_map(claimed)) {
        Some(found) => Ok(found),
        None => {
            let socket = hold(0)?;
            let number = SocketAddrV4::try_from(getsockname(&socket)?)?.port();
            Ok(FreePort { number, socket, claim: None })
        }
    }
}

/// Claims a port for this run by a name that only one socket of a network namespace can have.
///
/// # Errors
/// Another run has claimed it.
fn claim(port: u16) -> std::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(format!("loadlab-port-{port}").as_bytes())?)?;
    Ok(socket)
}

/// The ports above a range as in `net.ipv4.ip_local_port_range`.
fn ports_above(range: &str) -> Option<RangeInclusive<u16>> {
    let last: u16 = range.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(last.checked_add(1)?..=u16::MAX)
}

/// These ports, from one on that differs from process to process and from call to call: the port of a component that
/// has ended is not soon another's.
fn in_turn(ports: RangeInclusive<u16>) -> impl Iterator<Item = u16> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(131).wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed));
    let count = ports.len() as u32;
    (0..count).map(move |n| ports.start() + (first.wrapping_add(n) % count) as u16)
}

/// A socket bound to this port, or with 0 to one of the kernel's choice.
fn hold(port: u16) -> std::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{TcpListener, TcpStream};

    use loadlab_plan::{Options, Plan};

    use super::*;

    fn component() -> ComponentSpec {
        let text = "loadlab: 1\nname: t\nsystem: { components: { web: { run: w, port: auto, ports: { admin: auto } } } }\n\
                    load: { users: 1, requests: 1, journey: [{ get: 'http://127.0.0.1/' }] }\n";
        let plan = Plan::parse("t.yaml", text, &Options::default()).unwrap();
        plan.cases()[0].system.components[0].clone()
    }

    #[test]
    fn a_held_port_cannot_be_used_until_it_is_released() {
        let (mut ports, web) = (Ports::default(), component());
        ports.find(&web, &|_| false).unwrap();
        let found = ports.of(&web);
        assert_eq!(found.len(), 2);
        assert_eq!(ports.get("components.web.port.admin"), Some(found[1]));
        for port in &found {
            assert!(TcpListener::bind(("127.0.0.1", *port)).is_err(), "{port} is held");
            assert!(TcpStream::connect(("127.0.0.1", *port)).is_err(), "{port} accepts nobody");
        }
        ports.release(&web);
        // Another test that is starting a process right now holds copies of the sockets until its exec.
        let since = std::time::Instant::now();
        for port in &found {
            while let Err(error) = TcpListener::bind(("127.0.0.1", *port)) {
                assert!(since.elapsed().as_secs() < 60, "{port} is never free: {error}");
                std::thread::yield_now();
            }
        }
    }

    /// Between its release and its component's bind a port is nobody's: another run that looks for one must not find it.
    #[test]
    fn a_port_belongs_to_its_run_until_that_chooses_another() {
        let (mut ports, web) = (Ports::default(), component());
        ports.find(&web, &|_| false).unwrap();
        let found = ports.of(&web);
        let is_claimed = |port: &u16| claim(*port).is_err();
        if !found.iter().all(is_claimed) {
            // The kernel chose them: there are no ports above its range.
            assert!(ports.claims.is_empty());
            return;
        }
        ports.release(&web);
        assert!(found.iter().all(is_claimed));
        ports.find(&web, &|name| name == "components.web.port").unwrap();
        assert_eq!(ports.claims.keys().collect::<BTreeSet<_>>(), ports.of(&web).iter().collect());
        assert!(is_claimed(&found[0]) && ports.claims.len() == 2);
    }

    #[test]
    fn ports_that_the_kernel_does_not_choose_are_above_its_range() {
        assert_eq!(ports_above("32768\t60999\n"), Some(61_000..=65_535));
        for nothing in ["1024 65535", "", "32768", "a b", "1 70000"] {
            assert_eq!(ports_above(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn ports_are_tried_in_turn_each_once() {
        let mut tried: Vec<u16> = in_turn(100..=199).collect();
        tried.sort();
        assert_eq!(tried, (100..=199).collect::<Vec<u16>>());
    }

    #[test]
    fn a_found_port_is_not_one_that_the_kernel_could_give_away() {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let port = hold_a_free_one().unwrap().number;
        if let Some(above) = ports_above(&range).filter(|above| above.len() >= MIN_PORTS) {
            assert!(above.contains(&port), "{port} of {range}");
        } else {
            assert_ne!(port, 0);
        }
    }

    #[test]
    fn a_port_that_a_living_component_knows_is_kept() {
        let (mut ports, web) = (Ports::default(), component());
        ports.find(&web, &|_| false).unwrap();
        let before = ports.get("components.web.port");
        ports.find(&web, &|name| name == "components.web.port").unwrap();
        assert_eq!(ports.get("components.web.port"), before);
    }
}
