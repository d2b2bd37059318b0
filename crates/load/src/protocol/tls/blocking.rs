//! TLS over a blocking connection, for uses other than loads: a collector that metrics are pushed to. Certificates are
//! verified and errors reported as everywhere else.

use std::io::{self, Read, Write};

use rustls::{ClientConnection, Error, InvalidMessage, StreamOwned};

use super::{ServerName, TlsConfig, TlsError};

/// A connection over `S`; the first write or read performs the handshake.
pub struct Blocking<S: Read + Write>(StreamOwned<ClientConnection, S>);

impl TlsConfig {
    /// A connection to the host of this name over an existing connection.
    ///
    /// # Errors
    /// The settings do not allow a connection.
    pub fn over<S: Read + Write>(
        &self,
        name: &ServerName<'static>,
        below: S,
    ) -> Result<Blocking<S>, TlsError> {
        let connection = ClientConnection::new(self.client.clone(), name.clone()).map_err(TlsError::of)?;
        Ok(Blocking(StreamOwned::new(connection, below)))
    }
}

impl<S: Read + Write> Blocking<S> {
    /// The error in the words of [`TlsError`], if TLS is its cause.
    fn with_reason(&self, error: io::Error) -> io::Error {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
        match cause {
            Some(Error::InvalidMessage(InvalidMessage::InvalidContentType))
                if self.0.conn.is_handshaking() =>
            {
                io::Error::other(TlsError::NotTls)
            }
            Some(cause) => io::Error::other(TlsError::of(cause.clone())),
            None => error,
        }
    }
}

impl<S: Read + Write> Read for Blocking<S> {
    /// An end without close_notify counts as an end: a reader that needs the whole message knows its length.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other.map_err(|e| self.with_reason(e)),
        }
    }
}

impl<S: Read + Write> Write for Blocking<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|e| self.with_reason(e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|e| self.with_reason(e))
    }
}
