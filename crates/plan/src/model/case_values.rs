//! A point of the matrix, as written.

use crate::text::node::Kind;
use crate::text::span::Span;

/// A case before it is interpreted: a value for every axis.
#[derive(Clone, Debug)]
pub(crate) struct CaseValues {
    pub name: String,
    pub values: Vec<CaseValue>,
    pub span: Span,
}

/// The value of one axis in one case, as written.
#[derive(Clone, Debug)]
pub(crate) struct CaseValue {
    pub axis: String,
    pub text: String,
    pub kind: Kind,
    pub span: Span,
}
