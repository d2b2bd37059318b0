//! What is searched for: a value as it is, and the part of its base64 that does not depend on the surrounding bytes.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Bytes to be found, in any encoding.
#[derive(Clone, Debug)]
pub struct Needle {
    /// The bytes; at least one.
    pub bytes: Box<[u8]>,
    /// Whether the characters before and after contain bits of the value as well.
    pub shared: Shared,
}

/// Which base64 characters around a needle contain bits of the value, together with bits of its surroundings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// The needle is base64: padding may follow it.
    pub is_base64: bool,
    /// The character before.
    pub before: bool,
    /// The character after.
    pub after: bool,
}

impl Needle {
    /// All forms of a value that no escape turns into one another.
    pub fn all_of(value: &[u8]) -> Vec<Needle> {
        let mut all = vec![Needle { bytes: value.into(), shared: Shared::default() }];
        for before in 0..3 {
            let standard = base64_of(value, before, &STANDARD_NO_PAD);
            let url = base64_of(value, before, &URL_SAFE_NO_PAD);
            let differs = standard.bytes != url.bytes;
            all.push(standard);
            all.extend(differs.then_some(url));
        }
        all
    }
}

/// The characters that contain only bits of the value if `before` bytes (modulo 3) precede it.
fn base64_of(value: &[u8], before: usize, engine: &impl Engine) -> Needle {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value);
    let text = engine.encode(&bytes).into_bytes();
    let first = (before * 8).div_ceil(6);
    let end = bytes.len() * 8 / 6;
    let shared = Shared { is_base64: true, before: before != 0, after: !(bytes.len() * 8).is_multiple_of(6) };
    Needle { bytes: text[first..end].into(), shared }
}
