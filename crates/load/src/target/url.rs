//! A target's URL, and the addresses that it resolves to.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use loadlab_record::text::url::{self, SocketUrl, UrlError};

use crate::target::address::Address;
use crate::target::allow::Allowed;
use crate::target::error::TargetError;

/// Longest path of a Unix socket: the kernel's `sun_path` has 108 bytes, and one terminates it (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// A URL, reduced to the parts used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port; the scheme's if none was given.
    pub port: u16,
    /// Path and query, at least `/`.
    pub path: String,
    /// Value of the `Host` header.
    pub authority: String,
    /// Whether the scheme is https.
    pub is_secure: bool,
    /// The Unix socket to connect to instead of a host; `host` is then `localhost`.
    pub socket: Option<Arc<str>>,
}

impl Url {
    /// `http://HOST[:PORT][/PATH][?QUERY]`, or https; a fragment is cut off, and `HOST:PORT/PATH` alone is taken as
    /// http. `unix:/PATH:/URI` stands for the Unix socket with that path.
    pub fn parse(text: &str) -> Result<Url, TargetError> {
        if let Some(rest) = url::unix_socket(text) {
            return Url::of_socket(text, rest);
        }
        let bad = |UrlError { why, hint }| TargetError::Url { url: url::masked(text), why, hint };
        let url = url::Url::parse(text).map_err(bad)?;
        let is_secure = url.is("https");
        if url.scheme.is_some() && !is_secure && !url.is("http") {
            let why = "only http and https are supported".to_owned();
            return Err(bad(UrlError {
                why, hint: "write it as `http://HOST[:PORT]/PATH` or `https://…`"
            }));
        }
        let (host, authority) = (url.authority.host.to_owned(), url.authority.text.to_owned());
        let port = url.authority.port.unwrap_or(if is_secure { 443 } else { 80 });
        Ok(Url { host, port, path: url.path(), authority, is_secure, socket: None })
    }

    /// Parses `/PATH:/URI`, the part of a URL after `unix:`.
    fn of_socket(text: &str, rest: &str) -> Result<Url, TargetError> {
        let bad = |why| TargetError::Socket { url: text.to_owned(), why };
        let SocketUrl { socket, target } = SocketUrl::split(rest).map_err(bad)?;
        let path = target.split('#').next().unwrap_or_default();
        if socket.len() > MAX_SOCKET_PATH {
            return Err(bad("the socket's path is longer than the 107 bytes that the kernel allows"));
        }
        if text.bytes().any(|b| b < b' ' || b == 0x7f) || path.bytes().any(|b| b == b' ') {
            return Err(bad("it contains spaces or control characters"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let localhost = || "localhost".to_owned();
        let socket = Some(socket.into());
        Ok(Url { host: localhost(), port: 80, path, authority: localhost(), is_secure: false, socket })
    }

    /// Resolves it to all its addresses, each of which must be allowed.
    ///
    /// # Errors
    /// The name does not resolve, or an address is neither loopback nor allowed.
    pub fn resolve(&self, allowed: &Allowed) -> Result<Vec<Address>, TargetError> {
        if let Some(socket) = &self.socket {
            return Ok(vec![Address::Unix(socket.clone())]);
        }
        let mut unique = self.addresses(allowed)?;
        // Addresses that the user gave are all used.
        let is_given = allowed.given(&self.host, self.port).next().is_some();
        if !is_given && loopback_of_both_families(&unique) {
            // `localhost` is ::1 and 127.0.0.1, and most servers listen on one of them. A server never sees a refused
            // connection, so probing costs the one that is there nothing.
            let refused = |a: &SocketAddr| {
                let tried = std::net::TcpStream::connect_timeout(a, std::time::Duration::from_millis(200));
                tried.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
            };
            if unique.iter().filter(|a| a.is_ipv6()).all(refused) {
                unique.retain(SocketAddr::is_ipv4);
            } else {
                unique.retain(SocketAddr::is_ipv6);
            }
        }
        Ok(unique.into_iter().map(Address::Inet).collect())
    }

    /// Checks whether it may be requested through a proxy. The proxy gets the name and looks it up itself, so what the
    /// name resolves to here (DNS, the hosts file, `--resolve`) permits nothing: a name must be allowed as such. An
    /// address or `localhost`, which mean the same everywhere, are subject to the usual rule.
    ///
    /// # Errors
    /// The host is not allowed, addresses were given for names, or it is a Unix socket.
    pub fn by_proxy(&self, allowed: &Allowed) -> Result<(), TargetError> {
        if let Some(socket) = &self.socket {
            return Err(TargetError::SocketByProxy { socket: socket.to_string() });
        }
        allowed.by_proxy()?;
        // Only a full address counts: `127.1` and `2130706433` are addresses to some resolvers and names to others.
        match self.host.parse::<IpAddr>() {
            Ok(address) => allowed.check(&self.host, address),
            Err(_) if self.host.eq_ignore_ascii_case("localhost") || allowed.has_name(&self.host) => Ok(()),
            Err(_) => Err(TargetError::NotAllowedByProxy { host: self.host.clone() }),
        }
    }

    /// All addresses of its host, each allowed.
    fn addresses(&self, allowed: &Allowed) -> Result<Vec<SocketAddr>, TargetError> {
        let dns = |why: String| TargetError::Dns { host: self.host.clone(), port: self.port, why };
        let given: Vec<SocketAddr> = allowed.given(&self.host, self.port).collect();
        let addresses: Vec<SocketAddr> = match given.is_empty() {
            true => {
                let found = (self.host.as_str(), self.port).to_socket_addrs();
                let found: Vec<SocketAddr> = found.map_err(|e| dns(e.to_string()))?.collect();
                allowed.names.found(&self.host, self.port, found.iter().map(SocketAddr::ip));
                found
            }
            false => given,
        };
        let mut unique: Vec<SocketAddr> = Vec::new();
        for address in addresses {
            allowed.check(&self.host, address.ip())?;
            if !unique.contains(&address) {
                unique.push(address);
            }
        }
        if unique.is_empty() {
            return Err(dns("it has no address".to_owned()));
        }
        if let Some(from) = allowed.source {
            unique.retain(|address| address.is_ipv4() == from.is_ipv4());
            if unique.is_empty() {
                return Err(TargetError::OtherFamily { host: self.host.clone(), from });
            }
        }
        Ok(unique)
    }
}

/// Whether all addresses are loopback and both families occur.
fn loopback_of_both_families(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|a| a.ip().is_loopback())
        && addresses.iter().any(SocketAddr::is_ipv4)
        && addresses.iter().any(SocketAddr::is_ipv6)
}
