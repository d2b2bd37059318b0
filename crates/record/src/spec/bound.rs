//! Comparisons of two numbers, as conditions and checks write them.

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl Operator {
    /// All operators with their signs, ordered so that a sign never follows one of its prefixes.
    pub const ALL: [(&'static str, Operator); 6] = [
        ("<=", Operator::AtMost),
        (">=", Operator::AtLeast),
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];

    /// The operator as written.
    pub fn sign(self) -> &'static str {
        Operator::ALL.iter().find(|(_, operator)| *operator == self).map_or("", |(sign, _)| sign)
    }
}

/// A comparison with a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The comparison operator.
    pub operator: Operator,
    /// The right-hand side, in base units.
    pub value: f64,
}

impl Bound {
    /// Whether a number satisfies the bound.
    #[inline]
    pub fn holds(self, value: f64) -> bool {
        match self.operator {
            Operator::Less => value < self.value,
            Operator::AtMost => value <= self.value,
            Operator::Greater => value > self.value,
            Operator::AtLeast => value >= self.value,
            Operator::Equal => value == self.value,
            Operator::NotEqual => value != self.value,
        }
    }
}
