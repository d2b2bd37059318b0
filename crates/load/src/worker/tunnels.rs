//! Connections through a proxy: what asks it for a tunnel, and what it answers. The other way, asking it for each
//! request with a whole URL, needs nothing here: requests are written so beforehand.
//!
//! A connection whose tunnel is asked for is still being made: the time that takes is in its connect time, and a
//! proxy that gives none is a failed connect, in the proxy's words.

use loadlab_record::outcome::Failure;

use crate::io::{ConnId, Ops};
use crate::measure::examples::Reason;
use crate::protocol::connect::{Answer, read};
use crate::spec::Proxy;
use crate::worker::Worker;
use crate::worker::slots::Phase;
use crate::worker::timeouts::NONE;

/// All connections of one worker that are made through a proxy.
pub(crate) struct Tunnels<'r> {
    spec: &'r Proxy,
    /// By connection: what came of the answer, where a tunnel was asked for and does not stand yet.
    asked: Vec<Option<Vec<u8>>>,
    /// What went wrong last, for examples.
    pub words: String,
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
