//! VMX's features.

use crate::{AbsenceKind, Cpu, Fact, Root};

/// Controls of VMX that can be enabled (Intel SDM volume 3, 25.6 and appendix A.3). `None` if neither the MSR
/// nor the `vmx flags` line shows it.
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
    /// The features that Linux calls APICv (`arch/x86/kvm/vmx/capabilities.h`, `cpu_has_vmx_apicv`):
    /// registers, delivery and posted interrupts, in addition to the TPR shadow. `None` if one of them is
    /// unknown and none is missing.
    #[must_use]
    pub fn apicv(&self) -> Option<bool> {
        let parts = [self.tpr_shadow, self.apic_registers, self.interrupt_delivery, self.posted_interrupts];
        if parts.contains(&Some(false)) {
            return Some(false);
        }
        (!parts.contains(&None)).then_some(true)
    }
}

const BASIC: u32 = 0x480;
const PIN: u32 = 0x481;
const PRIMARY: u32 = 0x482;
const SECONDARY: u32 = 0x48b;
const EPT_VPID: u32 = 0x48c;
const TRUE_PIN: u32 = 0x48d;
const TRUE_PRIMARY: u32 = 0x48e;
const TERTIARY: u32 = 0x492;

impl VmxFeatures {
    /// Reads the features from the capability MSRs, or from the `vmx flags` line if the MSRs cannot be read.
    pub(super) fn read(root: &Root, cpu: Option<&Cpu>, amd: bool) -> Fact<Self> {
        if amd {
            return Fact::absent(AbsenceKind::NotApplicable, "VMX is Intel's");
        }
        // Without VMX the registers do not exist, and each attempt to read one is expensive.
        let has_vmx = cpu.is_none_or(|cpu| cpu.has("vmx"));
        if !has_vmx {
            return Fact::absent(AbsenceKind::NotApplicable, "the flags in /proc/cpuinfo have no `vmx`");
        }
        by_registers(root).or(|| by_flags(cpu))
    }
}

/// The features by the capability MSRs. The high half of a capability MSR has the controls that may be 1 (SDM
/// volume 3, A.3).
fn by_registers(root: &Root) -> Fact<VmxFeatures> {
    let basic = root.msr(BASIC);
    let Some(&value) = basic.get() else { return basic.map(|_| VmxFeatures::default()) };
    let mut evidence = basic.evidence;
    let mut ask = |number: u32| {
        let fact = root.msr(number);
        evidence.extend(fact.evidence);
        fact.value.ok()
    };
    // Bit 55: the TRUE registers exist.
    let has_true = value & 1 << 55 != 0;
    let pin = ask(if has_true { TRUE_PIN } else { PIN });
    let primary = ask(if has_true { TRUE_PRIMARY } else { PRIMARY });
    let allowed = |register: Option<u64>, bit: u32| register.map(|value| value >> 32 & 1 << bit != 0);
    // The secondary and tertiary registers exist only if the primary control that activates them may be 1.
    let beyond = |used: Option<bool>, value: Option<u64>| if used == Some(false) { Some(0) } else { value };
    let secondary_used = allowed(primary, 31);
    let secondary = if secondary_used == Some(true) { ask(SECONDARY) } else { None };
    let secondary = beyond(secondary_used, secondary);
    let tertiary_used = allowed(primary, 17);
    let tertiary = if tertiary_used == Some(true) { ask(TERTIARY) } else { None };
    let tertiary = beyond(tertiary_used, tertiary);
    if allowed(secondary, 1) == Some(true) {
        ask(EPT_VPID);
    }
    let features = VmxFeatures {
        tpr_shadow: allowed(primary, 21),
        apic_accesses: allowed(secondary, 0),
        x2apic_mode: allowed(secondary, 4),
        apic_registers: allowed(secondary, 8),
        interrupt_delivery: allowed(secondary, 9),
        posted_interrupts: allowed(pin, 7),
        // All 64 bits of this register are controls that may be 1.
        ipi_virtualization: tertiary.map(|value| value & 1 << 4 != 0),
        ept: allowed(secondary, 1),
        vpid: allowed(secondary, 5),
        unrestricted_guest: allowed(secondary, 7),
        pause_loop_exiting: allowed(secondary, 10),
        preemption_timer: allowed(pin, 6),
        virtual_nmis: allowed(pin, 5),
    };
    Fact { value: Ok(features), evidence }
}

/// The features by the `vmx flags` line, whose words are in `arch/x86/include/asm/vmxfeatures.h`. x2APIC mode
/// is never printed; `flexpriority` and `apicv` each stand for several controls, but `vtpr` and `vapic` are
/// printed too.
fn by_flags(cpu: Option<&Cpu>) -> Fact<VmxFeatures> {
    let Some(line) = cpu.and_then(|cpu| cpu.vmx_flags.as_deref()) else {
        return Fact::absent(
            AbsenceKind::NotThere,
            "/proc/cpuinfo has no line `vmx flags` (Linux before 5.6)",
        );
    };
    let has = |word: &str| Some(line.split_whitespace().any(|one| one == word));
    let features = VmxFeatures {
        tpr_shadow: has("vtpr"),
        apic_accesses: has("vapic"),
        x2apic_mode: None,
        apic_registers: has("vapic_reg"),
        interrupt_delivery: has("vid"),
        posted_interrupts: has("posted_intr"),
        ipi_virtualization: has("ipi_virt"),
        ept: has("ept"),
        vpid: has("vpid"),
        unrestricted_guest: has("unrestricted_guest"),
        pause_loop_exiting: has("ple"),
        preemption_timer: has("preemption_timer"),
        virtual_nmis: has("vnmi"),
    };
    Fact::known(features, "/proc/cpuinfo", format!("vmx flags: {line}"))
}
