//! Student's t: the interval and the p value of a mean of few figures.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::normal::QUANTILE;
use crate::{CONFIDENCE, Interval};

/// The smallest p value to report: a few figures cannot prove more.
pub const SMALLEST_P: f64 = 1e-9;

/// The degrees of freedom from which the quantile is computed from the normal one. The quantile of statrs 0.18 loses digits
/// from 10^6 degrees of freedom on (1.83 instead of 1.96 at 10^7) and loops forever from 3 * 10^7 on.
const MANY: f64 = 1e4;

/// The quantile that leaves [`TAIL`](crate::TAIL) above it; `None` if `freedom` is not positive.
#[must_use]
pub fn quantile(freedom: f64) -> Option<f64> {
    if freedom >= MANY {
        // Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5; the remaining terms are below 10^-11.
        let normal = QUANTILE;
        let first = (normal.powi(3) + normal) / 4.0;
        let second = (5.0 * normal.powi(5) + 16.0 * normal.powi(3) + 3.0 * normal) / 96.0;
        return Some(normal + first / freedom + second / (freedom * freedom));
    }
    let quantile = distribution(freedom)?.inverse_cdf(f64::midpoint(1.0, CONFIDENCE));
    quantile.is_finite().then_some(quantile)
}

fn distribution(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom).ok()
}

/// A standard error with its degrees of freedom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Error {
    /// The standard error.
    pub error: f64,
    /// Its degrees of freedom.
    pub freedom: f64,
}

impl Error {
    /// The error of the difference of two means, each given by the variance of the mean and its degrees of freedom: Welch,
    /// "The generalization of Student's problem when several different population variances are involved", Biometrika 34,
    /// 1947.
    #[must_use]
    pub fn welch(sides: [(f64, f64); 2]) -> Self {
        let variance: f64 = sides.iter().map(|side| side.0).sum();
        let denominator: f64 = sides.iter().map(|(variance, freedom)| variance * variance / freedom).sum();
        let pooled = || sides.iter().map(|side| side.1).sum();
        let freedom = if variance > 0.0 { variance * variance / denominator } else { pooled() };
        Self { error: variance.sqrt(), freedom }
    }

    /// Half the width of the interval.
    #[must_use]
    pub fn half_width(self) -> Option<f64> {
        let half = self.error * quantile(self.freedom)?;
        half.is_finite().then_some(half)
    }

    /// The interval about this centre.
    #[must_use]
    pub fn interval(self, centre: f64) -> Option<Interval> {
        Interval::around(centre, self.half_width()?)
    }

    /// The probability of a difference at least as large as this one, to either side, if the true difference is 0.
    #[must_use]
    pub fn p_value(self, difference: f64) -> Option<f64> {
        if difference == 0.0 {
            return Some(1.0);
        }
        if self.error <= 0.0 {
            return Some(SMALLEST_P);
        }
        let beyond = distribution(self.freedom)?.sf((difference / self.error).abs());
        Some((2.0 * beyond).clamp(SMALLEST_P, 1.0))
    }
}

/// The mean of some figures with their number and variance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// The number of figures.
    pub count: f64,
    /// Their mean.
    pub mean: f64,
    /// Their variance, with n - 1 in the denominator; 0 for a single one.
    pub variance: f64,
}

impl Moments {
    /// The moments of `values`; `None` without values, or if their sum is not finite.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = mean(values);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let variance = if values.len() > 1 { squares / (count - 1.0) } else { 0.0 };
        (!values.is_empty() && mean.is_finite()).then_some(Self { count, mean, variance })
    }

    /// The standard error of the mean.
    #[must_use]
    pub fn error(&self) -> Error {
        Error { error: (self.variance / self.count).sqrt(), freedom: self.count - 1.0 }
    }

    /// The interval of the mean.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        self.error().interval(self.mean)
    }
}

/// The arithmetic mean; NaN without values.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The variance of ln(sum of the first values / sum of the second) over parts with one value of each, and its degrees of
/// freedom: from the distance of each part from the common ratio (Cochran, "Sampling Techniques", 1977, section 6.4).
/// `None` if a sum is not positive.
#[must_use]
pub fn ratio_variance(parts: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (top, bottom) = parts.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    if !(top > 0.0 && bottom > 0.0) {
        return None;
    }
    let ratio = top / bottom;
    let squares: f64 = parts.iter().map(|part| (part.0 - ratio * part.1).powi(2)).sum();
    let count = parts.len() as f64;
    Some((count / (count - 1.0) * squares / (top * top), count - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() < tolerance, "{found} instead of {expected}");
    }

    #[test]
    fn welch_agrees_with_scipy() {
        // 5 and 9 values of variance 4 and 1: scipy.stats.t.ppf(0.975, 5.138708) * sqrt(4 / 5 + 1 / 9)
        near(Error::welch([(4.0 / 5.0, 4.0), (1.0 / 9.0, 8.0)]).half_width().unwrap(), 2.433_888, 1e-5);
        assert_eq!(Error::welch([(0.0, 3.0), (0.0, 3.0)]), Error { error: 0.0, freedom: 6.0 });
        assert_eq!(Error::welch([(0.0, 3.0), (0.0, 3.0)]).half_width(), Some(0.0));
    }

    #[test]
    fn p_values_agree_with_r() {
        // t.test of R's data set `sleep`, paired: t = 4.0621, df = 9, p = 0.002833; not paired: t = 1.8608, df = 17.776,
        // p = 0.07939.
        near(Error { error: 1.0, freedom: 9.0 }.p_value(4.062_128).unwrap(), 0.002_833, 1e-6);
        near(Error { error: 1.0, freedom: 17.776_474 }.p_value(-1.860_813).unwrap(), 0.079_394, 1e-6);
    }

    #[test]
    fn quantiles_agree_with_tables() {
        // Pearson and Hartley, "Biometrika tables for statisticians", table 12.
        for (freedom, expected) in [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (9.0, 2.262), (120.0, 1.980)] {
            near(quantile(freedom).unwrap(), expected, 5e-4);
        }
        assert_eq!((quantile(0.0), quantile(f64::NAN)), (None, None));
    }

    /// A recording may have as many degrees of freedom as exits. The quantile of statrs is too small there, and then never
    /// returns.
    #[test]
    fn millions_of_degrees_of_freedom_are_nearly_the_normal_distribution() {
        near(quantile(MANY - 1.0).unwrap(), quantile(MANY).unwrap(), 1e-7);
        for freedom in [1e6, 1e7, 1e9, 1e18, f64::INFINITY] {
            near(quantile(freedom).unwrap(), QUANTILE, 1e-5);
        }
    }

    #[test]
    fn a_single_value_and_none_have_no_interval() {
        assert_eq!(Moments::of(&[]), None);
        assert_eq!(Moments::of(&[f64::INFINITY]), None);
        let one = Moments::of(&[3.0]).unwrap();
        assert_eq!((one.mean, one.interval()), (3.0, None));
    }

    #[test]
    fn parts_of_one_ratio_do_not_vary() {
        assert_eq!(ratio_variance(&[(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]), Some((0.0, 2.0)));
        assert_eq!(ratio_variance(&[(0.0, 1.0), (0.0, 2.0)]), None);
    }
}
