//! Names of cases and components as names of folders and files.

use std::collections::HashSet;

/// The longest folder name, in bytes; leaves room for a suffix and an extension below the 255 that file systems allow.
const MAX_BYTES: usize = 100;

/// A case's name as a folder name: readable, without separators, blanks, leading dots or anything a shell would
/// expand. `%` becomes `pct`, so that `1%` and `1` differ; every other run of unusual characters becomes one dash. Two
/// names may become equal; [`case_dir_names`] makes them distinct.
pub fn case_dir_name(name: &str) -> String {
    let mut out = String::new();
    for c in name.replace('%', "pct").chars() {
        let usual = c.is_alphanumeric() || matches!(c, '.' | '_' | '=' | '+');
        let c = if usual { c } else { '-' };
        if c == '-' && (out.is_empty() || out.ends_with('-')) || c == '.' && out.is_empty() {
            continue;
        }
        if out.len() + c.len_utf8() > MAX_BYTES {
            break;
        }
        out.push(c);
    }
    let end = out.trim_end_matches(['-', '.']).len();
    out.truncate(end);
    if out.is_empty() { "case".to_owned() } else { out }
}

/// A folder name for each case, all different even on a case-insensitive file system: a later one that would equal an
/// earlier one gets `-2`, `-3` and so on. The same list gives the same names.
pub fn case_dir_names<S: AsRef<str>>(names: &[S]) -> Vec<String> {
    // Names that need no suffix are assigned first, so that a case called `a-2` keeps its name.
    let plain: Vec<String> = names.iter().map(|name| case_dir_name(name.as_ref())).collect();
    let mut taken: HashSet<String> = HashSet::new();
    let first: Vec<bool> = plain.iter().map(|name| taken.insert(name.to_lowercase())).collect();
    let mut out = Vec::with_capacity(plain.len());
    for (name, first) in plain.into_iter().zip(first) {
        let mut unique = name.clone();
        let mut number = 1u64;
        while !first && !taken.insert(unique.to_lowercase()) {
            number += 1;
            unique = format!("{name}-{number}");
        }
        out.push(unique);
    }
    out
}

/// Whether a name is one plain component of a path that stays below its folder.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}
