//! Exits of nested guests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Access, ExitReason, Exits, Profile, VcpuExits};

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

/// The exits of one vCPU by reason without flags, those of its nested guests apart: these say nothing about the delivery of
/// the VM's own interrupts, and their cause is not in the VM's own devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExitLevels {
    /// Exits of the VM itself (L1). Its reasons are those with exits.
    pub l1: BTreeMap<ExitReason, Exits>,
    /// Exits of its nested guests (L2); empty if the source does not record their events.
    pub l2: BTreeMap<ExitReason, Exits>,
}

impl VcpuExits {
    /// Its exits, those of nested guests apart. The counts and times of both levels add up to those of the vCPU.
    #[must_use]
    pub fn levels(&self) -> ExitLevels {
        let mut levels = ExitLevels::default();
        for (reason, exits) in self.reasons.iter().filter(|(_, exits)| exits.count > 0) {
            levels.l1.entry(reason.basic()).or_default().merge(exits);
        }
        for (access, exits) in &self.accesses {
            // Handling times are those of exits that the host handled and of exits for which it entered L1. Only the former
            // are counted, because their count includes the latter.
            if let Access::Nested { reason, to_l1 } = access {
                let nested = levels.l2.entry(reason.basic()).or_default();
                nested.count = nested.count.saturating_add(if *to_l1 { 0 } else { exits.count });
                nested.handling.merge(&exits.handling);
            }
        }
        levels.l2.retain(|reason, nested| match levels.l1.get_mut(reason) {
            Some(all) if nested.count >= all.count => {
                *nested = std::mem::take(all);
                levels.l1.remove(reason);
                true
            }
            Some(all) if nested.count > 0 => {
                all.count -= nested.count;
                // Times of nested guests' exits begin later, at their event, so as many of them add up to less.
                let is_all = nested.handling.count() >= all.handling.count()
                    || nested.handling.total_ns() >= all.handling.total_ns();
                if is_all {
                    nested.handling = std::mem::take(&mut all.handling);
                } else {
                    all.handling.subtract(&nested.handling);
                }
                true
            }
            _ => false,
        });
        levels
    }

    /// The numbers of exits in [`ExitLevels::l1`], without the cost of dividing handling times.
    #[must_use]
    pub fn own_counts(&self) -> BTreeMap<ExitReason, u64> {
        let mut own = BTreeMap::<ExitReason, u64>::new();
        for (reason, exits) in &self.reasons {
            let count = own.entry(reason.basic()).or_default();
            *count = count.saturating_add(exits.count);
        }
        for (access, exits) in &self.accesses {
            let Access::Nested { reason, to_l1: false } = access else { continue };
            if let Some(count) = own.get_mut(&reason.basic()) {
                *count = count.saturating_sub(exits.count);
            }
        }
        own.retain(|_, count| *count > 0);
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Vcpu;

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

    fn exits(count: u64, each_ns: u64) -> Exits {
        let mut exits = Exits { count, ..Exits::default() };
        (0..count).for_each(|_| exits.handling.add(each_ns));
        exits
    }

    #[test]
    fn each_exit_is_of_one_level() {
        let (msr, hlt, npf) = (ExitReason::svm(0x7c), ExitReason::svm(0x78), ExitReason::svm(0x400));
        let mut vcpu = VcpuExits::default();
        vcpu.reasons.extend([(msr, exits(10, 1000)), (hlt, exits(3, 1000)), (npf, exits(5, 1000))]);
        let untimed = |count| Exits { count, ..Exits::default() };
        for (reason, to_l1, exits) in [
            // 6 exits of L2: the host handled 2 and entered L1 for 4.
            (msr, false, exits(2, 1000)),
            (msr, true, exits(4, 1000)),
            (hlt, false, untimed(3)),
            (hlt, true, exits(3, 1000)),
            // Not among the reasons, as after losses.
            (ExitReason::svm(0x72), false, untimed(9)),
        ] {
            vcpu.accesses.insert(Access::Nested { reason, to_l1 }, exits);
        }
        // The count includes the exits that went on to L1.
        vcpu.accesses.entry(Access::Nested { reason: msr, to_l1: false }).or_default().count = 6;
        let ExitLevels { l1, l2 } = vcpu.levels();
        let of = |level: &BTreeMap<ExitReason, Exits>| -> Vec<_> {
            level.iter().map(|(&reason, exits)| (reason, exits.count, exits.handling.total_ns())).collect()
        };
        assert_eq!(of(&l1), [(msr, 4, 4000), (npf, 5, 5000)]);
        assert_eq!(vcpu.own_counts(), BTreeMap::from([(msr, 4), (npf, 5)]));
        assert_eq!(of(&l2), [(hlt, 3, 3000), (msr, 6, 6000)]);
    }

    #[test]
    fn no_time_is_lost_between_the_levels() {
        // The last exit is of the VM itself, and has no time: the others are nested, with times from their event on.
        let hlt = ExitReason::svm(0x78);
        let mut vcpu = VcpuExits::default();
        vcpu.reasons.insert(hlt, Exits { count: 4, ..exits(3, 1000) });
        vcpu.accesses.insert(Access::Nested { reason: hlt, to_l1: false }, exits(3, 900));
        let ExitLevels { l1, l2 } = vcpu.levels();
        assert_eq!((l1[&hlt].count, l1[&hlt].handling.total_ns()), (1, 0));
        assert_eq!((l2[&hlt].count, l2[&hlt].handling.total_ns()), (3, 3000));
    }
}
