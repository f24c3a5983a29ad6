//! What others are told of one VM.

use super::VmExits;
use super::actuator::{Seen, VmSeen};
use super::view::total;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A VM over the last period, as others see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmFigures {
    /// What it is called.
    pub name: String,
    /// Its process.
    pub pid: i32,
    /// CPUs' worth of time that its vCPUs ran.
    pub computing: f64,
    /// CPUs' worth of time that they waited for a CPU.
    pub waiting: f64,
    /// CPUs' worth of time that was spent on its requests.
    pub useful: f64,
    /// Its queues.
    pub queues: usize,
    /// Its VM exits, over a second; `None` where they are not counted.
    pub exits: Option<VmExits>,
}

impl VmFigures {
    /// All VMs.
    pub(super) fn of(seen: &Seen) -> Vec<Self> {
        let useful: BTreeMap<u32, f64> =
            seen.view.queues.iter().map(|queue| (queue.number, queue.useful)).collect();
        let figures = |vm: &VmSeen| Self {
            name: vm.name.clone(),
            pid: vm.pid,
            computing: vm.computing,
            waiting: vm.waiting,
            useful: total(vm.queues.iter().filter_map(|queue| useful.get(queue).copied())),
            queues: vm.queues.len(),
            exits: vm.exits,
        };
        seen.vms.iter().map(figures).collect()
    }
}
