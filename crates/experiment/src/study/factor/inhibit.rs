//! Ways in which QEMU makes KVM inhibit APICv or AVIC for one guest.

use exits::{InhibitReason, Isa};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How interrupt virtualization is kept from QEMU guests while the module has it on. Each is a property of the guest's
/// machine, so the guests are started anew with it.
///
/// Sources: `arch/x86/kvm/i8254.c` (`kvm_pit_set_reinject`), `arch/x86/kvm/x86.c` (`kvm_apicv_init`),
/// `arch/x86/kvm/hyperv.c` (`synic_update_vector`), `VMX_REQUIRED_APICV_INHIBITS` in `arch/x86/kvm/vmx/main.c` and
/// `AVIC_REQUIRED_APICV_INHIBITS` in `arch/x86/kvm/svm/svm.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Inhibit {
    /// Nothing inhibits: interrupt controllers in the kernel, and a PIT that drops ticks that the guest missed.
    None,
    /// The PIT in the kernel injects missed ticks later: inhibit reason PIT_REINJ. AMD only; KVM's default.
    PitReinject,
    /// All interrupt controllers in QEMU: inhibit reason ABSENT. The guest pays for its whole local APIC too, so this is
    /// no measure of APICv or AVIC alone.
    UserspaceIrqchip,
    /// Hyper-V's synthetic interrupt controller, offered with AutoEOI: inhibit reason HYPERV as soon as the guest uses
    /// it. Windows does; Linux does with its driver hv_vmbus alone.
    HypervAutoEoi,
}

impl Inhibit {
    /// What KVM must report while guests run; `None` where it must report nothing.
    #[must_use]
    pub const fn reason(self) -> Option<InhibitReason> {
        match self {
            Self::None => None,
            Self::PitReinject => Some(InhibitReason::PitReinject),
            Self::UserspaceIrqchip => Some(InhibitReason::Absent),
            Self::HypervAutoEoi => Some(InhibitReason::HyperV),
        }
    }

    /// Whether KVM has the reason on processors of this instruction set.
    #[must_use]
    pub const fn works_on(self, isa: Isa) -> bool {
        !matches!((self, isa), (Self::PitReinject, Isa::Vmx))
    }

    /// Where the guest's interrupt controllers must be, as QEMU's `-machine kernel-irqchip=` says it: the split one has
    /// no PIT in the kernel.
    #[must_use]
    pub const fn kernel_irqchip(self) -> &'static str {
        match self {
            Self::UserspaceIrqchip => "off",
            Self::None | Self::PitReinject | Self::HypervAutoEoi => "on",
        }
    }

    /// Further arguments of QEMU.
    #[must_use]
    pub const fn qemu_arguments(self) -> &'static [&'static str] {
        match self {
            Self::None => &["-global", "kvm-pit.lost_tick_policy=discard"],
            Self::PitReinject => &["-global", "kvm-pit.lost_tick_policy=delay"],
            Self::UserspaceIrqchip => &[],
            Self::HypervAutoEoi => &["-global", "kvm-pit.lost_tick_policy=discard"],
        }
    }

    /// Features to be added to QEMU's `-cpu`.
    #[must_use]
    pub const fn cpu_features(self) -> &'static [&'static str] {
        match self {
            Self::HypervAutoEoi => &["hv-vpindex=on", "hv-synic=on", "hv-avic=off"],
            _ => &[],
        }
    }
}
