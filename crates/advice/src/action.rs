//! Cures as data: the changes of a definition that a program can make by itself.

use domain::{Backend, Definition, DefinitionChange, Device, DeviceKind, FeatureState, Irqchip};
use serde::{Deserialize, Serialize};

/// A part of a cure, whatever text the definition is written in. What it comes to depends on the definition's devices:
/// [`Self::changes`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Action {
    /// The place in which the interrupt controllers are emulated.
    Irqchip(Irqchip),
    /// True if there is an HPET.
    Hpet(bool),
    /// A feature of the CPU, by QEMU's name with dashes.
    CpuFeature(String, FeatureState),
    /// An enlightenment that is switched on, by QEMU's name without its prefix.
    Hyperv(String),
    /// Another model for each device that is of one of these.
    Model {
        /// QEMU's names of models that are replaced; a name that ends in `*` stands for all that begin so.
        from: Vec<String>,
        /// QEMU's name of the model they become.
        to: String,
    },
    /// Who does the work of each virtio network interface that is neither in another process nor in hardware: the
    /// kernel, or the VMM.
    Vhost(bool),
}

impl Action {
    /// The changes that this takes in `definition`: one for each device that it concerns; none where none is.
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
            Self::Vhost(on) => devices(&|device| is_own_virtio_net(device, *on), &|device| {
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

fn is_own_virtio_net(device: &Device, on: bool) -> bool {
    let other = if on { Backend::Vmm } else { Backend::Vhost };
    let is_other = match &device.backend {
        None => on,
        Some(backend) => backend.value == other,
    };
    device.kind == DeviceKind::Network && device.model.starts_with("virtio-net") && is_other
}

#[cfg(test)]
#[path = "action_tests.rs"]
mod tests;
