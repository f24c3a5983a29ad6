//! Makes exits of one vCPU's events in order.
//!
//! The rules are those of `perf kvm stat` (`tools/perf/util/kvm-stat.c` and `arch/x86/util/kvm-stat.c` of Linux): an
//! exit is handled until the next entry; a port, an MSR and an MMIO write from their event to the next entry; an MMIO
//! read from the exit to its event. Unlike in perf, nothing is timed across a loss of events, and accesses in SVM's
//! fast path before `kvm_exit` belong to that exit.
//!
//! Recordings of Xen follow the rules of `xenalyze` (`tools/xentrace/xenalyze.c` of Xen): the exit of a vCPU that was
//! descheduled is handled until the vCPU is runnable again, and accesses, which have no time, take as long as their
//! exit.

use exits::{Access, ExitReason, Losses, Timeline};

use crate::AccessRecord;
use crate::bounded::{AccessRoom, ReasonRoom};
use crate::event::{Event, Kind};
use crate::losses::LossMarks;
use crate::rows::{AccessRows, ReasonRows};

/// The state that all vCPUs share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) timeline: Timeline,
    pub(crate) losses: Losses,
    pub(crate) marks: LossMarks,
    /// The number of rows of accesses that can still be created.
    pub(crate) access_room: AccessRoom,
    /// The number of rows by reason that can still be created.
    pub(crate) reason_room: ReasonRoom,
    /// The exits for which there was no room; their rows have no times.
    pub(crate) beyond: ReasonRows,
    /// Accesses have no times of their own and take as long as their exit.
    pub(crate) whole_exits: bool,
    /// The sink wants all accesses of the exits.
    pub(crate) note_accesses: bool,
    /// Only exits from this time on and before `to_ns` count; nanoseconds of the recording's clock.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

/// A closed exit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    pub(crate) exit: Open,
    pub(crate) access: Option<Access>,
    pub(crate) handling_ns: Option<u64>,
}

/// An exit that waits for its entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) time_ns: u64,
    pub(crate) guest_rip: u64,
    pub(crate) cpu: u16,
    pub(crate) reason: ExitReason,
    row: u16,
    /// The row is in [`Shared::beyond`].
    beyond: bool,
}

impl Default for Open {
    fn default() -> Self {
        Self { time_ns: 0, guest_rip: 0, cpu: 0, reason: ExitReason::vmx(0), row: 0, beyond: false }
    }
}

/// The end of the handling of an exit.
#[derive(Debug, Clone, Copy)]
struct End {
    time_ns: u64,
    cpu: u16,
    /// The vCPU was blocked before, so a loss on any CPU may be part of the exit.
    slept: bool,
}

/// An access that is handled until the next entry.
#[derive(Debug, Clone, Copy, Default)]
struct Pending {
    since_ns: u64,
    row: u32,
    /// It takes as long as the exit.
    whole: bool,
    /// Its index in `noted`, if it is there.
    noted: Option<u32>,
}

/// The most accesses that are noted for one exit: far more than an instruction makes, so that a corrupt recording
/// needs no more memory than its events.
const MOST_NOTED: usize = 1 << 16;

/// The most accesses that may precede their exit: far more than an instruction makes.
const MOST_EARLY: usize = 16;
/// The exit that may come after its accesses. Up to Linux 6.4, SVM's fast path handles the write of the ICR before
/// `kvm_exit` (`svm_exit_handlers_fastpath` in `arch/x86/kvm/svm/svm.c`).
const LATE: ExitReason = ExitReason::svm(0x7c);

/// The accesses that wait for the entry; as in perf, one of each class ([`Kind::sort`]).
#[derive(Debug, Default)]
struct Waiting {
    pending: [Pending; 8],
    /// A bit for each one in use.
    used: u8,
}

impl Waiting {
    #[inline]
    fn put(&mut self, sort: u8, pending: Pending) {
        self.pending[usize::from(sort % 8)] = pending;
        self.used |= 1 << (sort % 8);
    }
}

/// The state of one vCPU.
#[derive(Debug, Default)]
pub(crate) struct Pairing {
    /// The last exit, and whether it is still open. Not an `Option`, so that it is never copied.
    exit: Open,
    open: bool,
    /// The end of the open exit's handling, if that was before the entry.
    handled: Option<End>,
    /// The last exit is outside of the requested time: neither it nor its accesses count.
    outside: bool,
    /// The start of the time of an MMIO read; as in perf, only the first read of an exit is timed.
    mmio_start_ns: Option<u64>,
    waiting: Waiting,
    last_access: Option<(Kind, u64)>,
    /// The events are those of several threads, so that exits and accesses have no times.
    pub(crate) is_mixed: bool,
    /// Accesses to MSRs and the APIC since the last entry, whose exit may follow.
    early: Vec<Event>,
    /// The accesses of the open exit, if they are wanted.
    noted: Vec<AccessRecord>,
    pub(crate) reasons: ReasonRows,
    pub(crate) accesses: AccessRows,
}

impl Pairing {
    /// Takes the next event in order of time. `vm` is that of the vCPU; `closed` receives every exit that this event
    /// ends.
    pub(crate) fn step(
        &mut self,
        event: &Event,
        vm: Option<u32>,
        shared: &mut Shared,
        closed: &mut impl FnMut(&Closed, &[AccessRecord]),
    ) {
        match event.kind {
            Kind::Exit => self.exit(event, vm, shared, closed),
            Kind::Entry => self.entry(event, shared, closed),
            Kind::Runnable => {
                let end = End { time_ns: event.time_ns, cpu: event.cpu, slept: event.value != 0 };
                self.handled = self.handled.or(self.open.then_some(end));
            }
            _ => self.access(event, shared),
        }
    }

    fn exit(
        &mut self,
        event: &Event,
        vm: Option<u32>,
        shared: &mut Shared,
        closed: &mut impl FnMut(&Closed, &[AccessRecord]),
    ) {
        if self.open && !self.end(shared, closed) {
            shared.losses.exits_without_entry += 1;
        }
        self.waiting.used = 0;
        self.noted.clear();
        // An access whose exit was lost does not belong to this one.
        self.last_access = None;
        self.outside = event.time_ns < shared.from_ns || event.time_ns >= shared.to_ns;
        if self.outside {
            self.early.clear();
            return;
        }
        let reason = event.reason();
        let Shared { timeline, reason_room, beyond, .. } = &mut *shared;
        let own = self.reasons.find(reason, reason_room, || timeline.series(exits::SeriesKey { vm, reason }));
        let row = own.unwrap_or_else(|| {
            beyond.find_without_times(reason, || timeline.series(exits::SeriesKey { vm: None, reason }))
        });
        self.mmio_start_ns = Some(event.time_ns);
        self.exit = Open {
            time_ns: event.time_ns,
            guest_rip: event.extra,
            cpu: event.cpu,
            reason,
            row,
            beyond: own.is_none(),
        };
        self.open = true;
        if !self.early.is_empty() {
            self.end_early(Some(event), shared);
        }
    }

    /// Takes the accesses since the last entry. They belong to `exit` if that is of the kind that comes after its
    /// accesses. Otherwise they are counted without a time.
    #[cold]
    fn end_early(&mut self, exit: Option<&Event>, shared: &mut Shared) {
        let early = std::mem::take(&mut self.early);
        for event in &early {
            let whole =
                |exit: &Event| !shared.marks.between([event.cpu, exit.cpu], event.time_ns, exit.time_ns);
            if exit.is_some_and(|exit| exit.reason() == LATE && whole(exit)) {
                self.access(event, shared);
            } else if (shared.from_ns..shared.to_ns).contains(&event.time_ns) {
                self.count(event, shared);
            }
        }
        self.early = early;
        self.early.clear();
    }

    /// Counts an access, and returns its row.
    fn count(&mut self, event: &Event, shared: &mut Shared) -> Option<u32> {
        let number = self.accesses.find(event, &mut shared.access_room)?;
        self.accesses.row(number).count += 1;
        Some(number)
    }

    fn entry(
        &mut self,
        event: &Event,
        shared: &mut Shared,
        closed: &mut impl FnMut(&Closed, &[AccessRecord]),
    ) {
        if !self.open {
            self.end_early(None, shared);
            shared.losses.entries_without_exit += u64::from(!std::mem::take(&mut self.outside));
            return;
        }
        let end = End { time_ns: event.time_ns, cpu: event.cpu, slept: false };
        let end = self.handled.take().unwrap_or(end);
        self.close(end, shared, closed);
    }

    /// Closes the open exit without an entry; `true` if its handling had ended.
    #[cold]
    fn end(&mut self, shared: &mut Shared, closed: &mut impl FnMut(&Closed, &[AccessRecord])) -> bool {
        if let Some(end) = self.handled.take() {
            self.close(end, shared, closed);
            return true;
        }
        self.open = false;
        // A read after an exit that does not count must not be timed from this one.
        self.mmio_start_ns = None;
        self.add(None, shared);
        closed(&Closed { exit: self.exit, access: self.last_access(), handling_ns: None }, &self.noted);
        false
    }

    #[inline(always)]
    fn close(&mut self, end: End, shared: &mut Shared, closed: &mut impl FnMut(&Closed, &[AccessRecord])) {
        self.open = false;
        let open = &self.exit;
        let lost = match end.slept {
            true => !shared.marks.is_empty() && shared.marks.anywhere(open.time_ns, end.time_ns),
            false => shared.marks.between([open.cpu, end.cpu], open.time_ns, end.time_ns),
        };
        let handling_ns = end.time_ns.checked_sub(open.time_ns);
        let handling_ns = match handling_ns {
            _ if self.is_mixed => None,
            _ if lost => {
                shared.losses.pairs_across_loss += 1;
                None
            }
            None => {
                shared.losses.pairs_back_in_time += 1;
                None
            }
            paired => paired,
        };
        self.add(handling_ns, shared);
        if self.waiting.used != 0 {
            self.end_waiting(end.time_ns, handling_ns.is_some());
        }
        self.mmio_start_ns = None;
        closed(&Closed { exit: self.exit, access: self.last_access(), handling_ns }, &self.noted);
    }

    /// Counts the last exit in its row.
    #[inline(always)]
    fn add(&mut self, handling_ns: Option<u64>, shared: &mut Shared) {
        let Open { time_ns, row, beyond, .. } = self.exit;
        if beyond {
            shared.beyond.row(row).add(time_ns, None, &mut shared.timeline);
        } else {
            self.reasons.row(row).add(time_ns, handling_ns, &mut shared.timeline);
        }
    }

    #[inline]
    fn end_waiting(&mut self, now_ns: u64, paired: bool) {
        let mut used = std::mem::take(&mut self.waiting.used);
        while used != 0 {
            let pending = self.waiting.pending[used.trailing_zeros() as usize % 8];
            used &= used - 1;
            let since_ns = if pending.whole { self.exit.time_ns } else { pending.since_ns };
            if let Some(ns) = now_ns.checked_sub(since_ns).filter(|_| paired) {
                self.accesses.row(pending.row).handling.add(ns);
                self.note(pending.noted, ns);
            }
        }
    }

    /// Notes an access of the open exit, and returns its index.
    fn noted(&mut self, event: &Event) -> Option<u32> {
        let access = event.access().filter(|_| self.open && self.noted.len() < MOST_NOTED)?;
        self.noted.push(AccessRecord { access, handling_ns: None });
        Some(self.noted.len() as u32 - 1)
    }

    fn note(&mut self, noted: Option<u32>, handling_ns: u64) {
        if let Some(access) = noted.and_then(|at| self.noted.get_mut(at as usize)) {
            access.handling_ns = Some(handling_ns);
        }
    }

    fn last_access(&mut self) -> Option<Access> {
        self.last_access.take().and_then(|(kind, value)| kind.access(value))
    }

    #[inline]
    fn access(&mut self, event: &Event, shared: &mut Shared) {
        if self.outside {
            return;
        }
        if !self.open {
            let may_be_early = matches!(event.kind.sort(), Kind::MSR | Kind::APIC);
            if may_be_early && self.early.len() < MOST_EARLY {
                self.early.push(*event);
                return;
            }
            // Its exit was lost, so its own time decides.
            if !(shared.from_ns..shared.to_ns).contains(&event.time_ns) {
                return;
            }
            if may_be_early {
                self.count(event, shared);
                return;
            }
        }
        // The value is the reason of the exit from the nested guest, whatever L1 is told.
        let of_exit;
        let event = if event.kind.sort() == Kind::NESTED && self.open {
            of_exit = Event { value: Event::exit(self.exit.reason), ..*event };
            &of_exit
        } else {
            self.last_access = Some((event.kind, event.value));
            event
        };
        // The completed read follows, and is the one that counts.
        if event.kind == Kind::MmioUnsatisfied {
            return;
        }
        let Some(number) = self.count(event, shared) else { return };
        let noted = if shared.note_accesses { self.noted(event) } else { None };
        if event.kind == Kind::MmioRead && !shared.whole_exits {
            let start_ns = self.mmio_start_ns.take();
            let cpus = [self.exit.cpu, event.cpu];
            let whole =
                |&start_ns: &u64| !self.is_mixed && !shared.marks.between(cpus, start_ns, event.time_ns);
            let ns = start_ns.filter(whole).and_then(|start| event.time_ns.checked_sub(start));
            if let Some(ns) = ns {
                self.accesses.row(number).handling.add(ns);
                self.note(noted, ns);
            }
            return;
        }
        let sort = event.kind.sort();
        let whole = sort >= Kind::WHOLE || shared.whole_exits;
        self.waiting.put(sort, Pending { since_ns: event.time_ns, row: number, whole, noted });
    }

    /// Ends the recording: an exit that is still open has no entry.
    pub(crate) fn finish(&mut self, shared: &mut Shared, closed: &mut impl FnMut(&Closed, &[AccessRecord])) {
        if self.open && !self.end(shared, closed) {
            shared.losses.exits_at_the_end += 1;
        }
        self.end_early(None, shared);
    }
}

#[cfg(test)]
#[path = "pairing_tests.rs"]
mod tests;
