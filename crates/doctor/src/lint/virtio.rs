//! Notifications between virtio devices and their drivers.

use domain::{Device, DeviceKind, Form};

use super::rule::{Rule, Verdict};
use super::subject::{Subject, called, listed};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "virtio-ioeventfd",
        title: "Notifications by ioeventfd",
        why: "without an ioeventfd each notification of a queue exits to the VMM; with it KVM handles it in the kernel",
        source: "QEMU hw/virtio/virtio-pci.c, ioeventfd; Linux Documentation/virt/kvm/api.rst, KVM_IOEVENTFD",
        guest_follows: false,
        needs_kvm: true,
        check: ioeventfd,
    },
    Rule {
        name: "virtio-msix",
        title: "Interrupts by MSI-X",
        why: "without MSI-X a device has one shared, level-triggered line: a register read and an EOI exit each time",
        source: "QEMU hw/virtio/virtio-pci.c, vectors; Virtio 1.2, 4.1.5.1.2 MSI-X Vector Configuration",
        guest_follows: false,
        needs_kvm: true,
        check: msix,
    },
    Rule {
        name: "serial-ports",
        title: "Ports of virtio-serial",
        why: "QEMU's main loop waits for two queues of each port at each turn, used or not; 31 ports are the default",
        source: "QEMU hw/char/virtio-serial-bus.c, max_ports; libvirt formatdomain, Controllers: ports",
        guest_follows: false,
        needs_kvm: true,
        check: serial_ports,
    },
];

/// The default number of ports of a virtio-serial device.
const DEFAULT_PORTS: u32 = 31;
/// The number of unused ports that is worth a change: it means 16 queues.
const MANY_UNUSED: u32 = 8;

fn with_property(
    subject: &Subject<'_>,
    is_bad: impl Fn(&str, &str) -> bool,
    good: &str,
    bad: &str,
) -> Verdict {
    let has = |device: &&Device| {
        device.model.starts_with("virtio")
            && device.properties.iter().any(|(name, value)| is_bad(name, value))
    };
    let devices: Vec<_> = subject.vm.devices.iter().filter(has).collect();
    if devices.is_empty() {
        return Verdict::pass(good);
    }
    let names: Vec<_> = devices.iter().map(|device| called(device)).collect();
    let verdict = Verdict::warn(format!("{}: {bad}", listed(&names)));
    devices
        .iter()
        .fold(verdict, |verdict, device| verdict.said(subject.form(), &device.place))
        .advice(format!("remove {bad}"))
}

/// Tests for a property by QEMU's name, or for the last part of libvirt's path to it (`driver@ioeventfd`).
fn is(name: &str, wanted: &str) -> bool {
    name.rsplit_once('@').map_or(name, |(_, last)| last) == wanted
}

fn switches_ioeventfd_off(name: &str, value: &str) -> bool {
    is(name, "ioeventfd") && matches!(value, "off" | "false" | "no")
}

/// Tests for a device whose notifications exit to the VMM.
pub(super) fn lacks_ioeventfd(device: &Device) -> bool {
    device.properties.iter().any(|(name, value)| switches_ioeventfd_off(name, value))
}

fn ioeventfd(subject: &Subject<'_>) -> Verdict {
    with_property(subject, switches_ioeventfd_off, "KVM takes them", "ioeventfd=off")
}

fn msix(subject: &Subject<'_>) -> Verdict {
    let none = |name: &str, value: &str| is(name, "vectors") && value == "0";
    with_property(subject, none, "every device has MSI-X", "vectors=0")
}

fn serial_ports(subject: &Subject<'_>) -> Verdict {
    // A property by its names in QEMU and libvirt.
    let number = |device: &Device, names: [&str; 2]| {
        let mut properties = device.properties.iter();
        properties.find(|(name, _)| names.contains(&name.as_str()))?.1.parse::<u32>().ok()
    };
    let channels = || {
        let serial = subject.devices(DeviceKind::Serial).map(|(_, device)| device);
        serial.filter(|device| matches!(device.model.as_str(), "virtserialport" | "virtconsole"))
    };
    let highest = channels().filter_map(|device| number(device, ["nr", "address@port"])).max().unwrap_or(0);
    // Port 0 is for a console.
    let needed = highest.max(channels().count() as u32).saturating_add(1);
    let has_many = |ports: u32| ports.saturating_sub(needed) >= MANY_UNUSED;

    let is_serial = |device: &&Device| device.model.starts_with("virtio-serial");
    let devices: Vec<_> = subject.vm.devices.iter().filter(is_serial).collect();
    let ports = |device: &Device| number(device, ["max_ports", "@ports"]).unwrap_or(DEFAULT_PORTS);
    let bad: Vec<_> = devices.iter().filter(|device| has_many(ports(device))).collect();
    // libvirt adds a controller if there are channels.
    let is_implied = subject.form() == Form::Libvirt && devices.is_empty() && channels().next().is_some();
    let verdict = match (&bad[..], is_implied && has_many(DEFAULT_PORTS)) {
        ([], false) => return Verdict::pass("none has many that nobody uses"),
        ([], true) => {
            let found = format!("libvirt adds a controller with {DEFAULT_PORTS}, and {needed} would do");
            Verdict::warn(found).unsaid("<controller type='virtio-serial'>", "libvirt adds it")
        }
        (bad, _) => {
            let names: Vec<_> = bad.iter().map(|device| called(device)).collect();
            let most = bad.iter().map(|device| ports(device)).max().unwrap_or(DEFAULT_PORTS);
            let verdict = Verdict::warn(format!("{}: {most}, and {needed} would do", listed(&names)));
            bad.iter().fold(verdict, |verdict, device| verdict.said(subject.form(), &device.place))
        }
    };
    verdict.advice(match subject.form() {
        Form::Libvirt => format!("<controller type='virtio-serial' index='0' ports='{needed}'/>"),
        _ => format!("max_ports={needed}"),
    })
}
