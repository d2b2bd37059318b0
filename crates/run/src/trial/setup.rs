//! `setup`: steps that one user takes once before a trial's loads; what they capture is available to all users.

use std::path::Path;

use loadlab_load::journey::capture::CaptureSlots;
use loadlab_load::run::{LoadEvent, Origin};
use loadlab_load::target::Allowed;
use loadlab_load::{Control, run};
use loadlab_plan as plan;
use loadlab_record::counts::example::Example;
use loadlab_system::clock;

use crate::running_system::error::BringUpError;
use crate::state::TrialState;
use crate::translate::error::Names;
use crate::translate::{RequestContext, load_spec};
use crate::trial::measure::LEAD_NS;

/// Takes the steps of `setup`. Returns the captured values, slot by slot.
///
/// # Errors
/// A step cannot be built or sent, or did not get a successful response.
pub fn set_up(
    case: &plan::Case,
    plan_dir: &Path,
    names: Names<'_>,
    allowed: &Allowed,
    state: &TrialState,
) -> Result<CaptureSlots, BringUpError> {
    let setup = &case.setup;
    let mut slots = CaptureSlots::new(setup.captures.len() as u16);
    if setup.steps.is_empty() {
        return Ok(slots);
    }
    let load = as_load(case);
    let context =
        RequestContext { load: &load, plan_dir, names, shared: &CaptureSlots::new(0), shared_names: &[] };
    let (mut spec, _) = load_spec(&context, allowed, 1)?;
    spec.secrets = state.secrets.clone();
    let start_ns = clock::now_ns() + LEAD_NS;
    let (control, mut failed) = (Control::default(), None);
    let outcome =
        run(&spec, &control, Origin { start_ns, zero_ns: start_ns, batch: 0, first_id: 0 }, &mut |event| {
            match event {
                LoadEvent::Example(example) => drop(failed.get_or_insert(example)),
                LoadEvent::Progress(_) if state.must_end() => control.abort(),
                _ => {}
            }
        });
    let failure = |why: String| BringUpError::BeforeLoad(format!("`setup` failed: {why}"));
    let outcome = outcome.map_err(|error| failure(error.to_string()))?;
    if let Some(example) = failed {
        return Err(failure(reported(&example)));
    }
    if outcome.measured.counts.ok != setup.steps.len() as u64 {
        return Err(failure("not every step completed".to_owned()));
    }
    for (slot, value) in outcome.captured.iter().enumerate() {
        if let Some(value) = value {
            let set = slots.set(slot as u16, value);
            set.map_err(|fault| failure(fault.describe().to_owned()))?;
        }
    }
    Ok(slots)
}

/// A load of one user who takes the steps once and stops at the first failure.
fn as_load(case: &plan::Case) -> plan::LoadSpec {
    let stops = |step: &plan::Step| plan::Step { on_failure: plan::OnFailure::Leave, ..step.clone() };
    // Timeouts and protocol settings are taken from the first load; there is at least one.
    plan::LoadSpec {
        name: "setup".to_owned(),
        model: plan::Model::Closed { users: 1, pace_ns: None },
        until: plan::Until::Repeats(1),
        ramp_ns: 0,
        stages: Vec::new(),
        start_ns: 0,
        warmup_ns: 0,
        is_warmup_found: false,
        think: plan::Think::None,
        batches: 1,
        pause_ns: 0,
        threads: Some(1),
        journey: case.setup.steps.iter().map(stops).collect(),
        script: plan::Script { captures: case.setup.captures.clone(), ..plan::Script::default() },
        ..case.loads[0].clone()
    }
}

fn reported(example: &Example) -> String {
    let why = example.error.clone().unwrap_or_else(|| match example.status {
        Some(status) => format!("status {status}"),
        None => example.outcome.clone(),
    });
    format!("{}: {why}", example.request)
}
