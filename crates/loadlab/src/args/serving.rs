//! Where a run can be watched from outside: addresses and URLs as the user gives them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use loadlab_record::text::url::{self, UrlError};

/// Where the page is served: a loopback address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Address(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        }
        let address: SocketAddr = text
            .parse()
            .map_err(|_| format!("`{text}` is not a port or an address such as 127.0.0.1:8089"))?;
        match address.ip().is_loopback() {
            true => Ok(Address(address)),
            false => Err(format!(
                "the page is served on loopback only, and {} is not\nhint: from another machine, forward the port: \
                 ssh -L 8089:127.0.0.1:8089 HOST, with --ui=8089",
                address.ip()
            )),
        }
    }
}

/// Where a run is also shown over HTTP.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    /// Where metrics are served or pushed.
    pub metrics: MetricsTargets,
    /// Address of the live page; `None` without `--ui`.
    pub page: Option<Address>,
}

/// Where metrics are to be served and pushed.
#[derive(Clone, Debug, Default)]
pub struct MetricsTargets {
    /// Address on which they are served as Prometheus text.
    pub prometheus: Option<SocketAddr>,
    /// OpenTelemetry collector to which they are pushed.
    pub otlp: Option<Collector>,
}

/// The path for metrics if the URL has none, by OTLP's specification.
const PATH: &str = "/v1/metrics";

/// The URL of a collector, in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub is_secure: bool,
    pub host: String,
    pub port: u16,
    pub path: String,
}

impl Endpoint {
    /// From a URL: `http[s]://HOST[:PORT][/PATH]`. The port defaults to 4318, on which collectors listen, and to 443
    /// for https.
    ///
    /// # Errors
    /// A message with a hint: the URL is not valid.
    pub fn parse(url: &str) -> Result<Endpoint, String> {
        let shown = url::masked(url);
        let wrong = || format!("`{shown}` is not a URL such as `http://127.0.0.1:4318`");
        let read = url::Url::parse(url)
            .map_err(|UrlError { why, hint }| format!("{}: {why}\nhint: {hint}", wrong()))?;
        let (is_secure, usual) = match (read.is("http"), read.is("https")) {
            (true, _) => (false, 4318),
            (_, true) => (true, 443),
            _ => return Err(wrong()),
        };
        let url::Authority { host, port, .. } = read.authority;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let path = read.path();
        if !path.bytes().all(|b| b.is_ascii_graphic() && b != b'@') {
            return Err(wrong());
        }
        let path = if path.len() < 2 { PATH.to_owned() } else { path };
        Ok(Endpoint { is_secure, host, port: port.unwrap_or(usual), path })
    }

    /// The whole URL.
    pub fn url(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}:{}{}", self.host, self.port, self.path)
    }
}

/// A collector, and how to push to it.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The collector's URL.
    pub endpoint: Endpoint,
    /// Interval between two pushes.
    pub every: Duration,
    /// A file of certificates to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// Header fields of each push: credentials, mostly. Never shown.
    pub headers: Vec<(String, String)>,
}
