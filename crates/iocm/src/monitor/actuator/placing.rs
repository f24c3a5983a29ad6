//! Threads and interrupts on CPUs, each change in the journal and put back at the end.

use host::CpuSet;
use host::scheduling::ThreadId;
use knobs::{Actions, Change, Changes, Entry, Error, Lasting, Made, Outcome};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What was placed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Placed {
    /// A thread, and when it started.
    Thread(ThreadId, u64),
    /// An interrupt.
    Interrupt(u32),
}

/// Threads and interrupts on CPUs, each change in the journal and put back at the end; what a `kill -9` leaves,
/// `exitless restore` puts back.
#[derive(Debug)]
pub struct Placing<A: Actions> {
    root: PathBuf,
    changes: Changes<A>,
    /// Where each is now; without an entry where it was already.
    held: BTreeMap<Placed, (String, Option<Entry>)>,
}

impl<A: Actions> Placing<A> {
    /// Prepares changes of the host below `root`. `command` is the command line that the journal shows.
    ///
    /// # Errors
    /// When there can be no journal.
    pub fn begin(root: &Path, actions: A, command: Vec<String>) -> Result<Self, Error> {
        let changes = Changes::begin(root, actions, command)?;
        Ok(Self { root: root.to_owned(), changes, held: BTreeMap::new() })
    }

    /// Lets a thread run on these CPUs alone.
    ///
    /// # Errors
    /// [`Error::ThreadGone`], and when the kernel refuses.
    pub(super) fn thread(&mut self, thread: ThreadId, cpus: &CpuSet) -> Result<(), Error> {
        let gone = Error::ThreadGone { tid: thread.tid };
        let start_ticks = thread.start_ticks(&self.root).ok_or(gone)?;
        let cpus = cpus.to_string();
        let change = Change::Affinity { tid: thread.tid, start_ticks, cpus: cpus.clone() };
        self.place(Placed::Thread(thread, start_ticks), cpus, change)
    }

    /// Has an interrupt handled on these CPUs alone (`smp_affinity_list`, Documentation/core-api/irq/irq-affinity.rst).
    ///
    /// # Errors
    /// When the kernel refuses, as it does for interrupts that it spreads over CPUs itself.
    pub(super) fn interrupt(&mut self, number: u32, cpus: &CpuSet) -> Result<(), Error> {
        let (path, cpus) = (format!("/proc/irq/{number}/smp_affinity_list"), cpus.to_string());
        self.place(Placed::Interrupt(number), cpus.clone(), Change::Value { path, value: cpus })
    }

    fn place(&mut self, what: Placed, cpus: String, change: Change) -> Result<(), Error> {
        match self.held.get_mut(&what) {
            Some((now, _)) if *now == cpus => return Ok(()),
            Some((now, Some(entry))) => {
                self.changes.make_again(entry, change)?;
                *now = cpus;
                return Ok(());
            }
            _ => {}
        }
        let entry = match self.changes.make(change, Lasting::WhileHeld)? {
            Made::Changed(entry) => Some(*entry),
            Made::AlreadySo => None,
        };
        self.held.insert(what, (cpus, entry));
        Ok(())
    }

    /// Puts a thread back to where it was.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn thread_back(&mut self, thread: ThreadId) -> Result<(), Error> {
        self.back(|what| matches!(what, Placed::Thread(one, _) if *one == thread))
    }

    /// Puts all interrupts back.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn interrupts_back(&mut self) -> Result<(), Error> {
        self.back(|what| matches!(what, Placed::Interrupt(_)))
    }

    fn back(&mut self, which: impl Fn(&Placed) -> bool) -> Result<(), Error> {
        let found: Vec<Placed> = self.held.keys().filter(|what| which(what)).cloned().collect();
        for what in found {
            if let Some((_, Some(entry))) = self.held.remove(&what) {
                self.changes.undo(&entry)?;
            }
        }
        Ok(())
    }

    /// Threads that others moved since, or whose process is no more, are theirs again: what the journal says of them is
    /// left for the end.
    pub(super) fn forget(&mut self, thread: ThreadId) {
        self.held.retain(|what, _| !matches!(what, Placed::Thread(one, _) if *one == thread));
    }

    /// The CPUs that a thread was put on.
    pub(super) fn placed_on(&self, thread: ThreadId) -> Option<CpuSet> {
        let mut held = self.held.iter();
        let (_, (cpus, _)) =
            held.find(|(what, _)| matches!(what, Placed::Thread(one, _) if *one == thread))?;
        CpuSet::parse(cpus)
    }

    /// Puts everything back. What could not be.
    pub(super) fn release(&mut self) -> Vec<String> {
        self.held.clear();
        let told = |(entry, outcome): (Entry, Result<Outcome, Error>)| match outcome {
            Ok(Outcome::ChangedSince { what }) => {
                Some(format!("Change {} stays, for others changed it since: {what}", entry.id))
            }
            Ok(_) => None,
            Err(error) => Some(format!("Change {} is left; run `exitless restore`: {error}", entry.id)),
        };
        self.changes.release().into_iter().filter_map(told).collect()
    }
}
