//! The three gates that a difference has to pass, as in Firecracker's A/B tests.

use serde::Serialize;

use super::finding::Finding;
use crate::Unit;
use stats::{Contrast, LEVEL, Scale};

/// The gates that a difference has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gates {
    /// The p value must be below this, and the interval must exclude 0.
    pub level: f64,
    /// The smallest relative change, in percent.
    pub strength_percent: f64,
    /// The smallest change of a percentage, in percentage points.
    pub strength_points: f64,
    /// The change must exceed this multiple of the noise floor.
    pub noise_factor: f64,
}

impl Default for Gates {
    fn default() -> Self {
        Self { level: LEVEL, strength_percent: 1.0, strength_points: 0.25, noise_factor: 1.0 }
    }
}

impl Gates {
    /// Judges `change`. `means` are the means of both arms in the figure's unit, for figures whose strength is judged
    /// relative to them although the change is a difference; `noise` is on the scale of the change.
    pub(super) fn judge(
        &self,
        change: Option<Contrast>,
        unit: Unit,
        means: [f64; 2],
        noise: Option<f64>,
    ) -> Finding {
        let Some(change) = change.filter(|change| change.p_value.is_some()) else {
            return Finding::TooFew;
        };
        if !change.is_seen(self.level) {
            return Finding::NotSeen;
        }
        let strength = match (change.scale, unit) {
            (Scale::Ratio, _) => self.strength_percent,
            (Scale::Difference, Unit::Percent) => self.strength_points,
            (Scale::Difference, _) => means[0].abs().max(means[1].abs()) * self.strength_percent / 100.0,
        };
        let size = |told: f64| change.scale.size(told);
        let is_noise = |noise: f64| size(change.estimate) <= size(noise) * self.noise_factor;
        if size(change.estimate) < size(strength) || noise.is_some_and(is_noise) {
            Finding::Small
        } else if change.estimate > 0.0 {
            Finding::Raised
        } else {
            Finding::Lowered
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::contrast::paired;
    use stats::{Interval, Test, noise};

    fn change(scale: Scale, estimate: f64, p_value: Option<f64>) -> Option<Contrast> {
        let test = p_value.map(|_| Test::Student);
        let interval = p_value.and_then(|_| Interval::around(estimate, estimate.abs() / 2.0));
        Some(Contrast { scale, estimate, interval, p_value, test, repeats: 4, is_paired: true })
    }

    /// The finding for these blocks, each with the values of the baseline and of the arm.
    fn of_blocks(blocks: &[[f64; 2]]) -> Finding {
        let entered = |side: usize| blocks.iter().map(|block| block[side].ln()).collect::<Vec<_>>();
        let [baseline, arm] = [0, 1].map(entered);
        let steps: Vec<f64> = arm.iter().zip(&baseline).map(|(arm, baseline)| arm - baseline).collect();
        let noise = noise::floor([&baseline, &arm], blocks.len(), Scale::Ratio);
        judged(paired(&steps, Scale::Ratio, 1), Unit::BytesPerSecond, noise)
    }

    fn judged(change: Option<Contrast>, unit: Unit, noise: Option<f64>) -> Finding {
        Gates::default().judge(change, unit, [200.0, 100.0], noise)
    }

    #[test]
    fn each_gate_closes_by_itself() {
        let rate = Unit::BytesPerSecond;
        assert_eq!(judged(change(Scale::Ratio, 2.0, Some(0.01)), rate, Some(0.5)), Finding::Raised);
        assert_eq!(judged(change(Scale::Ratio, -2.0, Some(0.01)), rate, None), Finding::Lowered);
        assert_eq!(judged(change(Scale::Ratio, 2.0, Some(0.05)), rate, Some(0.5)), Finding::NotSeen);
        assert_eq!(judged(change(Scale::Ratio, 0.9, Some(0.01)), rate, Some(0.5)), Finding::Small);
        assert_eq!(judged(change(Scale::Ratio, 2.0, Some(0.01)), rate, Some(2.5)), Finding::Small);
        assert_eq!(judged(change(Scale::Ratio, 2.0, None), rate, None), Finding::TooFew);
        assert_eq!(judged(None, rate, None), Finding::TooFew);
    }

    #[test]
    fn strength_has_the_unit_of_the_change() {
        assert_eq!(judged(change(Scale::Difference, 0.3, Some(0.01)), Unit::Percent, None), Finding::Raised);
        assert_eq!(judged(change(Scale::Difference, 0.2, Some(0.01)), Unit::Percent, None), Finding::Small);
        // The threshold is one percent of 200.
        assert_eq!(judged(change(Scale::Difference, 1.9, Some(0.01)), Unit::Count, None), Finding::Small);
        assert_eq!(judged(change(Scale::Difference, 2.1, Some(0.01)), Unit::Count, None), Finding::Raised);
    }

    #[test]
    fn a_difference_needs_the_p_value_and_the_interval() {
        // With one outlier in six blocks p is 2/64, but the interval includes 0.
        let far_off = [1.01, 1.01, 1.01, 1.01, 1.01, 2.0].map(|factor| [100.0, 100.0 * factor]);
        assert_eq!(of_blocks(&far_off), Finding::NotSeen);
        // With one block of six in the other direction the interval excludes 0, but p is 4/64.
        let other_way = [0.02, 0.02, 0.02, 0.02, 0.02, -0.001].map(|step: f64| [100.0, 100.0 * step.exp()]);
        assert_eq!(of_blocks(&other_way), Finding::NotSeen);
        assert_eq!(of_blocks(&[[100.0, 102.0]; 6]), Finding::Raised);
    }

    #[test]
    fn arms_that_change_places_change_the_direction_alone() {
        // The change is 0.51 as a logarithm, above the noise floor of 0.45; as a percentage it is -40, below the floor
        // of 57.
        let both = |factor: f64| {
            let blocks = [100.0, 300.0, 100.0, 300.0, 100.0, 300.0].map(|value| [value, value * factor]);
            [of_blocks(&blocks), of_blocks(&blocks.map(|[baseline, arm]| [arm, baseline]))]
        };
        assert_eq!(both(0.6), [Finding::Lowered, Finding::Raised]);
        assert_eq!(both(0.7), [Finding::Small; 2]);
    }
}
