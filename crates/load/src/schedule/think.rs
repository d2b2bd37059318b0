//! Pauses of users.

use crate::random::Random;

/// How long users wait between an answer and their next request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Think {
    /// Not at all.
    #[default]
    None,
    /// So long, nanoseconds.
    Constant(u64),
    /// Anything between these with equal chance.
    Uniform(u64, u64),
    /// With this mean, exponentially distributed.
    Exponential(u64),
}

impl Think {
    /// The next wait, nanoseconds.
    pub fn draw(self, random: &mut Random) -> u64 {
        match self {
            Think::None => 0,
            Think::Constant(ns) => ns,
            Think::Uniform(low, high) => low + ((high - low) as f64 * random.unit()) as u64,
            Think::Exponential(mean) => (mean as f64 * random.exponential()) as u64,
        }
    }

    /// Its mean, nanoseconds; `None` if there is none.
    pub fn mean_ns(self) -> Option<u64> {
        match self {
            Think::None => None,
            Think::Constant(ns) | Think::Exponential(ns) => Some(ns),
            Think::Uniform(low, high) => Some(low + (high - low) / 2),
        }
    }
}
