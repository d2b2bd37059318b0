//! Connections through a proxy: what asks it for a tunnel, and what it answers. The other way, asking it for each
//! request with a whole URL, needs nothing here: requests are written so beforehand.
//!
//! A connection whose tunnel is asked for is still being made: the time that takes is in its connect time, and a
//! proxy that gives none is a failed connect, in the proxy's words.

use crate::io::ConnId;
use crate::spec::Proxy;

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

    /// Asks for a tunnel to a host, if it needs one: what is to be sent.
    pub fn ask(&mut self, conn: ConnId, host: u16) -> Option<&'r [u8]> {
        let request = self.spec.connects.get(usize::from(host))?.as_deref()?;
        *self.asked(conn) = Some(Vec::new());
        Some(request)
    }

    /// What came of the proxy's answer, while it is waited for.
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
