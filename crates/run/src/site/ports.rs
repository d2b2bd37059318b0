//! Ports of components: given ones, and free ones that are found for them and held until the components take over.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use loadlab_plan::ComponentSpec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

/// Known ports by template name: `components.NAME.port`, `components.NAME.port.PORT`.
#[derive(Debug, Default)]
pub struct Ports {
    numbers: BTreeMap<String, u16>,
    /// For ports behind a relay: the relay's port, which others connect to.
    outside: BTreeMap<String, u16>,
    /// Sockets that are bound but not listening: no other process gets the port, and early connects are refused.
    held: BTreeMap<String, Vec<OwnedFd>>,
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
                (None, None) => {
                    let (number, socket) = hold_a_free_one()?;
                    self.held.entry(component.name.clone()).or_default().push(socket);
                    number
                }
            };
            // A relay port that others were started with keeps its number.
            if component.is_relayed && !(is_in_use(&name) && self.outside.contains_key(&name)) {
                let (number, socket) = hold_a_free_one()?;
                self.held.entry(component.name.clone()).or_default().push(socket);
                self.outside.insert(name.clone(), number);
            }
            self.numbers.insert(name, number);
        }
        Ok(())
    }

    /// Releases a component's ports, so that it can bind them.
    pub fn release(&mut self, component: &ComponentSpec) {
        self.held.remove(&component.name);
    }
}

fn name_of(component: &ComponentSpec, variable: &str) -> String {
    format!("components.{}.{variable}", component.name)
}

fn hold_a_free_one() -> std::io::Result<(u16, OwnedFd)> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let address = SocketAddrV4::try_from(getsockname(&socket)?)?;
    Ok((address.port(), socket))
}

#[cfg(test)]
mod tests {
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
    fn a_held_port_is_nobodys_until_it_is_released() {
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

    #[test]
    fn a_port_that_somebody_was_told_stays() {
        let (mut ports, web) = (Ports::default(), component());
        ports.find(&web, &|_| false).unwrap();
        let before = ports.get("components.web.port");
        ports.find(&web, &|name| name == "components.web.port").unwrap();
        assert_eq!(ports.get("components.web.port"), before);
    }
}
