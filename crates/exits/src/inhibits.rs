//! The set of inhibit reasons in force.

use crate::{InhibitNumbering, InhibitReason};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The mask of inhibit reasons, one bit for each number, as in `kvm_apicv_inhibit_changed`.
///
/// Interrupt virtualization is active for a VM while the mask is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Inhibits(pub u64);

/// One bit of an [`Inhibits`] mask under a numbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inhibit {
    /// A reason that the numbering names.
    Named(InhibitReason),
    /// A number without a name in the numbering; numbers are never merged.
    Number(u32),
}

impl Inhibits {
    /// Tests whether no reason is in force.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The numbers of the bits that are set, ascending.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |&bit| self.0 & (1 << bit) != 0)
    }

    /// The reasons in force, by the kernel's numbering, ascending by number.
    pub fn reasons(self, numbering: &InhibitNumbering) -> impl Iterator<Item = Inhibit> {
        self.numbers().map(|number| numbering.reason(number).map_or(Inhibit::Number(number), Inhibit::Named))
    }

    /// Tests whether this reason is in force; `None` if the numbering does not contain it.
    #[must_use]
    pub fn holds(self, reason: InhibitReason, numbering: &InhibitNumbering) -> Option<bool> {
        numbering.number(reason).map(|number| self.0 & (1 << number) != 0)
    }
}

impl fmt::Display for Inhibit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(reason) => fmt::Display::fmt(reason, f),
            Self::Number(number) => f.pad(&format!("reason:{number}")),
        }
    }
}

impl fmt::Display for Inhibits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:#x}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelVersion;

    #[test]
    fn one_mask_under_two_numberings() {
        let mask = Inhibits(0x80);
        let names = |minor| {
            let numbering = InhibitNumbering::of_kernel(KernelVersion::new(6, minor));
            mask.reasons(&numbering).map(|inhibit| inhibit.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["IRQWIN"]);
        assert_eq!(names(12), ["NESTED"]);
    }

    #[test]
    fn unknown_bits_keep_their_number() {
        let numbering = InhibitNumbering::of_kernel(KernelVersion::new(6, 12));
        let all: Vec<_> = Inhibits(1 << 63 | 1).reasons(&numbering).collect();
        assert_eq!(all, [Inhibit::Named(InhibitReason::Disabled), Inhibit::Number(63)]);
        assert_eq!(all[1].to_string(), "reason:63");
        assert_eq!(Inhibits(1).holds(InhibitReason::Disabled, &numbering), Some(true));
        assert_eq!(Inhibits(1).holds(InhibitReason::X2Apic, &numbering), None);
        assert!(Inhibits(0).is_empty());
    }
}
