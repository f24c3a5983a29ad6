//! Signs of interrupt virtualization in a VM's exits.

use exits::{Access, Direction, ExitReason, Exits, Profile, VcpuExits};
use serde::Serialize;

/// The numbers of exits that interrupt virtualization avoids, and of exits that only occur with it. Those of nested guests
/// are not among them: a hypervisor in the VM decides how it delivers interrupts to these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExitSigns {
    /// All exits, with those of nested guests.
    pub exits: u64,
    /// `INTERRUPT_WINDOW`, `vintr`: avoided.
    pub windows: u64,
    /// Emulated writes to the EOI register: avoided, except for x2APIC guests on AVIC without x2AVIC.
    pub eoi_writes: u64,
    /// Writes to the TPR: avoided.
    pub tpr_writes: u64,
    /// `write_cr8`: writes to the TPR through CR8 on AMD. Avoided, unless KVM keeps their intercept.
    pub cr8_writes: u64,
    /// Writes to the ICR: avoided with IPI virtualization.
    pub icr_writes: u64,
    /// `APIC_WRITE`, `avic_unaccelerated_access`: register accesses that the hardware leaves to the host. Only with
    /// interrupt virtualization.
    pub handed_back: u64,
    /// `EOI_INDUCED`: EOIs that the host must handle. Only with interrupt virtualization.
    pub eoi_induced: u64,
    /// `avic_incomplete_ipi`: IPIs that the hardware leaves to the host. Only with interrupt virtualization.
    pub incomplete_ipis: u64,
}

/// Offsets in the APIC page. The x2APIC's MSR numbers are 0x800 plus a 16th of these.
const TPR: u32 = 0x80;
const EOI: u32 = 0xb0;
const ICR: u32 = 0x300;

/// Hyper-V's MSRs for the same registers (`HV_X64_MSR_EOI` and so on in the Hyper-V Top Level Functional Specification,
/// "Virtual Interrupt Controller").
const HV_EOI: u32 = 0x4000_0070;
const HV_ICR: u32 = 0x4000_0071;
const HV_TPR: u32 = 0x4000_0072;

impl ExitSigns {
    /// The signs in a profile with accesses.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let own: Vec<_> = profile.vcpus().iter().flat_map(VcpuExits::own_counts).collect();
        let count = |names: [ExitReason; 2]| -> u64 {
            own.iter().filter(|(reason, _)| names.contains(reason)).map(|(_, count)| count).sum()
        };
        let accesses = profile.accesses();
        let writes = |register: u32, of_hyper_v: u32| {
            let count = |access| accesses.get(&access).map_or(0, |exits: &Exits| exits.count);
            let direction = Direction::Write;
            // KVM reports an x2APIC write as an MSR access and an APIC access, and an xAPIC write only as the latter.
            let msr = count(Access::Msr { number: 0x800 + register / 16, direction });
            // It also reports one for each write to Hyper-V's MSR, which exits whatever is active.
            let emulated = count(Access::Apic { register, direction });
            msr.max(emulated.saturating_sub(count(Access::Msr { number: of_hyper_v, direction })))
        };
        Self {
            exits: profile.total(),
            windows: count([ExitReason::vmx(7), ExitReason::svm(0x064)]),
            eoi_writes: writes(EOI, HV_EOI),
            tpr_writes: writes(TPR, HV_TPR),
            cr8_writes: count([ExitReason::svm(0x018); 2]),
            icr_writes: writes(ICR, HV_ICR),
            handed_back: count([ExitReason::vmx(56), ExitReason::svm(0x402)]),
            eoi_induced: count([ExitReason::vmx(45); 2]),
            incomplete_ipis: count([ExitReason::svm(0x401); 2]),
        }
    }

    /// The number of exits that only occur with interrupt virtualization.
    #[must_use]
    pub const fn only_with_it(&self) -> u64 {
        self.handed_back + self.eoi_induced + self.incomplete_ipis
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::Vcpu;

    #[test]
    fn each_sign_is_of_its_reasons() {
        let of = |reason: ExitReason| {
            let mut profile = Profile::new();
            profile.vcpu(Vcpu::default()).reasons.entry(reason).or_default().count = 3;
            ExitSigns::of(&profile)
        };
        let none = ExitSigns { exits: 3, ..ExitSigns::default() };
        let (vmx, svm) = (ExitReason::vmx, ExitReason::svm);
        for (reason, wanted) in [
            (vmx(7), ExitSigns { windows: 3, ..none }),
            (svm(0x64), ExitSigns { windows: 3, ..none }),
            (svm(0x18), ExitSigns { cr8_writes: 3, ..none }),
            (vmx(56), ExitSigns { handed_back: 3, ..none }),
            (svm(0x402), ExitSigns { handed_back: 3, ..none }),
            (vmx(45), ExitSigns { eoi_induced: 3, ..none }),
            (svm(0x401), ExitSigns { incomplete_ipis: 3, ..none }),
            // The numbers of the other vendor.
            (svm(56), none),
            (vmx(0x64), none),
        ] {
            assert_eq!(of(reason), wanted, "{reason}");
        }
    }

    #[test]
    fn exits_of_nested_guests_are_no_signs() {
        let mut profile = Profile::new();
        let vcpu = profile.vcpu(Vcpu::default());
        for (code, count) in [(56, 4), (45, 1), (7, 2)] {
            let reason = ExitReason::vmx(code);
            vcpu.reasons.entry(reason).or_default().count = count;
            for to_l1 in [false, true] {
                vcpu.accesses.entry(Access::Nested { reason, to_l1 }).or_default().count = count;
            }
        }
        assert_eq!(ExitSigns::of(&profile), ExitSigns { exits: 7, ..ExitSigns::default() });
    }

    #[test]
    fn only_writes_of_the_task_priority_count() {
        let mut profile = Profile::new();
        for (direction, count) in [(Direction::Write, 2), (Direction::Read, 9)] {
            let access = Access::Msr { number: 0x808, direction };
            profile.vcpu(Vcpu::default()).accesses.entry(access).or_default().count = count;
        }
        assert_eq!(ExitSigns::of(&profile), ExitSigns { tpr_writes: 2, ..ExitSigns::default() });
    }

    #[test]
    fn an_eoi_reported_twice_counts_once() {
        let mut profile = Profile::new();
        let vcpu = profile.vcpu(Vcpu::default());
        let direction = Direction::Write;
        for (access, count) in [
            (Access::Msr { number: 0x80b, direction }, 5),
            (Access::Apic { register: 0xb0, direction }, 5),
            (Access::Apic { register: 0x300, direction }, 3),
        ] {
            vcpu.accesses.entry(access).or_default().count = count;
        }
        for (reason, count) in [(7, 2), (56, 4), (45, 1), (32, 5)] {
            vcpu.reasons.entry(ExitReason::vmx(reason)).or_default().count = count;
        }
        let signs = ExitSigns::of(&profile);
        let expected = ExitSigns {
            exits: 12,
            windows: 2,
            eoi_writes: 5,
            icr_writes: 3,
            handed_back: 4,
            eoi_induced: 1,
            ..ExitSigns::default()
        };
        assert_eq!(signs, expected);
        assert_eq!(signs.only_with_it(), 5);
    }

    #[test]
    fn writes_to_the_msrs_of_hyper_v_are_none_to_the_apic() {
        let mut profile = Profile::new();
        let vcpu = profile.vcpu(Vcpu::default());
        let direction = Direction::Write;
        for (access, count) in [
            (Access::Msr { number: HV_EOI, direction }, 5),
            (Access::Apic { register: EOI, direction }, 5),
            (Access::Msr { number: HV_TPR, direction }, 2),
            (Access::Apic { register: TPR, direction }, 3),
        ] {
            vcpu.accesses.entry(access).or_default().count = count;
        }
        let signs = ExitSigns::of(&profile);
        assert_eq!((signs.eoi_writes, signs.tpr_writes), (0, 1));
    }
}
