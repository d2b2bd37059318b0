//! A proxy's response to a request for a tunnel (CONNECT).

/// Longest head of a response to CONNECT.
const MAX_HEAD: usize = 16 * 1024;
/// Most header fields of a response to CONNECT.
const MAX_FIELDS: usize = 64;
/// Timeout message when a tunnel takes longer than the load's timeout.
pub const STALLED: &str = "the proxy did not answer CONNECT within the timeout";

/// A response to CONNECT, as far as received.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectReply {
    /// The response is not complete.
    Partial,
    /// The tunnel is open, and begins after this many bytes.
    Open(usize),
    /// The proxy refused, with this reason.
    Refused(String),
}

/// Reads a response to CONNECT. Interim responses are skipped; a successful response has no body, whatever its fields
/// say (RFC 9110 §9.3.6).
pub fn read(bytes: &[u8]) -> ConnectReply {
    let mut from = 0;
    loop {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        match response.parse(&bytes[from..]) {
            Ok(httparse::Status::Complete(length)) => match (response.code.unwrap_or(0), response.reason) {
                (100..=199, _) => from += length,
                (200..=299, _) => return ConnectReply::Open(from + length),
                (status, reason) => {
                    let message = format!("the proxy answered {status} {}", reason.unwrap_or_default());
                    return ConnectReply::Refused(message.trim_end().to_owned());
                }
            },
            Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return ConnectReply::Partial,
            Ok(httparse::Status::Partial) => {
                return ConnectReply::Refused(
                    "the head of the proxy's response is longer than 16 KiB".to_owned(),
                );
            }
            Err(_) => return ConnectReply::Refused("the proxy did not respond with HTTP".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &str) -> ConnectReply {
        ConnectReply::Refused(message.to_owned())
    }

    #[test]
    fn responses_to_connect() {
        for (response, expect) in [
            ("", ConnectReply::Partial),
            ("HTTP/1.1 200 OK\r\n", ConnectReply::Partial),
            ("HTTP/1.1 200 Connection established\r\n\r\n", ConnectReply::Open(39)),
            ("HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nabc", ConnectReply::Open(38)),
            ("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", ConnectReply::Open(54)),
            ("HTTP/1.1 102 Processing\r\n\r\nHTTP", ConnectReply::Partial),
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
                refused("the proxy answered 407 Proxy Authentication Required"),
            ),
            ("HTTP/1.1 502\r\n\r\n", refused("the proxy answered 502")),
            ("SSH-2.0-x\r\n\r\n", refused("the proxy did not respond with HTTP")),
        ] {
            assert_eq!(read(response.as_bytes()), expect, "{response:?}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(MAX_HEAD));
        assert_eq!(read(long.as_bytes()), refused("the head of the proxy's response is longer than 16 KiB"));
    }
}
