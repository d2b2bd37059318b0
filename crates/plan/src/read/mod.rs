//! From the tree of a plan to its model: one file for each section of a plan. The [`reader`] collects all mistakes.

pub(crate) mod batches;
pub(crate) mod command_load;
pub(crate) mod component_kind;
pub(crate) mod conditions;
pub(crate) mod derive;
pub(crate) mod events;
pub(crate) mod figures;
pub(crate) mod find;
mod given;
pub(crate) mod journey;
pub(crate) mod levers;
pub(crate) mod limits;
pub(crate) mod load;
pub(crate) mod names;
pub(crate) mod probes;
pub(crate) mod profile;
pub(crate) mod reader;
pub(crate) mod revisions;
pub(crate) mod stages;
pub(crate) mod system;
pub(crate) mod texts;
pub(crate) mod trials;
pub(crate) mod values;
mod variables;
