//! How sure a figure is that was made of samples.

use serde::Serialize;

/// The 97.5 % quantile of the normal distribution: 95 % lie within so many standard deviations.
const NORMAL: f64 = 1.959_963_985;

/// A figure, and the 95 % interval around it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The figure itself.
    pub value: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// The same in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, value: self.value * factor, high: self.high * factor }
    }
}

/// Of a number of samples that come independently of each other: Byar's approximation of the exact interval of a Poisson
/// count (Breslow and Day, "Statistical methods in cancer research", volume II, 1987, equation 2.13).
#[must_use]
pub fn of_count(samples: u64) -> Interval {
    let value = samples as f64;
    let cube = |count: f64, sign: f64| {
        let root = 1.0 - 1.0 / (9.0 * count) + sign * NORMAL / (3.0 * count.sqrt());
        count * root.max(0.0).powi(3)
    };
    let low = if samples == 0 { 0.0 } else { cube(value, -1.0) };
    Interval { low, value, high: cube(value + 1.0, 1.0) }
}

/// Of `part` samples among `all`, as a share between 0 and 1: Wilson's score interval (JASA 22, 1927). `None` without
/// samples.
#[must_use]
pub fn of_share(part: u64, all: u64) -> Option<Interval> {
    if all == 0 {
        return None;
    }
    let (part, all) = (part.min(all) as f64, all as f64);
    let share = part / all;
    let square = NORMAL * NORMAL;
    let scale = 1.0 + square / all;
    let centre = (share + square / (2.0 * all)) / scale;
    let half = NORMAL * (share * (1.0 - share) / all + square / (4.0 * all * all)).sqrt() / scale;
    Some(Interval {
        low: (centre - half).clamp(0.0, share),
        value: share,
        high: (centre + half).clamp(share, 1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(found: f64, expected: f64, by: f64) -> bool {
        (found - expected).abs() < by
    }

    #[test]
    fn ends_agree_with_published_tables() {
        // Exact Poisson limits: Pearson and Hartley, "Biometrika tables for statisticians", table 40.
        for (count, low, high) in [(0, 0.0, 3.69), (1, 0.025, 5.57), (10, 4.80, 18.39), (50, 37.11, 65.92)] {
            let found = of_count(count);
            assert!(near(found.low, low, 0.03) && near(found.high, high, 0.07), "{count}: {found:?}");
        }
        // 10 of 100 by Wilson's own formula.
        let found = of_share(10, 100).unwrap();
        assert!(near(found.low, 0.0552, 1e-3) && near(found.high, 0.1744, 1e-3), "{found:?}");
        assert_eq!(of_share(0, 0), None);
    }

    proptest! {
        #[test]
        fn the_figure_is_in_its_interval(part in any::<u64>(), all in any::<u64>()) {
            let count = of_count(part);
            prop_assert!(count.low <= count.value && count.value <= count.high);
            if let Some(share) = of_share(part, all) {
                prop_assert!(0.0 <= share.low && share.low <= share.value);
                prop_assert!(share.value <= share.high && share.high <= 1.0);
            }
        }
    }
}
