//! The law fitted to simulated trials: how often its intervals hold the truth, and when it is refused.

use loadlab_analysis::scaling::usl::{Fit, Knee, Point, Refused, fit, measured_knee};

use crate::chance::Chance;

const LEVELS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// Trials at each level, with this much noise.
fn trials(seed: u64, levels: &[f64], (alpha, beta): (f64, f64), noise: f64) -> Vec<Point> {
    let mut chance = Chance::new(seed);
    let mut points = Vec::new();
    for users in levels {
        for _ in 0..3 {
            let slow = 1.0 + alpha * (users - 1.0) + beta * users * (users - 1.0);
            let per_s = 1000.0 * users / slow * (noise * chance.normal()).exp();
            points.push(Point { users: *users, per_s });
        }
    }
    points
}

#[test]
fn planted_parameters_lie_in_their_intervals() {
    for (alpha, beta) in [(0.05, 0.0005), (0.02, 0.0001), (0.2, 0.001), (0.0, 0.0003), (0.3, 0.0)] {
        let mut hits = [0; 3];
        for seed in 0..200 {
            let found = fit(&trials(seed, &LEVELS, (alpha, beta), 0.02)).expect("good data");
            let within = |i: loadlab_analysis::scaling::usl::FittedValue, truth: f64| {
                i.low <= truth && truth <= i.high
            };
            hits[0] += usize::from(within(found.alpha, alpha));
            hits[1] += usize::from(within(found.beta, beta));
            hits[2] += usize::from(match found.peak {
                Ok(peak) => within(peak.users, ((1.0 - alpha) / beta).sqrt()),
                Err(_) => beta == 0.0 || ((1.0 - alpha) / beta).sqrt() > 128.0,
            });
        }
        assert!(hits.iter().all(|n| *n >= 180), "α {alpha} β {beta}: {hits:?} of 200");
    }
}

#[test]
fn without_noise_the_law_is_found_exactly() {
    let Fit { alpha, beta, peak, knee_users, lambda, .. } =
        fit(&trials(1, &LEVELS, (0.03, 0.0002), 0.0)).expect("exact data");
    assert!((alpha.value - 0.03).abs() < 1e-6 && (beta.value - 0.0002).abs() < 1e-8, "{alpha:?} {beta:?}");
    assert!((lambda.value - 1000.0).abs() < 1e-3, "{lambda:?}");
    let peak = peak.expect("it is at 70 users");
    assert!((peak.users.value - 69.64).abs() < 0.01, "{peak:?}");
    // one per cent more users bring half a per cent more there: X²/N is largest
    let knee = knee_users.expect("it is between the levels");
    let power = |n: f64| {
        let x = n / (1.0 + 0.03 * (n - 1.0) + 0.0002 * n * (n - 1.0));
        x * x / n
    };
    assert!(power(knee) > power(knee * 0.98) && power(knee) > power(knee * 1.02), "{knee}");
}

/// The curve's band contains the truth at each level as often as it claims, also between the levels, and also if a
/// parameter is zero, so that its estimate is often negative.
#[test]
fn the_band_of_the_curve_holds_the_truth() {
    for (alpha, beta) in [(0.05, 0.0005), (0.0, 0.0003), (0.2, 0.0)] {
        let truth = |n: f64| 1000.0 * n / (1.0 + alpha * (n - 1.0) + beta * n * (n - 1.0));
        let places = [1.0, 3.0, 12.0, 48.0, 128.0];
        let mut hits = [0; 5];
        for seed in 0..200 {
            let found = fit(&trials(seed, &LEVELS, (alpha, beta), 0.02)).expect("good data");
            for (hits, users) in hits.iter_mut().zip(places) {
                let band = found.per_s_within(users);
                assert!(
                    band.low <= band.value && band.value <= band.high && band.high < band.low * 1.2,
                    "{band:?}"
                );
                *hits += usize::from((band.low..=band.high).contains(&truth(users)));
            }
        }
        assert!(hits.iter().all(|n| (180..=199).contains(n)), "α {alpha} β {beta}: {hits:?} of 200");
    }
}

#[test]
fn what_data_cannot_carry_is_refused() {
    let refused = |levels: &[f64], truth| match fit(&trials(3, levels, truth, 0.02)) {
        Err(refused) => refused.to_string(),
        Ok(fit) => match fit.peak {
            Err(refused) => format!("peak: {refused}"),
            Ok(peak) => format!("{peak:?}"),
        },
    };
    assert_eq!(refused(&LEVELS[..5], (0.05, 0.001)), "5 levels of users were measured; the fit needs 6");
    let near = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
    assert_eq!(refused(&near, (0.05, 0.001)), "the levels span a factor of 1.5; the fit needs 4");
    let far = refused(&LEVELS[..6], (0.01, 0.00005));
    assert!(
        far.starts_with("peak: the peak would be at") || far.starts_with("peak: throughput still"),
        "{far}"
    );
    assert_eq!(
        refused(&LEVELS, (1.25, 0.0)),
        "peak: throughput falls from the first user on: there is no peak"
    );
    let mut dead = trials(3, &LEVELS, (0.05, 0.001), 0.02);
    dead[20].per_s = 0.0;
    assert_eq!(fit(&dead), Err(Refused::Nothing { users: 64.0 }));
    // a system that stops working at 32 users follows another law
    let mut broken = trials(3, &LEVELS, (0.0, 0.0), 0.02);
    broken.iter_mut().filter(|p| p.users > 16.0).for_each(|p| p.per_s = 500.0);
    assert!(matches!(fit(&broken), Err(Refused::Bad { .. })), "{:?}", fit(&broken));
}

#[test]
fn the_knee_that_was_measured_is_a_level_or_beyond_them() {
    let check = |per_s: &[f64], expect: Option<Knee>| {
        let points: Vec<Point> =
            LEVELS.iter().zip(per_s).map(|(users, per_s)| Point { users: *users, per_s: *per_s }).collect();
        assert_eq!(measured_knee(&points), expect, "{per_s:?}");
    };
    check(&[100.0, 200.0, 400.0, 700.0, 800.0, 820.0, 820.0, 800.0], Some(Knee::At(8.0)));
    // still growing in proportion
    check(&[100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0, 6400.0, 12800.0], Some(Knee::AtLeast(128.0)));
    // as much for one user as for all
    check(&[400.0, 410.0, 405.0, 400.0, 390.0, 395.0, 400.0, 380.0], Some(Knee::AtMost(1.0)));
    check(&[100.0, 100.0], None);
}
