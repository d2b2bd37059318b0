//! Whether the ids that requests carry as `${unique}` suffice to tell every request of a run apart.
//!
//! Each load, each batch of it, in each trial has a block of ids of its own. All ids fit into the 53 bits that JSON numbers
//! hold in most languages, and a block has room for 2³² requests at least.

use crate::error::PlanError;
use crate::journey::Place;
use crate::plan::Plan;
use crate::spec::{Case, Persisted};

/// Bits of an id.
pub const ID_BITS: u32 = 53;
/// Bits of a request's place in its block, at least.
pub const REQUEST_BITS: u32 = 32;
/// Blocks of a run, at most.
pub const MOST_BLOCKS: u64 = 1 << (ID_BITS - REQUEST_BITS);

/// The loads of a case, each with its batches.
pub fn parts(case: &Case) -> u64 {
    case.loads.iter().map(|load| u64::from(load.batches)).sum()
}

/// `loss` by ids would take the requests of one trial for those of another.
pub(crate) fn check(plan: &Plan) -> Option<PlanError> {
    let by_ids = |case: &Case| case.loss.clone().filter(|l| !matches!(l.persisted, Persisted::Probe(_)));
    let Place { file, line, column, snippet } = plan.cases().iter().find_map(by_ids)?.at;
    let most = plan.cases().iter().map(parts).max().unwrap_or(1).max(1);
    let trials = plan.cases().len() as u64 * u64::from(plan.trials);
    if trials.saturating_mul(most) <= MOST_BLOCKS {
        return None;
    }
    let message = format!(
        "the ids of requests cannot tell {trials} trials of {most} loads and batches apart: {MOST_BLOCKS} in all is the most"
    );
    let hint = "fewer trials, cases or batches, or count with `probe`".to_owned();
    Some(PlanError { file, line, column, message, snippet, related: None, hint: Some(hint) })
}
