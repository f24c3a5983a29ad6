//! A check that levels are in force while guests run.

use std::path::Path;

use conclusions::activation::VmState;
use exits::{Inhibit as Seen, InhibitNumbering, InhibitReason, Isa, with_causes};
use host::kvm;
use host::vms::{Vm, Vms};
use live::{StateReader, VcpuPlace, inhibit_numbering};

use super::level::setting_path;
use super::{Level, Setting, cpufreq, modules};
use crate::sampling::SampledGuest;

/// The findings of the check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    /// Contradictions to the levels; the run then does not count for its arm.
    pub contradictions: Vec<String>,
    /// Levels that could not be checked, and the reason.
    pub unverified: Vec<String>,
}

/// The state of interrupt virtualization that KVM must report for the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Inhibited by this reason.
    Inhibited(InhibitReason),
    /// Not inhibited.
    Active,
    /// Off or inhibited, by any reason.
    Off,
}

/// The parameters that switch APICv and AVIC.
const SWITCHES: [(&str, &str); 2] = [(kvm::INTEL, "enable_apicv"), (kvm::AMD, "avic")];

impl Level {
    /// The value that it gives the module parameter that switches APICv or AVIC.
    pub(crate) fn module_switch(&self) -> Option<&Setting> {
        SWITCHES.iter().find_map(|&(module, name)| self.module_parameters.get(module)?.get(name))
    }
}

/// Checks the host below `root`, and KVM's state of the guests' VMs, which must be running. Compares the host's values
/// with those of the levels, and checks interrupt virtualization if a level sets it.
#[must_use]
pub fn in_force(root: &Path, levels: &[&Level], guests: &[SampledGuest]) -> InForce {
    let mut found = InForce::default();
    host_values(root, levels, &mut found);
    let isa = kvm::vendor_module(root).and_then(kvm::isa_of);
    let inhibit = levels.iter().find_map(|level| level.inhibit);
    if let (Some(inhibit), Some(isa)) =
        (inhibit, isa.filter(|&isa| inhibit.is_some_and(|way| !way.works_on(isa))))
    {
        let reason = inhibit.reason().map_or("", InhibitReason::name);
        found
            .contradictions
            .push(format!("KVM has no inhibit reason {reason} on {isa}; use another level here"));
        return found;
    }
    if let Some(expected) = expected(levels).filter(|_| !guests.is_empty()) {
        guest_states(root, isa, expected, guests, &mut found);
    }
    found
}

/// Compares the host's values with those that the levels set.
fn host_values(root: &Path, levels: &[&Level], found: &mut InForce) {
    let mut compare = |path: &str, asked: &Setting| {
        let now = modules::value(root, path);
        match now {
            Some(now) if asked.is(&now) => {}
            Some(now) => {
                found.contradictions.push(format!("{path} is {now} during the run; its level sets {asked}"))
            }
            None => found.unverified.push(format!("{path} cannot be read")),
        }
    };
    for level in levels {
        for (module, parameters) in &level.module_parameters {
            parameters.iter().for_each(|(name, value)| compare(&host::parameter_path(module, name), value));
        }
        level.files.iter().for_each(|(path, value)| compare(path, value));
        for (name, value) in &level.kernel_settings {
            compare(&setting_path(name).unwrap_or_default(), value);
        }
    }
    for frequency in levels.iter().filter_map(|level| level.frequency.as_ref()) {
        match cpufreq::differing(root, frequency) {
            Ok(None) => {}
            Ok(Some(cpufreq::Differing { what, asked, found: now })) => {
                found.contradictions.push(format!("{what} is {now} during the run; its level sets {asked}"));
            }
            Err(why) => found.unverified.push(format!("Frequencies cannot be read: {why}")),
        }
    }
}

fn expected(levels: &[&Level]) -> Option<Expected> {
    if let Some(inhibit) = levels.iter().find_map(|level| level.inhibit) {
        return Some(inhibit.reason().map_or(Expected::Active, Expected::Inhibited));
    }
    let value = levels.iter().find_map(|level| level.module_switch())?;
    if value.is("Y") {
        Some(Expected::Active)
    } else {
        // Nothing can be expected of "auto" (avic of kvm_amd).
        value.is("N").then_some(Expected::Off)
    }
}

fn guest_states(
    root: &Path,
    isa: Option<Isa>,
    expected: Expected,
    guests: &[SampledGuest],
    found: &mut InForce,
) {
    let running = Vms::discover(root).map(|found| found.vms).unwrap_or_default();
    let vm = |guest: &SampledGuest| running.iter().find(|vm| vm.pid == guest.process);
    let mut vms: Vec<(&str, &Vm)> = Vec::new();
    for guest in guests {
        match vm(guest) {
            Some(vm) if VcpuPlace::of(vm).next().is_some() => vms.push((&guest.name, vm)),
            Some(_) => found.unverified.push(format!("Guest {} has no vCPU that KVM shows", guest.name)),
            None => {
                found.unverified.push(format!("Process {} of guest {} has no VM", guest.process, guest.name));
            }
        }
    }
    let places: Vec<VcpuPlace> = vms.iter().flat_map(|(_, vm)| VcpuPlace::of(vm)).collect();
    if places.is_empty() {
        return;
    }
    let states = StateReader::load(root, isa, &places).and_then(|mut reader| reader.read());
    let states = match states {
        Ok(states) => states,
        Err(error) => {
            let why = with_causes(&error);
            found.unverified.push(format!("KVM's own state of the guests cannot be read: {why}"));
            return;
        }
    };
    let numbering = inhibit_numbering(root);
    for (name, vm) in vms {
        let mut own = states.iter().filter(|(key, _)| i64::from(key.process) == i64::from(vm.pid)).peekable();
        if own.peek().is_none() {
            found.unverified.push(format!("KVM's own state of guest {name} cannot be read"));
        }
        for (_, state) in own {
            match judge(expected, state, &numbering) {
                Ok(None) => {}
                Ok(Some(why)) => found.contradictions.push(format!("Guest {name}: {why}")),
                Err(why) => found.unverified.push(format!("Guest {name}: {why}")),
            }
        }
    }
}

/// The contradiction, if any; `Err` is the reason why it cannot be determined.
fn judge(
    expected: Expected,
    state: &VmState,
    numbering: &InhibitNumbering,
) -> Result<Option<String>, &'static str> {
    let mask = state.inhibits.ok_or("this kernel does not report its inhibit reasons")?;
    // IRQWIN comes and goes with interrupt windows. ABSENT is temporary only while a VM is created, not once its vCPUs
    // run.
    let passing = |seen: &Seen| *seen == Seen::Named(InhibitReason::IrqWindow);
    let lasting: Vec<String> =
        mask.reasons(numbering).filter(|seen| !passing(seen)).map(|seen| seen.to_string()).collect();
    let named = || if lasting.is_empty() { "none".to_owned() } else { lasting.join(", ") };
    Ok(match expected {
        Expected::Inhibited(reason) => {
            let holds = mask
                .holds(reason, numbering)
                .ok_or("the numbers of inhibit reasons are not known for this kernel")?;
            (!holds).then(|| {
                format!("{} should inhibit interrupt virtualization; in force: {}", reason.name(), named())
            })
        }
        Expected::Active => (!lasting.is_empty())
            .then(|| format!("interrupt virtualization should be active; it is inhibited by {}", named())),
        Expected::Off => {
            let active = state.vcpus.iter().filter(|vcpu| vcpu.active == Some(true)).count();
            (mask.is_empty() && active > 0).then(|| {
                format!(
                    "interrupt virtualization should be off; it is active for {}",
                    exits::counted(active as u64, "vCPU")
                )
            })
        }
    })
}

#[cfg(test)]
#[path = "in_force_tests.rs"]
mod tests;
