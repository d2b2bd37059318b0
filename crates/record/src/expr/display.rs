//! An expression as text: single blanks, parentheses only where they are needed. It parses back to itself.

use std::fmt::{Display, Formatter, Result};

use super::{Cond, Expr, Name, Num, PartText};

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.root.fmt(f)
    }
}

impl Display for Cond {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let joined = |f: &mut Formatter<'_>, conds: &[Cond], word: &str, needs: fn(&Cond) -> bool| {
            for (i, cond) in conds.iter().enumerate() {
                if i > 0 {
                    write!(f, " {word} ")?;
                }
                match needs(cond) {
                    true => write!(f, "({cond})")?,
                    false => write!(f, "{cond}")?,
                }
            }
            Ok(())
        };
        match self {
            Cond::Or(conds) => joined(f, conds, "or", |c| matches!(c, Cond::Or(_))),
            Cond::And(conds) => joined(f, conds, "and", |c| matches!(c, Cond::Or(_) | Cond::And(_))),
            Cond::Compare(c) => write!(f, "{} {} {}", c.left, c.operator.sign(), c.right),
            Cond::Steady(name, long) => write!(f, "steady({name}, {})", long.text),
        }
    }
}

impl Display for Num {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let part = |f: &mut Formatter<'_>, num: &Num, in_product: bool| match num {
            Num::Sum(_) => write!(f, "({num})"),
            Num::Product(_) if in_product => write!(f, "({num})"),
            _ => write!(f, "{num}"),
        };
        match self {
            Num::Literal(literal) => f.write_str(&literal.text),
            Num::Name(name) | Num::Figure(name, _) => name.fmt(f),
            Num::Sum(terms) => {
                for (i, (minus, term)) in terms.iter().enumerate() {
                    f.write_str(match (i, minus) {
                        (0, true) => "-",
                        (0, false) => "",
                        (_, true) => " - ",
                        (_, false) => " + ",
                    })?;
                    part(f, term, false)?;
                }
                Ok(())
            }
            Num::Product(factors) => {
                for (i, (divides, factor)) in factors.iter().enumerate() {
                    if i > 0 {
                        f.write_str(if *divides { " / " } else { " * " })?;
                    }
                    part(f, factor, true)?;
                }
                Ok(())
            }
        }
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match needs_quotes(&self.text) {
            true if self.text.contains('\'') => write!(f, "\"{}\"", self.text)?,
            true => write!(f, "'{}'", self.text)?,
            false => f.write_str(&self.text)?,
        }
        match &self.part {
            Some(PartText::Window(span)) => write!(f, "[{}..{}]", span.from.text, span.to.text),
            Some(PartText::Batch(number)) => write!(f, "[batch {number}]"),
            Some(PartText::Drain) => f.write_str("[drain]"),
            None => Ok(()),
        }
    }
}

/// Whether a name would not be read back as one without quotes. `steady` is only a function before a parenthesis,
/// where no name can be.
fn needs_quotes(name: &str) -> bool {
    let first = name.chars().next().is_none_or(|c| !(c.is_alphabetic() || c == '_'));
    let inside = name.chars().any(|c| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-')));
    let word = matches!(name, "and" | "AND" | "or" | "OR");
    first || inside || word || name.ends_with(['-', '.']) || name.contains("..")
}
