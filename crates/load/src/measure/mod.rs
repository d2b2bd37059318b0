//! What a load thread counts and keeps: counts and times, examples of exchanges, and what the thread itself used.

pub mod delta;
pub(crate) mod examples;
pub mod own_usage;
pub(crate) mod recorder;
pub(crate) mod redact;

use crate::measure::examples::ExampleStore;
use crate::measure::recorder::Recorder;
use crate::spec::LoadSpec;

/// What one load thread measures.
pub(crate) struct Measure {
    /// Counts and times.
    pub recorder: Recorder,
    /// Examples of failed and slow requests.
    pub examples: ExampleStore,
}

impl Measure {
    /// Nothing measured yet.
    pub fn new(spec: &LoadSpec, recorder: Recorder) -> Self {
        Measure { recorder, examples: ExampleStore::new(&spec.name, &spec.tags, &spec.secrets) }
    }
}
