//! Gives the events of each processor to the vCPU that ran on it.
//!
//! A vCPU leaves a processor and enters it by records of that processor, so that who ran where follows from
//! each processor's own records, in whatever order the recording has the processors.

use rustc_hash::FxHashSet;

use super::clock::Clock;
use super::orders::Orders;
use super::owner::{DomainVcpu, Owner, Processor, RunstateChange, unknown, unknown_key};
use super::record::Window;
use super::survey::Survey;
use crate::event::{Event, Kind};

/// Events that may wait for their owner, all processors together: 16 MiB.
const MOST_HELD: usize = 1 << 19;
/// vCPUs that are told apart; a Xen host has some thousands at most.
const MOST_VCPUS: usize = 1 << 14;

/// The oddities in who ran where, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Oddities {
    /// Exits whose vCPU is unknown.
    pub(super) unowned: u64,
    /// Exits, entries and accesses of the idle domain.
    pub(super) idle: u64,
    /// vCPUs that changed places beside the processor's own: those of other processors of its core.
    pub(super) siblings: u64,
}

/// Knows who runs where, and gives orders to the assembly.
pub(super) struct Placement {
    pub(super) orders: Orders,
    clock: Clock,
    processors: Vec<Processor>,
    cpu: u16,
    /// The processors that had windows since the last gap in the recording.
    walked: Vec<u16>,
    /// The processor of the window before.
    before: Option<u16>,
    rounds: u64,
    /// The recording says who runs where, and whether it does by runstates.
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

    /// Records of this processor follow.
    pub(super) fn window(&mut self, window: Window) {
        self.orders.end_row();
        // Each poll of xentrace writes the processors that have something new in rising order.
        if self.before.is_some_and(|before| window.cpu <= before) {
            self.rounds += 1;
            // The assembly keeps everything until its second round.
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

    /// Records of the current window are missing, or of any number of them.
    pub(super) fn gap(&mut self, all: bool) {
        let cpus = if all { std::mem::take(&mut self.walked) } else { self.before.into_iter().collect() };
        for cpu in cpus {
            self.cpu = cpu;
            self.current().walked &= !all;
            self.lost(0, None);
        }
    }

    /// The next record's ticks, where it has any.
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

    /// Tests whether there is a time to give to events.
    pub(super) fn has_time(&mut self) -> bool {
        self.current().ticks != 0
    }

    fn current(&mut self) -> &mut Processor {
        &mut self.processors[usize::from(self.cpu)]
    }

    /// An event of whatever runs on the processor.
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

    /// A record of a runstate.
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
            // Where the waking was lost, what follows says no more than that it happened.
            RunstateChange::Wakes | RunstateChange::Enters => self.runnable(who, true),
            _ => {}
        }
    }

    /// Tests whether a vCPU that leaves or enters does so on this processor.
    fn is_beside(&mut self, who: DomainVcpu) -> bool {
        let processor = self.current();
        match processor.owner {
            Owner::Known(owner) if owner != who => {
                // The vCPUs of a core change places together, recorded one after the other on one processor.
                if processor.switching {
                    self.oddities.siblings += 1;
                    return false;
                }
                // Who left is missing, and so may be more: recordings that were joined are like this.
                self.lost(0, None);
                true
            }
            _ => true,
        }
    }

    /// One vCPU made place for another: what says so in recordings without runstates.
    pub(super) fn switch(&mut self, from: Option<DomainVcpu>, to: Option<DomainVcpu>) {
        if !self.runstates {
            self.scheduled = true;
            self.release(from);
            self.settle(to.map_or(Owner::Unknown, Owner::Known));
        }
    }

    /// The recorder lost records since then, and found itself on this vCPU afterwards.
    pub(super) fn lost_records(&mut self, count: u64, since: Option<u64>, who: Option<DomainVcpu>) {
        self.lost(count, since);
        // Without scheduler events nobody would say when that one leaves.
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
        // The idle domain has no exits: this only says until when the processor's records were whole.
        self.mark(DomainVcpu::idle(self.cpu).key(), since, false);
        self.orders.end_row();
        self.orders.lost(self.cpu, count);
    }

    /// A vCPU waits for a processor, whichever that will be.
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

    /// The key of a vCPU, which is made known.
    fn key(&mut self, who: DomainVcpu) -> u32 {
        if !self.known.contains(&who.key()) {
            if self.known.len() >= MOST_VCPUS {
                return unknown_key(self.cpu);
            }
            self.known.insert(who.key());
            self.orders.introduce(who.key(), who.who());
        }
        who.key()
    }

    /// Hands on what waited for its owner.
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

    /// Hands on everything that is left.
    pub(super) fn finish(&mut self) {
        self.release_all();
        for at in 0..self.processors.len() {
            if let Some(since) = self.processors[at].missing_since.take() {
                self.orders.lost_span(self.clock.ns(since), u64::MAX);
            }
        }
    }
}
