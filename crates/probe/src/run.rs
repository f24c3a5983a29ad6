//! The results of one run of one measure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measure::Measure;

/// One side of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Interrupt virtualization is inhibited for the micro VM (or the host has none).
    Off,
    /// Interrupt virtualization is active.
    On,
}

/// The interface by which the guest reaches its local APIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApicMode {
    /// Memory-mapped registers.
    Xapic,
    /// Model-specific registers.
    X2apic,
}

/// The place in which the I/O APIC and the legacy interrupt controllers are emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Irqchip {
    /// Local APICs in the kernel, the rest in user space (KVM_CAP_SPLIT_IRQCHIP).
    Split,
    /// Everything in the kernel (KVM_CREATE_IRQCHIP).
    Kernel,
}

/// The samples of one measure in one arm, taken without a pause, and KVM's counts over that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The measure.
    pub measure: Measure,
    /// The arm.
    pub arm: Arm,
    /// The vCPU that received the interrupts, if the measure has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<u16>,
    /// Iterations before the first sample, discarded by the guest.
    pub warm_up: u32,
    /// The samples in the order they were taken, in guest TSC cycles.
    pub cycles: Vec<u64>,
    /// The counts of KVM's binary statistics from before the warm-up to after the last sample, summed over the
    /// vCPUs; the names are the kernel's (`exits`, `irq_window_exits`...). Empty if the kernel has none.
    pub statistics: BTreeMap<String, u64>,
}
