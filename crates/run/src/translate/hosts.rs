//! The hosts that a load goes to: each is resolved once with all its addresses, and is reached directly, through a Unix
//! socket, or through a proxy.

use std::net::IpAddr;

use loadlab_load::journey::redirect::Site;
use loadlab_load::spec;
use loadlab_load::target::names::Moved;
use loadlab_load::target::{Address, Allowed, ProxyUrl, TargetError, Url};
use loadlab_record::documents::event::EventKind;

/// A proxy that a load goes through.
#[derive(Clone, Copy, Debug)]
pub struct Via<'a> {
    /// The proxy.
    pub proxy: &'a ProxyUrl,
    /// Reach all hosts by tunnels; otherwise only https hosts.
    pub tunnels_all: bool,
}

/// Hosts of a load and their addresses.
pub struct Hosts<'a> {
    allowed: &'a Allowed,
    via: Option<Via<'a>>,
    /// The proxy's addresses.
    proxies: Vec<Address>,
    /// The known hosts, and whether each must be reached by a tunnel through the proxy.
    known: Vec<(Url, bool)>,
    addresses: Vec<Vec<Address>>,
}

impl<'a> Hosts<'a> {
    /// No hosts yet.
    ///
    /// # Errors
    /// The proxy does not resolve or must not be loaded, or addresses are given for names that the proxy resolves
    /// itself.
    pub fn new(allowed: &'a Allowed, via: Option<Via<'a>>) -> Result<Self, TargetError> {
        let proxies = match via {
            None => Vec::new(),
            Some(via) => {
                allowed.by_proxy()?;
                via.proxy.url.resolve(allowed)?
            }
        };
        Ok(Hosts { allowed, via, proxies, known: Vec::new(), addresses: Vec::new() })
    }

    /// The index of a URL's host, which is added if it is new.
    ///
    /// # Errors
    /// The host does not resolve or must not be loaded.
    pub fn index(&mut self, url: &Url) -> Result<u16, TargetError> {
        self.index_of(url, false)
    }

    /// As [`Hosts::index`]; a WebSocket (`is_websocket`) must not pass an intermediary, so it goes through a tunnel.
    ///
    /// # Errors
    /// See [`Hosts::index`].
    pub fn index_of(&mut self, url: &Url, is_websocket: bool) -> Result<u16, TargetError> {
        let tunnels = is_websocket && self.via.is_some();
        let same = |(known, tunnelled): &(Url, bool)| {
            (&known.host, known.port, known.is_secure, &known.socket, *tunnelled)
                == (&url.host, url.port, url.is_secure, &url.socket, tunnels)
        };
        if let Some(found) = self.known.iter().position(same) {
            return Ok(found as u16);
        }
        let addresses = match self.via {
            None => url.resolve(self.allowed)?,
            Some(_) => {
                url.by_proxy(self.allowed)?;
                self.proxies.clone()
            }
        };
        self.addresses.push(addresses);
        self.known.push((url.clone(), tunnels));
        Ok(self.known.len() as u16 - 1)
    }

    /// If a URL is requested in full because it goes to a proxy: the target that replaces the path in the request head,
    /// and a header field for the proxy.
    pub fn whole(&self, url: &Url) -> Option<(String, Option<(String, String)>)> {
        let via = self.via.filter(|via| !via.tunnels(url))?;
        let authorization = via.proxy.authorization.as_ref();
        let field = authorization.map(|value| ("Proxy-Authorization".to_owned(), value.clone()));
        Some((format!("http://{}{}", url.authority, url.path), field))
    }

    /// Each host, as a site.
    pub fn sites(&self) -> impl Iterator<Item = Site> {
        self.known.iter().map(|(url, tunnels)| Site {
            authority: url.authority.as_str().into(),
            host: url.host.as_str().into(),
            is_secure: url.is_secure,
            by_proxy: self.whole(url).filter(|_| !tunnels).map(|(_, field)| {
                field.map_or(String::new(), |(name, value)| format!("{name}: {value}\r\n")).into()
            }),
        })
    }

    /// How the hosts are reached through the proxy, if there is one.
    pub fn proxy(&self) -> Option<Box<spec::Proxy>> {
        let via = self.via?;
        let connect =
            |(url, tunnels): &(Url, bool)| (*tunnels || via.tunnels(url)).then(|| via.proxy.connect(url));
        Some(Box::new(spec::Proxy { connects: self.known.iter().map(connect).collect() }))
    }

    /// The addresses of each host.
    pub fn addresses(&self) -> &[Vec<Address>] {
        &self.addresses
    }

    /// The addresses of each host, by value.
    pub fn into_addresses(self) -> Vec<Vec<Address>> {
        self.addresses
    }
}

/// The event for a name that no longer resolves as it did when the load was prepared.
pub fn name_moved(moved: Moved) -> EventKind {
    let texts = |addresses: Vec<IpAddr>| addresses.iter().map(IpAddr::to_string).collect();
    EventKind::NameMoved { host: moved.host, before: texts(moved.before), after: texts(moved.after) }
}

impl Via<'_> {
    fn tunnels(&self, url: &Url) -> bool {
        self.tunnels_all || url.is_secure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_host_is_known_by_name_port_scheme_and_socket() {
        let allowed = Allowed::default();
        let mut hosts = Hosts::new(&allowed, None).unwrap();
        let mut index = |text: &str| hosts.index(&url(text)).unwrap();
        let numbers = [
            index("http://127.0.0.1:1/a"),
            index("http://127.0.0.1:1/b"),
            index("https://127.0.0.1:1/"),
            index("unix:/run/a.sock:/"),
            index("unix:/run/b.sock:/"),
            index("unix:/run/a.sock:/x"),
            index("http://[::1]:1/"),
        ];
        assert_eq!(numbers, [0, 0, 1, 2, 3, 2, 4]);
        assert!(hosts.proxy().is_none() && hosts.whole(&url("http://a/")).is_none());
        let shown: Vec<String> = hosts.into_addresses().concat().iter().map(Address::to_string).collect();
        assert_eq!(shown, ["127.0.0.1:1", "127.0.0.1:1", "unix:/run/a.sock", "unix:/run/b.sock", "[::1]:1"]);
    }

    #[test]
    fn through_a_proxy_http_is_asked_whole_and_https_by_a_tunnel() {
        let allowed = Allowed { hosts: vec!["shop.invalid".into()], ..Allowed::default() };
        let proxy: ProxyUrl = "http://a:b@127.0.0.1:3128".parse().unwrap();
        let mut hosts = Hosts::new(&allowed, Some(Via { proxy: &proxy, tunnels_all: false })).unwrap();
        hosts.index(&url("http://shop.invalid/x?y")).unwrap();
        hosts.index(&url("https://shop.invalid/")).unwrap();
        let (target, field) = hosts.whole(&url("http://shop.invalid/x?y")).unwrap();
        assert_eq!(target, "http://shop.invalid/x?y");
        assert_eq!(field.unwrap(), ("Proxy-Authorization".into(), "Basic YTpi".into()));
        let sites: Vec<Site> = hosts.sites().collect();
        assert_eq!(sites[0].by_proxy.as_deref(), Some("Proxy-Authorization: Basic YTpi\r\n"));
        assert_eq!(sites[1].by_proxy, None);
        let spec = hosts.proxy().unwrap();
        assert!(spec.connects[0].is_none());
        assert!(spec.connects[1].as_deref().unwrap().starts_with(b"CONNECT shop.invalid:443 HTTP/1.1\r\n"));
        assert!(spec.shares(0, 0) && !spec.shares(0, 1));
        let chat = hosts.index_of(&url("http://shop.invalid/chat"), true).unwrap();
        assert_eq!((chat, hosts.index(&url("http://shop.invalid/")).unwrap()), (2, 0));
        assert!(hosts.proxy().unwrap().connects[2].is_some());
        assert_eq!(hosts.sites().nth(2).unwrap().by_proxy, None);
        assert_eq!(hosts.into_addresses().concat(), vec!["127.0.0.1:3128".parse().unwrap(); 3]);

        let all = Hosts::new(&allowed, Some(Via { proxy: &proxy, tunnels_all: true })).unwrap();
        assert!(all.whole(&url("http://shop.invalid/")).is_none());
        let away: ProxyUrl = "http://192.0.2.1:3128".parse().unwrap();
        let refused = Hosts::new(&allowed, Some(Via { proxy: &away, tunnels_all: false }));
        assert!(matches!(refused.err(), Some(TargetError::NotAllowed { .. })));
    }
}
