//! What decides when the requests of a load fall due, and when the load ends: as written in a plan and used by the
//! engine. The engine computes the due times themselves.

/// How arrivals of a rate are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Constant,
    /// Independently (exponential gaps), from the load's seed.
    Poisson,
}

/// What happens to a request that falls due while no slot, or its user, is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBehind {
    /// It waits; its response time includes the wait.
    #[default]
    Queue,
    /// It is dropped, and counted as such.
    Drop,
}

/// A stage of a load: a straight line from one level to another. Levels are users, or requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// The level it starts at.
    pub from: f64,
    /// The level it ends at.
    pub to: f64,
    /// Duration, nanoseconds; 0 is a jump.
    pub over_ns: u64,
}

/// How long a user waits between an answer and its next request. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Think {
    /// Not at all.
    #[default]
    None,
    /// Always this long.
    Constant(u64),
    /// Uniformly distributed from the first to the second.
    Uniform(u64, u64),
    /// With this mean, exponentially distributed.
    Exponential(u64),
}

impl Think {
    /// Mean think time, nanoseconds; `None` if there is none.
    pub fn mean_ns(self) -> Option<u64> {
        match self {
            Think::None => None,
            Think::Constant(ns) | Think::Exponential(ns) => Some(ns),
            Think::Uniform(low, high) => Some(low + (high - low) / 2),
        }
    }
}

/// When no further requests fall due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this many nanoseconds.
    Elapsed(u64),
    /// After this many requests, over all users.
    Requests(u64),
    /// After each user has gone through all requests this many times (closed model only).
    Repeats(u64),
}
