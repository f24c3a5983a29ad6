//! The effect of interrupt virtualization on each exit reason.

use crate::{ExitReason, Isa};
use serde::{Deserialize, Serialize};

/// The effect of active APICv or AVIC on the exits of a reason.
///
/// By the hardware's rules, for a VM whose interrupts all come through its local APICs. Interrupts of an emulated PIC
/// (ExtINT) are still injected by the host, after an interrupt window if the guest cannot take them.
/// Sources: Intel SDM volume 3, chapter 30 "APIC Virtualization and Virtual Interrupts"; AMD64 APM volume 2,
/// section 15.29 "Advanced Virtual Interrupt Controller"; Linux `arch/x86/kvm/vmx/vmx.c`,
/// `arch/x86/kvm/svm/avic.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Virtualized {
    /// These exits are avoided: the hardware delivers the interrupts.
    Gone,
    /// Some of these exits are avoided, depending on the accessed registers.
    Partly,
    /// These exits occur only with APICv or AVIC: the hardware leaves the work to the hypervisor.
    Appears,
    /// These exits do not change.
    Unchanged,
}

struct Row {
    reason: ExitReason,
    effect: Virtualized,
    about: &'static str,
}

const fn vmx(code: u32, effect: Virtualized, about: &'static str) -> Row {
    Row { reason: ExitReason::vmx(code), effect, about }
}

const fn svm(code: u32, effect: Virtualized, about: &'static str) -> Row {
    Row { reason: ExitReason::svm(code), effect, about }
}

const ROWS: &[Row] = &[
    vmx(
        1,
        Virtualized::Partly,
        "a host interrupt hit the CPU; kicks for guest interrupts are a part of them",
    ),
    vmx(7, Virtualized::Gone, "the guest became able to take a waiting interrupt"),
    vmx(12, Virtualized::Unchanged, "the guest went idle; a halted vCPU still needs the host to wake it"),
    vmx(
        32,
        Virtualized::Partly,
        "a write to an MSR: x2APIC EOI, TPR and self-IPI go, ICR goes with IPI virtualization, the timer stays",
    ),
    vmx(43, Virtualized::Gone, "the guest lowered its task priority below the threshold"),
    vmx(44, Virtualized::Partly, "an xAPIC register access that must be emulated; most reads and EOI go"),
    vmx(45, Virtualized::Appears, "the guest ended a level-triggered interrupt whose EOI the host must see"),
    vmx(49, Virtualized::Unchanged, "emulated device memory, such as a virtio notification by MMIO"),
    vmx(52, Virtualized::Unchanged, "the guest's timer, run by the VMX preemption timer"),
    vmx(
        56,
        Virtualized::Appears,
        "an APIC register write that the host completes after the fact (trap-like)",
    ),
    vmx(85, Virtualized::Partly, "a write to an MSR by immediate; as MSR_WRITE"),
    svm(
        0x060,
        Virtualized::Partly,
        "a host interrupt hit the CPU; kicks for guest interrupts are a part of them",
    ),
    svm(0x064, Virtualized::Gone, "the guest became able to take a waiting interrupt"),
    svm(0x008, Virtualized::Gone, "a read of CR8, the task priority"),
    svm(
        0x018,
        Virtualized::Partly,
        "a write of CR8, the task priority; Linux before 7.0-rc4 and without its fix can keep this exit with AVIC",
    ),
    svm(0x078, Virtualized::Unchanged, "the guest went idle; a halted vCPU still needs the host to wake it"),
    svm(0x07c, Virtualized::Partly, "an MSR access: x2APIC registers go with x2AVIC, the timer's stay"),
    svm(0x0a6, Virtualized::Unchanged, "the guest went idle with no virtual interrupt pending"),
    svm(
        0x400,
        Virtualized::Partly,
        "a nested page fault; accesses to the xAPIC page go, other memory and devices stay",
    ),
    svm(
        0x401,
        Virtualized::Appears,
        "an IPI that AVIC could not deliver alone, most often to a vCPU that is not running",
    ),
    svm(
        0x402,
        Virtualized::Appears,
        "an APIC register access that AVIC leaves to the host, such as the xAPIC's timer",
    ),
];

impl ExitReason {
    fn row(self) -> Option<&'static Row> {
        let basic = self.basic();
        ROWS.iter().find(|row| row.reason == basic)
    }

    /// The meaning of the exit for interrupts, in one line; `None` for reasons unrelated to interrupts.
    #[must_use]
    pub fn about(self) -> Option<&'static str> {
        self.row().map(|row| row.about)
    }

    /// The effect of APICv or AVIC on exits of this reason; `None` for a number without a name.
    #[must_use]
    pub fn under_interrupt_virtualization(self) -> Option<Virtualized> {
        match self.row() {
            Some(row) => Some(row.effect),
            None => self.name().map(|_| Virtualized::Unchanged),
        }
    }
}

impl Isa {
    /// The vendor's name for virtual interrupt delivery.
    #[must_use]
    pub const fn interrupt_virtualization(self) -> &'static str {
        match self {
            Self::Vmx => "APICv",
            Self::Svm => "AVIC",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_exits_go_halts_stay_msr_writes_depend() {
        let effect = |name: &str| name.parse::<ExitReason>().unwrap().under_interrupt_virtualization();
        assert_eq!(effect("INTERRUPT_WINDOW"), Some(Virtualized::Gone));
        assert_eq!(effect("vintr"), Some(Virtualized::Gone));
        assert_eq!(effect("HLT"), Some(Virtualized::Unchanged));
        assert_eq!(effect("cpuid"), Some(Virtualized::Unchanged));
        assert_eq!(effect("MSR_WRITE"), Some(Virtualized::Partly));
        assert_eq!(effect("vmx:199"), None);
    }

    #[test]
    fn rows_have_names_and_occur_once() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(row.reason.name().is_some());
            assert!(ROWS[at + 1..].iter().all(|other| other.reason != row.reason), "{}", row.reason);
        }
    }

    #[test]
    fn flags_do_not_hide_the_gloss() {
        assert!(ExitReason::vmx(0x0400_0001).about().is_some());
        assert!(ExitReason::vmx(10).about().is_none());
    }
}
