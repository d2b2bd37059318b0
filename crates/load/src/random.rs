//! A load's random numbers: the same for the same seed on every machine.

use loadlab_record::random::{GAMMA, mixed};

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, good enough for gaps and choices.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The numbers of one user or arrival: the same whoever draws them, and however many others were drawn before.
    pub fn of(seed: u64, number: u64) -> Self {
        let seed = Random(seed).next_u64();
        Random(Random(seed ^ number).next_u64())
    }

    /// The same sequence without its first `count` numbers.
    pub fn skip(self, count: u64) -> Self {
        Random(self.0.wrapping_add(GAMMA.wrapping_mul(count)))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let number = mixed(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    /// Uniform in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}
