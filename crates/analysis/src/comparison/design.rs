//! Trials until it is certain how the cases of a run differ: which figures decide, at what level each is tested, and
//! what the rounds so far show.
//!
//! All of it is fixed before the first trial, and follows from the manifest. So the conductor, which asks after every
//! round whether to continue, and the report, which asks once, get the same answer.
//!
//! - Cases are compared in pairs ([`pairs`]). The figures that decide are those that the plan names; if it names none,
//!   goodput, median and 99th percentile. The others are compared as well, but no trials are added for them.
//! - The level of 5 % is divided over all comparisons and figures ([`levels`]).
//! - If a figure differs, the difference is looked for in the parts of the trial ([`crate::cases::parts`]), at the
//!   level at which it was found, divided among them. No trials are added for them either.
//! - A round counts if both cases have a trial in it that can be trusted. A round in which a figure is unknown in
//!   either case, or known only as a bound, says nothing about that figure.

use loadlab_record::documents::manifest::{FigureFacts, Manifest, UntilCertain};
use loadlab_record::documents::summary::Summary;

use crate::cases::case::Spread;
use crate::cases::metric::{Better, Metric, Value};
use crate::cases::parts::{parts_of, probes};
use crate::comparison::compare::{Comparison, ConfidenceInterval, Effect, Options, Row, Side};
use crate::comparison::control::hidden;
use crate::comparison::figures::{Scale, compared, deciding, scale_of};
use crate::comparison::interval::{Call, EquivalenceBounds, Method, directed};
use crate::comparison::pairs::pairs;
use crate::comparison::resolution::unresolved;
use crate::comparison::sequential::{Question, Sequential, fewest_rounds, levels};
use crate::statistics::hierarchy::parts;

/// How the cases of a run are compared, after every round.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    within: f64,
    at_most: usize,
    seed: u64,
    figures: Vec<Figure>,
}

/// A figure that is compared.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    metric: Metric,
    /// Whether trials continue until it is settled.
    decides: bool,
    /// Significance level of the figure in each comparison.
    level: f64,
}

/// A figure of two cases after some rounds.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The figure.
    pub metric: Metric,
    /// Whether trials continue until it is settled.
    pub decides: bool,
    test: Sequential,
    level: f64,
    /// Whether the cases differ in any round.
    differs: bool,
    /// Differences below this are not visible, on the scale of the comparison; `None` without a control.
    visible: Option<f64>,
    /// Why the readings do not resolve the difference so far, in words; `None` if they do.
    unresolved: Option<String>,
    /// With fewer rounds nothing can be settled.
    fewest: usize,
}

impl Standing {
    /// The verdict so far. A difference that is not visible, or not resolved, does not count.
    pub fn call(&self) -> Call {
        let call = self.test.call();
        let is_visible = match (self.visible, self.test.estimate()) {
            (Some(visible), Some(shift)) => shift.abs() >= visible,
            _ => true,
        };
        let is_shown = is_visible && self.unresolved.is_none();
        if is_shown || call == Call::Same { call } else { Call::CannotTell }
    }

    /// The smallest visible difference: a share of the base, or an absolute difference. `None` without a control;
    /// infinite while it is unknown.
    pub fn visible(&self) -> Option<f64> {
        self.visible.map(|visible| if self.is_ratio() { visible.exp_m1() } else { visible })
    }

    /// The ratio of other to base, or their difference, over the rounds so far; `None` without any round.
    pub fn effect(&self) -> Option<f64> {
        let shift = self.test.estimate()?;
        Some(if self.is_ratio() { shift.exp() } else { shift })
    }

    /// Whether the effect is a ratio rather than a difference.
    pub fn is_ratio(&self) -> bool {
        scale_of(&self.metric) == Scale::Ratio
    }

    /// About how many more rounds would settle it; `None` if that cannot be predicted, or exceeds the maximum.
    pub fn more(&self) -> Option<usize> {
        // If the control hides the difference, the control decides how many.
        if self.test.call() != self.call() || self.would_be_unresolved() {
            return None;
        }
        self.test.more().filter(|_| self.is_open())
    }

    /// Whether more trials may settle it. No trials are added for a figure that most rounds lack, nor for a share that
    /// is equal in all of them (such as no errors at all): no number of rounds makes that certain. Nor does any resolve
    /// a difference that the readings do not, whether it is certain or only estimated.
    pub fn is_open(&self) -> bool {
        let is_known = self.test.rounds() > 0 && self.test.rounds() >= self.test.missing();
        let can_differ = self.is_ratio() || self.differs;
        self.call() == Call::CannotTell && is_known && can_differ && !self.is_below_resolution()
    }

    /// Why the readings do not resolve the difference, in words, if that is why there is no verdict.
    pub fn why_unresolved(&self) -> Option<&str> {
        self.unresolved.as_deref().filter(|_| self.is_below_resolution())
    }

    /// Whether no number of rounds gives a verdict, since the difference is smaller than what the readings resolve.
    fn is_below_resolution(&self) -> bool {
        match self.test.call() {
            Call::Same => false,
            // After a few rounds the estimate is too rough to stop for.
            Call::CannotTell => self.would_be_unresolved() && self.test.rounds() >= self.fewest,
            Call::Better | Call::Worse | Call::Changed => self.unresolved.is_some(),
        }
    }

    /// Whether the difference, which is not certain, would not be resolved either if it were, nor be the same.
    fn would_be_unresolved(&self) -> bool {
        let is_certain = self.test.call() != Call::CannotTell;
        !is_certain && self.unresolved.is_some() && !self.test.is_inside_margin()
    }
}

impl Design {
    /// The design of a run; `None` if its number of trials was fixed.
    pub fn of(manifest: &Manifest) -> Option<Design> {
        let until = manifest.until_certain.as_ref()?;
        Some(Design::new(until, manifest.trials, pairs(manifest).len(), &manifest.figures))
    }

    /// A design for at most this many rounds, with this many comparisons, by the figures that the plan names.
    pub fn new(until: &UntilCertain, at_most: u32, comparisons: usize, figures: &[FigureFacts]) -> Design {
        let of_plan: Vec<Metric> = figures.iter().map(Metric::of_plan).collect();
        let metrics = compared(&of_plan);
        let deciding = deciding(&of_plan, &metrics);
        let level = 1.0 - Options::default().confidence;
        let levels = levels(&deciding.repeat(comparisons.max(1)), level);
        let figures = metrics.into_iter().zip(deciding).zip(levels);
        Design {
            within: until.within,
            at_most: at_most as usize,
            seed: until.seed,
            figures: figures.map(|((metric, decides), level)| Figure { metric, decides, level }).collect(),
        }
    }

    /// Cases that differ by less than this share count as the same.
    pub fn within(&self) -> f64 {
        self.within
    }

    /// With fewer rounds nothing can be settled, whatever they measure.
    pub fn fewest_rounds(&self) -> usize {
        let of = |figure: &Figure| fewest_rounds(figure.level / 2.0, self.at_most);
        self.figures.iter().filter(|f| f.decides).map(of).max().unwrap_or(0)
    }

    /// The deciding figures after the rounds that both cases have. `control` is the base once more.
    pub fn deciding(&self, base: &Side<'_>, other: &Side<'_>, control: Option<&Side<'_>>) -> Vec<Standing> {
        let deciding = self.figures.iter().filter(|figure| figure.decides);
        let standing = |figure| {
            // Visibility only matters to a difference that was called.
            let bare = self.standing(figure, base, other, None, self.within);
            match bare.call() {
                Call::Better | Call::Worse => self.standing(figure, base, other, control, self.within),
                Call::Same | Call::Changed | Call::CannotTell => bare,
            }
        };
        deciding.map(standing).collect()
    }

    /// Two cases by all figures, after the rounds that both have. `control` is the base once more.
    pub fn compare(
        &self,
        base: &Side<'_>,
        other: &Side<'_>,
        control: Option<&Side<'_>>,
        options: Options,
    ) -> Comparison {
        let (of_base, of_other) = (base.rounds_of(other), other.rounds_of(base));
        let row = |figure: &Figure| {
            let values = |trials: &[(u32, &Summary)]| -> Vec<Value> {
                trials.iter().map(|t| figure.metric.of(t.1)).collect()
            };
            let standing = self.standing(figure, base, other, control, options.equivalence_margin);
            row(standing, values(&of_base), values(&of_other))
        };
        let rows: Vec<(f64, Row)> =
            self.figures.iter().filter_map(|figure| Some((figure.level, row(figure)?))).collect();
        let summaries: Vec<&Summary> = of_base.iter().chain(&of_other).map(|t| t.1).collect();
        let details = details(&rows, &summaries);
        let detail = |row: Row| Row { decides: false, trials_needed: None, ..row };
        let (fewest, common) = (self.fewest_rounds(), of_base.len());
        let why_not = (common < fewest).then(|| {
            let rounds = if common == 1 { "round" } else { "rounds" };
            format!("{common} {rounds} in common: too few for a verdict (at least {fewest} are needed)")
        });
        Comparison {
            base: base.name.clone(),
            other: other.name.clone(),
            method: Method::Sequential,
            trials: (of_base.len(), of_other.len()),
            rows: rows.into_iter().map(|(_, row)| row).collect(),
            details: details.iter().filter_map(row).map(detail).collect(),
            why_not,
            moved: None,
            left_out: base.left_out.iter().chain(&other.left_out).cloned().collect(),
            profiles: None,
            options,
        }
    }

    fn standing(
        &self,
        figure: &Figure,
        base: &Side<'_>,
        other: &Side<'_>,
        control: Option<&Side<'_>>,
        within: f64,
    ) -> Standing {
        let metric = figure.metric.clone();
        let (test, differs) = self.test(figure, base, other, within);
        let of_control = |control| {
            let answer = self.test(figure, base, control, within).0.answer();
            let end = |end: Option<f64>| end.map_or(f64::INFINITY, f64::abs);
            end(answer.low).max(end(answer.high))
        };
        let visible = control.map(of_control);
        let unresolved = test.estimate().and_then(|shift| {
            unresolved(&metric, shift.exp(), &base.rounds_of(other), &other.rounds_of(base))
        });
        let (decides, level) = (figure.decides, figure.level);
        let fewest = fewest_rounds(level / 2.0, self.at_most);
        Standing { metric, decides, test, level, differs, visible, unresolved, fewest }
    }

    /// A figure of two cases after their rounds, and whether they differ in any.
    fn test(&self, figure: &Figure, base: &Side<'_>, other: &Side<'_>, within: f64) -> (Sequential, bool) {
        let metric = &figure.metric;
        let scale = scale_of(metric);
        let mut test = Sequential::new(Question {
            level: figure.level,
            same: EquivalenceBounds::of(scale, within),
            at_most: self.at_most,
            less_is_better: metric.better() != Better::More,
            seed: self.seed ^ seed_of(&base.name, &other.name, &metric.id),
        });
        let mut differs = false;
        for (base, other) in rounds(base, other) {
            let number = |summary: &Summary| number(metric.of(summary), scale);
            let difference = number(base).zip(number(other)).map(|(base, other)| other - base);
            differs |= difference.is_some_and(|d| d != 0.0);
            test.push(difference);
        }
        (test, differs)
    }
}

/// The figures in which to look for differences, each at a share of the level at which the difference was found.
fn details(rows: &[(f64, Row)], trials: &[&Summary]) -> Vec<Figure> {
    let common = probes(trials);
    let (mut found, mut level_of_common) = (Vec::new(), 0.0);
    for (level, row) in rows.iter().filter(|(_, row)| matches!(row.call, Call::Better | Call::Worse)) {
        let own = parts_of(&row.metric, trials);
        let (to_own, to_common) = parts(own.len(), common.len());
        let each = level * to_own / own.len().max(1) as f64;
        found.extend(own.into_iter().map(|metric| Figure { metric, decides: false, level: each }));
        level_of_common += level * to_common / common.len().max(1) as f64;
    }
    if level_of_common > 0.0 {
        let each = |metric| Figure { metric, decides: false, level: level_of_common };
        found.extend(common.into_iter().map(each));
    }
    found
}

/// The trials of the rounds that both cases have, in their order.
fn rounds<'a>(base: &Side<'a>, other: &Side<'a>) -> Vec<(&'a Summary, &'a Summary)> {
    let mut both: Vec<(u32, &Summary, &Summary)> = base
        .trials
        .iter()
        .filter_map(|(round, of_base)| {
            let of_other = other.trials.iter().find(|trial| trial.0 == *round)?.1;
            Some((*round, *of_base, of_other))
        })
        .collect();
    both.sort_by_key(|(round, ..)| *round);
    both.into_iter().map(|(_, base, other)| (base, other)).collect()
}

/// The value on the scale of the comparison; `None` for a bound.
fn number(value: Value, scale: Scale) -> Option<f64> {
    match (value, scale) {
        (Value::Known(v), Scale::Difference) => Some(v),
        (Value::Known(v), Scale::Ratio) if v > 0.0 => Some(v.ln()),
        _ => None,
    }
}

/// FNV-1a of what the test is about.
fn seed_of(base: &str, other: &str, figure: &str) -> u64 {
    let bytes = [base, other, figure].into_iter().flat_map(|name| name.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// `None` if no trial reports it, or it is a share that is zero everywhere.
fn row(standing: Standing, base: Vec<Value>, other: Vec<Value>) -> Option<Row> {
    let Standing { metric, test, .. } = &standing;
    let scale = scale_of(metric);
    let mut all = base.iter().chain(&other);
    let has_any = all.clone().any(|v| *v != Value::Nothing);
    if !has_any || scale == Scale::Difference && all.all(|v| *v == Value::Known(0.0)) {
        return None;
    }
    // There may be hundreds of parts, and an interval takes time.
    let is_bare = metric.part().is_some() && test.call() == Call::CannotTell;
    let answer = if is_bare { test.answer_without_interval() } else { test.answer() };
    let out = |v: f64| if scale == Scale::Ratio { v.exp() } else { v };
    // Shares differ by one at most.
    let (lowest, highest) = if scale == Scale::Ratio { (0.0, f64::INFINITY) } else { (-1.0, 1.0) };
    let effect = standing.effect().map(|value| {
        let (low, high) = (answer.low.map_or(lowest, out), answer.high.map_or(highest, out));
        // A rejected shift stays rejected. If the shift moved meanwhile, nothing may be left that was never rejected.
        let is_empty = low > high;
        let (low, high) = if is_empty { (lowest, highest) } else { (low, high) };
        let is_known = !is_empty && (answer.low.is_some() || answer.high.is_some());
        let interval = is_known.then_some(ConfidenceInterval {
            low,
            high,
            confidence: 1.0 - standing.level,
            chance: None,
        });
        Effect { value: value.clamp(low, high), interval }
    });
    let is_hidden = test.call() != standing.call();
    let few =
        base.iter().chain(&other).find_map(|v| if let Value::Between(few) = v { Some(few) } else { None });
    let note = match (answer.missing, answer.rounds) {
        _ if standing.why_unresolved().is_some() => standing.why_unresolved().map(str::to_owned),
        _ if is_hidden => Some(hidden(standing.visible(), answer.rounds + answer.missing).to_owned()),
        (0, _) => None,
        (_, 0) if few.is_some() => {
            few.map(|few| format!("{} needs {} requests in each trial", metric.title(), few.needed))
        }
        (_, 0) => Some(format!("{} is known in both cases in no round", metric.title())),
        (missing, known) => Some(format!(
            "{} is known in both cases in {known} of {} rounds",
            metric.title(),
            known + missing
        )),
    };
    let trials_needed = answer.more.filter(|_| !standing.would_be_unresolved());
    let trials_needed = trials_needed.map(|more| (answer.rounds + more) as u64);
    Some(Row {
        scale,
        base: Spread::of(base, metric.better()),
        other: Spread::of(other, metric.better()),
        effect,
        call: directed(standing.call(), metric),
        decides: standing.decides && (standing.call() != Call::CannotTell || standing.is_open()),
        visible: standing.visible(),
        note,
        trials_needed,
        metric: standing.metric,
    })
}
