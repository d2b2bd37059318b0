//! Numbers while a trial runs: for stop conditions, and for waiting until the work is done.

use std::collections::BTreeMap;

use loadlab_record::documents::event::Event;
use loadlab_record::documents::figure::NumberKind;
use loadlab_record::documents::summary::{ComponentSummary, ProbeSummary, Summary};
use loadlab_record::expr::{
    Expr, Known, NameRef, NumberSource, SummaryNumbers, TrialPart, built_in_kind, component_names,
};
use loadlab_record::watch::sample::Sample;

use crate::readings::Readings;
use crate::state::{Collected, TrialState};

/// How often figures of the system are computed while a load runs; conditions are checked ten times as often.
const REFRESH_INTERVAL_S: f64 = 1.0;

/// Figures of components and probes, for conditions on a running load. They are computed from all samples of the trial,
/// which get numerous and arrive once a second, so they are computed only once a second, and only if needed.
#[derive(Debug, Default)]
pub struct SystemFigures {
    is_asked: bool,
    every_s: f64,
    /// Not recomputed before this time on the load's clock.
    due_s: f64,
    collected: Collected,
    components: BTreeMap<String, ComponentSummary>,
    probes: BTreeMap<String, ProbeSummary>,
}

impl SystemFigures {
    /// The figures that these conditions need.
    pub fn of(conditions: &[Expr]) -> Self {
        let names: Vec<NameRef> = conditions.iter().flat_map(Expr::names).collect();
        SystemFigures { every_s: REFRESH_INTERVAL_S, ..SystemFigures::each_time(names) }
    }

    /// The figures that these names need, for a caller that asks once a second.
    pub fn each_time(names: Vec<NameRef>) -> Self {
        SystemFigures { is_asked: asks_system(&names), ..SystemFigures::default() }
    }

    /// A summary that includes these figures, at a given time of the load. `summarise` gets all samples and events when
    /// the figures are due, otherwise none.
    pub fn in_summary(
        &mut self,
        state: &TrialState,
        at_s: f64,
        summarise: impl FnOnce(&[Sample], &[Event]) -> Summary,
    ) -> Summary {
        if self.is_asked && at_s >= self.due_s {
            self.due_s = at_s + self.every_s;
            state.collect_into(&mut self.collected);
            let summary = summarise(&self.collected.samples, &self.collected.events);
            (self.components, self.probes) = (summary.components.clone(), summary.probes.clone());
            return summary;
        }
        let summary = summarise(&[], &[]);
        Summary { components: self.components.clone(), probes: self.probes.clone(), ..summary }
    }
}

/// Whether one of the names refers to a component or a probe: any name that does not certainly refer to the load.
fn asks_system(names: &[NameRef]) -> bool {
    let of_load = |name: &str| {
        let in_parts = |first: &str| {
            let is_first = name.strip_prefix(first).is_some_and(|rest| rest.starts_with('.'));
            // A component may have this name.
            is_first && !component_names(first).iter().any(|of_component| of_component == name)
        };
        built_in_kind(name).is_some() || in_parts("tag") || in_parts("number")
    };
    names.iter().any(|name| !of_load(&name.text))
}

/// A trial's numbers as far as they are known, with the probes' latest readings.
pub struct LiveNumbers<'a> {
    /// What the load has measured so far.
    pub summary: &'a Summary,
    /// Probe readings so far.
    pub readings: &'a Readings,
}

impl LiveNumbers<'_> {
    /// A number as far as it is known, even from few samples.
    pub fn known(&self, name: &str, part: Option<TrialPart>) -> Known {
        // The last reading is the same as a probe's name alone.
        let is_read =
            |name: &&str| self.readings.failure(name).is_some() || self.readings.last(name).is_some();
        let probe = name.strip_suffix(".last").filter(is_read).unwrap_or(name);
        if let Some(why) = self.readings.failure(probe) {
            return Known::Unknown(why.to_owned());
        }
        match (part, self.readings.last(probe)) {
            (None, Some(value)) => Known::Is(value, NumberKind::Plain),
            _ => SummaryNumbers::new(self.summary, &[]).number(name, part),
        }
    }
}

impl NumberSource for LiveNumbers<'_> {
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known {
        match self.known(name, part) {
            // This early, the autocorrelation of requests is unknown: a percentile from few samples must not end a
            // load.
            Known::Between(few) => Known::Unknown(format!("needs {} samples", few.few.needed)),
            known => known,
        }
    }

    fn steady(&self, name: &str, for_ns: u64) -> Option<bool> {
        self.readings.steady(name, for_ns)
    }
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::{TrialInput, summarise};
    use loadlab_record::Secrets;
    use loadlab_system::{Cancel, WatchEvent};

    use super::*;

    fn summary_of_nothing() -> Summary {
        summarise(TrialInput::default())
    }

    #[test]
    fn figures_of_the_system_are_worked_out_once_a_second() {
        let state = TrialState::new(None, Cancel::new(), Secrets::default());
        let sample = |at_s: f64| Sample { at_s, component: "web".to_owned(), ..Sample::default() };
        let expr = |text: &str| Expr::parse(text).expect("a condition");
        let count = |conditions: &[&str]| {
            let conditions: Vec<Expr> = conditions.iter().map(|text| expr(text)).collect();
            let mut figures = SystemFigures::of(&conditions);
            let mut seen = Vec::new();
            for tenth in 0..25 {
                let at_s = f64::from(tenth) / 10.0;
                let mut all = None;
                let summary = figures.in_summary(&state, at_s, |samples, _| {
                    all = Some(samples.len());
                    let components = samples.iter().map(|s| (s.component.clone(), Default::default()));
                    Summary { components: components.collect(), ..summary_of_nothing() }
                });
                seen.push((all.expect("it was made"), summary.components.len()));
            }
            seen
        };
        state.take_watch_event(WatchEvent::Samples(vec![sample(0.0), sample(0.5)]));
        // Conditions on requests need no samples; the others look at all samples three times in 2.5 s and keep the
        // results in between.
        for conditions in [&["p99 > 1s"][..], &["errors > 1%", "tag.page.p99 > 1s or number.n.max > 5"]] {
            assert!(count(conditions).iter().all(|seen| *seen == (0, 0)), "{conditions:?}");
        }
        for condition in ["web.memory > 1MiB", "failed > 10 and stored > 3", "tag.cpu > 5%"] {
            let seen = count(&[condition]);
            let looked: Vec<usize> = (0..25).filter(|at| seen[*at].0 > 0).collect();
            assert_eq!(looked, [0, 10, 20], "{condition}");
            assert!(seen.iter().all(|(_, known)| *known == 1), "{condition}");
        }
        // Later samples are added to the earlier ones.
        let mut figures = SystemFigures::of(&[expr("web.cpu > 5%")]);
        let mut seen = |at_s| {
            let mut all = 0;
            figures.in_summary(&state, at_s, |samples, _| {
                all = samples.len();
                summary_of_nothing()
            });
            all
        };
        assert_eq!(seen(0.0), 2);
        state.take_watch_event(WatchEvent::Samples(vec![sample(1.0)]));
        assert_eq!((seen(0.5), seen(1.5)), (0, 3));
    }
}
