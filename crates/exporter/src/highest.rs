//! Counters of VMs that never decrease.

use std::collections::BTreeMap;

use crate::metrics::{HaltPolling, VmHost};
use crate::totals::VmIdentity;

/// The highest value so far of each running VM's counters.
///
/// Prometheus treats a counter that decreases as reset, and adds its whole value. A VM's counters are sums over its vCPUs
/// and decrease when a vCPU is unplugged. Failed polls may decrease because they are the difference of two numbers that are
/// not read at the same time.
#[derive(Debug, Default)]
pub struct Highest {
    vms: BTreeMap<VmIdentity, Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    ran_ns: u64,
    waited_ns: u64,
    successful: u64,
    failed: u64,
    success_ns: u64,
    fail_ns: u64,
}

impl Highest {
    /// Raises counters of `vms` that decreased to their highest value. Forgets VMs that are not in `running`, which is by
    /// process. `vms` may lack running VMs that could not be read.
    pub fn raise(&mut self, vms: &mut BTreeMap<VmIdentity, VmHost>, running: &BTreeMap<u32, VmIdentity>) {
        self.vms.retain(|vm, _| running.get(&vm.process) == Some(vm));
        for (vm, facts) in vms {
            let highest = self.vms.entry(vm.clone()).or_default();
            facts.ran_ns.iter_mut().for_each(|ran_ns| raise(ran_ns, &mut highest.ran_ns));
            facts.waited_ns.iter_mut().for_each(|waited_ns| raise(waited_ns, &mut highest.waited_ns));
            let Some(polling) = &mut facts.halt_polling else { continue };
            let HaltPolling { attempted, successful, success_ns, fail_ns } = polling;
            let mut failed = attempted.saturating_sub(*successful);
            raise(&mut failed, &mut highest.failed);
            raise(successful, &mut highest.successful);
            raise(success_ns, &mut highest.success_ns);
            raise(fail_ns, &mut highest.fail_ns);
            *attempted = successful.saturating_add(failed);
        }
    }
}

fn raise(counter: &mut u64, highest: &mut u64) {
    *highest = (*highest).max(*counter);
    *counter = *highest;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(start_ticks: u64, ran_ns: u64, polling: Option<[u64; 2]>) -> BTreeMap<VmIdentity, VmHost> {
        let polling = polling.map(|[attempted, successful]| HaltPolling {
            attempted,
            successful,
            ..HaltPolling::default()
        });
        let facts = VmHost {
            vmm: "qemu",
            names: Vec::new(),
            vcpus: 1,
            ran_ns: Some(ran_ns),
            waited_ns: Some(ran_ns / 2),
            halt_polling: polling,
            state: None,
        };
        [(VmIdentity { name: "web".to_owned(), process: 7, start_ticks }, facts)].into()
    }

    /// The exported counters of the VM: its times, and its successful and failed polls.
    fn told(highest: &mut Highest, mut vms: BTreeMap<VmIdentity, VmHost>) -> (u64, u64, Option<[u64; 2]>) {
        let running = vms.keys().map(|vm| (vm.process, vm.clone())).collect();
        highest.raise(&mut vms, &running);
        let facts = vms.into_values().next().unwrap();
        let polling = facts.halt_polling.map(|of| [of.successful, of.attempted - of.successful]);
        (facts.ran_ns.unwrap(), facts.waited_ns.unwrap(), polling)
    }

    #[test]
    fn a_vm_with_fewer_vcpus_or_numbers_of_two_moments_does_not_go_back() {
        let mut highest = Highest::default();
        assert_eq!(told(&mut highest, one(1, 100, Some([100, 90]))), (100, 50, Some([90, 10])));
        // A vCPU was unplugged, and a poll succeeded between the reads of the two numbers.
        assert_eq!(told(&mut highest, one(1, 60, Some([100, 91]))), (100, 50, Some([91, 10])));
        assert_eq!(told(&mut highest, one(1, 70, None)), (100, 50, None));
        assert_eq!(told(&mut highest, one(1, 120, Some([102, 91]))), (120, 60, Some([91, 11])));
    }

    #[test]
    fn a_vm_that_could_not_be_looked_at_for_a_while_does_not_go_back() {
        let mut highest = Highest::default();
        let vms = one(1, 100, None);
        let running = vms.keys().map(|vm| (vm.process, vm.clone())).collect();
        highest.raise(&mut vms.clone(), &running);
        highest.raise(&mut BTreeMap::new(), &running);
        assert_eq!(told(&mut highest, one(1, 60, None)).0, 100);
    }

    #[test]
    fn a_vm_whose_times_are_not_known_for_a_while_does_not_go_back() {
        let mut highest = Highest::default();
        told(&mut highest, one(1, 100, None));
        let mut vms = one(1, 0, None);
        let running = vms.keys().map(|vm| (vm.process, vm.clone())).collect();
        vms.values_mut().for_each(|facts| (facts.ran_ns, facts.waited_ns) = (None, None));
        highest.raise(&mut vms, &running);
        assert!(vms.values().all(|facts| facts.ran_ns.is_none() && facts.waited_ns.is_none()));
        assert_eq!(told(&mut highest, one(1, 60, None)).0, 100);
    }

    #[test]
    fn a_vm_with_the_number_of_one_that_ended_begins_anew() {
        let mut highest = Highest::default();
        told(&mut highest, one(1, 100, Some([100, 90])));
        assert_eq!(told(&mut highest, one(2, 5, Some([3, 1]))), (5, 2, Some([1, 2])));
        assert_eq!(highest.vms.len(), 1);
    }
}
