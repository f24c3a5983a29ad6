//! Capabilities of the CPU and its firmware.

use super::rule::{Category, Rule, Verdict};
use super::subject::Subject;
use exits::Isa;
use host::Lack;

const APM3: &str = "AMD64 Architecture Programmer's Manual volume 3, E.4.9, CPUID Fn8000_000A";
const SDM: &str =
    "Intel SDM volume 3, appendix A.3; Linux arch/x86/kvm/vmx/capabilities.h, cpu_has_vmx_apicv";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "cpu-firmware",
        title: "Firmware allows virtualization",
        category: Category::Cpu,
        why: "what the firmware locks stays off until the next reset",
        source: "AMD64 Architecture Programmer's Manual volume 2, 15.30.1, VM_CR; Intel SDM volume 4, \
                 IA32_FEATURE_CONTROL",
        parent: "",
        check: firmware,
    },
    Rule {
        name: "cpu-virtualization",
        title: "Hardware virtualization",
        category: Category::Cpu,
        why: "KVM runs guests only with SVM or VMX",
        source: "Linux Documentation/virt/kvm; arch/x86/kvm/svm/svm.c and vmx/vmx.c",
        parent: "cpu-firmware",
        check: virtualization,
    },
    Rule {
        name: "cpu-hypervisor",
        title: "Bare metal",
        category: Category::Cpu,
        why: "under another hypervisor each exit of a guest becomes several, and AVIC is not offered",
        source: "CPUID Fn0000_0001 ECX bit 31 and Fn4000_0000",
        parent: "cpu-virtualization",
        check: hypervisor,
    },
    Rule {
        name: "cpu-avic",
        title: "AVIC",
        category: Category::Cpu,
        why: "without it the host handles every interrupt and every IPI of a guest",
        source: APM3,
        parent: "cpu-virtualization",
        check: avic,
    },
    Rule {
        name: "cpu-x2avic",
        title: "x2AVIC",
        category: Category::Cpu,
        why: "without it each access to a guest's x2APIC registers exits, and APIC IDs are limited to 254",
        source: APM3,
        parent: "cpu-avic",
        check: x2avic,
    },
    Rule {
        name: "cpu-apicv",
        title: "APICv",
        category: Category::Cpu,
        why: "without it the host handles every interrupt and every EOI of a guest",
        source: SDM,
        parent: "cpu-virtualization",
        check: apicv,
    },
    Rule {
        name: "cpu-x2apic-mode",
        title: "Virtualized x2APIC mode",
        category: Category::Cpu,
        why: "without it each access to a guest's x2APIC registers exits",
        source: SDM,
        parent: "cpu-apicv",
        check: x2apic_mode,
    },
    Rule {
        name: "cpu-nested-paging",
        title: "Nested paging",
        category: Category::Cpu,
        why: "AVIC needs it; without it every change to a guest's page tables exits",
        source: "AMD64 Architecture Programmer's Manual volume 2, 15.29; Linux arch/x86/kvm/svm/avic.c, \
                 avic_hardware_setup",
        parent: "cpu-virtualization",
        check: nested_paging,
    },
    Rule {
        name: "cpu-microcode",
        title: "Same microcode on all CPUs",
        category: Category::Cpu,
        why: "with different microcode, faults come and go depending on where a vCPU runs",
        source: "Linux Documentation/arch/x86/microcode.rst; /proc/cpuinfo, microcode",
        parent: "",
        check: microcode,
    },
];

fn firmware(subject: &Subject<'_>) -> Option<Verdict> {
    let processor = &subject.host.processor;
    // In a guest these registers show what the underlying hypervisor offers; another check covers that.
    if subject.is_xen() || subject.is_guest() {
        return None;
    }
    match subject.isa? {
        Isa::Svm => Some(match processor.vm_cr.get() {
            Some(register) if register.disabled => {
                let lock = if register.locked { "and locked it" } else { "without locking it" };
                Verdict::fail(format!("the firmware disabled SVM {lock}"))
                    .resting_on(&processor.vm_cr)
                    .advice("enable SVM (\"SVM Mode\", \"Secure Virtual Machine\") in the firmware setup")
            }
            Some(_) => Verdict::pass("SVM is not disabled").resting_on(&processor.vm_cr),
            None => Verdict::unknown(&processor.vm_cr),
        }),
        Isa::Vmx => Some(match processor.feature_control.get() {
            Some(register) if register.locked && !register.vmx => Verdict::fail("the firmware disabled VMX")
                .resting_on(&processor.feature_control)
                .advice("enable VT-x (\"Intel Virtualization Technology\") in the firmware setup"),
            Some(_) => Verdict::pass("VMX is not disabled").resting_on(&processor.feature_control),
            None => Verdict::unknown(&processor.feature_control),
        }),
    }
}

fn virtualization(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let processor = &subject.host.processor;
    let Some(flags) = processor.flags.get() else { return Some(Verdict::unknown(&processor.flags)) };
    for (flag, name) in [("svm", "SVM"), ("vmx", "VMX")] {
        if flags.contains(flag) {
            return Some(Verdict::pass(format!("the CPU has {name}")).seen("/proc/cpuinfo, flags", flag));
        }
    }
    let below = processor.hypervisor.get().cloned().flatten();
    let verdict = match &below {
        Some(name) if name.is_empty() => {
            Verdict::fail("the underlying hypervisor offers neither SVM nor VMX")
        }
        Some(name) => Verdict::fail(format!("the underlying hypervisor ({name}) offers neither SVM nor VMX")),
        None => Verdict::fail("the CPU offers neither SVM nor VMX"),
    };
    let verdict = verdict.seen("/proc/cpuinfo, flags", "neither svm nor vmx");
    Some(match below {
        Some(_) => verdict.resting_on(&processor.hypervisor).advice(
            "let the underlying hypervisor offer it: kvm_amd or kvm_intel nested=1 there, and -cpu host for this \
             guest",
        ),
        None => verdict.advice("enable virtualization in the firmware setup"),
    })
}

fn hypervisor(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let fact = &subject.host.processor.hypervisor;
    Some(match fact.get() {
        Some(None) => Verdict::pass("there is no hypervisor underneath").resting_on(fact),
        Some(Some(name)) => {
            let named = if name.is_empty() { String::new() } else { format!(" ({name})") };
            Verdict::warn(format!("this host is itself a guest of a hypervisor{named}"))
                .resting_on(fact)
                .advice("measure and run guests on the underlying host if possible")
        }
        None => Verdict::unknown(fact),
    })
}

fn avic(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Svm) {
        return None;
    }
    let fact = &subject.host.processor.svm;
    let Some(svm) = fact.get() else { return Some(Verdict::unknown(fact)) };
    if svm.avic {
        return Some(Verdict::pass("the CPU has AVIC").resting_on(fact));
    }
    subject.host.processor.lack(Isa::Svm).map(|lack| lacking(lack).resting_on(fact))
}

fn lacking(lack: Lack) -> Verdict {
    Verdict::fail(lack.why).advice(lack.next)
}

fn x2avic(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Svm) {
        return None;
    }
    let fact = &subject.host.processor.svm;
    Some(match fact.get() {
        Some(svm) if svm.x2avic && svm.x2avic_extended => {
            Verdict::pass("the CPU has x2AVIC, for up to 4096 vCPUs").resting_on(fact)
        }
        Some(svm) if svm.x2avic => Verdict::pass("the CPU has x2AVIC, for up to 512 vCPUs").resting_on(fact),
        Some(_) => Verdict::warn("the CPU has no x2AVIC: x2APIC guests get AVIC for delivery only")
            .resting_on(fact)
            .advice(
                "where AVIC is on, give guests of up to 255 vCPUs -cpu ...,x2apic=off if they have many IPIs and EOIs",
            ),
        None => Verdict::unknown(fact),
    })
}

fn apicv(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Vmx) {
        return None;
    }
    let fact = &subject.host.processor.vmx;
    let Some(vmx) = fact.get() else { return Some(Verdict::unknown(fact)) };
    Some(match vmx.apicv() {
        Some(true) => {
            let ipis = match vmx.ipi_virtualization {
                Some(true) => ", IPI virtualization too",
                _ => "",
            };
            Verdict::pass(format!("the CPU has all of APICv{ipis}")).resting_on(fact)
        }
        Some(false) => lacking(subject.host.processor.lack(Isa::Vmx)?).resting_on(fact),
        None => {
            Verdict::skip("neither the MSRs nor the vmx flags show all parts; run as root").resting_on(fact)
        }
    })
}

fn x2apic_mode(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Vmx) {
        return None;
    }
    let fact = &subject.host.processor.vmx;
    Some(match fact.get()?.x2apic_mode {
        Some(true) => Verdict::pass("x2APIC accesses of guests can be virtualized").resting_on(fact),
        Some(false) => {
            Verdict::warn("x2APIC accesses of guests exit").resting_on(fact).advice(subject.feature_advice(
                "start this VM with -cpu host or -cpu ...,vmx-apicv-x2apic=on",
                "nothing on this CPU; guests of up to 255 vCPUs can be started with -cpu ...,x2apic=off",
            ))
        }
        None => Verdict::skip("neither the MSRs nor the vmx flags show it").resting_on(fact),
    })
}

fn nested_paging(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let processor = &subject.host.processor;
    let (there, name, fails) = match subject.isa? {
        Isa::Svm => (processor.svm.get().map(|svm| svm.npt), "NPT", true),
        Isa::Vmx => (processor.vmx.get().and_then(|vmx| vmx.ept), "EPT", false),
    };
    let lacks = match subject.is_guest() {
        true => format!("the underlying hypervisor offers no {name}"),
        false => format!("the CPU has no {name}"),
    };
    let verdict = match there {
        Some(true) => Verdict::pass(format!("the CPU has {name}")),
        Some(false) if fails => Verdict::fail(format!("{lacks}, so AVIC cannot be used")),
        Some(false) => Verdict::warn(lacks),
        None => Verdict::skip(format!("it is not known whether the CPU has {name}")),
    };
    let verdict = match subject.isa? {
        Isa::Svm => verdict.resting_on(&processor.svm),
        Isa::Vmx => verdict.resting_on(&processor.vmx),
    };
    let parameter = if fails { "kvm_amd npt=1" } else { "kvm_intel ept=1" };
    let below = format!("{parameter}, and start this VM with -cpu host");
    Some(match there {
        Some(false) => verdict.advice(subject.feature_advice(&below, "another CPU")),
        _ => verdict,
    })
}

fn microcode(subject: &Subject<'_>) -> Option<Verdict> {
    let fact = &subject.host.processor.microcode;
    let Some(revisions) = fact.get() else { return Some(Verdict::unknown(fact)) };
    let told: Vec<String> =
        revisions.iter().map(|(revision, count)| format!("{revision} on {count}")).collect();
    Some(match revisions.len() {
        0 => Verdict::skip("no CPU reports its microcode"),
        1 => Verdict::pass(told.join(", ")).seen("/proc/cpuinfo, microcode", told.join(", ")),
        _ => Verdict::warn("CPUs run different microcode")
            .seen("/proc/cpuinfo, microcode", told.join(", "))
            .advice("update the firmware and reboot; an incomplete late update of microcode causes this"),
    })
}
