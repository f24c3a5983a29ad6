//! Intervals and tests of counts of independent, or nearly independent, events.

use statrs::function::beta::checked_beta_reg;

use crate::normal::{self, QUANTILE};
use crate::{Estimate, Interval, TAIL};

/// The count on each side from which the normal distribution replaces the exact one. They agree to three digits there.
const MANY: f64 = 1000.0;
/// The number of bisections of a range of 160 (from -80 to 80), after which a double has no finer steps.
const HALVINGS: u32 = 64;
const WIDEST: f64 = 80.0;

/// The 95 % interval of ln(after / before), as if both counts had been taken over the same time.
///
/// Given the sum of two Poisson counts, the second is binomial with odds that are the ratio of the rates
/// (Przyborowski and Wilenski, "Homogeneity of results in testing samples from Poisson series", Biometrika 31,
/// 1940); the ends are those of Clopper and Pearson, Biometrika 26, 1934. Counts may be fractional: a count divided by its
/// dispersion is the equivalent number of independent events. If a count is zero, one end is open; if both are, both ends.
///
/// It contains the true value in more than 95 of 100 cases if the counts are small (`tests/coverage.rs`): in all for 1
/// event a side, in 99 for 3, in 97 for 10, in 95 from 100 on.
#[must_use]
pub fn log_ratio(before: f64, after: f64) -> Interval {
    if before >= MANY && after >= MANY {
        let half = QUANTILE * (1.0 / before + 1.0 / after).sqrt();
        let centre = (after / before).ln();
        return Interval { low: centre - half, high: centre + half };
    }
    Interval { low: low(before, after), high: -low(after, before) }
}

/// The interval of the change of a rate in percent, from the numbers of events before and after alone, each counted `over`
/// a number of seconds or operations. `None` if that number is 0 on a side, or if there are no events at all.
#[must_use]
pub fn rate_change(events: [u64; 2], over: [u64; 2]) -> Option<Interval> {
    let [before, after] = events.map(|events| events as f64);
    let longer = (over[0] as f64 / over[1] as f64).ln();
    (events != [0, 0] && longer.is_finite()).then_some(())?;
    log_ratio(before, after).moved(longer).percent()
}

/// The estimate of a Poisson mean from one count: Byar's approximation of the exact interval (Breslow and Day, "Statistical
/// methods in cancer research", volume II, 1987, equation 2.13).
///
/// Counts are whole numbers, so the tails are rarely exactly 2.5 %, and the interval of a small mean contains it more
/// often: in 99 of 100 cases for 0.5 and 3 events, in 98 for 10, in 96 for 100 (`tests/coverage.rs`).
#[must_use]
pub fn count(events: u64) -> Estimate {
    let value = events as f64;
    let cube = |count: f64, sign: f64| {
        let root = 1.0 - 1.0 / (9.0 * count) + sign * QUANTILE / (3.0 * count.sqrt());
        count * root.max(0.0).powi(3)
    };
    let low = if events == 0 { 0.0 } else { cube(value, -1.0) };
    Estimate { low, value, high: cube(value + 1.0, 1.0) }
}

/// The dispersion of the counts of a recording's parts: Pearson's chi-squared divided by its degrees of freedom, which is
/// about 1 for independent events. Parts that were observed for less than half as long as the longest are left out. `None`
/// without events.
#[must_use]
pub fn dispersion(counts: &[f64], observed: &[f64]) -> Option<f64> {
    let longest = observed.iter().copied().fold(0.0, f64::max);
    let parts = || counts.iter().zip(observed).filter(|&(_, &observed)| 2.0 * observed >= longest);
    let rate = parts().map(|part| part.0).sum::<f64>() / parts().map(|part| part.1).sum::<f64>();
    if !(rate > 0.0 && rate.is_finite()) {
        return None;
    }
    let chi_squared: f64 =
        parts().map(|(count, observed)| (count - rate * observed).powi(2) / (rate * observed)).sum();
    Some(chi_squared / (parts().count().max(2) - 1) as f64)
}

/// The two-sided p value for "both counts have the same rate": twice the smaller tail of the binomial distribution of
/// [`log_ratio`]. `longer` is the logarithm of the ratio of the counting times, after to before.
#[must_use]
pub fn p_value(before: f64, after: f64, longer: f64) -> f64 {
    if before >= MANY && after >= MANY {
        let error = (1.0 / before + 1.0 / after).sqrt();
        return normal::p_value(((after / before).ln() - longer) / error);
    }
    // The probability of this count or a larger one.
    let tail = |count: f64, other: f64, log_odds: f64| {
        if count <= 0.0 { 1.0 } else { cumulative(count, other + 1.0, log_odds) }
    };
    (2.0 * tail(after, before, longer).min(tail(before, after, -longer))).min(1.0)
}

/// The lower end: the log odds of the binomial distribution whose upper tail at `after` is [`TAIL`].
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

/// The cumulative beta distribution at the x with these log odds, computed from the side that does not lose digits.
fn cumulative(a: f64, b: f64, log_odds: f64) -> f64 {
    let smaller = 1.0 / (1.0 + log_odds.abs().exp());
    let share = |a, b| checked_beta_reg(a, b, smaller).unwrap_or(f64::NAN);
    if log_odds < 0.0 { share(a, b) } else { 1.0 - share(b, a) }
}

/// The 95 % upper bound of the expected number of events if none was seen: the rule of three (Hanley and Lippman-Hand, "If
/// nothing goes wrong, is everything all right?", JAMA 249, 1983), for events that come `dispersion` at a time.
#[must_use]
pub fn upper_bound_of_none(dispersion: f64) -> f64 {
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
        // The counts of the two differ by a thousandth.
        assert!((exact.low - normal.low).abs() < 3e-3 && (exact.high - normal.high).abs() < 3e-3);
    }

    #[test]
    fn nothing_on_both_sides_says_nothing() {
        assert_eq!(log_ratio(0.0, 0.0), Interval { low: f64::NEG_INFINITY, high: f64::INFINITY });
    }

    #[test]
    fn counts_change_by_their_number() {
        let gone = rate_change([2004, 0], [1000, 2000]).unwrap();
        assert!(gone.low == -100.0 && gone.high < -99.8, "{gone:?}");
        let new = rate_change([0, 10], [100, 100]).unwrap();
        assert!(new.low > 0.0 && new.high == f64::INFINITY, "{new:?}");
        assert!(rate_change([3, 0], [100, 100]).unwrap().holds_zero());
        assert_eq!(rate_change([0, 0], [100, 100]), None);
        assert_eq!(rate_change([5, 5], [100, 0]), None);
    }

    #[test]
    fn limits_of_a_count_agree_with_published_tables() {
        // Exact limits: Pearson and Hartley, "Biometrika tables for statisticians", table 40.
        for (events, low, high) in [(0, 0.0, 3.69), (1, 0.025, 5.57), (10, 4.80, 18.39), (50, 37.11, 65.92)] {
            let found = count(events);
            assert!(
                (found.low - low).abs() < 0.03 && (found.high - high).abs() < 0.07,
                "{events}: {found:?}"
            );
        }
    }

    #[test]
    fn clumps_are_found() {
        let observed = vec![1.0; 100];
        let even = vec![2.0; 100];
        let clumps: Vec<f64> = (0..100).map(|part| if part == 55 { 200.0 } else { 0.0 }).collect();
        assert_eq!(dispersion(&even, &observed), Some(0.0));
        assert!(dispersion(&clumps, &observed).unwrap() > 100.0);
        assert_eq!(dispersion(&[0.0; 100], &observed), None);
        // One event in the tiny last part of a recording is not a clump.
        let (mut even, mut observed) = (even, observed);
        even.push(1.0);
        observed.push(1e-6);
        assert_eq!(dispersion(&even, &observed), Some(0.0));
    }

    proptest! {
        #[test]
        fn a_count_is_in_its_interval(events in any::<u64>()) {
            let found = count(events);
            prop_assert!(found.low <= found.value && found.value <= found.high);
        }

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
            prop_assert!(near || is_left_out == (p_value < 1.0 - crate::CONFIDENCE), "{}", p_value);
        }
    }
}
