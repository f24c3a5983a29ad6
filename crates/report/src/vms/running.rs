//! Running VMs with KVM's counters.

use host::vms::{Vm, Vms};
use live::statistics::{StatisticsChange, VmStatistics};

/// The VMs to show, and all that were found.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    /// All VMs that were found.
    pub found: &'a Vms,
    /// The requested VMs.
    pub vms: &'a [&'a Vm],
    /// KVM's counters of each of them, in the same order; `None` if not requested.
    pub counted: Option<&'a [Counted]>,
}

/// One VM's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The last reading.
    pub statistics: VmStatistics,
    /// The change since the first reading, if there were two.
    pub change: Option<StatisticsChange>,
}
