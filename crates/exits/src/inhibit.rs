//! The reasons for which KVM inhibits interrupt virtualization.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A reason for which KVM inhibits APICv or AVIC, for a VM or for one vCPU.
///
/// From `enum kvm_apicv_inhibit` in Linux's `arch/x86/include/asm/kvm_host.h`. The numbers of these names
/// changed with Linux 5.19, 6.0 and 6.3, so a number is converted to a reason by an
/// [`crate::InhibitNumbering`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum InhibitReason {
    /// Interrupt virtualization is off in the module, or the CPU does not support it.
    Disabled,
    /// The guest uses AutoEOI of Hyper-V's SynIC.
    HyperV,
    /// No in-kernel local APIC exists (yet).
    Absent,
    /// A debugger asked KVM to block interrupts.
    BlockIrq,
    /// Several vCPUs have the same APIC ID.
    PhysicalIdAliased,
    /// The guest wrote its APIC ID.
    ApicIdModified,
    /// The guest moved its APIC base address.
    ApicBaseModified,
    /// The vCPU runs a nested guest (AMD).
    Nested,
    /// KVM waits for an interrupt window (AMD).
    IrqWindow,
    /// The in-kernel PIT reinjects lost ticks (AMD).
    PitReinject,
    /// The guest's memory is encrypted (AMD).
    Sev,
    /// Several vCPUs have the same logical APIC ID (AMD).
    LogicalIdAliased,
    /// A vCPU's APIC ID is larger than the hardware's table allows (AMD).
    PhysicalIdTooBig,
    /// The guest is offered x2APIC (AMD, Linux 5.6 to 5.19 only).
    X2Apic,
}

/// The facts about one reason.
struct Facts {
    reason: InhibitReason,
    name: &'static str,
    set_by: &'static str,
    cure: &'static str,
}

/// Sources: the comments of `enum kvm_apicv_inhibit` and the callers of `kvm_set_apicv_inhibit` in
/// `arch/x86/kvm` (x86.c, lapic.c, hyperv.c, i8254.c, svm/avic.c, svm/sev.c, svm/svm.c).
const FACTS: &[Facts] = &[
    Facts {
        reason: InhibitReason::Disabled,
        name: "DISABLED",
        set_by: "the module parameter is off, or the CPU lacks APICv or AVIC",
        cure: "load kvm_intel with enable_apicv=1 or kvm_amd with avic=1",
    },
    Facts {
        reason: InhibitReason::HyperV,
        name: "HYPERV",
        set_by: "the guest enabled AutoEOI of Hyper-V's synthetic interrupt controller",
        cure: "offer hv-avic (hv-apicv), which advises the guest against AutoEOI (Linux 5.15), or leave hv-synic out",
    },
    Facts {
        reason: InhibitReason::Absent,
        name: "ABSENT",
        set_by: "the VM has no in-kernel local APIC; normal for a moment while a VM is created",
        cure: "if it stays: use kernel-irqchip=split (or on) instead of off",
    },
    Facts {
        reason: InhibitReason::BlockIrq,
        name: "BLOCKIRQ",
        set_by: "user space debugs the guest with KVM_GUESTDBG_BLOCKIRQ",
        cure: "detach the debugger, or single-step with interrupts allowed (QEMU: sstep flags)",
    },
    Facts {
        reason: InhibitReason::PhysicalIdAliased,
        name: "PHYSICAL_ID_ALIASED",
        set_by: "two vCPUs share an APIC ID, or KVM could not allocate its APIC map",
        cure: "start the VM with distinct APIC IDs and x2APIC; a reboot of the guest clears it",
    },
    Facts {
        reason: InhibitReason::ApicIdModified,
        name: "APIC_ID_MODIFIED",
        set_by: "the guest changed its xAPIC ID from the one that the VMM gave",
        cure: "use a guest kernel that leaves the ID alone, or x2APIC, where the ID is read-only; once set it stays until the VM's process is started anew",
    },
    Facts {
        reason: InhibitReason::ApicBaseModified,
        name: "APIC_BASE_MODIFIED",
        set_by: "the guest moved its APIC away from 0xfee00000",
        cure: "use a guest that leaves the APIC base alone; once set it stays until the VM's process is started anew",
    },
    Facts {
        reason: InhibitReason::Nested,
        name: "NESTED",
        set_by: "the vCPU runs a nested guest; in Linux 5.6 to 5.18 already offering SVM to the guest sets it",
        cure: "run no nested guest, or remove svm from the guest's CPU model",
    },
    Facts {
        reason: InhibitReason::IrqWindow,
        name: "IRQWIN",
        set_by: "an interrupt of the emulated PIC waits for the guest to enable interrupts; short",
        cure: "if frequent: use a guest that routes by APICs, not by the PIC (ExtINT): Linux without noapic",
    },
    Facts {
        reason: InhibitReason::PitReinject,
        name: "PIT_REINJ",
        set_by: "the in-kernel PIT is in reinject mode, which needs to see every EOI",
        cure: "use -global kvm-pit.lost_tick_policy=discard",
    },
    Facts {
        reason: InhibitReason::Sev,
        name: "SEV",
        set_by: "the guest's memory is encrypted (SEV), which AVIC cannot share",
        cure: "none while SEV is on",
    },
    Facts {
        reason: InhibitReason::LogicalIdAliased,
        name: "LOGICAL_ID_ALIASED",
        set_by: "two vCPUs share a logical APIC ID (LDR)",
        cure: "use x2APIC, where the logical ID follows from the APIC ID, or physical destination mode",
    },
    Facts {
        reason: InhibitReason::PhysicalIdTooBig,
        name: "PHYSICAL_ID_TOO_BIG",
        set_by: "a vCPU's APIC ID exceeds AVIC's table (8 bits) or x2AVIC's (9 bits, 12 on later CPUs)",
        cure: "use fewer vCPUs or a topology with smaller APIC IDs, or a host with x2AVIC",
    },
    Facts {
        reason: InhibitReason::X2Apic,
        name: "X2APIC",
        set_by: "the guest is offered x2APIC, which AVIC of Linux before 6.0 could not do",
        cure: "run Linux 6.0 or newer on the host, or start the VM with -cpu ...,-x2apic",
    },
];

impl InhibitReason {
    fn facts(self) -> &'static Facts {
        FACTS.iter().find(|facts| facts.reason == self).expect("every reason has a row; a test holds it so")
    }

    /// The reasons of all kernels.
    pub fn all() -> impl Iterator<Item = Self> {
        FACTS.iter().map(|facts| facts.reason)
    }

    /// The kernel's name without `APICV_INHIBIT_REASON_`, as in `kvm_apicv_inhibit_changed`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Its cause, in one line.
    #[must_use]
    pub fn set_by(self) -> &'static str {
        self.facts().set_by
    }

    /// Its fix, in one line.
    #[must_use]
    pub fn cure(self) -> &'static str {
        self.facts().cure
    }

    /// Tests whether the reason is temporary in a healthy VM, so that a single occurrence means nothing.
    #[must_use]
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Absent | Self::IrqWindow)
    }
}

impl fmt::Display for InhibitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error of a word that is not an inhibit reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an APICv inhibit reason; expected a name such as IRQWIN or PIT_REINJ")]
pub struct UnknownInhibit(pub String);

impl FromStr for InhibitReason {
    type Err = UnknownInhibit;

    /// Parses the short name, the enumerator's full name, and `DISABLE` (the spelling before Linux 6.11).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let short = text.strip_prefix("APICV_INHIBIT_REASON_").unwrap_or(text);
        let short = if short == "DISABLE" { "DISABLED" } else { short };
        FACTS
            .iter()
            .find(|facts| facts.name == short)
            .map(|facts| facts.reason)
            .ok_or_else(|| UnknownInhibit(text.to_owned()))
    }
}

impl Serialize for InhibitReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for InhibitReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_both_ways_and_every_reason_has_a_row() {
        use InhibitReason::*;
        let every = [
            Disabled,
            HyperV,
            Absent,
            BlockIrq,
            PhysicalIdAliased,
            ApicIdModified,
            ApicBaseModified,
            Nested,
            IrqWindow,
            PitReinject,
            Sev,
            LogicalIdAliased,
            PhysicalIdTooBig,
            X2Apic,
        ];
        assert_eq!(InhibitReason::all().collect::<Vec<_>>(), every);
        for reason in every {
            assert_eq!(reason.name().parse(), Ok(reason));
            assert!(!reason.set_by().is_empty() && !reason.cure().is_empty());
        }
        assert_eq!("APICV_INHIBIT_REASON_DISABLE".parse(), Ok(Disabled));
        assert!("irqwin".parse::<InhibitReason>().is_err());
    }

    #[test]
    fn serde_is_the_name() {
        assert_eq!(serde_json::to_string(&InhibitReason::PitReinject).unwrap(), "\"PIT_REINJ\"");
        let back: InhibitReason = serde_json::from_str("\"SEV\"").unwrap();
        assert_eq!(back, InhibitReason::Sev);
    }
}
