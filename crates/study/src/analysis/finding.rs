//! The finding of a comparison, and the source of a figure.

use serde::Serialize;

use crate::Better;

/// The source of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Measured by the workload.
    Workload,
    /// Sampled on the host.
    Host,
}

/// The finding of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// All gates are passed: the arm's value is higher.
    Raised,
    /// All gates are passed: the arm's value is lower.
    Lowered,
    /// A significant difference that is too small to matter, or is within the scatter of the repeats.
    Small,
    /// No significant difference; the interval bounds the possible difference.
    NotSeen,
    /// Fewer than three repeats.
    TooFew,
}

impl Finding {
    /// Tests whether all gates are passed.
    pub fn is_found(self) -> bool {
        matches!(self, Self::Raised | Self::Lowered)
    }

    /// Tests whether the finding is an improvement; `None` if there is no difference, or no better direction.
    pub fn is_good(self, better: Better) -> Option<bool> {
        match (self, better) {
            (Self::Raised, Better::Higher) | (Self::Lowered, Better::Lower) => Some(true),
            (Self::Raised, Better::Lower) | (Self::Lowered, Better::Higher) => Some(false),
            _ => None,
        }
    }
}
