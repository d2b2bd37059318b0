//! A point of the matrix, as written.

use loadlab_record::documents::manifest::REVISION_AXIS;

use crate::text::node::ScalarKind;
use crate::text::span::Span;

/// A case before it is interpreted: a value for every axis.
#[derive(Clone, Debug)]
pub(crate) struct CaseValues {
    pub name: String,
    pub values: Vec<CaseValue>,
    /// The plan's folder in the case's revision, if the revision is checked out elsewhere.
    pub dir: Option<String>,
    pub span: Span,
}

impl CaseValues {
    /// The case's name in the plan: without its revision, which `revisions` adds.
    pub fn own_name(&self) -> &str {
        let revision = self.values.last().filter(|value| value.axis == REVISION_AXIS);
        let own = revision.and_then(|value| {
            self.name
                .strip_suffix(&value.text)?
                .strip_suffix('=')?
                .strip_suffix(REVISION_AXIS)?
                .strip_suffix(", ")
        });
        own.unwrap_or(&self.name)
    }
}

/// The value of one axis in one case, as written.
#[derive(Clone, Debug)]
pub(crate) struct CaseValue {
    pub axis: String,
    pub text: String,
    pub kind: ScalarKind,
    pub span: Span,
}
