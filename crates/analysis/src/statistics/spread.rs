//! Mean and variance of a sample.

/// Mean and variance of a sample, the latter with one degree of freedom less than there are values. `None` with fewer
/// than two.
pub(crate) fn mean_and_variance(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if n < 2.0 {
        return None;
    }
    // Equal values have no variance, whatever their sum was rounded to.
    if values.iter().all(|v| *v == values[0]) {
        return Some((values[0], 0.0));
    }
    let mean = values.iter().sum::<f64>() / n;
    Some((mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_no_of_equal_and_of_different_values() {
        assert_eq!(mean_and_variance(&[]), None);
        assert_eq!(mean_and_variance(&[1.0]), None);
        assert_eq!(mean_and_variance(&[0.1; 3]), Some((0.1, 0.0)), "a sum of 0.1 is rounded");
        assert_eq!(mean_and_variance(&[1.0, 2.0, 6.0]), Some((3.0, 7.0)));
    }
}
