//! A point of the matrix, as written.

use crate::text::node::ScalarKind;
use crate::text::span::Span;

/// A case before it is interpreted: a value for every axis.
#[derive(Clone, Debug)]
pub(crate) struct CaseValues {
    pub name: String,
    pub values: Vec<CaseValue>,
    /// The plan's folder in the case's revision, if that is another one.
    pub dir: Option<String>,
    pub span: Span,
}

/// The value of one axis in one case, as written.
#[derive(Clone, Debug)]
pub(crate) struct CaseValue {
    pub axis: String,
    pub text: String,
    pub kind: ScalarKind,
    pub span: Span,
}
