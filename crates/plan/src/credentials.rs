//! Recognizing credentials: names of keys and header fields that contain one, and where in a text the credential is.
//!
//! Plans and command lines are shown in records and reports with their credentials masked. Nothing here keeps a value.

use std::borrow::Cow;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use loadlab_record::secrets::MASK;

/// Endings of secret names, without `-`, `_` and capitals.
const ENDINGS: [&str; 16] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "bearer",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "sessionid",
];

/// Those of names whose values people choose, often of plain words.
const PASSWORD_ENDINGS: [&str; 4] = ["password", "passwd", "passphrase", "pwd"];

/// Authentication schemes that are known under any name. Under `Authorization`, every first word is one.
const SCHEMES: [&str; 9] =
    ["apikey", "basic", "bearer", "digest", "dpop", "jwt", "negotiate", "oauth", "token"];

/// Whether a value under this name – of a header field, an environment variable, a form field – grants access:
/// `Authorization`, `X-Api-Key`, `DB_PASSWORD`, `accessToken`.
pub fn is_secret_name(name: &str) -> bool {
    ends_with_any(name, &ENDINGS)
}

/// Whether a name ends with one of these, whatever its capitals, hyphens and underscores.
fn ends_with_any(name: &str, endings: &[&str]) -> bool {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    endings.iter().any(|ending| plain.ends_with(ending))
}

/// A secret value, and the parts of it that are secret on their own: the token after `Bearer`, the password in a URL
/// or in `Basic …`, the values of cookies.
pub fn parts(value: &str) -> Vec<String> {
    let mut found = vec![value.to_owned()];
    let mut add = |text: &str| {
        if !text.is_empty() && !found.iter().any(|known| known == text) {
            found.push(text.to_owned());
        }
    };
    if let Some((scheme, rest)) = scheme(value) {
        add(rest);
        if scheme.eq_ignore_ascii_case("basic") {
            let decoded = STANDARD.decode(rest).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((_, password)) = decoded.as_deref().and_then(|text| text.split_once(':')) {
                add(password);
            }
        }
    }
    for range in passwords_in(value) {
        add(&value[range]);
    }
    for range in cookies(value).into_iter().flatten() {
        add(&value[range]);
    }
    found
}

/// Where the credentials are in a header field's value, or in the value under a secret name: after the scheme of
/// `Authorization`, after the names of cookies, otherwise all of it.
pub fn places(name: &str, value: &str) -> Vec<Range<usize>> {
    let lower = name.to_ascii_lowercase();
    if lower.ends_with("authorization")
        && let Some((_, rest)) = scheme(value)
    {
        return std::iter::once(value.len() - rest.len()..value.len()).collect();
    }
    match cookies(value) {
        Some(places) if lower.ends_with("cookie") => places,
        _ => std::iter::once(0..value.len()).collect(),
    }
}

/// A value under a secret name as it may be shown.
pub fn masked(name: &str, value: &str) -> String {
    replaced(value, places(name, value))
}

/// A text with the passwords in URLs masked: `http://user:***@host`; a user without password counts as one.
pub fn masked_url(text: &str) -> Cow<'_, str> {
    let places = passwords_in(text);
    if places.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(replaced(text, places)) }
}

/// The password in the URL of a server that takes credentials, such as a proxy. It is often not percent-encoded, so that
/// whatever precedes the last `@` belongs to it. Without a password, the user counts as one if there is a scheme.
pub fn server_password(url: &str) -> Option<&str> {
    server_password_at(url, false).map(|place| &url[place])
}

/// The URL of a server that takes credentials, with its password masked.
pub fn masked_server_url(url: &str) -> String {
    replaced(url, server_password_at(url, false).into_iter().collect())
}

/// The passwords in the URLs of a word of the command line, as typed. The word may be part of a plan (`--set`): a
/// password of nothing but names such as `${env.PASSWORD}` is left out.
pub fn passwords(text: &str) -> Vec<String> {
    let places = passwords_in(text).into_iter().filter(|place| !written_out(text, place.clone()).is_empty());
    places.map(|place| text[place].to_owned()).collect()
}

/// Masks places, which are in order and do not overlap.
pub(crate) fn replaced(text: &str, places: Vec<Range<usize>>) -> String {
    let (mut out, mut from) = (String::new(), 0);
    for place in places {
        out.push_str(&text[from..place.start]);
        out.push_str(MASK);
        from = place.end;
    }
    out.push_str(&text[from..]);
    out
}

/// `Bearer`, and what follows it.
fn scheme(value: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim();
    let word = !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    (word && !rest.is_empty() && value.ends_with(rest)).then_some((scheme, rest))
}

/// The values of `a=b; c=d`; `None` if it has another form.
fn cookies(text: &str) -> Option<Vec<Range<usize>>> {
    let mut found = Vec::new();
    let mut at = 0;
    for pair in text.split(';') {
        let (name, value) = pair.split_once('=')?;
        let token = |c: char| c.is_ascii_graphic() && !"()<>@,:\\\"/[]?{}".contains(c);
        if name.trim().is_empty() || !name.trim().chars().all(token) {
            return None;
        }
        let start = at + name.len() + 1;
        let blanks = value.len() - value.trim_start().len();
        let value = value.trim();
        if !value.is_empty() {
            found.push(start + blanks..start + blanks + value.len());
        }
        at += pair.len() + 1;
    }
    Some(found)
}

/// Whether a plan's text has names such as `${env.PASSWORD}`; `$${` is a literal `${`.
pub(crate) fn has_names(text: &str) -> bool {
    text.match_indices("${").any(|(at, _)| !text[..at].ends_with('$'))
}

/// The parts of a plan's credential that are written out: what is beside names such as `${env.PASSWORD}`, without an
/// authentication scheme at the beginning, and unless it only joins names, without a letter or digit. A credential
/// without names is written out as a whole.
pub(crate) fn written_out(text: &str, place: Range<usize>) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), place.start);
    let mut from = place.start + scheme_bytes(&text[place.clone()]);
    while let Some(open) = text[at..place.end].find("${").map(|open| at + open) {
        let close = text[open..place.end].find('}').map(|close| open + close + 1);
        match close {
            // `$${` is a literal `${`.
            Some(close) if !text[..open].ends_with('$') => {
                found.push(from..open);
                (from, at) = (close, close);
            }
            _ => at = open + 2,
        }
    }
    if found.is_empty() {
        return vec![place];
    }
    found.push(from..place.end);
    found.retain(|part| text[part.clone()].contains(char::is_alphanumeric));
    found
}

/// The length of a known authentication scheme at the beginning of a text, with the blank after it.
fn scheme_bytes(text: &str) -> usize {
    let first = text.split_once(' ').map_or("", |(first, _)| first);
    if SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(first)) { first.len() + 1 } else { 0 }
}

/// Whether what is written beside names, under a secret name, is likely to be secret by itself, and so may be masked
/// wherever it appears. Most of it is not: a path (`${run.dir}/token`), the beginning of a URL, the name of a parameter
/// (`token=${token}`), words that many texts contain. Words are a secret only in a password: what machines issue has
/// digits, or capitals inside a word.
pub(crate) fn is_likely_secret(name: &str, part: &str) -> bool {
    let is_syntax = part.contains(|c: char| c.is_whitespace() || "/:=".contains(c));
    !is_syntax && (ends_with_any(name, &PASSWORD_ENDINGS) || !is_words(part))
}

/// Whether a text has only words and what joins them: letters of one case, the first one may be a capital.
fn is_words(text: &str) -> bool {
    text.split(['-', '_', '.']).all(|word| {
        let mut letters = word.chars();
        letters.next();
        let rest = letters.as_str();
        word.chars().all(char::is_alphabetic)
            && !(rest.contains(char::is_uppercase) && rest.contains(char::is_lowercase))
    })
}

/// Where the URLs in a plan's text have passwords; under the name of a proxy, the text is such a URL. A name such as
/// `${env.PASSWORD}` does not count, what is written beside it does.
pub(crate) fn written_passwords_in(name: &str, text: &str) -> Vec<Range<usize>> {
    let places: Vec<Range<usize>> = match ends_with_any(name, &["proxy"]) {
        true => server_password_at(text, true).into_iter().collect(),
        false => url_passwords(text, true),
    };
    places.into_iter().flat_map(|place| written_out(text, place)).collect()
}

/// Where the URLs in a text that is not a plan's have passwords: in it, `${` has no meaning.
fn passwords_in(text: &str) -> Vec<Range<usize>> {
    url_passwords(text, false)
}

/// Where a text's URLs have passwords. Without a password, the user counts as one: some services take a token there.
fn url_passwords(text: &str, has_names: bool) -> Vec<Range<usize>> {
    let ends = |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>');
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("://") {
        from += at + 3;
        let Some((colon, end)) = user_in(&text[from..], has_names, ends) else { continue };
        let begin = colon.map_or(0, |colon| colon + 1);
        if begin < end {
            found.push(from + begin..from + end);
        }
        from += end;
    }
    found
}

/// Where the URL of a server has its password; see [`server_password`].
fn server_password_at(url: &str, has_names: bool) -> Option<Range<usize>> {
    let scheme = url.find("://").map(|at| at + 3);
    let start = scheme.unwrap_or(0);
    let (colon, end) = user_in(&url[start..], has_names, |_| false)?;
    let begin = colon.map(|colon| colon + 1).or(scheme.map(|_| 0))?;
    (begin < end).then_some(start + begin..start + end)
}

/// Where user and password are at the beginning of a text: the colon between them, if there is one, and the last `@` up
/// to a character that `ends` them.
fn user_in(text: &str, has_names: bool, ends: fn(char) -> bool) -> Option<(Option<usize>, usize)> {
    // Names, such as `${env.PASSWORD}`, may contain any of these; `$${` begins none.
    let (mut depth, mut end, mut colon) = (0, None, None);
    for (i, c) in text.char_indices() {
        match c {
            '{' if depth > 0 || has_names && begins_name(&text[..i]) => depth += 1,
            '}' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            '@' => end = Some(i),
            ':' if colon.is_none() => colon = Some(i),
            c if ends(c) => break,
            _ => {}
        }
    }
    let end = end?;
    Some((colon.filter(|colon| *colon < end), end))
}

/// Whether a brace after this begins a name.
fn begins_name(before: &str) -> bool {
    before.ends_with('$') && !before.ends_with("$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_by_their_ends() {
        for name in ["Authorization", "X-Api-Key", "DB_PASSWORD", "accessToken", "Set-Cookie", "bearer"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["TOKEN_TTL", "token_url", "cookies", "max_tokens", "user", "key", "author", ""] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn only_the_credentials_of_a_value_are_masked() {
        for (name, value, expect) in [
            ("Authorization", "Bearer abc", "Bearer ***"),
            ("authorization", "abc", "***"),
            ("Proxy-Authorization", "Basic dTpw", "Basic ***"),
            ("Cookie", "a=b; session=c d", "a=***; session=***"),
            ("Cookie", "what", "***"),
            ("X-Api-Key", "Bearer abc", "***"),
            ("password", "a=b", "***"),
        ] {
            assert_eq!(masked(name, value), expect, "{name}: {value}");
        }
    }

    #[test]
    fn passwords_in_urls_are_masked() {
        for (text, expect) in [
            ("http://u:p@h:1/x", "http://u:***@h:1/x"),
            ("http://token@h/", "http://***@h/"),
            ("http://u:p@ss@h/", "http://u:***@h/"),
            ("http://u:p{q@h/", "http://u:***@h/"),
            ("--proxy http://u:p@h and redis://:q@r", "--proxy http://u:***@h and redis://:***@r"),
            ("http://h/a@b", "http://h/a@b"),
            ("http://h:80/?q=a:b@c", "http://h:80/?q=a:b@c"),
            ("http://u:pa${x}word@h/", "http://u:***@h/"),
            ("http://u:${x@h/", "http://u:***@h/"),
            ("http://u:!!@h/", "http://u:***@h/"),
            ("http://u:@h/ ://", "http://u:@h/ ://"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(masked_url(text), expect);
        }
    }

    #[test]
    fn names_in_the_passwords_of_a_plan_are_shown() {
        for (text, expect) in [
            ("http://${env.USER}:${file:a/b}@h/", "http://${env.USER}:${file:a/b}@h/"),
            ("http://${env.USER}:p@h/", "http://${env.USER}:***@h/"),
            ("http://u:p-${env.A}-${env.B}q@h/", "http://u:***${env.A}-${env.B}***@h/"),
            ("http://u:${env.A}$${b}@h/", "http://u:${env.A}***@h/"),
            ("http://u:a$${b@h/", "http://u:***@h/"),
            ("http://u:!!@h/", "http://u:***@h/"),
        ] {
            assert_eq!(replaced(text, written_passwords_in("", text)), expect);
        }
    }

    #[test]
    fn passwords_of_servers_need_not_be_encoded() {
        for (url, expect) in [
            ("http://u:p/w?x#y@z@h:1", "http://u:***@h:1"),
            ("u:p/w@h", "u:***@h"),
            ("http://token@h", "http://***@h"),
            ("ops@h:1", "ops@h:1"),
            ("http://u:@h", "http://u:@h"),
            ("http://h:1", "http://h:1"),
        ] {
            assert_eq!(masked_server_url(url), expect);
            assert_eq!(server_password(url).is_some(), url != expect, "{url}");
        }
        for (name, text, expect) in [
            ("proxy", "http://u:p/w@h", "http://u:***@h"),
            ("HTTPS_PROXY", "u:p/${file:a@b}/w@h", "u:***${file:a@b}***@h"),
            ("proxy", "${env.PROXY}", "${env.PROXY}"),
            ("target", "http://h/p/w@h", "http://h/p/w@h"),
        ] {
            assert_eq!(replaced(text, written_passwords_in(name, text)), expect);
        }
    }

    #[test]
    fn a_typed_password_is_whole() {
        assert_eq!(passwords("http://u:pa${x}word@h redis://:q@r"), ["pa${x}word", "q"]);
        assert_eq!(passwords("load.proxy=http://u:${env.A}-${env.B}@h"), [""; 0]);
    }

    #[test]
    fn boilerplate_beside_names_is_no_secret() {
        for (name, part, is_secret) in [
            ("API_TOKEN", "start-7f3a-", true),
            ("X-Api-Key", "AbCdEfGh", true),
            ("API_TOKEN", "Accepted", false),
            ("API_TOKEN", "ACCEPTED_load-test.", false),
            ("password", "swordfish-", true),
            ("password", "/run/s3cret-", false),
            ("API_TOKEN", "http://127.0.0.1:", false),
            ("X-Auth-Token", "token2=", false),
            ("X-Auth-Token", "user 1234567", false),
        ] {
            assert_eq!(is_likely_secret(name, part), is_secret, "{name}: {part}");
        }
        let written = |text: &str| replaced(text, written_out(text, 0..text.len()));
        assert_eq!(written("Bearer ${env.T}"), "Bearer ${env.T}");
        assert_eq!(written("token abc${env.T}"), "token ***${env.T}");
        assert_eq!(written("correct horse${env.T}"), "***${env.T}");
        assert_eq!(written("Bearer $${x}"), "***");
    }

    #[test]
    fn a_secret_is_secret_in_its_parts() {
        let of = |text: &str| parts(text).join(" | ");
        assert_eq!(of("plain"), "plain");
        assert_eq!(of("Bearer abc"), "Bearer abc | abc");
        assert_eq!(of("Basic dXNlcjpodW50ZXIy"), "Basic dXNlcjpodW50ZXIy | dXNlcjpodW50ZXIy | hunter2");
        assert_eq!(of("http://u:p@h"), "http://u:p@h | p");
        assert_eq!(of("http://u:pa${x}word@h"), "http://u:pa${x}word@h | pa${x}word");
        assert_eq!(of("a=b; c=d"), "a=b; c=d | b | d");
    }
}
