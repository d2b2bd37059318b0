//! A WebSocket server, based on another implementation, that keeps its own records. Its behaviour depends on the path;
//! it must not know anything of loadlab.

use super::ports;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

/// What the server counted.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// WebSockets opened, by path.
    pub opened: BTreeMap<String, u64>,
    /// Text messages received, and how often each.
    pub texts: BTreeMap<String, u64>,
    /// Binary messages received.
    pub binaries: Vec<Vec<u8>>,
    /// Close frames received before the server sent one.
    pub goodbyes: u64,
    /// Connections that ended without a close frame.
    pub cut: u64,
    pub pongs: u64,
    /// Header fields of the last opening request.
    pub headers: BTreeMap<String, String>,
    room: BTreeMap<u64, Wire>,
    seats: u64,
    /// Number of connections still open.
    present: u64,
}

/// A socket with several writers, each of which writes whole frames.
#[derive(Clone, Debug)]
struct Wire(Arc<(TcpStream, Mutex<()>)>);

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&self.0.0).read(into)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _one_at_a_time = self.0.1.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.0.0).write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Chat {
    pub address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

type Socket = WebSocket<Wire>;

impl Chat {
    pub fn start() -> Chat {
        let listener = ports::listener();
        let chat = Chat { address: listener.local_addr().unwrap(), books: Arc::default() };
        let books = chat.books.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let books = books.clone();
                thread::spawn(move || serve(stream, &books));
            }
        });
        chat
    }

    pub fn books(&self) -> Books {
        locked(&self.books).clone()
    }

    /// The records once all connections have ended: a peer sees the server's close frame before the server records it.
    pub fn settled(&self) -> Books {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let books = self.books();
            if books.present == 0 {
                return books;
            }
            assert!(Instant::now() < until, "somebody does not leave: {books:?}");
            std::thread::yield_now();
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("ws://{}{path}", self.address)
    }
}

fn locked(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: TcpStream, books: &Mutex<Books>) {
    stream.set_nodelay(true).unwrap();
    let wire = Wire(Arc::new((stream, Mutex::new(()))));
    let mut path = String::new();
    #[allow(clippy::result_large_err, reason = "the callback's type is not ours to choose")]
    let decide = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        path = request.uri().to_string();
        let headers = request.headers().iter();
        locked(books).headers =
            headers.map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned())).collect();
        if let Some(offered) = request.headers().get("sec-websocket-protocol") {
            let first = offered.to_str().unwrap().split(", ").next().unwrap().to_owned();
            response.headers_mut().append("sec-websocket-protocol", first.parse().unwrap());
        }
        let status = match path.as_str() {
            "/forbidden" => 403,
            "/busy" => 503,
            "/page" => 302,
            _ => {
                if path == "/wrong" {
                    response.headers_mut().insert("sec-websocket-accept", "AAAA".parse().unwrap());
                }
                return Ok(response);
            }
        };
        let mut refusal = ErrorResponse::new(Some("not here".to_owned()));
        *refusal.status_mut() = status.try_into().unwrap();
        Err(refusal)
    };
    let Ok(mut socket) = tungstenite::accept_hdr(wire.clone(), decide) else { return };
    let seat = {
        let mut books = locked(books);
        let name = path.split('?').next().unwrap().to_owned();
        *books.opened.entry(name).or_default() += 1;
        books.seats += 1;
        books.present += 1;
        let seat = books.seats;
        if path.starts_with("/chat") {
            books.room.insert(seat, wire.clone());
        }
        seat
    };
    let polite = converse(&mut socket, &path, seat, books);
    let mut books = locked(books);
    books.room.remove(&seat);
    books.present -= 1;
    match polite {
        Some(true) => books.goodbyes += 1,
        Some(false) => books.cut += 1,
        None => {}
    }
    drop(books);
    let _ = wire.0.0.shutdown(Shutdown::Both);
}

/// Talks until one side stops: whether the peer sent a close frame; `None` if the server ended the connection.
fn converse(socket: &mut Socket, path: &str, seat: u64, books: &Mutex<Books>) -> Option<bool> {
    match path.split('?').next().unwrap() {
        "/chat" => say(socket, &format!("{{\"type\": \"welcome\", \"seat\": {seat}}}")),
        "/leaves" => {
            close(socket, CloseCode::Away);
            return None;
        }
        "/drops" => return None,
        "/pings" => (0..3).for_each(|_| socket.send(Message::Ping("?".into())).unwrap()),
        _ => {}
    }
    loop {
        let heard = match socket.read() {
            Ok(Message::Close(_)) => {
                // Send the answer before closing.
                while socket.flush().is_ok() && socket.read().is_ok() {}
                return Some(true);
            }
            Ok(heard) => heard,
            Err(_) => return Some(false),
        };
        match &heard {
            Message::Text(text) => {
                *locked(books).texts.entry(text.to_string()).or_default() += 1;
            }
            Message::Binary(bytes) => locked(books).binaries.push(bytes.to_vec()),
            Message::Pong(_) => {
                locked(books).pongs += 1;
                continue;
            }
            _ => continue,
        }
        match path.split('?').next().unwrap() {
            "/silent" => {}
            "/closes" => {
                close(socket, CloseCode::Away);
                return None;
            }
            "/resets" => return None,
            "/half" => {
                // The start of a frame, and nothing more.
                (&socket.get_ref().0.0).write_all(&[0x81, 20, b'a']).unwrap();
                return None;
            }
            "/nonsense" => (&socket.get_ref().0.0).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap(),
            "/large" => {
                let _ = socket.send(Message::Binary(vec![0; 5 << 20].into()));
            }
            "/chat" => {
                let text = heard.into_text().unwrap();
                let frame = frame(text.as_bytes());
                let room: Vec<Wire> = locked(books).room.values().cloned().collect();
                for mut wire in room {
                    let _ = wire.write(&frame);
                }
            }
            _ => drop(socket.send(heard)),
        }
    }
}

fn say(socket: &mut Socket, text: &str) {
    socket.send(Message::text(text)).unwrap();
}

fn close(socket: &mut Socket, code: CloseCode) {
    let _ = socket.close(Some(CloseFrame { code, reason: "enough".into() }));
    while socket.read().is_ok() {}
}

/// An unmasked text message in one frame, as servers send it.
fn frame(text: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x81];
    match text.len() {
        short @ ..=125 => frame.push(short as u8),
        long => {
            frame.push(126);
            frame.extend((long as u16).to_be_bytes());
        }
    }
    frame.extend(text);
    frame
}
