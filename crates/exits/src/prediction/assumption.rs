//! What a prediction assumes of the host.

use serde::{Deserialize, Serialize};

/// The interrupt virtualization that is to be active, by instruction set, and the host's own interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Assumption {
    /// For exits of VMX.
    pub apicv: Apicv,
    /// For exits of SVM.
    pub avic: Avic,
    /// How often the host's own timer interrupts a processor that runs a guest, times a second: `CONFIG_HZ`
    /// of the host's kernel, or 0 where the tick is stopped (`nohz_full`). Only the expected value of
    /// kicks depends on it.
    pub host_tick_hz: u32,
}

impl Default for Assumption {
    /// What most hosts can have: Intel without IPI virtualization, which begins with Sapphire Rapids; AMD
    /// with x2AVIC; and 250 ticks a second.
    fn default() -> Self {
        Self {
            apicv: Apicv { posted_interrupts: true, ipi_virtualization: false },
            avic: Avic { x2apic: true, ipi_virtualization: true, keeps_cr8_intercept: None },
            host_tick_hz: 250,
        }
    }
}

/// Intel's: virtual-interrupt delivery and APIC-register virtualization, which KVM uses together or not at
/// all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apicv {
    /// A running vCPU gets interrupts without being made to leave the guest. KVM needs it for APICv
    /// (`cpu_has_vmx_apicv` in `arch/x86/kvm/vmx/capabilities.h`); other hypervisors may do without.
    pub posted_interrupts: bool,
    /// The processor sends IPIs itself (`enable_ipiv` of `kvm_intel`).
    pub ipi_virtualization: bool,
}

/// AMD's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Avic {
    /// x2AVIC: guests in x2APIC mode are helped too. Without it, KVM of Linux 6.0 or later delivers
    /// interrupts to them, and emulates their registers.
    pub x2apic: bool,
    /// The processor sends IPIs itself. Not so on family 17h (Zen 1 and 2), for erratum 1235: KVM turns it
    /// off there (`avic_hardware_setup` in `arch/x86/kvm/svm/avic.c`).
    pub ipi_virtualization: bool,
    /// The host's kernel has a fault by which KVM can go on to intercept writes of CR8 while AVIC is active: those of a
    /// vCPU that was reset, or had an interrupt pending, while AVIC was inhibited. Mainline has the fix since 7.0-rc4
    /// (87d0f901a9bd), stable series in later releases of theirs. `None` where the kernel is not known.
    pub keeps_cr8_intercept: Option<bool>,
}
