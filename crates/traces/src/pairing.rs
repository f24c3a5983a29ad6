//! From one vCPU's events in order to its exits.
//!
//! The rules are those of `perf kvm stat` (`tools/perf/util/kvm-stat.c` and `arch/x86/util/kvm-stat.c` of
//! Linux): an exit is handled until the next entry; a port, an MSR and a write to an address without memory
//! from their event to the next entry; a read of such an address from the exit to its event. Unlike perf, no
//! time is taken across a place where events were lost, and what SVM's fast path accesses before `kvm_exit` belongs to
//! that exit.
//!
//! Xen's recordings follow the rules of `xenalyze` (`tools/xentrace/xenalyze.c` of Xen): a vCPU that lost its
//! processor is handled until it is ready to run again, and its accesses, which carry no time, take the whole
//! exit.

use exits::{Access, ExitReason, Losses, Timeline};

use crate::AccessRecord;
use crate::bounded::AccessRoom;
use crate::event::{Event, Kind};
use crate::losses::LossMarks;
use crate::rows::{AccessRows, ReasonRows};

/// The state that all vCPUs share while exits are counted.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) timeline: Timeline,
    pub(crate) losses: Losses,
    pub(crate) marks: LossMarks,
    /// Rows of accesses that may still be made.
    pub(crate) access_room: AccessRoom,
    /// Accesses have no time of their own: the whole exit is theirs.
    pub(crate) whole_exits: bool,
    /// Whoever takes the exits wants all of their accesses.
    pub(crate) note_accesses: bool,
    /// Exits from this time on are counted, before `to_ns`; nanoseconds of the recording's clock.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

/// An exit, closed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    pub(crate) exit: Open,
    pub(crate) access: Option<Access>,
    pub(crate) handling_ns: Option<u64>,
}

/// An exit whose entry is still to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) time_ns: u64,
    pub(crate) guest_rip: u64,
    pub(crate) cpu: u16,
    pub(crate) reason: ExitReason,
    row: u16,
}

impl Default for Open {
    fn default() -> Self {
        Self { time_ns: 0, guest_rip: 0, cpu: 0, reason: ExitReason::vmx(0), row: 0 }
    }
}

/// When and where the handling of an exit ended.
#[derive(Debug, Clone, Copy)]
struct End {
    time_ns: u64,
    cpu: u16,
    /// The vCPU was on no processor before, so what any of them lost may be part of the exit.
    slept: bool,
}

/// Something that is handled until the next entry.
#[derive(Debug, Clone, Copy, Default)]
struct Pending {
    since_ns: u64,
    row: u32,
    /// The whole exit is about it.
    whole: bool,
    /// The place where it was noted, if it was.
    noted: Option<u32>,
}

/// Accesses of one exit that are noted: far more than an instruction has, so that a broken recording needs no more
/// memory than its events do.
const MOST_NOTED: usize = 1 << 16;

/// Accesses that may come before their exit: far more than an instruction has.
const MOST_EARLY: usize = 16;
/// The exit that may come after its accesses. Up to Linux 6.4, SVM's fast path handles the write of an IPI before
/// `kvm_exit` (`svm_exit_handlers_fastpath` in `arch/x86/kvm/svm/svm.c`).
const LATE: ExitReason = ExitReason::svm(0x7c);

/// The accesses that wait for the entry; perf knows one of each sort ([`Kind::sort`]).
#[derive(Debug, Default)]
struct Waiting {
    pending: [Pending; 8],
    /// A bit for each that is in use.
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
    /// The last exit, and whether it is yet to be closed. Apart, so that it is never moved.
    exit: Open,
    open: bool,
    /// When the open exit was handled, if that was before the entry.
    handled: Option<End>,
    /// The last exit lies outside of the time asked for: neither it nor what belongs to it counts.
    outside: bool,
    /// When the exit began that a read of an address would be measured from; perf forgets it after one read.
    mmio_start_ns: Option<u64>,
    waiting: Waiting,
    last_access: Option<(Kind, u64)>,
    /// Accesses of MSRs and the APIC since the last entry, of an exit that is still to come.
    early: Vec<Event>,
    /// The accesses of the open exit, if they are wanted.
    noted: Vec<AccessRecord>,
    pub(crate) reasons: ReasonRows,
    pub(crate) accesses: AccessRows,
}

impl Pairing {
    /// Takes the next event in order of time. `vm` is the vCPU's, `closed` gets every exit that this ends.
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
        // An access whose own exit was lost says nothing of this one.
        self.last_access = None;
        self.outside = event.time_ns < shared.from_ns || event.time_ns >= shared.to_ns;
        if self.outside {
            self.early.clear();
            return;
        }
        let reason = event.reason();
        let timeline = &mut shared.timeline;
        let row = self.reasons.find(reason, || timeline.series(exits::SeriesKey { vm, reason }));
        self.mmio_start_ns = Some(event.time_ns);
        self.exit = Open { time_ns: event.time_ns, guest_rip: event.extra, cpu: event.cpu, reason, row };
        self.open = true;
        if !self.early.is_empty() {
            self.end_early(Some(event), shared);
        }
    }

    /// Takes the accesses that came since the last entry: those of `exit`, unless that is none that comes after its
    /// accesses. Others are counted and have no time.
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

    /// Counts an access, and gives the number of its row.
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

    /// Closes the open exit without an entry; `true` when it was handled.
    #[cold]
    fn end(&mut self, shared: &mut Shared, closed: &mut impl FnMut(&Closed, &[AccessRecord])) -> bool {
        if let Some(end) = self.handled.take() {
            self.close(end, shared, closed);
            return true;
        }
        self.open = false;
        self.reasons.row(self.exit.row).add(self.exit.time_ns, None, &mut shared.timeline);
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
        self.reasons.row(open.row).add(open.time_ns, handling_ns, &mut shared.timeline);
        if self.waiting.used != 0 {
            self.end_waiting(end.time_ns, handling_ns.is_some());
        }
        self.mmio_start_ns = None;
        closed(&Closed { exit: self.exit, access: self.last_access(), handling_ns }, &self.noted);
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

    /// Notes an access of the open exit and says where.
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
        if !self.open && matches!(event.kind.sort(), Kind::MSR | Kind::APIC) {
            if self.early.len() < MOST_EARLY {
                self.early.push(*event);
            } else {
                self.count(event, shared);
            }
            return;
        }
        // A nested guest's exit goes by the reason for which it left the processor, whatever L1 is told.
        let of_exit;
        let event = if event.kind.sort() == Kind::NESTED && self.open {
            of_exit = Event { value: Event::exit(self.exit.reason), ..*event };
            &of_exit
        } else {
            self.last_access = Some((event.kind, event.value));
            event
        };
        // The read that answers an unsatisfied one follows, and is the one that counts.
        if event.kind == Kind::MmioUnsatisfied {
            return;
        }
        let Some(number) = self.count(event, shared) else { return };
        let noted = if shared.note_accesses { self.noted(event) } else { None };
        if event.kind == Kind::MmioRead && !shared.whole_exits {
            let start_ns = self.mmio_start_ns.take();
            let cpus = [self.exit.cpu, event.cpu];
            let whole = |&start_ns: &u64| !shared.marks.between(cpus, start_ns, event.time_ns);
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

    /// Ends the recording: an exit that is still open stays without an entry.
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
