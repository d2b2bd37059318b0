//! Requests, prepared before the load starts.

use loadlab_record::counts::outcome::{Failure, Outcome};

use crate::protocol::http1;

/// A request, ready to be written in one piece.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET /path`, for display.
    pub label: String,
    /// Head and body in wire form.
    pub bytes: Vec<u8>,
    /// Length of the head within `bytes`.
    pub head_len: usize,
    /// The response to this method has no body, whatever its head says (HEAD).
    pub response_has_no_body: bool,
    /// The method is safe (RFC 9110 §9.2.1): repeating the request does no harm.
    pub safe: bool,
    /// Where it goes: index into the load's hosts.
    pub host: u16,
    /// Statuses that count as ok; empty: any below 400.
    pub ok_statuses: Vec<u16>,
    /// Indices into the load's tags.
    pub tags: Vec<u16>,
}

impl Request {
    /// The outcome of a response with this status.
    #[inline]
    pub fn judge(&self, status: u16) -> Outcome {
        let ok = match self.ok_statuses.as_slice() {
            [] => status < 400,
            statuses => statuses.contains(&status),
        };
        match status {
            _ if ok => Outcome::Ok,
            500.. => Outcome::Failed(Failure::Http5xx),
            400.. => Outcome::Failed(Failure::Http4xx),
            _ => Outcome::Failed(Failure::Check),
        }
    }
}

/// Parts that a request is built from.
#[derive(Clone, Debug, Default)]
pub struct RequestParts {
    /// HTTP method.
    pub method: String,
    /// Host as in the URL, for the `Host` header (with the port unless it is the scheme's).
    pub host: String,
    /// Path and query.
    pub path: String,
    /// Headers in order, in addition to those generated here.
    pub headers: Vec<(String, String)>,
    /// Body, if any.
    pub body: Option<Vec<u8>>,
    /// Whether connections are reused; if not, the request says `Connection: close`.
    pub keep_alive: bool,
}

/// A part of a request that cannot go onto the wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A method that is not a token.
    #[error("`{0}` is not an HTTP method\nhint: use one such as GET, POST or DELETE")]
    Method(String),
    /// A header name that is not a token.
    #[error("`{0}` is not a header name")]
    HeaderName(String),
    /// A header value with a line break or another control character.
    #[error(
        "the value of header `{0}` contains a control character\nhint: headers are single lines; send bytes in the body"
    )]
    HeaderValue(String),
    /// More than one `Host`.
    #[error("a request has only one header `Host`, which names the host\nhint: leave the others out")]
    Hosts,
    /// A path with spaces or control characters.
    #[error(
        "the path `{0}` contains spaces or control characters\nhint: percent-encode them (`%20` for a space)"
    )]
    Path(String),
}

impl RequestParts {
    /// Writes head and body in wire form.
    pub fn build(self) -> Result<Request, RequestError> {
        if !http1::is_token(&self.method) {
            return Err(RequestError::Method(self.method));
        }
        if self.path.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(RequestError::Path(self.path));
        }
        let given = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")).count() > 1 {
            return Err(RequestError::Hosts);
        }
        if !given("host") {
            head.push_str(&format!("Host: {}\r\n", self.host));
        }
        if !self.keep_alive && !given("connection") {
            head.push_str("Connection: close\r\n");
        }
        for (name, value) in &self.headers {
            if !http1::is_token(name) {
                return Err(RequestError::HeaderName(name.clone()));
            }
            if value.bytes().any(|b| (b < b' ' && b != b'\t') || b == 0x7f) {
                return Err(RequestError::HeaderValue(name.clone()));
            }
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let takes_body = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        if !given("content-length") && !given("transfer-encoding") && (self.body.is_some() || takes_body) {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.as_ref().map_or(0, Vec::len)));
        }
        head.push_str("\r\n");
        let head_len = head.len();
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        Ok(Request {
            label: format!("{} {}", self.method, self.path),
            bytes,
            head_len,
            response_has_no_body: self.method == "HEAD",
            safe: matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE"),
            host: 0,
            ok_statuses: Vec::new(),
            tags: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> RequestParts {
        RequestParts {
            method: "GET".into(),
            host: "localhost:8080".into(),
            path: "/a?b=c".into(),
            keep_alive: true,
            ..RequestParts::default()
        }
    }

    #[test]
    fn a_get_is_one_head() {
        let request = parts().build().unwrap();
        assert_eq!(request.bytes, b"GET /a?b=c HTTP/1.1\r\nHost: localhost:8080\r\n\r\n");
        assert_eq!(request.head_len, request.bytes.len());
    }

    #[test]
    fn a_post_says_its_length_and_given_headers_win() {
        let request = RequestParts {
            method: "POST".into(),
            body: Some(b"hello".to_vec()),
            keep_alive: false,
            headers: vec![("HOST".into(), "example".into()), ("X-A".into(), "1".into())],
            ..parts()
        }
        .build()
        .unwrap();
        assert_eq!(
            String::from_utf8(request.bytes).unwrap(),
            "POST /a?b=c HTTP/1.1\r\nConnection: close\r\nHOST: example\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello"
        );
    }

    #[test]
    fn what_would_break_the_head_is_refused() {
        let bad = |change: &dyn Fn(&mut RequestParts)| {
            let mut p = parts();
            change(&mut p);
            p.build().unwrap_err()
        };
        assert!(matches!(bad(&|p| p.method = "GE T".into()), RequestError::Method(_)));
        assert!(matches!(bad(&|p| p.path = "/a b".into()), RequestError::Path(_)));
        assert!(matches!(
            bad(&|p| p.headers.push(("X".into(), "a\r\nY: b".into()))),
            RequestError::HeaderValue(_)
        ));
        let host = |name: &str| (name.to_owned(), "a".to_owned());
        assert!(matches!(bad(&|p| p.headers.extend(["Host", "host"].map(host))), RequestError::Hosts));
        assert!(matches!(bad(&|p| p.headers.push(("X:".into(), "a".into()))), RequestError::HeaderName(_)));
    }
}
