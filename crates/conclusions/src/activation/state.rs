//! KVM's state of a VM's interrupt virtualization.

use exits::Inhibits;
use serde::Serialize;

/// The irqchip mode (`enum kvm_irqchip_mode` in `arch/x86/include/asm/kvm_host.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Irqchip {
    /// No interrupt controller is in the kernel: the VMM emulates local APICs too.
    None,
    /// Local APICs, I/O APIC and PIC are in the kernel.
    Kernel,
    /// Split irqchip: only the local APICs are in the kernel.
    Split,
}

/// The CPU's interrupt controls at VM entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Controls {
    /// Execution controls in the VMCS, as KVM last wrote them (Intel SDM volume 3, 26.6).
    Vmx {
        /// Pin-based controls.
        pin: u32,
        /// Secondary processor-based controls.
        secondary: u32,
        /// Tertiary processor-based controls; `None` before Linux 6.0.
        tertiary: Option<u64>,
    },
    /// Controls in the VMCB (AMD64 APM volume 2, 15.29 and appendix B).
    Svm {
        /// The word at offset 60h.
        int_ctl: u32,
    },
}

impl Controls {
    /// Tests whether they enable the delivery of virtual interrupts.
    #[must_use]
    pub const fn delivers(self) -> bool {
        match self {
            // Virtual-interrupt delivery.
            Self::Vmx { secondary, .. } => secondary & 1 << 9 != 0,
            // AVIC enable.
            Self::Svm { int_ctl } => int_ctl & 1 << 31 != 0,
        }
    }

    /// Tests whether the guest's x2APIC registers are virtualized: x2AVIC's bit, or "virtualize x2APIC mode".
    #[must_use]
    pub const fn virtualizes_x2apic(self) -> bool {
        match self {
            Self::Vmx { secondary, .. } => secondary & 1 << 4 != 0,
            Self::Svm { int_ctl } => int_ctl & 1 << 30 != 0,
        }
    }

    /// Tests whether the CPU sends IPIs to other vCPUs; `None` if the controls do not say.
    #[must_use]
    pub fn sends_ipis(self) -> Option<bool> {
        match self {
            Self::Vmx { tertiary, .. } => tertiary.map(|tertiary| tertiary & 1 << 4 != 0),
            Self::Svm { .. } => None,
        }
    }
}

/// The state of one vCPU at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VcpuState {
    /// KVM's number.
    pub number: u32,
    /// True if KVM uses interrupt virtualization for it (`apicv_active`).
    pub active: Option<bool>,
    /// True if its local APIC is in the kernel.
    pub in_kernel_apic: Option<bool>,
    /// True if the guest switched its APIC to x2APIC mode (bit 10 of the APIC base MSR).
    pub x2apic: Option<bool>,
    /// The CPU's controls.
    pub controls: Option<Controls>,
    /// True if interrupts of assigned devices are posted to it (AMD's `ir_list`).
    pub posted_to: Option<bool>,
}

/// The state of one VM at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VmState {
    /// The inhibit reasons in force (`kvm->arch.apicv_inhibit_reasons`).
    pub inhibits: Option<Inhibits>,
    /// Its irqchip mode.
    pub irqchip: Option<Irqchip>,
    /// True if the in-kernel PIT reinjects lost ticks; `None` without a PIT.
    pub pit_reinjects: Option<bool>,
    /// Its vCPUs, by number.
    pub vcpus: Vec<VcpuState>,
}

/// An observed change of an inhibit reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct InhibitSeen {
    /// Time since the start of the observation, in nanoseconds.
    pub after_ns: u64,
    /// True if the reason was set, false if it was cleared.
    pub set: bool,
    /// The reason's number in this kernel.
    pub number: u32,
    /// All reasons in force after the change; `None` before Linux 5.18.
    pub mask: Option<Inhibits>,
}
