//! Think times of users.

use loadlab_record::spec::schedule::Think;

use crate::random::Random;

/// Draws the next think time, nanoseconds.
pub fn draw(think: Think, random: &mut Random) -> u64 {
    match think {
        Think::None => 0,
        Think::Constant(ns) => ns,
        Think::Uniform(low, high) => low + ((high - low) as f64 * random.unit()) as u64,
        Think::Exponential(mean) => (mean as f64 * random.exponential()) as u64,
    }
}
