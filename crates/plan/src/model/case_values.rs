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
        let last = self.values.last().map(|value| (value.axis.as_str(), value.text.as_str()));
        without_revision(&self.name, last)
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

/// The name of the case of a plan that has no matrix.
pub(crate) const DEFAULT_CASE: &str = "default";

/// The name of a case without its revision, which is the last of its axes if the plan compares revisions.
pub(crate) fn without_revision<'a>(name: &'a str, last_axis: Option<(&str, &str)>) -> &'a str {
    let Some((axis, text)) = last_axis.filter(|(axis, _)| *axis == REVISION_AXIS) else { return name };
    // A plan without a matrix has one case, whose name its revisions replace.
    if name == text {
        return DEFAULT_CASE;
    }
    let own = name.strip_suffix(text).and_then(|name| name.strip_suffix('='));
    let own = own.and_then(|name| name.strip_suffix(axis)?.strip_suffix(", "));
    own.unwrap_or(name)
}
