//! Whether an expression holds: three-valued, with lower bounds for what never ended.
//!
//! A number is a range. A censored one reaches from its bound to infinity: it satisfies no `<` (contract: it
//! fails any), satisfies `>` where its bound does, and otherwise cannot be known.

use super::check::Dim;
use super::{Comparison, Cond, Expr, Kind, Literal, Num, PartText, Window, lex};
use crate::bound::Operator;

/// What is known of a number. Values are in the unit of their kind: milliseconds, bytes, per second, percent.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// This.
    Is(f64, Kind),
    /// At least this: it falls among requests that never ended.
    AtLeast(f64, Kind),
    /// It cannot be known, and why, in words that follow "is unknown: ".
    Unknown(String),
}

/// A part of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// Seconds of the load, on the trial's clock.
    Window(Window),
    /// A batch of the load, from 1.
    Batch(u32),
    /// From the load's end until the work was done.
    Drain,
}

/// Where an expression's numbers come from.
pub trait Numbers {
    /// A number by its name (`p99_9`, never `p99.9`), of a part of the trial if one is given.
    fn number(&self, name: &str, part: Option<Part>) -> Known;

    /// Whether a number has kept its value for the last `for_ns` nanoseconds; `None` when that cannot be known.
    fn steady(&self, name: &str, for_ns: u64) -> Option<bool>;
}

/// What came of an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluated {
    /// `None`: it cannot be known. An expectation then counts as failed, a stop condition as not reached.
    pub holds: Option<bool>,
    /// The left number of its first comparison, or of the one that decided against it: in the unit the
    /// comparison is written in (`p99 < 2s`: in seconds). `None` for `steady`, and when it is not known exactly.
    pub value: Option<f64>,
    /// The unit of `value`: `ms`, `s`, `%`, `MiB`, `/s`; empty for plain numbers.
    pub unit: String,
    /// Why it cannot be known, or which part failed where there are several. `None` when there is nothing to add.
    pub note: Option<String>,
}

impl Expr {
    /// Evaluates it. `false and unknown` is false, `true or unknown` is true.
    pub fn evaluate(&self, numbers: &dyn Numbers) -> Evaluated {
        let judged = judge(&self.root, numbers);
        let several = matches!(self.root, Cond::And(_) | Cond::Or(_));
        let note = match (judged.holds, judged.why) {
            (Some(true), _) => None,
            (_, Some(why)) if several => Some(format!("`{}`: {why}", judged.part)),
            (_, Some(why)) => Some(why),
            (_, None) if several => Some(format!("`{}` does not hold", judged.part)),
            _ => None,
        };
        Evaluated { holds: judged.holds, value: judged.value, unit: judged.unit, note }
    }
}

/// A condition's outcome, with the part of it that stands for the whole.
struct Judged<'a> {
    holds: Option<bool>,
    part: &'a Cond,
    value: Option<f64>,
    unit: String,
    why: Option<String>,
}

fn judge<'a>(cond: &'a Cond, numbers: &dyn Numbers) -> Judged<'a> {
    match cond {
        Cond::And(conds) => joined(cond, conds, numbers, false),
        Cond::Or(conds) => joined(cond, conds, numbers, true),
        Cond::Compare(comparison) => compare(cond, comparison, numbers),
        Cond::Steady(name, long) => {
            let holds = numbers.steady(&name.text, (long.quantity.value * 1e6).max(0.0) as u64);
            let why =
                holds.is_none().then(|| format!("`{}` has not been observed for {}", name.text, long.text));
            Judged { holds, part: cond, value: None, unit: String::new(), why }
        }
    }
}

/// `decisive` is the outcome of one part that decides over all: false for `and`, true for `or`.
fn joined<'a>(whole: &'a Cond, conds: &'a [Cond], numbers: &dyn Numbers, decisive: bool) -> Judged<'a> {
    let mut parts: Vec<Judged<'a>> = conds.iter().map(|c| judge(c, numbers)).collect();
    let has = |holds| parts.iter().any(|p| p.holds == holds);
    let holds = match (has(Some(decisive)), has(None)) {
        (true, _) => Some(decisive),
        (false, true) => None,
        (false, false) => Some(!decisive),
    };
    // The first part, unless it must be blamed: then the first that came out like the whole.
    let stands = match holds {
        Some(true) => 0,
        _ => parts.iter().position(|p| p.holds == holds).unwrap_or(0),
    };
    match parts.is_empty() {
        true => Judged { holds, part: whole, value: None, unit: String::new(), why: None },
        false => Judged { holds, ..parts.swap_remove(stands) },
    }
}

/// A number that is only known to lie between two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    high: f64,
    pub(super) dim: Dim,
}

impl Range {
    fn point(value: f64, dim: Dim) -> Range {
        Range { low: value, high: value, dim }
    }

    pub(super) fn is_point(self) -> bool {
        self.low == self.high
    }

    /// It has no upper end.
    pub(super) fn is_open(self) -> bool {
        self.high == f64::INFINITY
    }

    fn negated(self) -> Range {
        Range { low: -self.high, high: -self.low, ..self }
    }

    fn in_unit_of(self, dim: Dim) -> Range {
        let divisor = self.dim.divisor_to(dim);
        Range { low: self.low / divisor, high: self.high / divisor, dim }
    }

    fn plus(self, other: Range) -> Option<Range> {
        let dim = self.dim.with(other.dim)?;
        let (a, b) = (self.in_unit_of(dim), other.in_unit_of(dim));
        Some(Range { low: a.low + b.low, high: a.high + b.high, dim })
    }

    fn has_zero(self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }

    /// The quotient by a range that does not hold 0.
    fn over(self, other: Range) -> Option<Range> {
        let (dim, factor) = self.dim.over(other.dim)?;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for a in [self.low, self.high] {
            for b in [other.low, other.high] {
                // Without bounds on both sides the quotient may be anything of their sign.
                let quotient = if a.is_infinite() && b.is_infinite() { 0.0 } else { a * factor / b };
                (low, high) = (low.min(quotient), high.max(quotient));
            }
        }
        Some(Range { low, high, dim })
    }

    fn times(self, other: Range) -> Option<Range> {
        let (dim, divisor) = self.dim.times(other.dim)?;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for a in [self.low, self.high] {
            for b in [other.low, other.high] {
                // nothing times "no bound" is nothing
                let product = if a == 0.0 || b == 0.0 { 0.0 } else { a * b / divisor };
                (low, high) = (low.min(product), high.max(product));
            }
        }
        Some(Range { low, high, dim })
    }
}

/// `a < b`, or `a <= b`.
fn less(a: Range, b: Range, or_equal: bool) -> Option<bool> {
    if a.high < b.low || or_equal && a.high <= b.low {
        return Some(true);
    }
    if a.low > b.high || !or_equal && a.low >= b.high {
        return Some(false);
    }
    // What never ended is not below anything.
    let endless = a.high == f64::INFINITY || b.low == f64::NEG_INFINITY;
    endless.then_some(false)
}

fn equal(a: Range, b: Range) -> Option<bool> {
    match a.high < b.low || b.high < a.low {
        true => Some(false),
        false => (a.is_point() && b.is_point()).then_some(true),
    }
}

fn compare<'a>(cond: &'a Cond, comparison: &'a Comparison, numbers: &dyn Numbers) -> Judged<'a> {
    let Comparison { left, operator, right } = comparison;
    let mut notes = Vec::new();
    let sides = (range(left, numbers, &mut notes), range(right, numbers, &mut notes));
    let (value, unit) = match sides.0 {
        Some(a) if a.is_point() => in_written_unit(a, comparison),
        _ => (None, String::new()),
    };
    let mut judged = Judged { holds: None, part: cond, value, unit, why: None };
    if let (Some(a), Some(b)) = sides {
        match a.dim.with(b.dim) {
            Some(dim) => {
                let (a, b) = (a.in_unit_of(dim), b.in_unit_of(dim));
                judged.holds = match operator {
                    Operator::Less => less(a, b, false),
                    Operator::AtMost => less(a, b, true),
                    Operator::Greater => less(b, a, false),
                    Operator::AtLeast => less(b, a, true),
                    Operator::Equal => equal(a, b),
                    Operator::NotEqual => equal(a, b).map(|same| !same),
                };
            }
            None => notes.push(format!("{} cannot be compared with {}", a.dim.describe(), b.dim.describe())),
        }
    }
    judged.why = (!notes.is_empty()).then(|| notes.join("; "));
    judged
}

/// A number's range; `None`, with the reason among the notes, when nothing is known of it.
pub(super) fn range(num: &Num, numbers: &dyn Numbers, notes: &mut Vec<String>) -> Option<Range> {
    match num {
        Num::Literal(literal) => Some(Range::point(literal.quantity.value, Dim::of(literal))),
        Num::Name(name) => match numbers.number(&name.text, name.part.as_ref().map(PartText::part)) {
            Known::Is(value, kind) if value.is_finite() => Some(Range::point(value, Dim::Of(kind))),
            Known::AtLeast(low, kind) if low.is_finite() => {
                let unit = match kind.unit() {
                    "" => String::new(),
                    unit => format!(" {unit}"),
                };
                notes.push(format!("`{name}` is at least {}{unit}", crate::units::significant(low, 4)));
                Some(Range { low, high: f64::INFINITY, dim: Dim::Of(kind) })
            }
            Known::Unknown(why) => {
                notes.push(format!("`{name}` is unknown: {why}"));
                None
            }
            Known::Is(value, _) | Known::AtLeast(value, _) => {
                notes.push(format!("`{name}` is unknown: {value}"));
                None
            }
        },
        Num::Figure(_, num) => range(num, numbers, notes),
        Num::Sum(terms) => {
            let mut sum = Some(Range::point(0.0, Dim::Any));
            for (minus, term) in terms {
                let term = range(term, numbers, notes);
                let term = if *minus { term.map(Range::negated) } else { term };
                sum = together("added", sum, term, Range::plus, notes);
            }
            sum
        }
        Num::Product(factors) => {
            let mut product = Some(Range::point(1.0, Dim::Of(Kind::Plain)));
            for (divides, factor) in factors {
                let value = range(factor, numbers, notes);
                product = match divides {
                    true if value.is_some_and(Range::has_zero) => {
                        notes.push(format!("`{factor}` may be 0, and nothing can be divided by 0"));
                        None
                    }
                    true => together("divided", product, value, Range::over, notes),
                    false => together("multiplied", product, value, Range::times, notes),
                };
            }
            product
        }
    }
}

fn together(
    done: &str,
    a: Option<Range>,
    b: Option<Range>,
    how: fn(Range, Range) -> Option<Range>,
    notes: &mut Vec<String>,
) -> Option<Range> {
    let (a, b) = (a?, b?);
    let result = how(a, b);
    if result.is_none() {
        notes.push(format!("{} and {} cannot be {done}", a.dim.describe(), b.dim.describe()));
    }
    result
}

/// The left number in the unit of the first literal that has one of its kind, right side first.
fn in_written_unit(left: Range, comparison: &Comparison) -> (Option<f64>, String) {
    let literals = [&comparison.right, &comparison.left].into_iter().filter_map(|side| side.first_literal());
    for literal in literals {
        if let Some((divisor, unit)) = unit_of(literal, left.dim) {
            return (Some(left.low / divisor), unit);
        }
    }
    let unit = match left.dim {
        Dim::Any => "",
        Dim::Share => Kind::Percent.unit(),
        Dim::Of(kind) => kind.unit(),
    };
    (Some(left.low), unit.to_owned())
}

/// A literal's own unit and how many of the record's it is, if numbers of `dim` can be given in it.
fn unit_of(literal: &Literal, dim: Dim) -> Option<(f64, String)> {
    // of `1m30s` the last unit
    let number = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    let unit = match literal.quantity.kind {
        Kind::Duration => literal.text.rsplit(number).next()?,
        _ => literal.text.trim_start_matches(number),
    };
    if unit.is_empty() {
        return None;
    }
    match (literal.quantity.kind, dim) {
        (Kind::Percent, Dim::Of(Kind::Fraction | Kind::Plain)) => Some((0.01, unit.to_owned())),
        (Kind::Percent, Dim::Share) => Some((1.0, unit.to_owned())),
        (kind, Dim::Of(other)) if kind == other => {
            let one = lex::quantity(&format!("1{unit}"))?;
            Some((one.value, unit.to_owned()))
        }
        _ => None,
    }
}
