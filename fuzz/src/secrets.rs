//! `secrets`: masked text never contains a secret, wherever it appears; text masked in pieces equals text masked at
//! once.
//!
//! Input: the length of a secret, the secret, and a text.

use loadlab_record::Secrets;

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else { return };
    let (secret, text) = rest.split_at(usize::from(*length).min(rest.len()));
    let mut secrets = Secrets::default();
    if secrets.add(secret).is_err() {
        assert!(secret.len() < 8);
        return;
    }
    let masked = secrets.mask_bytes(text);
    is_hidden(secret, &masked);
    if let Ok(text) = std::str::from_utf8(text) {
        is_hidden(secret, secrets.mask(text).as_bytes());
        let json = secrets.json(text).expect("JSON");
        assert_eq!(serde_json::from_slice::<String>(&json).expect("JSON"), secrets.mask(text));
    }
    let mut streamed = Vec::new();
    secrets.mask_stream(&mut &text[..], &mut streamed).expect("memory");
    assert_eq!(streamed, &*masked);
    let both = [text, secret, text].concat();
    is_hidden(secret, &secrets.mask_bytes(&both));
    // Wherever a secret is cut, its first part is not shown.
    for cut in 1..secret.len() {
        let beginning = [b"text ", &secret[..cut]].concat();
        let shown = secrets.mask_beginning(&beginning);
        assert!(shown.len() <= b"text ***".len() + 1, "{}", String::from_utf8_lossy(&shown));
    }
}

fn is_hidden(secret: &[u8], masked: &[u8]) {
    // A secret that contains stars may be formed by a mask and the text around it.
    let of_stars = secret.contains(&b'*');
    let found = masked.windows(secret.len()).any(|w| w == secret);
    assert!(of_stars || !found, "shown: {}", String::from_utf8_lossy(masked));
}
