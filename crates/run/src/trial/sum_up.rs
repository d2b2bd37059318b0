//! Makes a trial's summary from what was planned, measured and watched.

use loadlab_analysis::{Planned, TrialInput, summarise};
use loadlab_record::documents::summary::{Ended, Generator, Loss, Summary};

use crate::limits::cpu_limits;
use crate::state::TrialState;
use crate::trial::Trial;
use crate::trial::carryover::Carried;
use crate::trial::measurements::TrialMeasurements;
use crate::trial::prepare::{PreparedTrial, together};

impl Trial<'_> {
    pub(super) fn sum_up(
        &self,
        state: &TrialState,
        ready: &PreparedTrial,
        measured: &TrialMeasurements,
        drain_s: Option<f64>,
        loss: Option<Loss>,
    ) -> Summary {
        let (samples, events) = state.collected();
        let mut planned = match ready.loads.as_slice() {
            [load] => load.planned(),
            // Each load has its own cap; their sum applies to none of them.
            loads => Planned {
                drops_when_behind: loads.iter().any(|l| l.planned().drops_when_behind),
                ..Planned::default()
            },
        };
        planned.cpu_limits = cpu_limits(self.case);
        planned.open_files_at_rest = self.carried.map(Carried::own_files).unwrap_or_default();
        planned.order = self.case.system.components.iter().map(|c| c.name.clone()).collect();
        planned.cores = crate::host::cores();
        planned.figures.clone_from(&self.conditions.figures);
        let ended = match state.abort_reason() {
            _ if state.cancel.is_cancelled() => Ended::Interrupted,
            Some(_) => Ended::Broken,
            None => measured.ended.unwrap_or(Ended::Broken),
        };
        summarise(TrialInput {
            facts: together(&ready.loads),
            loads: &measured.loads,
            ticks: &measured.ticks,
            samples: &samples,
            events: &events,
            evidence: &state.evidence(),
            generator: Generator {
                machine_cores: crate::host::machine_cores(),
                ..measured.generator.clone()
            },
            agents: measured.agents.clone(),
            ended,
            expect: &self.conditions.expect,
            intervals: &measured.intervals,
            drain_s,
            loss,
            planned,
        })
    }
}
