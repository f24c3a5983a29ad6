//! Corrections for many tests at once, some of which have small p values by chance.

/// The p values with Holm's correction ("A simple sequentially rejective multiple test procedure", Scandinavian Journal of
/// Statistics 6, 1979), in the order given. The probability of any false alarm is at most the level to which they are
/// compared.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, &at) in order.iter().enumerate() {
        largest = largest.max(p_values[at] * (p_values.len() - rank) as f64).min(1.0);
        adjusted[at] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_r() {
        // p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm")
        let adjusted = holm(&[0.01, 0.02, 0.03, 0.04, 0.05]);
        for (found, expected) in adjusted.iter().zip([0.05, 0.08, 0.09, 0.09, 0.09]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
        // In another order, and limited to 1.
        assert_eq!(holm(&[0.6, 0.001, 0.7]), [1.0, 0.003, 1.0]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }
}
