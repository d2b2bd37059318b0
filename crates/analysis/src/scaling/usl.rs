//! Throughput over concurrency: the Universal Scalability Law, its peak, and the knee.
//!
//! Gunther's law (2007) gives the throughput of N users: `X(N) = λN / (1 + α(N − 1) + βN(N − 1))`. λ is the throughput
//! of one user, α the share of the work that only one can do at a time (contention), β the pairwise cost between users
//! (coherency). With β > 0 there is a maximum, at `N* = √((1 − α) / β)`; beyond it more users get less.
//!
//! It is fitted to the throughput of every trial by least squares of logarithms (an error of 2 % weighs the same at
//! every level) with Gauss-Newton steps, damped by the Levenberg-Marquardt method (1944, 1963). Intervals are
//! Student's, from the fit's linear approximation; the peak's interval is on a logarithmic scale (delta method).
//!
//! The *knee* is where throughput over response time is largest (Kleinrock 1979: power): below it more users are
//! served at little cost, above it they mostly wait. In terms of the law it is where one per cent more users bring
//! half a per cent more throughput.
//!
//! A fit that the data cannot support is refused with the reason ([`Refused`]).

use crate::cases::case::Spread;
use crate::cases::metric::{Better, Value};
use crate::statistics::student;

/// Fewer levels leave two of three parameters to chance.
pub const FEWEST_LEVELS: usize = 6;
/// The largest level is at least this many times the smallest: below, everything is a straight line.
const LEAST_SPAN: f64 = 4.0;
/// A residual this large (root mean square, of logarithms: 0.15 is 16 %) means another law, or noise.
const WORST_RESIDUAL: f64 = 0.15;
/// The fit explains at least this share of the variation over the levels.
const LEAST_EXPLAINED: f64 = 0.80;
/// A peak beyond this many times the largest level is a guess far outside the measured range.
const FARTHEST_PEAK: f64 = 2.0;

/// The throughput of one trial at a level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Users.
    pub users: f64,
    /// Ok responses per second.
    pub per_s: f64,
}

/// An estimate and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FittedValue {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end; infinite if the data do not bound it.
    pub high: f64,
}

/// A fitted law.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Throughput of one user, per second.
    pub lambda: FittedValue,
    /// Contention, 0 to 1.
    pub alpha: FittedValue,
    /// Coherency.
    pub beta: FittedValue,
    /// The number of users with the most throughput; or why it is not reported.
    pub peak: Result<Peak, Refused>,
    /// Users at the knee, if it is within the measured levels.
    pub knee_users: Option<f64>,
    /// Root mean square of the residuals, as a share of the throughput.
    pub residual: f64,
    /// Estimates of ln λ, α and β, and their covariance, for the curve's band.
    theta: Theta,
    covariance: [[f64; 3]; 3],
    /// Student's critical value times the residual.
    reach: f64,
}

/// Where throughput is largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Number of users there.
    pub users: FittedValue,
    /// The throughput there, per second.
    pub per_s: f64,
}

/// Where the knee lies among the measured levels, in users.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Knee {
    /// At an inner level.
    At(f64),
    /// At the smallest level or below: more users brought less than they cost from the start.
    AtMost(f64),
    /// At the largest level or above: it was not passed.
    AtLeast(f64),
}

/// Why a law, or its peak, is not reported.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Not enough levels.
    #[error("{levels} levels of users were measured; the fit needs {FEWEST_LEVELS}")]
    FewLevels {
        /// The number of levels.
        levels: usize,
    },
    /// Levels too close to one another.
    #[error("the levels span a factor of {span:.1}; the fit needs {LEAST_SPAN:.0}")]
    Narrow {
        /// Largest over smallest.
        span: f64,
    },
    /// No more trials than parameters.
    #[error("{trials} trials are too few for three parameters")]
    FewTrials {
        /// The number of trials.
        trials: usize,
    },
    /// A level without throughput.
    #[error("at {users:.0} users nothing was answered")]
    Nothing {
        /// The level.
        users: f64,
    },
    /// The law does not fit.
    #[error("the law does not fit: it is off by {:.0} % on average and explains {:.0} % of the variation", residual * 100.0, explained * 100.0)]
    Bad {
        /// Root mean square, as a share.
        residual: f64,
        /// Share of the variation over the levels, 0 to 1.
        explained: f64,
    },
    /// No peak.
    #[error("throughput still grows at the largest level: no peak is in sight")]
    NoPeak,
    /// No gain at all.
    #[error("throughput falls from the first user on: there is no peak")]
    Falls,
    /// The data also allow no peak.
    #[error("a peak can be neither shown nor ruled out: the interval of β includes 0")]
    UnsurePeak,
    /// A peak far beyond the measured levels.
    #[error("the peak would be at {users:.0} users, far beyond the largest level measured ({largest:.0})")]
    FarPeak {
        /// Users at which it would be.
        users: f64,
        /// The largest level.
        largest: f64,
    },
}

/// Parameters: ln λ, α, β.
type Theta = [f64; 3];

/// Fits the law to trials, in any order.
///
/// # Errors
/// The data cannot support it.
pub fn fit(points: &[Point]) -> Result<Fit, Refused> {
    let (least, largest) = carries(points)?;
    let mut best: Option<(f64, Theta)> = None;
    // From several starts: the surface has a valley where α and β trade for one another.
    for alpha in [0.001, 0.02, 0.2] {
        for beta in [1e-7, 1e-4, 1e-2] {
            let start = [start_lambda(points, [0.0, alpha, beta]), alpha, beta];
            let (cost, theta) = descend(points, start);
            if cost.is_finite() && best.is_none_or(|(c, _)| cost < c) {
                best = Some((cost, theta));
            }
        }
    }
    let bad = |residual, explained| Err(Refused::Bad { residual, explained });
    let Some((cost, theta)) = best else { return bad(f64::INFINITY, 0.0) };
    let n = points.len() as f64;
    let residual = (cost / (n - 3.0)).sqrt();
    let explained = explained(points, cost);
    if residual > WORST_RESIDUAL || explained < LEAST_EXPLAINED && residual > 0.02 {
        return bad(residual, explained);
    }
    let Some(covariance) = inverse(normal(points, theta).0) else { return bad(residual, explained) };
    let t = student::critical(0.95, n - 3.0);
    let half = |i: usize| t * residual * covariance[i][i].max(0.0).sqrt();
    let share = |i: usize| FittedValue {
        value: theta[i].max(0.0),
        low: (theta[i] - half(i)).max(0.0),
        high: (theta[i] + half(i)).max(0.0),
    };
    let lambda = theta[0].exp();
    Ok(Fit {
        lambda: FittedValue { value: lambda, low: lambda * (-half(0)).exp(), high: lambda * half(0).exp() },
        alpha: share(1),
        beta: share(2),
        peak: peak(theta, covariance, t * residual, largest),
        knee_users: knee(theta, least, largest),
        residual,
        theta,
        covariance,
        reach: t * residual,
    })
}

impl Fit {
    /// Throughput of this many users by the law, per second.
    pub fn per_s(&self, users: f64) -> f64 {
        // Uses the raw estimates, even if one is negative and reported as 0: what is drawn is what was fitted.
        let [ln_lambda, alpha, beta] = self.theta;
        ln_lambda.exp() * users / slowdown(users, alpha, beta)
    }

    /// As [`Fit::per_s`], with its 95 % interval: where the curve lies, not where single trials fall. From the fit's
    /// linear approximation, on a logarithmic scale (delta method).
    pub fn per_s_within(&self, users: f64) -> FittedValue {
        let slopes = slopes(users, slowdown(users, self.theta[1], self.theta[2]));
        let pairs = (0..3).flat_map(|i| (0..3).map(move |j| (i, j)));
        let variance: f64 = pairs.map(|(i, j)| slopes[i] * self.covariance[i][j] * slopes[j]).sum();
        let half = self.reach * variance.max(0.0).sqrt();
        let value = self.per_s(users);
        FittedValue { value, low: value * (-half).exp(), high: value * half.exp() }
    }
}

/// How the logarithm of the throughput changes with ln λ, α and β.
fn slopes(users: f64, slow: f64) -> [f64; 3] {
    [1.0, -(users - 1.0) / slow, -users * (users - 1.0) / slow]
}

fn slowdown(users: f64, alpha: f64, beta: f64) -> f64 {
    1.0 + alpha * (users - 1.0) + beta * users * (users - 1.0)
}

/// Smallest and largest level, if there is enough to fit.
fn carries(points: &[Point]) -> Result<(f64, f64), Refused> {
    if let Some(p) = points.iter().find(|p| p.per_s.is_nan() || p.per_s <= 0.0) {
        return Err(Refused::Nothing { users: p.users });
    }
    let mut levels: Vec<f64> = points.iter().map(|p| p.users).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let (Some(least), Some(largest)) = (levels.first().copied(), levels.last().copied()) else {
        return Err(Refused::FewLevels { levels: 0 });
    };
    if levels.len() < FEWEST_LEVELS {
        return Err(Refused::FewLevels { levels: levels.len() });
    }
    if points.len() <= 4 {
        return Err(Refused::FewTrials { trials: points.len() });
    }
    let span = largest / least.max(f64::MIN_POSITIVE);
    if span < LEAST_SPAN {
        return Err(Refused::Narrow { span });
    }
    Ok((least, largest))
}

/// The best-fitting λ for this α and β: the mean logarithm of the remainder.
fn start_lambda(points: &[Point], theta: Theta) -> f64 {
    let sum: f64 = points.iter().filter_map(|p| residual_at(p, theta)).sum();
    sum / points.len() as f64
}

/// ln of measured over fitted; `None` if the law yields nothing.
fn residual_at(point: &Point, [ln_lambda, alpha, beta]: Theta) -> Option<f64> {
    let slow = slowdown(point.users, alpha, beta);
    (slow > 0.0).then(|| point.per_s.ln() - (ln_lambda + point.users.ln() - slow.ln()))
}

fn cost(points: &[Point], theta: Theta) -> f64 {
    points.iter().map(|p| residual_at(p, theta).map_or(f64::INFINITY, |r| r * r)).sum()
}

/// Least squares from a start: cost and parameters.
fn descend(points: &[Point], mut theta: Theta) -> (f64, Theta) {
    let (mut at, mut damping) = (cost(points, theta), 1e-3);
    for _ in 0..300 {
        let (mut matrix, gradient) = normal(points, theta);
        for (i, row) in matrix.iter_mut().enumerate() {
            row[i] *= 1.0 + damping;
        }
        let Some(inverted) = inverse(matrix) else { break };
        let step: Vec<f64> =
            inverted.iter().map(|row| row.iter().zip(&gradient).map(|(m, g)| m * g).sum()).collect();
        let next = [theta[0] + step[0], theta[1] + step[1], theta[2] + step[2]];
        let there = cost(points, next);
        if there < at {
            let settled = at - there <= 1e-14 * at;
            (theta, at) = (next, there);
            damping = (damping / 10.0).max(1e-12);
            if settled {
                break;
            }
        } else if damping > 1e12 {
            break;
        } else {
            damping *= 10.0;
        }
    }
    (at, theta)
}

/// JᵀJ and Jᵀr of the residuals.
fn normal(points: &[Point], theta: Theta) -> ([[f64; 3]; 3], [f64; 3]) {
    let (mut matrix, mut gradient) = ([[0.0; 3]; 3], [0.0; 3]);
    for p in points {
        let Some(r) = residual_at(p, theta) else { continue };
        let slow = slowdown(p.users, theta[1], theta[2]);
        let slopes = slopes(p.users, slow);
        for i in 0..3 {
            gradient[i] += slopes[i] * r;
            for j in 0..3 {
                matrix[i][j] += slopes[i] * slopes[j];
            }
        }
    }
    (matrix, gradient)
}

/// The inverse of a symmetric matrix, after scaling; `None` if there is none.
fn inverse(matrix: [[f64; 3]; 3]) -> Option<[[f64; 3]; 3]> {
    let size: Vec<f64> = (0..3).map(|i| matrix[i][i].sqrt()).collect();
    if size.iter().any(|s| !s.is_finite() || *s <= 0.0) {
        return None;
    }
    let m = |i: usize, j: usize| matrix[i][j] / (size[i] * size[j]);
    let minor = |i: usize, j: usize| {
        let rest = |k: usize| [(k + 1) % 3, (k + 2) % 3];
        let (r, c) = (rest(i), rest(j));
        m(r[0], c[0]) * m(r[1], c[1]) - m(r[0], c[1]) * m(r[1], c[0])
    };
    let determinant: f64 = (0..3).map(|j| m(0, j) * minor(0, j)).sum();
    if determinant.abs() < 1e-14 {
        return None;
    }
    let mut out = [[0.0; 3]; 3];
    for (i, row) in out.iter_mut().enumerate() {
        for (j, value) in row.iter_mut().enumerate() {
            *value = minor(j, i) / determinant / (size[i] * size[j]);
        }
    }
    Some(out)
}

/// Share of the variation of ln X over the levels that the law explains.
fn explained(points: &[Point], cost: f64) -> f64 {
    let n = points.len() as f64;
    let mean = points.iter().map(|p| p.per_s.ln()).sum::<f64>() / n;
    let all: f64 = points.iter().map(|p| (p.per_s.ln() - mean).powi(2)).sum();
    if all > 0.0 { 1.0 - cost / all } else { 0.0 }
}

fn peak(
    [ln_lambda, alpha, beta]: Theta,
    covariance: [[f64; 3]; 3],
    half_errors: f64,
    largest: f64,
) -> Result<Peak, Refused> {
    if alpha >= 1.0 {
        return Err(Refused::Falls);
    }
    if beta <= 0.0 {
        return Err(Refused::NoPeak);
    }
    let users = ((1.0 - alpha) / beta).sqrt();
    if users > FARTHEST_PEAK * largest {
        return Err(Refused::FarPeak { users, largest });
    }
    if beta <= half_errors * covariance[2][2].max(0.0).sqrt() {
        return Err(Refused::UnsurePeak);
    }
    let slopes = [0.0, -0.5 / (1.0 - alpha), -0.5 / beta];
    let variance: f64 = (0..3)
        .flat_map(|i| (0..3).map(move |j| (i, j)))
        .map(|(i, j)| slopes[i] * covariance[i][j] * slopes[j])
        .sum();
    let half = half_errors * variance.max(0.0).sqrt();
    let users = FittedValue { value: users, low: users * (-half).exp(), high: users * half.exp() };
    let per_s = ln_lambda.exp() * users.value / slowdown(users.value, alpha, beta);
    Ok(Peak { users, per_s })
}

/// Where one per cent more users bring half a per cent more throughput, if that is within the levels.
fn knee([_, alpha, beta]: Theta, least: f64, largest: f64) -> Option<f64> {
    let gain = |n: f64| 1.0 - n * (alpha + beta * (2.0 * n - 1.0)) / slowdown(n, alpha, beta);
    if gain(least) <= 0.5 || gain(largest) > 0.5 {
        return None;
    }
    let (mut low, mut high) = (least, largest);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if gain(middle) > 0.5 { low = middle } else { high = middle }
    }
    Some(high)
}

/// The measured level with the largest throughput over response time (with users and no think time: X² / N), of the
/// medians of its trials. `None` with fewer than three levels.
pub fn measured_knee(points: &[Point]) -> Option<Knee> {
    let mut levels: Vec<f64> = points.iter().map(|p| p.users).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let power = |users: f64| {
        let trials = points.iter().filter(|p| p.users == users).map(|p| Value::Known(p.per_s)).collect();
        Spread::of(trials, Better::More).median.known().map_or(0.0, |x| x * x / users)
    };
    let best = levels.iter().copied().max_by(|a, b| power(*a).total_cmp(&power(*b)))?;
    if levels.len() < 3 {
        None
    } else if Some(&best) == levels.first() {
        Some(Knee::AtMost(best))
    } else if Some(&best) == levels.last() {
        Some(Knee::AtLeast(best))
    } else {
        Some(Knee::At(best))
    }
}
