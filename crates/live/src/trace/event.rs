//! One event.

use super::ipi::{DeliveryMode, Ipi};
use super::kind::EventKind;
use super::owner::Owner;
use super::state::InhibitReport;
use crate::inhibit::InhibitChange;
use exits::{Direction, ExitReason};
use std::time::SystemTime;

/// The event, with the fields of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// [`EventKind::Inhibit`], as the kernel reported it.
    Inhibit(InhibitChange),
    /// [`EventKind::Inhibit`], with what it means for the VM.
    InhibitReport(InhibitReport),
    /// [`EventKind::IrqWindow`].
    IrqWindow {
        /// The vCPU, where the kernel says (Linux 5.10 and later).
        vcpu: Option<u32>,
        /// `INTERRUPT_WINDOW` or `vintr`.
        reason: ExitReason,
        /// The guest's instruction.
        rip: u64,
    },
    /// [`EventKind::GaLog`].
    GaLog {
        /// KVM's number of the VM in the IOMMU's tables; nothing leads from it to a process.
        avic_vm: u32,
        /// The vCPU.
        vcpu: u32,
    },
    /// [`EventKind::PostedInterrupt`].
    PostedInterrupt(IrteUpdate),
    /// [`EventKind::IncompleteIpi`].
    IncompleteIpi {
        /// The sender.
        vcpu: u32,
        /// The IPI that was to be sent.
        ipi: Ipi,
        /// The reason why it was not ([`exits::incomplete_ipi_cause`]).
        cause: u32,
        /// The entry of the physical or logical APIC ID table that stood in the way.
        index: u32,
    },
    /// [`EventKind::Unaccelerated`].
    Unaccelerated {
        /// The vCPU.
        vcpu: u32,
        /// The register's offset in the APIC page, bytes.
        register: u32,
        /// Read or write.
        direction: Direction,
        /// The exit came after the access (a trap) and not before it (a fault).
        trap: bool,
        /// The vector, for an EOI.
        vector: u32,
    },
    /// [`EventKind::Kick`].
    Kick {
        /// The IPI that was to be sent.
        ipi: Ipi,
        /// The table's entry.
        index: u32,
    },
    /// [`EventKind::AcceptIrq`].
    AcceptIrq {
        /// The target. (The kernel calls the field `apicid`, and puts the vCPU's number there.)
        vcpu: u32,
        /// How.
        mode: DeliveryMode,
        /// It is level-triggered.
        level: bool,
        /// The vector.
        vector: u32,
    },
    /// [`EventKind::PvEoi`].
    PvEoi {
        /// The vCPU's APIC ID.
        apic_id: u32,
        /// The vector; negative when there was none.
        vector: i32,
    },
}

/// An entry of the interrupt remapping table was written for a device that is assigned to a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IrteUpdate {
    /// The interrupt goes to the vCPU without the host from now on; otherwise it is remapped as usual.
    pub posted: bool,
    /// The host's interrupt.
    pub host_irq: u32,
    /// The target; `None` where there is none (Linux 6.17 and later).
    pub vcpu: Option<u32>,
    /// The guest's interrupt.
    pub gsi: u32,
    /// The guest's vector.
    pub vector: u32,
    /// Address of the posted-interrupt descriptor or AVIC backing page, before Linux 6.17.
    pub descriptor: Option<u64>,
}

impl What {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Inhibit(_) | Self::InhibitReport(_) => EventKind::Inhibit,
            Self::IrqWindow { .. } => EventKind::IrqWindow,
            Self::GaLog { .. } => EventKind::GaLog,
            Self::PostedInterrupt(_) => EventKind::PostedInterrupt,
            Self::IncompleteIpi { .. } => EventKind::IncompleteIpi,
            Self::Unaccelerated { .. } => EventKind::Unaccelerated,
            Self::Kick { .. } => EventKind::Kick,
            Self::AcceptIrq { .. } => EventKind::AcceptIrq,
            Self::PvEoi { .. } => EventKind::PvEoi,
        }
    }

    /// The vCPU that it is about, where the event says.
    #[must_use]
    pub const fn vcpu(&self) -> Option<u32> {
        match *self {
            Self::IrqWindow { vcpu, .. } | Self::PostedInterrupt(IrteUpdate { vcpu, .. }) => vcpu,
            Self::GaLog { vcpu, .. }
            | Self::IncompleteIpi { vcpu, .. }
            | Self::Unaccelerated { vcpu, .. }
            | Self::AcceptIrq { vcpu, .. } => Some(vcpu),
            Self::Inhibit(_) | Self::InhibitReport(_) | Self::Kick { .. } | Self::PvEoi { .. } => None,
        }
    }
}

/// The place and the time of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The CPU.
    pub cpu: u32,
    /// The process that ran on it; 0 and below are the kernel's, or out of sight.
    pub pid: i32,
    /// Its thread.
    pub tid: i32,
    /// It happened in an interrupt, so that the process has nothing to do with it.
    pub in_interrupt: bool,
    /// What.
    pub what: What,
}

/// An event, with what is known beside the kernel's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// The event.
    pub event: Event,
    /// Its time of day.
    pub wall: SystemTime,
    /// The process whose VM it is about, where that is known.
    pub owner: Option<Owner>,
}

/// Events that found no room in a CPU's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// When it was noticed, nanoseconds of `CLOCK_MONOTONIC`; the events were lost before.
    pub time_ns: u64,
    /// The same as time of day.
    pub wall: SystemTime,
    /// The CPU; `None` for what the final count alone shows.
    pub cpu: Option<u32>,
    /// The number of events.
    pub events: u64,
}
