//! Orders that only the coordinator can give: they are signed with its key (Ed25519, as an NKEY), so that others who
//! can send messages cannot aim agents at arbitrary targets.

use std::path::Path;

use loadlab_record::text::hex::{from_hex, to_hex};
use nkeys::KeyPair;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The key that orders are signed with.
pub struct SigningKey(KeyPair);

/// The key that agents check orders with.
#[derive(Clone)]
pub struct VerifyingKey(KeyPair);

/// Why an order or a key is rejected.
#[derive(Debug, thiserror::Error)]
pub enum SignedError {
    /// The message is not a signed text.
    #[error("not a signed order: {0}")]
    Form(#[from] serde_json::Error),
    /// The message was signed with another key, or modified.
    #[error("the signature is not that of the coordinator's key")]
    Signature,
    /// A key cannot be parsed.
    #[error("{what} is not {expected}")]
    Key {
        /// The text or file that should contain the key.
        what: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A key file cannot be read.
    #[error("cannot read the key {path}: {error}")]
    File {
        /// Path of the file.
        path: String,
        /// The I/O error.
        error: std::io::Error,
    },
}

/// A text and its signature.
#[derive(Serialize, Deserialize)]
struct Signed {
    text: String,
    /// Ed25519 signature in hexadecimal.
    signature: String,
}

impl SigningKey {
    /// Generates a new key.
    pub fn new() -> Self {
        SigningKey(KeyPair::new_user())
    }

    /// Reads a key from a file that contains its seed: `SU…`.
    ///
    /// # Errors
    /// The file cannot be read or does not contain a seed.
    pub fn read(path: &Path) -> Result<Self, SignedError> {
        let what = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|error| SignedError::File { path: what.clone(), error })?;
        let key = KeyPair::from_seed(text.trim());
        key.map(SigningKey).map_err(|_| SignedError::Key { what, expected: "the seed of a key (SU…)" })
    }

    /// The seed of the key: whoever has it can give orders.
    pub fn seed(&self) -> String {
        self.0.seed().unwrap_or_default()
    }

    /// The public key that agents are given: `U…`.
    pub fn public(&self) -> String {
        self.0.public_key()
    }

    /// Serialises and signs a value.
    pub fn seal<T: Serialize>(&self, value: &T) -> Vec<u8> {
        let text = serde_json::to_string(value).expect("numbers and texts");
        let signature = self.0.sign(text.as_bytes()).expect("it has a seed");
        let signature = to_hex(&signature);
        serde_json::to_vec(&Signed { text, signature }).expect("texts")
    }
}

impl Default for SigningKey {
    fn default() -> Self {
        SigningKey::new()
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.public())
    }
}

impl VerifyingKey {
    /// Parses a public key: `U…`.
    ///
    /// # Errors
    /// The text is not a public key.
    pub fn parse(text: &str) -> Result<Self, SignedError> {
        let key = KeyPair::from_public_key(text.trim());
        key.map(VerifyingKey)
            .map_err(|_| SignedError::Key { what: format!("`{text}`"), expected: "a public key (U…)" })
    }

    /// Returns the value if it was signed with this key.
    ///
    /// # Errors
    /// The signature does not match, or the message cannot be parsed.
    pub fn open<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, SignedError> {
        let Signed { text, signature } = serde_json::from_slice(bytes)?;
        let signature = from_hex(&signature).ok_or(SignedError::Signature)?;
        self.0.verify(text.as_bytes(), &signature).map_err(|_| SignedError::Signature)?;
        Ok(serde_json::from_str(&text)?)
    }
}

impl std::fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VerifyingKey({})", self.0.public_key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_key_signed_is_opened() {
        let (key, other) = (SigningKey::new(), SigningKey::new());
        let public = VerifyingKey::parse(&key.public()).unwrap();
        let sealed = key.seal(&vec![1, 2, 3]);
        assert_eq!(public.open::<Vec<u32>>(&sealed).unwrap(), [1, 2, 3]);
        let refused = |bytes: &[u8]| public.open::<Vec<u32>>(bytes).unwrap_err().to_string();
        assert!(refused(&other.seal(&vec![1])).contains("not that of the coordinator's key"));
        let changed = String::from_utf8(sealed).unwrap().replace("1,2", "1,9");
        assert!(refused(changed.as_bytes()).contains("not that of the coordinator's key"));
        for junk in [
            "",
            "{}",
            "[1,2,3]",
            "{\"text\":\"[1]\",\"signature\":\"zz\"}",
            "{\"text\":\"[1]\",\"signature\":\"é\"}",
        ] {
            assert!(public.open::<Vec<u32>>(junk.as_bytes()).is_err(), "{junk}");
        }
    }

    #[test]
    fn a_key_is_kept_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, key) = (dir.path().join("key"), SigningKey::new());
        std::fs::write(&path, key.seed() + "\n").unwrap();
        assert_eq!(SigningKey::read(&path).unwrap().public(), key.public());
        std::fs::write(&path, key.public()).unwrap();
        let why = SigningKey::read(&path).unwrap_err().to_string();
        assert!(why.ends_with("is not the seed of a key (SU…)"), "{why}");
        let why = SigningKey::read(&dir.path().join("none")).unwrap_err().to_string();
        assert!(why.starts_with("cannot read the key"), "{why}");
        for wrong in ["", "U", "é", &key.seed()] {
            assert!(VerifyingKey::parse(wrong).is_err(), "{wrong}");
        }
    }
}
