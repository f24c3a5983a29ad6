//! What the page is told.

use std::collections::BTreeMap;

use exits::{Isa, Profile};

/// How exits are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The instruction set of the host.
    pub isa: Isa,
    /// How the kernel's events are reached, with the reason where it is not the best way.
    pub mechanism: String,
    /// Events that the kernel does not give, each with the cause.
    pub missing: Vec<String>,
}

/// What is known of a VM beside its exits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmFacts {
    /// Its name.
    pub name: Option<String>,
    /// Whether its interrupts are virtualized by hardware, in a word or two; `None` where nobody could say.
    pub interrupt_virtualization: Option<String>,
    /// Whether its process is no more.
    pub is_gone: bool,
}

/// One interval.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// What was counted in it. Its span is the interval.
    pub profile: Profile,
    /// Of VMs by their process; those with exits and those that were known before.
    pub facts: BTreeMap<u32, VmFacts>,
    /// What counting itself costs, nanoseconds an exit, where it is measured.
    pub cost_ns_per_exit: Option<f64>,
}
