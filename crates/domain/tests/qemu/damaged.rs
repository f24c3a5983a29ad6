//! Fixtures with parts removed, doubled and overwritten are read and changed without a panic, and the rest of
//! the text is unchanged.

use crate::summary::{fixtures, text};
use domain::qemu::{apply_with, read};
use domain::{CpuModel, DefinitionChange, FeatureState, Irqchip, Text, TickPolicy};
use proptest::prelude::*;

const NAMES: [&str; 10] = [
    "virt-install-q35.log",
    "proxmox-showcmd.txt",
    "x2avic-380.sh",
    "ipi-16.txt",
    "plain-hda.txt",
    "microvm.args",
    "windows.service",
    "array.sh",
    "legacy.sh",
    "accounting.cfg",
];

fn all_changes() -> Vec<DefinitionChange> {
    let mut changes = vec![
        DefinitionChange::Irqchip(Irqchip::Split),
        DefinitionChange::CpuModel(CpuModel::Host),
        DefinitionChange::CpuFeature("x2apic".into(), FeatureState::Off),
        DefinitionChange::HyperV("stimer".into(), true),
        DefinitionChange::Hpet(false),
        DefinitionChange::InterruptRemapping,
        DefinitionChange::PitTickPolicy(TickPolicy::Discard),
        DefinitionChange::SharedMemory,
    ];
    for device in 0..12 {
        changes.push(DefinitionChange::DeviceModel { device, model: "virtio-blk-pci".into() });
        changes.push(DefinitionChange::DeviceModel { device, model: "virtio-net-pci".into() });
        changes.push(DefinitionChange::IoThread { device, iothread: "io0".into() });
        changes.push(DefinitionChange::Aio { device, aio: "native".into() });
        changes.push(DefinitionChange::Vhost { device, on: true });
        changes.push(DefinitionChange::Reconnect { device });
        changes.push(DefinitionChange::Queues { device, queues: 3 });
    }
    changes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_texts_are_read_and_changed_or_refused(
        name in 0_usize..NAMES.len(),
        as_process in any::<bool>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..40, "[-\0'\"\\\\\n,={}$#(); a]{0,3}"), 0..4),
    ) {
        let mut bytes = text(NAMES[name]).bytes;
        if as_process {
            bytes.iter_mut().filter(|byte| byte.is_ascii_whitespace()).for_each(|byte| *byte = 0);
        }
        for (place, length, new) in damage {
            let start = place.index(bytes.len().max(1)).min(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, new.into_bytes());
        }
        let old = Text::new(NAMES[name], bytes);
        let Ok(before) = read(&old, &fixtures()) else { return Ok(()) };
        for device in &before.devices {
            prop_assert!(device.place.start <= device.place.end && device.place.end <= old.bytes.len());
        }
        let changes = all_changes();
        let edited = apply_with(&old, &fixtures(), &changes).expect("what can be read can be changed");
        let mut rebuilt = old.bytes.clone();
        for edit in edited.edits.iter().rev() {
            rebuilt.splice(edit.start..edit.end, edit.new.iter().copied());
        }
        prop_assert_eq!(&rebuilt, &edited.bytes);
        prop_assert!(edited.refused.len() < changes.len() || edited.edits.is_empty());
        let after = read(&Text::new("changed", &*edited.bytes), &fixtures()).expect("it is a command line still");
        prop_assert_eq!(before.program.map(|set| set.value), after.program.map(|set| set.value));
    }
}
