//! The kernel: its configuration, its restrictions, and the features and faults of its version.

use super::kernels::{AVIC_IPIV, AVIC_SNP, Has, IRTE_CACHING, Kind, ROWS, Row, TPR_THRESHOLD, enforces_snp};
use super::rule::{Category, Rule, Verdict};
use super::subject::Subject;
use crate::{Finding, State};
use exits::Isa;
use host::inspection::OptionState;
use std::collections::BTreeSet;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "kernel-container",
        title: "Container",
        category: Category::Kernel,
        why: "it hides parts of the host, and its /etc, /boot and /lib/modules are its own: checks of them say nothing of the host",
        source: "namespaces(7); capabilities(7); Kubernetes, Pod, hostPID, securityContext and volumes",
        parent: "",
        check: container,
    },
    Rule {
        name: "kernel-config-kvm",
        title: "KVM in the kernel's configuration",
        category: Category::Kernel,
        why: "without the vendor's part of KVM the kernel runs no guests",
        source: "Linux arch/x86/kvm/Kconfig",
        parent: "",
        check: config_kvm,
    },
    Rule {
        name: "kernel-config-iommu",
        title: "IOMMU in the kernel's configuration",
        category: Category::Kernel,
        why: "without these options the kernel neither drives the IOMMU nor remaps interrupts",
        source: "Linux drivers/iommu/Kconfig, IRQ_REMAP; drivers/iommu/amd/Kconfig and intel/Kconfig",
        parent: "",
        check: config_iommu,
    },
    Rule {
        name: "kernel-config-x2apic",
        title: "x2APIC in the kernel's configuration",
        category: Category::Kernel,
        why: "without it CPUs with APIC IDs above 254 stay offline",
        source: "Linux arch/x86/Kconfig, X86_X2APIC",
        parent: "",
        check: config_x2apic,
    },
    Rule {
        name: "kernel-btf",
        title: "Kernel type information (BTF)",
        category: Category::Kernel,
        why: "KVM's own state of a VM is read with it: the strongest evidence of whether AVIC or APICv is active",
        source: "Linux lib/Kconfig.debug, DEBUG_INFO_BTF",
        parent: "",
        check: btf,
    },
    Rule {
        name: "kernel-lockdown",
        title: "Lockdown",
        category: Category::Kernel,
        why: "it hides evidence: debugfs, and in confidentiality mode KVM's state, tracepoints and exits as well",
        source: "kernel_lockdown(7); Linux include/linux/security.h, enum lockdown_reason",
        parent: "",
        check: lockdown,
    },
];

fn option(subject: &Subject<'_>, wanted: &[(&str, bool)], what: &str) -> Option<Verdict> {
    let fact = &subject.host.kernel.config;
    let Some(config) = fact.get() else { return Some(Verdict::unknown(fact)) };
    let state = |name: &str| match config.option(name) {
        OptionState::BuiltIn => "y".to_owned(),
        OptionState::Module => "m".to_owned(),
        OptionState::Off => "not set".to_owned(),
        OptionState::Value(value) => value,
    };
    let off: Vec<&(&str, bool)> =
        wanted.iter().filter(|(name, _)| config.option(name) == OptionState::Off).collect();
    let verdict = match off.first() {
        None => Verdict::pass(format!("{what} is in")),
        Some((name, fails)) => {
            let found = format!("CONFIG_{name} is not set");
            let verdict = if *fails { Verdict::fail(found) } else { Verdict::warn(found) };
            verdict.advice(format!("a kernel with CONFIG_{name}"))
        }
    };
    Some(wanted.iter().fold(verdict, |verdict, (name, _)| {
        verdict.seen(config.file.as_str(), format!("CONFIG_{name}: {}", state(name)))
    }))
}

/// The container that this program runs in, and the facts that it hides.
fn container(subject: &Subject<'_>) -> Option<Verdict> {
    let container = subject.host.container.as_ref()?;
    let mark = (&container.mark.place, &container.mark.text);
    let mut missed = Vec::new();
    let mut seen = vec![(mark.0.clone(), mark.1.clone())];
    if container.sees_processes == Some(false) {
        missed.push("the host's processes".to_owned());
        seen.push(("/proc".to_owned(), "none of the kernel's own processes is there".to_owned()));
    }
    for (name, what) in &container.lacks {
        missed.push((*name).to_owned());
        seen.push((format!("/proc/self/status, {name}"), format!("not allowed, for {what}")));
    }
    for (place, what) in &container.empty {
        missed.push((*place).to_owned());
        seen.push(((*place).to_owned(), format!("empty or not there, for {what}")));
    }
    let unused: Vec<&str> = container.unused.iter().map(|(name, _)| *name).collect();
    for (name, what) in &container.unused {
        seen.push((format!("/proc/self/status, {name}"), format!("not allowed to this user, for {what}")));
    }
    let kind = container.kind;
    let verdict = match (missed.is_empty(), unused.is_empty()) {
        (true, true) => Verdict::pass(format!("this is {kind}, which sees the host's processes and /sys")),
        (true, false) => {
            Verdict::warn(format!("this is {kind}, and its user is without {}", unused.join(", ")))
        }
        (false, _) => Verdict::warn(format!("this is {kind}, which is without {}", missed.join(", ")))
            .advice("run exitless on the host itself")
            .advice(
                "give the container the host's processes, /sys and these capabilities, as \
                 packaging/kubernetes/exitless-exporter.yaml and packaging/Containerfile do",
            ),
    };
    let verdict = if unused.is_empty() { verdict } else { verdict.advice("run as root in the container") };
    Some(seen.into_iter().fold(verdict, |verdict, (place, text)| verdict.seen(place, text)))
}

fn config_kvm(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    match subject.isa? {
        Isa::Svm => option(subject, &[("KVM", true), ("KVM_AMD", true)], "KVM_AMD"),
        Isa::Vmx => option(subject, &[("KVM", true), ("KVM_INTEL", true)], "KVM_INTEL"),
    }
}

fn config_iommu(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    match subject.isa? {
        Isa::Svm => {
            option(subject, &[("AMD_IOMMU", false), ("IRQ_REMAP", false)], "AMD_IOMMU with IRQ_REMAP")
        }
        Isa::Vmx => {
            option(subject, &[("INTEL_IOMMU", false), ("IRQ_REMAP", false)], "INTEL_IOMMU with IRQ_REMAP")
        }
    }
}

fn config_x2apic(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    option(subject, &[("X86_X2APIC", false)], "X86_X2APIC")
}

fn btf(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    option(subject, &[("DEBUG_INFO_BTF", false)], "DEBUG_INFO_BTF")
}

fn lockdown(subject: &Subject<'_>) -> Option<Verdict> {
    let fact = &subject.host.kernel.lockdown;
    Some(match fact.get().map(String::as_str) {
        Some("none") => Verdict::pass("the kernel is not locked down").resting_on(fact),
        Some(mode) => Verdict::warn(format!("the kernel is locked down ({mode})")).resting_on(fact).advice(
            "nothing if lockdown is wanted; else disable Secure Boot, or remove lockdown= from the kernel's \
                 arguments (a kernel with CONFIG_LOCK_DOWN_KERNEL_FORCE_* must be built without it)",
        ),
        None => Verdict::unknown(fact),
    })
}

/// Tests whether a row concerns this host.
fn concerns(row: &Row, subject: &Subject<'_>) -> bool {
    if subject.is_xen() || subject.isa.is_none() || row.isa.is_some_and(|isa| Some(isa) != subject.isa) {
        return false;
    }
    let processor = &subject.host.processor;
    // KVM's features do not matter on a host that cannot use KVM.
    let able = |flags: &BTreeSet<String>| flags.contains("svm") || flags.contains("vmx");
    if processor.flags.get().is_some_and(|flags| !able(flags)) {
        return false;
    }
    // The module can be forced to use AVIC although the CPU does not announce it.
    let may_have = subject.cpu_has() != Some(false) || subject.is_enabled() == Some(true);
    let posts = subject.iommus_post() != Some(false);
    match row.rule {
        // Before there are inhibits, neither SVM nor x2APIC costs a guest AVIC.
        "kernel-avic-nested" | "kernel-x2avic" => may_have && !subject.is_before_inhibits(),
        IRTE_CACHING | "kernel-irte-cache-argument" | "kernel-ga-log-blocking" => {
            posts && may_have && !subject.host.iommus.units.is_empty() && subject.against_posting().is_none()
        }
        TPR_THRESHOLD => subject.is_enabled() == Some(false),
        "kernel-ipi-virtualization" => {
            processor.vmx.get().is_some_and(|vmx| vmx.ipi_virtualization == Some(true))
        }
        "kernel-x2avic-4k" => processor.svm.get().is_some_and(|svm| svm.x2avic_extended),
        "kernel-avic-default" | "kernel-x2avic-msrs" => processor.svm.get().is_some_and(|svm| svm.x2avic),
        AVIC_IPIV => processor.erratum_1235.get() == Some(&true) && subject.is_enabled() == Some(true),
        "kernel-posted-msi" => posts && !subject.host.iommus.units.is_empty(),
        _ if row.kind == Kind::Bug => subject.is_enabled() == Some(true) && may_meet(row, subject),
        _ => may_have,
    }
}

/// Tests whether a fault can affect this host if interrupt virtualization is on.
fn may_meet(row: &Row, subject: &Subject<'_>) -> bool {
    let x2avic = || subject.host.processor.svm.get().is_none_or(|svm| svm.x2avic);
    // Nested virtualization is on by default.
    let nested = || subject.is_on(subject.module(), "nested") != Some(false);
    let posts = || subject.iommus_post() != Some(false) && !subject.host.iommus.units.is_empty();
    let sends_ipis =
        || subject.host.processor.vmx.get().is_none_or(|vmx| vmx.ipi_virtualization != Some(false));
    match row.rule {
        "kernel-bug-x2avic-msr" | "kernel-bug-x2avic-icr" | "kernel-bug-x2avic-tlb" => x2avic(),
        "kernel-bug-x2avic-msr-nested" => x2avic() && nested(),
        "kernel-bug-avic-nested-restore"
        | "kernel-bug-avic-leave-nested"
        | "kernel-bug-apicv-nested"
        | "kernel-bug-posted-nested-wakeup" => nested(),
        "kernel-bug-avic-device-target"
        | "kernel-bug-avic-ga-log"
        | "kernel-bug-avic-ga-log-start"
        | "kernel-bug-avic-ga-log-resume"
        | "kernel-bug-avic-ga-root"
        | "kernel-bug-avic-ga-tag-update"
        | "kernel-bug-avic-guest-irq"
        | "kernel-bug-posting-stale"
        | "kernel-bug-posted-wakeup" => posts(),
        "kernel-bug-avic-ga-tag" => posts() && x2avic(),
        "kernel-bug-avic-host-ids" => {
            subject.host.processor.largest_apic_id.get().is_none_or(|&largest| largest > 255)
        }
        AVIC_SNP => {
            enforces_snp(subject.host) && subject.host.processor.may_write_pages_in_use() != Some(true)
        }
        "kernel-bug-ipi-virtualization-busy" => sends_ipis(),
        "kernel-bug-posted-msi" | "kernel-bug-posted-msi-affinity" | "kernel-bug-posted-msi-retrigger" => {
            subject.has_word("intremap", "posted_msi")
        }
        _ => true,
    }
}

/// Tests whether a rule advises to switch posting off on this host: flushing costs more than it saves, or there is no AVIC to
/// post to.
pub(super) fn is_better_without_posting(subject: &Subject<'_>) -> bool {
    let judged = |release| {
        let row = ROWS.iter().find(|row| row.rule == IRTE_CACHING)?;
        Some(row.judge_running(release, &subject.host.kernel).has)
    };
    let flushes = subject.release.as_ref().and_then(judged) == Some(Has::No);
    subject.is_kvm_on(Isa::Svm) && (flushes || subject.cpu_has() == Some(false))
}

/// The findings for the rows of the kernel table that concern this host.
pub(super) fn versions(subject: &Subject<'_>) -> Vec<Finding> {
    let Some(release) = &subject.release else { return Vec::new() };
    let finding = |row: &'static Row| {
        let judged = row.judge_running(release, &subject.host.kernel);
        let (state, found) = match (judged.has, row.kind) {
            (Has::Yes, _) => (State::Pass, row.with),
            (Has::No, Kind::Extra) => {
                (State::Skip(format!("{} (since Linux {})", row.without, row.first())), "")
            }
            (Has::No, Kind::Feature) if row.rule == "kernel-avic" => (State::Fail, row.without),
            (Has::No, _) => (State::Warn, row.without),
            (Has::Unknown, _) => (State::Skip(row.doubt(release)), ""),
        };
        let fixes = matches!(state, State::Warn | State::Fail);
        let verdict = Verdict::of(state, found).seen("/proc/sys/kernel/osrelease", release.text.clone());
        let verdict = match judged.answer {
            Some((place, value)) => verdict.seen(place, value),
            None => verdict,
        };
        let verdict = match row.rule {
            _ if !fixes => verdict,
            // Disable only posting: IPIs stay fast even if vCPUs halt often.
            IRTE_CACHING => {
                verdict.advice(row.newer()).command("exitless disable --device-interrupts --persist --apply")
            }
            "kernel-avic-nested" => {
                verdict.advice(row.newer()).advice("-cpu ...,svm=off for guests, or nested=0")
            }
            "kernel-x2avic" => {
                verdict.advice(row.newer()).advice("-cpu ...,x2apic=off for guests up to 255 vCPUs")
            }
            "kernel-autoeoi" => verdict.advice(row.newer()).advice("leave hv-synic and hv-stimer out"),
            _ => verdict.advice(row.newer()),
        };
        rule_of(row).finding(verdict)
    };
    ROWS.iter().filter(|row| concerns(row, subject)).map(finding).collect()
}

/// A row of the kernel table as a rule.
pub(super) fn rule_of(row: &'static Row) -> Rule {
    Rule {
        name: row.rule,
        title: row.title,
        category: Category::Kernel,
        why: row.why,
        source: row.source,
        parent: "",
        check: |_| None,
    }
}
