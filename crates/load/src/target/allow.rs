//! The rule that only loopback is a target, unless the user named another host.

use std::net::{IpAddr, SocketAddr};

use crate::target::error::TargetError;
use crate::target::names::Names;

/// Stands for an address of a host, whatever names say: `HOST:PORT:ADDRESS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Host name.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Its address.
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

/// Hosts that may be loaded beside loopback.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Addresses that hosts have, whatever names say. They are held to the same rule.
    pub resolved: Vec<Resolved>,
    /// Host names or addresses, as the user named them.
    pub hosts: Vec<String>,
    /// Addresses of this run's own making.
    pub addresses: Vec<IpAddr>,
    /// Names that were looked up under this rule.
    pub names: Names,
    /// Where connections come from, if that is given: only addresses of its family can be reached from there.
    pub source: Option<IpAddr>,
}

impl Allowed {
    /// The addresses a host was given.
    pub(super) fn given(&self, host: &str, port: u16) -> impl Iterator<Item = SocketAddr> {
        let named = move |r: &&Resolved| r.port == port && r.host.eq_ignore_ascii_case(host);
        self.resolved.iter().filter(named).map(|r| SocketAddr::new(r.address, r.port))
    }

    /// Whether a load with these may go through a proxy at all.
    ///
    /// # Errors
    /// Addresses were given for names, which only the proxy looks up.
    pub fn by_proxy(&self) -> Result<(), TargetError> {
        if self.resolved.is_empty() { Ok(()) } else { Err(TargetError::ResolvedByProxy) }
    }

    /// The user named this host.
    pub(super) fn has_name(&self, host: &str) -> bool {
        let bare = |h: &str| h.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        self.hosts.iter().any(|h| bare(h) == bare(host))
    }

    /// May this address, reached by this name, be loaded?
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
