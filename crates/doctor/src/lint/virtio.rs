//! Notifications between virtio devices and their drivers.

use domain::Device;

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
];

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

fn ioeventfd(subject: &Subject<'_>) -> Verdict {
    let off = |name: &str, value: &str| is(name, "ioeventfd") && matches!(value, "off" | "false" | "no");
    with_property(subject, off, "KVM takes them", "ioeventfd=off")
}

fn msix(subject: &Subject<'_>) -> Verdict {
    let none = |name: &str, value: &str| is(name, "vectors") && value == "0";
    with_property(subject, none, "every device has MSI-X", "vectors=0")
}
