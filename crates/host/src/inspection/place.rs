//! The threads and interrupts of a processor.

use super::interrupt::Interrupt;
use super::running::{Role, RunningVm};
use super::topology::Topology;
use crate::{CpuSet, Fact};
use std::collections::BTreeMap;

/// A thread on a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// The VM's process.
    pub pid: i32,
    /// The VM's name.
    pub vm: String,
    /// The thread.
    pub tid: i32,
    /// Its role.
    pub role: Role,
    /// True if it may run on no other processor.
    pub pinned: bool,
}

/// A processor, with the threads of VMs that are bound to it or ran on it last, and the interrupts that only
/// it handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The processor.
    pub cpu: u32,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// True if the scheduler keeps other threads away from it (`isolcpus=`).
    pub isolated: bool,
    /// True if the kernel stops its timer tick (`nohz_full=`).
    pub nohz_full: bool,
    /// Threads of VMs.
    pub occupants: Vec<Occupant>,
    /// Interrupts of devices that only it handles, by number.
    pub interrupts: Vec<u32>,
}

impl Placement {
    /// The placements of the VMs' threads and the interrupts.
    pub(super) fn of(
        vms: &[RunningVm],
        interrupts: &[Interrupt],
        topology: &Topology,
        online: Option<&CpuSet>,
    ) -> Vec<Self> {
        let mut found: BTreeMap<u32, Self> = BTreeMap::new();
        let on = |cpu: u32| online.is_none_or(|online| online.contains(cpu));
        for one in vms {
            for thread in &one.threads {
                let only = thread.allowed.as_ref().and_then(CpuSet::only);
                let Some(cpu) = only.or(thread.last).filter(|&cpu| on(cpu)) else { continue };
                found.entry(cpu).or_insert_with(|| Self::empty(cpu, topology)).occupants.push(Occupant {
                    pid: one.vm.pid,
                    vm: one.vm.name.clone(),
                    tid: thread.tid,
                    role: thread.role,
                    pinned: only.is_some(),
                });
            }
        }
        for one in interrupts {
            // The effective affinity is a subset of the allowed one.
            let only = one.effective.as_ref().or(one.affinity.as_ref()).and_then(CpuSet::only);
            let Some(cpu) = only.filter(|&cpu| on(cpu)) else { continue };
            found.entry(cpu).or_insert_with(|| Self::empty(cpu, topology)).interrupts.push(one.number);
        }
        found.into_values().collect()
    }

    fn empty(cpu: u32, topology: &Topology) -> Self {
        let node = topology.nodes.get().and_then(|nodes| nodes.iter().find(|node| node.cpus.contains(cpu)));
        let among = |set: &Fact<CpuSet>| set.get().is_some_and(|set| set.contains(cpu));
        Self {
            cpu,
            node: node.map(|node| node.number),
            isolated: among(&topology.isolated),
            nohz_full: among(&topology.nohz_full),
            occupants: Vec::new(),
            interrupts: Vec::new(),
        }
    }
}
