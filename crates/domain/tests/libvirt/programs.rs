//! Checks of written XML by libvirt's schema and QEMU, if they are installed.

use crate::conversion::xml_of;
use crate::reading::{fixtures, folder, text};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// libvirt's schema of domains: at its default place, or in the folder of `LIBVIRT_SCHEMAS`.
fn schema() -> Option<PathBuf> {
    let folder = std::env::var_os("LIBVIRT_SCHEMAS")
        .map_or_else(|| "/usr/share/libvirt/schemas".into(), PathBuf::from);
    Some(folder.join("domain.rng")).filter(|path| path.is_file())
}

/// xmllint's errors for a document; `None` without xmllint.
fn complaints(schema: &std::path::Path, document: &[u8]) -> Option<String> {
    let mut xmllint = Command::new("xmllint")
        .args(["--noout", "--relaxng"])
        .arg(schema)
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    // A document that is refused early is not read to its end.
    let _ = xmllint.stdin.take()?.write_all(document);
    let output = xmllint.wait_with_output().ok()?;
    Some(if output.status.success() {
        String::new()
    } else {
        String::from_utf8_lossy(&output.stderr).into_owned()
    })
}

/// Names of documents with their texts: fixtures, XML made of command lines, and fixtures after changes.
fn documents() -> Vec<(String, Vec<u8>)> {
    use domain::{Change, CpuModel, FeatureState, Irqchip, TickPolicy};
    let mut all: Vec<(String, Vec<u8>)> =
        fixtures("libvirt").into_iter().map(|name| (name.clone(), text(&name).bytes)).collect();
    let commands = fixtures("qemu").into_iter().filter(|name| !name.ends_with(".cfg"));
    all.extend(commands.map(|name| (format!("XML of {name}"), xml_of(&name).1.text.into_bytes())));
    let changes = [
        Change::Irqchip(Irqchip::Split),
        Change::PitTickPolicy(TickPolicy::Discard),
        Change::Hpet(false),
        Change::CpuModel(CpuModel::Host),
        Change::CpuFeature("x2apic".into(), FeatureState::On),
        Change::CpuFeature("kvm-pv-eoi".into(), FeatureState::On),
        Change::CpuFeature("kvm-msi-ext-dest-id".into(), FeatureState::On),
        Change::HyperV("vpindex".into(), true),
        Change::HyperV("synic".into(), true),
        Change::HyperV("stimer-direct".into(), true),
        Change::HyperV("time".into(), true),
        Change::InterruptRemapping,
    ];
    for name in fixtures("libvirt") {
        let definition = domain::libvirt::read(&text(&name), &domain::NoFiles).expect("it is libvirt's XML");
        let mut changes = changes.to_vec();
        for (device, what) in definition.devices.iter().enumerate() {
            let model = match what.kind {
                domain::DeviceKind::Disk => "virtio-blk-pci",
                domain::DeviceKind::Network => "virtio-net-pci",
                domain::DeviceKind::Display => "virtio-vga",
                _ => continue,
            };
            changes.push(Change::DeviceModel { device, model: model.into() });
            changes.push(Change::Vhost { device, on: true });
            changes.push(Change::Queues { device, queues: 2 });
            changes.push(Change::IoThread { device, iothread: "iothread9".into() });
            changes.push(Change::Aio { device, aio: "native".into() });
        }
        let edited = domain::libvirt::apply(&text(&name), &changes).expect("it is libvirt's XML");
        all.push((format!("{name} after changes"), edited.bytes));
    }
    all
}

/// Without elements that libvirt has only since 9.1 (10.0: threads by queue), and with absolute paths:
/// libvirt accepts no others, as notes say.
fn for_old_schemas(document: &str) -> String {
    let mut new = document.replace(" clusters='1'", "").replace("model=\"itco\"", "model=\"i6300esb\"");
    new = new.replace("<poll max='32768' grow='2' shrink='2'/>", "");
    while let Some((before, rest)) = new.split_once("<iothreads>\n") {
        let after = rest.split_once("</iothreads>").map_or("", |(_, after)| after);
        new = format!("{before}{after}");
    }
    for prefix in ["<source file='", "<source dev='"] {
        new =
            new.replace(prefix, &format!("{prefix}/")).replace(&format!("{prefix}//"), &format!("{prefix}/"));
    }
    new
}

#[test]
fn libvirts_schema_takes_what_is_written() {
    let Some(schema) = schema() else {
        println!("not tested: libvirt's schemas are not there (package libvirt0, or LIBVIRT_SCHEMAS=DIR)");
        return;
    };
    let mut wrong = String::new();
    for (name, document) in documents() {
        let document = for_old_schemas(&String::from_utf8_lossy(&document)).into_bytes();
        match complaints(&schema, &document) {
            None => {
                println!("not tested: xmllint is not there (package libxml2-utils)");
                return;
            }
            Some(said) if said.is_empty() => {}
            Some(said) => wrong += &format!("{name}: {said}\n{}\n", String::from_utf8_lossy(&document)),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A domain that can be started anywhere: no KVM, no network, no other programs.
const PLAIN: &str = include_str!("../fixtures/startable.xml");

#[test]
fn qemu_takes_the_arguments() {
    let program = "/usr/bin/qemu-system-x86_64";
    if !std::path::Path::new(program).exists() {
        println!("not tested: {program} is not there (package qemu-system-x86)");
        return;
    }
    let scratch = std::env::temp_dir().join(format!("domain-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("there is room for scratch files");
    for image in ["a.img", "b.img", "c.img"] {
        std::fs::write(scratch.join(image), vec![0; 1 << 20]).expect("there is room for an image");
    }
    let mut wrong = String::new();
    for machine in ["q35", "pc"] {
        let document =
            PLAIN.replace("SCRATCH", scratch.to_str().expect("it is UTF-8")).replace("MACHINE", machine);
        let document = if machine == "pc" { document.replace("bus='sata'", "bus='ide'") } else { document };
        let converted =
            domain::convert::to_arguments(&domain::Text::new("plain.xml", document)).expect("it is XML");
        assert_eq!(converted.losses, [], "{machine}");
        let (program, arguments) = converted.arguments.split_first().expect("the program is first");
        let mut qemu = Command::new(program)
            .args(arguments)
            .args(["-S", "-monitor", "stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("QEMU can be started");
        let _ = qemu.stdin.take().expect("it is piped").write_all(b"info version\nquit\n");
        let output = qemu.wait_with_output().expect("QEMU ends");
        if !output.status.success() {
            wrong += &format!("{machine}: {}\n{}\n", String::from_utf8_lossy(&output.stderr), converted.text);
        }
    }
    let _ = std::fs::remove_dir_all(&scratch);
    assert!(wrong.is_empty(), "{wrong}");
    assert!(folder("libvirt").is_dir());
}
