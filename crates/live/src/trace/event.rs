//! A single event.

use super::ipi::{DeliveryMode, Ipi};
use super::kind::EventKind;
use super::owner::Owner;
use super::state::InhibitReport;
use crate::inhibit::InhibitChange;
use exits::{Direction, ExitReason};
use std::time::SystemTime;

/// The kind of event, with the kernel's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// [`EventKind::Inhibit`], as the kernel reported it.
    Inhibit(InhibitChange),
    /// [`EventKind::Inhibit`], with the VM's state after it.
    InhibitReport(InhibitReport),
    /// [`EventKind::IrqWindow`].
    IrqWindow {
        /// The vCPU, if the kernel reports it (Linux 5.10 and later).
        vcpu: Option<u32>,
        /// `INTERRUPT_WINDOW` or `vintr`.
        reason: ExitReason,
        /// The guest's instruction pointer.
        rip: u64,
    },
    /// [`EventKind::GaLog`].
    GaLog {
        /// KVM's number of the VM in the IOMMU's tables; it cannot be mapped to a process.
        avic_vm: u32,
        /// The vCPU in the IOMMU's tag, a field that the kernel names `vcpuid`: the vCPU's ID before Linux 6.17, its
        /// index since (11a60455d4c9). They differ if the APIC IDs have gaps.
        tag_vcpu: u32,
    },
    /// [`EventKind::PostedInterrupt`].
    PostedInterrupt(IrteUpdate),
    /// [`EventKind::IncompleteIpi`].
    IncompleteIpi {
        /// The sender.
        vcpu: u32,
        /// The IPI that was requested.
        ipi: Ipi,
        /// The failure cause ([`exits::incomplete_ipi_cause`]).
        cause: u32,
        /// The index in the physical or logical APIC ID table of the entry that caused the failure.
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
        /// True if the exit came after the access (a trap), false if before it (a fault).
        trap: bool,
        /// The vector, for an EOI.
        vector: u32,
    },
    /// [`EventKind::Kick`].
    Kick {
        /// The IPI that was requested.
        ipi: Ipi,
        /// The index of the table's entry.
        index: u32,
    },
    /// [`EventKind::AcceptIrq`].
    AcceptIrq {
        /// The target vCPU. (The kernel's field is named `apicid`, but contains the vCPU's number.)
        vcpu: u32,
        /// The delivery mode.
        mode: DeliveryMode,
        /// True if it is level-triggered.
        level: bool,
        /// The vector.
        vector: u32,
    },
    /// [`EventKind::PvEoi`].
    PvEoi {
        /// The vCPU's APIC ID.
        apic_id: u32,
        /// The vector; negative if there was none.
        vector: i32,
    },
}

/// An update of the interrupt remapping table entry for an assigned device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IrteUpdate {
    /// True if the interrupt is posted to the vCPU without the host from now on; otherwise it is remapped as usual.
    pub posted: bool,
    /// The host's interrupt number.
    pub host_irq: u32,
    /// The target vCPU; `None` if there is none (Linux 6.17 and later).
    pub vcpu: Option<u32>,
    /// The guest's interrupt number.
    pub gsi: u32,
    /// The guest's vector.
    pub vector: u32,
    /// The address of the posted-interrupt descriptor or the AVIC backing page, before Linux 6.17.
    pub descriptor: Option<u64>,
}

impl What {
    /// The kind of the event.
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

    /// The vCPU's ID, if the event has it.
    #[must_use]
    pub const fn vcpu(&self) -> Option<u32> {
        match *self {
            Self::IrqWindow { vcpu, .. } | Self::PostedInterrupt(IrteUpdate { vcpu, .. }) => vcpu,
            Self::IncompleteIpi { vcpu, .. }
            | Self::Unaccelerated { vcpu, .. }
            | Self::AcceptIrq { vcpu, .. } => Some(vcpu),
            Self::Inhibit(_)
            | Self::InhibitReport(_)
            | Self::GaLog { .. }
            | Self::Kick { .. }
            | Self::PvEoi { .. } => None,
        }
    }
}

/// An event with its time and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The CPU.
    pub cpu: u32,
    /// The process that was running; 0 or less for the kernel, or if it is not visible.
    pub pid: i32,
    /// Its thread.
    pub tid: i32,
    /// True if it happened in an interrupt, so that it has nothing to do with the process.
    pub in_interrupt: bool,
    /// The event itself.
    pub what: What,
}

/// An event with what is known besides the kernel's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// The event.
    pub event: Event,
    /// Its time of day.
    pub wall: SystemTime,
    /// The process whose VM it is, if known.
    pub owner: Option<Owner>,
}

/// Events that were dropped because a CPU's buffer was full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The time when the loss was noticed, nanoseconds of `CLOCK_MONOTONIC`; the events were lost before.
    pub time_ns: u64,
    /// The same as time of day.
    pub wall: SystemTime,
    /// The CPU; `None` for losses that only the final counts show.
    pub cpu: Option<u32>,
    /// The number of events.
    pub events: u64,
}
