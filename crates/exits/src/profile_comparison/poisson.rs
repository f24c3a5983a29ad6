//! How sure counts are of events that come independently of each other, or nearly so.

use std::f64::consts::SQRT_2;

use statrs::function::beta::checked_beta_reg;
use statrs::function::erf::erfc;

use super::interval::{LogInterval, TAIL};

/// From so many counts on each side on, a normal distribution does as well as the exact one, to three digits.
const MANY: f64 = 1000.0;
/// Halvings of a range of 160 natural logarithms: beyond these a double has no finer steps.
const HALVINGS: u32 = 64;
const WIDEST: f64 = 80.0;

/// The 95 % interval of ln(after / before), as if both counts had been taken over the same time.
///
/// Given the sum of two Poisson counts, the second is binomial with odds that are the ratio of the rates
/// (Przyborowski and Wilenski, "Homogeneity of results in testing samples from Poisson series", Biometrika 31,
/// 1940); the ends are those of Clopper and Pearson, Biometrika 26, 1934. Counts need not be whole: divided by
/// their dispersion they are the number of independent counts that say as much. A count of zero leaves one end
/// open. Both zero: both are.
#[must_use]
pub fn log_ratio(before: f64, after: f64) -> LogInterval {
    if before >= MANY && after >= MANY {
        let half = super::interval::NORMAL * (1.0 / before + 1.0 / after).sqrt();
        let centre = (after / before).ln();
        return LogInterval { low: centre - half, high: centre + half };
    }
    LogInterval { low: low(before, after), high: -low(after, before) }
}

/// How often counts that are as far apart as these, or further, come from one and the same rate: twice the smaller tail of
/// the binomial distribution of [`log_ratio`]. `longer` is ln of how many times longer the second was counted.
#[must_use]
pub fn p_value(before: f64, after: f64, longer: f64) -> f64 {
    if before >= MANY && after >= MANY {
        let error = (1.0 / before + 1.0 / after).sqrt();
        return erfc((((after / before).ln() - longer) / error).abs() / SQRT_2);
    }
    // As many as this count, or more.
    let tail = |count: f64, other: f64, log_odds: f64| {
        if count <= 0.0 { 1.0 } else { cumulative(count, other + 1.0, log_odds) }
    };
    (2.0 * tail(after, before, longer).min(tail(before, after, -longer))).min(1.0)
}

/// The lower end: the odds of a binomial whose upper tail at `after` is [`TAIL`].
fn low(before: f64, after: f64) -> f64 {
    if after <= 0.0 {
        return f64::NEG_INFINITY;
    }
    log_odds_below(after, before + 1.0, TAIL)
}

/// ln(x / (1 - x)) of the `tail` quantile x of the beta distribution with shapes `a` and `b`.
fn log_odds_below(a: f64, b: f64, tail: f64) -> f64 {
    let (mut low, mut high) = (-WIDEST, WIDEST);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if cumulative(a, b, middle) < tail { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The share of the beta distribution below the x of these log odds, from the side that loses no digits.
fn cumulative(a: f64, b: f64, log_odds: f64) -> f64 {
    let smaller = 1.0 / (1.0 + log_odds.abs().exp());
    let share = |a, b| checked_beta_reg(a, b, smaller).unwrap_or(f64::NAN);
    if log_odds < 0.0 { share(a, b) } else { 1.0 - share(b, a) }
}

/// So many exits may have been missed by chance where none was seen: with 95 % certainty not more. The rule of
/// three (Hanley and Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249, 1983), for
/// exits that come `dispersion` at a time.
pub(super) fn upper_bound_of_none(dispersion: f64) -> f64 {
    -0.05_f64.ln() * dispersion
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ends_agree_with_scipy() {
        // log(p / (1 - p)) of p = scipy.stats.beta.ppf(0.025, after, before + 1); the other end with the sides exchanged
        let cases = [
            (10.0, 20.0, -0.112_599, 1.565_392),
            (5.0, 0.0, f64::NEG_INFINITY, 0.087_350),
            (3.5, 7.25, -0.674_987, 2.368_482),
            (12.0, 1_000_000.0, 10.772_815, 11.990_871),
            (900.0, 800.0, -0.214_274, -0.021_430),
        ];
        for (before, after, low, high) in cases {
            let found = log_ratio(before, after);
            let near = |found: f64, expected: f64| found == expected || (found - expected).abs() < 1e-5;
            assert!(near(found.low, low) && near(found.high, high), "{before} {after}: {found:?}");
        }
    }

    #[test]
    fn p_values_agree_with_r() {
        // poisson.test and 2 * min(pbinom(after, n, t), pbinom(after - 1, n, t, lower.tail = FALSE)), t = 1/2 and 2/3
        let cases = [
            (3.0, 0.0, 0.0, 0.25),
            (6.0, 0.0, 0.0, 0.031_25),
            (0.0, 10.0, 0.0, 2.0 * 0.5_f64.powi(10)),
            (5.0, 5.0, 0.0, 1.0),
            (0.0, 0.0, 0.0, 1.0),
            (10.0, 0.0, 2.0_f64.ln(), 2.0 * 3.0_f64.powi(-10)),
        ];
        for (before, after, longer, expected) in cases {
            let found = p_value(before, after, longer);
            assert!((found - expected).abs() < 1e-9, "{before} {after}: {found} instead of {expected}");
        }
    }

    #[test]
    fn the_exact_and_the_normal_interval_meet() {
        let (exact, normal) = (log_ratio(MANY - 1.0, 2.0 * MANY), log_ratio(MANY, 2.0 * MANY));
        // A thousandth is the count that they differ by.
        assert!((exact.low - normal.low).abs() < 3e-3 && (exact.high - normal.high).abs() < 3e-3);
    }

    #[test]
    fn nothing_on_both_sides_says_nothing() {
        assert_eq!(log_ratio(0.0, 0.0), LogInterval { low: f64::NEG_INFINITY, high: f64::INFINITY });
    }

    proptest! {
        #[test]
        fn exchanging_the_sides_exchanges_the_ends(before in 0.0..5000.0_f64, after in 0.0..5000.0_f64) {
            let (there, back) = (log_ratio(before, after), log_ratio(after, before));
            prop_assert!(there.low == -back.high || (there.low + back.high).abs() < 1e-9);
            prop_assert!(there.low <= there.high);
        }

        #[test]
        fn what_the_interval_leaves_out_has_a_small_p_value(
            before in 0.0..3000.0_f64, after in 0.0..3000.0_f64, longer in -2.0..2.0_f64,
        ) {
            let interval = log_ratio(before, after);
            let p_value = p_value(before, after, longer);
            prop_assert!((0.0..=1.0).contains(&p_value));
            let near = (longer - interval.low).abs().min((longer - interval.high).abs()) < 1e-2;
            let is_left_out = longer < interval.low || longer > interval.high;
            prop_assert!(near || is_left_out == (p_value < 1.0 - super::super::interval::CONFIDENCE), "{}", p_value);
        }
    }
}
