//! The normal distribution.

use std::f64::consts::SQRT_2;

use statrs::function::erf::erfc;

/// The quantile that leaves [`TAIL`](crate::TAIL) above it: 95 % lie within this many standard deviations of the mean.
pub const QUANTILE: f64 = 1.959_963_984_540_054;

/// The ratio of a normal distribution's standard deviation to its median absolute deviation.
pub(crate) const MEDIAN_DEVIATION: f64 = 1.4826;

/// The ratio of a normal distribution's standard deviation to its mean absolute deviation.
pub(crate) const MEAN_DEVIATION: f64 = 1.253_314;

/// The probability of a value at least this many standard deviations above or below the mean.
#[must_use]
pub fn p_value(deviations: f64) -> f64 {
    erfc(deviations.abs() / SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_leaves_the_tail() {
        assert!((p_value(QUANTILE) - 2.0 * crate::TAIL).abs() < 1e-11);
        assert_eq!(p_value(0.0), 1.0);
        assert_eq!(p_value(-1.0), p_value(1.0));
    }
}
