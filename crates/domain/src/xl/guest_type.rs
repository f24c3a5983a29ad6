//! Kinds of guests of Xen.

use crate::Definition;
use serde::{Deserialize, Serialize};

/// Kind of a guest of Xen.
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
    /// The usual spelling.
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
    /// Kind of the guest that xl.cfg makes; PV where it says nothing, as on x86 (xl.cfg(5), `type`).
    #[must_use]
    pub fn xen_type(&self) -> GuestType {
        self.machine.kind.as_ref().and_then(|kind| GuestType::parse(&kind.value)).unwrap_or(GuestType::Pv)
    }
}
