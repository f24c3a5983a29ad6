//! The change of a figure.

use serde::{Deserialize, Serialize};

/// The change of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelativeChange {
    /// Relative to the first figure, in percent: -100 is "gone", 100 is "doubled".
    Percent(f64),
    /// From zero to a positive figure, which has no percentage.
    FromNothing,
    /// Zero before and after.
    StillNothing,
}

impl RelativeChange {
    /// The change from `before` to `after`; both are finite and not negative.
    #[must_use]
    pub fn between(before: f64, after: f64) -> Self {
        match (before > 0.0, after > 0.0) {
            (true, _) => Self::Percent((after - before) / before * 100.0),
            (false, true) => Self::FromNothing,
            (false, false) => Self::StillNothing,
        }
    }

    /// The percentage, if defined.
    #[must_use]
    pub fn percent(self) -> Option<f64> {
        match self {
            Self::Percent(percent) => Some(percent),
            Self::FromNothing | Self::StillNothing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_from_nothing_has_no_percentage() {
        assert_eq!(RelativeChange::between(2.0, 3.0), RelativeChange::Percent(50.0));
        assert_eq!(RelativeChange::between(2.0, 0.0).percent(), Some(-100.0));
        assert_eq!(RelativeChange::between(0.0, 3.0), RelativeChange::FromNothing);
        assert_eq!(RelativeChange::between(0.0, 0.0), RelativeChange::StillNothing);
        assert_eq!(RelativeChange::FromNothing.percent(), None);
    }
}
