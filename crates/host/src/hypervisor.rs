//! The hypervisor below a privileged domain, as far as it decides how interrupts are delivered.

use serde::{Deserialize, Serialize};

use crate::{Root, XenControl};

/// Xen below its control domain. What APICv does there depends on its arguments, and no file of the domain's kernel has
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hypervisor {
    /// Its version: `4.20.1`.
    pub version: Option<String>,
    /// Its own command line.
    pub command_line: Option<String>,
}

impl Hypervisor {
    /// None where this is no control domain.
    pub(crate) fn below(root: &Root) -> Option<Self> {
        let XenControl { version, command_line, .. } = XenControl::read(root)?;
        Some(Self { version, command_line })
    }
}
