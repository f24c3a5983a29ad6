//! Exits that took at least a given time, with what the host did meanwhile.
//!
//! Exits come from the programs that record them. These drop the shorter ones in the kernel, but about one a second of
//! each vCPU, which tells of its thread. The activity of the host comes from the kernel's tracepoints of the
//! scheduler, of interrupts and of KVM's returns to the VMM, filtered by thread in the kernel.

mod owned;
mod past;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use exits::{LongExit, LongOptions, Losses, Meanwhile, with_causes};
use tracing::debug;

use crate::inhibit::number_field;
use crate::record::{Record, Sample, records};
use crate::trace::clock::Anchor;
use crate::trace::cpus::online;
use crate::trace::owner::Owner;
use crate::trace::source::{CpuRecords, Followed, Source, Tracepoint};
use crate::{Error, EventFormat, Field, LiveAccess, LiveExit, Recorder, Tracefs, Watch};
use owned::Owned;
use past::{Past, Step};

/// The time for which an exit is held back until the events of all CPUs during it have arrived.
const HOLD_BACK_NS: u64 = 100_000_000;
/// The interval of looking for new vCPU threads, and for CPUs that came online or went offline.
const LOOK_NS: u64 = 200_000_000;
/// The number of exits that can wait to be reported; more are counted as lost.
const MOST_WAITING: usize = 65_536;
/// The most threads that are watched at a time: the kernel allows one page for a filter, and a thread takes up to 56
/// characters. Without a filter, each context switch and interrupt of the host would be a record.
const MOST_WATCHED: usize = 64;
/// The time after which a thread without exits is forgotten, and one without long exits makes room for one with them.
const FORGET_NS: u64 = 10_000_000_000;
/// The least time between two changes of the threads that are watched: each opens all events on all CPUs, and interrupts all
/// CPUs for that.
const CHANGE_NS: u64 = 1_000_000_000;
/// The most gaps that are kept. Beyond that, nothing is known about the time before the first one's end.
const MOST_GAPS: usize = 1024;
/// The reason why the host is not watched for all vCPUs.
const TOO_MANY: &str = "only 64 vCPUs can be watched at a time; select fewer with --vm";
/// After so many refusals in a row, further threads are given up: a processor that goes offline meanwhile costs one.
const MOST_REFUSED: u32 = 5;

/// A long exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongOccurrence {
    /// The exit; its clock is `CLOCK_MONOTONIC`.
    pub exit: LongExit,
    /// The time of the exit.
    pub wall: SystemTime,
    /// The process of the VM, if it still existed when it was looked up.
    pub owner: Option<Owner>,
}

/// The final counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct LongSummary {
    /// All exits.
    pub exits: u64,
    /// Exits of at least the given time.
    pub long: u64,
    /// Excluded exits that were long because the guest slept.
    pub slept: u64,
    /// Exits that were lost in the kernel or here, or have no time because the entry after them was; some may have been
    /// long.
    pub lost: u64,
    /// Lost events of the scheduler and of interrupts: exits at their times have no breakdown.
    pub lost_context: u64,
    /// Those beyond the bound that do not say what the host did.
    pub without_context: u64,
    /// Why the host was not watched, or not for all vCPUs.
    pub context_missing: Option<String>,
}

/// Refusals to watch more threads.
#[derive(Debug, Default)]
struct Refusals {
    in_a_row: u32,
    /// The last one, once there were so many that the rest of the threads is given up.
    given_up: Option<String>,
}

impl Refusals {
    fn add(&mut self, error: &Error) {
        debug!(%error, "threads of vCPUs are not watched");
        self.in_a_row += 1;
        if self.in_a_row >= MOST_REFUSED {
            self.given_up = Some(with_causes(error));
        }
    }
}

/// The events besides the scheduler's, with the step that each means.
const STEPS: [(&str, &str, Step); 11] = [
    ("kvm", "kvm_userspace_exit", Step::User),
    ("irq", "irq_handler_entry", Step::Interrupt),
    ("irq", "irq_handler_exit", Step::InterruptEnd),
    ("irq", "softirq_entry", Step::Interrupt),
    ("irq", "softirq_exit", Step::InterruptEnd),
    ("irq_vectors", "local_timer_entry", Step::Interrupt),
    ("irq_vectors", "local_timer_exit", Step::InterruptEnd),
    ("irq_vectors", "reschedule_entry", Step::Interrupt),
    ("irq_vectors", "reschedule_exit", Step::InterruptEnd),
    ("irq_vectors", "call_function_single_entry", Step::Interrupt),
    ("irq_vectors", "call_function_single_exit", Step::InterruptEnd),
];

/// The fields of `sched_switch`.
#[derive(Debug)]
struct Switch {
    id: u16,
    prev_pid: Field,
    prev_state: Field,
    next_pid: Field,
    next_comm: Field,
}

impl Switch {
    fn new(format: &EventFormat) -> Result<Self, Error> {
        let one = |name| number_field(format, name);
        let comm = format.field("next_comm").cloned();
        Ok(Self {
            id: format.id,
            prev_pid: one("prev_pid")?,
            prev_state: one("prev_state")?,
            next_pid: one("next_pid")?,
            next_comm: comm.ok_or_else(|| Error::Field { event: format.name.clone(), field: "next_comm" })?,
        })
    }

    /// The threads that were switched out and in, with their steps.
    fn read(&self, raw: &[u8]) -> Option<[(u32, Step); 2]> {
        let number = |field: &Field| u32::try_from(field.read(raw)?).ok();
        let comm = raw.get(self.next_comm.offset..)?.get(..self.next_comm.size)?;
        let comm = comm.split(|&byte| byte == 0).next().unwrap_or_default();
        // `TASK_RUNNING`, possibly with the flag for preemption (include/trace/events/sched.h, TASK_REPORT_MAX).
        let state = self.prev_state.read(raw)?;
        let preempted = state & 0xff == 0;
        let next_pid = number(&self.next_pid)?;
        // Thread 0 of each CPU is its idle thread.
        let next = (next_pid != 0).then(|| String::from_utf8_lossy(comm).into_owned());
        Some([(number(&self.prev_pid)?, Step::Out { next, preempted }), (next_pid, Step::In)])
    }
}

/// The events about threads that this kernel has.
#[derive(Debug)]
struct Context {
    event_id: Field,
    switch: Switch,
    steps: HashMap<u16, Step>,
    tracepoints: Vec<Tracepoint>,
}

impl Context {
    fn new(tracefs: &Tracefs) -> Result<Self, Error> {
        let format = tracefs.format("sched", "sched_switch")?;
        let switch = Switch::new(&format)?;
        let event_id = number_field(&format, "common_type")?;
        let mut tracepoints =
            vec![Tracepoint { id: switch.id, name: "sched:sched_switch".to_owned(), filter: None }];
        let mut steps = HashMap::new();
        for (system, name, step) in STEPS {
            // If the kernel lacks one of them, its part of the time is counted as something else.
            let Ok(format) = tracefs.format(system, name) else { continue };
            tracepoints.push(Tracepoint { id: format.id, name: format!("{system}:{name}"), filter: None });
            steps.insert(format.id, step);
        }
        Ok(Self { event_id, switch, steps, tracepoints })
    }

    /// The tracepoints, filtered to these threads, which are at most [`MOST_WATCHED`].
    fn filtered(&self, threads: &BTreeSet<u32>) -> Vec<Tracepoint> {
        let filter = |of: &dyn Fn(u32) -> String| {
            Some(threads.iter().map(|&thread| of(thread)).collect::<Vec<_>>().join("||"))
        };
        let switched = filter(&|thread| format!("prev_pid=={thread}||next_pid=={thread}"));
        let within = filter(&|thread| format!("common_pid=={thread}"));
        let each = self.tracepoints.iter().cloned();
        each.map(|one| {
            let filter = if one.id == self.switch.id { switched.clone() } else { within.clone() };
            Tracepoint { filter, ..one }
        })
        .collect()
    }

    fn steps(&self, sample: &Sample<'_>) -> Vec<(u32, Step)> {
        let id = self.event_id.read(sample.raw).and_then(|id| u16::try_from(id).ok());
        match id {
            Some(id) if id == self.switch.id => {
                self.switch.read(sample.raw).map(Vec::from).unwrap_or_default()
            }
            Some(id) => {
                let thread = u32::try_from(sample.tid).ok();
                thread.zip(self.steps.get(&id).cloned()).into_iter().collect()
            }
            None => Vec::new(),
        }
    }
}

/// The exits of a vCPU thread.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// The end of the last one.
    last_ns: u64,
    /// The end of the last long one, 0 before the first.
    last_long_ns: u64,
}

/// The threads to watch: at most [`MOST_WATCHED`], first those with long exits. Of equals those are taken that are watched
/// already, because a change is costly.
fn to_watch(seen: &BTreeMap<u32, Seen>, is_watched: impl Fn(u32) -> bool, now_ns: u64) -> BTreeSet<u32> {
    let rank = |(&thread, seen): (&u32, &Seen)| {
        let has_long = seen.last_long_ns > 0 && now_ns.saturating_sub(seen.last_long_ns) < FORGET_NS;
        (!has_long, !is_watched(thread), thread)
    };
    let mut ranked: Vec<_> = seen.iter().map(rank).collect();
    ranked.sort_unstable();
    ranked.into_iter().take(MOST_WATCHED).map(|(_, _, thread)| thread).collect()
}

/// A time during which events of a CPU were lost.
#[derive(Debug, Clone, Copy)]
struct Gap {
    cpu: u32,
    from_ns: u64,
    to_ns: u64,
}

impl Gap {
    /// Tests whether events of a thread may be missing that began an exit on `cpu`. On another CPU than that of the gap, its
    /// events are complete until it is switched out; then it may have been anywhere.
    fn concerns(&self, past: &Past, cpu: u32, from_ns: u64, to_ns: u64) -> bool {
        let overlaps = self.from_ns <= to_ns && from_ns <= self.to_ns;
        overlaps && (self.cpu == cpu || past.is_switched_out(from_ns, to_ns.min(self.to_ns)))
    }
}

/// Watches the whole host for long exits, until dropped.
pub struct LongTracer {
    root: PathBuf,
    options: LongOptions,
    recorder: Recorder,
    /// The reason why the host's activity cannot be watched, if it cannot.
    context: Result<Context, String>,
    source: Option<Source>,
    /// The threads that are watched.
    pasts: BTreeMap<u32, Past>,
    /// The time of each CPU's last event.
    last_events: BTreeMap<u32, u64>,
    gaps: VecDeque<Gap>,
    /// The vCPU threads that had exits.
    seen: BTreeMap<u32, Seen>,
    /// There were more of them than can be watched.
    too_many: bool,
    waiting: VecDeque<LongExit>,
    owned: Owned,
    summary: LongSummary,
    without_time: u64,
    looked_ns: u64,
    changed_ns: u64,
    refusals: Refusals,
}

impl LongTracer {
    /// Starts on the host below `root` (`/` for this one).
    ///
    /// # Errors
    /// Those of [`Recorder::attach`], and [`Error::Thread`]. If the scheduler cannot be watched, exits are reported without a
    /// breakdown; [`Self::without_context`] has the reason.
    pub fn attach(root: &Path, watch: &Watch, options: LongOptions) -> Result<Self, Error> {
        let recorder = Recorder::attach(root, &Watch { long: Some(options), ..watch.clone() })?;
        let owned = Owned::start(root).map_err(|source| Error::Thread { does: "looks for VMs", source })?;
        let context = Tracefs::find(root).and_then(|tracefs| Context::new(&tracefs));
        Ok(Self::with(root, options, recorder, owned, context.map_err(|error| with_causes(&error))))
    }

    fn with(
        root: &Path,
        options: LongOptions,
        recorder: Recorder,
        owned: Owned,
        context: Result<Context, String>,
    ) -> Self {
        Self {
            root: root.to_owned(),
            options,
            recorder,
            context,
            source: None,
            pasts: BTreeMap::new(),
            last_events: BTreeMap::new(),
            gaps: VecDeque::new(),
            seen: BTreeMap::new(),
            too_many: false,
            waiting: VecDeque::new(),
            owned,
            summary: LongSummary::default(),
            without_time: 0,
            looked_ns: 0,
            changed_ns: 0,
            refusals: Refusals::default(),
        }
    }

    /// The reason why exits do not say what the host did, if they do not; or if only those of some vCPUs do, which shows
    /// later.
    #[must_use]
    pub fn without_context(&self) -> Option<&str> {
        let refused = self.context.as_ref().err().or(self.refusals.given_up.as_ref());
        refused.map(String::as_str).or(self.too_many.then_some(TOO_MANY))
    }

    /// The number of long exits that were returned.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.summary.long
    }

    /// The long exits since the last call, in order of time; those of the last 100 ms, and those whose VMs are still being
    /// looked up, follow with a later call. Call it about twenty times a second.
    pub fn poll(&mut self) -> Vec<LongOccurrence> {
        let now = Anchor::now();
        self.take_exits();
        self.take_context();
        if now.ns().saturating_sub(self.looked_ns) > LOOK_NS {
            self.looked_ns = now.ns();
            self.look(now.ns());
        }
        self.release(now, now.ns().saturating_sub(HOLD_BACK_NS));
        let items = self.owned.take();
        self.summary.long += items.len() as u64;
        items
    }

    /// Ends the trace, and returns the remaining exits and the counts.
    ///
    /// # Errors
    /// [`Error::KernelMap`] if the number of lost exits cannot be read.
    pub fn finish(mut self) -> Result<(Vec<LongOccurrence>, LongSummary), Error> {
        let now = Anchor::now();
        self.take_exits();
        if let Some(source) = &mut self.source {
            source.disable();
        }
        self.take_context();
        self.release(now, u64::MAX);
        self.summary.lost += lost(&self.recorder.lost()?, self.without_time);
        let (exits, slept) = self.recorder.counted()?;
        self.summary.exits = exits;
        self.summary.slept += slept;
        self.summary.context_missing = self.without_context().map(str::to_owned);
        let items = self.owned.finish();
        self.summary.long += items.len() as u64;
        Ok((items, self.summary))
    }

    fn take_exits(&mut self) {
        let Self { recorder, options, waiting, owned, seen, summary, without_time, .. } = self;
        let under_way = owned.under_way();
        recorder.drain(&mut |exit: &LiveExit, accesses: &[LiveAccess]| {
            *without_time += u64::from(exit.handling_ns.is_none());
            let long_ns = options.long_ns(exit.reason, exit.handling_ns, &mut summary.slept);
            if let Some(thread) = exit.vcpu.thread {
                let seen = seen.entry(thread).or_default();
                // A thread that slept in its exit for long is not one without exits.
                seen.last_ns = exit.time_ns.saturating_add(exit.handling_ns.unwrap_or(0));
                if long_ns.is_some() {
                    seen.last_long_ns = seen.last_ns;
                }
            }
            let Some(handling_ns) = long_ns else { return };
            if waiting.len() + under_way >= MOST_WAITING {
                summary.lost += 1;
                return;
            }
            waiting.push_back(LongExit {
                recording: 0,
                time_ns: exit.time_ns,
                vcpu: exit.vcpu,
                cpu: exit.cpu,
                reason: exit.reason,
                accesses: accesses.iter().map(|one| one.access).collect(),
                guest_rip: None,
                handling_ns,
                meanwhile: None,
            });
        });
    }

    fn take_context(&mut self) {
        let taken = self.source.as_mut().map(Source::take).unwrap_or_default();
        self.hold(&taken);
    }

    fn hold(&mut self, taken: &[CpuRecords]) {
        let Ok(context) = &self.context else { return };
        for &CpuRecords { cpu, ref bytes } in taken {
            // What is lost comes after the last event before it.
            let mut last_ns = self.last_events.get(&cpu).copied().unwrap_or(0);
            for record in records(bytes) {
                match record {
                    Record::Sample(sample) => {
                        last_ns = sample.time_ns;
                        for (thread, step) in context.steps(&sample) {
                            if let Some(past) = self.pasts.get_mut(&thread) {
                                past.push(sample.time_ns, step);
                            }
                        }
                    }
                    Record::Lost(events) => {
                        self.summary.lost_context += events;
                        // The time of the next sample is not known yet.
                        self.gaps.push_back(Gap { cpu, from_ns: last_ns, to_ns: crate::monotonic_ns() });
                    }
                    Record::Malformed { .. } | Record::Other(_) => {}
                }
            }
            self.last_events.insert(cpu, last_ns);
        }
        while self.gaps.len() > MOST_GAPS {
            let Some(gap) = self.gaps.pop_front() else { break };
            self.pasts.values_mut().for_each(|past| past.forget_before(gap.to_ns));
        }
    }

    /// Watches threads that recently had exits.
    fn look(&mut self, now_ns: u64) {
        self.seen.retain(|_, seen| now_ns.saturating_sub(seen.last_ns) < FORGET_NS);
        if self.context.is_err() {
            return;
        }
        let Ok(cpus) = online(&self.root) else { return };
        let threads = to_watch(&self.seen, |thread| self.pasts.contains_key(&thread), now_ns);
        if threads.is_empty() {
            return;
        }
        self.too_many |= self.seen.len() > threads.len();
        let given_up = self.refusals.given_up.is_some();
        let is_early = self.source.is_some() && now_ns.saturating_sub(self.changed_ns) < CHANGE_NS;
        // Also if the source is replaced below: threads that stay watched have a gap on CPUs that were offline.
        let followed = self.source.as_mut().map(|source| source.follow(&cpus)).unwrap_or_default();
        self.follow(followed);
        if given_up || is_early || threads.iter().all(|thread| self.pasts.contains_key(thread)) {
            return;
        }
        let Ok(context) = &self.context else { return };
        // Open the new source before closing the old one, so that no event is missed.
        let opened = Source::open(context.filtered(&threads), &cpus).and_then(|mut source| {
            source.enable()?;
            Ok(source)
        });
        match opened {
            Ok(source) => {
                let begun_ns = crate::monotonic_ns();
                self.take_context();
                self.source = Some(source);
                self.changed_ns = begun_ns;
                self.refusals = Refusals::default();
                self.pasts.retain(|thread, _| threads.contains(thread));
                for thread in threads {
                    self.pasts.entry(thread).or_insert_with(|| Past::from(begun_ns));
                }
            }
            Err(error) => self.refusals.add(&error),
        }
    }

    /// Takes the last records of CPUs that went offline, and keeps the gaps on those that came online some time ago.
    fn follow(&mut self, followed: Followed) {
        self.hold(&followed.last);
        // Their events were opened a moment ago.
        let to_ns = crate::monotonic_ns();
        self.gaps.extend(followed.begun.into_iter().map(|cpu| {
            let from_ns = self.last_events.get(&cpu).copied().unwrap_or(0);
            Gap { cpu, from_ns, to_ns }
        }));
    }

    /// What the host did during an exit, if all of it is known.
    fn meanwhile(&self, exit: &LongExit) -> Option<Meanwhile> {
        let past = self.pasts.get(&exit.vcpu.thread?)?;
        let (from_ns, to_ns) = (exit.time_ns, exit.time_ns + exit.handling_ns);
        let is_missing = |gap: &Gap| gap.concerns(past, exit.cpu.into(), from_ns, to_ns);
        if self.gaps.iter().any(is_missing) { None } else { past.between(from_ns, to_ns) }
    }

    /// Passes on the exits that ended until then.
    fn release(&mut self, now: Anchor, until_ns: u64) {
        let (ready, wait): (Vec<LongExit>, Vec<LongExit>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|exit| exit.time_ns + exit.handling_ns <= until_ns);
        self.waiting = wait.into();
        let mut items: Vec<LongOccurrence> = Vec::with_capacity(ready.len());
        for mut exit in ready {
            exit.meanwhile = self.meanwhile(&exit);
            self.summary.without_context += u64::from(exit.meanwhile.is_none());
            items.push(LongOccurrence { wall: now.wall(exit.time_ns), owner: None, exit });
        }
        items.sort_by_key(|item| item.exit.time_ns);
        self.owned.add(items);
    }
}

/// The exits that are missing, or whose times are. The other events that were lost are accesses, or entries after exits that
/// were lost too. Exits in which threads ended have no time to be missing.
fn lost(losses: &Losses, without_time: u64) -> u64 {
    let without_entry = without_time.saturating_sub(losses.exits_at_the_end);
    losses.lost_exits + without_entry.min(losses.lost_events.saturating_sub(losses.lost_exits))
}

#[cfg(test)]
#[path = "long/long_tests.rs"]
mod tests;
