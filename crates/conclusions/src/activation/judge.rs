//! The verdict on one VM.

use super::{ExitSigns, InhibitSeen, VcpuState, VmState};
use exits::{Inhibit, InhibitNumbering, InhibitReason, Isa};
use serde::Serialize;

/// The evidence on one VM.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The host's instruction set; `None` if no vendor module of KVM is loaded.
    pub isa: Option<Isa>,
    /// The vendor module's parameter that enables interrupt virtualization; `None` if unknown.
    pub enabled: Option<bool>,
    /// True if the CPU does not announce the feature, even if KVM uses it.
    pub cpu_denies: bool,
    /// Samples of KVM's own state, in order of time; empty if it could not be read.
    pub samples: &'a [VmState],
    /// Changes of inhibit reasons during the observation, in order of time.
    pub changes: &'a [InhibitSeen],
    /// Its exits during the observation; `None` if they were not counted.
    pub signs: Option<&'a ExitSigns>,
    /// This kernel's numbering of reasons.
    pub numbering: &'a InhibitNumbering,
}

/// The status of interrupt virtualization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Active for every vCPU.
    Active,
    /// Active for some vCPUs, or part of the time.
    Partly,
    /// Active for no vCPU.
    Inhibited,
    /// The evidence is missing.
    Unknown,
}

impl Status {
    /// The worse of two: one that is known to be worse than active is worse than an unknown one.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        let rank = |status: Self| match status {
            Self::Active => 0,
            Self::Unknown => 1,
            Self::Partly => 2,
            Self::Inhibited => 3,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

/// The mechanism that delivers interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Intel's APICv.
    Apicv,
    /// AMD's AVIC, for xAPIC guests.
    Avic,
    /// AMD's x2AVIC, for x2APIC guests.
    X2avic,
    /// AMD's AVIC without x2AVIC for an x2APIC guest: AVIC delivers interrupts, but accesses to x2APIC registers exit.
    HybridAvic,
    /// Injection by the host.
    None,
}

/// An inhibit reason in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InForce {
    /// Its number in this kernel; `None` if it follows from the module's parameter only.
    pub number: Option<u32>,
    /// The reason; `None` if this kernel's numbering has no name for the number.
    pub reason: Option<InhibitReason>,
    /// The number of samples in which it was set.
    pub samples: usize,
    /// The time at which it was last set, in nanoseconds since the start of the observation; `None` if that was not
    /// observed.
    pub since_ns: Option<u64>,
    /// The number of its changes during the observation.
    pub changes: usize,
}

/// An observation that contradicts or weakens the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// A temporary reason was set in some samples.
    Passing(InForce),
    /// A reason was in force at first and then cleared.
    Lifted(InForce),
    /// No reason is in force for the VM, but these vCPUs do not use interrupt virtualization. Either they have not run
    /// since the last change, or a reason of the vCPU is in force (a disabled APIC, a nested guest).
    InactiveVcpus(Vec<u32>),
    /// No reason was in force for the VM, but these vCPUs did not use interrupt virtualization in some samples: a reason of
    /// the vCPU comes and goes (a nested guest).
    SometimesInactive {
        /// The vCPUs.
        vcpus: Vec<u32>,
        /// The most samples in which one of them was not active.
        samples: usize,
    },
    /// KVM's state is active for these vCPUs, but the CPU's controls do not enable delivery.
    ControlsDisagree(Vec<u32>),
    /// KVM's state is active, but there were this many interrupt windows, which interrupt virtualization avoids.
    WindowsSeen(u64),
    /// KVM's state is active all the time, but this many CR8 writes caused exits: KVM keeps their intercept, a bug of
    /// kernels without 87d0f901a9bd (7.0-rc4).
    Cr8WritesSeen(u64),
    /// KVM's state is active all the time, but this many writes of EOI and TPR caused exits, which interrupt virtualization
    /// avoids.
    RegisterWritesSeen(u64),
    /// KVM's state is inhibited, but there were this many exits that only occur with interrupt virtualization.
    OnlyWithItSeen(u64),
    /// KVM uses it, but the CPU does not announce it (`kvm_amd.force_avic`), and no exits show that it works.
    CpuDenies,
    /// KVM's own state could not be read: the verdict follows from exits only.
    ByExitsAlone,
    /// KVM's own state could not be read: the verdict follows from the module's parameter only.
    ByParameterAlone,
}

/// The verdict on one VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Activation {
    /// The status.
    pub status: Status,
    /// The mechanism that delivers interrupts; `None` if unknown.
    pub mode: Option<Mode>,
    /// Reasons in force, ascending by number.
    pub reasons: Vec<InForce>,
    /// vCPUs for which it is active all the time, by KVM's state; 0 if the status is inhibited.
    pub active_vcpus: usize,
    /// vCPUs whose state was read.
    pub vcpus: usize,
    /// Doubts about the verdict.
    pub doubts: Vec<Doubt>,
}

/// Judges one VM. KVM's own state has priority over the module's parameter if that is off, and both over exits.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Activation {
    match evidence.samples.last().map(|last| (last, last.inhibits, known(last))) {
        Some((last, inhibits, vcpus)) if inhibits.is_some() || vcpus => by_state(evidence, last),
        _ => without_state(evidence),
    }
}

fn known(state: &VmState) -> bool {
    !state.vcpus.is_empty() && state.vcpus.iter().all(|vcpu| vcpu.active.is_some())
}

fn by_state(evidence: &Evidence<'_>, last: &VmState) -> Activation {
    let (mut reasons, mut doubts) = (Vec::new(), Vec::new());
    let samples = evidence.samples.len();
    let mut mostly_passing = false;
    for reason in seen_reasons(evidence) {
        let number = reason.number.unwrap_or_default();
        let holds = last.inhibits.is_some_and(|mask| mask.numbers().any(|held| held == number));
        let passing = reason.reason.is_some_and(InhibitReason::is_passing);
        // One sample cannot show that it stays set.
        let stays = samples > 1 && reason.samples == samples;
        match (passing && !stays, holds) {
            (true, _) => {
                mostly_passing |= samples > 1 && reason.samples > samples / 2;
                doubts.push(Doubt::Passing(reason));
            }
            (false, true) => reasons.push(reason),
            (false, false) => doubts.push(Doubt::Lifted(reason)),
        }
    }
    // vCPUs take up a cleared reason of the VM when they next run, so their earlier state means something only if the VM
    // is known to have had no reason then.
    let sometimes = if last.inhibits.is_some() && reasons.is_empty() && doubts.is_empty() {
        sometimes_inactive(evidence.samples, last)
    } else {
        Vec::new()
    };
    let is_steady = |vcpu: &&VcpuState| sometimes.iter().all(|(number, _)| *number != vcpu.number);
    let steady: Vec<&VcpuState> = last.vcpus.iter().filter(is_steady).collect();
    let active: Vec<&VcpuState> = steady.iter().copied().filter(|vcpu| vcpu.active == Some(true)).collect();
    let inactive: Vec<u32> =
        steady.iter().filter(|vcpu| vcpu.active == Some(false)).map(|vcpu| vcpu.number).collect();
    let passing_now = reasons.is_empty() && last.inhibits.is_some_and(|mask| !mask.is_empty());
    let status = match (reasons.is_empty(), active.len(), inactive.len()) {
        (false, _, _) => Status::Inhibited,
        (true, _, _) if mostly_passing || !sometimes.is_empty() => Status::Partly,
        // The state of vCPUs follows a temporary reason, so it gives no further information.
        (true, _, _) if passing_now => Status::Active,
        (true, 0, 0) => Status::Unknown,
        (true, _, 0) => Status::Active,
        (true, 0, _) => Status::Inhibited,
        (true, _, _) => Status::Partly,
    };
    if reasons.is_empty() && !passing_now && !inactive.is_empty() {
        doubts.push(Doubt::InactiveVcpus(inactive));
    }
    if let Some(most) = sometimes.iter().map(|(_, samples)| *samples).max() {
        let vcpus = sometimes.iter().map(|(number, _)| *number).collect();
        doubts.push(Doubt::SometimesInactive { vcpus, samples: most });
    }
    let disagreeing: Vec<u32> = active
        .iter()
        .filter(|vcpu| vcpu.controls.is_some_and(|controls| !controls.delivers()))
        .map(|vcpu| vcpu.number)
        .collect();
    if status != Status::Inhibited && !passing_now && !disagreeing.is_empty() {
        doubts.push(Doubt::ControlsDisagree(disagreeing));
    }
    doubts.extend(contradicting(status, evidence.signs));
    // While it is temporarily inhibited, KVM has to intercept CR8 writes.
    let passed = evidence.changes.iter().any(|change| change.set)
        || doubts.iter().any(|doubt| matches!(doubt, Doubt::Passing(_) | Doubt::Lifted(_)));
    let mode = evidence.isa.map(|isa| mode(isa, evidence.samples, last));
    if let Some(signs) = evidence.signs.filter(|_| status == Status::Active && !passed) {
        let writes = avoided_writes(mode, signs);
        doubts.extend((signs.cr8_writes > 0).then_some(Doubt::Cr8WritesSeen(signs.cr8_writes)));
        doubts.extend((writes > 0).then_some(Doubt::RegisterWritesSeen(writes)));
    }
    let shown = evidence.signs.is_some_and(|signs| signs.only_with_it() > 0);
    let status = if evidence.cpu_denies && !shown && matches!(status, Status::Active | Status::Partly) {
        doubts.push(Doubt::CpuDenies);
        Status::Unknown
    } else {
        status
    };
    Activation {
        status,
        mode: match status {
            Status::Active | Status::Partly => mode,
            Status::Inhibited => Some(Mode::None),
            Status::Unknown => None,
        },
        active_vcpus: if status == Status::Inhibited || mostly_passing { 0 } else { active.len() },
        vcpus: last.vcpus.len(),
        reasons,
        doubts,
    }
}

/// The vCPUs of the last sample that were active in some samples and not in others, each with the number of the latter.
///
/// A reason may have been cleared just before the observation, as when a VM boots. A sleeping vCPU becomes active when it
/// next runs. So a vCPU that was inactive only at first does not count, unless that lasted for most of the samples.
fn sometimes_inactive(samples: &[VmState], last: &VmState) -> Vec<(u32, usize)> {
    let of = |number: u32| {
        let of_vcpu = samples.iter().flat_map(|sample| &sample.vcpus).filter(|vcpu| vcpu.number == number);
        let states: Vec<bool> = of_vcpu.filter_map(|vcpu| vcpu.active).collect();
        let inactive = states.iter().filter(|&&active| !active).count();
        let at_first = states.iter().take_while(|&&active| !active).count();
        let has_slept = inactive == at_first && inactive <= states.len() / 2;
        (inactive > 0 && inactive < states.len() && !has_slept).then_some((number, inactive))
    };
    last.vcpus.iter().filter_map(|vcpu| of(vcpu.number)).collect()
}

/// Emulated writes of EOI and TPR that should not occur while interrupt virtualization is active. AVIC leaves EOIs
/// of level-triggered interrupts to the host, which then emulates them, and without x2AVIC all registers of an
/// x2APIC.
fn avoided_writes(mode: Option<Mode>, signs: &ExitSigns) -> u64 {
    match mode {
        Some(Mode::Apicv) => signs.eoi_writes + signs.tpr_writes,
        Some(Mode::X2avic) => signs.eoi_writes.saturating_sub(signs.handed_back) + signs.tpr_writes,
        _ => 0,
    }
}

/// Every reason that was set in a sample or changed during the observation.
fn seen_reasons(evidence: &Evidence<'_>) -> Vec<InForce> {
    let masks = || evidence.samples.iter().filter_map(|sample| sample.inhibits);
    let in_samples = masks().fold(0, |all, mask| all | mask.0);
    let of = |inhibit: Inhibit, number: u32| {
        let mut changes = evidence.changes.iter().filter(|change| change.number == number).peekable();
        let mut since_ns = None;
        let mut count = 0;
        // The kernel also reports requests that do not change the reason.
        let mut state = masks().next().map(|mask| mask.0 & 1 << number != 0);
        for change in changes.by_ref() {
            if state != Some(change.set) {
                since_ns = change.set.then_some(change.after_ns);
                count += 1;
            }
            state = Some(change.set);
        }
        InForce {
            number: Some(number),
            reason: match inhibit {
                Inhibit::Named(reason) => Some(reason),
                Inhibit::Number(_) => None,
            },
            samples: masks().filter(|mask| mask.0 & 1 << number != 0).count(),
            since_ns,
            changes: count,
        }
    };
    let changed = evidence.changes.iter().filter(|change| change.number < u64::BITS);
    let all = changed.fold(in_samples, |all, change| all | 1 << change.number);
    let reasons = exits::Inhibits(all).numbers().map(|number| {
        let inhibit = evidence.numbering.reason(number).map_or(Inhibit::Number(number), Inhibit::Named);
        of(inhibit, number)
    });
    reasons.filter(|reason| reason.samples > 0 || reason.changes > 0).collect()
}

fn contradicting(status: Status, signs: Option<&ExitSigns>) -> Option<Doubt> {
    let signs = signs?;
    match status {
        Status::Active if signs.windows > 0 => Some(Doubt::WindowsSeen(signs.windows)),
        Status::Inhibited if signs.only_with_it() > 0 => Some(Doubt::OnlyWithItSeen(signs.only_with_it())),
        _ => None,
    }
}

/// The mechanism, by the vCPUs when they were active: the controls of others lack it.
fn mode(isa: Isa, samples: &[VmState], last: &VmState) -> Mode {
    let all = samples.iter().flat_map(|sample| &sample.vcpus);
    let active: Vec<&VcpuState> = all.filter(|vcpu| vcpu.active == Some(true)).collect();
    let vcpus =
        || active.iter().copied().chain(active.is_empty().then_some(&last.vcpus).into_iter().flatten());
    let x2apic = vcpus().any(|vcpu| vcpu.x2apic == Some(true));
    let virtualized = vcpus().any(|vcpu| vcpu.controls.is_some_and(|controls| controls.virtualizes_x2apic()));
    match (isa, x2apic, virtualized) {
        (Isa::Vmx, _, _) => Mode::Apicv,
        (Isa::Svm, _, true) => Mode::X2avic,
        (Isa::Svm, true, false) if vcpus().any(|vcpu| vcpu.controls.is_some()) => Mode::HybridAvic,
        (Isa::Svm, _, false) => Mode::Avic,
    }
}

fn without_state(evidence: &Evidence<'_>) -> Activation {
    let nothing = Activation {
        status: Status::Unknown,
        mode: None,
        reasons: Vec::new(),
        active_vcpus: 0,
        vcpus: evidence.samples.last().map_or(0, |last| last.vcpus.len()),
        doubts: Vec::new(),
    };
    if evidence.enabled == Some(false) {
        let reason = InForce {
            number: evidence.numbering.number(InhibitReason::Disabled),
            reason: Some(InhibitReason::Disabled),
            samples: 0,
            since_ns: None,
            changes: 0,
        };
        return Activation {
            status: Status::Inhibited,
            mode: Some(Mode::None),
            reasons: vec![reason],
            doubts: vec![Doubt::ByParameterAlone],
            ..nothing
        };
    }
    let (Some(isa), Some(signs)) = (evidence.isa, evidence.signs) else { return nothing };
    let active = signs.only_with_it() > 0;
    let inhibited = match isa {
        Isa::Vmx => signs.eoi_writes > 0,
        // EOI writes prove nothing on AMD: an x2APIC guest's exit without x2AVIC, although AVIC delivers its interrupts.
        Isa::Svm => signs.windows > 0,
    };
    let (status, mode) = match (active, inhibited) {
        (true, true) => (Status::Partly, None),
        (true, false) => (Status::Active, (isa == Isa::Vmx).then_some(Mode::Apicv)),
        (false, true) => (Status::Inhibited, Some(Mode::None)),
        (false, false) => return nothing,
    };
    Activation { status, mode, doubts: vec![Doubt::ByExitsAlone], ..nothing }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
