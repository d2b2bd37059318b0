//! Figures of a plan: names for numbers computed from others. Where a condition uses one, its definition is attached
//! to the name.

use super::{Between, Cond, Expr, ExprError, Formula, Known, Name, Num, NumberKind};
use crate::counts::quantile::{Estimate, FewSamples};
use crate::documents::figure::FigureValue;

/// A name for a number computed from others.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// How it is computed.
    pub formula: Formula,
    /// Its kind.
    pub kind: NumberKind,
}

/// Maximum number of names and numbers that one figure may expand to. Figures that each use the previous one twice
/// would double every time.
const MAX_PARTS: usize = 1000;

impl Figure {
    /// The figure with this text as its value, with the earlier figures attached to their names.
    ///
    /// # Errors
    /// The first error in the text and where; a figure that expands to more than 1000 names and numbers.
    pub fn after(before: &[Figure], name: &str, text: &str, kind: NumberKind) -> Result<Figure, ExprError> {
        let formula = Formula::parse(text)?;
        let parts = formula.num.parts(before);
        if parts > MAX_PARTS {
            return Err(ExprError {
                message: format!(
                    "with the figures that it uses, this is longer than {MAX_PARTS} names and numbers"
                ),
                at: 0,
                len: text.len(),
                hint: Some("use fewer figures in one another".to_owned()),
            });
        }
        Ok(Figure { name: name.to_owned(), formula: formula.with_figures(before), kind })
    }
}

impl Expr {
    /// The condition with these figures attached to their names. Its text is unchanged.
    pub fn with_figures(&self, figures: &[Figure]) -> Expr {
        Expr { root: self.root.with_figures(figures) }
    }
}

impl Formula {
    /// The number with these figures attached to their names. Its text is unchanged.
    fn with_figures(&self, figures: &[Figure]) -> Formula {
        Formula { num: self.num.with_figures(figures) }
    }
}

impl Cond {
    fn with_figures(&self, figures: &[Figure]) -> Cond {
        let all = |conds: &[Cond]| conds.iter().map(|c| c.with_figures(figures)).collect();
        match self {
            Cond::And(conds) => Cond::And(all(conds)),
            Cond::Or(conds) => Cond::Or(all(conds)),
            Cond::Compare(comparison) => {
                let mut comparison = comparison.clone();
                for side in [&mut comparison.left, &mut comparison.right] {
                    *side = side.with_figures(figures);
                }
                Cond::Compare(comparison)
            }
            Cond::Steady(..) => self.clone(),
        }
    }
}

impl Num {
    /// How many names and numbers it expands to with these figures attached to their names.
    fn parts(&self, figures: &[Figure]) -> usize {
        let all = |parts: &[(bool, Num)]| {
            parts.iter().map(|(_, n)| n.parts(figures)).fold(0, usize::saturating_add)
        };
        match self {
            Num::Name(name) if name.part.is_none() => {
                figures.iter().find(|f| f.name == name.text).map_or(1, |f| f.formula.num.parts(&[]))
            }
            Num::Sum(terms) => all(terms),
            Num::Product(factors) => all(factors),
            Num::Figure(_, num) => num.parts(figures),
            Num::Literal(_) | Num::Name(_) => 1,
        }
    }

    /// The name that this is, directly or by a figure that only names it.
    pub(super) fn only_name(&self) -> Option<&Name> {
        match self {
            Num::Name(name) => Some(name),
            Num::Figure(_, num) => num.only_name(),
            _ => None,
        }
    }

    fn with_figures(&self, figures: &[Figure]) -> Num {
        let all =
            |parts: &[(bool, Num)]| parts.iter().map(|(by, n)| (*by, n.with_figures(figures))).collect();
        match self {
            Num::Name(name) if name.part.is_none() => {
                let found = figures.iter().find(|f| f.name == name.text);
                found.map_or_else(
                    || self.clone(),
                    |f| Num::Figure(name.clone(), Box::new(f.formula.num.clone())),
                )
            }
            Num::Sum(terms) => Num::Sum(all(terms)),
            Num::Product(factors) => Num::Product(all(factors)),
            Num::Literal(_) | Num::Name(_) | Num::Figure(..) => self.clone(),
        }
    }
}

impl FigureValue {
    /// What is known of a figure of this kind.
    pub fn of(known: Known, kind: NumberKind) -> FigureValue {
        let unit = kind.unit().to_owned();
        match known {
            Known::Is(value, _) => FigureValue { value: Some(value), unit, ..FigureValue::default() },
            Known::AtLeast(value, _) => FigureValue { at_least: Some(value), unit, ..FigureValue::default() },
            Known::Between(Between { estimate, largest, few, .. }) => FigureValue {
                estimate: estimate.value,
                interval: Some([estimate.low, estimate.high]),
                largest,
                few: Some(few),
                unit,
                ..FigureValue::default()
            },
            Known::Unknown(why) => FigureValue { note: Some(why), unit, ..FigureValue::default() },
        }
    }

    /// What is known of it, for conditions and other figures.
    pub fn known(&self, kind: NumberKind) -> Known {
        match (self.value, self.at_least) {
            (Some(value), _) => Known::Is(value, kind),
            (None, Some(value)) => Known::AtLeast(value, kind),
            (None, None) if self.few.is_some() => {
                let [low, high] = self.interval.unwrap_or_default();
                let estimate = Estimate { value: self.estimate, low, high };
                let few = self.few.unwrap_or(FewSamples { samples: 0, needed: 0, needed_s: None });
                Known::Between(Between { estimate, largest: self.largest, kind, few })
            }
            (None, None) => Known::Unknown(self.note.clone().unwrap_or_else(|| "it is not known".to_owned())),
        }
    }
}
