//! The effect of interrupt virtualization on an access to a register of the local APIC.

use super::{Assumption, Rule};
use exits::{Access, Direction, ExitReason, Hypervisor, Isa};

/// The default page of the xAPIC. KVM inhibits interrupt virtualization if the guest moves it.
const APIC_PAGE: std::ops::Range<u64> = 0xfee0_0000..0xfee0_1000;
/// The x2APIC's MSRs (Intel SDM volume 3, table 11-6).
const X2APIC: std::ops::RangeInclusive<u32> = 0x800..=0x8ff;
const TSC_DEADLINE: u32 = 0x6e0;
/// EOI, ICR and TPR of Hyper-V's Top-Level Functional Specification, appendix C.
const HV_EOI: u32 = 0x4000_0070;
const HV_ICR: u32 = 0x4000_0071;
const HV_TPR: u32 = 0x4000_0072;

const VERSION: u32 = 0x30;
const TPR: u32 = 0x80;
const APR: u32 = 0x90;
const PPR: u32 = 0xa0;
const EOI: u32 = 0xb0;
const RRR: u32 = 0xc0;
const ICR: u32 = 0x300;
const ICR2: u32 = 0x310;
const TMICT: u32 = 0x380;
const TMCCT: u32 = 0x390;
const SELF_IPI: u32 = 0x3f0;
/// The registers whose MSRs KVM passes to a guest with x2AVIC before Linux 7.2, for reading and writing
/// (`x2avic_passthrough_msrs` in `arch/x86/kvm/svm/avic.c`): of ISR, TMR and IRR the first of eight words.
const PASSED_BY_LIST: &[u32] = &[
    0x20, 0x30, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0, 0x100, 0x180, 0x200, 0x280, 0x300, 0x310,
    0x330, 0x340, 0x350, 0x360, 0x370, 0x380, 0x390, 0x3e0,
];
/// The first register that exists only on AMD.
const EXTENDED: u32 = 0x400;

/// The APIC mode of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Accesses by memory.
    Xapic,
    /// Accesses by MSRs.
    X2apic,
}

/// A register access, in either mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Register {
    /// The offset in the APIC page, bytes.
    pub(super) offset: u32,
    pub(super) direction: Direction,
    pub(super) mode: Mode,
}

/// The effect on an access, with its exit reason under interrupt virtualization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) rule: Rule,
    /// The exit reason under interrupt virtualization, if it differs.
    pub(super) becomes: Option<ExitReason>,
}

const APIC_ACCESS: ExitReason = ExitReason::vmx(44);
const EOI_INDUCED: ExitReason = ExitReason::vmx(45);
const APIC_WRITE: ExitReason = ExitReason::vmx(56);
const INCOMPLETE_IPI: ExitReason = ExitReason::svm(0x401);
const UNACCELERATED: ExitReason = ExitReason::svm(0x402);

impl Register {
    /// The APIC register of `access`, if it is one.
    pub(super) fn of(access: Access) -> Option<Self> {
        match access {
            Access::Msr { number, direction } if X2APIC.contains(&number) => {
                let offset = (number - X2APIC.start()) << 4;
                Some(Self { offset, direction, mode: Mode::X2apic })
            }
            Access::Mmio { address, direction } if APIC_PAGE.contains(&address) => {
                let offset = u32::try_from(address - APIC_PAGE.start).ok()? & !0xf;
                Some(Self { offset, direction, mode: Mode::Xapic })
            }
            _ => None,
        }
    }

    /// The register of the xAPIC that `access` stands for, if it is one to Hyper-V's registers.
    pub(super) fn of_hyper_v(access: Access) -> Option<Self> {
        let Access::Msr { number, direction } = access else { return None };
        let offset = match number {
            HV_EOI => EOI,
            HV_ICR => ICR,
            HV_TPR => TPR,
            _ => return None,
        };
        Some(Self { offset, direction, mode: Mode::Xapic })
    }

    pub(super) fn writes(self, offset: u32) -> bool {
        self.offset == offset && self.direction == Direction::Write
    }

    pub(super) fn is_eoi(self) -> bool {
        self.writes(EOI)
    }

    pub(super) fn is_icr(self) -> bool {
        self.writes(ICR)
    }

    pub(super) fn is_self_ipi(self) -> bool {
        self.writes(SELF_IPI)
    }

    pub(super) fn is_timer_arm(self) -> bool {
        self.writes(TMICT)
    }

    /// The effect on the access under the assumptions.
    pub(super) fn fate(self, isa: Isa, assumption: &Assumption) -> Fate {
        if isa == Isa::Svm && self.mode == Mode::X2apic && !assumption.avic.x2apic {
            return Fate { rule: Rule::X2apicUnderAvic, becomes: None };
        }
        let rule = match self.direction {
            Direction::Read => self.read(isa, assumption.hypervisor),
            Direction::Write => self.write(isa, assumption),
        };
        let x2avic = isa == Isa::Svm && self.mode == Mode::X2apic;
        let listed = PASSED_BY_LIST.contains(&self.offset);
        let rule = match rule {
            Rule::SelfIpi | Rule::RegisterRead
                if x2avic && !listed && assumption.avic.passes_served_msrs != Some(true) =>
            {
                Rule::X2avicIntercept
            }
            rule => rule,
        };
        let by_list = x2avic && listed && assumption.avic.passes_served_msrs == Some(false);
        let becomes = match rule {
            Rule::Eoi => Some(if isa == Isa::Vmx { EOI_INDUCED } else { UNACCELERATED }),
            Rule::IpiToRunning => Some(INCOMPLETE_IPI),
            Rule::IpiByProcessor => Some(APIC_WRITE),
            Rule::IpiUnlessToOneself => Some(if isa == Isa::Vmx { APIC_WRITE } else { INCOMPLETE_IPI }),
            Rule::RegisterOfTheHost | Rule::TimerArm if by_list || self.mode == Mode::Xapic => {
                Some(self.left_by_hardware(isa))
            }
            _ => None,
        };
        Fate { rule, becomes }
    }

    /// The rule of a read. Sources: SDM 30.4.2 for the xAPIC; `kvm_lapic_readable_reg_mask` in `arch/x86/kvm/lapic.c` and
    /// `vmx_vlapic_msr_changed` in `xen/arch/x86/hvm/vmx/vmx.c` for the x2APIC; APM table 15-22.
    fn read(self, isa: Isa, hypervisor: Hypervisor) -> Rule {
        let xen = hypervisor == Hypervisor::Xen && self.mode == Mode::X2apic;
        let by_host = match self.offset {
            TMCCT | APR | SELF_IPI | EXTENDED.. => true,
            RRR => isa == Isa::Vmx,
            PPR if xen => true,
            TMICT => xen,
            PPR => isa == Isa::Vmx && self.mode == Mode::Xapic,
            // Write-only in x2APIC mode, reserved in xAPIC mode.
            EOI => self.mode == Mode::X2apic,
            _ => false,
        };
        if by_host { Rule::RegisterOfTheHost } else { Rule::RegisterRead }
    }

    /// The rule of a write. Sources: SDM 30.4.3.2 for the xAPIC; `vmx_update_msr_bitmap_x2apic` in `arch/x86/kvm/vmx/vmx.c`
    /// and `avic_set_x2apic_msr_interception` in `arch/x86/kvm/svm/avic.c` for the x2APIC; APM table 15-22.
    fn write(self, isa: Isa, assumption: &Assumption) -> Rule {
        match self.offset {
            EOI => Rule::Eoi,
            TPR => Rule::TaskPriority,
            SELF_IPI if self.mode == Mode::X2apic => Rule::SelfIpi,
            ICR2 if self.mode == Mode::Xapic => Rule::IcrHigh,
            ICR => {
                // Xen has no IPI virtualization.
                let is_virtual = match isa {
                    Isa::Vmx => {
                        assumption.hypervisor == Hypervisor::Kvm && assumption.apicv.ipi_virtualization
                    }
                    Isa::Svm => assumption.avic.ipi_virtualization,
                };
                match isa {
                    Isa::Vmx if is_virtual => Rule::IpiByProcessor,
                    Isa::Svm if is_virtual => Rule::IpiToRunning,
                    // The MSR is intercepted. Everywhere else the processor serves IPIs to oneself by itself (SDM 30.1.5).
                    Isa::Vmx if self.mode == Mode::X2apic => Rule::IpiBySoftware,
                    _ => Rule::IpiUnlessToOneself,
                }
            }
            TMICT => Rule::TimerArm,
            _ => Rule::RegisterOfTheHost,
        }
    }

    fn left_by_hardware(self, isa: Isa) -> ExitReason {
        let never_written = matches!(self.offset, VERSION | APR | PPR | TMCCT | RRR | EXTENDED..);
        match (isa, self.direction) {
            (Isa::Svm, _) => UNACCELERATED,
            (Isa::Vmx, Direction::Write) if !never_written => APIC_WRITE,
            (Isa::Vmx, _) => APIC_ACCESS,
        }
    }
}

/// The rule of an access to an MSR other than the APIC's.
pub(super) fn other_msr(number: u32) -> Rule {
    match number {
        TSC_DEADLINE => Rule::TimerArm,
        HV_EOI..=HV_TPR => Rule::HyperVRegister,
        _ => Rule::OtherRegister,
    }
}

/// Tests whether the access arms the guest's timer.
pub(super) fn arms_timer(access: Access) -> bool {
    matches!(access, Access::Msr { number: TSC_DEADLINE, direction: Direction::Write })
        || Register::of(access).is_some_and(Register::is_timer_arm)
}

#[cfg(test)]
#[path = "register_tests.rs"]
mod tests;
