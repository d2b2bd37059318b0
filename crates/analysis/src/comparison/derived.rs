//! Figures that the plan derives from the figures of its cases: one value per round of trials, never from averages.
//!
//! Trials with the same number form a round. A round in which a case has no complete trial is left out.

use loadlab_record::documents::manifest::DerivedFacts;
use loadlab_record::documents::summary::Summary;
use loadlab_record::expr::{Formula, Known, NumberSource, SummaryNumbers, TrialPart};

use crate::cases::case::{CaseFindings, Spread, why_left_out};
use crate::cases::metric::{Better, Unit, Value};
use crate::statistics::spread::mean_and_variance;
use crate::statistics::student::{self, CONFIDENCE};

/// The fewest rounds for an interval.
const ROUNDS: usize = 3;

/// A derived figure, over the rounds of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// Its name, and how it is computed.
    pub facts: DerivedFacts,
    /// Unit of its numbers.
    pub unit: Unit,
    /// Its value, round by round.
    pub value: Spread,
    /// What it is compared with, if anything.
    pub against: Option<Spread>,
    /// Value divided by `against`, round by round.
    pub ratio: Option<Spread>,
    /// The ratio's 95 % confidence interval: Student's t over the rounds' logarithms. `None` below three rounds, in a
    /// quick run, and if a ratio is not above 0.
    pub interval: Option<(f64, f64)>,
    /// Why a round has no value, in words, for the first such round.
    pub why_not: Option<String>,
}

/// Computes all derived figures.
pub(crate) fn derived(all: &[DerivedFacts], cases: &[CaseFindings<'_>], has_intervals: bool) -> Vec<Derived> {
    all.iter().map(|facts| one(facts, cases, has_intervals)).collect()
}

fn one(facts: &DerivedFacts, cases: &[CaseFindings<'_>], has_intervals: bool) -> Derived {
    let value = side(&facts.value, cases);
    let against = facts.against.as_ref().map(|text| side(text, cases));
    let both = |(a, b): (&Value, &Value)| match (a.known(), b.known()) {
        (Some(a), Some(b)) if b != 0.0 => Value::Known(a / b),
        _ => Value::Nothing,
    };
    let ratios: Option<Vec<Value>> =
        against.as_ref().map(|other| value.rounds.iter().zip(&other.rounds).map(both).collect());
    let interval = ratios.as_deref().filter(|_| has_intervals).and_then(interval);
    let other_why = against.as_ref().and_then(|other| other.why_not.clone());
    Derived {
        facts: facts.clone(),
        unit: value.unit,
        // For a formula over arbitrary figures no direction is known to be better.
        value: Spread::of(value.rounds, Better::Neither),
        against: against.map(|other| Spread::of(other.rounds, Better::Neither)),
        ratio: ratios.map(|ratios| Spread::of(ratios, Better::Neither)),
        interval,
        why_not: value.why_not.or(other_why),
    }
}

struct DerivedSide {
    rounds: Vec<Value>,
    unit: Unit,
    why_not: Option<String>,
}

fn side(text: &str, cases: &[CaseFindings<'_>]) -> DerivedSide {
    let mut side = DerivedSide { rounds: Vec::new(), unit: Unit::Number, why_not: None };
    let formula = match Formula::parse(text) {
        Ok(formula) => formula,
        Err(error) => return DerivedSide { why_not: Some(error.to_string()), ..side },
    };
    let last = cases.iter().flat_map(|c| &c.trials).map(|t| t.number).max().unwrap_or(0);
    for number in 1..=last {
        match formula.evaluate(&Round { cases, number }) {
            Ok((value, kind)) => {
                side.unit = Unit::from(kind);
                side.rounds.push(Value::Known(value));
            }
            Err(why) => {
                side.why_not.get_or_insert(why);
                side.rounds.push(Value::Nothing);
            }
        }
    }
    side
}

/// The trials with one number, by case.
struct Round<'a> {
    cases: &'a [CaseFindings<'a>],
    number: u32,
}

impl Round<'_> {
    /// The trial and the figure that `CASE.FIGURE` refers to. Names of cases may contain dots: the longest match
    /// counts.
    fn trial<'n>(&self, name: &'n str) -> Option<(Result<&Summary, &'static str>, &'n str)> {
        let fits = |case: &&CaseFindings<'_>| {
            name.strip_prefix(case.case.facts.name.as_str()).is_some_and(|rest| rest.starts_with('.'))
        };
        let case = self.cases.iter().filter(fits).max_by_key(|case| case.case.facts.name.len())?;
        let figure = &name[case.case.facts.name.len() + 1..];
        let trial = case.trials.iter().find(|t| t.number == self.number);
        let summary = trial.and_then(|t| t.summary);
        // As in comparisons: a trial that cannot be trusted contributes no figure.
        let reported = summary.filter(|s| why_left_out(Some(s)).is_none());
        let reported = reported.ok_or_else(|| why_left_out(summary).unwrap_or_default());
        Some((reported, figure))
    }
}

impl NumberSource for Round<'_> {
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known {
        match self.trial(name) {
            None => Known::Unknown("its case was not run".to_owned()),
            Some((Err(why), _)) => Known::Unknown(format!("trial {} {why}", self.number)),
            Some((Ok(summary), figure)) => SummaryNumbers::new(summary, &[]).number(figure, part),
        }
    }

    fn steady(&self, _: &str, _: u64) -> Option<bool> {
        None
    }
}

fn interval(ratios: &[Value]) -> Option<(f64, f64)> {
    let logs: Vec<f64> = ratios.iter().filter_map(|v| v.known()).filter(|v| *v > 0.0).map(f64::ln).collect();
    let reported = ratios.iter().filter(|v| v.known().is_some()).count();
    if logs.len() < ROUNDS || logs.len() < reported {
        return None;
    }
    let n = logs.len() as f64;
    let (mean, variance) = mean_and_variance(&logs)?;
    let half = student::critical(CONFIDENCE, n - 1.0) * (variance / n).sqrt();
    Some(((mean - half).exp(), (mean + half).exp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_takes_three_rounds_and_holds_their_middle() {
        let known = |values: &[f64]| values.iter().map(|v| Value::Known(*v)).collect::<Vec<_>>();
        assert_eq!(interval(&known(&[1.0, 2.0])), None);
        assert_eq!(interval(&known(&[1.0, 2.0, 0.0])), None);
        // logarithms −ln 2, 0, ln 2: mean 0, deviation ln 2, t of two degrees of freedom 4.303
        let (low, high) = interval(&known(&[0.5, 1.0, 2.0])).unwrap();
        let half = 4.302_653 * 2f64.ln() / 3f64.sqrt();
        assert!((high.ln() - half).abs() < 1e-4 && (low.ln() + half).abs() < 1e-4, "{low} {high}");
        let with_a_gap = [Value::Known(1.0), Value::Nothing, Value::Known(1.0), Value::Known(1.0)];
        assert_eq!(interval(&with_a_gap), Some((1.0, 1.0)));
    }
}
