//! The types of Xen guests.

use serde::{Deserialize, Serialize};

/// The type of a guest (`type` in xl.cfg(5), `c_info.type` of `xl list -l`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XenGuestType {
    /// Paravirtual: it runs without VMX or SVM, so it has neither exits nor APICv.
    Pv,
    /// Hardware-virtualized without a device model.
    Pvh,
    /// Hardware-virtualized with a device model.
    Hvm,
}

impl XenGuestType {
    /// The name in upper case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pv => "PV",
            Self::Pvh => "PVH",
            Self::Hvm => "HVM",
        }
    }

    /// The type with this name in xl.cfg(5), where `generic` means PV.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "pv" | "generic" => Some(Self::Pv),
            "pvh" => Some(Self::Pvh),
            "hvm" => Some(Self::Hvm),
            _ => None,
        }
    }
}
