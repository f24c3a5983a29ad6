//! Changes of definitions, chosen by two bytes.

use domain::{Change, CpuModel, FeatureState, Irqchip, TickPolicy};

/// The change that two bytes stand for.
pub fn change(kind: u8, device: u8) -> Change {
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
        9 if on => Change::SharedMemory,
        9 => Change::Reconnect { device: device_number },
        8 => Change::HyperV(name(&["synic", "stimer", "avic", "vpindex", "spinlocks", "time"]), on),
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
