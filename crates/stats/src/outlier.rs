//! Signs that a measurement was disturbed. They cause warnings; no sample is dropped.

use crate::median;
use crate::normal::{MEAN_DEVIATION, MEDIAN_DEVIATION};

/// Ten standard deviations of a normal distribution, in units of its median absolute deviation.
const THRESHOLD: f64 = 10.0 * MEDIAN_DEVIATION;

/// The factor from the mean absolute deviation to the median one of a normal distribution, used if the median one is 0.
const MEAN_FOR_MEDIAN: f64 = MEAN_DEVIATION / MEDIAN_DEVIATION;

/// The number of samples that lie far from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outliers {
    /// The samples more than about ten standard deviations from the median.
    pub far: usize,
    /// All samples.
    pub samples: usize,
}

impl Outliers {
    /// The share of far samples, from 0 to 1.
    #[must_use]
    pub fn share(self) -> f64 {
        if self.samples == 0 { 0.0 } else { self.far as f64 / self.samples as f64 }
    }
}

/// Counts outliers by the modified z-score of Iglewicz and Hoaglin, "How to Detect and Handle Outliers", 1993, with the
/// high threshold of benchmark tools: latencies naturally have long tails.
#[must_use]
pub fn outliers(samples: &[u64]) -> Outliers {
    let values: Vec<f64> = samples.iter().map(|&sample| sample as f64).collect();
    let Some(centre) = median(&values) else { return Outliers { far: 0, samples: 0 } };
    let deviations: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    let unit = match median(&deviations) {
        Some(deviation) if deviation > 0.0 => deviation,
        _ => deviations.iter().sum::<f64>() / deviations.len() as f64 * MEAN_FOR_MEDIAN,
    };
    let far = deviations.iter().filter(|&&deviation| unit > 0.0 && deviation / unit > THRESHOLD).count();
    Outliers { far, samples: samples.len() }
}

/// The drift of `values`, which are in order of time: the difference in percent between the median of the last half and
/// that of the first. A middle value belongs to neither half. `None` for fewer than four values, or if the first median is
/// not positive.
#[must_use]
pub fn half_shift(values: &[f64]) -> Option<f64> {
    if values.len() < 4 {
        return None;
    }
    let half = values.len() / 2;
    let first = median(&values[..half])?;
    let last = median(&values[values.len() - half..])?;
    (first > 0.0).then(|| (last / first - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_far_sample_among_near_ones_is_found() {
        let mut samples: Vec<u64> = (0..100).map(|i| 1000 + i % 7).collect();
        samples.push(50_000);
        assert_eq!(outliers(&samples), Outliers { far: 1, samples: 101 });
    }

    #[test]
    fn a_far_sample_is_found_where_all_others_are_the_same() {
        let mut samples = vec![1000; 100];
        samples.push(50_000);
        assert_eq!(outliers(&samples).far, 1);
        assert_eq!(outliers(&[1000; 100]).far, 0);
        assert_eq!(outliers(&[]).share(), 0.0);
    }

    #[test]
    fn the_halves_are_compared_by_their_medians() {
        assert_eq!(half_shift(&[100.0, 100.0, 110.0, 110.0]).map(f64::round), Some(10.0));
        assert_eq!(half_shift(&[100.0, 100.0, 9e9, 100.0, 100.0]), Some(0.0));
        assert_eq!(half_shift(&[1.0, 2.0, 3.0]), None);
    }
}
