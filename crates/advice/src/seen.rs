//! Patterns by which the exits of a device are recognised, and the exits of a VM to match them against. Both are evidence
//! for and against cures.

use std::collections::BTreeSet;

use exits::{Access, ExitReason, Isa, VcpuExits};
use serde::Deserialize;

/// A pattern of a device's exits. Ranges include both ends.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Match {
    /// I/O ports.
    Ports([u16; 2]),
    /// Guest physical addresses, without those of [`Self::Notifications`].
    Addresses([u64; 2]),
    /// Guest physical addresses of stores that KVM ended by the address alone, which are notifications.
    Notifications([u64; 2]),
    /// Numbers of MSRs.
    Msrs([u32; 2]),
    /// Exit reasons by the kernel's names, for exits that no known access explains.
    Reasons(Vec<String>),
}

impl Match {
    pub(crate) fn has_access(&self, access: Access) -> bool {
        fn within<T: PartialOrd>([first, last]: &[T; 2], value: &T) -> bool {
            first <= value && value <= last
        }
        match (self, access) {
            (Self::Ports(range), Access::Port { port, .. }) => within(range, &port),
            (Self::Addresses(range), Access::Mmio { address, .. }) => within(range, &address),
            (Self::Notifications(range), Access::FastMmio { address }) => within(range, &address),
            (Self::Msrs(range), Access::Msr { number, .. }) => within(range, &number),
            _ => false,
        }
    }

    pub(crate) fn has_reason(&self, name: &str) -> bool {
        matches!(self, Self::Reasons(names) if names.iter().any(|one| one == name))
    }
}

/// The reasons and accesses of all vCPUs of a VM, without duplicates and without the reasons of nested guests, which are no
/// evidence on the VM's own devices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    reasons: BTreeSet<ExitReason>,
    accesses: BTreeSet<Access>,
}

impl Seen {
    pub(crate) fn of(vcpus: &[&VcpuExits]) -> Self {
        let accesses = vcpus.iter().flat_map(|vcpu| &vcpu.accesses).filter(|(_, exits)| exits.count > 0);
        Self {
            reasons: vcpus.iter().flat_map(|vcpu| vcpu.own_counts().into_keys()).collect(),
            accesses: accesses.map(|(&access, _)| access).collect(),
        }
    }

    pub(crate) fn has_isa(&self, isa: Isa) -> bool {
        self.reasons.iter().any(|reason| reason.isa == isa)
    }

    pub(crate) fn has_any(&self, wanted: &[Match]) -> bool {
        wanted.iter().any(|one| {
            self.accesses.iter().any(|&access| one.has_access(access))
                || self.reasons.iter().any(|reason| reason.name().is_some_and(|name| one.has_reason(name)))
        })
    }
}
