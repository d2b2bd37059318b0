//! Texts and trees: sources and places in them, YAML, messages. Nothing here knows what a plan is.

pub(crate) mod encode;
pub(crate) mod error;
pub(crate) mod node;
pub(crate) mod shorten;
pub(crate) mod source;
pub(crate) mod span;
pub(crate) mod suggest;
pub(crate) mod yaml;
