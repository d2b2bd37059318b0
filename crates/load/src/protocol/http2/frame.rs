//! Frames of RFC 9113 §4 and §6: their nine-byte heads, their names, and how frames are written.
//!
//! No state and no rules about order: those belong to the session. Nothing here parses a payload.

/// Length of a frame's head.
pub const HEAD_LEN: usize = 9;
/// Frame size that every endpoint must accept (RFC 9113 §4.2), and the default until a peer announces another.
pub const DEFAULT_MAX_FRAME: u32 = 16_384;
/// The largest length a frame can have.
pub const LARGEST_FRAME: u32 = (1 << 24) - 1;
/// The largest flow-control window, and the largest stream identifier.
pub const MAX_31: u32 = i32::MAX as u32;
/// The bytes that a client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub mod kind {
    /// Bytes of a body.
    pub const DATA: u8 = 0;
    /// A head, or trailers.
    pub const HEADERS: u8 = 1;
    /// Obsolete priority hints.
    pub const PRIORITY: u8 = 2;
    /// Ends a stream early.
    pub const RST_STREAM: u8 = 3;
    /// The sender's limits.
    pub const SETTINGS: u8 = 4;
    /// A promised stream; refused here.
    pub const PUSH_PROMISE: u8 = 5;
    /// A ping, to be echoed.
    pub const PING: u8 = 6;
    /// No new streams are accepted.
    pub const GOAWAY: u8 = 7;
    /// More bytes may be sent.
    pub const WINDOW_UPDATE: u8 = 8;
    /// Continuation of a head.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames; their meaning depends on the type.
pub mod flag {
    /// DATA, HEADERS: the last frame of the stream.
    pub const END_STREAM: u8 = 0x1;
    /// SETTINGS, PING: an acknowledgement.
    pub const ACK: u8 = 0x1;
    /// HEADERS, CONTINUATION: the head is complete.
    pub const END_HEADERS: u8 = 0x4;
    /// DATA, HEADERS: padding follows.
    pub const PADDED: u8 = 0x8;
    /// HEADERS: five bytes of obsolete priority come first.
    pub const PRIORITY: u8 = 0x20;
}

/// Identifiers of settings (RFC 9113 §6.5.2).
pub mod setting {
    /// Size of the sender's HPACK decoding table, bytes.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Whether the sender accepts pushed streams.
    pub const ENABLE_PUSH: u16 = 2;
    /// Most streams that the sender allows at once.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Initial window of each new stream towards the sender.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Longest frame that the sender accepts.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Longest list of fields that the sender accepts; advisory.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// An error code (RFC 9113 §7). Unknown codes are kept as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// No error.
    pub const NO_ERROR: Code = Code(0);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Code = Code(1);
    /// Flow control was violated.
    pub const FLOW_CONTROL_ERROR: Code = Code(3);
    /// A frame's size is wrong.
    pub const FRAME_SIZE_ERROR: Code = Code(6);
    /// The stream was not processed: its request may be sent again.
    pub const REFUSED_STREAM: Code = Code(7);
    /// The stream is no longer wanted.
    pub const CANCEL: Code = Code(8);
    /// The HPACK state is lost.
    pub const COMPRESSION_ERROR: Code = Code(9);
    /// The peer causes too much work.
    pub const ENHANCE_YOUR_CALM: Code = Code(11);

    /// The code's name in the RFC.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "NO_ERROR",
            1 => "PROTOCOL_ERROR",
            2 => "INTERNAL_ERROR",
            3 => "FLOW_CONTROL_ERROR",
            4 => "SETTINGS_TIMEOUT",
            5 => "STREAM_CLOSED",
            6 => "FRAME_SIZE_ERROR",
            7 => "REFUSED_STREAM",
            8 => "CANCEL",
            9 => "COMPRESSION_ERROR",
            10 => "CONNECT_ERROR",
            11 => "ENHANCE_YOUR_CALM",
            12 => "INADEQUATE_SECURITY",
            13 => "HTTP_1_1_REQUIRED",
            _ => "an unknown error code",
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Length of the payload that follows.
    pub len: u32,
    /// Type, see [`kind`].
    pub kind: u8,
    /// Flags, see [`flag`].
    pub flags: u8,
    /// Stream identifier; 0 is the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Reads the head at the start of `bytes`; `None` if there are fewer than nine.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<FrameHead> {
        let [a, b, c, kind, flags, s @ ..] = bytes.first_chunk::<HEAD_LEN>()?;
        Some(FrameHead {
            len: u32::from_be_bytes([0, *a, *b, *c]),
            kind: *kind,
            flags: *flags,
            stream: u32::from_be_bytes(*s) & MAX_31,
        })
    }

    /// The head as bytes. A length beyond 24 bits is cut off; the session never makes one.
    #[inline]
    pub fn bytes(self) -> [u8; HEAD_LEN] {
        let [_, a, b, c] = self.len.to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s, t, u, v]
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Writes a frame with its whole payload.
#[inline]
pub fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&FrameHead { len: payload.len() as u32, kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// Writes SETTINGS.
pub fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let len = settings.len() as u32 * 6;
    out.extend_from_slice(&FrameHead { len, kind: kind::SETTINGS, flags: 0, stream: 0 }.bytes());
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Writes RST_STREAM.
pub fn write_reset(out: &mut Vec<u8>, stream: u32, code: Code) {
    write(out, kind::RST_STREAM, 0, stream, &code.0.to_be_bytes());
}

/// Writes WINDOW_UPDATE.
pub fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Writes GOAWAY. A client that accepts no pushes has processed no stream of its peer.
pub fn write_goaway(out: &mut Vec<u8>, code: Code) {
    let [a, b, c, d] = code.0.to_be_bytes();
    write(out, kind::GOAWAY, 0, 0, &[0, 0, 0, 0, a, b, c, d]);
}

/// The first four bytes of a payload.
#[inline]
pub fn read_u32(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|b| u32::from_be_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_read_as_written() {
        let head = FrameHead { len: 0x01_02_03, kind: kind::DATA, flags: flag::PADDED, stream: 0x7fff_fffe };
        assert_eq!(head.bytes(), [1, 2, 3, 0, 8, 0x7f, 0xff, 0xff, 0xfe]);
        assert_eq!(FrameHead::read(&head.bytes()), Some(head));
        // The reserved bit is ignored.
        assert_eq!(FrameHead::read(&[1, 2, 3, 0, 8, 0xff, 0xff, 0xff, 0xfe]), Some(head));
        assert_eq!(FrameHead::read(&head.bytes()[..8]), None);
    }

    #[test]
    fn whole_frames() {
        let mut out = Vec::new();
        write_settings(&mut out, &[(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, 65_536)]);
        assert_eq!(out, b"\0\0\x0c\x04\0\0\0\0\0\0\x02\0\0\0\0\0\x04\0\x01\0\0");
        out.clear();
        write_reset(&mut out, 5, Code::CANCEL);
        assert_eq!(out, b"\0\0\x04\x03\0\0\0\0\x05\0\0\0\x08");
        out.clear();
        write_window_update(&mut out, 0, 1 << 30);
        assert_eq!(out, b"\0\0\x04\x08\0\0\0\0\0\x40\0\0\0");
        out.clear();
        write_goaway(&mut out, Code::PROTOCOL_ERROR);
        assert_eq!(out, b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01");
        assert_eq!(Code(99).name(), "an unknown error code");
    }
}
