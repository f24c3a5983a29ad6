//! The configuration of the micro VM.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::run::{ApicMode, Irqchip};

/// The settings of a micro VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The number of vCPUs that run, 2 to 64. One more is created that never runs.
    pub vcpus: u16,
    /// The place in which the interrupt controllers are emulated. No PIT is created, because its reinjection would
    /// inhibit AVIC.
    pub irqchip: Irqchip,
    /// The way in which the guest reaches its local APICs.
    pub apic: ApicMode,
    /// True if each vCPU's thread is bound to one host CPU. The sender, vCPU 0, does not share its CPU if this
    /// process may use more than one; vCPU `n` gets the `n`-th, wrapping around over the rest.
    pub pin: bool,
    /// The device, `/dev/kvm`.
    pub kvm: PathBuf,
    /// The directory of `/sys` and `/proc`: `/`, or a test's tree.
    pub sysfs: PathBuf,
    /// The time for which `ipi-halted` lets the target sleep before the IPI, in guest TSC cycles from the announcement
    /// that it is about to halt. KVM polls before it puts a halted vCPU to sleep (halt_poll_ns of the kvm module, 200
    /// us by default): a shorter wait measures the wake-up of a vCPU whose host CPU still polls, which
    /// `halt_successful_poll` in the run's statistics shows.
    pub settle_cycles: u64,
    /// The distance of `timer-fire`'s deadline, in guest TSC cycles. If it is shorter than arming the timer
    /// takes, the samples show the cost of arming instead.
    pub timer_delta_cycles: u64,
    /// The time without a new iteration after which a run counts as hung.
    pub patience: Duration,
}

impl Default for Config {
    /// Two pinned vCPUs in x2APIC mode with a split irqchip. The waits suit a TSC of 3 GHz (10 and 17 us) as
    /// well as an emulated one of 50 MHz (0.6 and 1 ms).
    fn default() -> Self {
        Self {
            vcpus: 2,
            irqchip: Irqchip::Split,
            apic: ApicMode::X2apic,
            pin: true,
            kvm: PathBuf::from("/dev/kvm"),
            sysfs: PathBuf::from("/"),
            settle_cycles: 30_000,
            timer_delta_cycles: 50_000,
            patience: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_document_is_the_default() {
        assert_eq!(serde_json::from_str::<Config>("{}").unwrap(), Config::default());
    }
}
