//! From the text of a plan to checked cases.
//!
//! [`Plan::parse`] reads YAML, applies a profile and `--set`, expands the matrix, and returns every case as plain
//! values with units in their names. Mistakes are returned all at once, each with its place and a hint. [`schema`]
//! describes the same language for editors.
//!
//! The crate is pure: no files, clock, network or environment. It does not know how a component is started or a
//! request is sent.
//!
//! The data flow: `text` (sources and trees) → `expand` (profiles, `--set`, the matrix) → `read` (a file for each
//! section; mistakes are collected) → `model` (a checked plan). `keys` is the language: one table that the reader, the
//! schema and the reference share. `plan` drives the flow; `describe` puts a plan into words. `outside` holds values
//! from outside, `hidden` values that are not shown.

pub mod credentials;
mod describe;
mod expand;
mod hidden;
pub mod ids;
mod keys;
mod model;
mod outside;
mod plan;
mod read;
mod text;
mod url;

pub use expand::link::RELAY;
pub use keys::METHODS;
pub use keys::reference::reference;
pub use keys::schema::schema;
pub use loadlab_record::documents::manifest::REVISION_AXIS;
pub use loadlab_record::documents::search::SearchVariable;
pub use loadlab_record::spec::bound::{Bound, Operator};
pub use loadlab_record::spec::escape::Escape;
pub use loadlab_record::spec::schedule::{Arrivals, Stage, Think, Until, WhenBehind};
pub use loadlab_record::spec::variable::{Unit, Variable};
pub use model::component_kind::{
    Command, ComponentKind, ComposeSpec, ContainerSpec, External, HealthSpec, Image, Isolation, Lifetime,
    Network,
};
pub use model::journey::{
    Auth, Body, Capture, CaptureFrom, CapturedName, Checks, ColumnUse, Conversation, Expect, FeedFormat,
    FeedSpec, FormPart, Http, Message, MessageContent, OnFailure, PartContent, Place, Protocol, Script,
    Setup, Step, Tls,
};
pub use model::limits::{LimitName, Limits, MeasuredLimit};
pub use model::plan::{Plan, Revision, TrialOrder, UntilCertain};
pub use model::spec::{
    Action, Case, CommandLoad, ComponentSpec, DerivedSpec, DrainSpec, DurabilitySpec, EventSpec, Expression,
    FigureSpec, FindSpec, LeverSetting, LeverSpec, LoadSpec, Model, Persisted, PortSpec, ProbeSource,
    ProbeSpec, ProfileSpec, Purpose, ReadySign, ReadySpec, StopSpec, SystemSpec, planned_end_ns,
};
pub use model::template::{Segment, Template, UnknownName};
pub use outside::{MOST_BYTES, Missing, Outside, Reference};
pub use plan::Options;
pub use read::conditions::needs_section;
pub use read::find::{beyond_level, level_times, unsearchable, unsteady_beside};
pub use text::error::{PlanError, PlanErrors, Related};
pub use text::suggest::glob;
