//! Values that must not appear in anything loadlab writes or serves, and how they are found in text.
//!
//! A secret is found in any encoding: raw, percent-encoded, form-encoded, escaped as in JSON or HTML, in base64, and in
//! any mixture of these, each up to twice over; a multi-line secret is also found line by line. `decode` reads one
//! character in all its encodings, `needle` holds what is searched for, `scan` searches for it. Nothing here decides
//! what is a secret.

mod decode;
mod entities;
mod files;
mod json;
mod needle;
mod scan;
mod values;

pub use values::Maskable;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::sync::Arc;

use serde::Serialize;

use needle::Needle;
use scan::Scan;

/// The text that replaces a secret.
pub const MASK: &str = "***";
/// Minimum length of a secret, in bytes: masking shorter ones would blank out half of the output.
pub const LEAST_BYTES: usize = 8;
/// Minimum length of a captured value in an example, in bytes: shorter ones would be found everywhere.
pub const LEAST_CAPTURED_BYTES: usize = 4;
/// What takes the place of the rest of a text that was cut off.
const ELLIPSIS: char = '…';
/// Bytes of a stream that are masked at a time.
const BLOCK_BYTES: usize = 64 * 1024;

/// Values that must not appear in anything loadlab writes or serves. Cheap to clone; the default has none.
#[derive(Clone, Default)]
pub struct Secrets {
    /// `None` if there are no secrets: then nothing is searched.
    kept: Option<Arc<SecretValues>>,
}

#[derive(Clone, Default)]
struct SecretValues {
    values: Vec<Box<[u8]>>,
    scan: Scan,
}

impl SecretValues {
    fn add(&mut self, value: &[u8], least_bytes: usize) {
        if self.values.iter().any(|known| **known == *value) {
            return;
        }
        self.values.push(value.into());
        let decoded = decode::without_percent_encoding(value);
        for form in std::iter::once(value).chain(decoded.as_deref()).filter(|v| v.len() >= least_bytes) {
            self.scan.add(Needle::all_of(form));
            lines_of(form).for_each(|line| self.scan.add(Needle::all_of(line)));
        }
    }
}

/// The lines of a multi-line value, such as a key: each may be shown with something in front of it. The lines that
/// frame a key are not secret.
fn lines_of(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = value.split(|b| matches!(b, b'\n' | b'\r')).map(<[u8]>::trim_ascii);
    let is_whole = !value.iter().any(|b| matches!(b, b'\n' | b'\r'));
    let frames = |line: &[u8]| line.starts_with(b"-----") && line.ends_with(b"-----");
    lines.filter(move |line| !is_whole && line.len() >= LEAST_BYTES && !frames(line))
}

/// A value is too short to be masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret of {bytes} bytes is too short: masking it would blank out half of the record")]
pub struct TooShort {
    /// Its length.
    pub bytes: usize,
}

impl Secrets {
    /// Adds a value. A percent-encoded one is masked in its decoded form, too, and so is each line of at least
    /// [`LEAST_BYTES`] of a multi-line one.
    ///
    /// # Errors
    /// It is shorter than [`LEAST_BYTES`].
    pub fn add(&mut self, value: &[u8]) -> Result<(), TooShort> {
        if value.len() < LEAST_BYTES {
            return Err(TooShort { bytes: value.len() });
        }
        let kept = Arc::make_mut(self.kept.get_or_insert_default());
        kept.add(value, LEAST_BYTES);
        Ok(())
    }

    /// Adds a value whose length was not chosen, such as a captured one: it is masked if it has at least
    /// [`LEAST_CAPTURED_BYTES`].
    pub fn add_captured(&mut self, value: &[u8]) {
        if value.len() >= LEAST_CAPTURED_BYTES {
            Arc::make_mut(self.kept.get_or_insert_default()).add(value, LEAST_CAPTURED_BYTES);
        }
    }

    /// Adds all values of another set.
    pub fn add_all(&mut self, others: &Secrets) {
        let Some(theirs) = &others.kept else { return };
        let kept = Arc::make_mut(self.kept.get_or_insert_default());
        for value in &theirs.values {
            kept.add(value, value.len().min(LEAST_BYTES));
        }
    }

    /// Whether there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.kept.is_none()
    }

    /// The text with [`MASK`] in place of each secret.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.mask_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // Secrets that are not UTF-8 may end within a character.
            Cow::Owned(masked) => Cow::Owned(match String::from_utf8(masked) {
                Ok(masked) => masked,
                Err(broken) => String::from_utf8_lossy(broken.as_bytes()).into_owned(),
            }),
        }
    }

    /// As [`Secrets::mask`], for any bytes.
    pub fn mask_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(kept) = &self.kept else { return Cow::Borrowed(bytes) };
        let found = kept.scan.of(bytes, true);
        if found.spans.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut masked = Vec::with_capacity(bytes.len());
        found.write(bytes, &mut masked);
        Cow::Owned(masked)
    }

    /// As [`Secrets::mask_bytes`], for the beginning of something longer: its last bytes are left out if they may be
    /// the beginning of a secret.
    pub fn mask_beginning<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(kept) = &self.kept else { return Cow::Borrowed(bytes) };
        let found = kept.scan.of(bytes, false);
        if found.spans.is_empty() && found.certain == bytes.len() {
            return Cow::Borrowed(bytes);
        }
        let mut masked = Vec::with_capacity(bytes.len());
        found.write(bytes, &mut masked);
        Cow::Owned(masked)
    }

    /// As [`Secrets::mask`], for a text that quotes others, some of them cut off at an ellipsis: of a secret that was cut
    /// off, too, its beginning is left out.
    pub fn mask_shortened<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let masked = self.mask(text);
        if self.is_empty() {
            return masked;
        }
        let Some((cut_off, rest)) = masked.rsplit_once(ELLIPSIS) else { return masked };
        let mut out = String::new();
        for part in cut_off.split(ELLIPSIS) {
            let certain = self.mask_beginning(part.as_bytes());
            // A few letters are the beginning of many words.
            match part.len().saturating_sub(certain.len()) < LEAST_CAPTURED_BYTES {
                true => out.push_str(part),
                false => out.push_str(&String::from_utf8_lossy(&certain)),
            }
            out.push(ELLIPSIS);
        }
        Cow::Owned(out + rest)
    }

    /// The value as JSON on one line, its texts masked; names of fields and variants do not count as texts.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(&self, value: &T) -> serde_json::Result<Vec<u8>> {
        json::write(value, self, false)
    }

    /// As [`Secrets::json`], on many lines, with an indent of two spaces.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn json_pretty<T: Serialize + ?Sized>(&self, value: &T) -> serde_json::Result<Vec<u8>> {
        json::write(value, self, true)
    }

    /// The value with its texts masked, for readers that get it from memory. `None` if that fails: showing nothing is
    /// better than showing a secret.
    pub fn mask_value<T: Maskable>(&self, value: T) -> Option<T> {
        if self.is_empty() { Some(value) } else { value.masked(self) }
    }

    /// Copies a stream with [`MASK`] in place of each secret, wherever reads happen to cut it. Returns whether there
    /// was one.
    ///
    /// # Errors
    /// The error of reading or writing.
    pub fn mask_stream(&self, from: &mut impl Read, to: &mut impl Write) -> io::Result<bool> {
        let Some(kept) = &self.kept else { return io::copy(from, to).map(|_| false) };
        let (mut held, mut masked, mut any) = (Vec::new(), Vec::new(), false);
        loop {
            let read = from.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut held)?;
            let mut found = kept.scan.of(&held, read == 0);
            if read > 0 {
                found.keep_last();
            }
            any |= !found.spans.is_empty();
            masked.clear();
            found.write(&held, &mut masked);
            to.write_all(&masked)?;
            if read == 0 {
                return Ok(any);
            }
            held.drain(..found.written());
        }
    }
}

/// Equal if they hold the same values, in the order in which they were added.
impl PartialEq for Secrets {
    fn eq(&self, other: &Secrets) -> bool {
        let values = |secrets: &Secrets| secrets.kept.as_ref().map(|kept| kept.values.clone());
        values(self) == values(other)
    }
}

impl Eq for Secrets {}

/// Shows no value.
impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.kept.as_ref().map_or(0, |kept| kept.values.len()))
    }
}
