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
//! collected), `system` with `limits` and `probes`, `load` and `journey`, `events` (what is read), `outside` and `hidden`
//! (what comes from outside, and what is not shown).

mod command_load;
mod conditions;
pub mod credentials;
mod derive;
mod error;
mod events;
mod expand;
mod hidden;
pub mod ids;
mod journey;
mod keys;
mod limits;
mod link;
mod load;
mod matrix;
mod node;
mod outside;
mod overrides;
mod part;
mod part_keys;
mod plan;
mod probes;
mod reader;
mod reference;
mod schema;
mod source;
mod spec;
mod stages;
mod suggest;
mod system;
mod template;
mod url;
mod values;
mod watch_keys;
mod words;
mod yaml;

pub use error::{PlanError, PlanErrors, Related};
pub use journey::*;
pub use link::RELAY;
pub use outside::{MOST_BYTES, Missing, Outside, Reference};
pub use part::{ComposeSpec, ContainerSpec, External, HealthSpec, Image, Isolation, Network, Part};
pub use plan::{Options, Order, Plan};
pub use reference::reference;
pub use schema::schema;
pub use spec::{
    Action, Arrivals, Body, Case, Command, CommandLoad, ComponentSpec, DerivedSpec, DrainSpec, EventSpec,
    Expression, Fresh, LimitName, Limits, LoadSpec, LossSpec, MeasuredLimit, Model, Persisted, PortSpec,
    ProbeSource, ProbeSpec, Purpose, ReadySign, ReadySpec, Stage, Step, StopSpec, SystemSpec, Think, Until,
    WhenBehind,
};
pub use suggest::glob;
pub use template::{Template, UnknownName};
