//! Intervals for counts of exits that come independently of each other, or nearly so.

use statrs::function::beta::checked_beta_reg;

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
pub(super) fn log_ratio(before: f64, after: f64) -> LogInterval {
    if before >= MANY && after >= MANY {
        let half = super::interval::NORMAL * (1.0 / before + 1.0 / after).sqrt();
        let centre = (after / before).ln();
        return LogInterval { low: centre - half, high: centre + half };
    }
    LogInterval { low: low(before, after), high: -low(after, before) }
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
    }
}
