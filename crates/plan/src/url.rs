//! What a plain URL may look like: `http://HOST[:PORT][/PATH][?QUERY]`.
//!
//! Only the form is checked; whether a host may be loaded is decided by its addresses, at run time.

/// What is wrong with a URL, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UrlError {
    pub message: String,
    pub hint: Option<String>,
}

fn wrong(message: impl Into<String>, hint: Option<&str>) -> Result<(), UrlError> {
    Err(UrlError { message: message.into(), hint: hint.map(str::to_owned) })
}

/// Checks a URL with all its names put in.
pub(crate) fn check(url: &str) -> Result<(), UrlError> {
    const FORM: &str = "`http://HOST:PORT/PATH`";
    let Some((scheme, rest)) = url.split_once("://") else {
        return wrong(
            format!("`{}` is not a URL", crate::node::shorten(url)),
            Some(&format!("write {FORM}")),
        );
    };
    match scheme.to_ascii_lowercase().as_str() {
        "http" => {}
        "https" => return wrong("`https` is not spoken here, only `http`", Some("use `http`")),
        "ws" | "wss" => {
            return wrong("a WebSocket is not opened here", Some("a step's `websocket` opens one"));
        }
        _ => {
            let message = format!("`{}` is not a scheme that can be loaded", crate::node::shorten(scheme));
            return wrong(message, Some(&format!("write {FORM}")));
        }
    }
    if let Some(bad) = url.chars().find(|c| c.is_whitespace() || c.is_control() || !c.is_ascii()) {
        let encoded: String = bad.to_string().bytes().map(|b| format!("%{b:02X}")).collect();
        return wrong(format!("a URL cannot hold {bad:?}"), Some(&format!("write it as `{encoded}`")));
    }
    if url.contains('#') {
        return wrong("the part after `#` is never sent", Some("leave it out, or write `%23`"));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    host_and_port(&rest[..end], false)
}

/// Checks `HOST:PORT`, or `HOST` where the port is optional.
pub(crate) fn host_and_port(authority: &str, port_needed: bool) -> Result<(), UrlError> {
    if authority.contains('@') {
        return wrong("a URL cannot hold a user or password here", Some("use an `authorization` header"));
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, after)) if host.parse::<core::net::Ipv6Addr>().is_ok() => {
                (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').unwrap_or("?")) })
            }
            _ => return wrong(format!("`{authority}` does not hold an IPv6 address"), Some("`[::1]:8080`")),
        },
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    if host.is_empty() || host.len() > 253 || !host.chars().all(name) {
        return wrong(format!("`{host}` is not a host"), Some("a name or an address, such as `127.0.0.1`"));
    }
    match port {
        Some(text) if text.parse::<u16>().is_ok_and(|p| p > 0) => Ok(()),
        Some(text) => wrong(format!("`{text}` is not a port"), Some("a number from 1 to 65535")),
        None if port_needed => wrong(format!("`{authority}` has no port"), Some("`127.0.0.1:8080`")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for url in [
            "http://127.0.0.1:8080/x?y=1",
            "http://localhost",
            "HTTP://a-b.example.org/",
            "http://[::1]:80/",
            "http://[::1]",
            "http://x?y",
        ] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
        for (url, expect) in [
            ("/widgets", "`/widgets` is not a URL"),
            ("127.0.0.1:80", "`127.0.0.1:80` is not a URL"),
            ("https://x/", "`https` is not spoken here, only `http`"),
            ("wss://x/", "a WebSocket is not opened here"),
            ("ftp://x/", "`ftp` is not a scheme that can be loaded"),
            ("http://", "`` is not a host"),
            ("http://:80/", "`` is not a host"),
            ("http://a b/", "a URL cannot hold ' '"),
            ("http://x/ü", "a URL cannot hold 'ü'"),
            ("http://x/#top", "the part after `#` is never sent"),
            ("http://u:p@x/", "a URL cannot hold a user or password here"),
            ("http://x:0/", "`0` is not a port"),
            ("http://x:99999/", "`99999` is not a port"),
            ("http://x:/", "`` is not a port"),
            ("http://[::1/", "`[::1` does not hold an IPv6 address"),
            ("http://[::1]80/", "`?` is not a port"),
        ] {
            assert_eq!(check(url).map_err(|e| e.message), Err(expect.to_owned()), "{url}");
        }
        assert!(host_and_port("127.0.0.1", true).is_err());
    }
}
