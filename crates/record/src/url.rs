//! URL parsing: one reader for plans, loads, probes and options, so that all of them see the same host.
//!
//! It reads `[SCHEME://]HOST[:PORT][/PATH][?QUERY][#FRAGMENT]` according to RFC 3986, and is strict about the part that
//! determines where a request goes: if two readers understood a host differently, the loopback rule could be checked
//! for one host while another one is loaded. Which schemes there are, and what a path may contain, is up to the caller.

use std::net::Ipv6Addr;

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
        without_blanks(text)?;
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
            _ => (None, text),
        };
        let (rest, fragment) = match rest.split_once('#') {
            Some((rest, fragment)) => (rest, Some(fragment)),
            None => (rest, None),
        };
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
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
        without_blanks(text)?;
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

/// A URL as it may be shown: without user and password.
pub fn without_user(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
    match text[start..end].rfind('@') {
        Some(at) => format!("{}***{}", &text[..start], &text[start + at..]),
        None => text.to_owned(),
    }
}

fn without_blanks(text: &str) -> Result<(), UrlError> {
    if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
        let why = "a URL cannot contain spaces or control characters".to_owned();
        return Err(UrlError { why, hint: "percent-encode them: `%20` is a space" });
    }
    Ok(())
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
        assert_eq!(without_user("http://ada:b@c@h:1/x@y"), "http://***@h:1/x@y");
        assert_eq!(
            (without_user("a:b@h"), without_user("http://h/@")),
            ("***@h".into(), "http://h/@".into())
        );
        assert!(Url::parse("http://a/b c").is_err());
        assert!(Url::parse("http://").is_err() && Url::parse("/a").is_err() && Url::parse("").is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic_and_what_is_read_is_read_again(text in "(\\PC|[:/@\\[\\]?#.0-9a])*") {
            if let Ok(url) = Url::parse(&text) {
                assert!(!url.authority.host.is_empty());
                assert_eq!(Authority::parse(url.authority.text), Ok(url.authority));
            }
        }
    }
}
