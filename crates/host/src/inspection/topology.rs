//! How processors are laid out, and what they do when they have nothing to do.

use crate::{CpuSet, Fact};
use std::collections::BTreeMap;

/// The layout of processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// NUMA nodes.
    pub nodes: Fact<Vec<Node>>,
    /// `/sys/devices/system/cpu/smt/control`: `on`, `off`, `forceoff`, `notsupported`.
    pub smt: Fact<String>,
    /// Sets of threads of one core, each once, ascending; empty without SMT.
    pub siblings: Vec<CpuSet>,
    /// `/sys/devices/system/cpu/isolated` (`isolcpus=`).
    pub isolated: Fact<CpuSet>,
    /// `/sys/devices/system/cpu/nohz_full`.
    pub nohz_full: Fact<CpuSet>,
    /// Idle states and frequencies.
    pub idle: Idle,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its processors.
    pub cpus: CpuSet,
}

/// What processors do at rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Idle {
    /// `cpuidle/current_driver`: `intel_idle`, `acpi_idle`, `haltpoll`, `none`.
    pub driver: Fact<String>,
    /// `cpuidle/current_governor`.
    pub governor: Fact<String>,
    /// How many processors are driven by which frequency governor (`performance`, `powersave`, `schedutil`).
    pub frequency_governors: Fact<BTreeMap<String, u32>>,
    /// `cpufreq/policy0/scaling_driver`.
    pub frequency_driver: Fact<String>,
}
