//! Why nothing may be done.

use super::plan::{Arm, Refusal};
use super::target::{Target, switch};
use host::{Inspection, kvm};
use std::path::Path;

/// Files that container managers leave inside.
const CONTAINER: [&str; 3] = ["run/systemd/container", ".dockerenv", "run/.containerenv"];

pub(super) fn all(root: &Path, inspection: &Inspection, target: &Target) -> Vec<Refusal> {
    let mut found = Vec::new();
    let mut refuse = |name: &str, why: String, next: &str| {
        found.push(Refusal { name: name.to_owned(), why, next: next.to_owned() });
    };
    if let Some(file) = CONTAINER.iter().find(|file| root.join(file).exists()) {
        let why = format!("this is a container (/{file} is there), and the kernel is its host's");
        refuse("container", why, "run exitless on the host");
    }
    if target.arm == Arm::Off {
        return found;
    }
    let lacks = lacks(inspection, target);
    let believed = target.loaded && target.switch().now.as_deref().and_then(switch) == Some(true);
    match lacks {
        Some(why) if believed => {
            let forced =
                inspection.kernel.parameters.get(target.module).and_then(|all| all.get("force_avic"));
            let forced = forced.and_then(Option::as_deref).and_then(switch) == Some(true);
            let cause = if forced { "force_avic overrules the CPU" } else { "the two contradict each other" };
            let why = format!("{why}, and yet {} has {} on: {cause}", target.module, target.switch().name);
            refuse(
                "contradiction",
                why,
                "see `exitless doctor`; VMs with it can hang where the CPU has none",
            );
        }
        Some(why) => refuse(
            "cpu",
            why,
            "look for it in the firmware's settings (AMD: \"SVM\", \"AVIC\", \"IOMMU\"; Intel: \"VT-x\"); some CPUs of \
             a family lack it",
        ),
        None => {}
    }
    found
}

/// What the CPU lacks, when that is certain.
fn lacks(inspection: &Inspection, target: &Target) -> Option<String> {
    if target.module == kvm::AMD {
        let flag = inspection.processor.flags.get().map(|flags| flags.contains("avic"));
        let cpuid = inspection.processor.svm.get().map(|svm| svm.avic);
        return match (cpuid, flag) {
            (Some(true), Some(false)) => Some(
                "CPUID offers AVIC and the kernel does not list it (an argument clearcpuid=?)".to_owned(),
            ),
            (Some(false), _) | (None, Some(false)) => {
                Some("the CPU offers no AVIC (CPUID 8000000Ah, EDX bit 13)".to_owned())
            }
            _ => None,
        };
    }
    let vmx = inspection.processor.vmx.get()?;
    if vmx.apicv() != Some(false) {
        return None;
    }
    let parts = [
        (vmx.tpr_shadow, "TPR shadow"),
        (vmx.apic_registers, "APIC-register virtualization"),
        (vmx.interrupt_delivery, "virtual-interrupt delivery"),
        (vmx.posted_interrupts, "posted interrupts"),
    ];
    let lacking: Vec<_> =
        parts.iter().filter(|(has, _)| *has == Some(false)).map(|&(_, name)| name).collect();
    Some(format!("the CPU lacks {}", lacking.join(", ")))
}
