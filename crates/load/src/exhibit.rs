//! What an example shows of a journey: which step, whose, and what that user had captured. Secrets are masked, wherever
//! in the exchange they stand: a record is shown to others.

use crate::course::Course;

/// Longest value that is shown, in characters.
const SHOWN: usize = 200;
/// Shorter ones are not looked for in texts: they would be found everywhere.
const SHORTEST: usize = 4;
/// What stands for a secret.
const MASK: &str = "***";

/// A name that steps capture values under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The name.
    pub name: String,
    /// Its values let others in.
    pub is_secret: bool,
}

/// What is shown beside an exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// `before 1`, `step 2`, `after 1`.
    pub step: String,
    /// The user's number.
    pub user: Option<u64>,
    /// What it had captured, by name, secrets masked.
    pub captured: Vec<(String, String)>,
    /// Values that are not to be shown.
    pub secrets: Vec<Vec<u8>>,
}

impl Shown {
    /// A step, and the values that are there, with their names.
    pub fn new<'a>(
        step: String,
        user: Option<u64>,
        values: impl Iterator<Item = (&'a Remembered, &'a [u8])>,
    ) -> Shown {
        let mut shown = Shown { step, user, ..Shown::default() };
        for (Remembered { name, is_secret }, value) in values {
            let text = match is_secret {
                true => MASK.to_owned(),
                false => String::from_utf8_lossy(value).chars().take(SHOWN).collect(),
            };
            shown.captured.push((name.clone(), text));
            if *is_secret && value.len() >= SHORTEST {
                shown.secrets.push(value.to_vec());
            }
        }
        // Of two that begin alike, the longer one is looked for first.
        shown.secrets.sort_by_key(|s| std::cmp::Reverse(s.len()));
        shown
    }

    /// Bytes without the secrets in them.
    pub fn hide(&self, bytes: &[u8]) -> Vec<u8> {
        self.secrets.iter().fold(bytes.to_vec(), |bytes, secret| replaced(&bytes, secret))
    }
}

fn replaced(bytes: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for at in memchr::memmem::find_iter(bytes, secret) {
        out.extend_from_slice(&bytes[from..at]);
        out.extend_from_slice(MASK.as_bytes());
        from = at + secret.len();
    }
    out.extend_from_slice(&bytes[from..]);
    out
}

/// Which step a request is, as people count.
pub fn step_of(course: &Course, request: u32) -> String {
    let in_round = course.before + course.round;
    match request {
        _ if request < course.before => format!("before {}", request + 1),
        _ if request < in_round => format!("step {}", request - course.before + 1),
        _ => format!("after {}", request - in_round + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_others_shown() {
        let of = |name: &str, is_secret| Remembered { name: name.into(), is_secret };
        let (token, pin, id) = (of("token", true), of("pin", true), of("id", false));
        let values = [(&token, &b"abcd-1"[..]), (&pin, b"12"), (&id, b"77")];
        let shown = Shown::new("step 1".into(), Some(3), values.into_iter());
        let captured: Vec<_> = shown.captured.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(captured, [("token", "***"), ("pin", "***"), ("id", "77")]);
        assert_eq!(shown.hide(b"/a/abcd-1?x=abcd-1&y=12"), b"/a/***?x=***&y=12");
        assert_eq!(Shown::default().hide(b"abcd-1"), b"abcd-1");
    }

    #[test]
    fn steps_are_counted_in_their_part() {
        let course = Course { before: 1, round: 2, after: 1, ..Course::default() };
        let all: Vec<String> = (0..4).map(|request| step_of(&course, request)).collect();
        assert_eq!(all, ["before 1", "step 1", "step 2", "after 1"]);
    }
}
