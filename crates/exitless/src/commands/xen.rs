//! Observes Xen's guests from its control domain, through xentrace.

mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use exits::{Hypervisor, Isa, Profile, Selection};
use host::{Root, XenControl};
use traces::{Format, Options, Origin, Reading, Recordings, Sink};

use super::watching::WatchArguments;
use crate::status::Usage;
pub(crate) use watched::WatchedDomains;

/// This control domain.
#[derive(Debug)]
pub(crate) struct XenHost {
    root: Root,
    program: PathBuf,
    pub(crate) control: XenControl,
    names: BTreeMap<u32, Option<String>>,
}

/// An xentrace recording that is read while it is written.
pub(crate) struct Following<S>(live::Following<Result<(Reading, S), traces::Error>>);

impl XenHost {
    /// `None` if this is not a control domain of Xen and no xentrace was given.
    pub(crate) fn find(arguments: &WatchArguments) -> Option<Self> {
        let root = Root::live();
        let given = arguments.xentrace.as_deref();
        let control = match XenControl::read(&root) {
            Some(control) => control,
            // xentrace itself reports whether it can run here.
            None => given.map(|_| XenControl::default())?,
        };
        let program =
            given.map_or_else(|| live::xentrace_program(control.version.as_deref()), Path::to_path_buf);
        Some(Self { root, program, control, names: BTreeMap::new() })
    }

    /// The instruction set of the exits.
    pub(crate) fn isa(&self) -> Isa {
        self.control.isa.unwrap_or(Isa::Vmx)
    }

    /// Starts xentrace, and reads its output into `sink` until it is stopped.
    pub(crate) fn follow<S: Sink + 'static>(&self, mut sink: S) -> anyhow::Result<Following<S>> {
        let options = Options { tsc_hz: self.control.tsc_hz, isa: self.control.isa, ..Options::default() };
        let name = self.program.display().to_string();
        let following = live::Following::start(&self.program, move |output| {
            traces::follow_xentrace(Box::new(output), &name, &options, &mut sink)
                .map(|reading| (reading, sink))
        });
        Ok(Following(following?))
    }

    /// The requested domains.
    pub(crate) fn watched(arguments: &WatchArguments) -> WatchedDomains {
        WatchedDomains::new(Root::live(), arguments.wanted())
    }

    /// The names of these domains, if known. A domain that had ended before the lookup stays without one.
    pub(crate) fn names_of(&mut self, domains: &BTreeSet<u32>) -> BTreeMap<u32, String> {
        if domains.iter().any(|domain| !self.names.contains_key(domain)) {
            let mut there = XenControl::domain_names(&self.root);
            for &domain in domains {
                self.names.entry(domain).or_insert_with(|| there.remove(&domain));
            }
        }
        domains.iter().filter_map(|domain| Some((*domain, self.names.get(domain)?.clone()?))).collect()
    }

    /// Makes the next call look for the names of unnamed domains again.
    pub(crate) fn forget_unnamed(&mut self) {
        self.names.retain(|_, name| name.is_some());
    }

    /// Sets the names of the domains in `profile`.
    pub(crate) fn name(&mut self, profile: &mut Profile) {
        let domains = profile.vcpus().iter().filter_map(|exits| exits.vcpu.vm).collect();
        profile.names.extend(self.names_of(&domains));
    }

    /// The exits, in the form of recordings.
    pub(crate) fn recordings(&self, profile: Profile, warnings: Vec<String>) -> Recordings {
        let mut origin = Origin::new(Format::Live);
        (origin.hypervisor, origin.xen_version) = (Hypervisor::Xen, self.control.version.clone());
        let mut recordings = Recordings::new(Options::default());
        recordings.add("this host".to_owned(), Reading { profile, origin, damage: None, warnings });
        recordings
    }
}

impl<S: Send + 'static> Following<S> {
    /// Tests whether xentrace, or the reader of its output, has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// Stops xentrace, and returns the result.
    pub(crate) fn finish(self) -> anyhow::Result<(Reading, S)> {
        let Some(read) = self.0.finish()? else { bail!("The reader of xentrace's records failed") };
        read.context("Could not read the output of xentrace")
    }
}

/// Keeps only the requested domains, by ID or name; a requested domain may start later.
pub(crate) fn only(mut profile: Profile, wanted: &[String]) -> Profile {
    if wanted.is_empty() {
        return profile;
    }
    let there: Vec<String> = wanted
        .iter()
        .filter(|&one| {
            let selection = Selection { vms: vec![one.clone()], vcpus: Vec::new() };
            selection.of(&profile).is_ok()
        })
        .cloned()
        .collect();
    if there.is_empty() {
        profile = profile.only(|_| false);
        return profile;
    }
    let selection = Selection { vms: there, vcpus: Vec::new() };
    selection.of(&profile).unwrap_or(profile)
}

/// Refuses an option that needs the eBPF programs of KVM hosts.
pub(crate) fn refuse(asked: bool, option: &str) -> Result<(), Usage> {
    if asked {
        return Err(Usage(format!("{option} is for KVM hosts; on this Xen host exits come from xentrace")));
    }
    Ok(())
}

/// Refuses to observe a Xen control domain with a command that only KVM supports live.
pub(crate) fn refuse_live(root: &Root, command: &str) -> Result<(), Usage> {
    if XenControl::is_here(root) {
        return Err(Usage(format!(
            "On Xen record first: exitless record --duration 10s, then exitless {command} recording.exits"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_observe_kvm_say_how_to_observe_xen() {
        let root = tempfile::tempdir().unwrap();
        let refused =
            || refuse_live(&Root::directory(root.path()), "predict").map_err(|error| error.to_string());
        assert_eq!(refused(), Ok(()));
        std::fs::create_dir_all(root.path().join("proc/xen")).unwrap();
        std::fs::write(root.path().join("proc/xen/capabilities"), "control_d\n").unwrap();
        assert!(refused().unwrap_err().ends_with("then exitless predict recording.exits"));
    }

    #[test]
    fn a_domain_that_is_not_there_yet_has_no_exits() {
        let mut profile = Profile::new();
        for vm in [1, 2] {
            profile.vcpu(exits::Vcpu { vm: Some(vm), number: Some(0), thread: None });
        }
        profile.names.insert(2, "web".to_owned());
        let vms = |wanted: &[&str]| -> Vec<Option<u32>> {
            let wanted: Vec<String> = wanted.iter().map(|&one| one.to_owned()).collect();
            only(profile.clone(), &wanted).vcpus().iter().map(|exits| exits.vcpu.vm).collect()
        };
        assert_eq!(vms(&[]), [Some(1), Some(2)]);
        assert_eq!(vms(&["web", "later"]), [Some(2)]);
        assert!(vms(&["later"]).is_empty());
    }
}
