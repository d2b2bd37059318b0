//! Values that change from request to request.

/// A value that is known only when a request is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The user's number, from 0.
    User,
    /// How many journeys this user has made before, from 0.
    Iteration,
    /// The request's number within the load; no two requests have the same.
    Sequence,
    /// A number that no other request of the trial has, in any load or batch; loss is reported by it.
    Id,
    /// A random UUID (version 4), different at each place.
    Uuid,
    /// The time since 1970, UTC.
    Now(Unit),
    /// A whole number from `low` to `high`, both included, different at each place.
    Random {
        /// Least.
        low: i64,
        /// Greatest; not below `low`.
        high: i64,
    },
    /// A cell of the user's row.
    Feed {
        /// Which of the load's feeds, index.
        feed: u16,
        /// Which of the feed's columns that are used, index.
        column: u16,
    },
    /// A captured value.
    Capture {
        /// Its slot: those of `setup` first, then the user's own.
        slot: u16,
        /// It is always a number if present.
        is_number: bool,
    },
}

impl Variable {
    /// Its value is a number, which JSON writes without quotes.
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
