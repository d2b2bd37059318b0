//! Random numbers that follow from a seed, so that the same record always has the same findings.

/// What SplitMix64 (Steele, Lea and Flood 2014) adds for each number.
pub(crate) const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that follows a state of SplitMix64.
pub(crate) fn mixed(state: u64) -> u64 {
    let z = state.wrapping_add(GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
