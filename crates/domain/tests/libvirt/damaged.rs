//! Damaged fixtures are read and changed without a panic.

use crate::reading::{fixtures, folder};
use domain::{DefinitionChange, FeatureState, Irqchip, NoFiles, Text};
use proptest::prelude::*;

const PIECES: [&str; 16] = [
    "",
    "<",
    ">",
    "/>",
    "'",
    "\"",
    "&",
    "&lt;",
    "<iothreads>",
    "</devices>",
    "=''",
    "4294967296",
    "-1",
    "0x",
    ",",
    "é",
];

fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let names = fixtures("libvirt");
    let texts: Vec<Vec<u8>> = names
        .iter()
        .map(|name| std::fs::read(folder("libvirt").join(name)).expect("the fixture is there"))
        .collect();
    let damage = (any::<prop::sample::Index>(), 0_usize..40, prop::sample::select(PIECES.to_vec()));
    (prop::sample::select(texts), prop::collection::vec(damage, 1..4)).prop_map(|(mut text, all)| {
        for (at, length, piece) in all {
            let start = at.index(text.len());
            // Half of the damage leaves XML's markup intact, so that its content is damaged.
            let end = (start + length / 2).min(text.len());
            let spared = length % 2 == 0 && text[start..end].iter().any(|byte| b"<>\"'/=".contains(byte));
            text.splice(start..if spared { start } else { end }, piece.bytes());
        }
        text
    })
}

proptest! {
    #[test]
    fn damaged_xml_is_read_and_changed_or_refused(bytes in damaged(), device in 0_usize..12) {
        let text = Text::new("damaged.xml", bytes);
        let changes = [
            DefinitionChange::Irqchip(Irqchip::Split),
            DefinitionChange::CpuFeature("x2apic".into(), FeatureState::On),
            DefinitionChange::HyperV("stimer-direct".into(), true),
            DefinitionChange::InterruptRemapping,
            DefinitionChange::SharedMemory,
            DefinitionChange::Reconnect { device },
            DefinitionChange::DeviceModel { device, model: "virtio-blk-pci".into() },
            DefinitionChange::Queues { device, queues: 3 },
            DefinitionChange::IoThread { device, iothread: "iothread3".into() },
        ];
        let Ok(_) = domain::libvirt::read(&text, &NoFiles) else { return Ok(()) };
        let edited = domain::libvirt::apply(&text, &changes).expect("what can be read can be changed");
        prop_assert!(domain::libvirt::read(&Text::new("changed.xml", edited.bytes), &NoFiles).is_ok());
    }
}
