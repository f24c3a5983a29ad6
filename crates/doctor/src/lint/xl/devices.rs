//! Devices of Xen's guests.

use super::row;
use crate::lint::rule::{Rule, Verdict};
use crate::lint::subject::{Subject, called, listed};
use domain::{Backend, Device, DeviceKind, Form};
use exits::XenGuestType;
use host::{FunctionRole, PciFunction, XenDevice};

pub(in crate::lint) const RULES: &[Rule] = &[
    row(
        "xl-platform-pci",
        "Xen's platform device",
        "without it the guest's drivers find no paravirtual disk or network, and all I/O is emulated",
        "xl.cfg(5), xen_platform_pci",
        platform,
    ),
    row(
        "xl-network",
        "Emulated network interfaces",
        "each packet of an emulated one takes several exits to the device model",
        "xl-network-configuration(5), type and model",
        network,
    ),
    row(
        "xl-disk",
        "Emulated disks",
        "each request to an emulated controller takes several exits to the device model",
        "xl-disk-configuration(5), vdev; Xen tools/libs/light/libxl_dm.c",
        disk,
    ),
    row(
        "xl-disk-backend",
        "Backends of disks",
        "QEMU's backend takes a switch to a process in dom0 for each request; the kernel's takes none",
        "xl-disk-configuration(5), format and backendtype",
        backend,
    ),
    row(
        "xl-pass-through",
        "Devices of the host",
        "a device needs the IOMMU to reach a guest's memory; Xen takes its interrupts, unless VT-d posts them (iommu=intpost)",
        "xl.cfg(5), pci and passthrough; xl(1), info, virt_caps",
        pass_through,
    ),
    row(
        "xl-screen",
        "Emulated screen",
        "its memory is tracked for changes, and QEMU scans for them repeatedly, even when nobody is watching",
        "xl.cfg(5), vga, videoram and nographic; QEMU hw/display/vga.c",
        screen,
    ),
    row(
        "xl-usb",
        "Emulated USB",
        "a USB 1 controller is polled every millisecond while a tablet is attached, even if idle",
        "xl.cfg(5), usbdevice; QEMU hw/usb/hcd-uhci.c, FRAME_TIMER_FREQ",
        usb,
    ),
];

fn is_hvm(subject: &Subject<'_>) -> bool {
    subject.vm.xen_type() == XenGuestType::Hvm
}

fn platform(subject: &Subject<'_>) -> Verdict {
    if !is_hvm(subject) {
        return Verdict::skip("only HVM guests have one");
    }
    match subject.switched("xen_platform_pci") {
        Some((false, place)) => {
            Verdict::fail("switched off").said(Form::Xl, place).advice("remove xen_platform_pci = 0")
        }
        _ => Verdict::pass("there"),
    }
}

fn warned(verdict: Verdict, bad: &[&Device]) -> Verdict {
    bad.iter().fold(verdict, |verdict, device| verdict.said(Form::Xl, &device.place))
}

fn named(bad: &[&Device]) -> String {
    listed(&bad.iter().map(|device| called(device)).collect::<Vec<_>>())
}

fn has(device: &Device, name: &str) -> bool {
    device.properties.iter().any(|(known, _)| known == name)
}

fn network(subject: &Subject<'_>) -> Verdict {
    let all = || subject.devices(DeviceKind::Network).map(|(_, device)| device);
    if !is_hvm(subject) {
        let bad: Vec<_> = all().filter(|device| has(device, "model")).collect();
        return if bad.is_empty() {
            Verdict::pass("none: such guests have only paravirtual interfaces")
        } else {
            warned(Verdict::warn("a model, which only HVM guests have"), &bad).advice("remove model=")
        };
    }
    let emulated: Vec<_> = all().filter(|device| device.model != "xen-netfront").collect();
    let asked: Vec<_> =
        emulated.iter().copied().filter(|one| has(one, "model") || has(one, "type")).collect();
    match (asked.is_empty(), emulated.is_empty()) {
        (false, _) => warned(Verdict::warn(named(&asked)), &asked)
            .advice("type=vif in place of model=, once the guest has Xen's drivers"),
        (true, false) => {
            Verdict::pass("in addition to paravirtual ones, until the guest's driver takes over")
        }
        (true, true) => Verdict::pass("none"),
    }
}

/// Tests whether an HVM guest also gets an emulated version of a disk: of each `sd`, and each `hd` or `xvd` up to the
/// letter `last` (libxl_dm.c, libxl__build_device_model_args_new).
fn is_emulated(disk: &Device, last: char) -> bool {
    let vdev = disk.id.as_deref().unwrap_or_default();
    let rest = vdev.strip_prefix("xvd").or_else(|| vdev.strip_prefix("hd")).unwrap_or_default();
    let mut letters = rest.chars().take_while(char::is_ascii_alphabetic);
    let is_early = letters.next().is_some_and(|first| first <= last) && letters.next().is_none();
    disk.model != "ide-cd" && (disk.model == "scsi-hd" || is_early)
}

fn disk(subject: &Subject<'_>) -> Verdict {
    let ahci = subject.setting("hdtype").is_some_and(|(kind, _)| kind == "ahci");
    let (last, next) = if ahci { ('f', "xvdg") } else { ('d', "xvde") };
    let all = subject.devices(DeviceKind::Disk).map(|(_, device)| device);
    let emulated = all.filter(|device| is_hvm(subject) && is_emulated(device, last));
    // The first one is needed: the firmware boots from it, and Xen's drivers unplug it later.
    let bad: Vec<_> = emulated.skip(1).collect();
    if bad.is_empty() {
        return Verdict::pass("none but the one that the firmware starts from");
    }
    warned(Verdict::warn(named(&bad)), &bad).advice(format!("vdev={next} and so on for all but the first"))
}

fn backend(subject: &Subject<'_>) -> Verdict {
    let all = subject.devices(DeviceKind::Disk).map(|(_, device)| device);
    let by_qemu = |device: &&Device| device.backend.as_ref().is_some_and(|set| set.value == Backend::Vmm);
    let bad: Vec<_> = all.filter(by_qemu).filter(|device| device.model != "ide-cd").collect();
    if bad.is_empty() {
        return Verdict::pass("no disk is served by QEMU");
    }
    warned(Verdict::warn(format!("by QEMU: {}", named(&bad))), &bad)
        .advice("a logical volume or partition with format=raw, which dom0's kernel serves")
}

fn pass_through(subject: &Subject<'_>) -> Verdict {
    let devices: Vec<_> = subject.devices(DeviceKind::Assigned).map(|(_, device)| device).collect();
    if devices.is_empty() {
        return Verdict::pass("none");
    }
    if let Some(("disabled", place)) = subject.setting("passthrough") {
        return warned(
            Verdict::fail("pci= together with passthrough = \"disabled\"").said(Form::Xl, place),
            &devices,
        )
        .advice("remove passthrough: it is enabled if there are devices");
    }
    if subject.host.xen_iommu == Some(false) {
        return warned(Verdict::fail("Xen uses no IOMMU on this host"), &devices)
            .advice("enable VT-d or AMD-Vi in the firmware setup; exitless doctor says more");
    }
    if let Some(verdict) = assignable(subject, &devices) {
        return verdict;
    }
    match subject.vm.xen_type() {
        XenGuestType::Pv => warned(Verdict::warn("for a PV guest, whose interrupts Xen delivers"), &devices)
            .advice("type = \"hvm\""),
        XenGuestType::Pvh => {
            warned(Verdict::fail("for a PVH guest, which Xen gives no PCI devices on x86"), &devices)
                .advice("type = \"hvm\"")
        }
        XenGuestType::Hvm => Verdict::pass(told(subject, &devices)),
    }
}

/// The host's function that a device of the definition names.
fn on_host<'a>(subject: &Subject<'a>, device: &Device) -> Option<&'a XenDevice> {
    let address = address(device)?;
    subject.host.xen_devices.as_ref()?.iter().find(|one| one.function.address == address)
}

/// The address of the host's function: `03:10.0` for `03:10.0@5`, where 5 is the slot in the guest (libxlu_pci.c).
/// `None` for a name, or an address with `*`.
fn address(device: &Device) -> Option<String> {
    let text = device.source.as_ref()?.value.split('@').next()?;
    host::whole_address(text)
}

/// The verdict on functions that `xl` cannot assign, or that should not be assigned.
fn assignable(subject: &Subject<'_>, devices: &[&Device]) -> Option<Verdict> {
    subject.host.xen_devices.as_ref()?;
    let set = |device: &Device, name: &str| {
        device.properties.iter().any(|(known, value)| known == name && value != "0")
    };
    // xl itself unbinds the device from its driver.
    let seized =
        |device: &Device| set(device, "seize") || subject.switched("pci_seize").is_some_and(|(on, _)| on);
    for &device in devices {
        let Some(address) = address(device) else { continue };
        let one = [device];
        let Some(found) = on_host(subject, device) else {
            return Some(
                warned(Verdict::fail(format!("{address} is not on this host")), &one)
                    .advice("name one that `lspci -D` lists"),
            );
        };
        if !found.ready && !seized(device) {
            let holder = match found.function.driver.as_deref() {
                Some(driver) => format!("the driver {driver} of dom0 has it"),
                None => "it is not kept for guests".to_owned(),
            };
            return Some(
                warned(Verdict::fail(format!("{address} is not ready for a guest: {holder}")), &one)
                    .advice(format!("xl pci-assignable-add {address}, or seize=1 behind it")),
            );
        }
    }
    devices.iter().find_map(|&device| match on_host(subject, device)?.function {
        PciFunction { ref address, role: FunctionRole::Physical { virtual_functions: 1.., .. }, .. } => Some(
            warned(
                Verdict::warn(format!("{address} is a physical function, whose virtual ones go with it")),
                &[device],
            )
            .advice("one of its virtual functions"),
        ),
        _ => None,
    })
}

fn told(subject: &Subject<'_>, devices: &[&Device]) -> String {
    let virtual_ones: Vec<String> = devices
        .iter()
        .filter_map(|device| on_host(subject, device))
        .filter(|found| found.function.is_virtual())
        .map(|found| found.function.address.clone())
        .collect();
    let count = format!("{} for an HVM guest", devices.len());
    if virtual_ones.is_empty() {
        count
    } else {
        format!("{count}; virtual functions: {}", listed(&virtual_ones))
    }
}

fn screen(subject: &Subject<'_>) -> Verdict {
    if !is_hvm(subject) {
        return Verdict::skip("only HVM guests have one");
    }
    let named = subject.setting("vga").filter(|(kind, _)| *kind != "none");
    let old = subject.switched("stdvga").filter(|(on, _)| *on).map(|(_, place)| ("stdvga", place));
    let memory = subject.setting("videoram");
    let none = subject.setting("vga").is_some_and(|(kind, _)| kind == "none");
    match (named.or(old), memory) {
        _ if none => Verdict::pass("none"),
        (Some((kind, place)), _) => Verdict::warn(kind.to_owned())
            .said(Form::Xl, place)
            .advice("vga = \"none\" and a serial console, for a guest whose screen nobody needs"),
        (None, Some((size, place))) => Verdict::warn(format!("cirrus with {size} MiB"))
            .said(Form::Xl, place)
            .advice("vga = \"none\" and a serial console, for a guest whose screen nobody needs"),
        (None, None) => Verdict::pass("cirrus, by default"),
    }
}

fn usb(subject: &Subject<'_>) -> Verdict {
    if !is_hvm(subject) {
        return Verdict::skip("only HVM guests have one");
    }
    let devices: Vec<_> = subject.devices(DeviceKind::Input).map(|(_, device)| device).collect();
    if !devices.is_empty() {
        return warned(Verdict::warn(named(&devices)), &devices)
            .advice("no usb and usbdevice; vkb = [ \"backend-type=qemu\" ] with Xen's drivers instead");
    }
    match subject.switched("usb") {
        Some((true, place)) => {
            Verdict::warn("a controller without a device").said(Form::Xl, place).advice("remove usb = 1")
        }
        _ => Verdict::pass("none"),
    }
}
