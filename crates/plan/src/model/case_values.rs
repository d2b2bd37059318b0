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
    /// Whether `--case` means it, or is not given.
    pub is_chosen: bool,
    pub span: Span,
}

impl CaseValues {
    /// A case of the plan as it is, which no option has left out.
    pub fn new(name: String, values: Vec<CaseValue>, span: Span) -> CaseValues {
        CaseValues { name, values, dir: None, is_chosen: true, span }
    }

    /// The case's name in the plan: without its revision, which `revisions` adds.
    pub fn own_name(&self) -> &str {
        let name = self.name.as_str();
        let Some(last) = self.values.last().filter(|value| value.axis == REVISION_AXIS) else { return name };
        // A plan without a matrix has one case, whose name its revisions replace.
        if name == last.text {
            return DEFAULT_CASE;
        }
        let own = name.strip_suffix(last.text.as_str()).and_then(|name| name.strip_suffix('='));
        let own = own.and_then(|name| name.strip_suffix(REVISION_AXIS)?.strip_suffix(", "));
        own.unwrap_or(name)
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
