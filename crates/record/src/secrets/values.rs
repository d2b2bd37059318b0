//! Values of the record that are also served from memory. They are masked as the record's files are: written as JSON,
//! and parsed again. This happens here and not at the call sites, so that the program contains the code that writes and
//! reads a type only once.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Secrets;
use crate::counts::example::Example;
use crate::counts::load::Tick;
use crate::documents::event::{Event, EventKind};
use crate::documents::manifest::{FigureFacts, Manifest};
use crate::documents::summary::{Doubt, Summary};
use crate::watch::evidence::Evidence;
use crate::watch::sample::Sample;

/// What can be masked by [`Secrets::mask_value`].
pub trait Maskable {
    /// A copy with its texts masked; `None` if that fails. Then show nothing.
    #[must_use]
    fn masked(self, secrets: &Secrets) -> Option<Self>
    where
        Self: Sized;
}

macro_rules! maskable {
    ($($of:ty),* $(,)?) => {
        $(impl Maskable for $of {
            fn masked(self, secrets: &Secrets) -> Option<Self> {
                read_back(&self, secrets)
            }
        })*
    };
}

maskable!(Doubt, Event, Evidence, Example, FigureFacts, Manifest, Sample, Summary, Tick);

impl Maskable for EventKind {
    fn masked(self, secrets: &Secrets) -> Option<Self> {
        Event { at_s: 0.0, what: self }.masked(secrets).map(|event| event.what)
    }
}

impl<T: Maskable> Maskable for Vec<T> {
    fn masked(self, secrets: &Secrets) -> Option<Self> {
        self.into_iter().map(|value| value.masked(secrets)).collect()
    }
}

impl Secrets {
    /// The document of a trial as JSON, as in the record, its texts masked.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn summary_json(&self, summary: &Summary) -> serde_json::Result<Vec<u8>> {
        self.json_pretty(summary)
    }

    /// Samples as lines of JSON, as in the record, their texts masked.
    ///
    /// # Errors
    /// They cannot be written as JSON.
    pub fn samples_lines(&self, samples: &[Sample]) -> serde_json::Result<Vec<u8>> {
        let mut lines = Vec::new();
        for sample in samples {
            lines.extend(self.json(sample)?);
            lines.push(b'\n');
        }
        Ok(lines)
    }
}

/// Whatever the record contains reads back as it was written.
fn read_back<T: Serialize + DeserializeOwned>(value: &T, secrets: &Secrets) -> Option<T> {
    let masked = secrets.json(value).and_then(|text| serde_json::from_slice(&text));
    masked.inspect_err(|error| debug_assert!(false, "{error}")).ok()
}
