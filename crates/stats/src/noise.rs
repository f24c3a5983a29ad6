//! The noise floor: the difference to expect between averages of the same arm.

use crate::Scale;

/// The root mean square difference of two averages of `repeats` runs of one arm, as a change to report ([`Scale::tell`]).
/// It is derived from the differences between runs of the same arm in neighbouring blocks. `arms` are values from
/// [`Scale::enter`], in the order of blocks.
///
/// Neighbours are compared so that a drift over the whole study does not count as noise (von Neumann and others, "The Mean
/// Square Successive Difference", Annals of Mathematical Statistics 12, 1941). `None` without two neighbours.
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
        // Neighbours differ by 2: the variance is 2, that of a mean of four is 0.5, and that of the difference of two means
        // is 1.
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
