//! "Did you mean": edit distance over the names allowed at a place; and globs over case names.

use loadlab_record::text::edit_distance::edit_distance;

/// The allowed name nearest to a mistyped one, if any is near enough.
pub(crate) fn nearest<'a>(typed: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = plainly(typed);
    if plain.is_empty() || plain.chars().count() > 64 {
        return None;
    }
    let reach = (plain.chars().count() / 3).max(1);
    allowed
        .into_iter()
        .map(|name| (edit_distance(&plain, &plainly(name)), name))
        // A name with nothing left unchanged is not near.
        .filter(|(d, name)| *d <= reach && *d < name.len() || is_part(&plain, &plainly(name)))
        .min_by_key(|(d, _)| *d)
        .map(|(_, name)| name)
}

/// "did you mean …?" for one of the allowed names, or their list if none is near and the list is short.
pub(crate) fn hint(typed: &str, allowed: &[&str]) -> Option<String> {
    if let Some(name) = nearest(typed, allowed.iter().copied()) {
        return Some(format!("did you mean `{name}`?"));
    }
    match allowed {
        [] => None,
        [one] => Some(format!("only `{one}` is allowed here")),
        many => Some(format!("one of {}", listed(many))),
    }
}

/// `a`, `b`, `c`, at most twenty.
pub(crate) fn listed(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(20).map(|n| format!("`{n}`")).collect();
    let more = if names.len() > 20 { format!(" and {} more", names.len() - 20) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Normalizes case, and a dash to an underscore.
fn plainly(name: &str) -> String {
    name.chars().take(65).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// `open` for `open_files`, `max` for `max_in_flight`: a whole word of the name; and `sigterm` for `term`.
fn is_part(typed: &str, name: &str) -> bool {
    let word = typed.len() >= 3 && name.split('_').any(|word| word == typed) && name.len() > typed.len();
    word || typed.strip_prefix("sig").is_some_and(|rest| rest == name)
}

/// Whether a name matches a pattern of literal characters, `*` (any number of any) and `?` (any one).
pub fn glob(pattern: &str, name: &str) -> bool {
    let (p, n): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut i, mut j) = (0, 0);
    // After a mismatch only the last star can match one more character: linear memory, quadratic time at worst.
    let mut star: Option<(usize, usize)> = None;
    while j < n.len() {
        if i < p.len() && p[i] == '*' {
            star = Some((i, j));
            i += 1;
        } else if i < p.len() && (p[i] == '?' || p[i] == n[j]) {
            (i, j) = (i + 1, j + 1);
        } else if let Some((at, taken)) = star {
            (i, j) = (at + 1, taken + 1);
            star = Some((at, taken + 1));
        } else {
            return false;
        }
    }
    p[i..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names() {
        let allowed = ["users", "rate", "duration", "requests", "max_in_flight", "keep_alive", "open_files"];
        for (typed, expect) in [
            ("userz", Some("users")),
            ("user", Some("users")),
            ("Users", Some("users")),
            ("suers", Some("users")),
            ("keep-alive", Some("keep_alive")),
            ("in_flight", None),
            ("flight", Some("max_in_flight")),
            ("open", Some("open_files")),
            ("time", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, allowed), expect, "{typed}");
        }
    }

    #[test]
    fn globs() {
        for (pattern, name, expect) in [
            ("*", "", true),
            ("*", "anything", true),
            ("control", "control", true),
            ("control", "controls", false),
            ("*jemalloc*", "allocator=jemalloc, size=medium", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b", "xxaxxb", true),
            ("*a*b", "xxaxx", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(glob(pattern, name), expect, "{pattern} {name}");
        }
    }
}
