//! A user's cookies: what servers set, and what is sent back to them (RFC 6265 §5, the part that loads need).
//!
//! A jar is one buffer with the cookies one after another, so a user without cookies costs three words and one with a
//! session cookie some hundred bytes. The jar is bounded: if there are too many cookies the oldest is dropped, and a
//! cookie that is too large is refused. There is no list of public suffixes: a domain without a dot belongs to its host
//! alone. The clock is passed in.

use loadlab_record::text::time::Date;

use crate::journey::redirect::Site;

/// Most cookies per user.
pub const MAX_COOKIES: usize = 50;
/// Largest cookie: name, value, domain and path together, bytes.
pub const MAX_COOKIE: usize = 4096;
/// Largest jar, bytes.
pub const MAX_JAR: usize = 16 * 1024;

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub struct CookieScope<'a> {
    /// Host name or address, without a port; case does not matter.
    pub host: &'a [u8],
    /// Path, without the query.
    pub path: &'a [u8],
    /// Whether the connection is encrypted.
    pub is_secure: bool,
}

impl<'a> CookieScope<'a> {
    /// Where a request for this target of this site goes.
    pub fn of(site: &'a Site, target: &'a [u8]) -> CookieScope<'a> {
        let path = target.split(|b| *b == b'?').next().unwrap_or_default();
        CookieScope { host: site.host.as_bytes(), path, is_secure: site.is_secure }
    }
}

/// A user's cookies.
#[derive(Clone, Debug, Default)]
pub struct Jar {
    /// Each cookie: its fixed part (see [`Cookie`]), then name, value, domain and path.
    bytes: Vec<u8>,
}

/// One cookie as stored in the jar.
#[derive(Clone, Copy, Debug)]
struct Cookie<'j> {
    /// Expiry in seconds since 1970; [`SESSION`] for a cookie that lasts as long as the user.
    expires_s: u64,
    is_host_only: bool,
    is_secure: bool,
    name: &'j [u8],
    value: &'j [u8],
    domain: &'j [u8],
    path: &'j [u8],
}

const SESSION: u64 = u64::MAX;
/// Bytes before the name: expiry (8), flags (1), four lengths (2 each).
const FIXED: usize = 17;

impl Jar {
    /// Takes a `Set-Cookie` header's value. A cookie that no browser would accept is ignored.
    pub fn set(&mut self, value: &[u8], site: &CookieScope<'_>, now_s: u64) {
        let Some(cookie) = parse(value, site, now_s) else { return };
        self.remove(|c| {
            c.name == cookie.name && c.domain.eq_ignore_ascii_case(cookie.domain) && c.path == cookie.path
        });
        if cookie.expires_s <= now_s {
            return;
        }
        let size = cookie.size();
        if size > FIXED + MAX_COOKIE {
            return;
        }
        while self.count() >= MAX_COOKIES || self.bytes.len() + size > MAX_JAR {
            let first = read(&self.bytes).map_or(self.bytes.len(), |c| c.size());
            self.bytes.drain(..first);
        }
        self.bytes.reserve_exact(size);
        cookie.write(&mut self.bytes);
    }

    /// Appends the value of the `Cookie` header for a request. Returns `false`, and appends nothing, if no cookie
    /// belongs there. Cookies with longer paths come first, then older ones.
    #[inline]
    pub fn write(&self, site: &CookieScope<'_>, now_s: u64, out: &mut Vec<u8>) -> bool {
        let from = out.len();
        let mut longest = usize::MAX;
        loop {
            // The next shorter path: a few passes over a handful of cookies instead of sorting.
            let fits = |c: &Cookie<'_>| c.belongs_to(site, now_s) && c.path.len() < longest;
            let Some(length) = self.cookies().filter(fits).map(|c| c.path.len()).max() else { break };
            for cookie in self.cookies().filter(|c| c.path.len() == length && c.belongs_to(site, now_s)) {
                if out.len() > from {
                    out.extend_from_slice(b"; ");
                }
                if !cookie.name.is_empty() {
                    out.extend_from_slice(cookie.name);
                    out.push(b'=');
                }
                out.extend_from_slice(cookie.value);
            }
            longest = length;
        }
        out.len() > from
    }

    /// Removes all cookies and frees their memory.
    pub fn clear(&mut self) {
        self.bytes = Vec::new();
    }

    /// Whether it holds no cookie, not even an expired one.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of cookies, including expired ones.
    pub fn count(&self) -> usize {
        self.cookies().count()
    }

    /// Number of bytes it holds on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn cookies(&self) -> impl Iterator<Item = Cookie<'_>> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let cookie = read(rest)?;
            rest = &rest[cookie.size()..];
            Some(cookie)
        })
    }

    fn remove(&mut self, which: impl Fn(&Cookie<'_>) -> bool) {
        let mut at = 0;
        while let Some(cookie) = read(&self.bytes[at..]) {
            let size = cookie.size();
            if which(&cookie) {
                self.bytes.drain(at..at + size);
            } else {
                at += size;
            }
        }
    }
}

/// The first cookie of a buffer.
#[inline]
fn read(bytes: &[u8]) -> Option<Cookie<'_>> {
    let (fixed, rest) = bytes.split_at_checked(FIXED)?;
    let expires_s = u64::from_le_bytes(fixed[..8].try_into().ok()?);
    let length = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
    let (name, rest) = rest.split_at_checked(length(9))?;
    let (value, rest) = rest.split_at_checked(length(11))?;
    let (domain, rest) = rest.split_at_checked(length(13))?;
    let path = rest.get(..length(15))?;
    let (is_host_only, is_secure) = (fixed[8] & 1 != 0, fixed[8] & 2 != 0);
    Some(Cookie { expires_s, is_host_only, is_secure, name, value, domain, path })
}

impl Cookie<'_> {
    #[inline]
    fn size(&self) -> usize {
        FIXED + self.name.len() + self.value.len() + self.domain.len() + self.path.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.expires_s.to_le_bytes());
        out.push(u8::from(self.is_host_only) | u8::from(self.is_secure) << 1);
        for part in [self.name, self.value, self.domain, self.path] {
            out.extend_from_slice(&(part.len() as u16).to_le_bytes());
        }
        out.extend_from_slice(self.name);
        out.extend_from_slice(self.value);
        // Hosts are compared in lower case.
        out.extend(self.domain.iter().map(u8::to_ascii_lowercase));
        out.extend_from_slice(self.path);
    }

    /// §5.4: whether it is sent with a request.
    #[inline]
    fn belongs_to(&self, site: &CookieScope<'_>, now_s: u64) -> bool {
        let host = if self.is_host_only {
            site.host.eq_ignore_ascii_case(self.domain)
        } else {
            domain_matches(site.host, self.domain)
        };
        host && path_matches(site.path, self.path)
            && (site.is_secure || !self.is_secure)
            && self.expires_s > now_s
    }
}

/// §5.1.3: whether the host is the domain, or a name below it.
fn domain_matches(host: &[u8], domain: &[u8]) -> bool {
    if host.eq_ignore_ascii_case(domain) {
        return true;
    }
    let Some(before) = host.len().checked_sub(domain.len() + 1) else { return false };
    host[before] == b'.' && host[before + 1..].eq_ignore_ascii_case(domain) && !is_address(host)
}

fn is_address(host: &[u8]) -> bool {
    host.contains(&b':') || host.iter().all(|b| b.is_ascii_digit() || *b == b'.')
}

/// §5.1.4: whether a request's path is the cookie's, or below it.
fn path_matches(path: &[u8], cookie: &[u8]) -> bool {
    match path.strip_prefix(cookie) {
        Some(rest) => rest.is_empty() || cookie.ends_with(b"/") || rest.starts_with(b"/"),
        None => false,
    }
}

/// §5.1.4: the path up to its last slash, without it.
fn default_path(path: &[u8]) -> &[u8] {
    if !path.starts_with(b"/") {
        return b"/";
    }
    match memchr::memrchr(b'/', path) {
        None | Some(0) => b"/",
        Some(last) => &path[..last],
    }
}

/// §5.2 and §5.3: parses the cookie in a `Set-Cookie`.
fn parse<'a>(value: &'a [u8], site: &CookieScope<'a>, now_s: u64) -> Option<Cookie<'a>> {
    if value.iter().any(|b| *b < b' ' && *b != b'\t' || *b == 0x7f) {
        return None;
    }
    let mut parts = value.split(|b| *b == b';');
    let (name, content) = pair(parts.next()?);
    let (name, content) = match content {
        Some(content) => (name, content),
        None => (&b""[..], name),
    };
    if name.is_empty() && content.is_empty() {
        return None;
    }
    let mut cookie = Cookie {
        expires_s: SESSION,
        is_host_only: true,
        is_secure: false,
        name,
        value: content,
        domain: site.host,
        path: default_path(site.path),
    };
    let mut max_age = None;
    for part in parts {
        let (name, content) = pair(part);
        let content = content.unwrap_or_default();
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        if is("expires") {
            cookie.expires_s = date(content).unwrap_or(cookie.expires_s);
        } else if is("max-age") {
            max_age = max_age_s(content).or(max_age);
        } else if is("domain") && !content.is_empty() {
            let domain = content.strip_prefix(b".").unwrap_or(content);
            if !domain_matches(site.host, domain) {
                return None;
            }
            (cookie.domain, cookie.is_host_only) = (domain, is_address(domain) || !domain.contains(&b'.'));
            if cookie.is_host_only && !domain.eq_ignore_ascii_case(site.host) {
                return None;
            }
        } else if is("path") {
            cookie.path = if content.starts_with(b"/") { content } else { default_path(site.path) };
        } else if is("secure") {
            cookie.is_secure = true;
        }
    }
    if let Some(seconds) = max_age {
        cookie.expires_s = if seconds == 0 { 0 } else { now_s.saturating_add(seconds).min(SESSION - 1) };
    }
    let longest = [cookie.name, cookie.value, cookie.domain, cookie.path].iter().map(|p| p.len()).max();
    longest.is_some_and(|l| l <= MAX_COOKIE).then_some(cookie)
}

/// Splits `name = value`, without blanks around either; there is a value only if there is a `=`.
fn pair(part: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'=', part) {
        Some(at) => (part[..at].trim_ascii(), Some(part[at + 1..].trim_ascii())),
        None => (part.trim_ascii(), None),
    }
}

/// Seconds to live: 0 if already expired; `None` if not a number.
fn max_age_s(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    if text.starts_with('-') { Some(0) } else { Some(digits.parse().unwrap_or(SESSION)) }
}

/// §5.1.1: a date in any of the forms that servers write, as seconds since 1970 (0 if earlier).
fn date(text: &[u8]) -> Option<u64> {
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    let is_delimiter = |b: &u8| !(b.is_ascii_alphanumeric() || *b == b':' || *b >= 0x7f);
    for token in text.split(is_delimiter).filter(|t| !t.is_empty()) {
        if time.is_none()
            && let Some(found) = time_of_day(token)
        {
            time = Some(found);
        } else if day.is_none()
            && let Some(found) = leading_number(token, 2)
        {
            day = Some(found);
        } else if month.is_none()
            && let Some(found) = month_number(token)
        {
            month = Some(found);
        } else if year.is_none()
            && let Some(found) = leading_number(token, 4)
        {
            year = Some(found);
        }
    }
    let (day, month, TimeOfDay { hour, minute, second }) = (day?, month?, time?);
    let year = match year? {
        short @ 70..=99 => short + 1900,
        short @ 0..=69 => short + 2000,
        long => long,
    };
    if !(1..=31).contains(&day) || year < 1601 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(
        Date { year, month, day }.days().map_or(0, |days| days * 86_400 + hour * 3600 + minute * 60 + second),
    )
}

/// `hh:mm:ss`.
struct TimeOfDay {
    hour: u64,
    minute: u64,
    second: u64,
}

fn time_of_day(token: &[u8]) -> Option<TimeOfDay> {
    let mut parts = token.split(|b| *b == b':');
    let mut next = || parts.next().and_then(|p| leading_number(p, 2));
    let found = TimeOfDay { hour: next()?, minute: next()?, second: next()? };
    parts.next().is_none().then_some(found)
}

/// A number of at most `most` digits, with no further digit after it.
fn leading_number(token: &[u8], most: usize) -> Option<u64> {
    let digits = token.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 || digits > most {
        return None;
    }
    std::str::from_utf8(&token[..digits]).ok()?.parse().ok()
}

fn month_number(token: &[u8]) -> Option<u64> {
    const NAMES: &[u8] = b"janfebmaraprmayjunjulaugsepoctnovdec";
    let name = token.get(..3)?;
    NAMES.chunks(3).position(|n| n.eq_ignore_ascii_case(name)).map(|at| at as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW_S: u64 = 1_795_166_999;

    fn site<'a>(host: &'a str, path: &'a str) -> CookieScope<'a> {
        CookieScope { host: host.as_bytes(), path: path.as_bytes(), is_secure: false }
    }

    fn sent(jar: &Jar, at: &CookieScope<'_>, now_s: u64) -> String {
        let mut out = b"Cookie: ".to_vec();
        let any = jar.write(at, now_s, &mut out);
        assert_eq!(any, out.len() > 8);
        String::from_utf8(out[8..].to_vec()).unwrap()
    }

    /// Cookies set at `shop.example.org/a/b`, sent to another place.
    fn check(set: &[&str], host: &str, path: &str, expect: &str) {
        let mut jar = Jar::default();
        for value in set {
            jar.set(value.as_bytes(), &site("shop.example.org", "/a/b"), NOW_S);
        }
        assert_eq!(sent(&jar, &site(host, path), NOW_S), expect, "{set:?} to {host}{path}");
    }

    #[test]
    fn cookies_go_where_they_belong() {
        let home = "shop.example.org";
        check(&["s=1"], home, "/a/x", "s=1");
        check(&["s=1"], "SHOP.example.ORG", "/a", "s=1");
        check(&["s=1"], home, "/ax", "");
        check(&["s=1"], "example.org", "/a", "");
        check(&["s=1"], "x.shop.example.org", "/a", "");
        check(&["s=1; Path=/"], home, "/z", "s=1");
        check(&["s=1; path=z"], home, "/a/", "s=1");
        check(&["s=1; Path=/; Domain=.Example.org"], "www.example.org", "/", "s=1");
        check(&["s=1; Path=/; Domain=example.org"], "badexample.org", "/", "");
        check(&["s=1; Domain=other.org"], home, "/a", "");
        check(&["s=1; Domain=org"], home, "/a", "");
        check(&["s=1; Secure"], home, "/a", "");
        check(&["s=1", "s=2"], home, "/a", "s=2");
        check(&["a=1; Path=/", "b=2", "c=3; Path=/a/b", "d=4; Path=/"], home, "/a/b", "c=3; b=2; a=1; d=4");
        check(&["  s = \"x y\" ; HttpOnly; SameSite=Lax"], home, "/a", "s=\"x y\"");
        check(&["just"], home, "/a", "just");
        check(&["", "=", ";Path=/", "a=\u{1}"], home, "/a", "");
        check(&["s=a=b=c"], home, "/a", "s=a=b=c");
    }

    #[test]
    fn loopback_keeps_cookies_to_its_host() {
        let mut jar = Jar::default();
        jar.set(b"a=1; Domain=127.0.0.1", &site("127.0.0.1", "/"), NOW_S);
        jar.set(b"b=2; Domain=localhost", &site("localhost", "/"), NOW_S);
        jar.set(b"c=3", &site("::1", "/"), NOW_S);
        assert_eq!(sent(&jar, &site("127.0.0.1", "/"), NOW_S), "a=1");
        assert_eq!(sent(&jar, &site("localhost", "/"), NOW_S), "b=2");
        assert_eq!(sent(&jar, &site("::1", "/"), NOW_S), "c=3");
        let secure = CookieScope { is_secure: true, ..site("::1", "/") };
        jar.set(b"d=4; Secure", &secure, NOW_S);
        assert_eq!(sent(&jar, &secure, NOW_S), "c=3; d=4");
    }

    #[test]
    fn cookies_end() {
        let at = site("h", "/");
        for (attributes, left_after_100_s) in [
            ("Max-Age=101", true),
            ("Max-Age=100", false),
            ("Max-Age=0", false),
            ("Max-Age=-5", false),
            ("Max-Age=x", true),
            ("Max-Age=99999999999999999999999", true),
            ("Expires=Fri, 20 Nov 2026 09:31:40 GMT", true),
            ("Expires=Fri, 20 Nov 2026 09:31:39 GMT", false),
            ("Expires=Friday, 20-Nov-26 09:31:40 GMT", true),
            ("Expires=Thu Nov 20 09:31:00 2025", false),
            ("Expires=Thu, 01 Jan 1970 00:00:00 GMT", false),
            ("Expires=soon", true),
            ("Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=200", true),
        ] {
            let mut jar = Jar::default();
            jar.set(b"s=old", &at, NOW_S);
            jar.set(format!("s=1; {attributes}").as_bytes(), &at, NOW_S);
            let expect = if left_after_100_s { "s=1" } else { "" };
            assert_eq!(sent(&jar, &at, NOW_S + 100), expect, "{attributes}");
        }
    }

    #[test]
    fn dates_in_their_forms() {
        for (text, expect) in [
            ("Thu, 01 Jan 1970 00:00:01 GMT", Some(1)),
            ("Wed, 09 Jun 2021 10:18:14 GMT", Some(1_623_233_894)),
            ("Wednesday, 09-Jun-21 10:18:14 GMT", Some(1_623_233_894)),
            ("Wed Jun  9 10:18:14 2021", Some(1_623_233_894)),
            ("29 Feb 2000 00:00:00", Some(951_782_400)),
            ("31 Dec 1969 00:00:00", Some(0)),
            ("09 Jun 2021", None),
            ("09 Jun 2021 24:00:00", None),
            ("32 Jun 2021 10:00:00", None),
            ("09 Jun 1500 10:00:00", None),
        ] {
            assert_eq!(date(text.as_bytes()), expect, "{text}");
        }
    }

    #[test]
    fn a_jar_is_bounded_and_small() {
        let at = site("h", "/");
        let mut jar = Jar::default();
        assert_eq!((std::mem::size_of::<Jar>(), jar.heap_bytes()), (24, 0));
        jar.set(b"session=0123456789abcdef0123456789abcdef; Path=/; HttpOnly", &at, NOW_S);
        assert!(jar.heap_bytes() <= 100, "{}", jar.heap_bytes());
        for i in 0..200 {
            jar.set(format!("c{i}={}", "x".repeat(1000)).as_bytes(), &at, NOW_S);
        }
        assert!(jar.count() <= MAX_COOKIES && jar.heap_bytes() <= MAX_JAR, "{}", jar.heap_bytes());
        assert!(sent(&jar, &at, NOW_S).contains("c199=") && !sent(&jar, &at, NOW_S).contains("session="));
        (0..200).for_each(|i| jar.set(format!("d{i}=1").as_bytes(), &at, NOW_S));
        assert_eq!(jar.count(), MAX_COOKIES);
        jar.set(format!("big={}", "x".repeat(MAX_COOKIE)).as_bytes(), &at, NOW_S);
        assert!(!sent(&jar, &at, NOW_S).contains("big"));
        jar.clear();
        assert_eq!((jar.count(), jar.heap_bytes()), (0, 0));
    }

    proptest! {
        #[test]
        fn any_bytes_leave_a_jar_whole(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20), host in "[a-c.]{0,6}", path in "/[a-c/]{0,4}") {
            let mut jar = Jar::default();
            let at = site(&host, &path);
            values.iter().for_each(|v| jar.set(v, &at, NOW_S));
            let read: usize = jar.cookies().map(|c| c.size()).sum();
            prop_assert_eq!(read, jar.bytes.len());
            let mut out = Vec::new();
            jar.write(&at, NOW_S, &mut out);
            prop_assert!(!out.iter().any(|b| *b < b' ' && *b != b'\t'));
        }

        #[test]
        fn what_is_set_comes_back(values in prop::collection::vec(("[a-z]{1,3}", "[!#-+./-:<-~-]{0,9}"), 1..20)) {
            let mut jar = Jar::default();
            let at = site("h", "/p");
            let mut expect: Vec<(String, String)> = Vec::new();
            for (name, value) in values {
                jar.set(format!("{name}={value}").as_bytes(), &at, NOW_S);
                expect.retain(|(n, _)| *n != name);
                expect.push((name, value));
            }
            let expect: Vec<String> = expect.iter().map(|(n, v)| format!("{n}={v}")).collect();
            prop_assert_eq!(sent(&jar, &at, NOW_S), expect.join("; "));
        }
    }
}
