//! Input from outside: credentials on the command line, files that options name with `@`, and the values that a plan
//! asks for. Every secret in it is registered with [`mask`] before anything else happens.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::error::ContextKind;
use loadlab_load::target::ProxyUrl;
use loadlab_plan::credentials;
use loadlab_plan::{MOST_BYTES, Missing, Options, Outside, Plan, Reference};
use loadlab_record::secrets::{LEAST_BYTES, MASK};

use crate::mask;

/// A header field as an option gives it.
#[derive(Clone, Debug)]
pub enum Header {
    /// Name and value.
    Field(String, String),
    /// `@FILE` with one on each line.
    File(PathBuf),
}

/// Reads `Name: value` or `@FILE`.
///
/// # Errors
/// In words: it is neither.
pub fn header(text: &str) -> Result<Header, String> {
    match text.strip_prefix('@') {
        Some(path) => Ok(Header::File(path.into())),
        None => field(text).map(|(name, value)| Header::Field(name, value)),
    }
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once(':').ok_or("expected `Name: value`, or `@FILE` with one on each line")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// The header fields that an option gives, with its files read. Every value from a file is secret; with `all_secret`,
/// so is every other value.
///
/// # Errors
/// In words, with a hint: a file cannot be read, or one of its lines is not a header field.
pub fn headers(given: &[Header], option: &str, all_secret: bool) -> Result<Vec<(String, String)>, String> {
    let mut fields = Vec::new();
    for one in given {
        match one {
            Header::Field(name, value) => {
                if all_secret {
                    mask::add(credentials::parts(value));
                }
                fields.push((name.clone(), value.clone()));
            }
            Header::File(path) => {
                let text = read(path).map_err(|why| unreadable(option, path, &why))?;
                for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                    let place = format!("{}:{}", path.display(), i + 1);
                    // The line is not repeated: it holds a secret.
                    let (name, value) =
                        field(line).map_err(|_| format!("{place}: expected `Name: value`\nhint: {option} @FILE reads a header field from each line"))?;
                    if value.len() < LEAST_BYTES {
                        let bytes = value.len();
                        return Err(format!(
                            "{place}: the value of `{name}` has {bytes} bytes: values from a file are secrets, and a secret needs at least {LEAST_BYTES}\nhint: give what is not a secret on the command line: {option} '{name}: …'"
                        ));
                    }
                    mask::add(credentials::parts(&value));
                    fields.push((name, value));
                }
            }
        }
    }
    Ok(fields)
}

/// A proxy as an option gives it.
#[derive(Clone, Debug)]
pub enum ProxyGiven {
    /// The proxy, and its URL as typed.
    Url(Box<ProxyUrl>, String),
    /// `@FILE` that holds its URL.
    File(PathBuf),
}

impl std::str::FromStr for ProxyGiven {
    type Err = String;

    fn from_str(text: &str) -> Result<ProxyGiven, String> {
        match text.strip_prefix('@') {
            Some(path) => Ok(ProxyGiven::File(path.into())),
            None => text
                .parse()
                .map(|proxy| ProxyGiven::Url(Box::new(proxy), text.to_owned()))
                .map_err(|e: loadlab_load::target::TargetError| e.to_string()),
        }
    }
}

impl ProxyGiven {
    /// Its URL as text. What a file holds is secret.
    ///
    /// # Errors
    /// In words: the file cannot be read.
    pub fn text(&self) -> Result<String, String> {
        match self {
            ProxyGiven::Url(_, text) => Ok(text.clone()),
            ProxyGiven::File(path) => {
                let text = read(path).map_err(|why| unreadable("--proxy", path, &why))?;
                let url = text.trim_end_matches(['\n', '\r']);
                mask::add(credentials::parts(url));
                Ok(url.to_owned())
            }
        }
    }

    /// The proxy.
    ///
    /// # Errors
    /// In words: the file cannot be read, or does not hold the URL of a proxy.
    pub fn read(&self) -> Result<ProxyUrl, String> {
        match self {
            ProxyGiven::Url(proxy, _) => Ok((**proxy).clone()),
            ProxyGiven::File(path) => {
                self.text()?.parse().map_err(|error| format!("{}: {error}", path.display()))
            }
        }
    }
}

fn unreadable(option: &str, path: &Path, missing: &Missing) -> String {
    let why = match missing {
        Missing::NotText => "it is not UTF-8 text",
        Missing::TooLong => "it is larger than 64 KiB",
        Missing::Unset => "it does not exist",
        Missing::Unreadable(why) => why,
    };
    format!("{option}: cannot read {}: {why}", path.display())
}

/// Reads a small file of text.
fn read(path: &Path) -> Result<String, Missing> {
    let unreadable = |error: std::io::Error| Missing::Unreadable(error.to_string());
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MOST_BYTES {
        return Err(Missing::TooLong);
    }
    String::from_utf8(bytes).map_err(|_| Missing::NotText)
}

/// The values that a plan and its options ask for, from the environment and files.
pub fn outside(text: &str, options: &Options, plan_dir: &Path) -> Outside {
    let mut outside = Outside::default();
    for reference in Plan::asks_for(text, options) {
        let value = match &reference {
            Reference::Env(name) => match std::env::var(name) {
                Ok(value) => Ok(value),
                Err(std::env::VarError::NotPresent) => Err(Missing::Unset),
                Err(std::env::VarError::NotUnicode(_)) => Err(Missing::NotText),
            },
            Reference::File(path) => read(&plan_dir.join(path)),
        };
        outside.give(reference, value);
    }
    outside
}

/// Credentials typed on the command line: in header fields whose name is that of a secret, and in URLs.
pub fn of_command_line(words: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for word in words {
        for text in [Some(word.as_str()), behind_option(word)].into_iter().flatten() {
            if let Ok((name, value)) = field(text)
                && credentials::is_secret_name(&name)
            {
                found.extend(credentials::parts(&value));
            }
        }
        found.extend(credentials::passwords(word));
    }
    found
}

/// Commands that write expectations as JUnit XML.
const WITH_JUNIT: [&str; 5] = ["run", "ab", "bench", "find", "resume"];

/// The file behind `--junit` of a command line that is wrong; `None` for help, and where that option is what is wrong.
pub fn junit_of<'w>(words: &'w [String], error: &clap::Error) -> Option<&'w str> {
    const OPTION: &str = "--junit";
    let has_it = words.first().is_some_and(|command| WITH_JUNIT.contains(&command.as_str()));
    let is_wrong = error.get(ContextKind::InvalidArg).is_some_and(|arg| arg.to_string().starts_with(OPTION));
    if !has_it || !error.use_stderr() || is_wrong {
        return None;
    }
    let file =
        words.iter().zip(words.iter().skip(1)).find_map(|(word, next)| (word == OPTION).then_some(next));
    let file = file.map(String::as_str).filter(|file| !file.starts_with('-'));
    file.or_else(|| words.iter().find_map(|word| word.strip_prefix(OPTION)?.strip_prefix('=')))
}

/// Whether a command line that cannot be parsed asks for a JSON document from a command that prints one even if nothing
/// was measured.
pub fn wants_json(words: &[String], error: &clap::Error) -> bool {
    const COMMANDS: [&str; 4] = ["run", "ab", "find", "resume"];
    let has_it = words.first().is_some_and(|command| COMMANDS.contains(&command.as_str()));
    has_it && error.use_stderr() && words.iter().any(|word| word == "--json")
}

/// A message about the command line, with typed credentials masked, however short they are.
pub fn without_credentials(message: &str, words: &[String]) -> String {
    let mut out = message.to_owned();
    let mut is_header = false;
    for word in words {
        let texts = [Some(word.as_str()), behind_option(word)].into_iter().flatten();
        // `-H` by itself has an empty value, which would match everywhere.
        for text in texts.filter(|text| !text.is_empty()) {
            let shown = match text.split_once(':') {
                // Without its colon the argument may still hold the credential.
                None if is_header || is_header_of(word) && text != word => MASK.to_owned(),
                Some((name, value)) if credentials::is_secret_name(name) => {
                    format!("{name}: {}", credentials::masked(name, value.trim()))
                }
                _ => credentials::masked_url(text).into_owned(),
            };
            if shown != text {
                out = replaced(&out, text, &shown);
            }
        }
        is_header = ["-H", "--header", "--otlp-header"].contains(&word.as_str());
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

    fn describe(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn credentials_that_are_typed_are_found() {
        let typed = describe(&[
            "bench",
            "http://127.0.0.1:1/",
            "-H",
            "Authorization: Bearer some-token",
            "-HCookie: a=first; b=second",
            "--header=X-Api-Key: a-key",
            "--proxy",
            "http://user:pass-word@127.0.0.1:2",
            "-H",
            "Accept: text/plain",
        ]);
        let found = of_command_line(&typed);
        for secret in ["some-token", "first", "second", "a-key", "pass-word"] {
            assert!(found.iter().any(|f| f == secret), "{secret}: {found:?}");
        }
        assert!(!found.iter().any(|f| f.contains("text/plain") || f.contains("127.0.0.1")), "{found:?}");
    }

    #[test]
    fn messages_about_the_command_line_show_none() {
        let typed = describe(&[
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
        let typed = describe(&["bench", "-H", "e"]);
        assert_eq!(without_credentials("the header field 'e' needs", &typed), "the header field '***' needs");
        let coloured = |value: &str| format!("the header field '\x1b[33m{value}\x1b[0m' needs");
        assert_eq!(without_credentials(&coloured("e"), &typed), coloured("***"));
    }
}
