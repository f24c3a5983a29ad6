//! Events, the common form of the records of all formats.

use exits::{Access, Direction, ExitReason, Isa};

/// The kind of an event. The comment of each tells what an [`Event`] of this kind contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An exit. `value`: the reason, see [`Event::exit`]; `extra`: the guest's instruction pointer.
    Exit,
    /// An entry. `value`: the vCPU's number, or [`Event::NO_NUMBER`].
    Entry,
    /// The vCPU became runnable, so its exit has been handled. `value`: 1 if it was blocked before, 0 if it was
    /// preempted. Only in recordings of Xen.
    Runnable,
    /// An access to an I/O port. `value`: its number; `extra`: the data.
    PortRead,
    PortWrite,
    /// An access to an address without memory. `value`: the address; `extra`: the data.
    MmioRead,
    MmioWrite,
    /// A read that user space has to complete. `value`: the address.
    MmioUnsatisfied,
    /// A write that KVM ends by its address alone. `value`: the address.
    FastMmio,
    /// An access to an MSR. `value`: its number; `extra`: the data.
    MsrRead,
    MsrWrite,
    /// An emulated access to a register of the local APIC. `value`: its offset; `extra`: the data.
    ApicRead,
    ApicWrite,
    /// An IPI that AVIC could not deliver. `value`: the cause; `extra`: the ICR.
    IncompleteIpi,
    /// An access that AVIC does not accelerate. `value`: the register's offset.
    UnacceleratedRead,
    UnacceleratedWrite,
    /// The exit is that of a nested guest. `value`: the reason, as of an exit.
    NestedExit,
    /// The exit is injected into the guest hypervisor. `value`: the reason that it sees.
    NestedToL1,
}

/// One event of one vCPU. Kept to 32 bytes, because chunks of them are written and read for each exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// Nanoseconds of the recording's clock.
    pub(crate) time_ns: u64,
    pub(crate) value: u64,
    pub(crate) extra: u64,
    /// The thread under KVM; elsewhere a key that the reader chooses. See `Assembly::introduce`.
    pub(crate) thread: u32,
    /// The CPU on which it occurred.
    pub(crate) cpu: u16,
    pub(crate) kind: Kind,
}

impl Event {
    /// The `value` of an entry without the vCPU's number.
    pub(crate) const NO_NUMBER: u64 = u64::MAX;

    /// The `value` of an exit with this reason.
    pub(crate) const fn exit(reason: ExitReason) -> u64 {
        let isa = match reason.isa {
            Isa::Vmx => 0,
            Isa::Svm => 1u64 << 32,
        };
        // Like `u64::from`, which is not const.
        #[allow(clippy::cast_lossless)]
        let code = reason.code as u64;
        isa | code
    }

    /// The reason of an exit event.
    pub(crate) const fn reason(&self) -> ExitReason {
        Self::reason_of(self.value)
    }

    /// The reason with this `value`.
    const fn reason_of(value: u64) -> ExitReason {
        let isa = if value >> 32 == 0 { Isa::Vmx } else { Isa::Svm };
        ExitReason { isa, code: value as u32 }
    }

    /// The access of an event that is neither exit nor entry.
    pub(crate) fn access(&self) -> Option<Access> {
        self.kind.access(self.value)
    }
}

impl Kind {
    pub(crate) const MSR: u8 = 2;
    pub(crate) const APIC: u8 = 3;
    /// The class of AVIC's events and of [`Self::FastMmio`]: they describe the exit itself, so they take as long as the exit.
    pub(crate) const WHOLE: u8 = 4;
    /// The class of nested exits: they take as long as the exit too.
    pub(crate) const NESTED: u8 = 5;
    /// The class by kind. A table, because the order of kinds is too irregular for branch prediction.
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

    /// The class of accesses: in one exit, a later access replaces an earlier one of the same class.
    #[inline]
    pub(crate) const fn sort(self) -> u8 {
        Self::SORTS[self as usize % 32]
    }

    /// The port, address or register of an event with this kind and value, if it has one.
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
            Self::FastMmio => Access::FastMmio { address: value },
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
    fn a_store_that_kvm_ends_by_its_address_takes_as_long_as_its_exit() {
        let access = Kind::FastMmio.access(0xfe00_3000);
        assert_eq!(access, Some(Access::FastMmio { address: 0xfe00_3000 }));
        assert_eq!(Kind::FastMmio.sort(), Kind::WHOLE);
    }

    #[test]
    fn events_stay_small() {
        assert_eq!(size_of::<Event>(), 32);
    }
}
