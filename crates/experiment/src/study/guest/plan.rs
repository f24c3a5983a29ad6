//! The table `[guests]` of a plan: who the guests are, and how commands reach them.

mod merge;
mod net;
mod qemu;
mod reached;
mod size;
mod xen_image;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use merge::merged;
pub use net::{IoArrangement, IoWorkers, NetBackend, NetModel, NetPlan};
pub use qemu::{Accelerator, Aio, DiskBus, DiskCache, DiskPlan, Irqchip, Pit, QemuPlan};
pub use reached::{AgentChannel, HostPlan, LibvirtPlan, NoPlan, SshAccess, SshPlan, XenPlan};
pub use size::Size;
pub use xen_image::{XenDomainType, XenImagePlan, XlValue};

/// Who the guests of a study are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum GuestPlan {
    /// VMs that are started for the study from the guest image, one QEMU each.
    Qemu(Box<QemuPlan>),
    /// Domains that libvirt knows by name.
    Libvirt(LibvirtPlan),
    /// Domains of Xen, by name or by configuration file.
    Xen(XenPlan),
    /// Domains of Xen that are made for the study from the guest image.
    XenImage(XenImagePlan),
    /// Machines that are reached by ssh, whatever they are.
    Ssh(SshPlan),
    /// The host itself in the place of a guest: for studies of a host, and to try a plan.
    Host(HostPlan),
    /// No guests: workloads run on the host alone.
    None(NoPlan),
}

impl GuestPlan {
    /// How many guests run at once, one study point each, in the order in which they are gone through.
    pub fn counts(&self) -> Vec<u32> {
        let (given, all) = match self {
            Self::Qemu(plan) => (&plan.counts, 1),
            Self::Libvirt(plan) => (&plan.counts, plan.domains.len()),
            Self::Xen(plan) => (&plan.counts, plan.domains.len()),
            Self::XenImage(plan) => (&plan.counts, 1),
            Self::Ssh(plan) => (&plan.counts, plan.addresses.len()),
            Self::Host(plan) => (&plan.counts, 1),
            Self::None(_) => return vec![0],
        };
        let mut counts =
            if given.is_empty() { vec![u32::try_from(all).unwrap_or(u32::MAX)] } else { given.clone() };
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// These guests with the tables `guests` of levels laid over them, as [`merged`] does it.
    ///
    /// # Errors
    /// Where the tables together are no plan of guests: the words of the reader, with the field's name.
    pub fn with<'a>(
        &self,
        levels: impl IntoIterator<Item = &'a toml::Table>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(merged(&toml::Table::try_from(self)?, levels).try_into()?)
    }

    /// Guests that there can be at most; none where as many are started as are asked for.
    fn available(&self) -> Option<usize> {
        match self {
            Self::Qemu(_) | Self::XenImage(_) | Self::Host(_) | Self::None(_) => None,
            Self::Libvirt(plan) => Some(plan.domains.len()),
            Self::Xen(plan) => Some(plan.domains.len()),
            Self::Ssh(plan) => Some(plan.addresses.len()),
        }
    }

    /// How long the start of one may take.
    pub fn start_limit(&self) -> Duration {
        match self {
            Self::Qemu(plan) => plan.start_limit.duration(),
            Self::Libvirt(plan) => plan.start_limit.duration(),
            Self::Xen(plan) => plan.start_limit.duration(),
            Self::XenImage(plan) => plan.start_limit.duration(),
            Self::Ssh(plan) => plan.start_limit.duration(),
            Self::Host(_) | Self::None(_) => Duration::ZERO,
        }
    }

    /// Whether the guests are started from the guest image.
    pub fn needs_image(&self) -> bool {
        match self {
            Self::Qemu(plan) => plan.kernel.is_none(),
            Self::XenImage(_) => true,
            _ => false,
        }
    }

    /// What cannot work whatever the host, each with what to write instead. `field` names are those of the plan.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let counts = self.counts();
        if !matches!(self, Self::None(_)) && counts.contains(&0) {
            problems.push("guests.counts holds 0; write kind = \"none\" for runs without guests".to_owned());
        }
        if let (Some(available), Some(&most)) = (self.available(), counts.last()) {
            if available == 0 {
                problems.push("guests names no machine; list the domains or addresses".to_owned());
            } else if most as usize > available {
                problems.push(format!(
                    "guests.counts asks for {}, and {available} {} named; name more or ask for fewer",
                    exits::counted(most.into(), "guest"),
                    exits::agree(available as u64, "is", "are")
                ));
            }
        }
        if let Self::Xen(plan) = self {
            if plan.addresses.len() != plan.domains.len() {
                problems.push("guests.addresses must name one address for each of guests.domains".to_owned());
            }
        }
        match self {
            Self::Qemu(plan) => plan.problems(&mut problems),
            Self::XenImage(plan) => plan.problems(&mut problems),
            _ => (),
        }
        problems
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
