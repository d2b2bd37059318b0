//! A stretch of a source.

/// A stretch of a source, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Span {
    /// Index into [`Sources`].
    pub source: u32,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// An empty span at the same start: for "something is missing here".
    pub fn point(self) -> Span {
        Span { end: self.start, ..self }
    }
}
