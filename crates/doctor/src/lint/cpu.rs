//! The CPU that the guest sees: its model, KVM's paravirtual features, and nested virtualization.

use domain::{CpuModel, DefinitionChange, FeatureState};
use exits::{InhibitReason, Isa, KernelVersion};

use super::host_side::{HostSide, Technology};
use super::rule::{Rule, Verdict};
use super::subject::Subject;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "cpu-model",
        title: "CPU model",
        why: "the oldest models lack features that save exits and time, such as the TSC-deadline timer",
        source: "QEMU docs, QEMU / KVM CPU model configuration: other non-recommended x86 CPUs",
        guest_follows: true,
        needs_kvm: true,
        check: cpu_model,
    },
    Rule {
        name: "nested",
        title: "Nested guests",
        why: "Linux 5.6 to 5.18 inhibits AVIC for every VM that is offered SVM; later only while a nested guest \
              runs",
        source: "Linux arch/x86/kvm/svm/svm.c, svm_vcpu_after_set_cpuid of 5.18; commit f44509f849fe (5.19)",
        guest_follows: true,
        needs_kvm: true,
        check: nested,
    },
    Rule {
        name: "topoext",
        title: "Threads of a core",
        why: "an AMD guest learns from TOPOEXT which vCPUs share a core, and QEMU sets it only on request",
        source: "QEMU target/i386/cpu.c, no_autoenable_flags of CPUID_EXT3_TOPOEXT",
        guest_follows: false,
        needs_kvm: true,
        check: topoext,
    },
    Rule {
        name: "kvm-hidden",
        title: "KVM's paravirtual features",
        why: "a guest that does not see KVM has no kvmclock, no steal time and no extended destinations",
        source: "Linux Documentation/virt/kvm/x86/cpuid.rst; arch/x86/kernel/kvm.c, __kvm_cpuid_base",
        guest_follows: true,
        needs_kvm: true,
        check: kvm_hidden,
    },
    Rule {
        name: "pv-eoi",
        title: "Paravirtual EOI",
        why: "without APICv or AVIC it saves most exits for EOIs; with them KVM does not use it",
        source: "Linux arch/x86/kvm/lapic.c, apic_sync_pv_eoi_to_guest",
        guest_follows: false,
        needs_kvm: true,
        check: pv_eoi,
    },
    Rule {
        name: "pv-ipi",
        title: "Paravirtual IPIs",
        why: "a Linux guest then sends IPIs to several vCPUs by hypercall: an exit where the hardware needs none",
        source: "Linux arch/x86/kernel/kvm.c, kvm_setup_pv_ipi",
        guest_follows: false,
        needs_kvm: true,
        check: pv_ipi,
    },
];

/// Models that QEMU's documentation advises against.
const POOR_MODELS: &[&str] = &["qemu64", "qemu32", "kvm64", "kvm32"];

/// The first kernel that inhibits AVIC only while a nested guest runs.
const NESTED_WHILE_IT_RUNS: KernelVersion = KernelVersion::new(5, 19);

fn cpu_model(subject: &Subject<'_>) -> Verdict {
    let set = subject.vm.cpu.model.as_ref();
    let with = |verdict: Verdict| match set {
        Some(set) => verdict.said(subject.form(), &set.place),
        None => verdict.unsaid("the CPU model", "qemu64 is QEMU's default"),
    };
    match subject.model() {
        CpuModel::Named(name) if POOR_MODELS.contains(&name.as_str()) => {
            with(Verdict::warn(name)).fix(vec![DefinitionChange::CpuModel(CpuModel::Host)])
        }
        CpuModel::Named(name) => with(Verdict::pass(name)),
        CpuModel::Host => with(Verdict::pass("the host's")),
        CpuModel::Maximum => with(Verdict::pass("everything that the host supports")),
        CpuModel::HostModel => with(Verdict::pass("the model nearest the host's")),
    }
}

fn nested(subject: &Subject<'_>) -> Verdict {
    if !subject.may_be(Isa::Svm) {
        return Verdict::pass("nested guests do not inhibit APICv");
    }
    if subject.host.nested == Some(false) {
        return Verdict::pass("KVM allows none (nested=0)");
    }
    // QEMU's named models do not have SVM by default (target/i386/kvm/kvm-cpu.c, kvm_default_props).
    let svm = subject.given("svm", subject.passes_host_through());
    if !svm.value {
        return Verdict::pass("SVM is not offered");
    }
    let model = subject.vm.cpu.model.as_ref();
    let with = |verdict: Verdict| match (svm.place, model) {
        (Some(place), _) => verdict.said(subject.form(), place),
        (None, Some(model)) => verdict.said(subject.form(), &model.place),
        (None, None) => verdict,
    };
    let reason = InhibitReason::Nested;
    let off = || vec![DefinitionChange::CpuFeature("svm".to_owned(), FeatureState::Off)];
    if subject.kernel_is_older(HostSide::INHIBITS) == Some(true) {
        return with(Verdict::pass("SVM is offered, for which this kernel does not inhibit AVIC"));
    }
    match subject.kernel_is_older(NESTED_WHILE_IT_RUNS) {
        Some(false) => {
            with(Verdict::pass("SVM is offered; AVIC is inhibited only while a nested guest runs"))
        }
        Some(true) => {
            let kernel = subject.host.kernel.map(|kernel| kernel.to_string()).unwrap_or_default();
            with(Verdict::fail(format!("SVM is offered, which inhibits AVIC with this kernel ({reason})")))
                .seen("the host's kernel", kernel)
                .fix(off())
                .cured_elsewhere(reason)
        }
        None => with(Verdict::warn(format!(
            "SVM is offered, which inhibits AVIC on hosts with Linux 5.6 to 5.18 ({reason})"
        )))
        .fix(off())
        .cured_elsewhere(reason),
    }
}

fn topoext(subject: &Subject<'_>) -> Verdict {
    let threads = subject.topology().threads;
    if threads < 2 {
        return Verdict::pass("a core has one thread");
    }
    if !subject.may_be(Isa::Svm) {
        return Verdict::pass("Intel's CPUs need no such feature");
    }
    // EPYC models have topoext, others do not.
    if !matches!(subject.model(), CpuModel::Host | CpuModel::Maximum) && subject.said("topoext").is_none() {
        return Verdict::pass("the model decides");
    }
    let held = subject.given("topoext", false);
    if held.value {
        return Verdict::pass("topoext is given");
    }
    let verdict =
        Verdict::warn(format!("{threads} threads a core, and no topoext for an AMD guest to see them"));
    let verdict = match held.place.or(subject.vm.vcpus.threads.as_ref().map(|set| &set.place)) {
        Some(place) => verdict.said(subject.form(), place),
        None => verdict,
    };
    verdict.fix(vec![DefinitionChange::CpuFeature("topoext".to_owned(), FeatureState::On)])
}

fn kvm_hidden(subject: &Subject<'_>) -> Verdict {
    let hiding: Vec<_> = subject.vm.hiding_kvm().collect();
    if hiding.is_empty() {
        return Verdict::pass("the guest sees KVM");
    }
    let on = |name: &str| DefinitionChange::CpuFeature(name.to_owned(), FeatureState::On);
    let changes = hiding.iter().map(|(name, _)| on(name)).collect();
    let verdict = Verdict::warn("KVM is hidden from the guest");
    hiding.iter().fold(verdict, |verdict, (_, place)| verdict.said(subject.form(), place)).fix(changes)
}

fn pv_eoi(subject: &Subject<'_>) -> Verdict {
    let held = subject.given("kvm-pv-eoi", true);
    if held.value {
        return Verdict::pass("offered");
    }
    let with = |verdict: Verdict| match held.place {
        Some(place) => verdict.said(subject.form(), place),
        None => verdict,
    };
    match subject.host.enabled {
        Some(false) => with(Verdict::warn(format!("off, and so is {}", subject.host.name())))
            .fix(vec![DefinitionChange::CpuFeature("kvm-pv-eoi".to_owned(), FeatureState::On)]),
        Some(true) => with(Verdict::pass(format!("off, and {} has no use for it", subject.host.name()))),
        None => with(Verdict::pass("off, which is right with APICv or AVIC")),
    }
}

fn pv_ipi(subject: &Subject<'_>) -> Verdict {
    if subject.host.ipi_virtualization != Some(true) {
        return Verdict::pass("the host is not known to deliver IPIs without exits");
    }
    if subject.host.technology == Some(Technology::Avic) && subject.x2apic().value {
        return Verdict::pass("each write of x2APIC's ICR exits, as the CPU has no x2AVIC");
    }
    if subject.vcpus() < 2 || subject.hides_kvm().is_some() {
        return Verdict::pass("not used");
    }
    let held = subject.given("kvm-pv-ipi", subject.vm.passes_host_cpu());
    if !held.value {
        return Verdict::pass("not offered");
    }
    let verdict = Verdict::warn("offered, and the host delivers IPIs without exits")
        .seen("enable_ipiv of the host", "on");
    let verdict = match held.place {
        Some(place) => verdict.said(subject.form(), place),
        None => verdict.unsaid("kvm-pv-ipi", "the guest gets what the host has"),
    };
    verdict.advice("measure the VM's workload with and without -cpu ...,kvm-pv-ipi=off")
}
