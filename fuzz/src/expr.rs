//! `expr`: an expression that parses prints as text that parses to an equal expression; every error points at a place
//! in the text; evaluation never panics, whatever the numbers are.

use loadlab_record::documents::figure::NumberKind;
use loadlab_record::expr::{Expr, ExprError, Known, MAX_BYTES, NumberSource, TrialPart};

/// Numbers derived from the name, so that every expression meets known, bounded and unknown ones of every kind.
struct Made;

impl NumberSource for Made {
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known {
        const KINDS: [NumberKind; 6] = [
            NumberKind::Plain,
            NumberKind::Fraction,
            NumberKind::Percent,
            NumberKind::Duration,
            NumberKind::Bytes,
            NumberKind::Rate,
        ];
        let sum = name
            .bytes()
            .fold(part.map_or(0, |_| 1), |sum: u32, b| sum.wrapping_mul(31).wrapping_add(u32::from(b)));
        let kind = KINDS[(sum >> 3) as usize % KINDS.len()];
        match sum % 8 {
            0 => Known::Unknown("it was not measured".to_owned()),
            1 => Known::AtLeast(f64::from(sum), kind),
            2 => Known::Is(f64::MAX, kind),
            3 => Known::Is(0.0, kind),
            _ => Known::Is(f64::from(sum) / 1000.0, kind),
        }
    }

    fn steady(&self, name: &str, for_ns: u64) -> Option<bool> {
        (!for_ns.is_multiple_of(3)).then_some(name.len().is_multiple_of(2))
    }
}

/// An error must point into the text.
fn points_into(text: &str, error: &ExprError) {
    assert!(!error.message.is_empty(), "an error without words");
    let end = error.at.checked_add(error.len).expect("an error's end fits a number");
    assert!(text.get(error.at..end).is_some(), "{}..{end} is no part of {text:?}: {error}", error.at);
    assert!(!error.to_string().is_empty());
}

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let expr = match Expr::parse(&text) {
        Ok(expr) => expr,
        Err(error) => return points_into(&text, &error),
    };
    for name in expr.names() {
        let place = text.get(name.at..name.at + name.len);
        assert!(place.is_some(), "name {:?} at {}+{} is no part of {text:?}", name.text, name.at, name.len);
    }
    if let Err(error) = expr.check_names::<&str>(&["stored", "edge1.cpu"]) {
        points_into(&text, &error);
    }
    let evaluated = expr.evaluate(&Made);
    assert!(evaluated.value.is_none_or(|v| !v.is_nan()), "a value that is no number: {text}");

    let shown = expr.to_string();
    if shown.len() > MAX_BYTES {
        // A text of the maximum length may print longer, with the spaces and quotes it left out.
        return;
    }
    match Expr::parse(&shown) {
        Ok(again) => {
            assert_eq!(again, expr, "{text:?} prints as {shown:?}, which reads differently");
            assert_eq!(again.to_string(), shown);
            assert_eq!(again.evaluate(&Made), evaluated, "{text:?} and {shown:?}");
        }
        Err(error) => panic!("{text:?} prints as {shown:?}, which is not read: {error}"),
    }
}
