//! The events of a chunk, thread by thread.

use exits::Span;

use crate::decoder::Counts;
use crate::event::Event;
use crate::run::Run;

/// A record that is not an event but has its place among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    /// All buffers were read once.
    Round,
    /// The buffer of this processor was full and so many records found no room; its last event before was at
    /// `after_ns`, unless that is in an earlier chunk.
    Lost { cpu: u16, count: u64, after_ns: Option<u64> },
    /// The kernel's own count of losses of an event: exits or not.
    LostSamples { exits: bool, count: u64 },
    /// The name of a process from this time on; zero for one that was there before the recording.
    Name { process: u32, name: String, time_ns: u64 },
}

/// A thread and its process, as samples hold them: one number, the process in the lower half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Member(u64);

impl Member {
    /// From the form in samples.
    pub(super) fn new(both: u64) -> Self {
        Self(both)
    }

    /// A thread whose process samples do not tell.
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

/// Threads whose runs are found without a search, by the lowest bits of their numbers.
const RECENT: usize = 64;
/// No run.
const NONE: u32 = u32::MAX;
/// Processors whose last events are known; losses of further ones may be taken for those of others.
pub(super) const CPUS: usize = 1024;

/// A chunk, decoded.
pub(super) struct Batch {
    runs: Vec<Run<Member>>,
    used: usize,
    recent: [u32; RECENT],
    /// Each with the number of runs before it.
    pub(super) notes: Vec<(usize, Note)>,
    /// Time of the last event of each processor; zero for none.
    pub(super) last_of_cpu: [u64; CPUS],
    /// The times of samples that are no events of interest.
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
            last_of_cpu: [0; CPUS],
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
        self.last_of_cpu = [0; CPUS];
        self.observed = None;
        self.counts.clear();
        self.undecoded = 0;
    }

    pub(super) fn runs(&mut self) -> &mut [Run<Member>] {
        &mut self.runs[..self.used]
    }

    /// Takes an event of a thread.
    pub(super) fn push(&mut self, member: Member, event: &Event) {
        self.last_of_cpu[usize::from(event.cpu) % CPUS] = event.time_ns;
        let number = self.run_of(member);
        self.runs[number].push(event);
    }

    /// Notes the time of a sample that is no event of interest, if it has one.
    pub(super) fn observe(&mut self, time_ns: Option<u64>) {
        if let Some(time_ns) = time_ns.filter(|&time_ns| time_ns > 0) {
            let time = Span { first_ns: time_ns, last_ns: time_ns };
            Span::widen(&mut self.observed, time);
        }
    }

    /// The number of the run to which events of a thread belong; it changes with every note.
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

    /// Begins a run. A thread may have several: they stay in order.
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

    /// Adds a note; events after it go to runs of their own where that matters.
    pub(super) fn note(&mut self, note: Note) {
        if matches!(note, Note::Round | Note::Lost { .. }) {
            self.recent = [NONE; RECENT];
        }
        self.notes.push((self.used, note));
    }
}
