//! A proxy that requests go through.

use base64::Engine;
use loadlab_record::text::url::ServerUrl;

use crate::target::error::TargetError;
use crate::target::url::Url;

/// A proxy, given by its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyUrl {
    /// URL of the proxy, without user and password.
    pub url: Url,
    /// Value of `Proxy-Authorization`, if the URL has a user.
    pub authorization: Option<String>,
}

impl std::str::FromStr for ProxyUrl {
    type Err = TargetError;

    /// `http://[USER[:PASSWORD]@]HOST[:PORT]`; user and password may be percent-encoded.
    fn from_str(text: &str) -> Result<ProxyUrl, TargetError> {
        let ServerUrl { scheme, user, rest: place } = ServerUrl::split(text);
        let scheme = scheme.unwrap_or("http");
        let shown = user.map_or(text.to_owned(), |_| format!("{scheme}://***@{place}"));
        let bad = |why: &str| TargetError::Proxy { url: shown.clone(), why: why.to_owned() };
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(bad("only http proxies are supported"));
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
                let decoded =
                    |text| percent_decoded(text).ok_or_else(|| bad("a `%` without two hexadecimal digits"));
                let both = [decoded(name)?.as_slice(), b":", decoded(password)?.as_slice()].concat();
                Some(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(both)))
            }
        };
        Ok(ProxyUrl { url, authorization })
    }
}

impl ProxyUrl {
    /// The request that asks the proxy for a tunnel to a URL's host (RFC 9110 §9.3.6).
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

/// The bytes of a percent-encoded text. A `%` without two digits is a mistake: what would be sent is not what is meant.
fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let digit = |b: Option<u8>| (b? as char).to_digit(16).map(|d| d as u8);
        out.push(if byte == b'%' { digit(bytes.next())? * 16 + digit(bytes.next())? } else { byte });
    }
    Some(out)
}
