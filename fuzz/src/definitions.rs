//! Changes of definitions, chosen by two bytes.

use domain::{CpuModel, DefinitionChange, FeatureState, Irqchip, TickPolicy};

/// The change that two bytes stand for.
pub fn change(kind: u8, device: u8) -> DefinitionChange {
    let on = kind & 0x80 != 0;
    let name = |names: &[&str]| names[usize::from(device) % names.len()].to_owned();
    let device_number = usize::from(device % 8);
    match kind % 16 {
        0 => DefinitionChange::Irqchip(Irqchip::Split),
        1 => DefinitionChange::Irqchip(if on { Irqchip::Kernel } else { Irqchip::UserSpace }),
        2 => DefinitionChange::PitTickPolicy(if on { TickPolicy::Discard } else { TickPolicy::Delay }),
        3 => DefinitionChange::Hpet(on),
        4 => DefinitionChange::CpuModel(CpuModel::Host),
        5 => DefinitionChange::CpuModel(CpuModel::Named(name(&["EPYC", "max", "qemu64"]))),
        6 | 7 => {
            let state = if on { FeatureState::On } else { FeatureState::Off };
            DefinitionChange::CpuFeature(
                name(&["x2apic", "svm", "topoext", "hv-time", "kvm-msi-ext-dest-id"]),
                state,
            )
        }
        9 if on => DefinitionChange::SharedMemory,
        9 => DefinitionChange::Reconnect { device: device_number },
        8 => DefinitionChange::HyperV(name(&["synic", "stimer", "avic", "vpindex", "spinlocks", "time"]), on),
        10 => DefinitionChange::InterruptRemapping,
        11 | 12 => {
            let models = ["virtio-blk-pci", "virtio-net-pci", "virtio-vga"];
            DefinitionChange::DeviceModel {
                device: device_number,
                model: models[usize::from(kind >> 4) % 3].to_owned(),
            }
        }
        13 => DefinitionChange::Vhost { device: device_number, on },
        14 => DefinitionChange::Queues { device: device_number, queues: u32::from(kind >> 4) },
        _ if on => DefinitionChange::IoThread { device: device_number, iothread: "io0".to_owned() },
        _ => DefinitionChange::Aio { device: device_number, aio: name(&["native", "io_uring", "threads"]) },
    }
}
