//! Signs that interrupt virtualization was active while exits were recorded.

use serde::Serialize;

use super::evidence::Evidence;

/// The number of IPIs and timers from which the absence of EOIs is a sign: each of these interrupts needs an EOI.
const INTERRUPTS: u64 = 8;

/// A VM for which interrupt virtualization is already active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Already {
    /// The VM.
    pub vm: Option<u32>,
    /// Exits that only occur with interrupt virtualization: APIC_WRITE, EOI_INDUCED and those of AVIC.
    pub by_hardware: u64,
    /// EOIs that caused exits nevertheless, for example because it was active part of the time.
    pub eois: u64,
}

impl Already {
    /// The signs in the counts of a VM.
    pub(super) fn of(vm: Option<u32>, evidence: &Evidence) -> Option<Self> {
        let Evidence { by_hardware, eois, .. } = *evidence;
        is_active(evidence).then_some(Self { vm, by_hardware, eois })
    }
}

/// Tests whether interrupt virtualization was active, at least part of the time.
pub(super) fn is_active(evidence: &Evidence) -> bool {
    let sent = evidence.ipis.saturating_add(evidence.self_ipis);
    let interrupts = sent.saturating_add(evidence.timer_arms);
    let other_eois = evidence.paravirtual_eois.saturating_add(evidence.hyper_v_eois);
    let silent = shows_none_of_its_absence(evidence) && other_eois == 0;
    evidence.by_hardware > 0 || (silent && interrupts >= INTERRUPTS)
}

/// Tests whether interrupt virtualization was active all the time: it was active, and no exit shows its absence.
pub(super) fn is_active_throughout(evidence: &Evidence) -> bool {
    is_active(evidence) && shows_none_of_its_absence(evidence)
}

/// Tests that no exit shows its absence: no EOI, no exit that may be an EOI, and no interrupt window.
fn shows_none_of_its_absence(evidence: &Evidence) -> bool {
    evidence.eois == 0 && evidence.windows == 0 && evidence.page_exits == 0
}
