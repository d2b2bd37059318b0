//! The shop's chat: every message is answered with its text, its sender, and its number.

use std::io::{Chain, Cursor, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use serde_json::{Value, json};
use tungstenite::protocol::{Message, Role, WebSocket};

use crate::{Shop, count};

/// What was read after the head, and then the socket.
struct Wire {
    from: Chain<Cursor<Vec<u8>>, TcpStream>,
    to: TcpStream,
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.from.read(buffer)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// A conversation, until one side leaves.
pub(crate) fn serve(shop: &Arc<Shop>, mut stream: TcpStream, key: &str, read: Vec<u8>) {
    let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    if stream.write_all(head.as_bytes()).is_err() {
        return;
    }
    count(&shop.chats);
    let Ok(to) = stream.try_clone() else { return };
    let mut socket =
        WebSocket::from_raw_socket(Wire { from: Cursor::new(read).chain(stream), to }, Role::Server, None);
    while let Ok(message) = socket.read() {
        let Message::Text(text) = message else { continue };
        let said: Value = serde_json::from_str(text.as_str()).unwrap_or_default();
        let number = count(&shop.messages);
        let answer = json!({ "said": said["say"], "by": said["by"], "number": number });
        if socket.send(Message::text(answer.to_string())).is_err() {
            return;
        }
    }
}
