//! The table `[guests]` of a plan: the guests, and how commands reach them.

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

/// The guests of a study.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum GuestPlan {
    /// VMs that are started for the study from the guest image, one QEMU each.
    Qemu(Box<QemuPlan>),
    /// Domains of libvirt by name.
    Libvirt(LibvirtPlan),
    /// Domains of Xen, by name or by configuration file.
    Xen(XenPlan),
    /// Domains of Xen that are created for the study from the guest image.
    XenImage(XenImagePlan),
    /// Machines reached by ssh.
    Ssh(SshPlan),
    /// The host itself as a guest: for studies of a host, and to try a plan.
    Host(HostPlan),
    /// No guests: workloads run on the host only.
    None(NoPlan),
}

impl GuestPlan {
    /// The numbers of guests that run at once, one study point each, in the order of the study.
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

    /// These guests after merging the tables `guests` of levels over them with [`merged`].
    ///
    /// # Errors
    /// If the merged tables are not a valid plan of guests: the parser's message, with the field's name.
    pub fn with<'a>(
        &self,
        levels: impl IntoIterator<Item = &'a toml::Table>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(merged(&toml::Table::try_from(self)?, levels).try_into()?)
    }

    /// The most guests that can run; `None` if as many are started as the plan asks for.
    fn available(&self) -> Option<usize> {
        match self {
            Self::Qemu(_) | Self::XenImage(_) | Self::Host(_) | Self::None(_) => None,
            Self::Libvirt(plan) => Some(plan.domains.len()),
            Self::Xen(plan) => Some(plan.domains.len()),
            Self::Ssh(plan) => Some(plan.addresses.len()),
        }
    }

    /// The time limit for the start of one guest.
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

    /// Tests whether the guests are started from the guest image.
    pub fn needs_image(&self) -> bool {
        match self {
            Self::Qemu(plan) => plan.kernel.is_none(),
            Self::XenImage(_) => true,
            _ => false,
        }
    }

    /// Tests whether they have names or addresses on their host that guests of another study could have too.
    pub fn is_known_on_host(&self) -> bool {
        match self {
            Self::Qemu(plan) => plan.net().is_some_and(|net| net.backend != NetBackend::User),
            Self::XenImage(plan) => plan.net,
            Self::Libvirt(_) | Self::Xen(_) => true,
            Self::Ssh(_) | Self::Host(_) | Self::None(_) => false,
        }
    }

    /// Problems that do not depend on the host, each with its correction. Fields have the names of the plan.
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
                    "guests.counts asks for {}, but {available} {} named; name more or ask for fewer",
                    exits::counted(most.into(), "guest"),
                    exits::agree(available as u64, "is", "are")
                ));
            }
        }
        if let Self::Xen(plan) = self
            && plan.addresses.len() != plan.domains.len()
        {
            problems.push("guests.addresses must name one address for each of guests.domains".to_owned());
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
