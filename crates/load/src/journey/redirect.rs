//! The target of a redirect: which of a load's hosts a `Location` leads to, and what is requested there (RFC 9110
//! §10.2.2).

use loadlab_record::text::url::{self, Reference};

/// A host of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Authority as in the `Host` header: with the port unless it is the scheme's.
    pub authority: Box<str>,
    /// Host without the port.
    pub host: Box<str>,
    /// Whether it is reached by https.
    pub is_secure: bool,
    /// If it is reached through a proxy that gets an absolute URL instead of a path: header fields for the proxy, each
    /// with its line end.
    pub by_proxy: Option<Box<str>>,
}

/// Why a redirect is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectError {
    /// It leads to a host that the plan does not name.
    Elsewhere,
    /// The location cannot be parsed.
    Unreadable,
    /// There were too many redirects in a row.
    TooMany,
}

impl RedirectError {
    /// The reason in words.
    pub fn describe(self) -> &'static str {
        match self {
            RedirectError::Elsewhere => "it is redirected to a host that no step of the load uses",
            RedirectError::Unreadable => "the location of the redirect is not valid",
            RedirectError::TooMany => "it was redirected more often than the plan allows",
        }
    }
}

/// Whether a status redirects, and whether a request of this method keeps method and body; otherwise it becomes a GET
/// (RFC 9110 §15.4; for 301 and 302 as browsers and curl do).
pub fn redirects(status: u16, method: &str) -> Option<bool> {
    match status {
        301 | 302 => Some(method != "POST"),
        303 => Some(matches!(method, "GET" | "HEAD")),
        307 | 308 => Some(true),
        _ => None,
    }
}

/// Whether two sites have the same origin: scheme, host and port (RFC 6454 §4).
pub fn is_same_origin(a: &Site, b: &Site) -> bool {
    a.is_secure == b.is_secure && origin(&a.authority, a.is_secure) == origin(&b.authority, b.is_secure)
}

/// An authority without its scheme's port, in lower case.
fn origin(authority: &str, is_secure: bool) -> String {
    let port = if is_secure { ":443" } else { ":80" };
    authority.strip_suffix(port).unwrap_or(authority).to_ascii_lowercase()
}

/// Index of the site that a redirect leads to, and the target to request there. `from` is the site that answered and
/// `asked` the target requested from it.
///
/// # Errors
/// See [`RedirectError`].
pub fn leads_to(
    location: &[u8],
    from: u16,
    asked: &[u8],
    sites: &[Site],
) -> Result<(u16, Vec<u8>), RedirectError> {
    let text = std::str::from_utf8(location).map_err(|_| RedirectError::Unreadable)?.trim();
    let reference = Reference::parse(text).map_err(|_| RedirectError::Unreadable)?;
    let here = sites.get(usize::from(from)).ok_or(RedirectError::Unreadable)?;
    let (scheme, authority, path) = match reference {
        Reference::WithHost { scheme, authority, target } => (scheme, authority, target),
        Reference::Relative(reference) => return Ok((from, url::resolve(asked, reference))),
    };
    let secure = match scheme {
        None => here.is_secure,
        Some(scheme) if scheme.eq_ignore_ascii_case("http") => false,
        Some(scheme) if scheme.eq_ignore_ascii_case("https") => true,
        Some(_) => return Err(RedirectError::Elsewhere),
    };
    let wanted = origin(authority, secure);
    let same = |s: &Site| s.is_secure == secure && origin(&s.authority, secure) == wanted;
    // Sites on Unix sockets may share a name: the redirect stays on its own site if possible.
    let site =
        if same(here) { from } else { sites.iter().position(same).ok_or(RedirectError::Elsewhere)? as u16 };
    let target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((site, target.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(location: &str, expect: Result<(u16, &str), RedirectError>) {
        let site = |authority: &str, is_secure| Site {
            authority: authority.into(),
            host: authority.split(':').next().unwrap().into(),
            is_secure,
            by_proxy: None,
        };
        let sites = [site("shop:8080", false), site("pay", true), site("shop", false)];
        let got = leads_to(location.as_bytes(), 0, b"/a/b?c=d", &sites);
        let got = got.map(|(site, target)| (site, String::from_utf8(target).unwrap()));
        assert_eq!(got.as_ref().map(|(s, t)| (*s, t.as_str())).map_err(|f| *f), expect, "{location}");
    }

    #[test]
    fn locations() {
        check("/x?y=z#top", Ok((0, "/x?y=z")));
        check("x", Ok((0, "/a/x")));
        check("../x", Ok((0, "/x")));
        check("../../x/./y/..", Ok((0, "/x/")));
        check("?e=f", Ok((0, "/a/b?e=f")));
        check("", Ok((0, "/a/b?c=d")));
        check("http://SHOP:8080/x", Ok((0, "/x")));
        check("http://shop/x", Ok((2, "/x")));
        check("http://shop:80", Ok((2, "/")));
        check("https://pay?x", Ok((1, "/?x")));
        check("//shop:8080/y", Ok((0, "/y")));
        check("http://other/", Err(RedirectError::Elsewhere));
        check("http://pay/", Err(RedirectError::Elsewhere));
        check("ftp://shop/", Err(RedirectError::Elsewhere));
        check("/a b", Err(RedirectError::Unreadable));
        check("/search?u=http://x/", Ok((0, "/search?u=http://x/")));
    }

    #[test]
    fn methods() {
        let kept = |status: u16| ["GET", "HEAD", "POST", "PUT"].map(|method| redirects(status, method));
        assert_eq!(kept(301), [Some(true), Some(true), Some(false), Some(true)]);
        assert_eq!(kept(302), kept(301));
        assert_eq!(kept(303), [Some(true), Some(true), Some(false), Some(false)]);
        assert_eq!((kept(307), kept(308)), ([Some(true); 4], [Some(true); 4]));
        assert_eq!((kept(200), kept(304)), ([None; 4], [None; 4]));
    }

    #[test]
    fn origins() {
        let same = |(a, a_secure): (&str, bool), (b, b_secure): (&str, bool)| {
            let site = |authority: &str, is_secure| Site {
                authority: authority.into(),
                host: "".into(),
                is_secure,
                by_proxy: None,
            };
            is_same_origin(&site(a, a_secure), &site(b, b_secure))
        };
        assert!(same(("shop", false), ("SHOP:80", false)) && same(("shop:443", true), ("shop", true)));
        assert!(!same(("shop", false), ("shop", true)) && !same(("shop", true), ("shop", false)));
        assert!(!same(("shop", false), ("shop:8080", false)) && !same(("shop", false), ("www.shop", false)));
    }
}
