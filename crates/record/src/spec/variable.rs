//! Values that change from request to request.

/// A value that is known only when a request is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The user's number, from 0.
    User,
    /// Journeys this user has made before this one, from 0.
    Iteration,
    /// The request's number, unique within the load.
    Sequence,
    /// A number unique within the trial, across loads and batches; loss is reported by it.
    Id,
    /// A random UUID (version 4), drawn anew at each place.
    Uuid,
    /// The time since 1970, UTC.
    Now(Unit),
    /// A whole number from `low` to `high`, both included, drawn anew at each place.
    Random {
        /// Smallest value.
        low: i64,
        /// Largest value; not below `low`.
        high: i64,
    },
    /// A cell of the user's row in a data feed.
    Feed {
        /// Index of the feed among the load's feeds.
        feed: u16,
        /// Index of the column among the feed's columns in use.
        column: u16,
    },
    /// A captured value.
    Capture {
        /// Slot index: captures of `setup` first, then the user's own.
        slot: u16,
        /// Whether the value, if present, is always a number.
        is_number: bool,
    },
}

impl Variable {
    /// Whether the value is a number, which JSON writes without quotes.
    pub fn is_number(self) -> bool {
        match self {
            Variable::Uuid | Variable::Feed { .. } | Variable::Now(Unit::Rfc3339) => false,
            Variable::Capture { is_number, .. } => is_number,
            _ => true,
        }
    }
}

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Whole seconds.
    Seconds,
    /// Whole milliseconds.
    Millis,
    /// Whole microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
    /// `2026-11-20T09:30:00.000Z` (RFC 3339).
    Rfc3339,
}
