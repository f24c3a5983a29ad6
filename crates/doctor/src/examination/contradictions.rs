//! Contradictions between two sources.

use super::kernels::{is_barred_by_snp, is_hit_by_erratum_1235};
use super::rule::{Category, Rule, Verdict};
use super::subject::Subject;
use exits::Isa;
use host::inspection::{IommuRegisters, ModprobeLine};
use host::parameter_path;
use host::switch;
use std::collections::BTreeSet;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "contradiction-forced-avic",
        title: "AVIC and CPUID",
        category: Category::Contradictions,
        why: "AVIC that the CPU does not report may crash guests or the host, and results are not valid elsewhere",
        source: "Linux arch/x86/kvm/svm/avic.c, force_avic (it taints the kernel)",
        parent: "",
        check: forced_avic,
    },
    Rule {
        name: "contradiction-parameter",
        title: "Module and CPU",
        category: Category::Contradictions,
        why: "the module uses what the CPU does not report: one of the two is wrong",
        source: "Linux arch/x86/kvm/svm/avic.c, avic_hardware_setup; vmx/vmx.c, vmx_hardware_setup",
        parent: "",
        check: parameter,
    },
    Rule {
        name: "contradiction-iommu-apic",
        title: "IOMMU and CPU",
        category: Category::Contradictions,
        why: "a firmware that leaves the IOMMU's guest APIC on without AVIC makes the kernel warn at each boot, and \
              its GA log does not start",
        source: "Linux drivers/iommu/amd/init.c, enable_iommus_vapic; AMD I/O Virtualization Technology \
                 specification, GASup and GAMSup",
        parent: "",
        check: iommu_apic,
    },
    Rule {
        name: "contradiction-x2avic",
        title: "x2AVIC without AVIC",
        category: Category::Contradictions,
        why: "Linux treats it as a firmware bug, and uses neither",
        source: "Linux arch/x86/kvm/svm/avic.c, avic_hardware_setup, FW_BUG",
        parent: "",
        check: x2avic_alone,
    },
    Rule {
        name: "contradiction-iommu-units",
        title: "Consistent IOMMUs",
        category: Category::Contradictions,
        why: "the kernel uses only features that all of them have",
        source: "Linux drivers/iommu/amd/init.c, get_global_efr",
        parent: "",
        check: iommu_units,
    },
    Rule {
        name: "contradiction-configured",
        title: "Parameter in use and as configured",
        category: Category::Contradictions,
        why: "the configuration takes effect when the module is next loaded: the host changes at the next boot",
        source: "modprobe.d(5); Linux Documentation/admin-guide/kernel-parameters.rst, module parameters",
        parent: "",
        check: configured,
    },
    Rule {
        name: "contradiction-log",
        title: "Warnings in the kernel's log",
        category: Category::Contradictions,
        why: "the kernel itself reports that something is wrong with virtualization",
        source: "Linux include/asm-generic/bug.h, WARN; include/linux/printk.h, FW_BUG",
        parent: "",
        check: log,
    },
];

fn forced_avic(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Svm) {
        return None;
    }
    let value = subject.parameter("kvm_amd", "force_avic")?;
    let path = parameter_path("kvm_amd", "force_avic");
    let fact = &subject.host.processor.svm;
    Some(match (subject.is_on("kvm_amd", "force_avic"), subject.cpu_has()) {
        (Some(true), Some(false)) => Verdict::warn("kvm_amd uses AVIC although the CPU does not report it")
            .seen(path, value)
            .resting_on(fact)
            .advice("remove force_avic=1 from modprobe.d and the kernel's arguments, except for experiments"),
        (Some(true), None) => Verdict::skip("CPUID is not known").seen(path, value),
        _ => Verdict::pass("nothing is forced").seen(path, value),
    })
}

fn parameter(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() || subject.is_enabled().is_none() {
        return None;
    }
    if subject.is_on("kvm_amd", "force_avic") == Some(true) {
        return None;
    }
    let (module, name) = (subject.module(), subject.switch());
    let path = parameter_path(module, name);
    let value = subject.parameter(module, name)?;
    let verdict = match (subject.is_enabled(), subject.cpu_has()) {
        (_, None) => return Some(Verdict::skip("it is not known what the CPU offers").seen(path, value)),
        (Some(true), Some(false)) => {
            Verdict::fail(format!("{module} uses {}, which the CPU does not report", subject.technology()))
                .advice("compare the processors of this host: the kernel asks the one it boots on")
        }
        _ => Verdict::pass("they agree"),
    };
    let verdict = verdict.seen(path, value);
    Some(match subject.isa? {
        Isa::Svm => verdict.resting_on(&subject.host.processor.svm),
        Isa::Vmx => verdict.resting_on(&subject.host.processor.vmx),
    })
}

fn iommu_apic(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Svm) {
        return None;
    }
    let posts = subject.iommus_post()?;
    let fact = &subject.host.processor.svm;
    let svm = fact.get()?;
    if svm.avic || !posts {
        return Some(Verdict::pass("they agree").resting_on(fact));
    }
    let warned = subject.host.log.evidence("enable_iommus_vapic");
    let argument = subject.against_posting();
    if let (Some(argument), None) = (argument, &warned) {
        let why = format!("{argument} keeps the kernel from using the IOMMUs' guest APICs");
        return Some(Verdict::skip(why).resting_on(fact));
    }
    let found = "the IOMMUs offer guest APICs, and the CPU has no AVIC";
    // Many firmwares hide only AVIC. That is a failure only if the kernel warns about it.
    let verdict = if warned.is_some() { Verdict::fail(found) } else { Verdict::warn(found) }.resting_on(fact);
    let register = subject.host.iommus.units.iter().find_map(|unit| match &unit.registers {
        IommuRegisters::Amd(fact) => Some(fact),
        _ => None,
    })?;
    let verdict = verdict.resting_on(register);
    let verdict = match warned {
        Some(line) => verdict.seen(line.place, line.text),
        None => verdict,
    };
    let verdict = verdict.advice("a newer firmware, which hides the guest APIC of the IOMMU or offers AVIC");
    Some(match argument {
        Some(_) => verdict,
        None => verdict.command("exitless disable --device-interrupts --persist --apply"),
    })
}

fn x2avic_alone(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Svm) {
        return None;
    }
    let fact = &subject.host.processor.svm;
    let svm = fact.get()?;
    Some(if svm.x2avic && !svm.avic {
        Verdict::fail("the CPU offers x2AVIC without AVIC")
            .resting_on(fact)
            .advice("look for AVIC in the firmware's setup, and for a newer firmware")
    } else {
        Verdict::pass("they agree").resting_on(fact)
    })
}

fn iommu_units(subject: &Subject<'_>) -> Option<Verdict> {
    let registers: Vec<(String, u64)> = subject
        .host
        .iommus
        .units
        .iter()
        .filter_map(|unit| match &unit.registers {
            IommuRegisters::Amd(fact) => Some((unit.name.clone(), fact.get()?.value)),
            _ => None,
        })
        .collect();
    if registers.len() < 2 {
        return None;
    }
    let values: BTreeSet<u64> = registers.iter().map(|(_, value)| *value).collect();
    let place = |name: &str| format!("/sys/class/iommu/{name}/amd-iommu/features");
    if values.len() == 1 {
        let (name, value) = &registers[0];
        return Some(
            Verdict::pass(format!("all {} offer the same", registers.len()))
                .seen(place(name), format!("{value:#x}")),
        );
    }
    let verdict = Verdict::warn("the IOMMUs of this host offer different features")
        .advice("a newer firmware: it fills these registers");
    let one_of_each = values.iter().filter_map(|value| registers.iter().find(|(_, one)| one == value));
    Some(one_of_each.fold(verdict, |verdict, (name, value)| verdict.seen(place(name), format!("{value:#x}"))))
}

/// The file with the kernel's arguments.
pub(super) const CMDLINE: &str = "/proc/cmdline";

/// The configured value of a parameter: the last one in the kernel's arguments, or else in modprobe's files.
pub(super) fn said(subject: &Subject<'_>, module: &str, name: &str) -> Option<(String, String, String)> {
    let argument = format!("{module}.{name}");
    if let Some(value) = subject.argument(&argument) {
        let value = value.unwrap_or("Y").to_owned();
        return Some((CMDLINE.to_owned(), format!("{argument}={value}"), value));
    }
    // modprobe.d does not affect built-in modules.
    let lines = subject.host.kernel.modprobe.iter().filter(|_| !subject.host.kernel.has_built_in(module));
    let counts =
        |line: &&ModprobeLine| line.module == module && line.command == "options" && line.hidden_by.is_none();
    lines.filter(counts).filter_map(|line| Some((line, line.value(name)?))).next_back().map(
        |(line, value)| {
            let text = format!("options {} {}", line.module, line.rest);
            (format!("{}:{}", line.file, line.line), text, value.to_owned())
        },
    )
}

/// The advice on a parameter that is off: remove what switches it off, if something does.
pub(super) fn on_again(subject: &Subject<'_>, module: &str, name: &str) -> String {
    match said(subject, module, name) {
        Some((place, text, word)) if place == CMDLINE && switch(&word) == Some(false) => {
            format!("remove {text} from the kernel's arguments and reboot")
        }
        Some((place, _, word)) if switch(&word) == Some(false) => {
            format!("remove {name}={word} from {place}, and reload {module} when no VM runs")
        }
        _ => format!("nothing configures {name}=0: look for {module} in the kernel's log"),
    }
}

fn configured(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let (module, name) = (subject.module(), subject.switch());
    let in_force = subject.is_enabled()?;
    let (path, value) = (parameter_path(module, name), subject.parameter(module, name)?);
    let Some((place, text, word)) = said(subject, module, name) else {
        return Some(Verdict::pass("nothing is configured").seen(path, value));
    };
    let wanted = switch(&word)?;
    // The module clears a parameter that the CPU does not support.
    if wanted == in_force || (wanted && subject.cpu_has() == Some(false)) {
        return Some(Verdict::pass("they agree").seen(path, value).seen(place, text));
    }
    let verdict = Verdict::warn(format!("{name} is {value} now, and configured to be {word}"))
        .seen(path, value)
        .seen(place, text);
    let must_stay_off = is_hit_by_erratum_1235(subject.host) || is_barred_by_snp(subject.host);
    Some(match wanted && must_stay_off {
        // Guests could hang from the next load on, or stop the host.
        true => verdict.command("exitless disable --persist --apply"),
        false => verdict.advice(format!(
            "when no VM runs: modprobe -r {module} && modprobe {module}; if it comes back, rebuild the initramfs"
        )),
    })
}

/// Pairs of texts; a log line that contains both reports a problem.
const WRONG: &[(&str, &str)] = &[
    ("WARNING:", "avic"),
    ("WARNING:", "arch/x86/kvm"),
    ("WARNING:", "drivers/iommu"),
    ("[Firmware Bug]", "AMD-Vi"),
    ("[Firmware Bug]", "DMAR"),
    ("[Firmware Bug]", "x2AVIC"),
    ("Found inconsistent EFR", ""),
];
/// The largest number of lines to show.
const LINES: usize = 3;

fn log(subject: &Subject<'_>) -> Option<Verdict> {
    let fact = &subject.host.log.lines;
    let Some(lines) = fact.get() else { return Some(Verdict::unknown(fact)) };
    let wrong = |text: &str| WRONG.iter().any(|(one, other)| text.contains(one) && text.contains(other));
    let found: Vec<&str> = lines.iter().map(|line| line.text.as_str()).filter(|text| wrong(text)).collect();
    if found.is_empty() {
        return Some(if subject.host.log.whole {
            Verdict::pass("the log has none")
        } else {
            Verdict::pass("what is left of the log has none")
        });
    }
    let lines = if found.len() == 1 { "1 line".to_owned() } else { format!("{} lines", found.len()) };
    let verdict = Verdict::warn(format!("{lines} of the log say that something is wrong"))
        .command("dmesg | grep -A20 -e WARNING -e 'Firmware Bug'");
    Some(found.into_iter().take(LINES).fold(verdict, |verdict, line| verdict.seen("kernel log", line)))
}
