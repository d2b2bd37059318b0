//! Which variables a step's text may use, and what they become.
//!
//! Names of captures are known as soon as the load is read, and may be used from the step after the one that captures
//! them. Feeds number the columns that are used.

use loadlab_record::spec::escape::Escape;
use loadlab_record::spec::variable::Variable;

use crate::text::span::Span;

/// Maximum number of captures or columns: more than anyone needs, and few enough for the engine's index types.
pub(crate) const MAX_NAMES: usize = 1000;

/// Variables of the steps being read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Whose steps are being read.
    pub place: StepOwner,
    pub feeds: Vec<KnownFeed>,
    /// By slot: those of `setup`, then those of the load.
    pub captures: Vec<KnownCapture>,
    /// Number of captures that belong to `setup`.
    pub shared: usize,
    /// The load sends single requests: none of them sees what another one captured.
    pub has_single_requests: bool,
    /// Some text contains a value that the load's own steps capture.
    pub uses_own_captures: bool,
}

/// Whose steps are being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StepOwner {
    /// Nobody's: no step is being read.
    #[default]
    Nowhere,
    Setup,
    Load,
}

#[derive(Clone, Debug)]
pub(crate) struct KnownFeed {
    pub name: String,
    pub span: Span,
    /// Columns used, and where each was used first.
    pub columns: Vec<(String, Span)>,
}

#[derive(Clone, Debug)]
pub(crate) struct KnownCapture {
    pub name: String,
    pub span: Span,
    pub is_number: bool,
    /// Whether an earlier step has captured it.
    pub is_visible: bool,
}

/// The meaning of a name in a request.
pub(crate) enum NameMeaning {
    Variable(Variable, Escape),
    /// Not a variable: perhaps a constant.
    Other,
    /// A name that cannot be used (already reported).
    Wrong,
}

impl Names {
    /// The names that may be used, as people write them.
    pub fn known(&self) -> Vec<String> {
        let mut names: Vec<String> = ["uuid", "now", "random(1, 6)"].map(str::to_owned).to_vec();
        if self.place == StepOwner::Load {
            names.extend(["user", "iteration", "sequence", "unique"].map(str::to_owned));
        }
        names.extend(self.captures.iter().filter(|c| c.is_visible).map(|c| c.name.clone()));
        names.extend(self.feeds.iter().map(|f| format!("{}.COLUMN", f.name)));
        names
    }

    pub fn slot(&self, name: &str) -> Option<usize> {
        self.captures.iter().position(|c| c.name == name)
    }
}
