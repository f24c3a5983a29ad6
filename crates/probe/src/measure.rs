//! The measures of the probe, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One thing that the guest payload times, in TSC cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Two TSC reads with nothing between them: the cost of measuring.
    Floor,
    /// From the ICR write until the sender sees the acknowledgement, while the target spins. In xAPIC mode the
    /// ICR has two words and both are written, as operating systems do.
    IpiRunning,
    /// The same with the target halted.
    IpiHalted,
    /// From the self-IPI's write to the first instruction of its handler.
    SelfIpi,
    /// The EOI write at the end of a handler.
    Eoi,
    /// A write of the task priority register through the APIC's own interface.
    TprWrite,
    /// Writing IA32_TSC_DEADLINE with a deadline that is far away.
    TimerArm,
    /// From the deadline to the first instruction of the timer's handler.
    TimerFire,
    /// The exit round trip of CPUID.
    Cpuid,
    /// HLT with an interrupt already pending: an exit and an immediate re-entry.
    Hlt,
    /// Port output which the kernel completes itself (an ioeventfd on a port).
    PioKernel,
    /// Port output which returns to user space.
    PioUser,
    /// A memory-mapped write which returns to user space.
    MmioUser,
    /// A memory-mapped write which the kernel turns into an eventfd signal.
    MmioEventfd,
    /// RDMSR of a register which KVM intercepts.
    MsrRead,
    /// WRMSR to a register which KVM intercepts.
    MsrWrite,
}

impl Measure {
    /// Every measure, in the order of the tables.
    pub const ALL: [Self; 16] = [
        Self::Floor,
        Self::IpiRunning,
        Self::IpiHalted,
        Self::SelfIpi,
        Self::Eoi,
        Self::TprWrite,
        Self::TimerArm,
        Self::TimerFire,
        Self::Cpuid,
        Self::Hlt,
        Self::PioKernel,
        Self::PioUser,
        Self::MmioUser,
        Self::MmioEventfd,
        Self::MsrRead,
        Self::MsrWrite,
    ];

    /// The stable name, as in `--measure` and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::IpiRunning => "ipi-running",
            Self::IpiHalted => "ipi-halted",
            Self::SelfIpi => "self-ipi",
            Self::Eoi => "eoi",
            Self::TprWrite => "tpr-write",
            Self::TimerArm => "timer-arm",
            Self::TimerFire => "timer-fire",
            Self::Cpuid => "cpuid",
            Self::Hlt => "hlt",
            Self::PioKernel => "pio-kernel",
            Self::PioUser => "pio-user",
            Self::MmioUser => "mmio-user",
            Self::MmioEventfd => "mmio-eventfd",
            Self::MsrRead => "msr-read",
            Self::MsrWrite => "msr-write",
        }
    }

    /// The operation that the measure times, for people, in at most 30 characters.
    pub fn title(self) -> &'static str {
        match self {
            Self::Floor => "nothing (cost of measuring)",
            Self::IpiRunning => "IPI to a running vCPU",
            Self::IpiHalted => "IPI to a halted vCPU",
            Self::SelfIpi => "self-IPI",
            Self::Eoi => "EOI",
            Self::TprWrite => "TPR write",
            Self::TimerArm => "TSC-deadline timer, arm",
            Self::TimerFire => "TSC-deadline timer, fire",
            Self::Cpuid => "CPUID",
            Self::Hlt => "HLT, interrupt pending",
            Self::PioKernel => "port output, in the kernel",
            Self::PioUser => "port output, in user space",
            Self::MmioUser => "MMIO write, in user space",
            Self::MmioEventfd => "MMIO write, ioeventfd",
            Self::MsrRead => "RDMSR",
            Self::MsrWrite => "WRMSR",
        }
    }

    /// Tests whether the measure needs a second vCPU.
    pub fn needs_target(self) -> bool {
        matches!(self, Self::IpiRunning | Self::IpiHalted)
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name does not belong to any measure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no measure is called {name:?}; known: {}", Measure::ALL.map(Measure::name).join(", "))]
pub struct UnknownMeasure {
    /// The requested name.
    pub name: String,
}

impl FromStr for Measure {
    type Err = UnknownMeasure;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|measure| measure.name() == name)
            .ok_or_else(|| UnknownMeasure { name: name.to_owned() })
    }
}
