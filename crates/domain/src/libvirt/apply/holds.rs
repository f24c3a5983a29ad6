//! Tests whether a definition already contains a change.

use crate::{Backend, Definition, DefinitionChange};

pub(super) fn holds(definition: &Definition, change: &DefinitionChange) -> bool {
    let device = |position: usize| definition.devices.get(position);
    match change {
        DefinitionChange::Irqchip(wanted) => value(definition.machine.irqchip.as_ref()) == Some(wanted),
        DefinitionChange::PitTickPolicy(wanted) => value(definition.timers.pit.as_ref()) == Some(wanted),
        DefinitionChange::Hpet(wanted) => value(definition.timers.hpet.as_ref()) == Some(wanted),
        DefinitionChange::CpuModel(wanted) => value(definition.cpu.model.as_ref()) == Some(wanted),
        DefinitionChange::CpuFeature(name, wanted) => definition.cpu.feature(name) == Some(*wanted),
        DefinitionChange::HyperV(name, wanted) => {
            let said = definition.cpu.hyperv.features.get(name).map(|set| set.value);
            said == Some(*wanted)
                || !wanted && said.is_none() && definition.cpu.hyperv.passthrough.is_none()
                || *wanted && said.is_none() && definition.cpu.hyperv.passthrough.is_some()
        }
        DefinitionChange::InterruptRemapping => definition.iommus.iter().any(|iommu| {
            iommu.model == "intel-iommu"
                && value(iommu.interrupt_remapping.as_ref()) == Some(&true)
                && value(iommu.extended_interrupt_mode.as_ref()) == Some(&true)
                && (value(iommu.caching_mode.as_ref()) == Some(&true) || !definition.has_assigned_device())
        }),
        DefinitionChange::SharedMemory => value(definition.shared_memory.as_ref()) == Some(&true),
        DefinitionChange::Reconnect { device: position } => {
            device(*position).is_some_and(|device| device.reconnects == Some(true))
        }
        DefinitionChange::DeviceModel { device: position, model } => {
            device(*position).is_some_and(|device| device.model == *model)
        }
        DefinitionChange::Vhost { device: position, on } => device(*position).is_some_and(|device| {
            value(device.backend.as_ref()) == Some(if *on { &Backend::Vhost } else { &Backend::Vmm })
        }),
        DefinitionChange::Queues { device: position, queues } => {
            device(*position).is_some_and(|device| value(device.queues.as_ref()) == Some(queues))
        }
        // libvirt numbers its threads, so a thread with another name is accepted.
        DefinitionChange::IoThread { device: position, iothread } => {
            device(*position).is_some_and(|device| {
                let threads = &device.iothreads;
                threads.iter().any(|thread| thread.value == *iothread)
                    || !threads.is_empty() && super::traffic::number(iothread).is_none()
                    || on_controller(definition, *position, iothread)
            })
        }
        DefinitionChange::Aio { device: position, aio } => {
            device(*position).is_some_and(|device| value(device.aio.as_ref()) == Some(aio))
        }
    }
}

/// Disks on a SCSI controller are served by the controller's thread.
fn on_controller(definition: &Definition, position: usize, iothread: &str) -> bool {
    let Some(disk) = definition.devices.get(position).filter(|disk| disk.model.starts_with("scsi-")) else {
        return false;
    };
    let find = |properties: &[(String, String)], name: &str| {
        properties
            .iter()
            .find(|(path, _)| path == name)
            .map_or_else(|| "0".to_owned(), |(_, value)| value.clone())
    };
    let wanted = find(&disk.properties, "address@controller");
    definition
        .devices
        .iter()
        .filter(|device| {
            device.model.starts_with("virtio-scsi") && find(&device.properties, "@index") == wanted
        })
        .any(|device| {
            device.iothreads.iter().any(|thread| thread.value == *iothread)
                || !device.iothreads.is_empty() && super::traffic::number(iothread).is_none()
        })
}

fn value<T>(set: Option<&crate::Set<T>>) -> Option<&T> {
    set.map(|set| &set.value)
}
