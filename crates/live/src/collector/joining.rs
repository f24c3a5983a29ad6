//! Joins the BPF programs' records to exits with their accesses.

use std::collections::BTreeMap;

use exits::{Access, ExitReason, Isa, Vcpu};

use super::cells::{access, vcpu};

/// A time that the BPF programs do not know (`UNKNOWN`).
const UNKNOWN: u64 = u64::MAX;

/// An exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveExit {
    /// The time of the exit, nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The vCPU.
    pub vcpu: Vcpu,
    /// The processor that left the guest.
    pub cpu: u16,
    /// The exit reason.
    pub reason: ExitReason,
    /// The time to the next entry, nanoseconds; `None` if another exit came first.
    pub handling_ns: Option<u64>,
}

/// A port, address or register that the host handled in an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveAccess {
    /// The port, address or register.
    pub access: Access,
    /// The handling time in nanoseconds, by the rules of `perf kvm stat`; `None` if it is not known, or if a later
    /// access of the same class followed in the same exit.
    pub handling_ns: Option<u64>,
}

/// `struct record` of the BPF programs.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Record {
    exit_ns: u64,
    handling_ns: u64,
    value: u64,
    since_ns: u64,
    process: u32,
    thread: u32,
    vcpu: u32,
    kind: u32,
    cpu: u16,
    is_access: u16,
    unused: u32,
}

impl Record {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        // perf pads records, so they may be longer.
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: long enough, checked above; plain numbers, read without regard to alignment.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// The sort key for records of a vCPU that ran on several CPUs.
    pub(super) fn order(&self) -> u64 {
        self.since_ns
    }

    fn handling_ns(&self) -> Option<u64> {
        (self.handling_ns != UNKNOWN).then_some(self.handling_ns)
    }

    fn exit(&self, isa: Isa) -> LiveExit {
        LiveExit {
            time_ns: self.exit_ns,
            vcpu: vcpu(self.process, self.vcpu, self.thread),
            cpu: self.cpu,
            // The BPF programs also keep 32 bits of it.
            reason: ExitReason { isa, code: self.value as u32 },
            handling_ns: self.handling_ns(),
        }
    }
}

/// Joins exits with their accesses, whose records come first.
#[derive(Default)]
pub(super) struct Joining {
    waiting: BTreeMap<u32, Vec<Record>>,
    accesses: Vec<LiveAccess>,
}

impl Joining {
    pub(super) fn take(&mut self, record: Record, isa: Isa, to: &mut impl FnMut(&LiveExit, &[LiveAccess])) {
        if record.is_access != 0 {
            self.waiting.entry(record.thread).or_default().push(record);
            return;
        }
        self.close(&record.exit(isa), to);
    }

    /// Passes on an exit with its accesses.
    pub(super) fn close(&mut self, exit: &LiveExit, to: &mut impl FnMut(&LiveExit, &[LiveAccess])) {
        self.accesses.clear();
        // Accesses with another exit's time belong to an exit whose record was lost.
        let thread = exit.vcpu.thread.and_then(|thread| self.waiting.remove(&thread));
        let mut waiting = thread.unwrap_or_default();
        // Those that waited for the time of a long exit come by class.
        waiting.sort_by_key(Record::order);
        let its: Vec<&Record> = waiting.iter().filter(|access| access.exit_ns == exit.time_ns).collect();
        for (at, one) in its.iter().enumerate() {
            let Some(access) =
                u8::try_from(one.kind).ok().and_then(|kind| access(exit.reason.isa, kind, one.value))
            else {
                continue;
            };
            let later = its[at + 1..].iter().any(|later| sort(later.kind) == sort(one.kind));
            let to_entry = || Some((exit.time_ns + exit.handling_ns?).saturating_sub(one.since_ns));
            let handling_ns = match is_mmio_read(one.kind) {
                true => one.handling_ns(),
                false => to_entry().filter(|_| !later),
            };
            self.accesses.push(LiveAccess { access, handling_ns });
        }
        to(exit, &self.accesses);
    }
}

/// The class of an access kind (`enum sort`). In one exit, only the last access of a class is timed up to the entry.
const fn sort(kind: u32) -> u32 {
    // Two kinds each for ports, addresses, MSRs and APIC registers; three for AVIC, in whose class are stores that KVM ends
    // by their address; the others are of nested guests.
    match kind {
        0..=8 => kind.div_ceil(2),
        9..=11 | 14 => 5,
        _ => 6,
    }
}

const fn is_mmio_read(kind: u32) -> bool {
    kind == 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::Direction;

    fn record(
        is_access: u16,
        exit_ns: u64,
        since_ns: u64,
        handling_ns: u64,
        kind: u32,
        value: u64,
    ) -> Record {
        let (process, thread, vcpu) = (10, 11, 0);
        Record {
            exit_ns,
            handling_ns,
            value,
            since_ns,
            process,
            thread,
            vcpu,
            kind,
            cpu: 1,
            is_access,
            unused: 0,
        }
    }

    fn joined(records: &[Record]) -> Vec<(LiveExit, Vec<LiveAccess>)> {
        let mut joining = Joining::default();
        let mut all = Vec::new();
        for &record in records {
            joining.take(record, Isa::Svm, &mut |exit, accesses| all.push((*exit, accesses.to_vec())));
        }
        all
    }

    #[test]
    fn accesses_are_timed_as_perf_times_them() {
        let all = joined(&[
            // Two writes to the same class: only the second is timed. The handling of an MMIO read ends with its
            // event.
            record(1, 100, 110, UNKNOWN, 6, 0x830),
            record(1, 100, 120, UNKNOWN, 6, 0x80b),
            record(1, 100, 130, 30, 3, 0xfee0_0000),
            record(0, 100, 100, 50, 0, 0x7c),
            // An access of another exit, whose record was lost.
            record(1, 190, 195, UNKNOWN, 2, 0x3f8),
            record(0, 200, 200, UNKNOWN, 0, 0x7b),
        ]);
        let write = Direction::Write;
        let (exit, accesses) = &all[0];
        assert_eq!((exit.time_ns, exit.handling_ns, exit.reason), (100, Some(50), ExitReason::svm(0x7c)));
        assert_eq!(
            accesses.as_slice(),
            [
                LiveAccess { access: Access::Msr { number: 0x830, direction: write }, handling_ns: None },
                LiveAccess { access: Access::Msr { number: 0x80b, direction: write }, handling_ns: Some(30) },
                LiveAccess {
                    access: Access::Mmio { address: 0xfee0_0000, direction: Direction::Read },
                    handling_ns: Some(30)
                },
            ]
        );
        assert_eq!((all[1].0.handling_ns, all[1].1.len()), (None, 0));
    }

    #[test]
    fn a_store_that_kvm_ends_by_its_address_takes_as_long_as_its_exit() {
        let all = joined(&[record(1, 100, 100, UNKNOWN, 14, 0xfe00_3000), record(0, 100, 150, 50, 0, 0x400)]);
        let access = Access::FastMmio { address: 0xfe00_3000 };
        assert_eq!(all[0].1, [LiveAccess { access, handling_ns: Some(50) }]);
    }

    #[test]
    fn nothing_is_kept_of_threads_whose_exits_are_over() {
        let mut joining = Joining::default();
        for thread in 1..1000 {
            for one in [record(1, 100, 110, UNKNOWN, 6, 0x830), record(0, 100, 100, 50, 0, 0x7c)] {
                joining.take(Record { thread, ..one }, Isa::Svm, &mut |_, accesses| {
                    assert!(accesses.len() < 2);
                });
            }
        }
        assert!(joining.waiting.is_empty(), "{}", joining.waiting.len());
    }

    #[test]
    fn accesses_that_come_by_class_are_given_in_order() {
        let all = joined(&[
            record(1, 100, 120, UNKNOWN, 6, 0x830),
            record(1, 100, 110, UNKNOWN, 8, 0x300),
            record(0, 100, 150, 50, 0, 0x7c),
        ]);
        let write = Direction::Write;
        let expected = [
            LiveAccess { access: Access::Apic { register: 0x300, direction: write }, handling_ns: Some(40) },
            LiveAccess { access: Access::Msr { number: 0x830, direction: write }, handling_ns: Some(30) },
        ];
        assert_eq!(all[0].1, expected);
    }

    #[test]
    fn what_is_too_short_is_no_record() {
        assert!(Record::read(&[0; size_of::<Record>() - 1]).is_none());
        assert!(Record::read(&[0; size_of::<Record>() + 4]).is_some());
    }
}
