//! Compressed bodies, decoded for checks and captures. Received bytes are still counted as on the wire.

use std::io::Read;

use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use crate::journey::capture::header;

/// Why a body cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Its encoding is neither gzip nor deflate.
    Unknown,
    /// It is not valid in its encoding.
    Broken,
    /// The decoded body is longer than the limit.
    TooLong,
}

impl DecodeError {
    /// The reason in words.
    pub fn describe(self) -> &'static str {
        match self {
            DecodeError::Unknown => "the body has a content encoding other than gzip and deflate",
            DecodeError::Broken => "the body cannot be decoded as its content-encoding says",
            DecodeError::TooLong => "the decoded body is too long for checks and captures",
        }
    }
}

/// Whether a head declares its body to be encoded.
pub fn is_encoded(head: &[u8]) -> bool {
    encoding(head).is_some()
}

fn encoding(head: &[u8]) -> Option<&[u8]> {
    let encoding = header(head, b"content-encoding")?;
    (!encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity")).then_some(encoding)
}

/// Decodes a body according to its head into `out`, at most `most` bytes. Returns false, with an empty `out`, if the
/// body is not encoded.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode(head: &[u8], body: &[u8], most: usize, out: &mut Vec<u8>) -> Result<bool, DecodeError> {
    out.clear();
    let Some(encoding) = encoding(head).filter(|_| !body.is_empty()) else { return Ok(false) };
    let is = |name: &[u8]| encoding.eq_ignore_ascii_case(name);
    let read = if is(b"gzip") || is(b"x-gzip") {
        read_all(MultiGzDecoder::new(body), most, out)
    } else if is(b"deflate") {
        // zlib by the standard (RFC 9110 §8.4.1.2), but some servers send raw deflate.
        let zlib = read_all(ZlibDecoder::new(body), most, out);
        match zlib {
            Err(DecodeError::Broken) => read_all(DeflateDecoder::new(body), most, out),
            other => other,
        }
    } else {
        Err(DecodeError::Unknown)
    };
    read.map(|()| true)
}

fn read_all(decoder: impl Read, most: usize, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    out.clear();
    decoder.take(most as u64 + 1).read_to_end(out).map_err(|_| DecodeError::Broken)?;
    if out.len() > most { Err(DecodeError::TooLong) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::{DeflateEncoder, GzEncoder, ZlibEncoder};

    fn all(mut reader: impl Read) -> Vec<u8> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn check(encoding: &str, body: &[u8], expect: Result<Option<&[u8]>, DecodeError>) {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\n\r\n");
        let mut out = b"before".to_vec();
        let got = decode(head.as_bytes(), body, 1000, &mut out);
        assert_eq!(got.map(|decoded| decoded.then_some(out.as_slice())), expect, "{encoding}");
    }

    #[test]
    fn bodies_decode_or_report_why_not() {
        let text = b"hello hello hello";
        let best = Compression::best();
        check("gzip", &all(GzEncoder::new(&text[..], best)), Ok(Some(text)));
        check("X-GZIP", &all(GzEncoder::new(&text[..], best)), Ok(Some(text)));
        check("deflate", &all(ZlibEncoder::new(&text[..], best)), Ok(Some(text)));
        check("deflate", &all(DeflateEncoder::new(&text[..], best)), Ok(Some(text)));
        check("identity", text, Ok(None));
        check("br", text, Err(DecodeError::Unknown));
        check("gzip", text, Err(DecodeError::Broken));
        check("gzip", &all(GzEncoder::new(&text[..], best))[..20], Err(DecodeError::Broken));
        let bomb = all(GzEncoder::new(&[0u8; 1 << 20][..], best));
        check("gzip", &bomb, Err(DecodeError::TooLong));
    }
}
