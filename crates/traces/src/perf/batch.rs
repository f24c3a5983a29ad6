//! The decoded events of a chunk, by thread.

use exits::Span;

use crate::decoder::Counts;
use crate::event::Event;
use crate::run::Run;

/// A record that is not an event, but whose place among them matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    /// All buffers were read once (`PERF_RECORD_FINISHED_ROUND`).
    Round,
    /// The buffer of this CPU was full and `count` records were dropped. The last event before was at `after_ns`;
    /// `None` if that is in an earlier chunk.
    Lost { cpu: u16, count: u64, after_ns: Option<u64> },
    /// The kernel's count of lost samples of an event, which is or is not an exit.
    LostSamples { exits: bool, count: u64 },
    /// The name of a process from this time on; zero if it existed before the recording.
    Name { process: u32, name: String, time_ns: u64 },
}

/// A thread and its process as in samples: a 64-bit word with the process in the lower half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Member(u64);

impl Member {
    /// The thread and process from a sample.
    pub(super) fn new(both: u64) -> Self {
        Self(both)
    }

    /// A thread whose process is not in the samples.
    pub(super) fn of_unknown_process(thread: u32) -> Self {
        Self(u64::from(thread) << 32 | u64::from(u32::MAX))
    }

    pub(super) fn thread(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn process(self) -> Option<u32> {
        Some(self.0 as u32).filter(|&process| process != u32::MAX)
    }
}

/// The size of the table that finds the run of a thread without a search.
const RECENT: usize = 64;
/// No run.
const NONE: u32 = u32::MAX;

/// The time of the last event of each CPU.
#[derive(Debug, Default)]
pub(super) struct LastOfCpu(Vec<u64>);

impl LastOfCpu {
    fn clear(&mut self) {
        self.0.fill(0);
    }

    #[inline(always)]
    pub(super) fn set(&mut self, cpu: u16, time_ns: u64) {
        match self.0.get_mut(usize::from(cpu)) {
            Some(last) => *last = time_ns,
            None => self.add(cpu, time_ns),
        }
    }

    #[cold]
    fn add(&mut self, cpu: u16, time_ns: u64) {
        self.0.resize(usize::from(cpu) + 1, 0);
        self.0[usize::from(cpu)] = time_ns;
    }

    /// The time; `None` if the CPU had no event.
    pub(super) fn get(&self, cpu: u16) -> Option<u64> {
        self.0.get(usize::from(cpu)).copied().filter(|&last| last > 0)
    }

    /// The CPUs with an event, and its time.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, u64)> {
        (0..=u16::MAX).zip(self.0.iter().copied()).filter(|(_, last)| *last > 0)
    }
}

/// A chunk, decoded.
pub(super) struct Batch {
    runs: Vec<Run<Member>>,
    used: usize,
    recent: [u32; RECENT],
    /// The notes, each with the number of runs before it.
    pub(super) notes: Vec<(usize, Note)>,
    pub(super) last_of_cpu: LastOfCpu,
    /// The events are samples, so that some are missing.
    pub(super) is_sampled: bool,
    /// The times of samples other than events of interest.
    pub(super) observed: Option<Span>,
    pub(super) counts: Counts,
    pub(super) undecoded: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            used: 0,
            recent: [NONE; RECENT],
            notes: Vec::new(),
            last_of_cpu: LastOfCpu::default(),
            is_sampled: false,
            observed: None,
            counts: Counts::new(),
            undecoded: 0,
        }
    }
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.recent = [NONE; RECENT];
        self.notes.clear();
        self.last_of_cpu.clear();
        self.is_sampled = false;
        self.observed = None;
        self.counts.clear();
        self.undecoded = 0;
    }

    pub(super) fn runs(&mut self) -> &mut [Run<Member>] {
        &mut self.runs[..self.used]
    }

    /// Adds an event of a thread.
    pub(super) fn push(&mut self, member: Member, event: &Event) {
        self.last_of_cpu.set(event.cpu, event.time_ns);
        let number = self.run_of(member);
        self.runs[number].push(event);
    }

    /// Adds the time of a sample other than an event of interest, if it has one.
    pub(super) fn observe(&mut self, time_ns: Option<u64>) {
        if let Some(time_ns) = time_ns.filter(|&time_ns| time_ns > 0) {
            let time = Span { first_ns: time_ns, last_ns: time_ns };
            Span::widen(&mut self.observed, time);
        }
    }

    /// The index of the current run of a thread; it changes with every note.
    #[inline]
    pub(super) fn run_of(&mut self, member: Member) -> usize {
        let recent = self.recent[member.thread() as usize % RECENT] as usize;
        match self.runs.get(recent) {
            Some(run) if run.thread == member => recent,
            _ => self.begin(member),
        }
    }

    pub(super) fn run(&mut self, number: usize) -> &mut Run<Member> {
        &mut self.runs[number]
    }

    /// Starts a run. A thread may have several, which stay in order.
    #[cold]
    fn begin(&mut self, member: Member) -> usize {
        let number = self.used;
        if number == self.runs.len() {
            self.runs.push(Run::default());
        }
        self.used += 1;
        self.recent[member.thread() as usize % RECENT] = number as u32;
        self.runs[number].begin(member);
        number
    }

    /// Adds a note. If its place matters, later events go into new runs.
    pub(super) fn note(&mut self, note: Note) {
        if matches!(note, Note::Round | Note::Lost { .. }) {
            self.recent = [NONE; RECENT];
        }
        self.notes.push((self.used, note));
    }
}
