//! Student's t distribution: chances and critical values, for intervals over a handful of trials.
//!
//! The t distribution's tails are a regularised incomplete beta function (DLMF 8.17 and 26.5.27 of Abramowitz and
//! Stegun): `P(|T| > t) = I_x(ν/2, 1/2)` with `x = ν / (ν + t²)`. That is evaluated by its continued fraction (DLMF
//! 8.17.22) with Lentz's method as modified by Thompson and Barnett (1986). Good to ten digits over the range that
//! trials span; the tests check it against printed tables.

/// The confidence of intervals, unless another is asked for.
pub const CONFIDENCE: f64 = 0.95;

/// The probability that |T| exceeds `t` by chance alone; `df` degrees of freedom, above 0. 1 at 0, and NaN only for
/// NaN.
pub fn two_sided(t: f64, df: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(df / (df + t * t), df / 2.0, 0.5)
}

/// The t that |T| stays within with this probability (`0.95`): half the width of an interval in standard errors.
pub fn critical(confidence: f64, df: f64) -> f64 {
    let tail = (1.0 - confidence).clamp(f64::MIN_POSITIVE, 1.0);
    let mut high = 1.0;
    // 1e9 standard errors: enough even for one degree of freedom and a confidence of 1 − 1e-9.
    while two_sided(high, df) > tail && high < 1e9 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if two_sided(middle, df) > tail { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The regularised incomplete beta function, for `x` in 0..=1 and positive `a` and `b`.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (a * x.ln() + b * (-x).ln_1p() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp();
    // The fraction converges fast on this side of the mean; the other side is its mirror.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of the incomplete beta function.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            change = d * c;
            value *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    value
}

/// ln Γ(x) for positive x: Stirling's series (DLMF 5.11.1), after raising the argument to where the series is
/// accurate.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut below) = (x, 0.0);
    while x < 12.0 {
        below += x.ln();
        x += 1.0;
    }
    let square = x * x;
    let series =
        (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square) / x;
    (x - 0.5) * x.ln() - x + (2.0 * std::f64::consts::PI).ln() / 2.0 + series - below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_printed_tables() {
        let check = |confidence, df, expect: f64| {
            let got = critical(confidence, df);
            assert!((got - expect).abs() < 6e-4 * expect, "{confidence} {df}: {got}, not {expect}");
        };
        check(0.95, 1.0, 12.706);
        check(0.95, 2.0, 4.303);
        check(0.95, 4.0, 2.776);
        check(0.95, 8.0, 2.306);
        check(0.95, 21.0, 2.080);
        check(0.99, 4.0, 4.604);
        check(0.999, 9.0, 4.781);
        check(0.90, 30.0, 1.697);
        // the normal distribution in the limit
        check(0.95, 1e6, 1.960);
    }

    #[test]
    fn chances_and_critical_values_are_each_others_inverse() {
        for df in [1.0, 2.5, 4.0, 17.0, 300.0] {
            for confidence in [0.5, 0.9, 0.95, 0.992_857, 0.9999] {
                let chance = two_sided(critical(confidence, df), df);
                assert!((chance - (1.0 - confidence)).abs() < 1e-9, "{df} {confidence}: {chance}");
            }
        }
        assert_eq!((two_sided(0.0, 4.0), two_sided(f64::INFINITY, 4.0)), (1.0, 0.0));
    }
}
