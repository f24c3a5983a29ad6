//! The kinds of events that can be traced.

use crate::inhibit::{CHANGED, UPDATE_REQUEST};
use exits::KernelVersion;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A kind of event, named as on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A reason to inhibit APICv or AVIC was set or cleared.
    Inhibit,
    /// An exit because the guest can take an interrupt now (`INTERRUPT_WINDOW`, `vintr`).
    IrqWindow,
    /// The IOMMU logged an interrupt for a vCPU that was not running (AMD).
    GaLog,
    /// A device's interrupt is posted to a vCPU from now on, or no longer.
    PostedInterrupt,
    /// An IPI that AVIC could not deliver.
    IncompleteIpi,
    /// An access to an APIC register that AVIC does not accelerate.
    Unaccelerated,
    /// KVM had to search for the targets of an incomplete IPI.
    Kick,
    /// KVM handed an interrupt to APICv or AVIC.
    AcceptIrq,
    /// An EOI through the paravirtual flag.
    PvEoi,
}

struct Facts {
    kind: EventKind,
    name: &'static str,
    /// The tracepoints in the subsystem `kvm`; the first one that exists is used.
    tracepoints: &'static [&'static str],
    /// The first mainline kernel that has the first of them.
    since: KernelVersion,
    by_default: bool,
}

const fn facts(
    kind: EventKind,
    name: &'static str,
    tracepoints: &'static [&'static str],
    since: (u16, u16),
    by_default: bool,
) -> Facts {
    Facts { kind, name, tracepoints, since: KernelVersion::new(since.0, since.1), by_default }
}

/// Tracepoints: `arch/x86/kvm/trace.h`.
const FACTS: &[Facts] = &[
    facts(EventKind::Inhibit, "inhibit", &[CHANGED, UPDATE_REQUEST], (5, 6), true),
    facts(EventKind::IrqWindow, "irq-window", &["kvm_exit"], (2, 6), true),
    facts(EventKind::GaLog, "ga-log", &["kvm_avic_ga_log"], (4, 9), true),
    facts(EventKind::PostedInterrupt, "posted-interrupt", &["kvm_pi_irte_update"], (4, 4), true),
    facts(EventKind::IncompleteIpi, "incomplete-ipi", &["kvm_avic_incomplete_ipi"], (4, 7), true),
    facts(EventKind::Unaccelerated, "unaccelerated", &["kvm_avic_unaccelerated_access"], (4, 7), true),
    facts(EventKind::Kick, "kick", &["kvm_avic_kick_vcpu_slowpath"], (5, 19), true),
    // With APICv or AVIC, these two occur with every interrupt.
    facts(EventKind::AcceptIrq, "accept-irq", &["kvm_apicv_accept_irq"], (5, 17), false),
    facts(EventKind::PvEoi, "pv-eoi", &["kvm_pv_eoi"], (3, 6), false),
];

impl EventKind {
    fn facts(self) -> &'static Facts {
        FACTS.iter().find(|facts| facts.kind == self).expect("every kind has a row; a test holds it so")
    }

    /// Every kind.
    pub fn all() -> impl Iterator<Item = Self> {
        FACTS.iter().map(|facts| facts.kind)
    }

    /// Its name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Tests whether it is traced by default. Not if it occurs thousands of times a second in healthy VMs.
    #[must_use]
    pub fn is_default(self) -> bool {
        self.facts().by_default
    }

    /// The tracepoints in the subsystem `kvm` that report it; the first one that the kernel has is used.
    #[must_use]
    pub fn tracepoints(self) -> &'static [&'static str] {
        self.facts().tracepoints
    }

    /// The first mainline kernel that reports it.
    #[must_use]
    pub fn since(self) -> KernelVersion {
        self.facts().since
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The error of a word that is not a kind of event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kind of event; expected one of {names}", names = names())]
pub struct UnknownEventKind(pub String);

fn names() -> String {
    EventKind::all().map(EventKind::name).collect::<Vec<_>>().join(", ")
}

impl FromStr for EventKind {
    type Err = UnknownEventKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::all().find(|kind| kind.name() == text).ok_or_else(|| UnknownEventKind(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_both_ways_and_every_kind_has_a_row() {
        use EventKind::*;
        let every = [
            Inhibit,
            IrqWindow,
            GaLog,
            PostedInterrupt,
            IncompleteIpi,
            Unaccelerated,
            Kick,
            AcceptIrq,
            PvEoi,
        ];
        assert_eq!(EventKind::all().collect::<Vec<_>>(), every);
        for kind in every {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "exits".parse::<EventKind>().unwrap_err();
        assert!(error.to_string().contains("irq-window"), "{error}");
    }
}
