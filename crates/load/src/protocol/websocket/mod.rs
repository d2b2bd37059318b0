//! WebSocket (RFC 6455), the client's side: bytes in, events and bytes out.
//!
//! Messages are reported in pieces as they arrive and never kept, so a message of any length costs no memory; their
//! length is limited all the same. Nothing allocates for a message. No extensions are offered, so none may be used.
//! [`opening`] is the HTTP exchange before it. The work a server can cause is bounded: only a frame's head and the
//! payload of a control frame (125 bytes) are kept, and frames without content are counted.

pub mod opening;

/// Most frames in a row that do not advance a message: pings, pongs, empty pieces.
pub const MAX_IDLE_FRAMES: u32 = 100_000;
/// Code of a normal close (RFC 6455 §7.4.1).
pub const NORMAL: u16 = 1000;
/// Longest payload of a control frame.
const MAX_CONTROL: usize = 125;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A message's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// UTF-8 text.
    Text,
    /// Binary data.
    Binary,
}

/// Why bytes are not valid WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketError {
    /// The close code that is sent to the server (RFC 6455 §7.4.1).
    pub code: u16,
    /// Message for the user.
    pub message: &'static str,
}

const fn protocol(message: &'static str) -> WebSocketError {
    WebSocketError { code: 1002, message }
}

const NOT_UTF8: WebSocketError = WebSocketError { code: 1007, message: "a text that is not UTF-8" };

/// Something that happened on a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A piece of a message; empty if only the end is reported.
    Message {
        /// Type of the message.
        kind: MessageType,
        /// The piece's bytes.
        bytes: &'a [u8],
        /// Whether this piece ends the message.
        end: bool,
    },
    /// A ping, which was answered.
    Ping(&'a [u8]),
    /// A pong, solicited or not.
    Pong(&'a [u8]),
    /// The server sent a close frame, which was answered. Nothing follows.
    Close {
        /// Close code, if the server gave one.
        code: Option<u16>,
        /// Close reason; may be empty.
        reason: &'a str,
    },
}

/// A WebSocket connection after its opening.
#[derive(Debug)]
pub struct Socket {
    max_message: u64,
    random: u64,
    fault: Option<WebSocketError>,
    closed: bool,
    close_sent: bool,
    idle_frames: u32,
    /// A frame's head as far as received, until its payload begins.
    head: [u8; 10],
    head_len: u8,
    in_payload: bool,
    left: u64,
    /// The type of the message being received, its length so far, and an incomplete character at the end of its text.
    message: Option<MessageType>,
    length: u64,
    character: Character,
    control: Vec<u8>,
}

impl Socket {
    /// With the longest message to accept, in bytes, and a seed for masks. Masks keep a script in a browser from
    /// choosing the bytes on the wire (RFC 6455 §10.3); a load generator has no such script, so any cheap sequence will
    /// do.
    pub fn new(max_message: u64, seed: u64) -> Self {
        Socket {
            max_message,
            random: seed | 1,
            fault: None,
            closed: false,
            close_sent: false,
            idle_frames: 0,
            head: [0; 10],
            head_len: 0,
            in_payload: false,
            left: 0,
            message: None,
            length: 0,
            character: Character::default(),
            control: Vec::new(),
        }
    }

    /// Whether either end has sent a close frame, or there is a fault: nothing more can be sent.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.closed || self.close_sent || self.fault.is_some()
    }

    /// Whether a message, or a frame, has begun and not ended.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.message.is_some() || self.head_len > 0
    }

    /// Whether part of a message has been received, not of a control frame.
    #[inline]
    pub fn is_inside_message(&self) -> bool {
        self.message.is_some() || self.head_len > 0 && self.head[0] & 0x08 == 0
    }

    /// Writes a message in one frame. Returns false if nothing more can be sent. The caller ensures that a text is
    /// UTF-8.
    #[inline]
    pub fn send(&mut self, kind: MessageType, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let opcode = if kind == MessageType::Text { TEXT } else { BINARY };
        self.frame(opcode, payload, out)
    }

    /// Writes a ping of at most 125 bytes; any rest is cut off. Returns false if nothing more can be sent.
    pub fn ping(&mut self, payload: &[u8], out: &mut Vec<u8>) -> bool {
        self.frame(PING, &payload[..payload.len().min(MAX_CONTROL)], out)
    }

    /// Sends a close frame with a code. Messages that the server sent before receiving it still arrive.
    pub fn close(&mut self, code: u16, out: &mut Vec<u8>) {
        self.close_sent |= self.frame(CLOSE, &code.to_be_bytes(), out);
    }

    #[inline]
    fn frame(&mut self, opcode: u8, payload: &[u8], out: &mut Vec<u8>) -> bool {
        if self.is_ending() {
            return false;
        }
        self.write(opcode, payload, out);
        true
    }

    #[inline]
    fn write(&mut self, opcode: u8, payload: &[u8], out: &mut Vec<u8>) {
        // xorshift64: never 0, since its seed is not 0.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let mask = ((self.random >> 16) as u32).to_ne_bytes();
        out.push(0x80 | opcode);
        match payload.len() {
            short @ ..=125 => out.push(0x80 | short as u8),
            middle @ ..=0xffff => {
                out.push(0x80 | 126);
                out.extend_from_slice(&(middle as u16).to_be_bytes());
            }
            long => {
                out.push(0x80 | 127);
                out.extend_from_slice(&(long as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(&mask);
        let start = out.len();
        out.extend_from_slice(payload);
        apply_mask(&mut out[start..], mask);
    }

    /// Takes the next bytes of the connection, writes replies to pings and closes into `out`, and reports events. Bytes
    /// after a close frame are ignored.
    ///
    /// # Errors
    /// The connection has ended. The close frame for the server is in `out`; later calls return the same fault.
    #[inline]
    pub fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), WebSocketError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.closed {
            match self.step(rest, out, sink) {
                Ok(used) => rest = &rest[used..],
                Err(fault) => {
                    self.close(fault.code, out);
                    self.fault = Some(fault);
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    /// Reads a frame's head, or a piece of its payload. Returns how many bytes were used.
    #[inline]
    fn step(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<usize, WebSocketError> {
        let mut used = 0;
        if !self.in_payload {
            used = self.read_head(bytes)?;
            if !self.in_payload {
                return Ok(used);
            }
        }
        let take = self.left.min((bytes.len() - used) as u64) as usize;
        let piece = &bytes[used..used + take];
        self.left -= take as u64;
        let whole = self.left == 0;
        if whole {
            self.in_payload = false;
            self.head_len = 0;
        }
        match self.message {
            Some(kind) if self.head[0] & 8 == 0 => {
                let end = whole && self.head[0] & 0x80 != 0;
                self.piece(kind, piece, end, sink)?;
            }
            _ => self.control_piece(piece, whole, out, sink)?,
        }
        Ok(used + take)
    }

    /// Reads a frame's head. Its first two bytes are checked before the rest arrives.
    #[inline]
    fn read_head(&mut self, bytes: &[u8]) -> Result<usize, WebSocketError> {
        let mut used = 0;
        for byte in bytes {
            self.head[usize::from(self.head_len)] = *byte;
            self.head_len += 1;
            used += 1;
            if self.head_len == 2 {
                self.judge_head()?;
            }
            let whole = match self.head[1] {
                _ if self.head_len < 2 => continue,
                126 => 4,
                127 => 10,
                _ => 2,
            };
            if self.head_len == whole {
                self.begin_payload()?;
                break;
            }
        }
        Ok(used)
    }

    #[inline]
    fn judge_head(&self) -> Result<(), WebSocketError> {
        let [first, second, ..] = self.head;
        if first & 0x70 != 0 {
            return Err(protocol("an extension that was not negotiated"));
        }
        if second & 0x80 != 0 {
            return Err(protocol("a masked frame, which only clients send"));
        }
        match first & 0x0f {
            CONTINUATION if self.message.is_none() => {
                Err(protocol("a continuation without a message to continue"))
            }
            TEXT | BINARY if self.message.is_some() => Err(protocol("a message inside another")),
            CONTINUATION | TEXT | BINARY => Ok(()),
            CLOSE | PING | PONG if first & 0x80 == 0 => Err(protocol("a fragmented control frame")),
            CLOSE | PING | PONG if usize::from(second) > MAX_CONTROL => {
                Err(protocol("a control frame of more than 125 bytes"))
            }
            CLOSE | PING | PONG => Ok(()),
            _ => Err(protocol("a frame of unknown type")),
        }
    }

    #[inline]
    fn begin_payload(&mut self) -> Result<(), WebSocketError> {
        let [first, short, a, b, ..] = self.head;
        let (length, least) = match short {
            126 => (u64::from(u16::from_be_bytes([a, b])), 126),
            127 => {
                let [_, _, long @ ..] = self.head;
                (u64::from_be_bytes(long), 0x1_0000)
            }
            _ => (u64::from(short), 0),
        };
        if length < least || length >> 63 != 0 {
            return Err(protocol("an invalid length encoding"));
        }
        let opcode = first & 0x0f;
        let is_control = opcode & 8 != 0;
        match opcode {
            TEXT | BINARY => {
                self.message = Some(if opcode == TEXT { MessageType::Text } else { MessageType::Binary });
                self.length = length;
                self.character = Character::default();
            }
            CONTINUATION => self.length = self.length.saturating_add(length),
            _ => self.control.clear(),
        }
        if !is_control && self.length > self.max_message {
            return Err(WebSocketError { code: 1009, message: "a message longer than allowed" });
        }
        if is_control || (length == 0 && first & 0x80 == 0) {
            self.idle_frames += 1;
            if self.idle_frames > MAX_IDLE_FRAMES {
                return Err(WebSocketError {
                    code: 1008,
                    message: "a flood of frames that advance no message",
                });
            }
        } else {
            self.idle_frames = 0;
        }
        self.left = length;
        self.in_payload = true;
        Ok(())
    }

    /// Handles a piece of a message.
    #[inline]
    fn piece(
        &mut self,
        kind: MessageType,
        piece: &[u8],
        end: bool,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), WebSocketError> {
        let good = if kind == MessageType::Text { self.character.check(piece) } else { piece.len() };
        let cut = good < piece.len() || (end && kind == MessageType::Text && self.character.is_open());
        let end = end && !cut;
        if end {
            self.message = None;
        }
        if good > 0 || end {
            sink(Event::Message { kind, bytes: &piece[..good], end });
        }
        if cut { Err(NOT_UTF8) } else { Ok(()) }
    }

    /// Handles a piece of a control frame.
    fn control_piece(
        &mut self,
        piece: &[u8],
        whole: bool,
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), WebSocketError> {
        self.control.extend_from_slice(piece);
        if !whole {
            return Ok(());
        }
        let payload = std::mem::take(&mut self.control);
        let result = match self.head[0] & 0x0f {
            PING => {
                self.frame(PONG, &payload, out);
                sink(Event::Ping(&payload));
                Ok(())
            }
            PONG => {
                sink(Event::Pong(&payload));
                Ok(())
            }
            _ => read_close(&payload).map(|(code, reason)| {
                // The reply repeats the code (RFC 6455 §5.5.1).
                self.close_sent |= self.frame(CLOSE, payload.get(..2).unwrap_or_default(), out);
                self.closed = true;
                sink(Event::Close { code, reason });
            }),
        };
        self.control = payload;
        result
    }
}

/// Code and reason of a close frame.
fn read_close(payload: &[u8]) -> Result<(Option<u16>, &str), WebSocketError> {
    match payload {
        [] => Ok((None, "")),
        [_] => Err(protocol("a close code of one byte")),
        [a, b, reason @ ..] => match u16::from_be_bytes([*a, *b]) {
            code @ (1000..=1003 | 1007..=1014 | 3000..=4999) => {
                std::str::from_utf8(reason).map(|reason| (Some(code), reason)).map_err(|_| NOT_UTF8)
            }
            _ => Err(protocol("a close code that must not be sent")),
        },
    }
}

/// Applies a mask in place, eight bytes at a time.
#[inline]
fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (eights, rest) = bytes.as_chunks_mut::<8>();
    for eight in eights {
        *eight = (u64::from_ne_bytes(*eight) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip([a, b, c, d].iter().cycle()) {
        *byte ^= mask;
    }
}

/// The beginning of an incomplete character.
#[derive(Clone, Copy, Debug, Default)]
struct Character {
    bytes: [u8; 4],
    len: usize,
}

impl Character {
    fn is_open(self) -> bool {
        self.len > 0
    }

    /// How many of the bytes may be passed on; all, unless the text is not UTF-8. The count does not depend on where
    /// the text is cut into pieces.
    #[inline]
    fn check(&mut self, piece: &[u8]) -> usize {
        let mut at = 0;
        while self.len > 0 {
            let Some(byte) = piece.get(at) else { return at };
            self.bytes[self.len] = *byte;
            match std::str::from_utf8(&self.bytes[..=self.len]) {
                Ok(_) => self.len = 0,
                Err(error) if error.error_len().is_none() => self.len += 1,
                Err(_) => return at,
            }
            at += 1;
        }
        let rest = &piece[at..];
        let Err(error) = std::str::from_utf8(rest) else { return piece.len() };
        let valid = error.valid_up_to();
        match error.error_len() {
            None => {
                let open = &rest[valid..];
                self.len = open.len();
                self.bytes[..open.len()].copy_from_slice(open);
                piece.len()
            }
            // Bytes that begin no character are already excluded; after a valid beginning, only the next byte is.
            Some(bad) if matches!(rest[valid], 0xc2..=0xf4) => at + valid + bad,
            Some(_) => at + valid,
        }
    }
}

#[cfg(test)]
mod tests;
