//! What a verification came to.

use exits::activation::{Activation, DeviceVerdict, ExitSigns, IpiVirtualization, Status, VmState};
use exits::{Cure, InhibitReason, Inhibits, Isa};
use host::posting::Iommu;
use host::vms::{LikelyVm, Vmm};
use host::{InterruptVirtualization, Lack};
use probe::ArmEvidence;
use serde::Serialize;

use crate::prove::ArmPair;

/// The version of the form.
pub(super) const FORMAT: u32 = 1;

/// The verdict on the host's VMs. Field names are stable within one `format`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    /// 1.
    pub format: u32,
    /// The version of the program.
    pub version: String,
    /// The answer for all VMs that were asked for: inhibited when any is, then unknown when any is.
    pub status: Status,
    /// The host.
    pub host: HostSide,
    /// How long was watched, nanoseconds.
    pub watched_ns: u64,
    /// A verdict for each VM.
    pub vms: Vec<VmVerification>,
    /// Processes that look like VMs but may not be looked into.
    pub likely: Vec<LikelyVm>,
    /// What a micro VM of our own met on this host. It says nothing of the other VMs.
    pub provoked: Option<Provoked>,
    /// Evidence that could not be had.
    pub missing: Vec<Missing>,
}

/// The host's side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostSide {
    /// As `uname -r`.
    pub kernel: Option<String>,
    /// The CPU's name.
    pub cpu: Option<String>,
    /// The vendor module that is loaded.
    pub module: Option<String>,
    /// Its kind of virtualization.
    pub isa: Option<Isa>,
    /// APICv or AVIC: whether the CPU has it, and the parameter.
    pub interrupt_virtualization: Option<InterruptVirtualization>,
    /// What the parameter says now.
    pub enabled: Option<bool>,
    /// `enable_ipiv` of the module, where it has one.
    pub enable_ipiv: Option<bool>,
    /// Why `/dev/kvm` cannot be opened, if it cannot.
    pub kvm: Option<String>,
    /// IOMMUs, and whether they post interrupts.
    pub iommus: Vec<Iommu>,
}

impl HostSide {
    /// What the CPU lacks for interrupt virtualization, where that is certain.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        self.interrupt_virtualization.as_ref().and_then(InterruptVirtualization::lack)
    }
}

/// One kind of evidence that could not be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Which.
    pub what: &'static str,
    /// Of which process; `None` for all.
    pub pid: Option<i32>,
    /// Why, and what to do.
    pub why: String,
}

/// The verdict on one VM.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VmVerification {
    /// Its process.
    pub pid: i32,
    /// What its user calls it.
    pub name: String,
    /// What runs it.
    pub vmm: Vmm,
    /// Which of the process's VMs, from 1 on, where it has several.
    pub which: Option<usize>,
    /// The verdict.
    pub activation: Activation,
    /// What sets the reasons in force, and what takes them away.
    pub cures: Vec<ReasonCures>,
    /// IPI virtualization.
    pub ipi_virtualization: IpiVirtualization,
    /// Devices that it has for itself.
    pub devices: Vec<DeviceVerdict>,
    /// KVM's own state, where it could be read.
    pub state: Option<StateSeen>,
    /// Changes that were seen as they happened; `None` when they could not be watched.
    pub changes: Option<Vec<Changed>>,
    /// Its exits; `None` when they could not be counted, or not told from those of another VM.
    pub exits: Option<ExitSigns>,
}

/// KVM's own state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateSeen {
    /// Each time that it was read, in order and evenly over the time.
    pub samples: Vec<StateSample>,
    /// As it was at last.
    pub last: VmState,
}

/// KVM's own state at one moment, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StateSample {
    /// Reasons in force.
    pub inhibits: Option<Inhibits>,
    /// vCPUs for which it is active.
    pub active_vcpus: usize,
}

impl StateSample {
    pub(super) fn of(state: &VmState) -> Self {
        let active = state.vcpus.iter().filter(|vcpu| vcpu.active == Some(true));
        Self { inhibits: state.inhibits, active_vcpus: active.count() }
    }
}

/// A change of an inhibit reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// When, nanoseconds after watching began.
    pub after_ns: u64,
    /// Whether it was set; otherwise cleared.
    pub set: bool,
    /// Its number in this kernel.
    pub number: u32,
    /// Which reason that is.
    pub reason: Option<InhibitReason>,
    /// All reasons in force after it.
    pub mask: Option<Inhibits>,
}

/// A reason and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReasonCures {
    /// The reason.
    pub reason: InhibitReason,
    /// What sets it; where the CPU lacks what it takes, that.
    pub set_by: String,
    /// Changes that take it away, each enough alone.
    pub cures: Vec<Cure>,
    /// What to do where no such change does.
    pub next: Option<String>,
}

/// What a micro VM met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Provoked {
    /// Whether a new VM gets interrupt virtualization, if nothing of its own inhibits it.
    pub status: Status,
    /// Why not, or why that cannot be told.
    pub why: Option<String>,
    /// Exits for each interrupt that a vCPU sends itself and ends, off and on.
    pub exits_per_eoi: ArmPair<Option<f64>>,
    /// Exits for each IPI to a running vCPU, off and on.
    pub exits_per_ipi: ArmPair<Option<f64>>,
    /// What was checked of each arm.
    pub checks: Vec<ArmEvidence>,
}

impl Verification {
    /// The answer for everything: of the VMs that run, or else of a new one.
    pub(super) fn overall(&self) -> Status {
        let any = |wanted: &[Status]| self.vms.iter().any(|vm| wanted.contains(&vm.activation.status));
        if any(&[Status::Inhibited, Status::Partly]) {
            Status::Inhibited
        } else if any(&[Status::Unknown]) || !self.likely.is_empty() {
            Status::Unknown
        } else if !self.vms.is_empty() {
            Status::Active
        } else if let Some(provoked) = &self.provoked {
            provoked.status
        } else if self.host.enabled == Some(false) {
            Status::Inhibited
        } else {
            Status::Unknown
        }
    }

    /// Adds what a micro VM met, which counts where no VM runs.
    #[must_use]
    pub fn with(mut self, provoked: Provoked) -> Self {
        self.provoked = Some(provoked);
        self.status = self.overall();
        self
    }
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;
