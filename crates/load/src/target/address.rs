//! Where a connection goes, and where it comes from.

use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::sync::Arc;

/// Where a connection goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address and port.
    Inet(SocketAddr),
    /// A Unix socket, by the path of its file.
    Unix(Arc<str>),
}

impl Address {
    /// Whether connections to it stay on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Inet(address) => address.ip().is_loopback(),
            Address::Unix(_) => true,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Inet(address)
    }
}

impl std::str::FromStr for Address {
    type Err = AddrParseError;

    /// `ADDRESS:PORT`, or `unix:/PATH`.
    fn from_str(text: &str) -> Result<Address, AddrParseError> {
        match text.strip_prefix("unix:") {
            Some(path) => Ok(Address::Unix(path.into())),
            None => text.parse().map(Address::Inet),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Inet(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// Parses `ADDR` or `ADDR-ADDR`, at most 65,536 addresses.
///
/// # Errors
/// What is wrong with the text, in words.
pub fn parse_sources(text: &str) -> Result<Vec<IpAddr>, String> {
    let bad = || format!("`{text}` is not an address or a range such as `127.0.1.1-127.0.1.50`");
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to): (IpAddr, IpAddr) =
        (from.trim().parse().map_err(|_| bad())?, to.trim().parse().map_err(|_| bad())?);
    let many = |n: u128| n < 65_536;
    match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) if a <= b && many(u128::from(b.to_bits() - a.to_bits())) => {
            Ok((a.to_bits()..=b.to_bits()).map(|n| IpAddr::V4(n.into())).collect())
        }
        (IpAddr::V6(a), IpAddr::V6(b)) if a <= b && many(b.to_bits() - a.to_bits()) => {
            Ok((a.to_bits()..=b.to_bits()).map(|n| IpAddr::V6(n.into())).collect())
        }
        _ => Err(bad()),
    }
}

/// Connections from one source address to one loopback port before the next source is used. A source has 28,232 ports
/// by default, but finding a free one becomes slow long before the last.
const PER_SOURCE: u64 = 8000;

/// Source addresses for this many connections: on IPv4 loopback, where all of 127.0.0.0/8 is available, as many as they
/// need; otherwise none, which leaves the choice to the kernel.
pub fn sources_for(hosts: &[Vec<Address>], connections: u64) -> Vec<IpAddr> {
    let loopback = |a: &Address| matches!(a, Address::Inet(SocketAddr::V4(v4)) if v4.ip().is_loopback());
    if !hosts.iter().flatten().all(loopback) {
        return Vec::new();
    }
    // 127.0.1.1 upward: 127.0.0.1 stays free for everything else.
    let first = std::net::Ipv4Addr::new(127, 0, 1, 1).to_bits();
    (0..sources_on_loopback(connections) as u32).map(|n| IpAddr::V4((first + n).into())).collect()
}

/// Number of sources that [`sources_for`] returns on IPv4 loopback; 0 if the kernel's choice is enough.
pub fn sources_on_loopback(connections: u64) -> u64 {
    let needed = connections.div_ceil(PER_SOURCE).min(65_000);
    if needed < 3 { 0 } else { needed }
}
