//! Running VMs with what KVM counted of them.

use host::vms::{Vm, Vms};
use live::statistics::{StatisticsChange, VmStatistics};

/// The VMs to show, and what was found on the way.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    /// All that was found.
    pub found: &'a Vms,
    /// The VMs that were asked for.
    pub vms: &'a [&'a Vm],
    /// KVM's counters of each of them, in the same order; `None` when nobody asked.
    pub counted: Option<&'a [Counted]>,
}

/// One VM's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The last reading.
    pub statistics: VmStatistics,
    /// What was counted since the first one, if there were two.
    pub change: Option<StatisticsChange>,
}
