//! Figures of another case, which a limit may be given by.

/// What may stand in the matrix though it is no plain value.
pub(crate) fn is_measured(text: &str) -> bool {
    text.trim_start().starts_with("${measured")
}
