//! Interrupt controllers and local APICs.

use super::*;

pub(super) fn of_interrupts() -> Vec<Cases> {
    vec![
        row(
            "accelerator",
            vec![
                (any(), |vm| vm.machine.accelerator = Some(said(Accelerator::Tcg, "-accel tcg"))),
                (any(), |vm| vm.machine.accelerator = None),
            ],
            vec![
                (any(), |_| {}),
                (any(), |vm| {
                    vm.machine.accelerator = None;
                    vm.program = Some(said("/usr/libexec/qemu-kvm".to_owned(), "/usr/libexec/qemu-kvm"));
                }),
            ],
        ),
        row(
            "irqchip",
            vec![
                (any(), kernel_irqchip),
                (intel(), user_space),
                (amd(Technology::Avic, 5, 5), |vm| {
                    kernel_irqchip(vm);
                    vm.timers.pit = Some(said(TickPolicy::Discard, "lost_tick_policy=discard"));
                }),
            ],
            vec![
                (any(), |_| {}),
                (intel(), kernel_irqchip),
                (amd(Technology::Avic, 5, 5), |_| {}),
                (amd(Technology::Avic, 5, 6), |vm| {
                    kernel_irqchip(vm);
                    vm.timers.pit = Some(said(TickPolicy::Discard, "lost_tick_policy=discard"));
                }),
                (any(), |vm| {
                    kernel_irqchip(vm);
                    vm.machine.kind = Some(said("microvm".to_owned(), "microvm"));
                }),
                (any(), |vm| {
                    kernel_irqchip(vm);
                    vm.timers.pit = Some(said(TickPolicy::Discard, "lost_tick_policy=discard"));
                }),
            ],
        ),
        row(
            "pit-lost-ticks",
            vec![
                (any(), kernel_irqchip),
                (any(), |vm| {
                    kernel_irqchip(vm);
                    vm.timers.pit = Some(said(TickPolicy::CatchUp, "tickpolicy='catchup'"));
                }),
                (amd(Technology::Avic, 6, 12), |vm| {
                    kernel_irqchip(vm);
                    vm.timers.pit = Some(said(TickPolicy::Delay, "lost_tick_policy=delay"));
                }),
            ],
            vec![
                (any(), |_| {}),
                (intel(), kernel_irqchip),
                (amd(Technology::Avic, 5, 5), kernel_irqchip),
                (any(), |vm| {
                    kernel_irqchip(vm);
                    vm.timers.pit = Some(said(TickPolicy::Discard, "lost_tick_policy=discard"));
                }),
                (any(), |vm| {
                    kernel_irqchip(vm);
                    vm.machine.pit = Some(said(false, "pit=off"));
                }),
            ],
        ),
        row(
            "encrypted-memory",
            vec![(any(), |vm| {
                vm.machine.encryption = Some(said("sev".to_owned(), "confidential-guest-support=lsec0"));
            })],
            vec![
                (any(), |_| {}),
                (any(), |vm| {
                    vm.machine.encryption = Some(said("tdx".to_owned(), "confidential-guest-support=lsec0"));
                }),
            ],
        ),
        row(
            "x2apic",
            vec![
                (amd(Technology::X2Avic, 5, 19), |_| {}),
                (amd(Technology::Avic, 5, 6), |_| {}),
                (amd(Technology::Avic, 6, 12), |_| {}),
                (amd(Technology::X2Avic, 6, 12), |vm| feature(vm, "x2apic", FeatureState::Off)),
                (intel(), |vm| feature(vm, "x2apic", FeatureState::Off)),
                (any(), |vm| feature(vm, "x2apic", FeatureState::Off)),
            ],
            vec![
                (any(), |_| {}),
                (amd(Technology::X2Avic, 6, 0), |_| {}),
                (amd(Technology::Avic, 5, 15), |vm| feature(vm, "x2apic", FeatureState::Off)),
                (amd(Technology::X2Avic, 5, 15), |vm| feature(vm, "x2apic", FeatureState::Off)),
                (amd(Technology::Avic, 5, 5), |_| {}),
                (off(Technology::Avic, 6, 1), |_| {}),
                (off(Technology::X2Avic, 5, 19), |_| {}),
                (any(), user_space),
            ],
        ),
        row(
            "apic-id",
            vec![
                (amd(Technology::Avic, 6, 12), |vm| vcpus(vm, 256)),
                (any(), |vm| vcpus(vm, 256)),
                (amd(Technology::X2Avic, 6, 12), |vm| {
                    // The IDs of 384 vCPUs in 3 sockets of 128 fit, those of 385 in 5 sockets of 77 do not.
                    vcpus(vm, 385);
                    vm.vcpus.cores = Some(said(77, "cores=77"));
                }),
            ],
            vec![
                (any(), |vm| vcpus(vm, 255)),
                (amd(Technology::X2Avic, 6, 12), two_sockets_of_96),
                (intel(), |vm| vcpus(vm, 1024)),
                (HostSide { largest_apic_id: Some(4095), ..amd(Technology::X2Avic, 6, 18) }, |vm| {
                    vcpus(vm, 1024);
                }),
            ],
        ),
        row(
            "many-vcpus",
            vec![
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    kernel_irqchip(vm);
                }),
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    feature(vm, "x2apic", FeatureState::Off);
                }),
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    feature(vm, "kvm", FeatureState::Off);
                }),
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    feature(vm, "hypervisor", FeatureState::Off);
                }),
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    feature(vm, "kvm-msi-ext-dest-id", FeatureState::Off);
                }),
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    vm.machine.kind = Some(said("pc-q35-5.1".to_owned(), "pc-q35-5.1"));
                }),
                // A type that is not known may be an old one.
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    vm.machine.kind = Some(said("pc-q35-nosuch".to_owned(), "pc-q35-nosuch"));
                }),
                // QEMU starts this VM, but libvirt does not.
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    vm.form = Form::Libvirt;
                }),
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    vm.form = Form::Libvirt;
                    vm.iommus.push(GuestIommu { extended_interrupt_mode: None, ..iommu(false) });
                }),
            ],
            vec![
                (any(), |_| {}),
                (any(), two_sockets_of_96),
                // The default irqchip is split.
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    vm.machine.irqchip = None;
                    vm.machine.encryption = Some(said("tdx".to_owned(), "confidential-guest-support=lsec0"));
                }),
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    feature(vm, "kvm", FeatureState::Off);
                    vm.iommus.push(iommu(false));
                }),
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    vm.form = Form::Libvirt;
                    vm.iommus.push(iommu(false));
                }),
            ],
        ),
    ]
}
