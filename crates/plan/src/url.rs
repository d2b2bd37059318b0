//! The form of a plain URL: `http://HOST[:PORT][/PATH][?QUERY]`.
//!
//! Only the form is checked, by the same parser that loads and probes use ([`loadlab_record::text::url`]); whether a
//! host may be loaded is decided by its addresses, at run time.

use loadlab_record::text::url::{self, Authority, Url};

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
    let Some((scheme, _)) = url.split_once("://") else {
        return wrong(
            format!("`{}` is not a URL", crate::text::shorten::shorten(url)),
            Some(&format!("write {FORM}")),
        );
    };
    match scheme.to_ascii_lowercase().as_str() {
        "http" => {}
        "https" => return wrong("`https` is not supported here, only `http`", Some("use `http`")),
        "ws" | "wss" => {
            return wrong("WebSocket URLs are not allowed here", Some("a step's `websocket` opens one"));
        }
        _ => {
            let message = format!("unsupported scheme `{}`", crate::text::shorten::shorten(scheme));
            return wrong(message, Some(&format!("write {FORM}")));
        }
    }
    // Host names cannot be percent-encoded: what is wrong with one is said below.
    let path_at = url.find("://").map_or(0, |at| at + 3);
    let path = url[path_at..].find(['/', '?', '#']).map_or("", |at| &url[path_at + at..]);
    if let Some(bad) = path.chars().find(|c| c.is_whitespace() || c.is_control() || !c.is_ascii()) {
        let encoded: String = bad.to_string().bytes().map(|b| format!("%{b:02X}")).collect();
        return wrong(format!("a URL cannot contain {bad:?}"), Some(&format!("write it as `{encoded}`")));
    }
    if url.contains('#') {
        return wrong("the part after `#` is never sent", Some("leave it out, or write `%23`"));
    }
    read(Url::parse(url)).map(drop)
}

/// Checks `HOST:PORT`.
pub(crate) fn host_and_port(text: &str) -> Result<(), UrlError> {
    match read(Authority::parse(text))?.port {
        Some(_) => Ok(()),
        None => wrong(format!("`{text}` has no port"), Some("`127.0.0.1:8080`")),
    }
}

/// Reads it as loads and probes do.
fn read<T>(read: Result<T, url::UrlError>) -> Result<T, UrlError> {
    read.map_err(|error| UrlError { message: error.why, hint: Some(error.hint.to_owned()) })
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
            ("https://x/", "`https` is not supported here, only `http`"),
            ("wss://x/", "WebSocket URLs are not allowed here"),
            ("ftp://x/", "unsupported scheme `ftp`"),
            ("http://", "the host is missing"),
            ("http://:80/", "the host is missing"),
            ("http://a b/", "a URL cannot contain spaces or control characters"),
            ("http://a/b c", "a URL cannot contain ' '"),
            ("http://x/ü", "a URL cannot contain 'ü'"),
            ("http://x/#top", "the part after `#` is never sent"),
            ("http://u:p@x/", "user and password in the URL are not supported"),
            ("http://x:0/", "`0` is not a port"),
            ("http://x:99999/", "`99999` is not a port"),
            ("http://x:/", "`` is not a port"),
            ("http://[::1/", "`[::1` has no `]`"),
            ("http://[::1]80/", "`80` after `]` is not a port"),
            ("http://[localhost]:8080/", "`[localhost]` is not an IPv6 address"),
            ("http://127.0.0.1:8080:9090/", "`127.0.0.1:8080:9090` has a second port, `9090`"),
        ] {
            assert_eq!(check(url).map_err(|e| e.message), Err(expect.to_owned()), "{url}");
        }
        assert!(host_and_port("127.0.0.1").is_err() && host_and_port("[::1]:1").is_ok());
    }
}
