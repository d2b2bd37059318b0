//! Whether a series rises or falls beyond noise: the Mann-Kendall test, and the Theil-Sen slope.
//!
//! Both look only at the order of pairs, so that one wild second neither makes a trend nor hides one (Mann 1945,
//! Kendall 1955; Theil 1950, Sen 1968). Consecutive seconds of a load are dependent – a queue that is long now is
//! long in a second – and the test assumes independence; so means of sections are tested, not the seconds.

/// A monotone trend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Change per unit of x: the median of all pairs' slopes.
    pub slope: f64,
    /// Kendall's tau, -1 to 1: how consistently values rise (or fall) from one to a later one.
    pub tau: f64,
    /// The Mann-Kendall statistic in standard deviations: beyond ± 2.58 one series in a hundred without a trend.
    pub z: f64,
}

/// The trend of points (x, value), in order of x; `None` with fewer than four.
pub fn trend(points: &[(f64, f64)]) -> Option<Trend> {
    let n = points.len();
    if n < 4 {
        return None;
    }
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    let mut score = 0.0;
    for (i, a) in points.iter().enumerate() {
        for b in points[i + 1..].iter().filter(|b| b.0 > a.0) {
            slopes.push((b.1 - a.1) / (b.0 - a.0));
            score += if b.1 == a.1 { 0.0 } else { (b.1 - a.1).signum() };
        }
    }
    let slope = median(&mut slopes)?;
    let n = n as f64;
    let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - ties(points)) / 18.0;
    let corrected = if score == 0.0 { 0.0 } else { score - score.signum() };
    let z = if variance > 0.0 { corrected / variance.sqrt() } else { 0.0 };
    Some(Trend { slope, tau: score / (n * (n - 1.0) / 2.0), z })
}

/// How much ties reduce the variance.
fn ties(points: &[(f64, f64)]) -> f64 {
    let mut values: Vec<f64> = points.iter().map(|p| p.1).collect();
    values.sort_by(f64::total_cmp);
    let groups = values.chunk_by(|a, b| a == b);
    groups.map(|g| g.len() as f64).map(|t| t * (t - 1.0) * (2.0 * t + 5.0)).sum()
}

/// Means of `count` sections of points, as even as possible; all points if there are no more than that.
pub fn stretches(points: &[(f64, f64)], count: usize) -> Vec<(f64, f64)> {
    if points.len() <= count || count == 0 {
        return points.to_vec();
    }
    let mean = |part: &[(f64, f64)]| {
        let n = part.len() as f64;
        (part.iter().map(|p| p.0).sum::<f64>() / n, part.iter().map(|p| p.1).sum::<f64>() / n)
    };
    let edge = |i: usize| i * points.len() / count;
    (0..count).map(|i| mean(&points[edge(i)..edge(i + 1)])).collect()
}

/// The median; for an even number the mean of the middle two. Sorts its input.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(values[n / 2]),
        _ => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Trend {
        let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(i, v)| (i as f64, *v)).collect();
        trend(&points).expect("four points or more")
    }

    #[test]
    fn a_trend_is_distinguished_from_an_outlier() {
        let rising = of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!((rising.slope, rising.tau), (1.0, 1.0));
        // by hand: S = 28, variance 8 · 7 · 21 / 18 = 65.33
        assert!((rising.z - 27.0 / 65.333_f64.sqrt()).abs() < 1e-3, "{rising:?}");
        let wild = of(&[5.0, 5.0, 5.0, 500.0, 5.0, 5.0, 5.0, 5.0]);
        assert_eq!(wild.slope, 0.0);
        assert!(wild.z.abs() < 1.0, "{wild:?}");
        assert_eq!(of(&[3.0, 3.0, 3.0, 3.0]).z, 0.0);
        assert!(trend(&[(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]).is_none());
    }

    #[test]
    fn stretches_hold_every_point_once() {
        let points: Vec<(f64, f64)> = (0..23).map(|i| (f64::from(i), 1.0)).collect();
        let means = stretches(&points, 10);
        assert_eq!(means.len(), 10);
        assert!(means.iter().all(|m| m.1 == 1.0) && means.windows(2).all(|w| w[0].0 < w[1].0), "{means:?}");
        assert_eq!(stretches(&points[..4], 10), points[..4]);
    }
}
