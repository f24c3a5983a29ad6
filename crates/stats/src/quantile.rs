//! Quantiles and moments of samples.

use serde::{Deserialize, Serialize};

/// Key figures of a distribution of samples, in the samples' unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The number of samples.
    pub samples: usize,
    /// The smallest.
    pub minimum: u64,
    /// The 50th percentile.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The largest.
    pub maximum: u64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The standard deviation with n - 1 in the denominator; 0 for a single sample.
    pub standard_deviation: f64,
}

impl Summary {
    /// Summarises `samples`, in any order; `None` without samples.
    #[must_use]
    pub fn of(samples: &[u64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let (&minimum, &maximum) = (sorted.first()?, sorted.last()?);
        let mean = mean(&sorted);
        Some(Self {
            samples: sorted.len(),
            minimum,
            median: quantile(&sorted, 0.5)?,
            p90: quantile(&sorted, 0.9)?,
            p99: quantile(&sorted, 0.99)?,
            p999: quantile(&sorted, 0.999)?,
            maximum,
            mean,
            standard_deviation: standard_deviation(&sorted, mean),
        })
    }
}

/// A type of samples that quantiles are computed from.
pub trait Sample: Copy {
    /// The value as a floating-point number; integers above 2^53 are rounded to the nearest.
    fn value(self) -> f64;
}

impl Sample for f64 {
    fn value(self) -> f64 {
        self
    }
}

impl Sample for u64 {
    fn value(self) -> f64 {
        self as f64
    }
}

/// The quantile at `fraction` (0 to 1) of samples in ascending order, by linear interpolation between the two
/// nearest ranks: definition 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American
/// Statistician 50 (1996), which is also the default of R and NumPy.
///
/// `None` without samples.
#[must_use]
pub fn quantile<S: Sample>(sorted: &[S], fraction: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = fraction.clamp(0.0, 1.0) * last as f64;
    let below = (rank.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let (low, high) = (sorted[below].value(), sorted[above].value());
    Some(low + (high - low) * (rank - below as f64))
}

/// The median of values in any order; `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn mean(samples: &[u64]) -> f64 {
    let sum: u128 = samples.iter().map(|&sample| u128::from(sample)).sum();
    sum as f64 / samples.len() as f64
}

fn standard_deviation(samples: &[u64], mean: f64) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let squares: f64 = samples.iter().map(|&sample| (sample as f64 - mean).powi(2)).sum();
    (squares / (samples.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_type_7_of_r() {
        // quantile(c(15, 20, 35, 40, 50), c(0.05, 0.3, 0.4, 0.5, 1), type = 7)
        let samples = [15_u64, 20, 35, 40, 50];
        for (fraction, expected) in [(0.05, 16.0), (0.3, 23.0), (0.4, 29.0), (0.5, 35.0), (1.0, 50.0)] {
            let found = quantile(&samples, fraction).unwrap();
            assert!((found - expected).abs() < 1e-9, "{fraction}: {found} instead of {expected}");
        }
    }

    #[test]
    fn nothing_has_no_quantile_and_no_summary() {
        assert_eq!(quantile::<u64>(&[], 0.5), None);
        assert_eq!(median(&[]), None);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn one_sample_is_its_own_summary() {
        let summary = Summary::of(&[7]).unwrap();
        assert_eq!((summary.median, summary.p999, summary.mean), (7.0, 7.0, 7.0));
        assert_eq!(summary.standard_deviation, 0.0);
    }

    #[test]
    fn moments_of_a_known_set() {
        let summary = Summary::of(&[4, 2, 4, 5, 4, 5, 7, 9]).unwrap();
        assert_eq!(summary.mean, 5.0);
        assert!((summary.standard_deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
    }
}
