//! Where a load goes, and whether it may: URLs, addresses, and the rule that only loopback is a target
//! unless somebody said otherwise.

pub mod names;
pub mod rotation;

use std::net::{AddrParseError, IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use base64::Engine;
use loadlab_record::url::{self, UrlError};

use crate::target::names::Names;

/// Longest path of a Unix socket: the kernel's `sun_path` has 108 bytes, and one ends it (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// Where a connection goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Over TCP.
    Inet(SocketAddr),
    /// To a Unix socket, by the path of its file.
    Unix(Arc<str>),
}

impl Address {
    /// It never leaves this machine.
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

/// A URL, as far as it is understood here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port; the scheme's if none was given.
    pub port: u16,
    /// Path and query, at least `/`.
    pub path: String,
    /// What belongs into the `Host` header.
    pub authority: String,
    /// It begins with `https://`.
    pub is_secure: bool,
    /// The Unix socket that is asked instead of a host; `host` is `localhost` then.
    pub socket: Option<Arc<str>>,
}

/// Why a target cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No URL.
    #[error("`{url}` is not a URL: {why}\nhint: {hint}")]
    Url {
        /// What was given, without user and password.
        url: String,
        /// What is wrong with it.
        why: String,
        /// What to write.
        hint: &'static str,
    },
    /// No Unix socket.
    #[error("`{url}` is no Unix socket: {why}\nhint: write it as `unix:/PATH/TO.sock:/URL/PATH`")]
    Socket {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No proxy.
    #[error("`{url}` is no proxy: {why}\nhint: write it as `http://[USER:PASSWORD@]HOST:PORT`")]
    Proxy {
        /// What was given, without the password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A Unix socket behind a proxy.
    #[error(
        "`unix:{socket}` cannot be reached through a proxy\nhint: leave the proxy out, or give the server a port"
    )]
    SocketByProxy {
        /// The socket's file.
        socket: String,
    },
    /// Addresses given for names that a proxy looks up.
    #[error(
        "`--resolve` means nothing behind a proxy: the proxy looks names up itself\nhint: leave out `--resolve`, or the proxy"
    )]
    ResolvedByProxy,
    /// A name behind a proxy that is not allowed by name.
    #[error(
        "`{host}` would be looked up by the proxy, so nobody here knows where such a load goes; behind a proxy a host must be allowed by name\nhint: if you may load it, say so with `--allow-host {host}` (or `allow_hosts: [{host}]` in a plan)"
    )]
    NotAllowedByProxy {
        /// The host as named.
        host: String,
    },
    /// A host of its own for a request that asks a proxy for a whole URL.
    #[error(
        "`Host: {given}` cannot be sent through a proxy beside `http://{authority}`: a proxy goes by the URL, and one that does not would lead the load elsewhere\nhint: put the host into the URL, or leave out `Host` or the proxy; to https, `Host` is sent as given"
    )]
    HostByProxy {
        /// What was given.
        given: String,
        /// The URL's.
        authority: String,
    },
    /// No address.
    #[error(
        "the name `{host}` cannot be resolved (dns): {why}\nhint: is it spelled right? an address of your own goes with `--resolve {host}:{port}:ADDRESS`, or a line in /etc/hosts"
    )]
    Dns {
        /// The name.
        host: String,
        /// The port asked for.
        port: u16,
        /// What the resolver said.
        why: String,
    },
    /// No address of the family that connections come from.
    #[error(
        "`{host}` has no {} address, so nothing can be sent to it from {from}\nhint: give `--source` an {} address, or leave it out",
        family(*from), other_family(*from)
    )]
    OtherFamily {
        /// The host as named.
        host: String,
        /// Where connections come from.
        from: IpAddr,
    },
    /// Not allowed.
    #[error(
        "`{host}` ({address}) is not loopback, and loads go nowhere else unless they are told to\nhint: if you may load it, say so with `--allow-host {host}` (or `allow_hosts: [{host}]` in a plan)"
    )]
    NotAllowed {
        /// The host as named.
        host: String,
        /// The address it stands for.
        address: IpAddr,
    },
}

impl TargetError {
    /// The URL itself is at fault, not the world.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            TargetError::Url { .. }
                | TargetError::Socket { .. }
                | TargetError::Proxy { .. }
                | TargetError::SocketByProxy { .. }
                | TargetError::ResolvedByProxy
                | TargetError::HostByProxy { .. }
        )
    }
}

impl Url {
    /// `http://HOST[:PORT][/PATH][?QUERY]`, or https; a fragment is cut off, `HOST:PORT/PATH` alone is taken as http.
    /// `unix:/PATH:/URI` asks the Unix socket with that path.
    pub fn parse(text: &str) -> Result<Url, TargetError> {
        if text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("unix:")) {
            return Url::of_socket(text, &text[5..]);
        }
        let bad = |UrlError { why, hint }| TargetError::Url { url: url::without_user(text), why, hint };
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

    /// `/PATH:/URI`, the part of a URL behind `unix:`.
    fn of_socket(text: &str, rest: &str) -> Result<Url, TargetError> {
        let bad = |why| TargetError::Socket { url: text.to_owned(), why };
        let (socket, path) = rest
            .split_once(':')
            .ok_or_else(|| bad("nothing says what is asked for behind the socket's path"))?;
        let path = path.split('#').next().unwrap_or_default();
        if !socket.starts_with('/') {
            return Err(bad("the socket's path does not begin with `/`"));
        }
        if socket.len() > MAX_SOCKET_PATH {
            return Err(bad("the socket's path is longer than the 107 bytes that the kernel takes"));
        }
        if text.bytes().any(|b| b < b' ' || b == 0x7f) || path.bytes().any(|b| b == b' ') {
            return Err(bad("it holds blanks or control characters"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let localhost = || "localhost".to_owned();
        let socket = Some(socket.into());
        Ok(Url { host: localhost(), port: 80, path, authority: localhost(), is_secure: false, socket })
    }

    /// All its addresses, each of which must be allowed.
    ///
    /// # Errors
    /// The name does not resolve, or an address is neither loopback nor allowed.
    pub fn resolve(&self, allowed: &Allowed) -> Result<Vec<Address>, TargetError> {
        if let Some(socket) = &self.socket {
            return Ok(vec![Address::Unix(socket.clone())]);
        }
        let mut unique = self.addresses(allowed)?;
        // What the user gave is meant, all of it.
        let is_given = allowed.given(&self.host, self.port).next().is_some();
        if !is_given && loopback_of_both_families(&unique) {
            // `localhost` is ::1 and 127.0.0.1, and most servers listen on one of them. A refused connection is
            // never seen by a server, so asking costs the one that is there nothing.
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

    /// Whether it may be asked for through a proxy. The proxy is sent the name and looks it up by itself, so what the
    /// name stands for here (DNS, the hosts file, `--resolve`) allows nothing: a name must be allowed as such. What
    /// stands for itself everywhere, an address or `localhost`, is held to the rule as it is.
    ///
    /// # Errors
    /// The host is not allowed, addresses were given for names, or it is a Unix socket.
    pub fn by_proxy(&self, allowed: &Allowed) -> Result<(), TargetError> {
        if let Some(socket) = &self.socket {
            return Err(TargetError::SocketByProxy { socket: socket.to_string() });
        }
        allowed.by_proxy()?;
        // Only an address in full: `127.1` and `2130706433` are addresses to some resolvers and names to others.
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

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn other_family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv6" } else { "IPv4" }
}

/// One name, both kinds of loopback.
fn loopback_of_both_families(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|a| a.ip().is_loopback())
        && addresses.iter().any(SocketAddr::is_ipv4)
        && addresses.iter().any(SocketAddr::is_ipv6)
}

/// A proxy that requests go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Where it is.
    pub url: Url,
    /// Value of `Proxy-Authorization`, if the URL has a user.
    pub authorization: Option<String>,
}

impl std::str::FromStr for Proxy {
    type Err = TargetError;

    /// `http://[USER[:PASSWORD]@]HOST[:PORT]`; user and password may be percent-encoded.
    fn from_str(text: &str) -> Result<Proxy, TargetError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let shown = user.map_or(text.to_owned(), |_| format!("{scheme}://***@{place}"));
        let bad = |why: &str| TargetError::Proxy { url: shown.clone(), why: why.to_owned() };
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(bad("only proxies that are spoken to by http are supported"));
        }
        let url = Url::parse(&format!("http://{place}")).map_err(|error| match error {
            TargetError::Url { why, .. } => bad(&why),
            other => other,
        })?;
        if url.path != "/" {
            return Err(bad("a proxy has no path"));
        }
        let authorization = match user {
            None => None,
            Some(user) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                let decoded = |text| percent_decoded(text).ok_or_else(|| bad("a `%` without its two digits"));
                let both = [decoded(name)?.as_slice(), b":", decoded(password)?.as_slice()].concat();
                Some(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(both)))
            }
        };
        Ok(Proxy { url, authorization })
    }
}

impl Proxy {
    /// What asks it for a tunnel to a URL's host (RFC 9110 §9.3.6).
    pub fn connect(&self, url: &Url) -> Box<[u8]> {
        let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
        let place = format!("{host}:{}", url.port);
        let mut head = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
        if let Some(authorization) = &self.authorization {
            head.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes().into()
    }
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let digit = |b: Option<u8>| (b? as char).to_digit(16).map(|d| d as u8);
        out.push(if byte == b'%' { digit(bytes.next())? * 16 + digit(bytes.next())? } else { byte });
    }
    Some(out)
}

/// `ADDR` or `ADDR-ADDR`, at most 65,536 of them.
///
/// # Errors
/// In words, what is wrong with it.
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

/// Connections from one source address to one loopback port before the next source is taken. A source has
/// 28,232 ports by default, but looking for one that is free gets slow long before the last.
const PER_SOURCE: u64 = 8000;

/// Sources for so many connections: on IPv4 loopback, where all of 127.0.0.0/8 is at hand, as many as they need;
/// else none, which leaves it to the kernel.
pub fn sources_for(hosts: &[Vec<Address>], connections: u64) -> Vec<IpAddr> {
    let loopback = |a: &Address| matches!(a, Address::Inet(SocketAddr::V4(v4)) if v4.ip().is_loopback());
    if !hosts.iter().flatten().all(loopback) {
        return Vec::new();
    }
    // 127.0.1.1 upward: 127.0.0.1 stays free for everybody else.
    let first = std::net::Ipv4Addr::new(127, 0, 1, 1).to_bits();
    (0..sources_on_loopback(connections) as u32).map(|n| IpAddr::V4((first + n).into())).collect()
}

/// How many sources [`sources_for`] takes on IPv4 loopback; 0 where the kernel's one is enough.
pub fn sources_on_loopback(connections: u64) -> u64 {
    let needed = connections.div_ceil(PER_SOURCE).min(65_000);
    if needed < 3 { 0 } else { needed }
}

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
    fn given(&self, host: &str, port: u16) -> impl Iterator<Item = SocketAddr> {
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
    fn has_name(&self, host: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expect: Result<(&str, u16, &str), &str>) {
        let got = Url::parse(input);
        match expect {
            Ok((host, port, path)) => {
                let url = got.unwrap();
                assert_eq!((url.host.as_str(), url.port, url.path.as_str()), (host, port, path), "{input}");
            }
            Err(why) => assert!(got.unwrap_err().to_string().contains(why), "{input}"),
        }
    }

    #[test]
    fn urls() {
        check("http://127.0.0.1:8080/a?b=c#d", Ok(("127.0.0.1", 8080, "/a?b=c")));
        check("http://localhost", Ok(("localhost", 80, "/")));
        check("localhost:3000/x", Ok(("localhost", 3000, "/x")));
        check("HTTP://h?q", Ok(("h", 80, "/?q")));
        check("http://[::1]:81/", Ok(("::1", 81, "/")));
        check("https://localhost/x", Ok(("localhost", 443, "/x")));
        check("HTTPS://h:8443", Ok(("h", 8443, "/")));
        check("ftp://localhost/", Err("only http and https"));
        check("http:///x", Err("no host"));
        check("http://h:0/", Err("port"));
        check("http://h:99999/", Err("port"));
        check("http://h/a b", Err("blanks"));
        check("http://u:p@h/", Err("`http://***@h/` is not a URL: user and password"));
        check("http://[::1/", Err("`[::1` has no `]`\nhint: "));
        check("http://[localhost]:8080/", Err("does not hold an IPv6 address\nhint: "));
        check("http://127.0.0.1:8080:9090/", Err("has a second port, `9090`\nhint: "));
        check("http://::1:8080/", Err("is an IPv6 address without brackets\nhint: "));
        check("http://ü.test/", Err("`ü.test` is not a host\nhint: "));
        check("unix:/run/a.sock:/x?y#z", Ok(("localhost", 80, "/x?y")));
        check("UNIX:/run/a b.sock:", Ok(("localhost", 80, "/")));
        check("unix:/run/a.sock", Err("nothing says what is asked for"));
        check("unix:a.sock:/", Err("does not begin with `/`"));
        check("unix:/run/a.sock:/a b", Err("blanks"));
        check(&format!("unix:/{}:/", "x".repeat(107)), Err("longer than the 107 bytes"));
    }

    #[test]
    fn a_unix_socket_is_its_own_address_and_always_here() {
        let url = Url::parse("unix:/run/a.sock:/x").unwrap();
        let addresses = url.resolve(&Allowed::default()).unwrap();
        assert_eq!(addresses, ["unix:/run/a.sock".parse().unwrap()]);
        assert!(addresses[0].is_local());
        assert_eq!(addresses[0].to_string(), "unix:/run/a.sock");
        let error = url.by_proxy(&Allowed::default()).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("unix:/run/a.sock"), "{error}");
    }

    #[test]
    fn proxies() {
        let parse = |text: &str| text.parse::<Proxy>();
        let plain = parse("http://127.0.0.1:3128").unwrap();
        assert_eq!((plain.url.port, &plain.authorization), (3128, &None));
        assert_eq!(parse("proxy.test:8080/").unwrap().url.host, "proxy.test");
        let with = parse("http://ada:p%40ss%3a@[::1]:1").unwrap();
        assert_eq!(with.authorization.as_deref(), Some("Basic YWRhOnBAc3M6"));
        let asked = |proxy: &Proxy, url: &str| {
            String::from_utf8(proxy.connect(&Url::parse(url).unwrap()).into_vec()).unwrap()
        };
        assert_eq!(
            asked(&plain, "https://a.test/x"),
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"
        );
        assert_eq!(
            asked(&with, "https://[::1]:8/"),
            "CONNECT [::1]:8 HTTP/1.1\r\nHost: [::1]:8\r\nProxy-Authorization: Basic YWRhOnBAc3M6\r\n\r\n"
        );
        for (text, why) in [
            ("https://h:1", "only proxies that are spoken to by http"),
            ("socks5://h:1", "only proxies that are spoken to by http"),
            ("http://h:1/x", "a proxy has no path"),
            ("http://h:x", "`x` is not a port"),
            ("http://h:1:2", "`h:1:2` has a second port"),
            ("http://[localhost]:1", "`[localhost]` does not hold an IPv6 address"),
            ("http://a%4:b@h:1", "a `%` without its two digits"),
            ("", "there is no host"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(why), "{text}: {error}");
        }
        let told = parse("https://ada:secret@h:1").unwrap_err().to_string();
        assert!(told.contains("https://***@h:1") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn behind_a_proxy_hosts_are_allowed_by_name_and_never_by_what_they_resolve_to() {
        let none = Allowed::default();
        let named = Allowed {
            hosts: vec!["shop.invalid".into(), "192.0.2.7".into(), "[2001:db8:0::7]".into()],
            addresses: vec!["10.1.2.3".parse().unwrap()],
            ..Allowed::default()
        };
        let ask = |url: &str, allowed: &Allowed| Url::parse(url).unwrap().by_proxy(allowed);
        for (url, with_none, with_names) in [
            ("http://127.0.0.1:1/", true, true),
            ("http://127.9.9.9/", true, true),
            ("https://[::1]/", true, true),
            ("http://[::ffff:127.0.0.1]/", true, true),
            ("http://LocalHost:1/", true, true),
            ("http://Shop.invalid/", false, true),
            ("https://shop.invalid:444/", false, true),
            ("http://192.0.2.7/", false, true),
            ("http://[2001:db8::7]/", false, true),
            ("http://10.1.2.3/", false, true),
            ("http://192.0.2.1/", false, false),
            ("http://other.invalid/", false, false),
            ("http://a.shop.invalid/", false, false),
            ("http://localhost.invalid/", false, false),
            // The resolver here takes these for 127.0.0.1; what the proxy takes them for is its own affair.
            ("http://127.1/", false, false),
            ("http://2130706433/", false, false),
            ("http://0x7f.0.0.1/", false, false),
        ] {
            assert_eq!((ask(url, &none).is_ok(), ask(url, &named).is_ok()), (with_none, with_names), "{url}");
        }
        let refused = ask("https://other.invalid/", &named).unwrap_err();
        assert!(
            !refused.is_usage() && refused.to_string().contains("--allow-host other.invalid"),
            "{refused}"
        );
    }

    #[test]
    fn addresses_given_for_names_do_not_go_with_a_proxy() {
        let resolved = vec!["shop.invalid:80:127.0.0.1".parse().unwrap()];
        let allowed = Allowed { resolved, hosts: vec!["shop.invalid".into()], ..Allowed::default() };
        for url in ["http://shop.invalid/", "http://127.0.0.1/"] {
            let error = Url::parse(url).unwrap().by_proxy(&allowed).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("`--resolve`"), "{url}: {error}");
        }
    }

    #[test]
    fn given_addresses_stand_for_names_and_are_held_to_the_rule() {
        let given = |text: &str| Allowed { resolved: vec![text.parse().unwrap()], ..Allowed::default() };
        let url = Url::parse("https://Shop.test/x").unwrap();
        let resolved = url.resolve(&given("shop.test:443:127.0.0.3")).unwrap();
        assert_eq!(resolved, ["127.0.0.3:443".parse().unwrap()]);
        let v6 = url.resolve(&given("shop.test:443:[::1]")).unwrap();
        assert_eq!(v6, ["[::1]:443".parse().unwrap()]);
        let refused = url.resolve(&given("shop.test:443:192.0.2.1")).unwrap_err();
        assert!(matches!(refused, TargetError::NotAllowed { .. }), "{refused}");
        for bad in ["", "a", "a:b:c", "a:0:127.0.0.1", "a:80", "a:80:x", ":80:127.0.0.1"] {
            assert!(bad.parse::<Resolved>().unwrap_err().contains("HOST:PORT:ADDRESS"), "{bad}");
        }
    }

    #[test]
    fn sources() {
        assert_eq!(parse_sources("127.0.1.1").unwrap().len(), 1);
        let range = parse_sources("127.0.1.250-127.0.2.5").unwrap();
        assert_eq!((range.len(), range[6].to_string()), (12, "127.0.2.0".to_owned()));
        for bad in ["", "x", "127.0.0.2-127.0.0.1", "127.0.0.1-::1", "10.0.0.0-10.255.0.0"] {
            assert!(parse_sources(bad).is_err(), "{bad}");
        }
        let hosts = [vec!["127.0.0.1:80".parse().unwrap()]];
        assert_eq!(sources_for(&hosts, 1_000_000).len(), 125);
        assert!(sources_for(&hosts, 10_000).is_empty());
        assert!(sources_for(&[vec!["[::1]:80".parse().unwrap()]], 1_000_000).is_empty());
    }

    #[test]
    fn only_loopback_unless_allowed() {
        let none = Allowed::default();
        assert!(none.check("localhost", "127.0.0.1".parse().unwrap()).is_ok());
        assert!(none.check("x", "127.9.9.9".parse().unwrap()).is_ok());
        assert!(none.check("x", "::1".parse().unwrap()).is_ok());
        assert!(none.check("x", "::ffff:127.0.0.1".parse().unwrap()).is_ok());
        let refused = none.check("example.org", "192.0.2.7".parse().unwrap()).unwrap_err();
        assert!(refused.to_string().contains("--allow-host example.org"), "{refused}");
        let by_name = Allowed { hosts: vec!["example.org".into()], ..Allowed::default() };
        assert!(by_name.check("example.org", "192.0.2.7".parse().unwrap()).is_ok());
        assert!(by_name.check("example.net", "192.0.2.7".parse().unwrap()).is_err());
    }

    #[test]
    fn addresses_of_the_other_family_than_the_source_are_left_out() {
        let resolved = ["127.0.0.1", "::1"].map(|a| format!("both.test:80:{a}").parse().unwrap()).to_vec();
        let from = |source: &str| Allowed {
            resolved: resolved.clone(),
            source: Some(source.parse().unwrap()),
            ..Allowed::default()
        };
        let both = Url::parse("http://both.test/").unwrap();
        let inet = |text: &str| vec![Address::Inet(text.parse().unwrap())];
        assert_eq!(both.resolve(&from("127.0.0.9")).unwrap(), inet("127.0.0.1:80"));
        assert_eq!(both.resolve(&from("::1")).unwrap(), inet("[::1]:80"));
        let error = Url::parse("http://[::1]/").unwrap().resolve(&from("127.0.0.9")).unwrap_err();
        let words = "has no IPv4 address, so nothing can be sent to it from 127.0.0.9\nhint: give `--source` an IPv6 address";
        assert!(error.to_string().contains(words), "{error}");
    }
}
