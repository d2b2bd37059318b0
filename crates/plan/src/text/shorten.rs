//! Texts short enough for a message.

/// A text for a message: one line, 60 characters at most.
pub(crate) fn shorten(text: &str) -> String {
    shorten_to(text, 60)
}

/// One line of at most this many characters.
pub(crate) fn shorten_to(text: &str, most: usize) -> String {
    let line: String = text.chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(most).is_some() { format!("{line}…") } else { line }
}
