//! HTTP/1.1 as far as the shop needs it: requests with a length, connections that are kept.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use crate::{Asked, Shop, chat};

/// Longest head and longest body.
const MAX_HEAD: usize = 64 * 1024;
const MAX_BODY: usize = 64 << 20;

/// Requests on a connection until it ends, or becomes a WebSocket.
pub(crate) fn serve(shop: &Arc<Shop>, mut stream: TcpStream) {
    let mut buffer = Vec::new();
    while let Some((head, asked)) = read(&mut stream, &mut buffer) {
        let field = |name: &str| field_of(&head, name);
        if let (Some("websocket"), Some(key)) = (field("upgrade"), field("sec-websocket-key")) {
            return chat::serve(shop, stream, key, buffer);
        }
        let closes = field("connection").is_some_and(|c| c.eq_ignore_ascii_case("close"));
        let answer = shop.answer(&asked);
        let head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}\r\n",
            answer.status,
            if answer.status < 400 { "OK" } else { "Refused" },
            answer.content_type,
            answer.body.len(),
            if closes { "Connection: close\r\n" } else { "" },
        );
        if stream.write_all((head + &answer.body).as_bytes()).is_err() || closes {
            return;
        }
    }
}

/// A request and its head; `None` if the connection ends or is not worth reading on.
fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, Asked)> {
    let end = loop {
        match buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            Some(end) => break end,
            None if buffer.len() > MAX_HEAD => return None,
            None => more(stream, buffer)?,
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.drain(..end + 4);
    let length: usize = field_of(&head, "content-length").map_or(Some(0), |l| l.parse().ok())?;
    while buffer.len() < length.min(MAX_BODY) {
        more(stream, buffer)?;
    }
    let body = buffer.drain(..length.min(MAX_BODY)).collect();
    let mut words = head.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let text = |name: &str| field_of(&head, name).map(str::to_owned);
    let asked = Asked {
        method,
        path: target.split('?').next()?.to_owned(),
        authorization: text("authorization"),
        content_type: text("content-type"),
        body,
    };
    Some((head, asked))
}

fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut bytes = [0; 16 * 1024];
    let n = stream.read(&mut bytes).ok().filter(|n| *n > 0)?;
    buffer.extend_from_slice(&bytes[..n]);
    Some(())
}

fn field_of<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    fields.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim()).next()
}

/// Fields of a form, `application/x-www-form-urlencoded`.
pub(crate) fn form(body: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(body);
    text.split('&').filter_map(|pair| pair.split_once('=')).map(|(n, v)| (decoded(n), decoded(v))).collect()
}

fn decoded(text: &str) -> String {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        let mut digit = || bytes.next().and_then(|b| (b as char).to_digit(16)).unwrap_or(0) as u8;
        out.push(match byte {
            b'+' => b' ',
            b'%' => digit() * 16 + digit(),
            other => other,
        });
    }
    String::from_utf8_lossy(&out).into_owned()
}
