//! Header fields that are not sent to the target of a redirect.

/// Fields with credentials.
const CREDENTIALS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];
/// Fields that describe a body, or how a body is sent.
const BODY_HEADERS: [&str; 7] = [
    "content-type",
    "content-length",
    "content-encoding",
    "content-language",
    "content-location",
    "transfer-encoding",
    "expect",
];

/// Header fields of a step that are not sent to the target of its redirect, as with browsers and curl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedHeaders {
    /// Credentials: the target is a host, port or scheme other than the intended one.
    pub credentials: bool,
    /// Fields that describe a body: the request no longer has one.
    pub body: bool,
}

impl OmittedHeaders {
    /// Whether a field of this name is omitted.
    pub fn contains(self, name: &[u8]) -> bool {
        let among = |names: &[&str]| names.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()));
        self.credentials && among(&CREDENTIALS) || self.body && among(&BODY_HEADERS)
    }

    /// Removes these fields from the lines of a head, from an offset on.
    pub fn remove_from(self, head: &mut Vec<u8>, from: usize) {
        if self == OmittedHeaders::default() {
            return;
        }
        let mut at = from;
        while let Some(length) = memchr::memmem::find(&head[at..], b"\r\n").map(|end| end + 2) {
            let name = head[at..at + length].split(|b| *b == b':').next().unwrap_or_default();
            match self.contains(name) {
                true => drop(head.drain(at..at + length)),
                false => at += length,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_fields_are_removed() {
        let check = |credentials, body, expect: &str| {
            let mut head =
                b"GET / HTTP/1.1\r\nAuthorization: a: b\r\nContent-Type: c\r\nX: content-type: d\r\n\
                COOKIE: e\r\nProxy-Authorization: f\r\nContent-Length: 1\r\nAccept: *\r\n"
                    .to_vec();
            OmittedHeaders { credentials, body }.remove_from(&mut head, 16);
            let head = String::from_utf8(head).unwrap();
            let names: Vec<_> = head.lines().skip(1).map(|l| l.split(':').next().unwrap()).collect();
            assert_eq!(names.join(" "), expect);
        };
        check(false, false, "Authorization Content-Type X COOKIE Proxy-Authorization Content-Length Accept");
        check(true, false, "Content-Type X Content-Length Accept");
        check(false, true, "Authorization X COOKIE Proxy-Authorization Accept");
        check(true, true, "X Accept");
    }
}
