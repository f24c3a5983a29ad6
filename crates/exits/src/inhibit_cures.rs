//! Fixes of inhibit reasons for each program that runs VMs.

use crate::{InhibitReason, Isa};
use serde::Serialize;

/// A change that removes an inhibit reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cure {
    /// The place of the change.
    pub place: CurePlace,
    /// The change, in the syntax of its place.
    pub change: &'static str,
    /// The source of this fact.
    pub source: &'static str,
}

/// The place of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CurePlace {
    /// The parameters of `kvm_intel`.
    KvmIntel,
    /// The parameters of `kvm_amd`.
    KvmAmd,
    /// The host: its kernel or its CPU.
    Host,
    /// QEMU's command line, or its monitor.
    Qemu,
    /// libvirt's definition of the domain.
    Libvirt,
    /// KVM API calls of any VMM.
    Vmm,
    /// The guest.
    Guest,
}

impl CurePlace {
    /// Tests whether this place exists on hosts with this instruction set. If the set is unknown, the parameters of
    /// vendor modules do not.
    #[must_use]
    pub fn is_of(self, isa: Option<Isa>) -> bool {
        match self {
            Self::KvmIntel => isa == Some(Isa::Vmx),
            Self::KvmAmd => isa == Some(Isa::Svm),
            _ => true,
        }
    }

    /// Tests whether it exists only for VMs of QEMU: a definition of libvirt is one of QEMU here.
    #[must_use]
    pub const fn is_of_qemu(self) -> bool {
        matches!(self, Self::Qemu | Self::Libvirt)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KvmIntel => "kvm_intel",
            Self::KvmAmd => "kvm_amd",
            Self::Host => "host",
            Self::Qemu => "QEMU",
            Self::Libvirt => "libvirt",
            Self::Vmm => "any VMM",
            Self::Guest => "guest",
        }
    }
}

const fn cure(place: CurePlace, change: &'static str, source: &'static str) -> Cure {
    Cure { place, change, source }
}

const QEMU_HYPERV: &str = "QEMU docs/system/i386/hyperv.rst, hv-avic";
const LIBVIRT_FEATURES: &str = "libvirt formatdomain, Hypervisor features";
const KVM_HOST: &str = "Linux arch/x86/include/asm/kvm_host.h, enum kvm_apicv_inhibit";
const KVM_API: &str = "Linux Documentation/virt/kvm/api.rst";
const ORACLE: &str = "How to enable AMD AVIC and speed up your VMs (Oracle, 2024)";
// With a split irqchip QEMU does not see which ticks of the RTC arrive (ioapic_service in hw/intc/ioapic.c), and injects each
// again without end if the policy is to catch up (rtc_policy_slew_deliver_irq in hw/rtc/mc146818rtc.c).
const SPLIT: &str =
    "-machine kernel-irqchip=split (not for Windows without hv-stimer if the RTC has driftfix=slew)";
const X2APIC_IN_XML: &str = "<cpu><feature policy='require' name='x2apic'/></cpu>";
const SPLIT_IN_XML: &str = "<features><ioapic driver='qemu'/></features> \
                            (not for Windows without stimer if the RTC has tickpolicy='catchup')";

use CurePlace::{Guest, Host, KvmAmd, KvmIntel, Libvirt, Qemu, Vmm};

const ROWS: &[(InhibitReason, &[Cure])] = &[
    (
        InhibitReason::Disabled,
        &[
            cure(
                KvmIntel,
                "options kvm_intel enable_apicv=1",
                "Linux arch/x86/kvm/vmx/vmx.c, module parameters",
            ),
            cure(KvmAmd, "options kvm_amd avic=1", "Linux arch/x86/kvm/svm/avic.c, module parameters"),
        ],
    ),
    (
        InhibitReason::HyperV,
        &[
            cure(Qemu, "-cpu ...,hv-avic=on (QEMU 6.2, and Linux 5.15 on the host)", QEMU_HYPERV),
            cure(
                Libvirt,
                "<hyperv><avic state='on'/></hyperv> (libvirt 8.10, and Linux 5.15 on the host)",
                LIBVIRT_FEATURES,
            ),
            // Sufficient with every kernel, but Windows then keeps its time by HPET or RTC.
            cure(Qemu, "leave hv-synic, hv-stimer and hv-stimer-direct out", QEMU_HYPERV),
            cure(Libvirt, "leave synic and stimer out of the features of hyperv", LIBVIRT_FEATURES),
            cure(
                Host,
                "Linux 5.15 or newer, and hv-avic in the VM: before, the SynIC inhibits with and without AutoEOI",
                "Linux arch/x86/kvm/hyperv.c, 0f250a646382 (5.15)",
            ),
        ],
    ),
    (
        InhibitReason::Absent,
        &[
            cure(Qemu, SPLIT, ORACLE),
            cure(Libvirt, SPLIT_IN_XML, LIBVIRT_FEATURES),
            cure(Vmm, "KVM_CREATE_IRQCHIP or KVM_CAP_SPLIT_IRQCHIP before the first vCPU", KVM_API),
        ],
    ),
    (
        InhibitReason::BlockIrq,
        &[
            cure(
                Qemu,
                "detach gdb, or in gdb: maintenance packet Qqemu.sstep=0x1",
                "QEMU docs/system/gdb.rst",
            ),
            cure(Vmm, "KVM_SET_GUEST_DEBUG without KVM_GUESTDBG_BLOCKIRQ", KVM_API),
        ],
    ),
    (
        InhibitReason::PhysicalIdAliased,
        &[
            cure(Qemu, "-cpu ...,x2apic=on, and no APIC ID twice", KVM_HOST),
            cure(Libvirt, X2APIC_IN_XML, KVM_HOST),
            cure(Guest, "use x2APIC; leave xAPIC IDs alone", KVM_HOST),
        ],
    ),
    (
        InhibitReason::ApicIdModified,
        &[
            cure(
                Guest,
                "use x2APIC, where the ID is read-only, or a kernel that leaves it alone; once set it stays until the VM's process is started anew",
                "Linux arch/x86/kvm/lapic.c, kvm_lapic_xapic_id_updated",
            ),
            cure(Qemu, "-cpu ...,x2apic=on", KVM_HOST),
            cure(Libvirt, X2APIC_IN_XML, KVM_HOST),
        ],
    ),
    (
        InhibitReason::ApicBaseModified,
        &[cure(
            Guest,
            "leave the APIC at 0xfee00000; once set it stays until the VM's process is started anew",
            "Linux arch/x86/kvm/lapic.c, kvm_lapic_set_base",
        )],
    ),
    (
        InhibitReason::Nested,
        &[
            cure(Qemu, "-cpu ...,svm=off (ends Hyper-V and VBS in the guest)", KVM_HOST),
            cure(
                Libvirt,
                "<cpu><feature policy='disable' name='svm'/></cpu> (ends Hyper-V and VBS in the guest)",
                KVM_HOST,
            ),
            cure(Host, "Linux 5.19 or newer, which inhibits only while a nested guest runs", KVM_HOST),
        ],
    ),
    (
        InhibitReason::IrqWindow,
        // With a split irqchip the PIC is in the VMM, and its interrupts wait for the same window: kvm_cpu_has_extint in
        // arch/x86/kvm/irq.c.
        &[cure(
            Guest,
            "route interrupts by APICs, not by the PIC (ExtINT): Linux without noapic",
            "Linux arch/x86/kvm/svm/svm.c, svm_enable_irq_window",
        )],
    ),
    (
        InhibitReason::PitReinject,
        &[
            cure(Qemu, "-global kvm-pit.lost_tick_policy=discard", ORACLE),
            cure(Qemu, SPLIT, ORACLE),
            cure(
                Libvirt,
                "<clock><timer name='pit' tickpolicy='discard'/></clock>",
                "libvirt formatdomain, Time keeping",
            ),
            cure(Libvirt, SPLIT_IN_XML, LIBVIRT_FEATURES),
            cure(Vmm, "KVM_REINJECT_CONTROL with pit_reinject = 0, or no KVM_CREATE_PIT2", KVM_API),
        ],
    ),
    (InhibitReason::Sev, &[]),
    (
        InhibitReason::LogicalIdAliased,
        &[
            cure(Guest, "use x2APIC, or physical destination mode", KVM_HOST),
            cure(Qemu, "-cpu ...,x2apic=on", KVM_HOST),
            cure(Libvirt, X2APIC_IN_XML, KVM_HOST),
        ],
    ),
    (
        InhibitReason::PhysicalIdTooBig,
        &[
            cure(Qemu, "fewer vCPUs, or -smp sockets, cores and threads that are powers of two", KVM_HOST),
            cure(
                Libvirt,
                "fewer vCPUs, or a topology whose sockets, cores and threads are powers of two",
                KVM_HOST,
            ),
            cure(Host, "a CPU with x2AVIC", KVM_HOST),
        ],
    ),
    (
        InhibitReason::X2Apic,
        &[
            cure(Host, "Linux 6.0 or newer", KVM_HOST),
            cure(Qemu, "-cpu ...,x2apic=off", KVM_HOST),
            cure(Libvirt, "<cpu><feature policy='disable' name='x2apic'/></cpu>", KVM_HOST),
        ],
    ),
];

impl InhibitReason {
    /// The changes that remove the reason, the least invasive first; one of them is sufficient. Empty if nothing
    /// removes it.
    #[must_use]
    pub fn cures(self) -> &'static [Cure] {
        ROWS.iter().find(|(reason, _)| *reason == self).map_or(&[], |(_, cures)| cures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_or_renumbered_apic_needs_a_new_process_and_not_a_reset() {
        for reason in [InhibitReason::ApicBaseModified, InhibitReason::ApicIdModified] {
            // A change of QEMU's command line takes a new process anyway.
            let cures = reason.cures().iter().filter(|cure| cure.place == Guest).map(|cure| cure.change);
            for text in cures.chain([reason.cure()]) {
                assert!(!text.contains("reset") && text.contains("process is started anew"), "{text}");
            }
        }
        assert!(!InhibitReason::ApicBaseModified.cure().to_lowercase().contains("x2apic"));
    }

    #[test]
    fn hv_avic_is_a_cure_only_with_the_kernel_that_knows_it() {
        for cure in InhibitReason::HyperV.cures() {
            let is_avic = cure.change.contains("avic");
            assert!(!is_avic || cure.change.contains("Linux 5.15"), "{}", cure.change);
        }
    }

    #[test]
    fn an_irqchip_is_split_only_under_an_rtc_that_does_not_catch_up() {
        let splits = |change: &str| change.contains("irqchip=split") || change.contains("<ioapic");
        let all = InhibitReason::all().flat_map(InhibitReason::cures).map(|cure| cure.change);
        let told: Vec<&str> = all.filter(|change| splits(change)).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told.iter().all(|change| change.contains("RTC") && change.contains("stimer")), "{told:?}");
    }

    #[test]
    fn no_setting_of_the_irqchip_removes_interrupts_of_the_pic() {
        let places: Vec<CurePlace> = InhibitReason::IrqWindow.cures().iter().map(|cure| cure.place).collect();
        assert_eq!(places, [Guest]);
        assert!(!InhibitReason::IrqWindow.cure().contains("split"));
    }

    #[test]
    fn users_of_other_vmms_than_qemu_have_a_fix_as_well() {
        for reason in InhibitReason::all().filter(|reason| !reason.cures().is_empty()) {
            assert!(reason.cures().iter().any(|cure| !cure.place.is_of_qemu()), "{reason}");
        }
    }

    #[test]
    fn every_reason_has_a_row_and_only_encryption_no_cure() {
        for reason in InhibitReason::all() {
            assert_eq!(ROWS.iter().filter(|(row, _)| *row == reason).count(), 1, "{reason}");
            assert_eq!(reason.cures().is_empty(), reason == InhibitReason::Sev, "{reason}");
            for cure in reason.cures() {
                assert!(cure.change.len() > 5 && cure.source.len() > 5 && !cure.place.name().is_empty());
            }
        }
    }
}
