//! The reason why a CPU does not deliver guest interrupts, and the next step: the same text in all commands.

use crate::Below;

/// A CPU feature that APICv or AVIC requires and the CPU lacks, and the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// The missing feature.
    pub why: String,
    /// The next step.
    pub next: String,
}

/// The features that Linux calls APICv: the words of the `vmx flags` line and their meanings
/// (`arch/x86/kernel/cpu/feat_ctl.c` prints `apicv` if it has all of them).
pub(crate) const APICV_PARTS: [(&str, &str); 4] = [
    ("vtpr", "TPR shadow"),
    ("vapic_reg", "APIC-register virtualization"),
    ("vid", "virtual-interrupt delivery"),
    ("posted_intr", POSTED_INTERRUPTS),
];
const POSTED_INTERRUPTS: &str = "posted interrupts";

impl Lack {
    pub(crate) fn new(why: impl Into<String>, next: impl Into<String>) -> Self {
        Self { why: why.into(), next: next.into() }
    }

    /// AVIC is missing; `below` is the hypervisor under this host.
    pub(crate) fn of_avic(below: Option<Below>) -> Self {
        if below.is_some() {
            // KVM hides AVIC from guests: arch/x86/kvm/cpuid.c, the word CPUID_8000_000A_EDX.
            let why = "the underlying hypervisor offers no AVIC; it is not virtualized for guests";
            return Self::new(why, Below::ELSEWHERE);
        }
        Self::new(
            "the CPU or its firmware offers no AVIC",
            "look for AVIC in the firmware's setup, and for a newer firmware; Zen 4 and later have it",
        )
    }

    /// Parts of APICv, by the names of [`APICV_PARTS`], are missing.
    pub(crate) fn of_apicv(parts: &[&str], below: Option<Below>) -> Self {
        let named = parts.join(", ");
        if let Some(below) = below {
            // enable_apicv decides only whether guests are offered posted interrupts (nested_vmx_setup_pinbased_ctls in
            // arch/x86/kvm/vmx/nested.c). The other parts depend on the VM's CPU model.
            let next = if parts == [POSTED_INTERRUPTS] {
                below.advice(
                    "kvm_intel enable_apicv=1, and start this VM with -cpu host or -cpu ...,vmx-posted-intr=on",
                )
            } else {
                below.advice(
                    "start this VM with -cpu host (libvirt: host-passthrough), or a CPU model with vmx-apicv-register=on, \
                     vmx-apicv-vid=on and vmx-posted-intr=on",
                )
            };
            return Self::new(format!("the underlying hypervisor does not offer {named}"), next);
        }
        Self::new(
            format!("the CPU lacks {named}"),
            "use another CPU: Xeons since Ivy Bridge-EP have APICv, client CPUs of that time may not",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, Inspection, InterruptVirtualization, Root};
    use exits::Isa;

    /// The missing features by the inspection, and by the flags alone.
    fn both(cpuinfo: &str, isa: Isa) -> [Option<Lack>; 2] {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/cpuinfo"), cpuinfo).unwrap();
        let root = Root::directory(root.path());
        let inspection = Inspection::read(&root).unwrap();
        let cpu = Cpu::parse(cpuinfo).unwrap();
        let by_flags = InterruptVirtualization::read(&root, &cpu).and_then(|found| found.lack());
        [inspection.processor.lack(isa), by_flags]
    }

    #[test]
    fn flags_and_an_inspection_come_to_the_same_words() {
        let amd = "processor : 0\nvendor_id : AuthenticAMD\nflags : svm npt";
        let intel = "processor : 0\nvendor_id : GenuineIntel\nflags : vmx";
        let table = [
            (format!("{amd}\n"), Isa::Svm, "the CPU or its firmware offers no AVIC"),
            (format!("{amd} hypervisor\n"), Isa::Svm, "the underlying hypervisor offers no AVIC"),
            (
                format!("{intel}\nvmx flags : vtpr vapic_reg vid\n"),
                Isa::Vmx,
                "the CPU lacks posted interrupts",
            ),
            (
                format!("{intel} hypervisor\nvmx flags : vtpr vapic_reg posted_intr\n"),
                Isa::Vmx,
                "the underlying hypervisor does not offer virtual-interrupt delivery",
            ),
        ];
        for (cpuinfo, isa, why) in table {
            let [inspected, by_flags] = both(&cpuinfo, isa);
            let found = inspected.clone().unwrap();
            assert!(found.why.starts_with(why), "{found:?}");
            assert_eq!(inspected, by_flags, "{cpuinfo}");
            // The advice concerns the underlying hypervisor, not this machine's firmware.
            assert_eq!(found.next.contains("below"), cpuinfo.contains("hypervisor"), "{found:?}");
        }
        let next = |flags: &str| {
            let [inspected, _] = both(&format!("{intel} hypervisor\nvmx flags : {flags}\n"), Isa::Vmx);
            inspected.unwrap().next
        };
        // The switch of the module below brings posted interrupts alone.
        let [of_model, of_module] = [next("vtpr posted_intr"), next("vtpr vapic_reg vid")];
        assert!(of_model.contains("-cpu host") && !of_model.contains("enable_apicv"), "{of_model}");
        assert!(of_module.contains("enable_apicv=1"), "{of_module}");
        let whole = format!("{intel}\nvmx flags : vtpr vapic_reg vid posted_intr apicv\n");
        assert_eq!(both(&whole, Isa::Vmx), [None, None]);
        assert_eq!(both(&format!("{amd} avic\n"), Isa::Svm), [None, None]);
    }

    #[test]
    fn the_settings_of_kvm_are_told_only_where_it_is_kvm() {
        let next =
            |signature| Lack::of_apicv(&["virtual-interrupt delivery"], Some(Below::of(signature))).next;
        assert_eq!(next(""), next("KVMKVMKVM"));
        assert!(next("").contains("-cpu host"));
        assert_eq!(next("Microsoft Hv"), Below::ELSEWHERE);
    }
}
