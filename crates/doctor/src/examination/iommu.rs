//! IOMMUs, and the delivery of device interrupts to the host and to guests.

use super::kernel::is_better_without_posting;
use super::rule::{Category, Rule, Verdict};
use super::subject::Subject;
use crate::enable::is_harmful;
use exits::Isa;
use host::inspection::{Argument, Arguments, IommuRegisters, IommuUnit};
use host::parameter_path;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "iommu-present",
        title: "IOMMU",
        category: Category::Iommu,
        why: "assigned devices and posting of their interrupts need one",
        source: "Linux drivers/iommu/amd/init.c and drivers/iommu/intel/dmar.c; /sys/class/iommu",
        parent: "",
        check: present,
    },
    Rule {
        name: "iommu-remapping",
        title: "Interrupt remapping",
        category: Category::Iommu,
        why: "posting is a kind of remapping, and without it an assigned device can raise any interrupt of the host",
        source: "Linux Documentation/admin-guide/kernel-parameters.txt, intremap=; /proc/interrupts, chips IR-",
        parent: "iommu-present",
        check: remapping,
    },
    Rule {
        name: "iommu-posting",
        title: "Posting of device interrupts",
        category: Category::Iommu,
        why: "an IOMMU that posts delivers interrupts of assigned devices to the vCPU; otherwise the host injects each",
        source: "AMD I/O Virtualization Technology specification, MMIO offset 30h, GASup and GAMSup, and table 21; \
                 Intel VT-d specification, 11.4.2, bit 59",
        parent: "iommu-remapping",
        check: posting,
    },
    Rule {
        name: "iommu-posting-argument",
        title: "Kernel arguments that disable posting",
        category: Category::Iommu,
        why: "with such an argument the kernel posts nothing",
        source: "Linux Documentation/admin-guide/kernel-parameters.txt, amd_iommu_intr= and intremap=; \
                 drivers/iommu/irq_remapping.c, irq_remapping_cap",
        parent: "iommu-present",
        check: posting_argument,
    },
    Rule {
        name: "iommu-snp",
        title: "Guest APICs with SEV-SNP",
        category: Category::Iommu,
        why: "with SNP on, the IOMMU posts only if it reports support for both",
        source: "Linux drivers/iommu/amd/init.c, enable_iommus_vapic, FEATURE_SNPAVICSUP_GAM",
        parent: "iommu-posting",
        check: snp,
    },
    Rule {
        name: "iommu-unsafe-interrupts",
        title: "VFIO without interrupt remapping",
        category: Category::Iommu,
        why: "with it a guest can raise any interrupt of the host through its device",
        source: "Linux drivers/vfio/vfio_iommu_type1.c and drivers/iommu/iommufd/device.c, allow_unsafe_interrupts",
        parent: "",
        check: unsafe_interrupts,
    },
];

/// The fix of a missing IOMMU in a guest (QEMU docs/system/i386 and qemu-options.hx, -device intel-iommu).
const IN_A_GUEST: &str = "have the underlying hypervisor offer an IOMMU that remaps interrupts (QEMU: -device \
                          intel-iommu,intremap=on with kernel-irqchip=split)";

/// The fix of interrupts that are not remapped.
pub(super) fn remapping_advice(subject: &Subject<'_>) -> &'static str {
    if subject.is_guest() {
        IN_A_GUEST
    } else {
        "enable interrupt remapping and x2APIC in the firmware setup"
    }
}

fn present(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let iommus = &subject.host.iommus;
    if !iommus.units.is_empty() {
        let names: Vec<&str> = iommus.units.iter().map(|unit| unit.name.as_str()).collect();
        let count = if names.len() == 1 { "1 IOMMU".to_owned() } else { format!("{} IOMMUs", names.len()) };
        return Some(Verdict::pass(count).seen("/sys/class/iommu", names.join(" ")));
    }
    let (table, argument) = match subject.isa? {
        Isa::Svm => (&iommus.tables.ivrs, "amd_iommu"),
        Isa::Vmx => (&iommus.tables.dmar, "intel_iommu"),
    };
    let off = ["off"].iter().find(|word| subject.has_word(argument, word) || subject.has_word("iommu", word));
    let verdict = Verdict::warn("the kernel drives no IOMMU").seen("/sys/class/iommu", "empty");
    Some(match (table.get(), off) {
        (Some(true), Some(word)) => Verdict::warn("the IOMMUs are disabled by the kernel's arguments")
            .resting_on(table)
            .seen("/proc/cmdline", format!("{argument}={word} or iommu={word}"))
            .advice(format!("remove {argument}=off and iommu=off from the kernel's arguments")),
        (Some(true), None) if subject.isa == Some(Isa::Vmx) => {
            verdict.resting_on(table).advice("add intel_iommu=on to the kernel's arguments")
        }
        (Some(true), None) => verdict.resting_on(table).advice("see the kernel's log for AMD-Vi"),
        (Some(false), _) => Verdict::warn("the firmware describes no IOMMU").resting_on(table).advice(
            match subject.is_guest() {
                true => IN_A_GUEST,
                false => "enable the IOMMU (\"VT-d\", \"AMD-Vi\", \"IOMMU\") in the firmware setup",
            },
        ),
        (None, _) => {
            Verdict::warn("the kernel drives no IOMMU, and the firmware's tables are not there to be read")
                .seen("/sys/class/iommu", "empty")
                .advice(match subject.is_guest() {
                    true => IN_A_GUEST,
                    false => "enable the IOMMU in the firmware setup",
                })
        }
    })
}

fn remapping(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let fact = &subject.host.iommus.remapped;
    Some(match fact.get() {
        Some(true) => Verdict::pass("interrupts of devices are remapped").resting_on(fact),
        Some(false) => {
            let verdict = Verdict::warn("interrupts of devices are not remapped").resting_on(fact);
            let lines = ["AMD-Vi: Interrupt remapping", "DMAR-IR:", "IRQ remapping"];
            let line = lines.iter().find_map(|text| subject.host.log.evidence(text));
            let verdict = match line {
                Some(line) => verdict.seen(line.place, line.text),
                None => verdict,
            };
            let arguments = subject.host.kernel.arguments.get();
            match arguments.and_then(Arguments::against_remapping) {
                Some(argument) => {
                    verdict.seen("/proc/cmdline", argument.to_string()).advice(removal(argument))
                }
                None => verdict.advice(remapping_advice(subject)),
            }
        }
        None => Verdict::unknown(fact),
    })
}

/// The posting of a unit; the file and value of its register are the evidence.
fn posts(unit: &IommuUnit) -> Option<(Option<bool>, String, String)> {
    let place = |file: &str| format!("/sys/class/iommu/{}/{file}", unit.name);
    match &unit.registers {
        IommuRegisters::Amd(fact) => {
            let file = place("amd-iommu/features");
            let Some(found) = fact.get() else { return Some((None, file, String::new())) };
            let register = format!(
                "{:#x}: GASup {}, GAMSup {}",
                found.value,
                u8::from(found.guest_apic),
                found.guest_apic_modes
            );
            Some((Some(found.posts()), file, register))
        }
        IommuRegisters::Intel(fact) => {
            let file = place("intel-iommu/cap");
            let Some(found) = fact.get() else { return Some((None, file, String::new())) };
            let register = format!("{:#x}: bit 59 is {}", found.capability, u8::from(found.posts));
            Some((Some(found.posts), file, register))
        }
        IommuRegisters::Other => None,
    }
}

fn posting(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let units: Vec<_> = subject.host.iommus.units.iter().filter_map(posts).collect();
    if units.is_empty() {
        return None;
    }
    let without: Vec<_> = units.iter().filter(|(posts, ..)| *posts == Some(false)).collect();
    let verdict = match (without.len(), units.iter().any(|(posts, ..)| posts.is_none())) {
        (0, false) => Verdict::pass("all IOMMUs can post interrupts to vCPUs"),
        (0, true) => Verdict::skip("a register of an IOMMU cannot be read"),
        // The unit for Intel's graphics never posts, and the kernel uses posting only if all units support
        // it.
        (some, _) => Verdict::warn(format!(
            "{some} of {} IOMMUs cannot post interrupts to vCPUs",
            units.len()
        ))
        .advice(match subject.isa {
            _ if subject.is_guest() => "nothing in a guest, whose IOMMUs the underlying hypervisor emulates",
            Some(Isa::Svm) => "a newer firmware, or \"Guest Virtual APIC\" in its setup; else nothing",
            _ => "a newer firmware; else nothing: these IOMMUs have none",
        }),
    };
    let shown = if without.is_empty() { units.iter().collect() } else { without };
    let more = shown.len().saturating_sub(SHOWN);
    let verdict = shown
        .iter()
        .take(SHOWN)
        .fold(verdict, |verdict, (_, file, register)| verdict.seen(file, register.clone()));
    Some(if more > 0 { verdict.seen("also", format!("{more} more")) } else { verdict })
}

/// The largest number of IOMMUs to list one by one.
const SHOWN: usize = 3;

/// The advice to remove an argument about IOMMUs, or only the harmful words of its value.
fn removal(argument: &Argument) -> String {
    let several = argument.value.iter().filter(|value| value.contains(','));
    let words = several.flat_map(|value| value.split(','));
    let harmful: Vec<&str> = words.filter(|word| is_harmful(&argument.name, word)).collect();
    if harmful.is_empty() {
        return format!("remove {argument} from the kernel's arguments and reboot");
    }
    format!("remove {} from {argument} of the kernel's arguments and reboot", harmful.join(" and "))
}

fn posting_argument(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let arguments = subject.host.kernel.arguments.get()?;
    // Without remapping more than posting is lost.
    let is_advised = is_better_without_posting(subject) && arguments.against_remapping().is_none();
    Some(match arguments.against_posting(subject.isa?) {
        Some(argument) if is_advised => {
            Verdict::pass(format!("{argument} keeps the kernel from posting, as is advised here"))
                .seen("/proc/cmdline", argument.to_string())
        }
        Some(argument) => Verdict::warn(format!("{argument} keeps the kernel from posting"))
            .seen("/proc/cmdline", argument.to_string())
            .advice(format!("unless it is wanted: {}", removal(argument))),
        None => Verdict::pass("no argument disables posting")
            .seen("/proc/cmdline", "neither intremap=nopost nor amd_iommu_intr=legacy in force"),
    })
}

fn snp(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Svm) {
        return None;
    }
    let log = &subject.host.log;
    if let Some(line) = log.evidence("disable Virtual APIC due to SNP") {
        return Some(
            Verdict::warn("SNP is on, and the IOMMU cannot post beside it")
                .seen(line.place, line.text)
                .advice("if no guest needs SEV-SNP: disable SNP in the firmware setup"),
        );
    }
    let line = log.evidence("Virtual APIC enabled")?;
    Some(Verdict::pass("the kernel enabled guest APICs of the IOMMU").seen(line.place, line.text))
}

fn unsafe_interrupts(subject: &Subject<'_>) -> Option<Verdict> {
    const NAME: &str = "allow_unsafe_interrupts";
    // A VMM assigns devices through the container of VFIO or through iommufd; each has a parameter of its own.
    let value = |module: &'static str| Some((module, subject.parameter(module, NAME)?));
    let known: Vec<_> = ["vfio_iommu_type1", "iommufd"].into_iter().filter_map(value).collect();
    let is_on = |(module, _): &(&str, &str)| subject.is_on(module, NAME) == Some(true);
    let on: Vec<_> = known.iter().copied().filter(is_on).collect();
    let seen = |verdict: Verdict, all: &[(&str, &str)]| {
        let add = |verdict: Verdict, (module, value): &(&str, &str)| {
            verdict.seen(parameter_path(module, NAME), (*value).to_owned())
        };
        all.iter().fold(verdict, add)
    };
    if known.is_empty() {
        return None;
    }
    if on.is_empty() {
        return Some(seen(Verdict::pass("devices are assigned only with interrupt remapping"), &known));
    }
    let verdict = seen(Verdict::warn("devices are assigned without interrupt remapping"), &on);
    Some(match subject.host.iommus.remapped.get() {
        Some(true) => on.iter().fold(verdict, |verdict, (module, _)| {
            verdict
                .command(format!("echo N > {}  # until the next boot", parameter_path(module, NAME)))
                .advice(format!(
                    "for good: remove {NAME}=1 of {module} from modprobe.d and the kernel's arguments"
                ))
        }),
        // VFIO would refuse every device.
        _ => verdict.advice("first have interrupts remapped: without that no device can be assigned then"),
    })
}
