//! The selected part of a profile.

use std::collections::BTreeSet;

use crate::{Profile, Vcpu};

/// VMs and vCPUs as the user names them. If there are none, everything is selected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// VMs by number (process or domain) or by name; a name selects all VMs that have it.
    pub vms: Vec<String>,
    /// vCPUs by their number in their VM.
    pub vcpus: Vec<u32>,
}

/// The error of a selection of something that the profile does not contain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotThere {
    /// A VM.
    #[error("There is no VM `{wanted}`; there {}", listed(there, "VM"))]
    Vm {
        /// The selected VM.
        wanted: String,
        /// The VMs of the profile.
        there: Vec<String>,
    },
    /// A vCPU.
    #[error("There is no vCPU {wanted}; there {}", listed(there, "vCPU with a number"))]
    Vcpu {
        /// The selected vCPU.
        wanted: u32,
        /// The vCPUs of the selected VMs.
        there: Vec<String>,
    },
}

/// The most names in a message.
const MOST_NAMED: usize = 8;

fn listed(there: &[String], what: &str) -> String {
    match there.len() {
        0 => format!("is no {what} at all"),
        1 => format!("is {}", there[0]),
        count if count <= MOST_NAMED => format!("are {}", there.join(", ")),
        count => format!("are {} and {} more", there[..MOST_NAMED].join(", "), count - MOST_NAMED),
    }
}

impl Selection {
    /// Tests whether everything is selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.vms.is_empty() && self.vcpus.is_empty()
    }

    /// The selected part of `profile`.
    ///
    /// # Errors
    /// If it lacks a selected VM or vCPU.
    pub fn of(&self, profile: &Profile) -> Result<Profile, NotThere> {
        if self.is_everything() {
            return Ok(profile.clone());
        }
        for wanted in &self.vms {
            if !profile.vcpus().iter().any(|exits| is_named(profile, exits.vcpu, wanted)) {
                return Err(NotThere::Vm { wanted: wanted.clone(), there: vms(profile) });
            }
        }
        let vm_is_meant = |vcpu: &Vcpu| {
            self.vms.is_empty() || self.vms.iter().any(|wanted| is_named(profile, *vcpu, wanted))
        };
        let numbers: BTreeSet<u32> = profile
            .vcpus()
            .iter()
            .filter(|exits| vm_is_meant(&exits.vcpu))
            .filter_map(|exits| exits.vcpu.number)
            .collect();
        if let Some(&wanted) = self.vcpus.iter().find(|wanted| !numbers.contains(wanted)) {
            return Err(NotThere::Vcpu { wanted, there: numbers.iter().map(u32::to_string).collect() });
        }
        let vcpu_is_meant = |vcpu: &Vcpu| {
            self.vcpus.is_empty() || vcpu.number.is_some_and(|number| self.vcpus.contains(&number))
        };
        Ok(profile.only(|vcpu| vm_is_meant(vcpu) && vcpu_is_meant(vcpu)))
    }
}

fn is_named(profile: &Profile, vcpu: Vcpu, wanted: &str) -> bool {
    let Some(vm) = vcpu.vm else { return false };
    wanted.parse() == Ok(vm) || profile.names.get(&vm).is_some_and(|name| name == wanted)
}

fn vms(profile: &Profile) -> Vec<String> {
    let numbers: BTreeSet<u32> = profile.vcpus().iter().filter_map(|exits| exits.vcpu.vm).collect();
    let shown = |vm: u32| match profile.names.get(&vm) {
        Some(name) => format!("{vm} ({name})"),
        None => vm.to_string(),
    };
    numbers.into_iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExitReason;

    fn profile() -> Profile {
        let mut profile = Profile::new();
        for (vm, number) in [(Some(10), Some(0)), (Some(10), Some(1)), (Some(20), Some(0)), (None, None)] {
            let vcpu = Vcpu { vm, number, thread: Some(7) };
            profile.vcpu(vcpu).reasons.entry(ExitReason::vmx(12)).or_default().count = 1;
        }
        profile.names.insert(10, "web".to_owned());
        profile.names.insert(20, "10".to_owned());
        profile
    }

    fn selected(vms: &[&str], vcpus: &[u32]) -> Result<u64, String> {
        let selection =
            Selection { vms: vms.iter().map(|&vm| vm.to_owned()).collect(), vcpus: vcpus.to_vec() };
        selection.of(&profile()).map(|part| part.total()).map_err(|error| error.to_string())
    }

    #[test]
    fn vms_by_number_or_name_and_vcpus_by_number() {
        assert_eq!(selected(&[], &[]), Ok(4));
        assert_eq!(selected(&["web"], &[]), Ok(2));
        assert_eq!(selected(&["20"], &[]), Ok(1));
        // A number of one VM that is also the name of another selects both.
        assert_eq!(selected(&["10"], &[]), Ok(3));
        assert_eq!(selected(&[], &[0]), Ok(2));
        assert_eq!(selected(&["web"], &[1, 0]), Ok(2));
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        assert_eq!(selected(&["db"], &[]).unwrap_err(), "There is no VM `db`; there are 10 (web), 20 (10)");
        assert_eq!(selected(&["20"], &[1]).unwrap_err(), "There is no vCPU 1; there is 0");
        let nothing = Selection { vcpus: vec![3], ..Selection::default() }.of(&Profile::new()).unwrap_err();
        assert_eq!(nothing.to_string(), "There is no vCPU 3; there is no vCPU with a number at all");
    }
}
