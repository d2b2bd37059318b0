//! What a summary means for the plan's expectations: results, verdict, exit code.

use std::collections::BTreeMap;

use loadlab_record::counts::hlog::Interval;
use loadlab_record::counts::load::{Tick, Window};
use loadlab_record::documents::figure::{FigureValue, NumberKind};
use loadlab_record::documents::search::{SearchFacts, SearchVariable, StepOutcome};
use loadlab_record::documents::summary::{Ended, Expectation, Summary, Verdict};
use loadlab_record::expr::{
    Expr, Figure, Known, NumberSource, SummaryNumbers, TrialPart, built_in_kind, component_figure,
    is_probe_figure, number_of_component,
};
use loadlab_record::watch::sample::Sample;

use crate::trial::components::{self, probe_name};
use crate::trial::counter::During;

/// Each expectation, and whether it held.
pub fn expectations(expect: &[Expr], numbers: &dyn NumberSource) -> Vec<Expectation> {
    let judged = expect.iter().map(|expr| {
        let found = expr.evaluate(numbers);
        Expectation {
            expr: expr.to_string(),
            holds: found.holds,
            value: found.value,
            unit: found.unit,
            note: found.note,
            undecided: found.undecided,
        }
    });
    judged.collect()
}

/// The value of each figure of the plan, by name.
pub fn figures(figures: &[Figure], numbers: &dyn NumberSource) -> BTreeMap<String, FigureValue> {
    let of = |f: &Figure| (f.name.clone(), FigureValue::of(f.formula.known(numbers), f.kind));
    figures.iter().map(of).collect()
}

/// The numbers of a finished trial: the summary's, its ticks', and the history of its probes.
#[derive(Clone, Copy, Debug)]
pub struct TrialNumbers<'a> {
    numbers: SummaryNumbers<'a>,
    summary: &'a Summary,
    ticks: &'a [Tick],
    samples: &'a [Sample],
}

impl<'a> TrialNumbers<'a> {
    /// From a summary with figures, the ticks, the intervals of the latency log (may be empty) and samples.
    pub fn new(
        summary: &'a Summary,
        ticks: &'a [Tick],
        intervals: &'a [Interval],
        samples: &'a [Sample],
    ) -> TrialNumbers<'a> {
        let numbers = SummaryNumbers::new(summary, ticks);
        let numbers = if intervals.is_empty() { numbers } else { numbers.with_intervals(intervals) };
        TrialNumbers { numbers, summary, ticks, samples }
    }

    /// When a part of the trial took place, on its clock.
    fn when(&self, part: TrialPart) -> Result<Window, String> {
        match part {
            TrialPart::Window(window) => Ok(window),
            TrialPart::Batch(number) => self.numbers.batch(number),
            TrialPart::Drain => {
                let from_s = self.ticks.iter().map(|t| t.to_s).reduce(f64::max);
                let drained = from_s.zip(self.summary.drain_s);
                let window = drained.map(|(from_s, drain_s)| Window { from_s, to_s: from_s + drain_s });
                window.ok_or_else(|| "nothing was drained".to_owned())
            }
        }
    }

    /// What a component used, or a probe reported, in a part of the trial; `None` if the name is neither.
    fn within(&self, name: &str, part: TrialPart) -> Option<Known> {
        // Built-in names take precedence over probes of the same name, as they do without a part.
        if built_in_kind(name).is_some() || name.starts_with("tag.") || name.starts_with("number.") {
            return None;
        }
        let component = component_figure(name).filter(|(c, _)| self.summary.components.contains_key(*c));
        // As without a part: the whole name first, then the name before the last dot.
        let is_probe = |probe: &&str| self.summary.probes.contains_key(*probe);
        let before = || name.rsplit_once('.').filter(|(_, figure)| is_probe_figure(figure));
        let probe = Some(name).filter(is_probe).or_else(|| before().map(|(probe, _)| probe).filter(is_probe));
        if component.is_none() && probe.is_none() {
            return None;
        }
        let window = match self.when(part) {
            Ok(window) => window,
            Err(why) => return Some(Known::Unknown(why)),
        };
        let found = match (probe, component) {
            (Some(probe), _) => {
                self.probe_within(probe, name, window).map(|value| (value, NumberKind::Plain))
            }
            (None, Some((_, "restarts"))) => {
                return Some(Known::Unknown("restarts are counted over the whole trial".to_owned()));
            }
            (None, Some((component, figure))) => {
                let during = During { from_s: window.from_s, to_s: window.to_s };
                let summary = components::within(self.samples, component, during);
                number_of_component(&summary, figure)
            }
            (None, None) => None,
        };
        Some(found.map_or_else(
            || Known::Unknown("it was not measured in that part of the trial".to_owned()),
            |(value, kind)| Known::Is(value, kind),
        ))
    }

    fn probe_within(&self, probe: &str, name: &str, window: Window) -> Option<f64> {
        let inside = |at_s: f64| (window.from_s..=window.to_s).contains(&at_s);
        let readings = self.readings(probe).filter(|(at_s, _)| inside(*at_s));
        let readings: Vec<Option<f64>> = readings.map(|(_, value)| value).collect();
        let read: Vec<f64> = readings.iter().flatten().copied().collect();
        match &name[probe.len()..] {
            ".first" => read.first().copied(),
            "" | ".last" => readings.last().copied().flatten(),
            ".max" => read.into_iter().reduce(f64::max),
            ".mean" if !read.is_empty() => Some(read.iter().sum::<f64>() / read.len() as f64),
            _ => None,
        }
    }

    /// All readings of a probe, in order: when, and what; `None` where it could not be read.
    fn readings(&self, probe: &str) -> impl Iterator<Item = (f64, Option<f64>)> {
        let read = move |s: &Sample| -> Option<Option<f64>> {
            let is_meant = |own: &&String| probe_name(s, own) == probe;
            let value = s.probes.iter().find(|(own, _)| is_meant(own)).map(|(_, value)| *value);
            value.map(Some).or_else(|| s.probes_failed.keys().any(|own| is_meant(&own)).then_some(None))
        };
        self.samples.iter().filter_map(move |s| Some((s.at_s, read(s)?)))
    }
}

impl NumberSource for TrialNumbers<'_> {
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known {
        let within = part.and_then(|part| self.within(name, part));
        within.unwrap_or_else(|| self.numbers.number(name, part))
    }

    /// Whether a probe kept its value over the last `for_ns` nanoseconds of its readings. One that could not be read
    /// starts over, and if that was the last time, it has no value.
    fn steady(&self, name: &str, for_ns: u64) -> Option<bool> {
        let readings: Vec<(f64, Option<f64>)> = self.readings(name).collect();
        let (first, last) = (readings.first()?, readings.last()?);
        let from_s = last.0 - for_ns as f64 / 1e9;
        if last.1.is_none() || first.0 > from_s {
            return None;
        }
        // The value at the beginning of the period is the last one read before it.
        let before = readings.iter().rposition(|(at_s, _)| *at_s <= from_s)?;
        Some(readings[before..].iter().all(|(_, value)| *value == last.1))
    }
}

/// Completes the summary of a trial that was a search, once it has the result: figures that depend on the result, and
/// what the plan expects beyond what each level had to meet.
pub fn conclude_search(summary: &mut Summary, all_figures: &[Figure], expect: &[Expr]) {
    let of_search = figures(all_figures, &SummaryNumbers::new(summary, &[]));
    for (name, figure) in of_search {
        let own = summary.figures.get(&name);
        if own.is_none_or(|own| own.value.is_none()) {
            summary.figures.insert(name, figure);
        }
    }
    let more = expectations(expect, &SummaryNumbers::new(summary, &[]));
    summary.expectations.extend(more);
    summary.verdict = verdict(summary);
    // A level that meets all that is expected of it may still not be sustained.
    if matches!(summary.verdict, Verdict::Pass | Verdict::None) {
        summary.expectations.extend(summary.search.as_ref().and_then(nothing_sustained));
        summary.verdict = verdict(summary);
    }
}

/// What a search misses that found no level: the capacity is not even the lowest one. `None` if it found a level.
fn nothing_sustained(search: &SearchFacts) -> Option<Expectation> {
    let above = search.above.filter(|_| search.level.is_none())?;
    let step = search.path.iter().rfind(|step| step.level == above && step.outcome == StepOutcome::Missed);
    let least = match search.vary {
        SearchVariable::Rate => search.vary.level(search.low),
        SearchVariable::Users => search.low.to_string(),
    };
    Some(Expectation {
        expr: format!("capacity >= {least}"),
        // Otherwise a lower level, or another trial, might have been sustained.
        holds: (verdict_of_search(search) == Verdict::Fail).then_some(false),
        value: None,
        unit: String::new(),
        note: step.map(|step| step.why.clone()),
        undecided: None,
    })
}

/// The verdict of a trial, from its doubts, expectations, components and how it ended.
///
/// A measurement that cannot be trusted is INVALID whatever it seems to show. An expectation left open by too few
/// samples leaves the trial undecided, unless something failed; one that could not be determined for another reason
/// counts as failed.
pub fn verdict(summary: &Summary) -> Verdict {
    if summary.doubts.iter().any(|d| d.grave) {
        return Verdict::Invalid;
    }
    let missed = summary.expectations.iter().any(Expectation::is_missed);
    let died = summary.components.values().any(|c| c.died.is_some());
    if missed || died || summary.ended == Ended::Broken {
        return Verdict::Fail;
    }
    if summary.expectations.iter().any(Expectation::is_undecided) {
        return Verdict::Undecided;
    }
    if summary.expectations.is_empty() { Verdict::None } else { Verdict::Pass }
}

/// Whether too few requests leave a level of a search undecided: no trial of it definitely missed an expectation.
pub fn is_left_open(search: &SearchFacts, level: u64) -> bool {
    let has =
        |outcome: StepOutcome| search.path.iter().any(|step| step.level == level && step.outcome == outcome);
    has(StepOutcome::Undecided) && !has(StepOutcome::Missed)
}

/// The verdict on a search: INVALID if loadlab itself was saturated in the end; undecided if no level met the
/// expectations, but the lowest one did not definitely miss any, contradicts itself, or was not reached.
pub fn verdict_of_search(search: &SearchFacts) -> Verdict {
    let above = || search.path.iter().filter(|step| Some(step.level) == search.above);
    let count = |outcome: StepOutcome| above().filter(|step| step.outcome == outcome).count();
    let [met, missed, undecided, invalid] =
        [StepOutcome::Met, StepOutcome::Missed, StepOutcome::Undecided, StepOutcome::Invalid].map(count);
    // One trial that could be judged outweighs those that could not.
    let is_invalid = invalid > met && missed + undecided == 0;
    let is_open = search.above.is_some_and(|level| is_left_open(search, level));
    // The levels ran out before a trial could settle it.
    let is_torn = met > 0 && 2 * met == above().count();
    let ran_out = search.above.is_some_and(|above| above > search.low);
    match (&search.found, search.level) {
        (None, _) => Verdict::None,
        (Some(_), _) if is_invalid => Verdict::Invalid,
        (Some(_), Some(_)) => Verdict::Pass,
        (Some(_), None) if is_open || ran_out || is_torn => Verdict::Undecided,
        (Some(_), None) => Verdict::Fail,
    }
}

/// How loadlab exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// All is well.
    Ok,
    /// An expectation failed, or a component died that should not have.
    Failed,
    /// Bad plan or usage.
    BadPlan,
    /// The system did not come up.
    NotUp,
    /// INVALID: the measurement cannot be trusted.
    Invalid,
    /// The load could not run: target unreachable, host not allowed.
    CouldNotRun,
    /// Nothing failed, but an expectation is undecided, or a comparison whose trials were to continue until it was
    /// certain.
    Undecided,
    /// Stopped by Ctrl-C; the record is kept and the system is down.
    Interrupted,
}

impl Exit {
    /// From the highest precedence to the lowest.
    const BY_PRECEDENCE: [Exit; 8] = [
        Exit::Interrupted,
        Exit::BadPlan,
        Exit::NotUp,
        Exit::CouldNotRun,
        Exit::Invalid,
        Exit::Failed,
        Exit::Undecided,
        Exit::Ok,
    ];

    /// The process's exit code.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::BadPlan => 2,
            Exit::NotUp => 3,
            Exit::Invalid => 4,
            Exit::CouldNotRun => 5,
            Exit::Undecided => 6,
            Exit::Interrupted => 130,
        }
    }

    /// The one to exit with if several apply; `Ok` if none does.
    pub fn of(applying: impl IntoIterator<Item = Exit>) -> Exit {
        let rank = |e: &Exit| Exit::BY_PRECEDENCE.iter().position(|p| p == e);
        applying.into_iter().min_by_key(rank).unwrap_or(Exit::Ok)
    }

    /// The exit that one trial's summary calls for.
    pub fn of_summary(summary: &Summary) -> Exit {
        let judged = match summary.verdict {
            Verdict::Pass | Verdict::None => Exit::Ok,
            Verdict::Fail => Exit::Failed,
            Verdict::Undecided => Exit::Undecided,
            Verdict::Invalid => Exit::Invalid,
        };
        let interrupted = (summary.ended == Ended::Interrupted).then_some(Exit::Interrupted);
        let could_not = was_never_connected(summary).then_some(Exit::CouldNotRun);
        Exit::of([Some(judged), interrupted, could_not].into_iter().flatten())
    }
}

/// Whether the target accepts no connection, although this machine had the ports and files for them.
pub fn was_unreachable(summary: &Summary) -> bool {
    let connections = &summary.connections;
    let never_connected = connections.opened + connections.reused == 0;
    // Of a load that is given up early, the requests in flight fail in another way.
    let refused = summary.failures.get(loadlab_record::Failure::Connect) > 0 && never_connected;
    connections.own_limits.total() == 0 && (was_never_connected(summary) || refused)
}

/// Whether the target was not there: it was unreachable, and no component had died during the trial.
pub fn was_target_gone(summary: &Summary) -> bool {
    was_unreachable(summary) && summary.components.values().all(|c| c.died.is_none())
}

/// Nothing was ever answered, because no connection could be established: the target is not there.
pub fn was_never_connected(summary: &Summary) -> bool {
    use loadlab_record::Failure::{Connect, Dns, Tls};
    let unreachable: u64 = [Connect, Dns, Tls].into_iter().map(|f| summary.failures.get(f)).sum();
    unreachable > 0 && unreachable == summary.requests.failed && summary.requests.ok == 0
}
