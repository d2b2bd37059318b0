//! Expressions over a trial's numbers: expectations, stop and drain conditions.
//!
//! ```text
//! p99 < 200ms and errors < 0.1%
//! stored == accepted or steady(stored, 5s)
//! p99[10s..30s] < 2 * p99[0s..10s]
//! ```
//!
//! A condition is a comparison (`<` `<=` `>` `>=` `==` `!=`), `steady(NAME, DURATION)`, or several of them joined by
//! `and` and `or` (`and` binds more tightly) with parentheses. The sides of a comparison are sums, differences,
//! products and quotients of numbers with units and of names. A name may contain dots and dashes (`load-balancer.cpu`),
//! so a difference needs blanks around its `-`; a name with other characters needs quotes. `p99.9` is `p99_9`. Brackets
//! after a name select a part of the trial: `p99[10s..30s]`, `goodput[batch 2]`, `db.memory.max[drain]`.
//!
//! Parsing ([`Expr::parse`]) knows only the built-in names, for their kinds: [`Expr::check_names`] and
//! [`Expr::check_kinds`] compare names with the known ones. Evaluation ([`Expr::evaluate`]) queries a [`NumberSource`]
//! and is three-valued: an unknown is neither true nor false. Nothing here reads a clock or a file, and no input makes it panic.

mod check;
mod display;
mod eval;
mod figure;
mod formula;
mod lex;
mod names;
mod other_tools;
mod page;
mod parse;
mod summary;

use crate::documents::figure::NumberKind;
use crate::spec::bound::Operator;

pub use eval::{Between, Evaluated, Known, NumberSource, TrialPart};
pub use figure::Figure;
pub use formula::Formula;
pub use names::{
    FIGURES, NAMES, SERIES_PREFIXES, built_in_kind, built_in_names, component_figure, component_names,
    is_probe_figure, kind_of, number_names, number_of_component, probe_names, tag_names,
};
pub use page::conditions_page;
pub use summary::{BEYOND_S, SummaryNumbers};

pub use crate::counts::load::Window;

/// The longest expression, in bytes.
pub const MAX_BYTES: usize = 10_000;
/// The deepest nesting of parentheses.
pub const MAX_DEPTH: usize = 50;

/// A number with a unit, as written in an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// Its kind.
    pub kind: NumberKind,
    /// In the kind's unit: milliseconds, bytes, per second, percent.
    pub value: f64,
}

/// Why a text is not an expression, or which unknown name it uses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", .hint.as_ref().map(|h| format!("\nhint: {h}")).unwrap_or_default())]
pub struct ExprError {
    /// What is wrong, naming the part.
    pub message: String,
    /// Byte offset of the part in the text.
    pub at: usize,
    /// Its length in bytes; 0 at the end of the text.
    pub len: usize,
    /// What to write instead.
    pub hint: Option<String>,
}

/// A checked expression. Two are equal when they are written the same, but for blanks: `1s` is not equal to `1000ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    root: Cond,
}

/// A name in an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct NameRef {
    /// The name, `p99.9` as `p99_9`.
    pub text: String,
    /// Its position: byte offset.
    pub at: usize,
    /// Its length in the text, in bytes.
    pub len: usize,
    /// The part of the trial it refers to.
    pub part: Option<TrialPart>,
}

/// The kind of a number with this unit: `ms`, `MiB`, `/s`; `None` if it is not a unit of expressions.
pub fn kind_of_unit(unit: &str) -> Option<NumberKind> {
    let known = unit.starts_with(|c: char| c.is_alphabetic() || c == '/');
    lex::quantity(&format!("1{unit}")).filter(|_| known).map(|quantity| quantity.kind)
}

impl Expr {
    /// Parses a condition.
    ///
    /// # Errors
    /// The first error and where. Kinds that cannot be compared are an error if they are known from the text or from
    /// the built-in names; unknown names are not an error here.
    pub fn parse(text: &str) -> Result<Expr, ExprError> {
        let expr = Expr { root: parse::parse(text)? };
        // Built-in names need not wait for a caller that knows more names.
        expr.check_kinds(&|name| names::built_in_kind(name))?;
        Ok(expr)
    }
}

/// True, false, or unknown.
#[derive(Clone, Debug, PartialEq)]
enum Cond {
    /// All of these hold; at least two.
    And(Vec<Cond>),
    /// One of these holds; at least two.
    Or(Vec<Cond>),
    Compare(Comparison),
    /// The name has not changed for this long.
    Steady(Name, Literal),
}

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    left: Num,
    operator: Operator,
    right: Num,
}

#[derive(Clone, Debug, PartialEq)]
enum Num {
    Literal(Literal),
    Name(Name),
    /// A figure of the plan, and its definition.
    Figure(Name, Box<Num>),
    /// Terms with their signs (true: subtracted); a single one only when its sign is minus.
    Sum(Vec<(bool, Num)>),
    /// At least two factors; those marked true divide, which the first never does.
    Product(Vec<(bool, Num)>),
}

#[derive(Clone, Debug)]
struct Name {
    text: String,
    part: Option<PartText>,
    at: usize,
    len: usize,
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.part) == (&other.text, &other.part)
    }
}

/// A part of a trial as written.
#[derive(Clone, Debug, PartialEq)]
enum PartText {
    Window(Span),
    /// Batch number, from 1.
    Batch(u32),
    Drain,
}

impl PartText {
    fn part(&self) -> TrialPart {
        match self {
            PartText::Window(span) => TrialPart::Window(span.window()),
            PartText::Batch(number) => TrialPart::Batch(*number),
            PartText::Drain => TrialPart::Drain,
        }
    }
}

/// From one duration to a longer one.
#[derive(Clone, Debug, PartialEq)]
struct Span {
    from: Literal,
    to: Literal,
}

impl Span {
    fn window(&self) -> Window {
        Window { from_s: self.from.quantity.value / 1000.0, to_s: self.to.quantity.value / 1000.0 }
    }
}

#[derive(Clone, Debug)]
struct Literal {
    quantity: Quantity,
    /// As written.
    text: String,
    at: usize,
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        (self.quantity, &self.text) == (other.quantity, &other.text)
    }
}
