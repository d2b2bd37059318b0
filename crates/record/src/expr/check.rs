//! Checks of an expression before it is evaluated: which names it uses, whether they are known, and whether what it
//! compares can be compared.

use super::names::{built_in_kind, built_in_names, is_count, kind_of};
use super::other_tools;
use super::{Comparison, Cond, Expr, ExprError, Literal, Name, NameRef, Num, NumberKind};
use crate::text::edit_distance::edit_distance;

/// A number's dimension during a calculation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dim {
    /// 0, or an unknown name: compatible with everything.
    Any,
    /// A literal with `%`: percent next to a percentage, a hundredth next to a share or a plain number.
    Share,
    /// A number of this kind.
    Of(NumberKind),
}

impl Dim {
    pub(super) fn of(literal: &Literal) -> Dim {
        match literal.quantity.kind {
            NumberKind::Plain if literal.quantity.value == 0.0 => Dim::Any,
            NumberKind::Percent => Dim::Share,
            kind => Dim::Of(kind),
        }
    }

    /// The dimension both are converted to before they are added or compared; `None` if they cannot be.
    pub(super) fn with(self, other: Dim) -> Option<Dim> {
        use NumberKind::{Bytes, Fraction, Percent, Plain, Rate};
        Some(match (self, other) {
            (Dim::Any, dim) | (dim, Dim::Any) => dim,
            (a, b) if a == b => a,
            (Dim::Share, Dim::Of(kind @ (Percent | Fraction | Plain)))
            | (Dim::Of(kind @ (Percent | Fraction | Plain)), Dim::Share) => Dim::Of(kind),
            (Dim::Of(Fraction), Dim::Of(Percent)) | (Dim::Of(Percent), Dim::Of(Fraction)) => {
                Dim::Of(Fraction)
            }
            // plans read bare numbers as bytes and per second wherever these are expected, but never as a time
            (Dim::Of(Plain), Dim::Of(kind @ (Rate | Bytes | Fraction)))
            | (Dim::Of(kind @ (Rate | Bytes | Fraction)), Dim::Of(Plain)) => Dim::Of(kind),
            _ => return None,
        })
    }

    /// The product's dimension, and the divisor to apply; `None` if there is no such product.
    pub(super) fn times(self, other: Dim) -> Option<(Dim, f64)> {
        use NumberKind::{Duration, Fraction, Plain, Rate};
        Some(match (self, other) {
            (Dim::Any, _) | (_, Dim::Any) => (Dim::Any, 1.0),
            (Dim::Share, Dim::Share) => (Dim::Of(Fraction), 10_000.0),
            (Dim::Share, dim) | (dim, Dim::Share) => (dim, 100.0),
            (Dim::Of(Plain | Fraction), dim) | (dim, Dim::Of(Plain | Fraction)) => (dim, 1.0),
            // milliseconds times per second
            (Dim::Of(Duration), Dim::Of(Rate)) | (Dim::Of(Rate), Dim::Of(Duration)) => {
                (Dim::Of(Plain), 1000.0)
            }
            _ => return None,
        })
    }

    /// The quotient's dimension, and the factor to apply; `None` if there is no such quotient.
    pub(super) fn over(self, other: Dim) -> Option<(Dim, f64)> {
        use NumberKind::{Duration, Fraction, Percent, Plain, Rate};
        Some(match (self, other) {
            (Dim::Any, _) | (_, Dim::Any) => (Dim::Any, 1.0),
            (a, b) if a == b => (Dim::Of(Plain), 1.0),
            (Dim::Of(Percent), Dim::Share) | (Dim::Share, Dim::Of(Percent)) => (Dim::Of(Plain), 1.0),
            (Dim::Of(Plain), Dim::Share) => (Dim::Of(Plain), 100.0),
            (dim, Dim::Share) => (dim, 100.0),
            (dim, Dim::Of(Plain | Fraction)) => (dim, 1.0),
            // per millisecond, and its reverse
            (Dim::Of(Plain), Dim::Of(Duration)) => (Dim::Of(Rate), 1000.0),
            (Dim::Of(Plain), Dim::Of(Rate)) => (Dim::Of(Duration), 1000.0),
            _ => return None,
        })
    }

    /// The divisor that converts a value of this dimension to another one that [`Dim::with`] returned.
    pub(super) fn divisor_to(self, other: Dim) -> f64 {
        match (self, other) {
            (
                Dim::Share | Dim::Of(NumberKind::Percent),
                Dim::Of(NumberKind::Fraction | NumberKind::Plain),
            ) => 100.0,
            _ => 1.0,
        }
    }

    pub(super) fn describe(self) -> &'static str {
        match self {
            Dim::Any => "a number",
            Dim::Share => NumberKind::Percent.describe(),
            Dim::Of(kind) => kind.describe(),
        }
    }
}

impl Expr {
    /// Every name it uses, in the order of the text.
    pub fn names(&self) -> Vec<NameRef> {
        let mut names = Vec::new();
        self.root.each_name(&mut |name| names.push(name.to_ref()));
        names
    }

    /// The names in its `steady` terms.
    pub fn steady_names(&self) -> Vec<NameRef> {
        let mut names = Vec::new();
        self.root.each_steady(&mut |name| names.push(name.to_ref()));
        names
    }

    /// Compares its names with the built-in ones and with `known` (see [`super::tag_names`],
    /// [`super::component_names`] and [`super::probe_names`]).
    ///
    /// # Errors
    /// The first unknown name, with the nearest known one as a hint.
    pub fn check_names<S: AsRef<str>>(&self, known: &[S]) -> Result<(), ExprError> {
        check_names(&self.names(), known)
    }

    /// Finds comparisons, sums and products of incompatible things, such as a duration and a size. `kind` returns a
    /// name's kind ([`super::kind_of`] does for most); a name it does not know is compatible with all.
    ///
    /// # Errors
    /// The first incompatible pair.
    pub fn check_kinds(&self, kind: &dyn Fn(&str) -> Option<NumberKind>) -> Result<(), ExprError> {
        self.root.check_kinds(kind)
    }
}

/// The first name that is neither built in nor known is an error.
pub(super) fn check_names<S: AsRef<str>>(names: &[NameRef], known: &[S]) -> Result<(), ExprError> {
    let is_known = |name: &&NameRef| {
        built_in_kind(&name.text).is_some() || known.iter().any(|k| k.as_ref() == name.text)
    };
    match names.iter().find(|name| !is_known(name)) {
        Some(name) => Err(ExprError {
            message: format!("unknown name `{}`", name.text),
            at: name.at,
            len: name.len,
            hint: Some(hint_for(&name.text, known)),
        }),
        None => Ok(()),
    }
}

impl Name {
    pub(super) fn to_ref(&self) -> NameRef {
        let part = self.part.as_ref().map(super::PartText::part);
        NameRef { text: self.text.clone(), at: self.at, len: self.len, part }
    }
}

impl Cond {
    fn each_name(&self, report: &mut dyn FnMut(&Name)) {
        match self {
            Cond::And(conds) | Cond::Or(conds) => conds.iter().for_each(|c| c.each_name(report)),
            Cond::Compare(c) => {
                c.left.each_name(report);
                c.right.each_name(report);
            }
            Cond::Steady(name, _) => report(name),
        }
    }

    fn each_steady(&self, report: &mut dyn FnMut(&Name)) {
        match self {
            Cond::And(conds) | Cond::Or(conds) => conds.iter().for_each(|c| c.each_steady(report)),
            Cond::Compare(_) => {}
            Cond::Steady(name, _) => report(name),
        }
    }

    fn check_kinds(&self, kind: &dyn Fn(&str) -> Option<NumberKind>) -> Result<(), ExprError> {
        match self {
            Cond::And(conds) | Cond::Or(conds) => conds.iter().try_for_each(|c| c.check_kinds(kind)),
            Cond::Compare(Comparison { left, operator, right }) => {
                let (a, b) = (left.dim(kind)?, right.dim(kind)?);
                if let Some(error) = out_of_scale(left, right).or_else(|| out_of_scale(right, left)) {
                    return Err(error);
                }
                match a.with(b) {
                    Some(_) => Ok(()),
                    None => {
                        let (left, right) = (Operand { num: left, dim: a }, Operand { num: right, dim: b });
                        Err(mismatch("compare", left, right, &format!(" {} ", operator.sign())))
                    }
                }
            }
            Cond::Steady(..) => Ok(()),
        }
    }
}

/// Reports a count beside a share, a rate or a size, and a share beside a number above 1: each of these comparisons has
/// an answer, which is not what its author asks.
fn out_of_scale(num: &Num, other: &Num) -> Option<ExprError> {
    let (name, Num::Literal(literal)) = (num.only_name()?, other) else { return None };
    let (kind, value) = (literal.quantity.kind, literal.quantity.value);
    let error = |message, hint: &str| {
        Some(ExprError { message, at: literal.at, len: literal.text.len(), hint: Some(hint.to_owned()) })
    };
    let is_share = kind_of(&name.text) == Some(NumberKind::Fraction);
    match kind {
        NumberKind::Percent | NumberKind::Rate | NumberKind::Bytes if is_count(&name.text) => {
            let message = format!(
                "`{}` is a number of requests, and `{}` is {}",
                name.text,
                literal.text,
                kind.describe()
            );
            error(message, "shares are `errors` and `availability`, rates are `rate` and `goodput`")
        }
        NumberKind::Plain if is_share && value > 1.0 => {
            let message = format!("`{}` is a share, from 0 to 1, and `{}` is more", name.text, literal.text);
            error(message, &format!("write `{}%`, or count with `failed` and `ok`", literal.text))
        }
        _ => None,
    }
}

impl Num {
    pub(super) fn each_name(&self, report: &mut dyn FnMut(&Name)) {
        match self {
            Num::Literal(_) => {}
            Num::Name(name) => report(name),
            Num::Figure(_, num) => num.each_name(report),
            Num::Sum(terms) => terms.iter().for_each(|(_, n)| n.each_name(report)),
            Num::Product(factors) => factors.iter().for_each(|(_, n)| n.each_name(report)),
        }
    }

    pub(super) fn dim(&self, kind: &dyn Fn(&str) -> Option<NumberKind>) -> Result<Dim, ExprError> {
        match self {
            Num::Literal(literal) => Ok(Dim::of(literal)),
            Num::Name(name) => Ok(kind(&name.text).map_or(Dim::Any, Dim::Of)),
            Num::Figure(_, num) => num.dim(kind),
            Num::Sum(terms) => {
                let mut sum = Dim::Any;
                for (i, (_, term)) in terms.iter().enumerate() {
                    let dim = term.dim(kind)?;
                    let wrong = || {
                        let before = Num::Sum(terms[..i].to_vec());
                        let left = Operand { num: &before, dim: sum };
                        mismatch("add", left, Operand { num: term, dim }, " + ")
                    };
                    sum = sum.with(dim).ok_or_else(wrong)?;
                }
                Ok(sum)
            }
            Num::Product(factors) => {
                let mut product = Dim::Of(NumberKind::Plain);
                for (i, (divides, factor)) in factors.iter().enumerate() {
                    let dim = factor.dim(kind)?;
                    let (next, verb, sign) = match divides {
                        true => (product.over(dim), "divide", " / "),
                        false => (product.times(dim), "multiply", " * "),
                    };
                    let wrong = || {
                        let before = Num::Product(factors[..i].to_vec());
                        let left = Operand { num: &before, dim: product };
                        mismatch(verb, left, Operand { num: factor, dim }, sign)
                    };
                    product = next.ok_or_else(wrong)?.0;
                }
                Ok(product)
            }
        }
    }

    /// Its offset and length, as far as its first and last part show them.
    fn place(&self) -> (usize, usize) {
        match self {
            Num::Literal(literal) => (literal.at, literal.text.len()),
            Num::Name(name) | Num::Figure(name, _) => (name.at, name.len),
            Num::Sum(terms) => around(terms.iter().map(|(_, n)| n)),
            Num::Product(factors) => around(factors.iter().map(|(_, n)| n)),
        }
    }

    pub(super) fn first_literal(&self) -> Option<&Literal> {
        match self {
            Num::Literal(literal) => Some(literal),
            Num::Name(_) | Num::Figure(..) => None,
            Num::Sum(terms) => terms.iter().find_map(|(_, n)| n.first_literal()),
            Num::Product(factors) => factors.iter().find_map(|(_, n)| n.first_literal()),
        }
    }
}

fn around<'a>(mut parts: impl DoubleEndedIterator<Item = &'a Num>) -> (usize, usize) {
    let Some((at, len)) = parts.next().map(Num::place) else {
        return (0, 0);
    };
    match parts.next_back().map(Num::place) {
        Some((last, last_len)) => (at, (last + last_len).saturating_sub(at)),
        None => (at, len),
    }
}

/// One side of a calculation or comparison.
#[derive(Clone, Copy)]
struct Operand<'n> {
    num: &'n Num,
    dim: Dim,
}

fn mismatch(verb: &str, left: Operand<'_>, right: Operand<'_>, between: &str) -> ExprError {
    let (at, _) = left.num.place();
    let (last, last_len) = right.num.place();
    let message = format!(
        "cannot {verb} `{}` ({}) and `{}` ({}) in `{}{between}{}`",
        left.num,
        left.dim.describe(),
        right.num,
        right.dim.describe(),
        left.num,
        right.num
    );
    let hint = [(left, right), (right, left)].into_iter().find_map(|(own, other)| {
        let Num::Literal(Literal { quantity, text, .. }) = own.num else {
            return None;
        };
        match (own.dim, other.dim) {
            (Dim::Of(NumberKind::Plain), Dim::Of(NumberKind::Duration)) => {
                Some(format!("write `{text}ms` or `{text}s`"))
            }
            (Dim::Of(NumberKind::Plain), Dim::Of(NumberKind::Percent)) => {
                Some(format!("write `{text}%` (of one core)"))
            }
            (
                Dim::Of(NumberKind::Bytes),
                Dim::Of(NumberKind::Plain | NumberKind::Rate | NumberKind::Duration | NumberKind::Fraction),
            ) => Some(format!("`{text}` is {} bytes", quantity.value)),
            (Dim::Of(NumberKind::Duration), Dim::Of(NumberKind::Bytes)) if text.ends_with('m') => {
                Some(format!("`m` means minutes; write megabytes as `{}MB`", text.trim_end_matches('m')))
            }
            _ => None,
        }
    });
    ExprError { message, at, len: (last + last_len).saturating_sub(at), hint }
}

fn hint_for<S: AsRef<str>>(name: &str, known: &[S]) -> String {
    if let Some((before, after)) = name.rsplit_once('-')
        && !after.is_empty()
        && (built_in_kind(before).is_some() || known.iter().any(|k| k.as_ref() == before))
    {
        return format!("a difference needs spaces: `{before} - {after}`");
    }
    if let Some(hint) = other_tools::hint(name, known) {
        return hint;
    }
    let built_in = built_in_names();
    let candidates = known.iter().map(AsRef::as_ref).chain(built_in.iter().map(String::as_str));
    // A typo changes less than a third of a name; `a` is not a typo of `ok`.
    let near = |candidate: &str| {
        let (typed, length) = (name.chars().count(), candidate.chars().count());
        let is_comparable = typed.abs_diff(length) <= 2 && typed <= 200;
        let distance = is_comparable.then(|| edit_distance(name, candidate));
        distance.filter(|d| *d <= 2 && d * 3 <= typed.max(3))
    };
    let nearest = candidates.filter_map(|c| near(c).map(|d| (d, c))).min_by_key(|(d, _)| *d);
    if let Some((_, nearest)) = nearest {
        return format!("did you mean `{nearest}`?");
    }
    let some: Vec<String> = known.iter().take(8).map(|k| format!("`{}`", k.as_ref())).collect();
    let more = if known.len() > some.len() { " …" } else { "" };
    match some.is_empty() {
        true => {
            "known names are `p50` … `p99_99`, `errors`, `failed`, `rate`, `goodput` and others: docs/conditions.md lists all".to_owned()
        }
        false => format!("known besides the built-in names: {}{more}", some.join(", ")),
    }
}
