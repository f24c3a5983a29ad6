//! The state of a VM after a change of an inhibit reason.

use crate::inhibit::InhibitChange;
use exits::{Inhibit, InhibitNumbering, Inhibits};
use std::collections::{BTreeSet, HashMap};

/// The state of interrupt virtualization for a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InhibitState {
    /// No reason is in force.
    Active,
    /// At least one reason is in force.
    Inhibited {
        /// The reasons.
        by: Vec<Inhibit>,
        /// True if these are all reasons; before Linux 5.18, those that were set before the trace are not known.
        complete: bool,
    },
    /// No reason was seen that is still set, but there may be others (before Linux 5.18).
    Unknown,
}

/// A change with the state after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InhibitReport {
    /// The change that KVM reported.
    pub change: InhibitChange,
    /// The reason.
    pub reason: Inhibit,
    /// The state after the change.
    pub state: InhibitState,
    /// True if the set of reasons differs from before; `None` if that is not known, as for the first change of a VM.
    pub changed: Option<bool>,
}

/// More processes than there are VMs at the same time; beyond that, all states are forgotten.
const MOST: usize = 4096;

/// The state by process. The kernel's event does not distinguish the VMs of one process.
#[derive(Debug)]
pub(crate) struct States {
    numbering: InhibitNumbering,
    by_process: HashMap<i32, State>,
}

#[derive(Debug, Default)]
struct State {
    mask: Option<Inhibits>,
    set: BTreeSet<u32>,
}

impl States {
    pub(crate) fn new(numbering: InhibitNumbering) -> Self {
        Self { numbering, by_process: HashMap::new() }
    }

    /// The report on a change. Call it in order of time.
    pub(crate) fn report(&mut self, process: i32, change: InhibitChange) -> InhibitReport {
        if self.by_process.len() > MOST {
            self.by_process.clear();
        }
        let named = |number| change.reason.filter(|_| number == change.number).map(Inhibit::Named);
        let numbering = &self.numbering;
        let inhibit = |number: u32| {
            named(number)
                .or_else(|| numbering.reason(number).map(Inhibit::Named))
                .unwrap_or(Inhibit::Number(number))
        };
        let reason = inhibit(change.number);
        let former = self.by_process.entry(process).or_default();
        if change.set {
            former.set.insert(change.number);
        } else {
            former.set.remove(&change.number);
        }
        let (state, changed) = match change.mask {
            Some(mask) => {
                let changed = former.mask.replace(mask).map(|before| before != mask);
                let by: Vec<Inhibit> = mask.numbers().map(inhibit).collect();
                let state = if by.is_empty() {
                    InhibitState::Active
                } else {
                    InhibitState::Inhibited { by, complete: true }
                };
                (state, changed)
            }
            None if former.set.is_empty() => (InhibitState::Unknown, None),
            None => {
                let by = former.set.iter().copied().map(inhibit).collect();
                (InhibitState::Inhibited { by, complete: false }, None)
            }
        };
        InhibitReport { change, reason, state, changed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{InhibitReason, KernelVersion};

    fn states() -> States {
        States::new(InhibitNumbering::of_kernel(KernelVersion::new(6, 12)))
    }

    fn change(set: bool, number: u32, mask: Option<u64>) -> InhibitChange {
        InhibitChange { time_ns: 0, thread: 1, set, number, reason: None, mask: mask.map(Inhibits) }
    }

    #[test]
    fn the_kernels_mask_says_what_holds() {
        let mut states = states();
        let first = states.report(1, change(true, 9, Some(0x204)));
        let absent = Inhibit::Named(InhibitReason::Absent);
        let pit = Inhibit::Named(InhibitReason::PitReinject);
        assert_eq!(first.reason, pit);
        assert_eq!(first.state, InhibitState::Inhibited { by: vec![absent, pit], complete: true });
        assert_eq!(first.changed, None);
        assert_eq!(states.report(1, change(false, 9, Some(4))).changed, Some(true));
        assert_eq!(states.report(1, change(false, 9, Some(4))).changed, Some(false));
        let last = states.report(1, change(false, 2, Some(0)));
        assert_eq!((last.state, last.changed), (InhibitState::Active, Some(true)));
        assert_eq!(states.report(2, change(false, 2, Some(0))).changed, None);
    }

    #[test]
    fn without_a_mask_only_what_was_seen_is_claimed() {
        let mut states = states();
        let inhibited = |by| InhibitState::Inhibited { by, complete: false };
        let window = Inhibit::Named(InhibitReason::IrqWindow);
        assert_eq!(states.report(1, change(true, 8, None)).state, inhibited(vec![window]));
        let both = states.report(1, change(true, 60, None)).state;
        assert_eq!(both, inhibited(vec![window, Inhibit::Number(60)]));
        states.report(1, change(false, 8, None));
        assert_eq!(states.report(1, change(false, 60, None)).state, InhibitState::Unknown);
    }
}
