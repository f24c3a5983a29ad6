//! The inputs of the page.

use std::collections::{BTreeMap, BTreeSet};

use exits::{Isa, Profile};

/// The source of exit counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The instruction set of the host.
    pub isa: Isa,
    /// The mechanism that reads the kernel's events, with the reason if it is not the best one.
    pub mechanism: String,
    /// Events that are not available, each with the cause.
    pub missing: Vec<String>,
}

/// Facts of a VM other than its exits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmFacts {
    /// Its name.
    pub name: Option<String>,
    /// The state of interrupt virtualization, in a word or two; `None` if unknown.
    pub interrupt_virtualization: Option<String>,
    /// True if its process has ended.
    pub is_gone: bool,
    /// The threads of its process; `None` if unknown.
    pub threads: Option<BTreeSet<u32>>,
}

/// One interval.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// The exits in it. Its span is the interval.
    pub profile: Profile,
    /// Facts of VMs by process, of VMs with exits and VMs that are already on the page.
    pub facts: BTreeMap<u32, VmFacts>,
    /// The cost of counting in nanoseconds per exit, if measured.
    pub cost_ns_per_exit: Option<f64>,
}
