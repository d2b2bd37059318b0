//! Capacity from all levels of a search: a response curve, fitted to which of them met the expectations.
//!
//! A level meets them with a probability that falls from almost one to almost zero around the capacity: a logistic
//! curve over the logarithm of the level, as psychophysics fits thresholds (Kontsevich and Tyler, "Bayesian adaptive
//! estimation of psychometric slope and threshold", Vision Research 39, 1999). Both its place and its width are
//! unknown; every pair of the two on a grid is weighed by how well it explains what was measured. A trial may also be
//! wrong whatever its level: one in fifty is taken to be a hiccup.
//!
//! The answer is the median of the place over all widths, and its central 95 %.

use loadlab_record::documents::search::Capacity;

use crate::scaling::search::{LevelOutcome, Outcome};

/// This share of trials comes out wrong whatever the level.
const LAPSES: f64 = 0.02;
/// The narrowest and the widest curve, on the logarithmic scale: at the first, levels 1 % apart differ for sure; at
/// the second, it takes levels 30 % apart.
const WIDTHS: (f64, f64) = (0.001, 0.05);
/// How many widths between them are weighed.
const WIDTH_STEPS: usize = 18;
/// How many places are weighed between two levels that were measured next to one another, and beyond the outermost.
const PLACES: usize = 160;
/// The capacity is looked for this far beyond the levels that were measured, on the logarithmic scale.
const BEYOND: f64 = 0.3;

/// The capacity by all levels that were measured; `None` if none met the expectations, or all that could be judged
/// did. Trials that could not be measured do not count.
pub fn capacity(path: &[LevelOutcome]) -> Option<Capacity> {
    let judged: Vec<(f64, bool)> = path
        .iter()
        .filter(|one| one.outcome != Outcome::Invalid)
        .map(|one| ((one.level.max(1) as f64).ln(), one.outcome == Outcome::Met))
        .collect();
    if !judged.iter().any(|(_, met)| *met) || judged.iter().all(|(_, met)| *met) {
        return None;
    }
    let places = places(&judged);
    let widths: Vec<f64> = (0..WIDTH_STEPS)
        .map(|step| WIDTHS.0 * (WIDTHS.1 / WIDTHS.0).powf(step as f64 / (WIDTH_STEPS - 1) as f64))
        .collect();
    let likelihood = |place: f64, width: f64| -> f64 {
        let of = |(level, met): &(f64, bool)| {
            let meets = LAPSES + (1.0 - 2.0 * LAPSES) / (1.0 + ((level - place) / width).exp());
            if *met { meets } else { 1.0 - meets }
        };
        judged.iter().map(of).product()
    };
    // Places are unevenly spaced, so each represents the stretch to the next.
    let weights: Vec<f64> = places
        .windows(2)
        .map(|ends| {
            let middle = f64::midpoint(ends[0], ends[1]);
            (ends[1] - ends[0]) * widths.iter().map(|width| likelihood(middle, *width)).sum::<f64>()
        })
        .collect();
    let all: f64 = weights.iter().sum();
    let at = |share: f64| -> f64 {
        let (mut below, wanted) = (0.0, share * all);
        for (ends, weight) in places.windows(2).zip(&weights) {
            if below + weight >= wanted && *weight > 0.0 {
                return (ends[0] + (ends[1] - ends[0]) * (wanted - below) / weight).exp();
            }
            below += weight;
        }
        places.last().map_or(f64::NAN, |last| last.exp())
    };
    Some(Capacity { value: at(0.5), low: at(0.025), high: at(0.975) })
}

/// Where the capacity may be, on the logarithmic scale: denser where levels were measured close to one another.
fn places(judged: &[(f64, bool)]) -> Vec<f64> {
    let mut levels: Vec<f64> = judged.iter().map(|(level, _)| *level).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let (first, last) = (levels[0], levels[levels.len() - 1]);
    levels.insert(0, first - BEYOND);
    levels.push(last + BEYOND);
    let between = levels.windows(2).flat_map(|ends| {
        let step = (ends[1] - ends[0]) / PLACES as f64;
        (0..PLACES).map(move |i| ends[0] + step * i as f64)
    });
    between.chain([last + BEYOND]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::search::{MAX_LEVELS, NextLevel, Search};
    use loadlab_record::random::{GAMMA, mixed};

    fn path(levels: &[(u64, bool)]) -> Vec<LevelOutcome> {
        let of = |(level, met): &(u64, bool)| LevelOutcome {
            level: *level,
            outcome: if *met { Outcome::Met } else { Outcome::Missed },
        };
        levels.iter().map(of).collect()
    }

    #[test]
    fn it_lies_between_the_levels_that_met_and_those_that_did_not() {
        let found = capacity(&path(&[
            (100, true),
            (1000, false),
            (300, true),
            (500, false),
            (400, true),
            (410, false),
            (410, false),
            (400, true),
        ]));
        let found = found.expect("both came out");
        assert!((400.0..410.0).contains(&found.value), "{found:?}");
        assert!((375.0..401.0).contains(&found.low), "{found:?}");
        assert!((409.0..437.0).contains(&found.high), "{found:?}");
    }

    #[test]
    fn one_side_alone_bounds_nothing() {
        assert_eq!(capacity(&[]), None);
        assert_eq!(capacity(&path(&[(100, true), (200, true)])), None);
        assert_eq!(capacity(&path(&[(100, false), (50, false)])), None);
        // A level that could not be measured says nothing of the system.
        let invalid = LevelOutcome { level: 300, outcome: Outcome::Invalid };
        assert_eq!(capacity(&[path(&[(100, true)]), vec![invalid]].concat()), None);
    }

    #[test]
    fn more_levels_near_it_make_it_narrower() {
        let few = capacity(&path(&[(100, true), (200, false)])).expect("both");
        let more = capacity(&path(&[(100, true), (200, false), (140, true), (150, false)])).expect("both");
        assert!(more.high - more.low < few.high - few.low, "{few:?} {more:?}");
        assert!(few.low < 100.5 && few.high > 199.0, "{few:?}");
    }

    /// Searches of servers that meet a level with a probability that falls around their capacity, and now and then
    /// stumble: how many answers are within 3 %, and how many intervals hold the truth.
    fn searched(width: f64, hiccups: f64, seeds: u64) -> (u32, u32, f64) {
        let (mut near, mut held, mut levels) = (0, 0, 0);
        for seed in 0..seeds {
            let mut state = mixed(seed);
            let mut unit = || {
                state = state.wrapping_add(GAMMA);
                (mixed(state) >> 11) as f64 / (1u64 << 53) as f64
            };
            let truth = 50.0 * 40f64.powf(unit());
            let mut search = Search::new(10, 10_000, MAX_LEVELS).dithered(seed);
            while let NextLevel::Measure { level, .. } = search.next() {
                let meets = 1.0 / (1.0 + (((level as f64).ln() - truth.ln()) / width).exp());
                let met = unit() < meets && unit() >= hiccups;
                search.add(level, if met { Outcome::Met } else { Outcome::Missed });
            }
            levels += search.path().len();
            let Some(found) = capacity(search.path()) else { continue };
            near += u32::from((found.value / truth - 1.0).abs() < 0.03);
            held += u32::from(found.low <= truth && truth <= found.high);
        }
        (near, held, levels as f64 / seeds as f64)
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        for (width, hiccups, nearest) in [(0.002, 0.0, 400), (0.01, 0.0, 380), (0.005, 0.02, 370)] {
            let (near, held, levels) = searched(width, hiccups, 400);
            assert!(near >= nearest, "{width}, {hiccups}: {near} of 400 within 3 %, {levels} levels");
            assert!(held >= 376, "{width}, {hiccups}: {held} of 400 intervals hold the truth");
            assert!(levels < 13.5, "{width}, {hiccups}: {levels} levels on average");
        }
    }

    #[test]
    fn a_search_that_knows_where_to_begin_takes_fewer_levels() {
        for truth in [37u64, 400, 5_000] {
            for off in [0.97, 1.0, 1.04] {
                let start = (truth as f64 * off) as u64;
                let mut search = Search::new(10, 10_000, MAX_LEVELS).starting_at(start);
                while let NextLevel::Measure { level, .. } = search.next() {
                    search.add(level, if level <= truth { Outcome::Met } else { Outcome::Missed });
                }
                let found = capacity(search.path()).expect("both sides");
                assert!((found.value / truth as f64 - 1.0).abs() < 0.03, "{truth} from {start}: {found:?}");
                assert!(search.path().len() <= 9, "{truth} from {start}: {:?}", search.path());
            }
        }
        // A search recovers from a start that is far off.
        let mut search = Search::new(10, 10_000, MAX_LEVELS).starting_at(4_000);
        while let NextLevel::Measure { level, .. } = search.next() {
            search.add(level, if level <= 50 { Outcome::Met } else { Outcome::Missed });
        }
        let found = capacity(search.path()).expect("both sides");
        assert!((found.value / 50.0 - 1.0).abs() < 0.04, "{found:?} by {:?}", search.path());
    }
}
