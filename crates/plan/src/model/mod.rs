//! A checked plan, as plain values. Nothing here reads or checks anything.

pub(crate) mod case_values;
pub(crate) mod component_kind;
pub(crate) mod journey;
pub(crate) mod limits;
pub(crate) mod plan;
pub(crate) mod spec;
pub(crate) mod template;
