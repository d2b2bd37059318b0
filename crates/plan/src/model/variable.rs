//! Values that change from request to request, and how the place they stand in needs them written.

use crate::text::encode::{escaped, form_encoded, percent};

/// A piece of a text that is written anew for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A text, to be escaped once.
    Text {
        /// It.
        text: String,
        /// How.
        escape: Escape,
    },
    /// A value that changes.
    Variable {
        /// Which.
        variable: Variable,
        /// What its place needs.
        escape: Escape,
    },
}

/// A value that changes from request to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The user's number, from 0.
    User,
    /// How many journeys this user has made before.
    Iteration,
    /// The request's number within the load.
    Sequence,
    /// A number that no other request of the trial has, in any load or batch; loss is told by it.
    Id,
    /// A random UUID, another at each place.
    Uuid,
    /// The time since 1970.
    Now(Unit),
    /// A whole number between these, both included.
    Random {
        /// Least.
        low: i64,
        /// Greatest; at least `low`.
        high: i64,
    },
    /// A cell of the user's row.
    Feed {
        /// Place in [`Script::feeds`](crate::Script::feeds).
        feed: u16,
        /// Place in [`FeedSpec::columns`](crate::FeedSpec::columns).
        column: u16,
    },
    /// A captured value: slots of [`Setup::captures`](crate::Setup::captures) first, those of [`Script::captures`](crate::Script::captures) behind them.
    Capture {
        /// The slot.
        slot: u16,
        /// It is a number whenever it is there.
        is_number: bool,
    },
}

impl Variable {
    /// Its value is a number, which JSON has without quotes.
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
    /// `2026-11-20T09:30:00.000Z`.
    Rfc3339,
}

/// What a place does to values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Escape {
    /// Nothing.
    #[default]
    Raw,
    /// A part of a path or query: percent-encoded.
    Url,
    /// A path or query as it is; blanks, controls and `#` encoded.
    UrlRaw,
    /// The same right behind the host: of a whole URL only path and query, and a `/` in front.
    UrlTarget,
    /// Within the quotes of a JSON text.
    Json,
    /// A form's value.
    Form,
    /// A header field's value: no control characters.
    Header,
}

impl Escape {
    /// The same place for a value that is put in as it is.
    pub(crate) fn raw(self) -> Escape {
        match self {
            Escape::Url => Escape::UrlRaw,
            Escape::Json | Escape::Form => Escape::Raw,
            other => other,
        }
    }

    /// A value as its place wants it.
    pub(crate) fn written(self, value: &str) -> String {
        let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        match self {
            Escape::Raw | Escape::Header => value.to_owned(),
            Escape::Url => percent(value, unreserved),
            Escape::UrlRaw | Escape::UrlTarget => percent(value, |b| b > b' ' && b < 0x7f && b != b'#'),
            Escape::Json => escaped(value),
            Escape::Form => form_encoded(value),
        }
    }
}
