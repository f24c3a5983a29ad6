//! Rules over a host.

use super::subject::Subject;
pub(super) use crate::verdict::Verdict;
use crate::{Evidence, Finding, Fix};
use host::{Absence, Fact};

/// The subject of a rule; each has a section of its own in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// The CPU and its firmware.
    Cpu,
    /// Contradictions between sources.
    Contradictions,
    /// The kernel: its version, configuration and arguments.
    Kernel,
    /// KVM and its modules.
    Kvm,
    /// IOMMUs and interrupts of devices.
    Iommu,
    /// Limits of hardware and kernel.
    Limits,
    /// Threads and interrupts that share a processor.
    Placement,
    /// Xen.
    Xen,
    /// One running VM.
    Vm,
}

impl Category {
    /// All categories of a host, in the order of display.
    pub const OF_HOST: &'static [Self] = &[
        Self::Xen,
        Self::Cpu,
        Self::Kernel,
        Self::Kvm,
        Self::Iommu,
        Self::Contradictions,
        Self::Limits,
        Self::Placement,
    ];

    /// Its stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Contradictions => "contradictions",
            Self::Kernel => "kernel",
            Self::Kvm => "kvm",
            Self::Iommu => "iommu",
            Self::Limits => "limits",
            Self::Placement => "placement",
            Self::Xen => "xen",
            Self::Vm => "vm",
        }
    }

    /// Its heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU and firmware",
            Self::Contradictions => "Contradictions",
            Self::Kernel => "Kernel",
            Self::Kvm => "KVM",
            Self::Iommu => "IOMMU and device interrupts",
            Self::Limits => "Limits",
            Self::Placement => "Running VMs and placement of their threads",
            Self::Xen => "Xen",
            Self::Vm => "Each running VM",
        }
    }
}

/// A rule over a host, or over one VM that runs on it.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Its stable name in lower case with dashes.
    pub name: &'static str,
    /// Its title, in a few words.
    pub title: &'static str,
    /// Its subject.
    pub category: Category,
    /// The reason why it matters, in one line.
    pub why: &'static str,
    /// The source.
    pub source: &'static str,
    /// The rule of the same category that must not fail for this one to make sense; empty for none.
    pub parent: &'static str,
    pub(super) check: fn(&Subject<'_>) -> Option<Verdict>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Rule").field(&self.name).finish()
    }
}

impl Rule {
    pub(super) fn finding(&self, verdict: Verdict) -> Finding {
        verdict.finding(self.name, self.title, self.why, self.source)
    }
}

impl Verdict {
    /// Skips the check, because a fact is not known.
    pub(super) fn unknown<T>(fact: &Fact<T>) -> Self {
        Self::absent(fact.absence()).resting_on(fact)
    }

    pub(super) fn absent(absence: Option<&Absence>) -> Self {
        Self::skip(absence.map_or("it was not looked at", |absence| absence.why.as_str()))
    }

    /// Adds the evidence of a fact.
    pub(super) fn resting_on<T>(mut self, fact: &Fact<T>) -> Self {
        let evidence = fact.evidence.iter();
        self.evidence
            .extend(evidence.map(|one| Evidence { place: one.place.clone(), value: one.text.clone() }));
        self
    }

    pub(super) fn command(mut self, command: impl Into<String>) -> Self {
        self.fixes.push(Fix::Command(command.into()));
        self
    }
}
