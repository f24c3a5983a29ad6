//! The hypervisor below its control domain, as far as it affects the delivery of interrupts.

use serde::{Deserialize, Serialize};

use crate::{Root, XenControl};

/// Xen below its control domain. Its command line determines whether it uses APICv, and is in no file of the
/// domain's kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hypervisor {
    /// Its version: `4.20.1`.
    pub version: Option<String>,
    /// Its own command line.
    pub command_line: Option<String>,
}

impl Hypervisor {
    /// Reads the version and the command line; `None` if this is not a control domain.
    pub(crate) fn below(root: &Root) -> Option<Self> {
        let XenControl { version, command_line, .. } = XenControl::read(root)?;
        Some(Self { version, command_line })
    }
}
