//! Which connections of loadlab are the load's, and which its probes': by where the load goes.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use loadlab_record::documents::summary::LoadFacts;
use loadlab_record::text::url::{self, Url};
use loadlab_record::watch::evidence::Pair;
use loadlab_record::watch::names::GENERATOR;

/// If this share of connections carries its first request, each connection serves only one.
const FIRST_REQUEST_SHARE: f64 = 0.7;
/// If a pair opens connections at this share of the request rate or more, each serves one request.
const PER_REQUEST_SHARE: f64 = 0.5;

/// Where a load goes: ports of its TCP addresses, and paths of its Unix sockets.
struct Targets<'a> {
    ports: BTreeSet<u16>,
    sockets: BTreeSet<&'a str>,
}

impl<'a> Targets<'a> {
    /// By the URLs that the record has: the first of each load.
    fn of_urls(load: &'a LoadFacts) -> Targets<'a> {
        let urls = || load.loads.values().chain([load]).map(|load| load.url.as_str());
        let ports = urls().filter_map(port_of).collect();
        Targets { ports, sockets: urls().filter_map(socket_of).collect() }
    }

    /// By the addresses of all hosts of all loads.
    fn of_addresses(load: &'a LoadFacts) -> Targets<'a> {
        let all = || load.targets.iter().map(String::as_str);
        let ports = all().filter(|target| socket_of(target).is_none()).filter_map(port_at).collect();
        Targets { ports, sockets: all().filter_map(socket_of).collect() }
    }

    fn has(&self, pair: &Pair) -> bool {
        match pair.is_unix {
            true => self.sockets.iter().any(|path| is_same_path(path, &pair.address)),
            false => !pair.is_udp && port_at(&pair.address).is_some_and(|port| self.ports.contains(&port)),
        }
    }
}

/// Tells connections of the load from others that loadlab makes, such as those of its probes.
pub(super) struct LoadConnections<'a> {
    load: &'a LoadFacts,
    urls: Targets<'a>,
    addresses: Targets<'a>,
    /// Ports of those targets to which connections were seen at exactly their address: loadlab's, or unowned ones.
    exact: BTreeSet<u16>,
    /// Whether loadlab was seen connected to what a URL names.
    is_url_seen: bool,
    rate_per_s: f64,
}

impl<'a> LoadConnections<'a> {
    pub(super) fn new(pairs: &[Pair], load: &'a LoadFacts, rate_per_s: f64) -> LoadConnections<'a> {
        let (urls, addresses) = (Targets::of_urls(load), Targets::of_addresses(load));
        // Those that live for one request may all be unowned.
        let perhaps_own = pairs.iter().filter(|pair| pair.from == GENERATOR || pair.from.is_empty());
        let exact = perhaps_own.filter(|pair| !pair.is_unix && load.targets.contains(&pair.address));
        LoadConnections {
            exact: exact.filter_map(|pair| port_at(&pair.address)).collect(),
            is_url_seen: pairs.iter().any(|pair| pair.from == GENERATOR && urls.has(pair)),
            load,
            urls,
            addresses,
            rate_per_s,
        }
    }

    /// Whether connections go where the load does, as far as their port or socket tells.
    pub(super) fn is_target(&self, pair: &Pair) -> bool {
        self.urls.has(pair) || self.addresses.has(pair)
    }

    /// Whether connections without a known owner are the load's, by where they go. A probe's may go to the same port of
    /// another component.
    pub(super) fn takes_unowned(&self, pair: &Pair) -> bool {
        self.is_target(pair) && (self.load.targets.is_empty() || self.is_own(pair))
    }

    /// Whether connections of loadlab are the load's.
    pub(super) fn is_own(&self, pair: &Pair) -> bool {
        // Where a program's requests go is not known, and an older record has only the first URL of each load. A probe
        // has a connection for each request.
        if self.load.targets.is_empty() {
            let can_tell = self.load.is_command() || self.is_url_seen && self.load.keep_alive;
            return self.urls.has(pair) || !(can_tell && is_per_request(pair, self.rate_per_s));
        }
        // Several components may have the same port, each at its own address. An address that is seen in another form
        // than that of the target (`0.0.0.0`, or one with a zone) counts by its port.
        let is_elsewhere =
            || !pair.is_unix && port_at(&pair.address).is_some_and(|port| self.exact.contains(&port));
        self.load.targets.contains(&pair.address) || self.addresses.has(pair) && !is_elsewhere()
    }
}

/// Whether a load goes to several places. The addresses of one name are one place: all of them have its port.
pub(super) fn has_several(load: &LoadFacts) -> bool {
    let url = Url::parse(&load.url).ok();
    let own: Option<IpAddr> = url.and_then(|url| url.authority.host.parse().ok());
    let is_elsewhere = |target: &String| match (socket_of(&load.url), socket_of(target)) {
        (Some(own), Some(path)) => own != path,
        (None, None) => {
            let address: Option<SocketAddr> = target.parse().ok();
            port_at(target) != port_of(&load.url) || own.is_some() && own != address.map(|a| a.ip())
        }
        _ => true,
    };
    load.targets.len() > 1 && load.targets.iter().any(is_elsewhere)
}

/// Whether each connection is made for one request.
pub(super) fn is_per_request(pair: &Pair, rate_per_s: f64) -> bool {
    let has_times = !pair.is_unix && !pair.is_udp;
    if has_times {
        return pair.first_request >= FIRST_REQUEST_SHARE * pair.open;
    }
    pair.is_udp || rate_per_s > 0.0 && pair.made_per_s >= PER_REQUEST_SHARE * rate_per_s
}

/// The path of `unix:/PATH:/URI`.
pub(super) fn socket_of(url: &str) -> Option<&str> {
    url::unix_socket(url)?.split(':').next().filter(|path| !path.is_empty())
}

/// A server may have bound its socket by a path relative to where it was started.
pub(super) fn is_same_path(path: &str, bound: &str) -> bool {
    let bound = bound.trim_start_matches("./");
    let end = path.strip_suffix(bound).filter(|_| !bound.is_empty());
    end.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// The port of `ADDRESS:PORT`. Not for the path of a Unix socket, which may end like one.
fn port_at(address: &str) -> Option<u16> {
    address.rsplit(':').next()?.parse().ok()
}

/// The port of a URL, as written or by its scheme.
pub(super) fn port_of(url: &str) -> Option<u16> {
    let url = Url::parse(url).ok().filter(|url| url.scheme.is_some())?;
    let by_scheme = if url.is("https") || url.is("wss") { 443 } else { 80 };
    Some(url.authority.port.unwrap_or(by_scheme))
}

#[cfg(test)]
mod tests {
    use loadlab_record::documents::summary::LoadModel;

    use super::*;

    #[test]
    fn what_probes_ask_is_not_the_loads() {
        let at = |address: &str, open: f64, first_request: f64| Pair {
            address: address.into(),
            first_request,
            ..Pair { from: GENERATOR.into(), to: "any".into(), open, ..Pair::default() }
        };
        // A probe has a connection for each reading, perhaps to the port that the load's target has elsewhere.
        let pairs = [
            at("10.0.0.2:80", 10.0, 0.0),
            at("10.0.0.3:80", 0.02, 0.02),
            at("10.0.0.4:81", 5.0, 0.0),
            at("10.0.0.5:82", 0.02, 0.02),
            Pair { is_unix: true, ..at("./web.sock", 1.0, 0.0) },
        ];
        let check = |load: &LoadFacts, expect: [bool; 5]| {
            let of_load = LoadConnections::new(&pairs, load, 100.0);
            assert_eq!(pairs.each_ref().map(|pair| of_load.is_own(pair)), expect, "{load:?}");
        };
        let with = |targets: &[&str]| LoadFacts {
            url: "http://10.0.0.2/".into(),
            targets: targets.iter().map(|address| (*address).to_owned()).collect(),
            keep_alive: true,
            ..LoadFacts::default()
        };
        check(&with(&["10.0.0.2:80"]), [true, false, false, false, false]);
        check(&with(&["10.0.0.2:80", "10.0.0.4:81"]), [true, false, true, false, false]);
        check(&with(&["unix:/run/web.sock"]), [false, false, false, false, true]);
        check(&with(&["0.0.0.0:80"]), [true, true, false, false, false]);
        // Older records, and programs, whose targets are not known.
        check(&with(&[]), [true, true, true, false, true]);
        check(&LoadFacts { keep_alive: false, ..with(&[]) }, [true; 5]);
        let program = LoadFacts { model: LoadModel::Command, url: "./wrk".into(), ..LoadFacts::default() };
        check(&program, [true, false, true, false, true]);
    }

    #[test]
    fn one_name_with_several_addresses_is_one_place() {
        let check = |url: &str, targets: &[&str], expect: bool| {
            let targets = targets.iter().map(|target| (*target).to_owned()).collect();
            let load = LoadFacts { url: url.into(), targets, ..LoadFacts::default() };
            assert_eq!(has_several(&load), expect, "{load:?}");
        };
        check("http://10.0.0.1:80/x", &["10.0.0.1:80"], false);
        check("http://localhost:80/x", &["127.0.0.1:80", "[::1]:80"], false);
        check("http://localhost:80/x", &["127.0.0.1:80", "127.0.0.1:81"], true);
        check("http://10.0.0.1/x", &["10.0.0.1:80", "10.0.0.2:80"], true);
        check("http://[::1]/x", &["[::1]:80", "[::2]:80"], true);
        check("unix:/run/a.sock:/x", &["unix:/run/a.sock"], false);
        check("unix:/run/a.sock:/x", &["unix:/run/a.sock", "unix:/run/b.sock"], true);
        check("http://10.0.0.1/x", &["10.0.0.1:80", "unix:/run/b.sock"], true);
        // Older records have none. All connections may go to a proxy.
        check("http://10.0.0.1/x", &[], false);
        check("http://10.0.0.1/x", &["10.0.0.9:3128"], false);
    }

    #[test]
    fn ports_of_urls() {
        let check = |url: &str, expect: Option<u16>| assert_eq!(port_of(url), expect, "{url}");
        check("http://127.0.0.1:8080/x?y=http://z:1", Some(8080));
        check("http://[::1]/", Some(80));
        check("wss://[::1]:9443", Some(9443));
        check("https://name/", Some(443));
        check("", None);
    }
}
