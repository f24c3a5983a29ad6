//! The host in one phase: its VMs and queues one by one.

use super::{Load, Phase, Trace};
use crate::monitor::Core;

/// One VM.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimulatedVm {
    pub(super) node: u32,
    pub(super) load: Load,
}

/// One queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimulatedQueue {
    pub(super) vm: usize,
}

/// The host in one phase.
#[derive(Debug)]
pub(super) struct SimulatedHost {
    pub(super) cores: Vec<Core>,
    pub(super) nodes: u32,
    pub(super) vms: Vec<SimulatedVm>,
    pub(super) queues: Vec<SimulatedQueue>,
}

impl SimulatedHost {
    pub(super) fn of(trace: &Trace) -> Self {
        let (cores, nodes) = (trace.machine.cores, trace.machine.nodes);
        let cores = (0..cores).map(|number| Core { number, node: number / (cores / nodes) }).collect();
        let mut host = Self { cores, nodes, vms: Vec::new(), queues: Vec::new() };
        for group in &trace.groups {
            for number in 0..group.vms {
                let node = group.node.unwrap_or(number % nodes);
                let vm = host.vms.len();
                host.vms.push(SimulatedVm { node, load: Load::default() });
                host.queues.extend((0..group.queues).map(|_| SimulatedQueue { vm }));
            }
        }
        host
    }

    /// Gives the VMs what they do in a phase.
    pub(super) fn enter(&mut self, trace: &Trace, phase: &Phase) {
        let mut vms = self.vms.iter_mut();
        for group in &trace.groups {
            let load = phase.loads.get(&group.name).copied().unwrap_or_default();
            vms.by_ref().take(group.vms as usize).for_each(|vm| vm.load = load);
        }
    }

    pub(super) fn load(&self, queue: usize) -> &Load {
        &self.vms[self.queues[queue].vm].load
    }

    pub(super) fn node(&self, queue: usize) -> u32 {
        self.vms[self.queues[queue].vm].node
    }

    /// CPUs that the vCPUs ask for.
    pub(super) fn computing(&self) -> f64 {
        self.vms.iter().map(|vm| vm.load.computing).sum()
    }
}
