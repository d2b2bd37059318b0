//! Access control: requests are admitted if they know the token, name this machine as their host, and come from the
//! page itself or from a user who followed its link. Pure: it takes only the bytes of a request's head.
//!
//! A page of another site can make a browser send requests to loopback. It does not know the token; a name that it
//! lets resolve to loopback (DNS rebinding) shows in `Host`; and anything it could request other than a page to view
//! is marked by the browser in `Sec-Fetch-Site` and `Origin`.

use std::net::IpAddr;

/// An admitted request.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted<'h> {
    /// What follows the token, without slashes around it.
    pub path: &'h str,
    /// A HEAD request: only the head of the answer is wanted.
    pub is_head: bool,
}

/// A refused request.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The answer's status.
    pub status: u16,
    /// The reason in the status line.
    pub reason: &'static str,
    /// A message for the reader.
    pub message: &'static str,
}

impl Refusal {
    /// The request is not HTTP.
    pub const GARBLED: Refusal =
        Refusal { status: 400, reason: "Bad Request", message: "this is not an HTTP/1.1 request" };
    /// There is nothing at this path.
    pub const NOT_FOUND: Refusal =
        Refusal { status: 404, reason: "Not Found", message: "there is nothing here" };
    const METHOD: Refusal =
        Refusal { status: 405, reason: "Method Not Allowed", message: "only GET and HEAD are allowed" };
}

const fn forbidden(message: &'static str) -> Refusal {
    Refusal { status: 403, reason: "Forbidden", message }
}

const TOKEN: Refusal = forbidden("the address lacks its token: follow the link that loadlab printed");
const HOST: Refusal =
    forbidden("only this machine may connect: use 127.0.0.1, [::1] or localhost in the address");
const ORIGIN: Refusal = forbidden("requests from other pages are refused");

/// Checks the head of a request for the page, whose path begins with the token.
///
/// # Errors
/// Why it is refused.
pub fn admit<'h>(head: &'h [u8], token: &str) -> Result<Admitted<'h>, Refusal> {
    admitted(head, Some(token), Host::OfThisMachine)
}

/// As [`admit`], without a token.
///
/// # Errors
/// Why it is refused.
pub fn admit_without_token(head: &[u8], host: Host) -> Result<Admitted<'_>, Refusal> {
    admitted(head, None, host)
}

/// Which hosts a request may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Names and addresses of loopback.
    OfThisMachine,
    /// Any host: the names that a network has for this machine are unknown here.
    Any,
}

fn admitted<'h>(head: &'h [u8], token: Option<&str>, hosts: Host) -> Result<Admitted<'h>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    if !request.parse(head).is_ok_and(|s| s.is_complete()) {
        return Err(Refusal::GARBLED);
    }
    let (Some(method), Some(path)) = (request.method, request.path) else { return Err(Refusal::GARBLED) };
    let all = |name: &str| {
        let of = request.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value);
        of.map(|v| str::from_utf8(v).unwrap_or("?").trim()).collect::<Vec<_>>()
    };
    let [host] = all("host")[..] else { return Err(HOST) };
    if hosts == Host::OfThisMachine && !is_own(without_port(host)) {
        return Err(HOST);
    }
    let mut path = path.strip_prefix('/').ok_or(Refusal::GARBLED)?;
    if let Some(token) = token {
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        if !is_same(first, token) {
            return Err(TOKEN);
        }
        path = rest;
    }
    let is_from_itself = all("origin").iter().all(|o| o.strip_prefix("http://") == Some(host));
    // The page's link may be anywhere, such as in a web-based terminal; other sites cannot read what it opens.
    let is_navigation = all("sec-fetch-mode") == ["navigate"] && all("sec-fetch-dest") == ["document"];
    let is_same_origin = all("sec-fetch-site").iter().all(|s| matches!(*s, "same-origin" | "none"));
    if !(is_from_itself && (is_same_origin || is_navigation)) {
        return Err(ORIGIN);
    }
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    match method {
        "GET" => Ok(Admitted { path, is_head: false }),
        "HEAD" => Ok(Admitted { path, is_head: true }),
        _ => Err(Refusal::METHOD),
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Compares in constant time.
fn is_same(given: &str, token: &str) -> bool {
    let differ = given.bytes().zip(token.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == token.len() && differ == 0
}

/// Whether a host is one by which a browser on this machine reaches loopback.
fn is_own(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN_OF_TESTS: &str = "0123456789abcdef0123456789abcdef";

    #[track_caller]
    fn check(request: &str, expect: Result<&str, u16>) {
        let head = request.replace("TOKEN", TOKEN_OF_TESTS).replace('\n', "\r\n") + "\r\n\r\n";
        let reported = admit(head.as_bytes(), TOKEN_OF_TESTS);
        assert_eq!(
            reported.as_ref().map(|a| a.path).map_err(|r| r.status),
            expect,
            "{request}\n{reported:?}"
        );
    }

    #[test]
    fn the_page_and_its_events_are_let_in() {
        for host in ["127.0.0.1:4711", "localhost:9000", "LOCALHOST", "[::1]:80", "127.0.0.1", "127.8.8.8:1"]
        {
            check(&format!("GET /TOKEN/ HTTP/1.1\nHost: {host}"), Ok(""));
        }
        check("GET /TOKEN HTTP/1.1\nHost: localhost:1", Ok(""));
        check("GET /TOKEN/?x=1 HTTP/1.1\nHost: localhost:1", Ok(""));
        check("HEAD /TOKEN/ HTTP/1.1\nHost: localhost:1", Ok(""));
        let own = "Host: localhost:1\nOrigin: http://localhost:1\nSec-Fetch-Site: same-origin\nSec-Fetch-Mode: cors";
        check(&format!("GET /TOKEN/live HTTP/1.1\n{own}"), Ok("live"));
        // typed, or followed from a link in a terminal
        check("GET /TOKEN/ HTTP/1.1\nHost: localhost:1\nSec-Fetch-Site: none", Ok(""));
        let link = "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document";
        check(&format!("GET /TOKEN/ HTTP/1.1\nHost: localhost:1\n{link}"), Ok(""));
    }

    #[test]
    fn without_the_token_nothing_is_reported() {
        let wrong =
            ["", "0123456789abcdef0123456789abcdee", "TOKEN0", "0123456789abcdef", "live", "favicon.ico"];
        for path in wrong {
            check(&format!("GET /{path} HTTP/1.1\nHost: 127.0.0.1:1"), Err(403));
            check(&format!("GET /{path}/live HTTP/1.1\nHost: 127.0.0.1:1"), Err(403));
        }
        check("GET /?token=TOKEN HTTP/1.1\nHost: 127.0.0.1:1", Err(403));
        check("GET //TOKEN/ HTTP/1.1\nHost: 127.0.0.1:1", Err(403));
    }

    #[test]
    fn another_name_for_this_machine_is_refused() {
        for host in [
            "evil.example:80",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0:80",
            "",
            "localhost.",
            "[::]:1",
        ] {
            check(&format!("GET /TOKEN/ HTTP/1.1\nHost: {host}"), Err(403));
        }
        check("GET /TOKEN/ HTTP/1.1", Err(403));
        check("GET /TOKEN/ HTTP/1.1\nHost: 127.0.0.1\nHost: evil.example", Err(403));
    }

    #[test]
    fn another_origin_is_refused() {
        let request = |more: &str| format!("GET /TOKEN/live HTTP/1.1\nHost: 127.0.0.1:1\n{more}");
        for more in [
            "Origin: http://evil.example",
            "Origin: https://127.0.0.1:1",
            "Origin: http://127.0.0.1:2",
            "Origin: null",
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Site: same-site",
            "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: iframe",
            "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: script",
        ] {
            check(&request(more), Err(403));
        }
    }

    #[test]
    fn metrics_have_no_token_and_the_same_guard() {
        let check = |host: Host, request: &str, expect: Result<&str, u16>| {
            let head = request.replace('\n', "\r\n") + "\r\n\r\n";
            let admitted = admit_without_token(head.as_bytes(), host);
            assert_eq!(admitted.as_ref().map(|a| a.path).map_err(|r| r.status), expect, "{request}");
        };
        let (own, any) = (Host::OfThisMachine, Host::Any);
        check(own, "GET /metrics HTTP/1.1\nHost: 127.0.0.1:9464", Ok("metrics"));
        check(own, "GET / HTTP/1.1\nHost: localhost:9464", Ok(""));
        check(own, "GET /metrics HTTP/1.1\nHost: evil.example:9464", Err(403));
        check(own, "GET /metrics HTTP/1.1", Err(403));
        check(any, "GET /metrics HTTP/1.1\nHost: load.internal:9464", Ok("metrics"));
        for host in [own, any] {
            let head = "GET /metrics HTTP/1.1\nHost: 127.0.0.1";
            check(host, &format!("{head}\nOrigin: http://evil.example"), Err(403));
            check(host, &format!("{head}\nSec-Fetch-Site: cross-site"), Err(403));
            check(host, "POST /metrics HTTP/1.1\nHost: 127.0.0.1", Err(405));
            check(host, "nonsense", Err(400));
        }
    }

    #[test]
    fn what_is_no_look_is_refused() {
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            check(&format!("{method} /TOKEN/ HTTP/1.1\nHost: localhost"), Err(405));
        }
        check("GET http://localhost/TOKEN/ HTTP/1.1\nHost: localhost", Err(400));
        check("\u{16}\u{3}\u{1}", Err(400));
        check("SSH-2.0-client", Err(400));
    }
}
