//! Two recordings side by side.

use exits::{ExitCounts, ExitReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The exits.
    pub counts: ExitCounts,
    /// Operations of the workload in the same time (requests, IPIs, ...); `None` if not counted.
    pub operations: Option<u64>,
}

impl Side {
    fn figure(&self, count: u64, per_operation: bool) -> f64 {
        // Exact up to 2^53, far above the number of exits of any host.
        let count = count as f64;
        match self.operations {
            Some(operations) if per_operation => count / operations as f64,
            _ => count,
        }
    }
}

/// One reason in both recordings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The reason.
    pub reason: ExitReason,
    /// Exits before: a count, or exits per operation if [`Comparison::per_operation`].
    pub before: f64,
    /// Exits after, in the same unit.
    pub after: f64,
    /// The change from `before` to `after`.
    pub change: RelativeChange,
}

/// Two recordings, reason by reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    before: Side,
    after: Side,
}

impl Comparison {
    /// Compares `after` against `before`.
    #[must_use]
    pub fn new(before: Side, after: Side) -> Self {
        Self { before, after }
    }

    /// Tests whether figures are exits per operation: both sides have at least one operation.
    #[must_use]
    pub fn per_operation(&self) -> bool {
        [&self.before, &self.after].iter().all(|side| side.operations.is_some_and(|count| count > 0))
    }

    /// Every reason of either side, largest absolute difference first.
    #[must_use]
    pub fn differences(&self) -> Vec<Difference> {
        let sides = [&self.before, &self.after];
        let reasons: BTreeSet<_> =
            sides.iter().flat_map(|side| side.counts.by_reason()).map(|(reason, _)| reason).collect();
        let mut rows: Vec<_> = reasons
            .into_iter()
            .map(|reason| {
                let [before, after] =
                    sides.map(|side| side.figure(side.counts.get(reason), self.per_operation()));
                Difference { reason, before, after, change: RelativeChange::between(before, after) }
            })
            .collect();
        let size = |row: &Difference| (row.after - row.before).abs();
        rows.sort_by(|a, b| size(b).total_cmp(&size(a)).then(a.reason.cmp(&b.reason)));
        rows
    }

    /// All exits together: before, after and the change, in the unit of [`Self::differences`].
    #[must_use]
    pub fn total(&self) -> (f64, f64, RelativeChange) {
        let [before, after] =
            [&self.before, &self.after].map(|side| side.figure(side.counts.total(), self.per_operation()));
        (before, after, RelativeChange::between(before, after))
    }

    /// Records lost before and after: with losses, counts are lower bounds.
    #[must_use]
    pub fn lost(&self) -> (u64, u64) {
        (self.before.counts.lost, self.after.counts.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(pairs: &[(u32, u64)], operations: Option<u64>) -> Side {
        let counts = pairs.iter().map(|&(code, count)| (ExitReason::vmx(code), count)).collect();
        Side { counts, operations }
    }

    #[test]
    fn per_operation_when_both_counted() {
        let comparison =
            Comparison::new(side(&[(32, 4004), (7, 1996)], Some(2000)), side(&[(32, 1002)], Some(1000)));
        assert!(comparison.per_operation());
        let rows = comparison.differences();
        assert_eq!(rows[0].reason, ExitReason::vmx(32));
        assert!((rows[0].before - 2.002).abs() < 1e-12 && (rows[0].after - 1.002).abs() < 1e-12);
        assert_eq!(rows[1].change, RelativeChange::Percent(-100.0));
    }

    #[test]
    fn counts_when_operations_are_missing_or_zero() {
        let one = Comparison::new(side(&[(12, 10)], Some(5)), side(&[(12, 15), (10, 1)], None));
        assert!(!one.per_operation());
        assert_eq!(one.total(), (10.0, 16.0, RelativeChange::Percent(60.0)));
        assert_eq!(one.differences()[1].change, RelativeChange::FromNothing);
        let zero = Comparison::new(side(&[(12, 10)], Some(0)), side(&[(12, 10)], Some(2)));
        assert!(!zero.per_operation());
        assert_eq!(zero.differences()[0].change.percent(), Some(0.0));
    }

    #[test]
    fn nothing_compares_to_nothing() {
        let none = Comparison::new(side(&[], None), side(&[], None));
        assert!(none.differences().is_empty());
        assert_eq!(none.total().2, RelativeChange::StillNothing);
    }
}
