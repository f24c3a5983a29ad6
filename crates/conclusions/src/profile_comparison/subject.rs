//! The subject of a row, which identifies it on both sides. VMs and threads have different IDs in each run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Recording;
use exits::{Access, ExitReason, Key, Profile, What, Whose};

/// The properties that all exits of a row share. The total has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// The VM: its index in [`super::ProfileComparison::vms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<usize>,
    /// The vCPU's number in its VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu: Option<u32>,
    /// The vCPU's thread, if its number is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ExitReason>,
    /// The port, address or register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
}

/// A VM and its IDs on both sides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedVm {
    /// Its name, if every recording has a unique name for each VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its process or domain IDs before.
    pub before: BTreeSet<u32>,
    /// Its process or domain IDs after.
    pub after: BTreeSet<u32>,
}

/// The identity of a VM across recordings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    Only,
    Named(String),
    Numbered(u32),
    Unknown,
}

#[derive(Debug, Clone, Copy)]
enum Rule {
    Only,
    Names,
    Numbers,
}

/// The correspondence of VMs between recordings.
pub(super) struct Vms {
    rule: Rule,
    places: BTreeMap<Identity, usize>,
    pub(super) vms: Vec<ComparedVm>,
}

impl Vms {
    /// Matches VMs between recordings: if every recording has one VM, it is the same VM. Otherwise they are matched by name
    /// if every recording has a unique name for each VM, or else by process or domain ID.
    pub(super) fn new(before: &[Recording<'_>], after: &[Recording<'_>]) -> Self {
        let all: Vec<(bool, &Profile)> = before
            .iter()
            .map(|one| (false, one.profile))
            .chain(after.iter().map(|one| (true, one.profile)))
            .collect();
        let rule = if all.iter().all(|(_, profile)| numbers(profile).len() <= 1) {
            Rule::Only
        } else if all.iter().all(|(_, profile)| named_apart(profile)) {
            Rule::Names
        } else {
            Rule::Numbers
        };
        let mut found = Self { rule, places: BTreeMap::new(), vms: Vec::new() };
        for (is_after, profile) in all {
            for vm in numbers(profile) {
                let place = found.insert(profile, vm);
                let known = &mut found.vms[place];
                if let Some(vm) = vm {
                    (if is_after { &mut known.after } else { &mut known.before }).insert(vm);
                }
            }
        }
        found
    }

    fn identity(&self, profile: &Profile, vm: Option<u32>) -> Identity {
        match (self.rule, vm) {
            (Rule::Only, _) => Identity::Only,
            (_, None) => Identity::Unknown,
            (Rule::Numbers, Some(vm)) => Identity::Numbered(vm),
            (Rule::Names, Some(vm)) => match profile.names.get(&vm) {
                Some(name) => Identity::Named(name.clone()),
                None => Identity::Numbered(vm),
            },
        }
    }

    fn insert(&mut self, profile: &Profile, vm: Option<u32>) -> usize {
        let identity = self.identity(profile, vm);
        let next = self.vms.len();
        let place = *self.places.entry(identity.clone()).or_insert(next);
        if place == next {
            let name = match identity {
                Identity::Named(name) => Some(name),
                Identity::Only => vm.and_then(|vm| profile.names.get(&vm)).cloned(),
                Identity::Numbered(_) | Identity::Unknown => None,
            };
            self.vms.push(ComparedVm { name, ..ComparedVm::default() });
        }
        place
    }

    /// The subject of a row of `profile`.
    pub(super) fn subject(&self, profile: &Profile, key: Key) -> Subject {
        let place = |vm| self.places.get(&self.identity(profile, vm)).copied();
        let mut subject = match key.whose {
            Whose::Everyone => Subject::default(),
            Whose::Vm(vm) => Subject { vm: place(vm), ..Subject::default() },
            Whose::Vcpu(vcpu) => Subject {
                vm: place(vcpu.vm),
                vcpu: vcpu.number,
                // Thread IDs differ between runs, so use them only if there is no vCPU number.
                thread: if vcpu.number.is_none() { vcpu.thread } else { None },
                ..Subject::default()
            },
        };
        match key.what {
            What::Everything => {}
            What::Reason(reason) => subject.reason = Some(reason),
            What::Access(access) => subject.access = Some(access),
        }
        subject
    }
}

fn numbers(profile: &Profile) -> BTreeSet<Option<u32>> {
    profile.vcpus().iter().map(|exits| exits.vcpu.vm).collect()
}

fn named_apart(profile: &Profile) -> bool {
    let vms = numbers(profile);
    let names: BTreeSet<_> = vms.iter().filter_map(|vm| profile.names.get(&(*vm)?)).collect();
    names.len() == vms.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{Dimension, Grouping, Vcpu};

    fn profile(vms: &[(u32, &str)]) -> Profile {
        let mut profile = Profile::new();
        for &(vm, name) in vms {
            let vcpu = Vcpu { vm: Some(vm), number: Some(0), thread: Some(vm + 1) };
            profile.vcpu(vcpu).reasons.entry(ExitReason::vmx(12)).or_default().count = 1;
            if !name.is_empty() {
                profile.names.insert(vm, name.to_owned());
            }
        }
        profile
    }

    fn places(before: &[(u32, &str)], after: &[(u32, &str)]) -> Vec<(Vec<u32>, Vec<u32>)> {
        let (before, after) = (profile(before), profile(after));
        let vms = Vms::new(&[(&before).into()], &[(&after).into()]).vms;
        vms.into_iter().map(|vm| (vm.before.into_iter().collect(), vm.after.into_iter().collect())).collect()
    }

    #[test]
    fn one_vm_a_recording_is_the_same_vm() {
        assert_eq!(places(&[(10, "web")], &[(99, "")]), [(vec![10], vec![99])]);
    }

    #[test]
    fn names_go_before_numbers_where_they_tell_vms_apart() {
        let found = places(&[(10, "web"), (11, "db")], &[(10, "db"), (12, "web")]);
        assert_eq!(found, [(vec![10], vec![12]), (vec![11], vec![10])]);
        let found = places(&[(10, "qemu"), (11, "qemu")], &[(11, "qemu"), (12, "qemu")]);
        assert_eq!(found, [(vec![10], vec![]), (vec![11], vec![11]), (vec![], vec![12])]);
    }

    #[test]
    fn a_vcpu_is_known_by_its_number_and_not_by_its_thread() {
        let (one, two) = (profile(&[(10, "web")]), profile(&[(20, "web")]));
        let vms = Vms::new(&[(&one).into()], &[(&two).into()]);
        let grouping = Grouping::new([Dimension::Vcpu]).unwrap();
        let subjects = [&one, &two].map(|profile| {
            let whose = grouping.whose(profile.vcpus()[0].vcpu);
            vms.subject(profile, Key { whose, what: What::Everything })
        });
        assert_eq!(subjects[0], subjects[1]);
        assert_eq!((subjects[0].vcpu, subjects[0].thread), (Some(0), None));
    }
}
