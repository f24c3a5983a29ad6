//! Hypervisors whose exits are known.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The hypervisor that handles exits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hypervisor {
    /// Linux's KVM.
    #[default]
    Kvm,
    /// Xen.
    Xen,
}

impl fmt::Display for Hypervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kvm => "KVM",
            Self::Xen => "Xen",
        })
    }
}
