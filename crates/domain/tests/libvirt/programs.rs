//! Checks of changed XML by libvirt's schema, if it is installed.

use crate::reading::{fixtures, text};
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
    // Ignore the error: xmllint does not read a document that it refuses early to its end.
    let _ = xmllint.stdin.take()?.write_all(document);
    let output = xmllint.wait_with_output().ok()?;
    Some(if output.status.success() {
        String::new()
    } else {
        String::from_utf8_lossy(&output.stderr).into_owned()
    })
}

/// A fixture after changes of every kind.
pub(crate) fn changed(name: &str) -> Vec<u8> {
    use domain::{CpuModel, DefinitionChange, FeatureState, Irqchip, TickPolicy};
    let mut changes = vec![
        DefinitionChange::Irqchip(Irqchip::Split),
        DefinitionChange::PitTickPolicy(TickPolicy::Discard),
        DefinitionChange::Hpet(false),
        DefinitionChange::CpuModel(CpuModel::Host),
        DefinitionChange::CpuFeature("x2apic".into(), FeatureState::On),
        DefinitionChange::CpuFeature("kvm-pv-eoi".into(), FeatureState::On),
        DefinitionChange::CpuFeature("kvm-msi-ext-dest-id".into(), FeatureState::On),
        DefinitionChange::HyperV("vpindex".into(), true),
        DefinitionChange::HyperV("synic".into(), true),
        DefinitionChange::HyperV("stimer-direct".into(), true),
        DefinitionChange::HyperV("time".into(), true),
        DefinitionChange::InterruptRemapping,
        DefinitionChange::SharedMemory,
    ];
    let definition = domain::libvirt::read(&text(name), &domain::NoFiles).expect("it is libvirt's XML");
    for (device, what) in definition.devices.iter().enumerate() {
        let model = match what.kind {
            domain::DeviceKind::Disk => "virtio-blk-pci",
            domain::DeviceKind::Network => "virtio-net-pci",
            domain::DeviceKind::Display => "virtio-vga",
            _ => continue,
        };
        changes.push(DefinitionChange::DeviceModel { device, model: model.into() });
        changes.push(DefinitionChange::Vhost { device, on: true });
        changes.push(DefinitionChange::Queues { device, queues: 2 });
        changes.push(DefinitionChange::IoThread { device, iothread: "iothread9".into() });
        changes.push(DefinitionChange::Aio { device, aio: "native".into() });
    }
    domain::libvirt::apply(&text(name), &changes).expect("it is libvirt's XML").bytes
}

/// Removes elements that libvirt supports only since 9.1 (threads per queue: 10.0).
pub(crate) fn for_old_versions(document: &str) -> String {
    let mut new = document.replace(" clusters='1'", "").replace("model=\"itco\"", "model=\"i6300esb\"");
    new = new.replace("<poll max='32768' grow='2' shrink='2'/>", "");
    while let Some((before, rest)) = new.split_once("<iothreads>\n") {
        let after = rest.split_once("</iothreads>").map_or("", |(_, after)| after);
        new = format!("{before}{after}");
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
    let documents = fixtures("libvirt")
        .into_iter()
        .flat_map(|name| [text(&name).bytes, changed(&name)].map(|one| (name.clone(), one)));
    for (name, document) in documents {
        let document = for_old_versions(&String::from_utf8_lossy(&document)).into_bytes();
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
