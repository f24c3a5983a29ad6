//! The VMs on the page: VMs that had exits, until some time after their end.

use std::collections::{BTreeMap, BTreeSet};

use exits::{Profile, Vcpu};

use super::observation::VmFacts;

/// The number of intervals for which a VM that has ended is shown.
pub(super) const SHOWN_AFTER_END: u32 = 5;

/// One VM.
#[derive(Debug, Default)]
pub(super) struct Vm {
    /// The vCPUs that had exits and that were not unplugged.
    pub(super) vcpus: BTreeSet<Vcpu>,
    pub(super) facts: VmFacts,
    /// The number of intervals since it ended.
    ended: u32,
}

impl Vm {
    /// Adds a vCPU. Its number may be unknown until its first entry; the thread shows that it is the same.
    fn add(&mut self, vcpu: Vcpu) {
        let is_same = |known: &Vcpu| vcpu.thread.is_some() && known.thread == vcpu.thread;
        if vcpu.number.is_none() && self.vcpus.iter().any(is_same) {
            return;
        }
        self.vcpus.retain(|known| known.number.is_some() || !is_same(known));
        self.vcpus.insert(vcpu);
    }

    /// Tests whether it has ended.
    pub(super) const fn has_ended(&self) -> bool {
        self.ended > 0
    }
}

/// The VMs on the page, by process.
#[derive(Debug, Default)]
pub(super) struct Vms(BTreeMap<Option<u32>, Vm>);

impl Vms {
    /// Adds an interval, and returns the VMs to remove from the page.
    pub(super) fn observe(&mut self, profile: &Profile, facts: BTreeMap<u32, VmFacts>) -> Vec<Option<u32>> {
        let mut active = BTreeSet::new();
        for exits in profile.vcpus().iter().filter(|exits| !exits.reasons.is_empty()) {
            active.insert(exits.vcpu.vm);
            self.0.entry(exits.vcpu.vm).or_default().add(exits.vcpu);
        }
        for (vm, facts) in facts {
            if let Some(known) = self.0.get_mut(&Some(vm)) {
                // The thread of a vCPU ends when it is unplugged, and it gets another one when it is plugged in again.
                let has_ended = |thread| facts.threads.as_ref().is_some_and(|all| !all.contains(&thread));
                known.vcpus.retain(|vcpu| !vcpu.thread.is_some_and(has_ended));
                known.facts = VmFacts { name: facts.name.or_else(|| known.facts.name.take()), ..facts };
            }
        }
        for (vm, known) in &mut self.0 {
            // Still show the exits of the interval in which the process ended. Exits without a process have no VM whose end
            // could be seen, so they count as ended when there are no more.
            let is_over = !active.contains(vm) && (known.facts.is_gone || vm.is_none());
            known.ended = if is_over { known.ended + 1 } else { 0 };
        }
        let over: Vec<_> =
            self.0.iter().filter(|(_, vm)| vm.ended > SHOWN_AFTER_END).map(|(&vm, _)| vm).collect();
        over.iter().for_each(|vm| drop(self.0.remove(vm)));
        over
    }

    pub(super) fn get(&self, vm: Option<u32>) -> Option<&Vm> {
        self.0.get(&vm)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Option<u32>, &Vm)> {
        self.0.iter().map(|(&vm, known)| (vm, known))
    }

    /// The number of VMs that have not ended.
    pub(super) fn running(&self) -> usize {
        self.0.values().filter(|vm| !vm.has_ended()).count()
    }
}
