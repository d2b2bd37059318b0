//! Answers HTTP requests while a load runs: shared by the live page and the metrics. Clients that are slow to send a
//! request or to read the answer delay no others, and take no more than a few threads for a short time.

pub mod guard;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use loadlab_system::background;

use guard::Refusal;

/// Deadline for a client to send its request, and again for it to read the answer, however slowly bytes trickle.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// The most connections at a time; viewing one run needs no more.
const MOST_CONNECTIONS: usize = 32;
/// The longest head of a request, in bytes.
const MOST_HEAD: usize = 16 << 10;
/// Pause after `accept` has failed, for example because no file descriptor was left: the connection stays in the
/// backlog, and retrying at once would take a core from what is being measured.
const PAUSE: Duration = Duration::from_millis(100);

/// Sent with every answer: nothing is cached, sniffed, framed or shared with another origin.
pub const SECURITY_HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
     Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\nX-Frame-Options: DENY\r\n";

/// Answers each connection on a separate thread, until the program ends. Connections beyond [`MOST_CONNECTIONS`] are
/// closed.
///
/// # Errors
/// No thread could be started to wait for connections.
pub fn answer_each(
    listener: TcpListener,
    name: &'static str,
    answer: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    let (answer, taken) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    spawn(name, move || {
        for stream in connections(&listener) {
            let Some(place) = ConnectionPermit::take(&taken) else { continue };
            let answer = answer.clone();
            // If no thread can be started, dropping the closure closes the connection and frees its place.
            let _ = spawn(name, move || {
                let _place = place;
                // A client that went away misses its answer; nothing else is affected.
                let _ = answer(stream);
            });
        }
    })
}

/// One of a limited number of connections.
struct ConnectionPermit(Arc<AtomicUsize>);

impl ConnectionPermit {
    fn take(taken: &Arc<AtomicUsize>) -> Option<ConnectionPermit> {
        let place = ConnectionPermit(taken.clone());
        (taken.fetch_add(1, Ordering::AcqRel) < MOST_CONNECTIONS).then_some(place)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Connections as they are accepted, without end.
fn connections(listener: &TcpListener) -> impl Iterator<Item = TcpStream> {
    listener.incoming().filter_map(|stream| stream.map_err(|_| std::thread::park_timeout(PAUSE)).ok())
}

/// Starts a detached thread, at a lower priority than the threads that send.
///
/// # Errors
/// No thread can be started.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let behind_the_load = move || {
        background::enter();
        work();
    };
    std::thread::Builder::new().name(name.into()).spawn(behind_the_load).map(drop)
}

/// Reads a request up to the end of its head; `None` if the head is cut off or too long.
///
/// # Errors
/// The I/O error of the connection.
pub fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut stream = Within::new(stream, CLIENT_TIMEOUT);
    let mut head = Vec::new();
    let mut chunk = [0; 2048];
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        if head.len() > MOST_HEAD {
            return Ok(None);
        }
        match stream.read(&mut chunk)? {
            0 => return Ok(None),
            n => head.extend_from_slice(&chunk[..n]),
        }
    }
    Ok(Some(head))
}

/// Writes a complete answer; `fields` are header lines, each with its CRLF.
///
/// # Errors
/// The I/O error of the connection, such as a timeout if the client does not read the answer in time.
pub fn write_answer(
    stream: &mut TcpStream,
    status: &str,
    fields: &str,
    body: &str,
    is_head: bool,
) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n{SECURITY_HEADERS}Connection: close\r\n\r\n"
    );
    let mut stream = Within::new(stream, CLIENT_TIMEOUT);
    stream.write_all(head.as_bytes())?;
    if is_head { Ok(()) } else { stream.write_all(body.as_bytes()) }
}

/// Answers a refused request.
///
/// # Errors
/// The I/O error of the connection.
pub fn refuse(stream: &mut TcpStream, refusal: &Refusal) -> io::Result<()> {
    let Refusal { status, reason, message } = refusal;
    let fields = "Content-Type: text/plain; charset=utf-8\r\n";
    write_answer(stream, &format!("{status} {reason}"), fields, &format!("{message}\n"), false)
}

/// A connection with one deadline for everything, even if a few bytes arrive or leave now and then.
pub struct Within<S> {
    socket: S,
    until: Instant,
}

impl<S: std::borrow::Borrow<TcpStream>> Within<S> {
    /// Sets the deadline: `time` from now.
    pub fn new(socket: S, time: Duration) -> Within<S> {
        Within { socket, until: Instant::now() + time }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl<S: std::borrow::Borrow<TcpStream>> Read for Within<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut socket = self.socket.borrow();
        socket.set_read_timeout(self.left()?)?;
        socket.read(buffer)
    }
}

impl<S: std::borrow::Borrow<TcpStream>> Write for Within<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = self.socket.borrow();
        socket.set_write_timeout(self.left()?)?;
        socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A service that echoes a byte when the test allows it, and reports each request.
    fn service() -> (SocketAddr, Receiver<u8>, Sender<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ((asked, hears), (goes, go)) = (channel(), channel::<()>());
        let go = Mutex::new(go);
        answer_each(listener, "test", move |mut stream| {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            let _ = asked.send(byte[0]);
            // `q` is answered at once.
            if byte[0] != b'q' {
                let _ = go.lock().unwrap().recv();
            }
            stream.write_all(&byte)
        })
        .unwrap();
        (address, hears, goes)
    }

    fn ask(address: SocketAddr, byte: u8) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        // A connection beyond the maximum may be closed before the write.
        let _ = stream.write_all(&[byte]);
        stream
    }

    fn answer(mut stream: TcpStream) -> Option<u8> {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok().map(|()| byte[0])
    }

    #[test]
    fn a_slow_client_does_not_delay_others() {
        let (address, hears, goes) = service();
        let silent = TcpStream::connect(address).unwrap();
        let slow = ask(address, b's');
        assert_eq!(hears.recv(), Ok(b's'));
        assert_eq!(answer(ask(address, b'q')), Some(b'q'));
        goes.send(()).unwrap();
        assert_eq!(answer(slow), Some(b's'));
        drop(silent);
    }

    #[test]
    fn connections_are_bounded_and_their_places_come_back() {
        let (address, hears, goes) = service();
        let held: Vec<TcpStream> = (0..MOST_CONNECTIONS).map(|_| ask(address, b'h')).collect();
        held.iter().for_each(|_| assert_eq!(hears.recv(), Ok(b'h')));
        assert_eq!(answer(ask(address, b'q')), None, "one too many is closed");
        drop(goes);
        held.into_iter().for_each(|held| assert_eq!(answer(held), Some(b'h')));
        // A place becomes free a moment after its answer.
        while answer(ask(address, b'q')).is_none() {}
    }
}
