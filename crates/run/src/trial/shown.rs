//! The plan's figures for live views while a load runs: computed once a second from what was measured so far, and only
//! if someone is watching.

use loadlab_record::documents::figure::FigureValue;
use loadlab_record::documents::summary::Summary;
use loadlab_record::expr::{Figure, Known, NameRef, NumberSource, TrialPart};

use crate::event::RunEvent;
use crate::readings::Readings;
use crate::state::EventSink;
use crate::trial::live_numbers::{LiveNumbers, SystemFigures};

/// The figures that are shown.
pub struct ShownFigures<'a> {
    figures: &'a [Figure],
    /// What the figures need from components and probes.
    pub system: SystemFigures,
    /// The whole second in which they were last shown.
    shown_s: Option<u64>,
}

impl<'a> ShownFigures<'a> {
    /// `None` if there is nothing to show or no one is watching.
    pub fn of(figures: &'a [Figure], has_viewer: bool) -> Option<Self> {
        let system = SystemFigures::each_time(names(figures));
        (has_viewer && !figures.is_empty()).then_some(ShownFigures { figures, system, shown_s: None })
    }

    /// Whether the figures are due at this time of the load: immediately, then once in each second.
    pub fn is_due(&mut self, at_s: f64) -> bool {
        let second = at_s as u64;
        let is_due = self.shown_s.is_none_or(|shown_s| second > shown_s);
        if is_due {
            self.shown_s = Some(second);
        }
        is_due
    }

    /// Computes the figures and reports them.
    pub fn show(&self, load: &str, summary: &Summary, readings: &Readings, emit: EventSink<'_>) {
        let numbers = Estimated(LiveNumbers { summary, readings });
        let value = |f: &Figure| (f.name.clone(), FigureValue::of(f.formula.known(&numbers), f.kind));
        let values = self.figures.iter().map(value).collect();
        emit(RunEvent::Figures { load: load.to_owned(), values });
    }
}

/// The names that figures refer to.
pub fn names(figures: &[Figure]) -> Vec<NameRef> {
    figures.iter().flat_map(|f| f.formula.names()).collect()
}

/// Numbers so far, including percentiles from few samples: good enough to show, but not to end a load.
struct Estimated<'a>(LiveNumbers<'a>);

impl NumberSource for Estimated<'_> {
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known {
        self.0.known(name, part)
    }

    fn steady(&self, name: &str, for_ns: u64) -> Option<bool> {
        self.0.steady(name, for_ns)
    }
}
