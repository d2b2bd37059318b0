//! The ids that requests carry, so that what was stored can be compared with what was accepted.

use loadlab_plan as plan;

/// Assigns the ids of a run: each batch of each load in each trial gets a block of ids, one after the other. All ids
/// fit into the 53 bits of a JSON number that most languages can represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Blocks per trial.
    parts: u64,
    /// Bits for a request's index within its block.
    request_bits: u32,
}

impl Ids {
    /// For this many trials of these cases. If ids are used, a plan that does not fit has been rejected already.
    pub fn of(cases: &[plan::Case], trials: usize) -> Ids {
        Ids::for_blocks(trials as u64, cases.iter().map(plan::ids::parts).max().unwrap_or(1))
    }

    /// For `trials` trials of `parts` parts each.
    pub fn for_blocks(trials: u64, parts: u64) -> Ids {
        let parts = parts.max(1);
        Ids { parts, request_bits: plan::ids::request_bits(trials.saturating_mul(parts)) }
    }

    /// Whether this many requests of a trial have unique ids, however they are distributed over its parts.
    ///
    /// # Errors
    /// They do not; in words.
    pub fn check_room(self, requests: u64) -> Result<(), String> {
        let room = 1u64 << self.request_bits;
        if requests <= room {
            return Ok(());
        }
        Err(format!(
            "{requests} requests were made, but ids can distinguish only {room} of a trial\nhint: use a shorter \
             load, or count with `probe`"
        ))
    }

    /// The first id of a load's batch, given the trial's index in the run and the batch's index in the trial.
    pub fn first(self, trial: usize, part: u64) -> u64 {
        let block = (trial as u64).wrapping_mul(self.parts).wrapping_add(part);
        (block % plan::ids::MOST_BLOCKS) << self.request_bits
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_of_trials_and_batches_do_not_meet() {
        // The maximum number of trials of a plan, and of blocks.
        for (trials, parts) in [(1, 1), (3, 4), (8_193, 1), (10_000, 2), (10_000, 209), (1 << 13, 1 << 8)] {
            let ids = Ids::for_blocks(trials, parts);
            let block = |trial: u64, part: u64| ids.first(trial as usize, part);
            let room = 1 << ids.request_bits;
            assert!(room > u64::from(u32::MAX), "{trials} x {parts}");
            let some = |of: [u64; 5], most: u64| BTreeSet::from(of.map(|n| n.min(most - 1)));
            let mut firsts = Vec::new();
            for trial in some([0, 1, 8_191, 8_192, u64::MAX], trials) {
                firsts.extend(some([0, 1, 2, 3, u64::MAX], parts).into_iter().map(|part| block(trial, part)));
            }
            assert!(firsts.windows(2).all(|w| w[1] >= w[0] + room), "{trials} x {parts}: {firsts:?}");
            assert!(block(trials - 1, parts - 1) + room <= 1 << plan::ids::ID_BITS, "{trials} x {parts}");
        }
        // All ids of a trial can be used, and no more.
        for (trials, parts, room) in [(1, 1, 1 << 40), (10_000, 209, 1 << 32)] {
            let ids = Ids::for_blocks(trials, parts);
            assert_eq!(ids.check_room(room), Ok(()), "{trials} x {parts}");
            let why = ids.check_room(room + 1).unwrap_err();
            assert!(why.contains("hint: ") && why.contains(&(room + 1).to_string()), "{why}");
        }
        // In a plan of typical size, a trial's ids start with its index.
        assert_eq!(
            (0..3).map(|t| Ids::for_blocks(3, 1).first(t, 0)).collect::<Vec<_>>(),
            [0, 1 << 40, 2 << 40]
        );
    }
}
