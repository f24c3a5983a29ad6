//! The comparability of recordings by the machines on which they were made.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Recordings;

/// Properties, besides exits, in which recordings may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Property {
    /// The instruction set of the exits, which gives reasons their meaning.
    InstructionSet,
    /// KVM or Xen, which handle exits and measure their times differently.
    Hypervisor,
    /// The CPU, on which the cost of an exit depends.
    Processor,
    /// The host's name.
    Host,
    /// The kernel's release.
    Kernel,
}

impl Property {
    /// Tests whether a difference makes the figures of two sides incomparable, unless its effect is to be measured.
    #[must_use]
    pub const fn forbids_comparison(self) -> bool {
        matches!(self, Self::InstructionSet | Self::Hypervisor | Self::Processor)
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InstructionSet => "instruction set",
            Self::Hypervisor => "hypervisor",
            Self::Processor => "processor",
            Self::Host => "host",
            Self::Kernel => "kernel",
        })
    }
}

/// A property that is known on both sides and differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlike {
    /// The property.
    pub property: Property,
    /// The values on the first side.
    pub before: BTreeSet<String>,
    /// The values on the second side.
    pub after: BTreeSet<String>,
}

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(", ");
        write!(f, "{}: {} before, {} after", self.property, listed(&self.before), listed(&self.after))
    }
}

/// The differences between two sets of recordings. A property that is unknown on one side is not a difference.
#[must_use]
pub fn unlike(before: &[Recordings], after: &[Recordings]) -> Vec<Unlike> {
    let properties = [
        Property::InstructionSet,
        Property::Hypervisor,
        Property::Processor,
        Property::Host,
        Property::Kernel,
    ];
    let differs = |property| {
        let [before, after] = [before, after].map(|side| {
            side.iter().flat_map(|recordings| said(recordings, property)).collect::<BTreeSet<_>>()
        });
        let differ = !before.is_empty() && !after.is_empty() && before != after;
        differ.then_some(Unlike { property, before, after })
    };
    properties.into_iter().filter_map(differs).collect()
}

fn said(recordings: &Recordings, property: Property) -> BTreeSet<String> {
    let origins = || recordings.files.iter().map(|file| &file.origin);
    match property {
        Property::InstructionSet => {
            recordings.profile.reasons().keys().map(|reason| reason.isa.to_string()).collect()
        }
        Property::Hypervisor => origins().map(|origin| origin.hypervisor.to_string()).collect(),
        Property::Processor => origins().filter_map(|origin| origin.processor.clone()).collect(),
        Property::Host => origins().filter_map(|origin| origin.host.clone()).collect(),
        Property::Kernel => origins().filter_map(|origin| origin.kernel.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exitless::{Header, Packing, Summary, Writer, write_profile};
    use crate::{Format, Options, Origin, Reading, Source};
    use exits::{ExitReason, Profile, Vcpu};

    fn recordings(reason: ExitReason, origin: Origin) -> Recordings {
        let mut profile = Profile::new();
        profile.vcpu(Vcpu::default()).reasons.entry(reason).or_default().count = 1;
        let mut recordings = Recordings::new(Options::default());
        let reading = Reading { profile, origin, damage: None, warnings: Vec::new() };
        recordings.add("recording".to_owned(), reading);
        recordings
    }

    fn origin(processor: Option<&str>, kernel: &str) -> Origin {
        Origin {
            processor: processor.map(str::to_owned),
            kernel: Some(kernel.to_owned()),
            ..Origin::new(Format::PerfData)
        }
    }

    #[test]
    fn what_differs_is_named_and_the_unknown_does_not_differ() {
        let hlt = ExitReason::svm(0x78);
        let one = recordings(hlt, origin(Some("EPYC 9654"), "6.12"));
        let other = recordings(hlt, origin(Some("EPYC 7763"), "6.13"));
        let unknown = recordings(hlt, origin(None, "6.12"));
        let said = |after: &Recordings| {
            let found = unlike(std::slice::from_ref(&one), std::slice::from_ref(after));
            found.iter().map(Unlike::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            said(&other),
            ["processor: EPYC 9654 before, EPYC 7763 after", "kernel: 6.12 before, 6.13 after"]
        );
        assert_eq!(said(&unknown), [""; 0]);
        assert_eq!(said(&one), [""; 0]);
    }

    /// The recordings that `exitless record` writes on a host, read back: single exits, and sums.
    fn recorded(header: &Header) -> [Recordings; 2] {
        let mut exits = Vec::new();
        Writer::new(&mut exits, header).unwrap().finish(Summary::default()).unwrap();
        let mut sums = Vec::new();
        write_profile(&mut sums, header, &Profile::new(), Packing::None).unwrap();
        [exits, sums].map(|bytes| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("recording");
            std::fs::write(&file, bytes).unwrap();
            let mut recordings = Recordings::new(Options::default());
            let reading = crate::read(&Source::from(file.as_path()), &recordings.options, &mut ()).unwrap();
            recordings.add("recording".to_owned(), reading);
            recordings
        })
    }

    #[test]
    fn recordings_of_xen_are_unlike_those_of_kvm_and_like_those_of_xentrace() {
        let host = |xen: bool| {
            let empty = tempfile::tempdir().unwrap();
            let mut host = host::Fingerprint::read(empty.path()).unwrap();
            let version = Some("4.20.1".to_owned());
            host.hypervisor = xen.then(|| host::Hypervisor { version, ..Default::default() });
            Header { host: Some(host), ..Header::default() }
        };
        let xentrace = recordings(ExitReason::vmx(12), Origin::new(Format::Xentrace));
        for (of_xen, of_kvm) in recorded(&host(true)).into_iter().zip(recorded(&host(false))) {
            assert_eq!(of_xen.files[0].origin.xen().as_deref(), Some("Xen 4.20.1"));
            assert_eq!(of_kvm.files[0].origin.xen(), None);
            let found = unlike(std::slice::from_ref(&of_kvm), std::slice::from_ref(&of_xen));
            let said: Vec<_> = found.iter().map(Unlike::to_string).collect();
            assert_eq!(said, ["hypervisor: KVM before, Xen after"]);
            assert_eq!(unlike(&[of_xen], std::slice::from_ref(&xentrace)), []);
        }
        // If the host is not known, the clock of single exits identifies Xen.
        let clock = Header { clock: Some("TSC".to_owned()), ..Header::default() };
        assert_eq!(recorded(&clock)[0].files[0].origin.xen().as_deref(), Some("Xen"));
    }

    #[test]
    fn instruction_sets_forbid_and_kernels_do_not() {
        let amd = recordings(ExitReason::svm(0x78), origin(None, "6.12"));
        let intel = recordings(ExitReason::vmx(12), origin(None, "6.13"));
        let found = unlike(&[amd], &[intel]);
        let forbidding: Vec<_> =
            found.iter().filter(|one| one.property.forbids_comparison()).map(|one| one.property).collect();
        assert_eq!(forbidding, [Property::InstructionSet]);
        assert_eq!(found.len(), 2);
    }
}
