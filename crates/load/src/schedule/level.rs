//! A level that changes piecewise linearly over time: a rate, or a number of users.
//!
//! Both models query it. The open model asks when it has called for `k` requests: the inverse of its integral,
//! piecewise a square root. The closed model asks when user `k` is active: while the level is above `k`. Levels are
//! rounded to a millionth and times to a nanosecond; from there on everything is integer arithmetic, so nothing drifts
//! and the shares of several threads add up.

use loadlab_record::spec::schedule::Stage;

/// Grains per request: levels are in millionths, times in nanoseconds, and areas under a slope in halves.
const GRAINS: u128 = 2 * 1_000_000 * 1_000_000_000;

/// A level over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    pieces: Vec<LevelPiece>,
    /// Where the last piece ends; the level is constant from there on.
    end_ns: u64,
    /// Area up to `end_ns`.
    total: u128,
    /// The level from `end_ns` on, millionths.
    last: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LevelPiece {
    start_ns: u64,
    length_ns: u64,
    /// Levels at both ends, millionths.
    from: u64,
    to: u64,
    /// Area before this piece.
    before: u128,
    /// Whether twice the square of its length times its level fits 128 bits, which makes its inverse exact. Otherwise
    /// (beyond a slope of three days at 1,000 a second, or of two hours at a million) the inverse is accurate to some
    /// nanoseconds.
    fits: bool,
}

impl Level {
    /// Stages, one after the other; after the last one the level stays constant.
    pub fn of(stages: &[Stage]) -> Level {
        let mut level = Level { pieces: Vec::new(), end_ns: 0, total: 0, last: 0 };
        for stage in stages {
            level.last = micro(stage.to);
            if stage.over_ns == 0 {
                continue;
            }
            let piece =
                LevelPiece::new(micro(stage.from), level.last, level.end_ns, stage.over_ns, level.total);
            level.end_ns = level.end_ns.saturating_add(stage.over_ns);
            level.total += piece.area();
            level.pieces.push(piece);
        }
        level
    }

    /// A level that rises from zero over a time and then stays constant.
    pub fn ramp(to: f64, over_ns: u64) -> Level {
        Level::of(&[Stage { from: 0.0, to, over_ns }])
    }

    /// When request `k` (from 0) falls due if the level is a rate, nanoseconds from the start; `None` if it never does.
    /// `piece` is where to start looking: 0 at first, then as the previous call left it.
    ///
    /// This is the latest time by which no more than `k` requests have been called for, in whole nanoseconds. If the
    /// rate is zero at a request's turn, the request waits until the rate is positive.
    pub fn due_ns(&self, k: u64, piece: &mut usize) -> Option<u64> {
        self.due_at(u128::from(k) * GRAINS, piece)
    }

    /// As `due_ns`, for a fractional position in the sequence, as Poisson arrivals need it.
    pub fn due_ns_at(&self, place: f64, piece: &mut usize) -> Option<u64> {
        self.due_at((place * GRAINS as f64) as u128, piece)
    }

    fn due_at(&self, area: u128, at: &mut usize) -> Option<u64> {
        while let Some(piece) = self.pieces.get(*at) {
            let inside = area.saturating_sub(piece.before);
            if inside < piece.area() {
                return Some(piece.start_ns + piece.reaches(inside));
            }
            *at += 1;
        }
        let beyond = area.saturating_sub(self.total).checked_div(2 * u128::from(self.last))?;
        Some(self.end_ns.saturating_add(u64::try_from(beyond).unwrap_or(u64::MAX)))
    }

    /// The first time from `from_ns` on at which user `k` (from 0) is active, if the level is a number of users; `None`
    /// if the user is never active again. A user is active while the level is above its number.
    pub fn active_from(&self, k: u64, from_ns: u64) -> Option<u64> {
        let number = u128::from(k) * 1_000_000;
        let first = self.pieces.partition_point(|p| p.start_ns + p.length_ns <= from_ns);
        for piece in &self.pieces[first..] {
            let at = from_ns.saturating_sub(piece.start_ns);
            if let Some(at) = piece.active_from(number, at) {
                return Some(piece.start_ns + at);
            }
        }
        (u128::from(self.last) > number).then_some(from_ns.max(self.end_ns))
    }
}

/// Rounds a level to millionths.
fn micro(level: f64) -> u64 {
    (level.max(0.0) * 1e6).round() as u64
}

impl LevelPiece {
    fn new(from: u64, to: u64, start_ns: u64, length_ns: u64, before: u128) -> LevelPiece {
        let length = u128::from(length_ns);
        let fits = [length, length, 2]
            .iter()
            .try_fold(u128::from(from.max(to)), |product, factor| product.checked_mul(*factor))
            .is_some();
        LevelPiece { start_ns, length_ns, from, to, before, fits }
    }

    /// Area under the piece, in grains: the mean level times its length, times two.
    fn area(&self) -> u128 {
        (u128::from(self.from) + u128::from(self.to)) * u128::from(self.length_ns)
    }

    /// The latest time by which no more than `area` has accumulated, nanoseconds from the piece's start.
    fn reaches(&self, area: u128) -> u64 {
        if self.from == self.to {
            return (area / (2 * u128::from(self.from))) as u64;
        }
        if self.from < self.to {
            return self.slope(self.from, area).0;
        }
        // Falling: read backwards from the end it rises, and small differences are not lost. The latest time by which
        // no more than `area` has accumulated is the one closest to the end that still leaves the rest ahead.
        let (below, exactly) = self.slope(self.to, self.area() - area);
        self.length_ns - (below + u64::from(!exactly)).min(self.length_ns)
    }

    /// Along a slope that begins at `low`: the latest time by which no more than `area` has accumulated, and whether it
    /// is exactly `area`.
    ///
    /// With T the length and d the rise, x solves 2·low·x + d·x²/T = area: x = area / (low + √(low² + d·area/T)), a
    /// form without cancellation. Integers correct the floating-point error.
    fn slope(&self, low: u64, area: u128) -> (u64, bool) {
        let rise = self.from.abs_diff(self.to);
        let (a, p, d, t) = (low as f64, area as f64, rise as f64, self.length_ns as f64);
        let guess = (p / (a + (a * a + d * p / t).sqrt())) as u64;
        let mut x = guess.min(self.length_ns);
        if !self.fits {
            return (x, false);
        }
        let length = u128::from(self.length_ns);
        let behind = |x: u64| {
            let x = u128::from(x);
            2 * u128::from(low) * length * x + u128::from(rise) * x * x
        };
        let wanted = area * length;
        while behind(x) > wanted {
            x -= 1;
        }
        while x < self.length_ns && behind(x + 1) <= wanted {
            x += 1;
        }
        (x, behind(x) == wanted)
    }

    /// The first time from `at` on at which the level is above a user's number (millionths), nanoseconds from the
    /// piece's start. While the level rises, a user begins when it reaches the user's number; while it falls, the user
    /// rests from then on.
    fn active_from(&self, number: u128, at: u64) -> Option<u64> {
        let (from, to) = (u128::from(self.from), u128::from(self.to));
        let length = u128::from(self.length_ns);
        if from < to {
            if number >= to {
                return None;
            }
            let reached = number.saturating_sub(from) * length / (to - from);
            return Some((reached as u64).max(at));
        }
        let left = (from - to) * u128::from(at);
        (from * length > number * length + left).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn stage(from: f64, to: f64, over_ns: u64) -> Stage {
        Stage { from, to, over_ns }
    }

    #[test]
    fn users_begin_and_rest_as_the_level_passes_their_number() {
        let up_and_down = Level::of(&[
            stage(0.0, 100.0, 10 * S),
            stage(100.0, 100.0, 30 * S),
            stage(100.0, 0.0, 5 * S),
            stage(0.0, 0.0, 5 * S),
            stage(20.0, 20.0, 5 * S),
            stage(20.0, 0.0, 0),
        ]);
        let from = |k, at| up_and_down.active_from(k, at);
        for (k, at, expect) in [
            (0, 0, Some(0)),
            (1, 0, Some(S / 10)),
            (99, 0, Some(9_900_000_000)),
            (99, 20 * S, Some(20 * S)),
            (100, 0, None),
            // user 99 rests as soon as fewer than 100 are wanted, user 50 halfway down
            (99, 40 * S, Some(40 * S)),
            (99, 40 * S + S / 20, None),
            (50, 42 * S + S / 2, None),
            (50, 42 * S + S / 2 - 1, Some(42 * S + S / 2 - 1)),
            // a jump wakes the first twenty again
            (19, 44 * S + S / 20, Some(50 * S)),
            (19, 44 * S + S / 20 - 1, Some(44 * S + S / 20 - 1)),
            (20, 45 * S, None),
            // and the last jump ends it
            (0, 55 * S, None),
        ] {
            assert_eq!(from(k, at), expect, "user {k} from {at}");
        }
        let ramp = Level::ramp(10.0, S);
        assert_eq!((ramp.active_from(3, 0), ramp.active_from(3, 9 * S)), (Some(3 * S / 10), Some(9 * S)));
        assert_eq!(Level::ramp(10.0, 0).active_from(9, 7), Some(7));
    }

    proptest! {
        #[test]
        fn as_many_users_are_active_as_the_level_says(
            list in prop::collection::vec((0u64..50, 0u64..50, 0u64..3 * S), 1..6), at in 0u64..10 * S
        ) {
            let stages: Vec<Stage> = list.iter().map(|(a, b, ns)| stage(*a as f64, *b as f64, *ns)).collect();
            let level = Level::of(&stages);
            let mut at_level = level.last as f64 / 1e6;
            let mut from_ns = 0;
            for s in &stages {
                if (from_ns..from_ns + s.over_ns).contains(&at) {
                    at_level = s.from + (s.to - s.from) * (at - from_ns) as f64 / s.over_ns as f64;
                    break;
                }
                from_ns += s.over_ns;
            }
            let active = (0..60).filter(|k| level.active_from(*k, at) == Some(at)).count() as f64;
            // On a slope a user begins within the nanosecond in which the level reaches its number.
            prop_assert!((active - at_level.ceil()).abs() <= if at_level.fract() < 1e-6 { 1.0 } else { 0.0 }, "{active} for {at_level}");
            // A resting user is woken at its time and not before.
            for k in 0..60 {
                if let Some(wakes) = level.active_from(k, at) {
                    prop_assert!(wakes >= at);
                    prop_assert_eq!(level.active_from(k, wakes), Some(wakes));
                }
            }
        }

        #[test]
        fn a_slope_is_inverted_exactly(
            from in 0u64..1_000_000_000_000, to in 0u64..1_000_000_000_000, length in 1u64..100 * S, share in 0.0f64..1.0
        ) {
            prop_assume!(from != to);
            let piece = LevelPiece::new(from, to, 0, length, 0);
            prop_assert!(piece.fits);
            let area = ((piece.area() - 1) as f64 * share) as u128;
            let x = piece.reaches(area);
            // 2·from·x + (to − from)·x²/T, times T, in signed integers
            let behind = |x: u64| {
                let (x, t) = (i128::from(x), i128::from(length));
                2 * i128::from(from) * t * x + (i128::from(to) - i128::from(from)) * x * x
            };
            let wanted = (area * u128::from(length)) as i128;
            prop_assert!(behind(x) <= wanted && (x == length || behind(x + 1) > wanted), "{x}");
        }
    }
}
