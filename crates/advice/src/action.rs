//! Cures as data: changes of a VM's definition that a program can make.

use domain::{Backend, Definition, DefinitionChange, Device, DeviceKind, FeatureState, Irqchip};
use serde::{Deserialize, Serialize};

/// A part of a cure, independent of the format of the definition. [`Self::changes`] applies it to the devices of a
/// definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Action {
    /// The irqchip mode.
    Irqchip(Irqchip),
    /// True if there is an HPET.
    Hpet(bool),
    /// A feature of the CPU, by QEMU's name with dashes.
    CpuFeature(String, FeatureState),
    /// A Hyper-V enlightenment to enable, by QEMU's name without the prefix `hv-`.
    Hyperv(String),
    /// Another model for each device that has one of these models.
    Model {
        /// QEMU's names of the models to replace. A name that ends in `*` is a prefix.
        from: Vec<String>,
        /// QEMU's name of the new model.
        to: String,
    },
    /// True to serve virtio network interfaces by vhost in the kernel, false to serve them in the VMM. Leaves interfaces
    /// alone that are served by another process or by hardware.
    Vhost(bool),
}

impl Action {
    /// The changes to make in `definition`. Actions on devices give one change for each device concerned.
    #[must_use]
    pub fn changes(&self, definition: &Definition) -> Vec<DefinitionChange> {
        let devices = |is: &dyn Fn(&Device) -> bool, change: &dyn Fn(usize) -> DefinitionChange| {
            let numbered = definition.devices.iter().enumerate().filter(|(_, device)| is(device));
            numbered.map(|(number, _)| change(number)).collect()
        };
        match self {
            Self::Irqchip(irqchip) => vec![DefinitionChange::Irqchip(*irqchip)],
            Self::Hpet(present) => vec![DefinitionChange::Hpet(*present)],
            Self::CpuFeature(name, state) => vec![DefinitionChange::CpuFeature(name.clone(), *state)],
            Self::Hyperv(name) => vec![DefinitionChange::HyperV(name.clone(), true)],
            Self::Model { from, to } => {
                devices(&|device| from.iter().any(|one| names(one, device)), &|device| {
                    DefinitionChange::DeviceModel { device, model: to.clone() }
                })
            }
            Self::Vhost(on) => devices(&|device| is_own_virtio_net(definition, device, *on), &|device| {
                DefinitionChange::Vhost { device, on: *on }
            }),
        }
    }
}

fn names(pattern: &str, device: &Device) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => device.model.starts_with(start),
        None => device.model == pattern,
    }
}

fn is_own_virtio_net(definition: &Definition, device: &Device, on: bool) -> bool {
    let other = if on { Backend::Vmm } else { Backend::Vhost };
    device.kind == DeviceKind::Network
        && device.model.starts_with("virtio-net")
        && definition.network_backend(device) == other
}

#[cfg(test)]
#[path = "action_tests.rs"]
mod tests;
