//! Puts the events of all readers in order and counts them.
//!
//! Recorders write one buffer per CPU, one after the other, so a recording is in order for each CPU but not overall.
//! Only the events of each thread have to be in order here, and they are unless the thread moved to another CPU: so
//! events wait by thread until no older one can arrive, and are sorted only if necessary.

use exits::{Losses, Profile, Span, Timeline, Vcpu};
use rustc_hash::FxHashMap;

use crate::bounded::{AccessRoom, ReasonRoom};
use crate::event::{Event, Kind};
use crate::losses::LossMarks;
use crate::pairing::{Closed, Pairing, Shared};
use crate::rows::{self, ReasonRows};
use crate::thread::Thread;
use crate::{AccessRecord, ExitRecord, Options, Sink};

/// The most events that wait (32 MiB); beyond that the older half is processed early.
const MOST_WAITING: usize = 1 << 20;
/// The most threads that are counted separately, each with a few kilobytes; further ones share one row.
pub(crate) const MOST_THREADS: usize = 65_536;
/// The number that no process reaches (`PID_MAX_LIMIT` in `include/linux/threads.h` of Linux 6.12).
pub(crate) const PID_MAX_LIMIT: u32 = 1 << 22;
/// The most characters of a name (`TASK_COMM_LEN` in `include/linux/sched.h`, without the zero).
const MOST_CHARACTERS: usize = 15;
/// The size of the table that finds the thread of an event without hashing; a power of two.
const RECENT: usize = 256;

/// Takes events in the order of a recording and builds the profile.
pub(crate) struct Assembly<'s, S> {
    sink: &'s mut S,
    options: Options,
    threads: Vec<Thread>,
    by_key: FxHashMap<u32, u32>,
    recent: Box<[(u32, u32); RECENT]>,
    /// Threads with waiting events.
    active: Vec<u32>,
    waiting: usize,
    /// Memory for events, for reuse.
    spare: Vec<Vec<Event>>,
    /// `last_ns` is only set at the end.
    span: Option<Span>,
    /// The times of records other than events of interest.
    observed: Option<Span>,
    /// The time of the newest event, and that at the end of the last round.
    newest_ns: u64,
    newest_of_last_round_ns: u64,
    last_of_cpu: Vec<u64>,
    events: std::collections::BTreeMap<String, u64>,
    names: std::collections::BTreeMap<u32, String>,
    shared: Shared,
}

impl<'s, S: Sink> Assembly<'s, S> {
    pub(crate) fn new(options: Options, sink: &'s mut S) -> Self {
        let shared = Shared {
            timeline: Timeline::default(),
            losses: Losses::default(),
            marks: LossMarks::default(),
            access_room: AccessRoom::default(),
            reason_room: ReasonRoom::default(),
            beyond: ReasonRows::default(),
            whole_exits: false,
            note_accesses: S::WANTS_ACCESSES,
            from_ns: 0,
            to_ns: u64::MAX,
        };
        Self {
            sink,
            options,
            threads: Vec::new(),
            by_key: FxHashMap::default(),
            recent: Box::new([(u32::MAX, u32::MAX); RECENT]),
            active: Vec::new(),
            waiting: 0,
            spare: Vec::new(),
            span: None,
            observed: None,
            newest_ns: 0,
            newest_of_last_round_ns: 0,
            last_of_cpu: Vec::new(),
            events: Default::default(),
            names: Default::default(),
            shared,
        }
    }

    /// Sets the vCPU to which events with `key` belong from here on. Without this call, they belong to thread `key`
    /// of an unknown VM.
    pub(crate) fn introduce(&mut self, key: u32, vcpu: Vcpu) {
        if let Some(&index) = self.by_key.get(&key) {
            let known = &mut self.threads[index as usize].vcpu;
            if known.vm.is_none() && known.thread == vcpu.thread {
                known.vm = vcpu.vm;
            }
            if known.vm == vcpu.vm && known.thread == vcpu.thread {
                known.number = known.number.or(vcpu.number);
                return;
            }
        }
        // The thread ID was reused by another process.
        self.create(key, vcpu);
    }

    /// Makes accesses take as long as their exits, because they have no times of their own.
    pub(crate) fn accesses_take_whole_exits(&mut self) {
        self.shared.whole_exits = true;
    }

    /// Sets the name of a VM. Only a corrupt recording has names longer than the kernel's, or names of numbers that no
    /// process has.
    pub(crate) fn name(&mut self, vm: u32, name: &str) {
        if vm < PID_MAX_LIMIT {
            self.names.insert(vm, name.chars().take(MOST_CHARACTERS).collect());
        }
    }

    /// Counts events by name, of interest or not.
    pub(crate) fn count_event(&mut self, name: &str, count: u64) {
        match self.events.get_mut(name) {
            Some(sum) => *sum = sum.saturating_add(count),
            None => {
                self.events.insert(name.to_owned(), count);
            }
        }
    }

    /// Counts events whose fields could not be read.
    pub(crate) fn undecoded(&mut self, count: u64) {
        self.shared.losses.undecoded = self.shared.losses.undecoded.saturating_add(count);
    }

    /// Records that the recorder was running at these times, even without events of interest. Otherwise a setting
    /// that removes exits would shorten the time for which rates are calculated.
    pub(crate) fn observed(&mut self, times: Span) {
        Span::widen(&mut self.observed, times);
    }

    /// Takes an event.
    pub(crate) fn push(&mut self, event: &Event) {
        let index = self.thread(event.thread);
        if self.threads[index as usize].push(event, &mut self.spare) {
            self.active.push(index);
        }
        self.newest_ns = self.newest_ns.max(event.time_ns);
        self.shared.marks.event(event.cpu, event.time_ns);
        self.last_of_cpu(event.cpu, event.time_ns);
        self.waiting += 1;
        if self.waiting >= MOST_WAITING {
            self.hand_on_half();
        }
    }

    /// Adds a run of events of the thread `key`, and replaces `events` by other memory. `ordered` tells whether they
    /// are in order of time. The caller must call [`Self::last_of_cpu`] itself.
    pub(crate) fn append(&mut self, key: u32, events: &mut Vec<Event>, ordered: bool, newest_ns: u64) {
        if self.shared.marks.wait_for_event() {
            for row in events.chunk_by(|one, next| one.cpu == next.cpu) {
                self.shared.marks.event(row[0].cpu, row[0].time_ns);
            }
        }
        let (index, count) = (self.thread(key), events.len());
        if self.threads[index as usize].append(events, ordered, &mut self.spare) {
            self.active.push(index);
        }
        self.newest_ns = self.newest_ns.max(newest_ns);
        self.waiting += count;
        if self.waiting >= MOST_WAITING {
            self.hand_on_half();
        }
    }

    /// Sets the time of the last event of a CPU so far.
    pub(crate) fn last_of_cpu(&mut self, cpu: u16, time_ns: u64) {
        let at = usize::from(cpu);
        if self.last_of_cpu.len() <= at {
            self.last_of_cpu.resize(at + 1, 0);
        }
        self.last_of_cpu[at] = time_ns;
    }

    /// Records that `count` events (0 if unknown) were dropped between the last event of `cpu` and its next one.
    pub(crate) fn lost(&mut self, cpu: u16, count: u64) {
        let after_ns = self.last_of_cpu.get(usize::from(cpu)).copied().unwrap_or(0);
        self.shared.marks.mark(cpu, after_ns);
        self.sink.lost(count);
        self.shared.losses.lost_events = self.shared.losses.lost_events.saturating_add(count);
    }

    /// Records that events of a CPU were dropped in this time. Among them may be those of vCPUs that were on other
    /// CPUs before and after.
    pub(crate) fn lost_span(&mut self, from_ns: u64, to_ns: u64) {
        self.shared.marks.span(from_ns, to_ns);
    }

    /// Records that any event may be missing, so that no exit has a time.
    pub(crate) fn leaves_events_out(&mut self) {
        self.shared.marks.always();
    }

    /// Records that `count` events were dropped at unknown times, of which `exits` are known to be exits.
    pub(crate) fn lost_events(&mut self, count: u64, exits: u64) {
        let losses = &mut self.shared.losses;
        losses.lost_events = losses.lost_events.saturating_add(count);
        losses.lost_exits = losses.lost_exits.saturating_add(exits);
    }

    /// The end of a round over the buffers of all CPUs: events after this place in the recording are not older than
    /// the newest event before the place of the last call.
    pub(crate) fn round(&mut self) {
        let up_to_ns = self.newest_of_last_round_ns;
        self.newest_of_last_round_ns = self.newest_ns;
        self.flush(up_to_ns);
    }

    /// Processes the events up to and including `up_to_ns`: no more of them can arrive.
    pub(crate) fn flush(&mut self, up_to_ns: u64) {
        self.start();
        let Self { threads, active, shared, sink, spare, .. } = self;
        let mut handed_on = 0;
        active.retain(|&index| {
            let thread = &mut threads[index as usize];
            let (count, late) = thread.hand_on(up_to_ns, spare, |pairing, vcpu, event| {
                if event.kind == Kind::Entry && event.value != Event::NO_NUMBER && !pairing.is_mixed {
                    vcpu.number = Some(event.value as u32);
                }
                let who = *vcpu;
                let mut closed = |closed: &Closed, accesses: &[AccessRecord]| {
                    sink.exit_with(&record(closed, who), accesses);
                };
                pairing.step(event, who.vm, shared, &mut closed);
            });
            shared.losses.out_of_order += late;
            handed_on += count;
            thread.waits()
        });
        self.waiting -= handed_on;
    }

    /// Processes all events and returns the profile. Adds a warning if there were more threads than the limit.
    pub(crate) fn finish(mut self, warnings: &mut Vec<String>) -> Profile {
        self.flush(u64::MAX);
        let Self { mut threads, mut shared, sink, names, events, .. } = self;
        let mut profile = Profile::new();
        // In the profile's order, so that each vCPU is appended.
        threads.sort_by_key(|thread| thread.vcpu);
        for mut thread in threads {
            let who = thread.vcpu;
            thread.pairing.finish(&mut shared, &mut |closed, accesses| {
                sink.exit_with(&record(closed, who), accesses);
            });
            let Pairing { reasons, accesses, is_mixed, .. } = thread.pairing;
            if is_mixed && !reasons.is_empty() {
                warnings.push(format!(
                    "It has more than {MOST_THREADS} threads, including ended ones; {} of further ones count for no VM \
                     and have no times: make shorter recordings",
                    exits::counted(reasons.count(), "exit")
                ));
            }
            if !reasons.is_empty() || !accesses.is_empty() {
                rows::add_to(profile.vcpu(who), &reasons, &accesses);
            }
        }
        rows::add_beyond(&mut profile, &shared.beyond, warnings);
        // Recorders name every process of the host, so keep only those with exits.
        let vms: std::collections::BTreeSet<_> =
            profile.vcpus().iter().filter_map(|exits| exits.vcpu.vm).collect();
        profile.names = names.into_iter().filter(|(vm, _)| vms.contains(vm)).collect();
        profile.events = events;
        let of_events = self.span.map(|span| Span { last_ns: self.newest_ns, ..span });
        profile.span = of_events.map(|span| self.observed.map_or(span, |times| span.join(times)));
        profile.timeline = shared.timeline;
        profile.losses = shared.losses;
        profile
    }

    /// Sets the start of the recording to the oldest event or other record of the first round.
    fn start(&mut self) {
        if self.span.is_some() {
            return;
        }
        let threads =
            self.active.iter().filter_map(|&index| self.threads[index as usize].oldest_waiting_ns());
        if let Some(first_ns) = threads.chain(self.observed.map(|times| times.first_ns)).min() {
            self.span = Some(Span { first_ns, last_ns: first_ns });
            let moment = |offset: Option<u64>, otherwise| {
                offset.map_or(otherwise, |offset| first_ns.saturating_add(offset))
            };
            self.shared.from_ns = moment(self.options.from_ns, 0);
            self.shared.to_ns = moment(self.options.to_ns, u64::MAX);
        }
    }

    /// Makes room if a recording has no rounds, or rounds that do not end.
    #[cold]
    fn hand_on_half(&mut self) {
        self.start();
        let oldest = self.active.iter().filter_map(|&index| self.threads[index as usize].oldest_waiting_ns());
        let oldest_ns = oldest.min().unwrap_or(0);
        self.flush(oldest_ns + (self.newest_ns - oldest_ns) / 2);
        if self.waiting >= MOST_WAITING / 4 * 3 {
            self.flush(self.newest_ns);
        }
    }

    fn thread(&mut self, key: u32) -> u32 {
        let (recent, index) = self.recent[key as usize % RECENT];
        if recent == key && index != u32::MAX {
            return index;
        }
        let index = match self.by_key.get(&key) {
            Some(&index) => index,
            None => self.create(key, Vcpu { vm: None, number: None, thread: Some(key) }),
        };
        self.recent[key as usize % RECENT] = (key, index);
        index
    }

    fn create(&mut self, key: u32, vcpu: Vcpu) -> u32 {
        let index = self.threads.len().min(MOST_THREADS);
        if index == self.threads.len() {
            self.threads.push(if index < MOST_THREADS { Thread::new(vcpu) } else { Thread::of_others() });
        }
        let index = index as u32;
        // Not for an unknown key beyond the limit, of which there may be any number: it is created again each time.
        if index < MOST_THREADS as u32 || self.by_key.contains_key(&key) {
            self.by_key.insert(key, index);
        }
        self.recent[key as usize % RECENT] = (key, index);
        index
    }
}

fn record(closed: &Closed, vcpu: Vcpu) -> ExitRecord {
    ExitRecord {
        time_ns: closed.exit.time_ns,
        vcpu,
        cpu: closed.exit.cpu,
        reason: closed.exit.reason,
        guest_rip: closed.exit.guest_rip,
        access: closed.access,
        handling_ns: closed.handling_ns,
    }
}

#[cfg(test)]
#[path = "assembly_tests.rs"]
mod tests;
