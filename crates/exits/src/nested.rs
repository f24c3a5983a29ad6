//! Exits of nested guests.

use serde::{Deserialize, Serialize};

use crate::{Access, Profile};

/// The numbers of exits of nested guests (L2) in a profile. The profile also counts each of them as an exit of the
/// host's vCPU, by its reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nested {
    /// Exits of L2.
    pub exits: u64,
    /// Exits for which the guest hypervisor (L1) was entered; the host handled the others alone.
    pub to_l1: u64,
}

impl Nested {
    /// The exits of nested guests in a profile; zero if the source does not record their events.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let mut nested = Self::default();
        for (access, exits) in profile.vcpus().iter().flat_map(|vcpu| &vcpu.accesses) {
            match access {
                Access::Nested { to_l1: false, .. } => {
                    nested.exits = nested.exits.saturating_add(exits.count)
                }
                Access::Nested { to_l1: true, .. } => nested.to_l1 = nested.to_l1.saturating_add(exits.count),
                _ => {}
            }
        }
        nested
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExitReason, Vcpu};

    #[test]
    fn exits_of_nested_guests_are_counted_over_all_reasons_and_vcpus() {
        let mut profile = Profile::default();
        assert_eq!(Nested::of(&profile), Nested::default());
        for (thread, code, to_l1, count) in [(1, 0x400, false, 5), (1, 0x400, true, 2), (2, 0x7c, false, 3)] {
            let vcpu = Vcpu { vm: Some(9), number: Some(0), thread: Some(thread) };
            let access = Access::Nested { reason: ExitReason::svm(code), to_l1 };
            profile.vcpu(vcpu).accesses.entry(access).or_default().count = count;
        }
        assert_eq!(Nested::of(&profile), Nested { exits: 8, to_l1: 2 });
    }
}
