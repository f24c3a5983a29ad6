//! Timers, devices of the host, and placement.

use super::*;

pub(super) fn of_timers_and_assigned() -> Vec<Cases> {
    vec![
        row(
            "hpet",
            vec![
                (any(), |vm| vm.timers.hpet = None),
                (any(), |vm| {
                    vm.timers.hpet = Some(said(true, "hpet=on"));
                }),
            ],
            vec![
                (any(), |_| {}),
                (any(), |vm| {
                    vm.machine.kind = Some(said("pc-q35-rhel9.4.0".to_owned(), "-machine pc-q35-rhel9.4.0"));
                    vm.timers.hpet = None;
                }),
            ],
        ),
        row(
            "clock-source",
            vec![
                (any(), |vm| feature(vm, "kvmclock", FeatureState::Off)),
                (any(), |vm| vm.timers.kvm_clock = Some(said(false, "kvmclock"))),
                (any(), |vm| feature(vm, "kvm", FeatureState::Off)),
                (any(), |vm| {
                    feature(vm, "hypervisor", FeatureState::Off);
                    enlighten(vm, &["time"]);
                }),
            ],
            vec![
                (any(), |_| {}),
                (any(), |vm| {
                    feature(vm, "kvmclock", FeatureState::Off);
                    feature(vm, "invtsc", FeatureState::On);
                }),
                (any(), |vm| {
                    feature(vm, "kvm", FeatureState::Off);
                    enlighten(vm, &["time"]);
                }),
            ],
        ),
        row(
            "assigned-interrupts",
            vec![
                (any(), |vm| {
                    assigned(vm);
                    user_space(vm);
                }),
                (any(), |vm| {
                    assigned(vm);
                    property(&mut vm.devices[0], "x-no-kvm-msix", "on");
                }),
            ],
            vec![(any(), assigned), (any(), user_space)],
        ),
        row(
            "assigned-caching-mode",
            vec![
                (any(), |vm| {
                    assigned(vm);
                    vm.iommus.push(iommu(false));
                }),
                (any(), |vm| {
                    assigned(vm);
                    vm.iommus.push(amd_iommu(false));
                }),
            ],
            vec![
                (any(), assigned),
                (any(), |vm| {
                    assigned(vm);
                    vm.iommus.push(iommu(true));
                }),
                (any(), |vm| {
                    assigned(vm);
                    vm.iommus.push(amd_iommu(true));
                }),
            ],
        ),
        row(
            "iommu-irqchip",
            vec![
                (any(), |vm| {
                    vm.iommus.push(iommu(true));
                    kernel_irqchip(vm);
                }),
                (any(), |vm| {
                    vm.iommus.push(amd_iommu(false));
                    kernel_irqchip(vm);
                }),
            ],
            vec![(any(), |_| {}), (any(), |vm| vm.iommus.push(iommu(true)))],
        ),
    ]
}

pub(super) fn of_placement() -> Vec<Cases> {
    vec![
        row(
            "vcpu-pins",
            vec![
                (any(), |vm| pins(vm, &[(0, "2"), (1, "2")])),
                (any(), |vm| pins(vm, &[(0, "2-3"), (1, "2,3"), (2, "2-3")])),
            ],
            vec![
                (any(), |_| {}),
                (any(), |vm| pins(vm, &[(0, "2"), (1, "3")])),
                (any(), |vm| {
                    pins(vm, &[(0, "2-3"), (1, "2-3")]);
                }),
            ],
        ),
        row(
            "emulator-pins",
            vec![(any(), |vm| {
                pins(vm, &[(0, "2"), (1, "3")]);
                vm.emulator_cpus = Some(said("0-2".to_owned(), "emulatorpin 0-2"));
            })],
            vec![
                (any(), |_| {}),
                // Two vCPUs have four CPUs: the scheduler can keep them away from the VMM's threads.
                (any(), |vm| {
                    pins(vm, &[(0, "0-3"), (1, "0-3")]);
                    vm.emulator_cpus = Some(said("0-3".to_owned(), "emulatorpin 0-3"));
                }),
                (any(), |vm| {
                    pins(vm, &[(0, "2"), (1, "3")]);
                    vm.emulator_cpus = Some(said("0-1".to_owned(), "emulatorpin 0-1"));
                }),
            ],
        ),
        row(
            "iothread-pins",
            vec![(any(), |vm| {
                pins(vm, &[(0, "2"), (1, "3")]);
                let cpus = Some(said("3".to_owned(), "iothreadpin 3"));
                vm.iothreads = vec![IoThread { id: "iothread1".to_owned(), cpus, unknown_to_libvirt: false }];
            })],
            vec![
                (any(), |_| {}),
                (any(), |vm| {
                    pins(vm, &[(0, "2"), (1, "3")]);
                    let cpus = Some(said("4".to_owned(), "iothreadpin 4"));
                    vm.iothreads =
                        vec![IoThread { id: "iothread1".to_owned(), cpus, unknown_to_libvirt: false }];
                }),
            ],
        ),
    ]
}
