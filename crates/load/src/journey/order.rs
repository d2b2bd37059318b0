//! A user's path through a load's requests: the steps before once, then rounds, then the steps after once.
//!
//! Pure: where a user is and what comes next. It does not know when the next request falls due, or what a request is.

use loadlab_record::random::GAMMA;

use crate::random::Random;

/// How the requests of a load are traversed. They are stored in this order: before, round, after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepOrder {
    /// Number of requests made once, before a user's first round.
    pub before: u32,
    /// Number of requests in a round.
    pub round: u32,
    /// Number of requests made once, when a user leaves.
    pub after: u32,
    /// Cumulative weights of the round's requests: each round is one of them, drawn at random. Empty: all of them in
    /// order.
    pub weights: Vec<u64>,
    /// Rounds of each user; `u64::MAX` if unlimited.
    pub rounds: u64,
}

/// How the end of a request moves its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Continue with the next request.
    On,
    /// End the round (or the part before the first) and begin the next one.
    EndRound,
    /// Begin no further round.
    Leave,
    /// Skip ahead this many requests, to one that belongs to the same step of the journey.
    Ahead(u32),
    /// Skip this many requests of the same step; continue after them.
    Past(u32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum JourneyPhase {
    #[default]
    Outside,
    Before,
    Round,
    After,
    Gone,
}

/// A user's position.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    stage: JourneyPhase,
    /// The request that the user makes now or next.
    pub request: u32,
    /// Rounds completed.
    pub rounds: u64,
}

impl StepOrder {
    /// The request of a round of which only the number is known; for single requests without a user.
    pub fn of_number(&self, number: u64, seed: u64) -> u32 {
        match self.weights.last() {
            None => self.before + (number % u64::from(self.round.max(1))) as u32,
            Some(_) => self.before + self.draw(&mut Random::new(seed ^ number.wrapping_mul(GAMMA))),
        }
    }

    /// The first request of a user of whom only the number is known.
    pub fn first_of(&self, number: u64, seed: u64) -> u32 {
        match (self.before, self.weights.is_empty()) {
            (0, true) => 0,
            (0, false) => self.of_number(number, seed),
            _ => 0,
        }
    }

    fn draw(&self, random: &mut Random) -> u32 {
        let Some(all) = self.weights.last() else { return 0 };
        // 64 random bits scaled to the sum: uniform to one part in 2^64 / sum.
        let at = ((u128::from(random.next_u64()) * u128::from(*all)) >> 64) as u64;
        self.weights.partition_point(|w| *w <= at) as u32
    }
}

impl Progress {
    /// Whether the user has left, or never had anything to do.
    pub fn is_gone(&self) -> bool {
        self.stage == JourneyPhase::Gone
    }

    /// Whether the user has not begun yet.
    pub fn is_outside(&self) -> bool {
        self.stage == JourneyPhase::Outside
    }

    /// Whether the user is at the requests after its rounds.
    pub fn is_leaving(&self) -> bool {
        self.stage == JourneyPhase::After
    }

    /// Whether the next request begins a round: time to take new rows of the feeds.
    pub fn begins_round(&self, step_order: &StepOrder) -> bool {
        match self.stage {
            JourneyPhase::Round => self.request == step_order.before || !step_order.weights.is_empty(),
            _ => false,
        }
    }

    /// Most requests that the user may still make, including the current one, if none of them fails.
    pub fn most_left(&self, step_order: &StepOrder) -> u64 {
        let [before, round, after] = [step_order.before, step_order.round, step_order.after].map(u64::from);
        if !step_order.weights.is_empty() {
            return u64::MAX;
        }
        let rounds = |left: u64| left.saturating_mul(round).saturating_add(after);
        let (at, left) = (u64::from(self.request), step_order.rounds.saturating_sub(self.rounds));
        match self.stage {
            JourneyPhase::Outside => before.saturating_add(rounds(left)),
            JourneyPhase::Before => (before - at).saturating_add(rounds(left)),
            JourneyPhase::Round => (before + round - at).saturating_add(rounds(left.saturating_sub(1))),
            JourneyPhase::After => before + round + after - at,
            JourneyPhase::Gone => 0,
        }
    }

    /// Begins with a request from [`StepOrder::first_of`].
    pub fn begin_with(&mut self, step_order: &StepOrder, request: u32) {
        let stage = if step_order.before > 0 { JourneyPhase::Before } else { JourneyPhase::Round };
        *self = Progress { stage, request, rounds: 0 };
    }

    /// Goes to the next request; returns false if there is none.
    pub fn step(&mut self, step_order: &StepOrder, random: &mut Random, step: Advance) -> bool {
        let in_round = step_order.before + step_order.round;
        match (self.stage, step) {
            (_, Advance::Past(requests)) => {
                self.request += requests;
                return self.step(step_order, random, Advance::On);
            }
            (JourneyPhase::Before | JourneyPhase::Round | JourneyPhase::After, Advance::Ahead(requests)) => {
                self.request += requests
            }
            (JourneyPhase::Outside, Advance::Leave)
            | (JourneyPhase::After, Advance::EndRound | Advance::Leave) => self.stage = JourneyPhase::Gone,
            (JourneyPhase::Gone, _) => {}
            (JourneyPhase::Before | JourneyPhase::Round, Advance::Leave) => self.leave(step_order),
            (JourneyPhase::Outside, _) => self.begin(step_order, random),
            (JourneyPhase::Before, Advance::On) if self.request + 1 < step_order.before => self.request += 1,
            (JourneyPhase::Before, Advance::On) => self.begin_round(step_order, random),
            // A user that could not log in tries again; each try counts as a round, or this would never end.
            (JourneyPhase::Before, Advance::EndRound) => {
                self.rounds += 1;
                self.begin(step_order, random);
            }
            (JourneyPhase::Round, Advance::On)
                if step_order.weights.is_empty() && self.request + 1 < in_round =>
            {
                self.request += 1
            }
            (JourneyPhase::Round, _) => {
                self.rounds += 1;
                self.begin_round(step_order, random);
            }
            (JourneyPhase::After, Advance::On) if self.request + 1 < in_round + step_order.after => {
                self.request += 1
            }
            (JourneyPhase::After, Advance::On) => self.stage = JourneyPhase::Gone,
        }
        self.stage != JourneyPhase::Gone
    }

    fn begin(&mut self, step_order: &StepOrder, random: &mut Random) {
        if step_order.before == 0 || self.rounds >= step_order.rounds {
            return self.begin_round(step_order, random);
        }
        (self.stage, self.request) = (JourneyPhase::Before, 0);
    }

    fn begin_round(&mut self, step_order: &StepOrder, random: &mut Random) {
        if self.rounds >= step_order.rounds || step_order.round == 0 {
            return self.leave(step_order);
        }
        (self.stage, self.request) = (JourneyPhase::Round, step_order.before + step_order.draw(random));
    }

    fn leave(&mut self, step_order: &StepOrder) {
        let first = step_order.before + step_order.round;
        (self.stage, self.request) =
            (if step_order.after > 0 { JourneyPhase::After } else { JourneyPhase::Gone }, first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user's requests, given the step that follows each.
    fn way(step_order: &StepOrder, steps: &[Advance]) -> Vec<u32> {
        let (mut progress, mut random) = (Progress::default(), Random::new(1));
        let mut way = Vec::new();
        let mut steps = steps.iter();
        let mut more = progress.step(step_order, &mut random, Advance::On);
        while more {
            way.push(progress.request);
            more = progress.step(step_order, &mut random, *steps.next().unwrap_or(&Advance::On));
            assert!(way.len() < 100, "no end: {way:?}");
        }
        way
    }

    fn step_order(before: u32, round: u32, after: u32, rounds: u64) -> StepOrder {
        StepOrder { before, round, after, weights: Vec::new(), rounds }
    }

    #[test]
    fn before_once_then_rounds_then_after_once() {
        assert_eq!(way(&step_order(0, 2, 0, 3), &[]), [0, 1, 0, 1, 0, 1]);
        assert_eq!(way(&step_order(1, 2, 1, 2), &[]), [0, 1, 2, 1, 2, 3]);
        assert_eq!(way(&step_order(2, 1, 2, 1), &[]), [0, 1, 2, 3, 4]);
        assert_eq!(way(&step_order(1, 1, 1, 0), &[]), [2], "no round: it only leaves");
    }

    #[test]
    fn a_failure_ends_a_round_or_a_login_and_each_counts() {
        use Advance::{EndRound, Leave, On};
        assert_eq!(way(&step_order(0, 3, 0, 2), &[On, EndRound]), [0, 1, 0, 1, 2]);
        assert_eq!(way(&step_order(1, 2, 1, 2), &[EndRound, On, On, On]), [0, 0, 1, 2, 3]);
        assert_eq!(way(&step_order(1, 2, 1, 2), &[EndRound, EndRound]), [0, 0, 3], "as many tries as rounds");
        assert_eq!(way(&step_order(1, 2, 2, 9), &[On, Leave, EndRound]), [0, 1, 3]);
        assert_eq!(way(&step_order(0, 2, 0, u64::MAX), &[On, On, Leave]), [0, 1, 0]);
    }

    #[test]
    fn how_much_is_left_is_known() {
        let step_order = step_order(2, 3, 1, 2);
        let (mut progress, mut random, mut left) = (Progress::default(), Random::new(1), vec![]);
        while progress.step(&step_order, &mut random, Advance::On) {
            left.push(progress.most_left(&step_order));
        }
        assert_eq!(left, [9, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!((Progress::default().most_left(&step_order), progress.most_left(&step_order)), (9, 0));
        let endless = StepOrder { rounds: u64::MAX, ..step_order };
        assert_eq!(Progress::default().most_left(&endless), u64::MAX);
    }

    #[test]
    fn requests_of_one_step_follow_each_other_whatever_the_mix() {
        use Advance::{Ahead, On, Past};
        // Requests 0, 1 and 2 are one step.
        assert_eq!(
            way(&step_order(0, 4, 0, 2), &[Ahead(1), Ahead(1), On, On, Past(2), On]),
            [0, 1, 2, 3, 0, 3]
        );
        assert_eq!(way(&step_order(0, 4, 0, 1), &[Ahead(2), On]), [0, 2, 3]);
        let mix = StepOrder { weights: vec![1, 1, 1], ..step_order(0, 3, 0, 2) };
        assert_eq!(way(&mix, &[Ahead(1), Ahead(1), On, Past(2)]), [0, 1, 2, 0]);
    }

    #[test]
    fn a_mix_draws_by_weight() {
        let step_order = StepOrder { before: 1, round: 3, after: 0, weights: vec![7, 7, 10], rounds: 30_000 };
        let (mut progress, mut random) = (Progress::default(), Random::new(7));
        let mut counts = [0u32; 4];
        while progress.step(&step_order, &mut random, Advance::On) {
            counts[progress.request as usize] += 1;
        }
        assert_eq!((counts[0], counts[2]), (1, 0), "a weight of nothing is never drawn");
        // ±4 standard deviations of a binomial with p = 0.7
        assert!((20_682..=21_318).contains(&counts[1]), "{counts:?}");
        assert_eq!(counts[1] + counts[3], 30_000);
        let mut by_number = [0u32; 4];
        (0..30_000).for_each(|n| by_number[step_order.of_number(n, 3) as usize] += 1);
        assert_eq!((by_number[0], by_number[2]), (0, 0));
        assert!((20_682..=21_318).contains(&by_number[1]), "{by_number:?}");
    }
}
