//! Facts of VMs other than their exits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use conclusions::activation::{VcpuState, VmState};
use exits::{InhibitNumbering, Isa, Profile};
use host::vms::Vms as Discovered;
use live::{StateReader, VcpuPlace};
use report::top::VmFacts;

use super::super::watching::{HOST, VmNames};

/// Names, and the state of interrupt virtualization.
pub(super) struct Vms {
    names: VmNames,
    isa: Isa,
    numbering: InhibitNumbering,
    /// The VMs whose state `reader` reads. It is created again if other VMs run.
    processes: BTreeSet<u32>,
    reader: Option<StateReader>,
    states: BTreeMap<u32, String>,
}

impl Vms {
    pub(super) fn new(isa: Isa) -> Self {
        Self {
            names: VmNames::default(),
            isa,
            numbering: live::inhibit_numbering(Path::new(HOST)),
            processes: BTreeSet::new(),
            reader: None,
            states: BTreeMap::new(),
        }
    }

    /// Sets the names of the VMs in `profile`, and reads their states.
    pub(super) fn look(&mut self, profile: &mut Profile) {
        self.names.name(profile);
        let running: BTreeSet<u32> = profile.vcpus().iter().filter_map(|of| of.vcpu.vm).collect();
        if !running.is_subset(&self.processes) {
            self.reader = reader(self.isa);
            self.processes.extend(running);
        }
        // If KVM's state cannot be read, as before Linux 5.8, the column has a question mark.
        let read = self.reader.as_mut().and_then(|reader| reader.read().ok()).unwrap_or_default();
        self.states = read.iter().map(|(vm, state)| (vm.process, word(state, &self.numbering))).collect();
    }

    /// The current facts of the VM with this process.
    pub(super) fn facts(&self, process: u32, profile: &Profile) -> VmFacts {
        VmFacts {
            name: profile.names.get(&process).cloned(),
            interrupt_virtualization: self.states.get(&process).cloned(),
            is_gone: !Path::new(HOST).join("proc").join(process.to_string()).exists(),
        }
    }
}

fn reader(isa: Isa) -> Option<StateReader> {
    let root = Path::new(HOST);
    let places: Vec<VcpuPlace> =
        Discovered::discover(root).ok()?.vms.iter().flat_map(VcpuPlace::of).collect();
    if places.is_empty() {
        return None;
    }
    StateReader::load(root, Some(isa), &places).inspect_err(|error| tracing::debug!("{error}")).ok()
}

/// `on`, `off` with the reasons, or `part` for some vCPUs.
fn word(state: &VmState, numbering: &InhibitNumbering) -> String {
    let reasons: Vec<String> = match state.inhibits {
        Some(inhibits) => inhibits.reasons(numbering).map(|reason| reason.to_string()).collect(),
        None => Vec::new(),
    };
    let active = |vcpu: &VcpuState| vcpu.active == Some(true);
    if !reasons.is_empty() {
        format!("off: {}", reasons.join(" "))
    } else if state.vcpus.iter().all(active) {
        "on".to_owned()
    } else if state.vcpus.iter().any(active) {
        "part".to_owned()
    } else {
        "off".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{Inhibits, KernelVersion};

    fn vm(mask: u64, active: [bool; 2]) -> VmState {
        let vcpus = active.into_iter().zip(0..).map(|(active, number)| VcpuState {
            number,
            active: Some(active),
            in_kernel_apic: Some(true),
            x2apic: None,
            controls: None,
            posted_to: None,
        });
        VmState { inhibits: Some(Inhibits(mask)), irqchip: None, pit_reinjects: None, vcpus: vcpus.collect() }
    }

    #[test]
    fn a_reason_comes_before_what_vcpus_say() {
        let numbering = InhibitNumbering::of_kernel(KernelVersion::new(6, 12));
        let word = |vm: &VmState| word(vm, &numbering);
        assert_eq!(word(&vm(0, [true, true])), "on");
        assert_eq!(word(&vm(0, [true, false])), "part");
        assert_eq!(word(&vm(0, [false, false])), "off");
        assert_eq!(word(&vm(1, [false, false])), "off: DISABLED");
    }
}
