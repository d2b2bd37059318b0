//! Whether the ids that requests carry as `${unique}` suffice to distinguish all requests of a run.
//!
//! Each batch of each load in each trial has its own block of ids. All ids fit into the 53 bits of a JSON number in
//! most languages, and a block has room for at least 2³² requests.

use loadlab_record::documents::search::most_measurements;
use loadlab_record::spec::schedule::Until;

use crate::model::journey::Place;
use crate::model::plan::Plan;
use crate::model::spec::{Case, LoadSpec, Model, Persisted};
use crate::text::error::PlanError;

/// Bits of an id.
pub const ID_BITS: u32 = 53;
/// Minimum bits of a request's position in its block.
pub const REQUEST_BITS: u32 = 32;
/// Maximum bits of a request's position in its block: a trillion requests are enough.
const MOST_REQUEST_BITS: u32 = 40;
/// Maximum number of blocks of a run.
pub const MOST_BLOCKS: u64 = 1 << (ID_BITS - REQUEST_BITS);

/// Bits of a request's position in its block: those that the block numbers leave free.
pub fn request_bits(blocks: u64) -> u32 {
    let block_bits = u64::BITS - (blocks.max(1) - 1).leading_zeros();
    ID_BITS.saturating_sub(block_bits).clamp(REQUEST_BITS, MOST_REQUEST_BITS)
}

/// The loads of a case, each with its batches.
pub fn parts(case: &Case) -> u64 {
    case.loads.iter().map(|load| u64::from(load.batches)).sum()
}

/// Checks that ids suffice: without enough ids, `durability` by ids would confuse the requests of one trial with those
/// of another.
pub(crate) fn check(plan: &Plan) -> Option<PlanError> {
    let by_ids =
        |case: &Case| case.durability.clone().filter(|l| !matches!(l.persisted, Persisted::Probe(_)));
    let Place { file, line, column, snippet } = plan.cases().iter().find_map(by_ids)?.at;
    let most = plan.cases().iter().map(parts).max().unwrap_or(1).max(1);
    let searched = plan.cases().iter().filter_map(|case| case.find.as_ref());
    let levels = searched.map(|find| most_measurements(find.max_levels)).max().unwrap_or(1);
    let trials = (plan.cases().len() as u64 * u64::from(plan.trials)).saturating_mul(levels);
    let blocks = trials.saturating_mul(most);
    let (message, fewer) = if blocks > MOST_BLOCKS {
        let all = format!("{trials} trials of {most} loads and batches");
        (format!("request ids cannot distinguish {all}: at most {MOST_BLOCKS} in all are possible"), "trials")
    } else {
        let room = 1 << request_bits(blocks);
        let mut loads = plan.cases().iter().flat_map(|case| &case.loads);
        let (name, requests) =
            loads.find_map(|load| Some((&load.name, requests(load).filter(|n| *n > room)?)))?;
        (
            format!(
                "request ids cannot distinguish {requests} requests of load `{name}`: at most {room} in a batch \
                 are possible"
            ),
            "requests, trials",
        )
    };
    let hint = format!("use fewer {fewer}, cases or batches, or count with `probe`");
    Some(PlanError { file, line, column, message, snippet, related: None, hint: Some(hint) })
}

/// Requests of a batch of a load, if known in advance.
fn requests(load: &LoadSpec) -> Option<u64> {
    match (&load.until, &load.model) {
        (Until::Requests(n), _) => Some(*n),
        (Until::Elapsed(ns), Model::Open { rate_per_s, .. }) if load.stages.is_empty() => {
            Some((rate_per_s * *ns as f64 / 1e9) as u64)
        }
        _ => None,
    }
}
