//! Determines which protocol a server speaks before the load starts, by one TLS handshake per host that offers HTTP/2
//! and HTTP/1.1 (ALPN, RFC 7301), through a proxy's tunnel if the load uses one. No request is sent.
//!
//! A load uses a single protocol on all its connections. If a server later negotiates a different one, requests on that
//! connection fail as `tls`, with a specific message.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use loadlab_load::protocol::connect::{self, ConnectReply};
use loadlab_load::protocol::tls::{ServerName, Tls, TlsConfig, TlsEvent};
use loadlab_load::spec::{Proxy, TlsSpec};
use loadlab_load::target::Address;
use loadlab_record::text::first_line;

/// Maximum wait for a host, whatever the load's timeout.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Whether every host accepts HTTP/2. `hosts` are their addresses, or the proxy's; each host is reached at the first
/// address that accepts a connection.
///
/// # Errors
/// No connection, no tunnel or no handshake; in words, with the address.
pub fn all_take_http2(
    tls: &TlsSpec,
    hosts: &[Vec<Address>],
    proxy: Option<&Proxy>,
    within: Duration,
) -> Result<bool, String> {
    let mut all = true;
    for (number, (name, addresses)) in tls.names.iter().zip(hosts).enumerate() {
        // Without TLS there is no negotiation.
        let Some(name) = name else { return Ok(false) };
        let connect = proxy.and_then(|p| p.connects.get(number)?.as_deref());
        let host = Host { config: &tls.config, name, connect };
        all &= host.takes_http2(addresses, within.min(MAX_WAIT))?;
    }
    Ok(all)
}

/// A host to negotiate with.
struct Host<'a> {
    config: &'a TlsConfig,
    name: &'a ServerName<'static>,
    /// The request that opens a tunnel to it, sent to the proxy.
    connect: Option<&'a [u8]>,
}

impl Host<'_> {
    fn takes_http2(&self, addresses: &[Address], within: Duration) -> Result<bool, String> {
        let mut why = "it has no address".to_owned();
        for address in addresses {
            // Only hosts with a name and a port use TLS.
            let Address::Inet(address) = address else { continue };
            let socket = match TcpStream::connect_timeout(address, within) {
                Ok(socket) => socket,
                Err(error) => {
                    why = format!("cannot connect to {address}: {}", plainly(&error));
                    continue;
                }
            };
            let mut line = Line { socket, until: Instant::now() + within, buffer: vec![0; 16 * 1024] };
            let agreed = self.tunnel(&mut line).and_then(|came| self.shake(&mut line, came));
            return agreed.map_err(|why| format!("{address}: {why}"));
        }
        Err(why)
    }

    /// Asks the proxy, if there is one, for a tunnel; returns bytes that already arrived through it.
    fn tunnel(&self, line: &mut Line) -> Result<Vec<u8>, String> {
        let mut came = Vec::new();
        let Some(connect) = self.connect else { return Ok(came) };
        line.socket.write_all(connect).map_err(|e| plainly(&e))?;
        loop {
            match line.read(connect::STALLED)? {
                [] => return Err("connection closed by the proxy".to_owned()),
                bytes => came.extend_from_slice(bytes),
            }
            match connect::read(&came) {
                ConnectReply::Partial => {}
                ConnectReply::Refused(message) => return Err(message),
                ConnectReply::Open(length) => return Ok(came.split_off(length)),
            }
        }
    }

    /// Does a handshake followed by a clean shutdown; returns whether HTTP/2 was agreed.
    fn shake(&self, line: &mut Line, mut came: Vec<u8>) -> Result<bool, String> {
        let first = |error: &dyn std::fmt::Display| first_line(&error.to_string());
        let (mut wire, mut opened) = (Vec::new(), false);
        let mut tls = Tls::new(self.config, self.name).map_err(|e| first(&e))?;
        tls.start(&mut wire).map_err(|e| first(&e))?;
        loop {
            let received = tls.receive(&mut came, &mut wire, &mut |event| opened |= event == TlsEvent::Open);
            if let Err(error) = received {
                // Send the alert to the server; whether it arrives does not matter.
                let _ = line.socket.write_all(&wire);
                return Err(first(&error));
            }
            if opened {
                break;
            }
            line.socket.write_all(&wire).map_err(|e| plainly(&e))?;
            wire.clear();
            came.clear();
            match line.read("no TLS handshake within the timeout")? {
                [] => return Err("connection closed by the server during the TLS handshake".to_owned()),
                bytes => came.extend_from_slice(bytes),
            }
        }
        let agreed = tls.handshake().and_then(|h| h.alpn).is_some_and(|alpn| alpn == b"h2");
        tls.close(&mut wire);
        let _ = line.socket.write_all(&wire);
        Ok(agreed)
    }
}

/// A connection with a deadline.
struct Line {
    socket: TcpStream,
    until: Instant,
    buffer: Vec<u8>,
}

impl Line {
    /// The next bytes; empty if the peer closed. `late` is the error if nothing arrives in time.
    fn read(&mut self, late: &str) -> Result<&[u8], String> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late.to_owned());
            }
            self.socket.set_read_timeout(Some(left)).map_err(|e| plainly(&e))?;
            match self.socket.read(&mut self.buffer) {
                Ok(n) => return Ok(&self.buffer[..n]),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
                    ) => {}
                Err(error) => return Err(plainly(&error)),
            }
        }
    }
}

fn plainly(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}
