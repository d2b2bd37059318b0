//! From the text of a plan to checked cases.
//!
//! [`Plan::parse`] reads YAML, applies a profile and `--set`, expands the matrix, and gives every case as plain values
//! with units in their names. What is wrong comes back all at once, each mistake with its place and a hint.
//! [`schema`] describes the same language for editors.
//!
//! The crate is pure: no files, clock, network or environment. It does not know how a component is started or a
//! request is sent.
//!
//! Reading order: `plan` (the way through), `keys` (the language, one table), `reader` (how values are read and mistakes
//! collected), `system`, `load` and `journey` (what is read).

mod conditions;
mod error;
mod expand;
mod journey;
mod keys;
mod load;
mod matrix;
mod node;
mod overrides;
mod plan;
mod reader;
mod schema;
mod source;
mod spec;
mod stages;
mod suggest;
mod system;
mod template;
mod url;
mod values;
mod words;
mod yaml;

pub use error::{PlanError, PlanErrors, Related};
pub use journey::*;
pub use plan::{Options, Order, Plan};
pub use schema::{schema, schema_of};
pub use spec::{
    Arrivals, Body, Case, Command, ComponentSpec, DrainSpec, Expression, Fresh, Limits, LoadSpec, Model,
    PortSpec, ProbeSpec, Purpose, ReadySign, ReadySpec, Stage, Step, StopSpec, SystemSpec, Think, Until,
    WhenBehind,
};
pub use template::{Template, UnknownName};
