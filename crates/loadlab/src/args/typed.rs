//! Credentials typed on the command line: they are found before anything else happens, and no message shows them.

use loadlab_plan::credentials;
use loadlab_record::secrets::MASK;

use super::given::field;

/// Credentials typed on the command line: in header fields whose name is that of a secret, and in URLs.
pub fn of_command_line(words: &[String]) -> Vec<String> {
    let (mut found, mut before) = (Vec::new(), "");
    for word in words {
        for text in [Some(word.as_str()), behind_option(word)].into_iter().flatten() {
            if let Ok((name, value)) = field(text)
                && credentials::is_secret_name(&name)
            {
                found.extend(credentials::parts(&value));
            }
        }
        found.extend(credentials::passwords(word));
        let of_proxy = proxy_in(word, before).and_then(credentials::server_password);
        found.extend(of_proxy.map(str::to_owned));
        before = word;
    }
    found
}

/// A message about the command line, with typed credentials masked, however short they are.
pub fn without_credentials(message: &str, words: &[String]) -> String {
    let mut out = message.to_owned();
    let (mut is_header, mut before) = (false, "");
    for word in words {
        let proxy = proxy_in(word, before);
        let texts = [Some(word.as_str()), behind_option(word)].into_iter().flatten();
        // `-H` by itself has an empty value, which would match everywhere.
        for text in texts.filter(|text| !text.is_empty()) {
            let shown = match text.split_once(':') {
                // Without its colon the argument may still hold the credential.
                None if is_header || is_header_of(word) && text != word => MASK.to_owned(),
                Some((name, value)) if credentials::is_secret_name(name) => {
                    format!("{name}: {}", credentials::masked(name, value.trim()))
                }
                _ if proxy == Some(text) => credentials::masked_server_url(text),
                _ => credentials::masked_url(text).into_owned(),
            };
            if shown != text {
                out = replaced(&out, text, &shown);
            }
        }
        is_header = ["-H", "--header", "--otlp-header"].contains(&word.as_str());
        before = word;
    }
    out
}

/// The message with a text replaced. A text of a few letters is replaced only where it is a word: elsewhere it is part
/// of others.
fn replaced(message: &str, text: &str, by: &str) -> String {
    /// Longer texts hardly occur inside words by chance.
    const SHORT: usize = 4;
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut out = String::new();
    let mut from = 0;
    for (at, _) in message.match_indices(text) {
        let (before, after) = (without_colour(&message[..at]), &message[at + text.len()..]);
        let is_word = !is_letter(before.chars().next_back()) && !is_letter(after.chars().next());
        if text.len() >= SHORT || is_word {
            out.push_str(&message[from..at]);
            out.push_str(by);
            from = at + text.len();
        }
    }
    out + &message[from..]
}

/// A text without the escape sequence that ends it, whose last letter belongs to no word.
fn without_colour(text: &str) -> &str {
    let Some((before, sequence)) = text.rsplit_once("\x1b[") else { return text };
    let is_whole =
        sequence.strip_suffix('m').is_some_and(|of| of.chars().all(|c| c.is_ascii_digit() || c == ';'));
    if is_whole { before } else { text }
}

/// The URL of a proxy that a word gives, behind its option or after it; `@FILE` is not a URL.
fn proxy_in<'w>(word: &'w str, before: &str) -> Option<&'w str> {
    let url = word.strip_prefix("--proxy=").or((before == "--proxy").then_some(word));
    url.filter(|url| !url.starts_with('@'))
}

/// Whether a word is an option with a header field as its value.
fn is_header_of(word: &str) -> bool {
    ["-H", "--header=", "--otlp-header="].iter().any(|option| word.starts_with(option))
}

/// The value in `--option=value` and `-Hvalue`.
fn behind_option(word: &str) -> Option<&str> {
    match word.strip_prefix("--") {
        Some(long) => long.split_once('=').map(|(_, value)| value),
        None => word.strip_prefix("-H"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn credentials_that_are_typed_are_found() {
        let typed = owned(&[
            "bench",
            "http://127.0.0.1:1/",
            "-H",
            "Authorization: Bearer some-token",
            "-HCookie: a=first; b=second",
            "--header=X-Api-Key: a-key",
            "--proxy",
            "http://user:pass-word@127.0.0.1:2",
            "--proxy=user:not/encoded@127.0.0.1:2",
            "-H",
            "Accept: text/plain",
        ]);
        let found = of_command_line(&typed);
        for secret in ["some-token", "first", "second", "a-key", "pass-word", "not/encoded"] {
            assert!(found.iter().any(|f| f == secret), "{secret}: {found:?}");
        }
        assert!(!found.iter().any(|f| f.contains("text/plain") || f.contains("127.0.0.1")), "{found:?}");
    }

    #[test]
    fn messages_about_the_command_line_show_none() {
        let typed = owned(&[
            "bench",
            "--header=k=v",
            "-H",
            "Authorization Bearer abc",
            "--proxy=ftp://u:pw@h",
            "-H",
            "Cookie: k",
        ]);
        let message =
            "invalid value 'k=v' and 'Authorization Bearer abc' and 'ftp://u:pw@h' and 'Cookie: k' of bench";
        assert_eq!(
            without_credentials(message, &typed),
            "invalid value '***' and '***' and 'ftp://u:***@h' and 'Cookie: ***' of bench"
        );
        let typed = owned(&["bench", "--proxy", "http://u:p/w@h/x", "--proxy=u:q/w@h"]);
        let message = "invalid value 'http://u:p/w@h/x' or 'u:q/w@h'";
        assert_eq!(without_credentials(message, &typed), "invalid value 'http://u:***@h/x' or 'u:***@h'");
        let typed = owned(&["bench", "-H", "e"]);
        assert_eq!(without_credentials("the header field 'e' needs", &typed), "the header field '***' needs");
        let coloured = |value: &str| format!("the header field '\x1b[33m{value}\x1b[0m' needs");
        assert_eq!(without_credentials(&coloured("e"), &typed), coloured("***"));
    }
}
