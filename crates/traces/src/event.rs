//! Events, the common form of all formats' records.

use exits::{Access, Direction, ExitReason, Isa};

/// The kind of an event. The comment of each says what an [`Event`] of it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The guest was left. `value`: the reason, see [`Event::exit`]; `extra`: the guest's instruction pointer.
    Exit,
    /// The guest was entered. `value`: the vCPU's number, or [`Event::NO_NUMBER`].
    Entry,
    /// The vCPU waits for a processor, so whatever it left the guest for is handled. `value`: 1 when it slept
    /// until then, 0 when it was pushed off a processor. Only Xen's recordings say so.
    Runnable,
    /// A port was accessed. `value`: its number; `extra`: what was written or read.
    PortRead,
    PortWrite,
    /// An address without memory was accessed. `value`: the address; `extra`: what was written or read.
    MmioRead,
    MmioWrite,
    /// A read that user space has yet to answer. `value`: the address.
    MmioUnsatisfied,
    /// A model-specific register was accessed. `value`: its number; `extra`: what was written or read.
    MsrRead,
    MsrWrite,
    /// A register of the local APIC was emulated. `value`: its offset; `extra`: what was written or read.
    ApicRead,
    ApicWrite,
    /// AVIC could not deliver an IPI. `value`: the cause; `extra`: the interrupt command.
    IncompleteIpi,
    /// AVIC does not accelerate an access. `value`: the register's offset.
    UnacceleratedRead,
    UnacceleratedWrite,
    /// The exit is one of a nested guest. `value`: the reason, as of an exit.
    NestedExit,
    /// It is handed to the guest's own hypervisor. `value`: the reason, as that sees it.
    NestedToL1,
}

/// One event of one vCPU, in 32 bytes: a chunk of them is written and read once for each exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// Nanoseconds of the recording's clock.
    pub(crate) time_ns: u64,
    pub(crate) value: u64,
    pub(crate) extra: u64,
    /// Who: the thread under KVM, what the reader chooses elsewhere. See `Assembly::introduce`.
    pub(crate) thread: u32,
    /// The processor on which it happened.
    pub(crate) cpu: u16,
    pub(crate) kind: Kind,
}

impl Event {
    /// The `value` of an entry that does not say which vCPU it enters.
    pub(crate) const NO_NUMBER: u64 = u64::MAX;

    /// The `value` of an exit of this reason.
    pub(crate) const fn exit(reason: ExitReason) -> u64 {
        let isa = match reason.isa {
            Isa::Vmx => 0,
            Isa::Svm => 1u64 << 32,
        };
        // A widening that `From` cannot do in a constant function.
        #[allow(clippy::cast_lossless)]
        let code = reason.code as u64;
        isa | code
    }

    /// The reason of an exit.
    pub(crate) const fn reason(&self) -> ExitReason {
        Self::reason_of(self.value)
    }

    /// The reason of which this is the `value`.
    const fn reason_of(value: u64) -> ExitReason {
        let isa = if value >> 32 == 0 { Isa::Vmx } else { Isa::Svm };
        ExitReason { isa, code: value as u32 }
    }

    /// The access of an event other than exit and entry.
    pub(crate) fn access(&self) -> Option<Access> {
        self.kind.access(self.value)
    }
}

impl Kind {
    pub(crate) const MSR: u8 = 2;
    pub(crate) const APIC: u8 = 3;
    /// The sort of what AVIC's events tell: they say why there was an exit, so the whole exit is theirs.
    pub(crate) const WHOLE: u8 = 4;
    /// The sort of what says whose exit it was: the whole exit is theirs too.
    pub(crate) const NESTED: u8 = 5;
    /// By kind. A table, since the kinds follow each other without a rule that a processor could learn.
    const SORTS: [u8; 32] = {
        let mut sorts = [Self::WHOLE; 32];
        (sorts[Self::PortRead as usize], sorts[Self::PortWrite as usize]) = (0, 0);
        (sorts[Self::MmioRead as usize], sorts[Self::MmioWrite as usize]) = (1, 1);
        (sorts[Self::MsrRead as usize], sorts[Self::MsrWrite as usize]) = (Self::MSR, Self::MSR);
        (sorts[Self::ApicRead as usize], sorts[Self::ApicWrite as usize]) = (Self::APIC, Self::APIC);
        sorts[Self::NestedExit as usize] = Self::NESTED;
        sorts[Self::NestedToL1 as usize] = Self::NESTED;
        sorts
    };

    /// Which accesses take each other's place: those of the same sort in one exit.
    #[inline]
    pub(crate) const fn sort(self) -> u8 {
        Self::SORTS[self as usize % 32]
    }

    /// The port, address or register of an event of this kind and value, if it has one.
    pub(crate) fn access(self, value: u64) -> Option<Access> {
        let number = value as u32;
        let port = |direction| Access::Port { port: value as u16, direction };
        let mmio = |direction| Access::Mmio { address: value, direction };
        let msr = |direction| Access::Msr { number, direction };
        let apic = |direction| Access::Apic { register: number, direction };
        let unaccelerated = |direction| Access::Unaccelerated { register: number, direction };
        Some(match self {
            Self::Exit | Self::Entry | Self::Runnable => return None,
            Self::PortRead => port(Direction::Read),
            Self::PortWrite => port(Direction::Write),
            Self::MmioRead | Self::MmioUnsatisfied => mmio(Direction::Read),
            Self::MmioWrite => mmio(Direction::Write),
            Self::MsrRead => msr(Direction::Read),
            Self::MsrWrite => msr(Direction::Write),
            Self::ApicRead => apic(Direction::Read),
            Self::ApicWrite => apic(Direction::Write),
            Self::IncompleteIpi => Access::IncompleteIpi { id: number },
            Self::UnacceleratedRead => unaccelerated(Direction::Read),
            Self::UnacceleratedWrite => unaccelerated(Direction::Write),
            Self::NestedExit => Access::Nested { reason: Event::reason_of(value), to_l1: false },
            Self::NestedToL1 => Access::Nested { reason: Event::reason_of(value), to_l1: true },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_both_ways() {
        for reason in [ExitReason::vmx(0x8000_0021), ExitReason::svm(u32::MAX), ExitReason::svm(0)] {
            let value = Event::exit(reason);
            let event = Event { time_ns: 0, value, extra: 0, thread: 0, cpu: 0, kind: Kind::Exit };
            assert_eq!(event.reason(), reason);
        }
    }

    #[test]
    fn events_stay_small() {
        assert_eq!(size_of::<Event>(), 32);
    }
}
