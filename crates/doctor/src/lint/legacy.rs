//! Other devices of old machines.

use domain::{Device, DeviceKind};

use super::disks::replaced;
use super::rule::{Rule, Verdict};
use super::subject::{Subject, called, listed};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "emulated-display",
        title: "Emulated display adapters",
        why: "setting modes and palettes and drawing on an emulated adapter writes its registers, with an exit each",
        source: "QEMU docs, System Emulation: Display options; QEMU hw/display/vga.c and cirrus_vga.c",
        guest_follows: true,
        needs_kvm: true,
        check: display,
    },
    Rule {
        name: "usb-controller",
        title: "USB controllers",
        why: "UHCI, OHCI and EHCI are polled by timers while a device is attached; xHCI is not",
        source: "QEMU docs, System Emulation: USB emulation, xhci controller support",
        guest_follows: true,
        needs_kvm: true,
        check: usb,
    },
    Rule {
        name: "floppy",
        title: "Floppy drives",
        why: "a floppy controller moves bytes by port accesses and the ISA DMA, each an exit to the VMM",
        source: "QEMU hw/block/fdc.c; hw/i386/pc_piix.c, no_floppy",
        guest_follows: true,
        needs_kvm: true,
        check: floppy,
    },
];

const EMULATED_DISPLAYS: &[&str] =
    &["VGA", "cirrus-vga", "isa-vga", "isa-cirrus-vga", "vmware-svga", "ati-vga"];

fn display(subject: &Subject<'_>) -> Verdict {
    let bad: Vec<_> = subject
        .devices(DeviceKind::Display)
        .filter(|(_, device)| EMULATED_DISPLAYS.contains(&device.model.as_str()))
        .collect();
    replaced(subject, &bad, "no adapter is emulated register by register", |_| "virtio-vga")
}

fn usb(subject: &Subject<'_>) -> Verdict {
    let input: Vec<&Device> = subject
        .devices(DeviceKind::Input)
        .map(|(_, device)| device)
        .filter(|device| device.model.starts_with("usb-"))
        .collect();
    let polled = |device: &Device| {
        let model = device.model.as_str();
        model.contains("uhci") || model.contains("ehci") || model.contains("ohci")
    };
    let controllers: Vec<_> =
        subject.devices(DeviceKind::Controller).filter(|(_, device)| polled(device)).collect();
    let is_xhci = |(_, device): (usize, &Device)| device.model.contains("xhci");
    let Some(first) = input.first().filter(|_| !subject.devices(DeviceKind::Controller).any(is_xhci)) else {
        return Verdict::pass("no input device is polled");
    };
    if controllers.is_empty() {
        return Verdict::pass("there is no polled controller");
    }
    let names: Vec<_> = controllers.iter().map(|(_, device)| called(device)).collect();
    // Companion controllers of an EHCI controller cannot be replaced one by one.
    if let [(_, only)] = controllers[..]
        && !only.place.text.is_empty()
    {
        return replaced(subject, &controllers, "", |_| "qemu-xhci").said(subject.form(), &first.place);
    }
    Verdict::warn(format!("{} poll {}", listed(&names), called(first)))
        .said(subject.form(), &first.place)
        .advice("attach the device to a controller of model qemu-xhci, and remove the others")
}

fn floppy(subject: &Subject<'_>) -> Verdict {
    let is_floppy = |device: &&Device| matches!(device.model.as_str(), "floppy" | "isa-fdc");
    let drives: Vec<_> = subject.vm.devices.iter().filter(is_floppy).collect();
    if drives.is_empty() {
        return Verdict::pass(if subject.vm.is_i440fx() {
            "there is none; pc always has the controller"
        } else {
            "there is none"
        });
    }
    let names: Vec<_> = drives.iter().map(|device| called(device)).collect();
    let verdict = Verdict::warn(listed(&names));
    drives.iter().fold(verdict, |verdict, device| verdict.said_of_device(subject.form(), device)).advice(
        "remove it (-nodefaults removes the machine's own drive), or give the guest its files on a virtio disk",
    )
}
