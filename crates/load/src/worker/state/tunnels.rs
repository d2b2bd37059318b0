//! Connections through a proxy: the request for a tunnel, and the response. The alternative, sending the proxy each
//! request with an absolute URL, needs nothing here: requests are written that way beforehand.
//!
//! A connection that waits for its tunnel is still being opened: the wait is part of its connect time, and a refusal by
//! the proxy is a failed connect, in the proxy's words.

use crate::io::ConnId;
use crate::spec::Proxy;

/// All connections of one worker that are opened through a proxy.
pub(crate) struct Tunnels<'r> {
    spec: &'r Proxy,
    /// By connection: the part of the response received so far, if a tunnel was asked for and is not open yet.
    asked: Vec<Option<Vec<u8>>>,
    /// The last error, for examples.
    pub last_error: String,
}

impl<'r> Tunnels<'r> {
    pub fn new(spec: &'r Proxy) -> Self {
        Tunnels { spec, asked: Vec::new(), last_error: String::new() }
    }

    /// Asks for a tunnel to a host, if it needs one: returns the bytes to send.
    pub fn ask(&mut self, conn: ConnId, host: u16) -> Option<&'r [u8]> {
        let request = self.spec.connects.get(usize::from(host))?.as_deref()?;
        *self.asked(conn) = Some(Vec::new());
        Some(request)
    }

    /// The part of the proxy's response received so far, while waiting for it.
    pub fn asked(&mut self, conn: ConnId) -> &mut Option<Vec<u8>> {
        let index = conn as usize;
        if self.asked.len() <= index {
            self.asked.resize_with(index + 1, || None);
        }
        &mut self.asked[index]
    }

    /// Whether a tunnel was asked for on this connection and is not open yet.
    pub fn is_asked(&self, conn: ConnId) -> bool {
        self.asked.get(conn as usize).is_some_and(Option::is_some)
    }

    /// Forgets a connection that is being closed.
    pub fn forget(&mut self, conn: ConnId) {
        if let Some(asked) = self.asked.get_mut(conn as usize) {
            *asked = None;
        }
    }
}
