//! The hypervisor below a privileged domain, as far as it affects the delivery of interrupts.

use serde::{Deserialize, Serialize};

use crate::{Root, XenControl};

/// Xen below its control domain. Its arguments determine its use of APICv, and no file of the domain's kernel
/// contains them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hypervisor {
    /// Its version: `4.20.1`.
    pub version: Option<String>,
    /// Its own command line.
    pub command_line: Option<String>,
}

impl Hypervisor {
    /// `None` if this is not a control domain.
    pub(crate) fn below(root: &Root) -> Option<Self> {
        let XenControl { version, command_line, .. } = XenControl::read(root)?;
        Some(Self { version, command_line })
    }
}
