//! Which variables a text of a step may use, and what they become.
//!
//! Captures are known by name as soon as the load is looked at, and may be used from the step behind the one that
//! captures them. Feeds count the columns that are used.

use loadlab_record::escape::Escape;
use loadlab_record::variable::Variable;

use crate::text::span::Span;

/// More captures or columns than anybody needs, and few enough for the engine's numbers.
pub(crate) const MOST: usize = 1000;

/// Variables of the steps that are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Steps are read, of users or of `setup`.
    pub place: Place,
    pub feeds: Vec<KnownFeed>,
    /// By slot: those of `setup`, then those of the load.
    pub captures: Vec<KnownCapture>,
    /// How many of them are those of `setup`.
    pub shared: usize,
}

/// Whose steps are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nobody's.
    #[default]
    Nowhere,
    Setup,
    Load,
}

#[derive(Clone, Debug)]
pub(crate) struct KnownFeed {
    pub name: String,
    pub span: Span,
    /// Columns that are used, and where first.
    pub columns: Vec<(String, Span)>,
}

#[derive(Clone, Debug)]
pub(crate) struct KnownCapture {
    pub name: String,
    pub span: Span,
    pub is_number: bool,
    /// An earlier step has captured it.
    pub is_visible: bool,
}

/// What a name in a request is.
pub(crate) enum Word {
    Variable(Variable, Escape),
    /// No variable: perhaps something that stays the same.
    Other,
    /// It cannot be used, which was said.
    Wrong,
}

impl Names {
    /// As people write them.
    pub fn known(&self) -> Vec<String> {
        let mut names: Vec<String> = ["uuid", "now", "random(1, 6)"].map(str::to_owned).to_vec();
        if self.place == Place::Load {
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
