//! Exits by reason.

use crate::ExitReason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Exits by reason, and the number of exits that the recorder dropped.
///
/// All sums saturate: a count above `u64::MAX` stays there instead of wrapping to a small number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitCounts {
    /// Exits seen, by reason. A reason that was never seen has no entry.
    counts: BTreeMap<ExitReason, u64>,
    /// Exits (or records that may have been exits) that the recorder lost; not included in `counts`.
    pub lost: u64,
}

impl ExitCounts {
    /// No exits, none lost.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `count` exits of `reason`; zero adds nothing, not even an entry.
    pub fn add(&mut self, reason: ExitReason, count: u64) {
        if count > 0 {
            let entry = self.counts.entry(reason).or_default();
            *entry = entry.saturating_add(count);
        }
    }

    /// Adds another recording to this one, lost records included. Commutative and associative.
    pub fn merge(&mut self, other: &Self) {
        for (&reason, &count) in &other.counts {
            self.add(reason, count);
        }
        self.lost = self.lost.saturating_add(other.lost);
    }

    /// Exits of one reason.
    #[must_use]
    pub fn get(&self, reason: ExitReason) -> u64 {
        self.counts.get(&reason).copied().unwrap_or(0)
    }

    /// All exits seen, without lost ones.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Tests whether no exit was seen (some may be lost).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Reasons and counts ordered by reason.
    pub fn by_reason(&self) -> impl Iterator<Item = (ExitReason, u64)> {
        self.counts.iter().map(|(&reason, &count)| (reason, count))
    }

    /// Reasons and counts, most frequent first; equal counts are ordered by reason.
    pub fn iter(&self) -> impl Iterator<Item = (ExitReason, u64)> {
        let mut all: Vec<_> = self.by_reason().collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        all.into_iter()
    }
}

impl Extend<(ExitReason, u64)> for ExitCounts {
    fn extend<T: IntoIterator<Item = (ExitReason, u64)>>(&mut self, pairs: T) {
        for (reason, count) in pairs {
            self.add(reason, count);
        }
    }
}

impl FromIterator<(ExitReason, u64)> for ExitCounts {
    fn from_iter<T: IntoIterator<Item = (ExitReason, u64)>>(pairs: T) -> Self {
        let mut counts = Self::new();
        counts.extend(pairs);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HLT: ExitReason = ExitReason::vmx(12);
    const WRMSR: ExitReason = ExitReason::vmx(32);

    #[test]
    fn most_frequent_first_and_ties_by_reason() {
        let counts: ExitCounts = [(WRMSR, 2), (HLT, 2), (ExitReason::vmx(1), 9)].into_iter().collect();
        let order: Vec<_> = counts.iter().map(|(reason, _)| reason.code).collect();
        assert_eq!(order, [1, 12, 32]);
        assert_eq!(counts.total(), 13);
    }

    #[test]
    fn zero_leaves_no_entry() {
        let mut counts = ExitCounts::new();
        counts.add(HLT, 0);
        assert!(counts.is_empty());
        assert_eq!(counts.get(HLT), 0);
    }

    #[test]
    fn json_names_the_reasons() {
        let mut counts: ExitCounts = [(HLT, 3), (ExitReason::svm(0x3ff), 1)].into_iter().collect();
        counts.lost = 7;
        let json = serde_json::to_string(&counts).unwrap();
        assert_eq!(json, r#"{"counts":{"HLT":3,"svm:0x3ff":1},"lost":7}"#);
        assert_eq!(serde_json::from_str::<ExitCounts>(&json).unwrap(), counts);
    }

    fn any_counts() -> impl Strategy<Value = ExitCounts> {
        let pairs = proptest::collection::vec((any::<bool>(), 0..8u32, any::<u64>()), 0..8);
        (pairs, any::<u64>()).prop_map(|(pairs, lost)| {
            let reason = |vmx, code| if vmx { ExitReason::vmx(code) } else { ExitReason::svm(code) };
            let mut counts: ExitCounts =
                pairs.into_iter().map(|(vmx, code, count)| (reason(vmx, code), count)).collect();
            counts.lost = lost;
            counts
        })
    }

    fn merged(a: &ExitCounts, b: &ExitCounts) -> ExitCounts {
        let mut sum = a.clone();
        sum.merge(b);
        sum
    }

    proptest! {
        #[test]
        fn merge_is_commutative(a in any_counts(), b in any_counts()) {
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        }

        #[test]
        fn merge_is_associative(a in any_counts(), b in any_counts(), c in any_counts()) {
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        }

        #[test]
        fn nothing_is_the_neutral_element(a in any_counts()) {
            prop_assert_eq!(merged(&a, &ExitCounts::new()), a);
        }
    }
}
