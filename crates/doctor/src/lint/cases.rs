//! For each rule, definitions in which it fires, and some in which it does not.

mod devices;
mod interrupts;
mod processor;
mod surroundings;

use domain::{
    Accelerator, Backend, CpuModel, Definition, Device, DeviceKind, FeatureState, Form, GuestIommu, IoThread,
    Irqchip, Place, Set, TickPolicy,
};
use exits::{Isa, KernelVersion};

use super::{HostSide, Technology};

/// A value whose place has this text.
pub(super) fn said<T>(value: T, text: &str) -> Set<T> {
    Set::new(value, place(text))
}

fn place(text: &str) -> Place {
    Place { start: 10, end: 10 + text.len(), line: 1, text: text.to_owned() }
}

/// A VM with 2 vCPUs, a split irqchip and the host's CPU, in which no rule fires.
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
        resource: None,
        reconnects: None,
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
        dma_remapping: None,
        place: place("-device intel-iommu"),
    }
}

fn amd_iommu(dma_remapping: bool) -> GuestIommu {
    GuestIommu {
        model: "amd-iommu".to_owned(),
        extended_interrupt_mode: None,
        dma_remapping: dma_remapping.then(|| said(true, "dma-remap=on")),
        place: place("-device amd-iommu"),
        ..iommu(false)
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

/// The same with AVIC off.
pub(super) fn off(technology: Technology, major: u16, minor: u16) -> HostSide {
    HostSide { enabled: Some(false), ..amd(technology, major, minor) }
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

/// A host whose KVM does not count the uses of AutoEOI, as before Linux 5.15.
pub(super) fn uncounted(enabled: bool) -> HostSide {
    HostSide { auto_eoi_counted: Some(false), ..switched(enabled) }
}

/// A host, and a VM as a change of the quiet one.
pub(super) type Case = (HostSide, fn(&mut Definition));

/// The definitions in which a rule fires, and those in which it does not.
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
    vm.iothreads = vec![IoThread { id: "iothread1".to_owned(), cpus: None, unknown_to_libvirt: false }];
    vm.devices.push(disk);
}

fn vhost_scsi(vm: &mut Definition, change: impl Fn(&mut Device)) {
    let mut scsi = device(DeviceKind::Controller, "vhost-scsi-pci");
    change(&mut scsi);
    vm.devices.push(scsi);
}

fn vhost_user(vm: &mut Definition, change: impl Fn(&mut Device)) {
    let mut disk = device(DeviceKind::Disk, "vhost-user-blk-pci");
    disk.backend = Some(said(Backend::VhostUser, "vhost-user-blk-pci"));
    change(&mut disk);
    vm.devices.push(disk);
}

/// A virtio-serial device and a channel, with these properties.
fn serial(vm: &mut Definition, of_device: &[(&str, &str)], of_channel: &[(&str, &str)]) {
    let mut controller = device(DeviceKind::Controller, "virtio-serial-pci");
    let mut channel = device(DeviceKind::Serial, "virtserialport");
    of_device.iter().for_each(|(name, value)| property(&mut controller, name, value));
    of_channel.iter().for_each(|(name, value)| property(&mut channel, name, value));
    vm.devices.extend([controller, channel]);
}

fn direct(disk: &mut Device) {
    disk.cache = Some(said("none".to_owned(), "cache=none"));
    disk.source = Some(said("/images/web.img".to_owned(), "filename=/images/web.img"));
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
    let mut all = interrupts::of_interrupts();
    all.extend(processor::of_cpu());
    all.extend(processor::of_enlightenments());
    all.extend(surroundings::of_timers_and_assigned());
    all.extend(devices::of_devices());
    all.extend(surroundings::of_placement());
    all
}
