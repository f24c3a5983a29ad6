use super::*;
use guests::{Aio, DiskBus, Irqchip, NetBackend, NetModel, Pit};

fn plan(more: &str) -> QemuPlan {
    let text = format!("kind = \"qemu\"\nmachine = \"pc\"\n{more}");
    match toml::from_str(&text).unwrap() {
        GuestPlan::Qemu(plan) => *plan,
        _ => panic!("not QEMU"),
    }
}

fn with(plan: &QemuPlan, changes: &[DefinitionChange]) -> QemuPlan {
    let over = overlay(plan, changes).unwrap();
    match GuestPlan::Qemu(Box::new(plan.clone())).with([&over]).unwrap() {
        GuestPlan::Qemu(plan) => *plan,
        _ => panic!("not QEMU"),
    }
}

fn position(plan: &QemuPlan, model: &str) -> usize {
    let devices = definition_of(plan).unwrap().devices;
    devices
        .iter()
        .position(|device| device.model == model)
        .unwrap_or_else(|| panic!("no {model}: {devices:?}"))
}

#[test]
fn settings_of_the_machine_and_the_processor_are_said_as_qemu_takes_them() {
    let feature = |name: &str, state| DefinitionChange::CpuFeature(name.to_owned(), state);
    let after = with(
        &plan("irqchip = \"split\"\ncpu = \"EPYC,-x2apic,hv_time=off\""),
        &[
            DefinitionChange::Irqchip(domain::Irqchip::Kernel),
            DefinitionChange::Hpet(false),
            feature("x2apic", FeatureState::On),
            feature("pmu", FeatureState::Off),
            DefinitionChange::HyperV("time".to_owned(), true),
            DefinitionChange::PitTickPolicy(domain::TickPolicy::Discard),
        ],
    );
    assert_eq!((after.irqchip, after.pit), (Some(Irqchip::On), Some(Pit::Discard)));
    assert_eq!(after.machine, "pc,hpet=off");
    assert_eq!(after.cpu.as_deref(), Some("EPYC,x2apic=on,pmu=off,hv-time=on"));
    let definition = definition_of(&after).unwrap();
    assert!(!definition.has_hpet() && definition.hyperv("time") && definition.x2apic_in_force());
    assert_eq!(with(&plan(""), &[feature("pmu", FeatureState::Off)]).cpu.as_deref(), Some("host,pmu=off"));
}

#[test]
fn the_disk_and_the_interface_that_are_measured_are_changed_and_no_others() {
    let old =
        plan("disk = { bus = \"ide\", cache = \"none\" }\nnet = { model = \"vmxnet3\", backend = \"tap\" }");
    let model = |plan: &QemuPlan, from: &str, to: &str| DefinitionChange::DeviceModel {
        device: position(plan, from),
        model: to.to_owned(),
    };
    let virtio =
        with(&old, &[model(&old, "ide-hd", "virtio-blk-pci"), model(&old, "vmxnet3", "virtio-net-pci")]);
    assert_eq!(virtio.disk().unwrap().bus, DiskBus::VirtioBlk);
    assert_eq!(virtio.net().unwrap().model, NetModel::VirtioNet);
    let (device, net) = (position(&old, "ide-hd"), position(&virtio, "virtio-net-pci"));
    let tuned = with(&virtio, &[DefinitionChange::Vhost { device: net, on: true }]);
    assert_eq!(tuned.net().unwrap().backend, NetBackend::Vhost);
    let tuned = with(&old, &[DefinitionChange::Aio { device, aio: "native".to_owned() }]);
    assert_eq!(tuned.disk().unwrap().aio, Some(Aio::Native));
    // Every guest has the disk with the root file system, so there is nothing to report.
    let root = position(&old, "virtio-blk-pci");
    let over =
        overlay(&old, &[DefinitionChange::IoThread { device: root, iothread: "one".to_owned() }]).unwrap();
    assert!(over.is_empty(), "{over}");
}

#[test]
fn what_a_plan_cannot_say_is_refused() {
    let old = plan("disk = { bus = \"ide\" }");
    let device = position(&old, "ide-hd");
    for change in [
        DefinitionChange::InterruptRemapping,
        DefinitionChange::DeviceModel { device, model: "usb-storage".to_owned() },
        DefinitionChange::Vhost { device, on: true },
    ] {
        assert!(overlay(&old, std::slice::from_ref(&change)).is_err(), "{change:?}");
    }
}
