//! Connections to what loadlab serves while it runs: the page, the metrics.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A pause after a connection that could not be taken, as when no open file is left for it: it stays in the queue, and
/// asking for it again at once would take a core from what is being measured.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections, as they come, without end.
pub fn connections(listener: &TcpListener) -> impl Iterator<Item = TcpStream> {
    listener.incoming().filter_map(|stream| stream.map_err(|_| std::thread::park_timeout(PAUSE)).ok())
}
