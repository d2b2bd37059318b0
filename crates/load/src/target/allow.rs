//! The rule that only loopback is a target, unless the user named another host.

use std::net::{IpAddr, SocketAddr};

use crate::target::error::TargetError;
use crate::target::names::Names;

/// A fixed address for a host, overriding name resolution: `HOST:PORT:ADDRESS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Host name.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The host's address.
    pub address: IpAddr,
}

impl std::fmt::Display for Resolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(f, "{}:{}:{address}", self.host, self.port),
            IpAddr::V6(address) => write!(f, "{}:{}:[{address}]", self.host, self.port),
        }
    }
}

impl std::str::FromStr for Resolved {
    type Err = String;

    /// `HOST:PORT:ADDRESS`, an IPv6 address with or without brackets.
    fn from_str(text: &str) -> Result<Resolved, String> {
        let bad =
            || format!("`{text}` is not of the form HOST:PORT:ADDRESS, such as `shop.test:443:127.0.0.1`");
        let (host, rest) = text.split_once(':').ok_or_else(bad)?;
        let (port, address) = rest.split_once(':').ok_or_else(bad)?;
        let address = address.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse::<u16>().ok().filter(|p| *p > 0).ok_or_else(bad)?;
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Resolved { host: host.to_owned(), port, address: address.parse().map_err(|_| bad())? })
    }
}

/// Hosts that may be loaded besides loopback.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Fixed addresses of hosts, overriding name resolution. The same rule applies to them.
    pub resolved: Vec<Resolved>,
    /// Host names or addresses, as the user named them.
    pub hosts: Vec<String>,
    /// Addresses of components that this run itself started.
    pub addresses: Vec<IpAddr>,
    /// Names looked up under this rule.
    pub names: Names,
    /// Source address of connections, if given: only addresses of its family can be reached from it.
    pub source: Option<IpAddr>,
}

impl Allowed {
    /// The fixed addresses of a host.
    pub(super) fn given(&self, host: &str, port: u16) -> impl Iterator<Item = SocketAddr> {
        let named = move |r: &&Resolved| r.port == port && r.host.eq_ignore_ascii_case(host);
        self.resolved.iter().filter(named).map(|r| SocketAddr::new(r.address, r.port))
    }

    /// Checks whether a load with these rules may go through a proxy at all.
    ///
    /// # Errors
    /// Fixed addresses were given for names, which only the proxy looks up.
    pub fn by_proxy(&self) -> Result<(), TargetError> {
        if self.resolved.is_empty() { Ok(()) } else { Err(TargetError::ResolvedByProxy) }
    }

    /// Whether the user named this host.
    pub(super) fn has_name(&self, host: &str) -> bool {
        let bare = |h: &str| h.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        self.hosts.iter().any(|h| bare(h) == bare(host))
    }

    /// Checks whether this address, reached by this name, may be loaded.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), TargetError> {
        let plain = match address {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
            v4 => v4,
        };
        let named = |h: &String| {
            let h = h.trim_start_matches('[').trim_end_matches(']');
            h.eq_ignore_ascii_case(host) || h.parse::<IpAddr>().is_ok_and(|ip| ip == plain)
        };
        if plain.is_loopback() || self.addresses.contains(&plain) || self.hosts.iter().any(named) {
            return Ok(());
        }
        Err(TargetError::NotAllowed { host: host.to_owned(), address })
    }
}
