//! The pinning of threads and interrupts. Each change is in the journal and is restored at the end.

use host::scheduling::ThreadId;
use host::{ControlGroup, CpuSet};
use knobs::{
    Actions, Change, Changes, Entry, Error, Lasting, Made, Outcome, Restore, RestoredChange, restore,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// An object whose CPUs were set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Pinned {
    /// A thread, with its start time.
    Thread(ThreadId, u64),
    /// The control group that holds this thread alone.
    Group(ThreadId),
    /// An interrupt.
    Interrupt(u32),
}

impl Pinned {
    fn is_of(&self, thread: ThreadId) -> bool {
        matches!(self, Self::Thread(one, _) | Self::Group(one) if *one == thread)
    }
}

/// Pins threads and interrupts. Each change is in the journal and is restored at the end; after a `kill -9`, `exitless
/// restore` does it.
#[derive(Debug)]
pub struct Pinning<A: Actions> {
    root: PathBuf,
    changes: Changes<A>,
    /// The changes of earlier processes that were undone at the start, or could not be.
    recovered: Vec<RestoredChange>,
    /// Pin threads that have a control group of their own by that group.
    by_groups: bool,
    /// The present CPUs of each object, with the journal's entry if they were changed.
    held: BTreeMap<Pinned, (String, Option<Entry>)>,
}

impl<A: Actions> Pinning<A> {
    /// Prepares changes to the host below `root`. `command` is the command line that the journal shows. Undoes the
    /// placement of processes that were killed: such threads would seem to be pinned by others.
    ///
    /// # Errors
    /// When the journal cannot be opened or read.
    pub fn begin(root: &Path, mut actions: A, command: Vec<String>) -> Result<Self, Error> {
        let placement = Restore { only_placement: true, ..Restore::default() };
        let recovered = restore(root, &mut actions, placement)?.changes;
        let changes = Changes::begin(root, actions, command)?;
        Ok(Self { root: root.to_owned(), changes, recovered, by_groups: false, held: BTreeMap::new() })
    }

    /// Messages about the changes of killed processes that were undone at the start, and about those that are left.
    #[must_use]
    pub fn recovered(&self) -> Vec<String> {
        let undone = self.recovered.iter().filter(|one| one.outcome == Outcome::Undone).count();
        let changes = exits::counted(undone as u64, "change");
        let told = (undone > 0)
            .then(|| format!("Undid {changes} of CPUs that another exitless left when it was killed"));
        let left = self.recovered.iter().filter_map(|one| match &one.outcome {
            Outcome::Failed { why } => {
                Some(format!("Change {} is left; run `exitless restore`: {why}", one.entry.id))
            }
            _ => None,
        });
        told.into_iter().chain(left).collect()
    }

    /// Pins threads that have a cgroup v2 group of their own by its `cpuset.cpus`, and others by affinity.
    #[must_use]
    pub fn by_groups(self) -> Self {
        Self { by_groups: true, ..self }
    }

    /// Restricts a thread to these CPUs. `group` is the `cpuset.cpus` file of a control group that holds this thread alone.
    ///
    /// # Errors
    /// [`Error::ThreadGone`], and when the kernel refuses.
    pub(super) fn thread(
        &mut self,
        thread: ThreadId,
        cpus: &CpuSet,
        group: Option<&str>,
    ) -> Result<(), Error> {
        let gone = Error::ThreadGone { tid: thread.tid };
        let start_ticks = thread.start_ticks(&self.root).ok_or(gone)?;
        let cpus = cpus.to_string();
        let by_affinity = Pinned::Thread(thread, start_ticks);
        if let (Some(path), true, false) = (group, self.by_groups, self.held.contains_key(&by_affinity)) {
            let change = Change::Value { path: path.to_owned(), value: cpus.clone() };
            match self.core(Pinned::Group(thread), cpus.clone(), change) {
                // The group cannot be changed, for example because it is a cpuset partition: set the thread's affinity
                // instead.
                Err(Error::Access { .. }) if !self.held.contains_key(&Pinned::Group(thread)) => {}
                outcome => return outcome,
            }
        }
        let change = Change::Affinity { tid: thread.tid, start_ticks, cpus: cpus.clone() };
        self.core(by_affinity, cpus, change)
    }

    /// Routes an interrupt to these CPUs only (`smp_affinity_list`, Documentation/core-api/irq/irq-affinity.rst).
    ///
    /// # Errors
    /// When the kernel refuses, as it does for managed interrupts.
    pub(super) fn interrupt(&mut self, number: u32, cpus: &CpuSet) -> Result<(), Error> {
        let (path, cpus) = (format!("/proc/irq/{number}/smp_affinity_list"), cpus.to_string());
        self.core(Pinned::Interrupt(number), cpus.clone(), Change::Value { path, value: cpus })
    }

    fn core(&mut self, what: Pinned, cpus: String, change: Change) -> Result<(), Error> {
        match self.held.get_mut(&what) {
            Some((now, _)) if *now == cpus => return Ok(()),
            Some((now, Some(entry))) => {
                let made = self.changes.make_again(entry, change);
                // Without its line in the journal it is made all the same.
                if matches!(made, Ok(()) | Err(Error::JournalDone { .. })) {
                    *now = cpus;
                }
                return made;
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

    /// Restores the CPUs of a thread.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn thread_back(&mut self, thread: ThreadId) -> Result<(), Error> {
        self.back(|what| what.is_of(thread))
    }

    /// Restores the CPUs of all interrupts but those with these numbers.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn interrupts_back_but(&mut self, kept: &BTreeSet<u32>) -> Result<(), Error> {
        self.back(|what| matches!(what, Pinned::Interrupt(number) if !kept.contains(number)))
    }

    /// Restores the CPUs of all threads and interrupts but these.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn keep_only(
        &mut self,
        threads: &BTreeSet<ThreadId>,
        interrupts: &BTreeSet<u32>,
    ) -> Result<(), Error> {
        self.back(|what| match what {
            Pinned::Thread(thread, _) | Pinned::Group(thread) => !threads.contains(thread),
            Pinned::Interrupt(number) => !interrupts.contains(number),
        })
    }

    /// One that cannot be restored keeps none of the others, and stays held for the next attempt. One that others have
    /// changed since is theirs from now on. The first error is returned.
    fn back(&mut self, which: impl Fn(&Pinned) -> bool) -> Result<(), Error> {
        let found: Vec<Pinned> = self.held.keys().filter(|what| which(what)).cloned().collect();
        let mut outcome = Ok(());
        for what in found {
            let undone = match self.held.get(&what) {
                Some((_, Some(entry))) => self.changes.undo_or_forget(entry).map(drop),
                _ => Ok(()),
            };
            // Without its line in the journal it is undone all the same.
            if matches!(undone, Ok(()) | Err(Error::JournalUndone { .. })) {
                self.held.remove(&what);
            }
            // The next one would wait for the lock again.
            let is_locked = matches!(undone, Err(Error::Locked { .. }));
            outcome = outcome.and(undone);
            if is_locked {
                break;
            }
        }
        outcome
    }

    /// Tests whether there is something to restore.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The CPUs that a thread was pinned to.
    pub(super) fn pinned_to(&self, thread: ThreadId) -> Option<CpuSet> {
        let (_, (cpus, _)) = self.held.iter().find(|(what, _)| what.is_of(thread))?;
        CpuSet::parse(cpus)
    }

    /// Restores everything. Returns what could not be restored.
    pub(super) fn release(&mut self) -> Vec<String> {
        self.held.clear();
        let told = |(entry, outcome): (Entry, Result<Outcome, Error>)| match outcome {
            Ok(Outcome::ChangedSince { what }) => {
                Some(format!("Change {} stays, for others changed it since: {what}", entry.id))
            }
            Ok(_) => None,
            Err(error) => Some(entry.left_by(&error)),
        };
        self.changes.release().into_iter().filter_map(told).collect()
    }
}

/// The control groups of a VM's threads. Threads without one are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Groups(BTreeMap<ThreadId, ControlGroup>);

impl Groups {
    /// The groups of those threads of one VM that are to be placed.
    pub(super) fn of(root: &Path, threads: &[ThreadId]) -> Self {
        Self(threads.iter().filter_map(|&thread| Some((thread, ControlGroup::of(root, thread)?))).collect())
    }

    /// The CPUs that the VM may use, by the nearest group that contains all threads: groups below it may be for single
    /// threads. `None` if no group says.
    pub(super) fn cpus(&self, root: &Path) -> Option<CpuSet> {
        let mut groups = self.0.values();
        let first = groups.next()?.clone();
        groups.try_fold(first, |common, group| common.common(group))?.cpus(root)
    }

    /// The group of a thread and the CPUs that it allows, if these do not include all wanted CPUs in `of`.
    pub(super) fn forbidding(
        &self,
        root: &Path,
        thread: ThreadId,
        wanted: &CpuSet,
        of: &CpuSet,
    ) -> Option<(&Path, CpuSet)> {
        let group = self.0.get(&thread)?;
        let cpus = group.cpus(root)?;
        let wanted: CpuSet = wanted.iter().filter(|cpu| of.contains(*cpu)).collect();
        (!cpus.contains_all(&wanted)).then(|| (group.path(), cpus))
    }

    /// The `cpuset.cpus` files of groups that hold just one of these threads, such as libvirt's groups for vCPUs and
    /// iothreads (`vcpu0`, `iothread1`). Kernel threads that work for the thread may be in the group, too, but not the
    /// main thread of the VM's process `pid`: its group is for the whole VM.
    pub(super) fn own(&self, root: &Path, pid: i32) -> BTreeMap<ThreadId, String> {
        let pinned: BTreeSet<i32> = self.0.keys().map(|thread| thread.tid).collect();
        let is_own = |thread: &ThreadId, group: &ControlGroup| {
            let inside = group.threads(root);
            let others = |tid: &&i32| **tid != thread.tid && (pinned.contains(tid) || **tid == pid);
            inside.contains(&thread.tid)
                && !inside.iter().any(|tid| others(&tid))
                && inside
                    .iter()
                    .all(|tid| ThreadId { pid: thread.pid, tid: *tid }.start_ticks(root).is_some())
        };
        let own = self.0.iter().filter(|(thread, group)| is_own(thread, group));
        own.filter_map(|(&thread, group)| Some((thread, group.cpus_file(root)?))).collect()
    }
}
