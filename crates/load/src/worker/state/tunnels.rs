//! Connections through a proxy: the request for a tunnel, and the answer. The other way, sending the proxy each
//! request with a whole URL, needs nothing here: requests are written that way beforehand.
//!
//! A connection that waits for its tunnel is still being made: the wait is part of its connect time, and a proxy that
//! refuses is a failed connect, in the proxy's words.

use crate::io::ConnId;
use crate::spec::Proxy;

/// All connections of one worker that are made through a proxy.
pub(crate) struct Tunnels<'r> {
    spec: &'r Proxy,
    /// By connection: the part of the answer received so far, if a tunnel was asked for and is not open yet.
    asked: Vec<Option<Vec<u8>>>,
    /// The last error, for examples.
    pub words: String,
}

impl<'r> Tunnels<'r> {
    pub fn new(spec: &'r Proxy) -> Self {
        Tunnels { spec, asked: Vec::new(), words: String::new() }
    }

    /// Asks for a tunnel to a host, if it needs one: the bytes to send.
    pub fn ask(&mut self, conn: ConnId, host: u16) -> Option<&'r [u8]> {
        let request = self.spec.connects.get(usize::from(host))?.as_deref()?;
        *self.asked(conn) = Some(Vec::new());
        Some(request)
    }

    /// The part of the proxy's answer received so far, while waiting for it.
    pub fn asked(&mut self, conn: ConnId) -> &mut Option<Vec<u8>> {
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
