//! For each rule definitions in which it finds something, and some in which it does not.

use domain::{
    Accelerator, Backend, CpuModel, Definition, Device, DeviceKind, FeatureState, Form, GuestIommu, IoThread,
    Irqchip, Place, Set, TickPolicy,
};
use exits::{Isa, KernelVersion};

use super::{HostSide, Technology};

/// A value that is said in a place of this text.
pub(super) fn said<T>(value: T, text: &str) -> Set<T> {
    Set::new(value, place(text))
}

fn place(text: &str) -> Place {
    Place { start: 10, end: 10 + text.len(), line: 1, text: text.to_owned() }
}

/// A VM of 2 vCPUs with a split irqchip and a CPU like the host's, in which no rule finds anything.
pub(super) fn quiet() -> Definition {
    let mut vm = Definition::empty(Form::Qemu);
    vm.machine.kind = Some(said("q35".to_owned(), "-machine q35"));
    vm.machine.accelerator = Some(said(Accelerator::Kvm, "-accel kvm"));
    vm.machine.irqchip = Some(said(Irqchip::Split, "-machine kernel-irqchip=split"));
    vm.timers.hpet = Some(said(false, "-machine hpet=off"));
    vm.vcpus.count = Some(said(2, "-smp 2"));
    vm.cpu.model = Some(said(CpuModel::Host, "-cpu host"));
    feature(&mut vm, "svm", FeatureState::Off);
    vm
}

pub(super) fn feature(vm: &mut Definition, name: &str, state: FeatureState) {
    vm.cpu.features.insert(name.to_owned(), said(state, &format!("{name}={state:?}")));
}

pub(super) fn enlighten(vm: &mut Definition, names: &[&str]) {
    for name in names {
        vm.cpu.hyperv.features.insert((*name).to_owned(), said(true, &format!("hv-{name}")));
    }
}

pub(super) fn device(kind: DeviceKind, model: &str) -> Device {
    Device {
        kind,
        model: model.to_owned(),
        id: Some(format!("{model}0")),
        backend: None,
        queues: None,
        iothreads: Vec::new(),
        aio: None,
        cache: None,
        source: None,
        properties: Vec::new(),
        place: place(&format!("-device {model}")),
    }
}

fn iommu(caching: bool) -> GuestIommu {
    GuestIommu {
        model: "intel-iommu".to_owned(),
        interrupt_remapping: Some(said(true, "intremap=on")),
        extended_interrupt_mode: Some(said(true, "eim=on")),
        caching_mode: caching.then(|| said(true, "caching-mode=on")),
        place: place("-device intel-iommu"),
    }
}

pub(super) fn amd(technology: Technology, major: u16, minor: u16) -> HostSide {
    HostSide {
        isa: Some(Isa::Svm),
        kernel: Some(KernelVersion::new(major, minor)),
        technology: Some(technology),
        enabled: Some(true),
        ..HostSide::default()
    }
}

fn intel() -> HostSide {
    HostSide::of_vendor(Isa::Vmx)
}

fn any() -> HostSide {
    HostSide::default()
}

fn switched(enabled: bool) -> HostSide {
    HostSide { enabled: Some(enabled), ..intel() }
}

/// A VM and where it runs, made from the quiet one.
pub(super) type Case = (HostSide, fn(&mut Definition));

/// What a rule finds something in, and what it does not.
pub(super) struct Cases {
    pub(super) rule: &'static str,
    pub(super) fires: Vec<Case>,
    pub(super) quiet: Vec<Case>,
}

fn row(rule: &'static str, fires: Vec<Case>, quiet: Vec<Case>) -> Cases {
    Cases { rule, fires, quiet }
}

fn kernel_irqchip(vm: &mut Definition) {
    vm.machine.irqchip = None;
}

fn user_space(vm: &mut Definition) {
    vm.machine.irqchip = Some(said(Irqchip::UserSpace, "kernel-irqchip=off"));
}

fn vcpus(vm: &mut Definition, count: u32) {
    vm.vcpus.count = Some(said(count, &format!("-smp {count}")));
}

fn two_sockets_of_96(vm: &mut Definition) {
    vcpus(vm, 384);
    vm.vcpus.cores = Some(said(96, "cores=96"));
    vm.vcpus.threads = Some(said(2, "threads=2"));
}

fn disk(vm: &mut Definition, change: impl Fn(&mut Device)) {
    let mut disk = device(DeviceKind::Disk, "virtio-blk-pci");
    disk.iothreads = vec![said("iothread1".to_owned(), "iothread=iothread1")];
    change(&mut disk);
    vm.iothreads = vec![IoThread { id: "iothread1".to_owned(), cpus: None }];
    vm.devices.push(disk);
}

fn network(vm: &mut Definition, change: impl Fn(&mut Device)) {
    let mut network = device(DeviceKind::Network, "virtio-net-pci");
    network.backend = Some(said(Backend::Vhost, "vhost=on"));
    change(&mut network);
    vm.devices.push(network);
}

fn assigned(vm: &mut Definition) {
    vm.devices.push(device(DeviceKind::Assigned, "vfio-pci"));
}

fn pins(vm: &mut Definition, of: &[(u32, &str)]) {
    vm.vcpu_pins =
        of.iter().map(|&(vcpu, cpus)| said((vcpu, cpus.to_owned()), &format!("vcpupin {vcpu}"))).collect();
}

fn property(device: &mut Device, name: &str, value: &str) {
    device.properties.push((name.to_owned(), value.to_owned()));
}

/// All cases, in the order of the rules.
pub(super) fn all() -> Vec<Cases> {
    let mut all = of_interrupts();
    all.extend(of_cpu());
    all.extend(of_enlightenments());
    all.extend(of_timers_and_assigned());
    all.extend(of_devices());
    all.extend(of_placement());
    all
}

fn of_interrupts() -> Vec<Cases> {
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
            vec![(any(), kernel_irqchip), (intel(), user_space)],
            vec![
                (any(), |_| {}),
                (intel(), kernel_irqchip),
                (any(), |vm| {
                    kernel_irqchip(vm);
                    vm.machine.kind = Some(said("microvm".to_owned(), "microvm"));
                }),
            ],
        ),
        row(
            "pit-lost-ticks",
            vec![
                (any(), kernel_irqchip),
                (amd(Technology::Avic, 6, 12), |vm| {
                    kernel_irqchip(vm);
                    vm.timers.pit = Some(said(TickPolicy::Delay, "lost_tick_policy=delay"));
                }),
            ],
            vec![
                (any(), |_| {}),
                (intel(), kernel_irqchip),
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
                let cgs = ("confidential-guest-support".to_owned(), "sev0".to_owned());
                vm.machine.properties.push(said(cgs, "confidential-guest-support=sev0"));
            })],
            vec![
                (any(), |_| {}),
                (any(), |vm| {
                    let cgs = ("confidential-guest-support".to_owned(), "tdx0".to_owned());
                    vm.machine.properties.push(said(cgs, "confidential-guest-support=tdx0"));
                }),
            ],
        ),
        row(
            "x2apic",
            vec![
                (amd(Technology::X2Avic, 5, 19), |_| {}),
                (amd(Technology::Avic, 6, 12), |_| {}),
                (amd(Technology::X2Avic, 6, 12), |vm| feature(vm, "x2apic", FeatureState::Off)),
                (intel(), |vm| feature(vm, "x2apic", FeatureState::Off)),
                (any(), |vm| feature(vm, "x2apic", FeatureState::Off)),
            ],
            vec![
                (any(), |_| {}),
                (amd(Technology::X2Avic, 6, 0), |_| {}),
                (amd(Technology::Avic, 5, 15), |vm| feature(vm, "x2apic", FeatureState::Off)),
                (any(), user_space),
            ],
        ),
        row(
            "apic-id",
            vec![
                (amd(Technology::Avic, 6, 12), |vm| vcpus(vm, 256)),
                (any(), |vm| vcpus(vm, 256)),
                (amd(Technology::X2Avic, 6, 12), |vm| {
                    // 384 vCPUs in 3 sockets of 128 have room, in 5 of 77 not.
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
                    feature(vm, "kvm-msi-ext-dest-id", FeatureState::Off);
                }),
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    vm.machine.kind = Some(said("pc-q35-5.1".to_owned(), "pc-q35-5.1"));
                }),
            ],
            vec![
                (any(), |_| {}),
                (any(), two_sockets_of_96),
                (any(), |vm| {
                    two_sockets_of_96(vm);
                    feature(vm, "kvm", FeatureState::Off);
                    vm.iommus.push(iommu(false));
                }),
            ],
        ),
    ]
}

fn of_cpu() -> Vec<Cases> {
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
            vec![(any(), |vm| vm.vcpus.threads = Some(said(2, "threads=2")))],
            vec![
                (any(), |_| {}),
                (intel(), |vm| vm.vcpus.threads = Some(said(2, "threads=2"))),
                (any(), |vm| {
                    vm.vcpus.threads = Some(said(2, "threads=2"));
                    feature(vm, "topoext", FeatureState::On);
                }),
            ],
        ),
        row("kvm-hidden", vec![(any(), |vm| feature(vm, "kvm", FeatureState::Off))], vec![(any(), |_| {})]),
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
            vec![(HostSide { ipi_virtualization: Some(true), ..intel() }, |_| {})],
            vec![
                (any(), |_| {}),
                (HostSide { ipi_virtualization: Some(true), ..intel() }, |vm| {
                    feature(vm, "kvm-pv-ipi", FeatureState::Off);
                }),
                (HostSide { ipi_virtualization: Some(true), ..intel() }, |vm| vcpus(vm, 1)),
            ],
        ),
    ]
}

fn of_enlightenments() -> Vec<Cases> {
    const GOOD: &[&str] =
        &["relaxed", "vpindex", "vapic", "time", "synic", "stimer", "stimer-direct", "avic"];
    vec![
        row(
            "hyperv-auto-eoi",
            vec![(any(), |vm| enlighten(vm, &["vpindex", "synic"]))],
            vec![
                (any(), |_| {}),
                (any(), |vm| enlighten(vm, GOOD)),
                (switched(false), |vm| enlighten(vm, &["vpindex", "synic"])),
                (any(), |vm| {
                    enlighten(vm, &["synic"]);
                    vm.cpu.hyperv.passthrough = Some(said(true, "hv-passthrough"));
                }),
            ],
        ),
        row(
            "hyperv-vapic",
            vec![(any(), |vm| enlighten(vm, &["vapic"]))],
            vec![(any(), |vm| enlighten(vm, GOOD)), (switched(false), |vm| enlighten(vm, &["vapic"]))],
        ),
        row(
            "hyperv-avic-host",
            vec![(switched(false), |vm| enlighten(vm, GOOD))],
            vec![(any(), |vm| enlighten(vm, GOOD)), (switched(false), |_| {})],
        ),
        row(
            "hyperv-stimer",
            vec![(any(), |vm| enlighten(vm, &["relaxed"]))],
            vec![(any(), |_| {}), (any(), |vm| enlighten(vm, GOOD))],
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

fn of_timers_and_assigned() -> Vec<Cases> {
    vec![
        row(
            "hpet",
            vec![
                (any(), |vm| vm.timers.hpet = None),
                (any(), |vm| {
                    vm.timers.hpet = Some(said(true, "hpet=on"));
                }),
            ],
            vec![(any(), |_| {})],
        ),
        row(
            "clock-source",
            vec![
                (any(), |vm| feature(vm, "kvmclock", FeatureState::Off)),
                (any(), |vm| vm.timers.kvm_clock = Some(said(false, "kvmclock"))),
                (any(), |vm| feature(vm, "kvm", FeatureState::Off)),
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
            vec![(any(), |vm| {
                assigned(vm);
                vm.iommus.push(iommu(false));
            })],
            vec![
                (any(), assigned),
                (any(), |vm| {
                    assigned(vm);
                    vm.iommus.push(iommu(true));
                }),
            ],
        ),
        row(
            "iommu-irqchip",
            vec![(any(), |vm| {
                vm.iommus.push(iommu(true));
                kernel_irqchip(vm);
            })],
            vec![(any(), |_| {}), (any(), |vm| vm.iommus.push(iommu(true)))],
        ),
    ]
}

fn of_devices() -> Vec<Cases> {
    vec![
        row(
            "emulated-disk",
            vec![
                (any(), |vm| vm.devices.push(device(DeviceKind::Disk, "ide-hd"))),
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Controller, "lsi53c895a"));
                }),
            ],
            vec![
                (any(), |vm| disk(vm, |_| {})),
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Disk, "ide-cd"));
                }),
            ],
        ),
        row(
            "disk-iothread",
            vec![
                (any(), |vm| disk(vm, |disk| disk.iothreads.clear())),
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Controller, "virtio-scsi-pci"));
                }),
            ],
            vec![
                (any(), |vm| disk(vm, |_| {})),
                (any(), |vm| {
                    disk(vm, |disk| {
                        disk.iothreads.clear();
                        disk.backend = Some(said(Backend::VhostUser, "vhost-user"));
                    });
                }),
            ],
        ),
        row(
            "disk-queues",
            vec![
                (any(), |vm| {
                    vcpus(vm, 8);
                    disk(vm, |disk| disk.queues = Some(said(1, "num-queues=1")));
                }),
                (any(), |vm| {
                    vcpus(vm, 8);
                    vm.machine.kind = Some(said("pc-i440fx-5.1".to_owned(), "pc-i440fx-5.1"));
                    disk(vm, |_| {});
                }),
            ],
            vec![
                (any(), |vm| {
                    vcpus(vm, 8);
                    disk(vm, |_| {});
                }),
                (any(), |vm| disk(vm, |disk| disk.queues = Some(said(1, "num-queues=1")))),
            ],
        ),
        row(
            "disk-aio",
            vec![
                (any(), |vm| disk(vm, |disk| disk.cache = Some(said("none".to_owned(), "cache=none")))),
                (any(), |vm| {
                    disk(vm, |disk| {
                        disk.cache = Some(said("writeback".to_owned(), "cache=writeback"));
                        disk.aio = Some(said("native".to_owned(), "aio=native"));
                    });
                }),
            ],
            vec![
                (any(), |vm| disk(vm, |_| {})),
                (any(), |vm| {
                    disk(vm, |disk| {
                        disk.cache = Some(said("none".to_owned(), "cache=none"));
                        disk.aio = Some(said("io_uring".to_owned(), "aio=io_uring"));
                    });
                }),
                (any(), |vm| {
                    disk(vm, |disk| {
                        disk.cache = Some(said("none".to_owned(), "cache=none"));
                        disk.source = Some(said("rbd:pool/image".to_owned(), "file=rbd:pool/image"));
                    });
                }),
            ],
        ),
        row(
            "emulated-network",
            vec![
                (any(), |vm| vm.devices.push(device(DeviceKind::Network, "e1000e"))),
                (any(), |vm| vm.devices.push(device(DeviceKind::Network, "rtl8139"))),
            ],
            vec![(any(), |vm| network(vm, |_| {}))],
        ),
        row(
            "network-vhost",
            vec![
                (any(), |vm| network(vm, |network| network.backend = None)),
                (any(), |vm| {
                    network(vm, |network| network.backend = Some(said(Backend::Vmm, "-netdev user,id=n")));
                }),
            ],
            vec![
                (any(), |vm| network(vm, |_| {})),
                (any(), |vm| {
                    vm.form = Form::Libvirt;
                    network(vm, |network| network.backend = None);
                }),
            ],
        ),
        row(
            "network-queues",
            vec![(any(), |vm| {
                vcpus(vm, 8);
                network(vm, |_| {});
            })],
            vec![
                (any(), |vm| network(vm, |_| {})),
                (any(), |vm| {
                    vcpus(vm, 8);
                    network(vm, |network| network.queues = Some(said(4, "queues=4")));
                }),
            ],
        ),
        row(
            "virtio-ioeventfd",
            vec![(any(), |vm| disk(vm, |disk| property(disk, "ioeventfd", "off")))],
            vec![(any(), |vm| disk(vm, |disk| property(disk, "ioeventfd", "on")))],
        ),
        row(
            "virtio-msix",
            vec![(any(), |vm| network(vm, |network| property(network, "vectors", "0")))],
            vec![(any(), |vm| network(vm, |network| property(network, "vectors", "10")))],
        ),
        row(
            "emulated-display",
            vec![(any(), |vm| vm.devices.push(device(DeviceKind::Display, "cirrus-vga")))],
            vec![(any(), |vm| vm.devices.push(device(DeviceKind::Display, "virtio-vga")))],
        ),
        row(
            "usb-controller",
            vec![
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Controller, "piix3-usb-uhci"));
                    vm.devices.push(device(DeviceKind::Input, "usb-tablet"));
                }),
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Controller, "ich9-usb-ehci1"));
                    vm.devices.push(device(DeviceKind::Controller, "ich9-usb-uhci1"));
                    vm.devices.push(device(DeviceKind::Input, "usb-kbd"));
                }),
            ],
            vec![
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Controller, "qemu-xhci"));
                    vm.devices.push(device(DeviceKind::Input, "usb-tablet"));
                }),
                (any(), |vm| vm.devices.push(device(DeviceKind::Controller, "piix3-usb-uhci"))),
            ],
        ),
        row(
            "floppy",
            vec![
                (any(), |vm| vm.devices.push(device(DeviceKind::Disk, "floppy"))),
                (any(), |vm| {
                    let place = Place::default();
                    vm.devices.push(Device { place, ..device(DeviceKind::Disk, "floppy") });
                }),
            ],
            vec![(any(), |_| {})],
        ),
    ]
}

fn of_placement() -> Vec<Cases> {
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
                vm.iothreads = vec![IoThread { id: "iothread1".to_owned(), cpus }];
            })],
            vec![
                (any(), |_| {}),
                (any(), |vm| {
                    pins(vm, &[(0, "2"), (1, "3")]);
                    let cpus = Some(said("4".to_owned(), "iothreadpin 4"));
                    vm.iothreads = vec![IoThread { id: "iothread1".to_owned(), cpus }];
                }),
            ],
        ),
    ]
}
