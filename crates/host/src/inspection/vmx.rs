//! What VMX offers.

/// Controls of VMX that can be switched on (Intel SDM volume 3, 25.6 and appendix A.3). `None` where neither the MSR
/// nor the `vmx flags` line tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VmxFeatures {
    /// Use TPR shadow: primary control, bit 21.
    pub tpr_shadow: Option<bool>,
    /// Virtualize APIC accesses: secondary control, bit 0.
    pub apic_accesses: Option<bool>,
    /// Virtualize x2APIC mode: secondary control, bit 4.
    pub x2apic_mode: Option<bool>,
    /// APIC-register virtualization: secondary control, bit 8.
    pub apic_registers: Option<bool>,
    /// Virtual-interrupt delivery: secondary control, bit 9.
    pub interrupt_delivery: Option<bool>,
    /// Process posted interrupts: pin-based control, bit 7.
    pub posted_interrupts: Option<bool>,
    /// IPI virtualization: tertiary control, bit 4.
    pub ipi_virtualization: Option<bool>,
    /// Enable EPT: secondary control, bit 1.
    pub ept: Option<bool>,
    /// Enable VPID: secondary control, bit 5.
    pub vpid: Option<bool>,
    /// Unrestricted guest: secondary control, bit 7.
    pub unrestricted_guest: Option<bool>,
    /// PAUSE-loop exiting: secondary control, bit 10.
    pub pause_loop_exiting: Option<bool>,
    /// The VMX-preemption timer: pin-based control, bit 6.
    pub preemption_timer: Option<bool>,
    /// Virtual NMIs: pin-based control, bit 5.
    pub virtual_nmis: Option<bool>,
}

impl VmxFeatures {
    /// What Linux calls APICv (`arch/x86/kvm/vmx/capabilities.h`, `cpu_has_vmx_apicv`): registers, delivery and posted
    /// interrupts, on top of the TPR shadow. `None` when one of them is not known and none is lacking.
    #[must_use]
    pub fn apicv(&self) -> Option<bool> {
        let parts = [self.tpr_shadow, self.apic_registers, self.interrupt_delivery, self.posted_interrupts];
        if parts.contains(&Some(false)) {
            return Some(false);
        }
        (!parts.contains(&None)).then_some(true)
    }
}
