use crate::reading::{fixtures, folder, text};
use domain::convert::{Converted, to_arguments, to_xml};
use domain::{Definition, NoFiles, Text};
use std::fmt::Write;

pub(crate) fn told(converted: &Converted) -> String {
    let mut whole = converted.text.clone();
    for (title, lines) in [("note", &converted.notes), ("passed through", &converted.passed_through)] {
        for line in lines {
            writeln!(whole, "{title}: {line}").expect("strings take all");
        }
    }
    for loss in &converted.losses {
        writeln!(whole, "loss: {}: {}", loss.what, loss.why).expect("strings take all");
    }
    whole
}

#[test]
fn every_fixture_becomes_arguments_as_before() {
    for name in fixtures("libvirt") {
        let converted = to_arguments(&text(&name)).expect("it is libvirt's XML");
        insta::assert_snapshot!(format!("arguments-{}", name.trim_end_matches(".xml")), told(&converted));
        assert!(!told(&converted).contains("sesame"), "a password is among the arguments");
    }
}

#[test]
fn every_command_line_becomes_xml_as_before() {
    for name in fixtures("qemu").into_iter().filter(|name| !name.ends_with(".cfg")) {
        let (_, converted) = xml_of(&name);
        insta::assert_snapshot!(format!("xml-{}", name.replace('.', "-")), told(&converted));
    }
}

#[test]
fn a_usb_device_brings_its_controller_along() {
    let usb = |line: &str| {
        let text = Text::new("a command line", line.as_bytes().to_vec());
        told(&to_xml(&text, &NoFiles).unwrap()).contains("<controller type='usb' model='none'/>")
    };
    assert!(usb("qemu-system-x86_64 -M pc"), "libvirt adds one to a domain that does not say no");
    assert!(!usb("qemu-system-x86_64 -M pc -usbdevice tablet"));
    assert!(!usb("qemu-system-x86_64 -M pc -usb"));
}

/// A fixture of a QEMU command line, and its conversion to libvirt's XML.
pub(crate) fn xml_of(name: &str) -> (Text, Converted) {
    struct Beside;
    impl domain::Files for Beside {
        fn contents(&self, path: &std::path::Path) -> std::io::Result<Vec<u8>> {
            std::fs::read(folder("qemu").join(path.file_name().unwrap_or_default()))
        }
    }
    let text = Text::new(name, std::fs::read(folder("qemu").join(name)).expect("the fixture is there"));
    let converted = domain::convert::to_xml(&text, &Beside).expect("it is a QEMU command line");
    (text, converted)
}

/// The settings of a VM that both forms can express, as lines without places.
fn essence(vm: &Definition) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |name: &str, value: String| lines.push(format!("{name}: {value}"));
    say("name", format!("{:?}", vm.name.as_ref().map(|set| &set.value)));
    say("program", format!("{:?}", vm.program.as_ref().map(|set| &set.value)));
    say("machine", format!("{:?}", vm.machine.kind.as_ref().map(|set| &set.value)));
    say("accelerator", format!("{:?}", vm.accelerator_in_force()));
    say("irqchip", format!("{:?}", vm.machine.irqchip.as_ref().map(|set| set.value)));
    say("vmport", format!("{:?}", vm.machine.vmport.as_ref().map(|set| set.value)));
    let timers = &vm.timers;
    say(
        "ticks",
        format!(
            "{:?} {:?}",
            timers.pit.as_ref().map(|set| set.value),
            timers.rtc.as_ref().map(|set| set.value)
        ),
    );
    let clocks =
        [&timers.hpet, &timers.kvm_clock, &timers.hyperv_clock].map(|set| set.as_ref().map(|set| set.value));
    say("clocks", format!("{clocks:?}"));
    say("vCPUs", format!("{} of {}", vm.vcpus_in_force(), vm.most_vcpus()));
    let levels = [&vm.vcpus.sockets, &vm.vcpus.dies, &vm.vcpus.cores, &vm.vcpus.threads];
    say("topology", format!("{:?}", levels.map(|set| set.as_ref().map(|set| set.value))));
    say("memory", format!("{:?}", vm.memory_mib.as_ref().map(|set| set.value)));
    say("cpu", format!("{:?}", vm.cpu.model.as_ref().map(|set| &set.value)));
    let switches = ["host-cache-info", "l3-cache", "host-phys-bits", "migratable"];
    for (name, set) in vm.cpu.features.iter().filter(|(name, _)| !switches.contains(&name.as_str())) {
        say("feature", format!("{name} {:?}", set.value));
    }
    for (name, set) in &vm.cpu.hyperv.features {
        say("enlightenment", format!("{name} {}", set.value));
    }
    for iommu in &vm.iommus {
        let switches = [&iommu.interrupt_remapping, &iommu.extended_interrupt_mode, &iommu.caching_mode];
        say("iommu", format!("{} {:?}", iommu.model, switches.map(|set| set.as_ref().map(|set| set.value))));
    }
    for thread in &vm.iothreads {
        say("thread", thread.id.clone());
    }
    let mut devices = Vec::new();
    for device in &vm.devices {
        // The codec that libvirt adds, and devices that are part of the machine in one form.
        if device.model.starts_with("hda-")
            || device.model.starts_with("ps2-")
            || device.place.text.is_empty()
        {
            continue;
        }
        let queues = device.queues.as_ref().map_or(1, |set| set.value);
        let threads: Vec<&str> = device.iothreads.iter().map(|set| set.value.as_str()).collect();
        let (aio, cache) =
            (device.aio.as_ref().map(|set| &set.value), device.cache.as_ref().map(|set| &set.value));
        // Both forms have a disk's file; only one has a tap's name, the other its bridge.
        let source = match device.kind {
            domain::DeviceKind::Disk | domain::DeviceKind::Assigned => {
                device.source.as_ref().map(|set| &set.value)
            }
            _ => None,
        };
        let threads = if device.model.starts_with("scsi-") { Vec::new() } else { threads };
        devices.push(format!("device: {} q{queues} {threads:?} {aio:?} {cache:?} {source:?}", device.model));
    }
    devices.sort();
    lines.extend(devices);
    lines
}

#[test]
fn xml_comes_back_from_arguments_with_all_that_it_said() {
    for name in fixtures("libvirt") {
        let before = domain::libvirt::read(&text(&name), &NoFiles).expect("it is libvirt's XML");
        let arguments = to_arguments(&text(&name)).expect("it is libvirt's XML");
        let process = format!("{}\0", arguments.arguments.join("\0"));
        let script = domain::qemu::read(&Text::new("script", arguments.text.clone()), &NoFiles)
            .expect("it is a script");
        let back =
            domain::convert::to_xml(&Text::new("process", process), &NoFiles).expect("it is a command line");
        let after =
            domain::libvirt::read(&Text::new("back.xml", back.text.clone()), &NoFiles).expect("it is XML");
        let (mut expected, mut found) = (essence(&before), essence(&after));
        // `to_arguments` reports that it cannot pass a macvtap device, and the substitute of a combined
        // model.
        let macvtap = |line: &String| line.starts_with("device: virtio-net-pci q8 [] None");
        if name == "x2avic-380.xml" {
            expected.retain(|line| !macvtap(line));
        }
        let host = expected.iter_mut().find(|line| line.as_str() == "cpu: Some(HostModel)");
        if let Some(host) = host {
            *host = "cpu: Some(Host)".into();
        }
        // By then the XML contains controllers that libvirt adds itself.
        let added = |line: &String| line.contains("virtio-serial-pci") || line.contains("usb-uhci");
        if matches!(name.as_str(), "fedora.xml" | "proxmox-import.xml") {
            found.retain(|line| !added(line));
            expected.retain(|line| !added(line));
        }
        // Network disks are passed through unchanged, so their images are not in the model.
        for line in &mut expected {
            *line = line.replace("Some(\"vms/f0b8b7a4-9c0a-4f0e-8d9c-4c1ddf0a7b11_disk\")", "None");
        }
        assert_eq!(expected.join("\n"), found.join("\n"), "{name}\n{}\n{}", arguments.text, back.text);
        assert_eq!(
            script.devices.len(),
            after_devices(&arguments),
            "{name}: the script and the arguments differ"
        );
    }
}

fn after_devices(arguments: &Converted) -> usize {
    let process = format!("{}\0", arguments.arguments.join("\0"));
    domain::qemu::read(&Text::new("process", process), &NoFiles).expect("it is a command line").devices.len()
}

#[test]
fn arguments_come_back_from_xml_with_all_that_they_said() {
    for name in fixtures("qemu").into_iter().filter(|name| !name.ends_with(".cfg")) {
        let (_, xml) = xml_of(&name);
        let once = domain::libvirt::read(&Text::new(&*name, xml.text.clone()), &NoFiles).expect("it is XML");
        let arguments = to_arguments(&Text::new("once.xml", xml.text.clone())).expect("it is XML");
        let again = domain::convert::to_xml(
            &Text::new("again", format!("{}\0", arguments.arguments.join("\0"))),
            &NoFiles,
        );
        let again = again.expect("it is a command line");
        let twice =
            domain::libvirt::read(&Text::new("twice.xml", again.text.clone()), &NoFiles).expect("it is XML");
        assert_eq!(
            essence(&once).join("\n"),
            essence(&twice).join("\n"),
            "{name}\n{}\n{}\n{}",
            xml.text,
            arguments.text,
            again.text
        );
    }
}
