//! The CPU and its enlightenments.

use super::*;

pub(super) fn of_cpu() -> Vec<Cases> {
    let old = |_: &mut Definition| {};
    vec![
        row(
            "cpu-model",
            vec![
                (any(), |vm| vm.cpu.model = None),
                (any(), |vm| {
                    vm.cpu.model = Some(said(CpuModel::Named("kvm64".to_owned()), "-cpu kvm64"));
                }),
            ],
            vec![
                (any(), old),
                (any(), |vm| {
                    vm.cpu.model = Some(said(CpuModel::Named("EPYC-Genoa".to_owned()), "-cpu EPYC-Genoa"));
                }),
            ],
        ),
        row(
            "nested",
            vec![
                (amd(Technology::Avic, 5, 15), |vm| {
                    vm.cpu.features.remove("svm");
                }),
                (any(), |vm| feature(vm, "svm", FeatureState::On)),
            ],
            vec![
                (amd(Technology::Avic, 5, 15), |_| {}),
                (amd(Technology::Avic, 5, 19), |vm| feature(vm, "svm", FeatureState::On)),
                (intel(), |vm| feature(vm, "svm", FeatureState::On)),
                (HostSide { nested: Some(false), ..amd(Technology::Avic, 5, 15) }, |vm| {
                    vm.cpu.features.remove("svm");
                }),
                (amd(Technology::Avic, 5, 15), |vm| {
                    vm.cpu.features.remove("svm");
                    vm.cpu.model = Some(said(CpuModel::Named("EPYC".to_owned()), "-cpu EPYC"));
                }),
            ],
        ),
        row(
            "topoext",
            vec![
                (any(), |vm| vm.vcpus.threads = Some(said(2, "threads=2"))),
                (any(), |vm| {
                    vm.vcpus.threads = Some(said(2, "threads=2"));
                    vm.cpu.model = Some(said(CpuModel::Named("EPYC".to_owned()), "-cpu EPYC"));
                    feature(vm, "topoext", FeatureState::Off);
                }),
            ],
            vec![
                (any(), |_| {}),
                (intel(), |vm| vm.vcpus.threads = Some(said(2, "threads=2"))),
                (any(), |vm| {
                    vm.vcpus.threads = Some(said(2, "threads=2"));
                    feature(vm, "topoext", FeatureState::On);
                }),
            ],
        ),
        row(
            "kvm-hidden",
            vec![
                (any(), |vm| feature(vm, "kvm", FeatureState::Off)),
                (any(), |vm| feature(vm, "hypervisor", FeatureState::Off)),
            ],
            vec![(any(), |_| {}), (any(), |vm| feature(vm, "hypervisor", FeatureState::On))],
        ),
        row(
            "pv-eoi",
            vec![(switched(false), |vm| feature(vm, "kvm-pv-eoi", FeatureState::Off))],
            vec![
                (any(), |_| {}),
                (switched(true), |vm| feature(vm, "kvm-pv-eoi", FeatureState::Off)),
                (any(), |vm| feature(vm, "kvm-pv-eoi", FeatureState::Off)),
            ],
        ),
        row(
            "pv-ipi",
            vec![
                (HostSide { ipi_virtualization: Some(true), ..intel() }, |_| {}),
                (HostSide { ipi_virtualization: Some(true), ..amd(Technology::X2Avic, 6, 17) }, |_| {}),
                (HostSide { ipi_virtualization: Some(true), ..amd(Technology::Avic, 6, 17) }, |vm| {
                    feature(vm, "x2apic", FeatureState::Off);
                }),
            ],
            vec![
                (HostSide { ipi_virtualization: Some(true), ..amd(Technology::Avic, 6, 17) }, |_| {}),
                (any(), |_| {}),
                (HostSide { ipi_virtualization: Some(true), ..intel() }, |vm| {
                    feature(vm, "kvm-pv-ipi", FeatureState::Off);
                }),
                (HostSide { ipi_virtualization: Some(true), ..intel() }, |vm| vcpus(vm, 1)),
                // libvirt makes a named model of it, which has no features of KVM's own.
                (HostSide { ipi_virtualization: Some(true), ..intel() }, |vm| {
                    vm.cpu.model = Some(said(CpuModel::HostModel, "mode='host-model'"));
                }),
            ],
        ),
    ]
}

pub(super) fn of_enlightenments() -> Vec<Cases> {
    const GOOD: &[&str] =
        &["relaxed", "vpindex", "vapic", "time", "synic", "stimer", "stimer-direct", "avic"];
    vec![
        row(
            "hyperv-auto-eoi",
            vec![
                (any(), |vm| enlighten(vm, &["vpindex", "synic"])),
                (uncounted(true), |vm| enlighten(vm, &["vpindex", "synic"])),
                (uncounted(true), |vm| enlighten(vm, GOOD)),
                (uncounted(true), |vm| vm.cpu.hyperv.passthrough = Some(said(true, "hv-passthrough"))),
            ],
            vec![
                (any(), |_| {}),
                (any(), |vm| enlighten(vm, GOOD)),
                (switched(false), |vm| enlighten(vm, &["vpindex", "synic"])),
                (uncounted(true), |vm| enlighten(vm, &["relaxed", "vapic"])),
                (uncounted(false), |vm| enlighten(vm, &["vpindex", "synic"])),
                (any(), |vm| {
                    enlighten(vm, &["synic"]);
                    vm.cpu.hyperv.passthrough = Some(said(true, "hv-passthrough"));
                }),
            ],
        ),
        row(
            "hyperv-vapic",
            vec![(any(), |vm| enlighten(vm, &["vapic"])), (uncounted(true), |vm| enlighten(vm, &["vapic"]))],
            vec![
                (any(), |vm| enlighten(vm, GOOD)),
                (switched(false), |vm| enlighten(vm, &["vapic"])),
                (uncounted(true), |vm| enlighten(vm, &["vapic", "synic"])),
            ],
        ),
        row(
            "hyperv-avic-host",
            vec![
                (switched(false), |vm| enlighten(vm, GOOD)),
                (uncounted(true), |vm| enlighten(vm, GOOD)),
                (uncounted(false), |vm| enlighten(vm, GOOD)),
            ],
            vec![(any(), |vm| enlighten(vm, GOOD)), (switched(false), |_| {})],
        ),
        row(
            "hyperv-stimer",
            vec![
                (any(), |vm| enlighten(vm, &["relaxed"])),
                (uncounted(false), |vm| enlighten(vm, &["relaxed"])),
            ],
            vec![
                (any(), |_| {}),
                (any(), |vm| enlighten(vm, GOOD)),
                (any(), |vm| enlighten(vm, &["crash", "vendor-id"])),
                (uncounted(true), |vm| enlighten(vm, &["relaxed"])),
            ],
        ),
        row(
            "hyperv-stimer-direct",
            vec![(any(), |vm| enlighten(vm, &["stimer"]))],
            vec![(any(), |_| {}), (any(), |vm| enlighten(vm, GOOD))],
        ),
        row(
            "hyperv-time",
            vec![(any(), |vm| enlighten(vm, &["relaxed"]))],
            vec![
                (any(), |_| {}),
                (any(), |vm| enlighten(vm, GOOD)),
                (any(), |vm| {
                    enlighten(vm, &["relaxed"]);
                    vm.timers.hyperv_clock = Some(said(true, "hypervclock"));
                }),
            ],
        ),
    ]
}
