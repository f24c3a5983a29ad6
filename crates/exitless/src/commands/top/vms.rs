//! Facts of VMs other than their exits.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use conclusions::activation::{VcpuState, VmState};
use exits::{InhibitNumbering, Isa, Profile, Vcpu};
use host::vms::Vms as Discovered;
use live::{StateReader, VcpuPlace, in_first_pid_namespace};
use report::top::VmFacts;

use super::super::watching::{HOST, VmNames, names_in, start_of};

/// The names of VMs, and the state of their interrupt virtualization.
pub(super) struct Vms {
    names: VmNames,
    isa: Isa,
    numbering: InhibitNumbering,
    seen: Seen,
    /// Reads the states of the VMs that ran when it was created; created again when new vCPUs are seen.
    reader: Option<StateReader>,
    states: BTreeMap<u32, String>,
}

impl Vms {
    pub(super) fn new(isa: Isa) -> Self {
        Self {
            names: VmNames::default(),
            isa,
            numbering: live::inhibit_numbering(Path::new(HOST)),
            seen: Seen::default(),
            reader: None,
            states: BTreeMap::new(),
        }
    }

    /// Sets the names of the VMs in `profile`, and reads their states.
    pub(super) fn look(&mut self, profile: &mut Profile) {
        self.look_among(profile, || Discovered::discover(Path::new(HOST)).ok());
    }

    /// [`Self::look`] with its search for VMs as an argument.
    fn look_among(&mut self, profile: &mut Profile, search: impl FnOnce() -> Option<Discovered>) {
        // Made once if needed: it reads all processes of the host.
        let found = LazyCell::new(search);
        self.names.name_from(profile, || LazyCell::force(&found).as_ref().map(names_in).unwrap_or_default());
        if self.seen.grows(profile, start_of) {
            self.reader = LazyCell::force(&found).as_ref().and_then(|found| reader(self.isa, found));
        }
        // The column shows a question mark if KVM's state cannot be read, as before Linux 5.8.
        let read = self.reader.as_mut().and_then(|reader| reader.read().ok()).unwrap_or_default();
        self.states = read.iter().map(|(vm, state)| (vm.process, word(state, &self.numbering))).collect();
    }

    /// The current facts of the VM with this process.
    pub(super) fn facts(&self, process: u32, profile: &Profile) -> VmFacts {
        VmFacts {
            name: profile.names.get(&process).cloned(),
            interrupt_virtualization: self.states.get(&process).cloned(),
            is_gone: !Path::new(HOST).join("proc").join(process.to_string()).exists()
                || self.seen.is_another(process, start_of(process)),
            // In other PID namespaces the kernel's IDs stand for other processes.
            threads: in_first_pid_namespace(Path::new(HOST)).then(|| threads(process)).flatten(),
        }
    }
}

/// The threads of a process; `None` if it has ended.
fn threads(process: u32) -> Option<BTreeSet<u32>> {
    let threads = host::scheduling::threads(Path::new(HOST), i32::try_from(process).ok()?).ok()?;
    Some(threads.into_iter().filter_map(|thread| u32::try_from(thread).ok()).collect())
}

/// VM processes, and their vCPUs that had exits.
#[derive(Debug, Default)]
struct Seen {
    /// The start time of each process, in clock ticks since boot.
    starts: BTreeMap<u32, u64>,
    vcpus: BTreeSet<Vcpu>,
}

impl Seen {
    /// Adds the vCPUs of `profile`, and tests whether any are new. Those of a process that reuses an ID are
    /// new.
    fn grows(&mut self, profile: &Profile, start_of: impl Fn(u32) -> Option<u64>) -> bool {
        let processes: BTreeSet<u32> = profile.vcpus().iter().filter_map(|of| of.vcpu.vm).collect();
        for process in processes {
            // A process that has ended, or cannot be read now, counts as unchanged.
            let Some(start) = start_of(process) else { continue };
            if self.starts.insert(process, start).is_some_and(|before| before != start) {
                self.vcpus.retain(|vcpu| vcpu.vm != Some(process));
            }
        }
        let before = self.vcpus.len();
        self.vcpus.extend(profile.vcpus().iter().map(|of| of.vcpu).filter(|vcpu| vcpu.vm.is_some()));
        self.vcpus.len() > before
    }

    /// Tests whether the process that started at `start` reuses the ID of one that was seen.
    fn is_another(&self, process: u32, start: Option<u64>) -> bool {
        self.starts.get(&process).zip(start).is_some_and(|(seen, start)| *seen != start)
    }
}

fn reader(isa: Isa, found: &Discovered) -> Option<StateReader> {
    let places: Vec<VcpuPlace> = found.vms.iter().flat_map(VcpuPlace::of).collect();
    if places.is_empty() {
        return None;
    }
    StateReader::load(Path::new(HOST), Some(isa), &places)
        .inspect_err(|error| tracing::debug!("{error}"))
        .ok()
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

    fn profile(vcpus: &[(u32, u32)]) -> Profile {
        let mut profile = Profile::new();
        for &(vm, number) in vcpus {
            profile.vcpu(Vcpu { vm: Some(vm), number: Some(number), thread: Some(vm + number) });
        }
        profile
    }

    #[test]
    fn states_are_of_all_vcpus_that_run_and_of_the_process_that_has_the_number_now() {
        let mut seen = Seen::default();
        let mut grows = |vcpus: &[(u32, u32)], start| seen.grows(&profile(vcpus), |_| start);
        assert!(grows(&[(7, 0)], Some(1)));
        assert!(!grows(&[(7, 0)], Some(1)));
        assert!(!grows(&[], Some(1)));
        assert!(grows(&[(7, 0), (7, 1)], Some(1)), "a vCPU that was plugged in");
        assert!(!grows(&[(7, 1)], None), "it cannot be looked at");
        assert!(grows(&[(7, 1)], Some(2)), "another process");
        assert!(!seen.is_another(7, Some(2)) && !seen.is_another(7, None) && !seen.is_another(8, Some(2)));
        assert!(seen.is_another(7, Some(3)));
    }

    #[test]
    fn one_search_finds_the_names_of_new_vms_and_their_vcpus() {
        let mut vms = Vms::new(Isa::Vmx);
        let mut searches = 0;
        let search = || {
            searches += 1;
            Some(Discovered::default())
        };
        vms.look_among(&mut profile(&[(std::process::id(), 0)]), search);
        assert_eq!(searches, 1);
        vms.look_among(&mut profile(&[]), || panic!("there is no new VM"));
    }

    #[test]
    fn threads_of_a_process_are_known_until_it_ends() {
        let threads = threads(std::process::id()).unwrap();
        assert!(threads.contains(&std::process::id()));
        assert_eq!(super::threads(u32::MAX), None);
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
