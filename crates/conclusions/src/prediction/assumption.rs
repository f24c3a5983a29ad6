//! The assumptions of a prediction about the host.

use exits::{Hypervisor, Isa};
use serde::Serialize;

/// The assumed interrupt virtualization by instruction set, and the host's own interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Assumption {
    /// The hypervisor of the recording.
    pub hypervisor: Hypervisor,
    /// For VMX exits.
    pub apicv: Apicv,
    /// For SVM exits.
    pub avic: Avic,
    /// The host's timer interrupts per second on a CPU that runs a guest: `CONFIG_HZ` of the host's kernel, or 0 if the
    /// tick is stopped (`nohz_full`). Only the expected number of kicks depends on it. Xen has no tick.
    pub host_tick_hz: u32,
}

impl Default for Assumption {
    /// The features that most hosts support: Intel without IPI virtualization, which Sapphire Rapids introduced; AMD with
    /// x2AVIC; and 250 ticks per second.
    fn default() -> Self {
        Self {
            hypervisor: Hypervisor::Kvm,
            apicv: Apicv { posted_interrupts: true, ipi_virtualization: false },
            avic: Avic {
                x2apic: true,
                ipi_virtualization: true,
                keeps_cr8_intercept: None,
                passes_served_msrs: None,
            },
            host_tick_hz: 250,
        }
    }
}

impl Assumption {
    /// Tests whether the hypervisor does not use the interrupt virtualization of these processors: Xen does not support
    /// AVIC.
    #[must_use]
    pub fn lacks_avic(&self, isa: Isa) -> bool {
        self.hypervisor == Hypervisor::Xen && isa == Isa::Svm
    }
}

/// Intel's APICv: virtual-interrupt delivery and APIC-register virtualization, of which KVM uses both or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Apicv {
    /// Interrupts are delivered to a running vCPU without an exit. KVM requires it for APICv
    /// (`cpu_has_vmx_apicv` in `arch/x86/kvm/vmx/capabilities.h`); other hypervisors may not.
    pub posted_interrupts: bool,
    /// The processor sends IPIs itself (`enable_ipiv` of `kvm_intel`).
    pub ipi_virtualization: bool,
}

/// AMD's AVIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Avic {
    /// x2AVIC: also virtualizes the APIC of guests in x2APIC mode. Without it, KVM of Linux 6.0 or later still delivers
    /// interrupts to them by AVIC, but emulates their registers.
    pub x2apic: bool,
    /// The processor sends IPIs itself. KVM turns it off on family 17h (Zen 1 and 2) because of erratum 1235
    /// (`avic_hardware_setup` in `arch/x86/kvm/svm/avic.c`).
    pub ipi_virtualization: bool,
    /// True if the host's kernel has a bug: KVM may keep intercepting CR8 writes while AVIC is active, for a vCPU that was
    /// reset, or had an interrupt pending, while AVIC was inhibited. Fixed in mainline 7.0-rc4 (87d0f901a9bd), and in later
    /// releases of stable series. `None` if the kernel is unknown.
    pub keeps_cr8_intercept: Option<bool>,
    /// True if KVM with x2AVIC lets the guest reach all MSRs that the processor serves (mainline 7.2, 7f4b7092d9a1 and
    /// 8c63179d975f, and later releases of stable series). Earlier kernels pass the MSRs of a list, which lacks SELF_IPI.
    /// `None` if the kernel is unknown.
    pub passes_served_msrs: Option<bool>,
}
