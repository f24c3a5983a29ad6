//! Hosts that run Xen.

mod devices;
mod guests;
mod scheduling;

use super::rule::{Category, Rule, Verdict};
use super::subject::Subject;
use crate::xen::apicv_by;
use exits::Isa;
use host::inspection::{Xen, XenInfo};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "xen-control",
        title: "Xen's control domain",
        category: Category::Xen,
        why: "only the control domain can ask Xen what it uses",
        source: "/proc/xen/capabilities, control_d; xl(1)",
        parent: "",
        check: control,
    },
    Rule {
        name: "xen-hvm",
        title: "Hardware virtualization in Xen",
        category: Category::Xen,
        why: "HVM and PVH guests need it; PV guests have no interrupts that hardware could deliver",
        source: "xl(1), info, virt_caps; Xen tools/xl/xl_info.c",
        parent: "xen-control",
        check: hvm,
    },
    Rule {
        name: "xen-apicv-argument",
        title: "APICv in Xen's arguments",
        category: Category::Xen,
        why: "Xen uses APICv by default",
        source: "Xen docs/misc/xen-command-line.pandoc, apicv",
        parent: "xen-hvm",
        check: apicv_argument,
    },
    Rule {
        name: "xen-apicv",
        title: "APICv in Xen",
        category: Category::Xen,
        why: "without it Xen handles every interrupt and every EOI of a guest",
        source: "Xen xen/arch/x86/hvm/vmx/vmcs.c, vmx_display_features",
        parent: "xen-apicv-argument",
        check: apicv,
    },
    Rule {
        name: "xen-avic",
        title: "AVIC in Xen",
        category: Category::Xen,
        why: "on AMD Xen handles every interrupt of a guest, whatever the CPU supports",
        source: "Xen xen/arch/x86/hvm/svm/svm.c, start_svm, without AVIC up to 4.22",
        parent: "xen-hvm",
        check: avic,
    },
    Rule {
        name: "xen-posted-interrupts",
        title: "Posted interrupts in Xen",
        category: Category::Xen,
        why: "without them Xen takes every interrupt of an assigned device and injects it",
        source: "Xen docs/misc/xen-command-line.pandoc, iommu=intpost; xen/drivers/passthrough/vtd/iommu.c",
        parent: "xen-hvm",
        check: posted,
    },
    Rule {
        name: "xen-nested-paging",
        title: "Nested paging in Xen",
        category: Category::Xen,
        why: "without it every change to a guest's page tables exits, and Xen keeps copies of them",
        source: "xl(1), info, virt_caps; Xen xen/arch/x86/hvm/hvm.c, hvm_enable",
        parent: "xen-hvm",
        check: guests::nested_paging,
    },
    Rule {
        name: "xen-guest-types",
        title: "Types of the guests",
        category: Category::Xen,
        why: "PV guests run without VMX and SVM: each interrupt reaches them as an event that Xen delivers",
        source: "xl.cfg(5), type; Xen docs/misc/pvh.pandoc",
        parent: "xen-hvm",
        check: guests::types,
    },
    Rule {
        name: "xen-iommu",
        title: "IOMMU in Xen",
        category: Category::Xen,
        why: "devices can be assigned only through it, and without remapping their interrupts cannot be posted",
        source: "Xen xen/drivers/passthrough/iommu.c, iommu_setup; docs/misc/xen-command-line.pandoc, iommu",
        parent: "xen-control",
        check: devices::iommu,
    },
    Rule {
        name: "xen-pass-through",
        title: "Devices for pass-through",
        category: Category::Xen,
        why: "a device, or a function of one by SR-IOV, must be taken from dom0's drivers before a guest gets it",
        source: "xl(1), pci-assignable-list and pci-assignable-add",
        parent: "xen-iommu",
        check: devices::pass_through,
    },
    Rule {
        name: "xen-scheduler",
        title: "Scheduler of Xen",
        category: Category::Xen,
        why: "an interrupt for a vCPU that does not run waits until the scheduler lets it",
        source: "xl(1), cpupool-list; Xen docs/misc/xen-command-line.pandoc, sched",
        parent: "xen-control",
        check: scheduling::scheduler,
    },
    Rule {
        name: "xen-vcpu-places",
        title: "Pinning of vCPUs",
        category: Category::Xen,
        why: "vCPUs pinned to one CPU wait for each other, and so do their interrupts",
        source: "xl(1), vcpu-list and vcpu-pin; xl.cfg(5), cpus",
        parent: "xen-control",
        check: scheduling::places,
    },
    Rule {
        name: "xen-frequency",
        title: "Frequencies in Xen",
        category: Category::Xen,
        why: "a CPU that idles between interrupts is slow at the next one, and measurements drift",
        source: "xenpm(1), get-cpufreq-para; Xen docs/misc/xen-command-line.pandoc, cpufreq",
        parent: "xen-control",
        check: scheduling::frequency,
    },
];

fn info<'a>(subject: &Subject<'a>) -> Option<(&'a Xen, &'a XenInfo)> {
    let xen = subject.host.xen.as_ref()?;
    Some((xen, xen.info.get()?))
}

/// Xen, if this is its control domain, which alone has some of the facts.
fn controlled<'a>(subject: &Subject<'a>) -> Option<&'a Xen> {
    subject.host.xen.as_ref().filter(|xen| xen.control.get() == Some(&true))
}

fn control(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = subject.host.xen.as_ref()?;
    Some(match xen.control.get() {
        Some(true) => {
            let version = xen.version.get().map_or(String::new(), |version| format!(" of Xen {version}"));
            Verdict::pass(format!("this is the control domain{version}")).resting_on(&xen.control)
        }
        Some(false) => Verdict::fail("this is a guest of Xen, and not its control domain")
            .resting_on(&xen.control)
            .advice("run exitless in dom0"),
        None => Verdict::unknown(&xen.control),
    })
}

fn hvm(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = subject.host.xen.as_ref()?;
    let Some(info) = xen.info.get() else { return Some(Verdict::unknown(&xen.info)) };
    let caps = info.field("virt_caps").unwrap_or_default();
    Some(if caps.split_whitespace().any(|cap| cap == "hvm") {
        Verdict::pass("Xen runs HVM guests").seen("xl info, virt_caps", caps)
    } else {
        Verdict::fail("Xen runs only PV guests")
            .seen("xl info, virt_caps", caps)
            .advice("enable virtualization (VT-x, SVM) in the firmware setup")
    })
}

fn apicv_argument(subject: &Subject<'_>) -> Option<Verdict> {
    let (_, info) = info(subject)?;
    if subject.isa == Some(Isa::Svm) {
        return None;
    }
    let line = info.field("xen_commandline").unwrap_or_default();
    let last = line.split_whitespace().rfind(|word| apicv_by(word).is_some());
    Some(match last.filter(|word| apicv_by(word) == Some(false)) {
        Some(word) => Verdict::fail("Xen's arguments disable APICv")
            .seen("xl info, xen_commandline", line)
            .advice(format!("remove {word} from Xen's arguments (GRUB_CMDLINE_XEN_DEFAULT) and reboot")),
        None => Verdict::pass("Xen's arguments do not disable APICv").seen("xl info, xen_commandline", line),
    })
}

/// The features that Xen lists if it uses APICv.
const APICV: &[&str] =
    &["APIC Register Virtualization", "Virtual Interrupt Delivery", "Posted Interrupt Processing"];

fn apicv(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = controlled(subject)?;
    if subject.isa == Some(Isa::Svm) {
        return None;
    }
    let Some(log) = xen.log.get() else { return Some(Verdict::unknown(&xen.log)) };
    if log.features.is_empty() {
        return Some(Verdict::skip("Xen's log no longer holds its start, which lists the features in use"));
    }
    let lacking: Vec<&str> = APICV.iter().copied().filter(|feature| !log.has(feature)).collect();
    let seen = log.features.join(", ");
    Some(if lacking.is_empty() {
        Verdict::pass("Xen uses APICv").seen("xl dmesg", seen)
    } else {
        Verdict::fail(format!("Xen does not list {}", lacking.join(", ")))
            .seen("xl dmesg", seen)
            .advice("a CPU with APICv (Xeons since Ivy Bridge-EP)")
    })
}

fn avic(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = controlled(subject)?;
    if subject.isa == Some(Isa::Vmx) {
        return None;
    }
    let Some(log) = xen.log.get() else { return Some(Verdict::unknown(&xen.log)) };
    if log.has("AVIC") || log.has("Virtual APIC") {
        return Some(Verdict::pass("Xen lists AVIC").seen("xl dmesg", log.features.join(", ")));
    }
    Some(
        Verdict::warn("Xen uses no AVIC")
            .seen("xl dmesg", log.features.join(", "))
            .advice("nothing in Xen; KVM uses AVIC on such a CPU"),
    )
}

fn posted(subject: &Subject<'_>) -> Option<Verdict> {
    let (xen, info) = info(subject)?;
    let log = xen.log.get()?;
    let said = log.posted_interrupts.as_deref()?;
    let verdict = if said == "enabled" {
        Verdict::pass("Xen can post interrupts of devices")
    } else {
        // "is disabled for CPU-side Posted Interrupt is not enabled" comes after "enabled".
        let (found, advice) = if said.starts_with("is disabled") {
            (
                "Xen posts no interrupts of devices, because it does not use APICv's posted interrupts",
                "let Xen use APICv: remove apicv=0 from its arguments if it is there; the CPU must have virtual interrupt delivery",
            )
        } else {
            (
                "Xen posts no interrupts of devices",
                "add iommu=intpost to Xen's arguments; the hardware must support it. Xen leaves it off by default because of corner cases",
            )
        };
        let line = info.field("xen_commandline").unwrap_or_default();
        Verdict::warn(found).seen("xl info, xen_commandline", line).advice(advice)
    };
    Some(verdict.seen("xl dmesg", format!("Intel VT-d Posted Interrupt {said}")))
}
