//! The language of journeys: what users do, one step after another.
//!
//! [`spec`] is what a checked journey is; [`keys`] its keys; [`features`] which of it can be carried out today. `step`,
//! `body`, `capture`, `check`, `feeds`, `http` and `talk` read one part each; `names` knows which variables a text may use.
//! Variables become numbers here (which feed, which column, which capture), so that nobody looks up a name later.

pub(crate) mod body;
mod capture;
mod check;
pub(crate) mod feeds;
pub(crate) mod http;
pub(crate) mod keys;
pub(crate) mod names;
mod spec;
pub(crate) mod step;
pub(crate) mod talk;
pub(crate) mod target;
pub(crate) mod words;

pub use spec::{
    Auth, Bound, Capture, CaptureFrom, CapturedName, Checks, ColumnUse, Conversation, Escape, Expect,
    FeedFormat, FeedSpec, FormPart, Http, Message, OnFailure, Operator, PartContent, Place, Protocol, Said,
    Script, Segment, Setup, Tls, Unit, Variable,
};
