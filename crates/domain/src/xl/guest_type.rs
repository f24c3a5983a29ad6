//! Types of guests of Xen.

use crate::Definition;
use serde::{Deserialize, Serialize};

/// The type of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestType {
    /// Paravirtual: neither VMX nor SVM.
    Pv,
    /// Hardware-virtualized without a device model.
    Pvh,
    /// Hardware-virtualized with a device model.
    Hvm,
}

impl GuestType {
    /// The name in upper case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pv => "PV",
            Self::Pvh => "PVH",
            Self::Hvm => "HVM",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "pv" | "generic" => Some(Self::Pv),
            "pvh" => Some(Self::Pvh),
            "hvm" => Some(Self::Hvm),
            _ => None,
        }
    }
}

impl Definition {
    /// The type of the guest; PV by default on x86 (xl.cfg(5), `type`).
    #[must_use]
    pub fn xen_type(&self) -> GuestType {
        self.machine.kind.as_ref().and_then(|kind| GuestType::parse(&kind.value)).unwrap_or(GuestType::Pv)
    }
}
