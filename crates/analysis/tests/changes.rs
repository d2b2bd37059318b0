//! Change points of simulated histories.

use loadlab_analysis::comparison::changes::{MOST_RUNS, change_points};

use crate::chance::Chance;

const LEVEL: f64 = 0.05;

fn history(seed: u64, runs: usize, noise: f64, level: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut chance = Chance::new(seed);
    (0..runs).map(|run| level(run) + noise * chance.normal()).collect()
}

#[test]
fn a_change_is_found_where_it_was_made() {
    let (mut exact, mut near) = (0, 0);
    for seed in 0..100 {
        let values = history(seed, 30, 0.02, |run| if run < 18 { 0.0 } else { 0.08 });
        let found = change_points(&values, LEVEL, 1);
        let places: Vec<usize> = found.iter().map(|change| change.at).collect();
        exact += usize::from(places == [18]);
        near += usize::from(places.iter().any(|at| (17..=19).contains(at)));
        for change in &found {
            assert!(change.chance <= LEVEL && change.chance > 0.0, "{change:?}");
        }
    }
    assert!(exact >= 85 && near >= 98, "{exact} exact, {near} near, of 100");
}

#[test]
fn without_a_change_few_are_found() {
    let normal = |seed| history(seed, 20, 0.02, |_| 1.0);
    let skewed = |seed| {
        let mut chance = Chance::new(seed);
        (0..20).map(|_| chance.exponential(1.0)).collect::<Vec<f64>>()
    };
    for (name, of) in [("normal", &normal as &dyn Fn(u64) -> Vec<f64>), ("skewed", &skewed)] {
        let alarms = (0..400).filter(|seed| !change_points(&of(*seed), LEVEL, 1).is_empty()).count();
        // 5 % of 400 and 2.5 standard deviations
        assert!(alarms <= 31, "{name}: {alarms} of 400");
    }
}

#[test]
fn several_changes_are_distinguished() {
    let values = history(3, 45, 0.01, |run| match run {
        0..15 => 1.0,
        15..30 => 1.2,
        _ => 1.0,
    });
    let found = change_points(&values, LEVEL, 1);
    let places: Vec<usize> = found.iter().map(|change| change.at).collect();
    assert_eq!(places, [15, 30]);
    assert!((found[0].before - 1.0).abs() < 0.01 && (found[0].after - 1.2).abs() < 0.01, "{found:?}");
    assert!((found[1].before - 1.2).abs() < 0.01 && (found[1].after - 1.0).abs() < 0.01, "{found:?}");
}

#[test]
fn few_runs_and_outliers_prove_nothing() {
    for runs in 0..6 {
        let values: Vec<f64> = (0..runs).map(|run| if run < runs / 2 { 1.0 } else { 9.0 }).collect();
        assert!(change_points(&values, LEVEL, 1).is_empty(), "{runs}");
    }
    // Four on each side: one order in 35 divides them as clearly.
    assert_eq!(change_points(&[1.0, 1.01, 1.02, 1.0, 9.0, 9.01, 9.0, 9.02], LEVEL, 1).len(), 1);
    assert!(change_points(&[1.0; 30], LEVEL, 1).is_empty());
    let mut values = history(1, 30, 0.01, |_| 1.0);
    values[12] = 50.0;
    assert!(change_points(&values, LEVEL, 1).is_empty());
}

#[test]
fn of_a_long_history_the_latest_runs_are_looked_at() {
    let runs = MOST_RUNS + 40;
    let values = history(5, runs, 0.01, |run| if run < 20 || run >= runs - 30 { 2.0 } else { 1.0 });
    let places: Vec<usize> = change_points(&values, LEVEL, 1).iter().map(|change| change.at).collect();
    assert_eq!(places, [runs - 30]);
}
