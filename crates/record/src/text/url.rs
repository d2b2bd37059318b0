//! URL parsing: one reader for plans, loads, probes and options, so that all of them see the same host.
//!
//! It reads `[SCHEME://]HOST[:PORT][/PATH][?QUERY][#FRAGMENT]` according to RFC 3986, and is strict about the part that
//! determines where a request goes: if two readers understood a host differently, the loopback rule could be checked
//! for one host while another one is loaded. Which schemes there are, and what a path may contain, is up to the caller.
//!
//! References, such as those of redirects, are resolved here, too. What only shows or splits a text that may be no
//! valid URL says so: it never decides where a request goes.

use std::borrow::Cow;
use std::net::Ipv6Addr;
use std::ops::Range;

/// Longest name of a host, in bytes (RFC 1035 §2.3.4).
const MAX_HOST: usize = 253;

/// What is wrong with a URL, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct UrlError {
    /// What is wrong, as a complete statement.
    pub why: String,
    /// What to write instead.
    pub hint: &'static str,
}

/// A URL in its parts, none of them decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Url<'a> {
    /// What precedes `://`.
    pub scheme: Option<&'a str>,
    /// Host and port.
    pub authority: Authority<'a>,
    /// Path and query; may be empty.
    pub target: &'a str,
    /// What follows `#`.
    pub fragment: Option<&'a str>,
}

/// Host and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// As written.
    pub text: &'a str,
    /// Name or address, an IPv6 one without its brackets.
    pub host: &'a str,
    /// The port, from 1.
    pub port: Option<u16>,
}

impl<'a> Url<'a> {
    /// Splits a URL.
    ///
    /// # Errors
    /// It names a user, or its host or port is invalid.
    pub fn parse(text: &'a str) -> Result<Url<'a>, UrlError> {
        without_blanks(text, authority_at(text))?;
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
            _ => (None, text),
        };
        let (rest, fragment) = match rest.split_once('#') {
            Some((rest, fragment)) => (rest, Some(fragment)),
            None => (rest, None),
        };
        let (authority, target) = split_target(rest);
        Ok(Url { scheme, authority: Authority::parse(authority)?, target, fragment })
    }

    /// It begins with this scheme; case does not matter.
    pub fn is(&self, scheme: &str) -> bool {
        self.scheme.is_some_and(|own| own.eq_ignore_ascii_case(scheme))
    }

    /// Path and query as in a request: they begin with `/`.
    pub fn path(&self) -> String {
        if self.target.starts_with('/') { self.target.to_owned() } else { format!("/{}", self.target) }
    }
}

impl<'a> Authority<'a> {
    /// Reads `HOST` or `HOST:PORT`.
    ///
    /// # Errors
    /// It names a user, or host or port is invalid.
    pub fn parse(text: &'a str) -> Result<Authority<'a>, UrlError> {
        let wrong = |why: String, hint| Err(UrlError { why, hint });
        without_blanks(text, 0..text.len())?;
        if text.contains('@') {
            // What precedes it may be a secret.
            return wrong(
                "user and password in the URL are not supported".to_owned(),
                "send them in an `authorization` header",
            );
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => in_brackets(rest)?,
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if let Some(port) = port.filter(|port| port.contains(':')) {
            return if text.parse::<Ipv6Addr>().is_ok() || before_last(text).parse::<Ipv6Addr>().is_ok() {
                wrong(format!("`{text}` is an IPv6 address without brackets"), "`[::1]` or `[::1]:8080`")
            } else {
                let last = port.rsplit(':').next().unwrap_or_default();
                wrong(
                    format!("`{text}` has a second port, `{last}`"),
                    "write one host and one port: `127.0.0.1:8080`",
                )
            };
        }
        let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        match host {
            "" => {
                return wrong(
                    "the host is missing".to_owned(),
                    "use a name or an address, such as `127.0.0.1`",
                );
            }
            _ if text.starts_with('[') => {}
            _ if !host.is_ascii() => {
                return wrong(format!("`{host}` is not a host"), "write non-ASCII names as `xn--…`");
            }
            _ if host.len() > MAX_HOST || !host.chars().all(name) => {
                return wrong(
                    format!("`{host}` is not a host"),
                    "use a name or an address, such as `127.0.0.1`",
                );
            }
            _ => {}
        }
        match port.map(|text| (text, port_of(text))) {
            Some((text, None)) => wrong(format!("`{text}` is not a port"), "use a number from 1 to 65535"),
            Some((_, port)) => Ok(Authority { text, host, port }),
            None => Ok(Authority { text, host, port: None }),
        }
    }
}

/// The URL of a server that takes credentials, such as a proxy: `[SCHEME://][USER[:PASSWORD]@]REST`, in its parts.
///
/// Users and passwords are often not percent-encoded, and any text is split: whatever precedes the last `@` may be a
/// secret, even behind a `/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerUrl<'a> {
    /// What precedes `://`.
    pub scheme: Option<&'a str>,
    /// User and password, as written.
    pub user: Option<&'a str>,
    /// Host, port and what follows.
    pub rest: &'a str,
}

impl<'a> ServerUrl<'a> {
    /// Splits a text.
    pub fn split(text: &'a str) -> ServerUrl<'a> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, text),
        };
        match rest.rsplit_once('@') {
            Some((user, rest)) => ServerUrl { scheme, user: Some(user), rest },
            None => ServerUrl { scheme, user: None, rest },
        }
    }

    /// The URL without user and password.
    pub fn without_user(&self) -> String {
        self.with_user("")
    }

    /// The URL as it may be shown.
    pub fn masked(&self) -> String {
        self.with_user(if self.user.is_some() { "***@" } else { "" })
    }

    fn with_user(&self, user: &str) -> String {
        let (scheme, separator) = self.scheme.map_or(("", ""), |scheme| (scheme, "://"));
        format!("{scheme}{separator}{user}{}", self.rest)
    }
}

/// A reference to another resource, such as the `Location` of a redirect, without its fragment (RFC 3986 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    /// It names a host.
    WithHost {
        /// What precedes `://`; without one, the scheme stays the same.
        scheme: Option<&'a str>,
        /// Host and port; not checked.
        authority: &'a str,
        /// Path and query; may be empty.
        target: &'a str,
    },
    /// A path, a query, or nothing, on the same host; see [`resolve`].
    Relative(&'a str),
}

impl<'a> Reference<'a> {
    /// Splits a reference.
    ///
    /// # Errors
    /// It contains spaces or control characters.
    pub fn parse(text: &'a str) -> Result<Reference<'a>, UrlError> {
        let text = text.split('#').next().unwrap_or_default();
        without_blanks(text, if text.contains("://") { authority_at(text) } else { 0..0 })?;
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => (Some(scheme), rest),
            _ => match text.strip_prefix("//") {
                Some(rest) => (None, rest),
                None => return Ok(Reference::Relative(text)),
            },
        };
        let (authority, target) = split_target(rest);
        Ok(Reference::WithHost { scheme, authority, target })
    }
}

/// Path and query that a [`Reference::Relative`] leads to from another path and query (RFC 3986 §5.2).
pub fn resolve(from: &[u8], reference: &str) -> Vec<u8> {
    let path_end = from.iter().position(|b| *b == b'?').unwrap_or(from.len());
    let path = &from[..path_end];
    let (reference, query) = reference.split_at(reference.find('?').unwrap_or(reference.len()));
    let whole = match reference.as_bytes().first() {
        None if query.is_empty() => return from.to_vec(),
        None => path.to_vec(),
        Some(b'/') => reference.as_bytes().to_vec(),
        Some(_) => {
            let folder = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
            [&path[..folder], reference.as_bytes()].concat()
        }
    };
    [without_dots(&whole), query.as_bytes().to_vec()].concat()
}

/// Removes `.` and `..` segments.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').skip(1).collect();
    for (i, part) in parts.iter().enumerate() {
        let is_last = i + 1 == parts.len();
        match *part {
            b"." | b".." => {
                if *part == b".." {
                    kept.pop();
                }
                if is_last {
                    kept.push(b"");
                }
            }
            other => kept.push(other),
        }
    }
    kept.iter().flat_map(|part| [b"/", *part].concat()).collect()
}

/// A URL as it may be shown: with user and password masked, even if it is not valid.
pub fn masked(text: &str) -> String {
    let Range { start, end } = authority_at(text);
    match text[start..end].rfind('@') {
        Some(at) => format!("{}***{}", &text[..start], &text[start + at..]),
        None => text.to_owned(),
    }
}

/// Host and port as written, without user and password. The URL is not checked: it may still contain names such as
/// `${web.port}`.
pub fn authority_of(text: &str) -> &str {
    let authority = &text[authority_at(text)];
    authority.rsplit_once('@').map_or(authority, |(_, rest)| rest)
}

/// The index at which a URL's path, query or fragment begins, if it has one; with `unix:/PATH:/URI`, that of `/URI`.
/// The URL is not checked: it may still contain names such as `${web.port}`.
pub fn path_at(text: &str) -> Option<usize> {
    let Some(socket) = unix_socket(text) else {
        let end = authority_at(text).end;
        return (end < text.len()).then_some(end);
    };
    let uri_at = text.len() - socket.len() + socket.find(':')? + 1;
    text[uri_at..].find(['/', '?', '#']).map(|at| uri_at + at)
}

/// `/PATH:/URI` of `unix:/PATH:/URI`, which stands for a Unix socket and what to request there. It is not checked, and
/// the case of `unix` does not matter.
pub fn unix_socket(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_at_checked("unix:".len())?;
    scheme.eq_ignore_ascii_case("unix:").then_some(rest)
}

/// What follows `unix:` in its parts, neither of them decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketUrl<'a> {
    /// Absolute path of the socket; its length and characters are not checked.
    pub socket: &'a str,
    /// What to request there, as written: it may lack the `/` at its beginning, and is not checked.
    pub target: &'a str,
}

impl<'a> SocketUrl<'a> {
    /// Splits `/PATH:/URI`, which [`unix_socket`] returns.
    ///
    /// # Errors
    /// What is wrong, as a complete statement.
    pub fn split(rest: &'a str) -> Result<SocketUrl<'a>, &'static str> {
        let (socket, target) = rest.split_once(':').ok_or("no URL path follows the socket's path")?;
        if !socket.starts_with('/') {
            return Err("the socket's path does not begin with `/`");
        }
        Ok(SocketUrl { socket, target })
    }
}

/// Whether a text can name a host by itself: a name or an address, in brackets or not, without a scheme, port or path.
pub fn is_bare_host(text: &str) -> bool {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let is_address = bare.parse::<std::net::IpAddr>().is_ok();
    is_address || !bare.is_empty() && !bare.contains(|c: char| c.is_whitespace() || "/@?#*:[]".contains(c))
}

/// Whether a text is meant as the URL of a request, not as a file or a name: it begins with `http://`, `https://` or
/// `unix:`, in any case. Whether it is a valid one is not checked.
pub fn is_url(text: &str) -> bool {
    let begins_with =
        |start: &&str| text.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start));
    ["http://", "https://", "unix:"].iter().any(begins_with)
}

/// The URL of the request that opens a WebSocket; `None` for URLs of other schemes. The rest is not checked.
pub fn websocket_as_http(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if scheme.eq_ignore_ascii_case("ws") {
        return Some(format!("http://{rest}"));
    }
    scheme.eq_ignore_ascii_case("wss").then(|| format!("https://{rest}"))
}

/// As [`websocket_as_http`], with URLs of other schemes unchanged.
pub fn as_http(url: &str) -> Cow<'_, str> {
    websocket_as_http(url).map_or(Cow::Borrowed(url), Cow::Owned)
}

/// Path and query of a whole URL, or of a text that is already just that. The fragment is dropped: it is never sent.
pub(crate) fn target_of(text: &[u8]) -> &[u8] {
    let text = &text[..memchr::memchr(b'#', text).unwrap_or(text.len())];
    let scheme = text.iter().position(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(b)));
    let rest = match scheme {
        Some(at) if text[at..].starts_with(b"://") => &text[at + 3..],
        _ => match text.strip_prefix(b"//") {
            Some(rest) => rest,
            None => return text,
        },
    };
    memchr::memchr2(b'/', b'?', rest).map_or(&rest[rest.len()..], |at| &rest[at..])
}

/// Where host and port are in a text that may be no valid URL, with user and password if it names them.
fn authority_at(text: &str) -> Range<usize> {
    let start = text.find("://").map_or(0, |at| at + 3);
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
    start..end
}

/// Splits what follows the scheme, without a fragment, into authority and target.
fn split_target(text: &str) -> (&str, &str) {
    text.split_at(text.find(['/', '?']).unwrap_or(text.len()))
}

/// Refuses blanks; `host` is where host and port are, which cannot be percent-encoded.
fn without_blanks(text: &str, host: Range<usize>) -> Result<(), UrlError> {
    let Some(at) = text.bytes().position(|b| b <= b' ' || b == 0x7f) else { return Ok(()) };
    let why = "a URL cannot contain spaces or control characters".to_owned();
    let hint = match host.contains(&at) {
        true => "a host name cannot contain them; the path begins with `/`",
        false => "percent-encode them: `%20` is a space",
    };
    Err(UrlError { why, hint })
}

/// A scheme consists of letters, digits, `+`, `-` and `.` (RFC 3986 §3.1): `//` in a path or query does not begin a
/// host.
fn is_scheme(text: &str) -> bool {
    !text.contains(['/', '?', '#', '@', ':', '[', ']'])
}

/// Digits only: `+80` would parse as a number as well.
fn port_of(text: &str) -> Option<u16> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten().filter(|port| *port > 0)
}

fn before_last(text: &str) -> &str {
    text.rsplit_once(':').map_or(text, |(before, _)| before)
}

/// What follows `[`: an IPv6 address, and perhaps a port.
fn in_brackets(rest: &str) -> Result<(&str, Option<&str>), UrlError> {
    const HINT: &str = "brackets enclose an IPv6 address: `[::1]:8080`";
    let Some((host, after)) = rest.split_once(']') else {
        return Err(UrlError { why: format!("`[{rest}` has no `]`"), hint: HINT });
    };
    if host.parse::<Ipv6Addr>().is_err() {
        return Err(UrlError { why: format!("`[{host}]` is not an IPv6 address"), hint: HINT });
    }
    match after.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if after.is_empty() => Ok((host, None)),
        None => Err(UrlError { why: format!("`{after}` after `]` is not a port"), hint: HINT }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for (text, host, port) in [
            ("127.0.0.1:8080", "127.0.0.1", Some(8080)),
            ("localhost", "localhost", None),
            ("a-b_c.example.org:65535", "a-b_c.example.org", Some(65535)),
            ("[::1]:1", "::1", Some(1)),
            ("[2001:db8::7]", "2001:db8::7", None),
            ("[::ffff:127.0.0.1]:0080", "::ffff:127.0.0.1", Some(80)),
        ] {
            assert_eq!(Authority::parse(text), Ok(Authority { text, host, port }), "{text}");
        }
    }

    #[test]
    fn hosts_by_themselves() {
        for text in ["a.example.org", "localhost", "10.1.2.3", "::1", "[2001:db8::7]"] {
            assert!(is_bare_host(text), "{text}");
        }
        for text in ["", "10.1.2.3:80", "[::1]:80", "http://a", "a/b", "a b", "*.a", "u@a"] {
            assert!(!is_bare_host(text), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused_in_words() {
        let long = "a".repeat(254);
        for (text, why) in [
            ("", "the host is missing"),
            (":80", "the host is missing"),
            ("h:", "`` is not a port"),
            ("h:0", "`0` is not a port"),
            ("h:65536", "`65536` is not a port"),
            ("h:+80", "`+80` is not a port"),
            ("h:8o", "`8o` is not a port"),
            ("127.0.0.1:8080:9090", "`127.0.0.1:8080:9090` has a second port, `9090`"),
            ("::1", "`::1` is an IPv6 address without brackets"),
            ("::1:8080", "`::1:8080` is an IPv6 address without brackets"),
            ("[::1", "`[::1` has no `]`"),
            ("[::1]80", "`80` after `]` is not a port"),
            ("[::1]:", "`` is not a port"),
            ("[::1]:80:81", "`[::1]:80:81` has a second port, `81`"),
            ("[]", "`[]` is not an IPv6 address"),
            ("[localhost]:8080", "`[localhost]` is not an IPv6 address"),
            ("[127.0.0.1]", "`[127.0.0.1]` is not an IPv6 address"),
            ("[fe80::1%eth0]", "`[fe80::1%eth0]` is not an IPv6 address"),
            ("[[::1]]", "`[[::1]` is not an IPv6 address"),
            ("a b", "a URL cannot contain spaces or control characters"),
            ("h:80\r\nX", "a URL cannot contain spaces or control characters"),
            ("a\\b", "`a\\b` is not a host"),
            ("%31", "`%31` is not a host"),
            ("ü.example", "`ü.example` is not a host"),
            ("ada:secret@h", "user and password in the URL are not supported"),
            (long.as_str(), &format!("`{long}` is not a host")),
        ] {
            let error = Authority::parse(text).unwrap_err();
            assert_eq!(error.to_string(), why, "{text}");
            assert!(!error.hint.is_empty());
        }
    }

    #[test]
    fn urls_in_their_parts() {
        for (text, scheme, authority, target, fragment) in [
            ("http://h:1/a?b=c#d", Some("http"), "h:1", "/a?b=c", Some("d")),
            ("HTTPS://h", Some("HTTPS"), "h", "", None),
            ("http://h?q=http://x/", Some("http"), "h", "?q=http://x/", None),
            ("http://h#/a@b", Some("http"), "h", "", Some("/a@b")),
            ("h:1/a", None, "h:1", "/a", None),
            ("h?to=http://x/", None, "h", "?to=http://x/", None),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.scheme, url.authority.text), (scheme, authority), "{text}");
            assert_eq!((url.target, url.fragment), (target, fragment), "{text}");
            assert!(url.path().starts_with('/'), "{text}");
        }
        assert!(Url::parse("HTTPS://h").unwrap().is("https") && !Url::parse("h").unwrap().is("http"));
        assert!(Url::parse("http://a/b c").is_err());
        assert!(Url::parse("http://").is_err() && Url::parse("/a").is_err() && Url::parse("").is_err());
    }

    #[test]
    fn authorities_and_paths_of_texts_that_may_be_no_urls() {
        for (text, authority, path, shown) in [
            ("http://h:1/a?b#c", "h:1", Some("/a?b#c"), "http://h:1/a?b#c"),
            ("http://h", "h", None, "http://h"),
            ("http://h?x=/", "h", Some("?x=/"), "http://h?x=/"),
            ("http://h#/a@b", "h", Some("#/a@b"), "http://h#/a@b"),
            ("http://h/@", "h", Some("/@"), "http://h/@"),
            ("http://ada:b@c@h:1/x@y", "h:1", Some("/x@y"), "http://***@h:1/x@y"),
            ("a:b@h", "h", None, "***@h"),
            ("http://a b@h:x/", "h:x", Some("/"), "http://***@h:x/"),
            ("http://${web.host}:${web.port}/${x}", "${web.host}:${web.port}", Some("/${x}"), ""),
            ("${case.url}/x", "${case.url}", Some("/x"), ""),
            ("", "", None, ""),
            ("unix:/run/a.sock:/x?y", "unix:", Some("/x?y"), ""),
            ("UNIX:/run/a/b:?y", "UNIX:", Some("?y"), ""),
            ("unix:/run/a.sock", "unix:", None, ""),
            ("unix:/run/a.sock:", "unix:", None, ""),
        ] {
            assert_eq!(authority_of(text), authority, "{text}");
            assert_eq!(path_at(text).map(|at| &text[at..]), path, "{text}");
            assert_eq!(masked(text), if shown.is_empty() { text } else { shown }, "{text}");
        }
        for (text, expect) in [
            ("unix:/a:/b", Some("/a:/b")),
            ("Unix:", Some("")),
            ("unix", None),
            ("unixü:/a", None),
            ("http://unix:/a", None),
        ] {
            assert_eq!(unix_socket(text), expect, "{text}");
        }
    }

    #[test]
    fn sockets_and_what_is_requested_there() {
        let url = |socket, target| Ok(SocketUrl { socket, target });
        for (text, expect) in [
            ("/run/a.sock:/x?y", url("/run/a.sock", "/x?y")),
            ("/a:", url("/a", "")),
            ("/a:b:/c", url("/a", "b:/c")),
            ("/run/a.sock", Err("no URL path follows the socket's path")),
            ("a.sock:/x", Err("the socket's path does not begin with `/`")),
        ] {
            assert_eq!(SocketUrl::split(text), expect, "{text}");
        }
    }

    #[test]
    fn schemes_of_requests() {
        for (text, expect) in [
            ("http://h", true),
            ("HTTPS://", true),
            ("Unix:/a:/b", true),
            ("http:/h", false),
            ("ws://h", false),
            ("unix", false),
            ("plan.yaml", false),
            ("httpü://h", false),
        ] {
            assert_eq!(is_url(text), expect, "{text}");
        }
        for (text, expect) in [
            ("ws://h/x", "http://h/x"),
            ("WSS://h", "https://h"),
            ("http://h?to=ws://x", "http://h?to=ws://x"),
            ("unix:/a:/b", "unix:/a:/b"),
        ] {
            assert_eq!(as_http(text), expect, "{text}");
        }
    }

    #[test]
    fn urls_of_servers_with_credentials() {
        for (text, scheme, user, rest, masked) in [
            ("http://h:1", Some("http"), None, "h:1", "http://h:1"),
            ("http://u:p@h:1/x", Some("http"), Some("u:p"), "h:1/x", "http://***@h:1/x"),
            // Not encoded, as they should be.
            ("http://u:p/q@r?s@h", Some("http"), Some("u:p/q@r?s"), "h", "http://***@h"),
            ("nats://token@h", Some("nats"), Some("token"), "h", "nats://***@h"),
            ("me:secret@h:4222", None, Some("me:secret"), "h:4222", "***@h:4222"),
            ("h:4222", None, None, "h:4222", "h:4222"),
            ("no URL: a b@", None, Some("no URL: a b"), "", "***@"),
            ("://@", Some(""), Some(""), "", "://***@"),
            ("", None, None, "", ""),
        ] {
            let url = ServerUrl::split(text);
            assert_eq!(url, ServerUrl { scheme, user, rest }, "{text}");
            assert_eq!(url.masked(), masked, "{text}");
            assert_eq!(url.without_user(), masked.replace("***@", ""), "{text}");
        }
    }

    #[test]
    fn references() {
        let with_host = |scheme, authority, target| Reference::WithHost { scheme, authority, target };
        for (text, expect) in [
            ("http://H:1/x?y#z", with_host(Some("http"), "H:1", "/x?y")),
            ("ftp://h", with_host(Some("ftp"), "h", "")),
            ("//h?x", with_host(None, "h", "?x")),
            ("//u@h:/x", with_host(None, "u@h:", "/x")),
            ("://h/", with_host(Some(""), "h", "/")),
            ("/a?to=http://x/#/b c", Reference::Relative("/a?to=http://x/")),
            ("mailto:x", Reference::Relative("mailto:x")),
            ("#top", Reference::Relative("")),
        ] {
            assert_eq!(Reference::parse(text), Ok(expect), "{text}");
        }
        assert!(Reference::parse("/a b").is_err() && Reference::parse("a\r\n").is_err());
        for (from, reference, expect) in [
            ("/a/b?c=d", "/x?y=z", "/x?y=z"),
            ("/a/b?c=d", "x", "/a/x"),
            ("/a/b?c=d", "?e=/../f", "/a/b?e=/../f"),
            ("/a/b?c=d", "", "/a/b?c=d"),
            ("/a/b?c=/d/", "../x", "/x"),
            ("/a/b", "../../x/./y/..", "/x/"),
            ("/a/b", "/x/../..", "/"),
            ("/", ".", "/"),
        ] {
            assert_eq!(resolve(from.as_bytes(), reference), expect.as_bytes(), "{from} {reference}");
        }
    }

    #[test]
    fn targets_of_texts_from_elsewhere() {
        for (text, expect) in [
            ("http://h:80/x?y#z", "/x?y"),
            ("a+b-c.1://h?q", "?q"),
            ("https://h", ""),
            ("//h/x", "/x"),
            ("/a?to=http://x/", "/a?to=http://x/"),
            ("a/b://c", "a/b://c"),
            ("#/x", ""),
        ] {
            assert_eq!(target_of(text.as_bytes()), expect.as_bytes(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic_and_what_is_read_is_read_again(text in "(\\PC|[:/@\\[\\]?#.0-9a])*") {
            if let Ok(url) = Url::parse(&text) {
                assert!(!url.authority.host.is_empty());
                assert_eq!(Authority::parse(url.authority.text), Ok(url.authority));
            }
            if let Ok(Reference::Relative(reference)) = Reference::parse(&text) {
                resolve(b"/a/b?c", reference);
            }
            assert!(path_at(&text).is_none_or(|at| text.is_char_boundary(at)));
            masked(&text);
        }
    }
}
