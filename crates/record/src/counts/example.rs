//! Single exchanges kept whole, a bounded number of them, so that a failure can be diagnosed without curl.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum number of exchanges kept per outcome and tag: the first failures and the slowest.
pub const MAX_EXAMPLES: usize = 10;
/// Maximum bytes kept of a response body.
pub const BODY_BYTES: usize = 1024;
/// Maximum bytes kept of a head.
pub const HEAD_BYTES: usize = 4096;
/// Maximum bytes kept of a response.
pub const RESPONSE_BYTES: usize = HEAD_BYTES + BODY_BYTES;

/// Why an exchange was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExampleReason {
    /// One of the first with this failure.
    Failed,
    /// One of the slowest with this outcome.
    Slow,
}

/// One line of `examples.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// Why it was kept.
    pub kept: ExampleReason,
    /// `ok`, or the failure's name.
    pub outcome: String,
    /// Name of the load.
    pub load: String,
    /// The request's tag, if it has one.
    pub tag: Option<String>,
    /// When the request fell due, seconds on the trial's clock.
    pub due_s: f64,
    /// end − due.
    pub response_ms: f64,
    /// end − started.
    pub service_ms: f64,
    /// The user that made it, from 0 (closed model, and users that arrive).
    pub user: Option<u64>,
    /// Step of a journey: `before 1`, `step 2`, `after 1`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step: Option<String>,
    /// Values the user had captured when the exchange ended, secrets masked.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub captured: BTreeMap<String, String>,
    /// The address it went to.
    pub address: String,
    /// What went wrong, in words (`connection refused`, `content-length given twice`); absent for ok.
    pub error: Option<String>,
    /// Method and target: `GET /path`.
    pub request: String,
    /// The request's head as sent, lossily as text.
    pub request_head: String,
    /// Status, if a response head came.
    pub status: Option<u16>,
    /// The response's head as received, lossily as text; absent if none was kept.
    pub response_head: Option<String>,
    /// The first [`BODY_BYTES`] of the response's body, lossily as text.
    pub response_body: Option<String>,
}
