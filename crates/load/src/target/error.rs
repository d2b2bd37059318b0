//! Why a target cannot be used.

use std::net::IpAddr;

/// Why a target cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Invalid URL.
    #[error("`{url}` is not a URL: {why}\nhint: {hint}")]
    Url {
        /// The URL as given, without user and password.
        url: String,
        /// What is wrong with it.
        why: String,
        /// What to write instead.
        hint: &'static str,
    },
    /// Invalid Unix socket.
    #[error("`{url}` is not a Unix socket: {why}\nhint: write it as `unix:/PATH/TO.sock:/URL/PATH`")]
    Socket {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Invalid proxy.
    #[error("`{url}` is not a proxy: {why}\nhint: write it as `http://[USER:PASSWORD@]HOST:PORT`")]
    Proxy {
        /// The URL as given, without user and password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A Unix socket behind a proxy.
    #[error(
        "`unix:{socket}` cannot be reached through a proxy\nhint: leave the proxy out, or give the server a port"
    )]
    SocketByProxy {
        /// Path of the socket.
        socket: String,
    },
    /// Fixed addresses for names that a proxy looks up.
    #[error(
        "`--resolve` has no effect with a proxy: the proxy resolves names itself\nhint: leave out `--resolve`, \
         or the proxy"
    )]
    ResolvedByProxy,
    /// A host behind a proxy that is not allowed by name.
    #[error(
        "the proxy would resolve `{host}`, so loadlab cannot know where the load goes; with a proxy, a host \
         must be allowed by name\nhint: if you may load it, add `--allow-host {host}` (or `allow_hosts: \
         [{host}]` in a plan)"
    )]
    NotAllowedByProxy {
        /// The host as named.
        host: String,
    },
    /// An explicit `Host` header in a request that asks a proxy for an absolute URL.
    #[error(
        "`Host: {given}` cannot be sent through a proxy together with `http://{authority}`: a proxy uses the \
         URL, and one that used `Host` would send the load elsewhere\nhint: put the host into the URL, or leave \
         out `Host` or the proxy; to https, `Host` is sent as given"
    )]
    HostByProxy {
        /// The `Host` header as given.
        given: String,
        /// Authority of the URL.
        authority: String,
    },
    /// A name that does not resolve.
    #[error(
        "cannot resolve the name `{host}` (dns): {why}\nhint: is it spelled right? to set its address, use \
         `--resolve {host}:{port}:ADDRESS`, or a line in /etc/hosts"
    )]
    Dns {
        /// The host name.
        host: String,
        /// The port of the target.
        port: u16,
        /// The resolver's error.
        why: String,
    },
    /// No address in the family of the source address.
    #[error(
        "`{host}` has no {} address, so nothing can be sent to it from {from}\nhint: give `--source` an {} address, or leave it out",
        family(*from), other_family(*from)
    )]
    OtherFamily {
        /// The host as named.
        host: String,
        /// Source address of connections.
        from: IpAddr,
    },
    /// A host that is neither loopback nor allowed.
    #[error(
        "`{host}` ({address}) is not loopback, and other hosts may only be loaded when allowed\nhint: if you \
         may load it, add `--allow-host {host}` (or `allow_hosts: [{host}]` in a plan)"
    )]
    NotAllowed {
        /// The host as named.
        host: String,
        /// The address it resolves to.
        address: IpAddr,
    },
}

impl TargetError {
    /// Whether what the user wrote is at fault, not the environment.
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

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn other_family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv6" } else { "IPv4" }
}
