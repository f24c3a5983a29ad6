//! A QEMU command line: read, and changed in one way that the first two bytes choose.

#![no_main]

use domain::qemu::{apply, read};
use domain::{Change, CpuModel, FeatureState, Irqchip, NoFiles, Text, TickPolicy};
use libfuzzer_sys::fuzz_target;

fn change(kind: u8, device: u8) -> Change {
    let on = kind & 0x80 != 0;
    let name = |names: &[&str]| names[usize::from(device) % names.len()].to_owned();
    let device_number = usize::from(device % 8);
    match kind % 16 {
        0 => Change::Irqchip(Irqchip::Split),
        1 => Change::Irqchip(if on { Irqchip::Kernel } else { Irqchip::UserSpace }),
        2 => Change::PitTickPolicy(if on { TickPolicy::Discard } else { TickPolicy::Delay }),
        3 => Change::Hpet(on),
        4 => Change::CpuModel(CpuModel::Host),
        5 => Change::CpuModel(CpuModel::Named(name(&["EPYC", "max", "qemu64"]))),
        6 | 7 => {
            let state = if on { FeatureState::On } else { FeatureState::Off };
            Change::CpuFeature(name(&["x2apic", "svm", "topoext", "hv-time", "kvm-msi-ext-dest-id"]), state)
        }
        8 | 9 => Change::HyperV(name(&["synic", "stimer", "avic", "vpindex", "spinlocks", "time"]), on),
        10 => Change::InterruptRemapping,
        11 | 12 => {
            let models = ["virtio-blk-pci", "virtio-net-pci", "virtio-vga"];
            Change::DeviceModel {
                device: device_number,
                model: models[usize::from(kind >> 4) % 3].to_owned(),
            }
        }
        13 => Change::Vhost { device: device_number, on },
        14 => Change::Queues { device: device_number, queues: u32::from(kind >> 4) },
        _ if on => Change::IoThread { device: device_number, iothread: "io0".to_owned() },
        _ => Change::Aio { device: device_number, aio: name(&["native", "io_uring", "threads"]) },
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [kind, device, bytes @ ..] = bytes else { return };
    let text = Text::new("fuzzed", bytes);
    let Ok(before) = read(&text, &NoFiles) else { return };
    for device in &before.devices {
        assert!(device.place.start <= device.place.end && device.place.end <= bytes.len());
    }
    let change = change(*kind, *device);
    let edited = apply(&text, std::slice::from_ref(&change)).expect("what can be read can be changed");
    assert!(edited.refused.is_empty() || edited.bytes == bytes, "{change:?}: a refusal changed the text");
    let mut rebuilt = bytes.to_vec();
    for edit in edited.edits.iter().rev() {
        rebuilt.splice(edit.start..edit.end, edit.new.iter().copied());
    }
    assert_eq!(rebuilt, edited.bytes, "{change:?}");
    let new = Text::new("changed", edited.bytes);
    read(&new, &NoFiles).expect("a changed command line is one still");
});
