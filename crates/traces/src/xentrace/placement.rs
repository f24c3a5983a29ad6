//! Attributes the events of each CPU to the vCPU that ran on it.
//!
//! The records of a CPU tell which vCPUs leave and enter it. So each CPU's own records are sufficient, in whatever
//! order the recording has the CPUs.

use rustc_hash::FxHashSet;

use super::clock::Clock;
use super::orders::Orders;
use super::owner::{DomainVcpu, Owner, Processor, RunstateChange, unknown, unknown_key};
use super::record::Window;
use super::survey::Survey;
use crate::assembly::MOST_THREADS;
use crate::event::{Event, Kind};

/// The most events that wait for their owner, for all CPUs together: 16 MiB.
const MOST_HELD: usize = 1 << 19;

/// Counts of irregularities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Oddities {
    /// Exits whose vCPU is unknown.
    pub(super) unowned: u64,
    /// Exits, entries and accesses of the idle domain.
    pub(super) idle: u64,
    /// vCPUs of sibling CPUs that were switched in the records of this CPU (core scheduling).
    pub(super) siblings: u64,
}

/// Tracks which vCPU runs where, and makes the calls of the assembly.
pub(super) struct Placement {
    pub(super) orders: Orders,
    clock: Clock,
    processors: Vec<Processor>,
    cpu: u16,
    /// The CPUs that had windows since the last gap in the recording.
    walked: Vec<u16>,
    /// The CPU of the previous window.
    before: Option<u16>,
    rounds: u64,
    /// Tells whether the recording has scheduler events, and whether these are runstates.
    scheduled: bool,
    runstates: bool,
    known: FxHashSet<u32>,
    held: usize,
    pub(super) oddities: Oddities,
}

impl Placement {
    pub(super) fn new(clock: Clock, survey: &Survey) -> Self {
        Self {
            orders: Orders::default(),
            clock,
            processors: Vec::new(),
            cpu: 0,
            walked: Vec::new(),
            before: None,
            rounds: 0,
            scheduled: survey.runstates || survey.switches,
            runstates: survey.runstates,
            known: FxHashSet::default(),
            held: 0,
            oddities: Oddities::default(),
        }
    }

    /// Starts a window with records of this CPU.
    pub(super) fn window(&mut self, window: Window) {
        self.orders.end_row();
        // Each poll of xentrace writes the CPUs that have new records, in ascending order.
        if self.before.is_some_and(|before| window.cpu <= before) {
            self.rounds += 1;
            // The assembly keeps all events until its second round.
            if self.rounds == 2 {
                self.release_all();
            }
            self.orders.round();
        }
        self.before = Some(window.cpu);
        self.cpu = window.cpu;
        while self.processors.len() <= usize::from(window.cpu) {
            let owner = if self.scheduled && self.rounds < 2 { Owner::Awaited } else { Owner::Unknown };
            let key = unknown_key(self.processors.len() as u16);
            self.processors.push(Processor { owner, key, ..Processor::default() });
        }
        if !std::mem::replace(&mut self.current().walked, true) {
            self.walked.push(window.cpu);
        }
        if self.known.insert(unknown_key(self.cpu)) {
            self.orders.introduce(unknown_key(self.cpu), unknown(self.cpu));
        }
    }

    /// Notes that records of the current window are missing, or of all windows.
    pub(super) fn gap(&mut self, all: bool) {
        let cpus = if all { std::mem::take(&mut self.walked) } else { self.before.into_iter().collect() };
        for cpu in cpus {
            self.cpu = cpu;
            self.current().walked &= !all;
            self.lost(0, None);
        }
    }

    /// Sets the time of the next record, if it has one.
    #[inline(always)]
    pub(super) fn ticks(&mut self, ticks: Option<u64>) {
        let Some(ticks) = ticks else { return };
        let processor = self.current();
        processor.ticks = ticks;
        if let Some(since) = processor.missing_since.take() {
            let (from_ns, to_ns) = (self.clock.ns(since), self.clock.ns(ticks));
            self.orders.lost_span(from_ns, to_ns);
        }
    }

    /// Tests whether the time is known.
    pub(super) fn has_time(&mut self) -> bool {
        self.current().ticks != 0
    }

    fn current(&mut self) -> &mut Processor {
        &mut self.processors[usize::from(self.cpu)]
    }

    /// Adds an event of the vCPU that runs on the CPU.
    #[inline(always)]
    pub(super) fn push(&mut self, kind: Kind, value: u64, extra: u64) {
        let (cpu, clock) = (self.cpu, self.clock);
        let processor = self.current();
        let time_ns = clock.ns(processor.ticks);
        let event = Event { time_ns, value, extra, thread: processor.key, cpu, kind };
        processor.switching = false;
        match processor.owner {
            Owner::Known(who) | Owner::Likely(who) if who.is_idle() => {
                self.oddities.idle += 1;
                return;
            }
            Owner::Known(_) | Owner::Likely(_) => {}
            Owner::Unknown => self.oddities.unowned += u64::from(kind == Kind::Exit),
            Owner::Awaited => return self.hold(event),
        }
        self.orders.push(event);
    }

    fn hold(&mut self, event: Event) {
        self.current().held.push(event);
        self.held += 1;
        if self.held >= MOST_HELD {
            self.release_all();
        }
    }

    /// Handles a runstate record.
    pub(super) fn runstate(&mut self, who: DomainVcpu, change: RunstateChange) {
        (self.scheduled, self.runstates) = (true, true);
        match change {
            RunstateChange::Continues => {
                self.release(Some(who));
                self.settle(Owner::Known(who));
            }
            RunstateChange::Leaves { .. } => {
                self.release(Some(who));
                if self.is_beside(who) {
                    self.settle(Owner::Unknown);
                }
            }
            RunstateChange::Enters => {
                self.release(None);
                if self.is_beside(who) {
                    self.settle(Owner::Known(who));
                }
            }
            RunstateChange::Wakes | RunstateChange::Other => {}
        }
        let switches = matches!(change, RunstateChange::Leaves { .. } | RunstateChange::Enters);
        self.current().switching = switches;
        match change {
            RunstateChange::Leaves { runnable: true } => self.runnable(who, false),
            // Entering also means that it was woken, in case that record was lost.
            RunstateChange::Wakes | RunstateChange::Enters => self.runnable(who, true),
            _ => {}
        }
    }

    /// Tests whether the vCPU that leaves or enters does so on this CPU.
    fn is_beside(&mut self, who: DomainVcpu) -> bool {
        let processor = self.current();
        match processor.owner {
            Owner::Known(owner) if owner != who => {
                // With core scheduling, the vCPUs of a core are switched together, and recorded one after the other
                // on one CPU.
                if processor.switching {
                    self.oddities.siblings += 1;
                    return false;
                }
                // The record of the owner's leaving is missing, and others may be too, as in concatenated recordings.
                self.lost(0, None);
                true
            }
            _ => true,
        }
    }

    /// Handles a switch between vCPUs, in recordings without runstates.
    pub(super) fn switch(&mut self, from: Option<DomainVcpu>, to: Option<DomainVcpu>) {
        if !self.runstates {
            self.scheduled = true;
            self.release(from);
            self.settle(to.map_or(Owner::Unknown, Owner::Known));
        }
    }

    /// Handles a loss of records since `since`; `who` was running when recording resumed.
    pub(super) fn lost_records(&mut self, count: u64, since: Option<u64>, who: Option<DomainVcpu>) {
        self.lost(count, since);
        // Without scheduler events, no record would show that it leaves.
        if let Some(who) = who.filter(|_| self.scheduled) {
            self.settle(Owner::Likely(who));
        }
    }

    fn lost(&mut self, count: u64, since: Option<u64>) {
        self.release(None);
        self.settle(Owner::Unknown);
        let ticks = self.current().ticks;
        let since = since.filter(|&since| since <= ticks).unwrap_or(ticks);
        self.current().missing_since = Some(since);
        // The idle domain has no exits: the event only marks the time up to which the CPU's records are complete.
        self.mark(DomainVcpu::idle(self.cpu).key(), since, false);
        self.orders.end_row();
        self.orders.lost(self.cpu, count);
    }

    /// Marks a vCPU as runnable, on whatever CPU.
    fn runnable(&mut self, who: DomainVcpu, slept: bool) {
        if !who.is_idle() {
            let (thread, ticks) = (self.key(who), self.current().ticks);
            self.mark(thread, ticks, slept);
        }
    }

    fn mark(&mut self, thread: u32, ticks: u64, slept: bool) {
        let (time_ns, value) = (self.clock.ns(ticks), u64::from(slept));
        let (cpu, kind) = (self.cpu, Kind::Runnable);
        self.orders.push(Event { time_ns, value, extra: 0, thread, cpu, kind });
    }

    fn settle(&mut self, owner: Owner) {
        let key = match owner {
            Owner::Known(who) | Owner::Likely(who) => self.key(who),
            Owner::Unknown | Owner::Awaited => unknown_key(self.cpu),
        };
        let processor = self.current();
        (processor.owner, processor.key) = (owner, key);
    }

    /// The key of a vCPU, which is introduced to the assembly if it is new. The assembly counts those beyond its limit
    /// together, without times.
    fn key(&mut self, who: DomainVcpu) -> u32 {
        if self.known.len() < MOST_THREADS && self.known.insert(who.key()) {
            self.orders.introduce(who.key(), who.who());
        }
        who.key()
    }

    /// Passes on the events that waited for their owner.
    fn release(&mut self, owner: Option<DomainVcpu>) {
        if self.current().owner != Owner::Awaited {
            return;
        }
        self.settle(owner.map_or(Owner::Unknown, Owner::Known));
        let held = std::mem::take(&mut self.current().held);
        let key = self.current().key;
        self.held -= held.len();
        for mut event in held {
            match owner {
                Some(who) if who.is_idle() => {
                    self.oddities.idle += 1;
                    continue;
                }
                Some(_) => event.thread = key,
                None => self.oddities.unowned += u64::from(event.kind == Kind::Exit),
            }
            self.orders.push(event);
        }
    }

    fn release_all(&mut self) {
        let current = self.cpu;
        for cpu in 0..self.processors.len() as u16 {
            self.cpu = cpu;
            self.orders.end_row();
            self.release(None);
        }
        self.orders.end_row();
        self.cpu = current;
    }

    /// Passes on all waiting events.
    pub(super) fn finish(&mut self) {
        self.release_all();
        for at in 0..self.processors.len() {
            if let Some(since) = self.processors[at].missing_since.take() {
                self.orders.lost_span(self.clock.ns(since), u64::MAX);
            }
        }
    }
}
