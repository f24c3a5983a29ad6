//! The noise floor: what averages of one and the same arm differ by.

use crate::Scale;

/// The difference of two averages of `repeats` runs of one arm (root of the mean square), from how runs of the same arm in
/// neighbouring blocks differ; on the told scale. `arms` are values as [`Scale::enter`] makes them, in the order of
/// blocks.
///
/// Neighbours, because a drift over the whole study is not what tells repeats apart (the mean square successive
/// difference of von Neumann and others, "The Mean Square Successive Difference", Annals of Mathematical Statistics 12,
/// 1941). `None` without two neighbours.
#[must_use]
pub fn floor(arms: [&[f64]; 2], repeats: usize, scale: Scale) -> Option<f64> {
    let squares: Vec<f64> = arms
        .iter()
        .flat_map(|values| values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2) / 2.0))
        .collect();
    if squares.is_empty() || repeats == 0 {
        return None;
    }
    let variance = squares.iter().sum::<f64>() / squares.len() as f64;
    Some(scale.tell((2.0 * variance / repeats as f64).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_standard_error_of_a_difference_of_means() {
        // Neighbours 2 apart: a variance of 2, so of the mean of four 0.5, and of the difference of two such means 1.
        let values = [1.0, 3.0, 1.0, 3.0];
        let found = floor([&values, &values], 4, Scale::Difference).unwrap();
        assert!((found - 1.0).abs() < 1e-12, "{found}");
    }

    #[test]
    fn a_slow_drift_is_no_scatter() {
        let drift: Vec<f64> = (0..100).map(|block| f64::from(block) * 0.01).collect();
        assert!(floor([&drift, &drift], 100, Scale::Difference).unwrap() < 0.002);
    }

    #[test]
    fn one_value_has_no_neighbour() {
        assert_eq!(floor([&[1.0], &[2.0]], 1, Scale::Ratio), None);
    }
}
