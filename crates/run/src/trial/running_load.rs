//! A load as it runs: its summary so far, for stop conditions and live views.

use loadlab_analysis::{LoadRun, TrialInput, summarise};
use loadlab_record::counts::load::Measured;
use loadlab_record::documents::summary::{LoadFacts, Summary};
use loadlab_record::expr::Expr;

use crate::state::{EventSink, TrialState};
use crate::trial::live_numbers::{LiveNumbers, SystemFigures};
use crate::trial::shown::ShownFigures;

/// A load that is running.
pub struct RunningLoad<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its description in the summary.
    pub facts: &'a LoadFacts,
    /// The trial it belongs to.
    pub state: &'a TrialState,
}

impl RunningLoad<'_> {
    /// The first of these conditions that holds, given what was measured so far.
    pub fn reached(
        &self,
        conditions: &[Expr],
        system: &mut SystemFigures,
        measured: Measured,
    ) -> Option<String> {
        let summary = self.summary(system, measured);
        let readings = self.state.readings();
        let metrics = LiveNumbers { summary: &summary, readings: &readings };
        let reached = conditions.iter().find(|e| e.evaluate(&metrics).holds == Some(true));
        reached.map(ToString::to_string)
    }

    /// Reports the plan's figures, given what was measured so far.
    pub fn show(&self, shown: &mut ShownFigures<'_>, measured: Measured, emit: EventSink<'_>) {
        let summary = self.summary(&mut shown.system, measured);
        shown.show(self.name, &summary, &self.state.readings(), emit);
    }

    fn summary(&self, system: &mut SystemFigures, measured: Measured) -> Summary {
        let at_s = measured.elapsed_s;
        let loads = [LoadRun { load: self.name.to_owned(), batch: 0, at_s: 0.0, measured }];
        system.in_summary(self.state, at_s, |samples, events| {
            summarise(TrialInput {
                facts: self.facts.clone(),
                loads: &loads,
                samples,
                events,
                ..TrialInput::default()
            })
        })
    }
}
