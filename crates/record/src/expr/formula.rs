//! A number computed from others, in the language of conditions: `elapsed + drain`, `2 * p50 - min`.

use super::check::{Dim, check_names};
use super::eval::{Between, Known, NumberSource, Remarks, TrialPart, range};
use super::{ExprError, NameRef, Num, NumberKind, PartText, names, parse};
use crate::counts::quantile::Estimate;

/// A checked sum, difference, product or quotient.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    pub(super) num: Num,
}

impl Formula {
    /// Parses a formula.
    ///
    /// # Errors
    /// The first error and where; a condition; incompatible kinds, as far as built-in names and units show.
    pub fn parse(text: &str) -> Result<Formula, ExprError> {
        let formula = Formula { num: parse::parse_num(text)? };
        formula.kind(&|name| names::built_in_kind(name))?;
        Ok(formula)
    }

    /// The names, if it consists of one or is a sum of names.
    pub fn summed_names(&self) -> Option<Vec<&str>> {
        fn text(num: &Num) -> Option<&str> {
            num.only_name().map(|name| name.text.as_str())
        }
        match &self.num {
            Num::Sum(terms) => terms.iter().map(|(is_less, term)| text(term).filter(|_| !is_less)).collect(),
            num => Some(vec![text(num)?]),
        }
    }

    /// Every name it uses, in the order of the text.
    pub fn names(&self) -> Vec<NameRef> {
        let mut found = Vec::new();
        self.num.each_name(&mut |name| found.push(name.to_ref()));
        found
    }

    /// Compares its names with the built-in ones and with `known`.
    ///
    /// # Errors
    /// The first unknown name, with the nearest known one as a hint.
    pub fn check_names<S: AsRef<str>>(&self, known: &[S]) -> Result<(), ExprError> {
        check_names(&self.names(), known)
    }

    /// Its kind, where `kind` returns the kinds of names; a name it does not know is compatible with all.
    ///
    /// # Errors
    /// The first two incompatible parts.
    pub fn kind(&self, kind: &dyn Fn(&str) -> Option<NumberKind>) -> Result<NumberKind, ExprError> {
        self.num.dim(kind).map(kind_of)
    }

    /// What is known of its value.
    pub fn known(&self, numbers: &dyn NumberSource) -> Known {
        let mut remarks = Remarks::default();
        let found = range(&self.num, numbers, &mut remarks);
        let few = remarks.few.iter().max_by_key(|few| few.needed).copied();
        match (found, few) {
            (Some(known), _) if known.is_point() && known.low.is_finite() => {
                Known::Is(known.low, kind_of(known.dim))
            }
            (Some(known), Some(few)) => {
                let likely = range(&self.num, &Likely(numbers), &mut Remarks::default());
                let finite = |value: f64| value.is_finite().then_some(value);
                let estimate = Estimate {
                    value: likely.filter(|r| r.is_point()).and_then(|r| finite(r.low)),
                    low: finite(known.low),
                    high: finite(known.high),
                };
                // A percentile on its own also knows the largest sample.
                let largest = self.num.only_name().and_then(|name| {
                    match numbers.number(&name.text, name.part.as_ref().map(PartText::part)) {
                        Known::Between(between) => between.largest,
                        _ => None,
                    }
                });
                Known::Between(Between { estimate, largest, kind: kind_of(known.dim), few })
            }
            (Some(known), None) if known.low.is_finite() && known.is_open() => {
                Known::AtLeast(known.low, kind_of(known.dim))
            }
            _ if remarks.notes.is_empty() => Known::Unknown("it is not a finite number".to_owned()),
            _ => Known::Unknown(remarks.notes.join("; ")),
        }
    }

    /// Its value in the unit of its kind.
    ///
    /// # Errors
    /// Why it cannot be known, in words.
    pub fn evaluate(&self, numbers: &dyn NumberSource) -> Result<(f64, NumberKind), String> {
        let mut remarks = Remarks::default();
        match range(&self.num, numbers, &mut remarks) {
            Some(known) if known.is_point() && known.low.is_finite() => Ok((known.low, kind_of(known.dim))),
            _ if remarks.notes.is_empty() => Err("it is not a finite number".to_owned()),
            _ => Err(remarks.notes.join("; ")),
        }
    }
}

/// Numbers in which the estimate from few samples takes the percentile's place.
struct Likely<'a>(&'a dyn NumberSource);

impl NumberSource for Likely<'_> {
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known {
        match self.0.number(name, part) {
            Known::Between(between) => match (between.estimate.value, between.estimate.low) {
                (Some(value), _) => Known::Is(value, between.kind),
                (None, Some(low)) => Known::AtLeast(low, between.kind),
                (None, None) => Known::Between(between),
            },
            known => known,
        }
    }

    fn steady(&self, name: &str, for_ns: u64) -> Option<bool> {
        self.0.steady(name, for_ns)
    }
}

impl std::fmt::Display for Formula {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.num.fmt(f)
    }
}

fn kind_of(dim: Dim) -> NumberKind {
    match dim {
        Dim::Any => NumberKind::Plain,
        Dim::Share => NumberKind::Percent,
        Dim::Of(kind) => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::super::TrialPart;
    use super::*;

    struct Two;

    impl NumberSource for Two {
        fn number(&self, name: &str, _: Option<TrialPart>) -> Known {
            match name {
                "a b.elapsed" => Known::Is(1500.0, NumberKind::Duration),
                "drain" => Known::Is(500.0, NumberKind::Duration),
                "ok" => Known::Is(3.0, NumberKind::Plain),
                "max" => Known::AtLeast(9.0, NumberKind::Duration),
                _ => Known::Unknown("nobody knows".to_owned()),
            }
        }

        fn steady(&self, _: &str, _: u64) -> Option<bool> {
            None
        }
    }

    #[test]
    fn sums_are_worked_out() {
        let check = |text: &str, expect: Result<(f64, NumberKind), &str>| {
            let got =
                Formula::parse(text).map_err(|e| e.to_string()).and_then(|formula| formula.evaluate(&Two));
            assert_eq!(got, expect.map_err(str::to_owned), "{text}");
        };
        check("'a b.elapsed' + drain", Ok((2000.0, NumberKind::Duration)));
        check("('a b.elapsed' - drain) * 2", Ok((2000.0, NumberKind::Duration)));
        check("ok", Ok((3.0, NumberKind::Plain)));
        check("drain / ok", Ok((500.0 / 3.0, NumberKind::Duration)));
        check("ok / drain", Ok((6.0, NumberKind::Rate)));
        check("'a b.elapsed' / drain * 2", Ok((6.0, NumberKind::Plain)));
        check("drain / (ok - 3)", Err("`ok - 3` may be 0, and nothing can be divided by 0"));
        check("drain/ok", Ok((500.0 / 3.0, NumberKind::Duration)));
        check(
            "10MiB / drain",
            Err("cannot divide `10MiB` (a size) and `drain` (a duration) in `10MiB / drain`"),
        );
        check("elsewhere + 1", Err("`elsewhere` is unknown: nobody knows"));
        check("max", Err("`max` is at least 9.000 ms"));
        check(
            "drain + 10MiB",
            Err(
                "cannot add `drain` (a duration) and `10MiB` (a size) in `drain + 10MiB`\nhint: `10MiB` is 10485760 bytes",
            ),
        );
        check(
            "drain < 1s",
            Err("`drain < 1s` is a condition, not a number\nhint: join conditions with `and` or `or`"),
        );
        check("", Err("expected a number such as `elapsed + drain`, found the end"));
    }
}
