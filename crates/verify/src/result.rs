//! The result of a verification.

use conclusions::activation::{Activation, DeviceVerdict, ExitSigns, IpiVirtualization, Status, VmState};
use doctor::Managed;
use exits::{Cure, InhibitReason, Inhibits, Isa};
use host::posting::Iommu;
use host::vms::{HeldProcess, LikelyVm, Vmm};
use host::{InterruptVirtualization, Lack};
use probe::ArmEvidence;
use serde::Serialize;

use prove::ArmPair;

/// The format version.
pub(super) const FORMAT: u32 = 1;

/// The verdict on the host's VMs. Field names are stable within one `format`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    /// The format version, 1.
    pub format: u32,
    /// The version of the program.
    pub version: String,
    /// The status over all chosen VMs: inhibited if any VM is inhibited, otherwise unknown if any is unknown.
    pub status: Status,
    /// The host.
    pub host: HostSide,
    /// The duration of the observation, in nanoseconds.
    pub watched_ns: u64,
    /// A verdict for each VM.
    pub vms: Vec<VmVerification>,
    /// Processes that look like VMs but cannot be examined.
    pub likely: Vec<LikelyVm>,
    /// Processes that may be VMs and block inspection.
    pub held: Vec<HeldProcess>,
    /// The result of a micro VM on this host. It is no evidence for the other VMs.
    pub provoked: Option<Provoked>,
    /// Evidence that is not available.
    pub missing: Vec<Missing>,
}

/// The host's side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostSide {
    /// The kernel release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// The CPU's name.
    pub cpu: Option<String>,
    /// The loaded vendor module.
    pub module: Option<String>,
    /// Its instruction set.
    pub isa: Option<Isa>,
    /// APICv or AVIC: the CPU's feature, and the parameter.
    pub interrupt_virtualization: Option<InterruptVirtualization>,
    /// The current value of the parameter.
    pub enabled: Option<bool>,
    /// `enable_ipiv` of the module, if it has one.
    pub enable_ipiv: Option<bool>,
    /// The reason why `/dev/kvm` cannot be opened, if it cannot.
    pub kvm: Option<String>,
    /// IOMMUs, and their posting of interrupts.
    pub iommus: Vec<Iommu>,
    /// This is a control domain of Xen, where VMs do not run on KVM.
    pub xen: bool,
}

impl HostSide {
    /// The feature that the CPU lacks for interrupt virtualization, if that is certain.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        self.interrupt_virtualization.as_ref().and_then(InterruptVirtualization::lack)
    }
}

/// Evidence that is not available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The kind of evidence.
    pub what: &'static str,
    /// The process; `None` for all.
    pub pid: Option<i32>,
    /// The reason, and what to do.
    pub why: String,
}

/// The verdict on one VM.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VmVerification {
    /// Its process.
    pub pid: i32,
    /// Its name for the user.
    pub name: String,
    /// Its VMM.
    pub vmm: Vmm,
    /// The number of the VM in its process, from 1, if the process has several.
    pub which: Option<usize>,
    /// The verdict.
    pub activation: Activation,
    /// The causes of the reasons in force, and their fixes.
    pub cures: Vec<ReasonCures>,
    /// IPI virtualization.
    pub ipi_virtualization: IpiVirtualization,
    /// Devices that are assigned to it.
    pub devices: Vec<DeviceVerdict>,
    /// KVM's own state, if it could be read.
    pub state: Option<StateSeen>,
    /// Changes observed as they happened; `None` if they could not be observed.
    pub changes: Option<Vec<Changed>>,
    /// Its exits; `None` if they could not be counted, or not separated from those of another VM.
    pub exits: Option<ExitSigns>,
}

/// KVM's own state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateSeen {
    /// The samples, in order and evenly distributed over the time.
    pub samples: Vec<StateSample>,
    /// The last state.
    pub last: VmState,
}

/// KVM's own state at one time, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StateSample {
    /// The inhibit reasons in force.
    pub inhibits: Option<Inhibits>,
    /// The number of vCPUs for which interrupt virtualization is active.
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
    /// Its time, in nanoseconds after the start of the observation.
    pub after_ns: u64,
    /// It was set; otherwise cleared.
    pub set: bool,
    /// Its number in this kernel.
    pub number: u32,
    /// The reason.
    pub reason: Option<InhibitReason>,
    /// All reasons in force after the change.
    pub mask: Option<Inhibits>,
}

/// A reason and its fixes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReasonCures {
    /// The reason.
    pub reason: InhibitReason,
    /// The cause of the reason; if the CPU lacks a required feature, that feature.
    pub set_by: String,
    /// Changes that remove the reason, each sufficient alone.
    pub cures: Vec<Cure>,
    /// The next step if no change of the VM removes the reason.
    pub next: Option<String>,
    /// The same changes in the settings of the program that manages the VM (such as Nova), if it has its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed: Vec<Managed>,
}

/// The result of a micro VM.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Provoked {
    /// The status of interrupt virtualization in a new VM whose configuration does not inhibit it.
    pub status: Status,
    /// The reason for the state, or why it is unknown.
    pub why: Option<String>,
    /// Exits per self-IPI and its EOI, with interrupt virtualization off and on.
    pub exits_per_eoi: ArmPair<Option<f64>>,
    /// Exits per IPI to a running vCPU, with interrupt virtualization off and on.
    pub exits_per_ipi: ArmPair<Option<f64>>,
    /// The checks that each arm was in force.
    pub checks: Vec<ArmEvidence>,
}

impl Verification {
    /// The status over all running VMs; if none runs, that of the micro VM.
    pub(super) fn overall(&self) -> Status {
        let any = |wanted: &[Status]| self.vms.iter().any(|vm| wanted.contains(&vm.activation.status));
        if any(&[Status::Inhibited, Status::Partly]) {
            Status::Inhibited
        } else if any(&[Status::Unknown]) || !self.likely.is_empty() || !self.held.is_empty() {
            Status::Unknown
        } else if !self.vms.is_empty() {
            Status::Active
        } else if let Some(provoked) = &self.provoked {
            provoked.status
        } else if self.host.enabled == Some(false) && !self.host.xen {
            Status::Inhibited
        } else {
            Status::Unknown
        }
    }

    /// Adds the result of a micro VM, which decides the status if no VM runs.
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
