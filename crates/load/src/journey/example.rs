//! What an example shows of a journey: which step, which user, and what that user had captured. Secrets are masked
//! wherever they occur in the exchange, since a record is shared.

use loadlab_record::Secrets;
use loadlab_record::secrets::MASK;

use crate::journey::order::StepOrder;

/// Longest value that is shown, in characters.
const SHOWN: usize = 200;

/// A name that steps capture values under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedName {
    /// The name.
    pub name: String,
    /// Whether its values grant access.
    pub is_secret: bool,
}

/// Context shown along with an exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExampleContext {
    /// `before 1`, `step 2`, `after 1`.
    pub step: String,
    /// The user's number.
    pub user: Option<u64>,
    /// The user's captured values by name, with secrets masked.
    pub captured: Vec<(String, String)>,
}

impl ExampleContext {
    /// For a step, and the existing values with their names; values captured as secret are masked too.
    pub fn new<'a>(
        step: String,
        user: Option<u64>,
        values: impl Iterator<Item = (&'a CapturedName, &'a [u8])>,
        secrets: &Secrets,
    ) -> ExampleContext {
        let text = |(CapturedName { name, is_secret }, value): (&CapturedName, &[u8])| match is_secret {
            true => (name.clone(), MASK.to_owned()),
            false => {
                let masked = secrets.mask_bytes(value);
                (name.clone(), String::from_utf8_lossy(&masked).chars().take(SHOWN).collect())
            }
        };
        ExampleContext { step, user, captured: values.map(text).collect() }
    }
}

/// All secrets that may not be shown of an exchange: the given ones, and those that its user captured.
pub fn with_captured<'a>(
    given: &Secrets,
    values: impl Iterator<Item = (&'a CapturedName, &'a [u8])>,
) -> Secrets {
    let mut secrets = given.clone();
    values.filter(|(known, _)| known.is_secret).for_each(|(_, value)| secrets.add_captured(value));
    secrets
}

/// Name of the step that a request is, counting from 1.
pub fn step_of(step_order: &StepOrder, request: u32) -> String {
    let in_round = step_order.before + step_order.round;
    match request {
        _ if request < step_order.before => format!("before {}", request + 1),
        _ if request < in_round => format!("step {}", request - step_order.before + 1),
        _ => format!("after {}", request - in_round + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_others_shown() {
        let of = |name: &str, is_secret| CapturedName { name: name.into(), is_secret };
        let (token, pin, id) = (of("token", true), of("pin", true), of("id", false));
        let values = [(&token, &b"abcd-1"[..]), (&pin, b"12"), (&id, b"77 of abcd%2D1")];
        let secrets = with_captured(&Secrets::default(), values.into_iter());
        let shown = ExampleContext::new("step 1".into(), Some(3), values.into_iter(), &secrets);
        let captured: Vec<_> = shown.captured.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(captured, [("token", "***"), ("pin", "***"), ("id", "77 of ***")]);
        assert_eq!(secrets.mask("/a/abcd-1?x=abcd-1&y=12"), "/a/***?x=***&y=12");
    }

    #[test]
    fn steps_are_counted_in_their_part() {
        let step_order = StepOrder { before: 1, round: 2, after: 1, ..StepOrder::default() };
        let all: Vec<String> = (0..4).map(|request| step_of(&step_order, request)).collect();
        assert_eq!(all, ["before 1", "step 1", "step 2", "after 1"]);
    }
}
