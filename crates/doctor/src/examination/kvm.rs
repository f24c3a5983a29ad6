//! KVM, its modules and their parameters.

use super::contradictions::{CMDLINE, on_again, said};
use super::kernels::{
    AVIC_LEFT_OFF, BARRED_BY_SNP, WITHOUT_ERRATUM_1235, WITHOUT_SNP, is_barred_by_snp, is_hit_by_erratum_1235,
};
use super::kvm_features;
use super::rule::{Category, Rule, Verdict};
use super::subject::Subject;
use exits::Isa;
use host::{AbsenceKind, parameter_path, switch};

const SVM_C: &str = "Linux arch/x86/kvm/svm/svm.c and svm/avic.c, module parameters";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "kvm-module",
        title: "KVM's module",
        category: Category::Kvm,
        why: "without it nothing runs guests in hardware",
        source: "Linux arch/x86/kvm/Kconfig, KVM_AMD and KVM_INTEL",
        parent: "",
        check: module,
    },
    Rule {
        name: "kvm-device",
        title: "/dev/kvm",
        category: Category::Kvm,
        why: "VMMs create VMs through it",
        source: "Linux Documentation/virt/kvm/api.rst, 2. File descriptors",
        parent: "kvm-module",
        check: device,
    },
    Rule {
        name: "kvm-interrupt-virtualization",
        title: "AVIC or APICv enabled",
        category: Category::Kvm,
        why: "while it is off in the module, no VM can use it",
        source: "Linux arch/x86/kvm/svm/avic.c, avic; vmx/vmx.c, enable_apicv",
        parent: "kvm-module",
        check: interrupt_virtualization,
    },
    Rule {
        name: "kvm-nested-paging",
        title: "Nested paging enabled",
        category: Category::Kvm,
        why: "without it AVIC is off, and shadow paging exits at every change to a guest's page tables",
        source: "Linux arch/x86/kvm/svm/avic.c, avic_hardware_setup; svm/svm.c, npt; vmx/vmx.c, ept",
        parent: "kvm-module",
        check: nested_paging,
    },
    Rule {
        name: "kvm-ipi-virtualization",
        title: "IPI virtualization enabled",
        category: Category::Kvm,
        why: "without it each IPI between vCPUs exits, though interrupts are delivered in hardware",
        source: "Linux arch/x86/kvm/x86.c, enable_ipiv (6.0 on Intel, 6.17 on AMD)",
        parent: "kvm-interrupt-virtualization",
        check: ipi_virtualization,
    },
    Rule {
        name: "kvm-erratum-1235",
        title: "Erratum 1235",
        category: Category::Kvm,
        why: "the CPU may not notice that a vCPU stopped running; an IPI to it is then lost, and the guest hangs",
        source: "KVM IRQ changes for 6.17 (AMD family 17h); Linux arch/x86/kvm/svm/avic.c, 9a12fa5213cf (Hygon \
                 family 18h, 7.1; CVE-2026-64172)",
        parent: "kvm-interrupt-virtualization",
        check: erratum_1235,
    },
    Rule {
        name: "kvm-nested",
        title: "Nested guests",
        category: Category::Kvm,
        why: "on these kernels AVIC is inhibited for every guest that is offered SVM",
        source: "Linux arch/x86/kvm/svm/svm.c, nested; f44509f849fe (5.19)",
        parent: "kvm-interrupt-virtualization",
        check: nested,
    },
    Rule {
        name: "kvm-device-posting",
        title: "Posting of device interrupts enabled",
        category: Category::Kvm,
        why: "without it the host takes every interrupt of an assigned device and injects it",
        source: "Linux arch/x86/kvm/x86.c, enable_device_posted_irqs (6.16)",
        parent: "kvm-interrupt-virtualization",
        check: kvm_features::device_posting,
    },
    Rule {
        name: "kvm-vnmi",
        title: "Virtual NMI enabled",
        category: Category::Kvm,
        why: "without it each NMI of a guest needs an exit when it ends",
        source: SVM_C,
        parent: "kvm-module",
        check: kvm_features::vnmi,
    },
    Rule {
        name: "kvm-vgif",
        title: "Virtual GIF enabled",
        category: Category::Kvm,
        why: "without it a nested hypervisor exits at each STGI and CLGI",
        source: SVM_C,
        parent: "kvm-module",
        check: kvm_features::vgif,
    },
    Rule {
        name: "kvm-flexpriority",
        title: "FlexPriority enabled",
        category: Category::Kvm,
        why: "without it each access of a guest in xAPIC mode to its APIC exits, with APICv too",
        source: "Linux arch/x86/kvm/vmx/vmx.c, cpu_need_virtualize_apic_accesses and vmx_set_virtual_apic_mode",
        parent: "kvm-module",
        check: kvm_features::flexpriority,
    },
    Rule {
        name: "kvm-halt-polling",
        title: "Halt polling",
        category: Category::Kvm,
        why: "a vCPU that waits for an interrupt is woken by the scheduler when KVM does not poll; polling for long \
              burns a CPU instead",
        source: "Linux Documentation/virt/kvm/halt-polling.rst",
        parent: "kvm-module",
        check: kvm_features::halt_polling,
    },
];

fn module(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let kernel = &subject.host.kernel;
    if let Some(module) = subject.host.kvm.vendor_module {
        let state = if kernel.has_built_in(module) { "built into the kernel" } else { "loaded" };
        let found = format!("{module} is {state}");
        return Some(Verdict::pass(found).seen(format!("/sys/module/{module}"), "there"));
    }
    let isa = subject.isa?;
    let flag = if isa == Isa::Svm { "svm" } else { "vmx" };
    let able = subject.host.processor.flags.get().is_some_and(|flags| flags.contains(flag));
    if !able {
        return Some(Verdict::skip("the CPU offers no virtualization that it could use"));
    }
    let module = subject.module();
    let verdict =
        Verdict::fail(format!("{module} is not loaded")).seen(format!("/sys/module/{module}"), "not there");
    let barred = kernel.modprobe.iter().find(|line| {
        line.module == module
            && line.hidden_by.is_none()
            && (line.command == "blacklist" || line.command == "install")
    });
    Some(match barred {
        Some(line) => verdict
            .seen(
                format!("{}:{}", line.file, line.line),
                format!("{} {} {}", line.command, line.module, line.rest),
            )
            .advice(format!("remove line {} from {}, then `modprobe {module}`", line.line, line.file)),
        None => verdict.command(format!("modprobe {module}")),
    })
}

fn device(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let kvm = &subject.host.kvm;
    let fact = &kvm.opened;
    let Some(absence) = fact.absence() else {
        return Some(Verdict::pass("it can be opened").resting_on(fact));
    };
    let Some(module) = kvm.vendor_module else {
        return Some(Verdict::skip("KVM's module is not loaded"));
    };
    let built_in = subject.host.kernel.has_built_in(module);
    let (found, next) = absence.why.split_once("; ").unwrap_or((&absence.why, "run as root"));
    Some(match absence.kind {
        AbsenceKind::NotKept | AbsenceKind::NotApplicable => Verdict::unknown(fact),
        // A module that is built in is in sysfs even if it found no hardware; it then creates no device.
        AbsenceKind::NotThere if built_in && subject.host.container.is_none() => Verdict::fail(format!(
            "{module} is built into the kernel and found no usable virtualization"
        ))
        .seen("/dev/kvm", "not there")
        .advice(match subject.is_guest() {
            true => "see `dmesg | grep -i kvm`: the underlying hypervisor may offer SVM or VMX only in part",
            false => "see `dmesg | grep -i kvm`: often the firmware has switched virtualization off",
        }),
        AbsenceKind::NotThere => Verdict::fail(
            "the module is loaded, and the device is not here, as in a container",
        )
        .seen("/dev/kvm", "not there")
        .advice("give the container the device: docker --device /dev/kvm, or DeviceAllow= of systemd-nspawn"),
        AbsenceKind::Denied => Verdict::warn(found)
            .resting_on(fact)
            .resting_on(&kvm.owner)
            .command("usermod --append --groups kvm USER  # from the next login on"),
        AbsenceKind::Unreadable | AbsenceKind::Malformed => {
            Verdict::fail(found).resting_on(fact).advice(next)
        }
    })
}

fn interrupt_virtualization(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() || subject.host.kvm.vendor_module.is_none() {
        return None;
    }
    let (module, name) = (subject.module(), subject.switch());
    let technology = subject.technology();
    let path = parameter_path(module, name);
    let value = subject.parameter(module, name);
    if let Some(true) = subject.is_enabled() {
        return Some(
            Verdict::pass(format!("{module} uses {technology}")).seen(path, value.unwrap_or_default()),
        );
    }
    let Some(value) = value else {
        return Some(Verdict::skip(format!("{path} is not there, or may not be read")));
    };
    match subject.cpu_has() {
        Some(false) => return Some(Verdict::skip(format!("the CPU has no {technology}")).seen(path, value)),
        None if subject.is_enabled().is_none() => {
            return Some(Verdict::skip(format!("{path} is neither on nor off")).seen(path, value));
        }
        _ => {}
    }
    if is_hit_by_erratum_1235(subject.host) {
        return Some(
            Verdict::warn("AVIC is rightly off: this kernel does not handle the CPU's erratum 1235")
                .seen(path, value)
                .resting_on(&subject.host.processor.erratum_1235)
                .advice(WITHOUT_ERRATUM_1235),
        );
    }
    if is_barred_by_snp(subject.host) {
        let verdict = Verdict::warn(format!("AVIC is rightly off: {BARRED_BY_SNP}"))
            .seen(path, value)
            .advice(WITHOUT_SNP);
        return Some(match subject.host.log.evidence(AVIC_LEFT_OFF) {
            Some(line) => verdict.seen(line.place, line.text),
            None => verdict.resting_on(&subject.host.processor.flags),
        });
    }
    let verdict = Verdict::fail(format!("{technology} is off in {module}")).seen(path, value);
    let verdict = match needless(subject) {
        Some((place, text)) => verdict.seen(place, text).advice(
            "remove avic=0: guides set it for erratum 1235, which only AMD's family 17h and Hygon's 18h have, and not \
             this CPU",
        ),
        None => verdict,
    };
    let verdict = verdict.command(subject.switching("enable"));
    let reload = format!("modprobe -r {module} && modprobe {module}");
    let is_idle = subject.running().is_empty();
    let said = said(subject, module, name);
    // Guides switch all of it off for devices whose interrupts get lost.
    let is_chosen = said.as_ref().is_some_and(|(.., word)| switch(word) == Some(false));
    let verdict = match said {
        // That command also has IPIs left out, which not every kernel does by itself (on Hygon).
        _ if subject.host.processor.erratum_1235.get() == Some(&true) => verdict,
        Some((place, text, word)) if place == CMDLINE && switch(&word) != Some(true) => {
            verdict.advice(format!("change {text} to {module}.{name}=1 in the kernel's arguments and reboot"))
        }
        Some((place, text, _)) if place == CMDLINE && subject.host.kernel.has_built_in(module) => {
            verdict.advice(format!("look for {module} in the kernel's log: {text} is given, and it is off"))
        }
        _ if subject.host.kernel.has_built_in(module) => {
            verdict.advice(subject.loading(module, &format!("{name}=1")))
        }
        // Change that line: one in another file might be read before it, and so have no effect.
        Some((place, _, word)) if switch(&word) != Some(true) => {
            let then =
                if is_idle { format!("`{reload}`") } else { format!("stop all VMs and reload {module}") };
            verdict.advice(format!("change {name}={word} to {name}=1 in {place}, then {then}"))
        }
        Some((place, ..)) => verdict.advice(format!(
            "{place} has {name}=1 already: reload {module} when no VM runs; if it stays off, rebuild the initramfs"
        )),
        None => {
            let then = if is_idle { format!("\n{reload}") } else { String::new() };
            verdict
                .command(format!("echo 'options {module} {name}=1' >> /etc/modprobe.d/{module}.conf{then}"))
        }
    };
    Some(match is_chosen {
        true => verdict.advice(
            "if it is off because of an assigned device: enable it, and switch off only posting with \
             `exitless disable --device-interrupts --persist --apply`; \
             `exitless predict --duration 10` shows the exits that it would remove",
        ),
        false => verdict,
    })
}

/// The setting that switches AVIC off on a CPU without erratum 1235, the reason why guides recommend that.
fn needless(subject: &Subject<'_>) -> Option<(String, String)> {
    if subject.isa != Some(Isa::Svm) || subject.host.processor.erratum_1235.get() != Some(&false) {
        return None;
    }
    let (place, text, word) = said(subject, "kvm_amd", "avic")?;
    (switch(&word) == Some(false)).then_some((place, text))
}

fn nested_paging(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let isa = subject.isa?;
    let (module, name) = (subject.module(), if isa == Isa::Svm { "npt" } else { "ept" });
    let value = subject.parameter(module, name)?;
    let path = parameter_path(module, name);
    Some(match subject.is_on(module, name) {
        Some(false) => {
            let found = format!("{module} does not use it ({name}={value})");
            let verdict = if isa == Isa::Svm { Verdict::fail(found) } else { Verdict::warn(found) };
            verdict.seen(path, value).advice(on_again(subject, module, name))
        }
        _ => Verdict::pass(format!("{module} uses it")).seen(path, value),
    })
}

fn ipi_virtualization(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() || subject.is_enabled() != Some(true) {
        return None;
    }
    let module = subject.module();
    let path = parameter_path(module, "enable_ipiv");
    let value = subject.parameter(module, "enable_ipiv");
    let erratum = subject.host.processor.erratum_1235.get() == Some(&true);
    let cpu = subject.host.processor.vmx.get().and_then(|vmx| vmx.ipi_virtualization);
    match (subject.isa?, subject.is_on(module, "enable_ipiv")) {
        (Isa::Vmx, _) if cpu == Some(false) => {
            Some(Verdict::skip(format!("{} has none", subject.owner_of_features())))
        }
        (Isa::Vmx, None) => Some(Verdict::skip("the module has no such parameter")),
        // In kernels without the parameter, IPI virtualization is part of AVIC.
        (Isa::Svm, None) => None,
        (_, Some(true)) => Some(Verdict::pass("it is on").seen(path, value.unwrap_or_default())),
        (Isa::Svm, Some(false)) if erratum => {
            Some(Verdict::skip("KVM leaves it off for erratum 1235").seen(path, value.unwrap_or_default()))
        }
        (_, Some(false)) => Some(
            Verdict::warn("it is off, so each IPI exits")
                .seen(path, value.unwrap_or_default())
                .advice(subject.loading(module, "enable_ipiv=1")),
        ),
    }
}

fn erratum_1235(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Svm) || subject.is_enabled() != Some(true) {
        return None;
    }
    let fact = &subject.host.processor.erratum_1235;
    let path = parameter_path("kvm_amd", "enable_ipiv");
    Some(match (fact.get(), subject.is_on("kvm_amd", "enable_ipiv")) {
        (Some(false), _) => Verdict::pass("this CPU is not affected").resting_on(fact),
        (None, _) => Verdict::unknown(fact),
        (Some(true), Some(false)) => Verdict::pass("this CPU is affected, and KVM handles IPIs itself")
            .resting_on(fact)
            .seen(path, "N"),
        (Some(true), setting) => {
            let verdict = Verdict::warn("this CPU is affected, and IPIs go through AVIC").resting_on(fact);
            match setting {
                // Switching AVIC on leaves IPIs out on such a CPU.
                Some(_) => verdict
                    .seen(path, "Y")
                    .command(subject.switching("enable"))
                    .advice(subject.loading("kvm_amd", "enable_ipiv=0")),
                None => verdict
                    .seen(path, "not there: this kernel cannot leave IPIs out")
                    .advice(WITHOUT_ERRATUM_1235)
                    .command(subject.switching("disable")),
            }
        }
    })
}

fn nested(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Svm) || subject.is_enabled() != Some(true) {
        return None;
    }
    let value = subject.parameter("kvm_amd", "nested")?;
    let path = parameter_path("kvm_amd", "nested");
    subject.release.as_ref()?;
    let bad = subject.kernel_has("kernel-avic-nested") == Some(false) && !subject.is_before_inhibits();
    Some(match subject.is_on("kvm_amd", "nested") {
        Some(true) if bad => Verdict::warn("guests are offered SVM, and this kernel inhibits AVIC for these")
            .seen(path, value)
            .seen("/proc/sys/kernel/osrelease", subject.release.as_ref().map_or("", |one| one.text.as_str()))
            .advice(format!("{}, or give guests -cpu ...,svm=off", subject.loading("kvm_amd", "nested=0")))
            .advice("Linux 5.19 or later"),
        _ => Verdict::pass("offering SVM to guests inhibits nothing").seen(path, value),
    })
}
