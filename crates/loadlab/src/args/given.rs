//! Input from outside: files that options name with `@`, and the values that a plan asks for. Every secret in it is
//! registered with [`mask`] before anything else happens.

use std::io::Read;
use std::path::{Path, PathBuf};

use loadlab_load::target::ProxyUrl;
use loadlab_plan::credentials;
use loadlab_plan::{MOST_BYTES, Missing, Options, Outside, Plan, Reference};
use loadlab_record::secrets::LEAST_BYTES;

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

pub(super) fn field(text: &str) -> Result<(String, String), String> {
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
