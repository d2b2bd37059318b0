//! Random numbers that follow from a seed: the same load, and the same findings, for the same seed on every machine.

/// What SplitMix64 (Steele, Lea, Flood 2014) adds to its state for each number.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that follows a state of SplitMix64. The next state is the sum of this one and [`GAMMA`], wrapping.
///
/// Every bit of the state changes about half of the bits of the number, so that it also serves as a hash.
// Load threads draw numbers per request.
#[inline]
pub fn mixed(state: u64) -> u64 {
    let z = state.wrapping_add(GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // The first three of the reference implementation (S. Vigna, `splitmix64.c`) for the seed 0.
        let expect = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!([0, 1, 2].map(|n: u64| mixed(GAMMA.wrapping_mul(n))), expect);
    }
}
