//! The three gates that a difference has to pass, as in Firecracker's A/B tests.

use serde::{Deserialize, Serialize};

use super::finding::Finding;
use crate::Unit;
use stats::{Contrast, LEVEL, Scale};

/// The gates that a difference has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gates {
    /// The p value is below this.
    pub level: f64,
    /// A relative change has at least this size in percent.
    pub strength_percent: f64,
    /// A change of a percentage has at least this size in percentage points.
    pub strength_points: f64,
    /// The change is larger than the noise floor by this factor.
    pub noise_factor: f64,
}

impl Default for Gates {
    fn default() -> Self {
        Self { level: LEVEL, strength_percent: 1.0, strength_points: 0.25, noise_factor: 1.0 }
    }
}

impl Gates {
    /// Judges `change`. `means` are those of both arms in the figure's unit, for figures whose strength is
    /// relative although their change is not; `noise` is on the scale of the change.
    pub(super) fn judge(
        &self,
        change: Option<Contrast>,
        unit: Unit,
        means: [f64; 2],
        noise: Option<f64>,
    ) -> Finding {
        let Some((change, p_value)) = change.and_then(|change| Some((change, change.p_value?))) else {
            return Finding::TooFew;
        };
        if p_value >= self.level {
            return Finding::NotSeen;
        }
        let strength = match (change.scale, unit) {
            (Scale::Ratio, _) => self.strength_percent,
            (Scale::Difference, Unit::Percent) => self.strength_points,
            (Scale::Difference, _) => means[0].abs().max(means[1].abs()) * self.strength_percent / 100.0,
        };
        let size = change.estimate.abs();
        if size < strength || noise.is_some_and(|noise| size <= noise * self.noise_factor) {
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
    use stats::Test;

    fn change(scale: Scale, estimate: f64, p_value: Option<f64>) -> Option<Contrast> {
        let test = p_value.map(|_| Test::Student);
        Some(Contrast { scale, estimate, interval: None, p_value, test, repeats: 4, is_paired: true })
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
        // One percent of 200.
        assert_eq!(judged(change(Scale::Difference, 1.9, Some(0.01)), Unit::Count, None), Finding::Small);
        assert_eq!(judged(change(Scale::Difference, 2.1, Some(0.01)), Unit::Count, None), Finding::Raised);
    }
}
