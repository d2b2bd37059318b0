//! Connections through a proxy: what asks it for a tunnel, and what it answers. The other way, asking it for each
//! request with a whole URL, needs nothing here: requests are written so beforehand.
//!
//! A connection whose tunnel is asked for is still being made: the time that takes is in its connect time, and a
//! proxy that gives none is a failed connect, in the proxy's words.

use loadlab_record::outcome::Failure;

use crate::conn::Phase;
use crate::deadline::NONE;
use crate::io::{ConnId, Ops};
use crate::keeper::Reason;
use crate::spec::Proxy;
use crate::worker::Worker;

/// Longest head of an answer to CONNECT.
const MAX_HEAD: usize = 16 * 1024;
/// Most header fields of one.
const MAX_FIELDS: usize = 64;
/// What is told when a tunnel takes longer than the load's timeout.
pub const STALLED: &str = "the proxy did not answer CONNECT within the timeout";

/// All connections of one worker that are made through a proxy.
pub(crate) struct Tunnels<'r> {
    spec: &'r Proxy,
    /// By connection: what came of the answer, where a tunnel was asked for and does not stand yet.
    asked: Vec<Option<Vec<u8>>>,
    /// What went wrong last, for examples.
    pub words: String,
}

/// What an answer to CONNECT says so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is not complete.
    Partial,
    /// The tunnel stands, and begins behind so many bytes.
    Stands(usize),
    /// There is none.
    Refused(String),
}

impl<'r> Tunnels<'r> {
    pub fn new(spec: &'r Proxy) -> Self {
        Tunnels { spec, asked: Vec::new(), words: String::new() }
    }

    fn asked(&mut self, conn: ConnId) -> &mut Option<Vec<u8>> {
        let index = conn as usize;
        if self.asked.len() <= index {
            self.asked.resize_with(index + 1, || None);
        }
        &mut self.asked[index]
    }

    /// A tunnel was asked for on this connection, and there is none yet.
    pub fn is_asked(&self, conn: ConnId) -> bool {
        self.asked.get(conn as usize).is_some_and(Option::is_some)
    }

    /// The connection is closed.
    pub fn forget(&mut self, conn: ConnId) {
        if let Some(asked) = self.asked.get_mut(conn as usize) {
            *asked = None;
        }
    }
}

/// Reads an answer to CONNECT. Interim answers are passed over; an answer that is good has no body, whatever its
/// fields say (RFC 9110 §9.3.6).
pub fn read(bytes: &[u8]) -> Answer {
    let mut from = 0;
    loop {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        match response.parse(&bytes[from..]) {
            Ok(httparse::Status::Complete(length)) => match (response.code.unwrap_or(0), response.reason) {
                (100..=199, _) => from += length,
                (200..=299, _) => return Answer::Stands(from + length),
                (status, reason) => {
                    let words = format!("the proxy answered {status} {}", reason.unwrap_or_default());
                    return Answer::Refused(words.trim_end().to_owned());
                }
            },
            Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Answer::Partial,
            Ok(httparse::Status::Partial) => {
                return Answer::Refused("the head of the proxy's answer is longer than 16 KiB".to_owned());
            }
            Err(_) => return Answer::Refused("the proxy answered in something else than HTTP".to_owned()),
        }
    }
}

impl<'r> Worker<'r> {
    /// The connection to the proxy stands. True if it is to be asked for a tunnel first.
    pub(crate) fn asks_for_tunnel(&mut self, ops: &mut impl Ops<'r>, id: ConnId) -> bool {
        let host = self.conns[id as usize].host;
        let Some(tunnels) = &mut self.tunnels else { return false };
        let spec = tunnels.spec;
        let Some(connect) = spec.connects.get(usize::from(host)).and_then(Option::as_deref) else {
            return false;
        };
        *tunnels.asked(id) = Some(Vec::new());
        self.recorder.sent(ops.send(id, connect));
        true
    }

    /// Bytes on a connection whose tunnel is asked for.
    pub(crate) fn tunnel_answered(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: ConnId,
        (bytes, last): (&[u8], bool),
        now: u64,
    ) {
        let Some(tunnels) = &mut self.tunnels else { return };
        let asked = tunnels.asked(id);
        let Some(mut answer) = asked.take() else { return };
        answer.extend_from_slice(bytes);
        match read(&answer) {
            Answer::Partial => *asked = Some(answer),
            Answer::Refused(words) => self.no_tunnel(ops, id, words),
            Answer::Stands(length) => {
                self.reached(ops, id);
                // A server that speaks first may have done so already.
                let rest = &answer[length..];
                let is_open = !matches!(self.conns[id as usize].phase, Phase::Closed | Phase::Connecting);
                if !rest.is_empty() && is_open {
                    match self.secure {
                        None => self.plain(ops, id, (rest, last), now),
                        Some(_) => self.secure_received(ops, id, (rest, last), now),
                    }
                }
            }
        }
    }

    /// The proxy ended the connection instead of giving a tunnel. True if it was asked for one.
    pub(crate) fn tunnel_ended(&mut self, ops: &mut impl Ops<'r>, id: ConnId, error: Option<i32>) -> bool {
        if !self.tunnels.as_ref().is_some_and(|t| t.is_asked(id)) {
            return false;
        }
        let words = match error {
            None => "the proxy closed the connection instead of answering CONNECT".to_owned(),
            Some(error) => format!("the proxy broke the connection: {}", Reason::Os(error)),
        };
        self.no_tunnel(ops, id, words);
        true
    }

    /// There is no tunnel: the request has failed to connect.
    #[cold]
    fn no_tunnel(&mut self, ops: &mut impl Ops<'r>, id: ConnId, words: String) {
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.words = words;
            tunnels.forget(id);
        }
        if self.multiplex.is_some() {
            return self.streams_ended(ops, id, Some((Failure::Connect, Reason::Proxy)));
        }
        match self.conns[id as usize].exchange {
            NONE => {
                self.opened();
                self.shut(ops, id);
            }
            exchange => self.fail(ops, exchange, Failure::Connect, Reason::Proxy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &str) -> Answer {
        Answer::Refused(words.to_owned())
    }

    #[test]
    fn answers_to_connect() {
        for (answer, expect) in [
            ("", Answer::Partial),
            ("HTTP/1.1 200 OK\r\n", Answer::Partial),
            ("HTTP/1.1 200 Connection established\r\n\r\n", Answer::Stands(39)),
            ("HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nabc", Answer::Stands(38)),
            ("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", Answer::Stands(54)),
            ("HTTP/1.1 102 Processing\r\n\r\nHTTP", Answer::Partial),
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
                refused("the proxy answered 407 Proxy Authentication Required"),
            ),
            ("HTTP/1.1 502\r\n\r\n", refused("the proxy answered 502")),
            ("SSH-2.0-x\r\n\r\n", refused("the proxy answered in something else than HTTP")),
        ] {
            assert_eq!(read(answer.as_bytes()), expect, "{answer:?}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(MAX_HEAD));
        assert_eq!(read(long.as_bytes()), refused("the head of the proxy's answer is longer than 16 KiB"));
    }
}
