//! What is known of VMs beside their exits.

use std::path::Path;

use exits::Profile;
use report::top::VmFacts;

use super::super::watching::{HOST, VmNames};

/// Says whether the interrupts of a process's VM are virtualized, in a word or two.
pub(super) type InterruptVirtualization = dyn Fn(u32) -> Option<String>;

/// Where facts come from.
pub(super) struct Vms {
    names: VmNames,
    state: Box<InterruptVirtualization>,
}

impl Default for Vms {
    /// Nobody can say yet whether interrupts are virtualized.
    fn default() -> Self {
        Self { names: VmNames::default(), state: Box::new(|_| None) }
    }
}

impl Vms {
    /// Gives the VMs of `profile` their names.
    pub(super) fn name(&mut self, profile: &mut Profile) {
        self.names.name(profile);
    }

    /// What is known now of the VM of this process.
    pub(super) fn facts(&self, process: u32, profile: &Profile) -> VmFacts {
        VmFacts {
            name: profile.names.get(&process).cloned(),
            interrupt_virtualization: (self.state)(process),
            is_gone: !Path::new(HOST).join("proc").join(process.to_string()).exists(),
        }
    }
}
