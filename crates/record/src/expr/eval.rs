//! Whether an expression holds: three-valued, with lower bounds for requests that never ended.
//!
//! A number is a range. A censored one extends from its bound to infinity: it satisfies no `<` (contract: it fails
//! any), satisfies `>` where its bound does, and otherwise cannot be known.

use super::check::Dim;
use super::{Comparison, Cond, Expr, Literal, Num, NumberKind, PartText, Window, lex};
use crate::counts::quantile::{Estimate, FewSamples};
use crate::spec::bound::Operator;
use crate::text::units::{estimate_text, format_count, format_duration_ns, significant};

/// What is known of a number. Values are in the unit of their kind: milliseconds, bytes, per second, percent.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// Exactly this value.
    Is(f64, NumberKind),
    /// At least this value: it falls among requests that never ended.
    AtLeast(f64, NumberKind),
    /// Too few samples: it lies between two bounds, at 95 %.
    Between(Between),
    /// It cannot be known, and why, in words that follow "is unknown: ".
    Unknown(String),
}

/// A part of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrialPart {
    /// Seconds of the load, on the trial's clock.
    Window(Window),
    /// A batch of the load, from 1.
    Batch(u32),
    /// From the load's end until the work was done.
    Drain,
}

/// A number of which too few samples give only bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    /// The estimate, in the kind's unit.
    pub estimate: Estimate,
    /// The largest sample: without an upper bound the number may be this or more.
    pub largest: Option<f64>,
    /// Its kind.
    pub kind: NumberKind,
    /// How many samples there are, and how many it takes.
    pub few: FewSamples,
}

impl Between {
    /// In words that follow the name.
    fn describe(&self) -> String {
        let Between { estimate, largest, kind, few } = self;
        let format = |v: f64| match kind {
            NumberKind::Duration => format_duration_ns(v * 1e6),
            _ => significant(v, 4),
        };
        let count = |n: u64| format_count(n as f64);
        let takes = few.needed_s.map(|s| format!(", {} at this rate", format_duration_ns(s * 1e9)));
        format!(
            "is {} from {} samples; {} would decide it{}",
            estimate_text(*estimate, *largest, format),
            count(few.samples),
            count(few.needed),
            takes.unwrap_or_default()
        )
    }
}

/// Where an expression's numbers come from.
pub trait NumberSource {
    /// A number by its name (`p99_9`, never `p99.9`), for a part of the trial if one is given.
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known;

    /// Whether a number has kept its value for the last `for_ns` nanoseconds; `None` when that cannot be known.
    fn steady(&self, name: &str, for_ns: u64) -> Option<bool>;
}

/// The result of evaluating an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluated {
    /// `None`: too few samples leave it open (then `undecided` is set), or it cannot be known. An expectation counts
    /// the latter as failed; neither triggers a stop condition.
    pub holds: Option<bool>,
    /// The left number of its first comparison, or of the one that decided against it: in the unit the comparison is
    /// written in (`p99 < 2s`: in seconds). `None` for `steady`, and if it is not known exactly.
    pub value: Option<f64>,
    /// The unit of `value`: `ms`, `s`, `%`, `MiB`, `/s`; empty for plain numbers.
    pub unit: String,
    /// Why it cannot be known, or which of several parts failed. `None` if there is nothing to add.
    pub note: Option<String>,
    /// Too few samples leave it open; this many would decide it.
    pub undecided: Option<FewSamples>,
}

impl Expr {
    /// Evaluates it. `false and unknown` is false, `true or unknown` is true.
    pub fn evaluate(&self, numbers: &dyn NumberSource) -> Evaluated {
        let judged = judge(&self.root, numbers);
        let several = matches!(self.root, Cond::And(_) | Cond::Or(_));
        let note = match (judged.holds, judged.why) {
            (Some(true), _) => None,
            (_, Some(why)) if several => Some(format!("`{}`: {why}", judged.part)),
            (_, Some(why)) => Some(why),
            (_, None) if several => Some(format!("`{}` does not hold", judged.part)),
            _ => None,
        };
        let undecided = judged.few.filter(|_| judged.holds.is_none());
        Evaluated { holds: judged.holds, value: judged.value, unit: judged.unit, note, undecided }
    }
}

/// A condition's outcome, and the part of it that represents the whole.
struct Judged<'a> {
    holds: Option<bool>,
    part: &'a Cond,
    value: Option<f64>,
    unit: String,
    why: Option<String>,
    /// How many samples would decide it.
    few: Option<FewSamples>,
}

fn judge<'a>(cond: &'a Cond, numbers: &dyn NumberSource) -> Judged<'a> {
    match cond {
        Cond::And(conds) => joined(cond, conds, numbers, false),
        Cond::Or(conds) => joined(cond, conds, numbers, true),
        Cond::Compare(comparison) => compare(cond, comparison, numbers),
        Cond::Steady(name, long) => {
            let holds = numbers.steady(&name.text, (long.quantity.value * 1e6).max(0.0) as u64);
            let why =
                holds.is_none().then(|| format!("`{}` has not been observed for {}", name.text, long.text));
            Judged { holds, part: cond, value: None, unit: String::new(), why, few: None }
        }
    }
}

/// `decisive` is the outcome of one part that decides for all: false for `and`, true for `or`.
fn joined<'a>(whole: &'a Cond, conds: &'a [Cond], numbers: &dyn NumberSource, decisive: bool) -> Judged<'a> {
    let mut parts: Vec<Judged<'a>> = conds.iter().map(|c| judge(c, numbers)).collect();
    let has = |holds| parts.iter().any(|p| p.holds == holds);
    let holds = match (has(Some(decisive)), has(None)) {
        (true, _) => Some(decisive),
        (false, true) => None,
        (false, false) => Some(!decisive),
    };
    // If it holds, the first part; otherwise the first with the same outcome as the whole. If it is open, the part
    // that no number of samples would decide, or else the one that needs most.
    let open = || parts.iter().enumerate().filter(|(_, part)| part.holds.is_none());
    let needed = |part: &Judged<'_>| part.few.map_or(f64::INFINITY, longer);
    let decides = match holds {
        Some(true) => 0,
        None => open().max_by(|a, b| needed(a.1).total_cmp(&needed(b.1))).map_or(0, |(at, _)| at),
        _ => parts.iter().position(|p| p.holds == holds).unwrap_or(0),
    };
    match parts.is_empty() {
        true => Judged { holds, part: whole, value: None, unit: String::new(), why: None, few: None },
        false => Judged { holds, ..parts.swap_remove(decides) },
    }
}

/// The factor by which the number of samples must grow.
fn longer(few: FewSamples) -> f64 {
    few.needed as f64 / few.samples.max(1) as f64
}

/// A number known only to lie between two bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) dim: Dim,
    /// A side is unbounded because something never ended; otherwise because there are too few samples.
    endless: bool,
}

/// Remarks on a number's range.
#[derive(Default)]
pub(super) struct Remarks {
    /// Reasons in words.
    pub(super) notes: Vec<String>,
    /// The names that have too few samples.
    pub(super) few: Vec<FewSamples>,
}

impl Range {
    fn point(value: f64, dim: Dim) -> Range {
        Range { low: value, high: value, dim, endless: false }
    }

    pub(super) fn is_point(self) -> bool {
        self.low == self.high
    }

    /// It has no upper bound.
    pub(super) fn is_open(self) -> bool {
        self.high == f64::INFINITY
    }

    fn negated(self) -> Range {
        Range { low: -self.high, high: -self.low, ..self }
    }

    fn in_unit_of(self, dim: Dim) -> Range {
        let divisor = self.dim.divisor_to(dim);
        Range { low: self.low / divisor, high: self.high / divisor, dim, ..self }
    }

    fn plus(self, other: Range) -> Option<Range> {
        let dim = self.dim.with(other.dim)?;
        let (a, b) = (self.in_unit_of(dim), other.in_unit_of(dim));
        Some(Range { low: a.low + b.low, high: a.high + b.high, dim, endless: a.endless || b.endless })
    }

    fn has_zero(self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }

    /// The quotient by a range that does not contain 0.
    fn over(self, other: Range) -> Option<Range> {
        let (dim, factor) = self.dim.over(other.dim)?;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for a in [self.low, self.high] {
            for b in [other.low, other.high] {
                // If neither side is bounded, the quotient may be anything of their sign.
                let quotient = if a.is_infinite() && b.is_infinite() { 0.0 } else { a * factor / b };
                (low, high) = (low.min(quotient), high.max(quotient));
            }
        }
        let endless = self.endless || other.endless;
        Some(Range { low, high, dim, endless })
    }

    fn times(self, other: Range) -> Option<Range> {
        let (dim, divisor) = self.dim.times(other.dim)?;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for a in [self.low, self.high] {
            for b in [other.low, other.high] {
                // zero times "no bound" is zero
                let product = if a == 0.0 || b == 0.0 { 0.0 } else { a * b / divisor };
                (low, high) = (low.min(product), high.max(product));
            }
        }
        Some(Range { low, high, dim, endless: self.endless || other.endless })
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
    // A request that never ended is not below anything.
    let endless = a.endless && a.high == f64::INFINITY || b.endless && b.low == f64::NEG_INFINITY;
    endless.then_some(false)
}

fn equal(a: Range, b: Range) -> Option<bool> {
    match a.high < b.low || b.high < a.low {
        true => Some(false),
        false => (a.is_point() && b.is_point()).then_some(true),
    }
}

fn compare<'a>(cond: &'a Cond, comparison: &'a Comparison, numbers: &dyn NumberSource) -> Judged<'a> {
    let Comparison { left, operator, right } = comparison;
    let mut remarks = Remarks::default();
    let sides = (range(left, numbers, &mut remarks), range(right, numbers, &mut remarks));
    let (value, unit) = match sides.0 {
        Some(a) if a.is_point() => in_written_unit(a, comparison),
        _ => (None, String::new()),
    };
    let mut judged = Judged { holds: None, part: cond, value, unit, why: None, few: None };
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
            None => {
                let note = format!("{} cannot be compared with {}", a.dim.describe(), b.dim.describe());
                remarks.notes.push(note);
                remarks.few.clear();
            }
        }
        judged.few = remarks.few.into_iter().max_by(|a, b| longer(*a).total_cmp(&longer(*b)));
    }
    judged.why = (!remarks.notes.is_empty()).then(|| remarks.notes.join("; "));
    judged
}

/// A number's range; `None`, with the reason among the remarks, if nothing is known of it.
pub(super) fn range(num: &Num, numbers: &dyn NumberSource, remarks: &mut Remarks) -> Option<Range> {
    match num {
        Num::Literal(literal) => Some(Range::point(literal.quantity.value, Dim::of(literal))),
        Num::Name(name) => match numbers.number(&name.text, name.part.as_ref().map(PartText::part)) {
            Known::Is(value, kind) if value.is_finite() => Some(Range::point(value, Dim::Of(kind))),
            Known::AtLeast(low, kind) if low.is_finite() => {
                let unit = match kind.unit() {
                    "" => String::new(),
                    unit => format!(" {unit}"),
                };
                remarks
                    .notes
                    .push(format!("`{name}` is at least {}{unit}", crate::text::units::significant(low, 4)));
                Some(Range { low, high: f64::INFINITY, dim: Dim::Of(kind), endless: true })
            }
            Known::Between(between) => {
                remarks.notes.push(format!("`{name}` {}", between.describe()));
                remarks.few.push(between.few);
                let Estimate { low, high, .. } = between.estimate;
                let (low, high) = (low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY));
                Some(Range { low, high, dim: Dim::Of(between.kind), endless: false })
            }
            Known::Unknown(why) => {
                remarks.notes.push(format!("`{name}` is unknown: {why}"));
                None
            }
            Known::Is(value, _) | Known::AtLeast(value, _) => {
                remarks.notes.push(format!("`{name}` is unknown: {value}"));
                None
            }
        },
        Num::Figure(_, num) => range(num, numbers, remarks),
        Num::Sum(terms) => {
            let mut sum = Some(Range::point(0.0, Dim::Any));
            for (minus, term) in terms {
                let term = range(term, numbers, remarks);
                let term = if *minus { term.map(Range::negated) } else { term };
                sum = together("added", sum, term, Range::plus, remarks);
            }
            sum
        }
        Num::Product(factors) => {
            let mut product = Some(Range::point(1.0, Dim::Of(NumberKind::Plain)));
            for (divides, factor) in factors {
                let value = range(factor, numbers, remarks);
                product = match divides {
                    true if value.is_some_and(Range::has_zero) => {
                        remarks.notes.push(format!("`{factor}` may be 0, and nothing can be divided by 0"));
                        None
                    }
                    true => together("divided", product, value, Range::over, remarks),
                    false => together("multiplied", product, value, Range::times, remarks),
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
    remarks: &mut Remarks,
) -> Option<Range> {
    let (a, b) = (a?, b?);
    let result = how(a, b);
    if result.is_none() {
        remarks.notes.push(format!("{} and {} cannot be {done}", a.dim.describe(), b.dim.describe()));
    }
    result
}

/// The left number in the unit of the first literal of its kind that has one, right side first.
fn in_written_unit(left: Range, comparison: &Comparison) -> (Option<f64>, String) {
    let literals = [&comparison.right, &comparison.left].into_iter().filter_map(|side| side.first_literal());
    for literal in literals {
        if let Some((divisor, unit)) = unit_of(literal, left.dim) {
            return (Some(left.low / divisor), unit);
        }
    }
    let unit = match left.dim {
        Dim::Any => "",
        Dim::Share => NumberKind::Percent.unit(),
        Dim::Of(kind) => kind.unit(),
    };
    (Some(left.low), unit.to_owned())
}

/// A literal's own unit and its size in the record's unit, if numbers of `dim` can be given in it.
fn unit_of(literal: &Literal, dim: Dim) -> Option<(f64, String)> {
    // for `1m30s` the last unit
    let number = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    let unit = match literal.quantity.kind {
        NumberKind::Duration => literal.text.rsplit(number).next()?,
        _ => literal.text.trim_start_matches(number),
    };
    if unit.is_empty() {
        return None;
    }
    match (literal.quantity.kind, dim) {
        (NumberKind::Percent, Dim::Of(NumberKind::Fraction | NumberKind::Plain)) => {
            Some((0.01, unit.to_owned()))
        }
        (NumberKind::Percent, Dim::Share) => Some((1.0, unit.to_owned())),
        (kind, Dim::Of(other)) if kind == other => {
            let one = lex::quantity(&format!("1{unit}"))?;
            Some((one.value, unit.to_owned()))
        }
        _ => None,
    }
}
